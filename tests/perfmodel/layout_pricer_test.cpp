// Layouts of a small model, priced end to end.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "layout/shard_costs.hpp"
#include "perfmodel/layout.hpp"
#include "predictor_cases.hpp"

namespace perfmodel {
namespace layout_pricer_test {

const Predictor& predictor() {
  static const Predictor made =
      Predictor::load({.data = test_support::source_data(), .gpus = {"h100-sxm-80gb", "t4"}})
          .value();
  return made;
}

const LayoutPricer& pricer() {
  static const LayoutPricer made =
      LayoutPricer::make(predictor(), {.gpu = "h100-sxm-80gb"}).value();
  return made;
}

LayoutJob small_job() {
  LayoutJob job;
  job.model = {.name = "small",
               .layers = 8,
               .hidden = 1024,
               .heads = 8,
               .feed_forward = 4096,
               .vocabulary = 32000};
  job.sequence = 1024;
  job.global_batch = 32;
  return job;
}

ShardQuestion small_shard() {
  const LayoutJob job = small_job();
  return {.model = job.model, .sequence = job.sequence, .micro_batch = 2};
}

AskOptions kept_ops() { return {.keep_ops = true}; }

ShardCosts costs_of(const ShardQuestion& question) {
  return shard_costs(question, predictor(), "h100-sxm-80gb", kept_ops()).value();
}

// V h + L (4 h h + 3 h f + 2 h) + h + V h.
TEST(DecoderModels, ParametersAreCounted) {
  const DecoderModel model = small_job().model;
  const std::int64_t layer = 4 * 1024 * 1024 + 3 * 1024 * 4096 + 2 * 1024;
  EXPECT_EQ(parameter_count(model), 2 * 32000 * 1024 + 8 * layer + 1024);
  DecoderModel tied = model;
  tied.tied = true;
  EXPECT_EQ(parameter_count(tied), parameter_count(model) - 32000 * 1024);
  EXPECT_NEAR(model_flop_per_token(tied, 1024), model_flop_per_token(model, 1024), 1);
}

// A layer is what another layer adds, whichever.
TEST(ShardCosts, EveryLayerAddsTheSame) {
  const ShardQuestion question = small_shard();
  const ShardCosts costs = costs_of(question);
  const auto sum_of = [&](std::int64_t layers) {
    const ExecutionGraph graph = shard_graph(question, layers).value();
    const Prediction step = predictor().predict(graph, "h100-sxm-80gb", kept_ops()).value();
    return step.compute_kernel_us;
  };
  const double layer = costs.layer.forward.kernel_us + costs.layer.backward.kernel_us;
  EXPECT_NEAR(sum_of(4) - sum_of(3), layer, 0.01 * layer);
  EXPECT_NEAR(costs.layer.parameters, 4 * 1024 * 1024 + 3 * 1024 * 4096 + 2 * 1024, 1);
  EXPECT_GT(costs.layer.kept_bytes, 17.0 * 2048 * 1024);  // Korthikanti's 34 s b h, fused attention
  EXPECT_GT(costs.head.forward.kernel_us, 0);
  EXPECT_GT(costs.loss.backward.kernel_us, 0);
}

TEST(ShardCosts, TensorParallelismDividesAndCommunicates) {
  ShardQuestion question = small_shard();
  const ShardCosts whole = costs_of(question);
  question.tp = 4;
  question.sequence_parallel = true;
  const ShardCosts part = costs_of(question);
  EXPECT_EQ(whole.layer.forward.comm_us, 0);
  EXPECT_GT(part.layer.forward.comm_us, 0);
  EXPECT_LT(part.layer.forward.kernel_us, whole.layer.forward.kernel_us);
  EXPECT_NEAR(part.layer.parameters, whole.layer.parameters / 4, 2 * 1024);
  EXPECT_LT(part.layer.kept_bytes, 0.35 * whole.layer.kept_bytes);
  EXPECT_NEAR(part.boundary_bytes, whole.boundary_bytes / 4, 1);
}

TEST(ShardCosts, FullRecomputationKeepsInputsAndRunsTheForwardPassAgain) {
  ShardQuestion question = small_shard();
  const ShardCosts plain = costs_of(question);
  question.recompute = LayoutRecompute::kFull;
  const ShardCosts again = costs_of(question);
  EXPECT_NEAR(again.layer.backward.kernel_us,
              plain.layer.backward.kernel_us + plain.layer.forward.kernel_us, 1e-6);
  EXPECT_EQ(again.layer.kept_bytes, again.boundary_bytes);
}

// More microbatches of the same size take the same per sequence, and the terms are the step.
TEST(LayoutPricer, TermsAddUp) {
  for (const std::int64_t pp : {1, 2, 4}) {
    ParallelLayout layout;
    layout.pp = pp;
    layout.dp = 8 / pp;
    const auto made = pricer().predict(small_job(), layout);
    ASSERT_TRUE(made) << to_string(made.error());
    double sum = 0;
    for (const double term : made->terms_ms) {
      EXPECT_GE(term, 0);
      sum += term;
    }
    EXPECT_NEAR(sum, made->step_ms, 1e-9);
    EXPECT_LE(made->low_ms, made->step_ms);
    EXPECT_GE(made->high_ms, made->step_ms);
    EXPECT_GT(made->mfu, 0);
    EXPECT_LT(made->mfu, 1);
    EXPECT_NEAR(made->tokens_per_s_per_gpu, 32 * 1024 / 8 / made->step_ms * 1e3, 1e-6);
    EXPECT_TRUE(made->fits);
  }
}

// AMD's matrix units multiply in fp32, too: 45.3 TFLOP/s, twice the vector units.
TEST(LayoutPricer, MfuIsOfTheUnitsThatMultiply) {
  const Predictor amd =
      Predictor::load({.data = test_support::source_data(), .gpus = {"mi210"}}).value();
  LayoutJob job = small_job();
  job.precision = LayoutJob::Precision::kFp32;
  const auto made = LayoutPricer::make(amd, {.gpu = "mi210"}).value().predict(job, {}).value();
  const double flop_per_s =
      made.tokens_per_s_per_gpu * model_flop_per_token(job.model, job.sequence);
  EXPECT_NEAR(flop_per_s / made.mfu, 45.3e12, 1e9);
}

TEST(LayoutPricer, RefusesWhatDoesNotDivide) {
  const auto message = [](const LayoutJob& job, const ParallelLayout& layout) {
    const auto made = pricer().predict(job, layout);
    return made ? std::string("none") : made.error().message;
  };
  LayoutJob job = small_job();
  ParallelLayout layout;
  layout.tp = 3;
  EXPECT_EQ(message(job, layout), "heads: expected a multiple of tp = 3, found 8");
  layout = {};
  layout.dp = 5;
  EXPECT_EQ(message(job, layout),
            "global_batch: expected a multiple of dp micro_batch = 5, found 32");
  layout = {};
  layout.pp = 16;
  EXPECT_NE(message(job, layout).find("8 layers for 16 chunks"), std::string::npos);
  layout = {};
  layout.cp = 3;
  EXPECT_EQ(message(job, layout), "sequence: expected a multiple of 2 cp = 6, found 1024");
  layout = {};
  layout.ep = 2;
  EXPECT_EQ(message(job, layout),
            "ep: expected 1 for a model without experts, found ep 2 and etp 1");
  layout = {};
  layout.vp = 2;
  EXPECT_NE(message(job, layout).find("vp: expected 1 without pipeline stages"), std::string::npos);
  layout = {};
  layout.micro_batch = 0;
  EXPECT_EQ(message(job, layout), "micro_batch: expected at least 1, found 0");
  layout = {};
  layout.async_tp = true;
  EXPECT_EQ(message(job, layout),
            "async_tp: expected tp above 1 with sequence parallelism, found tp 1");
  layout = {};
  job.software = "nothing";
  EXPECT_NE(message(job, layout).find("expected a framework"), std::string::npos);
  EXPECT_FALSE(LayoutPricer::make(predictor(), {.gpu = "h9000"}));
  EXPECT_FALSE(LayoutPricer::make(predictor(), {.gpu = "h100-sxm-80gb", .topology = "nowhere"}));
}

TEST(LayoutPricer, RefusesWhatTheMachineCannotDo) {
  LayoutJob job = small_job();
  const auto t4 = LayoutPricer::make(predictor(), {.gpu = "t4"}).value();
  const auto wide = t4.predict(job, {});
  ASSERT_FALSE(wide);
  EXPECT_EQ(wide.error().message,
            "precision: expected a type that t4 has units for (fp16, fp32), found bf16");
  job.precision = LayoutJob::Precision::kFp16;
  EXPECT_TRUE(t4.predict(job, {}));
}

TEST(LayoutPricer, RefusesSizesThatNothingCanCount) {
  LayoutJob job = small_job();
  job.model.layers = std::int64_t{1} << 40;
  EXPECT_FALSE(pricer().predict(job, {}));
  job = small_job();
  ParallelLayout layout;
  const auto refused = [&](const char* message) {
    const auto odd = pricer().predict(job, {});
    ASSERT_FALSE(odd);
    EXPECT_EQ(odd.error().message, message);
    job = small_job();
  };
  job.model.head_width = std::int64_t{1} << 53;
  refused("head_width: expected at most 16777216, found 9007199254740992");
  job.model.head_width = 1 << 23;
  refused("heads times their width: expected at most 16777216, found 67108864");
  job.model.kv_heads = 3;
  refused("heads: expected a multiple of kv_heads = 3, found 8");
  job.model.latent.value_width = -1;
  refused("value_width: expected at least 0, found -1");
  layout.dp = layout.tp = layout.pp = 1 << 20;
  const auto made = pricer().predict(job, layout);
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("expected at most 1048576 GPUs"), std::string::npos);
  EXPECT_FALSE(rank_layouts(pricer(), job, std::int64_t{1} << 40));
  layout = {};
  job.sequence = job.global_batch = layout.micro_batch = std::int64_t{1} << 31;
  const auto large = pricer().predict(job, layout);
  ASSERT_FALSE(large);
  EXPECT_NE(large.error().message.find("expected tensors of at most"), std::string::npos);
}

TEST(LayoutPricer, SlowerNetworksAreNeverFaster) {
  LayoutJob job = small_job();
  ParallelLayout layout;
  layout.dp = 32;
  const double fast = pricer().predict(job, layout)->step_ms;
  job.software = "deepspeed";  // a share of the NICs' rate
  const double slow = pricer().predict(job, layout)->step_ms;
  EXPECT_GT(fast, 0);
  EXPECT_GT(slow, 0);
  for (const std::int64_t tp : {1, 2, 4}) {  // more ranks of one kind: less memory each
    ParallelLayout wider;
    wider.tp = tp;
    wider.sequence_parallel = true;
    const double here = pricer().predict(job, wider)->allocated_bytes;
    wider.tp = 2 * tp;
    EXPECT_LT(pricer().predict(job, wider)->allocated_bytes, here);
  }
}

TEST(RankLayouts, IsDeterministicAndOrdered) {
  const LayoutJob job = small_job();
  LayoutSpace space;
  space.micro_batch = {1, 2};
  const auto once = rank_layouts(pricer(), job, 8, space);
  ASSERT_TRUE(once) << to_string(once.error());
  const auto again = rank_layouts(pricer(), job, 8, space);
  ASSERT_TRUE(again);
  EXPECT_GT(once->priced, 50);
  EXPECT_TRUE(once->complete);
  ASSERT_EQ(once->best.size(), again->best.size());
  for (std::size_t i = 0; i < once->best.size(); ++i) {
    EXPECT_EQ(once->best[i].prediction.step_ms, again->best[i].prediction.step_ms);
    EXPECT_TRUE(once->best[i].prediction.fits);
    EXPECT_EQ(once->best[i].layout.gpus(), 8);
    if (i > 0) {
      EXPECT_LE(once->best[i - 1].prediction.step_ms, once->best[i].prediction.step_ms);
    }
  }
  for (std::size_t i = 1; i < once->frontier.size(); ++i) {
    EXPECT_GT(once->frontier[i].prediction.reserved_bytes,
              once->frontier[i - 1].prediction.reserved_bytes);
    EXPECT_LT(once->frontier[i].prediction.step_ms, once->frontier[i - 1].prediction.step_ms);
  }
  EXPECT_FALSE(rank_layouts(pricer(), job, 7, {.tp = {7}}));
}

TEST(RankLayouts, StopsWhenAsked) {
  std::stop_source stop;
  stop.request_stop();
  const auto ranking = rank_layouts(pricer(), small_job(), 8, {}, {.cancel = stop.get_token()});
  ASSERT_TRUE(ranking) << to_string(ranking.error());
  EXPECT_FALSE(ranking->complete);
  EXPECT_EQ(ranking->priced, 0);
}

}  // namespace layout_pricer_test
}  // namespace perfmodel
