#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "perfmodel/layout.hpp"

namespace perfmodel {
namespace {

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> found;
  for (std::int64_t i = 1; i <= number; ++i) {
    if (number % i == 0) found.push_back(i);
  }
  return found;
}

/// What a search may take where the space names nothing.
constexpr std::int64_t kMostTensorParallel = 64, kMostChunks = 8, kMostMicroBatch = 64;

std::vector<std::int64_t> chosen(const std::vector<std::int64_t>& named,
                                 const std::vector<std::int64_t>& all, std::int64_t most) {
  std::vector<std::int64_t> kept;
  for (const std::int64_t value : named.empty() ? all : named) {
    if (!named.empty() || value <= most) kept.push_back(value);
  }
  return kept;
}

/// Calls `visit` with every layout of so many GPUs whose sizes divide.
template <class Visit>
void each_layout(const LayoutJob& job, std::int64_t gpus, const LayoutSpace& space, Visit&& visit) {
  static const std::vector<Sharding> kAll = {Sharding::kNone, Sharding::kZero1, Sharding::kZero2,
                                             Sharding::kZero3, Sharding::kHsdp};
  static const std::vector<LayoutRecompute> kEvery = {
      LayoutRecompute::kNone, LayoutRecompute::kSelective, LayoutRecompute::kFull};
  const std::vector<Sharding>& shardings = space.zero.empty() ? kAll : space.zero;
  const DecoderModel& model = job.model;
  const std::int64_t kv_heads = model.kv_heads > 0 ? model.kv_heads : model.heads;
  for (const std::int64_t tp : chosen(space.tp, divisors(gpus), kMostTensorParallel)) {
    if (gpus % tp != 0 || model.heads % tp != 0 || kv_heads % tp != 0) continue;
    if (model.feed_forward % tp != 0) continue;
    const bool splits = space.sequence_parallel.value_or(tp > 1) && tp > 1;
    if (splits && job.sequence % tp != 0) continue;
    for (const std::int64_t pp : chosen(space.pp, divisors(gpus / tp), model.layers)) {
      if ((gpus / tp) % pp != 0) continue;
      const std::int64_t dp = gpus / tp / pp;
      if (job.global_batch % dp != 0) continue;
      for (const std::int64_t micro_batch :
           chosen(space.micro_batch, divisors(job.global_batch / dp), kMostMicroBatch)) {
        if ((job.global_batch / dp) % micro_batch != 0) continue;
        const std::int64_t microbatches = job.global_batch / dp / micro_batch;
        for (const std::int64_t vp : chosen(
                 space.vp, divisors(std::max<std::int64_t>(1, model.layers / pp)), kMostChunks)) {
          const bool interleaves =
              pp > 1 && microbatches % pp == 0 && model.layers % (pp * vp) == 0;
          if (vp > 1 && (!interleaves || space.order == PipelineOrder::kGpipe)) continue;
          for (const LayoutRecompute recompute :
               space.recompute.empty() ? kEvery : space.recompute) {
            // Fused attention keeps no scores that selective recomputation could drop.
            const bool pointless = recompute == LayoutRecompute::kSelective &&
                                   job.attention == LayoutJob::Attention::kFlash;
            if (pointless && space.recompute.empty()) continue;
            for (const Sharding zero : shardings) {
              const bool gathers =
                  zero == Sharding::kZero3 || zero == Sharding::kFsdp || zero == Sharding::kHsdp;
              if (gathers && pp > 1) continue;
              if (dp == 1 && zero != Sharding::kNone && space.zero.empty()) continue;
              ParallelLayout layout;
              layout.dp = dp;
              layout.tp = tp;
              layout.pp = pp;
              layout.vp = vp;
              layout.micro_batch = micro_batch;
              layout.zero = zero;
              layout.recompute = recompute;
              layout.sequence_parallel = splits;
              layout.order = space.order;
              if (!visit(layout)) return;
            }
          }
        }
      }
    }
  }
}

/// Keeps what nothing else beats in both time and memory.
std::vector<RankedLayout> frontier_of(std::vector<RankedLayout> fitting) {
  std::ranges::stable_sort(fitting, {}, [](const RankedLayout& one) {
    return std::pair(one.prediction.reserved_bytes, one.prediction.step_ms);
  });
  std::vector<RankedLayout> kept;
  for (RankedLayout& one : fitting) {
    if (kept.empty() || one.prediction.step_ms < kept.back().prediction.step_ms) {
      kept.push_back(std::move(one));
    }
  }
  return kept;
}

}  // namespace

Result<LayoutRanking> rank_layouts(const LayoutPricer& pricer, const LayoutJob& job,
                                   std::int64_t gpus, const LayoutSpace& space,
                                   const LayoutSearchOptions& options) {
  if (gpus < 1) {
    return fail(ErrorCode::kImpossible,
                fmt::format("world: expected at least 1 GPU, found {}", gpus));
  }
  LayoutRanking ranking;
  std::vector<ParallelLayout> layouts;
  each_layout(job, gpus, space, [&](const ParallelLayout& layout) {
    layouts.push_back(layout);
    return true;
  });
  ranking.considered = static_cast<std::int64_t>(layouts.size());
  if (layouts.empty()) {
    return fail(ErrorCode::kImpossible,
                fmt::format("expected a layout of {} GPUs that divides {} sequences, {} heads and "
                            "{} layers, found none",
                            gpus, job.global_batch, job.model.heads, job.model.layers));
  }
  std::vector<RankedLayout> fitting;
  std::optional<Error> first_error;
  bool has_smallest = false;
  for (const ParallelLayout& layout : layouts) {
    if (options.cancel.stop_requested()) {
      ranking.complete = false;
      break;
    }
    auto prediction = pricer.predict(job, layout);
    if (!prediction) {
      if (!first_error) first_error = prediction.error();
      continue;
    }
    ++ranking.priced;
    if (options.progress) options.progress(ranking.priced, ranking.considered);
    if (!has_smallest || prediction->reserved_bytes < ranking.smallest.prediction.reserved_bytes) {
      ranking.smallest = {layout, *prediction};
      has_smallest = true;
    }
    if (!prediction->fits) continue;
    fitting.push_back({layout, std::move(*prediction)});
  }
  if (ranking.priced == 0 && first_error) return Unexpected{*first_error};
  ranking.fitting = static_cast<std::int64_t>(fitting.size());
  ranking.frontier = frontier_of(fitting);
  std::ranges::stable_sort(fitting, {},
                           [](const RankedLayout& one) { return one.prediction.step_ms; });
  if (fitting.size() > options.keep) fitting.resize(options.keep);
  ranking.best = std::move(fitting);
  return ranking;
}

}  // namespace perfmodel
