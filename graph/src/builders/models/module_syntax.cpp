#include "module_syntax.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <string>

#include "perfmodel/result.hpp"

namespace perfmodel {
namespace {

using Kind = Syntax::Kind;

constexpr std::string_view kModuleTexts[] = {
#include "ops.txt"
    ,
#include "layers.txt"
    ,
#include "decoder.txt"
    ,
#include "transformers.txt"
    ,
#include "vision.txt"
    ,
#include "recurrent.txt"
    ,
#include "recommenders.txt"
    ,
#include "torchrec.txt"
};

constexpr std::string_view kWord =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

// Weakest first.
const std::array<std::vector<std::string_view>, 5> kOperators = {
    {{"or"}, {"and"}, {"==", "!=", "<=", ">=", "<", ">"}, {"+", "-"}, {"*", "//", "/", "%"}}};

bool is_name_letter(char letter) { return kWord.find(letter) != std::string_view::npos; }

/// The expressions and statements of one line.
class LineReader {
 public:
  LineReader(std::string_view text, int line) : rest_(text), line_(line) {}

  bool at_end() {
    skip_spaces();
    return rest_.empty();
  }

  // A sign, or a word that no longer word begins with.
  bool take(std::string_view token) {
    skip_spaces();
    if (!rest_.starts_with(token)) return false;
    if (is_name_letter(token.back()) && rest_.size() > token.size() &&
        is_name_letter(rest_[token.size()])) {
      return false;
    }
    rest_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) { PERFMODEL_CHECK(take(token)); }

  std::string_view word(std::string_view more = "") {
    skip_spaces();
    const auto end = std::ranges::find_if_not(rest_, [&](char letter) {
      return is_name_letter(letter) || more.find(letter) != std::string_view::npos;
    });
    const auto taken = rest_.substr(0, end - rest_.begin());
    PERFMODEL_CHECK(!taken.empty());  // a name is missing
    rest_.remove_prefix(taken.size());
    return taken;
  }

  Syntax expression() {
    Syntax made = operation(0);
    if (!take("if")) return made;
    Syntax condition = operation(0);
    expect("else");
    return node(Kind::kChoice, "", {std::move(condition), std::move(made), expression()});
  }

  Syntax simple_statement() {
    if (take("return")) return node(Kind::kReturn, "", {at_end() ? Syntax{} : expression()});
    const std::string_view start = rest_;
    std::vector<Syntax> parts(1);
    do {
      parts.push_back(name());
    } while (take(","));
    for (const auto& [sign, kind] : {std::pair("+=", Kind::kAdd), std::pair("=", Kind::kAssign)}) {
      if (rest_.starts_with("==") || !take(sign)) continue;
      parts[0] = expression();
      return node(kind, "", std::move(parts));
    }
    rest_ = start;
    return expression();
  }

  Syntax name() { return node(Kind::kName, word()); }

  Syntax parameter() {
    Syntax made = name();
    if (!take("=")) return made;
    return node(Kind::kAssign, "", {expression(), std::move(made)});
  }

  Syntax node(Kind kind, std::string_view text = "", std::vector<Syntax> parts = {}) const {
    return {.kind = kind, .text = text, .parts = std::move(parts), .line = line_};
  }

 private:
  void skip_spaces() {
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
  }

  Syntax operation(std::size_t level) {
    if (level == kOperators.size()) return sign();
    Syntax left = operation(level + 1);
    const auto& operators = kOperators[level];
    for (;;) {
      const auto found =
          std::ranges::find_if(operators, [&](std::string_view sign) { return take(sign); });
      if (found == operators.end()) return left;
      left = node(Kind::kOperator, *found, {std::move(left), operation(level + 1)});
    }
  }

  Syntax sign() {
    for (const std::string_view sign_text : {"not", "-"}) {
      if (take(sign_text)) return node(Kind::kOperator, sign_text, {sign()});
    }
    Syntax made = atom();
    for (;;) {
      if (take("[")) {
        made = node(Kind::kIndex, "", {std::move(made), expression()});
        expect("]");
      } else if (take(".")) {
        made = node(Kind::kMember, word(), {std::move(made)});
      } else {
        return made;
      }
    }
  }

  Syntax atom() {
    if (take("(")) {
      Syntax inner = expression();
      expect(")");
      return inner;
    }
    if (take("[")) return list();
    if (take("{")) return record();
    if (take("\"")) {
      const std::string_view text = rest_.substr(0, rest_.find('"'));
      rest_.remove_prefix(text.size() + 1);
      return node(Kind::kText, text);
    }
    if (rest_.front() >= '0' && rest_.front() <= '9') return number();
    return name_or_call();
  }

  std::vector<Syntax> until(std::string_view end) {
    std::vector<Syntax> all;
    while (!take(end)) {
      all.push_back(expression());
      if (!take(",")) {
        expect(end);
        break;
      }
    }
    return all;
  }

  Syntax list() {
    if (take("]")) return node(Kind::kList);
    Syntax first = expression();
    if (take("for")) {
      Syntax each = name();
      expect("in");
      Syntax made = node(Kind::kEach, "", {std::move(first), expression(), std::move(each)});
      expect("]");
      return made;
    }
    std::vector<Syntax> parts;
    if (take(",")) {
      parts = until("]");
    } else {
      expect("]");
    }
    parts.insert(parts.begin(), std::move(first));
    return node(Kind::kList, "", std::move(parts));
  }

  Syntax record() {
    Syntax made = node(Kind::kRecord);
    while (!take("}")) {
      const std::string_view member = word();
      expect(":");
      made.parts.push_back(node(Kind::kMember, member, {expression()}));
      if (!take(",")) {
        expect("}");
        break;
      }
    }
    return made;
  }

  Syntax number() {
    Syntax made = node(Kind::kConstant);
    double real = 0;
    const char* end = rest_.data() + rest_.size();
    const auto read = std::from_chars(rest_.data(), end, real);
    const std::string_view taken = rest_.substr(0, read.ptr - rest_.data());
    if (taken.find_first_of(".e") == std::string_view::npos) {
      std::int64_t whole = 0;
      std::from_chars(rest_.data(), end, whole);
      made.constant = whole;
    } else {
      made.constant = real;
    }
    rest_.remove_prefix(taken.size());
    return made;
  }

  // Functions have dots in their names, ops have colons, too.
  Syntax name_or_call() {
    const std::string_view start = rest_;
    const std::string_view function = word(".:");
    if (take("(")) return node(Kind::kCall, function, until(")"));
    rest_ = start;
    Syntax made = name();
    if (made.text == "none") return node(Kind::kConstant);
    if (made.text != "true" && made.text != "false") return made;
    made.kind = Kind::kConstant;
    made.constant = made.text == "true";
    return made;
  }

  std::string_view rest_;
  int line_;
};

struct TextLine {
  std::size_t indent = 0;
  std::string_view text;
  int number = 0;
};

int open_brackets(std::string_view text) {
  int open = 0;
  for (const char letter : text) {
    if (letter == '(' || letter == '[' || letter == '{') ++open;
    if (letter == ')' || letter == ']' || letter == '}') --open;
  }
  return open;
}

// Lines that have something to say; one whose brackets are open goes on in the next.
std::vector<TextLine> lines_of(std::string_view text, int number, std::deque<std::string>& joined) {
  std::vector<TextLine> lines;
  bool continues = false;
  for (; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    line = line.substr(0, line.find(" #"));
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    if (indent == line.size() || line[indent] == '#') continue;
    line.remove_prefix(indent);
    if (continues) {
      joined.back().append(" ").append(line);
    } else {
      joined.emplace_back(line);
      lines.push_back({indent, {}, number});
    }
    continues = open_brackets(joined.back()) > 0;
  }
  for (std::size_t i = 0; i < lines.size(); ++i) lines[i].text = joined[i];
  return lines;
}

/// Gives the variables of a function their slots, and finds what it calls.
class NameResolver {
 public:
  explicit NameResolver(Definition& function) : count_(function.num_slots) {
    for (Syntax& parameter : function.parameters) {
      add(parameter.kind == Kind::kName ? parameter : parameter.parts[1]);
    }
    if (function.has_variables) add_assigned(function.body);
    for (Syntax& parameter : function.parameters) resolve(parameter);
    resolve(function.body);
  }

 private:
  void add(const Syntax& name) {
    if (slots_.emplace(name.text, count_).second) ++count_;
  }

  void add_assigned(const Syntax& node) {
    if (node.kind == Kind::kFor) add(node.parts[2]);
    if (node.kind == Kind::kAssign || node.kind == Kind::kAdd) {
      std::for_each(node.parts.begin() + 1, node.parts.end(), [&](const auto& name) { add(name); });
    }
    for (const Syntax& part : node.parts) add_assigned(part);
  }

  void resolve(Syntax& node) {
    if (node.kind == Kind::kCall) node.callee = callee_of(node.text);
    if (node.kind == Kind::kName || node.kind == Kind::kMember) node.name = node.text;
    if (node.kind == Kind::kEach) return resolve_each(node);
    for (Syntax& part : node.parts) resolve(part);
    const auto variable = slots_.find(node.text);
    if (node.kind == Kind::kName && variable != slots_.end()) node.slot = variable->second;
  }

  // The name is a variable between the brackets only.
  void resolve_each(Syntax& node) {
    resolve(node.parts[1]);
    std::map<std::string_view, std::int32_t> outside = slots_;
    slots_[node.parts[2].text] = count_++;
    resolve(node.parts[2]);
    resolve(node.parts[0]);
    slots_ = std::move(outside);
  }

  std::map<std::string_view, std::int32_t> slots_;
  std::int32_t& count_;
};

/// The blocks of one function.
class BlockReader {
 public:
  explicit BlockReader(std::span<const TextLine> lines) : lines_(lines) {}

  Definition read() {
    LineReader line(lines_[0].text, lines_[0].number);
    line.expect("def");
    Definition made{.name = line.word(".-"), .parameters = {}, .body = {}};
    if (line.take("(")) {
      made.has_variables = true;
      while (!line.take(")")) {
        made.parameters.push_back(line.parameter());
        line.take(",");
      }
    }
    made.body = block_after(line, lines_[0].indent);
    PERFMODEL_CHECK(next_ == lines_.size());  // a line is further out than its block
    return made;
  }

 private:
  // After a colon: one statement on the line, or the lines that are further in.
  Syntax block_after(LineReader& line, std::size_t indent) {
    line.expect(":");
    ++next_;
    Syntax block = line.node(Kind::kBlock);
    if (!line.at_end()) {
      block.parts.push_back(line.simple_statement());
      PERFMODEL_CHECK(line.at_end());
      return block;
    }
    while (next_ < lines_.size() && lines_[next_].indent > indent) {
      block.parts.push_back(statement());
    }
    return block;
  }

  Syntax statement() {
    const std::size_t indent = lines_[next_].indent;
    LineReader line(lines_[next_].text, lines_[next_].number);
    if (line.take("if")) return condition(line, indent);
    if (line.take("while")) {
      Syntax made = line.node(Kind::kWhile, "", {line.expression()});
      made.parts.push_back(block_after(line, indent));
      return made;
    }
    if (line.take("for")) {
      Syntax each = line.name();
      line.expect("in");
      Syntax made = line.node(Kind::kFor, "", {line.expression()});
      made.parts.push_back(block_after(line, indent));
      made.parts.push_back(std::move(each));
      return made;
    }
    if (line.take("without_gradient")) {
      return line.node(Kind::kWithout, "", {block_after(line, indent)});
    }
    ++next_;
    Syntax made = line.simple_statement();
    PERFMODEL_CHECK(line.at_end());  // other text follows a statement
    return made;
  }

  Syntax condition(LineReader& line, std::size_t indent) {
    Syntax made = line.node(Kind::kIf, "", {line.expression()});
    made.parts.push_back(block_after(line, indent));
    if (next_ == lines_.size() || lines_[next_].indent != indent) return made;
    LineReader other(lines_[next_].text, lines_[next_].number);
    if (other.take("elif")) {
      made.parts.push_back(condition(other, indent));
    } else if (other.take("else")) {
      made.parts.push_back(block_after(other, indent));
    }
    return made;
  }

  std::span<const TextLine> lines_;
  std::size_t next_ = 0;
};

}  // namespace

struct ModuleText {
  ModuleText(std::string_view source, int first_line) : text(source), number(first_line) {}

  std::string_view text;
  int number;  // the first line is this one
  std::once_flag once;
  std::deque<std::string> joined;  // the syntax points into them
  Definition read;
};

namespace {

Definitions split_definitions() {
  constexpr std::string_view kHead = "\ndef ";
  Definitions made;
  for (const std::string_view text : kModuleTexts) {
    int number = 1;
    std::size_t last = 0;
    for (std::size_t at = text.find(kHead); at != text.npos;) {
      number += static_cast<int>(std::count(text.begin() + last, text.begin() + at + 1, '\n'));
      last = at + 1;
      at = text.find(kHead, last);
      const std::string_view function = text.substr(last, at - last);
      LineReader head(function.substr(0, function.find('\n')), number);
      head.expect("def");
      made.names.push_back(head.word(".-"));
      const auto unread = std::make_shared<ModuleText>(function, number);
      PERFMODEL_CHECK(made.by_name.emplace(made.names.back(), unread).second);  // defined twice
    }
  }
  return made;
}

}  // namespace

Name::Name(std::string_view text) {
  static std::mutex mutex;
  static StringPool names;
  const std::lock_guard lock(mutex);
  number = names.intern(text);
}

Callee callee_of(std::string_view name) {
  const Definitions& texts = module_definitions();
  const auto text = texts.by_name.find(name);
  if (text != texts.by_name.end()) return {.text = text->second.get()};
  const auto written = module_functions().find(name);
  if (written != module_functions().end()) return {.written = written->second};
  PERFMODEL_CHECK(name.find("::") != name.npos);  // there is no such function
  return {};
}

const Definition& definition_of(ModuleText& text) {
  std::call_once(text.once, [&] {
    text.read = BlockReader(lines_of(text.text, text.number, text.joined)).read();
    NameResolver{text.read};
  });
  return text.read;
}

const Definition* Definitions::find(std::string_view name) const {
  const auto at = by_name.find(name);
  return at == by_name.end() ? nullptr : &definition_of(*at->second);
}

std::vector<std::string_view> Definitions::with_prefix(std::string_view prefix) const {
  std::vector<std::string_view> ends;
  for (const std::string_view name : names) {
    if (name.starts_with(prefix)) ends.push_back(name.substr(prefix.size()));
  }
  return ends;
}

const Definitions& module_definitions() {
  static const Definitions kDefinitions = split_definitions();
  return kDefinitions;
}

}  // namespace perfmodel
