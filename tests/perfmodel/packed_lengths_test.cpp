// Sequences packed from documents: the share of attention that is left, and the other terms that
// change.
#include "layout/packed_lengths.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>

#include "../scratch.hpp"
#include "layout/layout_request.hpp"
#include "perfmodel/layout.hpp"
#include "predictor_cases.hpp"

namespace perfmodel {
namespace packed_lengths_test {

std::string lengths_file(const std::string& name, const std::string& text) {
  const std::string file = test_support::scratch_file(name);
  std::ofstream(file) << text;
  return file;
}

const LayoutPricer& pricer() {
  static const LayoutPricer made =
      LayoutPricer::make(
          Predictor::load({.data = test_support::source_data(), .gpus = {"h100-sxm-80gb"}}).value(),
          {.gpu = "h100-sxm-80gb"})
          .value();
  return made;
}

LayoutAsk llama_asking(const std::string& lengths) {
  LayoutAsk ask;
  ask.model = "llama3-8b";
  ask.reads_files = true;
  ask.sequence = 32768;
  ask.global_batch = 64;
  ask.software = "fsdp";
  ask.lengths = lengths;
  return ask;
}

LayoutJob llama_job(const std::string& lengths) {
  const auto made = layout_question(llama_asking(lengths));
  EXPECT_TRUE(made) << to_string(made.error());
  return made ? made->job : LayoutJob{};
}

LayoutPrediction predicted(const LayoutJob& job, const ParallelLayout& layout) {
  const auto made = pricer().predict(job, layout);
  EXPECT_TRUE(made) << to_string(made.error());
  return made ? *made : LayoutPrediction{};
}

ParallelLayout sharded() {
  return {.dp = 8, .zero = Sharding::kFsdp, .recompute = LayoutRecompute::kFull};
}

TEST(PackedLengths, SharesByHand) {
  const auto halves = packed_share(lengths_file("halves.txt", "4096 10\n"), 8192);
  ASSERT_TRUE(halves);
  EXPECT_EQ(halves->mean, 0.5);
  EXPECT_EQ(halves->deviation, 0);
  // Far shorter than the sequence: E[l^2] / E[l] = (100^2 + 300^2) / 400 = 250 of 100,000 tokens.
  const auto mixed = packed_share(lengths_file("mixed.csv", "100,7\n300,7\n"), 100'000);
  ASSERT_TRUE(mixed);
  EXPECT_NEAR(mixed->mean, 0.0025, 0.02 * 0.0025);
  // A document that goes on over the end of a sequence counts as two: pieces of 6,000 and 2,192,
  // of 3,808 and 4,384 and so on.
  const auto cut = packed_share(lengths_file("cut.txt", "6000\n"), 8192);
  ASSERT_TRUE(cut);
  EXPECT_GT(cut->mean, 0.5);
  EXPECT_LT(cut->mean, (6000.0 * 6000 + 2192.0 * 2192) / (8192.0 * 8192) + 1e-9);
}

TEST(PackedLengths, WholeSequencesGiveTheSameAnswer) {
  const LayoutPrediction plain = predicted(llama_job(""), sharded());
  const LayoutPrediction packed =
      predicted(llama_job(lengths_file("whole.txt", "32768\n32768\n")), sharded());
  EXPECT_EQ(packed.step_ms, plain.step_ms);
  EXPECT_EQ(packed.high_ms, plain.high_ms);
  EXPECT_EQ(packed.mfu, plain.mfu);
  EXPECT_EQ(packed.reserved_bytes, plain.reserved_bytes);
  EXPECT_EQ(packed.attention_share, 1);
}

// Everything but attention goes by tokens, which are as many.
TEST(PackedLengths, ShortDocumentsMoveComputeAlone) {
  const LayoutPrediction plain = predicted(llama_job(""), sharded());
  const LayoutPrediction packed =
      predicted(llama_job(lengths_file("short.txt", "2048\n")), sharded());
  EXPECT_EQ(packed.attention_share, 1.0 / 16);
  constexpr auto kCompute = static_cast<std::size_t>(LayoutTerm::kCompute);
  EXPECT_LT(packed.terms_ms[kCompute], 0.8 * plain.terms_ms[kCompute]);
  EXPECT_EQ(packed.reserved_bytes, plain.reserved_bytes);
  constexpr auto kOptimizer = static_cast<std::size_t>(LayoutTerm::kOptimizer);
  EXPECT_EQ(packed.terms_ms[kOptimizer], plain.terms_ms[kOptimizer]);
}

// The most of 8 draws of a normal law is 1.42 deviations above its mean, of 64 2.35.
TEST(PackedLengths, TheSlowestRankIsExpected) {
  LayoutJob job;
  job.packed_mean = 0.3;
  job.packed_deviation = 0.1;
  job.global_batch = 8;
  EXPECT_NEAR(slowest_packed_share(job, {.dp = 8}), 0.3 + 0.1 * 1.42, 0.002);
  EXPECT_EQ(slowest_packed_share(job, {.dp = 1}), 0.3);
  job.global_batch = 64;
  EXPECT_NEAR(slowest_packed_share(job, {.dp = 64}), 0.3 + 0.1 * 2.35, 0.002);
  job.global_batch = 256;  // four sequences a rank: half of the deviation
  EXPECT_NEAR(slowest_packed_share(job, {.dp = 64}), 0.3 + 0.05 * 2.35, 0.001);
  job.packed_deviation = 9;
  EXPECT_EQ(slowest_packed_share(job, {.dp = 64}), 1);
}

// 512 documents a sequence leave nearly nothing of attention to compute again: a bound with all of
// it is above the price of 8 tensor parallel ranks, which take less memory.
TEST(PackedLengths, SearchesRuleOutNothingFaster) {
  LayoutJob job = llama_job("");
  job.model = {.name = "long",
               .layers = 8,
               .hidden = 1024,
               .heads = 8,
               .kv_heads = 8,
               .feed_forward = 4096,
               .vocabulary = 1024};
  job.sequence = 1 << 19;
  job.global_batch = 8;
  job.packed_mean = 1.0 / 512;
  const LayoutSpace space = {.tp = {8, 1},
                             .pp = {1},
                             .micro_batch = {1},
                             .cp = {1},
                             .zero = {Sharding::kNone},
                             .recompute = {LayoutRecompute::kFull}};
  const auto all = rank_layouts(pricer(), job, 8, space, {.keep = 2});
  const auto first = rank_layouts(pricer(), job, 8, space, {.keep = 1});
  ASSERT_TRUE(all && first);
  ASSERT_EQ(all->best.size(), 2u);
  EXPECT_EQ(all->best.front().layout.tp, 1);
  EXPECT_EQ(first->best.front().layout.tp, 1);
}

TEST(PackedLengths, RefusesWhatItDoesNotUnderstand) {
  const auto error = [](const std::string& file) {
    const auto made = packed_share(file, 4096);
    return made ? "" : to_string(made.error());
  };
  EXPECT_NE(error(lengths_file("words.txt", "12\nmany\n")).find("words.txt:2"), std::string::npos);
  EXPECT_NE(error(lengths_file("zero.txt", "0\n")).find("found \"0\""), std::string::npos);
  EXPECT_NE(error(lengths_file("none.txt", "\n")).find("at least one length"), std::string::npos);
  EXPECT_NE(error("/nowhere/lengths").find("expected a file of lengths"), std::string::npos);

  LayoutAsk from_afar = llama_asking(lengths_file("halves.txt", "4096\n"));
  from_afar.reads_files = false;
  EXPECT_FALSE(layout_question(from_afar));

  LayoutJob job = llama_job(lengths_file("halves.txt", "4096\n"));
  ParallelLayout split = sharded();
  split.dp = 4;
  split.cp = 2;
  EXPECT_FALSE(pricer().predict(job, split));
  job.attention = LayoutJob::Attention::kEager;
  EXPECT_FALSE(pricer().predict(job, sharded()));
}

// --- Long sequences by hand ----------------------------------------------------------------------

// A forward pass of causal attention is 2 products of 2 s^2 h FLOP by half, the backward pass 2.5
// times as much; documents of 128 tokens leave next to nothing of it. FlashAttention-3 (Shah et al.
// 2024, figures 5 and 6, causal, heads of 128, 16k tokens) reaches about 640 TFLOP/s forward and
// 550 backward on an H100: 0.58 of its 989 both together.
TEST(LongSequences, AttentionOf131072TokensReachesAPublishedShareOfThePeak) {
  LayoutAsk ask = llama_asking(lengths_file("tiny.txt", "128\n"));
  ask.sequence = 131072;
  ask.global_batch = 1;
  ask.attention = "fa3";
  LayoutJob job = layout_question(ask)->job;
  const double without = predicted(job, {}).step_ms;
  job.packed_mean = 1;
  const double attention_s = (predicted(job, {}).step_ms - without) * 1e-3;
  const double flop = 3.5 * 32 * 2 * 4096 * std::pow(131072.0, 2);
  EXPECT_NEAR(flop / attention_s / 989e12, 0.58, 0.08);
}

// 8 billion weights: 2 bytes, gradients 4, AdamW 12, over N GPUs; of 2^20 tokens, N-th parts of 32
// inputs of layers of 4,096 numbers in bf16, of input and result of the last norm, and of what the
// one layer whose backward pass runs has kept: input and result of two norms, queries, keys and
// values before and after their rotation, attention's result, gate and up, SiLU's result and the
// product.
TEST(LongSequences, AMillionTokensOn4To64GpusByHand) {
  LayoutAsk ask = llama_asking("");
  ask.sequence = 1 << 20;
  ask.global_batch = 1;
  ask.loss = "fused";
  const LayoutJob job = layout_question(ask)->job;
  for (const std::int64_t gpus : {4, 8, 16, 32, 64}) {
    ParallelLayout layout = sharded();
    layout.dp = 1;
    layout.cp = gpus;
    const LayoutPrediction made = predicted(job, layout);
    const double n = static_cast<double>(gpus), tokens = (1 << 20) / n;
    const double states = 8.03e9 * (2 + 4 + 12) / n;
    const double inputs = (32 + 2) * 4096 * 2 * tokens;
    const double layer = (4 * 4096 + 6144 + 5120 + 4096 + 2 * 14336 + 2 * 14336) * 2 * tokens;
    EXPECT_NEAR(made.weight_bytes + made.gradient_bytes + made.optimizer_bytes, states,
                0.05 * states);
    EXPECT_NEAR(made.activation_bytes, inputs, 0.05 * inputs);
    EXPECT_NEAR(made.working_bytes, layer, 0.05 * layer);
    // The rest: units that are gathered, what the allocator holds. 83.4 GB do not hold 8 GPUs' 78.
    EXPECT_EQ(made.fits, states + inputs + layer < 77e9) << gpus;
  }
}

}  // namespace packed_lengths_test
}  // namespace perfmodel
