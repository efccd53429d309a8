#include "trace/compared_step.hpp"

#include <algorithm>

namespace perfmodel {
namespace {

double count_of_steps(const TraceReport& report) {
  return static_cast<double>(std::max<std::size_t>(1, report.iterations.size()));
}

double mean_step_us(const ComparedTrace& trace) {
  if (trace.report.iterations.empty()) return trace.analysis.breakdown.span_us;
  double sum = 0;
  for (const auto& iteration : trace.report.iterations) sum += iteration.wall_us;
  return sum / count_of_steps(trace.report);
}

}  // namespace

ComparedStep step_of(const ComparedTrace& trace, bool by_shape) {
  const double steps = count_of_steps(trace.report);
  ComparedStep made{
      .source = trace.report.source, .gpu = trace.report.gpu, .step_us = mean_step_us(trace)};
  for (const auto& iteration : trace.report.iterations) {
    made.steps.push_back({iteration.name, iteration.wall_us});
  }
  const auto add = [&](const TraceAnalysis::Breakdown& at) {
    made.compute_us += at.compute_us / steps;
    made.exposed_comm_us += at.exposed_comm_us / steps;
    made.exposed_memcpy_us += at.exposed_memcpy_us / steps;
  };
  if (trace.analysis.splits.empty()) add(trace.analysis.breakdown);
  for (const auto& split : trace.analysis.splits) add(split.breakdown);
  for (const auto& op : by_shape ? trace.analysis.ops_by_shape : trace.analysis.ops) {
    ComparedStep::Op row{.name = op.name,
                         .shapes = op.shapes,
                         .count = static_cast<double>(op.count) / steps,
                         .device_us = op.device_self_us / steps,
                         .host_us = op.host_self_us / steps};
    for (const auto& kernel : op.kernels) {
      row.kernels.push_back(
          {kernel.name, static_cast<double>(kernel.count) / steps, kernel.total_us / steps});
    }
    made.ops.push_back(std::move(row));
  }
  return made;
}

}  // namespace perfmodel
