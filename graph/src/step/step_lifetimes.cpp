#include "perfmodel/graph/detail/storage_lifetimes.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "backward_pass.hpp"
#include "offload_ops.hpp"
#include "ops/catalogue.hpp"
#include "parameter_gradients.hpp"
#include "step_view.hpp"
#include "tree_walk.hpp"

namespace perfmodel {
namespace {

constexpr std::array<std::string_view, 7> kLookups = {
    "aten::embedding_bag",
    "aten::embedding_bag.padding_idx",
    "aten::_embedding_bag",
    "aten::_embedding_bag_forward_only",
    "aten::embedding_renorm_",
    "aten::index_select",
    "fbgemm::dense_embedding_codegen_lookup_function"};
constexpr std::string_view kBatchedLookup = "fbgemm::split_embedding_codegen_lookup_";

enum class Phase : std::uint8_t { kForward, kBackward, kZeroGrad, kOptimizer };

/// Who uses a storage.
struct StorageUse {
  Phase first = Phase::kForward;
  bool looked_up = false, read_otherwise = false;  ///< in the forward pass, of one from outside
  bool is_state = false;                           ///< a lookup's own optimizer holds it
  bool read_backward = false, read_by_optimizer = false;
  bool in_collective = false;
  bool is_kept_gradient = false, is_saved = false;
};

Device::Kind device_of(const ExecutionGraph& graph) {
  const bool gpu =
      std::ranges::any_of(graph.tensors, [](const Tensor& tensor) { return tensor.on_gpu(); });
  return gpu ? Device::Kind::kGpu : Device::Kind::kCpu;
}

bool is_lookup(std::string_view name) {
  return is_row_lookup(name) || std::ranges::find(kLookups, name) != kLookups.end() ||
         name.starts_with(kBatchedLookup);
}

/// The role that the name of a node gives it.
enum class NameRole : std::uint8_t {
  kUnknown,
  kOptimizerStep,
  kZeroGrad,
  kEngineCall,
  kCollective,
  kLookup,
  kOther
};

NameRole role_of(const ExecutionGraph& graph, const Node& node) {
  const std::string_view name = graph.name(node);
  if (name.starts_with("Optimizer.step#")) return NameRole::kOptimizerStep;
  if (name.starts_with("Optimizer.zero_grad#")) return NameRole::kZeroGrad;
  if (is_evaluate_function(graph, node)) return NameRole::kEngineCall;
  if (name == "record_param_comms" || name.starts_with("c10d::") || name.starts_with("nccl:")) {
    return NameRole::kCollective;
  }
  return is_lookup(name) ? NameRole::kLookup : NameRole::kOther;
}

/// One node, by its role in the step.
struct StepNode {
  std::int32_t function = -1;  ///< innermost autograd function around it, itself included
  Phase phase = Phase::kForward;
  bool in_lookup = false, in_collective = false;  ///< the node, or one above it
};

/// The nodes of one step: phases, ends, and surrounding nodes.
class StepNodes {
 public:
  StepNodes(const ExecutionGraph& graph, GraphIteration window)
      : step(std::move(window)),
        ending(graph, step.begin, step.end),
        graph_(graph),
        nodes_(step.end - step.begin),
        roles_(graph.names.size()) {
    forward_end = optimizer_begin = step.end;
    for (std::int32_t i = step.begin; i < step.end; ++i) {
      const Node& node = graph_.node(i);
      StepNode& here = at(i);
      if (const std::int32_t parent = parent_of(i); parent >= 0) {
        const StepNode& above = at(parent);
        here.function = above.function;
        here.in_lookup = above.in_lookup;
        here.in_collective = above.in_collective;
        here.phase = above.phase;
      }
      // Compiled code frees tensors after their last use.
      if (node.scope == Scope::kBackward && graph_.name(node) != "CompiledFunctionBackward") {
        here.function = i;
      }
      find_phase(node, here, i);
    }
  }

  const StepNode& operator[](std::int32_t node) const { return nodes_[node - step.begin]; }

  // The node around this one, of the same step; -1: none. A file may say that it comes later.
  std::int32_t parent_of(std::int32_t node) const {
    const std::int32_t parent = graph_.node(node).parent;
    return parent >= step.begin && parent < node ? parent : -1;
  }

  GraphIteration step;
  EndingNodes ending;
  bool has_backward = false;
  std::int32_t forward_end = 0, optimizer_begin = 0;  ///< the end of the step if there is none
  std::int32_t zero_grad = -1;

 private:
  StepNode& at(std::int32_t node) { return nodes_[node - step.begin]; }

  void find_phase(const Node& node, StepNode& here, std::int32_t index) {
    NameRole& role = roles_[node.name];
    if (role == NameRole::kUnknown) role = role_of(graph_, node);
    if (role == NameRole::kOptimizerStep) {
      here.phase = Phase::kOptimizer;
      optimizer_begin = std::min(optimizer_begin, index);
    } else if (role == NameRole::kZeroGrad) {
      here.phase = Phase::kZeroGrad;
      zero_grad = index;
    } else if (node.scope == Scope::kBackward || role == NameRole::kEngineCall) {
      here.phase = Phase::kBackward;
      if (!has_backward) forward_end = index;
      has_backward = true;
    } else {
      here.in_collective |= role == NameRole::kCollective;
      here.in_lookup |= role == NameRole::kLookup;
    }
  }

  const ExecutionGraph& graph_;
  std::vector<StepNode> nodes_;
  std::vector<NameRole> roles_;  // by name
};

/// The optimizer reads gradients in their bucket if they are views of it.
MemoryPurpose purpose_in_between(const StorageUse& use) {
  if (!use.in_collective) return MemoryPurpose::kTemporaries;
  return use.read_by_optimizer ? MemoryPurpose::kGradients : MemoryPurpose::kCommunication;
}

MemoryPurpose purpose_from_outside(const StorageUse& use) {
  if (use.is_state) return MemoryPurpose::kOptimizer;
  switch (use.first) {
    case Phase::kForward: return MemoryPurpose::kWeights;
    case Phase::kZeroGrad: return MemoryPurpose::kGradients;
    case Phase::kOptimizer: return MemoryPurpose::kOptimizer;
    case Phase::kBackward: break;
  }
  return purpose_in_between(use);
}

MemoryPurpose purpose_of_made(const StorageUse& use) {
  if (use.is_kept_gradient) return MemoryPurpose::kGradients;
  if (use.is_saved || (use.first == Phase::kForward && use.read_backward)) {
    return MemoryPurpose::kActivations;
  }
  return purpose_in_between(use);
}

// `gradients_left_until`: the node that drops the gradients of the step before; -1: none.
void settle_purposes(const std::vector<StorageUse>& uses, std::int32_t gradients_left_until,
                     std::vector<StorageLifetime>& storages) {
  const bool optimizer_reads_gradients = std::ranges::any_of(uses, [](const StorageUse& use) {
    return (use.is_kept_gradient || use.in_collective) && use.read_by_optimizer;
  });
  for (std::size_t i = 0; i < uses.size(); ++i) {
    StorageLifetime& lifetime = storages[i];
    const StorageUse& use = uses[i];
    lifetime.purpose = lifetime.made_by == StorageLifetime::kBefore ? purpose_from_outside(use)
                                                                    : purpose_of_made(use);
    if (lifetime.made_by == StorageLifetime::kBefore) {
      lifetime.is_table =
          lifetime.purpose == MemoryPurpose::kWeights && use.looked_up && !use.read_otherwise;
    } else if (use.is_kept_gradient) {
      // Gradients that became pieces of a bucket are read there.
      const bool dropped = optimizer_reads_gradients && !use.read_by_optimizer;
      if (dropped) {
        lifetime.purpose = MemoryPurpose::kTemporaries;
      } else {
        lifetime.freed_after = StorageLifetime::kBeyond;
        lifetime.left_until = gradients_left_until >= 0 ? gradients_left_until : lifetime.made_by;
      }
    }
  }
  std::stable_partition(storages.begin(), storages.end(), [](const StorageLifetime& lifetime) {
    return lifetime.made_by == StorageLifetime::kBefore;
  });
}

class LifetimeReader {
 public:
  explicit LifetimeReader(const StepView& step)
      : graph_(step.graph()),
        nodes_(graph_, first_step(graph_)),
        keeps_gradient_(step.parameter_gradients()),
        lifetimes_{.step = nodes_.step,
                   .forward_end = nodes_.forward_end,
                   .optimizer_begin = nodes_.optimizer_begin,
                   .has_backward = nodes_.has_backward,
                   .device = device_of(graph_)},
        storage_of_(step.storages(), -1),
        is_view_from_outside_(step.tensors()),
        is_uncounted_(step.tensors()) {}

  StorageLifetimes read() {
    for (std::int32_t i = lifetimes_.step.begin; i < lifetimes_.step.end; ++i) {
      read_inputs(i);
      nodes_.ending.for_each(i, [&](std::int32_t node) {
        read_outputs(node);
        if (keeps_gradient_[node]) keep_gradient(node);
      });
    }
    if (!lifetimes_.has_backward) keep_what_catalogue_says();
    settle_purposes(uses_, nodes_.zero_grad >= 0 ? nodes_.ending.last(nodes_.zero_grad) : -1,
                    lifetimes_.storages);
    return std::move(lifetimes_);
  }

 private:
  bool is_here(const Tensor& tensor, std::int32_t node) {
    if (tensor.device.kind != lifetimes_.device) return false;
    if (tensor.storage_id != 0 && (tensor.item_size > 0 || tensor.numel == 0)) return true;
    if (tensor.numel > 0) leave_uncounted(tensor, node);
    return false;
  }

  void leave_uncounted(const Tensor& tensor, std::int32_t node) {
    if (!std::exchange(is_uncounted_[tensor], true)) lifetimes_.uncounted_bytes += tensor.bytes();
    const NameId name = graph_.node(node).name;
    if (without_sizes_.insert(name).second)
      lifetimes_.without_sizes.emplace_back(graph_.names.text(name));
  }

  static std::int64_t reach(const Tensor& tensor) {
    return (tensor.offset + tensor.numel) * tensor.item_size;
  }

  // An autograd function holds its inputs until it returns; it may drop tensors that it makes
  // itself.
  std::int32_t held_until(std::int32_t node, std::int32_t made_by) {
    const std::int32_t function = nodes_[node].function, end = nodes_.ending.last(node);
    const bool holds = function >= 0 && made_by < function;
    return holds ? std::max(end, nodes_.ending.last(function)) : end;
  }

  std::int32_t add(const Tensor& tensor, std::int32_t made_by, Phase phase) {
    const auto index = static_cast<std::int32_t>(lifetimes_.storages.size());
    lifetimes_.storages.push_back(
        {.bytes = reach(tensor), .made_by = made_by, .tensor = index_of(tensor)});
    uses_.push_back({.first = phase});
    return storage_of_[tensor] = index;
  }
  std::uint32_t index_of(const Tensor& tensor) const {
    return static_cast<std::uint32_t>(&tensor - graph_.tensors.data());
  }
  void widen(std::int32_t storage, const Tensor& tensor) {
    StorageLifetime& lifetime = lifetimes_.storages[storage];
    if (reach(tensor) <= lifetime.bytes) return;
    lifetime.bytes = reach(tensor);
    lifetime.tensor = index_of(tensor);
  }

  void mention(std::int32_t storage, std::int32_t node) {
    StorageLifetime& lifetime = lifetimes_.storages[storage];
    uses_[storage].in_collective |= nodes_[node].in_collective;
    if (lifetime.made_by != StorageLifetime::kBefore) {
      lifetime.freed_after = std::max(lifetime.freed_after, held_until(node, lifetime.made_by));
    }
  }

  void read_inputs(std::int32_t node) {
    const StepNode& here = nodes_[node];
    const std::string_view name = graph_.name(node);
    if (name.starts_with(kBatchedLookup)) return read_batched_tables(node);
    // A tensor on its way to the host is an activation until it is gone.
    const Phase phase = name.starts_with(kOffloadOps) ? Phase::kBackward : here.phase;
    bool may_be_table = here.in_lookup;
    const std::int32_t parent = nodes_.parent_of(node);
    const bool part = parent >= 0 && nodes_[parent].in_lookup;
    for_each_tensor(graph_, graph_.inputs(node), [&](const Tensor& tensor) {
      if (const std::int32_t storage = read(tensor, node, here.phase); storage >= 0) {
        note_read(storage, is_gathered_again(storage, node) ? Phase::kBackward : phase,
                  may_be_table);
      }
      may_be_table = part;  // the first argument of a lookup
    });
  }

  // A collective of the backward pass that is in no autograd function reads what the forward pass
  // made: a rank's part of the input of a product, with sequence parallelism.
  bool is_gathered_again(std::int32_t storage, std::int32_t node) const {
    const std::int32_t made_by = lifetimes_.storages[storage].made_by, end = nodes_.forward_end;
    return nodes_[node].in_collective && node > end && made_by >= 0 && made_by < end;
  }

  void note_read(std::int32_t storage, Phase phase, bool by_lookup) {
    StorageUse& use = uses_[storage];
    if (phase == Phase::kForward) (by_lookup ? use.looked_up : use.read_otherwise) = true;
    use.read_backward |= phase == Phase::kBackward;
    use.read_by_optimizer |= phase == Phase::kOptimizer;
  }

  // Tables (on the device, in host memory, a cache of those), and the state of the optimizer that
  // runs within the backward pass: pairs of tensors on the device and in host memory.
  void read_batched_tables(std::int32_t node) {
    constexpr std::size_t kHostWeights = 2, kLastWeights = 3, kFirstState = 20;
    const auto inputs = graph_.inputs(node);
    bool host_state = false;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].kind != Argument::Kind::kTensor || i == kHostWeights) continue;
      const Tensor& tensor = graph_.tensors[inputs[i].index];
      const bool state = i >= kFirstState && is_floating_point(tensor.dtype);
      if (state && host_state) {
        host_state = false;
        continue;
      }
      host_state = state;
      const std::int32_t storage = read(tensor, node, Phase::kForward);
      if (storage < 0) continue;
      StorageUse& use = uses_[storage];
      use.is_state |= state;
      (i <= kLastWeights ? use.looked_up : use.read_otherwise) = true;
    }
  }

  // -1: it is not in this device's memory.
  std::int32_t read(const Tensor& tensor, std::int32_t node, Phase phase) {
    if (!is_here(tensor, node)) return -1;
    std::int32_t storage = storage_of_[tensor];
    if (storage < 0) {
      storage = add(tensor, maker_above(tensor, node), phase);
      if (is_from_outside(storage)) {
        lifetimes_.storages.back().freed_after = StorageLifetime::kBeyond;
      }
    } else if (is_from_outside(storage) && !is_view_from_outside_[tensor]) {
      widen(storage, tensor);  // a view that the step made may be wider than it (expand)
    }
    mention(storage, node);
    return storage;
  }
  // An op whose result this will be, which lets an op inside it fill it; kBefore: none.
  std::int32_t maker_above(const Tensor& tensor, std::int32_t node) const {
    for (std::int32_t at = nodes_.parent_of(node); at >= 0; at = nodes_.parent_of(at)) {
      bool gives = false;
      for_each_tensor(graph_, graph_.outputs(at), [&](const Tensor& result) {
        gives |= result.storage_id == tensor.storage_id;
      });
      if (gives) return at;
    }
    return StorageLifetime::kBefore;
  }
  bool is_from_outside(std::int32_t storage) const {
    return lifetimes_.storages[storage].made_by == StorageLifetime::kBefore;
  }

  // An op may resize what its calls allocate.
  bool is_made_in(std::int32_t storage, std::int32_t node) const {
    const std::int32_t made_by = lifetimes_.storages[storage].made_by;
    return made_by >= node && made_by <= nodes_.ending.last(node);
  }

  void read_outputs(std::int32_t node) {
    const std::string_view name = graph_.name(node);
    for_each_tensor(graph_, graph_.outputs(node), [&](const Tensor& tensor) {
      if (!is_here(tensor, node)) return;
      std::int32_t storage = storage_of_[tensor];
      if (storage < 0) {
        storage = add(tensor, node, nodes_[node].phase);
      } else if (is_from_outside(storage)) {
        is_view_from_outside_[tensor] = true;
      } else if (is_made_in(storage, node) || name == "aten::resize_") {
        widen(storage, tensor);
      }
      mention(storage, node);
    });
  }

  void keep_gradient(std::int32_t node) {
    const auto gradient = kept_gradient(graph_, graph_.node(node));
    if (!gradient) return;
    if (graph_.tensors[*gradient].storage_id == 0) return keep_sparse_gradient(node);
    if (!is_here(graph_.tensors[*gradient], node)) return;
    const std::int32_t kept = storage_of_[graph_.tensors[*gradient]];
    if (kept < 0) return;
    StorageUse& use = uses_[kept];
    use.is_kept_gradient = true;
    if (is_from_outside(kept)) use.first = Phase::kZeroGrad;
  }

  // A sparse gradient has no storage. AccumulateGrad takes its values out to keep them in another
  // sparse tensor; its indices are the lookup's.
  void keep_sparse_gradient(std::int32_t accumulate) {
    for (std::int32_t i = nodes_.ending.last(accumulate); i > accumulate; --i) {
      if (graph_.name(i) != "aten::_values") continue;
      const Argument& values = graph_.outputs(graph_.node(i)).front();
      const Tensor& kept = graph_.tensors[values.index];
      if (values.kind == Argument::Kind::kTensor && is_here(kept, i) && storage_of_[kept] >= 0) {
        uses_[storage_of_[kept]].is_kept_gradient = uses_[storage_of_[kept]].read_by_optimizer =
            true;
      }
      return;
    }
  }

  // The case of a forward pass without a backward pass.
  void keep_what_catalogue_says() {
    for (std::int32_t i = lifetimes_.step.begin; i < lifetimes_.step.end; ++i) {
      const Node& node = graph_.node(i);
      if (node.seq_id < 0 || nodes_[i].phase != Phase::kForward) continue;
      const Op* op = find_op(graph_.name(node));
      if (op == nullptr) continue;
      const auto inputs = graph_.inputs(node);
      save(inputs, kept_inputs(*op, inputs));
      const bool for_others = has_gradient_beside(inputs, 0);
      save(graph_.outputs(node), for_others
                                     ? op->keeps_results
                                     : op->keeps_results.without(op->keeps_results_for_others));
    }
  }
  Positions kept_inputs(const Op& op, std::span<const Argument> inputs) const {
    Positions for_nothing;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (op.keeps_for_others.has(i) && !has_gradient_beside(inputs, i)) for_nothing.add(i);
    }
    return op.keeps_inputs.without(for_nothing);
  }
  bool has_gradient_beside(std::span<const Argument> inputs, std::size_t position) const {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (i == position || inputs[i].kind != Argument::Kind::kTensor) continue;
      if (may_have_gradient(graph_.tensors[inputs[i].index])) return true;
    }
    return false;
  }
  /// A tensor of the step may have a gradient if autograd numbered its op; a tensor from outside
  /// may unless it is a Python number: these are fp64 tensors in host memory without dimensions.
  bool may_have_gradient(const Tensor& tensor) const {
    if (!is_floating_point(tensor.dtype)) return false;
    const std::int32_t storage = tensor.storage_id == 0 ? -1 : storage_of_[tensor];
    const std::int32_t maker = storage < 0 ? -1 : lifetimes_.storages[storage].made_by;
    if (maker >= lifetimes_.step.begin) return is_numbered(maker);
    return tensor.rank > 0 || !tensor.on_cpu() || tensor.dtype != DType::kFloat64;
  }
  bool is_numbered(std::int32_t node) const {
    for (; node >= 0; node = nodes_.parent_of(node)) {
      if (graph_.node(node).seq_id >= 0) return true;
    }
    return false;
  }
  void save(std::span<const Argument> arguments, Positions positions) {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (!positions.has(i)) continue;
      for_each_tensor(graph_, arguments.subspan(i, 1), [&](const Tensor& tensor) {
        if (tensor.device.kind != lifetimes_.device || tensor.storage_id == 0) return;
        const std::int32_t storage = storage_of_[tensor];
        if (storage < 0 || is_from_outside(storage)) return;
        lifetimes_.storages[storage].freed_after = StorageLifetime::kBeyond;
        uses_[storage].is_saved = true;
      });
    }
  }

  const ExecutionGraph& graph_;
  StepNodes nodes_;
  const std::vector<bool>& keeps_gradient_;
  StorageLifetimes lifetimes_;
  FactsOfValues<std::int32_t> storage_of_;    // into the lifetimes' storages; -1: not met yet
  FactsOfValues<char> is_view_from_outside_;  // made by the step of a storage from outside
  FactsOfValues<char> is_uncounted_;          // by tensor
  std::vector<StorageUse> uses_;              // by storage
  std::unordered_set<NameId> without_sizes_;
};

}  // namespace

std::string_view to_string(MemoryPurpose purpose) {
  constexpr std::array<std::string_view, kMemoryPurposes> kNames = {
      "weights",     "gradients", "optimizer",     "activations",
      "temporaries", "workspace", "communication", "reserve"};
  return kNames[static_cast<std::size_t>(purpose)];
}

const StorageLifetimes& StepView::lifetimes() const {
  return found_once(lifetimes_, [&] { return LifetimeReader(*this).read(); });
}

StorageLifetimes storage_lifetimes(const ExecutionGraph& recorded) {
  const StepView step(recorded, first_step(recorded).end);
  StorageLifetimes lifetimes = step.lifetimes();
  const ExecutionGraph& graph = step.graph();
  if (&graph == &recorded) return lifetimes;
  std::vector<std::uint32_t> entries(graph.tensors.size());  // in the recorded graph
  for (std::size_t i = 0; i < graph.arguments.size(); ++i) {
    if (graph.arguments[i].kind != Argument::Kind::kTensor) continue;
    entries[graph.arguments[i].index] = recorded.arguments[i].index;
  }
  for (StorageLifetime& storage : lifetimes.storages) storage.tensor = entries[storage.tensor];
  return lifetimes;
}

}  // namespace perfmodel
