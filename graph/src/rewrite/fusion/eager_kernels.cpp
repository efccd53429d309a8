#include "eager_kernels.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "base/contains.hpp"
#include "eager_stretches.hpp"
#include "loop_kernels.hpp"
#include "loop_rules.hpp"
#include "ops/catalogue.hpp"
#include "step/tensor_arguments.hpp"
#include "step/tree_walk.hpp"

namespace perfmodel {
namespace {

using Parts = std::span<const StretchPart>;

/// Finds the kernels of stretches with Inductor's scheduler. All ops of a kernel run where the
/// first one ran. A stretch is cut in front of an op that cannot: something that stays between
/// writes what it reads or reads what it writes.
class StretchFuser {
 public:
  explicit StretchFuser(const StepView& step)
      : step_(step), graph_(step.graph()), loops_(step), is_inside_(graph_.nodes.size()) {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) {
      const Op* op = find_op(graph_.name(i));
      if (op && op->kind == OpKind::kView) follow_view(loops_, i);
    }
  }

  void fuse(Parts stretch) {
    while (!stretch.empty()) {
      std::size_t count = stretch.size();
      while (const auto cut = fuse_all(stretch.first(count))) count = *cut;
      made_.was_cut |= count < stretch.size();
      stretch = stretch.subspan(count);
    }
  }

  EagerFusion finish() { return std::move(made_); }

 private:
  enum class Fate : std::uint8_t { kStays, kGone, kPlace };  // kPlace: a kernel is there instead

  const Tensor& tensor(std::uint32_t index) const { return graph_.tensors[index]; }
  std::int32_t storage(std::uint32_t index) const { return step_.storages().of(tensor(index)); }
  std::uint32_t root(std::uint32_t index) const { return loops_.root(tensor(index)); }

  LoopGraph& loops() { return loops_.graph(); }

  // Where the stretch must end instead; none: its kernels are noted.
  std::optional<std::size_t> fuse_all(Parts parts) {
    loops_.restart();
    part_of_op_.clear();
    known_as_.clear();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (!parts[i].unit) continue;
      if (sees_other_tensor(*parts[i].unit)) return i;
      add_loop(*parts[i].unit);
      part_of_op_.push_back(i);
    }
    mark(parts, true);
    const std::vector<LoopKernel> kernels = scheduled();
    mark(parts, false);
    for (const LoopKernel& kernel : kernels) {
      if (const auto cut = part_that_cannot_move(parts, kernel)) return cut;
    }
    return note(parts, kernels);
  }

  // Memory that the stretch knows as a tensor to which no view leads, or writes as a view.
  bool sees_other_tensor(const PointwiseUnit& unit) {
    const auto is_other_root = [&](std::uint32_t index) {
      const std::int32_t value = loops_.last_value(tensor(index));
      return value >= 0 && tensor(loops().values[value].tensor).id != tensor(root(index)).id;
    };
    const auto is_other_view = [&](std::uint32_t index) {
      const auto known = known_as_.find(storage(index));
      return known != known_as_.end() && known->second != std::set{tensor(index).id};
    };
    return std::ranges::any_of(unit.inputs, is_other_root) ||
           std::ranges::any_of(unit.outputs, is_other_view);
  }

  void add_loop(const PointwiseUnit& unit) {
    LoopOp op{.name = std::string(unit.name),
              .node = unit.root,
              .rows = tensor(unit.outputs.front()).numel};
    for (const std::uint32_t input : unit.inputs) {
      if (!data_of(&tensor(input))) continue;
      known_as_[storage(input)].insert(tensor(input).id);
      op.reads.push_back(loops_.read(tensor(input)));
    }
    for (const std::uint32_t output : unit.outputs) {
      known_as_[storage(output)].insert(tensor(output).id);
      op.writes.push_back(loops_.write(tensor(output)).value);
    }
    loops_.add(std::move(op));
  }

  // Marks the nodes that may be removed together with the results that they read.
  void mark(Parts parts, bool inside) {
    for (const StretchPart& part : parts) {
      for (std::int32_t at = graph_.node(part.node).parent; at >= 0; at = graph_.node(at).parent) {
        if (!only_calls_others(graph_, at)) break;
        is_inside_[at] = inside;
      }
      if (part.is_function) {
        if (part.end > parts.size()) continue;
        is_inside_[part.node] = inside;
        for (const std::int32_t child : graph_.children(part.node)) is_inside_[child] = inside;
      } else if (part.unit || is_view(part)) {
        walk_tree(
            graph_, part.node, [&](std::int32_t node) { return is_inside_[node] = inside, true; },
            [] {});
      }
    }
  }
  bool is_view(const StretchPart& part) const {
    const Tensor* result = data_of(output_at(graph_, part.node));
    const auto gives = [&](const Tensor* of) { return of->storage_id == result->storage_id; };
    return result && std::ranges::any_of(data_of(graph_, graph_.inputs(part.node)), gives);
  }
  bool is_outside(std::int32_t node) const {
    const Node& of = graph_.node(node);
    return !is_inside_[node] && !of.is_label && !of.is_structural;
  }

  // Kernels of several ops.
  std::vector<LoopKernel> scheduled() {
    const LoopGraph& graph = loops();
    std::vector<bool> is_output;
    for (std::size_t i = 0; i < graph.values.size(); ++i) is_output.push_back(stays(i));
    std::vector<std::int32_t> ops(graph.ops.size());
    std::iota(ops.begin(), ops.end(), 0);
    std::vector<LoopKernel> kernels = loop_kernels(graph, ops, is_output);
    std::erase_if(kernels, [](const LoopKernel& kernel) {
      return kernel.computed.size() < 2 || kernel.writes.empty();
    });
    return kernels;
  }

  // Whether the program goes on with the value, or nothing reads it at all.
  bool stays(std::size_t index) {
    const LoopValue& value = loops().values[index];
    if (value.made_by < 0) return false;
    if (value.readers.empty()) return true;
    const Tensor& mention = tensor(value.tensor);
    if (loops_.last_value(mention) != static_cast<std::int32_t>(index)) return false;
    const std::int32_t storage = step_.storages().of(mention),
                       maker = step_.storages().maker(storage);
    return maker < 0 || is_outside(maker) ||
           std::ranges::any_of(step_.storages().readers(storage),
                               [&](std::int32_t reader) { return is_outside(reader); });
  }

  // The first op that an op outside of the kernel keeps in its place.
  std::optional<std::size_t> part_that_cannot_move(Parts parts, const LoopKernel& kernel) const {
    std::set<std::int32_t> read, written;
    std::size_t next = part_of_op_[kernel.computed.front()];
    for (const std::int32_t op : kernel.computed) {
      const std::size_t own = part_of_op_[op];
      for (; next < own; ++next) note_uses(parts[next], read, written);
      next = own + 1;
      const auto is_in = [&](const std::set<std::int32_t>& storages) {
        return [&](std::uint32_t mention) { return storages.contains(storage(mention)); };
      };
      const PointwiseUnit& unit = *parts[own].unit;
      const bool is_kept = std::ranges::any_of(unit.inputs, is_in(written)) ||
                           std::ranges::any_of(unit.outputs, is_in(written)) ||
                           std::ranges::any_of(unit.outputs, is_in(read));
      if (is_kept) return own;
    }
    return std::nullopt;
  }
  void note_uses(const StretchPart& part, std::set<std::int32_t>& read,
                 std::set<std::int32_t>& written) const {
    if (part.is_function || (!part.unit && is_view(part))) return;
    const auto add_to = [&](std::set<std::int32_t>& storages) {
      return [&](const Tensor& used) { storages.insert(step_.storages().of(used)); };
    };
    for_each_tensor(graph_, graph_.inputs(part.node), add_to(read));
    for_each_tensor(graph_, graph_.outputs(part.node), add_to(written));
  }

  // Notes kernels and the nodes removed with them, or returns the function that would read a
  // removed result.
  std::optional<std::size_t> note(Parts parts, const std::vector<LoopKernel>& kernels) {
    std::vector<Fate> fates(parts.size(), Fate::kStays);
    std::set<std::int32_t> gone;  // storages
    for (const LoopKernel& kernel : kernels) {
      for (const std::int32_t op : kernel.computed) {
        Fate& fate = fates[part_of_op_[op]];
        if (fate != Fate::kPlace) fate = Fate::kGone;
        for (const std::uint32_t made : parts[part_of_op_[op]].unit->outputs) {
          gone.insert(storage(made));
        }
      }
      fates[part_of_op_[kernel.computed.front()]] = Fate::kPlace;
    }
    for (const LoopKernel& kernel : kernels) {
      for (const std::int32_t written : kernel.writes) {
        gone.erase(storage(loops().values[written].tensor));
      }
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (!parts[i].unit || fates[i] != Fate::kStays) continue;
      for (const std::uint32_t made : parts[i].unit->outputs) gone.erase(storage(made));
    }
    if (const auto cut = decide(parts, gone, fates)) return cut;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (fates[i] != Fate::kStays) made_.gone.push_back(parts[i].node);
    }
    for (const LoopKernel& kernel : kernels) made_.kernels.push_back(eager_kernel(parts, kernel));
    return std::nullopt;
  }

  // The fate of views and functions.
  std::optional<std::size_t> decide(Parts parts, const std::set<std::int32_t>& gone,
                                    std::vector<Fate>& fates) const {
    const auto reads_gone = [&](std::int32_t node) {
      bool found = false;
      for_each_tensor(graph_, graph_.inputs(node), [&](const Tensor& read) {
        found |= gone.contains(step_.storages().of(read));
      });
      return found;
    };
    for (std::size_t i = parts.size(); i-- > 0;) {
      const StretchPart& part = parts[i];
      if (part.unit || part.end > parts.size()) continue;
      bool is_gone = reads_gone(part.node);
      if (part.is_function) {
        const auto inside = std::span(fates).subspan(i + 1, part.end - i - 1);
        const bool stays = std::ranges::any_of(inside, [](Fate f) { return f != Fate::kGone; });
        for (const std::int32_t child : graph_.children(part.node)) is_gone |= reads_gone(child);
        if (stays && is_gone && i > 0) return i;
        is_gone = !stays && (is_gone || !inside.empty());
      }
      if (is_gone) fates[i] = Fate::kGone;
    }
    return std::nullopt;
  }

  EagerKernel eager_kernel(Parts parts, const LoopKernel& kernel) {
    EagerKernel made{.elements = kernel.rows};
    for (const std::int32_t op : kernel.computed) {
      const PointwiseUnit& unit = *parts[part_of_op_[op]].unit;
      made.units.push_back(unit);
      std::size_t read = 0;
      for (const std::uint32_t input : unit.inputs) {
        if (!data_of(&tensor(input))) continue;
        const LoopValue& value = loops().values[loops().ops[op].reads[read++].value];
        if (!contains(kernel.computed, value.made_by)) add_mention(made.reads, input);
      }
      for (std::size_t i = 0; i < unit.outputs.size(); ++i) {
        const bool is_written = contains(kernel.writes, loops().ops[op].writes[i]);
        if (is_written) add_mention(made.writes, unit.outputs[i]);
      }
    }
    return made;
  }
  void add_mention(std::vector<std::uint32_t>& mentions, std::uint32_t index) {
    const auto is_same = [&](std::uint32_t other) {
      const Tensor &a = tensor(index), &b = tensor(other);
      return storage(index) == storage(other) && a.offset == b.offset && a.numel == b.numel;
    };
    if (std::ranges::any_of(mentions, is_same)) return;
    mentions.push_back(index);
    if (root(index) != index) made_.views.emplace_back(index, root(index));
  }

  const StepView& step_;
  const ExecutionGraph& graph_;
  LoopBuilder loops_;
  std::vector<bool> is_inside_;                              // by node
  std::vector<std::size_t> part_of_op_;                      // for each loop op
  std::map<std::int32_t, std::set<std::int64_t>> known_as_;  // by storage: ids of its tensors
  EagerFusion made_;
};

}  // namespace

EagerFusion eager_kernels(const StepView& step) {
  StretchFuser fuser(step);
  for (const Stretch& stretch : eager_stretches(step.graph())) fuser.fuse(stretch);
  return fuser.finish();
}

}  // namespace perfmodel
