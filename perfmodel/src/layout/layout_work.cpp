#include "layout_work.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "attention_kernel.hpp"
#include "host_offload.hpp"
#include "layer_kinds.hpp"
#include "member_sums.hpp"
#include "parallel_traffic.hpp"
#include "recomputed_layer.hpp"

namespace perfmodel {
namespace {

double real(std::int64_t number) { return static_cast<double>(number); }

constexpr double PassWork::*kPassTimes[] = {
    &PassWork::kernel_us,  &PassWork::comm_us, &PassWork::expert_us, &PassWork::context_us,
    &PassWork::offload_us, &PassWork::host_us, &PassWork::weights_us};

/// SMs that move rows while others compute (DeepSeek-AI 2024, section 3.2.2).
constexpr double kDispatchSms = 20;

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

/// The host's time for a collective of tensor parallelism, besides its op.
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

/// Time that the host spends on a pass, without the ops that CUDA graphs replay.
double issued_us(const StepQuestion& question, const PassCosts& costs, double collective_us) {
  const auto captures = [&](LayoutJob::GraphScope scope) {
    return (question.job->cuda_graphs & scope) != 0;
  };
  if (captures(LayoutJob::kFullGraph)) return 0;
  double own_us = costs.host_us, collectives = real(costs.collectives);
  if (captures(LayoutJob::kRouterGraph)) own_us -= costs.router_host_us;
  if (captures(LayoutJob::kAttentionGraph) && costs.attention_host_us > 0) {
    own_us -= costs.attention_host_us;
    collectives /= 2;  // attention has as many as the other part
  }
  return std::max(0.0, own_us) * question.framework->host_scale + collectives * collective_us;
}

/// The same for the extra time of a layer with experts: a graph of the row counts leaves only the
/// launches of products.
double expert_host_us(const StepQuestion& question) {
  const Framework& framework = *question.framework;
  const std::uint8_t scopes = question.job->cuda_graphs;
  if ((scopes & LayoutJob::kFullGraph) != 0) return 0;
  const double held = real(question.job->model.experts.experts / question.layout->ep);
  const double counts_us =
      (scopes & LayoutJob::kPreprocessGraph) != 0 ? 0 : framework.expert_host_us;
  return counts_us + held * framework.expert_launch_us;
}

/// Share of layers that are computed again as a whole.
double share_again(const StepQuestion& question) {
  const ParallelLayout& layout = *question.layout;
  const std::int64_t layers = question.job->model.layers;
  return recomputed_layers(layout.recompute, layers, layout.pp * layout.vp) / real(layers);
}

Dispatcher dispatcher_of(const StepQuestion& question) {
  return question.layout->dispatcher.value_or(
      question.framework->rows_once_per_rank ? Dispatcher::kDeepEp : Dispatcher::kAllToAll);
}

double kernel_us(const Gpu& gpu, KernelFamily family, double read, double written) {
  const KernelWork work{.family = family, .bytes_read = {read}, .bytes_written = {written}};
  return KernelModels::heuristic().price(work, gpu).time.count();
}

double weight_bytes(const LayoutJob& job) { return weight_width(job.precision); }
double gradient_bytes(const LayoutJob& job) { return job.fp32_gradients ? 4 : weight_bytes(job); }

/// Prices what one rank does of the embedding, of a layer, of the head and of the loss.
class PartPricer {
 public:
  PartPricer(const StepQuestion& question, Groups& groups) : question_(question), groups_(groups) {}

  PartWork part_of(const PartCosts& costs) const {
    PartWork work{pass_of(costs.forward), pass_of(costs.backward)};
    // One of a product's two gradients is its weights': as much work as the product itself. Frozen
    // weights have none, and their adapters' are small.
    if (job_.lora_rank > 0) return work;
    work.backward.weights_us = std::min(costs.forward.product_us, costs.backward.kernel_us / 2);
    return work;
  }

  PartWork layer() {
    PartWork work = part_of(as_run(with_tensor_traffic(shard_.layer)));
    add_exchanges(work);
    if (layout_.offload.activations) add_offload(work);
    return work;
  }

 private:
  PassWork pass_of(const PassCosts& costs) const {
    return {.kernel_us = costs.kernel_us,
            .comm_us = exposed_tensor_us(costs),
            .host_us = issued_us(question_, costs, collective_host_us_),
            .collectives = costs.by_kind};
  }

  // Asynchronous: a product begins with the rank's own part while the others come, so that all but
  // one of tp parts of it hide them.
  double exposed_tensor_us(const PassCosts& costs) const {
    const double usual = costs.comm_us * (1 - framework_.tensor_overlap);
    if (!layout_.async_tp) return usual;
    const double moved = costs.by_kind.all_gather.us + costs.by_kind.reduce_scatter.us;
    const double hides = costs.product_us * real(layout_.tp - 1) / real(layout_.tp);
    return std::min(usual, costs.comm_us - std::min(moved, hides));
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

  /// Shares of a layer's forward collectives that its backward pass repeats.
  struct Repeated {
    double gathers = 0, scatters = 0;
  };

  // Recomputation by op keeps results of scatters. A dense feed-forward part is one of two between
  // collectives.
  Repeated repeated() const {
    const LayoutRecompute& recompute = layout_.recompute;
    if (recompute == LayoutRecompute::kOp) return {1, 0};
    if (recompute.what == LayoutRecompute::kModules) {
      const DecoderExperts& experts = job_.model.experts;
      const double dense =
          experts.experts == 0 ? 1 : real(experts.dense_layers) / real(job_.model.layers);
      const double share = (recompute.modules & LayoutRecompute::kDenseInner) != 0 ? dense / 2 : 0;
      return {share, share};
    }
    return {share_again(question_), share_again(question_)};
  }

  // Adds collectives of tensor parallelism to layers whose graph is of one rank alone: around each
  // part a gather and a scatter of the tokens, or one sum after it. The gradient of a weight needs
  // the gathered tokens once more.
  PartCosts with_tensor_traffic(PartCosts layer) {
    if (layout_.tp == 1 || shard_.tensor_parts == 0) return layer;
    const double bytes = real(layout_.micro_batch) * real(job_.sequence) / real(layout_.cp) *
                         real(job_.model.hidden) * weight_bytes(job_);
    for (PassCosts* pass : {&layer.forward, &layer.backward}) {
      const bool backward = pass == &layer.backward;
      const Repeated again = backward ? repeated() : Repeated{};
      const auto add = [&](CollectiveKind kind, double times, CollectiveSum& sum) {
        const double us = groups_.time_us(kind, bytes, layout_.tp, 1);
        const double count = times * shard_.tensor_parts;
        sum.count += count;
        sum.bytes += count * bytes;
        sum.us += count * us;
        pass->comm_us += count * us;
        pass->collectives += static_cast<std::int64_t>(std::ceil(count));
      };
      if (layout_.sequence_parallel) {
        add(CollectiveKind::kAllGather, (backward ? 2 : 1) + again.gathers,
            pass->by_kind.all_gather);
        add(CollectiveKind::kReduceScatter, 1 + again.scatters, pass->by_kind.reduce_scatter);
      } else {
        add(CollectiveKind::kAllReduce, 1 + again.gathers, pass->by_kind.all_reduce);
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
      pass->host_us += shard_.expert_layers * expert_host_us(question_);
      if (!backward) continue;
      pass->context_us += shard_.layer.context_again * layer.forward.context_us;
      pass->expert_us += shard_.layer.experts_again * layer.forward.expert_us;
    }
  }

  // Keys and values of the next block travel while attention computes with this block's.
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

  // Activations of a layer leave while the next one computes, and come back the same way.
  void add_offload(PartWork& layer) const {
    const double copy_us = host_copy_us(*question_.gpu, shard_.layer.kept_bytes);
    for (PassWork* pass : {&layer.forward, &layer.backward}) {
      pass->offload_us = std::max(0.0, copy_us - pass->device_us());
    }
  }

  double expert_us(double kernel_us) {
    if (shard_.expert_layers == 0) return 0;
    double us = 0;
    bool goes = true;  // the first exchange takes rows to experts
    for (const ExchangedBuffer& buffer : expert_exchange(job_, layout_, question_.expert_load)) {
      if (buffer.kind == CollectiveKind::kAllToAll) {
        us += shard_.expert_layers * dispatch_us(buffer.bytes, std::exchange(goes, false));
      } else {
        us += shard_.expert_layers * groups_.time_us(buffer.kind, buffer.bytes, layout_.etp, 1);
      }
    }
    // DualPipe hides it with another pass instead.
    const bool hides = layout_.order != PipelineOrder::kDualPipe;
    if (!layout_.overlap_experts) return hides ? (1 - framework_.expert_overlap) * us : us;
    return *layout_.overlap_experts ? std::max(0.0, us - kernel_us) : us;
  }

  // `bytes` counts a row per expert. If tokens go once to each node, NVLink hands them on while
  // others still arrive. In fp8 they travel as fp8 with one fp32 scale per 128 numbers.
  double dispatch_us(double bytes, bool goes) {
    const auto exchange_us = [&](double moved, std::int64_t ranks, std::int64_t stride) {
      return groups_.time_us(CollectiveKind::kAllToAll, moved, ranks, stride);
    };
    if (dispatcher_of(question_) == Dispatcher::kAllToAll) {
      return exchange_us(bytes, layout_.ep, layout_.etp);
    }
    if (goes && job_.precision == LayoutJob::Precision::kFp8) bytes *= (1 + 4.0 / 128) / 2;
    const std::int64_t node = question_.collectives->topology().gpus_per_node;
    const std::int64_t inside = std::clamp<std::int64_t>(node / layout_.etp, 1, layout_.ep);
    const std::int64_t nodes = (layout_.ep + inside - 1) / inside;
    const double to_nodes = bytes * share_of_distinct_ranks(job_.model, nodes);
    const double to_ranks = bytes * share_of_distinct_ranks(job_.model, layout_.ep);
    return std::max(exchange_us(to_nodes, nodes, inside * layout_.etp),
                    exchange_us(to_ranks, inside, layout_.etp));
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
    if (gathers_by_unit(layout_) && replicas() > 1) {
      add_unit_traffic(shard_.embedding, work.embedding);
      add_unit_traffic(shard_.layer, work.layer);
      add_unit_traffic(shard_.head, work.head);
    }
    for (const ChunkLayers& holds : chunks_) {
      work.chunks.push_back(chunk_of(work, holds));
      backward_us_ += work.chunks.back().parts.backward.total_us();
    }
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
    if (dispatcher_of(question_) != Dispatcher::kHybridEp) {
      work.expert_hides = 1 - std::min(1.0, kDispatchSms / real(question_.gpu->num_sms));
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

  // Two gathers and a scatter. PyTorch's FSDP puts gradients side by side in one buffer first, and
  // divides them there.
  void add_unit_traffic(const PartCosts& costs, PartWork& unit) const {
    unit.forward.host_us += framework_.unit_host_us;
    unit.backward.host_us += 2 * framework_.unit_host_us;
    if (!framework_.plain_pytorch) return;
    const double bytes = costs.parameters * weight_bytes(job_);
    for (const auto family : {KernelFamily::kConcat, KernelFamily::kElementwise}) {
      unit.backward.kernel_us += kernel_us(*question_.gpu, family, bytes, bytes);
    }
  }

  ChunkWork chunk_of(const LayoutWork& work, const ChunkLayers& holds) const {
    ChunkWork chunk{.holds = holds, .parts = real(holds.layers) * work.layer};
    PartWork& parts = chunk.parts;
    if (holds.embeds) parts = parts + work.embedding;
    if (holds.heads) parts = parts + work.head;
    if (holds.loses) parts = parts + work.loss;
    if (layout_.recompute != LayoutRecompute::kNone && !is_captured()) {
      const bool parts_of_each = layout_.recompute.what == LayoutRecompute::kSelective ||
                                 layout_.recompute.what == LayoutRecompute::kOp ||
                                 layout_.recompute.what == LayoutRecompute::kModules;
      const double share = parts_of_each ? 1 : share_again(question_);
      parts.backward.host_us += share * real(holds.layers) * framework_.recompute_host_us;
    }
    if (holds.loses) parts.forward.host_us += framework_.microbatch_host_us;
    if (!gathers_by_unit(layout_)) parts.backward.kernel_us += accumulation_us(holds);
    return chunk;
  }

  // Gradients are added to earlier microbatches' gradients.
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
  bool is_captured() const { return (job_.cuda_graphs & LayoutJob::kFullGraph) != 0; }
  std::int64_t replicas() const { return layout_.dp * layout_.cp; }
  // Ranks that hold the same experts.
  std::int64_t replicas_of_experts() const {
    return layout_.dp * layout_.cp * layout_.tp / (layout_.ep * layout_.etp);
  }
  std::int64_t summing_ranks() const {
    return layout_.zero == Sharding::kNone ? replicas() : shards_;
  }
  double copies_us(double dense) {
    const std::int64_t shards = summing_ranks();
    return groups_.time_us(CollectiveKind::kAllReduce, dense / real(shards), replicas() / shards,
                           layout_.tp * shards);
  }
  // Time of a buffer whose parts for dense weights and for experts are in groups of their own.
  // Copies of shards then add up their sums.
  double shared_us(CollectiveKind kind, double dense, double experts) {
    const double sums_us = kind == CollectiveKind::kAllGather ? 0 : copies_us(dense);
    return groups_.time_us(kind, dense, summing_ranks(), layout_.tp) + sums_us +
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
    const double own = own_of(made.parameters, experts);
    const PassCosts update = update_of(stage);
    made.optimizer_host_us = update.host_us;
    const double on_host = offloaded_part_ * own, on_gpu = own - on_host;
    made.optimizer_us = update.kernel_us > 0 ? update.kernel_us * on_gpu / made.parameters
                                             : optimizer_us(framework_.optimizer_bytes * on_gpu);
    if (layout_.offload.optimizer) {
      const double gpu_us = made.optimizer_us;
      const auto with_cpus = [&](double times) {
        return std::max(gpu_us, optimizer_on_host_us(on_host, times));
      };
      made.optimizer_us = with_cpus(1);
      made.optimizer_low_us = with_cpus(0.5);
      made.optimizer_high_us = with_cpus(2);
      made.offload_us = step_copies_us(on_host);
    }
    if (sharded || replicas() == 1) return made;
    made.sums = sums_of(dense, experts);
    if (layout_.zero == Sharding::kNone) return made;
    made.gather_bytes = made.parameters * weight_bytes(job_);
    made.gather_us = shared_us(CollectiveKind::kAllGather, dense * weight_bytes(job_),
                               experts * weight_bytes(job_));
    if (gathers_parameters(layout_.zero)) made.gather_us = exposed_gather_us(stage, made.gather_us);
    return made;
  }

  // This rank's part of parameters, experts among them.
  double own_of(double numbers, double experts) const {
    if (layout_.zero == Sharding::kNone) return numbers;
    return (numbers - experts) / real(shards_) + experts / real(replicas_of_experts());
  }

  double optimizer_on_host_us(double parameters, double times_of_cpus) const {
    const double drives_us = layout_.offload.nvme ? nvme_us(question_, parameters) : 0;
    return drives_us + times_of_cpus * host_optimizer_us(question_, parameters);
  }

  double optimizer_us(double moved) const {
    if (moved <= 0) return 0;
    return kernel_us(*question_.gpu, KernelFamily::kOptimizer, 0.6 * moved, 0.4 * moved);
  }

  // Nothing, unless the graph of the shard holds it.
  PassCosts update_of(std::int64_t stage) const {
    PassCosts sum;
    if (job_.optimizer != LayoutJob::Optimizer::kAdamW) return sum;
    for (std::int64_t chunk = 0; chunk < layout_.vp; ++chunk) {
      const ChunkLayers& at = chunks_[chunk_place(layout_, stage, chunk)];
      sum = sum + real(at.layers) * shard_.layer_update;
      if (at.embeds) sum = sum + shard_.other_update;
    }
    return sum;
  }

  // Gradients go to the host after the last backward pass, when they are whole; with ZeRO-2 each
  // backward pass hides its copies, as it does unit by unit. Updated weights come back at the end.
  double step_copies_us(double numbers) const {
    const double weights_us =
        layout_.offload.parameters ? 0 : host_copy_us(*question_.gpu, numbers * weight_bytes(job_));
    if (gathers_by_unit(layout_)) return weights_us;
    const bool leave_early = layout_.pp == 1 && shards_gradients(layout_.zero);
    const double hides_us = leave_early ? backward_us_ : 0;
    const double times = leave_early ? real(microbatches_) : 1;
    return weights_us + times * exposed_gradients_us(numbers, hides_us);
  }

  double exposed_gradients_us(double numbers, double hides_us) const {
    return std::max(0.0, host_copy_us(*question_.gpu, numbers * gradient_bytes(job_)) - hides_us);
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
    const double least =
        framework_.buckets_grow ? 1e6 * real(layout_.dp) * gradient_bytes(job_) : 0;
    const double buckets =
        std::max(1.0, std::ceil(sums.bytes / std::max(framework_.bucket_bytes, least)));
    sums.buckets = static_cast<std::int64_t>(buckets);
    sums.each_microbatch = layout_.zero == Sharding::kZero2;
    sums.scatters = framework_.reduce_scatters && layout_.zero != Sharding::kNone;
    sums.bucket_us =
        shared_us(sums.scatters ? CollectiveKind::kReduceScatter : CollectiveKind::kAllReduce,
                  dense * gradient_bytes(job_) / buckets, experts * gradient_bytes(job_) / buckets);
    sums.copies_us = copies_us(dense * gradient_bytes(job_) / buckets);
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

  // A unit's shard of the weights comes from the host before it is gathered, its gradients go there
  // after they were scattered. Programs that gather one by one still copy gradients asynchronously.
  parallel::FsdpUnit with_copies(const ShardedWork::Unit& unit, const PartCosts& costs) const {
    parallel::FsdpUnit made = unit.times;
    const double experts = costs.parameters > 0 ? costs.experts / costs.parameters : 0;
    const auto own_us = [&](double bytes) {
      return host_copy_us(*question_.gpu, offloaded_part_ * own_of(bytes, experts * bytes));
    };
    if (layout_.offload.parameters) made.all_gather_us += own_us(unit.gather_bytes);
    if (framework_.overlaps_gathers) made.reduce_scatter_us += own_us(unit.scatter_bytes);
    return made;
  }

  double copies_of_units_us(const ShardedWork& sharded, double own) const {
    if (!layout_.offload.optimizer) return 0;
    const parallel::FsdpUnit first = with_copies(sharded.first, shard_.embedding);
    const parallel::FsdpUnit layer = with_copies(sharded.layer, shard_.layer);
    const parallel::FsdpUnit last = with_copies(sharded.last, shard_.head);
    const auto units = static_cast<std::size_t>(sharded.layers) + 2;
    const auto times = [&](std::size_t i) -> const parallel::FsdpUnit& {
      return i == 0 ? first : i + 1 == units ? last : layer;
    };
    const parallel::ShardedPass pass = parallel::sharded_pass(units, times, sharded.options);
    if (framework_.overlaps_gathers) return std::max(0.0, pass.end_us - sharded.pass.end_us);
    return pass.comm_us - sharded.pass.comm_us +
           exposed_gradients_us(offloaded_part_ * own, backward_us_);
  }

  ShardedWork sharded_of(const LayoutWork& work) {
    ShardedWork made;
    made.layers = job_.model.layers;
    made.shards = shards_;
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
    made.exposed_us = framework_.overlaps_gathers
                          ? std::max(0.0, made.pass.end_us - made.pass.compute_us)
                          : made.pass.comm_us;
    // Units pass one by one, so their times hold the host's part of each. The host's other work is
    // late only if it outlasts units and collectives.
    made.late_host_us = std::max(0.0, all.total_us() - made.pass.compute_us - made.exposed_us);
    made.slowed_us = framework_.interference * std::max(0.0, made.pass.comm_us - made.exposed_us);
    double experts = 0;
    for (const ChunkLayers& holds : chunks_) experts += experts_of(holds);
    made.offload_us = copies_of_units_us(made, own_of(work.stages.front().parameters, experts));
    if (replicas() > made.shards) {
      // Experts are scattered over all their holders already.
      made.replicas_bytes =
          (work.stages.front().parameters - experts) * gradient_bytes(job_) / real(made.shards);
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
  std::int64_t shards_ = shard_ranks(question_);
  const double offloaded_part_ =
      layout_.offload.optimizer ? job_.optimizer_offload_fraction : 0;  // share of the optimizer
  double layer_forward_us_ = 0, backward_us_ = 0;                       // backward: of all chunks
};

}  // namespace

double PassWork::exposed_host_us() const { return std::max(0.0, host_us - device_us()); }
double PassWork::total_us() const { return std::max(device_us(), host_us); }

PassWork operator+(PassWork a, const PassWork& b) {
  add_members(a, b, kPassTimes);
  a.collectives += b.collectives;
  return a;
}

PassWork operator*(double count, PassWork a) {
  scale_members(a, count, kPassTimes);
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

bool shards_gradients(Sharding zero) { return zero != Sharding::kNone && zero != Sharding::kZero1; }
std::int64_t shard_ranks(const StepQuestion& question) {
  const ParallelLayout& layout = *question.layout;
  const std::int64_t replicas = layout.dp * layout.cp;
  if (layout.zero == Sharding::kNone) return 1;
  if (layout.zero != Sharding::kHsdp) return replicas;
  const std::int64_t node = question.collectives->topology().gpus_per_node;
  return std::gcd(replicas, std::max<std::int64_t>(1, node / layout.tp));
}

bool gathers_by_unit(const ParallelLayout& layout) {
  return gathers_parameters(layout.zero) && layout.pp == 1;
}

Result<LayoutWork> layout_work(const StepQuestion& question,
                               const std::vector<ChunkLayers>& chunks) {
  return WorkPricer(question, chunks).run();
}

}  // namespace perfmodel
