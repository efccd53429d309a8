#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "compiled_writer.hpp"

namespace perfmodel {

/// Adds to `compiled.kept` the ops of the host whose tensors library calls of the region or ops
/// outside of it read. A loop takes a number of the host as an argument: its maker goes.
/// `is_inside`: by node of the graph, whether the region holds it.
void keep_host_ops(const StepView& step, const std::vector<bool>& is_inside,
                   const std::function<bool(std::int32_t)>& is_outside, CompiledKernels& compiled);

}  // namespace perfmodel
