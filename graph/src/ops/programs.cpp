#include "programs.hpp"

#include <charconv>
#include <unordered_map>

#include "perfmodel/result.hpp"
#include "rows.hpp"

namespace perfmodel {
namespace {

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

bool take(std::string_view& text, std::string_view token) {
  if (!text.starts_with(token)) return false;
  text.remove_prefix(token.size());
  return true;
}

std::string_view take_word(std::string_view& text) {
  const std::string_view word = text.substr(0, text.find_first_of(" ,()"));
  text.remove_prefix(word.size());
  return word;
}

bool is_whole_text(std::from_chars_result read, const char* end) {
  return read.ec == std::errc() && read.ptr == end;
}

Expression constant_or_name(std::string_view word) {
  if (word == "none") return {};
  if (word == "true" || word == "false") return {word == "true"};
  const char* end = word.data() + word.size();
  std::int64_t whole = 0;
  if (is_whole_text(std::from_chars(word.data(), end, whole), end)) return {whole};
  double real = 0;
  if (is_whole_text(std::from_chars(word.data(), end, real), end)) return {real};
  return {Expression::Name{word}};
}

Expression read_expression(std::string_view& text) {
  const bool seen = take(text, "^");
  const std::string_view word = take_word(text);
  PERFMODEL_CHECK(!word.empty());  // a value is missing
  if (!take(text, "(")) return constant_or_name(word);
  Expression::Call call{.function = word, .seen_by_autograd = seen};
  while (!take(text, ")")) {
    PERFMODEL_CHECK(!text.empty());  // a call without its end
    call.arguments.push_back(read_expression(text));
    PERFMODEL_CHECK(take(text, ", ") || text.starts_with(")"));  // "f(a,b)" or "f(a b)"
  }
  if (take(text, " like ")) call.like = take_word(text);
  call.gives_flags = take(text, " bool");
  return {std::move(call)};
}

std::vector<Statement> read_statements(std::string_view text) {
  std::vector<Statement> statements;
  while (!text.empty()) {
    std::string_view line = take_before(text, "; ");
    const std::size_t equals = line.find(" = ");
    Statement& made = statements.emplace_back();
    if (equals != std::string_view::npos) made.target = take_before(line, " = ");
    made.value = read_expression(line);
    PERFMODEL_CHECK(line.empty());  // other text follows a statement
  }
  return statements;
}

// The arguments of "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor".
std::vector<OpProgram::Argument> read_arguments(std::string_view schema) {
  std::vector<OpProgram::Argument> arguments;
  std::string_view list = schema.substr(0, schema.rfind(") -> "));
  take_before(list, "(");
  while (!list.empty()) {
    std::string_view argument = trimmed(take_before(list, ", "));
    const std::string_view type = take_before(argument, " ");
    if (argument.empty()) continue;  // "*", or part of a default "[1, 1]"
    const bool is_tensor = type.starts_with("Tensor") && !type.ends_with("]");
    arguments.push_back({take_before(argument, "="), is_tensor});
  }
  return arguments;
}

OpProgram read_program(const OpRow& row) {
  OpProgram program;
  program.arguments = read_arguments(row.schema);
  program.in_place = row.schema.find("(Tensor(a!) ") != std::string_view::npos;
  std::string_view text = row.derivative;
  std::string_view calls = trimmed(take_before(text, "=> "));
  if (take(calls, "like ")) {
    program.like = calls;
  } else {
    program.calls = read_statements(calls);
  }
  program.node = take_before(text, " ");
  program.gradients = read_statements(text);
  return program;
}

}  // namespace

const OpProgram& program_of(std::string_view op) {
  static const auto kPrograms = [] {
    std::unordered_map<std::string_view, OpProgram> programs;
    for (const OpRow& row : op_rows()) {
      if (!row.schema.empty()) programs.emplace(row.name, read_program(row));
    }
    return programs;
  }();
  const auto known = kPrograms.find(op);
  PERFMODEL_CHECK(known != kPrograms.end());  // an op without schema: add it to rows.txt
  return known->second;
}

}  // namespace perfmodel
