#include "replay_results.hpp"

#include "base/file_name.hpp"
#include "explain/path_results.hpp"

namespace perfmodel {
namespace {

using Replayed = Replay::Iteration;

// 0: not measured.
auto if_measured(auto member) {
  return [member](const auto& of) {
    return of.*member > 0 ? std::optional(of.*member) : std::nullopt;
  };
}

const ResultFields<Replayed> kReplayedFields = {
    {"name", &Replayed::name},
    {"measured_us", if_measured(&Replayed::measured_us)},
    PERFMODEL_FIELDS(Replayed, unscaled_us, replayed_us),
    {"error",
     [](const Replayed& at) {
       return at.measured_us > 0 ? std::optional(at.error()) : std::nullopt;
     },
     Digits::kAll},
    {"change", &Replayed::change, Digits::kAll},
    PERFMODEL_FIELDS(Replayed, data_loading_us, unrecorded_device_us, queue_filling),
};

const ResultFields<Replayed> kReplayedPeriodFields = {
    PERFMODEL_FIELDS(Replayed, measured_device_period_us, unscaled_device_period_us,
                     replayed_device_period_us),
};

const ResultFields<Replay::Medians> kReplayMedianFields = {
    {"measured_us", if_measured(&Replay::Medians::measured_us)},
    PERFMODEL_FIELDS(Replay::Medians, unscaled_us, replayed_us),
    {"measured_device_period_us", if_measured(&Replay::Medians::measured_device_period_us)},
    {"replayed_device_period_us", if_measured(&Replay::Medians::replayed_device_period_us)},
    PERFMODEL_FIELDS(Replay::Medians, iterations, left_out),
};

const ResultFields<Replay::Rank> kReplayedRankFields = {
    {"trace", [](const Replay::Rank& at) { return file_name(at.source); }},
    {"rank",
     [](const Replay::Rank& at) { return at.rank >= 0 ? std::optional(at.rank) : std::nullopt; }},
    {"clock_offset_us", &Replay::Rank::clock_offset_us},
    {"mean_abs_error", &Replay::Rank::mean_abs_error, Digits::kAll},
    {"worst_abs_error", &Replay::Rank::worst_abs_error, Digits::kAll},
};

const ResultFields<ReplayOptions> kReplayScaleFields = {
    {"scale_kernels", &ReplayOptions::scale_kernels, Digits::kAll},
    {"scale_host", &ReplayOptions::scale_host, Digits::kAll},
    {"scale_unrecorded", &ReplayOptions::scale_unrecorded, Digits::kAll},
};

OrderedJson replayed_json(const std::vector<Replayed>& iterations) {
  OrderedJson list = OrderedJson::array();
  for (const Replayed& iteration : iterations) {
    OrderedJson& json = list.emplace_back(json_object(iteration, kReplayedFields));
    if (iteration.measured_device_period_us > 0) {
      json.update(json_object(iteration, kReplayedPeriodFields));
    }
  }
  return list;
}

OrderedJson replayed_rank_json(const Replay::Rank& rank) {
  OrderedJson json = json_object(rank, kReplayedRankFields);
  json["iterations"] = replayed_json(rank.iterations);
  json["communication"] = json_object(rank.communication, kRankReportFields);
  json.update(json_object(rank.critical_path, kCriticalPathFields));
  return json;
}

}  // namespace

OrderedJson replay_json(const Replay& replay, const ReplayOptions& options) {
  OrderedJson json = json_object(options, kReplayScaleFields);
  json["mean_abs_error"] =
      replay.median.measured_us > 0 ? OrderedJson(replay.mean_abs_error) : OrderedJson(nullptr);
  json["unrecorded_device_us"] = rounded(replay.unrecorded_device_us);
  json["median"] = json_object(replay.median, kReplayMedianFields);
  OrderedJson& iterations = json["iterations"] = OrderedJson::array();
  for (const Replay::Rank& rank : replay.ranks) {
    for (OrderedJson& iteration : replayed_json(rank.iterations)) {
      if (replay.ranks.size() > 1) iteration["rank"] = rank.rank;
      iterations.push_back(std::move(iteration));
    }
  }
  OrderedJson& ranks = json["ranks"] = OrderedJson::array();
  for (const Replay::Rank& rank : replay.ranks) ranks.push_back(replayed_rank_json(rank));
  if (replay.job) json["job"] = json_object(*replay.job, kJobReportFields);
  json["collectives"] = {{"matched", replay.collectives_matched},
                         {"unmatched", replay.collectives_unmatched}};
  json["tasks"] = replay.tasks;
  json["edges"] = replay.edges;
  json["warnings"] = replay.warnings;
  return json;
}

}  // namespace perfmodel
