#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/predictors/detail/key_table.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Device times as traced, per node of a graph: the mean over the trace's iterations.
class KernelTimes {
 public:
  enum class Use {
    kComm,      ///< collectives only
    kUnpriced,  ///< work that no rule knows: other ops, missing arguments, captured graphs
    kAll,
  };

  /// A device call, as `find` names it.
  struct Call {
    std::int32_t node = -1;
    std::uint32_t ordinal = 0;
    auto operator<=>(const Call&) const = default;
  };

  /// Work of another stream that has to end first.
  struct Wait {
    Call call;
    /// From its end to the start; below 0: they overlap. None: the start of an awaited event.
    std::optional<double> lag_us;
  };

  struct Time {
    double us = 0;
    std::uint32_t count = 0;
    bool collective = false;
    /// Bytes of the node's tensors when it took this time. Work without a rule is assumed to grow
    /// with them in a graph of other sizes.
    double input_bytes = 0;
    /// For calls of the same step, in most iterations.
    std::vector<Wait> waits = {};
    /// Gap after the work before it on its stream, if that delayed it; none: it never did, or not
    /// known.
    std::optional<double> gap_us = {};
  };

  /// The time of the node's own device call number `ordinal`; nullptr if the trace has none.
  const Time* find(std::int32_t node, std::uint32_t ordinal) const;

  void add(std::int32_t node, std::uint32_t ordinal, double us, bool collective,
           double input_bytes = 0);
  /// Adds to what a known call waited for.
  void add_wait(const Call& call, const Wait& wait);
  void set_gap(const Call& call, double us);
  std::size_t size() const { return times_.size(); }
  bool has_waits() const { return has_waits_; }

  std::string source;  ///< file name
  /// The trace's GPU if it is another, and how its times were changed: "t4, scaled by ...".
  std::string other_gpu;
  /// The GPU of a trace of one rank of a larger job: its collectives waited for ranks whose traces
  /// are not given. Null: times of a whole job, or of a user's choice.
  std::shared_ptr<const Gpu> alone_on;

 private:
  KeyTable<Time> times_;
  bool has_waits_ = false;
};

/// Links `graph` to `trace` and averages what each node's calls cost on the device in iterations
/// [first, last) of the trace (all, if not given).
Result<KernelTimes> kernel_times(
    const ExecutionGraph& graph, const Trace& trace,
    const std::optional<std::pair<std::size_t, std::size_t>>& iterations = {});

/// Times of the collectives alone, for `to`, which was made from the graph `from` of `times` and
/// may have other ops. Collectives are matched in order; if their number differs, no times are
/// found.
KernelTimes collective_times(const KernelTimes& times, const ExecutionGraph& from,
                             const ExecutionGraph& to);

/// Whether the trace is of one of several ranks, by its own word or by the size of its groups.
bool is_of_larger_job(const ExecutionGraph& graph, const Trace& trace);

/// Bytes of the tensors that a node was called with.
double input_bytes(const ExecutionGraph& graph, std::int32_t node);

}  // namespace perfmodel
