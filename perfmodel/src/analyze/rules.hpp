#pragma once

#include <fmt/format.h>

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analyze/step_facts.hpp"
#include "perfmodel/detail/findings.hpp"
#include "perfmodel/predictors/gpu.hpp"

/// Rules of `analyze`, one per file in rules/. A rule reads the facts of a step and names a problem
/// and its repair; the schedule computes the gain. Shares are of all steps together. Thresholds are
/// constants at the head of each file, with their source.
namespace perfmodel::findings {

/// A finding of a rule.
struct Suspicion {
  std::string title, where;
  double share_us = 0;  ///< time of the suspected work alone, over all steps
  Repair repair = {};
  Confidence confidence = Confidence::kMedium;
  std::string advice;
  bool costs_time = true;  ///< false: there is nothing to schedule (memory)
};

/// `gpu`: null if it is not known.
using FindSuspicions = void (*)(const StepFacts& step, const Gpu* gpu,
                                std::vector<Suspicion>& found);

struct Rule {
  AnalyzeRule description;
  FindSuspicions find;
};
/// In the order of documents.
std::span<const Rule> all_rules();

// Each in rules/NAME.cpp.
extern const Rule kLowParallelism, kFarBelowRoofline, kSmallKernels, kHostBound, kBlockingWaits,
    kPageableUpload, kDataLoader, kExposedCommunication, kSmallBuckets, kCpuOps, kStepGaps,
    kLayoutChanges, kFp32Products, kMisalignedProducts, kRecomputation, kAllocatorCalls,
    kMemoryLimit, kUnfusedAttention, kUnfusedChains, kChannelsFirst, kLaunchGaps,
    kSparseOptimizerWaits;
/// Rules of several ranks look at more than one step: their findings come with their gain.
inline constexpr AnalyzeRule kStraggler = {
    "straggler", "the ranks of a job wait for one of them for 2 % of the step or more"};

/// Indices into `kernels` by stream, in order of time.
std::vector<std::vector<std::size_t>> kernels_by_stream(const StepFacts& step);
/// Ops that launch kernels, all of which the repair removes, cost the host nothing.
void free_ops_of_removed(const StepFacts& step, Repair& repair);
/// Makes ops that launch kernels, or that are short, free on the host. Returns their time [us] by
/// the name of the outermost op.
std::map<std::string_view, double> free_launching_ops(const StepFacts& step, Repair& repair);
/// The GPU idles for 20 % of the step or more while the host works, and does not wait, for 70 %.
bool is_host_bound(const StepFacts& step);

/// A convolution in a half type with NCHW images.
bool is_channels_first(const KernelFact& kernel);
/// The ops that launch such kernels.
std::set<std::int32_t> channels_first_convolutions(const StepFacts& step);

/// "3.2 ms", "45 us" per step.
std::string per_step(double us, const StepFacts& step);
inline std::string percent_of(double us, const StepFacts& step) {
  return fmt::format("{:.1f} %", step.span_us > 0 ? 100 * us / step.span_us : 0);
}
/// Whether an op is part of the merge of a sparse gradient, or makes a sparse tensor.
bool is_sparse_update(const StepFacts& step, std::int32_t op);
/// At most 60 characters of a kernel's name.
std::string short_name(std::string_view name);

}  // namespace perfmodel::findings
