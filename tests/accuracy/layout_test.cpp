// Training steps and memory of layouts against public measurements. data/frameworks/*.json and
// docs/parallel.md say what was fitted on which rows; asserted limits are for judged rows unless a
// test's name says otherwise.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <tuple>

#include "../scratch.hpp"
#include "accuracy_support.hpp"
#include "diagnose/diagnosis_results.hpp"
#include "diagnose/run_models.hpp"
#include "json/csv_file.hpp"
#include "perfmodel/layout.hpp"
#include "training_rows.hpp"

namespace perfmodel {
namespace layout_test {

using accuracy::Errors;
using accuracy::measured_cases;
using accuracy::measured_rows;
using accuracy::public_data;

const Predictor& predictor() {
  static const Predictor made =
      Predictor::load(
          {.data = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data",
           .gpus = {"a100-sxm-80gb", "a100-sxm-40gb", "h100-sxm-80gb", "b200-sxm-180gb", "gb200"}})
          .value();
  return made;
}

const LayoutPricer& pricer(const std::string& gpu, const std::string& topology = "") {
  static std::map<std::string, LayoutPricer> made;
  const auto known = made.find(gpu + " " + topology);
  if (known != made.end()) return known->second;
  auto one = LayoutPricer::make(predictor(), {.gpu = gpu, .topology = topology});
  return made.emplace(gpu + " " + topology, std::move(one.value())).first->second;
}

LayoutPrediction predicted(const LayoutPricer& on, const LayoutJob& job,
                           const ParallelLayout& layout) {
  auto made = on.predict(job, layout);
  EXPECT_TRUE(made) << to_string(made.error());
  return made ? *made : LayoutPrediction{};
}

// --- nanotron: 1B and 8B on 8 to 512 H100 --------------------------------------------------------

struct NanotronRun {
  std::string model, zero;
  std::int64_t nodes = 0, accumulation = 0;
  LayoutJob job;
  ParallelLayout layout;
  bool ran = false;
  double step_ms = 0, memory_gb = 0;

  /// Half of the rows: bit 32 of FNV-1a over "model,gpus,dp,tp,pp,zero,micro_batch".
  bool is_judged() const {
    const std::string text = model + "," + std::to_string(layout.gpus()) + "," +
                             std::to_string(layout.dp) + "," + std::to_string(layout.tp) + "," +
                             std::to_string(layout.pp) + "," + zero + "," +
                             std::to_string(layout.micro_batch);
    std::uint64_t hash = 1469598103934665603U;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
    return (hash >> 32) % 2 == 1;
  }
  std::string twin() const {
    return model + " " + std::to_string(layout.dp) + " " + std::to_string(layout.tp) + " " +
           std::to_string(layout.pp) + " " + std::to_string(layout.micro_batch);
  }
};

std::vector<NanotronRun> nanotron_runs() {
  auto csv = CsvFile::open(*public_data() / "scaling" / "h100_runs.csv").value();
  std::vector<NanotronRun> runs;
  while (csv.next()) {
    const auto cell = [&](const char* name) { return std::string(csv.cell(csv.column(name))); };
    const auto whole = [&](const char* name) { return std::stoll(cell(name)); };
    NanotronRun run;
    run.model = cell("model");
    run.zero = cell("zero");
    run.nodes = whole("nodes");
    run.accumulation = whole("accumulation");
    run.ran = cell("status") == "ran";
    const bool small = run.model == "1B";
    run.job.model = {.name = run.model,
                     .layers = small ? 16 : 32,
                     .hidden = small ? 2048 : 4096,
                     .heads = 32,
                     .feed_forward = small ? 8192 : 14336,
                     .vocabulary = 131072,
                     .tied = small};
    run.job.sequence = whole("sequence");
    run.job.global_batch = whole("global_batch");
    run.job.software = "nanotron";
    run.layout.dp = whole("dp");
    run.layout.tp = whole("tp");
    run.layout.pp = whole("pp");
    run.layout.micro_batch = whole("micro_batch");
    run.layout.zero = run.zero == "1" ? Sharding::kZero1 : Sharding::kNone;
    run.layout.sequence_parallel = true;
    if (run.ran) {
      run.step_ms = std::stod(cell("step_ms"));
      run.memory_gb = std::stod(cell("memory_gb"));
    }
    runs.push_back(std::move(run));
  }
  return runs;
}

const LayoutPrediction& predicted(const NanotronRun& run) {
  static std::map<std::string, LayoutPrediction> known;
  const std::string key = run.twin() + " " + run.zero;
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  return known.emplace(key, predicted(pricer("h100-sxm-80gb"), run.job, run.layout)).first->second;
}

/// A simple formula for comparison: 12 constants, the logarithm of the step is linear in the
/// logarithms of the sizes.
class LogLinearFormula {
 public:
  explicit LogLinearFormula(const std::vector<NanotronRun>& runs) {
    std::vector<std::vector<double>> rows;
    std::vector<double> logs;
    for (const NanotronRun& run : runs) {
      if (!run.ran || run.is_judged()) continue;
      rows.push_back(features(run));
      logs.push_back(std::log(run.step_ms));
    }
    weights_ = accuracy::least_squares(rows, logs);
  }
  double step_ms(const NanotronRun& run) const {
    const std::vector<double> x = features(run);
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += weights_[i] * x[i];
    return std::exp(sum);
  }

 private:
  static std::vector<double> features(const NanotronRun& run) {
    const auto log = [](std::int64_t n) { return std::log(static_cast<double>(n)); };
    const ParallelLayout& l = run.layout;
    const bool piped = l.pp > 1;
    return {1,
            run.model == "8B" ? 1.0 : 0.0,
            log(run.nodes),
            log(l.tp),
            log(l.pp),
            log(l.micro_batch),
            log(run.accumulation),
            piped ? 1.0 : 0.0,
            l.tp > 8 ? 1.0 : 0.0,
            piped ? log(l.tp) : 0.0,
            piped ? log(run.nodes) : 0.0,
            run.zero == "1" ? 1.0 : 0.0};
  }
  std::vector<double> weights_;
};

/// FLOP over the peak.
double roofline_ms(const NanotronRun& run) {
  const double tokens = static_cast<double>(run.job.global_batch * run.job.sequence);
  return tokens * model_flop_per_token(run.job.model, run.job.sequence) /
         static_cast<double>(run.layout.gpus()) / 989e12 * 1e3;
}

TEST(NanotronRuns, StepTimes) {
  if (!public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const std::vector<NanotronRun> runs = nanotron_runs();
  const LogLinearFormula formula(runs);
  std::vector<double> ratios;
  for (const NanotronRun& run : runs) {
    if (run.ran && !run.is_judged()) ratios.push_back(run.step_ms / roofline_ms(run));
  }
  const double constant = accuracy::median(ratios);
  std::map<std::string, Errors> groups;
  std::map<std::string, double> first_twin;
  std::map<std::string, std::vector<double>> twins;
  for (const NanotronRun& run : runs) {
    if (!run.ran) continue;
    const auto [twin, is_new] = first_twin.try_emplace(run.twin(), run.step_ms);
    if (!is_new) {
      const double spread = std::abs(run.step_ms / twin->second - 1);
      twins["nodes " + std::to_string(run.nodes)].push_back(spread);
      twins["all"].push_back(spread);
    }
    const double ms = predicted(run).step_ms;
    groups[run.is_judged() ? "judged" : "calibration"].add(ms, run.step_ms);
    if (!run.is_judged()) continue;
    groups["12 constants"].add(formula.step_ms(run), run.step_ms);
    groups["roofline x constant"].add(constant * roofline_ms(run), run.step_ms);
    groups[run.model].add(ms, run.step_ms);
    groups["nodes " + std::to_string(run.nodes)].add(ms, run.step_ms);
    groups["tp " + std::to_string(run.layout.tp)].add(ms, run.step_ms);
    groups["pp " + std::to_string(run.layout.pp)].add(ms, run.step_ms);
    if (run.nodes <= 4 && run.layout.tp <= 8) groups["1-4 nodes, tp <= 8"].add(ms, run.step_ms);
  }
  for (const auto& [name, errors] : groups) errors.print(name);
  for (const auto& [name, spreads] : twins) {
    std::printf("twins that differ in ZeRO alone, %-9s %3zu  median %.1f %%\n", name.c_str(),
                spreads.size(), 100 * accuracy::median(spreads));
  }
  ASSERT_EQ(groups["judged"].size() + groups["calibration"].size(), 515U);
  EXPECT_LT(groups["judged"].median(), 14);
  EXPECT_GT(groups["judged"].share_within(15), 0.5);
  EXPECT_LT(groups["1-4 nodes, tp <= 8"].median(), 8);
  EXPECT_LT(groups["judged"].median(), groups["12 constants"].median());
  EXPECT_LT(groups["judged"].median(), groups["roofline x constant"].median());
}

/// Ten rows of the calibration half of a model, evenly spread in file order.
std::vector<MeasuredStep> ten_steps(const std::vector<NanotronRun>& runs, const std::string& model,
                                    const std::string& software, bool on_few_nodes) {
  std::vector<const NanotronRun*> rows;
  for (const NanotronRun& run : runs) {
    if (!run.ran || run.is_judged() || run.model != model) continue;
    if (on_few_nodes && (run.nodes > 4 || run.layout.tp > 8)) continue;
    rows.push_back(&run);
  }
  std::vector<MeasuredStep> steps;
  for (std::size_t i = 0; i < 10; ++i) {
    const NanotronRun& run = *rows[i * rows.size() / 10];
    MeasuredStep step{.job = run.job, .layout = run.layout, .step_ms = run.step_ms};
    step.job.software = software;
    steps.push_back(std::move(step));
  }
  return steps;
}

TEST(NanotronRuns, CalibratedOnTenStepsOfEachModel) {
  if (!public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const std::vector<NanotronRun> runs = nanotron_runs();
  std::map<std::string, Errors> groups;
  for (const std::string& software : {std::string("megatron"), std::string("nanotron")}) {
    for (const std::string& model : {std::string("1B"), std::string("8B")}) {
      const LayoutPricer& before = pricer("h100-sxm-80gb");
      const LayoutPricer all = before.measured(ten_steps(runs, model, software, false)).value();
      const LayoutPricer few = before.measured(ten_steps(runs, model, software, true)).value();
      for (const NanotronRun& run : runs) {
        if (!run.ran || !run.is_judged() || run.model != model) continue;
        LayoutJob job = run.job;
        job.software = software;
        const std::string name = software + ", " + model;
        const auto add = [&](const std::string& what, const LayoutPricer& on) {
          groups[name + ", " + what].add(predicted(on, job, run.layout).step_ms, run.step_ms);
        };
        add("all nodes, before", before);
        add("all nodes, after", all);
        if (run.nodes > 4 || run.layout.tp > 8) continue;
        add("1-4 nodes, tp <= 8, before", before);
        add("1-4 nodes, tp <= 8, after", few);
      }
    }
  }
  for (const auto& [name, errors] : groups) errors.print(name);
  // A program that was fitted to no run gains most; one that was fitted to 259 has little to learn
  // from ten.
  for (const std::string model : {"1B", "8B"}) {
    const std::string name = "megatron, " + model + ", ";
    EXPECT_LT(groups[name + "all nodes, after"].median(),
              groups[name + "all nodes, before"].median());
    // On few nodes, where few runs are bad, ten help a fitted program, too.
    const std::string few = "nanotron, " + model + ", 1-4 nodes, tp <= 8, ";
    EXPECT_LT(groups[few + "after"].median(), groups[few + "before"].median());
  }
}

std::string causes_alike(const RunDiagnosis& found) {
  std::string names;
  for (std::size_t i = 0; i < std::max<std::size_t>(1, found.alike); ++i) {
    names += (names.empty() ? "" : " or ") + std::string(found.causes[i].name);
  }
  return names;
}

RunFigure step_of(const NanotronRun& run, const RunSetting& at) {
  return {.value = run.step_ms * 1e3, .at = at};
}

/// A run's step and memory, and steps of its neighbours on the same machine: the same layout on
/// other numbers of nodes, and the first three other layouts on as many.
std::vector<RunFigure> figures_with_neighbours(const NanotronRun& run,
                                               const std::vector<NanotronRun>& runs) {
  constexpr int kOtherLayouts = 3;
  std::vector<RunFigure> figures = {step_of(run, {}), {RunMeasure::kMemory, run.memory_gb * 1e9}};
  int others = 0;
  for (const NanotronRun& one : runs) {
    if (!one.ran || one.model != run.model || one.zero != run.zero || one.twin() == run.twin()) {
      continue;
    }
    const ParallelLayout &a = one.layout, &b = run.layout;
    const bool same_layout = a.tp == b.tp && a.pp == b.pp && a.micro_batch == b.micro_batch;
    if (same_layout) {
      figures.push_back(step_of(one, {.world = a.gpus()}));
    } else if (one.nodes == run.nodes && one.job.global_batch == run.job.global_batch &&
               others++ < kOtherLayouts) {
      figures.push_back(step_of(one, {.tp = a.tp, .pp = a.pp, .micro_batch = a.micro_batch}));
    }
  }
  return figures;
}

/// The likely causes are trouble of the run alone, or a wrong prediction.
bool is_of_this_run(const RunDiagnosis& found) {
  const auto likely = std::span(found.causes).first(std::max<std::size_t>(1, found.alike));
  return std::ranges::all_of(likely, [](const CauseFinding& one) {
    return one.name == "this-run" || one.name == "prediction";
  });
}

// Runs that took several times as long as predicted; the source does not say why. Their step and
// memory leave several causes; runs of the same machine rule all out that would slow them, too.
TEST(NanotronRuns, DiagnosesStepsThatTookSeveralTimesAsLong) {
  if (!public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  constexpr double kSeveral = 3;
  constexpr int kMostRows = 4;  // seconds each
  const std::vector<NanotronRun> runs = nanotron_runs();
  int rows = 0, clear = 0;
  for (const NanotronRun& run : runs) {
    if (!run.ran || run.nodes == 1 || rows >= kMostRows) continue;
    const double times = run.step_ms / predicted(run).step_ms;
    if (times < kSeveral) continue;
    const auto model = layout_run_model(predictor(), {.gpu = "h100-sxm-80gb"}, run.job, run.layout);
    ASSERT_TRUE(model) << to_string(model.error());
    const auto figures = figures_with_neighbours(run, runs);
    const auto alone = diagnose(*model, std::span(figures).first(2));
    const auto found = diagnose(*model, figures);
    ASSERT_TRUE(alone && found) << to_string((found ? alone : found).error());
    ++rows;
    EXPECT_FALSE(alone->is_normal || found->is_normal) << run.twin();
    EXPECT_TRUE(alone->alike > 1 || alone->causes.front().name == "prediction") << run.twin();
    // No cause of the machine is left.
    EXPECT_TRUE(is_of_this_run(*found)) << verdict_words(*found);
    clear += found->alike == 1 && found->causes.front().name == "this-run";
    std::printf(
        "%s on %lld nodes, %.1f times as predicted: %s\n  with %zu other runs: %s (%.0f %%)\n",
        run.twin().c_str(), static_cast<long long>(run.nodes), times, verdict_words(*alone).c_str(),
        figures.size() - 2, verdict_words(*found).c_str(), 100 * found->causes.front().probability);
  }
  EXPECT_EQ(rows, kMostRows);
  EXPECT_GE(clear, kMostRows / 2);
}

TEST(NanotronRuns, MemoryAndFits) {
  if (!public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::map<std::string, Errors> groups;
  double ran = 0, ran_fits = 0, failed = 0, failed_does_not = 0, unexplained = 0;
  for (const NanotronRun& run : nanotron_runs()) {
    const LayoutPrediction& made = predicted(run);
    if (run.ran) {
      const std::string half = run.is_judged() ? "judged" : "calibration";
      groups[half].add(made.reserved_bytes * 1e-9, run.memory_gb);
      groups["tp " + std::to_string(run.layout.tp)].add(made.reserved_bytes * 1e-9, run.memory_gb);
    }
    unexplained += !run.ran && made.reserved_bytes < 0.5 * made.device_bytes ? 1 : 0;
    if (!run.is_judged()) continue;
    (run.ran ? ran : failed) += 1;
    if (run.ran) ran_fits += made.fits ? 1 : 0;
    if (!run.ran) failed_does_not += made.fits ? 0 : 1;
  }
  for (const auto& [name, errors] : groups) errors.print("memory, " + name);
  const double fits = ran_fits / ran, does_not = failed_does_not / failed;
  std::printf(
      "judged: %.1f %% of runs that ran fit, %.1f %% of failures do not, balanced %.1f %%\n",
      100 * fits, 100 * does_not, 50 * (fits + does_not));
  std::printf("%.0f of 301 failures need less than half of the card as predicted\n", unexplained);
  EXPECT_LT(groups["judged"].median(), 8);
  EXPECT_GT(fits, 0.95);
  EXPECT_GT(0.5 * (fits + does_not), 0.86);
}

TEST(NanotronRuns, TheLayoutRankedFirstLosesLittle) {
  if (!public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  struct Best {
    double predicted = 1e300, its_measured = 0, measured = 1e300;
  };
  std::map<std::string, Best> groups;
  for (const NanotronRun& run : nanotron_runs()) {
    if (!run.ran) continue;
    Best& best = groups[run.model + " on " + std::to_string(run.nodes) + " nodes"];
    best.measured = std::min(best.measured, run.step_ms);
    if (predicted(run).step_ms >= best.predicted) continue;
    best.predicted = predicted(run).step_ms;
    best.its_measured = run.step_ms;
  }
  std::vector<double> regrets;
  for (const auto& [name, best] : groups) {
    regrets.push_back(best.its_measured / best.measured - 1);
    std::printf("regret, %-15s %5.1f %%\n", name.c_str(), 100 * regrets.back());
  }
  EXPECT_EQ(regrets.size(), 14U);
  EXPECT_LT(accuracy::median(regrets), 0.12);
}

// --- Megatron, DeepSpeed, FSDP on A100 and H100 --------------------------------------------------

/// GPT with learned positions, biases, GELU and layer norms, tied embeddings.
DecoderModel gpt_like(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                      std::int64_t sequence, std::int64_t vocabulary) {
  return {.name = "gpt",
          .layers = layers,
          .hidden = hidden,
          .heads = heads,
          .feed_forward = 4 * hidden,
          .vocabulary = vocabulary,
          .positions = sequence,
          .gated = false,
          .tied = true,
          .biases = true,
          .rms_norm = false,
          .activation = DecoderModel::Activation::kGelu};
}

/// fp16 with eager attention, dropout and full recomputation.
LayoutJob megatron_job(DecoderModel model, std::int64_t sequence, std::int64_t global_batch,
                       const std::string& software) {
  LayoutJob job;
  job.model = std::move(model);
  job.sequence = sequence;
  job.global_batch = global_batch;
  job.precision = LayoutJob::Precision::kFp16;
  job.attention = LayoutJob::Attention::kEager;
  job.dropout = 0.1;
  job.software = software;
  return job;
}

MeasuredStep vtrain_step(const nlohmann::json& row) {
  MeasuredStep step;
  step.job = megatron_job(gpt_like(row["layers"], row["hidden"], row["heads"], row["seq"], 50257),
                          row["seq"], row["global_batch"], "megatron-deepspeed");
  step.job.fp32_gradients = false;
  step.layout.dp = row["dp"];
  step.layout.tp = row["tp"];
  step.layout.pp = row["pp"];
  step.layout.micro_batch = row["micro_batch"];
  step.layout.recompute = LayoutRecompute::kFull;
  step.step_ms = row["iteration_ms"];
  return step;
}

double vtrain_ms(const nlohmann::json& row, const LayoutPricer& on) {
  const MeasuredStep step = vtrain_step(row);
  return predicted(on, step.job, step.layout).step_ms;
}

/// FLOP of a row with full recomputation (Narayanan 2021) over the peak of its GPUs.
double vtrain_peak_ms(const nlohmann::json& row) {
  const double h = row["hidden"], s = row["seq"], layers = row["layers"];
  const double sequences = row["global_batch"];
  const double flop =
      96 * sequences * s * layers * h * h * (1 + s / (6 * h) + 50257 / (16 * layers * h));
  return flop / row["gpus"].get<double>() / 312e12 * 1e3;
}

TEST(VtrainRuns, SingleNode) {
  const auto rows = measured_rows("vtrain_a100_single_node.json");
  if (rows.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::map<std::string, Errors> groups;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    const double ms = vtrain_ms(row, pricer("a100-sxm-80gb"));
    for (const std::string& group :
         {std::string("all"), std::string(i % 2 ? "odd rows (judged)" : "even rows (chosen on)"),
          "tp " + row["tp"].dump(), "pp " + row["pp"].dump(), "hidden " + row["hidden"].dump()}) {
      groups[group].add(ms, row["iteration_ms"]);
    }
    groups["FLOP over the peak"].add(vtrain_peak_ms(row), row["iteration_ms"]);
  }
  for (const auto& [name, errors] : groups) errors.print("vTrain, " + name);
  ASSERT_EQ(groups["all"].size(), 216U);
  EXPECT_LT(groups["odd rows (judged)"].mape(), 7.2);  // vTrain itself 8.37, Calculon 38.9
  EXPECT_LT(groups["all"].mape(), 7.5);
  EXPECT_GT(groups["FLOP over the peak"].mape(), 2 * groups["all"].mape());
}

// The deviations of effects (step_calibration.cpp) are those under which the even rows are
// likeliest.
TEST(VtrainRuns, CalibratedOnEvenRows) {
  const auto rows = measured_rows("vtrain_a100_single_node.json");
  if (rows.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::vector<MeasuredStep> even;
  for (std::size_t i = 0; i < rows.size(); i += 2) even.push_back(vtrain_step(rows[i]));
  const auto calibrated = pricer("a100-sxm-80gb").measured(even);
  ASSERT_TRUE(calibrated) << to_string(calibrated.error());
  std::map<std::string, Errors> groups;
  std::size_t in_range = 0, odd = 0;
  for (std::size_t i = 1; i < rows.size(); i += 2) {
    const auto& row = rows[i];
    const MeasuredStep step = vtrain_step(row);
    const LayoutPrediction made = predicted(*calibrated, step.job, step.layout);
    const bool is_known = std::ranges::any_of(even, [&](const MeasuredStep& one) {
      return one.job.model.hidden == step.job.model.hidden && one.layout.tp == step.layout.tp &&
             one.layout.micro_batch == step.layout.micro_batch;
    });
    groups["odd rows"].add(made.step_ms, step.step_ms);
    groups[is_known ? "odd rows, layers measured" : "odd rows, layers not measured"].add(
        made.step_ms, step.step_ms);
    ++odd;
    in_range += made.low_ms <= step.step_ms && step.step_ms <= made.high_ms ? 1 : 0;
  }
  for (const auto& [name, errors] : groups) errors.print("vTrain by its even rows, " + name);
  std::printf("vTrain by its even rows: %.0f %% of odd rows in range (80 meant)\n",
              100.0 * static_cast<double>(in_range) / static_cast<double>(odd));
  ASSERT_EQ(groups["odd rows"].size(), 108U);
  EXPECT_LT(groups["odd rows"].mape(), 3.2);
  EXPECT_LT(groups["odd rows, layers measured"].mape(), 2.3);
  EXPECT_GT(in_range, 0.7 * static_cast<double>(odd));
}

// vTrain states 800 Gb/s per node: four NICs of the DGX A100. Its NCCL is older than 2.27
// (docs/collectives.md); it is taken for NCCL 2.14, whose two nodes gain nothing from trees.
LayoutMachine vtrain_machine() {
  const auto four_nics = test_support::scratch() / "layout-test-dgx-a100.json";
  auto topology = nlohmann::json::parse(std::ifstream(std::filesystem::path(PERFMODEL_SOURCE_DIR) /
                                                      "data" / "topologies" / "dgx-a100.json"));
  topology["nic"]["count"] = 4;
  topology["nic"]["pair_trees"] = false;
  std::ofstream(four_nics) << topology;
  return {.gpu = "a100-sxm-80gb", .topology = four_nics.string()};
}

// No constant was fitted on these rows. Three rows of hidden 8192 with tp 2 ran up to 1.6 times as
// long as similar rows.
TEST(VtrainRuns, MultiNode) {
  const auto rows = measured_rows("vtrain_a100_multi_node.json");
  if (rows.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const LayoutPricer on = LayoutPricer::make(predictor(), vtrain_machine()).value();
  std::vector<double> ratios;  // even rows only
  for (std::size_t i = 0; i < rows.size(); i += 2) {
    ratios.push_back(rows[i]["iteration_ms"].get<double>() / vtrain_peak_ms(rows[i]));
  }
  Errors errors, without, baseline;
  for (const auto& row : rows) {
    const double ms = vtrain_ms(row, on);
    baseline.add(accuracy::median(ratios) * vtrain_peak_ms(row), row["iteration_ms"]);
    errors.add(ms, row["iteration_ms"]);
    if (row["hidden"] != 8192 || row["tp"] != 2) without.add(ms, row["iteration_ms"]);
  }
  errors.print("vTrain, 64-512 A100");
  without.print("vTrain, the same without hidden 8192 x tp 2");
  baseline.print("vTrain, FLOP x constant");
  ASSERT_EQ(errors.size(), 24U);
  EXPECT_LT(errors.mape(), 8.5);
  // 4.9 before all-reduces between machines were priced by measured pipelines: they are closer to
  // the public runs of collectives, and longer here.
  EXPECT_LT(without.mape(), 5.1);
  EXPECT_LT(errors.mape(), baseline.mape());
}

// The two rows that took longest next to their predictions, 1.6 times, with the steps of the first
// five other runs of that model on those 512 GPUs. The source knows of no trouble.
TEST(VtrainRuns, DiagnosesTheSlowestRuns) {
  const auto rows = measured_rows("vtrain_a100_multi_node.json");
  if (rows.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const auto figure_of = [](const nlohmann::json& row, bool is_own) {
    const RunSetting at = {.tp = row["tp"], .pp = row["pp"], .micro_batch = row["micro_batch"]};
    return RunFigure{.value = row["iteration_ms"].get<double>() * 1e3,
                     .at = is_own ? RunSetting{} : at};
  };
  int slow = 0;
  for (const auto& row : rows) {
    if (row["hidden"] != 8192 || row["tp"] != 2 || row["iteration_ms"] < 2e4) continue;
    const MeasuredStep step = vtrain_step(row);
    const auto model = layout_run_model(predictor(), vtrain_machine(), step.job, step.layout);
    ASSERT_TRUE(model) << to_string(model.error());
    std::vector<RunFigure> figures = {figure_of(row, true)};
    for (const auto& other : rows) {
      const bool is_neighbour = other["hidden"] == 8192 && other != row;
      if (is_neighbour && figures.size() < 6) figures.push_back(figure_of(other, false));
    }
    const auto alone = diagnose(*model, std::span(figures).first(1));
    const auto found = diagnose(*model, figures);
    ASSERT_TRUE(alone && found) << to_string((found ? alone : found).error());
    std::printf("%s\n  alone: %s\n  with %zu other runs: %s (%.0f %%)\n",
                figure_words(alone->figures[0]).c_str(), verdict_words(*alone).c_str(),
                figures.size() - 1, verdict_words(*found).c_str(),
                100 * found->causes.front().probability);
    EXPECT_GT(alone->alike, 2U);
    EXPECT_TRUE(is_of_this_run(*found)) << verdict_words(*found);
    slow += !alone->is_normal;
  }
  EXPECT_EQ(slow, 2);
}

TEST(MptRuns, Fsdp) {
  const auto rows = measured_rows("fsdp_mpt_throughput.json");
  if (rows.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::map<std::string, Errors> groups;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    const std::string name = row["gpu"], precision = row["precision"];
    const std::string gpu = name == "h100_80gb"   ? "h100-sxm-80gb"
                            : name == "a100_80gb" ? "a100-sxm-80gb"
                                                  : "a100-sxm-40gb";
    LayoutJob job;
    job.model = gpt_like(row["layers"], row["d_model"], row["heads"], row["seq"], 50368);
    job.model.biases = false;
    job.sequence = row["seq"];
    job.global_batch = row["global_batch"];
    job.fp32_gradients = false;
    job.software = "fsdp";
    job.attention = LayoutJob::Attention::kTriton;
    if (precision == "amp_fp8") job.precision = LayoutJob::Precision::kFp8;
    ParallelLayout layout;
    layout.dp = row["gpus"];
    layout.micro_batch = row["micro_batch"];
    layout.zero = row["sharding"] == "FULL_SHARD" ? Sharding::kZero3 : Sharding::kZero2;
    if (row["activation_checkpointing"]) layout.recompute = LayoutRecompute::kFull;
    const double ms = predicted(pricer(gpu), job, layout).step_ms;
    const double measured = row["implied_iteration_s"].get<double>() * 1e3;
    for (const std::string& group :
         {std::string("all"), name,
          std::string(i % 2 ? "odd rows (judged)" : "even rows (chosen on)")}) {
      groups[group].add(ms, measured);
    }
  }
  for (const auto& [name, errors] : groups) errors.print("MPT, " + name);
  ASSERT_EQ(groups["all"].size(), 41U);
  EXPECT_LT(groups["odd rows (judged)"].mape(), 7);
  // A100 boards are 5 % too slow since Vidur's products set the energy of their FLOP.
  EXPECT_LT(groups["all"].mape(), 8);
}

DecoderModel llama3(std::string_view size) {
  if (size == "8B") {
    return {.name = "8B",
            .layers = 32,
            .hidden = 4096,
            .heads = 32,
            .kv_heads = 8,
            .feed_forward = 14336,
            .vocabulary = 128256};
  }
  if (size == "70B") {
    return {.name = "70B",
            .layers = 80,
            .hidden = 8192,
            .heads = 64,
            .kv_heads = 8,
            .feed_forward = 28672,
            .vocabulary = 128256};
  }
  return {.name = "405B",
          .layers = 126,
          .hidden = 16384,
          .heads = 128,
          .kv_heads = 8,
          .feed_forward = 53248,
          .vocabulary = 128256};
}

/// torchtitan's boards: 96 GB at 2.4 TB/s, 500 W.
std::string torchtitan_board() {
  auto board = nlohmann::json::parse(std::ifstream(std::filesystem::path(PERFMODEL_SOURCE_DIR) /
                                                   "data" / "gpus" / "h100-sxm-80gb.json"));
  board["dram"]["bandwidth_gb_per_s"] = 2400;
  board["dram"]["size_gb"] = 96;
  board["dram"]["usable_gib"] = 95;
  board["tdp_w"] = 500;
  const auto file = test_support::scratch() / "layout-test-h100-96gb.json";
  std::ofstream(file) << board;
  return file.string();
}

// One factor was chosen on the two compiled rows on 8 GPUs. PyTorch's attention was
// FlashAttention-2 in December 2024. Norms are fused here; in the two eager rows they were not.
TEST(TorchtitanRuns, FsdpThatRecomputesByOp) {
  if (!public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const Predictor on_board =
      Predictor::load({.data = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data",
                       .gpus = {torchtitan_board()}})
          .value();
  const LayoutPricer on =
      LayoutPricer::make(on_board, {.gpu = torchtitan_board(), .topology = "hgx-h100"}).value();
  auto csv = CsvFile::open(*public_data() / "scaling" / "torchtitan_runs.csv").value();
  Errors times, memory;
  while (csv.next()) {
    const auto cell = [&](const char* name) { return std::string(csv.cell(csv.column(name))); };
    LayoutJob job;
    job.model = llama3("8B");
    job.sequence = std::stoll(cell("sequence"));
    job.compiled = cell("compile") == "1";
    job.software = job.compiled ? "torchtitan" : "fsdp";
    job.attention = LayoutJob::Attention::kFa2;
    if (cell("float8") == "1") job.precision = LayoutJob::Precision::kFp8;
    ParallelLayout layout;
    layout.dp = std::stoll(cell("fsdp"));
    layout.micro_batch = std::stoll(cell("local_batch"));
    layout.zero = Sharding::kFsdp;
    layout.recompute = LayoutRecompute::kOp;
    job.global_batch = layout.dp * layout.micro_batch;
    const LayoutPrediction made = predicted(on, job, layout);
    const double tokens = std::stod(cell("tokens_per_s_per_gpu"));
    const double gib = std::stod(cell("memory_gib")) * 1024 * 1024 * 1024;
    std::printf(
        "torchtitan, %3lld GPUs, compile %s, float8 %s: %.0f tokens/s, predicted %.0f "
        "(%+.1f %%); %.1f GB, predicted %.1f (%+.1f %%)\n",
        static_cast<long long>(layout.dp), cell("compile").c_str(), cell("float8").c_str(), tokens,
        made.tokens_per_s_per_gpu, accuracy::error_percent(made.tokens_per_s_per_gpu, tokens),
        gib * 1e-9, made.reserved_bytes * 1e-9, accuracy::error_percent(made.reserved_bytes, gib));
    times.add(made.tokens_per_s_per_gpu, tokens);
    memory.add(made.reserved_bytes, gib);
  }
  times.print("torchtitan");
  memory.print("torchtitan, memory");
  EXPECT_EQ(times.size(), 6U);
  EXPECT_LT(times.median(), 6);
  EXPECT_LT(memory.median(), 6);
}

/// The job of a row of the recompute study.
LayoutJob recompute_study_job(const nlohmann::json& row) {
  const auto &model = row["model"], &run = row["execution"];
  return megatron_job(
      gpt_like(model["num_blocks"], model["hidden"], model["attn_heads"], model["seq_size"], 51200),
      model["seq_size"], run["batch_size"], "megatron");
}
ParallelLayout recompute_study_layout(const nlohmann::json& row) {
  const auto& run = row["execution"];
  ParallelLayout layout;
  layout.tp = run["tensor_par"];
  layout.pp = run["pipeline_par"];
  layout.vp = run["pipeline_interleaving"];
  layout.micro_batch = run["microbatch_size"];
  return layout;
}

TEST(MegatronRuns, RecomputeStudy) {
  const auto cases = measured_cases("megatron_selective_recompute.json");
  if (cases.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  Errors errors;
  for (const auto& row : cases) {
    ParallelLayout layout = recompute_study_layout(row);
    layout.dp = row["execution"]["data_par"];
    layout.recompute = LayoutRecompute::kFull;
    const double ms = predicted(pricer("a100-sxm-80gb"), recompute_study_job(row), layout).step_ms;
    errors.add(ms, row["measured"]["iteration_s"].get<double>() * 1e3);
  }
  errors.print("recompute study");
  ASSERT_EQ(errors.size(), 2U);
  EXPECT_LT(errors.mape(), 8);  // A100: see MptRuns
}

// The paper's figures follow its formulas: 34 s b h and 5 a s s b per layer of eager attention.
TEST(MegatronRuns, ActivationsAndStateOfTheRecomputeStudy) {
  const auto cases = measured_cases("megatron_activation_memory.json");
  if (cases.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  Errors activations, state;
  for (const auto& row : cases) {
    if (!row.contains("execution")) continue;
    const std::string mode = row["mode"];
    ParallelLayout layout = recompute_study_layout(row);
    layout.sequence_parallel = mode.starts_with("seq");
    if (mode.ends_with("sel")) layout.recompute = LayoutRecompute::kSelective;
    const LayoutPrediction made =
        predicted(pricer("a100-sxm-80gb"), recompute_study_job(row), layout);
    constexpr double kGib = 1024.0 * 1024 * 1024;
    const auto& paper = row["paper"];
    activations.add((made.activation_bytes + made.logit_bytes) / kGib, paper["activations_GiB"]);
    state.add((made.weight_bytes + made.gradient_bytes + made.optimizer_bytes) / kGib,
              paper["params_and_optimizer_GiB"]);
  }
  activations.print("activations of the recompute study");
  state.print("parameters and optimizer of the recompute study");
  EXPECT_EQ(activations.size(), 2U);
  EXPECT_LT(activations.mape(), 3);
  EXPECT_LT(state.mape(), 8);
}

// Korthikanti et al. 2022, equations 2 to 6, of the four models of their table 3 with 8
// tensor-parallel ranks: bytes of a layer over s b h.
TEST(MegatronRuns, ActivationsOfFourModelsByTheirFormulas) {
  struct Model {
    const char* name;
    std::int64_t layers, hidden, heads;
  };
  constexpr double kRanks = 8, kTokens = 2048;
  for (const Model& of : {Model{"22B", 48, 6144, 64}, Model{"175B", 96, 12288, 96},
                          Model{"530B", 105, 20480, 128}, Model{"1T", 128, 25600, 160}}) {
    const double scores =
        5 * static_cast<double>(of.heads) * kTokens / static_cast<double>(of.hidden);
    const std::tuple<const char*, LayoutRecompute::What, bool, double> modes[] = {
        {"none", LayoutRecompute::kNone, false, 10 + (24 + scores) / kRanks},
        {"sequence parallel", LayoutRecompute::kNone, true, (34 + scores) / kRanks},
        {"selective", LayoutRecompute::kSelective, false, 10 + 24 / kRanks},
        {"both", LayoutRecompute::kSelective, true, 34 / kRanks},
        {"full", LayoutRecompute::kFull, false, 2}};
    for (const auto& [mode, what, sequence_parallel, formula] : modes) {
      ParallelLayout layout;
      layout.tp = static_cast<std::int64_t>(kRanks);
      layout.micro_batch = 1;
      layout.recompute = what;
      layout.sequence_parallel = sequence_parallel;
      const LayoutPrediction made = predicted(
          pricer("a100-sxm-80gb"),
          megatron_job(gpt_like(of.layers, of.hidden, of.heads, 2048, 51200), 2048, 1, "megatron"),
          layout);
      // Outside of layers, their section 4.3: a mask, and the inputs of the last norm and product.
      const double outside = sequence_parallel ? 5 / kRanks : 5;
      const double bytes = kTokens * static_cast<double>(of.hidden) *
                           (static_cast<double>(of.layers) * formula + outside);
      const double error = accuracy::error_percent(made.activation_bytes, bytes);
      std::printf("%-4s %-17s %+.1f %%\n", of.name, mode, error);
      EXPECT_NEAR(error, 0, 2) << of.name << ", " << mode;
    }
  }
}

/// Error in % of a row of the scale-out file.
double scale_out_error(const nlohmann::json& row) {
  const auto& model = row["model"];
  const bool sharded = row["scheme"] == "ZeRO-3";
  const LayoutJob job = megatron_job(
      gpt_like(model["layers"], model["hidden"], model["heads"], model["seq"], model["vocab"]),
      model["seq"], row["global_batch"],
      sharded                    ? "deepspeed"
      : row["scheme"] == "PTD-P" ? "megatron"
                                 : "megatron-deepspeed");
  ParallelLayout layout;
  layout.dp = row["dp"];
  layout.tp = row["tp"];
  layout.pp = row["pp"];
  layout.micro_batch = row["micro_batch"];
  layout.recompute = LayoutRecompute::kFull;
  if (sharded) layout.zero = Sharding::kZero3;
  const auto& figures = row["measured"];
  const double measured =
      figures[figures.contains("iteration_s") ? "iteration_s" : "implied_iteration_s"];
  const double ms = predicted(pricer("a100-sxm-80gb"), job, layout).step_ms;
  std::printf("%-24s measured %6.2f s, predicted %6.2f s\n", row["id"].get<std::string>().c_str(),
              measured, ms * 1e-3);
  return accuracy::error_percent(ms * 1e-3, measured);
}

// The constant of DeepSpeed's ZeRO-3 comes from its one row.
TEST(MegatronRuns, ScaleOutIsMetButFor530BWithDeepSpeed) {
  const auto cases = measured_cases("megatron_scale_out.json");
  if (cases.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::map<std::string, double> errors;
  for (const auto& row : cases) errors[row["id"].get<std::string>()] = scale_out_error(row);
  ASSERT_EQ(errors.size(), 3U);
  EXPECT_NEAR(errors.at("table2-175B-PTD-P-384"), 0, 6);
  EXPECT_NEAR(errors.at("table2-175B-ZeRO-3-384"), 0, 6);
  EXPECT_NEAR(errors.at("mtnlg-530B-2240"), -22, 2);
}

// --- Llama 3 with NeMo on H100, B200, GB200 ------------------------------------------------------

/// The distributed optimizer, sequence parallelism, fp8.
double nemo_ms(const DecoderModel& model, const std::string& gpu, std::int64_t gpus,
               std::int64_t global_batch, ParallelLayout layout) {
  LayoutJob job;
  job.model = model;
  job.sequence = 8192;
  job.global_batch = global_batch;
  job.precision = LayoutJob::Precision::kFp8;
  job.software = "nemo";
  layout.dp = gpus / (layout.tp * layout.pp);
  layout.sequence_parallel = layout.tp > 1;
  return predicted(pricer(gpu), job, layout).step_ms;
}

// layer_factor and attention_factor of data/frameworks/nemo.json were chosen on rows of 8B,
// tensor_overlap with 70B and 405B in view: in sample. One row does not say its precision, and is
// taken for fp8 as it reaches three quarters of the peak of bf16.
TEST(NemoRuns, DenseRowsWithoutContextParallelismInSample) {
  const auto cases = measured_cases("nemo_pretraining_throughput.json");
  if (cases.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  Errors errors;
  for (const auto& row : cases) {
    const std::string name = row["model"], system = row["system"], chunks = row["vp"];
    if (!name.starts_with("LLAMA3") || row["cp"] != 1 || row["ep"] != 1) continue;
    ParallelLayout layout;
    layout.tp = row["tp"];
    layout.pp = row["pp"];
    layout.vp = chunks == "n/a" ? 1 : std::stoll(chunks);
    layout.micro_batch = row["micro_batch"];
    layout.zero = row["fsdp"] != 0 ? Sharding::kFsdp : Sharding::kZero1;
    const std::int64_t gpus = row["gpus"], batch = row["global_batch"];
    const double tokens = row["tokens_per_s_per_gpu"];
    const double measured = static_cast<double>(batch * 8192) / tokens / static_cast<double>(gpus);
    const double ms =
        nemo_ms(llama3(name.substr(name.find('_') + 1)),
                system == "DGX-H100" ? "h100-sxm-80gb" : "gb200", gpus, batch, layout);
    std::printf("%-14s on %3lld of %s: %+.1f %%\n", name.c_str(), static_cast<long long>(gpus),
                system.c_str(), accuracy::error_percent(ms, measured * 1e3));
    errors.add(ms, measured * 1e3);
  }
  errors.print("NeMo, Llama 3 without cp and ep");
  EXPECT_EQ(errors.size(), 3U);
  EXPECT_LT(errors.mape(), 15);
}

// Llama 3.1 with a layout, fp8 unless the row says fp4. 8B without context parallelism chose
// layer_factor, the others nothing.
TEST(MlperfRuns, Llama31WithALayout) {
  if (!public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  auto csv = CsvFile::open(*public_data() / "training_runs" / "mlperf_llm.csv").value();
  std::map<std::string, Errors> groups;
  while (csv.next()) {
    const auto cell = [&](const char* name) { return std::string(csv.cell(csv.column(name))); };
    if (!cell("model").starts_with("llama31") || cell("tp").empty()) continue;
    const bool small = cell("model") == "llama31_8b", fp4 = cell("precision") == "fp4";
    LayoutJob job;
    job.model = llama3(small ? "8B" : "405B");
    job.sequence = 8192;
    job.global_batch = std::stoll(cell("global_batch"));
    job.precision = fp4 ? LayoutJob::Precision::kFp4 : LayoutJob::Precision::kFp8;
    job.software = "nemo";
    ParallelLayout layout;
    layout.tp = std::stoll(cell("tp"));
    layout.pp = std::stoll(cell("pp"));
    layout.vp = cell("vp") == "null" ? 1 : std::stoll(cell("vp"));
    layout.cp = std::stoll(cell("cp"));
    layout.micro_batch = std::stoll(cell("micro_batch"));
    layout.dp = std::stoll(cell("gpus")) / (layout.tp * layout.pp * layout.cp);
    layout.zero = Sharding::kZero1;
    layout.sequence_parallel = layout.tp > 1;
    const bool b200 = cell("gpu").find("B200-SXM") != std::string::npos;
    const double ms = predicted(pricer(b200 ? "b200-sxm-180gb" : "gb200"), job, layout).step_ms;
    const double measured = std::stod(cell("step_s")) * 1e3;
    std::printf("%-36s %s, %s: measured %7.1f ms, predicted %7.1f (%+.1f %%)\n",
                cell("system").c_str(), job.model.name.c_str(), fp4 ? "fp4" : "fp8", measured, ms,
                accuracy::error_percent(ms, measured));
    groups["all"].add(ms, measured);
    groups[small ? "8B" : "405B"].add(ms, measured);
    if (small && layout.cp == 1 && !fp4) groups["8B without cp (in sample)"].add(ms, measured);
  }
  for (const auto& [name, errors] : groups) errors.print("MLPerf, Llama 3.1, " + name);
  EXPECT_EQ(groups["all"].size(), 19U);
  EXPECT_LT(groups["all"].median(), 12);
  EXPECT_LT(groups["all"].mape(), 11);
  EXPECT_LT(groups["8B without cp (in sample)"].mape(), 5);
}

}  // namespace layout_test
}  // namespace perfmodel
