#include "invariants.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

constexpr double kRounding = 1e-6;  // share of a step, in sums of its parts

double time_of(const std::vector<double>& times, TaskId task) { return times[task]; }

Unexpected early(const Schedule& schedule, const TaskName& name, TaskId task, double allowed_us,
                 std::string_view after) {
  return bug(fmt::format("{} starts at {:.3f} us, before {:.3f} us, {}", name(task),
                         time_of(schedule.start_us, task), allowed_us, after));
}

Result<void> check_lanes(const TaskGraph& graph, const Schedule& schedule, const TaskName& name,
                         const CheckedTasks& tasks) {
  const auto count = static_cast<TaskId>(graph.size());
  for (TaskId task = tasks.first; task < count; ++task) {
    const double start = time_of(schedule.start_us, task), end = time_of(schedule.end_us, task);
    if (!(start >= 0 && end >= start && std::isfinite(end))) {
      return bug(fmt::format("{} runs from {} to {} us", name(task), start, end));
    }
    const TaskId previous = graph.lane_previous(task);
    if (previous < 0) continue;
    const double free = time_of(schedule.end_us, previous);
    if (start < free - tasks.overlap_us) {
      return early(schedule, name, task, free, "the end of " + name(previous) + " on its lane");
    }
  }
  return {};
}

// ---- readers
// -----------------------------------------------------------------------------------

// Follows one rank's last pass in program order.
class Readers {
 public:
  explicit Readers(const CheckedRank& rank) : rank_(rank), graph_(*rank.graph) {}

  Result<void> check() {
    for (const auto& placed : rank_.tasks->last_pass()) {
      if (!rank_.tasks->on_device(placed.task)) continue;
      const Launch& made = std::get<Launch>(rank_.program->instructions[placed.instruction].what);
      if (made.node < 0) continue;  // no node stands for it
      PERFMODEL_TRY_TO(read(placed, made));
      write(placed, made);
    }
    return {};
  }

 private:
  struct Writer {
    TaskId task = -1;
    std::int32_t call = -1;  // the op that holds the record: it only hands the memory over
  };

  Result<void> read(const ProgramTasks::Placed& placed, const Launch& made) {
    if (written_.empty()) return {};
    const std::int32_t reader = made.is_collective() && made.record >= 0 ? made.record : made.node;
    TaskId broken = -1;
    for_each_tensor(graph_, graph_.inputs(reader), [&](const Tensor& tensor) {
      if (!may_be_written(tensor)) return;
      const auto found = written_.find(tensor.storage_id);
      if (found == written_.end() || graph_.is_inside(reader, found->second.call)) return;
      const TaskId writer = found->second.task;
      if (time_of(rank_.schedule->start_us, placed.arrival) <
          time_of(rank_.schedule->end_us, writer)) {
        broken = writer;
      }
      std::erase_if(written_, [&](const auto& one) { return one.second.task == writer; });
    });
    if (broken < 0) return {};
    return early(*rank_.schedule, rank_.name, placed.arrival,
                 time_of(rank_.schedule->end_us, broken),
                 "the end of " + rank_.name(broken) + " whose memory it reads");
  }

  void write(const ProgramTasks::Placed& placed, const Launch& made) {
    if (made.is_collective()) {
      if (made.record < 0) return;
      const std::int32_t parent = graph_.node(made.record).parent;
      const bool called = parent >= 0 && graph_.name(parent).starts_with("c10d::");
      const Writer writer{placed.task, called ? parent : made.record};
      note(graph_.inputs(made.record), writer);
      note(graph_.outputs(made.record), writer);
    } else if (made.term == Term::kCopy && made.stream != 0) {
      const auto inputs = graph_.inputs(made.node);
      note(graph_.outputs(made.node), {placed.task, made.node});
      if (!inputs.empty()) note(inputs.first(1), {placed.task, made.node});  // copy_(self, source)
    } else if (!written_.empty()) {  // memory written anew is no collective's any more
      for_each_tensor(graph_, graph_.outputs(made.node), [&](const Tensor& tensor) {
        if (may_be_written(tensor)) written_.erase(tensor.storage_id);
      });
    }
  }

  template <class Values>
  void note(const Values& values, const Writer& writer) {
    for_each_tensor(graph_, values, [&](const Tensor& tensor) {
      if (!tensor.on_gpu() || tensor.storage_id == 0) return;
      written_[tensor.storage_id] = writer;
      bits_ |= bit(tensor);
    });
  }

  // Most tensors are none of a collective: a bit tells so without a search.
  static std::uint64_t bit(const Tensor& tensor) {
    return std::uint64_t{1} << (static_cast<std::uint64_t>(tensor.storage_id) % 64);
  }
  bool may_be_written(const Tensor& tensor) const { return (bits_ & bit(tensor)) != 0; }

  const CheckedRank& rank_;
  const ExecutionGraph& graph_;
  std::unordered_map<std::int64_t, Writer> written_;  // by storage, until an op reads it
  std::uint64_t bits_ = 0;                            // hash bits of all earlier entries
};

// ---- sums
// --------------------------------------------------------------------------------------

struct Figure {
  std::string_view what;
  double us;
};

Result<void> check_equal(Figure sum, Figure parts, double tolerance_us, std::string_view who) {
  if (std::abs(sum.us - parts.us) <= tolerance_us) return {};
  return bug(
      fmt::format("{}{} is {:.3f} us, {} {:.3f} us", who, sum.what, sum.us, parts.what, parts.us));
}

double sum_of(const Prediction& prediction, std::initializer_list<Term> terms) {
  double sum = 0;
  for (Term term : terms) sum += prediction.terms_us[static_cast<std::size_t>(term)];
  return sum;
}

bool is_time(double us) { return us >= 0 && std::isfinite(us); }

}  // namespace

Unexpected bug(std::string_view what) {
  return decline(fmt::format(
      "bug: {} (this is a defect of perfmodel, not of its input: please report it)", what));
}

Result<void> check_schedule(const TaskGraph& graph, const Schedule& schedule, const TaskName& name,
                            const CheckedTasks& tasks) {
  PERFMODEL_TRY_TO(check_lanes(graph, schedule, name, tasks));
  std::size_t broken = 0;
  for (const TaskGraph::Edge& edge : graph.edge_list().subspan(tasks.first_edge)) {
    const double allowed = time_of(schedule.end_us, edge.from) + edge.lag_us;
    if (time_of(schedule.start_us, edge.to) >= allowed || ++broken <= schedule.dropped_edges)
      continue;
    return early(schedule, name, edge.to, allowed,
                 fmt::format("{:.3f} us after the end of {} that it waits for", edge.lag_us,
                             name(edge.from)));
  }
  return {};
}

Result<void> check_spans(const TaskGraph& graph, const Schedule& schedule, std::int32_t first_lane,
                         std::int32_t end_lane, const TaskName& name, double overlap_us) {
  if (end_lane <= first_lane) return {};
  struct Lane {
    double work_us = 0, overlap_us = 0;
    TaskId last = -1;
  };
  std::vector<Lane> lanes(end_lane - first_lane);
  double begin = std::numeric_limits<double>::infinity(), end = 0;
  for (TaskId task = 0; task < static_cast<TaskId>(graph.size()); ++task) {
    const std::int32_t lane = graph.lane(task);
    if (lane < first_lane || lane >= end_lane) continue;
    Lane& of_task = lanes[lane - first_lane];
    of_task.work_us += graph.duration_us(task);
    of_task.overlap_us += overlap_us;
    of_task.last = task;
    begin = std::min(begin, time_of(schedule.start_us, task));
    end = std::max(end, time_of(schedule.end_us, task));
  }
  for (const Lane& lane : lanes) {
    const double allowed = (end - begin) * (1 + kRounding) + kRounding * end + lane.overlap_us;
    if (lane.last < 0 || lane.work_us <= allowed) continue;
    return bug(fmt::format("the stream of {} works for {:.3f} us in {:.3f} us", name(lane.last),
                           lane.work_us, end - begin));
  }
  return {};
}

Result<void> check_readers(const CheckedRank& rank) { return Readers(rank).check(); }

Result<void> check_pace(const CheckedRank& rank, const Prediction& prediction) {
  struct Lane {
    double work_us = 0, longest_us = -1;
    TaskId longest = -1;
  };
  std::vector<Lane> lanes;
  TaskId last = -1;
  for (const auto& placed : rank.tasks->last_pass()) {
    if (!rank.tasks->on_device(placed.task)) continue;
    const auto lane = static_cast<std::size_t>(rank.task_graph->lane(placed.task));
    if (lane >= lanes.size()) lanes.resize(lane + 1);
    const double us = rank.task_graph->duration_us(placed.task);
    lanes[lane].work_us += us;
    if (us > lanes[lane].longest_us) {
      lanes[lane].longest_us = us;
      lanes[lane].longest = placed.task;
    }
    if (last < 0 ||
        time_of(rank.schedule->end_us, placed.task) > time_of(rank.schedule->end_us, last)) {
      last = placed.task;
    }
  }
  const auto steps = static_cast<double>(rank.program->steps.size());
  const double allowed = prediction.e2e_us * (1 + kSteadyTolerance + kRounding) + kRounding;
  for (const Lane& lane : lanes) {
    if (lane.longest < 0 || lane.work_us <= allowed * steps) continue;
    return bug(fmt::format(
        "the stream of {}, its longest work, works for {:.3f} us in a step of {:.3f} us",
        rank.name(lane.longest), lane.work_us / steps, prediction.e2e_us));
  }
  if (last >= 0 && !(prediction.gpu_active_us <= allowed)) {
    return bug(
        fmt::format("the device is active for {:.3f} us in a step of {:.3f} us, {} ends last",
                    prediction.gpu_active_us, prediction.e2e_us, rank.name(last)));
  }
  return {};
}

Result<void> check_times(const Prediction& p, std::string_view who) {
  for (const Figure& figure : {Figure{"the step", p.e2e_us},
                               {"the device's active time", p.gpu_active_us},
                               {"the device's idle time", p.gpu_idle_us},
                               {"the host's busy time", p.cpu_us},
                               {"the sum of kernels", p.kernel_sum_us},
                               {"the sum of compute kernels", p.compute_kernel_us},
                               {"the sum of collectives", p.comm_kernel_us}}) {
    if (!is_time(figure.us)) return bug(fmt::format("{}{} is {} us", who, figure.what, figure.us));
  }
  for (std::size_t term = 0; term < kTerms; ++term) {
    if (is_time(p.terms_us[static_cast<std::size_t>(term)])) continue;
    return bug(fmt::format("{}{} is {} us", who, to_string(static_cast<Term>(term)),
                           p.terms_us[static_cast<std::size_t>(term)]));
  }
  for (const PredictedOp& op : p.ops) {
    const auto wrong = std::ranges::find_if(op.kernels, [](const PredictedKernel& kernel) {
      return !is_time(kernel.price.time.count()) || !std::isfinite(kernel.start_us);
    });
    if (wrong != op.kernels.end()) {
      return bug(fmt::format("{}kernel \"{}\" of \"{}\" (node {}) takes {} us from {} us on", who,
                             wrong->name, op.name, op.id, wrong->price.time.count(),
                             wrong->start_us));
    }
    if (is_time(op.start_us) && is_time(op.host_us) && std::isfinite(op.wait_us)) continue;
    return bug(
        fmt::format("{}\"{}\" (node {}) takes {} us of the host from {} us on, {} us waiting", who,
                    op.name, op.id, op.host_us, op.start_us, op.wait_us));
  }
  return {};
}

Result<void> check_sums(const Prediction& p, double latest_us, std::string_view who) {
  // Each start and end is rounded to the precision of a double that far from the beginning.
  const double tolerance =
      kRounding * p.e2e_us + kRounding + 1e3 * std::numeric_limits<double>::epsilon() * latest_us;
  double host = 0;
  for (const HostTerm& term : kHostTerms) {
    host += p.terms_us[static_cast<std::size_t>(term.term)];
  }
  const double device = sum_of(p, {Term::kKernel, Term::kCopy, Term::kSet, Term::kCollective});
  for (const auto& [sum, parts] : {std::pair{Figure{"the step", p.e2e_us},
                                             Figure{"host and waiting are", p.cpu_us + p.wait_us}},
                                   {{"the host's busy time", p.cpu_us}, {"T1 to TX are", host}},
                                   {{"the sum of kernels", p.kernel_sum_us},
                                    {"kernels, copies, sets and collectives are", device}}}) {
    PERFMODEL_TRY_TO(check_equal(sum, parts, tolerance, who));
  }
  return {};
}

}  // namespace perfmodel
