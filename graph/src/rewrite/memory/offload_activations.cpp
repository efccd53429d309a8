#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "perfmodel/graph/rewrites/memory.hpp"
#include "rewrite/change_tensors.hpp"
#include "rewrite/graph_edit.hpp"
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
  std::int64_t bytes = 0;          // its size
  std::int32_t last_forward = -1;  // top-level op that mentions it last in the forward pass
  std::int32_t first_reader = -1;  // outermost evaluate node that mentions it first
  bool read_elsewhere = false;     // after the forward pass, outside of functions
};

/// Storages by index into `storages`, in order.
struct OffloadSteps {
  std::vector<std::int32_t> released_behind, sent_behind;     // a top-level op of the forward pass
  std::vector<std::int32_t> fetched_before, released_before;  // an evaluate node
};

struct OffloadPlan {
  std::vector<LeavingStorage> storages;        // storages to offload
  std::map<std::int32_t, OffloadSteps> steps;  // by node
};

/// The outermost op and the outermost evaluate node around each node; -1: none.
struct OutermostNodes {
  explicit OutermostNodes(const ExecutionGraph& graph)
      : op(graph.nodes.size(), -1), function(graph.nodes.size(), -1) {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph.nodes.size()); ++i) {
      const Node& node = graph.node(i);
      if (node.parent >= 0) {
        op[i] = op[node.parent];
        function[i] = function[node.parent];
      }
      if (op[i] < 0 && !node.is_label && !node.is_structural) op[i] = i;
      if (function[i] < 0 && is_evaluate_function(graph, node)) function[i] = i;
    }
  }
  std::vector<std::int32_t> op, function;  // by node
};

// Fills in where each of the storages is mentioned. `index_of`: into `storages`, -1: none of them.
void find_mentions(const StepView& step, const OutermostNodes& outermost,
                   const FactsOfValues<std::int32_t>& index_of,
                   std::vector<LeavingStorage>& storages) {
  const ExecutionGraph& graph = step.graph();
  const StorageLifetimes& lifetimes = step.lifetimes();
  for (std::int32_t i = lifetimes.step.begin; i < lifetimes.step.end; ++i) {
    const std::int32_t op = outermost.op[i], function = outermost.function[i];
    const auto add_mention = [&](const Tensor& tensor) {
      if (!tensor.on_gpu() || tensor.storage_id == 0 || index_of[tensor] < 0) return;
      LeavingStorage& storage = storages[index_of[tensor]];
      if (step.backward().in_backward[i] && function >= 0) {
        if (storage.first_reader < 0) storage.first_reader = function;
      } else if (i < lifetimes.forward_end) {
        storage.last_forward = std::max(storage.last_forward, op);
      } else {
        storage.read_elsewhere = true;
      }
    };
    for_each_tensor(graph, graph.inputs(i), add_mention);
    for_each_tensor(graph, graph.outputs(i), add_mention);
  }
}

// Activations that the backward pass alone reads again, in the order of their last forward ops.
std::vector<LeavingStorage> find_candidates(const StepView& step, const OutermostNodes& outermost,
                                            std::int64_t least_bytes) {
  const ExecutionGraph& graph = step.graph();
  const StorageLifetimes& lifetimes = step.lifetimes();
  std::vector<LeavingStorage> storages;
  FactsOfValues<std::int32_t> index_of(step.storages(), -1);
  for (const StorageLifetime& storage : lifetimes.storages) {
    const Tensor& tensor = graph.tensors[storage.tensor];
    const bool leaves = storage.purpose == MemoryPurpose::kActivations &&
                        storage.bytes >= least_bytes && tensor.offset == 0 && tensor.on_gpu() &&
                        storage.made_by >= lifetimes.step.begin &&
                        storage.made_by < lifetimes.forward_end;
    if (!leaves) continue;
    index_of[tensor] = static_cast<std::int32_t>(storages.size());
    storages.push_back({.tensor = storage.tensor, .bytes = tensor.bytes()});
  }
  find_mentions(step, outermost, index_of, storages);
  std::erase_if(storages, [&](const LeavingStorage& storage) {
    return storage.last_forward < 0 || storage.first_reader < 0 || storage.read_elsewhere ||
           last_below(graph, storage.last_forward) >= storage.first_reader;
  });
  std::ranges::stable_sort(storages, {}, &LeavingStorage::last_forward);
  return storages;
}

/// Bytes that may be on their way, and how many of the candidates leave. The last ones stay: they
/// would come back at once. The window holds two of those that leave, which depend on the window.
struct OffloadWindow {
  std::int64_t bytes = 0;
  std::size_t leaving = 0;
};

OffloadWindow choose_window(const std::vector<LeavingStorage>& order, std::int64_t least) {
  OffloadWindow window{.bytes = least, .leaving = order.size()};
  std::vector<std::int64_t> largest = {0};  // largest of the first ones
  for (const LeavingStorage& storage : order) {
    largest.push_back(std::max(largest.back(), storage.bytes));
  }
  for (std::int64_t staying = 0; window.leaving > 0;) {
    window.bytes = std::max(least, 2 * largest[window.leaving]);
    if (staying >= window.bytes) break;
    staying += order[--window.leaving].bytes;
  }
  return window;
}

// When the window is full, the oldest must have left. Gives the storages that left last.
std::vector<std::int32_t> place_forward(OffloadPlan& plan, std::int64_t window) {
  std::deque<std::int32_t> underway;
  std::int64_t bytes = 0;
  for (std::size_t s = 0; s < plan.storages.size(); ++s) {
    const LeavingStorage& storage = plan.storages[s];
    OffloadSteps& steps = plan.steps[storage.last_forward];
    for (; !underway.empty() && bytes + storage.bytes > window; underway.pop_front()) {
      steps.released_behind.push_back(underway.front());
      bytes -= plan.storages[underway.front()].bytes;
    }
    underway.push_back(static_cast<std::int32_t>(s));
    steps.sent_behind.push_back(underway.back());
    bytes += storage.bytes;
  }
  return {underway.begin(), underway.end()};
}

// In the order of the functions that read first. Storages that stayed count until they are read.
void place_backward(const std::vector<LeavingStorage>& stay, std::int64_t window,
                    const std::vector<std::int32_t>& functions, OffloadPlan& plan) {
  std::vector<std::int32_t> order(plan.storages.size());
  for (std::size_t s = 0; s < order.size(); ++s) order[s] = static_cast<std::int32_t>(s);
  std::ranges::stable_sort(
      order, {}, [&](std::int32_t storage) { return plan.storages[storage].first_reader; });
  std::map<std::int32_t, std::int64_t> bytes_there;  // by reader
  std::int64_t bytes = 0;
  for (const LeavingStorage& storage : stay) {
    bytes_there[storage.first_reader] += storage.bytes;
    bytes += storage.bytes;
  }
  auto next = order.begin();
  for (const std::int32_t function : functions) {
    for (; next != order.end(); ++next) {
      const LeavingStorage& storage = plan.storages[*next];
      if (storage.first_reader != function && bytes + storage.bytes > window) break;
      plan.steps[function].fetched_before.push_back(*next);
      bytes_there[storage.first_reader] += storage.bytes;
      bytes += storage.bytes;
    }
    bytes -= bytes_there[function];
  }
}

Result<OffloadPlan> plan_offload(const StepView& step, const OffloadOptions& options) {
  const OutermostNodes outermost(step.graph());
  const auto candidates = find_candidates(step, outermost, options.least_bytes);
  if (candidates.empty()) {
    return refuse_offload(
        fmt::format("expected activations of at least {} bytes that the backward pass reads, "
                    "found none",
                    options.least_bytes));
  }
  const OffloadWindow window = choose_window(candidates, options.bytes_on_their_way);
  if (window.leaving == 0) {
    return refuse_offload(fmt::format(
        "expected more activations than the {} bytes that stay on their way, found fewer",
        window.bytes));
  }
  const auto first_stay = candidates.begin() + static_cast<std::ptrdiff_t>(window.leaving);
  OffloadPlan plan{.storages = {candidates.begin(), first_stay}, .steps = {}};
  const auto underway = place_forward(plan, window.bytes);
  std::vector<std::int32_t> functions;
  const GraphIteration& range = step.lifetimes().step;
  for (std::int32_t i = range.begin; i < range.end; ++i) {
    if (outermost.function[i] == i) functions.push_back(i);
  }
  place_backward({first_stay, candidates.end()}, window.bytes, functions, plan);
  // Whoever waits for the first one that comes back has waited for all that left.
  const auto first = std::ranges::min_element(plan.storages, {}, &LeavingStorage::first_reader);
  plan.steps[first->first_reader].released_before = underway;
  return plan;
}

class OffloadEdit {
 public:
  OffloadEdit(const StepView& step, const OffloadPlan& plan)
      : graph_(step.graph()),
        plan_(plan),
        edit_(graph_, dialect_of(graph_)),
        builder_(edit_.builder()),
        back_(step.storages()) {
    for (const auto& [node, steps] : plan.steps) {
      edit_.precede(node, [this, node = node, &steps = steps] { write_before(node, steps); });
      if (steps.sent_behind.empty()) continue;
      edit_.follow(last_below(graph_, node),
                   [this, node = node, &steps = steps] { write_behind(node, steps); });
    }
    edit_.on_each_copy([this](std::int32_t, Node& copy) { read_what_came_back(copy); });
  }

  ExecutionGraph write() { return edit_.write(); }

 private:
  void write_behind(std::int32_t op, const OffloadSteps& steps) {
    edit_.copy().close_beside(op);
    for (const std::int32_t storage : steps.released_behind) release(storage);
    for (const std::int32_t storage : steps.sent_behind) send(storage);
  }

  void write_before(std::int32_t function, const OffloadSteps& steps) {
    if (steps.fetched_before.empty() && steps.released_before.empty()) return;
    edit_.copy().close_beside(function);
    for (const std::int32_t storage : steps.fetched_before) fetch(storage);
    for (const std::int32_t storage : steps.released_before) release(storage);
  }

  const Tensor& tensor(std::int32_t storage) const {
    return graph_.tensors[plan_.storages[storage].tensor];
  }

  void send(std::int32_t storage) {
    const TensorRef sent = builder_.tensor_of_source(tensor(storage));
    const TensorRef host =
        builder_.new_tensor(builder_.dtype(sent), GraphBuilder::cpu(), builder_.shape(sent));
    builder_.leaf_op(kOffloadSend, {sent}, {host});
    hosts_[storage] = host;
  }

  void release(std::int32_t storage) {
    builder_.leaf_op(kOffloadRelease, {builder_.tensor_of_source(tensor(storage))}, {});
  }

  // The same tensor in other memory.
  void fetch(std::int32_t storage) {
    Tensor fetched = tensor(storage);
    fetched.storage_id = back_[tensor(storage)] = builder_.new_id();
    builder_.leaf_op(kOffloadFetch, {hosts_.at(storage)}, {builder_.tensor_of_source(fetched)});
  }

  void read_what_came_back(Node& copy) {
    ExecutionGraph& made = edit_.made();
    change_tensors(made, copy, [&](Tensor& mention) {
      if (!mention.on_gpu() || mention.storage_id == 0) return;
      const std::int64_t back = back_[graph_.tensors[&mention - made.tensors.data()]];
      if (back != 0) mention.storage_id = back;
    });
  }

  const ExecutionGraph& graph_;
  const OffloadPlan& plan_;
  GraphEdit edit_;
  GraphBuilder& builder_;
  std::unordered_map<std::int32_t, TensorRef> hosts_;  // by storage
  FactsOfValues<std::int64_t> back_;  // id of the storage that came back; 0: not yet
};

}  // namespace

Result<ExecutionGraph> rewrite_offload(const ExecutionGraph& graph, const OffloadOptions& options) {
  const StepView step(graph);
  if (auto good = step.check("offload-activations", {.no_offload = true, .backward = true});
      !good) {
    return Unexpected{good.error()};
  }
  PERFMODEL_TRY(plan, plan_offload(step, options));
  return OffloadEdit(step, *plan).write();
}

}  // namespace perfmodel
