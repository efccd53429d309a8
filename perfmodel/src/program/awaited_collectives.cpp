#include "awaited_collectives.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>

namespace perfmodel {
namespace {

class Finder {
 public:
  explicit Finder(const ExecutionGraph& graph) : graph_(graph) {}

  std::vector<AwaitedCollective> find() {
    if (graph_.comm_records.empty()) return {};
    note_waits();
    for (std::int32_t i = 0; i < node_count(); ++i) {
      note_readers(i);
      note_collective(i);
    }
    for (std::int32_t i = 0; i < node_count() && !pending_.empty(); ++i) note_readers(i);
    std::ranges::sort(found_, {}, &AwaitedCollective::reader);
    return std::move(found_);
  }

 private:
  struct Pending {
    std::int32_t record = -1;
    std::int32_t call = -1;  // the op that holds the record: it only hands the memory over
  };

  std::int32_t node_count() const { return static_cast<std::int32_t>(graph_.nodes.size()); }
  const CommRecord* record_of(const Node& node) const {
    return node.comm < 0 ? nullptr : &graph_.comm_records[node.comm];
  }
  static bool is_wait(const CommRecord& record) { return record.collective == "wait"; }
  static bool moves_data(const CommRecord& record) {
    return !is_wait(record) && record.collective != "init" && record.collective != "end";
  }

  void note_waits() {
    for (const Node& at : graph_.nodes) {
      const CommRecord* record = record_of(at);
      if (!record || record->sequence < 0) continue;
      if (is_wait(*record)) {
        awaited_.emplace(record->process_group, record->sequence);
      } else if (moves_data(*record)) {
        numbers_.insert(record->sequence);
        of_groups_[record->process_group].insert(record->sequence);
      }
    }
  }

  // Old records of waits do not name their group.
  bool is_awaited(const CommRecord& record, std::int64_t number) const {
    return awaited_.contains({record.process_group, number}) ||
           awaited_.contains({std::string_view(), number});
  }

  // A number that no collective of the step has is that of the step before, counted per group or
  // over all.
  bool has_wait(const CommRecord& record) const {
    if (record.sequence < 0) return false;
    if (is_awaited(record, record.sequence)) return true;
    const auto& group = of_groups_.at(record.process_group);
    return std::ranges::any_of(std::array{&group, &numbers_}, [&](const auto* numbers) {
      const std::int64_t before = record.sequence - (*numbers->rbegin() - *numbers->begin() + 1);
      return is_awaited(record, before) && !numbers_.contains(before);
    });
  }

  void note_collective(std::int32_t index) {
    const CommRecord* record = record_of(graph_.node(index));
    if (!record || !moves_data(*record) || has_wait(*record)) return;
    const Pending pending{.record = index, .call = call_around(index)};
    const auto note = [&](const Tensor& tensor) {
      if (tensor.on_gpu() && tensor.storage_id != 0) pending_[tensor.storage_id] = pending;
    };
    for_each_tensor(graph_, graph_.inputs(index), note);
    for_each_tensor(graph_, graph_.outputs(index), note);
  }

  std::int32_t call_around(std::int32_t record) const {
    const std::int32_t parent = graph_.node(record).parent;
    return parent >= 0 && graph_.name(parent).starts_with("c10d::") ? parent : record;
  }

  void note_readers(std::int32_t index) {
    if (pending_.empty() || graph_.node(index).comm >= 0) return;
    const auto note = [&](const Tensor& tensor) {
      const auto known = pending_.find(tensor.storage_id);
      if (known == pending_.end() || graph_.is_inside(index, known->second.call)) return;
      const std::int32_t record = known->second.record;
      found_.push_back({.reader = index, .record = record});
      std::erase_if(pending_, [&](const auto& one) { return one.second.record == record; });
    };
    for_each_tensor(graph_, graph_.inputs(index), note);
    for_each_tensor(graph_, graph_.outputs(index), note);
  }

  const ExecutionGraph& graph_;
  std::set<std::pair<std::string_view, std::int64_t>> awaited_;  // group, number
  std::set<std::int64_t> numbers_;                               // of collectives
  std::map<std::string_view, std::set<std::int64_t>> of_groups_;
  std::unordered_map<std::int64_t, Pending> pending_;  // by storage
  std::vector<AwaitedCollective> found_;
};

}  // namespace

std::vector<AwaitedCollective> awaited_collectives(const ExecutionGraph& graph) {
  return Finder(graph).find();
}

}  // namespace perfmodel
