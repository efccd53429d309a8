#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "host_chain.hpp"
#include "perfmodel/predictors/detail/launch_templates.hpp"

namespace perfmodel {

/// Role of each stream of a trace: 0 the one with most compute kernels, then the streams of
/// collectives, then the others by number of tasks. Numbers differ between runs, roles do not.
using StreamRoles = std::map<std::int64_t, std::int16_t>;
StreamRoles stream_roles(const Trace& trace);

/// Characters of a kernel's name that templates keep.
inline constexpr std::size_t kKeptKernelName = 120;

/// Describes a recorded call without its times.
TemplateCall describe_call(const Trace& trace, std::int32_t call,
                           const std::vector<CallWait>& waits, const CallWork& work,
                           const StreamRoles& streams);

/// Calls of a node as they were recorded, with the time of each one's device work.
struct RecordedCalls {
  LaunchTemplate calls;
  std::vector<std::int64_t> work_ns;

  void add(TemplateCall call, std::int64_t ns) {
    calls.push_back(std::move(call));
    work_ns.push_back(ns);
  }
};

/// Counts per key how often each list of calls was seen; the most common one wins.
class TemplateLearner {
 public:
  void reserve(std::size_t nodes) { first_.by_key.front().reserve(nodes); }
  void observe(const TemplateKeys& keys, const RecordedCalls& recorded);
  /// Only the keys that need no devices (for traces without a graph).
  void observe_names(const TemplateKeys& keys, const RecordedCalls& recorded);
  LaunchTemplates finish();

 private:
  std::uint32_t list_index(const RecordedCalls& recorded);
  void count(std::size_t level, std::uint64_t key, std::uint32_t list);

  std::vector<RecordedCalls> lists_;  // with sums of the times
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> by_hash_;
  LaunchTemplates first_;  // the list that each key was first seen with; few keys have others, too:
  std::unordered_map<std::uint64_t, std::map<std::uint32_t, std::uint32_t>>
      others_[kTemplateLevels];
};

/// Learns from every node of the linked chains: the calls whose innermost node it is.
void learn_templates(const Trace& trace, const ExecutionGraph& graph, const GraphLink& link,
                     const std::vector<HostChain>& chains, const std::vector<CallWait>& waits,
                     const CallWork& work, const StreamRoles& streams, TemplateLearner& learner);

/// The same from only a trace: ops by time, keys by names.
void learn_templates(const Trace& trace, const TraceOps& nesting,
                     const std::vector<HostChain>& chains, const std::vector<CallWait>& waits,
                     const CallWork& work, const StreamRoles& streams, TemplateLearner& learner);

}  // namespace perfmodel
