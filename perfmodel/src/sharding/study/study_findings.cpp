#include <fmt/format.h>

#include <algorithm>

#include "base/plain_text.hpp"
#include "plan_words.hpp"
#include "study_questions.hpp"

namespace perfmodel::sharding {
namespace {

using Answers = std::vector<StudyAnswer>;
using Sentences = std::vector<std::string>;

const StudyAnswer* fastest(const Answers& rows) {
  const StudyAnswer* best = nullptr;
  for (const StudyAnswer& row : rows) {
    if (row.fits() && (best == nullptr || row.us < best->us)) best = &row;
  }
  return best;
}

double more_percent(const StudyAnswer& other, const StudyAnswer& base) {
  return 100 * (other.us / base.us - 1);
}

void add_best_plan(const LoadedStudy& loaded, const PricedPlan& best, Sentences& sentences) {
  const PlanAdvice& advice = *best.advice;
  std::string text = fmt::format(
      "The best plan takes {} per batch; {} limits it", time_text(best.time->predicted_us),
      best.is_host_bound() ? "the host, which launches op by op," : to_string(advice.bottleneck));
  if (advice.table && !best.is_host_bound()) {
    text += fmt::format(", {:.0f} % of it on GPU {} for table {}", 100 * advice.table_share,
                        advice.rank, plain_text(loaded.study.tables[*advice.table].name));
  }
  sentences.push_back(text + ".");
  if (!advice.fix.empty()) {
    sentences.push_back(
        fmt::format("What would help most: {} (-{}).", advice.fix, time_text(advice.fix_gain_us)));
  }
}

void add_ways(const Answers& ways, Sentences& sentences) {
  if (const StudyAnswer* best = fastest(ways)) {
    sentences.push_back(fmt::format("Of the ways to shard, {} is the fastest: {}.", best->name,
                                    time_text(best->us)));
  }
}

void add_settings(const Answers& settings, Sentences& sentences) {
  const StudyAnswer* best = fastest(settings);
  if (!best || best == &settings.front() || !settings.front().fits()) return;
  sentences.push_back(fmt::format("Settings chosen for single tables: {:+.1f} % time ({}).",
                                  more_percent(*best, settings.front()), best->name));
}

void add_hot_rows(const Answers& hot_rows, Sentences& sentences) {
  const StudyAnswer* best = fastest(hot_rows);
  if (!best) return;
  const StudyAnswer& none = hot_rows.front();
  std::string gain = "none gain";
  if (best != &none) {
    gain = none.fits() ? fmt::format("{}, {:+.1f} % time", best->name, more_percent(*best, none))
                       : best->name + " fit";
  }
  sentences.push_back(fmt::format("Hot rows with copies: {}.", gain));
}

void add_worlds(const StudyQuestion& asked, const Answers& worlds, Sentences& sentences) {
  const auto fewest = std::ranges::find_if(worlds, &StudyAnswer::fits);
  sentences.push_back(
      fewest == worlds.end()
          ? "On none of the numbers of GPUs asked for do the tables fit."
          : fmt::format("The fewest GPUs whose memory is enough: {}.", fewest->world));
  if (asked.samples_per_s) {
    const auto enough = std::ranges::find_if(worlds, [&](const StudyAnswer& row) {
      return row.fits() && row.samples_per_s >= *asked.samples_per_s;
    });
    const std::string wanted = samples_text(*asked.samples_per_s);
    sentences.push_back(
        enough == worlds.end()
            ? fmt::format("None of the numbers of GPUs asked for reaches {}.", wanted)
            : fmt::format("The fewest GPUs for {}: {}.", wanted, enough->world));
  }
  const StudyAnswer* best = asked.global_batch ? fastest(worlds) : nullptr;
  if (best) {
    sentences.push_back(fmt::format("With {} samples in all, {} are the fastest: {}.",
                                    *asked.global_batch, best->name, time_text(best->us)));
  }
}

void add_networks(const Answers& networks, Sentences& sentences) {
  for (const StudyAnswer& other : networks) {
    const StudyAnswer& given = networks.front();
    if (&other == &given || !given.fits() || !other.fits()) continue;
    sentences.push_back(
        fmt::format("With {}: {:+.1f} % time.", other.name, more_percent(other, given)));
  }
}

}  // namespace

std::vector<std::string> study_findings(const StudyQuestion& asked, const StudyAnswers& answers,
                                        const LoadedStudy& loaded,
                                        const std::optional<PricedPlan>& best) {
  Sentences sentences;
  if (best) add_best_plan(loaded, *best, sentences);
  add_ways(answers.ways, sentences);
  add_settings(answers.settings, sentences);
  add_hot_rows(answers.hot_rows, sentences);
  add_worlds(asked, answers.worlds, sentences);
  add_networks(answers.networks, sentences);
  return sentences;
}

}  // namespace perfmodel::sharding
