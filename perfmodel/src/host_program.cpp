#include "host_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "add_scale_out.hpp"
#include "host_chain.hpp"
#include "perfmodel/graph/event_names.hpp"

namespace perfmodel {
namespace {

class Writer {
 public:
  Writer(const ExecutionGraph& graph, const Gpu& gpu, const OverheadTable& table,
         const PredictOptions& options)
      : graph_(graph),
        gpu_(gpu),
        table_(table),
        options_(options),
        lowering_(graph, gpu, &table.templates) {}

  Result<HostProgram> write() {
    made_.steps = iterations(graph_);
    if (options_.iterations) {
      const auto [first, last] = *options_.iterations;
      if (first >= last || last > made_.steps.size()) {
        return fail(ErrorCode::kImpossible,
                    fmt::format("expected iterations within 0:{} of {}, found {}:{}",
                                made_.steps.size(), graph_.source, first, last));
      }
      made_.steps = {made_.steps.begin() + static_cast<std::ptrdiff_t>(first),
                     made_.steps.begin() + static_cast<std::ptrdiff_t>(last)};
    }
    if (made_.steps.empty()) {
      return Unexpected{Error{.code = ErrorCode::kImpossible,
                              .message = "expected at least one op, found none",
                              .file = graph_.source}};
    }
    if (!collect_items()) return fail(ErrorCode::kCancelled, "cancelled");
    write_program();
    made_.lowering = lowering_.stats();
    if (options_.scale_out) {
      const auto added = add_scale_out(graph_, gpu_, table_, options_, made_);
      if (!added) return Unexpected{added.error()};
      made_.scaled_out = *added;
    }
    return std::move(made_);
  }

 private:
  // False: cancelled. Lowering is the long part of a prediction.
  bool collect_items() {
    for (std::size_t step = 0; step < made_.steps.size(); ++step) {
      const std::size_t first = made_.items.size();
      label_calls_.clear();
      for (std::int32_t node = made_.steps[step].begin; node < made_.steps[step].end; ++node) {
        const Node& at = graph_.nodes[static_cast<std::size_t>(node)];
        if (at.is_label) {
          add_label_calls(node, static_cast<std::int32_t>(step));
        } else if (is_top_level(at)) {
          if (options_.cancel.stop_requested()) return false;
          made_.items.push_back(
              {.node = node, .thread = at.thread, .iteration = static_cast<std::int32_t>(step)});
          made_.items.back().lowered = lowering_.lower(node);
        }
      }
      for (auto& [after, item] : label_calls_) {
        const auto place = std::upper_bound(
            made_.items.begin() + static_cast<std::ptrdiff_t>(first), made_.items.end(), after,
            [](std::int32_t node, const ProgramItem& other) { return node < other.node; });
        made_.items.insert(place, std::move(item));
      }
    }
    name_phases();
    return true;
  }

  bool is_top_level(const Node& node) const {
    for (std::int32_t i = node.parent; i >= 0;) {
      const Node& parent = graph_.nodes[static_cast<std::size_t>(i)];
      if (!parent.is_label) return false;
      i = parent.parent;
    }
    return true;
  }

  // Calls that a label makes between its children come after the last node of the child before.
  void add_label_calls(std::int32_t node, std::int32_t step) {
    if (!is_top_level(graph_.nodes[static_cast<std::size_t>(node)])) return;
    LoweredOp lowered = lowering_.lower_label(node);
    const auto children = graph_.children(graph_.nodes[static_cast<std::size_t>(node)]);
    for (LoweredCall& call : lowered.calls) {
      std::int32_t after = node;
      if (call.call.after_children > 0 && !children.empty()) {
        const std::size_t before =
            std::min<std::size_t>(call.call.after_children, children.size()) - 1;
        after = last_descendant(children[before]);
      }
      ProgramItem item{
          .node = after,  // keeps the items sorted; the call's own node is in `lowered`
          .thread = graph_.nodes[static_cast<std::size_t>(node)].thread,
          .is_label = true,
          .iteration = step};
      item.lowered.node = node;
      item.lowered.calls.push_back(std::move(call));
      label_calls_.emplace_back(after, std::move(item));
    }
  }

  std::int32_t last_descendant(std::int32_t node) const {
    const auto children = graph_.children(graph_.nodes[static_cast<std::size_t>(node)]);
    return children.empty() ? node : last_descendant(children.back());
  }

  // The outermost label that is no iteration mark. The autograd thread has labels of its own only
  // rarely; its work belongs to the phase that waits for it, if that phase says so in its name.
  std::string_view phase_label(std::int32_t node) const {
    std::string_view label;
    for (std::int32_t i = node; i >= 0; i = graph_.nodes[static_cast<std::size_t>(i)].parent) {
      const Node& at = graph_.nodes[static_cast<std::size_t>(i)];
      const std::string_view name = graph_.name(at);
      const bool mark = name.starts_with("ProfilerStep") || is_checkpoint_name(name);
      if (at.is_label && !at.is_structural && !mark) label = name;
    }
    return label;
  }

  void name_phases() {
    std::map<std::string_view, std::int32_t> known;
    std::string_view main_label;
    std::int32_t main_thread = made_.items.empty() ? 0 : made_.items.front().thread;
    for (ProgramItem& item : made_.items) {
      std::string_view label = phase_label(item.lowered.node);
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

  std::uint64_t name_hash(std::int32_t node) const {
    return graph_.names.hash(graph_.nodes[static_cast<std::size_t>(node)].name);
  }

  void write_program() {
    std::int32_t previous = -1;  // last op item
    std::int32_t last_op = -1, first_op = -1;
    for (std::size_t i = 0; i < made_.items.size(); ++i) {
      if (made_.items[i].is_label) continue;
      if (first_op < 0) first_op = static_cast<std::int32_t>(i);
      last_op = static_cast<std::int32_t>(i);
    }
    if (last_op < 0) return;
    previous = last_op;  // the first op follows the last one of the pass before
    for (std::size_t i = 0; i < made_.items.size(); ++i) {
      current_ = static_cast<std::int32_t>(i);
      ProgramItem& item = made_.items[i];
      if (item.is_label) {
        own_calls(item, nullptr);
        continue;
      }
      const bool border =
          static_cast<std::int32_t>(i) == first_op ||
          item.iteration != made_.items[static_cast<std::size_t>(previous)].iteration;
      gap(made_.items[static_cast<std::size_t>(previous)], item, border);
      op(item);
      previous = static_cast<std::int32_t>(i);
    }
  }

  void gap(const ProgramItem& previous, ProgramItem& item, bool border) {
    const std::int32_t label = label_around(graph_, item.node);
    const std::int32_t before = label_around(graph_, previous.node);
    const GapClass kind = border                           ? GapClass::kIteration
                          : previous.thread != item.thread ? GapClass::kThread
                          : label != before                ? GapClass::kLabel
                                                           : GapClass::kSibling;
    const std::uint64_t context = gap_context(label < 0 ? 0 : name_hash(label),
                                              name_hash(previous.node), name_hash(item.node));
    auto found = table_.t1.find({&context, 1}, gap_class_key(kind));
    if (found.level == KeyLevel::kName && kind == GapClass::kIteration) {
      // What a program does between steps is its own; a mean over programs is ruled by the slowest.
      found.us = table_.t1.by_name.at(gap_class_key(kind)).stats.median_us;
    }
    item.gap_level = found.level;
    if (previous.phase == item.phase) {
      host(Term::kT1, found, item.thread);
      return;
    }
    // The gap closes one phase and opens the next; what lies between them is neither's.
    GapSplit split;
    for (std::uint64_t key : {gap_class_key(kind), context}) {
      if (const auto at = table_.gap_splits.find(key); at != table_.gap_splits.end())
        split = at->second;
    }
    const std::pair<double, std::int32_t> parts[] = {
        {split.tail, previous.phase},
        {1 - split.tail - split.head, made_.rest_phase},
        {split.head, item.phase}};
    for (const auto& [share, phase] : parts) {
      host(Term::kT1, {.us = found.us * share, .level = found.level}, item.thread);
      made_.instructions.back().phase = phase;
    }
  }

  void op(ProgramItem& item) {
    const std::uint64_t name = name_hash(item.node);
    const std::uint64_t subtree = subtree_key(graph_, item.node);
    if (item.lowered.calls.empty()) {
      const auto found = table_.tx.find({&subtree, 1}, name);
      item.op_level = found.level;
      host(Term::kTx, found, item.thread);
      comm_waits(item.node);
      return;
    }
    const auto found = table_.t2.find({&subtree, 1}, name);
    item.op_level = found.level;
    host(Term::kT2, found, item.thread);
    const OpKeys keys{name, subtree};
    own_calls(item, &keys);
    host(Term::kT3, table_.t3.find({&subtree, 1}, name), item.thread);
    comm_waits(item.node);
  }

  struct OpKeys {
    std::uint64_t name, subtree;
  };

  void own_calls(ProgramItem& item, const OpKeys* keys) {
    const std::size_t first = made_.instructions.size(), first_kernel = item.kernels.size();
    std::unordered_map<std::int32_t, std::uint32_t> ordinals;  // device calls per node
    for (std::size_t i = 0; i < item.lowered.calls.size(); ++i) {
      const LoweredCall& call = item.lowered.calls[i];
      if (i > 0 && keys) {
        const std::uint64_t contexts[] = {hash_mix(keys->subtree, i), keys->subtree};
        host(Term::kT5, table_.t5.find(contexts, keys->name), item.thread);
      }
      call_instruction(item, call, ordinals);
    }
    if (has_given_times_) give_times(item, first, first_kernel);
  }

  // Nodes may say what their kernels take; of nested ones the outermost. Factors multiply.
  void give_times(ProgramItem& item, std::size_t first_instruction, std::size_t first_kernel) {
    std::vector<std::int32_t> nodes;  // of the kernels
    for (const LoweredCall& call : item.lowered.calls) {
      if (call.call.kind != TemplateCall::Kind::kSync) nodes.push_back(call.node);
    }
    struct Given {
      double predicted_us = 0;
      int kernels = 0;
    };
    std::unordered_map<std::int32_t, Given> given;  // per node that says so
    std::vector<std::int32_t> givers(nodes.size(), -1);
    for (std::size_t k = 0; k < nodes.size(); ++k) {
      PredictedKernel& kernel = item.kernels[first_kernel + k];
      for (auto i = nodes[k]; i >= 0; i = graph_.nodes[static_cast<std::size_t>(i)].parent) {
        const Node& at = graph_.nodes[static_cast<std::size_t>(i)];
        kernel.given_scale *= at.kernel_time_scale;
        if (at.kernel_time_us >= 0) givers[k] = i;
      }
      if (kernel.given_scale != 1) scale(kernel.price, kernel.given_scale);
      if (givers[k] < 0) continue;
      given[givers[k]].predicted_us += kernel.price.time.count();
      ++given[givers[k]].kernels;
    }
    for (std::size_t k = 0; k < nodes.size(); ++k) {
      if (givers[k] < 0) continue;
      PredictedKernel& kernel = item.kernels[first_kernel + k];
      const auto& [predicted_us, kernels] = given[givers[k]];
      const double share =
          predicted_us > 0 ? kernel.price.time.count() / predicted_us : 1. / kernels;
      const Microseconds time(share *
                              graph_.nodes[static_cast<std::size_t>(givers[k])].kernel_time_us);
      kernel.price = {
          .time = time, .low = time, .high = time, .bound = Bound::kMeasured, .model = "given"};
    }
    for (std::size_t i = first_instruction; i < made_.instructions.size(); ++i) {
      Instruction& at = made_.instructions[i];
      if (at.kernel < 0) continue;
      at.device_us = item.kernels[static_cast<std::size_t>(at.kernel)].price.time.count();
    }
  }

  void call_instruction(ProgramItem& item, const LoweredCall& call,
                        std::unordered_map<std::int32_t, std::uint32_t>& ordinals) {
    Instruction made{.kind = Instruction::Kind::kLaunch,
                     .term = Term::kT4,
                     .op = current_,
                     .thread = item.thread,
                     .stream = call.call.stream};
    if (call.call.kind == TemplateCall::Kind::kSync) {
      made.kind = Instruction::Kind::kSync;
      made.sync = call.call.sync;
      const double idle = sync_us(call.call.call, " idle");
      const double wake = sync_us(call.call.call, " wake");
      made.host_us = std::min(idle, wake);
      made.latency_us = wake - made.host_us;
      made.device_us = idle;  // own time when nothing was awaited
      made_.instructions.push_back(made);
      return;
    }
    const auto own = call_cost(call.call);
    note_level(own.level, own.us);
    made.host_us = own.us;
    made.collective = call.call.collective;
    made.kernel = static_cast<std::int32_t>(item.kernels.size());
    item.kernels.push_back(kernel_of(item, call, ordinals[call.node]++));
    const PredictedKernel& kernel = item.kernels.back();
    made.device_us = kernel.price.time.count();
    made.collective |= kernel.family == KernelFamily::kCollective;
    made.term = made.collective                               ? Term::kCollective
                : call.call.kind == TemplateCall::Kind::kCopy ? Term::kCopy
                : call.call.kind == TemplateCall::Kind::kSet  ? Term::kSet
                                                              : Term::kKernel;
    if (made.collective) {
      const std::int32_t node = comm_node(call.node);
      if (node >= 0) {
        made.comm = graph_.nodes[static_cast<std::size_t>(node)].comm;
        const CommRecord& record = graph_.comm_records[static_cast<std::size_t>(made.comm)];
        made.sequence = record.sequence;
        made.group = group_of(record.process_group);
      }
      if (auto work = comm_work(node)) {
        made.comm_bytes = work->bytes_read.value;
        if (auto* shape = std::get_if<CollectiveShape>(&work->shape);
            shape && shape->world_size <= 1 && shape->ranks.empty() && options_.world_size > 1) {
          shape->world_size = options_.world_size;
        }
        made.comm_work = static_cast<std::int32_t>(made_.comm_works.size());
        made_.comm_works.push_back(std::move(*work));
      }
    }
    if (call.call.blocking) {
      made.kind = Instruction::Kind::kBlockingCopy;
      made.latency_us = call.call.copy == CopyKind::kDeviceToHost
                            ? table_.device.blocking_read_latency_us
                            : table_.device.blocking_write_latency_us;
    } else {
      made.latency_us = made.collective              ? table_.device.collective_latency_us
                        : made.term == Term::kKernel ? table_.device.launch_latency_us
                                                     : table_.device.copy_latency_us;
    }
    made_.instructions.push_back(made);
  }

  std::int32_t group_of(const std::string& process_group) {
    const auto next = static_cast<std::int32_t>(groups_.size());
    return groups_.try_emplace(process_group, next).first->second;
  }

  // A program makes a handful of distinct calls: looking them up by text once is enough.
  OverheadTerm::Found call_cost(const TemplateCall& call) {
    for (const auto& [known, cost] : call_costs_) {
      if (known.kind == call.kind && known.copy == call.copy && known.blocking == call.blocking &&
          known.call == call.call) {
        return cost;
      }
    }
    call_costs_.emplace_back(call, table_.call_us(call_key(call)));
    return call_costs_.back().second;
  }

  double sync_us(const std::string& call, std::string_view state) const {
    for (std::string_view key : {state, std::string_view("")}) {
      const auto at = table_.t4.find(call + std::string(key));
      if (at != table_.t4.end()) return at->second.mean_us;
    }
    return table_.call_us(call).us;
  }

  // The node with the comm record of a call: its own or the nearest above it (nccl:* labels lie
  // inside the record), or -1.
  std::int32_t comm_node(std::int32_t node) const {
    for (; node >= 0; node = graph_.nodes[static_cast<std::size_t>(node)].parent) {
      const Node& at = graph_.nodes[static_cast<std::size_t>(node)];
      if (at.comm >= 0) return node;
      if (at.is_structural) break;
    }
    return -1;
  }

  // What a collective moves, if its record tells; the call may belong to a label inside it.
  std::optional<KernelWork> comm_work(std::int32_t node) const {
    const OpRule* rule = OpRuleRegistry::builtin().find("record_param_comms");
    if (node < 0 || !rule) return {};
    std::vector<KernelWork> work;
    const OpView view{graph_, graph_.nodes[static_cast<std::size_t>(node)], nullptr};
    if (!rule->lower(view, gpu_, work) || work.empty()) return {};
    return std::move(work.front());
  }

  // "wait" records anywhere below the op: the next kernel waits for the collective of that number.
  void comm_waits(std::int32_t node) {
    const Node& at = graph_.nodes[static_cast<std::size_t>(node)];
    if (at.comm >= 0) {
      const CommRecord& record = graph_.comm_records[static_cast<std::size_t>(at.comm)];
      if (record.collective == "wait") {
        made_.instructions.push_back({.kind = Instruction::Kind::kCommWait,
                                      .op = current_,
                                      .thread = at.thread,
                                      .sequence = record.sequence,
                                      .group = group_of(record.process_group)});
      }
    }
    for (std::int32_t child : graph_.children(at)) comm_waits(child);
  }

  PredictedKernel kernel_of(const ProgramItem& item, const LoweredCall& call,
                            std::uint32_t ordinal) {
    PredictedKernel kernel;
    kernel.stream = call.call.stream;
    kernel.inferred = call.inferred;
    KernelWork work;
    if (call.work >= 0) {
      work = item.lowered.work[static_cast<std::size_t>(call.work)];
    } else if (call.call.collective) {
      work.family = KernelFamily::kCollective;
      if (auto recorded = comm_work(comm_node(call.node))) {
        work = std::move(*recorded);
        kernel.inferred = false;
      }
    } else if (call.call.kind == TemplateCall::Kind::kCopy) {
      work.family = KernelFamily::kCopy;
      work.shape = CopyShape{.kind = call.call.copy, .pageable = call.call.pageable};
    } else if (call.call.kind == TemplateCall::Kind::kSet) {
      work.family = KernelFamily::kSet;
    }
    if (auto* shape = std::get_if<CollectiveShape>(&work.shape);
        shape && shape->world_size <= 1 && shape->ranks.empty() && options_.world_size > 1) {
      shape->world_size = options_.world_size;
    }
    if (auto* shape = std::get_if<CopyShape>(&work.shape)) {
      if (!call.call.kernel.empty()) shape->pageable = call.call.pageable;
    }
    kernel.family = work.family;
    kernel.name = call.call.kernel.empty() ? std::string(to_string(work.family)) : call.call.kernel;
    const KernelTimes::Time* traced =
        options_.kernel_times ? options_.kernel_times->find(call.node, ordinal) : nullptr;
    if (traced && (options_.use == KernelTimes::Use::kAll || traced->collective)) {
      kernel.price = {.time = Microseconds{traced->us},
                      .low = Microseconds{traced->us},
                      .high = Microseconds{traced->us},
                      .bound = Bound::kMeasured,
                      .model = "as-traced"};
      if (traced->collective) kernel.family = KernelFamily::kCollective;
      return kernel;
    }
    const bool remembered = options_.prices && work.family != KernelFamily::kCollective;
    kernel.price = remembered ? options_.prices->price(work) : options_.models->price(work, gpu_);
    if (call.call.tasks > 1) {
      scale(kernel.price, call.call.tasks);
    }
    return kernel;
  }

  void host(Term term, const OverheadTerm::Found& found, std::int32_t thread) {
    note_level(found.level, found.us);
    made_.instructions.push_back({.kind = Instruction::Kind::kHost,
                                  .term = term,
                                  .op = current_,
                                  .thread = thread,
                                  .host_us = found.us});
  }

  void note_level(KeyLevel level, double us) {
    made_.coverage.host_us_by_key_level[static_cast<std::size_t>(level)] += us;
  }

  const ExecutionGraph& graph_;
  const Gpu& gpu_;
  const OverheadTable& table_;
  const PredictOptions& options_;
  Lowering lowering_;
  HostProgram made_;
  std::vector<std::pair<std::int32_t, ProgramItem>> label_calls_;  // node that they come after
  std::vector<std::pair<TemplateCall, OverheadTerm::Found>> call_costs_;  // distinct calls so far
  std::map<std::string, std::int32_t> groups_;                            // process groups by order
  std::int32_t current_ = 0;
  bool has_given_times_ = std::any_of(
      graph_.nodes.begin(), graph_.nodes.end(),
      [](const Node& node) { return node.kernel_time_us >= 0 || node.kernel_time_scale != 1; });
};

}  // namespace

void scale(Price& price, double factor) {
  for (Microseconds* time : {&price.time, &price.low, &price.high}) *time *= factor;
}

Result<HostProgram> make_host_program(const ExecutionGraph& graph, const Gpu& gpu,
                                      const OverheadTable& table, const PredictOptions& options) {
  return Writer(graph, gpu, table, options).write();
}

}  // namespace perfmodel
