// Moves of the search beyond rewrites of one pass: accumulation, the batch after other rewrites,
// layouts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "layout/decoder_in_graph.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/model_size.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/optimize.hpp"
#include "perfmodel/predict.hpp"

namespace perfmodel {
namespace advice_moves_test {

using testing::HasSubstr;

const std::filesystem::path kData = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data";

const OverheadTable& reference() {
  static const OverheadTable table = read_overheads(kData / "overheads" / "reference.json").value();
  return table;
}

WhatIfTarget target() {
  return {.gpu = find_gpu("a100-sxm-40gb", kData / "gpus").value(), .overheads = &reference()};
}

ExecutionGraph small_gpt(std::int64_t batch) {
  GptConfig config = gpt_preset("gpt2").value();
  config.layers = 2;
  config.hidden = 256;
  config.heads = 4;
  config.feed_forward = 1024;
  config.vocabulary = 1000;
  config.batch = batch;
  set_sequence(config, 256);
  config.training.optimizer = TrainingOptions::Optimizer::kAdamW;
  return build_gpt(config).value();
}

NamedRewrite batch_of(std::int64_t batch) {
  return {.name = "--batch " + std::to_string(batch),
          .apply = [batch](const ExecutionGraph& graph) {
            return set_batch_size(graph, {.batch = batch});
          }};
}
NamedRewrite accumulate(std::int64_t passes) {
  return {.name = "--accumulate", .apply = [passes](const ExecutionGraph& graph) {
            return rewrite_accumulation(graph, passes);
          }};
}
NamedRewrite eight_ranks() {
  return {.name = "--data-parallel 8", .apply = [](const ExecutionGraph& graph) {
            return rewrite_data_parallel(graph, {.world_size = 8});
          }};
}

Prediction by_hand(const ExecutionGraph& graph, const std::vector<NamedRewrite>& rewrites) {
  const auto made = apply_rewrites(graph, rewrites);
  EXPECT_TRUE(made) << to_string(made.error());
  const WhatIfTarget on = target();
  auto prediction = predict(*made, on.gpu, *on.overheads, on.options);
  EXPECT_TRUE(prediction) << to_string(prediction.error());
  return std::move(*prediction);
}

// A larger batch than fits in one pass: the search takes it in several, and says so.
TEST(AdviceMoves, AccumulationFitsTheSamplesIntoTheLimit) {
  const ExecutionGraph graph = small_gpt(8);
  const Prediction whole = by_hand(graph, {});
  const Prediction halves = by_hand(graph, {batch_of(4), accumulate(2)});
  ASSERT_LT(halves.memory.needed_bytes(), 0.98 * whole.memory.needed_bytes());
  const double limit = (halves.memory.needed_bytes() + whole.memory.needed_bytes()) / 2;
  const auto advice = optimize(
      graph, target(), {.allow = {"accumulation"}, .memory_limit_bytes = limit, .graph_file = "g"});
  ASSERT_TRUE(advice) << to_string(advice.error());
  ASSERT_EQ(advice->combination.size(), 1U);
  EXPECT_EQ(advice->combination[0].rewrite, "--batch 4 --accumulate 2");
  EXPECT_THAT(advice->best_command, HasSubstr("predict g --batch 4 --accumulate 2"));
  EXPECT_DOUBLE_EQ(advice->best_step_us, halves.e2e_us);
  EXPECT_EQ(advice->best_batch, 8);
  EXPECT_EQ(advice->best_bytes, halves.memory.needed_bytes());

  const auto refused = optimize(small_gpt(3), target(), {.allow = {"accumulation"}});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("a batch of 3 cannot be halved"));
}

// One reduction per step instead of one per batch: eight ranks gain by accumulation what they wait
// for each other.
TEST(AdviceMoves, SamplesPerSecondGrowBeyondTheMemory) {
  const ExecutionGraph graph = small_gpt(4);
  const double limit = 1.01 * by_hand(graph, {eight_ranks()}).memory.needed_bytes();
  const auto advice = optimize(graph, target(),
                               {.allow = {"batch", "accumulation"},
                                .objective = AdviceObjective::kSamplesPerS,
                                .memory_limit_bytes = limit,
                                .world = 8});
  ASSERT_TRUE(advice) << to_string(advice.error());
  EXPECT_LT(advice->best_us, advice->baseline_us);
  EXPECT_THAT(advice->best_command, HasSubstr("--accumulate"));
  EXPECT_LE(advice->best_bytes, limit);
}

// A model of these sizes, whatever its layers are.
template <class Config>
Config small(Config config) {
  config.layers = 3;
  config.hidden = 128;
  config.heads = 4;
  config.feed_forward = 352;
  config.vocabulary = 500;
  config.batch = 2;
  config.sequence = 64;
  return config;
}

// Autocast casts within softmax, and gives shared words a copy of their own.
TEST(AdviceMoves, DecodersUnderAutocastAreTheSame) {
  const auto plain = decoder_in_graph(small_gpt(4));
  const auto cast = decoder_in_graph(
      rewrite_precision(small_gpt(4), {.precision = PrecisionOptions::Precision::kBf16}).value());
  ASSERT_TRUE(plain) << to_string(plain.error());
  ASSERT_TRUE(cast) << to_string(cast.error());
  EXPECT_EQ(cast->model.layers, 2);
  EXPECT_TRUE(cast->model.tied);
  EXPECT_EQ(parameter_count(cast->model), parameter_count(plain->model));
  EXPECT_EQ(cast->precision, LayoutJob::Precision::kBf16);
}

TEST(AdviceMoves, HeadsOfOptLieBesideItsSamples) {
  const ExecutionGraph graph = build_opt(small(opt_preset("opt-1.3b").value())).value();
  const auto found = decoder_in_graph(graph);
  ASSERT_TRUE(found) << to_string(found.error());
  EXPECT_EQ(found->model.layers, 3);
  EXPECT_EQ(found->model.heads, 4);
  EXPECT_EQ(found->model.activation, DecoderModel::Activation::kRelu);
  EXPECT_EQ(parameter_count(found->model), model_size(graph).parameters);
}

TEST(AdviceMoves, DecodersAreKnownByTheirProducts) {
  const auto gpt = decoder_in_graph(small_gpt(4));
  ASSERT_TRUE(gpt) << to_string(gpt.error());
  EXPECT_EQ(gpt->model.layers, 2);
  EXPECT_EQ(gpt->model.hidden, 256);
  EXPECT_EQ(gpt->model.heads, 4);
  EXPECT_EQ(gpt->model.feed_forward, 1024);
  EXPECT_FALSE(gpt->model.gated);
  EXPECT_TRUE(gpt->model.tied);
  EXPECT_EQ(gpt->sequence, 256);
  EXPECT_EQ(gpt->global_batch, 4);
  EXPECT_EQ(gpt->optimizer, LayoutJob::Optimizer::kAdamW);
  EXPECT_EQ(gpt->precision, LayoutJob::Precision::kFp32);

  LlamaConfig config = small(llama_preset("llama-7b").value());
  config.kv_heads = 2;
  const ExecutionGraph llama = build_llama(config).value();
  const auto found = decoder_in_graph(llama);
  ASSERT_TRUE(found) << to_string(found.error());
  EXPECT_EQ(found->model.kv_heads, 2);
  EXPECT_TRUE(found->model.gated);
  EXPECT_TRUE(found->model.rms_norm);
  EXPECT_FALSE(found->model.tied);
  EXPECT_EQ(parameter_count(found->model), model_size(llama).parameters);

  const auto bert = decoder_in_graph(build_bert(bert_preset("bert-base").value()).value());
  ASSERT_FALSE(bert);
  EXPECT_THAT(bert.error().message, HasSubstr("expected the graph of a decoder-only transformer"));
  EXPECT_FALSE(decoder_in_graph(build_dlrm(dlrm_preset("ddp").value()).value()));
}

}  // namespace advice_moves_test
}  // namespace perfmodel
