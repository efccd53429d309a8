#pragma once

#include <optional>
#include <string>

#include "perfmodel/detail/advice.hpp"
#include "whatif/target_inputs.hpp"

namespace perfmodel {

/// Which rewrites make the step of a graph short, as a user asks it.
struct OptimizeQuestion {
  std::string graph, objective = "step";
  TargetQuestion target;
  OptimizeOptions options;
  std::optional<double> memory_limit_gb;  ///< 1e9 B; replaces the one in `options`
};

/// One word of a shell: quoted if it holds more than plain characters.
std::string shell_word(const std::string& text);

/// Searches with the commands of the answer as a shell takes them, and adds the best layout of the
/// job if the family "layout" is asked for. `inputs` hold the graph on its GPU (`load_target`); the
/// answer begins with their warnings. Errors: an unknown objective, errors of `optimize`, models
/// that cannot be read.
Result<Advice> answer_optimize(const OptimizeQuestion& question, const TargetInputs& inputs);

}  // namespace perfmodel
