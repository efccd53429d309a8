#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "base/contains.hpp"
#include "base/decimal_number.hpp"
#include "base/file_name.hpp"
#include "base/secrets.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "perfmodel/prediction.hpp"
#include "perfmodel/replay.hpp"
#include "replay_scaled.hpp"
#include "replayed_job.hpp"

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

/// "job.3.et" and "job.3.et.gz" belong to rank 3.
std::optional<std::int32_t> rank_in_name(std::string_view file) {
  if (file.ends_with(".gz")) file.remove_suffix(3);
  if (file.ends_with(".et")) file.remove_suffix(3);
  const std::size_t dot = file.find_last_of('.');
  if (dot == file.npos) return {};
  std::int32_t rank = -1;
  if (!read_decimal(file.substr(dot + 1), rank) || rank < 0) return {};
  return rank;
}

/// The ranks of the files by their names, if these are all different; else their order counts.
std::vector<std::int32_t> ranks_of_files(std::span<const std::string> files) {
  std::vector<std::int32_t> ranks;
  std::set<std::int32_t> seen;
  for (const std::string& file : files) {
    const auto rank = rank_in_name(file);
    if (rank && seen.insert(*rank).second) ranks.push_back(*rank);
  }
  if (ranks.size() == files.size()) return ranks;
  ranks.clear();
  for (std::size_t r = 0; r < files.size(); ++r) ranks.push_back(static_cast<std::int32_t>(r));
  return ranks;
}

bool is_kernel(const ChakraNode& node) {
  return node.type == ChakraNodeType::kCompute && !node.is_cpu_op;
}

/// Nodes of one kind, and those without a duration among them.
struct Timed {
  std::size_t all = 0, untimed = 0;
  std::vector<std::string> names;  // names of the first untimed nodes

  void add(const ChakraNode& node) {
    constexpr std::size_t kShown = 4;
    ++all;
    if (node.duration_us > 0) return;
    ++untimed;
    if (names.size() < kShown) add_once(names, shown_text(node.name));
  }

  std::string text(std::string_view kind) const {
    return fmt::format("{} of {} {} have no duration and take no time here: {}", untimed, all, kind,
                       fmt::join(names, ", "));
  }
};

/// The node that a task is made of; none: a meeting of all ranks.
struct Placed {
  std::size_t rank = 0;
  const ChakraNode* node = nullptr;
};

/// A rank is there for a collective when this task ends.
struct Arrival {
  std::size_t rank = 0;
  TaskId task = -1;
};

/// The nodes of all ranks as tasks, before they are scheduled.
struct ChakraJob {
  std::span<const ChakraTrace> traces;
  std::vector<std::int32_t> ranks;  // per file
  TaskGraph graph;
  std::vector<Placed> placed;                            // per task
  std::vector<std::vector<TaskId>> begins, ends;         // per rank and node
  std::vector<std::vector<std::int32_t>> arrival_edges;  // per rank
  std::vector<std::vector<Arrival>> meetings;            // per collective
};

TaskNames names_of(const ChakraJob& job) {
  const auto at = [&job](TaskId task) -> const Placed& {
    return job.placed[static_cast<std::size_t>(task)];
  };
  return {.key = [at](TaskId task) -> std::uint64_t {
            const ChakraNode* node = at(task).node;
            return node ? std::hash<std::string>{}(node->name) * 4 + at(task).rank : 0;
          },
          .op = [at](TaskId task) -> std::string {
            return at(task).node ? at(task).node->name : "(last rank's arrival)";
          },
          .category = [at](TaskId task) -> std::string {
            const ChakraNode* node = at(task).node;
            if (!node) return "collective";
            if (node->type != ChakraNodeType::kCompute) return std::string(to_string(node->type));
            return node->is_cpu_op ? "host" : "kernel";
          },
          .op_key = [at](TaskId task) -> std::uint64_t {
            const ChakraNode* node = at(task).node;
            return node ? std::hash<std::string>{}(node->name) : 0;
          }};
}

// A caller that waits for its callee, which waits for it: the caller begins.
bool callee_waits(const ChakraNode& caller, const ChakraNode& callee) {
  const auto names = [&](const std::vector<std::uint64_t>& list) {
    return std::find(list.begin(), list.end(), caller.id) != list.end();
  };
  return names(callee.ctrl_deps) && names(callee.data_deps);
}

// Workloads for simulators only have FLOP and bytes. Short nodes of our own files are rounded to 0
// us: host work and kernels, which have no work here, and collectives of one number.
Result<void> check_durations(std::span<const ChakraTrace> traces,
                             std::span<const std::string> sources,
                             std::vector<std::string>& warnings) {
  constexpr std::int64_t kOneNumber = 8;  // bytes
  Timed nodes, compute, collectives;
  for (std::size_t r = 0; r < traces.size(); ++r) {
    Timed own;
    for (const ChakraNode& node : traces[r].nodes) {
      own.add(node);
      const bool computes = node.type == ChakraNodeType::kCompute &&
                            (node.num_ops.value_or(0) > 0 || node.tensor_size.value_or(0) > 0);
      if (computes) compute.add(node);
      const bool moves = node.type == ChakraNodeType::kCollective &&
                         (!node.comm_size || *node.comm_size > kOneNumber);
      if (moves) collectives.add(node);
    }
    nodes.all += own.all;
    nodes.untimed += own.untimed;
    if (own.untimed == own.all) {
      warnings.push_back(fmt::format("{}: none of {} nodes has a duration",
                                     std::filesystem::path(sources[r]).filename().string(),
                                     own.all));
    }
  }
  if (nodes.untimed == nodes.all) {
    return decline(fmt::format("expected durations (duration_micros), found none in {} nodes: FLOP "
                               "and bytes are for a simulator to time",
                               nodes.all),
                   sources[0]);
  }
  if (collectives.untimed > 0) warnings.push_back(collectives.text("collectives"));
  if (compute.untimed > 0) warnings.push_back(compute.text("compute nodes with work"));
  return {};
}

// Converters lose the waits for a kernel: its collective would begin at once.
void check_kernels(const ChakraJob& job, std::vector<std::string>& warnings) {
  std::vector<std::vector<TaskId>> followers(job.graph.size());
  for (const TaskGraph::Edge& edge : job.graph.edge_list()) {
    followers[static_cast<std::size_t>(edge.from)].push_back(edge.to);
  }
  for (std::size_t r = 0; r < job.traces.size(); ++r) {
    for (std::size_t i = 0; i < job.begins[r].size(); ++i) {  // a collective that will meet others
      if (job.begins[r][i] == job.ends[r][i]) continue;
      followers[static_cast<std::size_t>(job.begins[r][i])].push_back(job.ends[r][i]);
    }
  }
  std::vector<bool> behind_kernel(job.graph.size());
  std::vector<TaskId> open;
  for (std::size_t task = 0; task < job.placed.size(); ++task) {
    if (is_kernel(*job.placed[task].node)) open.push_back(static_cast<TaskId>(task));
  }
  while (!open.empty()) {
    const auto task = static_cast<std::size_t>(open.back());
    open.pop_back();
    for (const TaskId next : followers[task]) {
      if (behind_kernel[static_cast<std::size_t>(next)]) continue;
      behind_kernel[static_cast<std::size_t>(next)] = true;
      open.push_back(next);
    }
  }
  std::size_t kernels = 0, early = 0;
  for (std::size_t r = 0; r < job.traces.size(); ++r) {
    std::size_t lost = 0, early_here = 0;
    for (std::size_t i = 0; i < job.traces[r].nodes.size(); ++i) {
      const ChakraNode& node = job.traces[r].nodes[i];
      const auto begin = static_cast<std::size_t>(job.begins[r][i]);
      lost += is_kernel(node) && node.duration_us > 0 && followers[begin].empty();
      early_here += node.type == ChakraNodeType::kCollective && !behind_kernel[begin] && lost > 0;
    }
    early += early_here;
    if (early_here > 0) kernels += lost;
  }
  if (early == 0) return;
  warnings.push_back(fmt::format(
      "nothing waits for {} kernels: {} collectives behind them start too early", kernels, early));
}

// A node is a task that only waits for its data_deps. Files written here hold the order of threads
// and streams there too; the ctrl_deps of others name callers, which wait for their callees in
// turn.
class ChakraJobBuilder {
 public:
  ChakraJobBuilder(std::span<const ChakraTrace> traces, std::span<const std::string> sources,
                   const ReplayOptions& options, Replay& replay)
      : traces_(traces),
        sources_(sources),
        options_(options),
        replay_(replay),
        job_{.traces = traces, .ranks = ranks_of_files(sources)} {}

  Result<ChakraJob> build() {
    for (std::size_t r = 0; r < traces_.size(); ++r) {
      if (traces_[r].nodes.empty()) {
        return decline("expected nodes, found none", sources_[r]);
      }
      add_rank(r);
    }
    PERFMODEL_TRY(timed, check_durations(traces_, sources_, replay_.warnings));
    check_kernels(job_, replay_.warnings);
    PERFMODEL_TRY_TO(meet());
    return std::move(job_);
  }

 private:
  using Transfer = std::tuple<std::int32_t, std::int32_t, std::int32_t>;  // from, to, tag

  double scale(const ChakraNode& node) const {
    if (node.type != ChakraNodeType::kCompute) return 1;
    return node.is_cpu_op ? options_.scale_host : options_.scale_kernels;
  }

  void add_rank(std::size_t r) {
    std::unordered_map<std::uint64_t, TaskId> task_of;
    std::unordered_map<std::uint64_t, const ChakraNode&> node_of;
    const auto add = [&](const ChakraNode& node, double duration) {
      job_.placed.push_back({r, &node});
      return job_.graph.add_task(TaskGraph::kNoLane, duration, 0, static_cast<std::int32_t>(r));
    };
    job_.begins.emplace_back();
    job_.ends.emplace_back();
    for (const ChakraNode& node : traces_[r].nodes) {
      const bool meets = node.type == ChakraNodeType::kCollective && traces_.size() > 1;
      // A collective is there first and moves data when all are.
      job_.begins[r].push_back(add(node, meets ? 0 : node.duration_us * scale(node)));
      job_.ends[r].push_back(meets ? add(node, node.duration_us) : job_.begins[r].back());
      task_of[node.id] = job_.ends[r].back();
      node_of.emplace(node.id, node);
    }
    for (std::size_t i = 0; i < traces_[r].nodes.size(); ++i) {
      const ChakraNode& node = traces_[r].nodes[i];
      for (std::uint64_t id : node.data_deps) {
        const auto from = task_of.find(id);
        if (from == task_of.end() || from->second == job_.ends[r][i]) continue;  // a root
        if (callee_waits(node, node_of.at(id))) continue;
        // One of these is only dropped if nodes wait for each other in a circle.
        job_.graph.add_edge(from->second, job_.begins[r][i], 0, TaskGraph::EdgeKind::kInferred);
      }
    }
  }

  // Collectives meet by their order within a process group; a receive waits for its send.
  Result<void> meet() {
    if (traces_.size() == 1) return {};
    job_.arrival_edges.resize(traces_.size());
    std::map<std::string, std::vector<std::vector<std::size_t>>> groups;  // per rank: positions
    std::map<Transfer, std::vector<TaskId>> sends;
    for (std::size_t r = 0; r < traces_.size(); ++r) {
      for (std::size_t i = 0; i < traces_[r].nodes.size(); ++i) {
        const ChakraNode& node = traces_[r].nodes[i];
        if (node.type == ChakraNodeType::kCollective) {
          auto& group = groups[node.pg_name == "0" ? "" : node.pg_name];
          group.resize(traces_.size());
          group[r].push_back(i);
        } else if (node.type == ChakraNodeType::kSend) {
          sends[transfer(r, node)].push_back(job_.ends[r][i]);
        }
      }
    }
    for (const auto& [name, group] : groups) PERFMODEL_TRY_TO(meet_group(name, group));
    for (std::size_t r = 0; r < traces_.size(); ++r) receive(r, sends);
    if (replay_.collectives_unmatched > 0) {
      replay_.warnings.push_back(
          fmt::format("{} receives have no send", replay_.collectives_unmatched));
    }
    return {};
  }

  Result<void> meet_group(const std::string& name,
                          const std::vector<std::vector<std::size_t>>& group) {
    std::size_t most = 0, longest = 0;
    for (std::size_t r = 0; r < group.size(); ++r) {
      if (group[r].size() > most) {
        most = group[r].size();
        longest = r;
      }
    }
    for (std::size_t k = 0; k < most; ++k) {
      const TaskId hub = job_.graph.add_task(TaskGraph::kNoLane, 0);
      job_.placed.push_back({traces_.size(), nullptr});
      const ChakraNode& first = traces_[longest].nodes[group[longest][k]];
      job_.meetings.emplace_back();
      for (std::size_t r = 0; r < group.size(); ++r) {
        if (group[r].empty()) continue;  // not in the group
        if (k >= group[r].size() && !options_.missing_ranks) {
          return decline(
              fmt::format("expected every collective on every rank, found that {} lacks \"{}\", "
                          "number {} of process group \"{}\"",
                          sources_[r], first.name, k, name));
        }
        if (k >= group[r].size()) continue;
        const std::size_t i = group[r][k];
        const ChakraNode& node = traces_[r].nodes[i];
        if (node.comm_type != first.comm_type) {
          return decline(
              fmt::format("expected one kind for number {} of process group \"{}\", found \"{}\" "
                          "in {} and \"{}\" in {}",
                          k, name, first.name, sources_[longest], node.name, sources_[r]));
        }
        job_.meetings.back().push_back({r, job_.begins[r][i]});
        job_.arrival_edges[r].push_back(job_.graph.add_edge(job_.begins[r][i], hub));
        job_.graph.add_edge(hub, job_.ends[r][i]);
      }
      ++replay_.collectives_matched;
    }
    return {};
  }

  // The side that a node does not name is its own file's rank.
  Transfer transfer(std::size_t r, const ChakraNode& node) const {
    const bool sends = node.type == ChakraNodeType::kSend;
    return {node.comm_src.value_or(sends ? job_.ranks[r] : -1),
            node.comm_dst.value_or(sends ? -1 : job_.ranks[r]), node.comm_tag.value_or(0)};
  }

  void receive(std::size_t r, const std::map<Transfer, std::vector<TaskId>>& sends) {
    std::map<Transfer, std::size_t> next;
    for (std::size_t i = 0; i < traces_[r].nodes.size(); ++i) {
      const ChakraNode& node = traces_[r].nodes[i];
      if (node.type != ChakraNodeType::kReceive) continue;
      const Transfer key = transfer(r, node);
      const auto sent = sends.find(key);
      const std::size_t position = next[key]++;
      if (sent == sends.end() || position >= sent->second.size()) {
        ++replay_.collectives_unmatched;
        continue;
      }
      job_.graph.add_edge(sent->second[position], job_.begins[r][i]);
    }
  }

  std::span<const ChakraTrace> traces_;
  std::span<const std::string> sources_;
  const ReplayOptions& options_;
  Replay& replay_;
  ChakraJob job_;
};

class ChakraReport {
 public:
  ChakraReport(const ChakraJob& job, const Schedule& schedule, std::span<const std::string> sources,
               Replay& replay)
      : job_(job), schedule_(schedule), sources_(sources), replay_(replay) {}

  Result<void> write() {
    for (std::size_t r = 0; r < traces_.size(); ++r) report(r);
    report_arrivals();
    PERFMODEL_TRY_TO(report_paths());
    if (traces_.size() > 1) PERFMODEL_TRY_TO(report_job());
    finish();
    return {};
  }

 private:
  static constexpr std::size_t kMostPaths = 16;

  double end(TaskId task) const { return schedule_.end_us[static_cast<std::size_t>(task)]; }

  void report(std::size_t r) {
    Replay::Rank rank{.source = sources_[r], .rank = job_.ranks[r]};
    Replay::Iteration whole{.name = "whole trace"};
    TaskId last = -1;
    std::vector<std::pair<double, double>> device, other;  // busy; with other than collectives
    double first = std::numeric_limits<double>::infinity(), until = 0;
    for (std::size_t i = 0; i < traces_[r].nodes.size(); ++i) {
      const ChakraNode& node = traces_[r].nodes[i];
      first = std::min(first, node.start_us);
      until = std::max(until, node.start_us + node.duration_us);
      if (last < 0 || end(ends_[r][i]) > end(last)) last = ends_[r][i];
      const std::pair<double, double> span(
          schedule_.start_us[static_cast<std::size_t>(begins_[r][i])], end(ends_[r][i]));
      if (!node.is_cpu_op) device.push_back(span);
      if (!node.is_cpu_op && node.type != ChakraNodeType::kCollective) other.push_back(span);
      if (node.type != ChakraNodeType::kCollective) continue;
      ++rank.communication.collectives;
      rank.communication.transfer_us += node.duration_us;
      if (begins_[r][i] == ends_[r][i]) continue;
      rank.communication.waiting_us +=
          schedule_.start_us[static_cast<std::size_t>(ends_[r][i])] - end(begins_[r][i]);
    }
    // Files of other tools hold durations only.
    const auto starts = [](const ChakraNode& node) { return node.start_us > 0; };
    if (traces_[r].nodes.size() == 1 || std::ranges::any_of(traces_[r].nodes, starts)) {
      whole.measured_us = until - std::min(first, until);
    }
    whole.replayed_us = end(last);
    rank.communication.exposed_us = union_us(std::move(device)) - union_us(std::move(other));
    rank.iterations.push_back(std::move(whole));
    last_tasks_.push_back(last);
    replay_.ranks.push_back(std::move(rank));
  }

  // Which rank came last, and how long the others had waited for it by then.
  void report_arrivals() {
    for (const std::vector<Arrival>& arrivals : job_.meetings) {
      double latest = 0, waited = 0;
      for (const Arrival& arrival : arrivals) latest = std::max(latest, end(arrival.task));
      for (const Arrival& arrival : arrivals) waited += latest - end(arrival.task);
      for (const Arrival& arrival : arrivals) {
        if (end(arrival.task) < latest) continue;
        RankReport& made = replay_.ranks[arrival.rank].communication;
        ++made.last_arrivals;
        made.caused_us += waited;
      }
    }
  }

  // A path goes through the tasks of all ranks: with many ranks only the slowest has one.
  Result<void> report_paths() {
    const auto slowest = static_cast<std::size_t>(
        std::ranges::max_element(last_tasks_, {}, [&](TaskId task) { return end(task); }) -
        last_tasks_.begin());
    for (std::size_t r = 0; r < traces_.size(); ++r) {
      if (traces_.size() > kMostPaths && r != slowest) continue;
      PERFMODEL_TRY(path, critical_path(graph_, schedule_, -1, last_tasks_[r], names_of(job_)));
      replay_.ranks[r].critical_path = std::move(*path);
    }
    return {};
  }

  Result<void> report_job() {
    PERFMODEL_TRY(job, replayed_job(graph_, schedule_, replay_.ranks, job_.arrival_edges,
                                    [this](const Schedule& at) { return last_ends_us(at); }));
    replay_.job = *job;
    return {};
  }

  std::vector<double> last_ends_us(const Schedule& schedule) const {
    std::vector<double> steps(ends_.size(), 0);
    for (std::size_t r = 0; r < ends_.size(); ++r) {
      for (const TaskId task : ends_[r]) steps[r] = std::max(steps[r], schedule.end_us[task]);
    }
    return steps;
  }

  void finish() {
    replay_.tasks = graph_.size();
    replay_.edges = graph_.edges();
    replay_.warnings.push_back(
        "a Chakra file has no place for launch latencies: the replay is shorter by them");
    if (traces_.size() == 1 && replay_.ranks[0].communication.collectives > 0) {
      replay_.warnings.push_back(
          "one rank alone: its collectives move data at once, nobody is waited for");
    }
    if (traces_.size() > kMostPaths) {
      replay_.warnings.push_back(
          fmt::format("of more than {} ranks the slowest alone has a critical path", kMostPaths));
    }
    if (schedule_.dropped_edges > 0) {
      replay_.warnings.push_back(fmt::format(
          "{} dependencies closed a circle of nodes that wait for each other and were dropped",
          schedule_.dropped_edges));
    }
    if (std::ranges::all_of(replay_.ranks,
                            [](const auto& rank) { return rank.iterations[0].measured_us <= 0; })) {
      replay_.warnings.push_back("no starts in the files: nothing says what was measured");
    }
  }

  const ChakraJob& job_;
  const Schedule& schedule_;
  std::span<const std::string> sources_;
  Replay& replay_;
  std::span<const ChakraTrace> traces_ = job_.traces;
  const TaskGraph& graph_ = job_.graph;
  const std::vector<std::vector<TaskId>>&begins_ = job_.begins, &ends_ = job_.ends;
  std::vector<TaskId> last_tasks_;  // per rank
};

Result<Replay> replay_job(std::span<const ChakraTrace> traces, std::span<const std::string> sources,
                          const ReplayOptions& options) {
  if (options.iterations && *options.iterations != std::pair<std::size_t, std::size_t>(0, 1)) {
    return decline(fmt::format("expected iterations within 0:1 (a Chakra file is one), found {}:{}",
                               options.iterations->first, options.iterations->second));
  }
  Replay replay;
  PERFMODEL_TRY(job, ChakraJobBuilder(traces, sources, options, replay).build());
  PERFMODEL_TRY(schedule, run_schedule(job->graph));
  PERFMODEL_TRY_TO(ChakraReport(*job, *schedule, sources, replay).write());
  return replay;
}

bool is_chakra_file(const std::string& file) {
  return file.ends_with(".et") || file.ends_with(".et.gz");
}

}  // namespace

Result<Replay> replay(std::span<const ChakraTrace> ranks, std::span<const std::string> sources,
                      const ReplayOptions& options) {
  PERFMODEL_CHECK(ranks.size() == sources.size());
  if (ranks.empty()) return decline("expected at least one trace, found none");
  return replay_scaled(options,
                       [&](const ReplayOptions& at) { return replay_job(ranks, sources, at); });
}

Result<bool> are_chakra_files(std::span<const std::string> files) {
  const auto chakra = std::ranges::find_if(files, is_chakra_file);
  const auto other = std::ranges::find_if_not(files, is_chakra_file);
  if (chakra != files.end() && other != files.end()) {
    return decline(
        "expected all Kineto traces or all Chakra traces, found " + file_name(*chakra) + " with it",
        *other);
  }
  return other == files.end();
}

Result<Replay> replay_chakra_files(std::span<const std::string> files, const ReadOptions& reading,
                                   const ReplayOptions& options) {
  std::vector<ChakraTrace> traces;
  std::vector<std::string> warnings;
  for (const std::string& file : files) {
    PERFMODEL_TRY(trace, read_chakra(file, reading));
    for (const std::string& warning : trace->warnings) {
      warnings.push_back(file_name(file) + ": " + warning);
    }
    traces.push_back(std::move(*trace));
  }
  auto replayed = replay(traces, files, options);
  if (replayed) {
    replayed->warnings.insert(replayed->warnings.begin(), warnings.begin(), warnings.end());
  }
  return replayed;
}

}  // namespace perfmodel
