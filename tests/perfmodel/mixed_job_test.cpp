// Ranks that differ: GPUs, pace, links, stragglers.
#include "predict/mixed_job.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/predictors/detail/collective_model.hpp"

namespace perfmodel {
namespace mixed_job_test {

using sync::MixedPrediction;
using sync::predict_mixed_job;
using sync::StragglerDraws;
using testing::HasSubstr;

const std::filesystem::path kData = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data";

const OverheadTable& reference() {
  static const OverheadTable table = read_overheads(kData / "overheads" / "reference.json").value();
  return table;
}

Gpu known_gpu(const char* name) { return find_gpu(name, kData / "gpus").value(); }

/// One rank of 4 of an MLP whose kernels take so long that the host is never waited for; all
/// gradients in one bucket, so that one all-reduce follows the backward pass.
const ExecutionGraph& rank_of_four() {
  static const ExecutionGraph graph = [] {
    MlpConfig config;
    config.widths = {4096, 4096, 4096, 4096};
    config.batch = 4096;
    config.training.optimizer = TrainingOptions::Optimizer::kSgd;
    const std::int64_t all = std::int64_t{1} << 40;
    return rewrite_data_parallel(
               build_mlp(config).value(),
               {.world_size = 4, .first_bucket_bytes = all, .bucket_cap_bytes = all})
        .value();
  }();
  return graph;
}

/// Bursts: a board at its limit would give a slower rank back what it lost.
PlacedRank placed(const Gpu& gpu, std::int64_t count, double slowdown = 1) {
  PlacedRank rank{.rank = {.graph = &rank_of_four(), .table = &reference(), .options = {}},
                  .gpu = &gpu,
                  .count = count,
                  .slowdown = slowdown};
  rank.rank.options.sustained = false;
  rank.rank.options.step_range = false;
  return rank;
}

MixedPrediction predicted(const std::vector<PlacedRank>& ranks,
                          const std::optional<StragglerDraws>& draws = {}) {
  auto made = predict_mixed_job(ranks, {}, draws);
  if (made) return std::move(*made);
  ADD_FAILURE() << to_string(made.error());
  return {};
}

double step_us(const MixedPrediction& made) {
  double most = 0;
  for (const Prediction& rank : made.job.ranks) most = std::max(most, rank.e2e_us);
  return most;
}

TEST(MixedJob, RanksThatAreAlikeAreTheJobOfOne) {
  const Gpu gpu = known_gpu("a100-sxm-80gb");
  const PlacedRank one = placed(gpu, 4);
  const auto alone = predict_job({&one.rank, 1}, gpu);
  ASSERT_TRUE(alone) << to_string(alone.error());
  const MixedPrediction made = predicted({one});
  EXPECT_DOUBLE_EQ(step_us(made), alone->ranks[0].e2e_us);
  EXPECT_EQ(made.job.ranks[0].ranks, 4);
  const MixedPrediction split = predicted({placed(gpu, 1), placed(gpu, 3)});
  EXPECT_NEAR(step_us(split), step_us(made), 1e-6 * step_us(made));
  EXPECT_THAT(split.job.warnings, testing::IsEmpty());
}

// By hand: a step is the rank's computation, then the all-reduce, which begins when the last rank
// has arrived: C + A. One rank at half the pace: 2 C + A, and the others wait for C.
TEST(MixedJob, ARankAtHalfThePaceGivesTheHandComputedStep) {
  const Gpu gpu = known_gpu("a100-sxm-80gb");
  const MixedPrediction alike = predicted({placed(gpu, 4)});
  const double a = alike.job.ranks[0].communication.transfer_us;
  const double c = step_us(alike) - a;
  ASSERT_GT(a, 0.01 * c);  // both count
  ASSERT_NEAR(c, alike.job.ranks[0].compute_kernel_us, 0.02 * c);
  const MixedPrediction mixed = predicted({placed(gpu, 3), placed(gpu, 1, 2)});
  EXPECT_NEAR(step_us(mixed), 2 * c + a, 0.002 * step_us(mixed));
  EXPECT_NEAR(mixed.job.ranks[0].communication.waiting_us, c, 0.01 * c);
  EXPECT_NEAR(mixed.job.ranks[1].communication.waiting_us, 0, 1e-6 * c);
}

TEST(MixedJob, ASlowerGpuSetsThePace) {
  const Gpu fast = known_gpu("h100-sxm-80gb"), slow = known_gpu("v100-sxm2-32gb");
  const double of_slow = step_us(predicted({placed(slow, 4)}));
  const double of_fast = step_us(predicted({placed(fast, 4)}));
  const double mixed = step_us(predicted({placed(fast, 3), placed(slow, 1)}));
  EXPECT_LT(of_fast, 0.5 * of_slow);
  EXPECT_NEAR(mixed, of_slow, 0.01 * of_slow);
}

// 2 (n-1)/n S on the link of one rank: S = 3 x (4096^2 + 4096) x 4 B, 1 GB/s.
TEST(MixedJob, ASlowLinkOfOneRankSlowsEveryCollective) {
  const Gpu gpu = known_gpu("a100-sxm-80gb");
  const auto base = make_collective_model(topology_for(gpu));
  const auto linked = sync::make_linked_collectives(*base, {1e9});
  KernelModels models = KernelModels::heuristic();
  models.set(KernelFamily::kCollective, linked.get());
  PlacedRank slow = placed(gpu, 1);
  slow.rank.options.models = &models;
  const MixedPrediction alike = predicted({placed(gpu, 4)});
  const MixedPrediction mixed = predicted({placed(gpu, 3), slow});
  const double bytes = 3 * (4096.0 * 4096 + 4096) * 4;
  const double wire = 1.5 * bytes / 1e3;
  const double transfer = mixed.job.ranks[0].communication.transfer_us;
  EXPECT_NEAR(transfer, wire, 0.01 * wire);
  EXPECT_DOUBLE_EQ(transfer, mixed.job.ranks[1].communication.transfer_us);
  const double longer = transfer - alike.job.ranks[0].communication.transfer_us;
  EXPECT_NEAR(step_us(mixed) - step_us(alike), longer, 0.002 * step_us(mixed));
}

// Each rank pauses with probability 0.2 to twice its time: one of four does in 1 - 0.8^4 = 59 % of
// the steps, which then take 2 C + A.
TEST(MixedJob, StragglersAreDrawnFromTheSeed) {
  const Gpu gpu = known_gpu("a100-sxm-80gb");
  const StragglerDraws draws{
      .straggler = sync::Straggler::parse("pause:0.2:2").value(), .seed = 7, .draws = 2000};
  const MixedPrediction made = predicted({placed(gpu, 4)}, draws);
  ASSERT_TRUE(made.drawn);
  const double step = step_us(made), a = made.job.ranks[0].communication.transfer_us;
  const double slow = 2 * (step - a) + a, share = 1 - std::pow(0.8, 4);
  EXPECT_NEAR(made.drawn->mean_us, share * slow + (1 - share) * step, 0.03 * step);
  EXPECT_NEAR(made.drawn->p95_us, slow, 0.002 * slow);
  EXPECT_EQ(made.drawn->draws, 2000U);
  EXPECT_EQ(predicted({placed(gpu, 4)}, draws).drawn->mean_us, made.drawn->mean_us);
  // Given one by one they are the same ranks.
  const MixedPrediction apart = predicted({placed(gpu, 1), placed(gpu, 3)}, draws);
  EXPECT_NEAR(apart.drawn->mean_us, made.drawn->mean_us, 1e-3 * step);
  EXPECT_DOUBLE_EQ(step_us(predicted({placed(gpu, 4)})), step);
}

TEST(MixedJob, ListsOfGpusAreRead) {
  EXPECT_EQ(sync::gpus_of_ranks("a:2,b").value(), (std::vector<std::string>{"a", "a", "b"}));
  for (const char* bad : {"", "a,,b", "a:0", "a:x", ":3"}) {
    const auto made = sync::gpus_of_ranks(bad);
    ASSERT_FALSE(made) << bad;
    EXPECT_THAT(made.error().message, HasSubstr("expected GPUs as NAME or NAME:COUNT"));
  }
}

}  // namespace mixed_job_test
}  // namespace perfmodel
