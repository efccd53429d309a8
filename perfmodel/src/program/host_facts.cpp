#include "host_facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "data_parallel_graph.hpp"
#include "overheads/host_chain.hpp"
#include "overheads/host_kind.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "silent_collectives.hpp"
#include "step/tree_walk.hpp"

namespace perfmodel {
namespace {

class FactsWriter {
 public:
  using Item = HostFacts::Item;

  FactsWriter(const ExecutionGraph& graph, const OverheadTable& table)
      : graph_(graph), table_(table) {}

  Result<HostFacts> write(const std::optional<std::pair<std::size_t, std::size_t>>& window) {
    made_.steps = iterations(graph_);
    if (window) {
      const auto [first, last] = *window;
      if (first >= last || last > made_.steps.size()) {
        return decline(fmt::format("expected iterations within 0:{} of {}, found {}:{}",
                                   made_.steps.size(), graph_.source, first, last));
      }
      made_.steps = {made_.steps.begin() + static_cast<std::ptrdiff_t>(first),
                     made_.steps.begin() + static_cast<std::ptrdiff_t>(last)};
    }
    if (made_.steps.empty()) return no_op();
    made_.lowering = LoweringFacts::of(graph_, &table_.templates);
    made_.compiled = find_compiled_names(graph_, table_);
    made_.own_program = knows_program();
    collect_items();
    if (made_.items.empty()) return no_op();  // all are in ops outside the steps
    name_phases();
    price_host();
    return std::move(made_);
  }

 private:
  Unexpected no_op() const {
    return decline("expected at least one op, found none", graph_.source);
  }

  // Asked before the items are collected, since calls of labels belong to one program.
  bool knows_program() const {
    constexpr double kLeastGaps = 0.75, kLeastOps = 0.95;
    if (!table_.programs.empty()) return false;  // pooled: of no machine
    if (table_.t1.by_context.empty()) return true;
    std::size_t ops = 0, known_gaps = 0, known_ops = 0;
    std::int32_t previous = -1;
    for (const GraphIteration& step : made_.steps) {
      for (std::int32_t node = step.begin; node < step.end; ++node) {
        const Node& at = graph_.node(node);
        if (at.is_label || !is_top_level(at)) continue;
        ++ops;
        const std::uint64_t subtree = subtree_key(graph_, node);
        known_ops +=
            table_.t2.by_context.contains(subtree) || table_.tx.by_context.contains(subtree);
        // The first gap is at the border of the step.
        known_gaps +=
            previous < 0 || table_.t1.by_context.contains(context_between(previous, node));
        previous = node;
      }
    }
    const auto share = [&](std::size_t known) {
      return static_cast<double>(known) / static_cast<double>(ops);
    };
    return ops > 0 && (share(known_gaps) >= kLeastGaps || share(known_ops) >= kLeastOps);
  }

  // `previous` -1: any op, as at the border of a step.
  std::uint64_t context_between(std::int32_t previous, std::int32_t node) const {
    const std::int32_t label = label_around(graph_, node);
    return gap_context(label < 0 ? 0 : name_hash(label), previous < 0 ? 0 : name_hash(previous),
                       name_hash(node));
  }

  void collect_items() {
    for (std::size_t step = 0; step < made_.steps.size(); ++step) {
      const std::size_t first = made_.items.size();
      label_calls_.clear();
      for (std::int32_t node = made_.steps[step].begin; node < made_.steps[step].end; ++node) {
        const Node& at = graph_.node(node);
        if (at.is_label) {
          add_label_calls(node, static_cast<std::int32_t>(step));
        } else if (is_top_level(at)) {
          made_.items.push_back({.node = node,
                                 .subject = node,
                                 .thread = at.thread,
                                 .iteration = static_cast<std::int32_t>(step)});
        }
      }
      for (auto& [after, item] : label_calls_) {
        const auto place = std::upper_bound(
            made_.items.begin() + static_cast<std::ptrdiff_t>(first), made_.items.end(), after,
            [](std::int32_t node, const Item& other) { return node < other.node; });
        made_.items.insert(place, std::move(item));
      }
    }
  }

  bool is_top_level(const Node& node) const {
    const auto is_op = [&](std::int32_t i) { return !graph_.node(i).is_label; };
    return graph_.find_around(node.parent, is_op) < 0;
  }

  // Calls that a label makes between its children come after the last node of the child before.
  void add_label_calls(std::int32_t node, std::int32_t step) {
    const Node& label = graph_.node(node);
    if (!is_top_level(label)) return;
    const auto children = graph_.children(label);
    for (const LoweredCall& call : lower_label(
             graph_, node, made_.own_program ? &table_.templates : nullptr, made_.label_stats)) {
      std::int32_t after = node;
      if (call.after_children > 0 && !children.empty()) {
        const std::size_t before = std::min<std::size_t>(call.after_children, children.size()) - 1;
        after = last_below(graph_, children[before]);
      }
      label_calls_.emplace_back(after, Item{.node = after,  // keeps the items sorted
                                            .subject = node,
                                            .thread = label.thread,
                                            .iteration = step,
                                            .is_label = true,
                                            .calls = {call}});
    }
  }

  // The outermost label that is no iteration mark. The autograd thread has labels of its own only
  // rarely; its work belongs to the phase that waits for it, if that phase says so in its name.
  std::string_view phase_label(std::int32_t node) const {
    std::string_view label;
    for (std::int32_t i = node; i >= 0; i = graph_.node(i).parent) {
      const Node& at = graph_.node(i);
      if (!at.is_label || at.is_structural) continue;
      const std::string_view name = graph_.name(at);
      if (!name.starts_with("ProfilerStep") && !is_checkpoint_name(name)) label = name;
    }
    return label;
  }

  void name_phases() {
    std::map<std::string_view, std::int32_t> known;
    std::string_view main_label;
    std::int32_t main_thread = made_.items.empty() ? 0 : made_.items.front().thread;
    for (Item& item : made_.items) {
      std::string_view label = phase_label(item.subject);
      if (item.thread == main_thread) {
        main_label = label;
      } else if (label.empty()) {
        label = main_label.find("backward") != std::string_view::npos ? main_label : "autograd";
      }
      if (label.empty()) label = "rest";
      const auto [at, added] =
          known.try_emplace(label, static_cast<std::int32_t>(made_.phases.size()));
      if (added) made_.phases.push_back({.label = std::string(label)});
      item.phase = at->second;
    }
    const auto [at, added] =
        known.try_emplace("rest", static_cast<std::int32_t>(made_.phases.size()));
    if (added) made_.phases.push_back({.label = "rest"});
    made_.rest_phase = at->second;
  }

  // Each op follows the one before; the first one of the pass follows the last.
  void price_host() {
    std::int32_t previous = -1;
    for (std::size_t i = 0; i < made_.items.size(); ++i) {
      if (made_.items[i].is_label) continue;
      previous = static_cast<std::int32_t>(i);
      gradients_[made_.items[i].iteration] += runs_gradient(graph_.name(made_.items[i].node));
    }
    bool first = true;
    for (std::size_t i = 0; i < made_.items.size(); ++i) {
      Item& item = made_.items[i];
      if (item.is_label) continue;
      const Item& before = made_.items[previous];
      item.name = name_hash(item.node);
      item.subtree = subtree_key(graph_, item.node);
      item.has_comm_records = !graph_.comm_records.empty() && has_comm_records(item.node);
      item.tensors = list_length(graph_, graph_.node(item.node));
      add_gap(before, item, first || item.iteration != before.iteration);
      item.kind = kind_key(item.node);
      item.t2 = table_.t2.find({&item.subtree, 1}, item.name, item.kind, item.tensors);
      item.t3 = table_.t3.find({&item.subtree, 1}, item.name, item.kind, item.tensors);
      item.tx = table_.tx.find({&item.subtree, 1}, item.name, item.kind, item.tensors);
      previous = static_cast<std::int32_t>(i);
      first = false;
    }
  }

  bool has_comm_records(std::int32_t node) const {
    const Node& at = graph_.node(node);
    return at.comm >= 0 || std::ranges::any_of(graph_.children(at), [this](std::int32_t child) {
             return has_comm_records(child);
           });
  }

  std::uint64_t kind_key(std::int32_t node) {
    const NameId name = graph_.node(node).name;
    const auto [at, added] = kinds_.try_emplace(name, 0);
    if (added) at->second = host_kind_key(graph_.names.text(name));
    return at->second;
  }

  std::uint64_t name_hash(std::int32_t node) const {
    return graph_.names.hash(graph_.node(node).name);
  }

  void add_gap(const Item& previous, Item& item, bool border) {
    const std::int32_t label = label_around(graph_, item.node);
    const std::int32_t before = label_around(graph_, previous.node);
    const bool before_list =
        item.tensors > 0 && table_.t1.by_name.contains(gap_class_key(GapClass::kList));
    const GapClass kind = border                           ? GapClass::kIteration
                          : before_list                    ? GapClass::kList
                          : previous.thread != item.thread ? GapClass::kThread
                          : label != before                ? GapClass::kLabel
                                                           : GapClass::kSibling;
    // Another optimizer at the end of a step does not change the ops after it.
    const std::uint64_t context = context_between(border ? -1 : previous.node, item.node);
    const bool grows = kind == GapClass::kIteration || kind == GapClass::kThread;
    const double length = grows ? gradients_[item.iteration] : item.tensors;
    item.gap = table_.t1.find({&context, 1}, gap_class_key(kind), 0, length, kFixedShareOfGaps);
    if (item.gap.level == KeyLevel::kName && kind == GapClass::kIteration) {
      // A program's work between steps is its own; a mean over programs is ruled by the slowest.
      OverheadStats typical = table_.t1.by_name.at(gap_class_key(kind)).stats;
      typical.mean_us = typical.median_us;
      item.gap.us = typical.at_length(length, table_.t1.all.mean_us, kFixedShareOfGaps);
    }
    item.gap_begin = static_cast<std::uint32_t>(made_.gaps.size());
    if (previous.phase == item.phase) {
      add_gap_part(item.gap.us, -1);
    } else {
      // The gap closes one phase and opens the next; the time between the two belongs to neither.
      GapSplit split;
      for (std::uint64_t key : {gap_class_key(kind), context}) {
        if (const auto at = table_.gap_splits.find(key); at != table_.gap_splits.end()) {
          split = at->second;
        }
      }
      add_gap_part(item.gap.us * split.tail, previous.phase);
      add_gap_part(item.gap.us * (1 - split.tail - split.head), made_.rest_phase);
      add_gap_part(item.gap.us * split.head, item.phase);
    }
    item.gap_count = static_cast<std::uint32_t>(made_.gaps.size()) - item.gap_begin;
  }

  void add_gap_part(double us, std::int32_t phase) {
    made_.gaps.push_back({.term = Term::kT1, .us = us, .phase = phase});
  }

  const ExecutionGraph& graph_;
  const OverheadTable& table_;
  std::vector<std::pair<std::int32_t, Item>> label_calls_;  // node that they come after
  std::unordered_map<NameId, std::uint64_t> kinds_;
  std::unordered_map<std::int32_t, double> gradients_;  // ops of the backward pass, by step
  HostFacts made_;
};

}  // namespace

Result<HostFacts> make_host_times(
    const ExecutionGraph& graph, const OverheadTable& table,
    const std::optional<std::pair<std::size_t, std::size_t>>& window) {
  return FactsWriter(graph, table).write(window);
}

Result<HostFacts> make_host_facts(
    const ExecutionGraph& graph, const OverheadTable& table,
    const std::optional<std::pair<std::size_t, std::size_t>>& window) {
  auto made = make_host_times(graph, table, window);
  if (!made) return made;
  made->awaited = awaited_collectives(graph);
  made->reduces_gradients = reduces_gradients(graph, made->lowering);
  made->fused_updates = fused_updates(graph);
  made->silent_collectives = silent_collectives(graph);
  made->has_given_times = std::ranges::any_of(graph.nodes, [](const Node& node) {
    return node.kernel_time_us >= 0 || node.kernel_time_scale != 1;
  });
  // A trace says too little of its storages to report their memory.
  made->memory =
      std::make_shared<const MemoryPlan>(is_from_trace(graph) ? MemoryPlan{} : memory_plan(graph));
  return made;
}

}  // namespace perfmodel
