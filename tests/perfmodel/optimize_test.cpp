#include "perfmodel/optimize.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "literal_case.hpp"
#include "optimize/rewrite_moves.hpp"
#include "perfmodel/detail/choose_kernel_models.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/predictor.hpp"

namespace perfmodel {
namespace optimize_test {

using test_support::Case;
using test_support::round_gpu;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Optimizer = TrainingOptions::Optimizer;
using Implementation = TrainingOptions::Implementation;

const std::filesystem::path kData = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data";
constexpr double kWholeSearch = 1e6;  // [s], however slow the machine

const OverheadTable& reference() {
  static const OverheadTable table = read_overheads(kData / "overheads" / "reference.json").value();
  return table;
}

Gpu known_gpu(const char* name) { return find_gpu(name, kData / "gpus").value(); }

// By the heuristics alone: what is searched, not what a kernel costs, is tested here.
WhatIfTarget target_on(const char* gpu, double host_scale = 1) {
  return {.gpu = known_gpu(gpu), .overheads = &reference(), .options = {.host_scale = host_scale}};
}

ExecutionGraph small_mlp(Optimizer optimizer, std::int64_t batch, std::int64_t width) {
  MlpConfig config;
  config.widths = {width, width, width, 16};
  config.batch = batch;
  config.training.optimizer = optimizer;
  config.training.implementation = Implementation::kLoop;
  return build_mlp(config).value();
}

ExecutionGraph small_dlrm(std::int64_t batch, bool batched) {
  DlrmConfig config = dlrm_preset("ddp").value();
  config.batch = batch;
  config.tables.resize(std::min<std::size_t>(config.tables.size(), 3));
  config.table_batched = batched;
  return build_dlrm(config).value();
}

ExecutionGraph small_gpt(std::int64_t batch, std::int64_t hidden, Optimizer optimizer) {
  GptConfig config = gpt_preset("gpt2").value();
  config.layers = 2;
  config.hidden = hidden;
  config.heads = 4;
  config.feed_forward = 4 * hidden;
  config.vocabulary = 512;
  config.batch = batch;
  config.activation = GptConfig::Activation::kGelu;
  set_sequence(config, 64);
  config.training.optimizer = optimizer;
  return build_gpt(config).value();
}

double step_us(const ExecutionGraph& graph, const WhatIfTarget& target) {
  return predict(graph, target.gpu, *target.overheads, target.options).value().e2e_us;
}

// ---------------------------------------------------------------- ceiling

TEST(StepCeiling, RowsAddUpToTheStep) {
  for (const ExecutionGraph& graph :
       {small_dlrm(256, false), small_gpt(4, 128, Optimizer::kAdam)}) {
    const WhatIfTarget target = target_on("a100-sxm-40gb");
    const Ceiling ceiling = step_ceiling(graph, target).value();
    EXPECT_NEAR(ceiling.step_us, step_us(graph, target), 1e-6 * ceiling.step_us);
    ASSERT_GT(ceiling.rows.size(), 3U);
    double sum = ceiling.rest_us, before = ceiling.step_us;
    for (const CeilingRow& row : ceiling.rows) {
      EXPECT_NEAR(before - row.after_us, row.gain_us, 1e-9 * ceiling.step_us) << row.what;
      EXPECT_GE(row.gain_us, -1e-3 * ceiling.step_us) << row.what;
      EXPECT_NEAR(row.gain_share, row.gain_us / ceiling.step_us, 1e-12);
      before = row.after_us;
      sum += row.gain_us;
    }
    EXPECT_NEAR(sum, ceiling.step_us, 1e-6 * ceiling.step_us);
    // All parts are free: latencies and gaps between kernels are left.
    EXPECT_LT(ceiling.rest_us, 0.5 * ceiling.step_us);
    EXPECT_LT(ceiling.without_path_us, ceiling.step_us);
  }
}

// Host, in us: an op with a launch T1 3, T2 2, launch 4, T3 1; "item" T1 3, T2 2, waits, 2, T3 1.
// Kernels of 50: the first starts 1.5 after its launch (9), the second 1 after the first.
//
//   10.5 ... 60.5, 61.5 ... 111.5, and the wait ends the step: 111.5 + 2 + 1 = 114.5
//
// The path is T1, T2 and launch of the first op, both kernels, and the end of "item". Without them
// T3 of the first op (1), the second op (10) and T1, T2 of "item" (5) are left: 16.
TEST(StepCeiling, FreeingThePathLeavesTheSecondPath) {
  const Case run({"a", "a", "item"}, 50);
  WhatIfTarget target{.gpu = round_gpu(), .overheads = &run.table};
  target.options.kernel_times = &run.times;
  const Ceiling ceiling = step_ceiling(run.graph, target).value();
  EXPECT_NEAR(ceiling.step_us, 114.5, 1e-9);
  EXPECT_NEAR(ceiling.without_path_us, 16, 1e-9);
  // Free kernels: the host's 10 + 10 + 3 + 2 + 2 + 1.
  EXPECT_NEAR(ceiling.rows.front().after_us, 28, 1e-9);
  EXPECT_NEAR(ceiling.rows.front().alone_us, 86.5, 1e-9);
}

// ---------------------------------------------------------------- search against all sequences

/// Every sequence of rewrites in every order, each predicted as `predict` does it.
struct AllSequences {
  const WhatIfTarget& target;
  std::vector<NamedRewrite> rewrites;
  double memory_limit = std::numeric_limits<double>::infinity();
  double best_us = std::numeric_limits<double>::infinity();
  std::string best;
  std::size_t evaluations = 0;

  void run(const ExecutionGraph& graph, const std::string& said, Launching launching,
           unsigned used) {
    PredictOptions options = target.options;
    options.launching = launching;
    options.step_range = false;
    options.keep_ops = false;
    ++evaluations;
    const auto made = predict(graph, target.gpu, *target.overheads, options);
    if (made && made->memory.needed_bytes() <= memory_limit && made->e2e_us < best_us) {
      best_us = made->e2e_us;
      best = said;
    }
    for (std::size_t i = 0; i < rewrites.size(); ++i) {
      if (used & (1U << i)) continue;
      const NamedRewrite& next = rewrites[i];
      const std::string longer = said + " " + next.name;
      if (const auto changed = next.apply(graph)) {
        run(*changed, longer, next.launching.value_or(launching), used | 1U << i);
      }
    }
  }
};

struct SearchCase {
  std::string name;
  ExecutionGraph graph;
  WhatIfTarget target;
  std::vector<std::string> allow;
  std::optional<double> memory_share;  ///< share of the unchanged step's need
};

// Rewrites of the families, without those that the GPU lacks units for.
std::vector<NamedRewrite> rewrites_in(const SearchCase& of) {
  OptimizeOptions options;
  options.allow = of.allow;
  advice::Job job;
  for (const Node& node : of.graph.nodes) {
    if (of.graph.name(node).starts_with("Optimizer.step#Adam")) job.optimizer = "Adam";
  }
  std::vector<NamedRewrite> rewrites;
  const auto axes = advice::rewrite_axes(of.target.gpu, job, options).value();
  for (const auto& axis : axes) {
    for (const auto& choice : axis.choices) {
      if (!choice.lacks.empty()) continue;
      rewrites.push_back(*choice.rewrite);
    }
  }
  return rewrites;
}

std::vector<SearchCase> search_cases() {
  std::vector<SearchCase> cases;
  const auto add = [&](std::string name, ExecutionGraph graph, WhatIfTarget target,
                       std::vector<std::string> allow, std::optional<double> memory = {}) {
    cases.push_back(
        {std::move(name), std::move(graph), std::move(target), std::move(allow), memory});
  };
  const std::vector<std::string> host = {"optimizer", "fusion", "cuda-graphs", "compile"};
  const std::vector<std::string> tables = {"tables", "optimizer", "fusion", "cuda-graphs"};
  // A100 has four precisions, the others have one.
  const std::vector<std::string> few_halves = {"precision", "fusion"};
  const std::vector<std::string> few_mixed = {"precision", "cuda-graphs"};
  const std::vector<std::string> more = {"precision", "optimizer", "fusion", "cuda-graphs"};
  const std::vector<std::string> compiled = {"precision", "optimizer", "cuda-graphs", "compile"};
  for (const char* gpu : {"a100-sxm-40gb", "v100-sxm2-16gb", "t4"}) {
    for (const double scale : {0.3, 1.0}) {
      const bool bf16 = known_gpu(gpu).peak_tflop_per_s.bf16_matrix.has_value();
      const std::string on = fmt::format("{}, host x {}", gpu, scale);
      add("MLP, momentum, " + on, small_mlp(Optimizer::kMomentum, 64, 256), target_on(gpu, scale),
          host);
      add("DLRM, " + on, small_dlrm(512, false), target_on(gpu, scale), tables);
      add("MLP, SGD, large, " + on, small_mlp(Optimizer::kSgd, 8192, 2048), target_on(gpu, scale),
          bf16 ? few_halves : more);
      add("GPT, " + on, small_gpt(8, 256, Optimizer::kSgd), target_on(gpu, scale),
          bf16 ? few_mixed : compiled);
    }
  }
  add("MLP, large batch", small_mlp(Optimizer::kMomentum, 16'384, 1024), target_on("t4"), host);
  add("DLRM, large batch", small_dlrm(16'384, false), target_on("t4"), tables);
  add("DLRM, batched", small_dlrm(2048, true), target_on("p100-pcie-16gb"), more);
  add("GPT in memory", small_gpt(64, 256, Optimizer::kSgd), target_on("a100-sxm-40gb"),
      {"checkpoint", "cuda-graphs"}, 0.9);
  add("GPT in place in memory", small_gpt(64, 256, Optimizer::kSgd), target_on("a100-sxm-40gb"),
      {"in-place", "checkpoint"}, 0.9);
  add("GPT in less memory", small_gpt(128, 512, Optimizer::kSgd), target_on("a100-sxm-40gb"),
      {"checkpoint", "fusion"}, 0.8);
  return cases;
}

TEST(Optimize, FindsWhatAllSequencesFind) {
  std::size_t same = 0, searched = 0, enumerated = 0;
  const auto cases = search_cases();
  ASSERT_EQ(cases.size(), 30U);
  for (const SearchCase& one : cases) {
    SCOPED_TRACE(one.name);
    OptimizeOptions options;
    options.allow = one.allow;
    options.time_budget_s = kWholeSearch;
    AllSequences all{one.target, rewrites_in(one)};
    ASSERT_LE(all.rewrites.size(), 8U);
    ASSERT_GE(all.rewrites.size(), 4U);
    if (one.memory_share) {
      const auto needed = predict(one.graph, one.target.gpu, reference()).value().memory;
      all.memory_limit = *one.memory_share * needed.needed_bytes();
      options.memory_limit_bytes = all.memory_limit;
    }
    all.run(one.graph, "", Launching::kEager, 0);
    const auto found = optimize(one.graph, one.target, options);
    ASSERT_EQ(found.has_value(), std::isfinite(all.best_us))
        << (found ? "" : to_string(found.error()));
    ASSERT_TRUE(found);
    EXPECT_LE(found->best_us, 1.01 * all.best_us) << all.best << " against " << found->best_command;
    EXPECT_GE(found->best_us, (1 - 1e-9) * all.best_us)
        << "not enumerated: " << found->best_command;
    // Steady state is known to 0.1 %: what gains less is no advice.
    same += found->best_us <= 1.001 * all.best_us;
    searched += found->evaluations;
    enumerated += all.evaluations;
    if (std::getenv("PERFMODEL_SHOW_SEARCH")) {
      if (found->best_us > 1.0003 * all.best_us) {
        fmt::print("{} against {}\n", all.best, found->best_command);
      }
      fmt::print("{:<44} {} rewrites, {} of {} predictions, {:.4f} and {:.4f} us\n", one.name,
                 all.rewrites.size(), found->evaluations, all.evaluations, found->best_us,
                 all.best_us);
    }
  }
  RecordProperty("same", static_cast<int>(same));
  RecordProperty("searched", static_cast<int>(searched));
  RecordProperty("enumerated", static_cast<int>(enumerated));
  EXPECT_GE(same, 29U);
  EXPECT_LE(10 * searched, enumerated);
}

// The path bounds the gain of a rewrite: the gain is less, apart from the open ends of the path.
TEST(Optimize, SinglesGainNoMoreThanThePathHolds) {
  for (const SearchCase& one : search_cases()) {
    if (one.memory_share) continue;
    SCOPED_TRACE(one.name);
    const auto axes = advice::rewrite_axes(one.target.gpu, {}, {.allow = one.allow}).value();
    const auto before = predict(one.graph, one.target.gpu, reference(), one.target.options).value();
    const auto shares = advice::path_shares(before);
    const advice::Touch all{.host = true,
                            .optimizer_host = true,
                            .families = advice::Touch::kAllFamilies,
                            .optimizer_families = advice::Touch::kAllFamilies};
    EXPECT_NEAR(shares.touched_us(all), before.e2e_us, 1e-6 * before.e2e_us);
    for (const auto& axis : axes) {
      for (const auto& choice : axis.choices) {
        const auto changed = apply_rewrites(one.graph, std::span(&*choice.rewrite, 1));
        if (!changed) continue;
        PredictOptions options = one.target.options;
        options.launching = choice.rewrite->launching.value_or(Launching::kEager);
        const double after = predict(*changed, one.target.gpu, reference(), options).value().e2e_us;
        // The gap in front of the first update counts as the backward pass's.
        EXPECT_LE(before.e2e_us - after, 1.3 * shares.touched_us(axis.touch) + 1e-3 * before.e2e_us)
            << choice.text;
      }
    }
  }
}

// ---------------------------------------------------------------- buckets in closed form

/// Products take 100 us, moving a byte `copy_us_per_byte`, an all-reduce alpha + beta x bytes;
/// everything else, the host too, takes no time.
class LiteralKernels : public KernelModel {
 public:
  double product_us = 100, copy_us_per_byte = 0, alpha_us = 0, beta_us_per_byte = 0;

  Price price(const KernelWork& work, const Gpu&) const override {
    double us = 0;
    if (work.family == KernelFamily::kGemm) us = product_us;
    if (work.family == KernelFamily::kCollective) {
      us = alpha_us + beta_us_per_byte * static_cast<double>(work.bytes_read.value);
    }
    if (work.family == KernelFamily::kElementwise || work.family == KernelFamily::kCopy) {
      us = copy_us_per_byte * static_cast<double>(work.bytes().value);
    }
    const Microseconds time(us);
    return {.time = time, .low = time, .high = time, .bound = Bound::kMemory, .model = "literal"};
  }
};

class Buckets : public ::testing::Test {
 protected:
  static constexpr std::int64_t kLayers = 16, kWidth = 1024;

  Buckets() {
    MlpConfig config;
    config.widths.assign(kLayers + 1, kWidth);
    config.batch = 8;
    config.training.optimizer = Optimizer::kSgd;
    config.training.implementation = Implementation::kFused;
    graph_ = build_mlp(config).value();
    for (std::size_t i = 0; i <= static_cast<std::size_t>(KernelFamily::kSmall); ++i) {
      models_.set(static_cast<KernelFamily>(i), &kernels_);
    }
    no_host_.device = {.launch_latency_us = 0,
                       .collective_latency_us = 0,
                       .copy_latency_us = 0,
                       .blocking_read_latency_us = 0,
                       .blocking_write_latency_us = 0,
                       .kernel_gap_us = 0,
                       .event_gap_us = 0};
    target_ = {.gpu = round_gpu(), .overheads = &no_host_};
    target_.options.models = &models_;
  }

  Advice search(std::vector<std::string> allow = {"buckets"}) {
    OptimizeOptions options;
    options.allow = std::move(allow);
    options.world = 8;
    auto advice = optimize(graph_, target_, options);
    if (!advice) ADD_FAILURE() << to_string(advice.error());
    return advice ? std::move(*advice) : Advice{};
  }

  double with(const DataParallelRewrite& how) {
    return step_us(rewrite_data_parallel(graph_, how).value(), target_);
  }

  OverheadTable no_host_;
  LiteralKernels kernels_;
  KernelModels models_ = KernelModels::heuristic();
  WhatIfTarget target_;
  ExecutionGraph graph_;
};

// Forward 16 products, then 31: layer i of the backward pass is ready 2 products after the one
// before (the last one needs no gradient of its input). With g layers of S bytes per bucket:
//
//   T(g) = 16 p + 2 p g + (16 / g) alpha + 16 beta S     g < 16, where all-reduces take longer
//   T(16) = 47 p + alpha + 16 beta S
//
// Buckets close when they reach their cap, so a cap of 4 g MiB holds g layers (4 MiB and a bias).
TEST_F(Buckets, SearchFindsTheBestAndOverFusionLoses) {
  const double layer = 4.0 * (kWidth * kWidth + kWidth);
  kernels_.alpha_us = 1000;
  kernels_.beta_us_per_byte = 500 / layer;
  const double wire = 16 * 500;
  const auto exact = [&](double g) { return 1600 + 200 * g + 16 / g * 1000 + wire; };
  for (const std::int64_t g : {1, 2, 4, 8}) {
    const std::int64_t cap = 4 * g << 20;
    EXPECT_NEAR(with({.world_size = 8, .first_bucket_bytes = cap, .bucket_cap_bytes = cap}),
                exact(static_cast<double>(g)), 1e-6 * wire)
        << g;
  }
  const std::int64_t all = std::int64_t{1} << 40;
  const double one_bucket =
      with({.world_size = 8, .first_bucket_bytes = all, .bucket_cap_bytes = all});
  EXPECT_NEAR(one_bucket, 4700 + 1000 + wire, 1e-6 * wire);

  const Advice advice = search();
  double best = one_bucket;
  for (std::int64_t layers = 1; layers < 16; ++layers) {
    const std::int64_t cap = 4 * layers << 20;
    best =
        std::min(best, with({.world_size = 8, .first_bucket_bytes = cap, .bucket_cap_bytes = cap}));
  }
  EXPECT_NEAR(advice.best_us, exact(8), 1e-6 * wire);
  EXPECT_LE(advice.best_us, 1.01 * best);
  EXPECT_LT(advice.best_us, advice.baseline_us);  // than 25 MiB
  EXPECT_LT(advice.best_us, one_bucket);          // than all fused
  EXPECT_LT(advice.best_us, exact(1));            // than none fused
  ASSERT_FALSE(advice.combination.empty());
  EXPECT_THAT(advice.combination.front().rewrite, HasSubstr("--data-parallel 8,cap="));
}

// One gradient of S bytes (dPRO, section 5): its copy into the bucket takes c S, its all-reduce
// alpha + beta S, the way back c S. In k pieces, if the wire is slower than the copies, all copies
// except one k-th overlap with all-reduces:
//
//   T(k) = rest + 2 c S / k + k alpha + beta S,    k* = sqrt(2 c S / alpha) = 5.7
TEST_F(Buckets, PiecesOfOneHugeTensorBeatNone) {
  MlpConfig config;
  config.widths = {4096, 4096};
  config.batch = 8;
  config.training.optimizer = Optimizer::kSgd;
  config.training.implementation = Implementation::kFused;
  graph_ = build_mlp(config).value();
  const double bytes = 4.0 * 4096 * 4096;
  kernels_.product_us = 0;
  kernels_.alpha_us = 100;
  kernels_.copy_us_per_byte = 1600 / (2 * bytes);  // read and written
  kernels_.beta_us_per_byte = 6400 / bytes;
  const auto in_pieces = [&](std::int64_t pieces) {
    DataParallelRewrite how{.world_size = 8};
    how.split_bytes = static_cast<std::int64_t>(bytes) / pieces;
    how.first_bucket_bytes = how.bucket_cap_bytes = *how.split_bytes;
    return with(how);
  };
  const double whole = with({.world_size = 8});
  for (const std::int64_t k : {2, 4, 8, 16}) {
    const auto pieces = static_cast<double>(k);
    EXPECT_NEAR(whole - in_pieces(k), 3200 * (1 - 1 / pieces) - 100 * (pieces - 1), 1.5) << k;
  }
  EXPECT_GT(in_pieces(64), in_pieces(8));  // too many lose
  const Advice advice = search();
  const auto split = std::ranges::find_if(advice.steps, [](const AdvisedStep& step) {
    return step.rewrite.find("split=") != std::string::npos;
  });
  ASSERT_NE(split, advice.steps.end());
  EXPECT_GE(split->gain_us, 1500);
  EXPECT_LE(advice.best_us, in_pieces(4));
}

// ---------------------------------------------------------------- answers

class Answers : public ::testing::Test {
 protected:
  ExecutionGraph graph_ = small_gpt(8, 256, Optimizer::kAdam);
  WhatIfTarget target_ = target_on("a100-sxm-40gb");

  Advice search(const OptimizeOptions& options) {
    auto advice = optimize(graph_, target_, options);
    if (!advice) ADD_FAILURE() << to_string(advice.error());
    return advice ? std::move(*advice) : Advice{};
  }
  std::string refusal(const OptimizeOptions& options) {
    const auto advice = optimize(graph_, target_, options);
    return advice ? "" : advice.error().message;
  }
};

TEST_F(Answers, AreTheSameInEveryRun) {
  const OptimizeOptions whole = {.world = 4, .time_budget_s = kWholeSearch};
  const Advice a = search(whole), b = search(whole);
  EXPECT_EQ(a.best_us, b.best_us);
  EXPECT_EQ(a.best_command, b.best_command);
  EXPECT_EQ(a.evaluations, b.evaluations);
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].rewrite, b.steps[i].rewrite);
    EXPECT_EQ(a.steps[i].gain_us, b.steps[i].gain_us);
  }
}

TEST_F(Answers, SinglesAreRankedAndTheBestIsNoWorse) {
  const Advice advice = search({.time_budget_s = kWholeSearch});
  ASSERT_FALSE(advice.steps.empty());
  for (std::size_t i = 0; i < advice.steps.size(); ++i) {
    const AdvisedStep& step = advice.steps[i];
    EXPECT_NEAR(step.gain_us, advice.baseline_us - step.step_us, 1e-9 * advice.baseline_us);
    EXPECT_EQ(step.within_error, step.gain_us <= step.error_us);
    EXPECT_GE(step.step_us, advice.best_us * (1 - 1e-12));
    EXPECT_FALSE(step.code.empty());
    EXPECT_THAT(step.command, HasSubstr("perfpredict predict"));
    if (i > 0) {
      EXPECT_LE(step.gain_us, advice.steps[i - 1].gain_us);
    }
  }
  for (const CombinedStep& step : advice.combination) EXPECT_GT(step.adds_us, 0) << step.rewrite;
  EXPECT_THAT(advice.lost, Not(IsEmpty()));
  EXPECT_TRUE(advice.complete);
}

// A batch that does not fit becomes possible, and worth it, with rewrites that free memory.
TEST_F(Answers, FreedMemoryOpensALargerBatch) {
  graph_ = small_gpt(64, 256, Optimizer::kSgd);
  const double needed = predict(graph_, target_.gpu, reference(), {}).value().memory.needed_bytes();
  OptimizeOptions options{.allow = {"batch", "checkpoint"},
                          .objective = AdviceObjective::kSamplesPerS,
                          .memory_limit_bytes = 1.05 * needed};
  target_.options.host_scale = 20;  // the host sets the pace: samples are nearly free
  const Advice advice = search(options);
  EXPECT_EQ(advice.baseline_batch, 64);
  ASSERT_TRUE(advice.best_batch);
  EXPECT_GE(*advice.best_batch, 128);
  EXPECT_LE(advice.best_bytes, *options.memory_limit_bytes);
  EXPECT_EQ(advice.combination.size(), 2U);
  EXPECT_NEAR(advice.best_us, advice.best_step_us * 64 / static_cast<double>(*advice.best_batch),
              1e-9 * advice.best_us);
}

TEST_F(Answers, FewerGpusSaveGpuHours) {
  target_.options.host_scale = 0.1;
  const Advice advice =
      search({.allow = {"ranks"}, .objective = AdviceObjective::kSamplesPerGpuHour, .world = 8});
  EXPECT_EQ(advice.baseline_ranks, 8);
  EXPECT_EQ(advice.best_ranks, 1);  // no all-reduce at all
}

TEST_F(Answers, ASpentBudgetIsTold) {
  const Advice advice = search({.time_budget_s = 1e-9});
  EXPECT_FALSE(advice.complete);
  EXPECT_EQ(advice.evaluations, 1U);
  EXPECT_EQ(advice.best_us, advice.baseline_us);
}

TEST_F(Answers, RefusalsAreOneLine) {
  EXPECT_THAT(refusal({.allow = {"magic"}}), HasSubstr("found \"magic\""));
  EXPECT_THAT(refusal({.allow = {"batch"}}), HasSubstr("samples-per-s allows it"));
  EXPECT_THAT(refusal({.allow = {"buckets"}}), HasSubstr("one rank reduces no gradients"));
  EXPECT_THAT(refusal({.allow = {"ranks"}, .world = 8}), HasSubstr("samples-per-gpu-hour"));
  EXPECT_THAT(refusal({.memory_limit_bytes = 1e6}), HasSubstr("the least needs"));
  EXPECT_THAT(refusal({.memory_limit_bytes = -1}), HasSubstr("above 0"));
  EXPECT_THAT(refusal({.world = 0}), HasSubstr("at least 1 rank"));
  EXPECT_THAT(refusal({.time_budget_s = 0}), HasSubstr("above 0 s"));
}

TEST(PredictorOptimize, AnswersAsTheFunctionDoes) {
  const auto predictor =
      Predictor::load({.gpus = {"a100-sxm-40gb"}, .models = "heuristic"}).value();
  const auto job = predictor.prepare(small_dlrm(256, false)).value();
  const Advice ours = predictor.optimize(job, "a100-sxm-40gb", {}).value();
  const Advice same = optimize(job.graph(), target_on("a100-sxm-40gb"), {}).value();
  EXPECT_EQ(ours.best_us, same.best_us);
  EXPECT_EQ(ours.evaluations, same.evaluations);
  EXPECT_FALSE(predictor.optimize(job, "no-such-gpu", {}));
}

}  // namespace optimize_test
}  // namespace perfmodel
