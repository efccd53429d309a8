#include <memory>

#include "cli/shared/command.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/man_page.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {

Command man_command(CommandParser parent) {
  auto output = std::make_shared<std::string>();
  const CommandParser app = parent.add_subcommand("man", "Print the manual page");
  app.group("");
  app.add_option("-o,--output", *output, "File to write (.gz compresses)").type_name("FILE");
  return {app, [parent, output] {
            return print_or_write(man_page(command_tree(parent), "perfpredict",
                                           "predicts the time of a training batch on a GPU"),
                                  *output);
          }};
}

}  // namespace perfmodel::cli
