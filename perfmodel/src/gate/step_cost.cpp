#include "gate/step_cost.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>

#include "explain/op_title.hpp"

namespace perfmodel {
namespace {

using findings::DeviceKind;
using findings::KernelFact;
using findings::OpFact;
using findings::Repair;
using findings::StepFacts;

constexpr std::string_view kWaits = "waits for the GPU", kCasts = "casts", kAttention = "attention",
                           kCollectives = "collectives", kUploads = "copies to the GPU";
constexpr std::size_t kMostReasons = 8;
constexpr double kLeastStepShare = 5e-4;  // share of the step

// Names of ops, as a part of them.
constexpr std::string_view kReadingOps[] = {"aten::item", "_local_scalar_dense", "aten::is_nonzero",
                                            "aten::nonzero"};
constexpr std::string_view kCastOps[] = {"aten::_to_copy", "ToCopyBackward"};
constexpr std::string_view kFusedOps[] = {"flash_attention", "efficient_attention",
                                          "cudnn_attention", "fused_attention"};
// Unfused attention consists of these and their backward ops.
constexpr std::string_view kAttentionOps[] = {
    "ttention",           "aten::bmm",         "aten::baddbmm",   "aten::matmul",
    "aten::softmax",      "aten::_softmax",    "aten::dropout",   "aten::masked_fill",
    "aten::where",        "aten::tril",        "aten::mul",       "aten::div",
    "aten::add",          "BmmBackward",       "SoftmaxBackward", "DropoutBackward",
    "MaskedFillBackward", "WhereBackward",     "MulBackward",     "DivBackward",
    "aten::transpose",    "aten::view",        "aten::expand",    "aten::reshape",
    "aten::contiguous",   "TransposeBackward", "ViewBackward",    "ExpandBackward",
    "CloneBackward",      "PermuteBackward",   "aten::full",      "aten::permute",
    "aten::split",        "aten::slice",       "SliceBackward",   "SplitBackward"};

template <std::size_t kCount>
bool is_one_of(const std::string_view (&names)[kCount], std::string_view op) {
  if (op.find("log_softmax") != op.npos || op.find("LogSoftmax") != op.npos) return false;
  return std::ranges::any_of(names, [&](auto name) { return op.find(name) != op.npos; });
}

// aten::topk is no cast.
bool is_cast(std::string_view op) {
  return op == "aten::to" || op.starts_with("aten::to.") || is_one_of(kCastOps, op);
}

// Dense layers are none of it, though "aten::add" is a part of their name.
bool is_attention(std::string_view op) {
  return is_one_of(kAttentionOps, op) && op.find("aten::addmm") == op.npos;
}

bool is_fused_attention(const StepFacts& facts, const KernelFact& kernel) {
  for (std::int32_t op = kernel.op; op >= 0; op = facts.ops[op].parent) {
    if (is_one_of(kFusedOps, facts.ops[op].name)) return true;
  }
  return false;
}

double fused_kernels(const StepFacts& facts) {
  double count = 0;
  for (const KernelFact& kernel : facts.kernels) count += is_fused_attention(facts, kernel);
  return count / static_cast<double>(facts.steps);
}

/// Groups of one step, with the indices that a repair needs.
struct Group {
  double count = 0, device_us = 0, host_us = 0, wait_us = 0;
  std::vector<std::size_t> kernels, ops, waits;
};
using Groups = std::map<std::string, Group>;

// The group of an op and of what it launches.
std::string group_of(const StepFacts& facts, std::int32_t op, bool attention_changed) {
  std::string_view outermost = "outside of ops", own;
  for (; op >= 0; op = facts.ops[op].parent) {
    const OpFact& fact = facts.ops[op];
    if (fact.is_label) continue;
    outermost = fact.name;
    if (!own.empty()) continue;
    if (is_one_of(kReadingOps, fact.name)) own = kWaits;
    if (is_cast(fact.name)) own = kCasts;
    if (attention_changed && is_one_of(kFusedOps, fact.name)) own = kAttention;
  }
  const bool joins = attention_changed && is_attention(outermost);
  if (joins && own != kWaits) return std::string(kAttention);  // with its casts
  if (!own.empty()) return std::string(own);
  return op_title(outermost);
}

std::string group_of(const StepFacts& facts, const KernelFact& kernel, bool attention_changed) {
  if (kernel.kind == DeviceKind::kCollective) return std::string(kCollectives);
  if (kernel.copy == CopyKind::kHostToDevice) return std::string(kUploads);
  return group_of(facts, kernel.op, attention_changed);
}

Groups groups_of_step(const StepFacts& facts, bool attention_changed) {
  Groups groups;
  const auto steps = static_cast<double>(facts.steps);
  for (std::size_t i = 0; i < facts.kernels.size(); ++i) {
    Group& group = groups[group_of(facts, facts.kernels[i], attention_changed)];
    group.count += 1 / steps;
    group.device_us += facts.kernels[i].time_us / steps;
    group.kernels.push_back(i);
  }
  for (std::size_t i = 0; i < facts.ops.size(); ++i) {
    const double us = facts.ops[i].host_us + facts.ops[i].gap_us;
    if (us <= 0) continue;
    Group& group = groups[group_of(facts, static_cast<std::int32_t>(i), attention_changed)];
    group.host_us += us / steps;
    group.ops.push_back(i);
  }
  for (std::size_t i = 0; i < facts.waits.size(); ++i) {
    Group& group = groups[std::string(kWaits)];
    group.wait_us += facts.waits[i].wait_us / steps;
    group.waits.push_back(i);
  }
  const auto waits = groups.find(std::string(kWaits));
  if (waits != groups.end()) {
    waits->second.count = static_cast<double>(waits->second.waits.size()) / steps;
  }
  return groups;
}

// The repair that gives a group as much work as `wanted` has.
Repair scaled_to(const Group& wanted, const Group& group, const StepFacts& facts) {
  Repair repair{.whole_ops = true};
  const double device = group.device_us > 0 ? wanted.device_us / group.device_us : 1;
  const double host = group.host_us > 0 ? wanted.host_us / group.host_us : 1;
  for (const std::size_t kernel : group.kernels) {
    if (wanted.kernels.empty())
      repair.remove_kernel(kernel);
    else
      repair.kernel_us[kernel] = facts.kernels[kernel].time_us * device;
  }
  for (const std::size_t op : group.ops) repair.host_scale[op] = host;
  // Waits that are too many go at equal distances.
  const double surplus = (group.count - wanted.count) * static_cast<double>(facts.steps);
  const auto all = static_cast<double>(group.waits.size());
  for (double i = 0; i < std::min(surplus, all); ++i) {
    repair.waits.insert(group.waits[static_cast<std::size_t>(i * all / std::min(surplus, all))]);
  }
  return repair;
}

GateReason reason_of(const std::string& name, const Group& before, const Group& after) {
  return {.name = name,
          .count_before = before.count,
          .count_after = after.count,
          .device_before_us = before.device_us,
          .device_after_us = after.device_us,
          .host_before_us = before.host_us,
          .host_after_us = after.host_us,
          .wait_before_us = before.wait_us,
          .wait_after_us = after.wait_us};
}

double size_of(const GateReason& reason) {
  return std::abs(reason.device_change_us()) + std::abs(reason.host_change_us()) +
         std::abs(reason.wait_change_us());
}

std::vector<GateReason> changed_groups(Groups& before, Groups& after) {
  std::vector<GateReason> reasons;
  for (const auto* groups : {&before, &after}) {
    for (const auto& [name, group] : *groups) {
      if (std::ranges::find(reasons, name, &GateReason::name) != reasons.end()) continue;
      reasons.push_back(reason_of(name, before[name], after[name]));
    }
  }
  std::ranges::stable_sort(reasons, std::ranges::greater{}, size_of);
  if (reasons.size() > kMostReasons) reasons.resize(kMostReasons);
  return reasons;
}

// The step with more of the group is scheduled again: what is gone cannot be scaled.
Result<double> cost_of(const GateReason& reason, Groups& before, Groups& after,
                       const ScheduledStep& from, const ScheduledStep& to) {
  const bool shrank =
      reason.device_change_us() + reason.host_change_us() + reason.wait_change_us() < 0;
  const ScheduledStep& step = shrank ? from : to;
  Groups& own = shrank ? before : after;
  Groups& other = shrank ? after : before;
  PERFMODEL_TRY(repaired,
                step.schedule.step_us(scaled_to(other[reason.name], own[reason.name], step.facts)));
  return shrank ? *repaired - step.step_us : step.step_us - *repaired;
}

double time_of(const StepFacts& facts, auto&& take) {
  double us = 0;
  for (const KernelFact& kernel : facts.kernels) us += take(kernel.kind) ? kernel.time_us : 0;
  return us / static_cast<double>(facts.steps);
}

std::array<double, 6> sums_of(const StepFacts& facts) {
  double host = 0, wait = 0;
  for (const OpFact& op : facts.ops) host += op.host_us + op.gap_us;
  for (const findings::WaitFact& one : facts.waits) wait += one.wait_us;
  const auto steps = static_cast<double>(facts.steps);
  return {time_of(facts, [](DeviceKind kind) { return kind == DeviceKind::kKernel; }),
          time_of(facts, [](DeviceKind kind) { return kind == DeviceKind::kCollective; }),
          time_of(facts,
                  [](DeviceKind kind) {
                    return kind >= DeviceKind::kCopy && kind != DeviceKind::kCollective;
                  }),
          host / steps,
          wait / steps,
          std::max(0.0, facts.span_us - facts.active_us()) / steps};
}

std::vector<GateSum> compared_sums(const StepFacts& before, const StepFacts& after) {
  constexpr std::string_view kNames[] = {"kernels",   "collectives", "copies and sets",
                                         "host work", "host waits",  "GPU idle"};
  const auto a = sums_of(before), b = sums_of(after);
  std::vector<GateSum> sums;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] + b[i] > 0) sums.push_back({std::string(kNames[i]), a[i], b[i]});
  }
  return sums;
}

}  // namespace

Result<StepCost> step_cost(const ScheduledStep& before, const ScheduledStep& after) {
  const bool attention_changed = fused_kernels(before.facts) != fused_kernels(after.facts);
  Groups from = groups_of_step(before.facts, attention_changed);
  Groups to = groups_of_step(after.facts, attention_changed);
  StepCost made{.sums = compared_sums(before.facts, after.facts),
                .rest_us = after.step_us - before.step_us};
  const double least_us = kLeastStepShare * before.step_us;
  for (GateReason& reason : changed_groups(from, to)) {
    if (size_of(reason) < least_us) continue;
    PERFMODEL_TRY(cost, cost_of(reason, from, to, before, after));
    reason.cost_us = *cost;
    if (std::abs(*cost) < least_us) continue;
    made.rest_us -= *cost;
    made.reasons.push_back(std::move(reason));
  }
  std::ranges::stable_sort(made.reasons, std::ranges::greater{},
                           [](const GateReason& reason) { return std::abs(reason.cost_us); });
  return made;
}

}  // namespace perfmodel
