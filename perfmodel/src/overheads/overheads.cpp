#include "perfmodel/overheads.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "extract_overheads.hpp"
#include "read/check_recording.hpp"
#include "record/device_starts.hpp"
#include "record/host_alone.hpp"

namespace perfmodel {

namespace {

// A table of longer times could not be read again.
bool is_of_one_recording(const Trace& trace) {
  constexpr double kMostNs = 365.0 * 24 * 3600 * 1e9;
  double first = 1e300, last = -1e300;
  const auto look = [&](const auto& event) {
    first = std::min(first, static_cast<double>(event.start_ns));
    last = std::max(last, static_cast<double>(event.end_ns()));
  };
  std::ranges::for_each(trace.host, look);
  std::ranges::for_each(trace.gpu, look);
  return last - first <= kMostNs;
}

}  // namespace

Result<OverheadTable> extract_overheads(std::span<const OverheadSource> sources,
                                        const OverheadOptions& options) {
  OverheadTable table;
  table.method = options.method;
  table.profiler_cost_us = options.profiler_cost_us;
  std::set<std::string> gpus;
  for (const OverheadSource& source : sources) {
    if (source.trace->gpu.empty()) {
      return decline("expected device activity, found " + instead_of_device_work(*source.trace),
                     source.trace->source);
    }
    if (!is_of_one_recording(*source.trace)) {
      return decline("expected stamps of one recording, found some years apart",
                     source.trace->source);
    }
    PERFMODEL_TRY_TO(check_one_device(*source.trace));
    for (const RecordingFinding& finding : source.trace->recording.findings) {
      table.recording.findings.push_back(finding);
    }
    table.sources.push_back(std::filesystem::path(source.trace->source).filename().string());
    if (auto warning = unrecorded_warning(*source.trace)) {
      table.warnings.push_back(table.sources.back() + ": " + *warning);
    }
    gpus.insert(source.trace->gpu_name());
  }
  table.gpu = fmt::format("{}", fmt::join(gpus, ", "));
  const auto extract = options.method == OverheadMethod::kRaw   ? extract_raw
                       : options.method == OverheadMethod::kLin ? extract_lin
                                                                : extract_context;
  auto extracted = extract(sources, options, std::move(table));
  if (extracted && extracted->ops.empty()) {
    return decline("expected at least one op, found none",
                   sources.empty() ? "" : sources.front().trace->source);
  }
  return extracted;
}

namespace {

void scale(OverheadStats& stats, double factor) {
  stats.mean_us *= factor;
  stats.std_us *= factor;
  stats.median_us *= factor;
}

}  // namespace

void scale_host(OverheadTable& table, double factor) {
  TermFactors factors;
  factors.fill(factor);
  scale_terms(table, factors);
  for (auto& [op, stats] : table.ops) scale(stats, factor);
}

void scale_terms(OverheadTable& table, const TermFactors& factors) {
  for (std::size_t i = 0; i < std::size(kHostTerms); ++i) {
    const double factor = factors[i];
    if (!kHostTerms[i].figures) {
      for (auto& [call, stats] : table.t4) scale(stats, factor);
      continue;
    }
    OverheadTerm& term = table.*kHostTerms[i].figures;
    scale(term.all, factor);
    for (auto& [key, named] : term.by_name) scale(named.stats, factor);
    for (auto& [key, stats] : term.by_context) scale(stats, factor);
  }
}

OverheadTable as_recorded(OverheadTable table) {
  if (!table.without_collector) return table;
  TermFactors back = *table.without_collector;
  for (double& factor : back) factor = 1 / factor;
  scale_terms(table, back);
  table.without_collector.reset();
  return table;
}

double total_us(const OverheadStats& stats) {
  return stats.mean_us * static_cast<double>(stats.count);
}

OverheadStats stats_of_all(const std::map<std::string, OverheadStats>& figures) {
  OverheadStats all;
  for (const auto& [name, stats] : figures) {
    all.mean_us += total_us(stats);
    all.count += stats.count;
  }
  if (all.count > 0) all.mean_us /= static_cast<double>(all.count);
  return all;
}

std::vector<std::pair<std::string, OverheadStats>> ops_by_host_time(const OverheadTable& table) {
  std::vector<std::pair<std::string, OverheadStats>> ops(table.ops.begin(), table.ops.end());
  std::ranges::stable_sort(ops, std::ranges::greater{},
                           [](const auto& op) { return total_us(op.second); });
  return ops;
}

}  // namespace perfmodel
