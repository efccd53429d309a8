#include "staged_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "step_passes.hpp"

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

/// Both directions of a chunk, made once.
struct ChunkStretches {
  std::vector<Stretch> forward, backward;
};

/// Which share of a chunk's last backward pass a bucket needs.
struct ReadyBucket {
  std::int64_t chunk = 0;
  double share = 1;
};

class StagedStep {
 public:
  explicit StagedStep(LayoutStep& step) : step_(step) {}

  void run() {
    const std::size_t messages =
        step_.work.chunks.size() * static_cast<std::size_t>(step_.microbatches());
    for (auto* list : {&sends_, &receives_}) {
      for (auto& direction : *list) direction.assign(messages, -1);
    }
    for (std::size_t stage = 0; stage < step_.stages(); ++stage) stage_in_order(stage);
    for (std::size_t direction = 0; direction < 2; ++direction) {
      for (std::size_t i = 0; i < messages; ++i) {
        if (receives_[direction][i] < 0) continue;
        step_.tasks.put_behind(sends_[direction][i], receives_[direction][i]);
      }
    }
  }

 private:
  std::vector<ReadyBucket> ready_buckets(std::size_t stage) const {
    const GradientSums& sums = step_.work.stages[stage].sums;
    if (sums.buckets == 0 || !step_.question.framework->overlap_gradients) return {};
    double all = 0, before = 0;
    for (std::int64_t chunk = 0; chunk < step_.layout.vp; ++chunk) all += backward_us(stage, chunk);
    if (all <= 0) return std::vector<ReadyBucket>(static_cast<std::size_t>(sums.buckets));
    std::vector<ReadyBucket> made;
    for (std::int64_t chunk = step_.layout.vp; chunk-- > 0;) {
      const double own = backward_us(stage, chunk);
      const std::int64_t last = sums.ready_after((before + own) / all);
      for (std::int64_t k = sums.ready_after(before / all) + 1; k <= last; ++k) {
        const double ready = all * static_cast<double>(k) / static_cast<double>(sums.buckets);
        made.push_back({chunk, std::min(1.0, (ready - before) / own)});
      }
      before += own;
    }
    return made;
  }

  double backward_us(std::size_t stage, std::int64_t chunk) const {
    return step_.chunk_at(stage, chunk).parts.backward.total_us();
  }

  void stage_in_order(std::size_t stage) {
    const auto order = parallel::pipeline_order(pipeline_schedule_of(step_.layout), step_.layout.pp,
                                                step_.layout.vp, step_.microbatches(),
                                                static_cast<std::int64_t>(stage));
    PERFMODEL_CHECK(order.has_value());  // its sizes were checked with the layout
    std::vector<ChunkStretches> stretches;
    for (std::int64_t chunk = 0; chunk < step_.layout.vp; ++chunk) {
      stretches.push_back({forward_of(step_, step_.chunk_at(stage, chunk)),
                           backward_of(step_, step_.chunk_at(stage, chunk))});
    }
    const std::vector<ReadyBucket> buckets = ready_buckets(stage);
    std::vector<std::int64_t> left(step_.layout.vp, step_.microbatches());
    Tasks bucket_tasks;
    for (const parallel::PipelineOp& op : *order) {
      const auto chunk = op.chunk;
      std::vector<double> cuts;
      if (op.backward && --left[chunk] == 0) {
        for (const ReadyBucket& bucket : buckets) {
          if (bucket.chunk == op.chunk) cuts.push_back(bucket.share);
        }
      }
      const PassTasks made = one_op(stage, op, stretches[chunk], cuts);
      for (const Tasks& ready : made.at_cuts) {
        bucket_tasks = {add_bucket(stage, step_.work.stages[stage].sums, ready)};
      }
    }
    Tasks& front = step_.fronts[stage];
    if (!step_.question.framework->overlap_gradients) {
      for (std::int64_t i = 0; i < step_.work.stages[stage].sums.buckets; ++i) {
        front = {add_bucket(stage, step_.work.stages[stage].sums, front)};
      }
    }
    front.insert(front.end(), bucket_tasks.begin(), bucket_tasks.end());
    if (!step_.work.host_runs_ahead()) return;
    step_.tasks.add_host(stage, step_.tasks.name("host of the optimizer"),
                         step_.work.stages[stage].optimizer_host_us, host_);
  }

  TaskId add_bucket(std::size_t stage, const GradientSums& sums, const Tasks& ready) {
    const std::int64_t shards = step_.sharing_ranks(), copies = step_.layout.dp / shards;
    const double bytes = sums.bytes / static_cast<double>(sums.buckets);
    const TaskId summed = step_.tasks.add_collective(
        stage, step_.tasks.name("gradients"),
        {.kind = sums.scatters ? ChakraCollective::kReduceScatter : ChakraCollective::kAllReduce,
         .group = copies > 1 ? RankGroup::kShards : RankGroup::kData,
         .ranks = shards,
         .bytes = bytes},
        sums.bucket_us - sums.copies_us, ready);
    if (copies == 1) return summed;
    return step_.tasks.add_collective(stage, step_.tasks.name("gradients of the copies"),
                                      {.kind = ChakraCollective::kAllReduce,
                                       .group = RankGroup::kReplicas,
                                       .ranks = copies,
                                       .bytes = bytes / static_cast<double>(shards)},
                                      sums.copies_us, {summed});
  }

  std::string title_of(const parallel::PipelineOp& op) const {
    std::string title = fmt::format("{} {}", op.backward ? "backward" : "forward", op.microbatch);
    if (step_.layout.vp > 1) title += fmt::format(", chunk {}", op.chunk);
    return title;
  }

  // Host and device meet at each send, on one stage after each microbatch; or never within a step,
  // where the host runs ahead from one into the next.
  PassTasks pass_of(std::size_t stage, const parallel::PipelineOp& op,
                    const std::vector<Stretch>& stretches, double host_us,
                    const std::vector<double>& cuts) {
    Tasks& front = step_.fronts[stage];
    if (step_.work.host_runs_ahead()) {
      if (host_us > 0) {
        host_ = {step_.tasks.add_host(stage, step_.tasks.name("host"), host_us, host_)};
      }
      PassTasks made = add_pass(step_, stage, stretches, 0, title_of(op), front, front, cuts);
      front = made.device;
      return made;
    }
    const bool one_stage = step_.stages() == 1;
    if (!one_stage || !op.backward) host_ = front;
    PassTasks made = add_pass(step_, stage, stretches, host_us, title_of(op), front, host_, cuts);
    if (!made.host.empty()) host_ = made.host;
    front = made.device;
    if (!one_stage) front = made.ends();
    if (one_stage && op.backward) front.insert(front.end(), host_.begin(), host_.end());
    return made;
  }

  PassTasks one_op(std::size_t stage, const parallel::PipelineOp& op,
                   const ChunkStretches& stretches, const std::vector<double>& cuts) {
    const ChunkWork& chunk = step_.chunk_at(stage, op.chunk);
    const PassWork& work = op.backward ? chunk.parts.backward : chunk.parts.forward;
    const std::size_t place = static_cast<std::size_t>(op.chunk) * step_.stages() + stage;
    const std::size_t depth = step_.work.chunks.size();
    Tasks& front = step_.fronts[stage];
    const bool from_other = op.backward ? place + 1 < depth : place > 0;
    const bool to_other = op.backward ? place > 0 : place + 1 < depth;
    if (from_other) front.push_back(receive(stage, op, place));
    PassTasks made = pass_of(stage, op, op.backward ? stretches.backward : stretches.forward,
                             work.host_us, cuts);
    if (step_.stages() > 1 && step_.work.hop.occupies_us > 0) {
      front = {step_.tasks.add_host(stage, step_.tasks.name("send to the next stage"),
                                    step_.work.hop.occupies_us, front)};
    }
    if (to_other) send(stage, op, place);
    return made;
  }

  // Messages of a direction are told apart by the chunk that receives them.
  static std::int32_t tag_of(const parallel::PipelineOp& op, std::size_t receiver) {
    return static_cast<std::int32_t>(2 * receiver + (op.backward ? 1 : 0));
  }
  std::size_t message_at(std::size_t receiver, const parallel::PipelineOp& op) const {
    return receiver * static_cast<std::size_t>(step_.microbatches()) +
           static_cast<std::size_t>(op.microbatch);
  }

  // A message, as the stage tells of it that sends it or receives it.
  TaskNote note_of(const parallel::PipelineOp& op, std::size_t sender, std::size_t receiver,
                   bool receives) {
    const auto stage_of = [&](std::size_t place) { return place % step_.stages(); };
    return {.stage = stage_of(receives ? receiver : sender),
            .row = op.backward ? Row::kBackward : Row::kForward,
            .name = step_.tasks.name(fmt::format("{} {}", receives ? "receive" : "send",
                                                 op.backward ? "gradients" : "activations")),
            .bytes = std::llround(step_.work.hop.send_bytes),
            .transfer = ChakraTransfer{.receives = receives,
                                       .from = static_cast<std::int32_t>(stage_of(sender)),
                                       .to = static_cast<std::int32_t>(stage_of(receiver)),
                                       .tag = tag_of(op, receiver)}};
  }

  void send(std::size_t stage, const parallel::PipelineOp& op, std::size_t place) {
    const std::size_t receiver = op.backward ? place - 1 : place + 1;
    sends_[op.backward ? 1 : 0][message_at(receiver, op)] =
        step_.tasks.add(note_of(op, place, receiver, false), TaskGraph::kNoLane,
                        step_.work.hop.send_us, step_.fronts[stage]);
  }

  TaskId receive(std::size_t stage, const parallel::PipelineOp& op, std::size_t place) {
    const std::size_t sender = op.backward ? place + 1 : place - 1;
    const TaskId got = step_.tasks.add(note_of(op, sender, place, true), TaskGraph::kNoLane, 0, {});
    receives_[op.backward ? 1 : 0][message_at(place, op)] = got;
    if (step_.work.hop.regather_us <= 0) return got;
    return step_.tasks.add_collective(stage, step_.tasks.name("gather what the ranks received"),
                                      {.kind = ChakraCollective::kAllGather,
                                       .group = RankGroup::kTensor,
                                       .ranks = step_.layout.tp,
                                       .bytes = step_.work.hop.regather_bytes},
                                      step_.work.hop.regather_us, {got}, false);
  }

  LayoutStep& step_;
  Tasks host_;  // on one stage: what its next host work waits for
  std::array<std::vector<TaskId>, 2> sends_, receives_;  // forward, backward: per message
};

}  // namespace

void add_stages(LayoutStep& step) { StagedStep(step).run(); }

}  // namespace perfmodel
