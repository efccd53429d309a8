#include <algorithm>

#include "shard_report.hpp"

namespace perfmodel::cli {
namespace {

using namespace sharding;

Json placement_json(const ShardReport& report, const PricedPlan& plan) {
  Json list = Json::array();
  for (std::size_t t = 0; t < plan.placements.size(); ++t) {
    const TablePlacement& placement = plan.placements[t];
    Json item = {{"table", report.loaded->study.tables[t].name},
                 {"sharding_type", to_string(placement.type)},
                 {"compute_kernel", to_string(placement.kernel)},
                 {"ranks", placement.ranks}};
    if (placement.ranks.empty()) item["ranks"] = "all";
    if (placement.least_columns > 0) item["columns"] = placement.least_columns;
    const TableSettings settings = used_settings(placement);
    if (settings.deduplicated) item["deduplicate"] = *settings.deduplicated;
    if (settings.cache_share) item["cache_share"] = *settings.cache_share;
    if (settings.wire_bytes) item["wire_bytes"] = *settings.wire_bytes;
    if (settings.hot_rows) item["hot_rows"] = *settings.hot_rows;
    list.push_back(std::move(item));
  }
  return list;
}

Json rank_json(std::size_t index, const BatchRank& rank) {
  const PartTimes& parts = rank.parts;
  return {{"rank", index},
          {"lookup_forward_us", rounded(parts[BatchPart::kLookupForward])},
          {"lookup_backward_us", rounded(parts[BatchPart::kLookupBackward])},
          {"id_exchange_us", rounded(parts[BatchPart::kIdExchange])},
          {"vector_exchange_us", rounded(parts[BatchPart::kVectorExchange])},
          {"gradient_exchange_us", rounded(parts[BatchPart::kGradientExchange])},
          {"all_reduce_us", rounded(parts[BatchPart::kAllReduce])},
          {"prefetch_us", rounded(parts[BatchPart::kPrefetch])},
          {"dense_us", rounded(parts[BatchPart::kBottomForward] + parts[BatchPart::kTopForward] +
                               parts[BatchPart::kTopBackward] + parts[BatchPart::kBottomBackward] +
                               parts[BatchPart::kDenseOptimizer])},
          {"waiting_us", rounded(rank.waiting_us)},
          {"memory",
           {{"tables_bytes", rounded(rank.memory.weights)},
            {"optimizer_bytes", rounded(rank.memory.optimizer)},
            {"cache_bytes", rounded(rank.memory.cache)},
            {"buffer_bytes", rounded(rank.memory.buffers)},
            {"dense_bytes", rounded(rank.memory.dense)},
            {"reserve_bytes", rounded(rank.memory.reserve)},
            {"host_bytes", rounded(rank.host_bytes)}}}};
}

Json rank_json(std::size_t index, const TorchrecCost& rank) {
  return {{"rank", index},
          {"forward_compute_ms", rank.forward_compute_ms},
          {"forward_comms_ms", rank.forward_comms_ms},
          {"backward_compute_ms", rank.backward_compute_ms},
          {"backward_comms_ms", rank.backward_comms_ms},
          {"prefetch_ms", rank.prefetch_ms},
          {"hbm_bytes", rank.hbm_bytes},
          {"ddr_bytes", rank.ddr_bytes}};
}

void add_time(const ShardReport& report, const PricedPlan& plan, Json& json) {
  const BatchTime& time = *plan.time;
  json["predicted_us"] = rounded(time.predicted_us);
  json["low_us"] = rounded(time.low_us);
  json["high_us"] = rounded(time.high_us);
  json["samples_per_s"] = rounded(report.loaded->samples_per_s(time.predicted_us));
  json["samples_per_s_per_gpu"] =
      rounded(static_cast<double>(*report.loaded->study.batch_per_rank) / time.predicted_us * 1e6);
  json["limiting_rank"] = time.limiting_rank;
  json["fits"] = time.ranks_over_memory.empty();
  Json critical = Json::object(), ranks = Json::array(), memory = Json::array();
  for (std::size_t i = 0; i < kBatchParts; ++i) {
    const auto part = static_cast<BatchPart>(i);
    if (time.critical[part] > 0) {
      critical[std::string(to_string(part))] = rounded(time.critical[part]);
    }
  }
  json["critical_path_us"] = std::move(critical);
  for (std::size_t r = 0; r < time.ranks.size(); ++r) {
    ranks.push_back(rank_json(r, time.ranks[r]));
    memory.push_back(rounded(time.ranks[r].memory.total()));
  }
  json["per_rank"] = std::move(ranks);
  json["memory_bytes"] = std::move(memory);
}

void add_rating(const PricedPlan& plan, Json& json) {
  json["rating_ms"] = plan.rating->rating_ms();
  json["mean_ms"] = plan.rating->mean_ms();
  json["limiting_rank"] = plan.rating->slowest_rank();
  Json ranks = Json::array(), memory = Json::array();
  for (std::size_t r = 0; r < plan.rating->ranks.size(); ++r) {
    ranks.push_back(rank_json(r, plan.rating->ranks[r]));
    memory.push_back(plan.rating->ranks[r].hbm_bytes);
  }
  json["per_rank"] = std::move(ranks);
  json["memory_bytes"] = std::move(memory);
}

void add_advice(const ShardReport& report, const PricedPlan& plan, Json& json) {
  if (!plan.advice) return;
  const PlanAdvice& advice = *plan.advice;
  json["bottleneck"] = {{"part", to_string(advice.bottleneck)},
                        {"gain_us", rounded(advice.free_gain_us)},
                        {"rank", advice.rank}};
  if (advice.table) {
    json["bottleneck"]["table"] = report.loaded->study.tables[*advice.table].name;
    json["bottleneck"]["table_share"] = rounded(advice.table_share);
  }
  json["fix"] = nullptr;
  if (!advice.fix.empty()) {
    json["fix"] = {{"change", advice.fix}, {"gain_us", rounded(advice.fix_gain_us)}};
  }
}

Json compression_json(const CompressionReport& compression) {
  Json rows = Json::array();
  const auto optional = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  for (std::size_t i = 0; i < compression.rows.size(); ++i) {
    const CompressionReport::Row& row = compression.rows[i];
    rows.push_back({{"world", row.world},
                    {"sharded_us", row.sharded_us ? rounded(*row.sharded_us) : Json(nullptr)},
                    {"hashed_us", row.hashed_us ? rounded(*row.hashed_us) : Json(nullptr)},
                    {"faster", compression.hashed_wins(i) ? "hashed" : "sharded"}});
  }
  return {{"iterations_multiplier", compression.iterations_multiplier},
          {"array_elements", compression.array_elements},
          {"table_elements", compression.table_elements},
          {"factor", compression.factor()},
          {"sharded_fits_from", optional(compression.sharded_fits)},
          {"hashed_fits_from", optional(compression.hashed_fits)},
          {"rows", std::move(rows)}};
}

}  // namespace

Json shard_json(const ShardReport& report) {
  const LoadedStudy& loaded = *report.loaded;
  Json json = document(schemas::kShard);
  json.update({{"costs", loaded.is_torchrec ? "torchrec" : "calibrated"},
               {"tables", loaded.study.tables.size()},
               {"gpu", loaded.gpu.name},
               {"topology", loaded.topology.name},
               {"world", *loaded.study.world},
               {"gpus_per_host", *loaded.study.local_world},
               {"batch_per_gpu", *loaded.study.batch_per_rank},
               {"pipeline", loaded.pipeline_name()},
               {"free_share", loaded.free_share()},
               {"memory_cap_bytes", rounded(report.memory_cap)}});
  Json plans = Json::array();
  for (const PricedPlan& plan : report.plans) {
    Json item = {{"name", plan.name}};
    if (plan.time) add_time(report, plan, item);
    if (plan.rating) add_rating(plan, item);
    add_advice(report, plan, item);
    item["placement"] = placement_json(report, plan);
    plans.push_back(std::move(item));
  }
  json["plans"] = std::move(plans);
  if (report.search) {
    const ShardReport::Search& search = *report.search;
    json["search"] = {
        {loaded.is_torchrec ? "lower_bound_ms" : "lower_bound_us", search.lower_bound},
        {"proved_best", search.proved_best},
        {"stopped", search.stopped},
        {"moves", search.moves},
        {"seconds", rounded(search.seconds)}};
  }
  if (report.compression) json["compression"] = compression_json(*report.compression);
  json["warnings"] = loaded.warnings;
  for (const std::string& warning : report.warnings) json["warnings"].push_back(warning);
  return json;
}

}  // namespace perfmodel::cli
