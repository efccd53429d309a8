#include <memory>

#include "commands.hpp"
#include "terminal/bash_completion.hpp"
#include "terminal/man_page.hpp"
#include "terminal/output.hpp"

namespace kernels_bench {

using perfmodel::cli::command_tree;
using perfmodel::cli::print_or_write;

Command man_command(CommandParser parent) {
  auto output = std::make_shared<std::string>();
  const CommandParser app = parent.add_subcommand("man", "Print the manual page");
  app.group("");
  app.add_option("-o,--output", *output, "File to write (.gz compresses)").type_name("FILE");
  return {app, [parent, output] {
            return print_or_write(
                perfmodel::cli::man_page(command_tree(parent), "kernels_bench",
                                         "measures kernels on a GPU, for models that predict them"),
                *output);
          }};
}

Command completion_command(CommandParser parent) {
  auto shell = std::make_shared<std::string>();
  auto output = std::make_shared<std::string>();
  const CommandParser app = parent.add_subcommand("completion", "Print a script that completes commands");
  app.group("");
  app.add_option("SHELL", *shell, "bash or zsh")
      .required()
      .check(one_of({"bash", "zsh"}));
  app.add_option("-o,--output", *output, "File to write").type_name("FILE");
  return {app, [parent, shell, output] {
            const auto write =
                *shell == "zsh" ? perfmodel::cli::zsh_completion : perfmodel::cli::bash_completion;
            return print_or_write(write(command_tree(parent), "kernels_bench"), *output);
          }};
}

}  // namespace kernels_bench
