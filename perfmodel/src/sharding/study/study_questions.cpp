#include "study_questions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/plain_text.hpp"
#include "base/secrets.hpp"
#include "load_study.hpp"
#include "plan_words.hpp"
#include "study_variants.hpp"

namespace perfmodel::sharding {
namespace {

StudyAnswer answer_of(const std::string& name, const LoadedStudy& loaded, const PricedPlan& plan) {
  const double us = plan.time->predicted_us;
  return {
      .name = name,
      .us = us,
      .samples_per_s = loaded.samples_per_s(us),
      .most_memory = plan.most_memory(),
      .limit = plan.is_host_bound() ? "the host" : std::string(to_string(plan.advice->bottleneck)),
      .plan = plan_words(plan.placements),
      .world = *loaded.study.world,
      .batch = *loaded.study.batch_per_rank};
}

StudyAnswer search_answer(const std::string& name, const LoadedStudy& loaded,
                          const SearchWatch& watch) {
  const auto report = search_for_plans(loaded, 1, watch);
  if (report) return answer_of(name, loaded, report->plans.front());
  return {.name = name,
          .error = shown_text(report.error().message, kLongestMessage),
          .world = *loaded.study.world,
          .batch = *loaded.study.batch_per_rank};
}

StudyAnswer answer(const StudyVariant& variant, const SearchWatch& watch) {
  const auto refused = [&](std::string error) {
    return StudyAnswer{.name = variant.name,
                       .error = std::move(error),
                       .world = variant.question.world.value_or(0)};
  };
  if (!variant.error.empty()) return refused(variant.error);
  if (watch.begin_question) watch.begin_question(variant.name);
  const auto loaded = load_study(variant.question);
  if (!loaded) return refused(shown_text(loaded.error().message, kLongestMessage));
  return search_answer(variant.name, *loaded, watch);
}

std::vector<StudyAnswer> answer_all(const StudyVariants& variants, const SearchWatch& watch) {
  std::vector<StudyAnswer> answers;
  for (const StudyVariant& variant : variants) answers.push_back(answer(variant, watch));
  return answers;
}

std::string headline_of(const LoadedStudy& loaded) {
  const ShardingStudy& study = loaded.study;
  return fmt::format("{}: {} tables, {}, on {} x {} ({}), {} samples per GPU",
                     plain_text(study.name.empty() ? loaded.file : study.name), study.tables.size(),
                     bytes_text(loaded.table_bytes()), *study.world, plain_text(loaded.gpu.name),
                     plain_text(loaded.topology.name), *study.batch_per_rank);
}

bool fits_somewhere(const StudyAnswers& answers) {
  const auto fits = [](const std::vector<StudyAnswer>& rows) {
    return std::ranges::any_of(rows, &StudyAnswer::fits);
  };
  return fits(answers.ways) || fits(answers.types) || fits(answers.networks) ||
         fits(answers.worlds);
}

// The given plan under a changed load, and whether another is faster there.
Result<StudyAnswer> kept_plan(const StudyVariant& variant,
                              const std::vector<TablePlacement>& placements,
                              const SearchWatch& watch) {
  PERFMODEL_TRY(loaded, load_study(variant.question));
  PERFMODEL_TRY(kept, price_plans(*loaded, {{"kept", placements}}));
  const PricedPlan& plan = kept->plans.front();
  StudyAnswer answer = answer_of(variant.name, *loaded, plan);
  answer.world = answer.batch = 0;  // changes of the load leave both
  if (watch.begin_question) watch.begin_question(variant.name);
  const StudyAnswer best = search_answer(variant.name, *loaded, watch);
  if (!plan.time->ranks_over_memory.empty()) {
    answer.error = "the plan does not fit any more";
  } else if (best.fits() && best.us < answer.us) {
    answer.plan =
        fmt::format("the best plan for it: {:.1f} % faster", 100 * (answer.us / best.us - 1));
  } else {
    answer.plan = "none is faster";
  }
  return answer;
}

// The question that all others differ from: its batch per GPU is set, and every search gets its
// part of the time.
Result<ShardQuestion> base_question(const StudyQuestion& asked) {
  constexpr double kSearches = 12, kLeastSeconds = 0.2;
  ShardQuestion base = asked.base;
  if (base.costs == "torchrec") {
    return decline("shard study: expected --costs calibrated, as ratings are no times, found " +
                   base.costs);
  }
  base.time_budget_s = std::max(kLeastSeconds, base.time_budget_s / kSearches);
  return share_global_batch(asked, base).map([&] { return base; });
}

}  // namespace

Result<StudyAnswers> study_answers(const StudyQuestion& asked, const SearchWatch& watch) {
  PERFMODEL_TRY(base, base_question(asked));
  PERFMODEL_TRY(loaded, load_study(*base));
  base->world = loaded->study.world;
  const auto found = search_for_plans(*loaded, 1, watch);
  const auto best = found ? std::optional(found->plans.front()) : std::nullopt;
  StudyAnswers answers{.headline = headline_of(*loaded),
                       .notes = loaded->warnings,
                       .findings = {},
                       .ways = answer_all(way_variants(*base), watch),
                       .settings = answer_all(setting_variants(*base, *loaded), watch),
                       .hot_rows = answer_all(hot_row_variants(*base, *loaded), watch),
                       .types = answer_all(type_variants(*base), watch),
                       .networks = answer_all(network_variants(*base, *loaded), watch),
                       .worlds = answer_all(world_variants(asked, *base, *loaded), watch),
                       .robustness = {},
                       .memory_cap = loaded->gpu.dram_gb * 1e9};
  if (!found) {
    // Other ways, types and numbers of GPUs may fit.
    if (!fits_somewhere(answers)) return Unexpected{found.error()};
    answers.findings.push_back("As it stands nothing fits: " + found.error().message);
  } else {
    answers.notes.insert(answers.notes.end(), found->warnings.begin(), found->warnings.end());
    for (const StudyVariant& variant : load_variants(*base, *loaded)) {
      PERFMODEL_TRY(kept, kept_plan(variant, best->placements, watch));
      answers.robustness.push_back(std::move(*kept));
    }
  }
  for (std::string& finding : study_findings(asked, answers, *loaded, best)) {
    answers.findings.push_back(std::move(finding));
  }
  return answers;
}

}  // namespace perfmodel::sharding
