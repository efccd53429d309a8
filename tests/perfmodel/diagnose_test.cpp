// Causes of slow runs that the model itself made: found again by their figures.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <string>

#include "diagnose/causes.hpp"
#include "diagnose/diagnosis_question.hpp"
#include "diagnose/measures.hpp"
#include "diagnose/run_models.hpp"
#include "predictor_cases.hpp"

namespace perfmodel {
namespace diagnose_test {

const Predictor& predictor() {
  static const Predictor made = Predictor::load({.data = test_support::source_data(),
                                                 .gpus = {"h100-sxm-80gb", "a100-sxm-80gb"}})
                                    .value();
  return made;
}

RunModel layout_run(std::int64_t layers, std::int64_t hidden, const std::string& gpu,
                    const ParallelLayout& layout, std::int64_t batch) {
  LayoutJob job;
  job.model = {.name = "made",
               .layers = layers,
               .hidden = hidden,
               .heads = hidden / 128,
               .feed_forward = 4 * hidden,
               .vocabulary = 32000};
  job.sequence = 2048;
  job.global_batch = batch;
  return layout_run_model(predictor(), {.gpu = gpu}, job, layout).value();
}

RunModel graph_run(std::int64_t layers, std::int64_t batch, const std::string& gpu,
                   std::int64_t world) {
  GptConfig config = gpt_preset("gpt2").value();
  config.layers = layers;
  config.batch = batch;
  AskOptions asked{.world = world};
  if (world > 1) asked.strategy = ParallelStrategy::kDdp;
  return graph_run_model(predictor(), {.graph = build_gpt(config).value()}, gpu, asked).value();
}

// Sharded and pipelined layouts on one node and on several, graphs alone and data parallel.
std::vector<RunModel>& runs() {
  static std::vector<RunModel> made = {
      layout_run(16, 2048, "h100-sxm-80gb",
                 {.dp = 8, .micro_batch = 2, .zero = Sharding::kFsdp, .recompute = {}}, 64),
      layout_run(24, 1024, "a100-sxm-80gb", {.dp = 16, .micro_batch = 1}, 16),
      layout_run(32, 4096, "h100-sxm-80gb",
                 {.dp = 4, .tp = 4, .pp = 2, .micro_batch = 1, .sequence_parallel = true}, 64),
      graph_run(12, 8, "a100-sxm-80gb", 1),
      graph_run(12, 8, "h100-sxm-80gb", 8),
      graph_run(6, 2, "h100-sxm-80gb", 1)};
  return made;
}

using Random = std::mt19937_64;

double uniform(Random& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

double normal(Random& random) {
  const double u = uniform(random) + 1e-12, v = uniform(random);
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v);
}

constexpr double kNoise = 0.03;

double noisy(double value, Random& random) { return value * std::exp(kNoise * normal(random)); }

/// A slow run: the figures of its outlook can be measured.
struct Planted {
  const RunModel* run = nullptr;
  const Cause* cause = nullptr;  ///< null: none
  double value = 1;

  RunOutlook outlook(const RunSetting& at) const {
    return (cause ? outlook_with(*cause, value, *run, at) : run->ask({}, at)).value();
  }
  RunFigure measure(RunMeasure what, const RunSetting& at, Random& random) const {
    return {what, noisy(kind_of(what).predict(outlook(at), *run), random), at};
  }
};

double drawn_value(const Cause& cause, Random& random) {
  if (!cause.has_value()) return 1;
  const double value = cause.low * std::pow(cause.high / cause.low, uniform(random));
  if (cause.name != "batch") return value;
  const double power = std::exp2(std::round(std::log2(value)));
  return power == 1 ? 0.5 : power;
}

// A cause whose step is a quarter off at least: steps in the range of the prediction are normal.
Planted drawn(const Cause& cause, Random& random) {
  constexpr double kLeast = 0.25;
  for (int i = 0; i < 1000; ++i) {
    Planted made{.run = &runs()[random() % runs().size()],
                 .cause = &cause,
                 .value = drawn_value(cause, random)};
    if (cause.excluded && !cause.excluded(*made.run).empty()) continue;
    const auto step = outlook_with(cause, made.value, *made.run, {});
    const double healthy = made.run->ask({}, {})->step_us;
    if (!step || step->memory_bytes > made.run->device_bytes) continue;
    if (std::abs(std::log(step->step_us / healthy)) > std::log(1 + kLeast)) return made;
  }
  ADD_FAILURE() << cause.name;
  return {};
}

// Figures that users have: always the step; steps of half the batch and of one
// node or GPU; from a log memory and later steps; from
// nvidia-smi the clock, power and how busy the GPU is; from a profile kernels, collectives, waits.
std::vector<RunFigure> figures_of(const Planted& job, Random& random) {
  std::vector<RunFigure> figures = {job.measure(RunMeasure::kStep, {}, random)};
  const auto add = [&](double chance, std::initializer_list<RunMeasure> kinds) {
    if (uniform(random) > chance) return;
    for (const RunMeasure what : kinds) figures.push_back(job.measure(what, {}, random));
  };
  const auto add_step = [&](const RunSetting& at) {
    const auto& known = [&](const Cause& cause, double value) {
      return outlook_with(cause, value, *job.run, at).has_value();
    };
    if (uniform(random) > 0.5 || !known(causes()[0], 1.5)) return;
    if (job.cause && !known(*job.cause, job.value)) return;
    figures.push_back(job.measure(RunMeasure::kStep, at, random));
  };
  const std::int64_t world = job.run->setting.world, nodes = job.run->nodes;
  add_step({.batch = job.run->setting.batch / 2});
  if (world > 1) add_step({.world = nodes > 1 ? world / nodes : 1});
  add(0.5, {RunMeasure::kLaterStep});
  if (job.outlook({}).memory_bytes > 0) add(0.6, {RunMeasure::kMemory});
  add(0.5, {RunMeasure::kClock, RunMeasure::kBusy});
  add(0.3, {RunMeasure::kPower});
  add(0.4, {RunMeasure::kKernels, RunMeasure::kProducts, RunMeasure::kCollectives,
            RunMeasure::kInputWait});
  return figures;
}

std::size_t place_of(const RunDiagnosis& found, const Cause& cause) {
  for (std::size_t i = 0; i < found.causes.size(); ++i) {
    if (found.causes[i].name == cause.name) return i;
  }
  return found.causes.size();
}

// A third of what docs/diagnose.md shows, unless the environment asks for more.
int jobs_of_test() {
  const char* const given = std::getenv("PERFMODEL_DIAGNOSE_JOBS");
  return given ? std::atoi(given) : 72;
}

struct Rates {
  int jobs = 0, first = 0, among_three = 0, valued = 0, near = 0, unclear = 0, told = 0, misled = 0;

  void add(const Planted& job, const RunDiagnosis& found) {
    const std::size_t place = place_of(found, *job.cause);
    ++jobs;
    first += place == 0;
    among_three += place < 3;
    misled += place > 0 && found.alike < 2;
    if (place > 0 || !job.cause->has_value()) return;
    ++valued;
    near += std::abs(found.causes[0].value / job.value - 1) <= 0.2;
  }
  void print(const std::string& name) const {
    std::printf(
        "%-14s %3d jobs: first %3d, among three %3d, value near %3d of %3d; unclear %3d, "
        "then told %3d; clear but wrong %d\n",
        name.c_str(), jobs, first, among_three, near, valued, unclear, told, misled);
  }
};

// Asks again with the measurements that are proposed, until one cause is clear.
bool is_told_by_measurements(const Planted& job, std::vector<RunFigure> figures, RunDiagnosis found,
                             Random& random) {
  constexpr int kMost = 4;
  for (int i = 0; i < kMost && found.alike > 1 && found.next; ++i) {
    figures.push_back(job.measure(found.next->what, found.next->at, random));
    found = diagnose(*job.run, figures).value();
  }
  return place_of(found, *job.cause) == 0;
}

TEST(Diagnose, FindsPlantedCauses) {
  const int kJobs = jobs_of_test();
  Random random(63);
  std::map<std::string, Rates> by_cause, by_figures;
  std::vector<const Cause*> planted;  // figures of these jobs are of one run
  for (const Cause& cause : causes()) {
    if (!cause.is_of_one_run) planted.push_back(&cause);
  }
  Rates all;
  for (int i = 0; i < kJobs; ++i) {
    const Cause& cause = *planted[i % planted.size()];
    const Planted job = drawn(cause, random);
    if (!job.run) continue;
    const auto figures = figures_of(job, random);
    const auto found = diagnose(*job.run, figures);
    ASSERT_TRUE(found) << found.error().message;
    const std::string count = std::to_string(std::min<std::size_t>(figures.size(), 6)) + " figures";
    Rates* const groups[] = {&all, &by_cause[std::string(cause.name)], &by_figures[count]};
    const bool unclear = found->alike > 1;
    const bool told = unclear && is_told_by_measurements(job, figures, *found, random);
    for (Rates* group : groups) {
      group->add(job, *found);
      group->unclear += unclear;
      group->told += told;
    }
  }
  for (const auto& [name, rates] : by_cause) rates.print(name);
  for (const auto& [name, rates] : by_figures) rates.print(name);
  all.print("all");
  EXPECT_GE(all.first, 0.7 * all.jobs);
  EXPECT_GE(all.among_three, 0.9 * all.jobs);
  EXPECT_GE(all.near, 0.9 * all.valued);
  EXPECT_GE(all.told, 0.9 * all.unclear);
}

TEST(Diagnose, HealthyRunsAreNormal) {
  const int kJobs = jobs_of_test();
  Random random(64);
  int normal_jobs = 0;
  for (int i = 0; i < kJobs; ++i) {
    const Planted job{.run = &runs()[i % runs().size()]};
    normal_jobs += diagnose(*job.run, figures_of(job, random))->is_normal;
  }
  std::printf("%d of %d healthy runs are normal\n", normal_jobs, kJobs);
  EXPECT_GE(normal_jobs, 0.95 * kJobs);
}

/// A host of 500 us that launches kernels of 1000 us, of which products take 800.
RunModel literal_run() {
  return {.ask = [](const RunChange& change, const RunSetting&) -> Result<RunOutlook> {
            const double products = 800 * change.kernels / change.clock;
            const double kernels = products + 200 * change.kernels, host = 500 * change.host;
            const double step = std::max(kernels, host);
            return RunOutlook{.step_us = step,
                              .low_us = 0.9 * step,
                              .high_us = 1.1 * step,
                              .busy_us = kernels,
                              .kernels_us = kernels,
                              .products_us = products,
                              .later_us = step};
          },
          .setting = {.batch = 8, .world = 2},
          .samples = 16,
          .tokens = 16000,
          .clock_mhz = 1000};
}

TEST(Diagnose, NamesTheHostThatIsFourTimesSlower) {
  const RunFigure figures[] = {{.value = 2000}, {RunMeasure::kKernels, 1000}};
  const auto found = diagnose(literal_run(), figures).value();
  EXPECT_FALSE(found.is_normal);
  const auto host = std::ranges::find(found.causes, "host", &CauseFinding::name);
  ASSERT_NE(host, found.causes.end());
  EXPECT_NEAR(host->value, 4, 0.4);
  EXPECT_NEAR(host->explained[0], 2000, 200);
  ASSERT_TRUE(found.next);
  EXPECT_GT(found.next->deviations, 1);
}

TEST(Diagnose, TellsAClockFromSlowerKernelsByTheClock) {
  std::vector<RunFigure> figures = {{.value = 1800}, {RunMeasure::kKernels, 1800}};
  EXPECT_GT(diagnose(literal_run(), figures)->alike, 1U);
  figures.push_back({RunMeasure::kClock, 500});  // 800 / 0.5 + 200
  const auto found = diagnose(literal_run(), figures).value();
  EXPECT_EQ(found.causes.front().name, "clock");
  EXPECT_NEAR(found.causes.front().value, 0.5, 0.05);
}

// The range is 0.9 to 1.1 times the step, of which other runs of the machine show no more.
TEST(Diagnose, OtherRunsOfTheMachineLeaveThisOneAlone) {
  const RunSetting other = {.tp = 2}, third = {.pp = 2}, fewer = {.world = 1};
  const RunFigure alone[] = {{.value = 5000}, {.value = 1000, .at = fewer}};
  EXPECT_TRUE(std::ranges::none_of(diagnose(literal_run(), alone)->causes,
                                   [](const auto& one) { return one.name == "this-run"; }));
  const RunFigure with_others[] = {
      {.value = 5000}, {.value = 1000, .at = other}, {.value = 1010, .at = third}};
  const auto found = diagnose(literal_run(), with_others).value();
  EXPECT_EQ(found.causes.front().name, "this-run");
  EXPECT_NEAR(found.causes.front().value, 5, 0.3);
  // A further run with a trouble of its own does not change that; one that is as slow does.
  const RunFigure troubled[] = {{.value = 5000},
                                {.value = 1000, .at = other},
                                {.value = 1010, .at = third},
                                {.value = 9000, .at = {.micro_batch = 2}}};
  EXPECT_EQ(diagnose(literal_run(), troubled)->causes.front().name, "this-run");
  const RunFigure all_slow[] = {
      {.value = 5000}, {.value = 5000, .at = other}, {.value = 5050, .at = third}};
  EXPECT_NE(diagnose(literal_run(), all_slow)->causes.front().name, "this-run");
}

// A step that no cause explains, given first, leaves the answer as it would be without it.
TEST(Diagnose, ARunWithATroubleOfItsOwnSaysNothing) {
  const RunFigure without[] = {
      {.value = 1400}, {.value = 1150, .at = {.tp = 2}}, {.value = 1250, .at = {.pp = 2}}};
  std::vector<RunFigure> with(std::begin(without), std::end(without));
  with.insert(with.begin() + 1, {.value = 1e8, .at = {.micro_batch = 2}});
  const auto expected = diagnose(literal_run(), without).value();
  const auto found = diagnose(literal_run(), with).value();
  ASSERT_EQ(found.causes.size(), expected.causes.size());
  for (std::size_t i = 0; i < found.causes.size(); ++i) {
    EXPECT_EQ(found.causes[i].name, expected.causes[i].name);
    EXPECT_NEAR(found.causes[i].probability, expected.causes[i].probability, 1e-6);
  }
}

// A range that reaches further up makes slow steps likelier wrong predictions, and no fast ones.
TEST(Diagnose, TheTwoSidesOfARangeDiffer) {
  const auto wrong = [&](double us, double high) {
    RunModel run = literal_run();
    run.ask = [high, ask = run.ask](const RunChange& change, const RunSetting& at) {
      auto made = ask(change, at);
      if (made) made->high_us = high * made->step_us;
      return made;
    };
    const RunFigure figures[] = {{.value = us}};
    const auto found = diagnose(run, figures).value();
    return std::ranges::find(found.causes, "prediction", &CauseFinding::name)->probability;
  };
  EXPECT_GT(wrong(2000, 1.6), 2 * wrong(2000, 1.1));
  EXPECT_NEAR(wrong(700, 1.6), wrong(700, 1.1), 0.05);
}

TEST(Diagnose, StepsInTheRangeAreNormal) {
  const RunFigure inside[] = {{.value = 1090}}, above[] = {{.value = 1110}};
  EXPECT_TRUE(diagnose(literal_run(), inside)->is_normal);
  EXPECT_FALSE(diagnose(literal_run(), above)->is_normal);
  EXPECT_FALSE(diagnose(literal_run(), {}));
}

// The literal run has no memory, and its board no limit of power.
TEST(Diagnose, RefusesFiguresThatAreNotPredicted) {
  for (const RunMeasure what : {RunMeasure::kMemory, RunMeasure::kPower, RunMeasure::kNetwork}) {
    const RunFigure figures[] = {{.value = 1800}, {what, 100}};
    const auto found = diagnose(literal_run(), figures);
    ASSERT_FALSE(found) << to_string(what);
    EXPECT_NE(found.error().message.find(to_string(what)), std::string::npos);
  }
  RunModel alone = literal_run();
  alone.setting.world = 1;
  alone.link_gb_per_s = 450;
  const RunFigure link[] = {{.value = 1800}, {RunMeasure::kLink, 100}};
  EXPECT_FALSE(diagnose(alone, link));
  const RunFigure no_wait[] = {{.value = 1800}, {RunMeasure::kInputWait, 0}};
  EXPECT_TRUE(diagnose(literal_run(), no_wait));
}

TEST(Diagnose, ReadsRatesAndTimes) {
  const auto step = [](const DiagnosisAsk& ask) {
    return asked_figures(ask, literal_run()).value().figures.front();
  };
  EXPECT_DOUBLE_EQ(step({.measured = {"1000tokens/s"}}).value, 16e6);
  EXPECT_DOUBLE_EQ(step({.measured = {"2samples/s/gpu"}}).value, 4e6);
  EXPECT_DOUBLE_EQ(step({.measured = {"2samples/s@batch=4,world=1"}}).value, 2e6);
  const RunFigure other = step({.measured_step = {"412ms@batch=4,world=1"}});
  EXPECT_DOUBLE_EQ(other.value, 412e3);
  EXPECT_EQ(other.at, (RunSetting{.batch = 4, .world = 1}));
  EXPECT_EQ(step({.measured_step = {"412ms@batch=8,world=2"}}).at, RunSetting{});  // its own
  EXPECT_EQ(step({.memory_gb = 2}).what, RunMeasure::kMemory);
  for (const char* text : {"12", "12parsecs", "-3samples/s", "3samples/s@gpus=2", "3samples/s@"}) {
    EXPECT_FALSE(asked_figures({.measured = {text}}, literal_run())) << text;
  }
}

}  // namespace diagnose_test
}  // namespace perfmodel
