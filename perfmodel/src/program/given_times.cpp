#include "given_times.hpp"

#include <algorithm>
#include <map>
#include <vector>

namespace perfmodel {
namespace {

double told_scale(const ExecutionGraph& graph, std::int32_t node) {
  double scale = 1;
  while (node >= 0) {
    const Node& at = graph.node(node);
    scale *= at.kernel_time_scale;
    node = at.parent;
  }
  return scale;
}

}  // namespace

void scale(Price& price, double factor) {
  for (Microseconds* time : {&price.time, &price.low, &price.high}) *time *= factor;
}

void scale_device(HostProgram& program, double factor) {
  if (factor == 1) return;
  for (PredictedKernel& kernel : program.kernels) {
    if (kernel.family != KernelFamily::kCollective) scale(kernel.price, factor);
  }
}

std::int32_t giver_of_time(const ExecutionGraph& graph, std::int32_t node) {
  std::int32_t giver = -1;
  while (node >= 0) {
    const Node& at = graph.node(node);
    if (at.kernel_time_us >= 0) giver = node;
    node = at.parent;
  }
  return giver;
}

void scale_as_told(const ExecutionGraph& graph, std::span<const KernelQuestion> questions,
                   std::span<PredictedKernel> kernels) {
  for (std::size_t k = 0; k < kernels.size(); ++k) {
    kernels[k].given_scale = told_scale(graph, questions[k].node);
    if (kernels[k].given_scale != 1) scale(kernels[k].price, kernels[k].given_scale);
  }
}

void give_times(const ExecutionGraph& graph, std::span<const KernelQuestion> questions,
                std::span<PredictedKernel> kernels) {
  struct Given {
    double predicted_us = 0;
    int kernels = 0;
  };
  std::map<std::int32_t, Given> given;  // per node that says so
  std::vector<std::int32_t> givers;
  for (std::size_t k = 0; k < kernels.size(); ++k) {
    givers.push_back(giver_of_time(graph, questions[k].node));
    if (givers[k] < 0) continue;
    given[givers[k]].predicted_us += kernels[k].price.time.count();
    ++given[givers[k]].kernels;
  }
  for (std::size_t k = 0; k < kernels.size() && !given.empty(); ++k) {
    if (givers[k] < 0) continue;
    const auto& [predicted_us, count] = given[givers[k]];
    const double share =
        predicted_us > 0 ? kernels[k].price.time.count() / predicted_us : 1. / count;
    const Microseconds time(share * graph.node(givers[k]).kernel_time_us);
    kernels[k].price = {
        .time = time, .low = time, .high = time, .bound = Bound::kMeasured, .model = "given"};
  }
}

}  // namespace perfmodel
