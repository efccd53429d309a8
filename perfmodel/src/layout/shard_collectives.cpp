#include "shard_collectives.hpp"

#include <algorithm>
#include <utility>

namespace perfmodel {
namespace {

Result<void> reprice_pass(std::int64_t tp, CollectiveTimes& collectives, PassCosts& pass) {
  const std::int64_t node = collectives.topology().gpus_per_node;
  const std::pair<CollectiveKind, CollectiveSum*> kinds[] = {
      {CollectiveKind::kAllReduce, &pass.by_kind.all_reduce},
      {CollectiveKind::kAllGather, &pass.by_kind.all_gather},
      {CollectiveKind::kReduceScatter, &pass.by_kind.reduce_scatter}};
  for (const auto& [kind, sum] : kinds) {
    if (sum->count == 0) continue;
    PERFMODEL_TRY(us, collectives.time_us({.kind = kind,
                                           .bytes = Bytes{std::max(0.0, sum->bytes / sum->count)},
                                           .ranks = static_cast<int>(tp),
                                           .nodes = static_cast<int>((tp + node - 1) / node)}));
    pass.comm_us += sum->count * *us - sum->us;
    sum->us = sum->count * *us;
  }
  return {};
}

}  // namespace

Result<void> reprice_collectives(std::int64_t tp, CollectiveTimes& collectives, ShardCosts& costs) {
  for (PartCosts* part : {&costs.embedding, &costs.layer, &costs.head, &costs.loss}) {
    for (PassCosts* pass : {&part->forward, &part->backward, &part->again}) {
      PERFMODEL_TRY_TO(reprice_pass(tp, collectives, *pass));
    }
  }
  return {};
}

}  // namespace perfmodel
