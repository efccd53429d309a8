// The program perfpredict-first (cmake/first_answer.cmake): `predict` without rewrites.
#include <vector>

#include "cli/shared/command.hpp"
#include "cli_main.hpp"
#include "perfmodel/optimize.hpp"
#include "rewrites/rewrite_options.hpp"

namespace perfmodel {

const std::vector<RewriteOption>& rewrite_options() {
  static const std::vector<RewriteOption> none;
  return none;
}

// Predictor::optimize() asks it, which `predict` does not.
Result<Advice> optimize(const ExecutionGraph& /*graph*/, const WhatIfTarget& /*target*/,
                        const OptimizeOptions& /*options*/) {
  return decline("perfpredict-first does not optimize");
}

}  // namespace perfmodel

int main(int argc, char** argv) {
  using namespace perfmodel::cli;
  const auto make_commands = [](CommandParser app, std::string_view) {
    return std::vector<Command>{predict_command(app)};
  };
  return cli_main({argv + 1, argv + argc}, make_commands);
}
