#include "analyze/rules.hpp"

#include <array>

#include "base/kernel_words.hpp"

namespace perfmodel::findings {

std::span<const Rule> all_rules() {
  // Rules are constants of other files: they are copied at the first call, not before main.
  static const std::array rules = {
      kHostBound,        kSmallKernels,         kBlockingWaits, kPageableUpload,
      kDataLoader,       kSparseOptimizerWaits, kStepGaps,      kCpuOps,
      kAllocatorCalls,   kExposedCommunication, kSmallBuckets,  kUnfusedAttention,
      kUnfusedChains,    kLaunchGaps,           kChannelsFirst, kLowParallelism,
      kFarBelowRoofline, kLayoutChanges,        kFp32Products,  kMisalignedProducts,
      kRecomputation,    kMemoryLimit};
  return rules;
}

std::vector<std::vector<std::size_t>> kernels_by_stream(const StepFacts& step) {
  std::map<std::int32_t, std::vector<std::size_t>> by_stream;
  for (std::size_t i = 0; i < step.kernels.size(); ++i) {
    by_stream[step.kernels[i].stream].push_back(i);
  }
  std::vector<std::vector<std::size_t>> made;
  for (auto& [stream, order] : by_stream) {
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return step.kernels[i].start_us; });
    made.push_back(std::move(order));
  }
  return made;
}

void free_ops_of_removed(const StepFacts& step, Repair& repair) {
  for (const std::size_t kernel : repair.launches) {
    for (std::int32_t op = step.kernels[kernel].op; op >= 0; op = step.ops[op].parent) {
      if (step.ops[op].is_label) break;
      repair.host_scale[static_cast<std::size_t>(op)] = 0;
    }
  }
  for (std::size_t i = 0; i < step.kernels.size(); ++i) {
    if (repair.launches.contains(i)) continue;
    for (std::int32_t op = step.kernels[i].op; op >= 0; op = step.ops[op].parent) {
      repair.host_scale.erase(static_cast<std::size_t>(op));
    }
  }
}

std::map<std::string_view, double> free_launching_ops(const StepFacts& step, Repair& repair) {
  constexpr double kHeavyOpUs = 100;  // longer ones without a launch are work: rule cpu-ops
  std::vector<bool> launches(step.ops.size(), false);  // it, or an op inside
  for (const KernelFact& kernel : step.kernels) {
    for (std::int32_t op = kernel.op; op >= 0; op = step.ops[op].parent) launches[op] = true;
  }
  std::map<std::string_view, double> by_name;
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    const OpFact& op = step.ops[i];
    if (op.is_label || (!launches[i] && op.host_us >= kHeavyOpUs)) continue;
    repair.host_scale[i] = 0;
    by_name[step.ops[step.top_op(static_cast<std::int32_t>(i))].name] += op.host_us;
  }
  return by_name;
}

// DeepContext's "launch bound": the GPU idles for more than 20 %. We also ask that the host works
// meanwhile and does not wait.
bool is_host_bound(const StepFacts& step) {
  constexpr double kLeastIdle = 0.2, kLeastBusy = 0.7;
  double waiting = step.loading_us;
  for (const WaitFact& wait : step.waits) waiting += wait.wait_us;
  return !step.kernels.empty() && step.span_us - step.active_us() >= kLeastIdle * step.span_us &&
         step.span_us - waiting >= kLeastBusy * step.span_us;
}

bool is_channels_first(const KernelFact& kernel) {
  if (kernel.kind != DeviceKind::kKernel || !kernel.work || !kernel.work->matrix_units)
    return false;
  const auto* shape = std::get_if<ConvolutionShape>(&kernel.work->shape);
  return shape && !shape->channels_last && size_in_bytes(kernel.work->dtype) == 2;
}

std::set<std::int32_t> channels_first_convolutions(const StepFacts& step) {
  std::set<std::int32_t> ops;
  for (const KernelFact& kernel : step.kernels) {
    if (kernel.op >= 0 && is_channels_first(kernel)) ops.insert(kernel.op);
  }
  return ops;
}

std::string per_step(double us, const StepFacts& step) {
  const double one = us / static_cast<double>(step.steps);
  return one < 1000 ? fmt::format("{:.0f} us", one) : fmt::format("{:.2f} ms", one / 1000);
}

std::string short_name(std::string_view name) {
  constexpr std::size_t kMost = 60;
  if (name.size() <= kMost) return std::string(name);
  const std::string core = without_scopes(name);
  return core.size() <= kMost ? core : core.substr(0, kMost - 3) + "...";
}

}  // namespace perfmodel::findings
