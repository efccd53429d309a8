#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/stop_point.hpp"
#include "layer_kinds.hpp"
#include "layout_checks.hpp"
#include "layout_request.hpp"
#include "layout_work.hpp"
#include "perfmodel/layout.hpp"
#include "step_bytes.hpp"

namespace perfmodel {
namespace {

// Ascending.
std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> found, large;
  for (std::int64_t i = 1; i <= number / i; ++i) {
    if (number % i != 0) continue;
    found.push_back(i);
    if (i != number / i) large.push_back(number / i);
  }
  found.insert(found.end(), large.rbegin(), large.rend());
  return found;
}

/// Limits of a search where the space names nothing.
constexpr std::int64_t kMostTensorParallel = 64, kMostChunks = 8, kMostMicroBatch = 64;

std::vector<std::int64_t> chosen(const std::vector<std::int64_t>& named,
                                 const std::vector<std::int64_t>& all, std::int64_t most) {
  std::vector<std::int64_t> kept;
  for (const std::int64_t value : named.empty() ? all : named) {
    if (value >= 1 && (!named.empty() || value <= most)) kept.push_back(value);
  }
  return kept;
}

/// Numbers of ranks that share a sequence, with numbers of stages: cp as named, else powers of two
/// up to 16 where a sequence is long enough to be worth it.
std::vector<std::pair<std::int64_t, std::int64_t>> context_and_stages(const LayoutJob& job,
                                                                      std::int64_t gpus,
                                                                      const LayoutSpace& space) {
  constexpr std::int64_t kMostContext = 16, kShortestPart = 8192;
  std::vector<std::int64_t> contexts = space.cp;
  if (contexts.empty()) {
    contexts = {1};
    for (std::int64_t cp = 2; cp <= kMostContext && job.sequence / cp >= kShortestPart; cp *= 2) {
      if (job.attention != LayoutJob::Attention::kEager) contexts.push_back(cp);
    }
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> found;
  for (const std::int64_t cp : contexts) {
    if (cp < 1 || gpus % cp != 0 || (cp > 1 && job.sequence % (2 * cp) != 0)) continue;
    for (const std::int64_t pp : chosen(space.pp, divisors(gpus / cp), job.model.layers)) {
      if (gpus / cp % pp == 0) found.emplace_back(cp, pp);
    }
  }
  return found;
}

/// Ranks that share a layer's experts: all that divide.
std::vector<std::int64_t> expert_ranks(const LayoutJob& job, const ParallelLayout& layout,
                                       const LayoutSpace& space) {
  const std::int64_t experts = job.model.experts.experts;
  std::vector<std::int64_t> found;
  if (experts == 0) {
    if (space.ep.empty() || std::ranges::find(space.ep, 1) != space.ep.end()) found = {1};
    return found;
  }
  const std::int64_t ranks = layout.dp * layout.cp * layout.tp;
  for (const std::int64_t ep : chosen(space.ep, divisors(experts), experts)) {
    if (experts % ep == 0 && ranks % (ep * layout.etp) == 0) found.push_back(ep);
  }
  return found;
}

/// Only `none` if there is no exchange.
std::vector<std::optional<Dispatcher>> dispatchers_of(const ParallelLayout& layout,
                                                      const LayoutSpace& space) {
  if (layout.ep == 1 || space.dispatcher.empty()) return {std::nullopt};
  return {space.dispatcher.begin(), space.dispatcher.end()};
}

/// Schedules of a pipeline with their chunks per stage.
std::vector<std::pair<PipelineOrder, std::int64_t>> orders_of(const LayoutJob& job,
                                                              const LayoutSpace& space,
                                                              std::int64_t pp,
                                                              std::int64_t microbatches) {
  static const std::vector<PipelineOrder> kUsual = {PipelineOrder::k1F1B};
  std::vector<std::pair<PipelineOrder, std::int64_t>> orders;
  const std::int64_t layers = job.model.layers;
  for (PipelineOrder order : space.order.empty() || pp == 1 ? kUsual : space.order) {
    if (splits_backward(order)) {
      const std::int64_t vp = parallel::chunks_of(split_schedule_of(order));
      const bool is_named = space.vp.empty() || std::ranges::find(space.vp, vp) != space.vp.end();
      const bool fills = order != PipelineOrder::kDualPipe || microbatches >= 2 * pp;
      if (is_named && fills && layers >= pp * vp) orders.emplace_back(order, vp);
      continue;
    }
    for (const std::int64_t vp :
         chosen(space.vp, divisors(std::max<std::int64_t>(1, layers / pp)), kMostChunks)) {
      const bool divides =
          layers % (pp * vp) == 0 || (job.model.experts.experts > 0 && layers > pp * vp);
      const bool interleaves = pp > 1 && microbatches % pp == 0 && divides;
      if (vp == 1 || (interleaves && order != PipelineOrder::kGpipe))
        orders.emplace_back(order, vp);
    }
  }
  return orders;
}

/// Calls `visit` with every layout of so many GPUs whose sizes divide.
template <class Visit>
void each_layout(const LayoutJob& job, std::int64_t gpus, const LayoutSpace& space, Visit&& visit) {
  static const std::vector<Sharding> kAll = {Sharding::kNone, Sharding::kZero1, Sharding::kZero2,
                                             Sharding::kZero3, Sharding::kHsdp};
  static const std::vector<LayoutRecompute> kEvery = {
      LayoutRecompute::kNone, LayoutRecompute::kSelective, LayoutRecompute::kFull};
  static const std::vector<LayoutOffload> kNothing = {{}};
  const std::vector<LayoutOffload>& offloads = space.offload.empty() ? kNothing : space.offload;
  const std::vector<Sharding>& shardings = space.zero.empty() ? kAll : space.zero;
  const DecoderModel& model = job.model;
  const std::int64_t kv_heads = kv_heads_of(model);
  const bool plain = has_plain_layers(model) && job.lora_rank == 0;
  for (const std::int64_t tp : chosen(space.tp, divisors(gpus), kMostTensorParallel)) {
    if (gpus % tp != 0 || model.heads % tp != 0) continue;
    if ((plain || kv_heads > tp) && kv_heads % tp != 0) continue;
    if (model.feed_forward % tp != 0) continue;
    const bool splits = space.sequence_parallel.value_or(tp > 1) && tp > 1;
    if (splits && job.sequence % tp != 0) continue;
    for (const auto& [cp, pp] : context_and_stages(job, gpus / tp, space)) {
      const std::int64_t dp = gpus / tp / pp / cp;
      if (splits && job.sequence / cp % tp != 0) continue;
      if (job.global_batch % dp != 0) continue;
      if (!space.dp.empty() && std::ranges::find(space.dp, dp) == space.dp.end()) continue;
      for (const std::int64_t micro_batch :
           chosen(space.micro_batch, divisors(job.global_batch / dp), kMostMicroBatch)) {
        if ((job.global_batch / dp) % micro_batch != 0) continue;
        const std::int64_t microbatches = job.global_batch / dp / micro_batch;
        for (const auto& [order, vp] : orders_of(job, space, pp, microbatches)) {
          for (const LayoutRecompute recompute :
               space.recompute.empty() ? kEvery : space.recompute) {
            // Fused attention keeps no scores that selective recomputation could drop.
            const bool pointless = recompute == LayoutRecompute::kSelective &&
                                   job.attention != LayoutJob::Attention::kEager;
            if (pointless && space.recompute.empty()) continue;
            for (const Sharding zero : shardings) {
              const bool gathers = gathers_parameters(zero);
              if (gathers && pp > 1 && space.zero.empty()) continue;
              if (dp * cp == 1 && zero != Sharding::kNone && space.zero.empty()) continue;
              ParallelLayout layout = space.common;
              layout.dp = dp;
              layout.tp = tp;
              layout.pp = pp;
              layout.vp = vp;
              layout.micro_batch = micro_batch;
              layout.zero = zero;
              layout.recompute = recompute;
              layout.sequence_parallel = splits;
              layout.async_tp = space.common.async_tp && splits;
              layout.order = order;
              layout.searched_stages = space.searched_stages && pp > 1;
              layout.cp = cp;
              for (const std::int64_t ep : expert_ranks(job, layout, space)) {
                layout.ep = ep;
                for (const auto dispatcher : dispatchers_of(layout, space)) {
                  layout.dispatcher = dispatcher;
                  for (const LayoutOffload& offload : offloads) {
                    if (offload.parameters && !(gathers && pp == 1)) continue;
                    layout.offload = offload;
                    if (!visit(layout)) return;
                  }
                }
              }
            }
          }
        }
      }
    }
  }
}

/// The least that a layout takes, whatever its layers cost: work at the peak, states of parameters.
struct LeastCost {
  double flop = 0;   ///< on the busiest GPU per step, idle time of the pipeline at the same pace
  double bytes = 0;  ///< on the worst GPU
};

/// Bytes per parameter that no program does without: weights, gradients, moments of the optimizer.
struct LeastStates {
  double weights = 2, gradients = 2, moments = 0;
};

LeastStates least_states(const LayoutJob& job, const ParallelLayout& layout) {
  LeastStates states;
  if (job.precision == LayoutJob::Precision::kFp32) states.weights = 4;
  states.gradients = job.fp32_gradients ? 4 : states.weights;
  if (job.optimizer == LayoutJob::Optimizer::kAdamW) states.moments = 8;
  if (job.optimizer == LayoutJob::Optimizer::kAdamW8bit) states.moments = 2;
  if (layout.offload.parameters) states.weights = 0;
  if (!layout.offload.optimizer) return states;
  states.moments *= 1 - job.optimizer_offload_fraction;
  if (shards_gradients(layout.zero)) states.gradients *= 1 - job.optimizer_offload_fraction;
  return states;
}

/// Lower bound of the activations [bytes] that the first stage keeps: both inputs of a layer and
/// the inside of its feed-forward part, or only its input if it is computed again. 0: no bound
/// known.
double least_activations(const LayoutJob& job, const ParallelLayout& layout) {
  const auto real = [](std::int64_t number) { return static_cast<double>(number); };
  const DecoderModel& model = job.model;
  const bool keeps = layout.recompute == LayoutRecompute::kNone;
  const bool known = (keeps || layout.recompute == LayoutRecompute::kFull) && job.lora_rank == 0 &&
                     model.state_layers == 0 && !splits_backward(layout.order) &&
                     !layout.searched_stages && !layout.offload.activations;
  if (!known) return 0;
  const DecoderExperts& experts = model.experts;
  const std::int64_t inner =
      experts.experts > 0 ? experts.top_k * expert_hidden_of(model) : model.feed_forward;
  const double numbers = real(model.hidden) + (keeps ? real(model.hidden + inner) : 0);
  const std::int64_t microbatches = job.global_batch / (layout.dp * layout.micro_batch);
  const double chunk = real(model.layers / (layout.pp * layout.vp));
  const double tokens = real(layout.micro_batch) * real(job.sequence) / real(layout.cp * layout.tp);
  const double width = job.fp8_activations ? 1 : 2;
  return width * numbers * tokens * chunk * real(live_chunks(layout, microbatches, 0));
}

/// 2 N and half of attention's square per token and pass (it is causal), the backward pass twice
/// as much, and what is computed again; (p - 1) / v microbatches of idle time per step.
LeastCost least_cost(const LayoutJob& job, const ParallelLayout& layout) {
  const auto real = [](std::int64_t number) { return static_cast<double>(number); };
  const DecoderModel& model = job.model;
  const double missing = (1 - job.packed_mean) * attention_flop_per_token(model, job.sequence);
  const double pass = (model_flop_per_token(model, job.sequence) - missing) / 3;
  const double all = job_flop_per_token(job);
  const double output = 2 * real(model.vocabulary * model.hidden);
  const double again = layout.recompute == LayoutRecompute::kFull ? pass - output : 0;
  const double tokens = real(job.global_batch) * real(job.sequence);
  const double microbatches = real(job.global_batch) / real(layout.dp * layout.micro_batch);
  // Zero-bubble schedules: at least the first forward passes.
  const double waits =
      splits_backward(layout.order) ? 1.0 / 3 / real(layout.vp) : 1 / real(layout.vp);
  const double idle = real(layout.pp - 1) * waits / microbatches;
  LeastCost least;
  least.flop = tokens * (all + again) / real(layout.gpus()) * (1 + idle);

  const LeastStates states = least_states(job, layout);
  const double experts = expert_parameter_count(model);
  const double dense = (real(parameter_count(model)) - experts) / real(layout.tp * layout.pp);
  const double ranks = real(layout.dp * layout.cp), groups = real(layout.ep * layout.etp);
  const auto states_of = [&](double own, double copies) {
    const auto part = [&](Sharding from) { return layout.zero >= from ? copies : 1.0; };
    if (job.lora_rank > 0) return own * real(job.frozen_bits) / 8 / part(Sharding::kZero3);
    return own *
           (states.weights / part(Sharding::kZero3) + states.gradients / part(Sharding::kZero2) +
            states.moments / part(Sharding::kZero1));
  };
  least.bytes = states_of(dense, ranks) +
                states_of(experts / real(layout.pp) / groups, ranks * real(layout.tp) / groups) +
                least_activations(job, layout);
  return least;
}

/// One that has a price, or not yet.
struct Contender {
  ParallelLayout layout;
  LeastCost least;
  std::int64_t number = 0;  ///< in the order of the search
};

/// Keeps the layouts of one shard; layouts that share their layers' prices stay together.
void keep_shard(const LayoutSearchOptions& options, std::vector<Contender>& candidates) {
  if (options.shards < 2) return;
  std::map<
      std::tuple<std::int64_t, std::int64_t, LayoutRecompute, bool, std::int64_t, std::int64_t>,
      std::size_t>
      groups;
  std::erase_if(candidates, [&](const Contender& one) {
    const auto& layout = one.layout;
    const auto key = std::tuple(layout.tp, layout.micro_batch, layout.recompute,
                                layout.sequence_parallel, layout.cp, layout.ep);
    const std::size_t group = groups.try_emplace(key, groups.size()).first->second;
    return group % options.shards != options.shard;
  });
}

/// The best layouts so far: the fastest few, and those that no other beats in both time and memory.
class Found {
 public:
  explicit Found(std::size_t keep) : keep_(keep) {}

  void add(const RankedLayout& one) {
    const auto slower = std::ranges::upper_bound(best_, one.prediction.step_ms, {}, step_of);
    best_.insert(slower, one);
    if (best_.size() > keep_) best_.pop_back();
    const bool beaten = std::ranges::any_of(frontier_, [&](const RankedLayout& other) {
      return other.prediction.step_ms <= one.prediction.step_ms &&
             other.prediction.reserved_bytes <= one.prediction.reserved_bytes;
    });
    if (beaten) return;
    std::erase_if(frontier_, [&](const RankedLayout& other) {
      return one.prediction.step_ms <= other.prediction.step_ms &&
             one.prediction.reserved_bytes <= other.prediction.reserved_bytes;
    });
    frontier_.push_back(one);
  }

  /// Whether a layout that takes at least so much can be among neither.
  bool rules_out(double step_ms, double bytes) const {
    if (best_.size() < keep_ || step_ms <= step_of(best_.back())) return false;
    return std::ranges::any_of(frontier_, [&](const RankedLayout& other) {
      return other.prediction.step_ms <= step_ms && other.prediction.reserved_bytes <= bytes;
    });
  }

  std::vector<RankedLayout> best() { return std::move(best_); }
  /// By memory.
  std::vector<RankedLayout> frontier() {
    std::ranges::sort(frontier_, {},
                      [](const RankedLayout& one) { return one.prediction.reserved_bytes; });
    return std::move(frontier_);
  }

 private:
  static double step_of(const RankedLayout& one) { return one.prediction.step_ms; }

  std::size_t keep_;
  std::vector<RankedLayout> best_, frontier_;
};

class LayoutSearch {
 public:
  LayoutSearch(const LayoutPricer& pricer, const LayoutJob& job, const LayoutSearchOptions& options)
      : pricer_(pricer),
        job_(job),
        options_(options),
        found_(std::max<std::size_t>(1, options.keep)) {}

  Result<LayoutRanking> run(std::vector<Contender>& candidates) {
    ranking_.considered = static_cast<std::int64_t>(candidates.size());
    const bool shares = varies_experts(candidates);
    std::vector<const Contender*> too_large;
    for (Contender& candidate : candidates) {
      stop_point();
      if (options_.cancel.stop_requested()) {
        ranking_.complete = false;
        break;
      }
      ++done_;
      if (options_.progress) options_.progress(done_, ranking_.considered);
      bool passes = flop_per_ms_ > 0 &&
                    found_.rules_out(candidate.least.flop / flop_per_ms_, candidate.least.bytes);
      if (!passes && shares && !is_too_large(candidate)) passes = bound_rules_out(candidate);
      if (is_too_large(candidate)) {
        too_large.push_back(&candidate);
      } else if (!passes) {
        price(candidate);
      }
    }
    if (ranking_.fitting == 0) find_smallest(too_large);
    if (ranking_.priced == 0 && first_error_) return Unexpected{*first_error_};
    ranking_.best = found_.best();
    ranking_.frontier = found_.frontier();
    return std::move(ranking_);
  }

 private:
  bool is_too_large(const Contender& candidate) const {
    return device_bytes_ > 0 && candidate.least.bytes > device_bytes_;
  }

  // The layers that bounds rest on pay off if many layouts share them.
  static bool varies_experts(const std::vector<Contender>& candidates) {
    std::set<std::int64_t> ranks;
    for (const Contender& one : candidates) ranks.insert(one.layout.ep);
    return ranks.size() > 2;
  }

  bool bound_rules_out(Contender& candidate) const {
    const auto least = pricer_.at_least(job_, candidate.layout);
    if (!least) return false;
    candidate.least.bytes = std::max(candidate.least.bytes, least->reserved_bytes);
    return found_.rules_out(least->step_ms, least->reserved_bytes);
  }

  void price(const Contender& candidate) {
    const LayoutPrediction* known = options_.known ? options_.known(candidate.number) : nullptr;
    auto prediction =
        known ? Result<LayoutPrediction>(*known) : pricer_.predict(job_, candidate.layout);
    if (!prediction) {
      if (!first_error_) first_error_ = prediction.error();
      return;
    }
    if (options_.priced) options_.priced(candidate.number, *prediction);
    const RankedLayout one{candidate.layout, std::move(*prediction)};
    device_bytes_ = one.prediction.device_bytes;
    // The peak that the share of it was taken of.
    const double flop = job_flop_per_token(job_);
    flop_per_ms_ = one.prediction.tokens_per_s_per_gpu * flop / one.prediction.mfu * 1e-3;
    if (ranking_.priced == 0 || need_of(one) < need_of(ranking_.smallest)) {
      ranking_.smallest = one;
    }
    ++ranking_.priced;
    if (!one.prediction.fits) return;
    ++ranking_.fitting;
    if (!repeats(one)) found_.add(one);
    last_ = one;
  }

  // The share of the GPU's memory or of the host's that a layout needs, whichever is larger.
  double need_of(const RankedLayout& one) const {
    const LayoutPrediction& made = one.prediction;
    const double host = job_.host_memory_bytes > 0 ? made.host_bytes / job_.host_memory_bytes : 0;
    return std::max(made.reserved_bytes / made.device_bytes, host);
  }

  // Hybrid sharding of one node is ZeRO-3, which came just before.
  bool repeats(const RankedLayout& one) const {
    return one.layout.zero == Sharding::kHsdp && last_ && last_->layout.zero == Sharding::kZero3 &&
           last_->prediction.step_ms == one.prediction.step_ms &&
           last_->prediction.reserved_bytes == one.prediction.reserved_bytes;
  }

  // Where nothing fits: the smallest of those that were passed over.
  void find_smallest(std::vector<const Contender*>& too_large) {
    std::ranges::stable_sort(too_large, {}, [](const Contender* one) { return one->least.bytes; });
    for (const Contender* candidate : too_large) {
      if (options_.cancel.stop_requested()) return;
      if (ranking_.priced > 0 &&
          candidate->least.bytes > ranking_.smallest.prediction.reserved_bytes) {
        return;
      }
      price(*candidate);
    }
  }

  const LayoutPricer& pricer_;
  const LayoutJob& job_;
  const LayoutSearchOptions& options_;
  Found found_;
  LayoutRanking ranking_;
  std::optional<Error> first_error_;
  std::optional<RankedLayout> last_;  // that fits
  std::int64_t done_ = 0;
  double device_bytes_ = 0, flop_per_ms_ = 0;
};

std::vector<LayoutOffload> every_offload() {
  return {{.optimizer = true},
          {.activations = true},
          {.optimizer = true, .activations = true},
          {.optimizer = true, .parameters = true},
          {.optimizer = true, .parameters = true, .activations = true}};
}

Result<LayoutRanking> rank_within(const LayoutPricer& pricer, const LayoutJob& job,
                                  std::int64_t gpus, const LayoutSpace& space,
                                  const LayoutSearchOptions& options) {
  std::vector<Contender> candidates;
  each_layout(job, gpus, space, [&](const ParallelLayout& layout) {
    candidates.push_back({layout, least_cost(job, layout)});
    return true;
  });
  if (candidates.empty()) {
    return decline(
        fmt::format("expected a layout of {} GPUs that divides {} sequences, {} heads and {} "
                    "layers, found none",
                    gpus, job.global_batch, job.model.heads, job.model.layers));
  }
  // Layouts that can be fastest come first, so that the rest is ruled out early.
  std::ranges::stable_sort(candidates, {}, [](const Contender& one) { return one.least.flop; });
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    candidates[i].number = static_cast<std::int64_t>(i);
  }
  keep_shard(options, candidates);
  return LayoutSearch(pricer, job, options).run(candidates);
}

}  // namespace

Result<LayoutRanking> rank_layouts(const LayoutPricer& pricer, const LayoutJob& job,
                                   std::int64_t gpus, const LayoutSpace& space,
                                   const LayoutSearchOptions& options) {
  if (gpus < 1) {
    return decline(fmt::format("world: expected at least 1 GPU, found {}", gpus));
  }
  if (gpus > kMostGpus) {
    return decline(fmt::format("world: expected at most {} GPUs, found {}", kMostGpus, gpus));
  }
  PERFMODEL_TRY_TO(check_layout_job(job));
  if (!space.dispatcher.empty() && job.model.experts.experts == 0) {
    return decline(fmt::format("dispatcher: expected a model with experts, found {}",
                               to_string(space.dispatcher.front())));
  }
  auto ranking = rank_within(pricer, job, gpus, space, options);
  const bool stays = !ranking || !ranking->best.empty() || !ranking->complete ||
                     !space.offload.empty() || options.shards > 1;
  if (stays) return ranking;
  LayoutSpace offloaded = space;
  offloaded.offload = every_offload();
  LayoutSearchOptions alone = options;
  alone.known = {};  // numbers of layouts are others
  auto second = rank_within(pricer, job, gpus, offloaded, alone);
  if (!second || second->priced == 0) return ranking;
  second->unfit = nothing_fits(*ranking, gpus) + "; these put parts into host memory (--offload)";
  return second;
}

}  // namespace perfmodel
