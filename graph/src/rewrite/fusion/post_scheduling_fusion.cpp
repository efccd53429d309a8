#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops/catalogue.hpp"
#include "perfmodel/graph/rewrites/fusion.hpp"
#include "pointwise_unit.hpp"
#include "rewrite/graph_edit.hpp"
#include "step/backward_pass.hpp"
#include "step/optimizer_reader.hpp"

namespace perfmodel {
namespace {

// An op that is not injective, with the pointwise ops that run in its kernel.
struct AnchorGroup {
  std::int32_t root = -1, primitive = -1;  // the op, and the node below it that launches the kernel
  std::uint32_t result = 0;                // tensor of the primitive
  std::vector<PointwiseUnit> prologues, epilogues;
  std::vector<std::uint32_t> read, written;  // tensors beside those of the anchor
};

// Gradients of several tensors are several kernels behind one name.
bool can_be_anchor(const Op& op) {
  if (op.name.find("backward") != std::string_view::npos) return false;
  switch (op.kind) {
    case OpKind::kProduct:
    case OpKind::kReduction:
    case OpKind::kSoftmax:
    case OpKind::kNorm:
    case OpKind::kConvolution:
    case OpKind::kPooling:
    case OpKind::kEmbedding:
    case OpKind::kIndex:
      return true;
    default:
      return false;
  }
}

class GroupFinder {
 public:
  explicit GroupFinder(const ExecutionGraph& graph) : graph_(graph) {}

  std::vector<AnchorGroup> find() {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) {
      if (graph_.node(i).parent < 0) walk(i);
    }
    note_uses();
    std::vector<AnchorGroup> groups;
    for (const std::int32_t root : roots_) {
      if (auto group = anchor_at(root)) {
        add_epilogues(*group);
        add_prologues(*group);
        if (!group->epilogues.empty() || !group->prologues.empty()) {
          groups.push_back(std::move(*group));
        }
      }
    }
    return groups;
  }

 private:
  struct Use {
    std::int32_t root = -1;  // the op; -1: inside of nothing that is one
    bool reads = false, writes = false;
  };

  const Tensor& tensor(std::uint32_t index) const { return graph_.tensors[index]; }

  bool is_container(const Node& op) const {
    if (op.is_label || op.is_structural || op.scope == Scope::kBackward) return true;
    return is_evaluate_function(graph_, op) ||
           (op.children_count > 0 && graph_.name(op).find("::") == std::string_view::npos);
  }

  void walk(std::int32_t index) {
    for (const std::int32_t child : children_in_order(graph_, graph_.node(index))) {
      if (is_container(graph_.node(child))) {
        walk(child);
      } else {
        roots_.push_back(child);
      }
    }
  }

  // Per storage its uses by ops, in their order.
  void note_uses() {
    root_of_.assign(graph_.nodes.size(), -1);
    for (const std::int32_t root : roots_) root_of_[root] = root;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& op = graph_.nodes[i];
      if (root_of_[i] < 0 && op.parent >= 0) {
        root_of_[i] = root_of_[op.parent];
      }
      const std::int32_t user = root_of_[i] >= 0 ? root_of_[i] : static_cast<std::int32_t>(i);
      const auto note = [&](std::span<const Argument> arguments, bool reads) {
        for_each_tensor(graph_, arguments, [&](const Tensor& t) {
          auto& uses = uses_[t.storage_id];
          if (uses.empty() || uses.back().root != user) uses.push_back({.root = user});
          // What an op makes itself and reads below is no use of what was there.
          if (reads && !uses.back().writes) uses.back().reads = true;
          if (!reads) uses.back().writes = true;
        });
      };
      note(graph_.inputs(op), true);
      note(graph_.outputs(op), false);
    }
    std::ranges::sort(roots_);
    for (auto& [storage, uses] : uses_) {
      std::ranges::stable_sort(uses, {}, &Use::root);
    }
  }

  // Views, allocations, questions; copies and casts that turned out to be views.
  bool launches_nothing(const Node& op, const Op& row) const {
    if (row.kind == OpKind::kView || row.kind == OpKind::kAllocation ||
        row.kind == OpKind::kQuery) {
      return true;
    }
    if (row.kind != OpKind::kCopy && row.kind != OpKind::kCast) return false;
    const auto in = graph_.inputs(op), out = graph_.outputs(op);
    return !in.empty() && !out.empty() && in[0].kind == Argument::Kind::kTensor &&
           out[0].kind == Argument::Kind::kTensor &&
           tensor(in[0].index).storage_id == tensor(out[0].index).storage_id;
  }

  // The one node of the op's tree that launches a kernel; nothing: several, or one of another kind.
  bool find_launching(std::int32_t index, std::int32_t& found) const {
    const Node& op = graph_.node(index);
    const Op* row = find_op(graph_.name(op));
    if (!row || op.kernel_backend != 0 || op.kernel_time_us >= 0 || op.kernel_time_scale != 1 ||
        op.comm >= 0) {
      return false;
    }
    if (can_be_anchor(*row) && launches_itself(op)) {
      if (found >= 0) return false;
      found = index;
      return true;
    }
    if (launches_nothing(op, *row)) return true;
    if (row->kind != OpKind::kComposite && !can_be_anchor(*row)) return false;
    return std::ranges::all_of(graph_.children(op),
                               [&](std::int32_t child) { return find_launching(child, found); });
  }

  // Nothing below it launches more than views and allocations do.
  bool launches_itself(const Node& op) const {
    return std::ranges::all_of(graph_.children(op), [&](std::int32_t child) {
      const Op* row = find_op(graph_.name(child));
      return row && launches_nothing(graph_.node(child), *row);
    });
  }

  std::optional<AnchorGroup> anchor_at(std::int32_t root) const {
    AnchorGroup group{.root = root};
    if (taken_.contains(root) || !find_launching(root, group.primitive) || group.primitive < 0) {
      return std::nullopt;
    }
    for (const Argument& output : graph_.outputs(group.primitive)) {
      if (output.kind != Argument::Kind::kTensor) continue;
      const Tensor& made = tensor(output.index);
      if (!made.on_gpu() || made.storage_id == 0 || made.numel == 0) return std::nullopt;
      group.result = output.index;
      return group;
    }
    return std::nullopt;
  }

  const std::vector<Use>& uses_of(std::int64_t storage) const { return uses_.at(storage); }

  // The next op behind `root` that uses the storage.
  const Use* next_use(std::int64_t storage, std::int32_t root) const {
    const auto& uses = uses_of(storage);
    const auto at = std::ranges::upper_bound(uses, root, {}, &Use::root);
    return at == uses.end() ? nullptr : &*at;
  }

  bool is_read_after(std::int64_t storage, std::int32_t root) const {
    const Use* use = next_use(storage, root);
    return use && use->reads;
  }

  // Whether the storage changes between two ops, both left out.
  bool is_written_between(std::int64_t storage, std::int32_t first, std::int32_t last) const {
    return std::ranges::any_of(uses_of(storage), [&](const Use& use) {
      return use.root > first && use.root < last && use.writes;
    });
  }

  // Reads of the ops between that would see another value or none are refused by the caller; here:
  // all that the unit reads besides the group's result was there before `since`.
  bool others_were_there(const PointwiseUnit& unit, std::int64_t result, std::int32_t since) const {
    return std::ranges::all_of(unit.inputs, [&](std::uint32_t input) {
      const Tensor& read = tensor(input);
      if (!read.on_gpu() || read.storage_id == result) return true;
      const auto& uses = uses_of(read.storage_id);
      return std::ranges::none_of(uses, [&](const Use& use) {
        return use.root >= since && use.root < unit.root && use.writes;
      });
    });
  }

  void add_epilogues(AnchorGroup& group) {
    std::uint32_t result = group.result;
    std::int32_t last = group.root;
    for (;;) {
      const Tensor& made = tensor(result);
      const Use* use = next_use(made.storage_id, last);
      if (!use || !use->reads || taken_.contains(use->root)) return;
      if (graph_.node(use->root).thread != graph_.node(group.root).thread) return;
      const auto unit = pointwise_unit(graph_, use->root);
      if (!unit) return;
      const Tensor& output = tensor(unit->outputs.front());
      const bool in_place = output.storage_id == made.storage_id;
      if (output.numel != made.numel || output.dtype != made.dtype) return;
      if (!in_place && is_read_after(made.storage_id, unit->root)) return;
      if (!reads_whole(*unit, made)) return;
      if (!others_were_there(*unit, made.storage_id, group.root)) return;
      for (const std::uint32_t input : unit->inputs) {
        if (tensor(input).on_gpu() && tensor(input).storage_id != made.storage_id) {
          group.read.push_back(input);
        }
      }
      group.written.insert(group.written.end(), unit->outputs.begin() + 1, unit->outputs.end());
      group.epilogues.push_back(*unit);
      taken_[unit->root] = true;
      result = unit->outputs.front();
      last = unit->root;
    }
  }

  bool reads_whole(const PointwiseUnit& unit, const Tensor& made) const {
    return std::ranges::all_of(unit.inputs, [&](std::uint32_t input) {
      const Tensor& read = tensor(input);
      return read.storage_id != made.storage_id || read.numel == made.numel;
    });
  }

  // The pointwise op that made an operand which nobody else reads.
  std::optional<PointwiseUnit> producer_of(const AnchorGroup& group, const Tensor& operand) const {
    const auto& uses = uses_of(operand.storage_id);
    auto use = std::ranges::lower_bound(uses, group.root, {}, &Use::root);
    if (use == uses.begin() || use == uses.end() || use->root != group.root) return std::nullopt;
    --use;
    if (!use->writes || use->reads || taken_.contains(use->root)) return std::nullopt;
    if (graph_.node(use->root).thread != graph_.node(group.root).thread) return std::nullopt;
    if (is_read_after(operand.storage_id, group.root)) return std::nullopt;
    const auto unit = pointwise_unit(graph_, use->root);
    if (!unit || unit->outputs.size() != 1 || unit->inputs.empty()) return std::nullopt;
    const Tensor& output = tensor(unit->outputs.front());
    const Tensor& first = tensor(unit->inputs.front());
    const bool like = output.numel == operand.numel && first.on_gpu() &&
                      first.numel == output.numel && first.dtype == output.dtype;
    if (!like) return std::nullopt;
    const bool unchanged = std::ranges::all_of(unit->inputs, [&](std::uint32_t input) {
      const Tensor& read = tensor(input);
      return !read.on_gpu() || !is_written_between(read.storage_id, unit->root, group.root);
    });
    return unchanged ? unit : std::nullopt;
  }

  void add_prologues(AnchorGroup& group) {
    for (const Argument& input : graph_.inputs(group.primitive)) {
      if (input.kind != Argument::Kind::kTensor) continue;
      const Tensor& operand = tensor(input.index);
      if (!operand.on_gpu() || operand.storage_id == 0) continue;
      const auto unit = producer_of(group, operand);
      if (!unit) continue;
      for (std::size_t i = 1; i < unit->inputs.size(); ++i) {
        if (tensor(unit->inputs[i]).on_gpu()) group.read.push_back(unit->inputs[i]);
      }
      group.prologues.push_back(*unit);
      taken_[unit->root] = true;
    }
  }

  const ExecutionGraph& graph_;
  std::vector<std::int32_t> roots_, root_of_;
  std::unordered_map<std::int64_t, std::vector<Use>> uses_;
  std::map<std::int32_t, bool> taken_;  // roots of pointwise ops that are part of a group
};

class GroupWriter {
 public:
  GroupWriter(const ExecutionGraph& graph, const std::vector<AnchorGroup>& groups)
      : source_(graph), edit_(graph), group_of_(graph.nodes.size(), nullptr) {
    for (const AnchorGroup& group : groups) {
      group_of_[group.root] = &group;
      for (const auto* units : {&group.prologues, &group.epilogues}) {
        for (const PointwiseUnit& unit : *units) edit_.replace(unit.root);
      }
    }
    edit_.on_each_copy([this](std::int32_t index, Node&) {
      const std::int32_t parent = source_.node(index).parent;
      if (parent >= 0 && !group_of_[index]) group_of_[index] = group_of_[parent];
      if (group_of_[index]) change(index, *group_of_[index]);
    });
  }

  ExecutionGraph write() { return edit_.write(); }

 private:
  // A tensor of the shape of `shape_of` in the memory of `memory_of`.
  std::uint32_t moved(ExecutionGraph& made, std::uint32_t shape_of, std::uint32_t memory_of) {
    const Tensor memory = made.tensors[memory_of];
    const Tensor shape = made.tensors[shape_of];
    const bool same = std::ranges::equal(made.shape(shape), made.shape(memory));
    if (same) return memory_of;
    const auto [at, is_new] = moved_.try_emplace({shape_of, memory_of}, made.tensors.size());
    if (is_new) {
      Tensor tensor = memory;
      tensor.shape_begin = shape.shape_begin;
      tensor.rank = shape.rank;
      made.tensors.push_back(tensor);
    }
    return static_cast<std::uint32_t>(at->second);
  }

  // Copies a node's arguments with tensors of one storage in the memory of another.
  std::uint32_t with_storage(ExecutionGraph& made, std::uint32_t begin, std::uint32_t count,
                             std::int64_t from, std::uint32_t to,
                             const std::vector<std::uint32_t>& more) {
    std::vector<Argument> changed(made.arguments.begin() + begin,
                                  made.arguments.begin() + begin + count);
    for (Argument& argument : changed) {
      if (argument.kind != Argument::Kind::kTensor) continue;
      if (made.tensors[argument.index].storage_id != from) continue;
      argument.index = moved(made, argument.index, to);
    }
    for (const std::uint32_t tensor : more) {
      changed.push_back({.kind = Argument::Kind::kTensor, .index = tensor});
    }
    const auto at = static_cast<std::uint32_t>(made.arguments.size());
    made.arguments.insert(made.arguments.end(), changed.begin(), changed.end());
    return at;
  }

  void change(std::int32_t index, const AnchorGroup& group) {
    ExecutionGraph& made = edit_.made();
    const auto position = edit_.copy().copied(index);
    const bool is_primitive = index == group.primitive;
    const std::vector<std::uint32_t> none;
    for (const PointwiseUnit& unit : group.prologues) {
      Node& node = made.nodes[position];
      node.inputs_begin =
          with_storage(made, node.inputs_begin, node.inputs_count,
                       source_.tensors[unit.outputs.front()].storage_id, unit.inputs.front(), none);
    }
    const std::uint32_t last =
        group.epilogues.empty() ? group.result : group.epilogues.back().outputs.front();
    const std::int64_t storage = source_.tensors[group.result].storage_id;
    Node& node = made.nodes[position];
    // Views below the op read what the kernel wrote.
    if (index > group.primitive) {
      node.inputs_begin =
          with_storage(made, node.inputs_begin, node.inputs_count, storage, last, none);
    }
    node.outputs_begin = with_storage(made, node.outputs_begin, node.outputs_count, storage, last,
                                      is_primitive ? group.written : none);
    if (!is_primitive) return;
    node.outputs_count += static_cast<std::uint32_t>(group.written.size());
    node.inputs_begin =
        with_storage(made, node.inputs_begin, node.inputs_count, -1, last, group.read);
    node.inputs_count += static_cast<std::uint32_t>(group.read.size());
    std::string backend =
        fmt::format("post_scheduling:{}:{}:_fused", group.read.size(), group.written.size());
    for (const auto* units : {&group.prologues, &group.epilogues}) {
      for (const PointwiseUnit& unit : *units) backend += fmt::format("_{}", unit.name);
    }
    node.kernel_backend = made.names.intern(backend);
  }

  const ExecutionGraph& source_;
  GraphEdit edit_;
  std::vector<const AnchorGroup*> group_of_;  // by node; of roots, then of what is below them
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> moved_;
};

}  // namespace

Result<ExecutionGraph> rewrite_post_scheduling_fusion(const ExecutionGraph& graph) {
  if (auto good = check_nesting(graph); !good) return Unexpected{good.error()};
  const std::vector<AnchorGroup> groups = GroupFinder(graph).find();
  if (groups.empty()) return rewrite_elementwise_fusion(graph);
  return rewrite_elementwise_fusion(GroupWriter(graph, groups).write());
}

}  // namespace perfmodel
