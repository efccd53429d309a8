#include "rewrite_invariants.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "perfmodel/graph/detail/storage_lifetimes.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"
#include "perfmodel/memory.hpp"
#include "step/nesting.hpp"

namespace perfmodel::test_support {
namespace {

std::string node_text(const ExecutionGraph& graph, std::size_t index) {
  const Node& node = graph.nodes[index];
  return fmt::format("\"{}\" (node {})", graph.name(node), node.id);
}

template <class Visit>
void for_each_tensor_of(const ExecutionGraph& graph, const Node& node, Visit&& visit) {
  for_each_tensor(graph, graph.inputs(node), visit);
  for_each_tensor(graph, graph.outputs(node), visit);
}

bool lists_are_inside(const ExecutionGraph& graph, std::uint32_t begin, std::uint32_t count) {
  if (std::size_t{begin} + count > graph.arguments.size()) return false;
  return std::all_of(graph.arguments.begin() + begin, graph.arguments.begin() + begin + count,
                     [&](const Argument& argument) {
                       switch (argument.kind) {
                         case Argument::Kind::kTensor:
                           return argument.index < graph.tensors.size();
                         case Argument::Kind::kList:
                           return lists_are_inside(graph, argument.index, argument.count);
                         case Argument::Kind::kString:
                           return argument.index < graph.names.size();
                         default:
                           return true;
                       }
                     });
}

/// A tensor as a mention names it. A saved tensor that autograd unpacks is a new object, often at
/// the address of another one: the id alone tells nothing.
struct TensorName {
  std::int64_t id = 0, storage_id = 0;
  friend bool operator==(TensorName, TensorName) = default;
};
struct HashOfName {
  std::size_t operator()(TensorName name) const {
    return hash_mix(static_cast<std::uint64_t>(name.id),
                    static_cast<std::uint64_t>(name.storage_id));
  }
};
using TensorNames = std::unordered_set<TensorName, HashOfName>;

TensorName name_of(const Tensor& tensor) { return {tensor.id, tensor.storage_id}; }
TensorName storage_of(const Tensor& tensor) { return {0, tensor.storage_id}; }

/// A number that PyTorch wrapped on the way into an op: no op makes it, and its memory may have
/// belonged to any tensor before.
bool is_wrapped_number(const Tensor& tensor) { return tensor.rank == 0 && !tensor.on_gpu(); }

/// Tensors that a graph gives before it reads them.
TensorNames made_in(const ExecutionGraph& graph, TensorName (*name)(const Tensor&)) {
  TensorNames mentioned, made;
  for (const Node& node : graph.nodes) {
    for_each_tensor(graph, graph.inputs(node),
                    [&](const Tensor& tensor) { mentioned.insert(name(tensor)); });
    for_each_tensor(graph, graph.outputs(node), [&](const Tensor& tensor) {
      const bool is_first = mentioned.insert(name(tensor)).second;
      if (is_first && tensor.storage_id != 0) made.insert(name(tensor));
    });
  }
  return made;
}

Violation first_read_before_made(const ExecutionGraph& source, const ExecutionGraph& result,
                                 TensorName (*name)(const Tensor&), const char* kind,
                                 bool numbers_too) {
  const TensorNames made = made_in(source, name);
  TensorNames mentioned;
  for (std::size_t i = 0; i < result.nodes.size(); ++i) {
    Violation found;
    for_each_tensor(result, result.inputs(result.nodes[i]), [&](const Tensor& tensor) {
      if (!mentioned.insert(name(tensor)).second || !made.contains(name(tensor))) return;
      if (!numbers_too && is_wrapped_number(tensor)) return;
      found = fmt::format("{} reads {} {} of storage {}, which nothing before it makes",
                          node_text(result, i), kind, tensor.id, tensor.storage_id);
    });
    if (found) return found;
    for_each_tensor(result, result.outputs(result.nodes[i]),
                    [&](const Tensor& tensor) { mentioned.insert(name(tensor)); });
  }
  return {};
}

/// The last node inside each node.
std::vector<std::int32_t> ends_of(const ExecutionGraph& graph) {
  std::vector<std::int32_t> ends(graph.nodes.size());
  for (std::size_t i = ends.size(); i-- > 0;) {
    ends[i] = std::max(ends[i], static_cast<std::int32_t>(i));
    const std::int32_t parent = graph.nodes[i].parent;
    if (parent >= 0 && parent < static_cast<std::int32_t>(i)) {
      ends[parent] = std::max(ends[parent], ends[i]);
    }
  }
  return ends;
}

Violation broken_lifetime(const StorageLifetimes& lifetimes) {
  for (const StorageLifetime& storage : lifetimes.storages) {
    const bool is_inside =
        storage.made_by == StorageLifetime::kBefore ||
        (storage.made_by >= lifetimes.step.begin && storage.made_by < lifetimes.step.end);
    if (storage.bytes < 0 || !is_inside || storage.freed_after < storage.made_by) {
      return fmt::format("a storage of {} bytes lives from node index {} to {}", storage.bytes,
                         storage.made_by, storage.freed_after);
    }
  }
  return {};
}

/// Renumbers ids of two graphs alike as they are met.
class PairedIds {
 public:
  bool pair(std::int64_t first, std::int64_t second) {
    const auto forward = to_second_.try_emplace(first, second);
    const auto back = to_first_.try_emplace(second, first);
    return forward.first->second == second && back.first->second == first;
  }

 private:
  std::unordered_map<std::int64_t, std::int64_t> to_second_, to_first_;
};

class GraphsInStep {
 public:
  GraphsInStep(const ExecutionGraph& first, const ExecutionGraph& second)
      : first_(first), second_(second) {}

  Violation difference() {
    const std::size_t both = std::min(first_.nodes.size(), second_.nodes.size());
    for (std::size_t i = 0; i < both; ++i) {
      const Node &a = first_.nodes[i], &b = second_.nodes[i];
      const auto node = [](const Node& n) {
        return std::tuple(n.parent, n.thread, n.fw_thread, n.scope, n.is_orphan, n.kernel_time_us,
                          n.kernel_time_scale, n.index_zipf_exponent);
      };
      if (first_.name(a) != second_.name(b) || node(a) != node(b) ||
          (a.seq_id < 0) != (b.seq_id < 0) || !sequence_.pair(a.seq_id, b.seq_id) ||
          !same(first_.inputs(a), second_.inputs(b)) ||
          !same(first_.outputs(a), second_.outputs(b))) {
        return fmt::format("{} and {}", node_text(first_, i), node_text(second_, i));
      }
    }
    if (first_.nodes.size() != second_.nodes.size()) {
      return fmt::format("{} and {} nodes", first_.nodes.size(), second_.nodes.size());
    }
    if (first_.allow_tf32 != second_.allow_tf32) return "allow_tf32";
    return {};
  }

 private:
  bool same(std::span<const Argument> a, std::span<const Argument> b) {
    return std::ranges::equal(a, b, [&](const Argument& x, const Argument& y) {
      if (x.kind != y.kind) return false;
      switch (x.kind) {
        case Argument::Kind::kTensor:
          return same(first_.tensors[x.index], second_.tensors[y.index]);
        case Argument::Kind::kInt:
        case Argument::Kind::kBool:
          return x.integer == y.integer;
        case Argument::Kind::kDouble:
          return x.real == y.real || (std::isnan(x.real) && std::isnan(y.real));
        case Argument::Kind::kString:
        case Argument::Kind::kOpaque:
          return first_.names.text(x.index) == second_.names.text(y.index);
        case Argument::Kind::kList:
          return same(first_.elements(x), second_.elements(y));
        case Argument::Kind::kNone:
          break;
      }
      return true;
    });
  }

  bool same(const Tensor& a, const Tensor& b) {
    return a.dtype == b.dtype && a.device == b.device && a.offset == b.offset &&
           a.is_channels_last == b.is_channels_last &&
           std::ranges::equal(first_.shape(a), second_.shape(b)) && tensors_.pair(a.id, b.id) &&
           storages_.pair(a.storage_id, b.storage_id);
  }

  const ExecutionGraph &first_, &second_;
  PairedIds tensors_, storages_, sequence_;
};

}  // namespace

Violation broken_tree(const ExecutionGraph& graph) {
  const auto count = static_cast<std::int32_t>(graph.nodes.size());
  for (std::int32_t i = 0; i < count; ++i) {
    const Node& node = graph.node(i);
    if (i > 0 && graph.node(i - 1).id >= node.id) {
      return node_text(graph, i) + " has no larger id than the node before it";
    }
    const bool knows_parent = node.parent >= -1 && node.parent < count &&
                              (node.parent < 0 || graph.node(node.parent).id == node.parent_id);
    if (!knows_parent) return node_text(graph, i) + " has another parent than its parent id says";
    if (!lists_are_inside(graph, node.inputs_begin, node.inputs_count) ||
        !lists_are_inside(graph, node.outputs_begin, node.outputs_count)) {
      return node_text(graph, i) + " has arguments outside of their pools";
    }
    Violation found;
    for_each_tensor_of(graph, node, [&](const Tensor& tensor) {
      if (tensor.shape_begin + std::size_t{tensor.rank} <= graph.shape_pool.size()) return;
      found = node_text(graph, i) + " has a tensor whose sizes are outside of their pool";
    });
    if (found) return found;
    if (node.children_begin + std::size_t{node.children_count} > graph.child_indices.size()) {
      return node_text(graph, i) + " has children outside of their pool";
    }
    for (const std::int32_t child : graph.children(node)) {
      if (child < 0 || child >= count || graph.node(child).parent != i) {
        return node_text(graph, i) + " has a child with another parent";
      }
    }
  }
  return {};
}

Violation broken_nesting(const ExecutionGraph& source, const ExecutionGraph& result) {
  const bool has_thread_inside = std::ranges::any_of(source.nodes, [&](const Node& node) {
    return node.is_structural && node.parent >= 0 && !source.node(node.parent).is_structural;
  });
  if (has_thread_inside || !check_nesting(source)) return {};
  const auto nested = check_nesting(result);
  if (nested) return {};
  return nested.error().message;
}

Violation read_before_made(const ExecutionGraph& source, const ExecutionGraph& result,
                           bool numbers_too) {
  if (auto found = first_read_before_made(source, result, name_of, "tensor", numbers_too)) {
    return found;
  }
  return first_read_before_made(source, result, storage_of, "nothing but a view,", numbers_too);
}

Violation broken_lifetimes(const ExecutionGraph& graph) {
  const StorageLifetimes lifetimes = storage_lifetimes(graph);
  if (auto found = broken_lifetime(lifetimes)) return found;
  std::unordered_map<std::int64_t, std::vector<const StorageLifetime*>> by_id;
  for (const StorageLifetime& storage : lifetimes.storages) {
    by_id[graph.tensors[storage.tensor].storage_id].push_back(&storage);
  }
  const std::vector<std::int32_t> ends = ends_of(graph);
  for (std::int32_t i = lifetimes.step.begin; i < lifetimes.step.end; ++i) {
    if (graph.name(i).starts_with("fbgemm::")) continue;  // tables in host memory are left out
    Violation found;
    for_each_tensor_of(graph, graph.node(i), [&](const Tensor& tensor) {
      if (tensor.device.kind != lifetimes.device || tensor.storage_id == 0) return;
      if (tensor.item_size == 0) return;  // not counted
      const auto lives = [&](const StorageLifetime* storage) {
        return storage->made_by <= ends[i] && storage->freed_after >= i;
      };
      if (std::ranges::none_of(by_id[tensor.storage_id], lives)) {
        found = fmt::format("{} mentions storage {} when it is free", node_text(graph, i),
                            tensor.storage_id);
      }
    });
    if (found) return found;
  }
  const PredictedMemory memory = memory_report(graph, nullptr, {.largest = 0}).memory;
  // Gradients that replayed CUDA graphs make are in the graphs' pool, reserved but not allocated.
  const bool has_pool = std::ranges::any_of(
      graph.nodes, [&](const Node& node) { return graph.name(node) == "CUDAGraph.replay"; });
  const double peak = has_pool ? memory.peak_reserved_bytes : memory.peak_allocated_bytes;
  if (peak >= memory.static_bytes()) return {};
  return fmt::format("the peak of {} bytes is below the {} that are always there", peak,
                     memory.static_bytes());
}

Violation broken_structure(const ExecutionGraph& source, const ExecutionGraph& result) {
  if (auto found = broken_tree(result)) return found;
  if (auto found = broken_nesting(source, result)) return found;
  return broken_lifetimes(result);
}

Violation differs_when_read_back(const ExecutionGraph& graph) {
  const std::string written = execution_graph_json(graph);
  const auto read = parse_execution_graph(written, "written");
  if (!read) return to_string(read.error());
  if (execution_graph_json(*read) != written) return "written and read again it is another graph";
  return {};
}

Violation difference_up_to_ids(const ExecutionGraph& first, const ExecutionGraph& second) {
  return GraphsInStep(first, second).difference();
}

}  // namespace perfmodel::test_support
