#include "pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include "explain/explain_rank.hpp"
#include "invariants.hpp"
#include "match_collectives.hpp"
#include "perfmodel/detail/schedule.hpp"
#include "program/data_parallel_graph.hpp"
#include "program/host_program.hpp"
#include "program/program_tasks.hpp"
#include "replay/chakra_export.hpp"

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

constexpr std::size_t kMaxPasses = 32;
constexpr double kSteadyTolerance = 1e-3;

class Job {
 public:
  /// `facts`, `added_bytes`: see predict_with; for one rank.
  Job(std::span<const RankInput> ranks, const Gpu& gpu, const JobOptions& options,
      const HostFacts* facts = nullptr, std::optional<double> added_bytes = {})
      : ranks_(ranks.begin(), ranks.end()),
        gpu_(gpu),
        options_(options),
        facts_(facts),
        made_(ranks.size()),
        added_bytes_(ranks.size(), added_bytes) {}

  Result<JobPrediction> predict() {
    if (auto checked = check(); !checked) return Unexpected{checked.error()};
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (auto written = write_program(r); !written) return Unexpected{written.error()};
    }
    if (auto checked = check_world(); !checked) return Unexpected{checked.error()};
    if (auto matched = match(); !matched) return Unexpected{matched.error()};
    std::int32_t lane = 0;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      tasks_.push_back(
          std::make_unique<ProgramTasks>(programs_[r], *ranks_[r].table, lane, graph_));
      lane = tasks_.back()->end_lane();
    }
    if (auto steady = find_steady_state(); !steady) return Unexpected{steady.error()};
    if (!options_.rank_start_us.empty()) {
      if (auto started = start_together(); !started) return Unexpected{started.error()};
    }
    if (auto good = check_tasks(); !good) return Unexpected{good.error()};
    return explain();
  }

 private:
  Result<void> check() const {
    if (ranks_.empty())
      return fail(ErrorCode::kImpossible, "expected at least one graph, found none");
    if (!options_.rank_start_us.empty() && options_.rank_start_us.size() != ranks_.size()) {
      return fail(ErrorCode::kImpossible,
                  fmt::format("expected one start per rank ({}), found {}", ranks_.size(),
                              options_.rank_start_us.size()));
    }
    for (const RankInput& rank : ranks_) {
      if (!(rank.options.host_scale > 0 && rank.options.host_scale <= kMostHostScale)) {
        return fail(ErrorCode::kImpossible,
                    fmt::format("expected a scale of the host above 0, at most {}, found {}",
                                kMostHostScale, rank.options.host_scale));
      }
    }
    for (double start : options_.rank_start_us) {
      if (!std::isfinite(start)) {
        return fail(ErrorCode::kImpossible, "expected finite starts of the ranks, found another");
      }
    }
    return {};
  }

  Result<void> write_program(std::size_t r) {
    const RankInput& rank = ranks_[r];
    Result<HostFacts> own;
    const HostFacts* facts = facts_;
    if (!facts) {
      own = make_host_facts(*rank.graph, *rank.table, rank.options.iterations);
      if (!own) return Unexpected{own.error()};
      facts = &*own;
    }
    const auto& how = rank.options.scale_out;
    if (how && asks_for_data_parallel(*how, facts->reduces_gradients)) {
      if (auto done = make_data_parallel(r); !done) return done;
      own = make_host_facts(*rank.graph, *rank.table, rank.options.iterations);
      if (!own) return Unexpected{own.error()};
      facts = &*own;
    }
    auto program = make_host_program(*rank.graph, gpu_, *rank.table, *facts, rank.options,
                                     rank.options.keep_ops || options_.keep_chakra);
    if (!program) return Unexpected{program.error()};
    if (added_bytes_[r] && program->scaled_out) {
      program->scaled_out->own_collectives = false;
      program->scaled_out->parameter_bytes = *added_bytes_[r];
    }
    programs_.push_back(std::move(*program));
    memories_.push_back(facts->memory);
    warn_of_fused_updates(r, facts->fused_updates);
    return {};
  }

  // What a strategy cannot see.
  void warn_of_fused_updates(std::size_t r, std::size_t updates) {
    const auto& how = ranks_[r].options.scale_out;
    const auto& made = programs_[r].scaled_out;
    if (updates == 0 || !how || how->world == 1 || made->own_collectives) return;
    warnings_.push_back(fmt::format(
        "{} {} of embedding tables in the backward pass itself, without gradients: {} keeps all "
        "these tables on every rank and does not synchronise them (`shard` divides tables between "
        "ranks)",
        updates, updates == 1 ? "update" : "updates", to_string(how->strategy)));
  }

  // Without collectives the number of ranks would change nothing.
  Result<void> check_world() const {
    std::int64_t world = 1;
    for (const RankInput& rank : ranks_) {
      if (!rank.options.scale_out) world = std::max(world, rank.options.world_size);
    }
    const auto communicates = [](const HostProgram& program) {
      return std::ranges::any_of(program.instructions, &Instruction::collective);
    };
    if (world == 1 || std::ranges::any_of(programs_, communicates)) return {};
    return Unexpected{Error{
        .code = ErrorCode::kImpossible,
        .message = fmt::format("expected collectives for {} ranks, found none: --strategy ddp "
                               "or fsdp runs the graph of one rank on several",
                               world),
        .file = ranks_.front().graph->source}};
  }

  // The rank's graph becomes that of strategy ddp.
  Result<void> make_data_parallel(std::size_t r) {
    RankInput& rank = ranks_[r];
    auto made = make_data_parallel_graph(*rank.graph, *rank.options.scale_out);
    if (!made) return Unexpected{made.error()};
    made_[r].graph = std::make_shared<DataParallelGraph>(std::move(*made));
    rank.graph = &made_[r].graph->graph;
    added_bytes_[r] = made_[r].graph->gradient_bytes;
    if (rank.options.kernel_times) {
      made_[r].times = std::make_unique<KernelTimes>(
          times_of_copies(*rank.options.kernel_times, *made_[r].graph));
      rank.options.kernel_times = made_[r].times.get();
    }
    return {};
  }

  // ---- collectives
  // -------------------------------------------------------------------------------

  Result<void> match() {
    if (ranks_.size() == 1) return {};
    std::vector<std::vector<RankCollective>> collectives(ranks_.size());
    std::vector<std::string> names;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      names.push_back(ranks_[r].name.empty() ? fmt::format("rank {}", r) : ranks_[r].name);
      local_groups_.clear();
      const auto& instructions = programs_[r].instructions;
      for (std::size_t i = 0; i < instructions.size(); ++i) {
        if (instructions[i].collective) {
          collectives[r].push_back(describe(r, static_cast<std::int32_t>(i)));
        }
      }
    }
    const auto matched = match_collectives(
        collectives, names, {.timed = false, .missing_ranks = options_.missing_collectives});
    if (!matched) return Unexpected{matched.error()};
    warnings_.insert(warnings_.end(), matched->warnings.begin(), matched->warnings.end());
    std::int64_t world = 0;
    for (const auto& rank : collectives) {
      for (const RankCollective& collective : rank) world = std::max(world, collective.group_size);
    }
    if (world > static_cast<std::int64_t>(ranks_.size())) {
      warnings_.push_back(fmt::format(
          "{} of {} ranks are given; the others are taken to arrive no later than these",
          ranks_.size(), world));
    }
    for (const auto& members : matched->groups) add_meeting(members, collectives);
    return {};
  }

  RankCollective describe(std::size_t r, std::int32_t instruction) {
    const Instruction& at = programs_[r].instructions[static_cast<std::size_t>(instruction)];
    const auto& item = programs_[r].items[static_cast<std::size_t>(at.op)];
    RankCollective made{
        .kind = canonical_collective(item.kernels[static_cast<std::size_t>(at.kernel)].name),
        .sequence = at.sequence,
        .event = instruction};
    if (at.comm >= 0) {
      const CommRecord& record = ranks_[r].graph->comm_records[static_cast<std::size_t>(at.comm)];
      made.kind = canonical_collective(record.collective);
      made.process_group = group_name(record.process_group);
      made.group_size = record.group_size;
    }
    if (at.comm_bytes >= 0) made.in_elements = static_cast<std::int64_t>(at.comm_bytes);
    return made;
  }

  // Old graphs name a group by its address, which is another one in each process: then groups are
  // told apart by their order.
  std::string group_name(const std::string& recorded) {
    constexpr std::size_t kAddressDigits = 9;
    const bool digits = recorded.find_first_not_of("0123456789") == std::string::npos;
    if (!digits || recorded.size() < kAddressDigits) return recorded;
    return fmt::format("#{}",
                       local_groups_.try_emplace(recorded, local_groups_.size()).first->second);
  }

  // All ranks move data for the same time. A traced duration holds waiting for later ranks, so the
  // shortest one is nearest to it; of predictions the longest counts.
  void add_meeting(const std::vector<std::int32_t>& members,
                   const std::vector<std::vector<RankCollective>>& collectives) {
    double shortest_traced = std::numeric_limits<double>::infinity(), longest = 0;
    std::vector<Instruction*> instructions;
    for (std::size_t r = 0; r < members.size(); ++r) {
      if (members[r] < 0) continue;
      const auto event = collectives[r][static_cast<std::size_t>(members[r])].event;
      Instruction& at = programs_[r].instructions[static_cast<std::size_t>(event)];
      const auto& item = programs_[r].items[static_cast<std::size_t>(at.op)];
      const bool traced =
          item.kernels[static_cast<std::size_t>(at.kernel)].price.bound == Bound::kMeasured;
      if (traced) shortest_traced = std::min(shortest_traced, at.device_us);
      if (!traced) longest = std::max(longest, at.device_us);
      instructions.push_back(&at);
    }
    if (instructions.size() < 2) return;
    const bool any_traced = std::isfinite(shortest_traced);
    for (Instruction* at : instructions) {
      at->device_us = any_traced ? shortest_traced : longest;
      at->meeting = meetings_;
    }
    for (std::size_t r = 0; r < members.size(); ++r) {
      if (members[r] < 0) continue;
      const auto event = collectives[r][static_cast<std::size_t>(members[r])].event;
      const Instruction& at = programs_[r].instructions[static_cast<std::size_t>(event)];
      Price& price = programs_[r]
                         .items[static_cast<std::size_t>(at.op)]
                         .kernels[static_cast<std::size_t>(at.kernel)]
                         .price;
      price.time = Microseconds{at.device_us};
      price.low = std::min(price.low, price.time);
      price.high = any_traced ? price.time : std::max(price.high, price.time);
    }
    ++meetings_;
  }

  // ---- passes
  // ------------------------------------------------------------------------------------

  struct Hub {
    TaskId task = -1;
    std::vector<TaskId> arrivals, transfers;  // per rank, -1: not in it
  };

  void add_pass(TaskId starter = -1) {
    pass_begin_ = static_cast<TaskId>(graph_.size());
    pass_first_edge_ = graph_.edges();
    std::vector<Hub> hubs(static_cast<std::size_t>(meetings_));
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const double lag = starter >= 0 ? options_.rank_start_us[r] : 0;
      tasks_[r]->add_pass(true, starter, lag);
      for (const auto& arrival : tasks_[r]->arrivals()) {
        Hub& hub = hubs[static_cast<std::size_t>(arrival.meeting)];
        hub.arrivals.resize(ranks_.size(), -1);
        hub.transfers.resize(ranks_.size(), -1);
        hub.arrivals[r] = arrival.arrival;
        hub.transfers[r] = arrival.transfer;
      }
    }
    arrival_edges_.resize(ranks_.size());
    for (Hub& hub : hubs) {
      hub.task = graph_.add_task(TaskGraph::kNoLane, 0);
      for (std::size_t r = 0; r < hub.arrivals.size(); ++r) {
        if (hub.arrivals[r] < 0) continue;
        arrival_edges_[r].push_back(graph_.add_edge(hub.arrivals[r], hub.task));
        graph_.add_edge(hub.task, hub.transfers[r]);
      }
    }
    hubs_ = std::move(hubs);
  }

  // Passes are added until the last two take the same time on every rank.
  Result<void> find_steady_state() {
    std::size_t passes = 0;
    for (std::size_t wanted = 3;; wanted = wanted == 3 ? 8 : 2 * wanted) {
      graph_.reserve(wanted * program_size());
      for (; passes < wanted; ++passes) {
        if (cancelled()) return fail(ErrorCode::kCancelled, "cancelled");
        add_pass();
      }
      if (auto done = run_schedule(graph_, schedule_); !done) return done;
      std::size_t unsteady = ranks_.size();
      double last = 0, before = 0;
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        last = period(r, 0);
        before = period(r, 1);
        if (std::abs(last - before) > kSteadyTolerance * last) {
          unsteady = r;
          break;
        }
      }
      steady_ = unsteady == ranks_.size();
      if (steady_) return {};
      if (passes >= kMaxPasses) {
        warnings_.push_back(
            fmt::format("no steady state after {} passes: the last two took {:.1f} and {:.1f} us",
                        passes, before, last));
        return {};
      }
    }
  }

  bool cancelled() const {
    return std::ranges::any_of(
        ranks_, [](const RankInput& rank) { return rank.options.cancel.stop_requested(); });
  }

  std::size_t program_size() const {
    std::size_t size = 0;
    for (const HostProgram& program : programs_) size += program.instructions.size();
    return 2 * size;
  }

  double period(std::size_t rank, std::size_t passes_back) const {
    const auto& ends = tasks_[rank]->pass_ends();
    const std::size_t last = ends.size() - 1 - passes_back;
    return schedule_.end_us[static_cast<std::size_t>(ends[last])] -
           schedule_.end_us[static_cast<std::size_t>(ends[last - 1])];
  }

  // One more pass that each rank begins at its given time, as early as the pass before allows.
  Result<void> start_together() {
    double first = std::numeric_limits<double>::infinity();
    for (double start : options_.rank_start_us) first = std::min(first, start);
    for (double& start : options_.rank_start_us) start -= first;
    const TaskId line = graph_.add_task(TaskGraph::kNoLane, 0);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      graph_.add_edge(tasks_[r]->pass_ends().back(), line, -options_.rank_start_us[r]);
    }
    add_pass(line);
    steady_ = false;
    return run_schedule(graph_, schedule_);
  }

  // ---- invariants
  // --------------------------------------------------------------------------------

  CheckedRank checked(std::size_t r) const {
    return {.graph = ranks_[r].graph,
            .program = &programs_[r],
            .tasks = tasks_[r].get(),
            .task_graph = &graph_,
            .schedule = &schedule_,
            .name = [this](TaskId task) { return full_name(task); }};
  }

  Result<void> check_tasks() const {
    auto good = check_schedule(graph_, schedule_, [this](TaskId task) { return full_name(task); },
                               {.first = pass_begin_, .first_edge = pass_first_edge_});
    for (std::size_t r = 0; good && r < ranks_.size(); ++r) good = check_readers(checked(r));
    return good;
  }

  Result<void> check_figures(std::size_t r, const Prediction& prediction) const {
    const std::string who = ranks_.size() == 1 ? "" : fmt::format("rank {}: ", r);
    auto good = check_times(prediction, who);
    if (good) good = check_sums(prediction, schedule_.end_us.back(), who);
    if (good && steady_) good = check_pace(checked(r), prediction);
    return good;
  }

  // ""aten::mm" on stream 0 of rank 1"
  std::string full_name(TaskId task) const {
    const std::size_t r = rank_of(task);
    if (r == ranks_.size()) return "the meeting of a collective";
    const bool device = tasks_[r]->on_device(task);
    return fmt::format("\"{}\" on {}{}", op_name(task, r),
                       device ? fmt::format("stream {}", tasks_[r]->stream_of(task)) : "the host",
                       ranks_.size() == 1 ? "" : fmt::format(" of rank {}", r));
  }

  // ---- report
  // ------------------------------------------------------------------------------------

  Result<JobPrediction> explain() {
    JobPrediction made;
    if (options_.keep_chakra) {
      made.chakra = chakra();
      warn_of_unknown_kinds();
    }
    note_points();
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      auto prediction = explain_rank({.graph = ranks_[r].graph,
                                      .table = ranks_[r].table,
                                      .options = &ranks_[r].options,
                                      .program = &programs_[r],
                                      .tasks = tasks_[r].get(),
                                      .other_name = [this](TaskId task) { return task_name(task); },
                                      .other_key = [this](TaskId task) { return task_key(task); },
                                      .op_key = op_key(),
                                      .started = !options_.rank_start_us.empty()},
                                     graph_, schedule_);
      if (!prediction) return Unexpected{prediction.error()};
      if (auto good = check_figures(r, *prediction); !good) return Unexpected{good.error()};
      report_communication(r, *prediction);
      if (made_[r].graph) prediction->graph = {made_[r].graph, &made_[r].graph->graph};
      prediction->ranks = job_size(r);
      report_memory(memories_[r], gpu_, *prediction);
      if (ranks_[r].options.keep_ops) prediction->path_points = path_points(r, *prediction);
      made.ranks.push_back(std::move(*prediction));
    }
    double first = made.ranks[0].begin_us;
    for (const Prediction& rank : made.ranks) first = std::min(first, rank.begin_us);
    for (Prediction& rank : made.ranks) rank.begin_us -= first;
    if (ranks_.size() == 1) {
      auto& own = made.ranks[0].warnings;
      own.insert(own.begin(), warnings_.begin(), warnings_.end());
      return made;
    }
    made.warnings = std::move(warnings_);
    auto job = report_job(made.ranks);
    if (!job) return Unexpected{job.error()};
    made.job = *job;
    return made;
  }

  // The rank whose lane a task is on; their number for tasks of no rank.
  std::size_t rank_of(TaskId task) const {
    const std::int32_t lane = graph_.lane(task);
    if (lane < 0) return ranks_.size();
    const auto after = std::partition_point(
        tasks_.begin(), tasks_.end(), [&](const auto& rank) { return rank->end_lane() <= lane; });
    return static_cast<std::size_t>(after - tasks_.begin());
  }

  const ProgramItem& item_of(TaskId task, std::size_t rank) const {
    return programs_[rank].items[static_cast<std::size_t>(graph_.op(task))];
  }

  // "rank 2: aten::mm"; empty for tasks of no rank.
  std::string_view op_name(TaskId task, std::size_t rank) const {
    const ProgramItem& item = item_of(task, rank);
    if (!item.title.empty()) return item.title;
    const ExecutionGraph& graph = *ranks_[rank].graph;
    return graph.name(graph.nodes[static_cast<std::size_t>(item.subject)]);
  }

  std::string task_name(TaskId task) const {
    const std::size_t r = rank_of(task);
    if (r == ranks_.size()) return {};
    return fmt::format("rank {}: {}", r, op_name(task, r));
  }

  std::uint64_t task_key(TaskId task) const {
    const std::size_t r = rank_of(task);
    if (r == ranks_.size()) return ~std::uint64_t{0};
    const ProgramItem& item = item_of(task, r);
    const Node& node = ranks_[r].graph->nodes[static_cast<std::size_t>(item.subject)];
    return hash_mix(r + 1, item.title.empty() ? node.name : hash_text(item.title));
  }

  std::function<std::uint64_t(TaskId)> op_key() const {
    if (ranks_.size() == 1) return {};
    return [this](TaskId task) {
      const std::size_t r = rank_of(task);
      return r == ranks_.size() ? ~std::uint64_t{0} : hash_text(op_name(task, r));
    };
  }

  // Which op and kernel each task of the last pass belongs to.
  void note_points() {
    points_.assign(graph_.size() - static_cast<std::size_t>(pass_begin_), {.rank = -1});
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (!ranks_[r].options.keep_ops) continue;
      const auto positions = op_positions(programs_[r]);
      for (const auto& placed : tasks_[r]->last_pass()) {
        const auto& at = programs_[r].instructions[static_cast<std::size_t>(placed.instruction)];
        const bool device = tasks_[r]->on_device(placed.task);
        const Prediction::PathPoint point{.rank = static_cast<std::int32_t>(r),
                                          .op = positions[static_cast<std::size_t>(at.op)],
                                          .kernel = device ? at.kernel : -1};
        points_[static_cast<std::size_t>(placed.task - pass_begin_)] = point;
        points_[static_cast<std::size_t>(placed.arrival - pass_begin_)] = point;
      }
    }
  }

  std::vector<Prediction::PathPoint> path_points(std::size_t r,
                                                 const Prediction& prediction) const {
    std::vector<Prediction::PathPoint> path;
    // Where the device sets the pace, the path ends with its last task instead of the host's.
    const double step = prediction.e2e_us * static_cast<double>(programs_[r].steps.size());
    const bool device_bound =
        options_.rank_start_us.empty() && step > period(r, 0) * (1 + kSteadyTolerance / 2);
    const TaskId last =
        device_bound ? tasks_[r]->pass_device_ends().back() : tasks_[r]->pass_ends().back();
    for (TaskId task : schedule_.critical_path(last)) {
      if (task < pass_begin_) break;
      const auto& point = points_[static_cast<std::size_t>(task - pass_begin_)];
      if (point.rank < 0) continue;
      const bool again = !path.empty() && path.back().rank == point.rank &&
                         path.back().op == point.op && path.back().kernel == point.kernel;
      if (!again) path.push_back(point);
    }
    std::reverse(path.begin(), path.end());
    return path;
  }

  // The last pass of every rank. Uneven all-to-alls count as their largest rank's.
  std::vector<ChakraTrace> chakra() const {
    std::map<TaskId, std::pair<std::size_t, const Instruction*>> placed_at;
    std::map<std::int32_t, double> bytes_of_meeting;
    std::vector<bool> several_groups(ranks_.size(), false);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      std::set<std::string_view> groups;
      for (const Instruction& at : programs_[r].instructions) {
        if (!at.collective || at.comm < 0) continue;
        groups.insert(
            ranks_[r].graph->comm_records[static_cast<std::size_t>(at.comm)].process_group);
      }
      several_groups[r] = groups.size() > 1;
    }
    const auto bytes = [&](std::size_t r, const Instruction& at) {
      if (at.comm_work < 0) return std::max(0.0, at.comm_bytes);
      const auto& work = programs_[r].comm_works[static_cast<std::size_t>(at.comm_work)];
      return std::max(work.bytes_read.value, work.bytes_written.value);
    };
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (const auto& placed : tasks_[r]->last_pass()) {
        const auto& at = programs_[r].instructions[static_cast<std::size_t>(placed.instruction)];
        placed_at[placed.task] = {r, &at};
        if (placed.arrival != placed.task) placed_at[placed.arrival] = {r, nullptr};
        if (at.meeting < 0) continue;
        double& most = bytes_of_meeting[at.meeting];
        most = std::max(most, bytes(r, at));
      }
    }
    const auto describe = [&](TaskId task) -> std::optional<ChakraTask> {
      const auto found = placed_at.find(task);
      if (found == placed_at.end()) return {};
      const auto [r, at] = found->second;
      if (!at) return ChakraTask{.rank = r};
      const auto& item = programs_[r].items[static_cast<std::size_t>(at->op)];
      const Node& node = ranks_[r].graph->nodes[static_cast<std::size_t>(item.subject)];
      ChakraTask made{
          .rank = r,
          .name = std::string(item.title.empty() ? ranks_[r].graph->name(node) : item.title),
          .on_host = tasks_[r]->on_host(task)};
      if (made.on_host || at->kernel < 0) return made;
      const auto& kernel = item.kernels[static_cast<std::size_t>(at->kernel)];
      made.name = kernel.name;
      if (!at->collective) return made;
      std::string kind = canonical_collective(kernel.name);
      if (at->comm_work >= 0) {
        const auto& work = programs_[r].comm_works[static_cast<std::size_t>(at->comm_work)];
        if (const auto* shape = std::get_if<CollectiveShape>(&work.shape)) {
          kind = shape->kind;
          made.group_size = shape->world_size;
        }
      }
      // One group is that of all ranks, whatever its name.
      if (at->comm >= 0 && several_groups[r]) {
        made.process_group =
            ranks_[r].graph->comm_records[static_cast<std::size_t>(at->comm)].process_group;
      }
      made.collective = chakra_collective(kind);
      made.group_size = std::max<std::int64_t>(1, made.group_size);
      made.comm_bytes = static_cast<std::int64_t>(at->meeting >= 0 ? bytes_of_meeting[at->meeting]
                                                                   : bytes(r, *at));
      return made;
    };
    return chakra_traces(graph_, schedule_, {pass_begin_, static_cast<TaskId>(graph_.size())},
                         ranks_.size(), describe);
  }

  void warn_of_unknown_kinds() {
    std::size_t unknown = 0;
    for (const HostProgram& program : programs_) {
      for (const Instruction& at : program.instructions) {
        if (!at.collective || at.comm_work >= 0 || at.kernel < 0) continue;
        const auto& item = program.items[static_cast<std::size_t>(at.op)];
        const auto& name = item.kernels[static_cast<std::size_t>(at.kernel)].name;
        unknown += !chakra_collective(canonical_collective(name));
      }
    }
    if (unknown == 0) return;
    warnings_.push_back(fmt::format(
        "{} collectives of a kind that Chakra does not know are written as computation", unknown));
  }

  double end(TaskId task) const { return schedule_.end_us[static_cast<std::size_t>(task)]; }
  double start(TaskId task) const { return schedule_.start_us[static_cast<std::size_t>(task)]; }

  std::int64_t job_size(std::size_t r) const {
    if (programs_[r].scaled_out) return programs_[r].scaled_out->world;
    auto size = static_cast<std::int64_t>(ranks_.size());
    for (const KernelWork& work : programs_[r].comm_works) {
      if (const auto* shape = std::get_if<CollectiveShape>(&work.shape)) {
        size = std::max(size, shape->world_size);
      }
    }
    return size;
  }

  void report_communication(std::size_t r, Prediction& prediction) const {
    RankReport& made = prediction.communication;
    const auto steps = static_cast<double>(programs_[r].steps.size());
    std::vector<std::pair<double, double>> other, all;
    for (const auto& placed : tasks_[r]->last_pass()) {
      if (!tasks_[r]->on_device(placed.task)) continue;
      all.emplace_back(start(placed.arrival), end(placed.task));
      const auto& at = programs_[r].instructions[static_cast<std::size_t>(placed.instruction)];
      if (!at.collective) {
        other.push_back(all.back());
        continue;
      }
      ++made.collectives;
      made.transfer_us += graph_.duration_us(placed.task) / steps;
      if (placed.arrival != placed.task) {
        made.waiting_us += (start(placed.task) - end(placed.arrival)) / steps;
      }
    }
    made.exposed_us = (union_us(all) - union_us(other)) / steps;
    for (const Hub& hub : hubs_) {
      if (hub.arrivals.empty() || hub.arrivals[r] < 0) continue;
      const double own = end(hub.arrivals[r]);
      if (own < end(hub.task)) continue;
      ++made.last_arrivals;
      for (TaskId other_arrival : hub.arrivals) {
        if (other_arrival >= 0) made.caused_us += (own - end(other_arrival)) / steps;
      }
    }
  }

  Result<JobReport> report_job(const std::vector<Prediction>& ranks) {
    std::vector<double> steps_us;
    std::vector<RankReport> communication;
    for (const Prediction& rank : ranks) {
      steps_us.push_back(rank.e2e_us);
      communication.push_back(rank.communication);
    }
    return job_report(steps_us, communication,
                      [this](const auto& ignored) { return steps_without(ignored); });
  }

  // Steps of all ranks in the same passes, but nobody waits for the ignored ranks.
  Result<std::vector<double>> steps_without(const std::vector<bool>& ignored) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const double lag = ignored[r] ? -std::numeric_limits<double>::infinity() : 0;
      for (std::int32_t edge : arrival_edges_[r]) graph_.set_lag_us(edge, lag);
    }
    if (auto done = run_schedule(graph_, schedule_); !done) return Unexpected{done.error()};
    std::vector<double> steps;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      double step = 0;
      if (options_.rank_start_us.empty()) {
        step = std::max(period(r, 0), device_period(r));
      } else {
        step = end(tasks_[r]->pass_ends().back()) - start(tasks_[r]->pass_begins().back());
      }
      steps.push_back(step / static_cast<double>(programs_[r].steps.size()));
    }
    return steps;
  }

  double device_period(std::size_t rank) const {
    const auto& ends = tasks_[rank]->pass_device_ends();
    const TaskId last = ends.back(), before = ends[ends.size() - 2];
    return last < 0 || before < 0 ? 0 : end(last) - end(before);
  }

  struct DataParallel {
    std::shared_ptr<DataParallelGraph> graph;  // null: the given one is used
    std::unique_ptr<KernelTimes> times;
  };

  std::vector<RankInput> ranks_;
  const Gpu& gpu_;
  JobOptions options_;
  const HostFacts* facts_;
  std::vector<DataParallel> made_;                  // per rank
  std::vector<std::optional<double>> added_bytes_;  // per rank
  std::vector<HostProgram> programs_;
  std::vector<StaticMemory> memories_;  // of the graphs
  std::vector<std::unique_ptr<ProgramTasks>> tasks_;
  std::map<std::string, std::size_t> local_groups_;  // of the rank at hand
  std::int32_t meetings_ = 0;
  std::vector<Hub> hubs_;                                 // of the last pass
  std::vector<std::vector<std::int32_t>> arrival_edges_;  // per rank, of all passes
  TaskGraph graph_;
  Schedule schedule_;
  TaskId pass_begin_ = 0;  // first task of the last pass
  std::size_t pass_first_edge_ = 0;
  bool steady_ = false;
  std::vector<Prediction::PathPoint> points_;  // of the last pass; rank -1: none
  std::vector<std::string> warnings_;
};

}  // namespace

void report_memory(const StaticMemory& of_graph, const Gpu& gpu, Prediction& prediction) {
  prediction.memory = predicted_memory(of_graph, prediction.scaled_out, gpu);
  std::string warning = memory_warning(prediction.memory, gpu);
  if (!warning.empty()) prediction.warnings.push_back(std::move(warning));
}

Result<JobPrediction> predict_ranks(std::span<const RankInput> ranks, const Gpu& gpu,
                                    const JobOptions& options, const HostFacts* facts,
                                    std::optional<double> added_bytes) {
  auto job = Job(ranks, gpu, options, facts, added_bytes).predict();
  const auto asks = [](const RankInput& rank) { return rank.options.host_sensitivity; };
  if (!job || std::ranges::none_of(ranks, asks)) return job;
  std::vector<RankInput> others(ranks.begin(), ranks.end());
  JobOptions plain = options;
  plain.keep_chakra = false;
  for (const double scale : kOtherHosts) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      others[r].options.host_scale = scale * ranks[r].options.host_scale;
      others[r].options.keep_ops = false;
      others[r].options.what_if_steps = 0;
    }
    const auto scaled = Job(others, gpu, plain, facts, added_bytes).predict();
    if (!scaled) return Unexpected{scaled.error()};
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (!asks(ranks[r])) continue;
      job->ranks[r].host_sensitivity.push_back({scale, scaled->ranks[r].e2e_us});
    }
  }
  return job;
}

}  // namespace perfmodel
