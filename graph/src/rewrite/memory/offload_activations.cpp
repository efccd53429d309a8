#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "perfmodel/graph/rewrites/memory.hpp"
#include "recomputed_tensors.hpp"
#include "rewrite/change_tensors.hpp"
#include "rewrite/graph_copy.hpp"
#include "step/dialect.hpp"
#include "step/offload_ops.hpp"
#include "step/step_view.hpp"
#include "step/tree_walk.hpp"

namespace perfmodel {
namespace {

Unexpected refuse_offload(std::string message) {
  return fail(ErrorCode::kImpossible, "offload-activations: " + std::move(message));
}

/// A storage that the forward pass leaves to the backward pass.
struct LeavingStorage {
  std::uint32_t tensor = 0;        // its widest mention, into ExecutionGraph::tensors
  std::int64_t bytes = 0;          // of that
  std::int32_t last_forward = -1;  // top-level op that mentions it last in the forward pass
  std::int32_t first_reader = -1;  // evaluate node that stands in no other
  bool read_elsewhere = false;     // behind the forward pass, but in no function
};

/// Where its three steps stand.
struct OffloadPlan {
  std::vector<LeavingStorage> storages;                   // that leave
  std::unordered_map<std::int32_t, std::int32_t> leaves;  // index of a lifetime -> of a storage
  // By node, in order: behind a top-level op of the forward pass, in front of an evaluate node.
  std::map<std::int32_t, std::vector<std::int32_t>> sent_behind, released_behind;
  std::map<std::int32_t, std::vector<std::int32_t>> fetched_before, released_before;
};

/// Index of the lifetime that a mention of a storage belongs to; -1: none.
FactsOfValues<std::int32_t> lifetimes_of_storages(const StepView& step) {
  FactsOfValues<std::int32_t> found(step.storages(), -1);
  const std::vector<StorageLifetime>& storages = step.lifetimes().storages;
  for (std::size_t i = 0; i < storages.size(); ++i) {
    found[step.graph().tensors[storages[i].tensor]] = static_cast<std::int32_t>(i);
  }
  return found;
}

class OffloadPlanner {
 public:
  OffloadPlanner(const StepView& step, const FactsOfValues<std::int32_t>& lifetime_of,
                 const OffloadOptions& options)
      : graph_(step.graph()),
        pass_(step.backward()),
        lifetimes_(step.lifetimes()),
        lifetime_of_(lifetime_of),
        options_(options) {}

  Result<OffloadPlan> plan() {
    find_places();
    find_candidates();
    note_mentions();
    std::erase_if(candidates_, [&](const auto& entry) {
      const LeavingStorage& storage = entry.second;
      return storage.last_forward < 0 || storage.first_reader < 0 || storage.read_elsewhere ||
             last_below(graph_, storage.last_forward) >= storage.first_reader;
    });
    if (candidates_.empty()) {
      return refuse_offload(
          fmt::format("expected activations of at least {} bytes that the backward pass reads, "
                      "found none",
                      options_.least_bytes));
    }
    choose();
    if (plan_.storages.empty()) {
      return refuse_offload(fmt::format(
          "expected more activations than the {} bytes that stay on their way, found fewer",
          window_));
    }
    place_forward();
    place_backward();
    return std::move(plan_);
  }

 private:
  // The outermost op around each node, and the outermost autograd function.
  void find_places() {
    top_.assign(graph_.nodes.size(), -1);
    function_.assign(graph_.nodes.size(), -1);
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) {
      const std::int32_t parent = graph_.node(i).parent;
      if (parent >= 0) {
        top_[i] = top_[parent];
        function_[i] = function_[parent];
      }
      if (top_[i] < 0 && !graph_.node(i).is_label && !graph_.node(i).is_structural) top_[i] = i;
      if (function_[i] < 0 && is_evaluate_function(graph_, graph_.node(i))) function_[i] = i;
    }
  }

  void find_candidates() {
    for (std::size_t i = 0; i < lifetimes_.storages.size(); ++i) {
      const StorageLifetime& storage = lifetimes_.storages[i];
      const Tensor& tensor = graph_.tensors[storage.tensor];
      const bool leaves = storage.purpose == MemoryPurpose::kActivations &&
                          storage.bytes >= options_.least_bytes && tensor.offset == 0 &&
                          tensor.on_gpu() && storage.made_by >= lifetimes_.step.begin &&
                          storage.made_by < lifetimes_.forward_end;
      if (!leaves) continue;
      candidates_[static_cast<std::int32_t>(i)] = {.tensor = storage.tensor,
                                                   .bytes = tensor.bytes()};
    }
  }

  void note_mentions() {
    for (std::int32_t i = lifetimes_.step.begin; i < lifetimes_.step.end; ++i) {
      for (const auto arguments : {graph_.inputs(i), graph_.outputs(i)}) {
        for_each_tensor(graph_, arguments, [&](const Tensor& tensor) {
          if (!tensor.on_gpu() || tensor.storage_id == 0) return;
          const auto at = candidates_.find(lifetime_of_[tensor]);
          if (at != candidates_.end()) note_mention(at->second, i);
        });
      }
    }
  }

  void note_mention(LeavingStorage& storage, std::int32_t index) {
    if (pass_.in_backward[index] && function_[index] >= 0) {
      if (storage.first_reader < 0) storage.first_reader = function_[index];
    } else if (index < lifetimes_.forward_end) {
      if (top_[index] >= 0) storage.last_forward = std::max(storage.last_forward, top_[index]);
    } else {
      storage.read_elsewhere = true;
    }
  }

  // The last ones stay: they would come back at once.
  void choose() {
    std::vector<std::pair<std::int32_t, std::int32_t>> order;  // last op, lifetime
    for (const auto& [lifetime, storage] : candidates_) {
      order.emplace_back(storage.last_forward, lifetime);
    }
    std::ranges::sort(order);
    const auto bytes_of = [&](const std::pair<std::int32_t, std::int32_t>& entry) {
      return candidates_.at(entry.second).bytes;
    };
    // The window holds two of those that leave, and these depend on the window.
    std::size_t leaving = order.size();
    std::int64_t staying = 0;
    window_ = options_.bytes_on_their_way;
    while (leaving > 0) {
      std::int64_t largest = 0;
      for (std::size_t i = 0; i < leaving; ++i) largest = std::max(largest, bytes_of(order[i]));
      window_ = std::max(options_.bytes_on_their_way, 2 * largest);
      if (staying >= window_) break;
      staying += bytes_of(order[--leaving]);
    }
    for (std::size_t i = 0; i < order.size(); ++i) {
      const LeavingStorage& storage = candidates_.at(order[i].second);
      if (i >= leaving) {
        stay_.push_back(storage);
      } else {
        plan_.leaves[order[i].second] = static_cast<std::int32_t>(plan_.storages.size());
        plan_.storages.push_back(storage);
      }
    }
  }

  // As many bytes may be on their way as the window holds: then the oldest must have left.
  void place_forward() {
    std::int64_t underway = 0;
    for (std::size_t s = 0; s < plan_.storages.size(); ++s) {
      const LeavingStorage& storage = plan_.storages[s];
      const auto index = static_cast<std::int32_t>(s);
      while (!underway_.empty() && underway + storage.bytes > window_) {
        plan_.released_behind[storage.last_forward].push_back(underway_.front());
        underway -= plan_.storages[underway_.front()].bytes;
        underway_.pop_front();
      }
      plan_.sent_behind[storage.last_forward].push_back(index);
      underway_.push_back(index);
      underway += storage.bytes;
    }
  }

  // In the order of the functions that read first; those that stayed count, until they are read.
  void place_backward() {
    std::vector<std::pair<std::int32_t, std::int32_t>> order;  // reader, storage
    for (std::size_t s = 0; s < plan_.storages.size(); ++s) {
      order.emplace_back(plan_.storages[s].first_reader, static_cast<std::int32_t>(s));
    }
    std::ranges::sort(order);
    // What is there before the first function.
    std::map<std::int32_t, std::int64_t> there;  // bytes by reader
    std::int64_t here = 0;
    for (const LeavingStorage& storage : stay_) {
      there[storage.first_reader] += storage.bytes;
      here += storage.bytes;
    }
    const std::int32_t first = order.front().first;
    auto next = order.begin();
    for (const std::int32_t function : outer_functions()) {
      while (next != order.end()) {
        const LeavingStorage& storage = plan_.storages[next->second];
        if (storage.first_reader != function && here + storage.bytes > window_) break;
        plan_.fetched_before[function].push_back(next->second);
        there[storage.first_reader] += storage.bytes;
        here += storage.bytes;
        ++next;
      }
      here -= there[function];
      there.erase(function);
      // Whoever waits for the first one that comes back has waited for all that left.
      if (function == first) {
        plan_.released_before[function].assign(underway_.begin(), underway_.end());
      }
    }
  }

  std::vector<std::int32_t> outer_functions() const {
    std::vector<std::int32_t> found;
    for (std::int32_t i = lifetimes_.step.begin; i < lifetimes_.step.end; ++i) {
      if (function_[i] == i) found.push_back(i);
    }
    return found;
  }

  const ExecutionGraph& graph_;
  const BackwardPass& pass_;
  const StorageLifetimes& lifetimes_;
  const FactsOfValues<std::int32_t>& lifetime_of_;
  const OffloadOptions& options_;
  std::vector<std::int32_t> top_, function_;           // by node; -1: none
  std::map<std::int32_t, LeavingStorage> candidates_;  // by index of the lifetime
  std::vector<LeavingStorage> stay_;
  std::int64_t window_ = 0;
  std::deque<std::int32_t> underway_;  // that left last
  OffloadPlan plan_;
};

class OffloadWriter {
 public:
  OffloadWriter(const ExecutionGraph& graph, const FactsOfValues<std::int32_t>& lifetime_of,
                const OffloadPlan& plan)
      : graph_(graph),
        lifetime_of_(lifetime_of),
        plan_(plan),
        copy_(graph, dialect_of(graph)),
        builder_(copy_.builder()),
        back_(plan.storages.size()) {}

  ExecutionGraph run() {
    std::multimap<std::int32_t, std::int32_t> behind;  // last node of a tree -> its top
    for (const auto* places : {&plan_.sent_behind, &plan_.released_behind}) {
      for (const auto& [top, storages] : *places) {
        if (behind.contains(last_below(graph_, top))) continue;
        behind.emplace(last_below(graph_, top), top);
      }
    }
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) {
      write_in_front(i);
      copy_.copy(i);
      read_what_came_back();
      const auto [first, last] = behind.equal_range(i);
      for (auto at = first; at != last; ++at) write_behind(at->second);
    }
    return copy_.finish();
  }

 private:
  void write_behind(std::int32_t top) {
    copy_.close_beside(top);
    if (const auto at = plan_.released_behind.find(top); at != plan_.released_behind.end()) {
      for (const std::int32_t storage : at->second) release(storage);
    }
    if (const auto at = plan_.sent_behind.find(top); at != plan_.sent_behind.end()) {
      for (const std::int32_t storage : at->second) send(storage);
    }
  }

  void write_in_front(std::int32_t function) {
    const auto fetched = plan_.fetched_before.find(function);
    const auto released = plan_.released_before.find(function);
    if (fetched == plan_.fetched_before.end() && released == plan_.released_before.end()) return;
    copy_.close_beside(function);
    if (fetched != plan_.fetched_before.end()) {
      for (const std::int32_t storage : fetched->second) fetch(storage);
    }
    if (released != plan_.released_before.end()) {
      for (const std::int32_t storage : released->second) release(storage);
    }
  }

  TensorRef on_device(std::int32_t storage) {
    return builder_.tensor_of_source(plan_.storages[storage].tensor);
  }

  void send(std::int32_t storage) {
    const TensorRef tensor = on_device(storage);
    const TensorRef host =
        builder_.new_tensor(builder_.dtype(tensor), GraphBuilder::cpu(), builder_.shape(tensor));
    builder_.leaf_op(kOffloadSend, {tensor}, {host});
    hosts_[storage] = host;
  }

  void release(std::int32_t storage) {
    builder_.leaf_op(kOffloadRelease, {on_device(storage)}, {});
  }

  // The same tensor in other memory.
  void fetch(std::int32_t storage) {
    const std::uint32_t source = plan_.storages[storage].tensor;
    Tensor tensor = graph_.tensors[source];
    tensor.storage_id = ids_.next(builder_);
    back_[storage] = tensor.storage_id;
    ExecutionGraph& made = builder_.graph_being_made();
    made.tensors.push_back(tensor);
    const TensorRef back =
        builder_.tensor_of_source(static_cast<std::uint32_t>(made.tensors.size() - 1));
    builder_.leaf_op(kOffloadFetch, {hosts_.at(storage)}, {back});
  }

  void read_what_came_back() {
    ExecutionGraph& made = builder_.graph_being_made();
    change_tensors(made, made.nodes.back(), [&](Tensor& tensor) {
      if (!tensor.on_gpu() || tensor.storage_id == 0) return;
      const Tensor& recorded = graph_.tensors[&tensor - made.tensors.data()];
      const auto left = plan_.leaves.find(lifetime_of_[recorded]);
      if (left == plan_.leaves.end()) return;
      const std::int64_t back = back_[left->second];
      if (back != 0) tensor.storage_id = back;
    });
  }

  const ExecutionGraph& graph_;
  const FactsOfValues<std::int32_t>& lifetime_of_;
  const OffloadPlan& plan_;
  GraphCopy copy_;
  GraphBuilder& builder_;
  FreshIds ids_;
  std::map<std::int32_t, TensorRef> hosts_;  // by storage
  std::vector<std::int64_t> back_;           // id of the storage that came back; 0: not yet
};

}  // namespace

Result<ExecutionGraph> rewrite_offload(const ExecutionGraph& graph, const OffloadOptions& options) {
  const StepView step(graph);
  if (auto good = step.check("offload-activations", {.no_offload = true, .backward = true});
      !good) {
    return Unexpected{good.error()};
  }
  const FactsOfValues<std::int32_t> lifetime_of = lifetimes_of_storages(step);
  const auto plan = OffloadPlanner(step, lifetime_of, options).plan();
  if (!plan) return Unexpected{plan.error()};
  return OffloadWriter(step.graph(), lifetime_of, *plan).run();
}

}  // namespace perfmodel
