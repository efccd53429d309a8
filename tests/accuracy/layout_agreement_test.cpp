// A step of data-parallel training priced twice: by `layout` from its parts, and by `predict` from
// the whole graph of a rank. Both describe the same program: PyTorch's own ops, fused AdamW on fp32
// copies of bf16 weights, DDP or FSDP in units of a layer.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>

#include "perfmodel/detail/choose_kernel_models.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/layout.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/predictor.hpp"

namespace perfmodel {
namespace layout_agreement_test {

constexpr const char* kGpu = "a100-sxm-80gb";

const Predictor& predictor() {
  static const Predictor made =
      Predictor::load(
          {.data = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data", .gpus = {kGpu}})
          .value();
  return made;
}

const LayoutPricer& pricer() {
  static const LayoutPricer made = LayoutPricer::make(predictor(), {.gpu = kGpu}).value();
  return made;
}

/// GPT-2 and a Llama of 1.5 billion parameters, vocabularies padded as layouts pad them.
DecoderModel decoder(const std::string& name) {
  if (name == "gpt2") {
    return {.name = name,
            .layers = 12,
            .hidden = 768,
            .heads = 12,
            .feed_forward = 3072,
            .vocabulary = 50304,
            .positions = 1024,
            .gated = false,
            .tied = true,
            .biases = true,
            .rms_norm = false,
            .activation = DecoderModel::Activation::kGelu};
  }
  return {.name = name,
          .layers = 16,
          .hidden = 2048,
          .heads = 32,
          .feed_forward = 8192,
          .vocabulary = 128256};
}

template <class Config>
void describe(Config& config, const DecoderModel& model, std::int64_t sequence,
              std::int64_t batch) {
  config.layers = model.layers;
  config.hidden = model.hidden;
  config.heads = model.heads;
  config.feed_forward = model.feed_forward;
  config.vocabulary = model.vocabulary;
  config.sequence = sequence;
  config.batch = batch;
  config.dropout = 0;
  config.tied = model.tied;
  config.attention = TransformerConfig::Attention::kFlash;
  config.training.optimizer = TrainingOptions::Optimizer::kAdamW;
  config.training.implementation = TrainingOptions::Implementation::kFused;
  config.training.weights = DType::kBFloat16;
  config.training.pytorch = {.major = 2, .minor = 0};
  config.training.resident_input = true;
}

ExecutionGraph graph_of(const std::string& name, std::int64_t sequence, std::int64_t batch) {
  const DecoderModel model = decoder(name);
  const PrecisionOptions half = {.precision = PrecisionOptions::Precision::kBf16,
                                 .master_weights = true};
  if (name == "gpt2") {
    GptConfig config;
    describe(config, model, sequence, batch);
    config.positions = sequence;
    config.biases = true;
    config.activation = GptConfig::Activation::kGeluTanh;
    return rewrite_precision(build_gpt(config).value(), half).value();
  }
  LlamaConfig config;
  describe(config, model, sequence, batch);
  config.kv_heads = model.heads;
  config.fused_norms = true;
  return rewrite_precision(build_llama(config).value(), half).value();
}

struct Step {
  std::string model;
  std::int64_t sequence = 0, batch = 0, gpus = 0;
  bool shards = false;
};

// FSDP in units of a layer: [bytes] of its bf16 weights.
double unit_bytes(const Step& step) { return step.model == "gpt2" ? 14e6 : 134e6; }

Result<Prediction> sharded_step(const ExecutionGraph& graph, const Step& step) {
  static const ChosenKernelModels models = choose_kernel_models("learned").value();
  static const OverheadTable host =
      read_overheads(std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data/overheads/reference.json")
          .value();
  return predict(graph, predictor().gpu(kGpu).value(), host,
                 {.models = &models.models,
                  .scale_out = ScaleOut{.world = step.gpus,
                                        .strategy = ParallelStrategy::kFsdp,
                                        .fsdp_unit_bytes = unit_bytes(step)}});
}

double by_predict_ms(const Step& step) {
  ExecutionGraph graph = graph_of(step.model, step.sequence, step.batch);
  AskOptions ddp;
  if (step.gpus > 1) ddp = {.world = step.gpus, .strategy = ParallelStrategy::kDdp};
  const auto made =
      step.shards ? sharded_step(graph, step)
                  : predictor().predict(predictor().prepare(std::move(graph)).value(), kGpu, ddp);
  EXPECT_TRUE(made) << to_string(made.error());
  return made ? made->e2e_us * 1e-3 : 0;
}

LayoutPrediction by_layout(const Step& step) {
  LayoutJob job;
  job.model = decoder(step.model);
  job.sequence = step.sequence;
  job.global_batch = step.batch * step.gpus;
  job.fp32_gradients = false;
  job.loss_chunks = 1;
  job.software = "pytorch";
  ParallelLayout layout;
  layout.dp = step.gpus;
  layout.micro_batch = step.batch;
  if (step.shards) layout.zero = Sharding::kFsdp;
  const auto made = pricer().predict(job, layout);
  EXPECT_TRUE(made) << to_string(made.error());
  return made ? *made : LayoutPrediction{};
}

void expect_agreement(const Step& step, double percent) {
  const double whole = by_predict_ms(step);
  const LayoutPrediction parts = by_layout(step);
  const double error = 100 * (parts.step_ms / whole - 1);
  std::printf("%s, batch %2lld, %lld GPUs, %s: predict %.2f ms, layout %.2f (%+.1f %%)\n",
              step.model.c_str(), static_cast<long long>(step.batch),
              static_cast<long long>(step.gpus), step.shards ? "FSDP" : "DDP", whole, parts.step_ms,
              error);
  EXPECT_LT(std::abs(error), percent);
}

TEST(LayoutAndPredict, AgreeOnOneNode) {
  for (const Step& model : {Step{"gpt2", 1024}, Step{"llama", 2048}}) {
    for (const std::int64_t batch : {1, 4, 16}) {
      for (const std::int64_t gpus : {1, 2, 8}) {
        for (const bool shards : {false, true}) {
          if (gpus == 1 && shards) continue;
          expect_agreement({model.model, model.sequence, batch, gpus, shards}, 5);
        }
      }
    }
  }
}

}  // namespace layout_agreement_test
}  // namespace perfmodel
