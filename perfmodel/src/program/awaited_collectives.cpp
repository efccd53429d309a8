#include "awaited_collectives.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "step/values.hpp"

namespace perfmodel {
namespace {

bool moves_data(const CommRecord& record) {
  return record.collective != "wait" && record.collective != "init" && record.collective != "end";
}

/// The numbers of the collectives and of the "wait" records of a graph.
class RecordedWaits {
 public:
  explicit RecordedWaits(const ExecutionGraph& graph) {
    for (const Node& node : graph.nodes) {
      if (node.comm < 0) continue;
      const CommRecord& record = graph.comm_records[node.comm];
      if (record.sequence < 0) continue;
      if (record.collective == "wait") {
        awaited_.emplace(record.process_group, record.sequence);
      } else if (moves_data(record)) {
        numbers_.insert(record.sequence);
        of_groups_[record.process_group].insert(record.sequence);
      }
    }
  }

  // A number that no collective of the step has belongs to the step before, counted per group or
  // over all groups.
  bool cover(const CommRecord& record) const {
    if (record.sequence < 0) return false;
    if (is_awaited(record, record.sequence)) return true;
    const auto& group = of_groups_.at(record.process_group);
    return std::ranges::any_of(std::array{&group, &numbers_}, [&](const auto* numbers) {
      const std::int64_t before = record.sequence - (*numbers->rbegin() - *numbers->begin() + 1);
      return is_awaited(record, before) && !numbers_.contains(before);
    });
  }

 private:
  // Old records of waits do not name their group.
  bool is_awaited(const CommRecord& record, std::int64_t number) const {
    return awaited_.contains({record.process_group, number}) ||
           awaited_.contains({std::string_view(), number});
  }

  std::set<std::pair<std::string_view, std::int64_t>> awaited_;  // group, number
  std::set<std::int64_t> numbers_;                               // numbers of collectives
  std::map<std::string_view, std::set<std::int64_t>> of_groups_;
};

/// A collective that is still to be waited for.
struct Pending {
  std::int32_t record = -1;
  std::int32_t call = -1;  // the op that holds the record: it only hands the memory over
  bool is_awaited = false;
};

std::int32_t call_around(const ExecutionGraph& graph, std::int32_t record) {
  const std::int32_t parent = graph.node(record).parent;
  return parent >= 0 && graph.name(parent).starts_with("c10d::") ? parent : record;
}

template <class Visit>
void for_each_argument(const ExecutionGraph& graph, std::int32_t node, Visit&& visit) {
  for_each_tensor(graph, graph.inputs(node), visit);
  for_each_tensor(graph, graph.outputs(node), visit);
}

}  // namespace

std::vector<AwaitedCollective> awaited_collectives(const ExecutionGraph& graph) {
  std::vector<AwaitedCollective> found;
  if (graph.comm_records.empty()) return found;
  const RecordedWaits waits(graph);
  std::vector<Pending> pending;
  // By recorded ids: later tensors in the same memory have to wait as well.
  const Values addresses(graph, &Tensor::storage_id);
  FactsOfValues<std::int32_t> pending_of(addresses, -1);
  const auto find_reads = [&](std::int32_t node) {
    if (pending.empty() || graph.node(node).comm >= 0) return;
    for_each_argument(graph, node, [&](const Tensor& tensor) {
      if (pending_of[tensor] < 0) return;
      Pending& collective = pending[pending_of[tensor]];
      if (collective.is_awaited || graph.is_inside(node, collective.call)) return;
      collective.is_awaited = true;
      found.push_back({.reader = node, .record = collective.record});
    });
  };
  const auto count = static_cast<std::int32_t>(graph.nodes.size());
  for (std::int32_t i = 0; i < count; ++i) {
    find_reads(i);
    const std::int32_t comm = graph.node(i).comm;
    if (comm < 0 || !moves_data(graph.comm_records[comm])) continue;
    if (waits.cover(graph.comm_records[comm])) continue;
    for_each_argument(graph, i, [&](const Tensor& tensor) {
      if (!tensor.on_gpu() || tensor.storage_id == 0) return;
      pending_of[tensor] = static_cast<std::int32_t>(pending.size());
    });
    pending.push_back({.record = i, .call = call_around(graph, i)});
  }
  for (std::int32_t i = 0; i < count; ++i) find_reads(i);  // reads in the next pass
  std::ranges::sort(found, {}, &AwaitedCollective::reader);
  return found;
}

}  // namespace perfmodel
