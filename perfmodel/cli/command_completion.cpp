#include <memory>

#include "cli/shared/command.hpp"
#include "terminal/bash_completion.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
Command completion_command(CommandParser parent) {
  auto shell = std::make_shared<std::string>();
  auto output = std::make_shared<std::string>();
  const CommandParser app =
      parent.add_subcommand("completion", "Print a script that completes commands");
  app.group("");
  app.add_option("SHELL", *shell, "bash or zsh").required().check(one_of({"bash", "zsh"}));
  app.add_option("-o,--output", *output, "File to write").type_name("FILE");
  return {app, [parent, shell, output] {
            const auto write = *shell == "zsh" ? zsh_completion : bash_completion;
            return print_or_write(write(command_tree(parent), "perfpredict"), *output);
          }};
}

}  // namespace perfmodel::cli
