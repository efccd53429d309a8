#include "report/report_content.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <utility>

#include "analyze/predicted_step.hpp"
#include "analyze/trace_step.hpp"
#include "base/file_name.hpp"
#include "perfmodel/version.hpp"
#include "predict/prediction_results.hpp"
#include "rewrites/rewrite_input.hpp"

namespace perfmodel::report_page {
namespace {

std::string rank_name(const std::string& file, std::int64_t rank, std::size_t ranks) {
  return ranks > 1 && rank >= 0 ? fmt::format("rank {}", rank) : file_name(file);
}

// Keeps the step that the run points into.
Result<Run> keep_step(std::unique_ptr<const findings::Rescheduler> step, Run run,
                      ReportContent& content) {
  PERFMODEL_TRY(path, step->critical_path());
  run.path = std::move(*path);
  content.steps.push_back(std::move(step));
  return run;
}

Result<Run> recorded_run(const AnalyzedInputs& set, const AnalyzeQuestion& question, std::size_t i,
                         ReportContent& content) {
  const Trace& trace = set.traces[i];
  PERFMODEL_TRY(step, findings::TraceStep::create(trace, set.known_gpu(), question.iterations));
  Run run{.name = rank_name(trace.source, trace.rank, set.traces.size()),
          .facts = &(*step)->facts(),
          .step_us = (*step)->measured_us()};
  for (MeasuredMemory& memory : measured_memory(trace)) {
    if (memory.on_host || run.measured_memory) continue;
    run.measured_memory = std::move(memory);
  }
  return keep_step(std::move(*step), std::move(run), content);
}

Result<Run> predicted_run(const AnalyzedInputs& set, const AnalyzeQuestion& question, std::size_t i,
                          ReportContent& content) {
  const std::vector<RankInput> ranks = set.rank_inputs();
  PERFMODEL_TRY(step, findings::PredictedStep::create(ranks[i], *set.gpu));
  PERFMODEL_TRY(step_us, (*step)->step_us({}));
  PERFMODEL_TRY(alone, predict_job(std::span(&ranks[i], 1), *set.gpu));
  const Prediction& prediction = alone->ranks[0];
  Run run{.name = rank_name(question.files[i], static_cast<std::int64_t>(i), ranks.size()),
          .facts = &(*step)->facts(),
          .step_us = *step_us};
  const std::string rewrites = rewrite_line(question.target.rewrites);
  if (!rewrites.empty()) run.more_facts.emplace_back("rewritten by", rewrites);
  run.more_facts.emplace_back("in nine of ten cases",
                              fmt::format("{:.3f} to {:.3f} ms", prediction.e2e_low_us / 1000,
                                          prediction.e2e_high_us / 1000));
  run.more_facts.emplace_back(
      "of the time has a model",
      fmt::format("{:.1f} %", 100 * prediction.coverage.modelled_time_fraction));
  each_titled_figure(prediction,
                     [&](auto title, auto text) { run.more_facts.emplace_back(title, text); });
  if (!set.ranks[i]->program.trace) {
    run.memory = memory_report(*ranks[i].graph, &*set.gpu, {.curve = true});
  }
  return keep_step(std::move(*step), std::move(run), content);
}

// "job.kineto.json.gz" -> "job"
std::string without_suffix(std::string name) {
  for (const std::string_view suffix :
       {".gz", ".json", ".kernels", ".kineto", ".et", ".pt.trace", ".trace"}) {
    if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
  }
  return name;
}

struct NamedKey {
  const char* name;
  AccountKey key;
};
constexpr NamedKey kAccountKeys[] = {{"part of the step", AccountKey::kPart},
                                     {"family of kernels", AccountKey::kFamily},
                                     {"kernel", AccountKey::kKernel},
                                     {"op", AccountKey::kOp},
                                     {"module or label", AccountKey::kLabel}};

// Two accounts by each key that both know. `sides` are short for their names.
Json comparison_data(const StepAccount& before, const StepAccount& after, bool is_against) {
  Json made = {{"before", before.name},
               {"after", after.name},
               {"sides", is_against ? Json::array({"predicted", "measured"})
                                    : Json::array({"before", "after"})},
               {"before_us", before.step_us},
               {"after_us", after.step_us},
               {"tables", Json::array()}};
  for (const auto& [name, key] : kAccountKeys) {
    Json rows = Json::array();
    for (const AccountChange& at : compare_accounts(before, after, key)) {
      rows.push_back(
          {at.name, at.before_us, at.after_us, at.change_us(), at.count_before, at.count_after});
    }
    if (!rows.empty()) made["tables"].push_back({{"by", name}, {"rows", std::move(rows)}});
  }
  return made;
}

std::vector<std::string> names_of(const std::vector<std::string>& files) {
  std::vector<std::string> names;
  for (const std::string& file : files) names.push_back(file_name(file));
  return names;
}

}  // namespace

Result<void> add_runs(AnalyzedInputs inputs, const AnalyzeQuestion& question,
                      Anonymizer* anonymizer, ReportContent& content) {
  content.sets.push_back(std::move(inputs));
  const AnalyzedInputs& set = content.sets.back();
  content.warnings.insert(content.warnings.end(), set.warnings.begin(), set.warnings.end());
  PERFMODEL_TRY(found, set.find({.iterations = question.iterations}));
  content.findings.push_back(std::move(*found));
  if (set.ranks.size() > 1) {
    content.warnings.push_back(
        "each rank is drawn by itself, without waiting for the others (`predict` of all of them "
        "tells the step of the job)");
  }
  for (std::size_t i = 0; i < set.traces.size() + set.ranks.size(); ++i) {
    PERFMODEL_TRY(run, set.recorded ? recorded_run(set, question, i, content)
                                    : predicted_run(set, question, i, content));
    if (anonymizer && !set.recorded) anonymizer->replace(run->name);
    run->found = i == 0 ? &content.findings.back() : nullptr;
    run->gpu = set.known_gpu();
    content.accounts.push_back(account_of(*run->facts, run->step_us));
    content.accounts.back().name = run->name;
    content.runs.push_back(std::move(*run));
  }
  return set.check_models();
}

void name_compared(const ReportQuestion& question, ReportContent& content) {
  std::string before = without_suffix(content.accounts.front().name),
              after = without_suffix(content.accounts.back().name);
  if (!question.against.empty()) {
    before = "predicted";
    after = "measured";
  } else if (before == after && content.sets.size() > 1) {
    before += " on " + content.sets.front().gpu_title();
    after += " on " + content.sets.back().gpu_title();
  }
  content.accounts.front().name = before;
  content.accounts.back().name = after;
  if (content.runs.size() < 2) return;
  content.runs.front().name = before;
  content.runs.back().name = after;
}

std::string title_of(const ReportQuestion& question, const ReportContent& content) {
  if (!question.title.empty()) return question.title;
  if (!question.compare.empty()) {
    return content.accounts.front().name + " and " + content.accounts.back().name;
  }
  const std::vector<std::string> names = names_of(question.files);
  std::string title = names.size() > 2 ? fmt::format("{} and {} more", names[0], names.size() - 1)
                                       : fmt::format("{}", fmt::join(names, " and "));
  if (!content.sets.empty() && content.sets.front().gpu) {
    title += " on " + content.sets.front().gpu->title;
  }
  if (!question.against.empty()) title += " against " + file_name(question.against);
  return title;
}

Json page_data(const ReportQuestion& question, const ReportContent& content,
               const std::string& title, Json recording) {
  std::vector<std::string> files = names_of(question.files);
  for (const std::string& other : {question.against, question.compare}) {
    if (!other.empty()) files.push_back(file_name(other));
  }
  Json data = {{"program", "perfpredict " + build_text()},
               {"title", title},
               {"inputs", files},
               {"relation", question.against.empty() ? "beside" : "against"},
               {"warnings", content.warnings}};
  if (!recording.is_null()) data["recording"] = std::move(recording);
  data["runs"] = Json::array();
  Names names;
  for (const Run& run : content.runs) {
    data["runs"].push_back(
        run_data(run, std::max<std::size_t>(1, question.slices / content.runs.size()), names));
  }
  if (files.size() > question.files.size()) {
    data["comparison"] = comparison_data(content.accounts.front(), content.accounts.back(),
                                         !question.against.empty());
  }
  data["documents"] = content.documents;
  data["names"] = names.all();
  return data;
}

Json anonymous_json(const Json& value, Anonymizer& anonymizer) {
  if (value.is_string()) return anonymizer.replaced(value.get_ref<const std::string&>());
  if (!value.is_structured()) return value;
  Json result = value.is_object() ? Json::object() : Json::array();
  for (const auto& [key, item] : value.items()) {
    Json replaced = anonymous_json(item, anonymizer);
    if (value.is_array()) {
      result.push_back(std::move(replaced));
    } else {
      result[anonymizer.replaced(key)] = std::move(replaced);
    }
  }
  return result;
}

}  // namespace perfmodel::report_page
