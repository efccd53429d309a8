// Context and expert parallelism, adapters: traffic and work against the textbook, identities.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "layout/layer_kinds.hpp"
#include "layout/parallel_traffic.hpp"
#include "layout/shard_costs.hpp"
#include "perfmodel/detail/decoder_models.hpp"
#include "perfmodel/layout.hpp"
#include "predictor_cases.hpp"

namespace perfmodel {
namespace layout_experts_test {

using ::testing::HasSubstr;

const Predictor& predictor() {
  static const Predictor made =
      Predictor::load({.data = test_support::source_data(), .gpus = {"h100-sxm-80gb"}}).value();
  return made;
}

const LayoutPricer& pricer() {
  static const LayoutPricer made =
      LayoutPricer::make(predictor(), {.gpu = "h100-sxm-80gb"}).value();
  return made;
}

LayoutJob dense_job() {
  LayoutJob job;
  job.model = {.name = "dense",
               .layers = 4,
               .hidden = 1024,
               .heads = 8,
               .kv_heads = 4,
               .feed_forward = 4096,
               .vocabulary = 32000};
  job.sequence = 4096;
  job.global_batch = 32;
  job.software = "megatron";
  return job;
}

LayoutJob expert_job() {
  LayoutJob job = dense_job();
  job.model.experts = {.experts = 16, .top_k = 2, .hidden = 1024};
  return job;
}

LayoutPrediction predicted(const LayoutJob& job, const ParallelLayout& layout) {
  const auto made = pricer().predict(job, layout);
  EXPECT_TRUE(made) << to_string(made.error());
  return made ? *made : LayoutPrediction{};
}

std::string message(const LayoutJob& job, const ParallelLayout& layout) {
  const auto made = pricer().predict(job, layout);
  return made ? "none" : made.error().message;
}

// Published sizes: 46.7 of 12.9, 671 of 37, 30.5 of 3.3, 117 of 5.1, 31.6 of 3.6, 120 of 12
// billion.
TEST(ExpertModels, HaveTheirPublishedParameters) {
  const struct {
    const char* name;
    double all, active;
  } known[] = {{"mixtral-8x7b", 46.7, 12.9},     {"Qwen3_30B_a3B", 30.5, 3.3},
               {"qwen3-235b-a22b", 235, 22},     {"GPT OSS 120B", 117, 5.1},
               {"kimi-k2", 1026, 32.7},          {"nemotron-3-nano", 31.6, 3.6},
               {"nemotron-3-super", 120.6, 12.7}};
  for (const auto& [name, all, active] : known) {
    const DecoderModel model = find_decoder(name)->model;
    EXPECT_NEAR(static_cast<double>(parameter_count(model)) * 1e-9, all, 0.03 * all) << name;
    // Whether the lookup of words counts differs from card to card.
    EXPECT_NEAR(static_cast<double>(active_parameter_count(model)) * 1e-9, active, 0.2 * active)
        << name;
  }
  DecoderModel deepseek = find_decoder("deepseek-v3")->model;
  deepseek.next_tokens = 0;
  EXPECT_NEAR(static_cast<double>(parameter_count(deepseek)) * 1e-9, 671, 3);
  EXPECT_NEAR(static_cast<double>(active_parameter_count(deepseek)) * 1e-9, 37.5, 1);
}

TEST(ContextParallel, SendsWhatTheTextbookSays) {
  const LayoutJob job = dense_job();
  ParallelLayout layout;
  layout.cp = 4;
  layout.tp = 2;
  layout.micro_batch = 2;
  // 2 x 4,096 / 4 tokens of 2 x 4 heads x 128 numbers on half of the ranks, 2 bytes each.
  const double part = 2 * 1024 * (2 * 4 * 128) / 2.0 * 2;
  const auto forward = context_exchange(job, layout, false);
  ASSERT_EQ(forward.size(), 1U);
  EXPECT_EQ(wire_bytes(forward[0], 4), 3 * part);
  double backward = 0;
  for (const auto& buffer : context_exchange(job, layout, true)) backward += wire_bytes(buffer, 4);
  EXPECT_EQ(backward, 2 * 3 * part);
  // Heads against tokens: q and o of 8 heads, k and v of 4 each.
  layout.context = ContextExchange::kAllToAll;
  double exchanged = 0;
  for (const auto& buffer : context_exchange(job, layout, false))
    exchanged += wire_bytes(buffer, 4);
  EXPECT_EQ(exchanged, 2 * 1024 * (2 * 8 + 2 * 4) * 128 / 2.0 * 2 * 3 / 4);
  EXPECT_TRUE(context_exchange(job, {}, true).empty());
}

// Causal attention over T tokens on cp ranks: each has T^2 / 2 / cp scores, cp times as many as its
// own T / cp tokens have; in consecutive parts the last rank has 2 cp - 1 times as many.
TEST(ContextParallel, WorkOfAttentionIsShared) {
  const LayoutJob job = dense_job();
  ShardQuestion question{.model = job.model, .sequence = 1024, .micro_batch = 1};
  const auto alone =
      shard_costs(question, predictor(), "h100-sxm-80gb", {.keep_ops = true}).value();
  question.sequence = 4096;
  question.cp = 4;
  const auto part = shard_costs(question, predictor(), "h100-sxm-80gb", {.keep_ops = true}).value();
  question.context_balanced = false;
  const auto last = shard_costs(question, predictor(), "h100-sxm-80gb", {.keep_ops = true}).value();
  const double own = alone.layer.forward.attention_us;
  EXPECT_GT(own, 0);
  EXPECT_NEAR(part.layer.forward.attention_us, 4 * own, 1e-6);
  EXPECT_NEAR(last.layer.forward.attention_us, 7 * own, 1e-6);
  EXPECT_NEAR(part.layer.forward.kernel_us - alone.layer.forward.kernel_us, 3 * own, 1e-6);
  EXPECT_EQ(part.layer.kept_bytes, alone.layer.kept_bytes);
}

TEST(ExpertParallel, SendsWhatTheTextbookSays) {
  const LayoutJob job = expert_job();
  ParallelLayout layout;
  layout.dp = 8;
  layout.ep = 8;
  layout.micro_batch = 2;
  const auto buffers = expert_exchange(job, layout, 1);
  ASSERT_EQ(buffers.size(), 2U);  // there and back
  for (const auto& buffer : buffers) {
    EXPECT_EQ(buffer.kind, CollectiveKind::kAllToAll);
    EXPECT_EQ(wire_bytes(buffer, 8), 2.0 * 4096 * 2 * 1024 * 2 * 7 / 8);
  }
  layout.ep = 1;
  EXPECT_TRUE(expert_exchange(job, layout, 1).empty());
}

// 6 FLOP per weight that a token meets: of 16 experts 2, three products of 1,024 x 1,024.
TEST(ExpertParallel, CountsTheFlopOfActiveExperts) {
  const LayoutJob job = expert_job();
  const double layer =
      2 * 1024 * 1024 + 2 * 1024 * 512 + 2 * 3 * 1024 * 1024 + 16 * 1024 + 2 * 1024;
  const double words = 32000.0 * 1024;
  EXPECT_NEAR(model_flop_per_token(job.model, 4096),
              6 * (4 * layer + words + 1024) + 6.0 * 4 * 1024 * 4096, 1);
}

TEST(ExpertParallel, SplitsExpertsAndKeepsTheWork) {
  const LayoutJob job = expert_job();
  ParallelLayout layout;
  layout.dp = 8;
  layout.zero = Sharding::kZero1;
  const LayoutPrediction whole = predicted(job, layout);
  layout.ep = 8;
  const LayoutPrediction split = predicted(job, layout);
  // 7 of 8 parts of 4 layers of 16 experts are elsewhere, 2 bytes a weight.
  EXPECT_NEAR(whole.weight_bytes - split.weight_bytes, 4 * 14 * 3 * 1024.0 * 1024 * 2, 1);
  // Moments of 16 bits and more lie on 8 ranks in either case.
  EXPECT_NEAR(split.optimizer_bytes, whole.optimizer_bytes, 0.01 * whole.optimizer_bytes);
  const auto term = [](const LayoutPrediction& of, LayoutTerm which) {
    return of.terms_ms[static_cast<std::size_t>(which)];
  };
  EXPECT_EQ(term(whole, LayoutTerm::kExpertParallel), 0);
  EXPECT_GT(term(split, LayoutTerm::kExpertParallel), 0);
  EXPECT_LT(term(split, LayoutTerm::kCompute), 1.02 * term(whole, LayoutTerm::kCompute));
  layout.overlap_experts = true;
  const double hidden = term(predicted(job, layout), LayoutTerm::kExpertParallel);
  layout.overlap_experts = false;
  EXPECT_LT(hidden, term(predicted(job, layout), LayoutTerm::kExpertParallel));
}

TEST(ExpertParallel, ImbalanceOfNoneIsBalance) {
  LayoutJob job = expert_job();
  ParallelLayout layout;
  layout.dp = layout.ep = 8;
  EXPECT_EQ(slowest_expert_load(job, layout), 1);
  const LayoutPrediction balanced = predicted(job, layout);
  job.expert_imbalance = 0.5;
  // Two experts a rank: 0.5 sqrt(14 / 15 / 2), the largest of eight 1.43 deviations above the mean.
  EXPECT_NEAR(slowest_expert_load(job, layout), 1 + 0.5 * std::sqrt(14.0 / 15 / 2) * 1.4342, 1e-3);
  const LayoutPrediction crowded = predicted(job, layout);
  EXPECT_GT(crowded.step_ms, balanced.step_ms);
  EXPECT_GT(crowded.high_ms / crowded.step_ms, balanced.high_ms / balanced.step_ms);
  job.expert_capacity = 1;
  EXPECT_NEAR(predicted(job, layout).step_ms, balanced.step_ms, 1e-9);
  job.expert_capacity = 0;
  layout.ep = 1;
  EXPECT_EQ(slowest_expert_load(job, layout), 1);
}

TEST(ContextAndExpertParallel, OfOneRankAreTheIdentity) {
  for (const LayoutJob& job : {dense_job(), expert_job()}) {
    ParallelLayout layout;
    layout.dp = 8;
    const double before = predicted(job, layout).step_ms;
    layout.context = ContextExchange::kAllToAll;
    layout.context_balanced = false;
    layout.overlap_experts = false;
    EXPECT_EQ(predicted(job, layout).step_ms, before);
  }
}

TEST(ContextAndExpertParallel, RefuseWhatDoesNotDivide) {
  ParallelLayout layout;
  layout.dp = 8;
  layout.ep = 3;
  EXPECT_EQ(message(expert_job(), layout), "experts: expected a multiple of ep = 3, found 16");
  layout.ep = 16;
  EXPECT_EQ(message(expert_job(), layout), "dp cp tp: expected a multiple of ep etp = 16, found 8");
  layout.ep = 1;
  layout.cp = 3;
  EXPECT_EQ(message(dense_job(), layout), "sequence: expected a multiple of 2 cp = 6, found 4096");
  layout.cp = 16;
  layout.context = ContextExchange::kAllToAll;
  EXPECT_EQ(message(dense_job(), layout), "heads: expected a multiple of tp cp = 16, found 8");
  layout = {};
  LayoutJob job = expert_job();
  job.model.experts.top_k = 17;
  EXPECT_EQ(message(job, layout), "top_k: expected 1 to the 16 experts, found 17");
  job = expert_job();
  job.lora_rank = 8;
  job.lora_on_all = true;
  EXPECT_THAT(message(job, layout), HasSubstr("experts take no adapters"));
}

// Rank r for q, k + v, o of one layer; the other weights have neither gradients nor moments.
TEST(Adapters, LearnAlone) {
  LayoutJob job = dense_job();
  ParallelLayout layout;
  layout.dp = 8;
  const LayoutPrediction all = predicted(job, layout);
  job.lora_rank = 16;
  const LayoutPrediction adapted = predicted(job, layout);
  const double adapters = 4 * 16.0 * ((1024 + 2048) + (1024 + 1024));
  EXPECT_NEAR(adapted.gradient_bytes, 4 * adapters, 1);
  EXPECT_NEAR(adapted.optimizer_bytes, 12 * adapters, 1);
  EXPECT_NEAR(adapted.weight_bytes - 2 * adapters, all.weight_bytes, 0.001 * all.weight_bytes);
  EXPECT_LT(adapted.step_ms, 0.85 * all.step_ms);
  job.frozen_bits = 4;
  const LayoutPrediction narrow = predicted(job, layout);
  EXPECT_NEAR(narrow.weight_bytes, adapted.weight_bytes / 4, 0.01 * adapted.weight_bytes);
  const auto compute = static_cast<std::size_t>(LayoutTerm::kCompute);
  EXPECT_GT(narrow.terms_ms[compute], adapted.terms_ms[compute]);  // weights are made whole
}

}  // namespace layout_experts_test
}  // namespace perfmodel
