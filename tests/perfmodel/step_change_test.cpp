// Whether one run is slower than another, by the noise of their steps.
#include "gate/step_change.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "base/byte_source.hpp"
#include "perfmodel/data_files.hpp"

namespace perfmodel {
namespace step_change_test {

using Steps = std::vector<double>;
using Random = std::mt19937_64;

// Steps whose log times follow a first-order process: `memory` of a step's deviation stays.
Steps noisy_run(std::size_t steps, double us, double noise, double memory, Random& random) {
  std::normal_distribution<double> normal;
  Steps run;
  double deviation = normal(random);
  for (std::size_t i = 0; i < steps; ++i) {
    deviation = memory * deviation + std::sqrt(1 - memory * memory) * normal(random);
    run.push_back(us * std::exp(noise * deviation));
  }
  return run;
}

struct Verdicts {
  double pass = 0, slower = 0, cannot_tell = 0;
};

// Shares of 1,000 pairs.
template <class Draw>
Verdicts verdicts_of(Draw&& draw) {
  constexpr int kPairs = 1000;
  std::map<GateVerdict, int> counts;
  Random random(7);
  for (int i = 0; i < kPairs; ++i) {
    const auto [before, after] = draw(random);
    ++counts[judge_steps({before}, {after}, {}).verdict];
  }
  const auto share = [&](GateVerdict verdict) {
    return static_cast<double>(counts[verdict]) / kPairs;
  };
  return {share(GateVerdict::kPass), share(GateVerdict::kSlower), share(GateVerdict::kCannotTell)};
}

Verdicts verdicts_of_noise(double change, double memory, std::size_t steps = 60) {
  return verdicts_of([&](Random& random) {
    return std::pair{noisy_run(steps, 1e5, 0.04, memory, random),
                     noisy_run(steps, 1e5 * (1 + change), 0.04, memory, random)};
  });
}

// Recorded steps of 44 and more, without the first ones.
std::vector<Steps> recorded_runs() {
  std::vector<Steps> runs;
  const auto folder = find_data_folder();
  for (const char* gpu : {"h100-sxm-80gb", "h200-sxm-141gb"}) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(*folder / "measurements" / gpu)) {
      if (entry.path().string().ends_with(".times.json.gz")) files.push_back(entry.path());
    }
    std::ranges::sort(files);
    for (const auto& file : files) {
      std::string text(1 << 20, ' ');
      text.resize(*ByteSource::open(file, {})->read(text.data(), text.size()));
      const auto times = nlohmann::json::parse(text);
      for (const char* kind : {"free", "synced"}) {
        const auto run = times.value(kind, nlohmann::json::object()).value("device", Steps());
        if (run.size() >= 44) runs.emplace_back(run.begin() + 3, run.end());
      }
    }
  }
  return runs;
}

TEST(StepChange, FindsThreePercentInSixtyStepsOfFourPercentNoise) {
  const Verdicts slower = verdicts_of_noise(0.03, 0);
  RecordProperty("found", std::to_string(slower.slower));
  EXPECT_GE(slower.slower, 0.9);
  EXPECT_LE(slower.pass, 0.015);
}

TEST(StepChange, RaisesFewFalseAlarmsOnEqualRuns) {
  const Verdicts equal = verdicts_of_noise(0, 0), halves = verdicts_of_noise(0, 0.5);
  RecordProperty("equal", std::to_string(equal.slower));
  RecordProperty("half_stays", std::to_string(halves.slower));
  EXPECT_LE(equal.slower, 0.01);
  EXPECT_GE(equal.pass, 0.9);
  EXPECT_LE(halves.slower, 0.015);
  EXPECT_LE(verdicts_of_noise(0, 0.8).slower, 0.03);
}

TEST(StepChange, NeverFailsAGain) {
  for (const double gain : {0.005, 0.03, 0.2}) {
    EXPECT_LE(verdicts_of_noise(-gain, 0).slower, gain < 0.01 ? 0.005 : 0) << gain;
  }
}

TEST(StepChange, RaisesFewFalseAlarmsOnRecordedSteps) {
  const std::vector<Steps> runs = recorded_runs();
  ASSERT_GE(runs.size(), 40U);
  const auto draw_steps = [&](std::size_t in_order) {
    return verdicts_of([&](Random& random) {
      const Steps& run = runs[random() % runs.size()];
      const auto drawn = [&] {
        Steps steps;
        while (steps.size() < 60) {
          const std::size_t first = random() % run.size();
          for (std::size_t i = 0; i < in_order; ++i) steps.push_back(run[(first + i) % run.size()]);
        }
        return steps;
      };
      Steps before = drawn(), after = drawn();
      return std::pair{std::move(before), std::move(after)};
    });
  };
  const Verdicts apart = draw_steps(1), in_order = draw_steps(10);
  RecordProperty("apart", std::to_string(apart.slower));
  RecordProperty("in_order", std::to_string(in_order.slower));
  EXPECT_LE(apart.slower, 0.01);
  EXPECT_LE(in_order.slower, 0.02);
}

TEST(StepChange, TooFewStepsCannotTellAndSayHowManyWould) {
  Random random(1);
  const Steps few = noisy_run(9, 1e5, 0.04, 0, random), many = noisy_run(60, 1e5, 0.04, 0, random);
  const StepChange change = judge_steps({few}, {many}, {});
  EXPECT_EQ(change.verdict, GateVerdict::kCannotTell);
  EXPECT_FALSE(change.low.has_value());
  ASSERT_TRUE(change.steps_needed.has_value());
  EXPECT_GT(*change.steps_needed, 60U);
  EXPECT_LT(*change.steps_needed, 300U);
  EXPECT_EQ(judge_steps({}, {many}, {}).verdict, GateVerdict::kCannotTell);
}

TEST(StepChange, AsManyStepsAsItAsksForAreEnough) {
  Random random(3);
  const Steps before = noisy_run(20, 1e5, 0.04, 0, random),
              after = noisy_run(20, 1e5, 0.04, 0, random);
  const auto needed = judge_steps({before}, {after}, {}).steps_needed;
  ASSERT_TRUE(needed.has_value());
  EXPECT_LE(verdicts_of_noise(0, 0, *needed).cannot_tell, 0.05);
  EXPECT_LE(verdicts_of_noise(0.03, 0, *needed).cannot_tell, 0.05);
}

TEST(StepChange, OutliersDoNotCountAndAreSaid) {
  Random random(2);
  Steps before = noisy_run(60, 1e5, 0.01, 0, random), after = noisy_run(60, 1e5, 0.01, 0, random);
  for (std::size_t i = 0; i < after.size(); i += 15) after[i] *= 3;
  const StepChange change = judge_steps({before}, {after}, {});
  EXPECT_EQ(change.verdict, GateVerdict::kPass);
  EXPECT_EQ(change.beyond_before, 0);
  EXPECT_NEAR(change.beyond_after, 4 * 1.96 / (60 + 8), 0.01);
}

TEST(StepChange, ARunThatDriftsSaysLess) {
  Steps level(100, 1e5), drifting(100);
  for (std::size_t i = 0; i < 100; ++i) {
    level[i] *= 1 + 0.001 * (i % 3);
    drifting[i] = level[i] * (1 + 0.001 * static_cast<double>(i));
  }
  const StepChange change = judge_steps({level}, {drifting}, {});
  EXPECT_NEAR(change.change, 0.048, 0.002);
  EXPECT_EQ(change.verdict, GateVerdict::kCannotTell);
}

TEST(StepChange, NoNoiseIsDecidedByTheDigitsPrinted) {
  const StepSample before{Steps(20, 100), 0}, after{Steps(20, 102), 0}, slow{Steps(20, 104), 0};
  EXPECT_EQ(judge_steps(before, after, {}).verdict, GateVerdict::kPass);
  EXPECT_EQ(judge_steps(before, slow, {}).verdict, GateVerdict::kSlower);
  const StepSample coarse{Steps(20, 101), 4};
  const StepChange change = judge_steps(before, coarse, {});
  EXPECT_EQ(change.verdict, GateVerdict::kCannotTell);
  EXPECT_NEAR(*change.high, 0.0302, 0.001);
  EXPECT_FALSE(change.steps_needed.has_value());
}

TEST(StepChange, QuantilesOfStudent) {
  EXPECT_NEAR(student_quantile(0.99, 3), 4.541, 0.001);
  EXPECT_NEAR(student_quantile(0.999, 3), 10.215, 0.001);
  EXPECT_NEAR(student_quantile(0.9999, 5), 9.678, 0.001);
  EXPECT_NEAR(student_quantile(0.99, 10), 2.764, 0.001);
  EXPECT_NEAR(student_quantile(0.95, 30), 1.697, 0.001);
}

}  // namespace step_change_test
}  // namespace perfmodel
