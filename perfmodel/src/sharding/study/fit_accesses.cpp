#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "question_changes.hpp"
#include "sharding/index_statistics.hpp"

namespace perfmodel::sharding {
namespace {

// The law of every table for which the file has a histogram.
Result<void> fit_histograms(const std::string& file, LoadedStudy& loaded) {
  PERFMODEL_TRY(histograms, read_access_histograms(file));
  const ShardingStudy& study = loaded.study;
  const bool is_named = !histograms->front().table.empty();
  bool fits_any = false;
  for (ShardedTable& table : loaded.study.tables) {
    const auto histogram = std::ranges::find_if(*histograms, [&](const AccessHistogram& one) {
      return !is_named || one.table == table.name;
    });
    if (histogram == histograms->end()) continue;
    const double ids =
        distinct_ids(table, *study.batch_per_rank) * static_cast<double>(*study.world);
    const double touched = std::min(static_cast<double>(table.rows), std::max(1.0, ids));
    table.skew = fitted_skew(*histogram, static_cast<double>(table.rows), touched);
    if (!fits_any) {
      loaded.warnings.push_back(fmt::format("access histograms fit Zipf {:.3g} for table {}",
                                            table.skew.exponent, table.name));
    }
    fits_any = true;
  }
  if (fits_any) return {};
  return decline(
      fmt::format("--access: expected histograms of tables of the study, found those of {}",
                  histograms->front().table));
}

// "TABLE=FILE"
Result<void> fit_indices(const std::string& text, LoadedStudy& loaded) {
  const std::size_t equal = text.find('=');
  auto& tables = loaded.study.tables;
  const auto table = std::ranges::find(tables, text.substr(0, equal), &ShardedTable::name);
  if (equal == std::string::npos || table == tables.end()) {
    return decline(
        fmt::format("--indices: expected TABLE=FILE with a table of the study, found {}", text));
  }
  PERFMODEL_TRY(sample, read_index_sample(text.substr(equal + 1)));
  if (sample->largest >= table->rows) {
    return decline(
        fmt::format("--indices: expected indices below the {} rows of table {}, found {}",
                    table->rows, table->name, sample->largest));
  }
  table->skew = fitted_skew(sample->histogram, static_cast<double>(table->rows),
                            static_cast<double>(sample->touched_rows));
  loaded.warnings.push_back(
      fmt::format("table {}: recorded indices fit Zipf {:.3g}", table->name, table->skew.exponent));
  return {};
}

}  // namespace

Result<void> fit_accesses(const ShardQuestion& question, LoadedStudy& loaded) {
  Result<void> done;
  if (!question.access.empty()) done = fit_histograms(question.access, loaded);
  for (const std::string& text : question.indices) {
    if (done) done = fit_indices(text, loaded);
  }
  return done;
}

}  // namespace perfmodel::sharding
