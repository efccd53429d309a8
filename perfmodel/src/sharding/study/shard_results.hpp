#pragma once

#include <string>
#include <vector>

#include "fields/result_field.hpp"
#include "priced_plans.hpp"
#include "study_questions.hpp"
#include "study_sweep.hpp"

/// Results about sharding, as in documents, text tables and CSV.
namespace perfmodel::sharding {

/// A plan with the report that it is in.
struct ReportedPlan {
  const ShardReport* report = nullptr;
  const PricedPlan* plan = nullptr;
};
std::vector<ReportedPlan> reported_plans(const ShardReport& report);

/// Figures that a plan's kind has not, a time's or a rating's, are null.
extern const ResultFields<ReportedPlan> kPlanFields;
extern const ResultFields<StudyAnswer> kAnswerFields;

/// All of a report but the head of a document.
OrderedJson report_json(const ShardReport& report);

/// Names the limit of a plan: a part of a batch, or "GPU 3" of a rating.
std::string limit_text(const PricedPlan& plan);

std::string sweep_csv(const std::string& axis, const std::vector<SweepRow>& rows);

/// The answers to one kind of question.
struct StudySection {
  const char *title, *axis;
  const char* drawing;  ///< name of its file
  const std::vector<StudyAnswer> StudyAnswers::*rows;
};
inline constexpr StudySection kStudySections[] = {
    {"Ways to shard", "way", "ways", &StudyAnswers::ways},
    {"Settings of single tables", "settings", "settings", &StudyAnswers::settings},
    {"Hot rows with a copy on every GPU (hybrid embedding)", "hot rows", "hot_rows",
     &StudyAnswers::hot_rows},
    {"Types of rows", "type", "types", &StudyAnswers::types},
    {"Networks", "network", "networks", &StudyAnswers::networks},
    {"Numbers of GPUs", "GPUs", "worlds", &StudyAnswers::worlds},
    {"The best plan, if bags or skew change", "change", "robustness", &StudyAnswers::robustness}};

/// All answers but the head of a document.
OrderedJson study_json(const StudyAnswers& answers);
std::string study_csv(const StudyAnswers& answers);
/// Name, time, samples, memory, limit and plan of an answer that fits.
std::vector<std::string> answer_cells(const StudyAnswer& answer, double memory_cap);

/// Load and memory of a GPU under a plan.
struct RankLoad {
  std::size_t rank = 0;
  double load = 0;    ///< time of lookups [us], or TorchRec's rating [ms]
  double memory = 0;  ///< bytes
};
std::vector<RankLoad> rank_loads(const PricedPlan& plan);
/// Most load first.
void sort_by_load(std::vector<RankLoad>& loads);

/// Times of a GPU's lookups and of its dense part's kernels [us].
double lookups_us(const PartTimes& parts);
double dense_us(const PartTimes& parts);

}  // namespace perfmodel::sharding
