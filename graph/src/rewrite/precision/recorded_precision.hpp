#pragma once

#include <set>
#include <string_view>
#include <vector>

#include "step/step_view.hpp"

/// The precision that a program has already.
namespace perfmodel {

/// The type of half precision among the inputs of a node; kUnknown: none is.
DType half_of(const ExecutionGraph& graph, const Node& node);
bool has_half_products(const ExecutionGraph& graph);
/// As `model.to(half)` makes them: an optimizer changes weights of that type.
bool has_half_weights(const StepView& step, DType half);

/// Per node: autocast watches it, since it is part of a forward pass and computes on the device.
std::vector<bool> autocast_region(const ExecutionGraph& graph, const BackwardPass& pass,
                                  bool on_gpu);

/// Ops of a step under autocast that compute in half precision, as CPUs let them, and would in fp32
/// on a GPU.
std::set<std::string_view> ops_that_cpus_keep_narrow(const StepView& step);

}  // namespace perfmodel
