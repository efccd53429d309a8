#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/number_text.hpp"
#include "perfmodel/detail/trace_comparison.hpp"
#include "trace/compared_step.hpp"

namespace perfmodel {
namespace {

using TraceChange = TraceComparison::Change;

// Compute, exposed communication, exposed copies, rest of the step.
std::vector<std::pair<std::string, double>> terms_of(const ComparedStep& step) {
  return {{"compute", step.compute_us},
          {"exposed_comm", step.exposed_comm_us},
          {"exposed_memcpy", step.exposed_memcpy_us},
          {"idle", step.step_us - step.compute_us - step.exposed_comm_us - step.exposed_memcpy_us}};
}

std::vector<TraceComparison::Term> side_by_side(
    const std::vector<std::pair<std::string, double>>& before,
    const std::vector<std::pair<std::string, double>>& after) {
  std::vector<TraceComparison::Term> made;
  for (const auto& [name, us] : before) made.push_back({.name = name, .before_us = us});
  for (const auto& [name, us] : after) {
    auto at = std::ranges::find(made, name, &TraceComparison::Term::name);
    if (at == made.end()) at = made.insert(made.end(), {.name = name});
    at->after_us = us;
  }
  return made;
}

bool differs(double a, double b) { return std::abs(a - b) > 1e-9 * std::max({1.0, a, b}); }

bool has_changed(const TraceChange& at) {
  return differs(at.count_before, at.count_after) || differs(at.before_us, at.after_us);
}

using ChangeKey = std::array<std::string, 3>;  // op, shapes, kernel
using ChangeTable = std::map<ChangeKey, TraceChange>;

struct ChangeTables {
  ChangeTable ops, kernels, families;
};

void add_kernels(const std::vector<ComparedStep::Kernel>& kernels, const ChangeKey& key,
                 bool is_after, ChangeTable& table) {
  for (const ComparedStep::Kernel& kernel : kernels) {
    TraceChange& change = table[{key[0], key[1], kernel.name}];
    change.op = key[0];
    change.shapes = key[1];
    change.kernel = kernel.name;
    (is_after ? change.count_after : change.count_before) += kernel.count;
    (is_after ? change.after_us : change.before_us) += kernel.us;
  }
}

void add_step(const ComparedStep& step, bool is_after, ChangeTables& tables) {
  for (const ComparedStep::Op& op : step.ops) {
    const ChangeKey key = {op.name, op.shapes, ""};
    TraceChange& change = tables.ops[key];
    change.op = op.name;
    change.shapes = op.shapes;
    (is_after ? change.count_after : change.count_before) += op.count;
    (is_after ? change.after_us : change.before_us) += op.device_us;
    (is_after ? change.host_after_us : change.host_before_us) += op.host_us;
    add_kernels(op.kernels, key, is_after, tables.kernels);
  }
  add_kernels(step.families, {}, is_after, tables.families);
}

std::vector<TraceChange> values_of(ChangeTable& table) {
  std::vector<TraceChange> made;
  for (auto& [key, change] : table) made.push_back(std::move(change));
  return made;
}

std::vector<TraceChange> changed_values_of(ChangeTable& table) {
  std::vector<TraceChange> made = values_of(table);
  std::erase_if(made, [](const TraceChange& at) { return !has_changed(at); });
  std::ranges::stable_sort(made, std::ranges::greater{},
                           [](const TraceChange& at) { return std::abs(at.change_us()); });
  return made;
}

// Share of the device time of both steps whose ops, by name, are in both.
double shared_share(const ComparedStep& before, const ComparedStep& after) {
  std::map<std::string, std::pair<double, double>> by_name;
  for (const auto& op : before.ops) by_name[op.name].first += op.device_us;
  for (const auto& op : after.ops) by_name[op.name].second += op.device_us;
  double shared = 0, all = 0;
  for (const auto& [name, us] : by_name) {
    all += us.first + us.second;
    if (us.first > 0 && us.second > 0) shared += us.first + us.second;
  }
  return all > 0 ? shared / all : 0;
}

Unexpected impossible_comparison(const ComparedStep& step, std::string message) {
  return decline(std::move(message), step.source);
}

// Common part of both kinds of comparison; they fill `tables` themselves.
Result<TraceComparison> compare_steps(const ComparedStep& before, const ComparedStep& after,
                                      std::string_view sides, ChangeTables& tables) {
  for (const ComparedStep* step : {&before, &after}) {
    if (step->compute_us + step->exposed_comm_us + step->exposed_memcpy_us > 0) continue;
    return impossible_comparison(*step, "expected device work to compare, found none");
  }
  const double shared = shared_share(before, after);
  if (shared == 0) {
    return impossible_comparison(after.source.empty() ? before : after,
                                 fmt::format("expected {} of one program, found no op with device "
                                             "work that is in both",
                                             sides));
  }
  TraceComparison made{.steps_before = before.steps.size(),
                       .steps_after = after.steps.size(),
                       .step_before_us = before.step_us,
                       .step_after_us = after.step_us,
                       .terms = side_by_side(terms_of(before), terms_of(after)),
                       .host_terms = side_by_side(before.host_terms, after.host_terms)};
  if (shared < 0.5) {
    made.warnings.push_back(
        fmt::format("ops that are in both make {} of the device time: these may be different jobs",
                    percent(shared)));
  }
  const std::size_t pairs = std::min(made.steps_before, made.steps_after);
  for (std::size_t i = 0; i < pairs; ++i) {
    const auto &a = before.steps[i], &b = after.steps[i];
    made.steps.push_back({a.name, b.name, a.us, b.us});
  }
  add_step(before, false, tables);
  add_step(after, true, tables);
  return made;
}

}  // namespace

Result<TraceComparison> compare(const ComparedTrace& before, const ComparedTrace& after) {
  const bool by_shape =
      !before.analysis.ops_by_shape.empty() && !after.analysis.ops_by_shape.empty();
  ChangeTables tables;
  PERFMODEL_TRY(made, compare_steps(step_of(before, by_shape), step_of(after, by_shape),
                                    "two traces", tables));
  if (before.report.gpu != after.report.gpu) {
    made->warnings.push_back(
        fmt::format("the traces are of different GPUs: {} and {}",
                    before.report.gpu.empty() ? "one without a name" : before.report.gpu,
                    after.report.gpu.empty() ? "one without a name" : after.report.gpu));
  }
  made->ops = changed_values_of(tables.ops);
  made->kernels = changed_values_of(tables.kernels);
  return made;
}

Result<TraceComparison> compare(
    const Trace& measured, const Prediction& predicted,
    const std::optional<std::pair<std::size_t, std::size_t>>& iterations) {
  if (predicted.ops.empty()) {
    return decline(
        "expected a prediction with its ops to compare, found none: overheads of method lin keep "
        "no account of them");
  }
  PERFMODEL_TRY(before, measured_step(measured, iterations, families_of(predicted)));
  ChangeTables tables;
  PERFMODEL_TRY(
      made, compare_steps(*before, predicted_step(predicted), "a trace and a prediction", tables));
  made->ops = values_of(tables.ops);
  made->kernels = values_of(tables.kernels);
  made->families = values_of(tables.families);
  const auto change = [](const TraceChange& at) {
    return std::abs(at.change_us()) + std::abs(at.host_change_us());
  };
  std::ranges::stable_sort(made->ops, std::ranges::greater{}, change);
  std::ranges::stable_sort(made->kernels, std::ranges::greater{}, change);
  std::ranges::stable_sort(made->families, std::ranges::greater{}, [](const TraceChange& at) {
    return std::max(at.before_us, at.after_us);
  });
  return made;
}

}  // namespace perfmodel
