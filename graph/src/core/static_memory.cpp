#include "perfmodel/graph/detail/static_memory.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ops/catalogue.hpp"
#include "parameter_gradients.hpp"

namespace perfmodel {
namespace {

enum class Phase { kForward, kBackward, kZeroGrad, kOptimizer };

constexpr std::array<std::string_view, 8> kLookups = {
    "aten::embedding",
    "aten::embedding_bag",
    "aten::embedding_bag.padding_idx",
    "aten::_embedding_bag",
    "aten::_embedding_bag_forward_only",
    "aten::embedding_renorm_",
    "aten::index_select",
    "fbgemm::dense_embedding_codegen_lookup_function"};

/// Ids of tensors or storages. Recorded ones are small numbers: a bit for each.
class IdSet {
 public:
  /// Of about so many.
  explicit IdSet(std::size_t count) : limit_(16 * count + 1024) {}

  void insert(std::int64_t id) {
    if (const auto at = static_cast<std::uint64_t>(id); at < limit_) {
      if (at >= small_.size()) small_.resize(std::min<std::size_t>(limit_, 2 * at + 1024));
      small_[at] = true;
    } else {
      others_.insert(id);
    }
  }
  bool contains(std::int64_t id) const {
    const auto at = static_cast<std::uint64_t>(id);
    return at < limit_ ? at < small_.size() && small_[at] : others_.contains(id);
  }

 private:
  std::size_t limit_;
  std::vector<bool> small_;
  std::unordered_set<std::int64_t> others_;
};

class StaticMemoryReader {
 public:
  explicit StaticMemoryReader(const ExecutionGraph& graph)
      : graph_(graph), made_storages_(graph.tensors.size()), made_tensors_(graph.tensors.size()) {}

  StaticMemory read() {
    const auto steps = iterations(graph_);
    if (steps.empty()) return {};
    const std::vector<bool> keeps_gradient = parameter_gradients(graph_);
    phases_.resize(graph_.nodes.size(), Phase::kForward);
    in_lookup_.resize(graph_.nodes.size());
    for (std::int32_t i = steps.front().begin; i < steps.front().end; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const Node& node = graph_.nodes[at];
      phases_[at] = phase_of(node);
      visit(at);
      if (keeps_gradient[at]) keep_gradient(node);
    }
    StaticMemory made{.gradients = gradients_};
    for (const auto& [id, storage] : from_outside_) purpose_of(storage, made) += storage.bytes;
    return made;
  }

 private:
  struct Storage {
    Phase first = Phase::kForward;
    double bytes = 0;
    bool looked_up = false, read_otherwise = false;  // in the forward pass
    bool is_state = false;                           // a lookup's own optimizer holds it
  };

  static double& purpose_of(const Storage& storage, StaticMemory& made) {
    if (storage.is_state) return made.optimizer_state;
    switch (storage.first) {
      case Phase::kForward:
        return storage.looked_up && !storage.read_otherwise ? made.tables : made.parameters;
      case Phase::kZeroGrad:
        return made.gradients;
      case Phase::kOptimizer:
        return made.optimizer_state;
      case Phase::kBackward:
        break;
    }
    return made.other;
  }

  Phase phase_of(const Node& node) const {
    const std::string_view name = graph_.name(node);
    if (name.starts_with("Optimizer.step#")) return Phase::kOptimizer;
    if (name.starts_with("Optimizer.zero_grad#")) return Phase::kZeroGrad;
    if (node.scope == Scope::kBackward || name.starts_with("autograd::engine::evaluate_function")) {
      return Phase::kBackward;
    }
    return node.parent >= 0 ? phases_[static_cast<std::size_t>(node.parent)] : Phase::kForward;
  }

  static bool is_lookup(std::string_view name) {
    return std::ranges::find(kLookups, name) != kLookups.end() ||
           name.starts_with("fbgemm::split_embedding_codegen_lookup_");
  }

  void visit(std::size_t index) {
    const Node& node = graph_.nodes[index];
    const std::string_view name = graph_.name(node);
    const bool part = node.parent >= 0 && in_lookup_[static_cast<std::size_t>(node.parent)];
    in_lookup_[index] = part || is_lookup(name);
    if (name.starts_with("fbgemm::split_embedding_codegen_lookup_")) {
      read_batched_tables(node);
    } else {
      bool may_be_table = in_lookup_[index];
      for_each_tensor(graph_, graph_.inputs(node), [&](const Tensor& tensor) {
        if (Storage* storage = take(tensor, phases_[index]))
          note_use(*storage, index, may_be_table);
        may_be_table = part;  // the first argument of a lookup
      });
    }
    for_each_tensor(graph_, graph_.outputs(node), [&](const Tensor& tensor) {
      if (tensor.storage_id == 0 || from_outside_.contains(tensor.storage_id)) {
        made_tensors_.insert(tensor.id);  // a view, or the same in place
      } else {
        made_storages_.insert(tensor.storage_id);
      }
    });
  }

  void note_use(Storage& storage, std::size_t index, bool by_lookup) {
    if (phases_[index] != Phase::kForward) return;
    (by_lookup ? storage.looked_up : storage.read_otherwise) = true;
  }

  // Tables (on the device, in host memory, a cache of those), and the state of the optimizer that
  // runs within the backward pass: pairs of tensors on the device and in host memory.
  void read_batched_tables(const Node& node) {
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
      Storage* storage = take(tensor, Phase::kForward);
      if (!storage) continue;
      storage->is_state |= state;
      (i <= kLastWeights ? storage->looked_up : storage->read_otherwise) = true;
    }
  }

  // Null: the step made it, or it is not in GPU memory.
  Storage* take(const Tensor& tensor, Phase phase) {
    if (!tensor.on_gpu() || tensor.storage_id == 0 || made_storages_.contains(tensor.storage_id)) {
      return nullptr;
    }
    const auto [at, is_new] = from_outside_.try_emplace(tensor.storage_id, Storage{.first = phase});
    // A view that the step made may be wider than what it looks at (expand).
    if (is_new || !made_tensors_.contains(tensor.id)) {
      const auto end = static_cast<double>(tensor.offset) + static_cast<double>(tensor.numel);
      at->second.bytes = std::max(at->second.bytes, end * tensor.item_size);
    }
    return &at->second;
  }

  // Unless it adds to one that is there already.
  void keep_gradient(const Node& node) {
    const auto inputs = graph_.inputs(node);
    if (inputs.empty() || inputs[0].kind != Argument::Kind::kTensor) return;
    const Tensor& gradient = graph_.tensors[inputs[0].index];
    if (!gradient.on_gpu() || gradient.storage_id == 0) return;  // undefined, sparse
    for (std::int32_t child : graph_.children(node)) {
      const std::string_view name = graph_.name(graph_.nodes[static_cast<std::size_t>(child)]);
      if (is_sum(name)) return add_to_gradient(child);
    }
    gradients_ += static_cast<double>(gradient.numel) * gradient.item_size;
  }

  void add_to_gradient(std::int32_t sum) {
    const auto inputs = graph_.inputs(graph_.nodes[static_cast<std::size_t>(sum)]);
    if (inputs.empty() || inputs[0].kind != Argument::Kind::kTensor) return;
    if (Storage* kept = take(graph_.tensors[inputs[0].index], Phase::kZeroGrad)) {
      kept->first = Phase::kZeroGrad;
    }
  }

  const ExecutionGraph& graph_;
  std::vector<Phase> phases_;
  std::vector<bool> in_lookup_;  // the node, or one above it
  std::unordered_map<std::int64_t, Storage> from_outside_;
  IdSet made_storages_, made_tensors_;
  double gradients_ = 0;
};

}  // namespace

StaticMemory static_memory(const ExecutionGraph& graph) { return StaticMemoryReader(graph).read(); }

}  // namespace perfmodel
