#include "sweep_graphs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/build/build_arguments.hpp"
#include "cli/shared/command.hpp"
#include "core/edit_distance.hpp"
#include "rewrites/rewrite_options.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {
namespace {

using sweep::GraphSource;

Unexpected fail_at(std::string pointer, std::string message) {
  return fail(ErrorCode::kFormat, std::move(message), {}, std::move(pointer));
}

std::string nearest(const std::string& unknown, const std::vector<std::string>& known) {
  return *std::ranges::min_element(
      known, {}, [&](const std::string& name) { return edit_distance(unknown, name); });
}

// Options that only the command line uses.
bool is_of_command_line(const std::string& option) {
  return option == "output" || option == "json" || option == "help";
}

std::vector<std::string> option_names(CommandParser app) {
  std::vector<std::string> names;
  for (const Option option : app.options()) {
    for (const std::string& name : option.long_names()) {
      if (!is_of_command_line(name)) names.push_back(name);
    }
  }
  return names;
}

bool is_file(CommandParser app, const std::string& option) {
  const Option found = app.option("--" + option);
  return found && found.type_name() == "FILE";
}

// The command line of a source, in a parser of its own.
class BuildRequest {
 public:
  BuildRequest() : commands_(build_commands(app_)) {}

  Result<Command> find(const GraphSource& source) const {
    std::vector<std::string> names;
    for (const Command& command : commands_) {
      if (command.app.name() == source.builder) return command;
      names.push_back(command.app.name());
    }
    return fail_at("/build", fmt::format("expected a builder, found \"{}\" (nearest: \"{}\")",
                                         source.builder, nearest(source.builder, names)));
  }

  Result<ExecutionGraph> build(const GraphSource& source) {
    PERFMODEL_TRY(command, find(source));
    PERFMODEL_TRY(words, words_of(source, command->app));
    if (const ParsedWords parsed = app_.parse(*words); parsed.kind != ParsedWords::Kind::kParsed) {
      return fail_at("/options",
                     fmt::format("expected what `perfpredict build {}` takes, found: {}",
                                 source.builder, parsed.text));
    }
    std::optional<ExecutionGraph> graph;
    app_.take = [&graph](ExecutionGraph made) { graph = std::move(made); };
    if (auto built = command->run(); !built) {
      Error error = built.error();
      error.json_pointer = "/options";
      return Unexpected{std::move(error)};
    }
    return std::move(*graph);
  }

 private:
  static Result<std::vector<std::string>> words_of(const GraphSource& source, CommandParser app) {
    const auto known = option_names(app);
    std::vector<std::string> words = {"build", source.builder, "--output=none.json"};
    for (const auto& [name, value] : source.options) {
      if (std::ranges::find(known, name) == known.end()) {
        return fail_at("/options/" + name,
                       fmt::format("expected an option of `perfpredict build {}`, found \"{}\" "
                                   "(nearest: \"{}\")",
                                   source.builder, name, nearest(name, known)));
      }
      const std::string text = is_file(app, name) ? (source.folder / value).string() : value;
      words.push_back(fmt::format("--{}={}", name, text));
    }
    return words;
  }

  GraphTaker app_;
  std::vector<Command> commands_;
};

std::vector<std::filesystem::path> files_of(const GraphSource& source) {
  std::vector<std::filesystem::path> files;
  const BuildRequest request;
  const auto command = request.find(source);
  if (!command) return files;
  for (const auto& [name, value] : source.options) {
    if (is_file(command->app, name)) files.push_back(source.folder / value);
  }
  return files;
}

}  // namespace

sweep::GraphToolbox sweep_toolbox() {
  sweep::GraphToolbox toolbox{
      .rewrite = rewrite_of,
      .build = [](const GraphSource& source) { return BuildRequest().build(source); },
      .files = files_of};
  for (const RewriteOption& option : rewrite_options()) {
    toolbox.rewrites.push_back(option.flag.substr(2));
  }
  return toolbox;
}

}  // namespace perfmodel::cli
