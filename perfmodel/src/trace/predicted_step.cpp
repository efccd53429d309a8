#include <algorithm>
#include <cmath>
#include <map>

#include "perfmodel/detail/overhead_table.hpp"
#include "trace/compared_step.hpp"
#include "trace/device_tables.hpp"

namespace perfmodel {
namespace {

std::int64_t to_ns(double us) { return std::llround(us * 1e3); }

// Waiting for other ranks is a part of a collective's kernel, as traces have it.
double device_us(const PredictedKernel& kernel) {
  return kernel.waiting_us + kernel.price.time.count();
}

Intervals& intervals_of(KernelFamily family, DeviceIntervals& work) {
  switch (family) {
    case KernelFamily::kCollective: return work.collectives;
    case KernelFamily::kCopy: return work.copies;
    case KernelFamily::kSet: return work.sets;
    default: return work.compute;
  }
}

// In steady state, work that ends after its step overlaps with the next step.
void add_folded(double from, double us, double period, Intervals& intervals) {
  if (us >= period) {
    intervals.emplace_back(0, to_ns(period));
    return;
  }
  const double begin = std::fmod(std::max(0.0, from), period), end = begin + us;
  intervals.emplace_back(to_ns(begin), to_ns(std::min(end, period)));
  if (end > period) intervals.emplace_back(0, to_ns(end - period));
}

void set_host_terms(const Prediction& prediction, ComparedStep& step) {
  for (const HostTerm& host : kHostTerms) {
    step.host_terms.emplace_back(host.key,
                                 prediction.terms_us[static_cast<std::size_t>(host.term)]);
  }
  step.host_terms.emplace_back("wait", prediction.wait_us);
}

}  // namespace

FamiliesOfKernels families_of(const Prediction& prediction) {
  FamiliesOfKernels made;
  for (const PredictedOp& op : prediction.ops) {
    for (const PredictedKernel& kernel : op.kernels) made.emplace(kernel.name, kernel.family);
  }
  return made;
}

ComparedStep predicted_step(const Prediction& prediction) {
  const double steps = static_cast<double>(std::max<std::size_t>(1, prediction.iterations.size()));
  const double period = prediction.e2e_us * steps;
  ComparedStep made{.step_us = prediction.e2e_us};
  for (const auto& step : prediction.iterations) made.steps.push_back({step.name, step.e2e_us});
  DeviceIntervals work;
  std::map<std::string_view, ComparedStep::Op> ops;
  std::map<KernelFamily, ComparedStep::Kernel> families;
  double host_us = 0;
  for (const PredictedOp& op : prediction.ops) {
    ComparedStep::Op& row = ops[op.name];
    row.name = op.name;
    row.count += 1 / steps;
    row.host_us += op.host_us / steps;
    host_us += op.host_us / steps;
    for (const PredictedKernel& kernel : op.kernels) {
      const double us = device_us(kernel);
      Intervals& intervals = intervals_of(kernel.family, work);
      if (prediction.started || period <= 0) {
        intervals.emplace_back(to_ns(kernel.start_us), to_ns(kernel.start_us + us));
      } else {
        add_folded(kernel.start_us, us, period, intervals);
      }
      row.device_us += us / steps;
      const std::string family(to_string(kernel.family));
      auto of_op = std::ranges::find(row.kernels, family, &ComparedStep::Kernel::name);
      if (of_op == row.kernels.end()) of_op = row.kernels.insert(of_op, {.name = family});
      ComparedStep::Kernel& of_step = families[kernel.family];
      of_step.name = family;
      for (ComparedStep::Kernel* sum : {&*of_op, &of_step}) {
        sum->count += 1 / steps;
        sum->us += us / steps;
      }
    }
  }
  for (auto& [name, op] : ops) made.ops.push_back(std::move(op));
  for (auto& [family, sum] : families) made.families.push_back(std::move(sum));
  // Calls of labels belong to no op.
  made.ops.push_back({.name = std::string(kOutsideOps), .host_us = prediction.cpu_us - host_us});
  const TraceAnalysis::Breakdown sum = device_breakdown(work);
  made.compute_us = sum.compute_us / steps;
  made.exposed_comm_us = sum.exposed_comm_us / steps;
  made.exposed_memcpy_us = sum.exposed_memcpy_us / steps;
  set_host_terms(prediction, made);
  return made;
}

}  // namespace perfmodel
