#include <algorithm>
#include <utility>

#include "cli/build/build_commands.hpp"
#include "cli/cli_main.hpp"
#include "cli/commands.hpp"
#include "fields/field.hpp"
#include "serve/command_request.hpp"
#include "serve/run_command.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/hosted_run.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

// The command that the first words name.
CommandParser named_command(CommandParser command, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    const auto below = command.subcommands();
    const auto named = std::ranges::find(below, word, &CommandParser::name);
    if (named == below.end()) break;
    command = *named;
  }
  return command;
}

serve::OptionForm option_form(CommandParser command, const std::string& key) {
  const std::string flag = flag_of(key);
  const Option option = command.option(flag);
  return {.has_no_form = static_cast<bool>(command.option("--no-" + flag.substr(2))),
          .delimiter = option ? option.delimiter() : '\0'};
}

struct CommandWords {
  std::vector<std::string> words;
  bool is_document = false;      // else it prints text
  std::string other_named = {};  // an option that the command has under another name
};

Result<CommandWords> command_words(const Json& request) {
  PERFMODEL_TRY(words, serve::command_name_words(request));
  const auto append = [&words](Result<std::vector<std::string>> more) -> Result<void> {
    if (!more) return Unexpected{more.error()};
    std::ranges::move(*more, std::back_inserter(*words));
    return {};
  };
  PERFMODEL_TRY_TO(append(serve::argument_words(request)));
  if (words->size() == 1) words->emplace_back();
  add_default_command(*words);
  if (words->back().empty()) words->pop_back();

  const ProgramParser app;
  const std::vector<Command> commands = make_commands(app, words->front());
  const CommandParser command = named_command(app, *words);
  const Json options = request.value("options", Json::object());
  const Json help = options.value("help", Json(false));
  if (!help.is_boolean() && !help.is_null()) {
    return fail(ErrorCode::kFormat,
                std::string("expected true or false, found ") + help.type_name(), {},
                "/options/help");
  }
  std::string other_named;
  for (const auto& [key, value] : options.items()) {
    if (key == "json") continue;  // always
    if (!command.option(flag_of(key))) other_named = key;
    PERFMODEL_TRY_TO(append(serve::option_words(key, value, option_form(command, key))));
  }
  const bool is_document = command.option("--json") && help != Json(true);
  if (is_document) words->emplace_back("--json");
  return CommandWords{std::move(*words), is_document, std::move(other_named)};
}

}  // namespace
}  // namespace perfmodel::cli

namespace perfmodel::serve {

CommandAnswer run_request(std::string_view request, std::size_t most_bytes) {
  const auto json = read_command_request(request);
  if (!json) return {.error = json.error(), .is_bad_request = true};
  auto command = cli::command_words(*json);
  if (!command) return {.error = command.error(), .is_bad_request = true};
  cli::HostedRun host(most_bytes);
  cli::Outcome outcome =
      cli::run_command_line(command->words, cli::make_commands, cli::suggest_preset);
  CommandAnswer answer{.messages = std::move(host.complaints)};
  if (outcome.status != cli::kOk) {
    answer.is_bad_request = outcome.status == cli::kBadUsage;
    if (answer.is_bad_request) {
      outcome.error.json_pointer =
          pointer_of_usage(*json, outcome.error.message, command->other_named);
    }
    answer.error = std::move(outcome.error);
    return answer;
  }
  answer.document =
      command->is_document ? std::move(host.printed) : cli::to_text(Json(host.printed));
  return answer;
}

}  // namespace perfmodel::serve
