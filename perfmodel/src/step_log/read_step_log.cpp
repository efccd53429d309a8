#include "step_log.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <set>
#include <span>

#include "base/number_text.hpp"
#include "base/statistics.hpp"
#include "files/json_file.hpp"
#include "log_records.hpp"

namespace perfmodel {
namespace {

constexpr std::size_t kMostSlowStarts = 10, kFewestRecords = 3;

// An object or a list of objects; a dict that Python prints has other quotes.
bool is_json(std::string_view text) {
  std::string begin;
  for (const char c : text.substr(0, 4096)) {
    if (std::string_view(" \t\r\n").find(c) == std::string_view::npos) begin += c;
    if (begin.size() == 3) break;
  }
  return begin.starts_with("{\"") || begin.starts_with("{}") || begin.starts_with("[{\"");
}

Result<LogRecords> records_of(const std::string& text, const std::filesystem::path& file,
                              const std::string& unit) {
  if (is_json(text)) return records_of_trainer_state(text, file);
  auto programs = records_of_programs(text, file);
  if (!programs || !programs->records.empty()) return programs;
  if (text.find("{'loss':") != text.npos || text.find("'train_runtime':") != text.npos) {
    return fail(ErrorCode::kFormat,
                "expected the progress bar of the Trainer, or its trainer_state.json, found lines "
                "without times",
                file);
  }
  auto table = records_of_table(text, file, unit);
  if (!table || !table->records.empty()) return table;
  return fail(ErrorCode::kFormat,
              "expected step times of Megatron-LM, nanotron, NeMo, DeepSpeed, torchtitan or the "
              "Trainer of Hugging Face, a CSV table or a time a line, found none",
              file);
}

// The stamps say how long all steps took, the rates how that time was shared between them.
std::optional<double> work_by_stamps(const std::vector<LogRecord>& records) {
  double time_us = 0, steps_per_rate = 0;
  for (std::size_t i = 1; i < records.size(); ++i) {
    const LogRecord &before = records[i - 1], &record = records[i];
    const auto steps = static_cast<double>(record.step - before.step);
    if (!record.why.empty() || steps <= 0 || !record.stamp_us || !before.stamp_us) continue;
    time_us += *record.stamp_us - *before.stamp_us;
    steps_per_rate += steps / record.value;
  }
  if (!(time_us > 0)) return std::nullopt;
  return time_us / 1e6 / steps_per_rate;
}

Result<void> turn_into_times(LogRecords& log, const StepLogOptions& options,
                             const std::filesystem::path& file) {
  auto work = options.work_per_step ? options.work_per_step : log.work_per_step;
  if (!work) work = work_by_stamps(log.records);
  if (!work) {
    return fail(ErrorCode::kFormat,
                fmt::format("expected time stamps in milliseconds next to the rates of {}, or "
                            "--work-per-step (tokens of a GPU, or samples), found neither",
                            log.program),
                file);
  }
  for (LogRecord& record : log.records) {
    const double us = 1e6 * *work / record.value;
    record.resolution *= us / record.value;
    record.value = us;
  }
  log.work_per_step = work;
  return {};
}

// Indices of the records that are kept so far, without gaps where a job starts again.
std::vector<std::vector<std::size_t>> runs_of(const std::vector<LogRecord>& records) {
  std::vector<std::vector<std::size_t>> runs;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (!records[i].why.empty()) continue;
    const bool starts = runs.empty() || records[i].step <= records[runs.back().back()].step;
    if (starts) runs.emplace_back();
    runs.back().push_back(i);
  }
  return runs;
}

// Slower than three standard deviations above the median of what follows the first record, both
// judged by ranks.
double slow_start_us(const std::vector<LogRecord>& records, std::span<const std::size_t> rest) {
  std::vector<double> times, distances;
  for (const std::size_t i : rest) times.push_back(records[i].value);
  const double middle = median_of(times);
  for (const double us : times) distances.push_back(std::abs(us - middle));
  return middle + 3 * 1.4826 * median_of(distances);
}

void leave_out_warm_up(std::vector<LogRecord>& records) {
  for (const std::vector<std::size_t>& run : runs_of(records)) {
    if (run.size() < kFewestRecords) continue;
    const double slow_us = slow_start_us(records, std::span(run).subspan(1));
    for (std::size_t i = 0; i < std::min(run.size(), kMostSlowStarts + 1); ++i) {
      if (i > 0 && records[run[i]].value <= slow_us) break;
      records[run[i]].why = "warm-up";
    }
  }
}

bool is_impossible(const LogRecord& record) {
  return record.why.empty() && !(record.value >= 1e-3 && record.value <= 1e15);
}

// If the batch grows, its last size counts.
void leave_out_other_batches(std::vector<LogRecord>& records) {
  std::optional<double> last;
  for (const LogRecord& record : records) last = record.why.empty() ? record.batch : last;
  for (LogRecord& record : records) {
    if (record.why.empty() && record.batch != last) record.why = "of another batch size";
  }
}

StepLog sorted_log(const LogRecords& from) {
  StepLog log{.program = from.program, .work_per_step = from.work_per_step};
  std::vector<double> distances, resolutions;
  std::int64_t last = 0;
  for (const LogRecord& record : from.records) {
    if (record.step > last) distances.push_back(static_cast<double>(record.step - last));
    last = record.step;
    if (record.why.empty()) {
      log.steps.push_back({record.step, record.value});
      resolutions.push_back(record.resolution);
      continue;
    }
    auto at = std::ranges::find(log.left_out, record.why, &LeftOutSteps::why);
    if (at == log.left_out.end()) {
      at = log.left_out.insert(at, {.why = std::string(record.why), .steps = {}});
    }
    at->steps.push_back(record.step);
  }
  log.steps_per_record = std::max<std::int64_t>(1, static_cast<std::int64_t>(median_of(distances)));
  log.resolution_us = median_of(resolutions);
  return log;
}

void add_warnings(StepLog& log) {
  std::size_t records = log.steps.size();
  for (const LeftOutSteps& one : log.left_out) records += one.steps.size();
  if (log.steps.empty()) {
    log.warnings.push_back("no record is left: " + left_out_text(log));
  } else if (records < kFewestRecords) {
    log.warnings.push_back(
        fmt::format("{} says how long {} took: warm-up and noise cannot be told from it",
                    counted(log.steps.size(), "record"),
                    counted(static_cast<std::size_t>(log.steps_per_record), "step")));
  }
  if (const double us = log.median_us(); us > 0 && log.resolution_us > 0.005 * us) {
    log.warnings.push_back(
        fmt::format("times are printed to {} of a step", percent(log.resolution_us / us)));
  }
}

}  // namespace

double StepLog::median_us() const {
  std::vector<double> times;
  for (const LoggedStep& step : steps) times.push_back(step.us);
  return median_of(std::move(times));
}

Result<StepLog> read_step_log_text(const std::string& text, const std::filesystem::path& file,
                                   const StepLogOptions& options) {
  PERFMODEL_TRY(records, records_of(text, file, options.unit));
  if (records->are_rates) PERFMODEL_TRY_TO(turn_into_times(*records, options, file));
  if (const auto at = std::ranges::find_if(records->records, is_impossible);
      at != records->records.end()) {
    return fail(ErrorCode::kFormat,
                fmt::format("expected step times from 1 ns to 30 years, found {} us at step {}",
                            at->value, at->step),
                file);
  }
  leave_out_other_batches(records->records);
  leave_out_warm_up(records->records);
  StepLog log = sorted_log(*records);
  log.source = file.string();
  add_warnings(log);
  return log;
}

Result<StepLog> read_step_log(const std::filesystem::path& file, const StepLogOptions& options) {
  PERFMODEL_TRY(text, read_json_text(file, "log of training steps"));
  return read_step_log_text(*text, file, options);
}

bool is_step_log(const std::filesystem::path& file) {
  std::array<char, 1 << 16> head{};
  std::ifstream in(file, std::ios::binary);
  in.read(head.data(), head.size());
  const std::string_view text(head.data(), static_cast<std::size_t>(in.gcount()));
  if (text.empty() || text.starts_with("\x1f\x8b") || text.find('\0') != text.npos) return false;
  return !is_json(text) || text.find("\"log_history\"") != text.npos;
}

std::string left_out_text(const StepLog& log) {
  std::vector<std::string> parts;
  for (const auto& [why, all] : log.left_out) {
    const std::set<std::int64_t> steps(all.begin(), all.end());  // a restart repeats some
    parts.push_back(steps.size() > 3 ? fmt::format("{} records ({})", steps.size(), why)
                                     : fmt::format("step {} ({})", fmt::join(steps, " and "), why));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace perfmodel
