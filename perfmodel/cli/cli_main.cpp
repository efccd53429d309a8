#include "cli_main.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "core/edit_distance.hpp"
#include "files/json_limit.hpp"
#include "keep_inputs.hpp"
#include "perfmodel/version.hpp"
#include "terminal/cli11.hpp"
#include "terminal/output.hpp"
#include "terminal/signals.hpp"
#include "terminal/text_table.hpp"

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
};

// The number of a closed standard stream would go to the next file that is opened, and what is
// printed into that file. These cannot be read, or written.
void keep_standard_numbers() {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(number, F_GETFD) >= 0) continue;
    [[maybe_unused]] const int same =
        ::open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

// The name that has most in common with `wanted`; empty: a third of the letters or more differ.
std::string nearest_of(const std::vector<std::string>& names, const std::string& wanted) {
  std::string nearest;
  std::size_t least = std::max<std::size_t>(1, wanted.size() / 3) + 1;
  for (const std::string& name : names) {
    const std::size_t distance = edit_distance(wanted, name);
    if (distance >= least) continue;
    least = distance;
    nearest = name;
  }
  return nearest;
}

// "unknown command: predct, the nearest is predict".
std::string unknown_command(const CLI::App& command, const std::string& word, Suggest suggest) {
  std::vector<std::string> names;
  for (const CLI::App* known :
       command.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); })) {
    names.push_back(known->get_name());
  }
  const std::string text = "unknown command: " + word;
  const std::string meant = suggest ? suggest(command, word) : "";
  if (!meant.empty()) return text + ", did you mean " + meant + "?";
  const std::string nearest = nearest_of(names, word);
  if (!nearest.empty()) return text + ", the nearest is " + nearest;
  return text + ", expected one of " + CLI::detail::join(names, ", ");
}

// "unknown argument: --gp, the nearest is --gpu": the first flag that nobody knows, else the first
// word.
std::string unknown_argument(const CLI::App& app, Suggest suggest) {
  const std::vector<std::string> words = app.remaining(true);
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  const bool takes_command =
      !command->get_subcommands([](const CLI::App*) { return true; }).empty();
  if (takes_command && !words.front().starts_with('-')) {
    return unknown_command(*command, words.front(), suggest);
  }
  const auto flag =
      std::ranges::find_if(words, [](const std::string& word) { return word.starts_with("--"); });
  if (flag == words.end()) return "unknown argument: " + words.front();
  std::vector<std::string> names;
  for (const CLI::Option* option : command->get_options()) {
    const auto& known = option->get_lnames();
    names.insert(names.end(), known.begin(), known.end());
  }
  const std::string nearest = nearest_of(names, flag->substr(2, flag->find('=') - 2));
  return "unknown argument: " + *flag + (nearest.empty() ? "" : ", the nearest is --" + nearest);
}

Error usage_error(const CLI::ParseError& error, const CLI::App& app, Suggest suggest) {
  std::string message = error.what();
  // CLI11 looks for what is missing before it looks at what nobody knows.
  const int code = error.get_exit_code();
  if ((code == static_cast<int>(CLI::ExitCodes::RequiredError) ||
       code == static_cast<int>(CLI::ExitCodes::ExtrasError)) &&
      !app.remaining(true).empty()) {
    message = unknown_argument(app, suggest);
  }
  while (message.ends_with('\n')) message.pop_back();
  return {.code = ErrorCode::kImpossible, .message = std::move(message)};
}

Outcome outcome_of(const Result<void>& done) {
  return done ? Outcome{} : Outcome{kBadInput, done.error()};
}

std::string_view first_word(const std::vector<std::string>& words) {
  const std::size_t at = command_place(words);
  return at < words.size() ? std::string_view(words[at]) : "";
}

}  // namespace

std::size_t command_place(const std::vector<std::string>& words) {
  std::size_t at = 0;
  while (at < words.size() && words[at].starts_with("--json-limit")) {
    at += words[at] == "--json-limit" ? 2 : 1;
  }
  return std::min(at, words.size());
}

Outcome run_command_line(const std::vector<std::string>& words, MakeCommands make_commands,
                         Suggest suggest) {
  CLI::App app{"Predicts the time of a training batch on a GPU from PyTorch execution graphs."};
  app.name("perfpredict");
  app.set_version_flag("--version", "perfpredict " + build_text());
  app.add_option_function<std::string>(
         "--json-limit",
         [](const std::string& text) {
           if (auto done = set_json_document_limit(text); !done) {
             throw CLI::ValidationError("--json-limit", done.error().message);
           }
         },
         "Before the command: the largest JSON document that is read as a whole (GPUs, tables of "
         "overheads, models, plans, sweeps; default 1GiB)")
      ->type_name("SIZE");
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpFormatter>());
  app.footer(
      "Times are microseconds in JSON. Exit status: 0 success, 1 bad input or impossible request,\n"
      "2 bad usage. `perfpredict COMMAND --help` explains a command.");
  const std::vector<Command> commands = make_commands(app, first_word(words));
  try {
    app.parse(
        std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes the last first
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::Success)) {
      return {kBadUsage, usage_error(error, app, suggest)};
    }
    std::ostringstream text, nothing;  // --help, --version
    app.exit(error, text, nothing);
    return outcome_of(print(text.str()));
  }
  forget_recordings();
  if (const Result<void> kept = keep_inputs(app); !kept) return {kBadInput, kept.error()};
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    if (const Result<void> done = command.run(); !done) return {kBadInput, done.error()};
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
    return outcome.status;
  } catch (const std::bad_alloc&) {
    complain("expected more memory, found none left");
  } catch (const std::exception& error) {
    complain(std::string("unexpected failure: ") + error.what());
  }
  return kBadInput;
}

}  // namespace perfmodel::cli
