#include "diagnosis_question.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/duration_text.hpp"
#include "base/each_name.hpp"
#include "base/split.hpp"
#include "base/statistics.hpp"
#include "perfmodel/trace_analysis.hpp"
#include "step_log/step_log.hpp"

namespace perfmodel {
namespace {

constexpr FieldRange kAboveZero = {1e-9, 1e15}, kFromZero = {0, 1e15}, kPercent = {1e-3, 100};

constexpr DiagnosisField kDiagnosisFields[] = {
    {"measured", &DiagnosisAsk::measured,
     "Throughput of all GPUs: 6100tokens/s or 12.3samples/s, of one GPU as 760tokens/s/gpu; "
     "@batch=B,world=N,tp=T,pp=P,micro-batch=M for another run of the same machine, in what it "
     "differs; several narrow the cause down",
     "RATE"},
    {"measured_step", &DiagnosisAsk::measured_step,
     "Time of a step: 412ms, or 700ms@batch=64,world=16", "TIME"},
    {"log", &DiagnosisAsk::log, "Step times as the training program printed them", "FILE"},
    {"unit", &DiagnosisAsk::unit, "Of a log whose numbers have none", "UNIT", FieldRange{},
     "us ms s", nullptr, "log"},
    {"work_per_step", &DiagnosisAsk::work_per_step,
     "Tokens of a GPU (torchtitan) or samples (DeepSpeed) of a step, for a log of rates without "
     "time stamps",
     "N", FieldRange{1e-300, 1e300}, "", nullptr, "log"},
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

Unexpected expected(std::string_view what, std::string_view found) {
  return decline(fmt::format("expected {}, found {}", what, found));
}

constexpr std::pair<std::string_view, std::int64_t RunSetting::*> kParts[] = {
    PERFMODEL_FIELDS(RunSetting, batch, world, tp, pp), {"micro-batch", &RunSetting::micro_batch}};

// "batch=64,world=16"; what the run has itself makes no other setting.
Result<RunSetting> setting_of(std::string_view text, const RunSetting& own) {
  RunSetting setting;
  std::set<std::string_view> given;
  for (const auto part : split(text, ',')) {
    const std::string_view word(part);
    const std::size_t equals = word.find('=');
    std::int64_t number = 0;
    const bool is_number =
        equals != word.npos && read_decimal(word.substr(equals + 1), number) && number > 0;
    const auto* const named = std::ranges::find(kParts, word.substr(0, equals),
                                                [](const auto& one) { return one.first; });
    if (!is_number || named == std::end(kParts)) {
      return expected("batch=B, world=N, tp=T, pp=P or micro-batch=M after @", word);
    }
    if (!given.insert(named->first).second) return expected("each word once after @", text);
    setting.*(named->second) = number == own.*(named->second) ? 0 : number;
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
    PERFMODEL_TRY(at, border < text.size() ? setting_of(text.substr(border + 1), model.setting)
                                           : RunSetting{});
    PERFMODEL_TRY(us, read(text.substr(0, border), *at, model));
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

std::span<const DiagnosisField> diagnosis_fields() { return kDiagnosisFields; }

Result<AskedFigures> asked_figures(const DiagnosisAsk& ask, const RunModel& model) {
  AskedFigures made;
  std::vector<RunFigure>& figures = made.figures;
  auto added = add_steps(ask.measured, model, step_of_rate, figures);
  if (added) added = add_steps(ask.measured_step, model, step_of_time, figures);
  if (!added) return Unexpected{added.error()};
  if (!ask.log.empty()) {
    PERFMODEL_TRY(log,
                  read_step_log(ask.log, {.unit = ask.unit, .work_per_step = ask.work_per_step}));
    if (log->steps.empty()) return expected("a log with steady steps", ask.log);
    figures.push_back({.what = RunMeasure::kLaterStep, .value = log->median_us(), .at = {}});
    made.warnings = log->warnings;
  }
  for (const auto& [number, what, unit] : kNumbers) {
    if (ask.*number) figures.push_back({.what = what, .value = *(ask.*number) * unit, .at = {}});
  }
  return made;
}

Result<std::vector<RunFigure>> figures_of_trace(const Trace& trace, bool with_step) {
  PERFMODEL_TRY(found, analyse(trace, {}, nullptr));
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
