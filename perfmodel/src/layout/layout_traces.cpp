#include "layout_traces.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/stop_point.hpp"
#include "sharded_step.hpp"
#include "staged_step.hpp"
#include "step_tasks.hpp"

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

constexpr double kMostNodes = 4e6;  // in all files together, some 700 bytes each in memory

double to_real(std::int64_t number) { return static_cast<double>(number); }

// A collective of stages: all wait for the last.
void meet(LayoutStep& step, const std::vector<std::size_t>& members, std::uint32_t what,
          const TaskCollective& of, double us) {
  const TaskId all = step.tasks.add(std::nullopt, TaskGraph::kNoLane, 0, {});
  for (std::size_t stage : members) {
    for (TaskId task : step.fronts[stage]) step.tasks.put_behind(task, all);
  }
  for (std::size_t stage : members) {
    const TaskId sum = step.tasks.add_collective(stage, what, of, us, step.fronts[stage]);
    step.tasks.put_behind(all, sum);
    step.fronts[stage] = {sum};
  }
}

void finish_stage(LayoutStep& step, std::size_t stage) {
  Tasks& front = step.fronts[stage];
  const StageWork& work = step.work.stages[stage];
  if (step.work.nodes_us > 0) {
    front = {step.tasks.add_host(stage, step.tasks.name("waits by the number of nodes"),
                                 step.work.nodes_us, front)};
  }
  front = {step.tasks.add_kernels(stage, step.tasks.name("optimizer"), work.optimizer_us, front)};
  if (work.gather_us > 0) {
    front = {step.tasks.add_collective(
        stage, step.tasks.name("gather updated weights"),
        {.kind = ChakraCollective::kAllGather,
         .group = step.sharing_ranks() < step.layout.dp ? RankGroup::kShards : RankGroup::kData,
         .ranks = step.sharing_ranks(),
         .bytes = work.gather_bytes},
        work.gather_us, front)};
  }
}

void finish_step(LayoutStep& step) {
  constexpr double kBytesOfNorm = 4;
  if (step.work.tied_words_us > 0) {
    meet(step, {0, step.stages() - 1}, step.tasks.name("gradients of the tied embeddings"),
         {.group = RankGroup::kWords, .ranks = 2, .bytes = step.work.tied_words_bytes},
         step.work.tied_words_us);
  }
  if (step.layout.gpus() > 1) {
    std::vector<std::size_t> all;
    for (std::size_t stage = 0; stage < step.stages(); ++stage) all.push_back(stage);
    // Clipping asks for the norm of all gradients: no rank updates before all have summed.
    meet(step, all, step.tasks.name("norm of the gradients"),
         {.group = RankGroup::kWorld, .ranks = step.layout.gpus(), .bytes = kBytesOfNorm}, 0);
  }
  for (std::size_t stage = 0; stage < step.stages(); ++stage) finish_stage(step, stage);
}

/// About, of the fullest rank.
double nodes_of_fullest_rank(const LayoutStep& step) {
  double layers = 0;  // on the stage with most
  for (std::size_t stage = 0; stage < step.stages(); ++stage) {
    double own = 0;
    for (std::int64_t chunk = 0; chunk < step.layout.vp; ++chunk) {
      own += to_real(step.chunk_at(stage, chunk).holds.layers) + 3;
    }
    layers = std::max(layers, own);
  }
  const auto of = [](const PassWork& pass) {
    const CollectiveSums& sums = pass.collectives;
    return 2 * (sums.all_gather.count + sums.all_reduce.count + sums.reduce_scatter.count) + 3;
  };
  return layers * to_real(step.microbatches()) *
         (of(step.work.layer.forward) + of(step.work.layer.backward));
}

Result<void> check_nodes(const LayoutStep& step, double nodes_of_rank) {
  if (nodes_of_rank * to_real(step.layout.pp) <= kMostNodes) return {};
  return decline(fmt::format(
      "expected at most {:.0f} million nodes, found about {:.0f} million in the {} stages of this "
      "step (export fewer microbatches: a smaller global batch)",
      kMostNodes * 1e-6, nodes_of_rank * to_real(step.layout.pp) * 1e-6, step.layout.pp));
}

/// The position of a rank; ranks are numbered tensor first, then data, then stage.
struct RankPlace {
  std::int64_t tensor = 0, data = 0, stage = 0;
};

/// Process groups get numbers, as network simulators want them.
class GroupNumbers {
 public:
  GroupNumbers(const ParallelLayout& layout, std::int64_t shards, bool every_rank)
      : layout_(layout), shards_(std::max<std::int64_t>(1, shards)), every_rank_(every_rank) {}

  std::string of(std::string_view symbol, const RankPlace& at) {
    if (symbol.empty()) return "";
    const std::vector<std::int64_t> ranks =
        every_rank_ ? ranks_of(symbol, at) : stages_of(symbol, at);
    const auto [found, is_new] =
        known_.emplace(std::pair(std::string(symbol), ranks), std::to_string(known_.size() + 1));
    if (is_new) groups_[found->second] = ranks;
    return found->second;
  }
  std::int64_t rank(const RankPlace& at) const {
    if (!every_rank_) return at.stage;
    return at.tensor + layout_.tp * (at.data + layout_.dp * at.stage);
  }
  std::map<std::string, std::vector<std::int64_t>> groups() && { return std::move(groups_); }

 private:
  // Among files of one rank per stage only the words' group has two.
  std::vector<std::int64_t> stages_of(std::string_view symbol, const RankPlace& at) const {
    if (symbol == "words") return {0, layout_.pp - 1};
    return {at.stage};
  }

  std::vector<std::int64_t> ranks_of(std::string_view symbol, RankPlace at) const {
    std::vector<std::int64_t> ranks;
    const auto over = [&](std::int64_t RankPlace::*axis, std::int64_t first, std::int64_t count,
                          std::int64_t stride) {
      for (std::int64_t i = 0; i < count; ++i) {
        at.*axis = first + i * stride;
        ranks.push_back(rank(at));
      }
    };
    if (symbol == "tensor") over(&RankPlace::tensor, 0, layout_.tp, 1);
    if (symbol == "data") over(&RankPlace::data, 0, layout_.dp, 1);
    if (symbol == "shards") over(&RankPlace::data, at.data / shards_ * shards_, shards_, 1);
    if (symbol == "replicas") {
      over(&RankPlace::data, at.data % shards_, layout_.dp / shards_, shards_);
    }
    if (symbol == "words") over(&RankPlace::stage, 0, 2, layout_.pp - 1);
    return ranks;
  }

  const ParallelLayout& layout_;
  std::int64_t shards_;
  bool every_rank_;
  std::map<std::pair<std::string, std::vector<std::int64_t>>, std::string> known_;
  std::map<std::string, std::vector<std::int64_t>> groups_;
};

// Makes the trace of the rank at that place from the trace of its stage.
ChakraTrace trace_of_rank(const ChakraTrace& stage, const RankPlace& at, GroupNumbers& groups) {
  ChakraTrace made = stage;
  std::unordered_map<std::string, std::string> known;
  const auto rank_at_stage = [&](std::int32_t other) {
    return static_cast<std::int32_t>(groups.rank({at.tensor, at.data, other}));
  };
  for (ChakraNode& node : made.nodes) {
    if (node.type == ChakraNodeType::kCollective && !node.pg_name.empty()) {
      const auto [found, is_new] = known.try_emplace(node.pg_name);
      if (is_new) found->second = groups.of(node.pg_name, at);
      node.pg_name = found->second;
    }
    if (node.comm_src) node.comm_src = rank_at_stage(*node.comm_src);
    if (node.comm_dst) node.comm_dst = rank_at_stage(*node.comm_dst);
  }
  return made;
}

}  // namespace

Result<LayoutTraces> layout_traces(const StepQuestion& question, const LayoutWork& work,
                                   bool every_rank) {
  const ParallelLayout& layout = *question.layout;
  LayoutStep step(question, work);
  const double nodes_of_rank = nodes_of_fullest_rank(step);
  PERFMODEL_TRY_TO(check_nodes(step, nodes_of_rank));
  if (work.sharded) {
    add_sharded_step(step, *work.sharded);
  } else {
    add_stages(step);
  }
  finish_step(step);
  PERFMODEL_TRY_TO(step.tasks.schedule());
  if (every_rank && nodes_of_rank * to_real(layout.gpus()) > kMostNodes) {
    return decline(
        fmt::format("expected at most {:.0f} million nodes, found about {:.0f} million in the "
                    "files of {} ranks (one file per stage holds {:.2g} million)",
                    kMostNodes * 1e-6, nodes_of_rank * to_real(layout.gpus()) * 1e-6, layout.gpus(),
                    nodes_of_rank * 1e-6));
  }
  const std::vector<ChakraTrace> stages = step.tasks.traces(step.stages());
  GroupNumbers groups(layout, shard_ranks(question), every_rank);
  LayoutTraces made{.timeline = step.tasks.timeline(question.job->model.name, step.stages(),
                                                    layout.tp * layout.dp),
                    .step_us = step.tasks.makespan_us()};
  for (std::int64_t stage = 0; stage < layout.pp; ++stage) {
    const ChakraTrace& trace = stages[stage];
    const std::int64_t replicas = every_rank ? layout.dp : 1, parts = every_rank ? layout.tp : 1;
    for (std::int64_t data = 0; data < replicas; ++data) {
      stop_point();
      for (std::int64_t tensor = 0; tensor < parts; ++tensor) {
        made.ranks.push_back(trace_of_rank(trace, {tensor, data, stage}, groups));
      }
    }
  }
  made.groups.groups = std::move(groups).groups();
  return made;
}

Result<LayoutFiles> write_layout_traces(const LayoutTraces& traces, const std::string& prefix,
                                        const std::string& timeline) {
  PERFMODEL_TRY_TO(write_chakra(traces.ranks, prefix, traces.groups));
  LayoutFiles files;
  for (std::size_t rank = 0; rank < traces.ranks.size(); ++rank) {
    files.names.push_back(fmt::format("{}.{}.et", prefix, rank));
    files.nodes += traces.ranks[rank].nodes.size();
  }
  if (!traces.groups.groups.empty()) files.names.push_back(prefix + ".groups.json");
  if (timeline.empty()) return files;
  PERFMODEL_TRY_TO(write_timeline(traces.timeline, timeline));
  files.names.push_back(timeline);
  return files;
}

}  // namespace perfmodel
