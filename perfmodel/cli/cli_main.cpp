#include "cli_main.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
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
#include "output.hpp"
#include "perfmodel/version.hpp"
#include "signals.hpp"
#include "text_table.hpp"

namespace perfmodel::cli {
namespace {

enum ExitCode { kOk = 0, kBadInput = 1, kBadUsage = 2 };

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

std::string_view first_word(int argc, char** argv) {
  const int at = command_place(argc, argv);
  return at < argc ? argv[at] : "";
}

int run(int argc, char** argv, MakeCommands make_commands, Suggest suggest) {
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
  const std::vector<Command> commands = make_commands(app, first_word(argc, argv));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      std::ostringstream text, nothing;  // --help, --version
      app.exit(error, text, nothing);
      const Result<void> printed = print(text.str());
      if (!printed) complain(to_string(printed.error()));
      return printed ? kOk : kBadInput;
    }
    std::string message = error.what();
    // CLI11 looks for what is missing before it looks at what nobody knows.
    const int code = error.get_exit_code();
    if ((code == static_cast<int>(CLI::ExitCodes::RequiredError) ||
         code == static_cast<int>(CLI::ExitCodes::ExtrasError)) &&
        !app.remaining(true).empty()) {
      message = unknown_argument(app, suggest);
    }
    while (message.ends_with('\n')) message.pop_back();
    complain(message + " (see --help)");
    return kBadUsage;
  }
  if (const Result<void> kept = keep_inputs(app); !kept) {
    complain(to_string(kept.error()));
    return kBadInput;
  }
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    if (const Result<void> done = command.run(); !done) {
      // A rank that fails because another has leaves the line to that.
      if (!done.error().message.empty()) complain(to_string(done.error()));
      return kBadInput;
    }
  }
  return kOk;
}

}  // namespace

int command_place(int argc, char** argv) {
  int at = 1;
  while (at < argc && std::string_view(argv[at]).starts_with("--json-limit")) {
    at += std::string_view(argv[at]) == "--json-limit" ? 2 : 1;
  }
  return std::min(at, argc);
}

int cli_main(int argc, char** argv, MakeCommands make_commands, Suggest suggest) {
  keep_standard_numbers();
  set_up_signals();
  try {
    return run(argc, argv, make_commands, suggest);
  } catch (const std::bad_alloc&) {
    complain("expected more memory, found none left");
  } catch (const std::exception& error) {
    complain(std::string("unexpected failure: ") + error.what());
  }
  return kBadInput;
}

}  // namespace perfmodel::cli
