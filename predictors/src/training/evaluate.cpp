#include <fmt/format.h>

#include <algorithm>

#include "outcomes.hpp"
#include "price/learned/model_file.hpp"
#include "train.hpp"

namespace perfmodel::training {

using learned::LearnedModel;

Result<EvalReport> evaluate(const KernelTable& table, const std::filesystem::path& file,
                            const EvalOptions& options) {
  PERFMODEL_TRY(models, learned::read_model_file(file));
  EvalReport report;
  std::size_t inside = 0;
  for (const KernelRow& row : table.rows) {
    if (!is_measured(row) || row.measured_us < options.min_us ||
        (options.only_llm && !row.is_llm_shape) || (options.only_train && row.is_llm_shape)) {
      continue;
    }
    const Sample sample = sample_of(table, row);
    const auto model = std::find_if(models->begin(), models->end(), [&](const LearnedModel& m) {
      return m.is_of(row.work, *sample.gpu) && m.knows_vendor(*sample.gpu);
    });
    if (model == models->end()) {
      ++report.unknown_rows;
      continue;
    }
    const Outcome outcome = outcome_of(*model, sample);
    report.rows.measured_us.push_back(outcome.measured_us);
    report.rows.predicted_us.push_back(outcome.predicted_us);
    report.rows.gpus.push_back(sample.gpu->name);
    report.rows.ops.push_back(*sample.op);
    report.heuristic_us.push_back(
        KernelModels::heuristic().price(row.work, *sample.gpu).time.count());
    report.roofline_us.push_back(
        KernelModels::roofline().price(row.work, *sample.gpu).time.count());
    if (outcome.knowledge < Knowledge::kChip) ++report.unseen_rows;
    if (outcome.above_floor) {
      ++report.rows.coverage_rows;
      if (outcome.kernel_us >= outcome.price.low.count() &&
          outcome.kernel_us <= outcome.price.high.count()) {
        ++inside;
      }
    }
  }
  if (report.rows.coverage_rows > 0) {
    report.rows.coverage =
        static_cast<double>(inside) / static_cast<double>(report.rows.coverage_rows);
  }
  if (report.rows.measured_us.empty()) {
    if (report.unknown_rows == 0) {
      return decline(
          "expected measured rows of the shapes and times that are asked for, found none");
    }
    return decline(fmt::format(
        "expected measured rows of a family that the model file knows, found {} rows of others",
        report.unknown_rows));
  }
  return report;
}

}  // namespace perfmodel::training
