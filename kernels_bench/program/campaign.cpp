#include "campaign.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <ctime>
#include <limits>
#include <memory>

#include "../core/case_cells.hpp"
#include "../core/case_work.hpp"
#include "base/progress_bar.hpp"
#include "base/statistics.hpp"
#include "measurement_table.hpp"
#include "quick_model.hpp"

namespace kernels_bench {
namespace {

using perfmodel::Error;
using perfmodel::ErrorCode;
using perfmodel::quantile;
using perfmodel::Result;
using Clock = std::chrono::steady_clock;

constexpr double kLeastSecondsPerFamily = 1;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text, size};
}

Provenance provenance_of(const DeviceInfo& info, const perfmodel::Gpu& gpu,
                         const std::string& command) {
  std::string software = fmt::format("driver {}, runtime {}", info.driver, info.runtime);
  for (const LibraryInfo& library : info.libraries) {
    if (!library.version.empty()) {
      software += fmt::format(", {} {}", library.name, library.version);
    }
  }
  return {.gpu = gpu.name,
          .device = fmt::format("{}, {}, {:.1f} GiB", info.name, info.target,
                                static_cast<double>(info.memory_bytes) / (1 << 30)),
          .software = software,
          .command = command,
          .date = today()};
}

/// The highest rates of the peaks family. Other families report a share of these rates.
struct Peaks {
  double gb_per_s = 0;
  std::array<double, 4> tflop_per_s{};  ///< by type

  void learn(const Case& point, const perfmodel::Gpu& gpu, double time_us) {
    const auto* peak = std::get_if<PeakCase>(&point);
    if (!peak) return;
    const perfmodel::KernelWork work = work_of(point, gpu);
    if (peak->kind == PeakCase::Kind::kCopyBandwidth && peak->bytes >= (1 << 28)) {
      gb_per_s = std::max(gb_per_s, work.bytes().value / time_us * 1e-3);
    }
    double& tflop = tflop_per_s[static_cast<std::size_t>(peak->dtype)];
    tflop = std::max(tflop, work.flop.value / time_us * 1e-6);
  }

  double share(DType dtype, const Row& row) const {
    const double arithmetic = tflop_per_s[static_cast<std::size_t>(dtype)];
    return std::max(gb_per_s > 0 ? row.gb_per_s / gb_per_s : 0,
                    arithmetic > 0 ? row.tflop_per_s / arithmetic : 0);
  }
};

DType dtype_of(const Case& point) {
  return std::visit(
      [](const auto& c) {
        if constexpr (requires { c.dtype; }) return c.dtype;
        return DType::kFloat32;
      },
      point);
}

bool moves_over_link(const Case& point) {
  const auto* memory = std::get_if<MemoryCase>(&point);
  return memory && (memory->kind == MemoryCase::Kind::kHostToDevice ||
                    memory->kind == MemoryCase::Kind::kDeviceToHost);
}

/// One family of a running campaign: its points, their quick model, its table.
class FamilyRun {
 public:
  FamilyRun(const Family& family, std::vector<Case> points, MeasurementTable table,
            const perfmodel::Gpu& gpu, const MeasureOptions& options)
      : points_(std::move(points)),
        table_(std::move(table)),
        quick_(points_, gpu),
        is_done_(points_.size()),
        options_(options) {
    report_.family = &family;
    report_.planned = points_.size();
    for (std::size_t i = 0; i < points_.size(); ++i) take_over(i);
  }

  bool is_finished() const { return next_ == points_.size() || !report_.problem.empty(); }
  FamilyReport& report() { return report_; }
  const Case& point(std::size_t i) const { return points_[i]; }
  MeasurementTable& table() { return table_; }

  /// The point to measure next: turns of the sweep's order and of the least certain.
  std::size_t choose() {
    in_order_ = !in_order_ || report_.family == &kPeaksFamily;
    return in_order_ ? next_ : least_certain();
  }

  /// The peaks among the rows that are there.
  void teach(Peaks& peaks, const perfmodel::Gpu& gpu) const {
    for (const Case& point : points_) {
      const auto row = table_.times().find(table_.key_of(point));
      if (row != table_.times().end()) peaks.learn(point, gpu, row->second);
    }
  }

  void measured(std::size_t i, double time_us) {
    if (in_order_ && report_.rows > 0) {
      errors_.push_back(std::abs(quick_.expected_us(i) / time_us - 1));
    }
    quick_.add(i, time_us);
    ++report_.rows;
    ++report_.measured;
    done(i);
  }

  void skipped(std::size_t i) {
    ++report_.skipped;
    done(i);
  }

  FamilyReport finish() {
    std::ranges::sort(errors_);
    report_.quick_error =
        errors_.empty() ? std::numeric_limits<double>::quiet_NaN() : quantile(errors_, 0.5);
    return report_;
  }

 private:
  void take_over(std::size_t i) {
    const std::string key = table_.key_of(points_[i]);
    if (!table_.has(key)) return;
    const auto row = table_.times().find(key);
    if (row != table_.times().end()) {
      quick_.add(i, row->second);
      ++report_.rows;
    } else {
      ++report_.skipped;
    }
    done(i);
  }

  void done(std::size_t i) {
    is_done_[i] = true;
    while (next_ < points_.size() && is_done_[next_]) ++next_;
  }

  // Uncertainty per square root of cost: twice as long may tell 1.4 times as much.
  std::size_t least_certain() const {
    std::size_t best = next_;
    double best_score = -1;
    for (std::size_t i = next_; i < points_.size(); ++i) {
      if (is_done_[i]) continue;
      const double cost = expected_seconds(points_[i], quick_.expected_us(i), options_);
      const double score = quick_.uncertainty(i) / std::sqrt(cost);
      if (score > best_score) {
        best_score = score;
        best = i;
      }
    }
    return best;
  }

  std::vector<Case> points_;
  MeasurementTable table_;
  QuickModel quick_;
  std::vector<bool> is_done_;
  std::vector<double> errors_;
  MeasureOptions options_;
  FamilyReport report_;
  std::size_t next_ = 0;  ///< first point of the sweep that is not done
  bool in_order_ = false;
};

class Campaign {
 public:
  Campaign(Device& device, const perfmodel::Gpu& gpu, const CampaignOptions& options,
           const StopFlag& stop)
      : device_(device), gpu_(gpu), options_(options), stop_(stop) {}

  Result<CampaignReport> run() {
    if (auto done = open(); !done) return tl::unexpected(done.error());
    const auto steps =
        static_cast<std::size_t>(options_.budget_seconds > 0 ? options_.budget_seconds * 10
                                                             : static_cast<double>(planned()));
    perfmodel::ProgressBar bar("kernels", std::max<std::size_t>(1, steps));
    const auto start = Clock::now();
    CampaignReport report;
    while (FamilyRun* run = next_family()) {
      if (stop_) {
        report.stopped = true;
        break;
      }
      const double elapsed = seconds_since(start);
      if (options_.budget_seconds > 0 && elapsed >= options_.budget_seconds) {
        report.out_of_time = true;
        break;
      }
      bar.update(options_.budget_seconds > 0 ? static_cast<std::size_t>(elapsed * 10) : rows());
      if (auto done = measure_one(*run); !done) return tl::unexpected(done.error());
    }
    bar.finish();
    for (const auto& run : runs_) report.families.push_back(run->finish());
    return report;
  }

 private:
  Result<void> open() {
    std::error_code failure;
    std::filesystem::create_directories(options_.folder, failure);
    if (failure) {
      return tl::unexpected(Error{.code = ErrorCode::kIo,
                                  .message = "cannot be made: " + failure.message(),
                                  .file = options_.folder});
    }
    const double least = kLeastSecondsPerFamily * static_cast<double>(options_.families.size());
    if (options_.budget_seconds > 0 && options_.budget_seconds < least) {
      return perfmodel::fail(
          ErrorCode::kImpossible,
          fmt::format("--budget: expected at least a second per family ({:.0f}s), found {:g}s",
                      least, options_.budget_seconds));
    }
    const Provenance provenance = provenance_of(device_.info(), gpu_, options_.command);
    const Limits limits = limits_for(static_cast<double>(device_.info().free_bytes));
    for (const Family* family : options_.families) {
      auto table = MeasurementTable::open(options_.folder / fmt::format("{}.csv", family->name),
                                          *family, provenance);
      if (!table) return tl::unexpected(table.error());
      const std::size_t count = points_of(*family);
      runs_.push_back(std::make_unique<FamilyRun>(*family,
                                                  sweep(*family, count, options_.seed, limits),
                                                  std::move(*table), gpu_, options_.measure));
      runs_.back()->teach(peaks_, gpu_);
    }
    return {};
  }

  // Peaks are a list that is always taken whole.
  std::size_t points_of(const Family& family) const {
    if (options_.points > 0) return std::min(options_.points, family.points);
    if (&family == &kPeaksFamily) return family.points;
    return static_cast<std::size_t>(std::ceil(options_.share * static_cast<double>(family.points)));
  }

  std::size_t planned() const {
    std::size_t sum = 0;
    for (const auto& run : runs_) sum += run->report().planned;
    return sum;
  }
  std::size_t rows() const {
    std::size_t sum = 0;
    for (const auto& run : runs_) sum += run->report().rows + run->report().skipped;
    return sum;
  }

  // Peaks to their end; then the family that has had least of its share of the time.
  FamilyRun* next_family() {
    FamilyRun* next = nullptr;
    double least = std::numeric_limits<double>::infinity();
    for (const auto& run : runs_) {
      if (run->is_finished()) continue;
      const FamilyReport& report = run->report();
      if (report.family == &kPeaksFamily) return run.get();
      const double share = report.seconds / static_cast<double>(report.family->points);
      if (share < least) {
        least = share;
        next = run.get();
      }
    }
    return next;
  }

  Result<void> measure_one(FamilyRun& run) {
    const std::size_t i = run.choose();
    const Case& point = run.point(i);
    const auto start = Clock::now();
    const Clocks before = device_.clocks();
    Outcome<Measurement> measured = device_.measure(point, options_.measure);
    Result<void> written;
    if (measured && !are_times(measured->times_us)) {
      measured = tl::unexpected(
          Failure{FailureKind::kWrongResult, "a time that is not a positive number"});
    }
    if (measured) {
      const Row row = row_of(point, *measured, before);
      peaks_.learn(point, gpu_, row.time_us);
      note_best(run.report(), row);
      written = run.table().append(point, row);
      if (written) run.measured(i, row.time_us);
    } else {
      written = failed(run, i, measured.error());
    }
    run.report().seconds += seconds_since(start);
    return written;
  }

  static bool are_times(const std::vector<double>& times) {
    return !times.empty() &&
           std::ranges::all_of(times, [](double time) { return std::isfinite(time) && time > 0; });
  }

  Row row_of(const Case& point, const Measurement& measured, const Clocks& before) {
    std::vector<double> times = measured.times_us;
    std::ranges::sort(times);
    Row row{.time_us = quantile(times, 0.5),
            .p10_us = quantile(times, 0.1),
            .p90_us = quantile(times, 0.9),
            .repetitions = static_cast<int>(times.size()),
            .l2_warm = options_.measure.warm_l2,
            .max_error = measured.max_error,
            .before = before,
            .after = device_.clocks(),
            .kernel = measured.kernel};
    if (moves_or_computes(point)) {
      const perfmodel::KernelWork work = work_of(point, gpu_);
      row.gb_per_s = work.bytes().value / row.time_us * 1e-3;
      row.tflop_per_s = work.flop.value / row.time_us * 1e-6;
      if (!moves_over_link(point)) row.share_of_peak = peaks_.share(dtype_of(point), row);
    }
    return row;
  }

  static void note_best(FamilyReport& report, const Row& row) {
    report.best_gb_per_s = std::max(report.best_gb_per_s, row.gb_per_s);
    report.best_tflop_per_s = std::max(report.best_tflop_per_s, row.tflop_per_s);
  }

  Result<void> failed(FamilyRun& run, std::size_t i, const Failure& failure) {
    switch (failure.kind) {
      case FailureKind::kOutOfMemory:
      case FailureKind::kUnsupported: {
        auto written = run.table().append_skipped(run.point(i), failure.message);
        if (written) run.skipped(i);
        return written;
      }
      case FailureKind::kMissingLibrary:
        // Peaks of the library's kernels are a few of many.
        if (run.report().family == &kPeaksFamily) {
          auto written = run.table().append_skipped(run.point(i), failure.message);
          if (written) run.skipped(i);
          return written;
        }
        run.report().problem = failure.message;
        return {};
      case FailureKind::kWrongResult: {  // not tried again: the next run goes on after it
        auto written = run.table().append_skipped(run.point(i), failure.message);
        return written ? ended_by(run.point(i), failure) : written;
      }
      default: return ended_by(run.point(i), failure);
    }
  }

  static Result<void> ended_by(const Case& point, const Failure& failure) {
    return perfmodel::fail(ErrorCode::kImpossible, fmt::format("{}: {}; rows so far are kept",
                                                               name_of(point), failure.message));
  }

  Device& device_;
  const perfmodel::Gpu& gpu_;
  const CampaignOptions& options_;
  const StopFlag& stop_;
  std::vector<std::unique_ptr<FamilyRun>> runs_;
  Peaks peaks_;
};

}  // namespace

Result<CampaignReport> run_campaign(Device& device, const perfmodel::Gpu& gpu,
                                    const CampaignOptions& options, const StopFlag& stop) {
  return Campaign(device, gpu, options, stop).run();
}

double expected_seconds(const Case& point, double time_us, const MeasureOptions& options) {
  // Estimates, not measured: 4 ms of calls per point; memory allocated and filled at 500 GB/s; two
  // runs more to warm up and to check.
  const double repetitions =
      std::clamp(options.seconds * 1e6 / time_us, static_cast<double>(options.min_repetitions),
                 static_cast<double>(options.max_repetitions));
  return 0.004 + footprint_bytes(point) / 500e9 + (repetitions + 2) * time_us * 1e-6;
}

Limits limits_for(double memory_bytes) {
  constexpr double kUsable = 0.8;
  Limits limits;
  limits.bytes = std::min(limits.bytes, kUsable * memory_bytes);
  return limits;
}

}  // namespace kernels_bench
