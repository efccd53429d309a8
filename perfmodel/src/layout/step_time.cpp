#include "step_time.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "pipeline_sweep.hpp"
#include "sharded_timeline.hpp"

namespace perfmodel {
namespace {

using parallel::PipelineEnds;
using parallel::PipelineSchedule;
using parallel::PipelineTimes;

double real(std::int64_t number) { return static_cast<double>(number); }

bool gathers_parameters(Sharding zero) {
  return zero == Sharding::kZero3 || zero == Sharding::kFsdp || zero == Sharding::kHsdp;
}

/// Collectives of the groups of a layout. Ranks are numbered tp first, then dp, then pp.
class Groups {
 public:
  Groups(const StepQuestion& question) : question_(question) {}

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
                     .groups_per_node = static_cast<int>(beside)});
  }

  /// From one stage to the next: each rank to its partner.
  double send_us(double bytes) {
    const ParallelLayout& layout = *question_.layout;
    const std::int64_t node = question_.collectives->topology().gpus_per_node;
    const bool crosses = layout.gpus() > node;
    return asked_us(
        {.kind = CollectiveKind::kSend,
         .bytes = Bytes{bytes},
         .ranks = 2,
         .nodes = crosses ? 2 : 1,
         .groups_per_node = static_cast<int>(crosses ? std::min(layout.tp * layout.dp, node) : 1)});
  }

  const std::optional<Error>& error() const { return error_; }

 private:
  double asked_us(const CollectiveQuery& query) {
    const auto time = question_.collectives->time_us(query);
    if (time) return *time;
    if (!error_) error_ = time.error();
    return 0;
  }

  const StepQuestion& question_;
  std::optional<Error> error_;
};

/// One pass of one microbatch over a chunk of layers.
struct ChunkPass {
  double kernel_us = 0, comm_us = 0, host_us = 0;
  double device_us() const { return kernel_us + comm_us; }
  double exposed_host_us() const { return std::max(0.0, host_us - device_us()); }
  double total_us() const { return std::max(device_us(), host_us); }
};
ChunkPass operator+(ChunkPass a, const ChunkPass& b) {
  a.kernel_us += b.kernel_us;
  a.comm_us += b.comm_us;
  a.host_us += b.host_us;
  return a;
}

struct ChunkWork {
  ChunkPass forward, backward;
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

ChunkPass pass_of(const PassCosts& costs, const StepQuestion& question) {
  const Framework& framework = *question.framework;
  return {.kernel_us = costs.kernel_us,
          .comm_us = costs.comm_us * (1 - framework.tensor_overlap),
          .host_us = costs.host_us * framework.host_scale +
                     real(costs.collectives) * collective_host_us(question)};
}

PipelineSchedule order_of(const ParallelLayout& layout) {
  if (layout.vp > 1) return PipelineSchedule::kInterleaved;
  return layout.order == PipelineOrder::kGpipe ? PipelineSchedule::kGpipe : PipelineSchedule::k1F1B;
}

double kernel_us(const Gpu& gpu, KernelFamily family, double read, double written) {
  const KernelWork work{.family = family, .bytes_read = {read}, .bytes_written = {written}};
  return KernelModels::heuristic().price(work, gpu).time.count();
}

/// A step in the making: terms are added as they are found.
class StepClock {
 public:
  StepClock(const StepQuestion& question, std::vector<ChunkLayers> chunks)
      : question_(question),
        job_(*question.job),
        layout_(*question.layout),
        framework_(*question.framework),
        shard_(*question.shard),
        chunks_(std::move(chunks)),
        groups_(question),
        microbatches_(job_.global_batch / (layout_.dp * layout_.micro_batch)) {}

  Result<StepTime> run() {
    for (std::size_t i = 0; i < chunks_.size(); ++i) work_.push_back(work_of(i));
    if (gathers_parameters(layout_.zero)) {
      sharded();
    } else if (layout_.pp == 1) {
      one_stage();
    } else {
      pipeline();
    }
    optimizer();
    if (groups_.error()) return Unexpected{*groups_.error()};
    if (layout_.gpus() > 1) {
      term(LayoutTerm::kDataParallel) += at_nodes(framework_.step_by_nodes_us, nodes());
    }
    for (const double term : time_.terms_us) time_.step_us += term;
    const double kernels = term(LayoutTerm::kCompute);
    const PassCosts both = shard_.layer.forward + shard_.layer.backward;
    const double low = both.kernel_us > 0 ? both.low_us / both.kernel_us : 1;
    const double high = both.kernel_us > 0 ? both.high_us / both.kernel_us : 1;
    // Kernels' own ranges, and what runs of this program differ from their prediction.
    time_.low_us =
        std::min(time_.step_us + (low - 1) * kernels, time_.step_us * framework_.low_share);
    time_.high_us =
        std::max(time_.step_us + (high - 1) * kernels, time_.step_us * framework_.high_share);
    return time_;
  }

 private:
  double& term(LayoutTerm which) { return time_.terms_us[static_cast<std::size_t>(which)]; }

  double weight_bytes() const { return job_.precision == LayoutJob::Precision::kFp32 ? 4 : 2; }
  double gradient_bytes() const { return job_.fp32_gradients ? 4 : weight_bytes(); }

  ChunkWork work_of(std::size_t chunk) const {
    const ChunkLayers& holds = chunks_[chunk];
    PassCosts forward = real(holds.layers) * as_run(shard_.layer.forward);
    PassCosts backward = real(holds.layers) * as_run(shard_.layer.backward);
    if (holds.embeds) {
      forward = forward + shard_.embedding.forward;
      backward = backward + shard_.embedding.backward;
    }
    if (holds.heads) {
      forward = forward + shard_.head.forward;
      backward = backward + shard_.head.backward;
    }
    if (holds.loses) {
      forward = forward + shard_.loss.forward;
      backward = backward + shard_.loss.backward;
    }
    ChunkWork work{pass_of(forward, question_), pass_of(backward, question_)};
    if (layout_.recompute != LayoutRecompute::kNone) {
      work.backward.host_us += real(holds.layers) * framework_.recompute_host_us;
    }
    if (holds.loses) work.forward.host_us += framework_.microbatch_host_us;
    if (!gathers_parameters(layout_.zero)) work.backward.kernel_us += accumulation_us(holds);
    return work;
  }

  // A layer's kernels with those that its graph does not list.
  PassCosts as_run(PassCosts layer) const {
    layer.kernel_us = framework_.layer_factor *
                      (layer.kernel_us + (framework_.attention_factor - 1) * layer.attention_us);
    return layer;
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

  // The host runs ahead of the device over the borders of microbatches.
  void one_stage() {
    ChunkPass all;
    double backward_us = 0;
    for (const ChunkWork& work : work_) {
      all = all + work.forward + work.backward;
      backward_us += work.backward.total_us();
    }
    add_passes(all, real(microbatches_));
    reduce_gradients(0, backward_us);
  }

  void add_passes(const ChunkPass& pass, double times) {
    term(LayoutTerm::kCompute) += times * pass.kernel_us;
    term(LayoutTerm::kTensorParallel) += times * pass.comm_us;
    term(LayoutTerm::kHost) += times * pass.exposed_host_us();
  }

  double nodes() const {
    const double node = real(question_.collectives->topology().gpus_per_node);
    return std::ceil(real(layout_.gpus()) / node);
  }

  double hop_us() {
    const double whole = shard_.boundary_bytes;
    const bool split = framework_.split_hops && layout_.tp > 1 && !layout_.sequence_parallel;
    const double sent = groups_.send_us(split ? whole / real(layout_.tp) : whole);
    if (!split) return sent;
    return sent + groups_.time_us(CollectiveKind::kAllGather, whole, layout_.tp, 1);
  }

  // Host and device meet at every send.
  void pipeline() {
    const double wire = hop_us();
    const double occupies = framework_.hop_host_us + at_nodes(framework_.hop_by_nodes_us, nodes());
    forward_us_.clear();
    backward_us_.clear();
    for (const ChunkWork& work : work_) {
      forward_us_.push_back(work.forward.total_us() + occupies);
      backward_us_.push_back(work.backward.total_us() + occupies);
    }
    PipelineTimes times{.schedule = order_of(layout_),
                        .stages = layout_.pp,
                        .chunks = layout_.vp,
                        .microbatches = microbatches_,
                        .forward_us = forward_us_,
                        .backward_us = backward_us_};
    const double without_hops = pipeline_ends(times).makespan_us;
    times.hop_us = wire;
    const PipelineEnds ends = pipeline_ends(times);
    const std::int64_t busiest = busiest_stage();
    double busy = 0;
    for (std::int64_t c = 0; c < layout_.vp; ++c) {
      const ChunkWork& work = work_[static_cast<std::size_t>(c * layout_.pp + busiest)];
      add_passes(work.forward, real(microbatches_));
      add_passes(work.backward, real(microbatches_));
      busy +=
          real(microbatches_) * (work.forward.total_us() + work.backward.total_us() + 2 * occupies);
    }
    term(LayoutTerm::kPipelineTransfers) +=
        real(microbatches_ * layout_.vp) * 2 * occupies + ends.makespan_us - without_hops;
    term(LayoutTerm::kBubble) += without_hops - busy;
    // Gradients of a stage are reduced while other stages still work.
    double reduced = ends.makespan_us;
    for (std::int64_t stage = 0; stage < layout_.pp; ++stage) {
      double backward_us = 0;
      for (std::int64_t c = 0; c < layout_.vp; ++c) {
        backward_us += work_[static_cast<std::size_t>(c * layout_.pp + stage)].backward.total_us();
      }
      reduced = std::max(reduced, ends.last_backward_us[static_cast<std::size_t>(stage)] +
                                      exposed_reduction_us(stage, backward_us));
    }
    term(LayoutTerm::kDataParallel) += reduced - ends.makespan_us;
    if (job_.model.tied) term(LayoutTerm::kDataParallel) += tied_words_us();
    gather_updated();
  }

  std::int64_t busiest_stage() const {
    std::int64_t busiest = 0;
    double most = -1;
    for (std::int64_t stage = 0; stage < layout_.pp; ++stage) {
      double busy = 0;
      for (std::int64_t c = 0; c < layout_.vp; ++c) {
        const auto chunk = static_cast<std::size_t>(c * layout_.pp + stage);
        busy += forward_us_[chunk] + backward_us_[chunk];
      }
      if (busy > most) {
        most = busy;
        busiest = stage;
      }
    }
    return busiest;
  }

  double stage_numbers(std::int64_t stage) const {
    double sum = 0;
    for (std::size_t i = static_cast<std::size_t>(stage); i < chunks_.size();
         i += static_cast<std::size_t>(layout_.pp)) {
      sum += parameters_of(chunks_[i]);
    }
    return sum;
  }
  double most_numbers() const {
    double most = 0;
    for (std::int64_t stage = 0; stage < layout_.pp; ++stage) {
      most = std::max(most, stage_numbers(stage));
    }
    return most;
  }

  bool scatters() const {
    return framework_.reduce_scatters &&
           (layout_.zero == Sharding::kZero1 || layout_.zero == Sharding::kZero2);
  }

  // What the sums over the data-parallel group add behind the last backward pass of a stage, whose
  // buckets become ready in equal steps over it.
  double exposed_reduction_us(std::int64_t stage, double backward_us) {
    if (layout_.dp == 1) return 0;
    const double bytes = stage_numbers(stage) * gradient_bytes();
    const double buckets = std::max(1.0, std::ceil(bytes / framework_.bucket_bytes));
    const double each =
        groups_.time_us(scatters() ? CollectiveKind::kReduceScatter : CollectiveKind::kAllReduce,
                        bytes / buckets, layout_.dp, layout_.tp * layout_.cp);
    if (!framework_.overlap_gradients) return buckets * each;
    return std::max(each, backward_us / buckets + buckets * each - backward_us);
  }

  void reduce_gradients(std::int64_t stage, double backward_us) {
    term(LayoutTerm::kDataParallel) += exposed_reduction_us(stage, backward_us);
    gather_updated();
  }

  // Each rank has updated its part of the parameters.
  void gather_updated() {
    if (layout_.zero != Sharding::kZero1 && layout_.zero != Sharding::kZero2) return;
    const double bytes = most_numbers() * weight_bytes();
    term(LayoutTerm::kDataParallel) +=
        groups_.time_us(CollectiveKind::kAllGather, bytes, layout_.dp, layout_.tp * layout_.cp);
  }

  double tied_words_us() {
    return groups_.time_us(CollectiveKind::kAllReduce,
                           shard_.embedding.parameters * gradient_bytes(), 2,
                           layout_.tp * layout_.dp);
  }

  // ZeRO-3, FSDP: parameters are gathered unit by unit, gradients scattered, each microbatch.
  void sharded() {
    const std::int64_t node = question_.collectives->topology().gpus_per_node;
    const bool hybrid = layout_.zero == Sharding::kHsdp;
    const std::int64_t shards =
        hybrid ? std::min(layout_.dp, std::max<std::int64_t>(1, node / layout_.tp)) : layout_.dp;
    const auto traffic = [&](CollectiveKind kind, double numbers, double bytes) {
      if (shards == 1) return 0.0;
      return framework_.gather_us + groups_.time_us(kind, numbers * bytes, shards, layout_.tp);
    };
    const auto unit = [&](double numbers, const PassCosts& forward, const PassCosts& backward) {
      const ChunkPass f = pass_of(forward, question_), b = pass_of(backward, question_);
      return parallel::FsdpUnit{
          .all_gather_us = traffic(CollectiveKind::kAllGather, numbers, weight_bytes()),
          .reduce_scatter_us =
              traffic(CollectiveKind::kReduceScatter, numbers, gradient_wire_bytes()),
          .forward_us = f.total_us(),
          .backward_us = b.total_us()};
    };
    const parallel::FsdpUnit layer =
        unit(shard_.layer.parameters, as_run(shard_.layer.forward), as_run(shard_.layer.backward));
    parallel::FsdpUnit first =
        unit(shard_.embedding.parameters, shard_.embedding.forward, shard_.embedding.backward);
    first.keeps_params = true;
    const parallel::FsdpUnit last =
        unit(shard_.head.parameters, shard_.head.forward + shard_.loss.forward,
             shard_.head.backward + shard_.loss.backward);
    ChunkPass all;
    for (const ChunkWork& work : work_) all = all + work.forward + work.backward;
    const parallel::ShardedPass pass = parallel::sharded_pass(
        first, layer, last, static_cast<std::size_t>(job_.model.layers), {.keep_last_unit = true});
    const double m = real(microbatches_);
    add_passes(all, m);
    // Units pass one by one: what the host of one unit cannot hide is in their times.
    const double compute = std::max(pass.compute_us, all.total_us());
    term(LayoutTerm::kHost) += m * (compute - all.total_us());
    const double exposed =
        framework_.overlaps_gathers ? std::max(0.0, pass.end_us - pass.compute_us) : pass.comm_us;
    const double hidden = std::max(0.0, pass.comm_us - exposed);
    term(LayoutTerm::kDataParallel) += m * (exposed + framework_.interference * hidden);
    if (hybrid && layout_.dp > shards) {
      const double bytes = stage_numbers(0) * gradient_bytes() / real(shards);
      term(LayoutTerm::kDataParallel) += groups_.time_us(CollectiveKind::kAllReduce, bytes,
                                                         layout_.dp / shards, layout_.tp * shards);
    }
  }

  double gradient_wire_bytes() const { return gradient_bytes(); }

  void optimizer() {
    double numbers = most_numbers();
    if (layout_.zero != Sharding::kNone) numbers /= real(layout_.dp);
    const double moved = framework_.optimizer_bytes * numbers;
    term(LayoutTerm::kOptimizer) +=
        kernel_us(*question_.gpu, KernelFamily::kOptimizer, 0.6 * moved, 0.4 * moved);
  }

  const StepQuestion& question_;
  const LayoutJob& job_;
  const ParallelLayout& layout_;
  const Framework& framework_;
  const ShardCosts& shard_;
  std::vector<ChunkLayers> chunks_;
  std::vector<ChunkWork> work_;
  Groups groups_;
  std::int64_t microbatches_;
  std::vector<double> forward_us_, backward_us_;
  StepTime time_;
};

}  // namespace

std::size_t CollectiveTimes::Hash::operator()(const Key& key) const {
  const auto& [kind, bytes, ranks, nodes, groups] = key;
  std::size_t hash = std::hash<double>{}(bytes);
  for (const int part : {static_cast<int>(kind), ranks, nodes, groups}) {
    hash = hash * 1099511628211U + static_cast<std::size_t>(part);
  }
  return hash;
}

Result<double> CollectiveTimes::time_us(const CollectiveQuery& query) {
  const Key key{query.kind, query.bytes.value, query.ranks, query.nodes, query.groups_per_node};
  {
    const std::lock_guard lock(mutex_);
    const auto known = known_.find(key);
    if (known != known_.end()) return known->second;
  }
  const auto time = collective_time(topology_, query);
  if (!time) return Unexpected{time.error()};
  const std::lock_guard lock(mutex_);
  return known_.emplace(key, time->time.count()).first->second;
}

Result<std::vector<ChunkLayers>> spread_layers(const DecoderModel& model, std::int64_t chunks,
                                               bool balanced) {
  std::vector<ChunkLayers> spread(static_cast<std::size_t>(chunks));
  spread.front().embeds = true;
  if (!balanced) {
    if (model.layers < chunks) {
      return fail(ErrorCode::kImpossible,
                  fmt::format("expected at least a layer per chunk of the pipeline, found {} "
                              "layers for {} chunks",
                              model.layers, chunks));
    }
    for (ChunkLayers& chunk : spread) chunk.layers = model.layers / chunks;
    const std::int64_t left = model.layers % chunks;
    for (std::int64_t i = 0; i < left; ++i) {
      ++spread[static_cast<std::size_t>((1 + i) % chunks)].layers;
    }
    spread.back().heads = spread.back().loses = true;
    return spread;
  }
  const double width = real(model.hidden), heads = real(model.heads);
  const double products = model.gated ? 3 : 2;
  const double layer =
      4 * heads * (width / heads) * width + products * real(model.feed_forward) * width;
  const double head = real(model.vocabulary) * width;
  const double all = real(model.layers) * layer + head;
  double sum = 0;
  std::size_t chunk = 0;
  const auto place = [&](double cost, auto&& put) {
    put(spread[chunk]);
    sum += cost;
    const bool is_last = chunk + 1 == spread.size();
    if (!is_last && sum >= all * (real(static_cast<std::int64_t>(chunk)) + 1) / real(chunks))
      ++chunk;
  };
  for (std::int64_t i = 0; i < model.layers; ++i) {
    place(layer, [](ChunkLayers& at) { ++at.layers; });
  }
  place(head, [](ChunkLayers& at) { at.heads = true; });
  place(0, [](ChunkLayers& at) { at.loses = true; });
  return spread;
}

Result<StepTime> step_time(const StepQuestion& question, std::vector<ChunkLayers> chunks) {
  return StepClock(question, std::move(chunks)).run();
}

}  // namespace perfmodel
