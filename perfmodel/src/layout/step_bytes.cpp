#include "step_bytes.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "layout_work.hpp"
#include "pinned_blocks.hpp"

namespace perfmodel {
namespace {

double as_real(std::int64_t number) { return static_cast<double>(number); }

/// Bytes that a rank keeps per parameter.
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
    case Optimizer::kAdamW: bytes.optimizer = master + 8; break;
    case Optimizer::kAdamW8bit: bytes.optimizer = master + 2; break;
    case Optimizer::kSgd: bytes.optimizer = master; break;
  }
  return bytes;
}

bool shards_weights(Sharding zero) { return shards_gradients(zero) && zero != Sharding::kZero2; }

// The loss follows its forward pass at once, except with GPipe and with interleaved schedules that
// have only as many microbatches as stages.
std::int64_t live_losses(const ParallelLayout& layout, std::int64_t microbatches,
                         std::int64_t stage) {
  if (splits_backward(layout.order)) {
    const parallel::SplitSchedule schedule = split_schedule_of(layout.order);
    return parallel::split_live_losses(schedule, layout.pp, microbatches, stage);
  }
  const bool all =
      layout.vp > 1 ? microbatches == layout.pp : layout.order == PipelineOrder::kGpipe;
  return all ? microbatches : 1;
}

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
    const double shards = as_real(shard_ranks(question_)), shard = own(numbers, experts);
    const double frozen = frozen_parameters() * as_real(job.frozen_bits) / 8;
    StepBytes bytes{.stage = stage_};
    bytes.weights = shards_weights(layout.zero) ? each.weights * shard + frozen / shards
                                                : each.weights * numbers + frozen;
    // All microbatches of a pipeline add to whole gradients.
    const bool scatters =
        shards_gradients(layout.zero) && (layout.pp == 1 || !gathers_parameters(layout.zero));
    bytes.gradients = each.gradients * (scatters ? shard : numbers);
    bytes.optimizer = each.optimizer * (layout.zero == Sharding::kNone ? numbers : shard);
    const std::int64_t microbatches = job.global_batch / (layout.dp * layout.micro_batch);
    const double beside = layout.tp > 1 ? 1 + framework.tensor_activation_share : 1;
    const double chunks = as_real(live_chunks(layout, microbatches, stage_)) / as_real(layout.vp);
    const double losses = as_real(live_losses(layout, microbatches, stage_));
    bytes.activations = beside * chunks * kept();
    bytes.working = layers() > 0 ? question_.shard->layer_extra_bytes : 0;
    bytes.logits = logits(beside * losses, bytes.working);
    bytes.gathered = gathers_by_unit(layout)       ? gathered(each)
                     : shards_weights(layout.zero) ? each.weights * numbers + frozen
                                                   : 0;
    bytes.program = framework.fixed_bytes;
    if (layout.offload.any()) offload(each, scatters, chunks, bytes);
    for (double* part : {&bytes.weights, &bytes.gradients, &bytes.optimizer, &bytes.activations,
                         &bytes.logits, &bytes.working, &bytes.gathered, &bytes.program,
                         &bytes.host.weights, &bytes.host.gradients, &bytes.host.optimizer,
                         &bytes.host.activations, &bytes.host.pinned}) {
      *part = std::round(*part);
    }
    bytes.allocator = std::round(bytes.allocated() * framework.reserved_share);
    return bytes;
  }

 private:
  template <class Visit>
  void each_chunk(Visit&& visit) const {
    for (std::int64_t chunk = 0; chunk < question_.layout->vp; ++chunk) {
      visit(chunks_[chunk_place(*question_.layout, stage_, chunk)]);
    }
  }

  // This rank's part of parameters, experts among them.
  double own(double numbers, double experts) const {
    return (numbers - experts) / as_real(shard_ranks(question_)) +
           experts / as_real(shards_of_experts());
  }

  // Moves offloaded parts to the host; the GPU keeps those that are on their way.
  void offload(const BytesPerParameter& each, bool scatters, double chunks,
               StepBytes& bytes) const {
    const LayoutOffload& offload = question_.layout->offload;
    const PartCosts& layer = question_.shard->layer;
    HostBytes& host = bytes.host;
    if (offload.optimizer) {
      const double part = question_.job->optimizer_offload_fraction;
      const double numbers = part * own(parameters(), parameters_of_experts());
      host.optimizer = part * bytes.optimizer;
      bytes.optimizer -= host.optimizer;
      host.gradients = each.gradients * numbers;
      host.pinned += part * rounding_of_units(each.gradients);
      if (offload.nvme) host = {.optimizer = nvme_buffer_bytes(numbers)};
      const double underway = gathers_by_unit(*question_.layout)
                                  ? each.gradients * own(layer.parameters, layer.experts)
                                  : question_.framework->bucket_bytes;
      if (scatters) bytes.gradients -= part * std::max(0.0, bytes.gradients - underway);
    }
    if (offload.parameters) {
      host.weights = std::exchange(bytes.weights, 0);
      host.pinned += rounding_of_units(each.weights);
    }
    if (!offload.activations) return;
    const double held = chunks * as_real(layers());
    host.activations = held * layer.kept_bytes;
    host.pinned += held * std::max(0.0, layer.pinned_bytes - layer.kept_bytes);
    bytes.activations -= std::max(0.0, held - 2) * layer.kept_bytes;
  }

  // A unit's shard is one pinned block.
  double rounding_of_units(double each) const {
    const ShardCosts& shard = *question_.shard;
    const auto rounding = [&](const PartCosts& unit) {
      const double bytes = each * own(unit.parameters, unit.experts);
      return pinned_block_bytes(bytes) - bytes;
    };
    double sum = 0;
    each_chunk([&](const ChunkLayers& chunk) {
      sum += as_real(chunk.layers) * rounding(shard.layer);
      if (chunk.embeds) sum += rounding(shard.embedding);
      if (chunk.heads) sum += rounding(shard.head);
    });
    return sum;
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

  std::int64_t shards_of_experts() const {
    const ParallelLayout& layout = *question_.layout;
    if (layout.zero == Sharding::kNone) return 1;
    return layout.dp * layout.cp * layout.tp / (layout.ep * layout.etp);
  }

  // Activations of one microbatch.
  double kept() const {
    const ShardCosts& shard = *question_.shard;
    double sum = as_real(layers()) * shard.layer.kept_bytes;
    each_chunk([&](const ChunkLayers& chunk) {
      if (chunk.embeds) sum += shard.embedding.kept_bytes;
      if (chunk.loses) sum += shard.head.kept_bytes - shard.logit_bytes;
    });
    return sum;
  }

  std::int64_t layers() const {
    std::int64_t sum = 0;
    each_chunk([&](const ChunkLayers& chunk) { sum += chunk.layers; });
    return sum;
  }

  // Logits of `held` microbatches, one of which has its gradients too.
  double logits(double held, double working) const {
    bool loses = false;
    each_chunk([&](const ChunkLayers& chunk) { loses = loses || chunk.loses; });
    const std::int64_t pieces =
        question_.job->loss_chunks.value_or(question_.framework->loss_chunks);
    if (!loses || pieces == 0) return 0;
    const double share = 1 / as_real(pieces);
    return share * held * question_.shard->logit_bytes +
           std::max(0.0, share * question_.shard->head_extra_bytes - working);
  }

  // Two units of ZeRO-3 are whole at a time, and the root unit.
  double gathered(const BytesPerParameter& each) const {
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
  std::vector<HostBytes> hosts;
  for (std::int64_t stage = 0; stage < question.layout->pp; ++stage) {
    const StepBytes bytes = StageBytes(question, chunks, stage).run();
    if (bytes.allocated() > worst.allocated()) worst = bytes;
    hosts.push_back(bytes.host);
  }
  if (question.layout->offload.any()) worst.host = fullest_node(question, hosts);
  return worst;
}

double checkpoint_bytes(const LayoutJob& job) {
  const BytesPerParameter each = bytes_per_parameter(job);
  return as_real(parameter_count(job.model)) * (each.weights + each.optimizer);
}

}  // namespace perfmodel
