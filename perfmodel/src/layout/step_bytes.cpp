#include "step_bytes.hpp"

#include <algorithm>

#include "layout_work.hpp"

namespace perfmodel {
namespace {

double as_real(std::int64_t number) { return static_cast<double>(number); }

/// What a rank keeps per parameter.
struct BytesPerParameter {
  double weights = 2, gradients = 4, optimizer = 12;
};

BytesPerParameter bytes_per_parameter(const LayoutJob& job) {
  using Optimizer = LayoutJob::Optimizer;
  BytesPerParameter bytes;
  const bool full = job.precision == LayoutJob::Precision::kFp32;
  bytes.weights = full ? 4 : 2;
  bytes.gradients = job.fp32_gradients ? 4 : bytes.weights;
  const double master = full ? 0 : 4;
  switch (job.optimizer) {
    case Optimizer::kAdamW:
      bytes.optimizer = master + 8;
      break;
    case Optimizer::kAdamW8bit:
      bytes.optimizer = master + 2;
      break;
    case Optimizer::kSgd:
      bytes.optimizer = master;
      break;
  }
  return bytes;
}

bool shards_gradients(Sharding zero) { return zero != Sharding::kNone && zero != Sharding::kZero1; }
bool shards_weights(Sharding zero) { return shards_gradients(zero) && zero != Sharding::kZero2; }

class StageBytes {
 public:
  StageBytes(const StepQuestion& question, const std::vector<ChunkLayers>& chunks,
             std::int64_t stage)
      : question_(question), chunks_(chunks), stage_(stage) {}

  StepBytes run() {
    const ParallelLayout& layout = *question_.layout;
    const LayoutJob& job = *question_.job;
    const Framework& framework = *question_.framework;
    const BytesPerParameter each = bytes_per_parameter(job);
    const double numbers = parameters(), experts = parameters_of_experts();
    const double shards = as_real(shard_ranks());
    const double shard = (numbers - experts) / shards + experts / as_real(shards_of_experts());
    const double frozen = frozen_parameters() * as_real(job.frozen_bits) / 8;
    StepBytes bytes;
    bytes.weights = shards_weights(layout.zero) ? each.weights * shard + frozen / shards
                                                : each.weights * numbers + frozen;
    bytes.gradients = each.gradients * (shards_gradients(layout.zero) ? shard : numbers);
    bytes.optimizer = each.optimizer * (layout.zero == Sharding::kNone ? numbers : shard);
    const std::int64_t microbatches = job.global_batch / (layout.dp * layout.micro_batch);
    bytes.activations = kept(microbatches);
    if (layout.tp > 1) bytes.activations *= 1 + framework.tensor_activation_share;
    bytes.allocated = bytes.weights + bytes.gradients + bytes.optimizer + bytes.activations +
                      extra() + gathered(each) + framework.fixed_bytes;
    bytes.reserved = bytes.allocated * (1 + framework.reserved_share);
    return bytes;
  }

 private:
  template <class Visit>
  void each_chunk(Visit&& visit) const {
    for (std::int64_t chunk = 0; chunk < question_.layout->vp; ++chunk) {
      visit(chunks_[chunk_place(*question_.layout, stage_, chunk)]);
    }
  }

  double parameters() const {
    const ShardCosts& shard = *question_.shard;
    double sum = 0;
    each_chunk([&](const ChunkLayers& chunk) {
      sum += as_real(chunk.layers) * shard.layer.parameters;
      if (chunk.embeds) sum += shard.embedding.parameters;
      if (chunk.heads) sum += shard.head.parameters;
      if (chunk.heads && !chunk.embeds && question_.job->model.tied) {
        sum += shard.embedding.parameters;
      }
    });
    return sum;
  }

  double parameters_of_experts() const {
    double sum = 0;
    each_chunk([&](const ChunkLayers& chunk) {
      sum += as_real(chunk.layers) * question_.shard->layer.experts;
      if (chunk.heads) sum += question_.shard->head.experts;
    });
    return sum;
  }

  double frozen_parameters() const {
    const ShardCosts& shard = *question_.shard;
    double sum = 0;
    each_chunk([&](const ChunkLayers& chunk) {
      sum += as_real(chunk.layers) * shard.layer.frozen;
      if (chunk.embeds) sum += shard.embedding.frozen;
      if (chunk.heads) sum += shard.head.frozen;
    });
    return sum;
  }

  std::int64_t shard_ranks() const {
    const ParallelLayout& layout = *question_.layout;
    const std::int64_t replicas = layout.dp * layout.cp;
    if (layout.zero == Sharding::kNone) return 1;
    if (layout.zero != Sharding::kHsdp) return replicas;
    const std::int64_t node = question_.collectives->topology().gpus_per_node;
    return std::min(replicas, std::max<std::int64_t>(1, node / layout.tp));
  }

  std::int64_t shards_of_experts() const {
    const ParallelLayout& layout = *question_.layout;
    if (layout.zero == Sharding::kNone) return 1;
    return layout.dp * layout.cp * layout.tp / (layout.ep * layout.etp);
  }

  // Activations of all microbatches in flight.
  double kept(std::int64_t microbatches) const {
    const ShardCosts& shard = *question_.shard;
    double of_microbatch = 0;
    each_chunk([&](const ChunkLayers& chunk) {
      of_microbatch += as_real(chunk.layers) * shard.layer.kept_bytes;
      if (chunk.embeds) of_microbatch += shard.embedding.kept_bytes;
      if (chunk.loses) of_microbatch += shard.head.kept_bytes;
    });
    const double chunks = as_real(live_chunks(*question_.layout, microbatches, stage_));
    return of_microbatch * chunks / as_real(question_.layout->vp);
  }

  double extra() const {
    double most = 0;
    each_chunk([&](const ChunkLayers& chunk) {
      if (chunk.layers > 0) most = std::max(most, question_.shard->layer_extra_bytes);
      if (chunk.loses) most = std::max(most, question_.shard->head_extra_bytes);
    });
    return most;
  }

  // Two units of ZeRO-3 are whole at a time, and the root unit.
  double gathered(const BytesPerParameter& each) const {
    if (!shards_weights(question_.layout->zero)) return 0;
    const ShardCosts& shard = *question_.shard;
    const double frozen =
        (2 * shard.layer.frozen + shard.embedding.frozen) * as_real(question_.job->frozen_bits) / 8;
    return each.weights * (2 * shard.layer.parameters + shard.embedding.parameters) + frozen +
           each.gradients * shard.layer.parameters;
  }

  const StepQuestion& question_;
  const std::vector<ChunkLayers>& chunks_;
  std::int64_t stage_;
};

}  // namespace

std::int64_t live_chunks(const ParallelLayout& layout, std::int64_t microbatches,
                         std::int64_t stage) {
  const std::int64_t p = layout.pp, v = layout.vp, all = microbatches * v;
  if (splits_backward(layout.order)) {
    return parallel::split_live_chunks(split_schedule_of(layout.order), p, microbatches, stage);
  }
  if (v > 1) {
    return microbatches == p ? all : std::min(2 * (p - 1 - stage) + (v - 1) * p + 1, all);
  }
  return layout.order == PipelineOrder::kGpipe ? all : std::min(p - stage, all);
}

StepBytes step_bytes(const StepQuestion& question, const std::vector<ChunkLayers>& chunks) {
  StepBytes worst;
  for (std::int64_t stage = 0; stage < question.layout->pp; ++stage) {
    const StepBytes bytes = StageBytes(question, chunks, stage).run();
    if (bytes.allocated > worst.allocated) worst = bytes;
  }
  return worst;
}

}  // namespace perfmodel
