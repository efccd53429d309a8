#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/number_text.hpp"
#include "perfmodel/detail/trace_comparison.hpp"

namespace perfmodel {
namespace {

using TraceChange = TraceComparison::Change;

double steps_of(const TraceReport& report) {
  return static_cast<double>(std::max<std::size_t>(1, report.iterations.size()));
}

double mean_step_us(const ComparedTrace& trace) {
  if (trace.report.iterations.empty()) return trace.analysis.breakdown.span_us;
  double sum = 0;
  for (const auto& iteration : trace.report.iterations) sum += iteration.wall_us;
  return sum / steps_of(trace.report);
}

// Compute, exposed communication, exposed copies, rest of the step.
std::vector<std::pair<std::string, double>> terms_of(const ComparedTrace& trace, double step_us) {
  TraceAnalysis::Breakdown sum;
  const auto add = [&sum](const TraceAnalysis::Breakdown& at) {
    sum.compute_us += at.compute_us;
    sum.exposed_comm_us += at.exposed_comm_us;
    sum.exposed_memcpy_us += at.exposed_memcpy_us;
  };
  if (trace.analysis.splits.empty()) add(trace.analysis.breakdown);
  for (const auto& split : trace.analysis.splits) add(split.breakdown);
  const double steps = steps_of(trace.report);
  const double compute = sum.compute_us / steps, comm = sum.exposed_comm_us / steps,
               copies = sum.exposed_memcpy_us / steps;
  return {{"compute", compute},
          {"exposed_comm", comm},
          {"exposed_memcpy", copies},
          {"idle", step_us - compute - comm - copies}};
}

bool differs(double a, double b) { return std::abs(a - b) > 1e-9 * std::max({1.0, a, b}); }

bool has_changed(const TraceChange& at) {
  return differs(at.count_before, at.count_after) || differs(at.before_us, at.after_us);
}

void sort_changes(std::vector<TraceChange>& changes) {
  std::erase_if(changes, [](const TraceChange& at) { return !has_changed(at); });
  std::ranges::stable_sort(changes, [](const TraceChange& a, const TraceChange& b) {
    return std::abs(a.change_us()) > std::abs(b.change_us());
  });
}

using ChangeKey = std::array<std::string, 3>;  // op, shapes, kernel

struct ChangeTables {
  std::map<ChangeKey, TraceChange> ops, kernels;
};

void add_ops(const std::vector<TraceAnalysis::Op>& ops, double steps, bool is_after,
             ChangeTables& tables) {
  for (const TraceAnalysis::Op& op : ops) {
    TraceChange& change = tables.ops[{op.name, op.shapes, ""}];
    change.op = op.name;
    change.shapes = op.shapes;
    (is_after ? change.count_after : change.count_before) += static_cast<double>(op.count) / steps;
    (is_after ? change.after_us : change.before_us) += op.device_self_us / steps;
    (is_after ? change.host_after_us : change.host_before_us) += op.host_self_us / steps;
    for (const TraceAnalysis::OpKernel& kernel : op.kernels) {
      TraceChange& of_kernel = tables.kernels[{op.name, op.shapes, kernel.name}];
      of_kernel.op = op.name;
      of_kernel.shapes = op.shapes;
      of_kernel.kernel = kernel.name;
      (is_after ? of_kernel.count_after : of_kernel.count_before) +=
          static_cast<double>(kernel.count) / steps;
      (is_after ? of_kernel.after_us : of_kernel.before_us) += kernel.total_us / steps;
    }
  }
}

std::vector<TraceChange> values_of(std::map<ChangeKey, TraceChange>& table) {
  std::vector<TraceChange> made;
  for (auto& [key, change] : table) made.push_back(std::move(change));
  sort_changes(made);
  return made;
}

// Share of the device time of both traces whose ops, by name, are in both.
double shared_share(const ComparedTrace& before, const ComparedTrace& after) {
  std::map<std::string, std::pair<double, double>> by_name;
  for (const auto& op : before.analysis.ops) by_name[op.name].first += op.device_self_us;
  for (const auto& op : after.analysis.ops) by_name[op.name].second += op.device_self_us;
  double shared = 0, all = 0;
  for (const auto& [name, us] : by_name) {
    all += us.first + us.second;
    if (us.first > 0 && us.second > 0) shared += us.first + us.second;
  }
  return all > 0 ? shared / all : 0;
}

}  // namespace

Result<TraceComparison> compare(const ComparedTrace& before, const ComparedTrace& after) {
  for (const ComparedTrace& trace : {before, after}) {
    if (trace.analysis.breakdown.busy_us > 0) continue;
    return Unexpected{Error{.code = ErrorCode::kImpossible,
                            .message = "expected device work to compare, found none",
                            .file = trace.report.source}};
  }
  const double shared = shared_share(before, after);
  if (shared == 0) {
    return Unexpected{Error{.code = ErrorCode::kImpossible,
                            .message = "expected two traces of one program, found no op with "
                                       "device work that is in both",
                            .file = after.report.source}};
  }
  TraceComparison made{.steps_before = before.report.iterations.size(),
                       .steps_after = after.report.iterations.size(),
                       .step_before_us = mean_step_us(before),
                       .step_after_us = mean_step_us(after)};
  if (shared < 0.5) {
    made.warnings.push_back(
        fmt::format("ops that are in both traces make {} of the device time: these may be "
                    "different jobs",
                    percent(shared)));
  }
  if (before.report.gpu != after.report.gpu) {
    made.warnings.push_back(
        fmt::format("the traces are of different GPUs: {} and {}",
                    before.report.gpu.empty() ? "one without a name" : before.report.gpu,
                    after.report.gpu.empty() ? "one without a name" : after.report.gpu));
  }
  const auto terms_before = terms_of(before, made.step_before_us);
  const auto terms_after = terms_of(after, made.step_after_us);
  for (std::size_t i = 0; i < terms_before.size(); ++i) {
    made.terms.push_back({terms_before[i].first, terms_before[i].second, terms_after[i].second});
  }
  const std::size_t pairs = std::min(made.steps_before, made.steps_after);
  for (std::size_t i = 0; i < pairs; ++i) {
    const auto &a = before.report.iterations[i], &b = after.report.iterations[i];
    made.steps.push_back({a.name, b.name, a.wall_us, b.wall_us});
  }
  const bool by_shape =
      !before.analysis.ops_by_shape.empty() && !after.analysis.ops_by_shape.empty();
  ChangeTables tables;
  add_ops(by_shape ? before.analysis.ops_by_shape : before.analysis.ops, steps_of(before.report),
          false, tables);
  add_ops(by_shape ? after.analysis.ops_by_shape : after.analysis.ops, steps_of(after.report), true,
          tables);
  made.ops = values_of(tables.ops);
  made.kernels = values_of(tables.kernels);
  return made;
}

}  // namespace perfmodel
