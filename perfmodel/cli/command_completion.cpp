#include <CLI/CLI.hpp>
#include <memory>

#include "bash_completion.hpp"
#include "command.hpp"
#include "output.hpp"

namespace perfmodel::cli {
namespace {

// zsh reads what is written for bash.
constexpr std::string_view kZshHead =
    "#compdef perfpredict\n"
    "autoload -U +X bashcompinit && bashcompinit\n";

}  // namespace

Command completion_command(CLI::App& parent) {
  auto shell = std::make_shared<std::string>();
  auto output = std::make_shared<std::string>();
  CLI::App* app = parent.add_subcommand("completion", "Print a script that completes commands");
  app->group("");
  app->add_option("SHELL", *shell, "bash or zsh")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
  app->add_option("-o,--output", *output, "File to write")->type_name("FILE");
  return {app, [&parent, shell, output] {
            const std::string script = bash_completion(command_tree(parent));
            return print_or_write(*shell == "zsh" ? std::string(kZshHead) + script : script,
                                  *output);
          }};
}

}  // namespace perfmodel::cli
