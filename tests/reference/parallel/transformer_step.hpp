#pragma once

#include <cstdint>

#include "decoder_shape.hpp"
#include "layout/sharded_timeline.hpp"
#include "perfmodel/result.hpp"
#include "layout/pipeline_schedule.hpp"

/// Time of one optimizer step of a GPT-like decoder on many GPUs: from sizes alone, no graph
/// needed.
namespace perfmodel::parallel {

/// Where the time of a step goes. Sums of device work are of the busiest stage or rank, over the
/// whole step; parts overlap, so they do not add up to `step_us`.
struct StepTime {
  double step_us = 0;
  double forward_us = 0, backward_us = 0;  ///< one microbatch, slowest stage, host included
  double kernel_us = 0;                    ///< compute kernels
  double tensor_comm_us = 0;               ///< tensor-parallel collectives
  double exposed_comm_us = 0;              ///< data-parallel or sharding traffic that nothing hides
  double optimizer_us = 0;
  double host_us = 0;          ///< host work of all microbatches
  double bubble_share = 0;     ///< of the pipeline part
  double params_per_rank = 0;  ///< held while computing (before sharding)
};

/// Megatron-LM: tp x dp x pp GPUs, ranks numbered tp first, then dp, then pp.
struct MegatronPlan {
  std::int64_t tp = 1, dp = 1, pp = 1;
  std::int64_t virtual_stages = 1;  ///< model chunks per stage; above 1: interleaved schedule
  std::int64_t micro_batch = 1, global_batch = 1;  ///< sequences
  std::int64_t gpus_per_node = 8;
  Recompute recompute = Recompute::kFull;
  bool gpipe = false;  ///< instead of 1F1B
  /// Between stages each tensor-parallel rank sends 1/tp of the activation over its own link, and
  /// the receivers gather the whole (Megatron's scatter/gather, Narayanan 2021 section 4.1); false:
  /// every rank sends all of it.
  bool split_hops = true;
  /// Norms, dropout and residuals work on 1/tp of every sequence; each all-reduce becomes an
  /// all-gather into a block and a reduce-scatter out of it (Korthikanti 2022). What Megatron hides
  /// behind a product is left out: gathering a block's input again for its weight gradient.
  bool sequence_parallel = false;
  bool overlap_gradients = false;  ///< bucketed all-reduce during the last backward (`ddp.hpp`)
  double bucket_bytes = 25 * 1024.0 * 1024;
};

/// One step:
///
///   step = max over stages (end of last backward + exposed all-reduce) + optimizer
///
/// A microbatch's forward and backward on a stage are lists of kernels, priced one by one; a host
/// lane issues them, a stream lane runs them (`run_schedule`), tensor-parallel all-reduces stand
/// between kernels on the stream: two per layer in forward, recomputation and backward. With pp > 1
/// host and device meet at every send (Megatron synchronises there), so each chunk is timed alone
/// and `pipeline_timeline` orders them; with pp = 1 the host runs ahead over microbatch borders. At
/// most three microbatches are laid out, the rest follow at the pace of the last one. Embedding and
/// logits stand on the first and last stage; with pp > 1 their gradients are summed over both.
/// A hop between stages delays the next stage and occupies neither; see `split_hops`.
/// The vocabulary is padded to a multiple of 128 tp.
///
/// Assumes equal GPUs and no stragglers, causal mask not exploited without flash attention.
/// Not modelled: distributed optimizer, overlap of tensor-parallel traffic.
/// Sources: Megatron-LM (Shoeybi 2019, Narayanan 2021, Korthikanti 2022).
/// Errors: sizes that are not positive or do not divide, no GPU or collective cost, odd costs.
Result<StepTime> megatron_step(const DecoderShape& shape, const MegatronPlan& plan,
                               const StepCosts& costs);

/// PyTorch FSDP over all GPUs, one unit per layer and one for the embedding.
struct FsdpPlan {
  std::int64_t gpus = 1, gpus_per_node = 8;
  std::int64_t micro_batch = 1, microbatches = 1;  ///< sequences per GPU; gradient accumulation
  bool activation_checkpointing = false;
  FsdpOptions fsdp = {};  ///< reshard_after_forward false: ZeRO-2
};

/// One step: max(microbatches x `fsdp_timeline`, host work) + optimizer on the shards.
///
/// A unit's compute time is max(kernels, host work to issue them). Every microbatch gathers and
/// scatters (Composer, PyTorch without `no_sync`). The root unit holds the embedding and keeps its
/// parameters; logits and loss belong to the last layer's compute.
/// Source: PyTorch FSDP (Zhao et al. 2023). Errors: as above.
Result<StepTime> fsdp_step(const DecoderShape& shape, const FsdpPlan& plan, const StepCosts& costs);

}  // namespace perfmodel::parallel
