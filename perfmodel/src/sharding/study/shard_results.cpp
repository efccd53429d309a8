#include "shard_results.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/each_name.hpp"
#include "json/csv_file.hpp"
#include "plan_words.hpp"

namespace perfmodel::sharding {
namespace {

using Reported = ReportedPlan;

// Answers, settings and parts have some keys only if there is something to say.
OrderedJson without_nulls(const OrderedJson& json) {
  OrderedJson kept = OrderedJson::object();
  for (const auto& [key, value] : json.items()) {
    if (!value.is_null()) kept[key] = value;
  }
  return kept;
}

template <class Number>
std::optional<Number> if_positive(Number number) {
  return number > 0 ? std::optional(number) : std::nullopt;
}

auto part_us(BatchPart part) {
  return [part](const BatchRank& rank) { return rank.parts[part]; };
}

OrderedJson held_json(const BatchRank& rank) {
  return {{"tables_bytes", rounded(rank.memory.weights)},
          {"optimizer_bytes", rounded(rank.memory.optimizer)},
          {"cache_bytes", rounded(rank.memory.cache)},
          {"buffer_bytes", rounded(rank.memory.buffers)},
          {"dense_bytes", rounded(rank.memory.dense)},
          {"reserve_bytes", rounded(rank.memory.reserve)},
          {"host_bytes", rounded(rank.host_bytes)}};
}

const ResultFields<BatchRank> kTimedRankFields = {
    {"lookup_forward_us", part_us(BatchPart::kLookupForward)},
    {"lookup_backward_us", part_us(BatchPart::kLookupBackward)},
    {"id_exchange_us", part_us(BatchPart::kIdExchange)},
    {"vector_exchange_us", part_us(BatchPart::kVectorExchange)},
    {"gradient_exchange_us", part_us(BatchPart::kGradientExchange)},
    {"all_reduce_us", part_us(BatchPart::kAllReduce)},
    {"prefetch_us", part_us(BatchPart::kPrefetch)},
    {"dense_us", [](const BatchRank& rank) { return dense_us(rank.parts); }},
    {"waiting_us", &BatchRank::waiting_us},
    {"memory", held_json},
};

const ResultFields<TorchrecCost> kRatedRankFields = {
    {"forward_compute_ms", &TorchrecCost::forward_compute_ms, Digits::kAll},
    {"forward_comms_ms", &TorchrecCost::forward_comms_ms, Digits::kAll},
    {"backward_compute_ms", &TorchrecCost::backward_compute_ms, Digits::kAll},
    {"backward_comms_ms", &TorchrecCost::backward_comms_ms, Digits::kAll},
    {"prefetch_ms", &TorchrecCost::prefetch_ms, Digits::kAll},
    PERFMODEL_FIELDS(TorchrecCost, hbm_bytes, ddr_bytes),
};

template <class Rank>
OrderedJson ranks_json(const std::vector<Rank>& ranks, const ResultFields<Rank>& fields) {
  OrderedJson list = OrderedJson::array();
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    list.push_back({{"rank", r}});
    list.back().update(json_object(ranks[r], fields));
  }
  return list;
}

auto setting(auto TableSettings::*member) {
  return [member](const TablePlacement& placement) { return used_settings(placement).*member; };
}

const ResultFields<TablePlacement> kPlacementFields = {
    {"sharding_type", &TablePlacement::type},
    {"compute_kernel", &TablePlacement::kernel},
    {"ranks",
     [](const TablePlacement& placement) {
       return placement.ranks.empty() ? OrderedJson("all") : OrderedJson(placement.ranks);
     }},
    {"columns",
     [](const TablePlacement& placement) { return if_positive(placement.least_columns); }},
    {"deduplicate", setting(&TableSettings::deduplicated)},
    {"cache_share", setting(&TableSettings::cache_share), Digits::kAll},
    {"wire_bytes", setting(&TableSettings::wire_bytes)},
    {"hot_rows", setting(&TableSettings::hot_rows)},
};

OrderedJson placement_json(const Reported& one) {
  OrderedJson list = OrderedJson::array();
  for (std::size_t t = 0; t < one.plan->placements.size(); ++t) {
    list.push_back({{"table", one.report->loaded->study.tables[t].name}});
    list.back().update(without_nulls(json_object(one.plan->placements[t], kPlacementFields)));
  }
  return list;
}

OrderedNumbers critical_path(const BatchTime& time) {
  OrderedNumbers critical;
  for (std::size_t i = 0; i < kBatchParts; ++i) {
    const auto part = static_cast<BatchPart>(i);
    if (time.critical[part] > 0) critical[std::string(to_string(part))] = time.critical[part];
  }
  return critical;
}

std::optional<double> samples_per_s(const Reported& one) {
  if (!one.plan->time) return std::nullopt;
  return one.report->loaded->samples_per_s(one.plan->time->predicted_us);
}

std::optional<double> samples_per_s_per_gpu(const Reported& one) {
  if (!one.plan->time) return std::nullopt;
  const auto batch = static_cast<double>(*one.report->loaded->study.batch_per_rank);
  return batch / one.plan->time->predicted_us * 1e6;
}

std::size_t limiting_rank(const Reported& one) {
  return one.plan->time ? one.plan->time->limiting_rank : one.plan->rating->slowest_rank();
}

std::string ms_text(double ms) { return fmt::format("{:.4g} ms", ms); }

OrderedJson ranks_of(const Reported& one) {
  return one.plan->time ? ranks_json(one.plan->time->ranks, kTimedRankFields)
                        : ranks_json(one.plan->rating->ranks, kRatedRankFields);
}

OrderedJson memory_of_ranks(const Reported& one) {
  OrderedJson list = OrderedJson::array();
  if (one.plan->time) {
    for (const BatchRank& rank : one.plan->time->ranks) {
      list.push_back(rounded(rank.memory.total()));
    }
  } else {
    for (const TorchrecCost& rank : one.plan->rating->ranks) list.push_back(rank.hbm_bytes);
  }
  return list;
}

// A member or a function of the plan's time, or of its rating; null: it has none.
template <class Part>
auto if_has(std::optional<Part> PricedPlan::*part, auto get) {
  return [part, get](const Reported& one) {
    const std::optional<Part>& has = one.plan->*part;
    using Value = std::decay_t<std::invoke_result_t<decltype(get), const Part&>>;
    return has ? std::optional<Value>(std::invoke(get, *has)) : std::nullopt;
  };
}
auto timed(auto get) { return if_has(&PricedPlan::time, get); }
auto rated(auto get) { return if_has(&PricedPlan::rating, get); }

OrderedJson bottleneck_json(const PlanAdvice& advice, const ShardingStudy& study) {
  OrderedJson json = {{"part", to_string(advice.bottleneck)},
                      {"gain_us", rounded(advice.free_gain_us)},
                      {"rank", advice.rank}};
  if (advice.table) {
    json["table"] = study.tables[*advice.table].name;
    json["table_share"] = rounded(advice.table_share);
  }
  return json;
}

OrderedJson plan_json(const Reported& one) {
  OrderedJson json = without_nulls(json_object(one, kPlanFields));
  if (const auto& advice = one.plan->advice) {
    json["bottleneck"] = bottleneck_json(*advice, one.report->loaded->study);
    json["fix"] = nullptr;
    if (!advice->fix.empty()) {
      json["fix"] = {{"change", advice->fix}, {"gain_us", rounded(advice->fix_gain_us)}};
    }
  }
  json["placement"] = placement_json(one);
  return json;
}

OrderedJson compressed_rows(const CompressionReport& compression) {
  OrderedJson rows = OrderedJson::array();
  for (std::size_t i = 0; i < compression.rows.size(); ++i) {
    const CompressionReport::Row& row = compression.rows[i];
    rows.push_back({{"world", row.world},
                    {"sharded_us", row.sharded_us ? rounded(*row.sharded_us) : OrderedJson()},
                    {"hashed_us", row.hashed_us ? rounded(*row.hashed_us) : OrderedJson()},
                    {"faster", compression.hashed_wins(i) ? "hashed" : "sharded"}});
  }
  return rows;
}

const ResultFields<CompressionReport> kCompressionFields = {
    {"iterations_multiplier", &CompressionReport::iterations_multiplier, Digits::kAll},
    {"array_elements", &CompressionReport::array_elements, Digits::kAll},
    {"table_elements", &CompressionReport::table_elements, Digits::kAll},
    {"factor", &CompressionReport::factor, Digits::kAll},
    {"sharded_fits_from", &CompressionReport::sharded_fits},
    {"hashed_fits_from", &CompressionReport::hashed_fits},
    {"rows", compressed_rows},
};

const ResultFields<LoadedStudy> kStudyFields = {
    {"costs",
     [](const LoadedStudy& loaded) { return loaded.is_torchrec ? "torchrec" : "calibrated"; }},
    {"tables", [](const LoadedStudy& loaded) { return loaded.study.tables.size(); }},
    {"gpu", [](const LoadedStudy& loaded) { return loaded.gpu.name; }},
    {"topology", [](const LoadedStudy& loaded) { return loaded.topology.name; }},
    {"world", [](const LoadedStudy& loaded) { return *loaded.study.world; }},
    {"gpus_per_host", [](const LoadedStudy& loaded) { return *loaded.study.local_world; }},
    {"batch_per_gpu", [](const LoadedStudy& loaded) { return *loaded.study.batch_per_rank; }},
    {"pipeline", &LoadedStudy::pipeline_name},
    {"free_share", &LoadedStudy::free_share, Digits::kAll},
};

OrderedJson search_json(const ShardReport::Search& search, bool is_torchrec) {
  return {{is_torchrec ? "lower_bound_ms" : "lower_bound_us", search.lower_bound},
          PERFMODEL_VALUES(search, proved_best, stopped, moves),
          {"seconds", rounded(search.seconds)}};
}

auto if_fits(auto StudyAnswer::*member) {
  return [member](const StudyAnswer& answer) {
    return answer.fits() ? std::optional(answer.*member) : std::nullopt;
  };
}

}  // namespace

const ResultFields<ReportedPlan> kPlanFields = {
    {"name", [](const Reported& one) { return one.plan->name; }, "plan"},
    {"predicted_us", timed(&BatchTime::predicted_us), "time", time_text},
    {"low_us", timed(&BatchTime::low_us), "low", time_text},
    {"high_us", timed(&BatchTime::high_us), "high", time_text},
    {"samples_per_s", samples_per_s, Digits::kThreeDecimals, "samples", samples_text},
    {"samples_per_s_per_gpu", samples_per_s_per_gpu, Digits::kThreeDecimals},
    {"rating_ms", rated(&TorchrecRating::rating_ms), Digits::kAll, "rating", ms_text},
    {"mean_ms", rated(&TorchrecRating::mean_ms), Digits::kAll, "mean", ms_text},
    {"limiting_rank", limiting_rank, "<limited by",
     [](std::size_t rank) { return fmt::format("GPU {}", rank); }},
    {"fits", timed([](const BatchTime& time) { return time.ranks_over_memory.empty(); })},
    {"critical_path_us", timed(critical_path)},
    {"per_rank", ranks_of},
    {"memory_bytes", memory_of_ranks, "memory",
     [](const Reported& one) { return bytes_text(one.plan->most_memory()); }},
};

const ResultFields<StudyAnswer> kAnswerFields = {
    {"name", &StudyAnswer::name},
    {"predicted_us", if_fits(&StudyAnswer::us)},
    {"samples_per_s", if_fits(&StudyAnswer::samples_per_s), Digits::kThreeDecimals},
    {"memory_bytes", if_fits(&StudyAnswer::most_memory), Digits::kThreeDecimals},
    {"limited_by", if_fits(&StudyAnswer::limit)},
    {"plan", if_fits(&StudyAnswer::plan)},
    {"error",
     [](const StudyAnswer& answer) {
       return answer.fits() ? std::nullopt : std::optional(answer.error);
     }},
    {"world", [](const StudyAnswer& answer) { return if_positive(answer.world); }},
    {"batch_per_gpu", [](const StudyAnswer& answer) { return if_positive(answer.batch); }},
};

std::string limit_text(const PricedPlan& plan) {
  return plan.time ? std::string(to_string(plan.advice->bottleneck))
                   : fmt::format("GPU {}", plan.rating->slowest_rank());
}

std::vector<ReportedPlan> reported_plans(const ShardReport& report) {
  std::vector<ReportedPlan> plans;
  for (const PricedPlan& plan : report.plans) plans.push_back({&report, &plan});
  return plans;
}

OrderedJson report_json(const ShardReport& report) {
  const LoadedStudy& loaded = *report.loaded;
  OrderedJson json = json_object(loaded, kStudyFields);
  json["memory_cap_bytes"] = rounded(report.memory_cap);
  json["plans"] = OrderedJson::array();
  for (const Reported& one : reported_plans(report)) json["plans"].push_back(plan_json(one));
  if (report.search) json["search"] = search_json(*report.search, loaded.is_torchrec);
  if (report.compression)
    json["compression"] = json_object(*report.compression, kCompressionFields);
  json["warnings"] = loaded.warnings;
  for (const std::string& warning : report.warnings) json["warnings"].push_back(warning);
  return json;
}

std::string sweep_csv(const std::string& axis, const std::vector<SweepRow>& rows) {
  std::string text =
      axis + ",predicted_us,low_us,high_us,rating_ms,limited_by,memory_bytes,error\n";
  for (const SweepRow& row : rows) {
    if (!row.report) {
      text += fmt::format("{},,,,,,,{}\n", row.value, csv_quoted(row.error));
      continue;
    }
    const PricedPlan& plan = row.report->plans.front();
    const std::string cost = plan.time
                                 ? fmt::format("{:.3f},{:.3f},{:.3f},", plan.time->predicted_us,
                                               plan.time->low_us, plan.time->high_us)
                                 : fmt::format(",,,{:.6g}", plan.cost());
    text +=
        fmt::format("{},{},{},{:.0f},\n", row.value, cost, limit_text(plan), plan.most_memory());
  }
  return text;
}

OrderedJson study_json(const StudyAnswers& answers) {
  OrderedJson json = {
      {"study", answers.headline}, {"notes", answers.notes}, {"findings", answers.findings}};
  for (const StudySection& section : kStudySections) {
    OrderedJson& list = json[section.axis] = OrderedJson::array();
    for (const StudyAnswer& answer : answers.*section.rows) {
      list.push_back(without_nulls(json_object(answer, kAnswerFields)));
    }
  }
  return json;
}

std::string study_csv(const StudyAnswers& answers) {
  std::string text =
      "question,name,world,batch_per_gpu,predicted_us,samples_per_s,memory_bytes,limited_by,"
      "error\n";
  for (const StudySection& section : kStudySections) {
    for (const StudyAnswer& row : answers.*section.rows) {
      text += fmt::format("{},{},{},{},", section.axis, csv_quoted(row.name),
                          row.world > 0 ? std::to_string(row.world) : "",
                          row.batch > 0 ? std::to_string(row.batch) : "");
      text += row.fits() ? fmt::format("{:.3f},{:.1f},{:.0f},{},\n", row.us, row.samples_per_s,
                                       row.most_memory, row.limit)
                         : fmt::format(",,,,{}\n", csv_quoted(row.error));
    }
  }
  return text;
}

std::vector<std::string> answer_cells(const StudyAnswer& answer, double memory_cap) {
  return {answer.name,
          time_text(answer.us),
          samples_text(answer.samples_per_s),
          percent_of(answer.most_memory, memory_cap, 0),
          answer.limit,
          answer.plan};
}

std::vector<RankLoad> rank_loads(const PricedPlan& plan) {
  std::vector<RankLoad> loads;
  if (plan.time) {
    for (const BatchRank& rank : plan.time->ranks) {
      loads.push_back({loads.size(), lookups_us(rank.parts), rank.memory.total()});
    }
  } else if (plan.rating) {
    for (const TorchrecCost& rank : plan.rating->ranks) {
      loads.push_back({loads.size(), rank.total_ms(), static_cast<double>(rank.hbm_bytes)});
    }
  }
  return loads;
}

void sort_by_load(std::vector<RankLoad>& loads) {
  std::ranges::stable_sort(loads, std::ranges::greater(), &RankLoad::load);
}

double lookups_us(const PartTimes& parts) {
  return parts[BatchPart::kLookupForward] + parts[BatchPart::kLookupBackward];
}

double dense_us(const PartTimes& parts) {
  using enum BatchPart;
  double sum = 0;
  for (const BatchPart part : {kBottomForward, kInteractionForward, kTopForward, kTopBackward,
                               kInteractionBackward, kBottomBackward, kDenseOptimizer}) {
    sum += parts[part];
  }
  return sum;
}

}  // namespace perfmodel::sharding
