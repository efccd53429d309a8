// Parts of a layout's memory: they add up, and each moves with what it is made of.
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
  EXPECT_FALSE(pricer().predict(of.job, of.layout));
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
