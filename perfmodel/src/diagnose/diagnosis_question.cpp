#include "diagnosis_question.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/decimal_number.hpp"
#include "base/split.hpp"
#include "base/statistics.hpp"
#include "perfmodel/trace_analysis.hpp"
#include "step_log/step_log.hpp"

namespace perfmodel {
namespace {

constexpr FieldRange kAboveZero = {1e-9, 1e15}, kFromZero = {0, 1e15}, kPercent = {1e-3, 100};

constexpr DiagnosisField kFields[] = {
    {"measured", &DiagnosisAsk::measured,
     "Throughput of all GPUs: 6100tokens/s or 12.3samples/s, of one GPU as 760tokens/s/gpu; "
     "@batch=B,world=N if it is of another batch or number of GPUs; several narrow the cause down",
     "RATE"},
    {"measured_step", &DiagnosisAsk::measured_step,
     "Time of a step: 412ms, or 700ms@batch=64,world=16", "TIME"},
    {"log", &DiagnosisAsk::log, "Step times as the training program printed them", "FILE"},
    {"unit",
     &DiagnosisAsk::unit,
     "Of a log whose numbers have none",
     "UNIT",
     {},
     "us ms s",
     nullptr,
     "log"},
    {"work_per_step",
     &DiagnosisAsk::work_per_step,
     "Tokens of a GPU (torchtitan) or samples (DeepSpeed) of a step, for a log of rates without "
     "time stamps",
     "N",
     {1e-300, 1e300},
     {},
     nullptr,
     "log"},
    {"trace", &DiagnosisAsk::trace, "A Kineto trace of some steps: narrows the cause down by term",
     "FILE"},
    {"later_step_ms", &DiagnosisAsk::later_step_ms, "A step after the first hundred", "MS",
     kAboveZero},
    {"memory_gb", &DiagnosisAsk::memory_gb, "torch.cuda.max_memory_reserved() in 1e9 bytes", "GB",
     kAboveZero},
    {"clock_mhz", &DiagnosisAsk::clock_mhz, "SM clock while it trains", "MHZ", kAboveZero},
    {"power_w", &DiagnosisAsk::power_w, "What the board draws while it trains", "W", kAboveZero},
    {"link_gb_per_s", &DiagnosisAsk::link_gb_per_s, "What two GPUs of a node copy in one direction",
     "X", kAboveZero},
    {"network_gb_per_s", &DiagnosisAsk::network_gb_per_s, "What one NIC moves between two nodes",
     "X", kAboveZero},
    {"input_wait_ms", &DiagnosisAsk::input_wait_ms, "What a step waits for its data", "MS",
     kFromZero},
    {"busy_percent", &DiagnosisAsk::busy_percent, "Share of the step in which the GPU works", "P",
     kPercent},
    {"kernels_ms", &DiagnosisAsk::kernels_ms, "Sum of a step's kernels except collectives", "MS",
     kAboveZero},
    {"products_ms", &DiagnosisAsk::products_ms, "Sum of its matrix products and attention", "MS",
     kAboveZero},
    {"collectives_ms", &DiagnosisAsk::collectives_ms,
     "Collectives of a step while no other kernel runs", "MS", kFromZero},
    {"slowest_rank", &DiagnosisAsk::slowest_rank,
     "Kernel time of the slowest rank over the median rank's", "X", kAboveZero},
};

struct NumberFigure {
  std::optional<double> DiagnosisAsk::*number;
  RunMeasure what;
  double unit;  ///< factor from the number to the figure's
};
constexpr NumberFigure kNumbers[] = {{&DiagnosisAsk::later_step_ms, RunMeasure::kLaterStep, 1e3},
                                     {&DiagnosisAsk::memory_gb, RunMeasure::kMemory, 1e9},
                                     {&DiagnosisAsk::clock_mhz, RunMeasure::kClock, 1},
                                     {&DiagnosisAsk::power_w, RunMeasure::kPower, 1},
                                     {&DiagnosisAsk::link_gb_per_s, RunMeasure::kLink, 1},
                                     {&DiagnosisAsk::network_gb_per_s, RunMeasure::kNetwork, 1},
                                     {&DiagnosisAsk::input_wait_ms, RunMeasure::kInputWait, 1e3},
                                     {&DiagnosisAsk::busy_percent, RunMeasure::kBusy, 1e-2},
                                     {&DiagnosisAsk::kernels_ms, RunMeasure::kKernels, 1e3},
                                     {&DiagnosisAsk::products_ms, RunMeasure::kProducts, 1e3},
                                     {&DiagnosisAsk::collectives_ms, RunMeasure::kCollectives, 1e3},
                                     {&DiagnosisAsk::slowest_rank, RunMeasure::kSlowestRank, 1}};

// "12.3samples/s" -> 12.3 and its unit.
std::optional<std::pair<double, std::string_view>> number_and_unit(std::string_view text) {
  const std::size_t unit = text.find_first_not_of("0123456789.");
  double number = 0;
  if (unit == text.npos || !read_decimal(text.substr(0, unit), number) || !(number > 0)) return {};
  std::string_view name = text.substr(unit);
  if (name.starts_with(' ')) name.remove_prefix(1);
  return std::pair(number, name);
}

Unexpected expected(std::string_view what, std::string_view found) {
  return Unexpected{Error{.code = ErrorCode::kImpossible,
                          .message = fmt::format("expected {}, found {}", what, found)}};
}

// "batch=64,world=16"
Result<RunSetting> setting_of(std::string_view text) {
  RunSetting setting;
  for (const auto part : split(text, ',')) {
    const std::string_view word(part);
    const std::size_t equals = word.find('=');
    std::int64_t number = 0;
    const bool is_number =
        equals != word.npos && read_decimal(word.substr(equals + 1), number) && number > 0;
    if (is_number && word.starts_with("batch=")) {
      setting.batch = number;
    } else if (is_number && word.starts_with("world=")) {
      setting.world = number;
    } else {
      return expected("batch=B or world=N after @", word);
    }
  }
  return setting;
}

// The samples of all GPUs in a step of that setting.
double samples_at(const RunSetting& at, const RunModel& model) {
  const auto ratio = [](std::int64_t given, std::int64_t asked) {
    return given > 0 ? static_cast<double>(given) / static_cast<double>(asked) : 1.0;
  };
  const double ranks = model.batch_of_job ? 1 : ratio(at.world, model.setting.world);
  return model.samples * ratio(at.batch, model.setting.batch) * ranks;
}

Result<double> step_of_rate(std::string_view text, const RunSetting& at, const RunModel& model) {
  const auto rate = number_and_unit(text);
  constexpr std::string_view kRates = "a rate as 6100tokens/s or 12.3samples/s";
  if (!rate) return expected(kRates, text);
  auto [number, unit] = *rate;
  const auto world = static_cast<double>(at.world > 0 ? at.world : model.setting.world);
  if (unit.ends_with("/gpu")) {
    number *= world;
    unit.remove_suffix(4);
  }
  const double samples = samples_at(at, model);
  if (!(samples > 0))
    return expected("the time of a step, as the graph's batch is not known", text);
  if (unit == "samples/s" || unit == "sequences/s") return samples / number * 1e6;
  if (unit != "tokens/s") return expected(kRates, text);
  if (model.tokens > 0) return samples * model.tokens / model.samples / number * 1e6;
  return expected("samples/s, or --sequence (tokens of a sample)", text);
}

Result<double> step_of_time(std::string_view text, const RunSetting&, const RunModel&) {
  const auto us = read_duration_us(text);
  if (us) return *us;
  return expected("a time above 0 with its unit, as 5.1ms", text);
}

template <class Read>
Result<void> add_steps(const std::vector<std::string>& texts, const RunModel& model, Read read,
                       std::vector<RunFigure>& figures) {
  for (const std::string_view text : texts) {
    const std::size_t border = std::min(text.find('@'), text.size());
    const auto at = border < text.size() ? setting_of(text.substr(border + 1)) : RunSetting{};
    if (!at) return Unexpected{at.error()};
    const auto us = read(text.substr(0, border), *at, model);
    if (!us) return Unexpected{us.error()};
    figures.push_back({.value = *us, .at = *at});
  }
  return {};
}

double product_us(const TraceAnalysis& found) {
  double sum = 0;
  for (const TraceAnalysis::Op& op : found.ops) {
    const bool multiplies =
        op.category == "gemm" || op.category == "conv2d" || op.category == "attention";
    if (multiplies) sum += op.device_self_us;
  }
  return sum;
}

}  // namespace

std::span<const DiagnosisField> diagnosis_fields() { return kFields; }

std::optional<double> read_duration_us(std::string_view text) {
  const auto read = number_and_unit(text);
  if (!read) return std::nullopt;
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"us", 1}, {"µs", 1}, {"ms", 1e3}, {"s", 1e6}};
  for (const auto& [known, us] : kUnits) {
    if (read->second == known) return read->first * us;
  }
  return std::nullopt;
}

Result<std::vector<RunFigure>> asked_figures(const DiagnosisAsk& ask, const RunModel& model) {
  std::vector<RunFigure> figures;
  auto added = add_steps(ask.measured, model, step_of_rate, figures);
  if (added) added = add_steps(ask.measured_step, model, step_of_time, figures);
  if (!added) return Unexpected{added.error()};
  if (!ask.log.empty()) {
    const auto log = read_step_log(ask.log, {.unit = ask.unit, .work_per_step = ask.work_per_step});
    if (!log) return Unexpected{log.error()};
    if (log->steps.empty()) return expected("a log with steady steps", ask.log);
    figures.push_back({.what = RunMeasure::kLaterStep, .value = log->median_us(), .at = {}});
  }
  for (const auto& [number, what, unit] : kNumbers) {
    if (ask.*number) figures.push_back({.what = what, .value = *(ask.*number) * unit, .at = {}});
  }
  return figures;
}

Result<std::vector<RunFigure>> figures_of_trace(const Trace& trace, bool with_step) {
  const auto found = analyse(trace, {}, nullptr);
  if (!found) return Unexpected{found.error()};
  if (found->splits.empty()) {
    return expected("a trace that marks its steps (ProfilerStep#N)", "none");
  }
  using Split = TraceAnalysis::Split;
  const auto middle = [&](auto figure) {
    std::vector<double> values;
    for (const Split& one : found->splits) values.push_back(figure(one));
    return median_of(std::move(values));
  };
  const auto steps = static_cast<double>(found->splits.size());
  std::vector<RunFigure> figures = {
      {RunMeasure::kKernels,
       middle([](const Split& of) { return of.breakdown.compute_kernel_us; })},
      {RunMeasure::kCollectives,
       middle([](const Split& of) { return of.breakdown.exposed_comm_us; })},
      {RunMeasure::kInputWait, middle([](const Split& of) { return of.data_loader_us; })}};
  const double products = product_us(*found) / steps;
  if (products > 0) figures.push_back({RunMeasure::kProducts, products});
  if (!with_step) return figures;
  figures.push_back({RunMeasure::kStep, middle([](const Split& of) { return of.window_us; })});
  figures.push_back({RunMeasure::kBusy,
                     middle([](const Split& of) { return of.breakdown.busy_us / of.window_us; })});
  return figures;
}

}  // namespace perfmodel
