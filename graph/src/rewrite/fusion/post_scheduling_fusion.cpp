#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/catalogue.hpp"
#include "perfmodel/graph/rewrites/fusion.hpp"
#include "pointwise_unit.hpp"
#include "rewrite/change_tensors.hpp"
#include "rewrite/graph_edit.hpp"
#include "step/step_view.hpp"

namespace perfmodel {
namespace {

// An op that is not injective, with the pointwise ops that run in its kernel.
struct AnchorGroup {
  std::int32_t root = -1, primitive = -1;  // the op, and the node below it that launches the kernel
  std::uint32_t result = 0;                // tensor of the primitive
  std::vector<PointwiseUnit> prologues, epilogues;
  std::vector<std::uint32_t> read, written;  // tensors that the anchor alone does not use
};

// An op that makes gradients of several tensors runs several kernels under one name.
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
    case OpKind::kIndex: return true;
    default: return false;
  }
}

// Nothing below it launches a kernel.
bool launches_alone(const ExecutionGraph& graph, std::int32_t node) {
  return std::ranges::all_of(graph.children(node),
                             [&](std::int32_t child) { return launches_nothing(graph, child); });
}

// The one node of the op's tree that launches a kernel; false: several, or one of another kind.
bool find_anchor(const ExecutionGraph& graph, std::int32_t index, std::int32_t& found) {
  const Node& node = graph.node(index);
  const Op* op = find_op(graph.name(node));
  if (!op || node.kernel_backend != 0 || node.kernel_time_us >= 0 || node.kernel_time_scale != 1 ||
      node.comm >= 0) {
    return false;
  }
  if (can_be_anchor(*op) && launches_alone(graph, index)) {
    if (found >= 0) return false;
    found = index;
    return true;
  }
  if (launches_nothing(graph, index)) return true;
  if (op->kind != OpKind::kComposite && !can_be_anchor(*op)) return false;
  return std::ranges::all_of(graph.children(node),
                             [&](std::int32_t child) { return find_anchor(graph, child, found); });
}

void add_roots(const ExecutionGraph& graph, std::int32_t region, std::vector<std::int32_t>& roots) {
  for (const std::int32_t child : graph.children(region)) {
    if (is_region(graph, graph.node(child))) {
      add_roots(graph, child, roots);
    } else {
      roots.push_back(child);
    }
  }
}

// How an outermost op uses a storage.
struct RootUse {
  std::int32_t root = -1;  // the op, or a node that is inside of none
  bool reads = false, writes = false;
};

class GroupFinder {
 public:
  explicit GroupFinder(const StepView& step)
      : graph_(step.graph()), is_grouped_(graph_.nodes.size()), uses_(step.storages()) {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) {
      if (graph_.node(i).parent < 0) add_roots(graph_, i, roots_);
    }
    std::ranges::sort(roots_);
    find_uses();
  }

  std::vector<AnchorGroup> find() {
    std::vector<AnchorGroup> groups;
    for (const std::int32_t root : roots_) {
      auto group = anchor_at(root);
      if (!group) continue;
      add_epilogues(*group);
      add_prologues(*group);
      if (group->epilogues.empty() && group->prologues.empty()) continue;
      groups.push_back(std::move(*group));
    }
    return groups;
  }

 private:
  const Tensor& tensor(std::uint32_t index) const { return graph_.tensors[index]; }

  void find_uses() {
    std::vector<std::int32_t> root_of(graph_.nodes.size(), -1);
    for (const std::int32_t root : roots_) root_of[root] = root;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) {
      const std::int32_t parent = graph_.node(i).parent;
      if (root_of[i] < 0 && parent >= 0) root_of[i] = root_of[parent];
      const std::int32_t user = root_of[i] >= 0 ? root_of[i] : i;
      const auto use_of = [&](const Tensor& used) -> RootUse& {
        auto& uses = uses_[used];
        const auto at = std::ranges::lower_bound(uses, user, {}, &RootUse::root);
        return at != uses.end() && at->root == user ? *at : *uses.insert(at, {.root = user});
      };
      // An op that makes a storage does not use what was there.
      for_each_tensor(graph_, graph_.inputs(i), [&](const Tensor& read) {
        RootUse& use = use_of(read);
        use.reads |= !use.writes;
      });
      for_each_tensor(graph_, graph_.outputs(i),
                      [&](const Tensor& written) { use_of(written).writes = true; });
    }
  }

  std::optional<AnchorGroup> anchor_at(std::int32_t root) const {
    AnchorGroup group{.root = root};
    if (is_grouped_[root] || !find_anchor(graph_, root, group.primitive) || group.primitive < 0) {
      return std::nullopt;
    }
    for (const Argument& output : graph_.outputs(group.primitive)) {
      if (output.kind != Argument::Kind::kTensor) continue;
      const Tensor& result = tensor(output.index);
      if (!result.on_gpu() || result.storage_id == 0 || result.numel == 0) return std::nullopt;
      group.result = output.index;
      return group;
    }
    return std::nullopt;
  }

  // Finds the next op after `root` that reads the storage, unless one writes it before.
  const RootUse* next_read(const Tensor& used, std::int32_t root) const {
    const auto& uses = uses_[used];
    const auto at = std::ranges::upper_bound(uses, root, {}, &RootUse::root);
    return at == uses.end() || !at->reads ? nullptr : &*at;
  }

  // Whether an op from `first` on and before `last` writes the storage.
  bool is_written_between(const Tensor& used, std::int32_t first, std::int32_t last) const {
    return std::ranges::any_of(uses_[used], [&](const RootUse& use) {
      return use.root >= first && use.root < last && use.writes;
    });
  }

  std::optional<PointwiseUnit> free_unit(const AnchorGroup& group, std::int32_t root) const {
    const bool same_thread = graph_.node(root).thread == graph_.node(group.root).thread;
    return same_thread && !is_grouped_[root] ? pointwise_unit(graph_, root) : std::nullopt;
  }

  // The pointwise op that reads `made` next can run in the kernel that makes it.
  std::optional<PointwiseUnit> consumer_of(const AnchorGroup& group, const Tensor& made,
                                           std::int32_t last) const {
    const RootUse* use = next_read(made, last);
    auto unit = use ? free_unit(group, use->root) : std::nullopt;
    if (!unit) return std::nullopt;
    const Tensor& output = tensor(unit->outputs.front());
    const bool in_place = output.storage_id == made.storage_id;
    if (output.numel != made.numel || output.dtype != made.dtype) return std::nullopt;
    if (!in_place && next_read(made, unit->root)) return std::nullopt;
    // It reads all of the result, and the rest was there before the anchor.
    const bool can_read = std::ranges::all_of(unit->inputs, [&](std::uint32_t input) {
      const Tensor& read = tensor(input);
      if (read.storage_id == made.storage_id) return read.numel == made.numel;
      return !read.on_gpu() || !is_written_between(read, group.root, unit->root);
    });
    return can_read ? unit : std::nullopt;
  }

  void add_epilogues(AnchorGroup& group) {
    std::uint32_t result = group.result;
    std::int32_t last = group.root;
    while (const auto unit = consumer_of(group, tensor(result), last)) {
      for (const std::uint32_t input : unit->inputs) {
        const bool is_other = tensor(input).storage_id != tensor(result).storage_id;
        if (tensor(input).on_gpu() && is_other) group.read.push_back(input);
      }
      group.written.insert(group.written.end(), unit->outputs.begin() + 1, unit->outputs.end());
      group.epilogues.push_back(*unit);
      is_grouped_[unit->root] = true;
      result = unit->outputs.front();
      last = unit->root;
    }
  }

  // The pointwise op that made an operand, if nothing else reads it.
  std::optional<PointwiseUnit> producer_of(const AnchorGroup& group, const Tensor& operand) const {
    const auto& uses = uses_[operand];
    auto use = std::ranges::lower_bound(uses, group.root, {}, &RootUse::root);
    if (use == uses.begin() || use == uses.end() || use->root != group.root) return std::nullopt;
    --use;
    if (!use->writes || use->reads || next_read(operand, group.root)) return std::nullopt;
    auto unit = free_unit(group, use->root);
    if (!unit || unit->outputs.size() != 1 || unit->inputs.empty()) return std::nullopt;
    const Tensor& output = tensor(unit->outputs.front());
    const Tensor& first = tensor(unit->inputs.front());
    const bool is_like = output.numel == operand.numel && first.on_gpu() &&
                         first.numel == output.numel && first.dtype == output.dtype;
    const bool unchanged = std::ranges::all_of(unit->inputs, [&](std::uint32_t input) {
      return !tensor(input).on_gpu() ||
             !is_written_between(tensor(input), unit->root + 1, group.root);
    });
    return is_like && unchanged ? unit : std::nullopt;
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
      is_grouped_[unit->root] = true;
    }
  }

  const ExecutionGraph& graph_;
  std::vector<std::int32_t> roots_;
  std::vector<bool> is_grouped_;              // by node: a pointwise op that is part of a group
  FactsOfValues<std::vector<RootUse>> uses_;  // by storage, in order
};

class GroupEdit {
 public:
  GroupEdit(const ExecutionGraph& graph, const std::vector<AnchorGroup>& groups)
      : source_(graph), edit_(graph), group_of_(graph.nodes.size(), nullptr) {
    for (const AnchorGroup& group : groups) {
      group_of_[group.root] = &group;
      for (const auto* units : {&group.prologues, &group.epilogues}) {
        for (const PointwiseUnit& unit : *units) edit_.replace(unit.root);
      }
    }
    edit_.on_each_copy([this](std::int32_t node, Node& copy) {
      const std::int32_t parent = source_.node(node).parent;
      if (parent >= 0 && !group_of_[node]) group_of_[node] = group_of_[parent];
      if (group_of_[node]) change(node, *group_of_[node], copy);
    });
  }

  ExecutionGraph write() { return edit_.write(); }

 private:
  // Makes arguments use the storage of `to` instead of `from`; they keep their shapes.
  void move(std::uint32_t begin, std::uint32_t count, std::uint32_t from, std::uint32_t to) {
    change_tensors(edit_.made(), begin, count, [&](Tensor& mention) {
      if (mention.storage_id != source_.tensors[from].storage_id) return;
      Tensor moved = source_.tensors[to];
      moved.shape_begin = mention.shape_begin;
      moved.rank = mention.rank;
      mention = moved;
    });
  }

  void append(std::uint32_t& begin, std::uint32_t& count,
              const std::vector<std::uint32_t>& tensors) {
    std::vector<Argument>& pool = edit_.made().arguments;
    std::vector<Argument> arguments(pool.begin() + begin, pool.begin() + begin + count);
    for (const std::uint32_t tensor : tensors) {
      arguments.push_back({.kind = Argument::Kind::kTensor, .index = tensor});
    }
    begin = static_cast<std::uint32_t>(pool.size());
    count = static_cast<std::uint32_t>(arguments.size());
    pool.insert(pool.end(), arguments.begin(), arguments.end());
  }

  void change(std::int32_t node, const AnchorGroup& group, Node& copy) {
    own_arguments(edit_.builder(), copy);
    for (const PointwiseUnit& unit : group.prologues) {
      move(copy.inputs_begin, copy.inputs_count, unit.outputs.front(), unit.inputs.front());
    }
    const std::uint32_t last =
        group.epilogues.empty() ? group.result : group.epilogues.back().outputs.front();
    // Views below the op read what the kernel wrote.
    if (node > group.primitive) move(copy.inputs_begin, copy.inputs_count, group.result, last);
    move(copy.outputs_begin, copy.outputs_count, group.result, last);
    if (node != group.primitive) return;
    append(copy.outputs_begin, copy.outputs_count, group.written);
    append(copy.inputs_begin, copy.inputs_count, group.read);
    std::string backend =
        fmt::format("post_scheduling:{}:{}:_fused", group.read.size(), group.written.size());
    for (const auto* units : {&group.prologues, &group.epilogues}) {
      for (const PointwiseUnit& unit : *units) backend += fmt::format("_{}", unit.name);
    }
    copy.kernel_backend = edit_.made().names.intern(backend);
  }

  const ExecutionGraph& source_;
  GraphEdit edit_;
  std::vector<const AnchorGroup*> group_of_;  // by node; of roots, then of what is below them
};

}  // namespace

Result<ExecutionGraph> rewrite_post_scheduling_fusion(const ExecutionGraph& graph) {
  if (auto good = check_nesting(graph); !good) return Unexpected{good.error()};
  const StepView step(graph);
  const std::vector<AnchorGroup> groups = GroupFinder(step).find();
  auto made = groups.empty() ? rewrite_elementwise_fusion(graph)
                             : rewrite_elementwise_fusion(GroupEdit(step.graph(), groups).write());
  if (!made || made->nodes.size() == graph.nodes.size()) return made;
  return rewrite_post_scheduling_fusion(*made);  // a view that is gone reads no result any more
}

}  // namespace perfmodel
