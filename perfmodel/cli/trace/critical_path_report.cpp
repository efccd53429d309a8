#include "critical_path_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/shared/prediction_parts.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

Json step_json(const CriticalPath::Step& step) {
  Json json = {{"op", step.op},
               {"term", step.category},
               {"time_us", rounded(step.us)},
               {"count", step.count},
               {"own_us", rounded(step.own_us)},
               {"slack_us", rounded(step.slack_us)}};
  if (step.step_if_free_us >= 0) json["step_if_free_us"] = rounded(step.step_if_free_us);
  return json;
}

}  // namespace

void add_critical_path(Json& json, const CriticalPath& path) {
  json["critical_path"] = Json::array();
  for (const auto& step : path.steps) json["critical_path"].push_back(step_json(step));
  json["critical_path_shares"] = Json::array();
  for (const auto& share : path.shares) {
    json["critical_path_shares"].push_back(
        {{"term", share.category}, {"time_us", rounded(share.us)}});
  }
  json["off_path"] = Json::array();
  for (const auto& step : path.off_path) json["off_path"].push_back(step_json(step));
}

std::string critical_path_text(const CriticalPath& path, const std::string& title, std::size_t top,
                               bool bold) {
  const bool in_ms = path.step_us >= 1000;
  const std::string unit = in_ms ? "ms" : "µs";
  const auto time = [in_ms](double us) {
    return in_ms ? milliseconds(us) : fmt::format("{:.1f}", us);
  };
  TextTable shares{"Critical path of the " + title, unit, "share"};
  for (const auto& share : path.shares) {
    shares.row({share.category, time(share.us), percent_of(share.us, path.step_us)});
  }
  std::string text = "\n" + shares.text(bold);

  TextTable steps{"Longest on it", "<what", unit, "share", "tasks", "step if free " + unit};
  for (std::size_t i = 0; i < std::min(top, path.steps.size()); ++i) {
    const auto& step = path.steps[i];
    steps.row({op_title(step.op), step.category, time(step.us), percent_of(step.us, path.step_us),
               grouped(step.count), step.step_if_free_us >= 0 ? time(step.step_if_free_us) : ""});
  }
  if (!steps.empty()) text += "\n" + steps.text(bold);
  if (top > 0 && path.steps.size() > top)
    text += fmt::format("  ({} more)\n", path.steps.size() - top);

  TextTable beside{"Beside it", "<what", "own " + unit, "slack " + unit};
  for (std::size_t i = 0; i < std::min(top, path.off_path.size()); ++i) {
    const auto& step = path.off_path[i];
    beside.row({op_title(step.op), step.category, time(step.own_us),
                step.slack_us < path.step_us ? time(step.slack_us) : "a whole step"});
  }
  if (!beside.empty()) text += "\n" + beside.text(bold);
  return text;
}

Json communication_json(const RankReport& rank) {
  return {{"transfer_us", rounded(rank.transfer_us)}, {"waiting_us", rounded(rank.waiting_us)},
          {"exposed_us", rounded(rank.exposed_us)},   {"caused_us", rounded(rank.caused_us)},
          {"collectives", rank.collectives},          {"last_arrivals", rank.last_arrivals}};
}

Json job_json(const JobReport& job) {
  return {{"step_us", rounded(job.step_us)},
          {"imbalance", job.imbalance},
          {"straggler", job.straggler >= 0 ? Json(job.straggler) : Json(nullptr)},
          {"straggler_saving_us", rounded(job.straggler_saving_us)}};
}

}  // namespace perfmodel::cli
