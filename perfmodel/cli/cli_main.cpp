#include "cli_main.hpp"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/budget.hpp"
#include "cli/shared/command_examples.hpp"
#include "core/edit_distance.hpp"
#include "perfmodel/result.hpp"
#include "perfmodel/version.hpp"
#include "terminal/output.hpp"
#include "terminal/signals.hpp"

namespace perfmodel::cli {
namespace {

constexpr std::array<std::string_view, 5> kOutputs = {"output", "timeline", "chakra", "plot",
                                                      "csv"};

bool is_output(Option option) {
  const std::vector<std::string> names = option.long_names();
  return std::ranges::any_of(kOutputs, [&](std::string_view name) {
    return std::ranges::find(names, name) != names.end();
  });
}

void collect_options(CommandParser app, std::vector<Option>& given) {
  for (const Option option : app.options()) {
    if (option.count() > 0) given.push_back(option);
  }
  for (const CommandParser command : app.parsed_subcommands()) collect_options(command, given);
}

bool is_same_file(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return false;
  std::error_code failure;
  if (!std::filesystem::is_regular_file(b, failure)) return a == b;
  return std::filesystem::equivalent(a, b, failure) && !failure;
}

Result<void> keep_inputs(CommandParser app) {
  std::vector<Option> given;
  collect_options(app, given);
  for (const Option output : given) {
    if (!is_output(output)) continue;
    const std::string file = output.values().front();
    for (const Option other : given) {
      if (other == output) continue;
      for (const std::string& value : other.values()) {
        if (!is_same_file(file, value)) continue;
        return decline(is_output(other)
                           ? "expected another output for " + other.name() + ", found the same file"
                           : "expected an output other than the input, found the same file",
                       file);
      }
    }
  }
  return {};
}

// The number of a closed standard stream would go to the next opened file, and printed text into
// that file. Opens files in their place that cannot be read, or written.
void keep_standard_numbers() {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(number, F_GETFD) >= 0) continue;
    [[maybe_unused]] const int same =
        ::open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

// The name that has most in common with `wanted`; empty: a third of the letters or more differ.
std::string nearest_of(const std::vector<std::string>& names, const std::string& wanted) {
  const auto distance = [&](const std::string& name) { return edit_distance(wanted, name); };
  const auto nearest = std::ranges::min_element(names, {}, distance);
  const std::size_t most = std::max<std::size_t>(1, wanted.size() / 3);
  return nearest != names.end() && distance(*nearest) <= most ? *nearest : "";
}

// "unknown command: predct, the nearest is predict".
std::string unknown_command(CommandParser command, const std::string& word, Suggest suggest) {
  std::vector<std::string> names;
  for (const CommandParser known : command.subcommands()) names.push_back(known.name());
  const std::string text = "unknown command: " + word;
  const std::string meant = suggest ? suggest(command, word) : "";
  if (!meant.empty()) return text + ", did you mean " + meant + "?";
  if (const std::string other = instead_of(word); !other.empty()) return text + ", see " + other;
  const std::string nearest = nearest_of(names, word);
  if (!nearest.empty()) return text + ", the nearest is " + nearest;
  return fmt::format("{}, expected one of {}", text, fmt::join(names, ", "));
}

CommandParser named_command(CommandParser app) {
  while (!app.parsed_subcommands().empty()) app = app.parsed_subcommands().front();
  return app;
}

// The name that this command has for another program's flag; empty: none.
std::string other_flag(CommandParser command, const std::string& flag) {
  const std::string other = instead_of(flag);
  const bool is_flag = other.starts_with("--");
  return !is_flag || command.option(other.substr(0, other.find_first_of(" ,"))) ? other : "";
}

// "unknown argument: --gp, the nearest is --gpu": the first unknown flag, else the first word.
std::string unknown_argument(CommandParser app, Suggest suggest) {
  const std::vector<std::string> words = app.remaining();
  const CommandParser command = named_command(app);
  if (command.takes_subcommand() && !words.front().starts_with('-')) {
    return unknown_command(command, words.front(), suggest);
  }
  const auto flag =
      std::ranges::find_if(words, [](const std::string& word) { return word.starts_with("--"); });
  if (flag == words.end()) return "unknown argument: " + words.front();
  if (const std::string other = other_flag(command, *flag); !other.empty()) {
    return "unknown argument: " + *flag + ", here it is " + other;
  }
  std::vector<std::string> names;
  for (const Option option : command.options()) {
    const auto known = option.long_names();
    names.insert(names.end(), known.begin(), known.end());
  }
  const std::string nearest = nearest_of(names, flag->substr(2, flag->find('=') - 2));
  return "unknown argument: " + *flag + (nearest.empty() ? "" : ", the nearest is --" + nearest);
}

// Adds a line that has what is missing: "--gpu is required, as in `perfpredict predict ...`".
std::string missing_word(CommandParser app, std::string message) {
  std::string path;
  for (CommandParser at = app; !at.parsed_subcommands().empty();) {
    at = at.parsed_subcommands().front();
    path += (path.empty() ? "" : " ") + at.name();
  }
  std::vector<std::string> names;
  for (const CommandParser& below : named_command(app).subcommands()) names.push_back(below.name());
  if (!names.empty()) message += fmt::format(": {}", fmt::join(names, ", "));
  const std::string example = example_of(path);
  return example.empty() ? message : message + ", as in `" + example + "`";
}

Error usage_error(const ParsedWords& parsed, CommandParser app, Suggest suggest) {
  // The parser looks for missing words before it looks at unknown ones.
  const bool is_unknown = parsed.is_incomplete && !app.remaining().empty();
  std::string message = is_unknown ? unknown_argument(app, suggest) : parsed.text;
  while (message.ends_with('\n')) message.pop_back();
  if (parsed.is_incomplete && !is_unknown) message = missing_word(app, std::move(message));
  return {.code = ErrorCode::kImpossible, .message = std::move(message)};
}

Outcome outcome_of(const Result<void>& done) {
  return done ? Outcome{} : Outcome{kBadInput, done.error()};
}

std::string_view first_word(const std::vector<std::string>& words) {
  const std::size_t at = command_place(words);
  return at < words.size() ? std::string_view(words[at]) : "";
}

// Refuses help for a word that names no command: "help foo"; empty: it names one.
std::string unknown_topic(CommandParser command, const std::vector<std::string>& words,
                          Suggest suggest) {
  for (std::size_t at = command_place(words); at < words.size(); ++at) {
    if (words[at].starts_with('-') || !command.takes_subcommand()) break;
    const auto below = command.subcommands();
    const auto named = std::ranges::find(below, words[at], &CommandParser::name);
    if (named == below.end()) return unknown_command(command, words[at], suggest);
    command = *named;
  }
  return {};
}

// Only help and the manual page show examples.
bool is_help_asked(const std::vector<std::string>& words) {
  return first_word(words) == "man" || std::ranges::any_of(words, [](const std::string& word) {
           return word == "--help" || word == "-h";
         });
}

}  // namespace

/// A flag before the command.
struct LimitFlag {
  std::string name;
  const char* type;
  Result<void> (*set)(std::string_view text);
  const char* help;
};

static const LimitFlag kLimits[] = {
    {"--json-limit", "SIZE", set_json_document_limit,
     "Before the command: the largest JSON document that is read as a whole (GPUs, tables of "
     "overheads, models, plans, sweeps; default 1GiB)"},
    {"--node-limit", "N", set_node_limit,
     "Before the command: nodes of the largest graph that is built, rewritten or read (default "
     "2000000)"},
    {"--graph-memory", "SIZE", set_graph_memory_limit,
     "Before the command: memory that a graph may take while it is built or rewritten (default "
     "288MiB)"}};

static bool is_limit(const std::string& word) {
  return std::ranges::any_of(kLimits,
                             [&](const LimitFlag& limit) { return word.starts_with(limit.name); });
}

std::size_t command_place(const std::vector<std::string>& words) {
  std::size_t at = 0;
  while (at < words.size() && is_limit(words[at])) {
    at += words[at].find('=') == std::string::npos ? 2 : 1;
  }
  return std::min(at, words.size());
}

Outcome run_command_line(const std::vector<std::string>& given, MakeCommands make_commands,
                         Suggest suggest) {
  const std::vector<std::string> words = in_own_words(given);
  const std::set<std::string> asked(words.begin(), words.end());
  // The parser would take the word after it as the list.
  if (asked.contains(",")) {
    return {kBadUsage, {.code = ErrorCode::kImpossible, .message = "expected a list, found \",\""}};
  }
  if (asked == std::set<std::string>{"--version", "--json"}) {
    return outcome_of(print_document(document(schemas::kVersion)));
  }
  ProgramParser app("perfpredict",
                    "Predicts the time of a training batch on a GPU from PyTorch execution graphs.",
                    "perfpredict " + build_text());
  for (const LimitFlag& limit : kLimits) {
    app.add_option_function<std::string>(
           limit.name,
           [&limit](const std::string& text) {
             if (auto done = limit.set(text); !done) bad_usage(limit.name, done.error().message);
           },
           limit.help)
        .type_name(limit.type);
  }
  app.require_subcommand(1);
  app.break_long_lines();
  app.footer(
      "Times are microseconds in JSON. Exit status: 0 success, 1 bad input or impossible request,\n"
      "2 bad usage. `perfpredict COMMAND --help` explains a command.");
  const bool asks_version = words.size() == 1 && words[0] == "--version";  // needs no command
  const std::vector<Command> commands =
      asks_version ? std::vector<Command>() : make_commands(app, first_word(words));
  if (is_help_asked(words)) add_examples(app);
  const ParsedWords parsed = app.parse(words);
  if (parsed.kind == ParsedWords::Kind::kText) {
    const std::string unknown = unknown_topic(app, words, suggest);
    if (unknown.empty()) return outcome_of(print(parsed.text));
    return {kBadUsage, {.code = ErrorCode::kImpossible, .message = unknown}};
  }
  if (parsed.kind == ParsedWords::Kind::kRefused) {
    return {kBadUsage, usage_error(parsed, app, suggest)};
  }
  forget_recordings();
  if (const Result<void> kept = keep_inputs(app); !kept) return {kBadInput, kept.error()};
  for (const Command& command : commands) {
    if (!command.app.parsed()) continue;
    if (const Result<void> done = command.run(); !done) return {kBadInput, done.error()};
    if (command.verdict) return {.verdict = *command.verdict};
  }
  return {};
}

int cli_main(const std::vector<std::string>& words, MakeCommands make_commands, Suggest suggest) {
  keep_standard_numbers();
  set_up_signals();
  try {
    const Outcome outcome = run_command_line(words, make_commands, suggest);
    if (outcome.status == kBadUsage) {
      complain(outcome.error.message + " (see --help)");
    } else if (outcome.status == kBadInput && !outcome.error.message.empty()) {
      // A rank that fails because another has leaves the line to that.
      complain(to_string(outcome.error));
    }
    return outcome.status == kOk ? outcome.verdict : outcome.status;
  } catch (const OverBudget& over) {
    complain(over.what());
  } catch (const std::bad_alloc&) {
    complain("expected more memory, found none left");
  } catch (const std::exception& error) {
    complain(std::string("unexpected failure: ") + error.what());
  }
  return kBadInput;
}

}  // namespace perfmodel::cli
