#include <algorithm>

#include "cli_main.hpp"

namespace perfmodel::cli {
namespace {

std::vector<Command> make_commands(CommandParser app, std::string_view) {
  return {train_command(app), eval_command(app)};
}

}  // namespace
}  // namespace perfmodel::cli

int main(int argc, char** argv) {
  return perfmodel::cli::cli_main({argv + std::min(argc, 1), argv + argc},
                                  perfmodel::cli::make_commands);
}
