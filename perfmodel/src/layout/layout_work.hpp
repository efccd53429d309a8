#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pipeline_schedule.hpp"
#include "sharded_pass.hpp"
#include "split_backward.hpp"
#include "step_question.hpp"

namespace perfmodel {

/// One pass of one microbatch over a part of the model, as one rank runs it [us].
struct PassWork {
  double kernel_us = 0;
  double comm_us = 0;  ///< collectives of tensor parallelism that no compute hides
  double expert_us = 0, context_us = 0;  ///< the same of expert and context parallelism
  double offload_us = 0;                 ///< copies of activations to the host and back, the same
  double host_us = 0;
  double weights_us = 0;       ///< part of kernel_us: gradients of weights
  CollectiveSums collectives;  ///< with what compute hides of them

  double device_us() const { return kernel_us + comm_us + expert_us + context_us + offload_us; }
  double exposed_host_us() const;
  double total_us() const;  ///< host or device, whichever takes longer
};
PassWork operator+(PassWork a, const PassWork& b);
PassWork operator*(double count, PassWork a);

/// Forward and backward pass of a microbatch.
struct PartWork {
  PassWork forward, backward;
};
PartWork operator+(PartWork a, const PartWork& b);
PartWork operator*(double count, PartWork a);

/// A chunk of layers of a stage.
struct ChunkWork {
  ChunkLayers holds;
  PartWork parts;  ///< all that it holds, with the time between the parts
};

/// The gradients of a stage on one rank, summed over its data-parallel group.
struct GradientSums {
  double bytes = 0;  ///< in all buckets
  std::int64_t buckets = 0;
  double bucket_us = 0;
  double copies_us = 0;          ///< part of bucket_us: the sum over copies of shards (HSDP)
  bool scatters = false;         ///< each rank gets its part of the sum alone
  bool each_microbatch = false;  ///< ZeRO-2: no rank keeps whole gradients

  /// How many buckets are ready after that share of the last backward passes.
  std::int64_t ready_after(double share) const {
    return static_cast<std::int64_t>(share * static_cast<double>(buckets) + 1e-6);
  }
};

/// The work that a stage does once per step.
struct StageWork {
  double parameters = 0;  ///< on one rank
  GradientSums sums;      ///< no buckets: one rank, or gradients that are scattered unit by unit
  double optimizer_us = 0;
  double optimizer_host_us = 0;                        ///< 0: not known
  double optimizer_low_us = 0, optimizer_high_us = 0;  ///< with CPUs twice and half as fast
  double gather_us = 0, gather_bytes = 0;              ///< for the updated weights
  double offload_us = 0;  ///< exposed copies of gradients to the host and of weights back
};

/// From one stage to the next.
struct HopWork {
  double occupies_us = 0;  ///< time of the sending stage
  double send_us = 0, send_bytes = 0;
  double regather_us = 0, regather_bytes = 0;  ///< the parts that tensor-parallel ranks sent,
                                               ///< gathered again
  double wire_us() const { return send_us + regather_us; }
};

/// ZeRO-3 and FSDP: parameters are gathered, and gradients scattered, unit by unit.
struct ShardedWork {
  struct Unit {
    parallel::FsdpUnit times;
    PartWork parts;
    double gather_bytes = 0, scatter_bytes = 0;
  };
  Unit first, layer, last;  ///< embeddings; one of `layers`; output layer and loss
  std::int64_t layers = 0;
  std::int64_t shards = 1;  ///< ranks that share one copy
  parallel::FsdpOptions options;
  parallel::ShardedPass pass;  ///< one microbatch
  double slowed_us = 0;        ///< per microbatch: kernels that run during collectives
  double late_host_us = 0;     ///< per microbatch: host work that belongs to no unit
  double exposed_us = 0;       ///< per microbatch: collectives
  double offload_us = 0;       ///< added to a microbatch by copies to and from the host
  double replicas_us = 0, replicas_bytes = 0;  ///< sums over the copies (HSDP)
};

/// All that one optimizer step of a layout consists of, each part with its time. `step_time` (in
/// closed forms) and `layout_traces` (as tasks) know which part waits for which.
struct LayoutWork {
  std::int64_t microbatches = 1;
  PartWork embedding, layer, head, loss;
  std::vector<ChunkWork> chunks;  ///< in model order; `chunk_place` says where
  std::vector<StageWork> stages;
  HopWork hop;               ///< with several stages
  double tied_words_us = 0;  ///< sum of the embeddings' gradients of first and last stage
  double tied_words_bytes = 0;
  double expert_hides = 1;  ///< share of an exchange with experts that costs no SMs
  double nodes_us = 0;      ///< added to a step by the number of nodes
  std::optional<ShardedWork> sharded;

  /// Whether all host work of a step on one stage is known. Then the host runs ahead from one step
  /// into the next, and the step takes as long as the host's work or the device's, whichever is
  /// longer.
  bool host_runs_ahead() const {
    return stages.size() == 1 && stages.front().optimizer_host_us > 0;
  }
};

/// For an order that does not split the backward pass.
parallel::PipelineSchedule pipeline_schedule_of(const ParallelLayout& layout);
bool splits_backward(PipelineOrder order);
/// For an order that does.
parallel::SplitSchedule split_schedule_of(PipelineOrder order);
/// Two chunks per stage, of which the second ones come in the opposite order: zb-v, dualpipe.
bool lies_as_v(PipelineOrder order);
/// Which chunk, in model order, is the `chunk`-th of a stage.
std::size_t chunk_place(const ParallelLayout& layout, std::int64_t stage, std::int64_t chunk);
bool gathers_parameters(Sharding zero);
/// Ranks that share one copy of the states that `zero` shards; with hybrid sharding, a node.
std::int64_t shard_ranks(const StepQuestion& question);
bool shards_gradients(Sharding zero);  ///< ZeRO-2 and beyond
/// Whether each microbatch gathers parameters unit by unit. Inside of a pipeline a stage gathers
/// once per step and keeps them; gradients are scattered once, too.
bool gathers_by_unit(const ParallelLayout& layout);

/// Prices all parts of a step with the layers of `chunks`. Errors: collectives that the topology
/// cannot do.
Result<LayoutWork> layout_work(const StepQuestion& question,
                               const std::vector<ChunkLayers>& chunks);

}  // namespace perfmodel
