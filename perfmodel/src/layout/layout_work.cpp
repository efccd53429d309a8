#include "layout_work.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "attention_kernel.hpp"
#include "layer_kinds.hpp"
#include "parallel_traffic.hpp"

namespace perfmodel {
namespace {

double real(std::int64_t number) { return static_cast<double>(number); }

/// Collectives of the groups of a layout. Ranks are numbered tp first, then dp, then pp.
class Groups {
 public:
  explicit Groups(const StepQuestion& question) : question_(question) {}

  /// [us] of one collective among `ranks` GPUs that lie `stride` ranks apart. An impossible one is
  /// kept as the error.
  double time_us(CollectiveKind kind, double bytes, std::int64_t ranks, std::int64_t stride) {
    if (ranks <= 1) return 0;
    const std::int64_t node = question_.collectives->topology().gpus_per_node;
    std::int64_t nodes = 1;
    if (stride >= node) {
      nodes = ranks;
    } else if (stride * ranks > node) {
      nodes = (stride * ranks + node - 1) / node;
    }
    const std::int64_t beside = nodes > 1 ? std::min(stride, node) : 1;
    return asked_us({.kind = kind,
                     .bytes = Bytes{bytes},
                     .ranks = static_cast<int>(ranks),
                     .nodes = static_cast<int>(nodes),
                     .groups_per_node = static_cast<int>(beside),
                     .node_stride = nodes_apart(stride)});
  }

  /// From one stage to the next: each rank to its partner.
  double send_us(double bytes) {
    const ParallelLayout& layout = *question_.layout;
    const std::int64_t node = question_.collectives->topology().gpus_per_node;
    const bool crosses = layout.gpus() > node;
    const std::int64_t stride = layout.tp * layout.cp * layout.dp;
    return asked_us({.kind = CollectiveKind::kSend,
                     .bytes = Bytes{bytes},
                     .ranks = 2,
                     .nodes = crosses ? 2 : 1,
                     .groups_per_node = static_cast<int>(crosses ? std::min(stride, node) : 1),
                     .node_stride = crosses ? nodes_apart(stride) : 1});
  }

  const std::optional<Error>& error() const { return error_; }

 private:
  int nodes_apart(std::int64_t stride) const {
    const std::int64_t node = question_.collectives->topology().gpus_per_node;
    return static_cast<int>(std::max<std::int64_t>(1, stride / node));
  }

  double asked_us(const CollectiveQuery& query) {
    const auto time = question_.collectives->time_us(query);
    if (time) return *time;
    if (!error_) error_ = time.error();
    return 0;
  }

  const StepQuestion& question_;
  std::optional<Error> error_;
};

/// What the host spends on a collective of tensor parallelism beside its op.
double collective_host_us(const StepQuestion& question) {
  const Framework& framework = *question.framework;
  const ParallelLayout& layout = *question.layout;
  const std::int64_t node = question.collectives->topology().gpus_per_node;
  const double nodes = real((layout.tp + node - 1) / node);
  double us = framework.collective_host_us +
              std::max(0.0, real(layout.tp) - 2) * framework.rank_collective_us +
              (nodes - 1) * framework.node_collective_us;
  if (layout.pp > 1) {
    us += framework.pipeline_collective_us * std::pow(real(layout.tp), framework.pipeline_exponent);
  }
  return us;
}

double kernel_us(const Gpu& gpu, KernelFamily family, double read, double written) {
  const KernelWork work{.family = family, .bytes_read = {read}, .bytes_written = {written}};
  return KernelModels::heuristic().price(work, gpu).time.count();
}

double weight_bytes(const LayoutJob& job) {
  return job.precision == LayoutJob::Precision::kFp32 ? 4 : 2;
}
double gradient_bytes(const LayoutJob& job) { return job.fp32_gradients ? 4 : weight_bytes(job); }

/// Prices what one rank does of the embedding, of a layer, of the head and of the loss.
class PartPricer {
 public:
  PartPricer(const StepQuestion& question, Groups& groups) : question_(question), groups_(groups) {}

  PartWork part_of(const PartCosts& costs) const {
    PartWork work{pass_of(costs.forward), pass_of(costs.backward)};
    // Of a product's gradients one is its weights': as much work as the product itself. Frozen ones
    // have none, and their adapters' are small.
    if (job_.lora_rank > 0) return work;
    work.backward.weights_us = std::min(costs.forward.product_us, costs.backward.kernel_us / 2);
    return work;
  }

  PartWork layer() {
    PartWork work = part_of(as_run(with_tensor_traffic(shard_.layer)));
    add_exchanges(work);
    return work;
  }

 private:
  PassWork pass_of(const PassCosts& costs) const {
    return {.kernel_us = costs.kernel_us,
            .comm_us = costs.comm_us * (1 - framework_.tensor_overlap),
            .host_us = costs.host_us * framework_.host_scale +
                       real(costs.collectives) * collective_host_us_,
            .collectives = costs.by_kind};
  }

  // A layer's kernels with those that its graph does not list.
  PartCosts as_run(PartCosts layer) const {
    const double factor =
        framework_.layer_factor +
        shard_.expert_layers * (framework_.expert_factor - framework_.layer_factor);
    use_kernel(layer);
    for (PassCosts* pass : {&layer.forward, &layer.backward}) {
      pass->product_us *= factor;
      // A kernel of attention takes the same time by any program.
      const double others = pass->kernel_us - pass->attention_us;
      pass->kernel_us = factor * (others + (framework_.state_factor - 1) * pass->state_us) +
                        pass->attention_us + whole_weights_us();
    }
    return layer;
  }

  // The layer's graph has attention by the kernel that frameworks take on this GPU; a backward pass
  // that computes the layer again has its forward pass, too.
  void use_kernel(PartCosts& layer) const {
    const AttentionRatios& by = attention_;
    const double again = (by.forward - by.backward) * layer.again.attention_us;
    const double forward = (by.forward - 1) * layer.forward.attention_us;
    const double backward = (by.backward - 1) * layer.backward.attention_us + again;
    layer.forward.attention_us += forward;
    layer.forward.kernel_us += forward;
    layer.backward.attention_us += backward;
    layer.backward.kernel_us += backward;
  }

  // Frozen weights of 4 bits are made whole before each product.
  double whole_weights_us() const {
    if (job_.frozen_bits == 16 || shard_.layer.frozen <= 0) return 0;
    return kernel_us(*question_.gpu, KernelFamily::kElementwise,
                     real(job_.frozen_bits) / 8 * shard_.layer.frozen,
                     weight_bytes(job_) * shard_.layer.frozen);
  }

  // Collectives of tensor parallelism of layers whose graph is that of one rank alone: around each
  // part a gather and a scatter of the tokens, or one sum after it. The gradient of a weight needs
  // the gathered tokens once more.
  PartCosts with_tensor_traffic(PartCosts layer) {
    if (layout_.tp == 1 || shard_.tensor_parts == 0) return layer;
    const double bytes = real(layout_.micro_batch) * real(job_.sequence) / real(layout_.cp) *
                         real(job_.model.hidden) * weight_bytes(job_);
    for (PassCosts* pass : {&layer.forward, &layer.backward}) {
      const auto add = [&](CollectiveKind kind, CollectiveSum& sum) {
        const double us = groups_.time_us(kind, bytes, layout_.tp, 1);
        sum.count += shard_.tensor_parts;
        sum.bytes += shard_.tensor_parts * bytes;
        sum.us += shard_.tensor_parts * us;
        pass->comm_us += shard_.tensor_parts * us;
        pass->collectives += static_cast<std::int64_t>(std::ceil(shard_.tensor_parts));
      };
      if (layout_.sequence_parallel) {
        add(CollectiveKind::kAllGather, pass->by_kind.all_gather);
        if (pass == &layer.backward) add(CollectiveKind::kAllGather, pass->by_kind.all_gather);
        add(CollectiveKind::kReduceScatter, pass->by_kind.reduce_scatter);
      } else {
        add(CollectiveKind::kAllReduce, pass->by_kind.all_reduce);
      }
    }
    return layer;
  }

  void add_exchanges(PartWork& layer) {
    PartCosts with_kernel = shard_.layer;
    use_kernel(with_kernel);
    const std::pair<PassWork*, const PassCosts*> passes[] = {
        {&layer.forward, &with_kernel.forward}, {&layer.backward, &with_kernel.backward}};
    for (const auto& [pass, costs] : passes) {
      const bool backward = pass == &layer.backward;
      pass->context_us = shard_.attending * context_us(backward, costs->attention_us);
      pass->expert_us = expert_us(pass->kernel_us);
      const double held = real(job_.model.experts.experts / layout_.ep);
      pass->host_us +=
          shard_.expert_layers * (framework_.expert_host_us + held * framework_.expert_launch_us);
      if (backward && layout_.recompute == LayoutRecompute::kFull) {
        pass->context_us += layer.forward.context_us;
        pass->expert_us += layer.forward.expert_us;
      }
    }
  }

  // Keys and values of the next block travel while attention computes with those of this one.
  double context_us(bool backward, double attention_us) {
    double us = 0;
    for (const ExchangedBuffer& buffer : context_exchange(job_, layout_, backward)) {
      us += groups_.time_us(buffer.kind, buffer.bytes, layout_.cp, layout_.tp);
    }
    if (layout_.context != ContextExchange::kRing || us == 0) return us;
    const double attending = std::max(shard_.attending, 1e-9);
    const double hides = attention_us / attending * real(layout_.cp - 1) / real(layout_.cp);
    return std::max(0.0, us - hides);
  }

  double expert_us(double kernel_us) {
    if (shard_.expert_layers == 0) return 0;
    double us = 0;
    for (const ExchangedBuffer& buffer : expert_exchange(job_, layout_, question_.expert_load)) {
      const bool between = buffer.kind == CollectiveKind::kAllToAll;
      const double share = between && framework_.rows_once_per_rank
                               ? share_of_distinct_ranks(job_.model, layout_.ep)
                               : 1;
      us += shard_.expert_layers * groups_.time_us(buffer.kind, share * buffer.bytes,
                                                   between ? layout_.ep : layout_.etp,
                                                   between ? layout_.etp : 1);
    }
    if (!layout_.overlap_experts) return (1 - framework_.expert_overlap) * us;
    return *layout_.overlap_experts ? std::max(0.0, us - kernel_us) : us;
  }

  const StepQuestion& question_;
  const LayoutJob& job_ = *question_.job;
  const ParallelLayout& layout_ = *question_.layout;
  const Framework& framework_ = *question_.framework;
  const ShardCosts& shard_ = *question_.shard;
  Groups& groups_;
  double collective_host_us_ = collective_host_us(question_);
  AttentionRatios attention_ = attention_ratios(question_);
};

/// Prices one step from its parts.
class WorkPricer {
 public:
  WorkPricer(const StepQuestion& question, const std::vector<ChunkLayers>& chunks)
      : question_(question), chunks_(chunks), groups_(question) {}

  Result<LayoutWork> run() {
    LayoutWork work;
    work.microbatches = microbatches_ = job_.global_batch / (layout_.dp * layout_.micro_batch);
    PartPricer parts(question_, groups_);
    work.embedding = parts.part_of(shard_.embedding);
    work.layer = parts.layer();
    layer_forward_us_ = work.layer.forward.total_us();
    work.head = parts.part_of(shard_.head);
    work.loss = parts.part_of(shard_.loss);
    for (const ChunkLayers& holds : chunks_) work.chunks.push_back(chunk_of(work, holds));
    const bool sharded = gathers_by_unit(layout_);
    for (std::int64_t stage = 0; stage < layout_.pp; ++stage) {
      work.stages.push_back(stage_of(stage, sharded, stage > 0 ? &work.stages.back() : nullptr));
    }
    if (sharded) {
      work.sharded = sharded_of(work);
    } else if (layout_.pp > 1) {
      work.hop = hop();
      if (job_.model.tied && !lies_as_v(layout_.order)) {
        work.tied_words_bytes = shard_.embedding.parameters * gradient_bytes(job_);
        work.tied_words_us = groups_.time_us(CollectiveKind::kAllReduce, work.tied_words_bytes, 2,
                                             layout_.tp * layout_.cp * layout_.dp);
      }
    }
    if (layout_.gpus() > 1) work.nodes_us = at_nodes(framework_.step_by_nodes_us, nodes());
    if (groups_.error()) return Unexpected{*groups_.error()};
    return work;
  }

 private:
  double nodes() const {
    const double node = real(question_.collectives->topology().gpus_per_node);
    return std::ceil(real(layout_.gpus()) / node);
  }

  ChunkWork chunk_of(const LayoutWork& work, const ChunkLayers& holds) const {
    ChunkWork chunk{.holds = holds, .parts = real(holds.layers) * work.layer};
    PartWork& parts = chunk.parts;
    if (holds.embeds) parts = parts + work.embedding;
    if (holds.heads) parts = parts + work.head;
    if (holds.loses) parts = parts + work.loss;
    if (layout_.recompute != LayoutRecompute::kNone) {
      parts.backward.host_us += real(holds.layers) * framework_.recompute_host_us;
    }
    if (holds.loses) parts.forward.host_us += framework_.microbatch_host_us;
    if (!gathers_by_unit(layout_)) parts.backward.kernel_us += accumulation_us(holds);
    return chunk;
  }

  // Gradients are added to those of earlier microbatches.
  double accumulation_us(const ChunkLayers& holds) const {
    if (!job_.fp32_gradients && microbatches_ == 1) return 0;
    const double numbers = parameters_of(holds);
    if (numbers <= 0 || framework_.accumulation_bytes <= 0) return 0;
    return kernel_us(*question_.gpu, KernelFamily::kElementwise,
                     0.6 * framework_.accumulation_bytes * numbers,
                     0.4 * framework_.accumulation_bytes * numbers);
  }

  double parameters_of(const ChunkLayers& holds) const {
    return real(holds.layers) * shard_.layer.parameters +
           (holds.embeds ? shard_.embedding.parameters : 0) +
           (holds.heads ? shard_.head.parameters : 0) +
           (holds.heads && !holds.embeds && job_.model.tied ? shard_.embedding.parameters : 0);
  }

  double experts_of(const ChunkLayers& holds) const {
    return real(holds.layers) * shard_.layer.experts + (holds.heads ? shard_.head.experts : 0);
  }
  std::int64_t replicas() const { return layout_.dp * layout_.cp; }
  // Ranks that hold the same experts.
  std::int64_t replicas_of_experts() const {
    return layout_.dp * layout_.cp * layout_.tp / (layout_.ep * layout_.etp);
  }
  // Of a buffer whose parts for dense weights and for experts lie in groups of their own.
  double shared_us(CollectiveKind kind, double dense, double experts) {
    return groups_.time_us(kind, dense, replicas(), layout_.tp) +
           (experts > 0
                ? groups_.time_us(kind, experts, replicas_of_experts(), layout_.ep * layout_.etp)
                : 0);
  }

  // `before`: the stage in front of it, which mostly is the same.
  StageWork stage_of(std::int64_t stage, bool sharded, const StageWork* before) {
    StageWork made;
    double experts = 0;
    for (std::int64_t chunk = 0; chunk < layout_.vp; ++chunk) {
      const ChunkLayers& at = chunks_[chunk_place(layout_, stage, chunk)];
      made.parameters += parameters_of(at);
      experts += experts_of(at);
    }
    if (before && before->parameters == made.parameters) return *before;
    const double dense = made.parameters - experts;
    const double own = layout_.zero == Sharding::kNone
                           ? made.parameters
                           : dense / real(replicas()) + experts / real(replicas_of_experts());
    const double moved = framework_.optimizer_bytes * own;
    made.optimizer_us =
        kernel_us(*question_.gpu, KernelFamily::kOptimizer, 0.6 * moved, 0.4 * moved);
    if (sharded || replicas() == 1) return made;
    made.sums = sums_of(dense, experts);
    if (layout_.zero == Sharding::kNone) return made;
    made.gather_bytes = made.parameters * weight_bytes(job_);
    made.gather_us = shared_us(CollectiveKind::kAllGather, dense * weight_bytes(job_),
                               experts * weight_bytes(job_));
    if (gathers_parameters(layout_.zero)) made.gather_us = exposed_gather_us(stage, made.gather_us);
    return made;
  }

  // Units of a stage are gathered in front of its first forward pass, each while the one before is
  // computed.
  double exposed_gather_us(std::int64_t stage, double gather_us) const {
    double units = 0;
    for (std::int64_t chunk = 0; chunk < layout_.vp; ++chunk) {
      units += real(chunks_[chunk_place(layout_, stage, chunk)].layers);
    }
    const double first = gather_us / std::max(1.0, units);
    return std::max(first, gather_us - units * layer_forward_us_);
  }

  GradientSums sums_of(double dense, double experts) {
    GradientSums sums{.bytes = (dense + experts) * gradient_bytes(job_)};
    const double buckets = std::max(1.0, std::ceil(sums.bytes / framework_.bucket_bytes));
    sums.buckets = static_cast<std::int64_t>(buckets);
    sums.scatters = framework_.reduce_scatters && layout_.zero != Sharding::kNone;
    sums.bucket_us =
        shared_us(sums.scatters ? CollectiveKind::kReduceScatter : CollectiveKind::kAllReduce,
                  dense * gradient_bytes(job_) / buckets, experts * gradient_bytes(job_) / buckets);
    return sums;
  }

  HopWork hop() {
    HopWork made;
    made.occupies_us = framework_.hop_host_us + at_nodes(framework_.hop_by_nodes_us, nodes());
    const double whole = shard_.boundary_bytes;
    const bool split = framework_.split_hops && layout_.tp > 1 && !layout_.sequence_parallel;
    made.send_bytes = split ? whole / real(layout_.tp) : whole;
    made.send_us = groups_.send_us(made.send_bytes);
    if (!split) return made;
    made.regather_bytes = whole;
    made.regather_us = groups_.time_us(CollectiveKind::kAllGather, whole, layout_.tp, 1);
    return made;
  }

  ShardedWork sharded_of(const LayoutWork& work) {
    const std::int64_t node = question_.collectives->topology().gpus_per_node;
    const bool hybrid = layout_.zero == Sharding::kHsdp;
    ShardedWork made;
    made.layers = job_.model.layers;
    made.shards =
        hybrid ? std::min(replicas(), std::max<std::int64_t>(1, node / layout_.tp)) : replicas();
    made.options = {.keep_last_unit = true};
    const auto traffic_us = [&](CollectiveKind kind, double bytes, double of_experts) {
      if (made.shards == 1) return 0.0;
      return framework_.gather_us +
             groups_.time_us(kind, bytes - of_experts, made.shards, layout_.tp) +
             (of_experts > 0 ? groups_.time_us(kind, of_experts, replicas_of_experts(),
                                               layout_.ep * layout_.etp)
                             : 0);
    };
    const auto unit = [&](const PartCosts& costs, const PartWork& parts) {
      const double frozen = costs.frozen * real(job_.frozen_bits) / 8;
      ShardedWork::Unit one{.parts = parts,
                            .gather_bytes = costs.parameters * weight_bytes(job_) + frozen,
                            .scatter_bytes = costs.parameters * gradient_bytes(job_)};
      one.times = {
          .all_gather_us = traffic_us(CollectiveKind::kAllGather, one.gather_bytes,
                                      costs.experts * weight_bytes(job_)),
          .reduce_scatter_us = traffic_us(CollectiveKind::kReduceScatter, one.scatter_bytes,
                                          costs.experts * gradient_bytes(job_)),
          .forward_us = parts.forward.total_us(),
          .backward_us = parts.backward.total_us()};
      return one;
    };
    made.layer = unit(shard_.layer, work.layer);
    made.first = unit(shard_.embedding, work.embedding);
    made.first.times.keeps_params = true;
    made.last = unit(shard_.head, work.head + work.loss);
    const auto units = static_cast<std::size_t>(made.layers) + 2;
    const auto times = [&](std::size_t i) -> const parallel::FsdpUnit& {
      return (i == 0 ? made.first : i + 1 == units ? made.last : made.layer).times;
    };
    made.pass = parallel::sharded_pass(units, times, made.options);
    PassWork all;
    for (const ChunkWork& chunk : work.chunks) {
      all = all + chunk.parts.forward + chunk.parts.backward;
    }
    // Units pass one by one: what the host of one unit cannot hide is in their times.
    made.late_host_us = std::max(0.0, all.total_us() - made.pass.compute_us);
    made.exposed_us = framework_.overlaps_gathers
                          ? std::max(0.0, made.pass.end_us - made.pass.compute_us)
                          : made.pass.comm_us;
    made.slowed_us = framework_.interference * std::max(0.0, made.pass.comm_us - made.exposed_us);
    if (hybrid && replicas() > made.shards) {
      made.replicas_bytes =
          work.stages.front().parameters * gradient_bytes(job_) / real(made.shards);
      made.replicas_us = groups_.time_us(CollectiveKind::kAllReduce, made.replicas_bytes,
                                         replicas() / made.shards, layout_.tp * made.shards);
    }
    return made;
  }

  const StepQuestion& question_;
  const LayoutJob& job_ = *question_.job;
  const ParallelLayout& layout_ = *question_.layout;
  const Framework& framework_ = *question_.framework;
  const ShardCosts& shard_ = *question_.shard;
  const std::vector<ChunkLayers>& chunks_;
  Groups groups_;
  std::int64_t microbatches_ = 1;
  double layer_forward_us_ = 0;
};

}  // namespace

double PassWork::exposed_host_us() const { return std::max(0.0, host_us - device_us()); }
double PassWork::total_us() const { return std::max(device_us(), host_us); }

PassWork operator+(PassWork a, const PassWork& b) {
  a.kernel_us += b.kernel_us;
  a.comm_us += b.comm_us;
  a.expert_us += b.expert_us;
  a.context_us += b.context_us;
  a.host_us += b.host_us;
  a.weights_us += b.weights_us;
  a.collectives += b.collectives;
  return a;
}

PassWork operator*(double count, PassWork a) {
  a.kernel_us *= count;
  a.comm_us *= count;
  a.expert_us *= count;
  a.context_us *= count;
  a.host_us *= count;
  a.weights_us *= count;
  a.collectives *= count;
  return a;
}

PartWork operator+(PartWork a, const PartWork& b) {
  return {a.forward + b.forward, a.backward + b.backward};
}
PartWork operator*(double count, PartWork a) { return {count * a.forward, count * a.backward}; }

parallel::PipelineSchedule pipeline_schedule_of(const ParallelLayout& layout) {
  using parallel::PipelineSchedule;
  if (layout.vp > 1) return PipelineSchedule::kInterleaved;
  return layout.order == PipelineOrder::kGpipe ? PipelineSchedule::kGpipe : PipelineSchedule::k1F1B;
}

bool splits_backward(PipelineOrder order) {
  return order == PipelineOrder::kZbH1 || lies_as_v(order);
}

parallel::SplitSchedule split_schedule_of(PipelineOrder order) {
  using parallel::SplitSchedule;
  if (order == PipelineOrder::kZbH1) return SplitSchedule::kZbH1;
  return order == PipelineOrder::kZbV ? SplitSchedule::kZbV : SplitSchedule::kDualPipeV;
}

bool lies_as_v(PipelineOrder order) {
  return order == PipelineOrder::kZbV || order == PipelineOrder::kDualPipe;
}

std::size_t chunk_place(const ParallelLayout& layout, std::int64_t stage, std::int64_t chunk) {
  const bool turns = lies_as_v(layout.order) && chunk % 2 == 1;
  return static_cast<std::size_t>(turns ? (chunk + 1) * layout.pp - 1 - stage
                                        : chunk * layout.pp + stage);
}

bool gathers_parameters(Sharding zero) {
  return zero == Sharding::kZero3 || zero == Sharding::kFsdp || zero == Sharding::kHsdp;
}

bool gathers_by_unit(const ParallelLayout& layout) {
  return gathers_parameters(layout.zero) && layout.pp == 1;
}

Result<LayoutWork> layout_work(const StepQuestion& question,
                               const std::vector<ChunkLayers>& chunks) {
  return WorkPricer(question, chunks).run();
}

}  // namespace perfmodel
