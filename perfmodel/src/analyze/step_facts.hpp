#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perfmodel/predictors/kernel.hpp"
#include "perfmodel/result.hpp"

/// One step as rules and pages see it, whether recorded or predicted. Times in microseconds since
/// the step's begin; an index of -1 is none.
namespace perfmodel::findings {

/// An op, a label, a call of a module or of a Python function of the host.
struct OpFact {
  std::string_view name;
  std::string_view shapes = {};   ///< input shapes as recorded; empty: not known
  std::string_view strides = {};  ///< the same
  std::int32_t parent = -1;       ///< around it, into StepFacts::ops
  std::int32_t thread = 0;
  double start_us = 0, end_us = 0;
  double host_us = 0;      ///< own work with its calls; without inner ops and without waiting
  double gap_us = 0;       ///< host work before it that `host_us` lacks (predictions only)
  double wait_us = 0;      ///< waiting time of its calls
  double taken_bytes = 0;  ///< device memory that it asks for itself, however soon it is freed
  bool is_label = false;   ///< no op
  bool is_frame = false;   ///< a label that is a call of a Python function
};

enum class DeviceKind : std::uint8_t { kKernel, kCopy, kSet, kCollective };

/// A kernel, copy, set or collective.
struct KernelFact {
  std::string_view name;
  KernelFamily family = KernelFamily::kSmall;
  DeviceKind kind = DeviceKind::kKernel;
  std::int32_t op = -1;  ///< launches it, into StepFacts::ops
  std::int32_t stream = 0;
  double start_us = 0, time_us = 0;
  double low_us = 0, high_us = 0;          ///< range of a predicted time; equal: as recorded
  double launch_us = 0;                    ///< host time of its call
  std::optional<KernelWork> work = {};     ///< from the shapes
  std::optional<double> roofline_us = {};  ///< the least time that peaks allow for
  double copied_bytes = 0;
  std::optional<CopyKind> copy = {};        ///< copies only
  bool pageable = false;                    ///< the host's side is not pinned
  double blocks_per_sm = -1;                ///< as Kineto estimates; below 0: not recorded
  std::string_view model = {}, bound = {};  ///< predictions only
  bool in_range = true;
};

/// A call that waited for the device.
struct WaitFact {
  std::string_view call;
  std::int32_t op = -1;
  double start_us = 0, wait_us = 0;
};

/// A call of the driver that takes or gives back device memory.
struct AllocatorCall {
  std::string_view call;
  std::int32_t op = -1;
  double start_us = 0, us = 0;
};

/// Host time outside of all ops and calls.
struct GapFact {
  double start_us = 0, us = 0;
};

struct StepFacts {
  std::size_t steps = 1;
  std::vector<double> step_begins_us;  ///< begin of each step
  double span_us = 0;                  ///< all steps together
  std::vector<OpFact> ops;             ///< parents before children
  std::vector<KernelFact> kernels;
  std::vector<WaitFact> waits;
  std::vector<AllocatorCall> allocator_calls;
  std::vector<GapFact> gaps;
  double loading_us = 0;  ///< waiting for the data loader
  bool is_recorded = false;
  bool has_marks = true;  ///< false: a recording without steps, all of it counts as one
  std::optional<double> peak_memory_bytes = {}, device_memory_bytes = {};

  double active_us() const;  ///< union of all device work
  /// "A / B / C at train.py(30): main": at most the innermost four ops, labels and modules;
  /// repeated names once, steps without their number; the Python line of line_of(), if any.
  std::string path(std::int32_t op) const;
  /// The innermost call of Python around `op` that is not one of PyTorch's own or of Python's
  /// library; else the innermost one in a file; empty: none recorded.
  std::string_view line_of(std::int32_t op) const;
  /// "AdamW" of the label Optimizer.step#AdamW.step around `op`; empty: none is around it.
  std::string_view optimizer_around(std::int32_t op) const;
  /// The outermost op (no label) around `op`, or itself.
  std::int32_t top_op(std::int32_t op) const;
};

/// Indices into `kernels` that share a name and the name of the op that launched them.
struct KernelGroup {
  std::vector<std::size_t> kernels;
  double time_us = 0;
};
/// Groups the kernels (no copies, sets, collectives) that `take` chooses, longest first.
template <class Take>
std::vector<KernelGroup> groups_of(const StepFacts& step, Take&& take) {
  std::map<std::pair<std::string_view, std::string_view>, KernelGroup> groups;
  for (std::size_t i = 0; i < step.kernels.size(); ++i) {
    const KernelFact& kernel = step.kernels[i];
    if (!take(kernel)) continue;
    const auto op = kernel.op < 0 ? std::string_view() : step.ops[kernel.op].name;
    KernelGroup& group = groups[{kernel.name, op}];
    group.kernels.push_back(i);
    group.time_us += kernel.time_us;
  }
  std::vector<KernelGroup> made;
  for (auto& [key, group] : groups) made.push_back(std::move(group));
  std::stable_sort(made.begin(), made.end(), [](const KernelGroup& a, const KernelGroup& b) {
    return a.time_us > b.time_us;
  });
  return made;
}

/// A change of the step that a repair makes.
struct Repair {
  std::map<std::size_t, double> kernel_us;  ///< kernels that take another time
  std::set<std::size_t> launches;  ///< kernels that are not launched: the call costs nothing
  std::map<std::size_t, double> host_scale;  ///< own time of ops times this
  /// In predictions, `host_scale` is for `gap_us`, too; a wait goes with the later waits of its
  /// op: reading a value copies it, which waits, and then waits for the copy's stream.
  bool whole_ops = false;
  std::set<std::size_t> waits;            ///< waits that are not made
  std::set<std::size_t> allocator_calls;  ///< the same
  std::set<std::size_t> gaps;             ///< gaps that take no time
  bool no_loading = false;                ///< data is there when asked for

  /// The kernel, and its launch, are gone.
  void remove_kernel(std::size_t kernel) {
    kernel_us[kernel] = 0;
    launches.insert(kernel);
  }
};

/// A piece of the critical path: a kernel, host work of an op, or neither.
struct PathPiece {
  std::int32_t kernel = -1, op = -1;
  double us = 0;  ///< gaps and latencies before it included
};

/// Schedules the same step again, repaired.
class Rescheduler {
 public:
  virtual ~Rescheduler() = default;
  /// One step (mean of all) [us]. Without a repair it is the step of Findings::step_us.
  virtual Result<double> step_us(const Repair& repair) const = 0;
  /// Critical path through all steps as they are, in order of time.
  virtual Result<std::vector<PathPiece>> critical_path() const = 0;
};

}  // namespace perfmodel::findings
