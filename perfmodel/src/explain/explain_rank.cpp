#include "explain_rank.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <span>

#include "base/number_text.hpp"
#include "base/secrets.hpp"
#include "perfmodel/detail/critical_path.hpp"

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

using IntervalsUs = std::vector<std::pair<double, double>>;

constexpr std::string_view kWaiting = "waiting";

// The steady state repeats: while this pass ends on the device, the next one has begun, and the
// work of both overlaps.
IntervalsUs folded(IntervalsUs work, double begin, double period) {
  if (period <= 0) return work;
  IntervalsUs parts;
  for (const auto& [from, to] : work) {
    if (to - from >= period) return {{0, period}};
    const double start = std::fmod(std::max(0.0, from - begin), period);
    const double end = start + (to - from);
    parts.emplace_back(start, std::min(end, period));
    if (end > period) parts.emplace_back(0, end - period);
  }
  return parts;
}

// All records of collectives have one name.
std::string name_in_coverage(const ExecutionGraph& graph, const Node& node) {
  const std::string name(graph.name(node));
  if (node.comm < 0) return name;
  return name + "(" + graph.comm_records[node.comm].collective + ")";
}

// `item_host`: microseconds of the host in each item.
void add_coverage(const HostProgram& program, const ExecutionGraph& graph,
                  const std::vector<double>& item_host, Prediction::Coverage& coverage) {
  const LoweringStats& stats = program.lowering;
  coverage.disagreements = stats.disagreements;
  coverage.nodes_by_template_level = stats.nodes_by_level;
  coverage.nodes_by_rule = stats.nodes_by_rule;
  double device = 0;
  for (const PredictedKernel& kernel : program.kernels) {
    device += kernel.price.time.count();
    coverage.kernels_out_of_range += !kernel.price.in_range;
    if (kernel.price.knowledge) {
      coverage.kernel_us_by_knowledge[static_cast<std::size_t>(*kernel.price.knowledge)] +=
          kernel.price.time.count();
    }
    if (!kernel.inferred) continue;
    coverage.traced_kernels += kernel.price.model == "as-traced";  // not one with a given time
    ++coverage.inferred_kernels;
    coverage.inferred_kernel_us += kernel.price.time.count();
  }
  std::unordered_map<std::int32_t, std::size_t> item_of;
  for (std::size_t i = 0; i < program.items.size() && !stats.unmodelled.empty(); ++i) {
    if (!program.items[i].is_label) item_of[program.items[i].node] = i;
  }
  std::map<std::string, Prediction::Unmodelled> ops;
  std::vector<bool> counted(program.items.size(), false);
  double unmodelled = 0, host = 0;
  for (double us : item_host) host += us;
  for (std::int32_t node : stats.unmodelled) {
    auto& entry = ops[name_in_coverage(graph, graph.node(node))];
    ++entry.count;
    const std::int32_t top =
        graph.find_around(node, [&](std::int32_t i) { return item_of.contains(i); });
    if (top < 0 || counted[item_of[top]]) continue;
    counted[item_of[top]] = true;
    entry.host_us += item_host[item_of[top]];
    unmodelled += item_host[item_of[top]];
  }
  for (auto& [name, entry] : ops) {
    entry.op = name;
    coverage.unmodelled_ops.push_back(std::move(entry));
  }
  std::sort(coverage.unmodelled_ops.begin(), coverage.unmodelled_ops.end(),
            [](const auto& a, const auto& b) { return a.host_us > b.host_us; });
  if (host + device > 0) coverage.modelled_time_fraction = 1 - unmodelled / (host + device);
}

std::string names_of_unmodelled_ops(const Prediction::Coverage& coverage) {
  constexpr std::size_t kShown = 5, kLongestName = 200;
  const auto& ops = coverage.unmodelled_ops;
  std::string names;
  for (std::size_t i = 0; i < std::min(kShown, ops.size()); ++i) {
    names += (i > 0 ? ", " : "") + shown_text(ops[i].op, kLongestName);
  }
  return names + (ops.size() > kShown ? ", ..." : "");
}

std::string unmodelled_ops_text(const Prediction::Coverage& coverage) {
  const std::size_t count = coverage.unmodelled_ops.size();
  return fmt::format(
      "{} without a kernel model for their types and shapes, left out of the device's time: {}",
      count == 1 ? "1 op name" : fmt::format("{} op names", count),
      names_of_unmodelled_ops(coverage));
}

// Ops over lists have a model and nothing that it could be asked for.
std::string traced_kernels_text(const Prediction::Coverage& coverage, const std::string& other) {
  const std::size_t count = coverage.traced_kernels;
  std::string text = fmt::format("{} of unknown work {} the time that the trace measured",
                                 count == 1 ? "1 kernel" : fmt::format("{} kernels", count),
                                 count == 1 ? "takes" : "take");
  if (!other.empty()) text += " on " + other + "; no range is known";
  const std::string names = names_of_unmodelled_ops(coverage);
  return names.empty() ? text : text + "; without a kernel model: " + names;
}

// The share of the kernels in time says how much they matter.
std::string out_of_range_text(std::size_t count, const HostProgram& program) {
  constexpr double kLittle = 0.05, kMost = 0.5;
  double all_us = 0, outside_us = 0;
  for (const PredictedKernel& kernel : program.kernels) {
    all_us += kernel.price.time.count();
    if (!kernel.price.in_range) outside_us += kernel.price.time.count();
  }
  const double share = all_us > 0 ? outside_us / all_us : 0;
  const std::string percent =
      share < 0.1 ? fmt::format("{:.2g}", 100 * share) : fmt::format("{:.0f}", 100 * share);
  return fmt::format(
      "{} {} outside the sizes that {} model was checked on: extrapolated, so {} range is wider; "
      "{} % of the kernels' time{} (--json names them)",
      counted(count, "kernel"), count == 1 ? "lies" : "lie", count == 1 ? "its" : "their",
      count == 1 ? "its" : "their", percent,
      share < kLittle ? ", which changes the step little"
      : share > kMost ? ", so take the step's range, not its figure"
                      : "");
}

void add_warnings(const ExecutionGraph& graph, const PredictOptions& options,
                  const HostProgram& program, Prediction& prediction) {
  auto& warnings = prediction.warnings;
  const Prediction::Coverage& coverage = prediction.coverage;
  warnings.insert(warnings.begin(), graph.warnings.begin(), graph.warnings.end());
  const auto& by_level = coverage.host_us_by_key_level;
  const double total = std::accumulate(by_level.begin(), by_level.end(), 0.0);
  const double vague = by_level[static_cast<std::size_t>(KeyLevel::kAll)];
  if (total > 0 && vague > 0.1 * total) {
    warnings.push_back(
        fmt::format("{:.0f} % of the host time comes from overall means: the overhead table has "
                    "not seen these ops",
                    100 * vague / total));
  }
  if (const std::size_t count = coverage.kernels_out_of_range; count > 0) {
    warnings.push_back(out_of_range_text(count, program));
  }
  if (coverage.traced_kernels > 0) {
    warnings.insert(warnings.begin(),
                    traced_kernels_text(coverage, options.kernel_times->other_gpu));
  } else if (!coverage.unmodelled_ops.empty()) {
    warnings.insert(warnings.begin(), unmodelled_ops_text(coverage));
  }
  const auto& lacking = coverage.lacking_units;
  warnings.insert(warnings.begin(), lacking.begin(), lacking.end());
}

// Tasks of other ranks, and those that belong to none, are named as such.
TaskNames names_of_tasks(const ScheduledRank& rank, const TaskGraph& tasks) {
  const auto is_own = [&rank](TaskId task) {
    return rank.tasks->on_device(task) || rank.tasks->on_host(task);
  };
  const auto item_of = [&rank, &tasks](TaskId task) -> const ProgramItem& {
    return rank.program->items[tasks.op(task)];
  };
  return {.key = [=, &rank, &tasks](TaskId task) -> std::uint64_t {
            if (!is_own(task)) return rank.other_key(task);
            const ProgramItem& item = item_of(task);
            const auto tag = static_cast<std::uint64_t>(tasks.term(task));
            const std::uint64_t name = item.title.empty() ? rank.graph->node(item.subject).name
                                                          : hash_text(item.title) >> 24;
            return name | tag << 48;
          },
          .op = [=, &rank](TaskId task) -> std::string {
            if (!is_own(task)) {
              std::string name = rank.other_name(task);
              return name.empty() ? "(last rank's arrival)" : name;
            }
            return std::string(name_of(item_of(task), *rank.graph));
          },
          .category = [=, &tasks](TaskId task) -> std::string {
            if (!is_own(task)) return std::string(kWaiting);
            const std::int32_t tag = tasks.term(task);
            if (const auto family = ProgramTasks::family_of(tag)) {
              return std::string(to_string(*family));
            }
            return std::string(to_string(ProgramTasks::term_of(tag)));
          },
          .op_key = rank.op_key};
}

// The critical path of the last pass, in times per step.
Result<CriticalPath> path_of_last_pass(const ScheduledRank& rank, const TaskGraph& tasks,
                                       const Schedule& schedule, bool device_bound) {
  const auto& ends = device_bound ? rank.tasks->pass_device_ends() : rank.tasks->pass_ends();
  const TaskId first = rank.started ? rank.tasks->pass_begins().back() : ends[ends.size() - 2];
  PERFMODEL_TRY(path,
                critical_path(tasks, schedule, first, ends.back(), names_of_tasks(rank, tasks),
                              {.what_if = rank.options->what_if_steps,
                               .off_path = tasks.size(),
                               .from_start = rank.started}));
  // Off the path, the work of other ranks says nothing about this one.
  std::erase_if(path->off_path, [](const auto& step) { return step.category == kWaiting; });
  path->off_path.resize(std::min(path->off_path.size(), CriticalPathOptions{}.off_path));
  const double scale = 1 / static_cast<double>(rank.program->steps.size());
  path->step_us *= scale;
  for (auto& share : path->shares) share.us *= scale;
  for (auto* list : {&path->steps, &path->off_path}) {
    for (auto& step : *list) {
      for (double* us : {&step.us, &step.own_us}) *us *= scale;
      if (step.step_if_free_us >= 0) step.step_if_free_us *= scale;
    }
  }
  return path;
}

class RankExplanation {
 public:
  RankExplanation(const ScheduledRank& rank, const TaskGraph& graph, const Schedule& schedule)
      : rank_(rank), task_graph_(graph), schedule_(schedule) {}

  Result<Prediction> write() {
    prediction_.phases = program_.phases;
    prediction_.scaled_out = program_.scaled_out;
    prediction_.coverage = program_.coverage;
    find_period();
    sums();
    iterations();
    add_coverage(program_, graph_, item_host_, prediction_.coverage);
    if (options_.keep_ops && options_.keep_calls) calls();
    if (options_.keep_ops) {
      PERFMODEL_TRY(path, path_of_last_pass(rank_, task_graph_, schedule_, device_bound_));
      prediction_.critical_path = std::move(*path);
      report_ops();
    }
    add_warnings(graph_, options_, program_, prediction_);
    return std::move(prediction_);
  }

 private:
  double end(TaskId task) const { return task < 0 ? 0 : schedule_.end_us[task]; }
  double start(TaskId task) const { return schedule_.start_us[task]; }
  double steps() const { return static_cast<double>(program_.steps.size()); }

  // A host that runs ahead is held by the full launch queue in the long run: then the device sets
  // the period.
  void find_period() {
    const auto& ends = tasks_.pass_ends();
    const auto& device = tasks_.pass_device_ends();
    begin_ = rank_.started ? start(tasks_.pass_begins().back()) : end(ends[ends.size() - 2]);
    const double host = end(ends.back()) - begin_;
    const double device_period = end(device.back()) - end(device[device.size() - 2]);
    device_bound_ = !rank_.started && device_period > (1 + kSteadyTolerance) * host;
    period_ = device_bound_ ? device_period : host;
    prediction_.device_bound = device_bound_;
    prediction_.started = rank_.started;
    host_period_ = host;
    prediction_.e2e_us = period_ / steps();
    prediction_.begin_us = begin_;
    prediction_.wait_us = period_ - host;
  }

  // Waiting in a collective keeps the device as busy as moving data does.
  std::pair<double, double> span(const ProgramTasks::Placed& placed) const {
    return {start(placed.arrival), end(placed.task)};
  }

  void sums() {
    Prediction& p = prediction_;
    item_host_.assign(program_.items.size(), 0);
    item_wait_.assign(program_.items.size(), 0);
    item_start_.assign(program_.items.size(), -1);
    device_.assign(program_.steps.size(), {});
    for (const auto& placed : tasks_.last_pass()) {
      const Instruction& at = program_.instructions[placed.instruction];
      const auto item = static_cast<std::size_t>(at.item);
      if (tasks_.on_device(placed.task)) {
        note_device(placed, std::get<Launch>(at.what), program_.items[item].iteration);
        continue;
      }
      const double duration = task_graph_.duration_us(placed.task);
      p.terms_us[static_cast<std::size_t>(ProgramTasks::term_of(task_graph_.term(placed.task)))] +=
          duration;
      p.cpu_us += duration;
      item_host_[item] += duration;
      const HostWork* work = std::get_if<HostWork>(&at.what);
      const std::int32_t phase =
          work && work->phase >= 0 ? work->phase : program_.items[item].phase;
      p.phases[phase].host_us += duration / steps();
      if (item_start_[item] < 0 && !(work && work->term == Term::kT1)) {
        item_start_[item] = start(placed.task) - begin_;
      }
      note_wait(placed.task, item);
    }
    for (double* total : {&p.cpu_us, &p.wait_us, &p.comm_kernel_us, &p.compute_kernel_us}) {
      *total /= steps();
    }
    for (double& term : p.terms_us) term /= steps();
    p.kernel_sum_us = p.compute_kernel_us + p.comm_kernel_us;
    for (std::size_t i = 0; i < program_.items.size(); ++i) {
      auto& phase = p.phases[program_.items[i].phase];
      phase.wait_us += item_wait_[i] / steps();
    }
  }

  void note_device(const ProgramTasks::Placed& placed, const Launch& launch,
                   std::int32_t iteration) {
    const auto [from, to] = span(placed);
    device_[iteration].emplace_back(from, to);
    PredictedKernel& kernel = program_.kernel(launch);
    kernel.start_us = from - begin_;
    if (placed.arrival != placed.task) {
      kernel.waiting_us = start(placed.task) - end(placed.arrival);
    }
    prediction_.terms_us[static_cast<std::size_t>(launch.term)] += to - from;
    (launch.is_collective() ? prediction_.comm_kernel_us : prediction_.compute_kernel_us) +=
        to - from;
  }

  // A waiting call begins when the host reached it.
  void calls() {
    calls_.assign(program_.items.size(), {});
    item_end_.assign(program_.items.size(), 0);
    double before = begin_;
    for (const auto& placed : tasks_.last_pass()) {
      if (tasks_.on_device(placed.task)) continue;
      const Instruction& at = program_.instructions[placed.instruction];
      const auto item = at.item;
      const double until = end(placed.task);
      item_end_[item] = until - begin_;
      PredictedCall call{.start_us = before - begin_, .end_us = until - begin_};
      if (const Launch* launch = launch_of(at)) call.kernel = program_.position(*launch, at.item);
      if (const auto* sync = std::get_if<Synchronisation>(&at.what)) call.sync = sync->kind;
      if (!std::holds_alternative<HostWork>(at.what)) calls_[item].push_back(call);
      before = until;
    }
  }

  // The time between two host tasks can only be a wait for the device.
  void note_wait(TaskId task, std::size_t item) {
    const TaskId bound = schedule_.bound_by[task];
    if (bound < 0 || !tasks_.on_device(bound)) return;
    TaskId before = task - 1;
    while (before >= 0 && !tasks_.on_host(before)) --before;
    if (before < 0) return;
    const double wait = start(task) - end(before);
    item_wait_[item] += wait;
    prediction_.wait_us += wait;
  }

  void iterations() {
    double step_begin = begin_;
    IntervalsUs work;  // work of the pass
    for (std::size_t i = 0; i < program_.steps.size(); ++i) {
      const double step_end = end(tasks_.iteration_ends()[i]);
      prediction_.iterations.push_back(
          {.name = program_.steps[i].name, .e2e_us = step_end - step_begin});
      work.insert(work.end(), device_[i].begin(), device_[i].end());
      step_begin = step_end;
    }
    if (device_bound_) {
      for (auto& iteration : prediction_.iterations) iteration.e2e_us *= period_ / host_period_;
    }
    for (std::size_t i = 0; i < device_.size(); ++i) {
      auto& iteration = prediction_.iterations[i];
      iteration.gpu_active_us = std::min(union_us(device_[i]), iteration.e2e_us);
    }
    if (!rank_.started) work = folded(std::move(work), begin_, period_);
    prediction_.gpu_active_us = union_us(std::move(work)) / steps();
    prediction_.gpu_idle_us = std::max(0.0, prediction_.e2e_us - prediction_.gpu_active_us);
  }

  void report_ops() {
    const std::vector<std::int32_t> positions = op_positions(program_);
    prediction_.ops.resize(
        std::count_if(positions.begin(), positions.end(), [](std::int32_t p) { return p >= 0; }));
    for (std::size_t i = 0; i < program_.items.size(); ++i) {
      if (positions[i] < 0) continue;
      const ProgramItem& item = program_.items[i];
      const auto kernels = std::span(program_.kernels).subspan(item.first_kernel, item.kernels);
      const Node& node = graph_.node(item.subject);
      prediction_.ops[positions[i]] = {.id = node.id,
                                       .name = name_of(item, graph_),
                                       .thread = item.thread,
                                       .phase = item.phase,
                                       .start_us = std::max(0.0, item_start_[i]),
                                       .host_us = item_host_[i],
                                       .wait_us = item_wait_[i],
                                       .kernels = {std::make_move_iterator(kernels.begin()),
                                                   std::make_move_iterator(kernels.end())},
                                       .gap_level = item.gap_level,
                                       .op_level = item.op_level};
      if (calls_.empty()) continue;
      PredictedOp& op = prediction_.ops[positions[i]];
      op.end_us = item_end_[i];
      op.calls = std::move(calls_[i]);
    }
  }

  const ScheduledRank& rank_;
  const ExecutionGraph& graph_ = *rank_.graph;
  const PredictOptions& options_ = *rank_.options;
  HostProgram& program_ = *rank_.program;
  const ProgramTasks& tasks_ = *rank_.tasks;
  const TaskGraph& task_graph_;
  const Schedule& schedule_;
  double begin_ = 0, period_ = 0, host_period_ = 0;
  bool device_bound_ = false;
  std::vector<double> item_host_, item_wait_, item_start_, item_end_;
  std::vector<std::vector<PredictedCall>> calls_;  // per item
  std::vector<IntervalsUs> device_;                // per step
  Prediction prediction_;
};

}  // namespace

std::vector<std::int32_t> op_positions(const HostProgram& program) {
  std::vector<std::int32_t> positions(program.items.size(), -1);
  std::int32_t next = 0;
  for (const Instruction& at : program.instructions) {
    auto& position = positions[at.item];
    if (position < 0) position = next++;
  }
  return positions;
}

Result<Prediction> explain_rank(const ScheduledRank& rank, const TaskGraph& graph,
                                const Schedule& schedule) {
  return RankExplanation(rank, graph, schedule).write();
}

}  // namespace perfmodel
