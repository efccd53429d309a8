#include "parallel_traffic.hpp"

#include <algorithm>
#include <cmath>

#include "base/normal_quantile.hpp"
#include "layer_kinds.hpp"
#include "part_costs.hpp"

namespace perfmodel {
namespace {

double number_of(std::int64_t value) { return static_cast<double>(value); }

// On a rank, of a microbatch.
double tokens_of_rank(const LayoutJob& job, const ParallelLayout& layout) {
  return number_of(layout.micro_batch) * number_of(job.sequence) / number_of(layout.cp);
}

}  // namespace

std::vector<ExchangedBuffer> context_exchange(const LayoutJob& job, const ParallelLayout& layout,
                                              bool backward) {
  if (layout.cp == 1) return {};
  const DecoderModel& model = job.model;
  const double tp = number_of(layout.tp);
  const double numbers = tokens_of_rank(job, layout) * weight_width(job.precision) / tp;
  const double key_values = numbers * number_of(key_value_width(model));
  if (layout.context == ContextExchange::kAllToAll) {
    const LatentAttentionSizes& of = model.latent;
    const bool latent = of.key_value_rank > 0;
    const std::int64_t width = head_width_of(model);
    const double query =
        number_of(model.heads * (latent ? of.plain_width + of.rotary_width : width));
    const double out = number_of(model.heads * (latent ? of.value_width : width));
    return {{CollectiveKind::kAllToAll, numbers * query + key_values},
            {CollectiveKind::kAllToAll, numbers * out}};
  }
  const double gathered = key_values * number_of(layout.cp);
  if (!backward) return {{CollectiveKind::kAllGather, gathered}};
  return {{CollectiveKind::kAllGather, gathered}, {CollectiveKind::kReduceScatter, gathered}};
}

std::vector<ExchangedBuffer> expert_exchange(const LayoutJob& job, const ParallelLayout& layout,
                                             double load) {
  const DecoderModel& model = job.model;
  if (model.experts.experts == 0) return {};
  const double parts = layout.sequence_parallel ? number_of(layout.tp) : 1;
  const double bytes = tokens_of_rank(job, layout) / parts * number_of(model.experts.top_k) * load *
                       number_of(expert_input_of(model)) * weight_width(job.precision);
  std::vector<ExchangedBuffer> made;
  if (layout.ep > 1)
    made = {{CollectiveKind::kAllToAll, bytes}, {CollectiveKind::kAllToAll, bytes}};
  if (layout.etp > 1) {
    made.push_back({CollectiveKind::kAllGather, bytes * number_of(layout.etp)});
    made.push_back({CollectiveKind::kReduceScatter, bytes * number_of(layout.etp)});
  }
  return made;
}

double share_of_distinct_ranks(const DecoderModel& model, std::int64_t ep) {
  // A token takes its experts from some of their groups only.
  const double met = number_of(model.groups_of_token) / number_of(model.expert_groups);
  const double all = number_of(model.experts.experts);
  const double k = number_of(model.experts.top_k), experts = std::max(k, met * all);
  const double own = all / number_of(ep), ranks = experts / own;
  double none = 1;  // chance that a token chooses none of a rank's experts
  for (double i = 0; i < k; ++i) none *= std::max(0.0, experts - own - i) / (experts - i);
  return std::max(1.0, ranks * (1 - none)) / k;
}

double wire_bytes(const ExchangedBuffer& buffer, std::int64_t ranks) {
  return buffer.bytes * number_of(ranks - 1) / number_of(ranks);
}

double slowest_expert_load(const LayoutJob& job, const ParallelLayout& layout, double beyond) {
  const double experts = number_of(job.model.experts.experts), ep = number_of(layout.ep);
  if (job.expert_capacity > 0) return job.expert_capacity;
  if (job.expert_imbalance <= 0 || layout.ep == 1 || experts <= 1) return 1;
  const double own = experts / ep;
  const double deviation = job.expert_imbalance * std::sqrt((experts - own) / (experts - 1) / own);
  const double most =
      beyond > 0 ? normal_quantile(std::pow(1 - beyond, 1 / ep)) : expected_largest(ep);
  return std::clamp(1 + deviation * most, 1.0, ep);
}

double expected_largest(double draws) { return normal_quantile((draws - 0.375) / (draws + 0.25)); }

}  // namespace perfmodel
