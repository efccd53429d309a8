#include "host_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>

#include "add_scale_out.hpp"

namespace perfmodel {
namespace {

// All that the host does itself; what it waits for, and latencies on the device's side, stay.
void scale_host(HostProgram& program, double factor) {
  for (Instruction& at : program.instructions) {
    at.host_us *= factor;
    if (at.kind != Instruction::Kind::kSync) continue;
    at.device_us *= factor;
    at.latency_us *= factor;
  }
  for (double& us : program.coverage.host_us_by_key_level) us *= factor;
}

TemplateUse template_use(const HostFacts& facts, const OverheadTable& table, const Gpu& gpu) {
  const bool same_machine = table.gpu.empty() || recorded_beside(table, gpu);
  return facts.own_program && same_machine ? TemplateUse::kCallsAndWork : TemplateUse::kCalls;
}

class Writer {
 public:
  Writer(const ExecutionGraph& graph, const Gpu& gpu, const OverheadTable& table,
         const HostFacts& facts, const PredictOptions& options, bool name_kernels)
      : graph_(graph),
        gpu_(gpu),
        table_(table),
        facts_(facts),
        options_(options),
        name_kernels_(name_kernels),
        lowering_(graph, gpu, &table.templates, facts.lowering, template_use(facts, table, gpu)) {}

  Result<HostProgram> write() {
    made_.steps = facts_.steps;
    made_.phases = facts_.phases;
    made_.rest_phase = facts_.rest_phase;
    made_.items.reserve(facts_.items.size());
    for (const HostFacts::Item& item : facts_.items) {
      if (options_.cancel.stop_requested()) return fail(ErrorCode::kCancelled, "cancelled");
      add_item(item);
    }
    inferred_waits(std::numeric_limits<std::int32_t>::max());
    made_.coverage.own_launches = template_use(facts_, table_, gpu_) == TemplateUse::kCallsAndWork;
    made_.lowering = lowering_.stats();
    for (std::size_t level = 0; level < kTemplateLevels; ++level) {
      made_.lowering.nodes_by_level[level] += facts_.label_stats.nodes_by_level[level];
    }
    if (options_.scale_out) {
      const auto added =
          add_scale_out(graph_, gpu_, table_, options_, facts_.reduces_gradients, made_);
      if (!added) return Unexpected{added.error()};
      made_.scaled_out = *added;
    }
    if (options_.host_scale != 1) scale_host(made_, options_.host_scale);
    if (auto good = check_times(); !good) return Unexpected{good.error()};
    return std::move(made_);
  }

 private:
  Result<void> check_times() const {
    for (const Instruction& at : made_.instructions) {
      const ProgramItem& item = made_.items[static_cast<std::size_t>(at.op)];
      const Node& node = graph_.nodes[static_cast<std::size_t>(item.subject)];
      for (const double us : {at.host_us, at.device_us, at.latency_us}) {
        auto good = check_time(us, item.title.empty() ? graph_.name(node) : item.title, node);
        if (!good) return good;
      }
    }
    return {};
  }

  void add_item(const HostFacts::Item& facts) {
    current_ = static_cast<std::int32_t>(made_.items.size());
    ProgramItem& item = made_.items.emplace_back(ProgramItem{.node = facts.node,
                                                             .subject = facts.subject,
                                                             .thread = facts.thread,
                                                             .phase = facts.phase,
                                                             .is_label = facts.is_label,
                                                             .iteration = facts.iteration,
                                                             .gap_level = facts.gap.level});
    if (facts.is_label) {
      lowered_.work.clear();
      own_calls(item, facts.calls, nullptr);
      return;
    }
    inferred_waits(facts.node - 1);
    for (std::uint32_t i = 0; i < facts.gap_count; ++i) {
      const Instruction& gap = facts_.gaps[facts.gap_begin + i];
      note_level(facts.gap.level, gap.host_us);
      made_.instructions.push_back(gap);
    }
    lowering_.lower(facts.node, lowered_);
    op(item, facts);
  }

  void op(ProgramItem& item, const HostFacts::Item& facts) {
    waits_.clear();
    next_comm_wait_ = 0;
    if (facts.has_comm_records) find_comm_waits(item.node);
    if (lowered_.calls.empty()) {
      item.op_level = facts.tx.level;
      host(Term::kTx, facts.tx, item.thread);
    } else {
      item.op_level = facts.t2.level;
      host(Term::kT2, facts.t2, item.thread);
      own_calls(item, lowered_.calls, &facts);
      host(Term::kT3, facts.t3, item.thread);
    }
    comm_waits(std::numeric_limits<std::int32_t>::max());
  }

  // `keys`: of the op; null for labels, between whose calls lie other ops.
  void own_calls(ProgramItem& item, const std::vector<LoweredCall>& calls,
                 const HostFacts::Item* keys) {
    const std::size_t first = made_.instructions.size(), first_kernel = item.kernels.size();
    item.kernels.reserve(calls.size());
    ordinals_.clear();
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (i > 0 && keys) {
        const std::uint64_t contexts[] = {hash_mix(keys->subtree, i), keys->subtree};
        host(Term::kT5, table_.t5.find(contexts, keys->name, keys->tensors), item.thread);
      }
      if (keys) inferred_waits(calls[i].node);
      if (keys) comm_waits(last_node_before(calls[i]));
      call_instruction(item, calls[i]);
    }
    if (facts_.has_given_times) give_times(item, calls, first, first_kernel);
  }

  // Nodes may say what their kernels take; of nested ones the outermost. Factors multiply.
  void give_times(ProgramItem& item, const std::vector<LoweredCall>& calls,
                  std::size_t first_instruction, std::size_t first_kernel) {
    std::vector<std::int32_t> nodes;  // of the kernels
    for (const LoweredCall& call : calls) {
      if (call.call->kind != TemplateCall::Kind::kSync) nodes.push_back(call.node);
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

  void call_instruction(ProgramItem& item, const LoweredCall& lowered) {
    const TemplateCall& call = *lowered.call;
    Instruction made{.kind = Instruction::Kind::kLaunch,
                     .term = Term::kT4,
                     .op = current_,
                     .thread = item.thread,
                     .stream = lowered.stream()};
    if (call.kind == TemplateCall::Kind::kSync) {
      made.kind = Instruction::Kind::kSync;
      made.sync = call.sync;
      const double idle = sync_us(call.call, " idle");
      const double wake = sync_us(call.call, " wake");
      made.host_us = std::min(idle, wake);
      made.latency_us = wake - made.host_us;
      made.device_us = idle;  // own time when nothing was awaited
      made_.instructions.push_back(made);
      return;
    }
    wait_for_copies(lowered);
    const auto own = call_cost(call);
    note_level(own.level, own.us);
    made.host_us = own.us;
    made.collective = call.collective;
    made.node = lowered.node;
    made.kernel = static_cast<std::int32_t>(item.kernels.size());
    item.kernels.push_back(kernel_of(lowered));
    const PredictedKernel& kernel = item.kernels.back();
    made.device_us = kernel.price.time.count();
    made.collective |= kernel.family == KernelFamily::kCollective;
    made.term = made.collective                          ? Term::kCollective
                : call.kind == TemplateCall::Kind::kCopy ? Term::kCopy
                : call.kind == TemplateCall::Kind::kSet  ? Term::kSet
                                                         : Term::kKernel;
    if (made.collective) {
      const std::int32_t node = comm_node(lowered.node);
      if (node >= 0) {
        made.record = node;
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
    if (made.term == Term::kCopy) note_copy(lowered, made);
    if (call.blocking) {
      made.kind = Instruction::Kind::kBlockingCopy;
      made.latency_us = call.copy == CopyKind::kDeviceToHost
                            ? table_.device.blocking_read_latency_us
                            : table_.device.blocking_write_latency_us;
    } else {
      made.latency_us = made.collective              ? table_.device.collective_latency_us
                        : made.term == Term::kKernel ? table_.device.launch_latency_us
                                                     : table_.device.copy_latency_us;
    }
    made_.instructions.push_back(made);
  }

  // Who reads what a copy on another stream writes has waited for it, in ways that no graph
  // records.
  void note_copy(const LoweredCall& lowered, Instruction& made) {
    const Node& node = graph_.nodes[static_cast<std::size_t>(lowered.node)];
    const auto note = [&](const Tensor& tensor) {
      if (!tensor.on_gpu() || tensor.storage_id == 0) return;
      copied_.erase(tensor.storage_id);
      if (made.stream == 0) return;
      made.record = lowered.node;
      copied_[tensor.storage_id] = {lowered.node, made.stream};
    };
    for_each_tensor(graph_, graph_.outputs(node), note);
    const auto inputs = graph_.inputs(node);
    if (!inputs.empty()) for_each_tensor(graph_, inputs.first(1), note);  // copy_(self, source)
  }

  void wait_for_copies(const LoweredCall& lowered) {
    if (copied_.empty()) return;
    const Node& node = graph_.nodes[static_cast<std::size_t>(lowered.node)];
    for_each_tensor(graph_, graph_.inputs(node), [&](const Tensor& tensor) {
      const auto copy = copied_.find(tensor.storage_id);
      if (copy == copied_.end() || copy->second.node == lowered.node ||
          copy->second.stream == lowered.stream()) {
        return;
      }
      made_.instructions.push_back({.kind = Instruction::Kind::kCommWait,
                                    .op = current_,
                                    .thread = node.thread,
                                    .record = copy->second.node});
      copied_.erase(copy);
    });
  }

  std::int32_t group_of(const std::string& process_group) {
    const auto next = static_cast<std::int32_t>(groups_.size());
    return groups_.try_emplace(process_group, next).first->second;
  }

  // A program makes a handful of distinct calls: looking them up by text once is enough.
  OverheadTerm::Found call_cost(const TemplateCall& call) {
    for (const auto& [known, cost] : call_costs_) {
      if (known == &call) return cost;
    }
    for (const auto& [known, cost] : call_costs_) {
      if (known->kind == call.kind && known->copy == call.copy &&
          known->blocking == call.blocking && known->call == call.call) {
        return call_costs_.emplace_back(&call, cost).second;
      }
    }
    return call_costs_.emplace_back(&call, table_.call_us(call_key(call))).second;
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

  // "wait" records anywhere below the op.
  void find_comm_waits(std::int32_t node) {
    const Node& at = graph_.nodes[static_cast<std::size_t>(node)];
    if (at.comm >= 0 &&
        graph_.comm_records[static_cast<std::size_t>(at.comm)].collective == "wait") {
      waits_.push_back(node);
    }
    for (std::int32_t child : graph_.children(at)) find_comm_waits(child);
  }

  // The last node that has ended when a call is made: calls may stand behind children of their
  // node.
  std::int32_t last_node_before(const LoweredCall& call) const {
    const auto children = graph_.children(graph_.nodes[static_cast<std::size_t>(call.node)]);
    if (call.after_children == 0 || children.empty()) return call.node;
    std::int32_t last = children[std::min<std::size_t>(call.after_children, children.size()) - 1];
    for (;;) {
      const auto below = graph_.children(graph_.nodes[static_cast<std::size_t>(last)]);
      if (below.empty()) return last;
      last = below.back();
    }
  }

  // The next kernel behind a "wait" record waits for the collective of that number.
  void comm_waits(std::int32_t last) {
    for (; next_comm_wait_ < waits_.size() && waits_[next_comm_wait_] <= last; ++next_comm_wait_) {
      const Node& at = graph_.nodes[static_cast<std::size_t>(waits_[next_comm_wait_])];
      const CommRecord& record = graph_.comm_records[static_cast<std::size_t>(at.comm)];
      made_.instructions.push_back({.kind = Instruction::Kind::kCommWait,
                                    .op = current_,
                                    .thread = at.thread,
                                    .sequence = record.sequence,
                                    .group = group_of(record.process_group)});
    }
  }

  // Those that nodes up to `last` stand for and that are not written yet.
  void inferred_waits(std::int32_t last) {
    const auto& awaited = facts_.awaited;
    for (; next_wait_ < awaited.size() && awaited[next_wait_].reader <= last; ++next_wait_) {
      const AwaitedCollective& at = awaited[next_wait_];
      made_.instructions.push_back(
          {.kind = Instruction::Kind::kCommWait,
           .op = current_,
           .thread = graph_.nodes[static_cast<std::size_t>(at.reader)].thread,
           .record = at.record});
    }
  }

  KernelWork work_of(const LoweredCall& lowered, PredictedKernel& kernel) {
    const TemplateCall& call = *lowered.call;
    KernelWork work;
    if (lowered.work >= 0) {
      work = std::move(lowered_.work[static_cast<std::size_t>(lowered.work)]);
    } else if (call.collective) {
      work.family = KernelFamily::kCollective;
      if (auto recorded = comm_work(comm_node(lowered.node))) {
        work = std::move(*recorded);
        kernel.inferred = false;
      }
    } else if (call.kind == TemplateCall::Kind::kCopy) {
      work.family = KernelFamily::kCopy;
      work.shape = CopyShape{.kind = call.copy, .pageable = call.pageable};
    } else if (call.kind == TemplateCall::Kind::kSet) {
      work.family = KernelFamily::kSet;
    }
    if (auto* shape = std::get_if<CollectiveShape>(&work.shape);
        shape && shape->world_size <= 1 && shape->ranks.empty() && options_.world_size > 1) {
      shape->world_size = options_.world_size;
    }
    if (auto* shape = std::get_if<CopyShape>(&work.shape)) {
      if (!call.kernel.empty()) shape->pageable = call.pageable;
    }
    return work;
  }

  // Of work that no template names: copies and collectives as recordings call them.
  static std::string name_of(const TemplateCall& call, const KernelWork& work) {
    if (const auto* shape = std::get_if<CollectiveShape>(&work.shape)) return "nccl:" + shape->kind;
    if (call.kind != TemplateCall::Kind::kCopy) return std::string(to_string(work.family));
    switch (call.copy) {
      case CopyKind::kHostToDevice:
        return "Memcpy HtoD";
      case CopyKind::kDeviceToHost:
        return "Memcpy DtoH";
      case CopyKind::kDeviceToDevice:
        return "Memcpy DtoD";
      case CopyKind::kPeer:
        return "Memcpy PtoP";
    }
    return std::string(to_string(work.family));
  }

  PredictedKernel kernel_of(const LoweredCall& lowered) {
    const TemplateCall& call = *lowered.call;
    PredictedKernel kernel{.stream = lowered.stream(), .inferred = lowered.inferred};
    const KernelWork work = work_of(lowered, kernel);
    kernel.family = work.family;
    if (call.kind != TemplateCall::Kind::kKernel) kernel.copied_bytes = work.bytes_written.value;
    const KernelTimes::Time* traced = nullptr;
    if (options_.kernel_times) {
      traced = options_.kernel_times->find(lowered.node, ordinals_[lowered.node]++);
    }
    const bool as_traced = traced && (options_.use == KernelTimes::Use::kAll || traced->collective);
    const bool collective = call.collective || work.family == KernelFamily::kCollective ||
                            (as_traced && traced->collective);
    if (name_kernels_ || collective) {  // collectives meet by their names
      kernel.name = call.kernel.empty() ? name_of(call, work) : call.kernel;
    }
    if (as_traced) {
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
    if (call.tasks > 1) scale(kernel.price, call.tasks);
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
  const HostFacts& facts_;
  const PredictOptions& options_;
  const bool name_kernels_;
  Lowering lowering_;
  LoweredOp lowered_;  // of the item at hand
  HostProgram made_;
  std::unordered_map<std::int32_t, std::uint32_t> ordinals_;  // device calls per node of the item
  std::vector<std::pair<const TemplateCall*, OverheadTerm::Found>> call_costs_;  // calls so far
  std::map<std::string, std::int32_t> groups_;  // process groups by order
  struct Copy {
    std::int32_t node = -1;
    std::int32_t stream = 0;
  };
  std::unordered_map<std::int64_t, Copy> copied_;  // on other streams than the main one, by storage
  std::vector<std::int32_t> waits_;                // "wait" records of the item at hand, in order
  std::size_t next_comm_wait_ = 0;
  std::size_t next_wait_ = 0;  // into `facts_.awaited`
  std::int32_t current_ = 0;
};

}  // namespace

void scale(Price& price, double factor) {
  for (Microseconds* time : {&price.time, &price.low, &price.high}) *time *= factor;
}

Result<void> check_time(double us, std::string_view op, const Node& node) {
  constexpr double kLongestUs = 1e15;  // thirty years
  if (std::abs(us) <= kLongestUs) return {};
  return fail(ErrorCode::kImpossible,
              fmt::format("expected a time of at most {:g} us, found {} us in \"{}\" (node {})",
                          kLongestUs, us, op, node.id));
}

Result<HostProgram> make_host_program(const ExecutionGraph& graph, const Gpu& gpu,
                                      const OverheadTable& table, const HostFacts& facts,
                                      const PredictOptions& options, bool name_kernels) {
  return Writer(graph, gpu, table, facts, options, name_kernels).write();
}

}  // namespace perfmodel
