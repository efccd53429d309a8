#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace perfmodel::cli {

struct CommandText;
class ProgramParser;

/// A check of one value as it was typed.
struct Check {
  template <std::invocable<std::string&> Problem>
  Check(Problem problem, std::string shown = {})  // NOLINT: a lambda is a check
      : problem(std::move(problem)), shown(std::move(shown)) {}

  /// Why the value is refused; empty: it is not.
  std::function<std::string(std::string& text)> problem;
  std::string shown;  ///< in the help, after the type of the value
};

Check one_of(const std::vector<std::string>& names);
template <class Value>
Check one_of(const std::map<std::string, Value>& choices) {
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) names.push_back(name);
  return one_of(names);
}
Check in_range(double low, double high);
Check in_range(int low, int high);
Check in_range(std::size_t low, std::size_t high);
Check above_zero();

/// Ends parsing with "FLAG: MESSAGE" as bad usage. For functions that the parser calls.
[[noreturn]] void bad_usage(const std::string& flag, const std::string& message);
/// Ends parsing with "NAME is required".
[[noreturn]] void missing_argument(const std::string& name);

/// A flag or positional argument of a command; a handle, as cheap to copy as a pointer. Settings
/// return the handle, so that they can be written one after the other.
class Option {
 public:
  Option() = default;
  explicit Option(CLI::Option* option) : option_(option) {}
  explicit operator bool() const { return option_ != nullptr; }
  bool operator==(const Option&) const = default;

  Option type_name(const std::string& name) const;  ///< name of a value, in the help
  Option check(Check check) const;
  Option required(bool is = true) const;
  Option delimiter(char between) const;  ///< between the values in one word
  Option expected(int count) const;
  Option expected(int least, int most) const;
  Option take_all() const;  ///< one value each time that the flag is given
  Option needs(Option other) const;
  Option excludes(Option other) const;
  Option group(const std::string& title) const;  ///< "": not in the help
  Option capture_default_str() const;            ///< the help has the value before parsing
  Option trigger_on_parse() const;               ///< its function is called where the flag is met
  Option default_str(const std::string& text) const;  ///< the help has the text as the default

  std::string name() const;                     ///< "--output", or a positional one's name
  std::vector<std::string> long_names() const;  ///< without the dashes
  std::string type_name() const;
  char delimiter() const;                   ///< '\0': none
  bool is_flag() const;                     ///< takes no value
  std::size_t count() const;                ///< how many values were given
  std::vector<std::string> values() const;  ///< as they were typed

 private:
  friend class CommandParser;
  CLI::Option* option_ = nullptr;
};

/// The words that one command takes; a handle, as cheap to copy as a pointer. It wraps CLI11. Only
/// its source includes CLI11, which takes longer to compile than most commands do.
class CommandParser {
 public:
  CommandParser() = default;

  CommandParser add_subcommand(const std::string& name, const std::string& help) const;
  /// `words`: the names, "-o,--output", or "GRAPH" of a positional one, and after a space what the
  /// help calls a value; "--gpus NAME,..." takes several with commas between them. The value stays
  /// where nothing is given.
  template <class T>
  Option add_option(const std::string& words, T& value, const std::string& help) const;
  template <class T>
  Option add_argument(const std::string& words, T& value, const std::string& help) const {
    return add_option(words, value, help).required();
  }
  template <class T>
  Option add_option_function(const std::string& words, const std::function<void(const T&)>& set,
                             const std::string& help) const;
  Option add_flag(const std::string& names, bool& value, const std::string& help = {}) const;
  /// `set` gets how often a flag is given; less than 0 for "!--no-flag".
  Option add_flag_function(const std::string& names, const std::function<void(std::int64_t)>& set,
                           const std::string& help) const;
  Option add_flag_callback(const std::string& names, const std::function<void()>& set,
                           const std::string& help) const;

  void callback(const std::function<void()>& check) const;  ///< called once the words are parsed
  void group(const std::string& title) const;               ///< "": not in the help
  void footer(const std::string& text) const;
  void require_subcommand(int least, int most) const;
  void require_subcommand(int count) const { require_subcommand(count, count); }
  void allow_extras() const;

  std::string name() const;
  bool parsed() const;                             ///< whether the words named this command
  std::vector<std::string> remaining() const;      ///< words that no parser takes
  std::vector<CommandParser> subcommands() const;  ///< without those that the help leaves out
  std::vector<CommandParser> parsed_subcommands() const;
  bool takes_subcommand() const;
  std::vector<Option> options() const;
  Option option(const std::string& name) const;  ///< "--output"; false: there is none
  const ProgramParser& root() const { return *root_; }

 protected:
  CommandParser(CLI::App* app, ProgramParser* root) : app_(app), root_(root) {}
  CLI::App* app_ = nullptr;

 private:
  friend std::vector<CommandText> command_tree(const CommandParser& program);
  ProgramParser* root_ = nullptr;
};

/// How the words of a command line were read.
struct ParsedWords {
  enum class Kind {
    kParsed,
    kText,    ///< `text` answers --help or --version
    kRefused  ///< `text` says why
  };
  Kind kind = Kind::kParsed;
  std::string text = {};
  /// Refused because something is missing or a word is unknown.
  bool is_incomplete = false;
};

/// The parser of a program, which owns its commands' parsers.
class ProgramParser : public CommandParser {
 public:
  ProgramParser() : ProgramParser("", "", "") {}
  ProgramParser(const std::string& name, const std::string& help, const std::string& version);
  ProgramParser(const ProgramParser&) = delete;
  ProgramParser& operator=(const ProgramParser&) = delete;
  virtual ~ProgramParser();

  /// The help breaks lines of long descriptions.
  void break_long_lines();
  /// `words` without the name of the program. Throws what functions of options throw, except by
  /// bad_usage() and missing_argument().
  ParsedWords parse(const std::vector<std::string>& words);

 private:
  std::unique_ptr<CLI::App> owned_;
};

}  // namespace perfmodel::cli
