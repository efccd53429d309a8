// CLI11 reads whole numbers as C does: "064" is 52 and "0x40" is 64. The specialisations below make
// numbers of every option decimal. They must come before the first use.
#include <CLI/TypeTools.hpp>

#include "base/decimal_number.hpp"

namespace CLI::detail {

template <>
inline bool integral_conversion<int>(const std::string& text, int& number) noexcept {
  return perfmodel::read_decimal(text, number);
}
template <>
inline bool integral_conversion<long>(const std::string& text, long& number) noexcept {
  return perfmodel::read_decimal(text, number);
}
template <>
inline bool integral_conversion<unsigned>(const std::string& text, unsigned& number) noexcept {
  return perfmodel::read_decimal(text, number);
}
template <>
inline bool integral_conversion<unsigned long>(const std::string& text,
                                               unsigned long& number) noexcept {
  return perfmodel::read_decimal(text, number);
}
template <>
inline bool lexical_cast<double>(const std::string& text, double& number) {
  return perfmodel::read_decimal(text, number);
}

}  // namespace CLI::detail

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <optional>
#include <sstream>

#include "command_parser.hpp"
#include "command_tree.hpp"
#include "text_table.hpp"

namespace perfmodel::cli {
namespace {

constexpr std::size_t kHelpColumn = 30;

// Breaks long descriptions of options.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kHelpColumn); }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text =
        wrapped(option->get_description(), "", 0, kLineWidth - kHelpColumn);  // CLI11 indents
    text.pop_back();
    return text;
  }

  std::string make_subcommand(const CLI::App* command) const override {
    std::string text = wrapped(command->get_description(), "", 0, kLineWidth - kHelpColumn);
    if (!text.empty()) text.pop_back();
    std::ostringstream line;
    CLI::detail::format_help(line, command->get_display_name(true), text, kHelpColumn);
    return line.str();
  }
};

bool is_in_help(const CLI::App* command) { return !command->get_group().empty(); }

Check check_of(const CLI::Validator& validator) {
  return {[validator](std::string& text) { return validator(text); }, validator.get_description()};
}

template <class Value>
constexpr bool kIsNumber = std::is_arithmetic_v<Value>;
template <class Value>
constexpr bool kIsNumber<std::optional<Value>> = std::is_arithmetic_v<Value>;
template <class Value>
constexpr bool kIsList = false;
template <class Value>
constexpr bool kIsList<std::vector<Value>> = true;

std::string names_of(const std::string& words) { return words.substr(0, words.find(' ')); }

// Names the value and refuses an empty word for a number, which CLI11 takes for 0.
template <class Value>
CLI::Option* with_value(CLI::Option* option, const std::string& words) {
  const std::size_t end = words.find(' ');
  if (end != words.npos || std::isupper(static_cast<unsigned char>(words.front()))) {
    option->type_name(words.substr(std::min(end, words.size() - 1) + 1));
  }
  if (kIsList<Value> && words.ends_with(",...")) option->delimiter(',');
  if constexpr (kIsNumber<Value>) {
    option->check(CLI::Validator(
        [](const std::string& text) {
          return text.empty() ? "expected a number, found nothing" : "";
        },
        ""));
  }
  return option;
}

// "TEXT:{ddp,fsdp}" of a parser that knows all values.
std::vector<std::string> choices_of(const std::string& type) {
  const std::size_t begin = type.find('{'), end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

OptionText text_of(const CLI::Option& option) {
  OptionText text{.help = option.get_description(),
                  .required = option.get_required(),
                  .repeated = option.get_expected_max() == CLI::detail::expected_max_vector_size};
  if (option.get_positional()) {
    text.names = {option.get_name(true)};
    return text;
  }
  for (const std::string& name : option.get_snames()) text.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) text.names.push_back("--" + name);
  if (option.get_type_size() == 0) return text;
  const std::string type = option.get_type_name();
  text.choices = choices_of(type);
  text.value = text.choices.empty() ? type : CLI::detail::join(text.choices, "|");
  text.fallback = option.get_default_str();
  return text;
}

void add(const CLI::App& app, const std::string& path, std::vector<CommandText>& tree) {
  const auto below =
      app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
  CommandText text{.path = path, .help = app.get_description(), .footer = app.get_footer()};
  for (const CLI::App* command : below) text.commands.push_back(command->get_name());
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    auto& list = option->get_positional() ? text.positionals : text.options;
    list.push_back(text_of(*option));
  }
  tree.push_back(std::move(text));
  for (const CLI::App* command : below) {
    add(*command, path.empty() ? command->get_name() : path + " " + command->get_name(), tree);
  }
}

// Names that other commands, or other programs, have for a flag. A command takes one as its own.
// (The reverse would not do: `--batch` of a whole job is no `--batch-per-gpu`.)
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"--host-scale", "--scale-host"},
    {"--batch-size", "--batch"},
    {"--bs", "--batch"},
    {"--batch-per-gpu", "--batch"},
    {"--world-size", "--world"},
    {"--num-gpus", "--world"},
    {"--dtype", "--precision"},
    {"--seq", "--sequence"},
    {"--seq-len", "--sequence"},
    {"--seq-length", "--sequence"},
    {"--sequence-length", "--sequence"},
};

// "--gpus 8" is a number of GPUs, "--gpus h100" the name of one; a list of names is neither, and
// "4090" may be both.
std::string_view meant_by_gpus(std::string_view value) {
  if (value.find(',') != value.npos || value.empty()) return {};
  if (value.find_first_not_of("0123456789") != value.npos) return "--gpu";
  return value.size() == 4 && value.ends_with('0') ? "" : "--world";
}

// The command's own name of a flag that it does not have; `next` is the word after it.
std::string own_flag(const CLI::App& command, const std::string& word, std::string_view next) {
  const std::size_t end = std::min(word.find('='), word.size());
  const std::string flag = word.substr(0, end);
  if (!flag.starts_with("--") || command.get_option_no_throw(flag)) return word;
  if (flag == "--gpus") {
    const std::string own(meant_by_gpus(end < word.size() ? word.substr(end + 1) : next));
    if (!own.empty() && command.get_option_no_throw(own)) return own + word.substr(end);
  }
  for (const auto& [other, own] : kOtherNames) {
    if (flag == other && command.get_option_no_throw(std::string(own))) {
      return std::string(own) + word.substr(end);
    }
  }
  return word;
}

// Says which flag has a value that is none; empty: all words are good.
std::string flag_with_value(const CLI::App& program, const std::vector<std::string>& words) {
  const CLI::App* command = &program;
  for (const std::string& word : words) {
    const auto named = command->get_subcommands(
        [&](const CLI::App* subcommand) { return subcommand->check_name(word); });
    if (!named.empty()) command = named.front();
    const std::size_t end = word.find('=');
    if (!word.starts_with("--") || end == std::string::npos) continue;
    const CLI::Option* option = command->get_option_no_throw(word.substr(0, end));
    const std::string value = word.substr(end + 1);
    if (!option || option->get_expected_max() != 0 || value == "true" || value == "false") continue;
    return word.substr(0, end) + ": expected true, false or no value, found " + value;
  }
  return "";
}

// "Could not convert: --samples = 1M" is "--samples: expected a number, found 1M".
std::string in_house_style(std::string text) {
  constexpr std::string_view kBefore = "Could not convert: ", kBetween = " = ";
  const std::size_t at = text.find(kBetween);
  if (!text.starts_with(kBefore) || at == text.npos) return text;
  return text.substr(kBefore.size(), at - kBefore.size()) + ": expected a number, found " +
         text.substr(at + kBetween.size());
}

std::vector<std::string> in_own_flags(const CLI::App& program,
                                      const std::vector<std::string>& words) {
  std::vector<std::string> own;
  const CLI::App* command = &program;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto named = command->get_subcommands(
        [&](const CLI::App* subcommand) { return subcommand->check_name(words[i]); });
    if (!named.empty()) command = named.front();
    own.push_back(own_flag(*command, words[i], i + 1 < words.size() ? words[i + 1] : ""));
  }
  return own;
}

}  // namespace

Check one_of(const std::vector<std::string>& names) { return check_of(CLI::IsMember(names)); }
Check in_range(double low, double high) { return check_of(CLI::Range(low, high)); }
Check in_range(int low, int high) { return check_of(CLI::Range(low, high)); }
Check in_range(std::size_t low, std::size_t high) { return check_of(CLI::Range(low, high)); }
Check above_zero() { return check_of(CLI::PositiveNumber); }

void bad_usage(const std::string& flag, const std::string& message) {
  throw CLI::ValidationError(flag, message);
}
void missing_argument(const std::string& name) { throw CLI::RequiredError(name); }

Option Option::type_name(const std::string& name) const {
  option_->type_name(name);
  return *this;
}
Option Option::check(Check check) const {
  option_->check(CLI::Validator(std::move(check.problem), std::move(check.shown)));
  return *this;
}
Option Option::required(bool is) const {
  option_->required(is);
  return *this;
}
Option Option::delimiter(char between) const {
  option_->delimiter(between);
  return *this;
}
Option Option::expected(int count) const {
  option_->expected(count);
  return *this;
}
Option Option::expected(int least, int most) const {
  option_->expected(least, most);
  return *this;
}
Option Option::take_all() const {
  option_->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  return *this;
}
Option Option::needs(Option other) const {
  option_->needs(other.option_);
  return *this;
}
Option Option::excludes(Option other) const {
  option_->excludes(other.option_);
  return *this;
}
Option Option::group(const std::string& title) const {
  option_->group(title);
  return *this;
}
Option Option::capture_default_str() const {
  option_->capture_default_str();
  return *this;
}
Option Option::default_str(const std::string& text) const {
  option_->default_str(text);
  return *this;
}
Option Option::trigger_on_parse() const {
  option_->trigger_on_parse();
  return *this;
}

std::string Option::name() const { return option_->get_name(); }
std::vector<std::string> Option::long_names() const { return option_->get_lnames(); }
std::string Option::type_name() const { return option_->get_type_name(); }
char Option::delimiter() const { return option_->get_delimiter(); }
bool Option::is_flag() const { return option_->get_expected_max() == 0; }
std::size_t Option::count() const { return option_->count(); }
std::vector<std::string> Option::values() const { return option_->results(); }

CommandParser CommandParser::add_subcommand(const std::string& name,
                                            const std::string& help) const {
  return {app_->add_subcommand(name, help), root_};
}
template <class T>
Option CommandParser::add_option(const std::string& words, T& value,
                                 const std::string& help) const {
  return Option(with_value<T>(app_->add_option(names_of(words), value, help), words));
}
template <class T>
Option CommandParser::add_option_function(const std::string& words,
                                          const std::function<void(const T&)>& set,
                                          const std::string& help) const {
  return Option(with_value<T>(app_->add_option_function<T>(names_of(words), set, help), words));
}
// The types of values that commands have; the linker names one that is missing here.
#define PERFMODEL_OPTIONS_OF(...)                                                                 \
  template Option CommandParser::add_option(const std::string&, __VA_ARGS__&, const std::string&) \
      const;                                                                                      \
  template Option CommandParser::add_option_function(                                             \
      const std::string&, const std::function<void(const __VA_ARGS__&)>&, const std::string&)     \
      const;
PERFMODEL_OPTIONS_OF(int)
PERFMODEL_OPTIONS_OF(std::int64_t)
PERFMODEL_OPTIONS_OF(std::uint64_t)
PERFMODEL_OPTIONS_OF(double)
PERFMODEL_OPTIONS_OF(std::string)
PERFMODEL_OPTIONS_OF(std::optional<std::int64_t>)
PERFMODEL_OPTIONS_OF(std::optional<std::uint64_t>)
PERFMODEL_OPTIONS_OF(std::optional<double>)
PERFMODEL_OPTIONS_OF(std::optional<std::string>)
PERFMODEL_OPTIONS_OF(std::vector<std::int64_t>)
PERFMODEL_OPTIONS_OF(std::vector<double>)
PERFMODEL_OPTIONS_OF(std::vector<std::string>)
#undef PERFMODEL_OPTIONS_OF

Option CommandParser::add_flag(const std::string& names, bool& value,
                               const std::string& help) const {
  return Option(app_->add_flag(names, value, help));
}
Option CommandParser::add_flag_function(const std::string& names,
                                        const std::function<void(std::int64_t)>& set,
                                        const std::string& help) const {
  return Option(app_->add_flag_function(names, set, help));
}
Option CommandParser::add_flag_callback(const std::string& names, const std::function<void()>& set,
                                        const std::string& help) const {
  return Option(app_->add_flag_callback(names, set, help));
}

void CommandParser::callback(const std::function<void()>& check) const { app_->callback(check); }
void CommandParser::group(const std::string& title) const { app_->group(title); }
void CommandParser::footer(const std::string& text) const { app_->footer(text); }
void CommandParser::require_subcommand(int least, int most) const {
  app_->require_subcommand(least, most);
}
void CommandParser::allow_extras() const { app_->allow_extras(); }

std::string CommandParser::name() const { return app_->get_name(); }
bool CommandParser::parsed() const { return app_->parsed(); }
std::vector<std::string> CommandParser::remaining() const { return app_->remaining(true); }
std::vector<CommandParser> CommandParser::subcommands() const {
  std::vector<CommandParser> found;
  for (CLI::App* app : app_->get_subcommands(is_in_help)) found.push_back({app, root_});
  return found;
}
std::vector<CommandParser> CommandParser::parsed_subcommands() const {
  std::vector<CommandParser> found;
  for (CLI::App* app : app_->get_subcommands()) found.push_back({app, root_});
  return found;
}
bool CommandParser::takes_subcommand() const {
  return !app_->get_subcommands([](const CLI::App*) { return true; }).empty();
}
std::vector<Option> CommandParser::options() const {
  std::vector<Option> found;
  for (CLI::Option* option : app_->get_options()) found.emplace_back(option);
  return found;
}
Option CommandParser::option(const std::string& name) const {
  return Option(app_->get_option_no_throw(name));
}

ProgramParser::ProgramParser(const std::string& name, const std::string& help,
                             const std::string& version)
    : CommandParser(new CLI::App(help), this), owned_(app_) {
  app_->name(name);
  if (!version.empty()) app_->set_version_flag("--version", version);
}
ProgramParser::~ProgramParser() = default;

void ProgramParser::break_long_lines() { app_->formatter(std::make_shared<HelpFormatter>()); }

ParsedWords ProgramParser::parse(const std::vector<std::string>& given) {
  const std::vector<std::string> words = in_own_flags(*app_, given);
  const std::string wrong = flag_with_value(*app_, words);
  if (!wrong.empty()) return {ParsedWords::Kind::kRefused, wrong};
  try {
    app_->parse(std::vector<std::string>(words.rbegin(), words.rend()));  // takes the last first
    return {};
  } catch (const CLI::ParseError& error) {
    const auto is = [&](CLI::ExitCodes code) {
      return error.get_exit_code() == static_cast<int>(code);
    };
    if (is(CLI::ExitCodes::Success)) {  // --help, --version
      std::ostringstream text, nothing;
      app_->exit(error, text, nothing);
      return {ParsedWords::Kind::kText, text.str()};
    }
    return {ParsedWords::Kind::kRefused, in_house_style(error.what()),
            is(CLI::ExitCodes::RequiredError) || is(CLI::ExitCodes::ExtrasError)};
  }
}

std::vector<CommandText> command_tree(const CommandParser& program) {
  std::vector<CommandText> tree;
  add(*program.app_, "", tree);
  return tree;
}

}  // namespace perfmodel::cli
