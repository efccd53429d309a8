#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "perfmodel/graph/detail/link.hpp"
#include "perfmodel/graph/detail/trace_ops.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/predictors/detail/launch_templates.hpp"
#include "perfmodel/predictors/detail/time_terms.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Mean, spread and number of one kind of host overhead, in microseconds.
struct OverheadStats {
  double mean_us = 0, std_us = 0, median_us = 0;
  std::uint64_t count = 0;
  /// Mean length of the list of an op that walks over tensors (`_foreach_*` and the like); 0:
  /// another op, or not known.
  double tensors = 0;

  /// The mean for a list of another length. The part up to `base_us` (the mean over ops of any
  /// kind), or up to `fixed_share` of the mean if that is more, stays; the rest grows with the
  /// list.
  double at_length(double tensors_asked, double base_us, double fixed_share = 0) const;
};

/// How the figures of a table were made.
enum class OverheadMethod {
  kRaw,  ///< every gap as recorded, per op name (the definitions of the public reference figures)
  kContext,  ///< waits taken out, means keyed by context with back-off
  kLin,      ///< filters and constants of Lin et al. (HiPC 2022), as their published code has them
};
std::string_view to_string(OverheadMethod method);
Result<OverheadMethod> parse_overhead_method(std::string_view name);

/// A term of the host other than T4: figures by context, by name, and over all.
struct OverheadTerm {
  struct Named {
    std::string name;
    OverheadStats stats;
  };
  OverheadStats all;
  std::unordered_map<std::uint64_t, Named> by_name;
  std::unordered_map<std::uint64_t, OverheadStats> by_context;
  std::unordered_map<std::uint64_t, std::uint64_t> name_of_context;  ///< the wider key of each

  struct Found {
    double us = 0;
    KeyLevel level = KeyLevel::kMissing;
  };
  /// First hit of the context keys, from the most specific on, then the name, then `kind` (see
  /// `host_kind_key`; 0: none), then all. `tensors`: length of the list that the op walks over; 0:
  /// none.
  Found find(std::span<const std::uint64_t> contexts, std::uint64_t name, std::uint64_t kind = 0,
             double tensors = 0, double fixed_share = 0) const;
};

/// Times on the device's side of a call; means over the traces.
struct DeviceConstants {
  double launch_latency_us = 1.7;  ///< end of the call -> start of a kernel on an idle stream
  double collective_latency_us = 1.7;
  double copy_latency_us = 2.5;          ///< ... -> start of a copy or set
  double blocking_read_latency_us = 10;  ///< start of a blocking device-to-host call -> its copy
  double blocking_write_latency_us =
      10;                      ///< the same, host to device (large and pageable: staging)
  double kernel_gap_us = 1.3;  ///< between queued tasks of one stream
  double event_gap_us = 2.0;   ///< awaited end on another stream -> start
};

/// Parts of a gap between ops of two phases (outermost labels): the share before the first phase's
/// label closes, and the share after the second one's opens. The rest is between the two.
struct GapSplit {
  double tail = 0.25, head = 0.25;
};

/// The collector that recorded the host's times and made them longer.
enum class Collector : std::uint8_t {
  kUnknown,
  kNone,                   ///< none: steps as they run
  kProfilerWithoutShapes,  ///< Kineto without record_shapes
  kProfiler,               ///< Kineto with shapes
  kProfilerWithStacks,
  kProfilerAndObserver,  ///< with the execution trace observer: several times longer
};
std::string_view to_string(Collector collector);

/// A program that a table was learned from, and how its host compares.
struct OverheadProgram {
  std::string name;  ///< name of its table
  std::string gpu;   ///< as its traces name it
  std::vector<std::string> sources;
  double launch_us = 0;   ///< mean time of a kernel launch as recorded
  double host_scale = 1;  ///< factor on its host figures
  double shared = 0;      ///< share of its host time in ops and calls that others have too
  std::string left_out;   ///< why it is not in the table; empty: it is
};

/// A factor per term of the host, in the order of `kHostTerms`.
using TermFactors = std::array<double, static_cast<std::size_t>(Term::kKernel)>;

/// Host overheads of a program on a machine, learned from traces.
///
/// T1 gap before a top-level op, T2 its start to its first call, T4 the calls themselves, T5
/// between calls, T3 last call to its end, TX the whole of an op without calls (Lin et al. 2022,
/// section 3).
struct OverheadTable {
  OverheadMethod method = OverheadMethod::kContext;
  std::string gpu;                   ///< as the traces name it; several: joined by ", "
  std::vector<std::string> sources;  ///< file names
  std::string command;               ///< how to make it again
  double profiler_cost_us = 0;       ///< method lin: subtracted per recorded event
  std::size_t iterations = 0;
  std::string unfit_for_pools;   ///< why others should not take it over; empty: they may
  bool python_recorded = false;  ///< calls of Python were recorded too: longer gaps (T1)
  Collector collector = Collector::kUnknown;  ///< collector of the traces
  /// Factors that took the collector's cost out of the recorded figures; empty: figures as
  /// recorded. `ops` are always as recorded.
  std::optional<TermFactors> without_collector;
  std::vector<OverheadProgram> programs;  ///< in a pooled table: the programs, pooled or left out

  OverheadTerm t1, t2, t3, t5, tx;
  std::map<std::string, OverheadStats> t4;   ///< by call; "cudaMemcpyAsync DtoH blocking", ...
  std::map<std::string, OverheadStats> ops;  ///< own host time of each top-level op, by name
  OverheadStats data_loading;                ///< pauses for the data loader, not part of T1
  std::unordered_map<std::uint64_t, GapSplit> gap_splits;  ///< by T1 context or class key
  DeviceConstants device;
  LaunchTemplates templates;
  Recording recording;  ///< findings of the checks of its traces
  std::vector<std::string> warnings;

  /// Own duration of a call; falls back from the full key to the call's name, then to all launches.
  OverheadTerm::Found call_us(const std::string& key) const;
};

/// A term of the host's time: what files, reports and pools know of it.
struct HostTerm {
  Term term;
  std::string_view name;     ///< "T1", in reports
  std::string_view key;      ///< "t1", in files and JSON
  std::string_view meaning;  ///< "between ops"
  /// Its figures in a table; nullptr: they are by call (`OverheadTable::t4`).
  OverheadTerm OverheadTable::*figures = nullptr;
  bool is_gap = false;          ///< between ops: figures by class of gap, not by op
  bool may_be_missing = false;  ///< in files: earlier versions did not write it
};

inline constexpr HostTerm kHostTerms[] = {
    {Term::kT1, "T1", "t1", "between ops", &OverheadTable::t1, true},
    {Term::kT2, "T2", "t2", "op start to its first call", &OverheadTable::t2},
    {Term::kT3, "T3", "t3", "last call to op end", &OverheadTable::t3},
    {Term::kT4, "T4", "t4", "calls"},
    {Term::kT5, "T5", "t5", "between calls of one op", &OverheadTable::t5},
    {Term::kTx, "TX", "tx", "ops that call nothing", &OverheadTable::tx},
};
static_assert([] {
  std::size_t row = 0;
  for (const HostTerm& host : kHostTerms) {
    if (static_cast<std::size_t>(host.term) != row++) return false;
  }
  return row == static_cast<std::size_t>(Term::kKernel);
}());

/// Key of a call in `OverheadTable::t4`.
std::string call_key(const TemplateCall& call);

/// The same call, or key of one, as the CUDA runtime has it: "hipMemcpyAsync HtoD" is
/// "cudaMemcpyAsync HtoD", and every way to launch a kernel is cudaLaunchKernel.
std::string canonical_call(std::string_view key);

/// T1 context of the gap before an op. Classes: 0 same parent, 1 label crossed, 2 thread changed,
/// 3 border of an iteration, 4 a list of tensors is collected for the next op.
enum class GapClass : std::uint8_t { kSibling, kLabel, kThread, kIteration, kList };
std::uint64_t gap_context(std::uint64_t label, std::uint64_t previous, std::uint64_t next);
std::uint64_t gap_class_key(GapClass gap);
std::string_view to_string(GapClass gap);
/// Fixed share of the gaps that grow with the program: at the border of a step (Python's loops over
/// parameters) and before the backward thread begins (the engine's preparation). Their `tensors`
/// are the ops of the backward pass. In 13 programs with 27 to 2,054 ops on an H200, a fifth to a
/// third of these gaps does not grow with the ops.
inline constexpr double kFixedShareOfGaps = 0.25;

/// Whether an op walks over a list of tensors, one after the other: `aten::_foreach_*`, fused
/// optimizers, gradient scaling.
bool walks_list(std::string_view name);
/// Name and key of the figures of all such ops, for those that no table has by name.
inline constexpr std::string_view kAnyList = "any list of tensors";
std::uint64_t any_list_key();
/// Length of the list that a node walks over: its longest one; 0: it walks over none.
double list_length(const ExecutionGraph& graph, const Node& node);

/// Whether one of the table's traces names this GPU (name, title or alias).
bool recorded_beside(const OverheadTable& table, const Gpu& gpu);

/// Hash of an op's name and the names of everything below it, in start order.
std::uint64_t subtree_key(const ExecutionGraph& graph, std::int32_t node);

struct OverheadSource {
  const Trace* trace = nullptr;
  const ExecutionGraph* graph = nullptr;  ///< graph of the same program, or nullptr
};

struct OverheadOptions {
  OverheadMethod method = OverheadMethod::kContext;
  double profiler_cost_us = 0;  ///< per recorded event, kLin alone
  std::optional<std::pair<std::size_t, std::size_t>> iterations;  ///< [first, last) of each trace
};

}  // namespace perfmodel
