// Parts of a step in host memory: bytes and times by hand.
#include <gtest/gtest.h>

#include <string>

#include "layout/host_offload.hpp"
#include "layout/layout_results.hpp"
#include "perfmodel/detail/decoder_models.hpp"
#include "perfmodel/layout.hpp"
#include "predictor_cases.hpp"
#include "random_layouts.hpp"

namespace perfmodel {
namespace layout_offload_test {

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

std::string refusal(const RandomLayout& of) {
  const auto made = pricer().predict(of.job, of.layout);
  return made ? "" : made.error().message;
}

double ms_of(const LayoutPrediction& made, LayoutTerm term) {
  return made.terms_ms[static_cast<std::size_t>(term)];
}

/// Llama 3 8B on a node of 8 H100, ZeRO-3 with full recomputation.
RandomLayout llama_on_a_node() {
  RandomLayout of;
  of.job.model = find_decoder("llama3-8b")->model;
  of.job.sequence = 8192;
  of.job.global_batch = 8;
  of.job.software = "deepspeed";
  of.layout.dp = 8;
  of.layout.zero = Sharding::kZero3;
  of.layout.recompute = LayoutRecompute::kFull;
  return of;
}

constexpr double kLayer = 2.0 * 4096 * 4096 + 2.0 * 4096 * 1024 + 3.0 * 4096 * 14336 + 2.0 * 4096;
constexpr double kWords = 128256.0 * 4096;
constexpr double kAll = 32 * kLayer + 2 * kWords + 4096;
constexpr double kPinnedCopy = 0.78 * 63e6;  // bytes per ms

// A node holds 12 and 4 bytes per parameter, in all ranks together, as DeepSpeed's estimate of 16
// has it. Gradients of a layer's shard, 109 MB, take a pinned block of 128 MiB, the
// embeddings' and the output layer's, 263 MB, one of 256 MiB.
TEST(LayoutOffload, OptimizerByHand) {
  RandomLayout of = llama_on_a_node();
  const LayoutPrediction without = predicted(of);
  of.layout.offload.optimizer = true;
  const LayoutPrediction made = predicted(of);
  EXPECT_EQ(without.host_bytes, 0);
  EXPECT_EQ(made.optimizer_bytes, 0);
  EXPECT_EQ(made.gradient_bytes, 4 * kLayer / 8);
  EXPECT_EQ(made.weight_bytes, without.weight_bytes);
  EXPECT_EQ(made.host_optimizer_bytes, 12 * kAll);
  EXPECT_EQ(made.host_gradient_bytes, 4 * kAll);
  const double blocks = 8 * (32 * 0x1p27 + 2 * 0x1p28);
  EXPECT_EQ(made.host_pinned_bytes, blocks - 4 * kAll);
  EXPECT_EQ(made.host_bytes, 12 * kAll + blocks);
}

// 28 bytes per parameter at 109 GB/s, then an eighth of the weights comes back over PCIe.
// Gradients, 82 ms of copies, leave while the backward pass runs.
TEST(LayoutOffload, StepOfTheOptimizerByHand) {
  RandomLayout of = llama_on_a_node();
  const LayoutPrediction without = predicted(of);
  of.layout.offload.optimizer = true;
  const LayoutPrediction made = predicted(of);
  EXPECT_NEAR(ms_of(made, LayoutTerm::kOptimizer), 1e3 * 28 * kAll / 109e9, 1);
  const double back_ms = 2 * kAll / 8 / kPinnedCopy;
  EXPECT_NEAR(ms_of(made, LayoutTerm::kOffload), back_ms, 0.01);
  EXPECT_NEAR(made.step_ms,
              without.step_ms - ms_of(without, LayoutTerm::kOptimizer) +
                  ms_of(made, LayoutTerm::kOptimizer) + ms_of(made, LayoutTerm::kOffload),
              1e-6 * made.step_ms);
  EXPECT_EQ(made.warnings.size(), without.warnings.size() + 1);
  of.job.host_bytes_per_s = 218e9;
  const LayoutPrediction known = predicted(of);
  EXPECT_NEAR(ms_of(known, LayoutTerm::kOptimizer), ms_of(made, LayoutTerm::kOptimizer) / 2, 1e-3);
  EXPECT_EQ(known.warnings, without.warnings);
  EXPECT_LT(known.high_ms / known.low_ms, made.high_ms / made.low_ms);
}

// A quarter on the CPUs: a quarter of its bytes and of its time there, while the GPU steps the
// rest.
TEST(LayoutOffload, PartOfTheOptimizerByHand) {
  RandomLayout of = llama_on_a_node();
  const LayoutPrediction without = predicted(of);
  of.layout.offload.optimizer = true;
  of.job.optimizer_offload_fraction = 0.25;
  const LayoutPrediction made = predicted(of);
  EXPECT_EQ(made.optimizer_bytes, 0.75 * 12 * kAll / 8);
  EXPECT_EQ(made.host_optimizer_bytes, 0.25 * 12 * kAll);
  EXPECT_EQ(made.host_gradient_bytes, 0.25 * 4 * kAll);
  EXPECT_EQ(made.gradient_bytes, 0.75 * 4 * kAll / 8 + 0.25 * 4 * kLayer / 8);
  EXPECT_NEAR(ms_of(made, LayoutTerm::kOptimizer), 0.25 * 1e3 * 28 * kAll / 109e9, 1);
  EXPECT_NEAR(ms_of(made, LayoutTerm::kOffload), 0.25 * 2 * kAll / 8 / kPinnedCopy, 0.01);
  // With a host so fast that the GPU's part takes longer, the step is that part.
  of.job.host_bytes_per_s = 1e15;
  EXPECT_NEAR(ms_of(predicted(of), LayoutTerm::kOptimizer),
              0.75 * ms_of(without, LayoutTerm::kOptimizer), 0.02);
}

// 32 bytes per parameter pass the drives of the node at 8 GB/s, then the CPUs step. A rank holds
// four fp32 buffers of its shard of 1.004e9 parameters, of which a group has 1e9.
TEST(LayoutOffload, DrivesByHand) {
  RandomLayout of = llama_on_a_node();
  of.layout.offload = {.optimizer = true, .nvme = true};
  EXPECT_EQ(refusal(of),
            "offload optimizer-nvme: expected nvme_gb_per_s, what the drives of a node move, found "
            "none");
  of.job.nvme_bytes_per_s = 8e9;
  const LayoutPrediction made = predicted(of);
  EXPECT_EQ(made.host_optimizer_bytes, 8 * 16 * 1e9);
  EXPECT_EQ(made.host_bytes, made.host_optimizer_bytes);
  EXPECT_NEAR(ms_of(made, LayoutTerm::kOptimizer), 1e3 * (32 / 8e9 + 28 / 109e9) * kAll, 10);
  EXPECT_GT(made.low_ms, 0.85 * 1e3 * 32 / 8e9 * kAll);  // the rate of the drives is given
  of.layout.zero = Sharding::kZero2;
  EXPECT_EQ(refusal(of), "offload optimizer-nvme: expected zero 3, found zero 2");
}

TEST(LayoutOffload, RefusesPartsOfNothing) {
  RandomLayout of = llama_on_a_node();
  of.job.optimizer_offload_fraction = 0.5;
  EXPECT_EQ(
      refusal(of),
      "optimizer_offload_fraction: expected offload optimizer, without parameters, found none");
  of.layout.offload.optimizer = true;
  of.job.optimizer_offload_fraction = 0;
  EXPECT_EQ(refusal(of), "optimizer_offload_fraction: expected above 0, at most 1, found 0");
}

// 18 bytes per parameter with the weights; units come from the host before each gather.
TEST(LayoutOffload, ParametersByHand) {
  RandomLayout of = llama_on_a_node();
  of.layout.offload.optimizer = true;
  const LayoutPrediction before = predicted(of);
  of.layout.offload.parameters = true;
  const LayoutPrediction made = predicted(of);
  EXPECT_EQ(made.weight_bytes, 0);
  EXPECT_EQ(made.host_weight_bytes, 2 * kAll);
  EXPECT_EQ(made.allocated_bytes, before.allocated_bytes - before.weight_bytes);
  // Units are gathered one by one in either pass, the last and the first one once; FSDP does so
  // ahead.
  const double back_ms = ms_of(before, LayoutTerm::kOffload);
  const double fetched = 2 * (64 * kLayer + 2 * kWords + 4096) / 8;
  EXPECT_NEAR(ms_of(made, LayoutTerm::kOffload), fetched / kPinnedCopy, 0.2);
  of.job.software = "fsdp";
  const LayoutPrediction ahead = predicted(of);
  EXPECT_GT(ms_of(ahead, LayoutTerm::kOffload), 2 * kWords / 8 / kPinnedCopy);
  EXPECT_LT(ms_of(ahead, LayoutTerm::kOffload), back_ms);
}

// A checkpoint of 8,192 tokens is a block of 64 MiB; 6,144 tokens, 48 MiB, fill one as well. Two
// layers' are on their way.
TEST(LayoutOffload, CheckpointsByHand) {
  for (const double tokens : {8192.0, 6144.0}) {
    RandomLayout of = llama_on_a_node();
    of.job.sequence = static_cast<std::int64_t>(tokens);
    const LayoutPrediction without = predicted(of);
    of.layout.offload.activations = true;
    const LayoutPrediction made = predicted(of);
    const double checkpoint = 2 * 4096 * tokens;
    EXPECT_EQ(made.host_activation_bytes, 8 * 32 * checkpoint);
    EXPECT_EQ(made.host_bytes, 8 * 32 * 0x1p26);
    EXPECT_EQ(made.activation_bytes, without.activation_bytes - 30 * checkpoint);
    EXPECT_EQ(made.step_ms, without.step_ms);  // 1.4 ms within a forward pass of 5
  }
}

// All that a layer keeps does not pass PCIe while the layer runs: the step takes as long as the
// copies need.
TEST(LayoutOffload, ActivationsThatDoNotHideByHand) {
  RandomLayout of = llama_on_a_node();
  of.layout.recompute = LayoutRecompute::kNone;
  const LayoutPrediction without = predicted(of);
  of.layout.offload.activations = true;
  const LayoutPrediction made = predicted(of);
  const double copies_ms = 2 * made.host_activation_bytes / 8 / kPinnedCopy;
  EXPECT_GT(copies_ms, ms_of(without, LayoutTerm::kCompute));
  EXPECT_GT(ms_of(made, LayoutTerm::kOffload), copies_ms - ms_of(without, LayoutTerm::kCompute));
  EXPECT_LT(ms_of(made, LayoutTerm::kOffload), copies_ms);
  EXPECT_GT(made.host_pinned_bytes, 0);
}

// Four stages of two ranks each are one node, in which ZeRO-1 holds each parameter's states once.
TEST(LayoutOffload, StagesOfANodeAddUp) {
  RandomLayout of = llama_on_a_node();
  of.layout = {.dp = 2, .pp = 4, .zero = Sharding::kZero1, .offload = {.optimizer = true}};
  of.job.software = "nemo";
  const LayoutPrediction made = predicted(of);
  EXPECT_NEAR(made.host_optimizer_bytes, 12 * kAll, 8);
  of.layout.dp = 8;  // a stage is a node: the last one has the output layer and no less than others
  const LayoutPrediction stages = predicted(of);
  EXPECT_NEAR(stages.host_optimizer_bytes, 12 * (8 * kLayer + kWords + 4096), 8);
}

TEST(LayoutOffload, HostMemoryLimitsWhatFits) {
  RandomLayout of = llama_on_a_node();
  of.layout.offload.optimizer = true;
  const double needed = predicted(of).host_bytes;
  of.job.host_memory_bytes = needed;
  EXPECT_TRUE(predicted(of).fits);
  of.job.host_memory_bytes = needed - 1;
  EXPECT_FALSE(predicted(of).fits);
  EXPECT_EQ(parse_host_memory("1.5TB").value(), 1.5e12);
  EXPECT_EQ(parse_host_memory("2GiB").value(), 0x1p31);
  EXPECT_FALSE(parse_host_memory("2"));
  EXPECT_FALSE(parse_host_memory("-2TB"));
}

TEST(LayoutOffload, RefusesWhatContradicts) {
  RandomLayout of = llama_on_a_node();
  of.layout.offload.parameters = true;
  EXPECT_EQ(refusal(of), "offload parameters: expected the optimizer there, too, found none");
  of.layout.offload.optimizer = true;
  of.layout.zero = Sharding::kZero2;
  EXPECT_EQ(refusal(of),
            "offload parameters: expected zero 3, fsdp or hsdp without pipeline stages, found zero "
            "2 and pp 1");
  of.layout.offload.parameters = false;
  of.job.optimizer = LayoutJob::Optimizer::kAdamW8bit;
  EXPECT_EQ(refusal(of),
            "offload optimizer: expected adamw or sgd (CPUs have no 8-bit one), found adamw-8bit");
  of = llama_on_a_node();
  of.job.fp8_activations = true;
  EXPECT_EQ(refusal(of), "fp8_activations: expected precision fp8, found bf16");
}

// Less GPU memory, never a faster step, and parts that add up.
TEST(LayoutOffload, RandomLayouts) {
  test_support::LayoutQuestions questions;
  for (int i = 0; i < 200; ++i) {
    RandomLayout of = questions.next();
    const LayoutPrediction before = predicted(of);
    of.layout.offload = {.optimizer = questions.below(3) > 0,
                         .activations = questions.below(2) > 0};
    if (of.layout.zero == Sharding::kZero3 && of.layout.offload.optimizer) {
      of.layout.offload.parameters = questions.below(2) > 0;
    }
    const LayoutPrediction made = predicted(of);
    double parts = 0, host = 0, terms = 0;
    for (const LayoutMemoryPart& part : kLayoutMemoryParts) parts += made.*part.bytes;
    for (const LayoutMemoryPart& part : kLayoutHostParts) host += made.*part.bytes;
    for (const double term : made.terms_ms) terms += term;
    EXPECT_EQ(parts, made.reserved_bytes);
    EXPECT_EQ(host, made.host_bytes);
    EXPECT_NEAR(terms, made.step_ms, 1e-9 * made.step_ms);
    EXPECT_EQ(made.host_bytes > 0, of.layout.offload.any());
    EXPECT_LE(made.reserved_bytes, before.reserved_bytes);
    EXPECT_GE(made.step_ms, before.step_ms * (1 - 1e-9))
        << of.job.software << ", offload " << to_string(of.layout.offload);
  }
}

// A search offloads if it is asked to, or if nothing fits otherwise: 8 x 80 GB hold 2 bytes
// per parameter of 70 B, but not 18.
TEST(LayoutOffload, SearchesOffloadWhereNothingFits) {
  RandomLayout of;
  of.job.model = find_decoder("llama3-70b")->model;
  of.job.sequence = 2048;
  of.job.global_batch = 8;
  LayoutSpace space{.tp = {1}, .pp = {1}, .micro_batch = {1}};
  const auto found = rank_layouts(pricer(), of.job, 8, space);
  ASSERT_TRUE(found) << to_string(found.error());
  EXPECT_TRUE(found->unfit.starts_with("no layout of 8 GPUs fits: ")) << found->unfit;
  ASSERT_FALSE(found->best.empty());
  EXPECT_TRUE(found->best.front().layout.offload.optimizer);
  space.offload = {LayoutOffload{}};
  EXPECT_TRUE(rank_layouts(pricer(), of.job, 8, space)->best.empty());
  of.job.model = find_decoder("llama3-8b")->model;
  space.offload = {};
  const auto fits = rank_layouts(pricer(), of.job, 8, space);
  EXPECT_EQ(fits->unfit, "");
  for (const RankedLayout& one : fits->best) EXPECT_FALSE(one.layout.offload.any());
}

// A token of a layer keeps two results of norms and one of the activation in a byte less, and a
// copy of attention's result in one more, each on half of the ranks' tokens or heads.
TEST(LayoutOffload, Fp8ActivationsByHand) {
  RandomLayout of = llama_on_a_node();
  of.job.precision = LayoutJob::Precision::kFp8;
  of.job.software = "nemo";
  of.layout = {.dp = 4, .tp = 2, .sequence_parallel = true};
  const LayoutPrediction before = predicted(of);
  of.job.fp8_activations = true;
  const LayoutPrediction made = predicted(of);
  const double saved = 32.0 * 8192 * (2 * 4096 + 14336 - 4096) / 2.0;
  EXPECT_NEAR(before.activation_bytes - made.activation_bytes, saved, 1e-3 * saved);
  EXPECT_EQ(made.step_ms, before.step_ms);
}

// Latent attention also keeps its two normed latents for the up-projections; each of 8 experts
// keeps its input and the result of its activation, the shared one and dense layers theirs.
TEST(LayoutOffload, Fp8ActivationsOfLatentAttentionByHand) {
  RandomLayout of = llama_on_a_node();
  of.job.model = find_decoder("deepseek-v3")->model;
  of.job.model.next_tokens = 0;
  of.job.sequence = 4096;
  of.job.global_batch = 64;
  of.job.precision = LayoutJob::Precision::kFp8;
  of.job.software = "nemo";
  of.layout = {.dp = 64, .ep = 64};
  const double before = predicted(of).activation_bytes;
  of.job.fp8_activations = true;
  const double attention = 7168 + 1536 + 512 - 128 * 128;
  const double dense = attention + 7168 + 18432;
  const double experts = attention + 8 * (7168 + 2048) + 7168 + 2048;
  const double saved = 4096 * (3 * dense + 58 * experts);
  EXPECT_NEAR(before - predicted(of).activation_bytes, saved, 1e-3 * saved);
}

}  // namespace layout_offload_test
}  // namespace perfmodel
