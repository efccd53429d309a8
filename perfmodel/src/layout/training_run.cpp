#include "layout/training_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/decimal_number.hpp"
#include "files/json_file.hpp"
#include "layout/step_bytes.hpp"

namespace perfmodel {
namespace {

constexpr double kHour = 3600, kDay = 24 * kHour;
constexpr FieldRange kPositive = {1e-9, 1e15};

constexpr TrainingRunField kRunFields[] = {
    {"tokens", &TrainingRunAsk::tokens, "Tokens of the whole run: its days, GPU hours, energy",
     "N[K|M|G|B|T]"},
    {"samples", &TrainingRunAsk::samples, "Sequences of an epoch, instead of --tokens",
     "N[K|M|G|B|T]"},
    {"epochs",
     &TrainingRunAsk::epochs,
     "Passes over --samples (1)",
     "X",
     kPositive,
     {},
     {},
     "samples"},
    {"deadline", &TrainingRunAsk::deadline,
     "The fewest GPUs that are done by then, up to --world; or whether --world is", "N(d|h|min)"},
    {"usd_per_gpu_hour", &TrainingRunAsk::usd_per_gpu_hour,
     "What a GPU costs, or a JSON file of prices by GPU: {\"H100\": 2.5}", "X|FILE"},
    {"storage_gb_per_s", &TrainingRunAsk::storage_gb_per_s,
     "Checkpoints go to storage of this rate, all ranks together", "X", kPositive},
    {"mtbf_hours_per_gpu",
     &TrainingRunAsk::mtbf_hours_per_gpu,
     "Mean time between failures of one GPU and what belongs to it",
     "X",
     kPositive,
     {},
     {},
     "storage_gb_per_s"},
    {"restart_s",
     &TrainingRunAsk::restart_s,
     "From a failure to the next step (0)",
     "X",
     {0, 1e9},
     {},
     {},
     "mtbf_hours_per_gpu"},
};

struct Unit {
  std::string_view name;
  double factor;
};
constexpr Unit kCounts[] = {{"", 1}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"B", 1e9}, {"T", 1e12}};
constexpr Unit kTimes[] = {{"d", kDay}, {"h", kHour}, {"min", 60}};

// A number above 0 with its unit; `flag` and `wanted` for the error.
Result<double> read_quantity(const std::string& text, std::span<const Unit> units,
                             std::string_view flag, std::string_view wanted) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789.e+-"), text.size());
  const auto unit = std::ranges::find(units, std::string_view(text).substr(digits), &Unit::name);
  double number = 0;
  const bool is_read = unit != units.end() &&
                       read_decimal(std::string_view(text).substr(0, digits), number) &&
                       number > 0 && std::isfinite(number * unit->factor);
  if (is_read) return number * unit->factor;
  return decline(fmt::format("{}: expected {}, found \"{}\"", flag, wanted, text));
}

Result<double> read_count(const std::string& text, std::string_view flag) {
  return read_quantity(text, kCounts, flag, "a count above 0, with K, M, G, B or T if it is large");
}

// Tokens of the run, from the samples if those are given.
Result<double> tokens_of(const TrainingRunAsk& ask, std::int64_t sequence) {
  if (ask.samples.empty()) return read_count(ask.tokens, "--tokens");
  if (!ask.tokens.empty()) {
    return decline("expected --tokens or --samples, found both");
  }
  return read_count(ask.samples, "--samples").map([&](double samples) {
    return samples * ask.epochs.value_or(1) * static_cast<double>(sequence);
  });
}

TimeRange scaled(const TimeRange& range, double factor) {
  return {range.low * factor, range.expected * factor, range.high * factor};
}

OrderedJson range_json(const TimeRange& range) {
  return {{"expected", six_digits(range.expected)},
          {"low", six_digits(range.low)},
          {"high", six_digits(range.high)}};
}

}  // namespace

Result<double> gpu_price(const std::string& text, const std::string& gpu) {
  double price = 0;
  if (read_decimal(text, price)) {
    if (price > 0 && std::isfinite(price)) return price;
    return decline(fmt::format("--usd-per-gpu-hour: expected a price above 0, found {}", text));
  }
  return read_json_file(text, "file of prices", [&](const Json& json, std::optional<Error>& error) {
    ObjectReader reader(json, "", error);
    const double found = reader.positive(gpu.c_str());
    for (const auto& [other, value] : json.items()) {
      if (other != gpu) reader.positive(other.c_str());
    }
    reader.finish();
    return found;
  });
}

std::span<const TrainingRunField> training_run_fields() { return kRunFields; }

Result<TrainingRunQuestion> training_run_question(const TrainingRunAsk& ask, const LayoutJob& job,
                                                  const std::string& gpu, double gpu_power_w) {
  TrainingRunQuestion run{.gpu_power_w = gpu_power_w};
  if (ask.tokens.empty() && ask.samples.empty()) {
    const char* other = !ask.deadline.empty()           ? "--deadline"
                        : !ask.usd_per_gpu_hour.empty() ? "--usd-per-gpu-hour"
                        : ask.storage_gb_per_s          ? "--storage-gb-per-s"
                                                        : nullptr;
    if (!other) return run;
    return decline(
        fmt::format("{}: expected --tokens or --samples of the run too, found none", other));
  }
  PERFMODEL_TRY(tokens, tokens_of(ask, job.sequence));
  run.tokens = *tokens;
  if (!ask.deadline.empty()) {
    PERFMODEL_TRY(deadline, read_quantity(ask.deadline, kTimes, "--deadline",
                                          "a time like 30d, 12h or 90min"));
    run.deadline_s = *deadline;
  }
  if (!ask.usd_per_gpu_hour.empty()) {
    PERFMODEL_TRY(price, gpu_price(ask.usd_per_gpu_hour, gpu));
    run.usd_per_gpu_hour = *price;
  }
  if (ask.storage_gb_per_s && job.lora_rank > 0) {
    return decline("--storage-gb-per-s: expected a job in which all weights learn, found adapters");
  }
  run.storage_bytes_per_s = ask.storage_gb_per_s.value_or(0) * 1e9;
  if (ask.mtbf_hours_per_gpu) run.gpu_failures_per_s = 1 / (*ask.mtbf_hours_per_gpu * kHour);
  run.restart_s = ask.restart_s.value_or(0);
  return run;
}

CheckpointPlan checkpoint_plan(double bytes, std::int64_t gpus, const TrainingRunQuestion& run) {
  CheckpointPlan plan{.bytes = bytes, .bytes_per_rank = bytes / static_cast<double>(gpus)};
  plan.stall_s = bytes / run.storage_bytes_per_s;
  if (run.gpu_failures_per_s == 0) return plan;
  const double mtbf = 1 / (run.gpu_failures_per_s * static_cast<double>(gpus));
  const double part = std::sqrt(plan.stall_s / (2 * mtbf));
  plan.interval_s = plan.stall_s < 2 * mtbf
                        ? 2 * mtbf * part * (1 + part / 3 + part * part / 9) - plan.stall_s
                        : mtbf;
  plan.goodput = *plan.interval_s / (mtbf * std::exp(run.restart_s / mtbf) *
                                     std::expm1((*plan.interval_s + plan.stall_s) / mtbf));
  return plan;
}

TrainingRun training_run(const TrainingRunQuestion& question, const LayoutJob& job,
                         const RankedLayout& ranked) {
  TrainingRun run;
  run.steps = std::ceil(question.tokens / (static_cast<double>(job.global_batch) *
                                           static_cast<double>(job.sequence)));
  const std::int64_t gpus = ranked.layout.gpus();
  if (question.storage_bytes_per_s > 0) {
    run.checkpoints = checkpoint_plan(checkpoint_bytes(job), gpus, question);
  }
  const double goodput = run.checkpoints ? run.checkpoints->goodput : 1;
  const LayoutPrediction& step = ranked.prediction;
  const TimeRange hours =
      scaled({step.low_ms, step.step_ms, step.high_ms}, run.steps * 1e-3 / kHour / goodput);
  run.days = scaled(hours, kHour / kDay);
  run.gpu_hours = scaled(hours, static_cast<double>(gpus));
  run.mwh = scaled(run.gpu_hours, question.gpu_power_w * 1e-6);
  if (question.usd_per_gpu_hour) run.usd = scaled(run.gpu_hours, *question.usd_per_gpu_hour);
  if (question.deadline_s) run.deadline_days = *question.deadline_s / kDay;
  return run;
}

OrderedJson training_run_json(const TrainingRun& run) {
  OrderedJson json = {{"steps", run.steps},
                      {"days", range_json(run.days)},
                      {"gpu_hours", range_json(run.gpu_hours)},
                      {"mwh_at_power_limit", range_json(run.mwh)}};
  if (run.usd) json["usd"] = range_json(*run.usd);
  if (run.deadline_days) {
    json["deadline_days"] = six_digits(*run.deadline_days);
    json["meets_deadline"] = run.meets_deadline();
  }
  if (run.checkpoints) {
    const CheckpointPlan& plan = *run.checkpoints;
    json["checkpoints"] = {
        {"gb", six_digits(plan.bytes / 1e9)},
        {"gb_per_rank", six_digits(plan.bytes_per_rank / 1e9)},
        {"stall_s", six_digits(plan.stall_s)},
        {"interval_s",
         plan.interval_s ? OrderedJson(six_digits(*plan.interval_s)) : OrderedJson(nullptr)},
        {"goodput", six_digits(plan.goodput)}};
  }
  return json;
}

}  // namespace perfmodel
