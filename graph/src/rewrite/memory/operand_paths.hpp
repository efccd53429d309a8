#pragma once

#include <cstdint>
#include <vector>

#include "step/step_view.hpp"

namespace perfmodel {

/// How a matrix product of the forward pass comes by the result of an op.
struct OperandPath {
  std::int32_t product = -1;
  std::vector<std::int32_t> views;  ///< and casts, which lead from the result to the operand
};

/// For each of the ops `origins`, the products that read its first result.
std::vector<std::vector<OperandPath>> operand_paths(const StepView& step,
                                                    const std::vector<std::int32_t>& origins);

}  // namespace perfmodel
