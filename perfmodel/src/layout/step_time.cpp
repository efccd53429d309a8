#include "step_time.hpp"

#include <algorithm>
#include <utility>

#include "host_offload.hpp"
#include "pipeline_sweep.hpp"
#include "split_backward.hpp"

namespace perfmodel {
namespace {

using parallel::PipelineEnds;
using parallel::PipelineTimes;

double count_of(std::int64_t number) { return static_cast<double>(number); }

/// A step in the making: terms are added as they are found.
class StepClock {
 public:
  StepClock(const StepQuestion& question, const LayoutWork& work)
      : question_(question), layout_(*question.layout), work_(work) {}

  StepTime run() {
    if (work_.sharded) {
      sharded(*work_.sharded);
    } else if (layout_.pp == 1) {
      one_stage();
    } else {
      pipeline();
    }
    term(LayoutTerm::kOptimizer) += most(&StageWork::optimizer_us);
    term(LayoutTerm::kOffload) += most(&StageWork::offload_us);
    term(LayoutTerm::kDataParallel) += most(&StageWork::gather_us) + work_.nodes_us;
    wait_for_host();
    for (const double term : time_.terms_us) time_.step_us += term;
    range();
    return time_;
  }

 private:
  double& term(LayoutTerm which) { return time_.terms_us[static_cast<std::size_t>(which)]; }

  void wait_for_host() {
    if (!work_.host_runs_ahead()) return;
    double host = work_.stages.front().optimizer_host_us, others = 0;
    for (const ChunkWork& chunk : work_.chunks) {
      host += count_of(work_.microbatches) *
              (chunk.parts.forward.host_us + chunk.parts.backward.host_us);
    }
    term(LayoutTerm::kHost) = 0;
    for (const double term : time_.terms_us) others += term;
    term(LayoutTerm::kHost) = std::max(0.0, host - others);
  }

  double most(double StageWork::*figure) const {
    double found = 0;
    for (const StageWork& stage : work_.stages) found = std::max(found, stage.*figure);
    return found;
  }

  // Kernels' own ranges, and what runs of this program differ from their prediction.
  void range() {
    const Framework& framework = *question_.framework;
    const double kernels = term(LayoutTerm::kCompute);
    const PassCosts both = question_.shard->layer.forward + question_.shard->layer.backward;
    const double low = both.kernel_us > 0 ? both.low_us / both.kernel_us : 1;
    const double high = both.kernel_us > 0 ? both.high_us / both.kernel_us : 1;
    // The rate of an unknown host: half to twice as much.
    const bool is_guess = layout_.offload.optimizer && question_.job->host_bytes_per_s == 0;
    const double on_host = is_guess ? term(LayoutTerm::kOptimizer) : 0;
    const double step_us = time_.step_us - on_host;
    time_.low_us = std::min(step_us + (low - 1) * kernels, step_us * framework.low_share);
    time_.high_us = std::max(step_us + (high - 1) * kernels, step_us * framework.high_share);
    if (!is_guess) return;
    time_.low_us += most(&StageWork::optimizer_low_us);
    time_.high_us += most(&StageWork::optimizer_high_us);
  }

  void add_passes(const PassWork& pass, double times) {
    term(LayoutTerm::kCompute) += times * pass.kernel_us;
    term(LayoutTerm::kTensorParallel) += times * pass.comm_us;
    term(LayoutTerm::kExpertParallel) += times * pass.expert_us;
    term(LayoutTerm::kContextParallel) += times * pass.context_us;
    term(LayoutTerm::kOffload) += times * pass.offload_us;
    term(LayoutTerm::kHost) += times * pass.exposed_host_us();
  }

  // The host runs ahead of the device within a microbatch.
  void one_stage() {
    PassWork forward, backward;
    for (const ChunkWork& chunk : work_.chunks) {
      forward = forward + chunk.parts.forward;
      backward = backward + chunk.parts.backward;
    }
    const PassWork all = forward + backward;
    add_passes(all, count_of(work_.microbatches));
    const GradientSums& sums = work_.stages.front().sums;
    const PassWork to_first = forward + 1 / std::max(1.0, count_of(sums.buckets)) * backward;
    const double after_first_us = work_.host_runs_ahead() ? all.device_us() - to_first.device_us()
                                                          : all.total_us() - to_first.total_us();
    term(LayoutTerm::kDataParallel) +=
        exposed_sums_us(sums, after_first_us) + repeated_sums_us(sums, all.total_us());
  }

  // All sums except the last run while the next microbatch is computed.
  double repeated_sums_us(const GradientSums& sums, double microbatch_us) const {
    if (!sums.each_microbatch) return 0;
    const double each = count_of(sums.buckets) * sums.bucket_us;
    const double hides = question_.framework->overlap_gradients ? microbatch_us : 0;
    return count_of(work_.microbatches - 1) * std::max(0.0, each - hides);
  }

  // The time that sums over the data-parallel group add after the last backward pass, whose
  // buckets become ready in equal steps: the last at its end, the first so long before.
  double exposed_sums_us(const GradientSums& sums, double after_first_us) const {
    if (sums.buckets == 0) return 0;
    const double each = sums.bucket_us, all = count_of(sums.buckets) * each;
    return question_.framework->overlap_gradients ? std::max(each, all - after_first_us) : all;
  }

  /// The last backward pass of a chunk.
  struct LastPass {
    double end_us = 0, took_us = 0;
  };

  // When the sums of a stage have ended, whose buckets become ready in equal steps over the last
  // passes of its chunks, one after the other.
  double sums_end_us(const GradientSums& sums, const std::vector<LastPass>& passes) const {
    const double buckets = count_of(sums.buckets), each = sums.bucket_us;
    double all = 0, before = 0, end = 0;
    for (const LastPass& pass : passes) all += pass.took_us;
    if (!question_.framework->overlap_gradients || all <= 0) {
      return passes.back().end_us + buckets * each;
    }
    for (const LastPass& pass : passes) {
      const std::int64_t first = sums.ready_after(before / all) + 1;
      const std::int64_t last = sums.ready_after((before + pass.took_us) / all);
      const auto ready_us = [&](std::int64_t bucket) {
        return pass.end_us - pass.took_us - before + all * count_of(bucket) / buckets;
      };
      if (last >= first) {
        end = std::max(std::max(end, ready_us(first)) + count_of(last - first + 1) * each,
                       ready_us(last) + each);
      }
      before += pass.took_us;
    }
    return end;
  }

  // Host and device meet at every send.
  void pipeline() {
    const double occupies = work_.hop.occupies_us;
    std::vector<double> forward_us, backward_us;
    for (const ChunkWork& chunk : work_.chunks) {
      forward_us.push_back(chunk.parts.forward.total_us() + occupies);
      backward_us.push_back(chunk.parts.backward.total_us() + occupies);
    }
    if (splits_backward(layout_.order)) {
      split_pipeline(forward_us, backward_us);
      return;
    }
    PipelineTimes times{.schedule = pipeline_schedule_of(layout_),
                        .stages = layout_.pp,
                        .chunks = layout_.vp,
                        .microbatches = work_.microbatches,
                        .forward_us = forward_us,
                        .backward_us = backward_us};
    const double without_hops = pipeline_ends(times).makespan_us;
    times.hop_us = work_.hop.wire_us();
    const PipelineEnds ends = pipeline_ends(times);
    const double microbatches = count_of(work_.microbatches);
    double busy = 0;
    each_chunk(busiest_stage(forward_us, backward_us), [&](std::size_t, const ChunkWork& chunk) {
      add_passes(chunk.parts.forward, microbatches);
      add_passes(chunk.parts.backward, microbatches);
      busy += microbatches *
              (chunk.parts.forward.total_us() + chunk.parts.backward.total_us() + 2 * occupies);
    });
    term(LayoutTerm::kPipelineTransfers) +=
        microbatches * count_of(layout_.vp) * 2 * occupies + ends.makespan_us - without_hops;
    term(LayoutTerm::kBubble) += without_hops - busy;
    reduce(ends.makespan_us, [&](std::int64_t stage) {
      std::vector<LastPass> passes;
      each_chunk(stage, [&](std::size_t i, const ChunkWork& chunk) {
        passes.push_back(
            {ends.chunk_last_backward_us[i] - occupies, chunk.parts.backward.total_us()});
      });
      std::ranges::reverse(passes);
      return passes;
    });
  }

  // Gradients of a stage are reduced while other stages still work.
  template <class LastPasses>
  void reduce(double makespan_us, const LastPasses& last_passes) {
    double reduced = makespan_us;
    for (std::int64_t stage = 0; stage < layout_.pp; ++stage) {
      double both_us = 0;
      each_chunk(stage, [&](std::size_t, const ChunkWork& chunk) {
        both_us += chunk.parts.forward.total_us() + chunk.parts.backward.total_us();
      });
      const GradientSums& sums = work_.stages[stage].sums;
      reduced = std::max(reduced,
                         sums_end_us(sums, last_passes(stage)) + repeated_sums_us(sums, both_us));
    }
    term(LayoutTerm::kDataParallel) += reduced - makespan_us + work_.tied_words_us;
  }

  // The backward pass in two parts: what the stage before waits for, and gradients of weights. The
  // host's time is split as the device's.
  void split_pipeline(const std::vector<double>& forward_us,
                      const std::vector<double>& backward_us) {
    const double occupies = work_.hop.occupies_us;
    std::vector<double> input_us, weights_us, forward_hides_us, backward_hides_us;
    for (std::size_t i = 0; i < work_.chunks.size(); ++i) {
      const PassWork& forward = work_.chunks[i].parts.forward;
      const PassWork& backward = work_.chunks[i].parts.backward;
      const double device = backward.device_us();
      const double share = device > 0 ? backward.weights_us / device : 0;
      weights_us.push_back(share * backward.total_us());
      input_us.push_back(backward_us[i] - weights_us.back());
      forward_hides_us.push_back(hidden_us(forward));
      backward_hides_us.push_back(hidden_us(backward));
    }
    parallel::SplitTimes times{.schedule = split_schedule_of(layout_.order),
                               .stages = layout_.pp,
                               .microbatches = work_.microbatches,
                               .forward_us = forward_us,
                               .input_us = input_us,
                               .weights_us = weights_us,
                               .forward_hides_us = forward_hides_us,
                               .backward_hides_us = backward_hides_us};
    const double without_hops = parallel::split_ends(times).makespan_us;
    times.hop_us = work_.hop.wire_us();
    const parallel::SplitEnds ends = parallel::split_ends(times);
    const double microbatches = count_of(work_.microbatches);
    const std::int64_t busiest = busiest_stage(forward_us, backward_us);
    const double hidden = ends.hidden_us[busiest];
    double busy = -hidden;
    each_chunk(busiest, [&](std::size_t i, const ChunkWork& chunk) {
      add_passes(chunk.parts.forward, microbatches);
      add_passes(chunk.parts.backward, microbatches);
      busy += microbatches * (forward_us[i] + backward_us[i]);
    });
    take_hidden(hidden);
    term(LayoutTerm::kPipelineTransfers) +=
        microbatches * count_of(layout_.vp) * 2 * occupies + ends.makespan_us - without_hops;
    term(LayoutTerm::kBubble) += without_hops - busy;
    // Gradients of weights come last, so that no chunk's are whole much before the others'.
    reduce(ends.makespan_us, [&](std::int64_t stage) {
      LastPass last{.end_us = ends.last_backward_us[stage]};
      each_chunk(stage, [&](std::size_t, const ChunkWork& chunk) {
        last.took_us += chunk.parts.backward.total_us();
      });
      return std::vector{last};
    });
  }

  // Time of a pass that kernels of another one can hide.
  double hidden_us(const PassWork& pass) const {
    return pass.comm_us + work_.expert_hides * pass.expert_us;
  }

  void take_hidden(double hidden) {
    double& tensor = term(LayoutTerm::kTensorParallel);
    double& experts = term(LayoutTerm::kExpertParallel);
    const double all = tensor + work_.expert_hides * experts;
    if (all <= 0) return;
    const double share = hidden / all;
    tensor -= share * tensor;
    experts -= share * work_.expert_hides * experts;
  }

  template <class Visit>
  void each_chunk(std::int64_t stage, Visit&& visit) const {
    for (std::int64_t chunk = 0; chunk < layout_.vp; ++chunk) {
      const std::size_t at = chunk_place(layout_, stage, chunk);
      visit(at, work_.chunks[at]);
    }
  }

  std::int64_t busiest_stage(const std::vector<double>& forward_us,
                             const std::vector<double>& backward_us) const {
    std::int64_t busiest = 0;
    double most = -1;
    for (std::int64_t stage = 0; stage < layout_.pp; ++stage) {
      double busy = 0;
      each_chunk(stage,
                 [&](std::size_t i, const ChunkWork&) { busy += forward_us[i] + backward_us[i]; });
      if (busy > most) {
        most = busy;
        busiest = stage;
      }
    }
    return busiest;
  }

  // ZeRO-3, FSDP: parameters are gathered unit by unit, gradients scattered, each microbatch.
  void sharded(const ShardedWork& sharded) {
    PassWork all;
    for (const ChunkWork& chunk : work_.chunks) {
      all = all + chunk.parts.forward + chunk.parts.backward;
    }
    const double m = count_of(work_.microbatches);
    add_passes(all, m);
    const double compute = sharded.pass.compute_us + sharded.late_host_us;
    term(LayoutTerm::kHost) += m * (compute - all.total_us());
    term(LayoutTerm::kDataParallel) +=
        m * (sharded.exposed_us + sharded.slowed_us) + sharded.replicas_us;
    term(LayoutTerm::kOffload) += m * sharded.offload_us;
  }

  const StepQuestion& question_;
  const ParallelLayout& layout_;
  const LayoutWork& work_;
  StepTime time_;
};

}  // namespace

StepTime step_time(const StepQuestion& question, const LayoutWork& work) {
  return StepClock(question, work).run();
}

Result<StepTime> step_time(const StepQuestion& question, const std::vector<ChunkLayers>& chunks) {
  PERFMODEL_TRY(work, layout_work(question, chunks));
  return step_time(question, *work);
}

}  // namespace perfmodel
