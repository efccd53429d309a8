// Parts of a layout's memory: they add up, and each changes with its causes.
#include <gtest/gtest.h>

#include "layout/layout_results.hpp"
#include "perfmodel/layout.hpp"
#include "predictor_cases.hpp"
#include "random_layouts.hpp"

namespace perfmodel {
namespace layout_memory_test {

using test_support::RandomLayout;

const LayoutPricer& pricer() {
  static const LayoutPricer made =
      LayoutPricer::make(
          Predictor::load({.data = test_support::source_data(), .gpus = {"h100-sxm-80gb"}}).value(),
          {.gpu = "h100-sxm-80gb"})
          .value();
  return made;
}

LayoutPrediction predicted(const RandomLayout& of) {
  const auto made = pricer().predict(of.job, of.layout);
  EXPECT_TRUE(made) << to_string(made.error());
  return made ? *made : LayoutPrediction{};
}

double sum_of_parts(const LayoutPrediction& made) {
  double sum = 0;
  for (const LayoutMemoryPart& part : kLayoutMemoryParts) sum += made.*part.bytes;
  return sum;
}

TEST(LayoutMemory, PartsAddUpToTheByte) {
  test_support::LayoutQuestions questions;
  for (int i = 0; i < 200; ++i) {
    const LayoutPrediction made = predicted(questions.next());
    EXPECT_EQ(sum_of_parts(made), made.reserved_bytes);
    EXPECT_EQ(sum_of_parts(made) - made.allocator_bytes, made.allocated_bytes);
  }
}

// Besides the parameters of the embedding and the output layer: weights, gradients and moments.
TEST(LayoutMemory, WordsMoveLogitsAndEmbeddingsAlone) {
  test_support::LayoutQuestions questions;
  int moved = 0;
  for (int i = 0; i < 200; ++i) {
    RandomLayout of = questions.next();
    // Stages that are balanced by products have other layers then.
    if (of.job.software == "nanotron" && of.layout.pp > 1) continue;
    const LayoutPrediction before = predicted(of);
    of.job.model.vocabulary *= 2;
    const LayoutPrediction after = predicted(of);
    if (after.fullest_stage != before.fullest_stage) continue;
    EXPECT_EQ(after.activation_bytes, before.activation_bytes);
    EXPECT_EQ(after.working_bytes, before.working_bytes);
    EXPECT_EQ(after.program_bytes, before.program_bytes);
    EXPECT_GE(after.logit_bytes, before.logit_bytes);
    moved += after.logit_bytes > before.logit_bytes ? 1 : 0;
  }
  EXPECT_GT(moved, 80);
}

// 4,096 tokens of 131,072 words in fp32, less the last token of each sequence: log-probabilities
// and the gradients of them and of the logits.
TEST(LayoutMemory, LogitsByHand) {
  RandomLayout of;
  of.job.model = {.name = "hand",
                  .layers = 2,
                  .hidden = 1024,
                  .heads = 8,
                  .feed_forward = 2048,
                  .vocabulary = 131072};
  of.job.sequence = 2048;
  of.job.global_batch = 2;
  of.layout.micro_batch = 2;
  of.job.software = "fsdp";
  const LayoutPrediction whole = predicted(of);
  const double one = 4.0 * 2 * 2047 * 131072;
  EXPECT_NEAR(whole.logit_bytes + whole.working_bytes, 3 * one, 0.01 * one);
  of.job.loss_chunks = 4;
  const LayoutPrediction pieces = predicted(of);
  EXPECT_NEAR(pieces.logit_bytes + pieces.working_bytes, 3 * one / 4, 0.01 * one);
  of.job.loss_chunks = 0;
  const LayoutPrediction fused = predicted(of);
  EXPECT_EQ(fused.logit_bytes, 0);
  EXPECT_EQ(fused.allocated_bytes, whole.allocated_bytes - whole.logit_bytes);
}

RandomLayout decoder_of_two_billion() {
  RandomLayout of;
  of.job.model = {.name = "2b",
                  .layers = 32,
                  .hidden = 2048,
                  .heads = 16,
                  .feed_forward = 8192,
                  .vocabulary = 32768};
  of.job.sequence = 2048;
  of.job.global_batch = 64;
  of.job.software = "fsdp";
  return of;
}

// A stage gathers its parameters once and keeps them; all microbatches add to whole gradients. Its
// optimizer keeps a shard, as with ZeRO-1, and the first forward pass hides gathers.
TEST(LayoutMemory, PipelinesGatherOncePerStep) {
  RandomLayout of = decoder_of_two_billion();
  of.layout.dp = 4;
  of.layout.pp = 2;
  of.layout.zero = Sharding::kZero1;
  const LayoutPrediction first = predicted(of);
  of.layout.zero = Sharding::kFsdp;
  const LayoutPrediction sharded = predicted(of);
  EXPECT_NEAR(sharded.weight_bytes, first.weight_bytes / 4, 1);
  EXPECT_EQ(sharded.gathered_bytes, first.weight_bytes);
  EXPECT_EQ(sharded.gradient_bytes, first.gradient_bytes);
  EXPECT_EQ(sharded.optimizer_bytes, first.optimizer_bytes);
  EXPECT_LT(sharded.step_ms, first.step_ms);
  const auto exposed = [](const LayoutPrediction& made) {
    return made.terms_ms[static_cast<std::size_t>(LayoutTerm::kDataParallel)];
  };
  EXPECT_GT(exposed(sharded), 0);
  EXPECT_LT(exposed(sharded), exposed(first));
  of.layout.zero = Sharding::kHsdp;
  EXPECT_EQ(predicted(of).step_ms, sharded.step_ms);  // the copy is in one node
}

// Two nodes hold a copy each: a stage keeps an eighth of its states, not a sixteenth, gathers
// inside of the node, and copies add up their sums.
TEST(LayoutMemory, HybridShardingInsideOfPipelines) {
  RandomLayout of = decoder_of_two_billion();
  of.layout.dp = 16;
  of.layout.pp = 2;
  of.layout.zero = Sharding::kFsdp;
  const LayoutPrediction all = predicted(of);
  of.layout.zero = Sharding::kHsdp;
  const LayoutPrediction copies = predicted(of);
  EXPECT_NEAR(copies.weight_bytes, 2 * all.weight_bytes, 2);
  EXPECT_NEAR(copies.optimizer_bytes, 2 * all.optimizer_bytes, 2);
  EXPECT_EQ(copies.gradient_bytes, all.gradient_bytes);
  EXPECT_NE(copies.step_ms, all.step_ms);
}

// No rank keeps whole gradients, so each microbatch scatters its own.
TEST(LayoutMemory, ZeroTwoScattersEachMicrobatch) {
  RandomLayout of = decoder_of_two_billion();
  of.layout.dp = 16;
  of.job.global_batch = 256;
  of.job.software = "megatron-deepspeed";  // which hides no sums
  const auto exposed_ms = [&](Sharding zero, std::int64_t micro_batch) {
    of.layout.zero = zero;
    of.layout.micro_batch = micro_batch;
    return predicted(of).terms_ms[static_cast<std::size_t>(LayoutTerm::kDataParallel)];
  };
  EXPECT_NEAR(exposed_ms(Sharding::kZero2, 16), exposed_ms(Sharding::kZero1, 16), 1e-6);
  EXPECT_GT(exposed_ms(Sharding::kZero2, 1), 4 * exposed_ms(Sharding::kZero1, 1));
}

// Each third of 24 layers, the first 2 of 4 chunks of 6, all in groups of 4: kept inputs and kept
// layers add up.
TEST(LayoutMemory, RecomputedLayersAreCounted) {
  RandomLayout of = decoder_of_two_billion();
  of.job.model.layers = 24;
  of.job.cuda_graphs = LayoutJob::kFullGraph;  // the device's time alone
  const auto with = [&](LayoutRecompute what) {
    of.layout.recompute = what;
    return predicted(of);
  };
  const auto compute_ms = [](const LayoutPrediction& made) {
    return made.terms_ms[static_cast<std::size_t>(LayoutTerm::kCompute)];
  };
  const LayoutPrediction none = with({}), full = with(LayoutRecompute::kFull);
  const LayoutPrediction third = with({LayoutRecompute::kEvery, 3});
  const LayoutPrediction block = with({LayoutRecompute::kBlock, 8});
  const LayoutPrediction groups = with({LayoutRecompute::kUniform, 4});
  const double more_ms = compute_ms(full) - compute_ms(none);
  const double kept = none.activation_bytes - full.activation_bytes;
  EXPECT_NEAR(compute_ms(third) - compute_ms(none), more_ms / 3, 1e-6 * more_ms);
  EXPECT_NEAR(none.activation_bytes - third.activation_bytes, kept / 3, 1e-6 * kept);
  EXPECT_EQ(block.step_ms, third.step_ms);  // 8 of one chunk of 24
  EXPECT_NEAR(compute_ms(groups), compute_ms(full), 1e-6 * more_ms);
  EXPECT_LT(groups.activation_bytes, full.activation_bytes);
  EXPECT_GT(groups.working_bytes, full.working_bytes);
  EXPECT_LT(third.hfu / third.mfu, full.hfu / full.mfu);
}

// Two norms of a layer make 2 hidden numbers of 2 bytes per token; the scores of fused attention do
// not lie in memory; a feed-forward part with its gate 3 times its width.
TEST(LayoutMemory, PartsOfLayersComputedAgain) {
  RandomLayout of = decoder_of_two_billion();
  const auto with = [&](unsigned modules) {
    of.layout.recompute = {LayoutRecompute::kModules, 1, static_cast<std::uint8_t>(modules)};
    if (modules == 0) of.layout.recompute = {};
    return predicted(of);
  };
  const DecoderModel& model = of.job.model;
  const auto bytes = [&](std::int64_t numbers) {
    return 2.0 * static_cast<double>(numbers * model.layers * of.job.sequence);
  };
  const LayoutPrediction none = with(0);
  const LayoutPrediction norms = with(LayoutRecompute::kNorms);
  const LayoutPrediction inner = with(LayoutRecompute::kDenseInner);
  const LayoutPrediction attention = with(LayoutRecompute::kCoreAttention);
  EXPECT_NEAR(none.activation_bytes - norms.activation_bytes, bytes(2 * model.hidden), 1);
  EXPECT_NEAR(none.activation_bytes - inner.activation_bytes, bytes(3 * model.feed_forward), 1);
  EXPECT_EQ(attention.activation_bytes, none.activation_bytes);
  for (const LayoutPrediction& made : {norms, inner, attention}) {
    EXPECT_GT(made.step_ms, none.step_ms);
    EXPECT_LT(made.step_ms, 1.4 * none.step_ms);
  }
  EXPECT_GT(inner.step_ms, norms.step_ms);
  of.layout.recompute = {LayoutRecompute::kModules, 1, LayoutRecompute::kExpertInner};
  const auto refused = pricer().predict(of.job, of.layout);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("found moe"), std::string::npos);
}

// Results of every second product and of attention stay: between nothing and everything again.
TEST(LayoutMemory, RecomputationByOpLiesBetween) {
  for (const std::int64_t tp : {1, 2}) {
    RandomLayout of = decoder_of_two_billion();
    of.layout.tp = tp;
    of.layout.sequence_parallel = tp > 1;
    of.layout.micro_batch = 4;
    const LayoutPrediction none = predicted(of);
    of.layout.recompute = LayoutRecompute::kFull;
    const LayoutPrediction full = predicted(of);
    of.layout.recompute = LayoutRecompute::kOp;
    const LayoutPrediction op = predicted(of);
    EXPECT_GT(op.step_ms, none.step_ms) << tp;
    EXPECT_LT(op.step_ms, full.step_ms) << tp;
    EXPECT_LT(op.activation_bytes, none.activation_bytes) << tp;
    EXPECT_GT(op.activation_bytes, full.activation_bytes) << tp;
    EXPECT_LT(op.hfu / op.mfu, full.hfu / full.mfu) << tp;
  }
}

}  // namespace layout_memory_test
}  // namespace perfmodel
