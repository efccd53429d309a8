#include "page_commands.hpp"

#include "bash_completion.hpp"
#include "man_page.hpp"
#include "output.hpp"

namespace perfmodel::cli {

Command completion_command(CommandParser parent, const std::string& program) {
  auto shell = std::make_shared<std::string>();
  auto output = std::make_shared<std::string>();
  const CommandParser app =
      parent.add_subcommand("completion", "Print a script that completes commands");
  app.group("");
  app.add_option("SHELL", *shell, "bash or zsh").required().check(one_of({"bash", "zsh"}));
  app.add_option("-o,--output", *output, "File to write").type_name("FILE");
  return {app, [parent, program, shell, output] {
            const auto write = *shell == "zsh" ? zsh_completion : bash_completion;
            return print_or_write(write(command_tree(parent), program), *output);
          }};
}

Command man_command(CommandParser parent, const std::string& program, const std::string& purpose) {
  auto output = std::make_shared<std::string>();
  const CommandParser app = parent.add_subcommand("man", "Print the manual page");
  app.group("");
  app.add_option("-o,--output", *output, "File to write (.gz compresses)").type_name("FILE");
  return {app, [parent, program, purpose, output] {
            return print_or_write(man_page(command_tree(parent), program, purpose), *output);
          }};
}

}  // namespace perfmodel::cli
