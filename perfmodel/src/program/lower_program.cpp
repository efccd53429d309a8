#include "lower_program.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/stop_point.hpp"
#include "call_costs.hpp"
#include "call_work.hpp"
#include "launch_regions.hpp"
#include "side_copies.hpp"

namespace perfmodel {
namespace {

// `Launch::record` of kernels whose waits a trace knows: larger than any node.
constexpr std::int32_t kFirstKernelRecord = 1 << 30;

constexpr std::int32_t kLastNode = std::numeric_limits<std::int32_t>::max();

// The question, and its answer so far.
struct Writing {
  const ExecutionGraph& graph;
  const Gpu& gpu;
  const OverheadTable& table;
  const HostFacts& facts;
  const PredictOptions& options;
  const bool name_kernels;
  Lowering lowering;
  LoweredProgram made = {};
  LoweredOp lowered = {};  // the current item
  CallCosts costs{table};
  CompiledCode compiled{graph, facts.compiled};
  SideCopies copies{graph};
  std::map<std::string, std::int32_t> groups = {};                // process groups by order
  std::unordered_map<std::int32_t, std::uint32_t> ordinals = {};  // calls per node of the item
  // The same for labels, which have other items between their calls.
  std::unordered_map<std::int32_t, std::uint32_t> label_ordinals = {};
  std::map<KernelTimes::Call, std::int32_t> traced_kernels = {};  // into the program's kernels
  std::vector<std::int32_t> waits = {};  // "wait" records of the item, from `next_wait` on to write
  std::size_t next_wait = 0;
  std::size_t next_inferred = 0;  // into `facts.awaited`
  std::int32_t earlier_work = 0;  // work of rules for earlier items
};

TemplateUse template_use(const HostFacts& facts, const OverheadTable& table, const Gpu& gpu) {
  const bool calls_and_work =
      facts.own_program && (table.gpu.empty() || recorded_beside(table, gpu));
  return calls_and_work ? TemplateUse::kCallsAndWork : TemplateUse::kCalls;
}

void add(Writing& to, std::int32_t thread, decltype(Instruction::what) what) {
  const auto item = static_cast<std::int32_t>(to.made.program.items.size()) - 1;
  to.made.program.instructions.push_back({.item = item, .thread = thread, .what = std::move(what)});
}

void note_level(Writing& to, KeyLevel level, double us) {
  to.made.program.coverage.host_us_by_key_level[static_cast<std::size_t>(level)] += us;
}

void add_host(Writing& to, Term term, const OverheadTerm::Found& found, std::int32_t thread) {
  note_level(to, found.level, found.us);
  add(to, thread, HostWork{.term = term, .us = found.us});
}

std::int32_t group_of(Writing& to, const std::string& process_group) {
  const auto next = static_cast<std::int32_t>(to.groups.size());
  return to.groups.try_emplace(process_group, next).first->second;
}

// The next kernel after a "wait" record waits for the collective of that number.
void add_recorded_waits(Writing& to, std::int32_t last) {
  for (; to.next_wait < to.waits.size() && to.waits[to.next_wait] <= last; ++to.next_wait) {
    const Node& at = to.graph.node(to.waits[to.next_wait]);
    const CommRecord& record = to.graph.comm_records[at.comm];
    add(to, at.thread,
        DeviceWait{.sequence = record.sequence, .group = group_of(to, record.process_group)});
  }
}

// Waits of nodes up to `last` that are not written yet.
void add_inferred_waits(Writing& to, std::int32_t last) {
  const auto& awaited = to.facts.awaited;
  for (; to.next_inferred < awaited.size() && awaited[to.next_inferred].reader <= last;
       ++to.next_inferred) {
    const AwaitedCollective& at = awaited[to.next_inferred];
    add(to, to.graph.node(at.reader).thread, DeviceWait{.record = at.record});
  }
}

// Null: the models are asked.
const KernelTimes::Time* find_traced(Writing& to, std::int32_t node, bool priced) {
  const PredictOptions& options = to.options;
  if (!options.kernel_times) return nullptr;
  const KernelTimes::Time* traced = options.kernel_times->find(node, to.ordinals[node]++);
  // A fake process group leaves kernels of no length.
  if (!traced || (traced->collective && traced->us <= 0)) return nullptr;
  switch (options.use) {
    case KernelTimes::Use::kAll: return traced;
    case KernelTimes::Use::kComm: return traced->collective ? traced : nullptr;
    case KernelTimes::Use::kUnpriced:
      return priced && !(traced->collective && options.keeps_recorded_waits()) ? nullptr : traced;
  }
  return nullptr;
}

// Growth of the node since it was traced; 1 if it has no sizes.
double traced_growth(const ExecutionGraph& graph, std::int32_t node,
                     const KernelTimes::Time* traced) {
  if (!traced || traced->input_bytes <= 0) return 1;
  const double bytes = input_bytes(graph, node);
  return bytes > 0 ? bytes / traced->input_bytes : 1;
}

bool is_part(const Writing& to, const LoweredCall& call) {
  return call.work >= 0 && to.lowered.work[call.work].family == KernelFamily::kPart;
}

// Whether the node has one call, or several of which all but one are parts of its kernel.
bool is_alone(const Writing& to, std::int32_t node) {
  return 1 == std::ranges::count_if(to.lowered.calls, [&](const LoweredCall& call) {
           return call.node == node && !is_part(to, call);
         });
}

// Time of all traced kernels of the node over the first one's. A rule gives one kernel even if a
// library sets memory first or sums parts afterwards: that kernel takes the time of all of them.
double traced_parts(const Writing& to, const LoweredCall& lowered,
                    const KernelTimes::Time* traced) {
  if (!traced || traced->us <= 0 || lowered.work < 0 || !is_alone(to, lowered.node)) return 1;
  double us = 0;
  for (std::uint32_t i = 0; const auto* part = to.options.kernel_times->find(lowered.node, i);
       ++i) {
    us += part->us;
  }
  return us / traced->us;
}

// The kernel without its price, and the question for that. Collectives meet by their names.
std::int32_t add_kernel(Writing& to, const LoweredCall& lowered) {
  const TemplateCall& call = *lowered.call;
  const std::int32_t rule_work = lowered.work >= 0 ? to.earlier_work + lowered.work : -1;
  LaunchedWork made = launched_work(to.graph, to.gpu, lowered, to.lowered, to.options.world_size);
  const bool priced = lowered.work >= 0 || made.work.family == KernelFamily::kCollective;
  const bool is_told = is_part(to, lowered) && is_alone(to, lowered.node);
  const KernelTimes::Time* traced = is_told ? nullptr : find_traced(to, lowered.node, priced);
  PredictedKernel kernel{
      .family = made.work.family, .stream = lowered.stream(), .inferred = made.inferred};
  if (traced && traced->collective) kernel.family = KernelFamily::kCollective;
  if (call.kind != TemplateCall::Kind::kKernel) {
    kernel.copied_bytes = made.work.bytes_written.value;
  }
  // The recorded name gives the family of a kernel that no rule knows.
  const bool unknown = kernel.family == KernelFamily::kSmall && !call.kernel.empty();
  if (traced && unknown && call.kind == TemplateCall::Kind::kKernel) {
    kernel.family = kernel_family_of_name(call.kernel).value_or(kernel.family);
  }
  if (to.name_kernels || call.collective || kernel.family == KernelFamily::kCollective) {
    kernel.name = work_name(to.graph, lowered, made.work);
  }
  to.made.questions.push_back(
      {.work = std::move(made.work),
       .node = lowered.node,
       .tasks = call.tasks,
       .traced = traced,
       .growth = traced_growth(to.graph, lowered.node, traced) * traced_parts(to, lowered, traced),
       .rule_work = rule_work});
  HostProgram& program = to.made.program;
  program.kernels.push_back(std::move(kernel));
  ++program.items.back().kernels;
  return static_cast<std::int32_t>(program.kernels.size()) - 1;
}

CollectiveLaunch collective_launch(Writing& to, std::int32_t comm_node) {
  CollectiveLaunch made;
  if (comm_node >= 0) {
    made.comm = to.graph.node(comm_node).comm;
    const CommRecord& record = to.graph.comm_records[made.comm];
    made.sequence = record.sequence;
    made.group = group_of(to, record.process_group);
  }
  if (auto work = comm_work(to.graph, to.gpu, comm_node, to.options.world_size)) {
    made.bytes = work->bytes_read.value;
    made.work = static_cast<std::int32_t>(to.made.program.comm_works.size());
    to.made.program.comm_works.push_back(std::move(*work));
  }
  return made;
}

bool is_aside(const KernelWork& work) {
  const auto* copy = std::get_if<CopyShape>(&work.shape);
  return copy && copy->aside;
}

// A traced kernel waits for the same kernels as in the trace.
void add_traced_waits(Writing& to, std::int32_t thread, Launch& launch) {
  const KernelTimes* times = to.options.kernel_times;
  const KernelTimes::Time* traced = to.made.questions.back().traced;
  if (!times || !times->has_waits() || !traced || launch.record >= 0) return;
  const std::uint32_t ordinal = to.ordinals[launch.node] - 1;
  to.traced_kernels[{launch.node, ordinal}] = launch.kernel;
  launch.record = kFirstKernelRecord + launch.kernel;
  launch.gap_us = traced->gap_us;
  for (const KernelTimes::Wait& wait : traced->waits) {
    const auto at = to.traced_kernels.find(wait.call);
    if (at == to.traced_kernels.end()) continue;
    add(to, thread, DeviceWait{.record = kFirstKernelRecord + at->second, .lag_us = wait.lag_us});
  }
}

// Adds the launches of a library that starts the kernels of many steps, which are one piece of work
// here. They overlap with the host's further calls, so these follow the first one. Templates know
// each call.
void add_further_launches(Writing& to, const LoweredCall& lowered, const OverheadTerm::Found& own,
                          std::int32_t thread) {
  if (!lowered.call->kernel.empty()) return;
  const double launches = launches_of_library(to.made.questions.back().work, to.gpu);
  if (launches <= 1) return;
  const double us = (launches - 1) * own.us;
  note_level(to, own.level, us);
  add(to, thread, HostWork{.term = Term::kT4, .us = us});
}

// `own`: the host's time for the call.
void add_launch(Writing& to, const LoweredCall& lowered, const OverheadTerm::Found& own,
                std::int32_t thread) {
  const TemplateCall& call = *lowered.call;
  for (std::int32_t copy : to.copies.take_awaited(lowered)) {
    add(to, to.graph.node(lowered.node).thread, DeviceWait{.record = copy});
  }
  note_level(to, own.level, own.us);
  if (call.tasks == 0) {
    find_traced(to, lowered.node, true);  // it counts among the calls of the node
    add(to, thread, HostWork{.term = Term::kT4, .us = own.us});
    return;
  }
  Launch made{.blocking = call.blocking,
              .stream = lowered.stream(),
              .host_us = own.us,
              .kernel = add_kernel(to, lowered),
              .node = lowered.node};
  const bool collective =
      call.collective || to.made.program.kernel(made).family == KernelFamily::kCollective;
  made.term = device_term(call, collective);
  if (collective) {
    made.record = comm_node(to.graph, lowered.node);
    made.collective = to.made.program.add(collective_launch(to, made.record));
  }
  made.aside = is_aside(to.made.questions.back().work);
  const bool noted =
      made.term == Term::kCopy &&
      (made.aside ? to.copies.note_aside(lowered.node, lowered.stream()) : to.copies.note(lowered));
  if (noted) made.record = lowered.node;
  made.latency_us = launch_latency_us(call, made.term, to.table);
  add_traced_waits(to, thread, made);
  if (to.made.program.kernel(made).family == KernelFamily::kPart) made.gap_us = 0;
  add(to, thread, std::move(made));
  add_further_launches(to, lowered, own, thread);
}

void add_call(Writing& to, const LoweredCall& lowered, std::int32_t thread) {
  const TemplateCall& call = *lowered.call;
  if (call.kind != TemplateCall::Kind::kSync) {
    // The host's time for an op includes its parts: a larger product has fewer, and may not be
    // cheaper for the host.
    const OverheadTerm::Found none{.us = 0, .level = KeyLevel::kKind};
    return add_launch(to, lowered, is_part(to, lowered) ? none : to.costs.find(call), thread);
  }
  const SyncCost cost = sync_cost(to.table, call.call);
  add(to, thread,
      Synchronisation{.kind = call.sync,
                      .stream = lowered.stream(),
                      .host_us = cost.host_us,
                      .latency_us = cost.latency_us});
}

// Other ops are between the calls of a label.
void add_calls_of_label(Writing& to, const HostFacts::Item& item) {
  std::swap(to.ordinals, to.label_ordinals);
  to.lowered.work.clear();
  for (const LoweredCall& call : item.calls) add_call(to, call, item.thread);
  std::swap(to.ordinals, to.label_ordinals);
}

void add_calls_of_op(Writing& to, const HostFacts::Item& item) {
  to.ordinals.clear();
  const auto& calls = to.lowered.calls;
  for (std::size_t i = 0, place = 0; i < calls.size(); ++i) {
    if (!is_part(to, calls[i]) && place++ > 0) {
      const std::uint64_t contexts[] = {hash_mix(item.subtree, place - 1), item.subtree};
      add_host(to, Term::kT5, to.table.t5.find(contexts, item.name, item.kind, item.tensors),
               item.thread);
    }
    add_inferred_waits(to, calls[i].node);
    add_recorded_waits(to, last_node_before(to.graph, calls[i]));
    add_call(to, calls[i], item.thread);
  }
}

// The first call of a captured graph launches all of it.
void add_call_of_graph(Writing& to, std::span<const LoweredCall> calls, std::size_t at,
                       bool is_first, std::int32_t thread) {
  const LoweredCall& call = calls[at];
  if (call.call->kind == TemplateCall::Kind::kSync) return add_call(to, call, thread);
  OverheadTerm::Found own{.us = 0, .level = KeyLevel::kKind};
  if (is_first) {
    const std::int32_t replay = to.compiled.replay_around(call.node);
    const auto launches = std::ranges::count_if(calls.subspan(at), [&](const LoweredCall& other) {
      return to.compiled.replay_around(other.node) == replay;
    });
    own.us = graph_launch_us(to.table, static_cast<std::size_t>(launches));
  }
  add_launch(to, call, own, thread);
}

void add_calls_of_region(Writing& to, const HostFacts::Item& item) {
  to.ordinals.clear();
  const auto& calls = to.lowered.calls;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const bool is_captured = to.compiled.replay_around(calls[i].node) >= 0;
    const auto gap = i > 0 && !is_part(to, calls[i])
                         ? to.compiled.between(calls[i - 1].node, calls[i].node)
                         : std::nullopt;
    if (gap) add_host(to, Term::kT5, *gap, item.thread);
    add_inferred_waits(to, calls[i].node);
    add_recorded_waits(to, last_node_before(to.graph, calls[i]));
    if (is_captured) {
      add_call_of_graph(to, calls, i, i == 0 || gap, item.thread);
    } else {
      add_call(to, calls[i], item.thread);
    }
  }
}

void add_body(Writing& to, const HostFacts::Item& item) {
  const bool compiled = to.compiled.runs(item.node, item.t2);
  const auto t2 = compiled ? to.compiled.before(item.node) : item.t2;
  to.made.program.items.back().op_level = t2.level;
  add_host(to, Term::kT2, t2, item.thread);
  compiled ? add_calls_of_region(to, item) : add_calls_of_op(to, item);
  add_host(to, Term::kT3, compiled ? to.compiled.after(item.node) : item.t3, item.thread);
}

void add_op(Writing& to, const HostFacts::Item& item) {
  add_inferred_waits(to, item.node - 1);
  for (std::uint32_t i = 0; i < item.gap_count; ++i) {
    const HostWork& gap = to.facts.gaps[item.gap_begin + i];
    note_level(to, item.gap.level, gap.us);
    add(to, item.thread, gap);
  }
  to.lowering.lower(item.node, to.lowered);
  to.waits.clear();
  to.next_wait = 0;
  if (item.has_comm_records) find_recorded_waits(to.graph, item.node, to.waits);
  if (to.lowered.calls.empty()) {
    for (std::int32_t copy : to.copies.take_released(item.node)) {
      add(to, item.thread, DeviceWait{.record = copy});
    }
    to.made.program.items.back().op_level = item.tx.level;
    add_host(to, Term::kTx, item.tx, item.thread);
  } else {
    add_body(to, item);
  }
  to.earlier_work += static_cast<std::int32_t>(to.lowered.work.size());
  add_recorded_waits(to, kLastNode);
}

// Whether only the work of kernels depends on sizes.
bool depends_on_work_alone(const LoweredProgram& made) {
  return made.notes->complete && std::ranges::none_of(made.program.instructions, collective_of) &&
         std::ranges::none_of(made.questions, [](const KernelQuestion& question) {
           return std::holds_alternative<RecurrentShape>(question.work.shape);
         });
}

void add_item(Writing& to, const HostFacts::Item& item) {
  HostProgram& program = to.made.program;
  program.items.push_back({.node = item.node,
                           .subject = item.subject,
                           .thread = item.thread,
                           .phase = item.phase,
                           .is_label = item.is_label,
                           .iteration = item.iteration,
                           .first_kernel = static_cast<std::uint32_t>(program.kernels.size()),
                           .gap_level = item.gap.level});
  item.is_label ? add_calls_of_label(to, item) : add_op(to, item);
}

}  // namespace

Result<LoweredProgram> lower_program(const ExecutionGraph& graph, const Gpu& gpu,
                                     const OverheadTable& table, const HostFacts& facts,
                                     const PredictOptions& options, bool name_kernels,
                                     bool write_notes) {
  const TemplateUse use = template_use(facts, table, gpu);
  Writing to{.graph = graph,
             .gpu = gpu,
             .table = table,
             .facts = facts,
             .options = options,
             .name_kernels = name_kernels,
             .lowering = Lowering(graph, gpu, &table.templates, facts.lowering, use)};
  if (write_notes && use == TemplateUse::kCalls) {
    to.lowering.write_notes(to.made.notes.emplace());
  }
  HostProgram& program = to.made.program;
  program.steps = facts.steps;
  program.phases = facts.phases;
  program.rest_phase = facts.rest_phase;
  to.made.nodes_say_times = facts.has_given_times;
  program.items.reserve(facts.items.size());
  program.instructions.reserve(5 * facts.items.size());  // a gap, two terms, and launches of an op
  program.kernels.reserve(2 * facts.items.size());
  to.made.questions.reserve(2 * facts.items.size());
  for (const HostFacts::Item& item : facts.items) {
    if (options.cancel.stop_requested()) return fail(ErrorCode::kCancelled, "cancelled");
    stop_point();
    add_item(to, item);
  }
  add_inferred_waits(to, kLastNode);
  program.coverage.own_launches = use == TemplateUse::kCallsAndWork;
  program.coverage.own_pace = program.coverage.own_launches && !table.without_collector;
  program.lowering = to.lowering.stats();
  for (std::size_t level = 0; level < kTemplateLevels; ++level) {
    program.lowering.nodes_by_level[level] += facts.label_stats.nodes_by_level[level];
  }
  if (to.made.notes && !depends_on_work_alone(to.made)) to.made.notes.reset();
  return std::move(to.made);
}

bool lower_again(const ExecutionGraph& graph, const Gpu& gpu, const OverheadTable& table,
                 const HostFacts& facts, const std::vector<bool>* reshaped, LoweredProgram& last) {
  std::vector<KernelWork> work;
  work.reserve(last.questions.size());
  Lowering lowering(graph, gpu, &table.templates, facts.lowering, TemplateUse::kCalls);
  if (!lowering.repeat(*last.notes, reshaped, work)) return false;
  for (std::size_t i = 0; i < last.questions.size(); ++i) {
    PredictedKernel& kernel = last.program.kernels[i];
    kernel.limited_us = kernel.beside_us = 0;
    const std::int32_t own = last.questions[i].rule_work;
    if (own < 0) continue;
    KernelWork& now = last.questions[i].work = std::move(work[own]);
    const bool is_kernel = last.notes->kernels[own].call->kind == TemplateCall::Kind::kKernel;
    if (!is_kernel) kernel.copied_bytes = now.bytes_written.value;
  }
  last.program.slowest_board_us = 0;
  return true;
}

}  // namespace perfmodel
