#include "analyze/predicted_step.hpp"

#include <algorithm>
#include <set>

#include "perfmodel/graph/detail/event_names.hpp"
#include "predict/paced_path.hpp"
#include "trace/op_work.hpp"

namespace perfmodel::findings {
namespace {

using TaskId = TaskGraph::TaskId;

std::string_view name_of_wait(const Instruction& at) {
  const auto* sync = std::get_if<Synchronisation>(&at.what);
  if (!sync) return "blocking copy";
  switch (sync->kind) {
    case SyncKind::kDevice: return "device synchronise";
    case SyncKind::kEvent: return "event synchronise";
    default: return "stream synchronise";
  }
}

}  // namespace

Result<std::unique_ptr<PredictedStep>> PredictedStep::create(const RankInput& rank,
                                                             const Gpu& gpu) {
  if (rank.table->method == OverheadMethod::kLin) {
    return decline("expected overheads of method context to schedule repairs, found method lin");
  }
  PERFMODEL_TRY(paced, paced_program(rank, gpu, /*keep_questions=*/true));
  std::unique_ptr<PredictedStep> made(new PredictedStep(std::move(*paced)));
  PERFMODEL_TRY_TO(made->find_facts(gpu));
  made->paced_.rank.questions.clear();  // each schedule copies the program
  return made;
}

// Labels around an op, outermost first; each begins with the first op in it.
std::int32_t PredictedStep::label_of(std::int32_t node, double start_us, std::int32_t thread) {
  const ExecutionGraph& graph = paced_.rank.graph();
  node = graph.find_around(node, [&](std::int32_t i) { return graph.node(i).is_label; });
  if (node < 0) return -1;
  if (const auto known = labels_.find(node); known != labels_.end()) return known->second;
  const Node& label = graph.node(node);
  if (is_structural_name(graph.name(label))) return label_of(label.parent, start_us, thread);
  const std::int32_t parent = label_of(label.parent, start_us, thread);
  const auto own = static_cast<std::int32_t>(facts_.ops.size());
  facts_.ops.push_back({.name = graph.name(label),
                        .parent = parent,
                        .thread = thread,
                        .start_us = start_us,
                        .end_us = start_us,
                        .is_label = true});
  return labels_[node] = own;
}

std::int32_t PredictedStep::op_of_item(std::int32_t index, double start_us) {
  std::int32_t& op = op_of_item_[index];
  if (op >= 0) return op;
  const ExecutionGraph& graph = paced_.rank.graph();
  const ProgramItem& item = paced_.rank.program.item(index);
  const std::int32_t parent =
      item.node < 0 ? -1 : label_of(graph.node(item.node).parent, start_us, item.thread);
  op = static_cast<std::int32_t>(facts_.ops.size());
  facts_.ops.push_back({.name = name_of(item, graph),
                        .parent = parent,
                        .thread = item.thread,
                        .start_us = start_us,
                        .end_us = start_us,
                        .is_label = item.is_label});
  return op;
}

// The ops between the top-level op and the node that makes the call.
std::int32_t PredictedStep::op_of_node(std::int32_t node, std::int32_t top_node,
                                       std::int32_t top_op, double start_us) {
  if (node < 0 || node == top_node) return top_op;
  if (const auto known = inner_.find(node); known != inner_.end()) return known->second;
  const ExecutionGraph& graph = paced_.rank.graph();
  const Node& at = graph.node(node);
  if (at.parent < 0) return top_op;
  const std::int32_t parent = op_of_node(at.parent, top_node, top_op, start_us);
  const auto own = static_cast<std::int32_t>(facts_.ops.size());
  facts_.ops.push_back({.name = graph.name(at),
                        .parent = parent,
                        .thread = facts_.ops[top_op].thread,
                        .start_us = start_us,
                        .end_us = start_us,
                        .is_label = at.is_label});
  return inner_[node] = own;
}

Result<void> PredictedStep::find_facts(const Gpu& gpu) {
  const RankProgram& rank = paced_.rank;
  const HostProgram& program = rank.program;
  JobTasks tasks({&rank, 1}, paced_.meetings);
  std::vector<std::string> told_by_predict;
  PERFMODEL_TRY_TO(find_steady_state({&rank, 1}, tasks, told_by_predict));
  const ProgramTasks& own = *tasks.ranks[0];
  const double begin = tasks.end(own.pass_ends()[own.pass_ends().size() - 2]);
  facts_.steps = program.steps.size();
  facts_.step_begins_us = {0};
  for (std::size_t i = 0; i + 1 < program.steps.size(); ++i) {
    facts_.step_begins_us.push_back(tasks.end(own.iteration_ends()[i]) - begin);
  }
  facts_.span_us = pass_us(tasks, 0);
  facts_.device_memory_bytes = gpu.usable_memory().value;
  op_of_item_.assign(program.items.size(), -1);
  op_of_instruction_.assign(program.instructions.size(), -1);

  std::unordered_map<std::int32_t, double> launch_us;      // per instruction
  const auto reach = [&](std::int32_t op, double until) {  // an op ends with its last call
    for (; op >= 0; op = facts_.ops[op].parent) {
      double& end = facts_.ops[op].end_us;
      end = std::max(end, until);
    }
  };
  double before = begin;
  for (const auto& placed : own.last_pass()) {
    if (own.on_device(placed.task)) continue;
    const Instruction& at = program.instructions[placed.instruction];
    const double us = tasks.graph.duration_us(placed.task);
    const double start = tasks.start(placed.task) - begin, end = start + us;
    const HostWork* work = std::get_if<HostWork>(&at.what);
    const bool is_gap = work && work->term == Term::kT1;
    const std::int32_t top = op_of_item(at.item, is_gap ? end : start);
    std::int32_t op = top;
    if (const Launch* launch = launch_of(at)) {
      op = op_of_node(launch->node, program.item(at.item).node, top, start);
      launch_us[placed.instruction] += us;
    }
    op_of_instruction_[placed.instruction] = op;
    OpFact& fact = facts_.ops[op];
    (is_gap ? fact.gap_us : fact.host_us) += us;
    if (!is_gap) reach(op, end);
    const TaskId bound = tasks.schedule.bound_by[placed.task];
    const double waited = tasks.start(placed.task) - before;
    if (bound >= 0 && own.on_device(bound) && waited > 0) {
      facts_.waits.push_back(
          {.call = name_of_wait(at), .op = op, .start_us = before - begin, .wait_us = waited});
      instruction_of_wait_.push_back(static_cast<std::size_t>(placed.instruction));
      fact.wait_us += waited;
    }
    before = tasks.end(placed.task);
  }
  // If the host runs ahead, the device does this pass's work when the host is passes further on:
  // its times count from the begin of its own pass.
  const auto& ends = paced_ends(tasks, 0);
  const double device_begin = std::max(begin, tasks.end(ends[ends.size() - 2]));
  for (const auto& placed : own.last_pass()) {
    if (!own.on_device(placed.task)) continue;
    const Instruction& at = program.instructions[placed.instruction];
    const Launch& launch = std::get<Launch>(at.what);
    const PredictedKernel& predicted = program.kernel(launch);
    const double start = tasks.start(placed.arrival);
    KernelFact kernel{.name = predicted.name,
                      .family = predicted.family,
                      .op = op_of_instruction_[placed.instruction],
                      .stream = own.stream_of(placed.task),
                      .start_us = start - device_begin,
                      .time_us = tasks.end(placed.task) - start,
                      .low_us = predicted.price.low.count(),
                      .high_us = predicted.price.high.count(),
                      .launch_us = launch_us[placed.instruction],
                      .copied_bytes = predicted.copied_bytes,
                      .model = predicted.price.model,
                      .bound = to_string(predicted.price.bound),
                      .in_range = predicted.price.in_range};
    const auto index = static_cast<std::size_t>(launch.kernel);
    if (index < rank.questions.size()) {
      kernel.work = rank.questions[index].work;
      kernel.roofline_us = least_us(*kernel.work, gpu);
      if (const auto* copy = std::get_if<CopyShape>(&kernel.work->shape)) {
        kernel.copy = copy->kind;
        kernel.pageable = copy->pageable;
      }
    }
    if (launch.is_collective()) {
      kernel.kind = DeviceKind::kCollective;
      kernel.copied_bytes = std::max(0.0, rank.program.collective(launch).bytes);
    } else if (launch.term == Term::kCopy) {
      kernel.kind = DeviceKind::kCopy;
    } else if (launch.term == Term::kSet) {
      kernel.kind = DeviceKind::kSet;
    }
    facts_.kernels.push_back(std::move(kernel));
    instruction_of_kernel_.push_back(static_cast<std::size_t>(placed.instruction));
  }
  find_path(tasks);
  find_memory();
  return {};
}

// Reads the memory that the ops of the first step make; the other steps are alike.
void PredictedStep::find_memory() {
  const ExecutionGraph& graph = paced_.rank.graph();
  std::unordered_map<std::int32_t, std::int32_t> op_of_node(inner_);
  for (std::size_t item = 0; item < op_of_item_.size(); ++item) {
    const std::int32_t node = paced_.rank.program.item(static_cast<std::int32_t>(item)).node;
    if (op_of_item_[item] >= 0 && node >= 0) op_of_node.try_emplace(node, op_of_item_[item]);
  }
  const StorageLifetimes& lifetimes = paced_.rank.memory->lifetimes;
  if (lifetimes.device != Device::Kind::kGpu) return;
  for (const StorageLifetime& storage : lifetimes.storages) {
    const std::int32_t node =
        graph.find_around(storage.made_by, [&](std::int32_t i) { return op_of_node.contains(i); });
    if (node < 0) continue;
    facts_.ops[op_of_node[node]].taken_bytes +=
        static_cast<double>(storage.bytes) * static_cast<double>(facts_.steps);
  }
}

void PredictedStep::find_path(const JobTasks& tasks) {
  const ProgramTasks& own = *tasks.ranks[0];
  std::unordered_map<TaskId, PathPiece> pieces;
  std::int32_t kernels = 0;
  for (const auto& placed : own.last_pass()) {
    PathPiece piece{.op = op_of_instruction_[placed.instruction]};
    if (own.on_device(placed.task)) piece.kernel = kernels++;
    pieces[placed.task] = pieces[placed.arrival] = piece;
  }
  const auto& ends = paced_ends(tasks, 0);
  // Earlier work belongs to the previous pass.
  const double begin = tasks.end(ends[ends.size() - 2]);
  for (const auto& [task, us] : timed_path(tasks.schedule, ends.back(), begin)) {
    path_.push_back(pieces[task]);
    path_.back().us = us;
  }
}

Result<double> PredictedStep::step_us(const Repair& repair) const {
  RankProgram rank = paced_.rank;
  HostProgram& program = rank.program;
  for (const auto& [kernel, us] : repair.kernel_us) {
    const auto& launch =
        std::get<Launch>(program.instructions[instruction_of_kernel_[kernel]].what);
    program.kernel(launch).price.time = Microseconds(us);
  }
  for (const std::size_t kernel : repair.launches) {
    auto& launch = std::get<Launch>(program.instructions[instruction_of_kernel_[kernel]].what);
    launch.host_us = 0;
    launch.blocking = false;
  }
  std::set<std::size_t> unawaited;
  for (const std::size_t wait : repair.waits) {
    std::size_t i = instruction_of_wait_[wait];
    const std::int32_t item = program.instructions[i].item;
    do {
      unawaited.insert(i++);
    } while (repair.whole_ops && i < program.instructions.size() &&
             program.instructions[i].item == item);
  }
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    Instruction& at = program.instructions[i];
    const auto scale =
        op_of_instruction_[i] < 0
            ? repair.host_scale.end()
            : repair.host_scale.find(static_cast<std::size_t>(op_of_instruction_[i]));
    if (scale != repair.host_scale.end()) {
      // As in traces, time before an op is not its own, unless the repair says so.
      auto* work = std::get_if<HostWork>(&at.what);
      if (work && (work->term != Term::kT1 || repair.whole_ops)) work->us *= scale->second;
      if (auto* launch = launch_of(at)) launch->host_us *= scale->second;
      if (auto* sync = std::get_if<Synchronisation>(&at.what)) sync->host_us *= scale->second;
    }
    if (!unawaited.contains(i)) continue;
    if (auto* launch = launch_of(at)) launch->blocking = false;
    if (const auto* sync = std::get_if<Synchronisation>(&at.what)) {
      at.what = HostWork{.term = Term::kT4, .us = sync->host_us};
    }
  }
  JobTasks tasks({&rank, 1}, paced_.meetings);
  std::vector<std::string> unsteady;
  PERFMODEL_TRY_TO(find_steady_state({&rank, 1}, tasks, unsteady));
  return pass_us_per_step({&rank, 1}, tasks).front();
}

}  // namespace perfmodel::findings
