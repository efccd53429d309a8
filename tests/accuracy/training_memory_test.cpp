// Memory of training steps against public figures: largest batches of BERT-Large (Tempo, ONNX
// Runtime) and its activations. Nothing was fitted on these rows but what the files in
// data/architectures/ say of a context.
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "accuracy_support.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/memory.hpp"

namespace perfmodel {
namespace {

using accuracy::error_percent;
using Json = nlohmann::json;
using Head = BertConfig::Head;

Json seeds(const std::string& name) {
  std::ifstream file(*accuracy::public_data() / "seeds" / name);
  return Json::parse(file);
}

ExecutionGraph bert_large(Head head, std::int64_t batch, std::int64_t sequence, bool half) {
  BertConfig config = bert_preset("bert-large").value();
  config.head = head;
  config.batch = batch;
  config.sequence = sequence;
  config.training.optimizer = TrainingOptions::Optimizer::kAdamW;
  ExecutionGraph graph = build_bert(config).value();
  if (!half) return graph;
  const PrecisionOptions o2{.precision = PrecisionOptions::Precision::kFp16,
                            .master_weights = true};
  return rewrite_precision(graph, o2).value();
}

ExecutionGraph tempo(const ExecutionGraph& graph) {
  const FirstLayers all;
  const auto in_place = rewrite_in_place(graph, {.gelu = all, .layer_norm = all}).value();
  return rewrite_recomputation(in_place, {.what = RecomputeOptions::What::kDropout}).value();
}

// Fine-tuning on SQuAD, length 384: fp32 with Tempo's layers on 11 GB, fp16 (O2) without on 16 GB.
TEST(TrainingMemory, LargestBatchesOfTempoAreExact) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const Json rows = seeds("max_batch_bert_large_squad.json")["rows"];
  ASSERT_EQ(rows.size(), 2U);
  for (const Json& row : rows) {
    const bool half = row["precision"] == "fp16";
    const Gpu board = accuracy::gpu(row["gpu"] == "RTX 2080 Ti" ? "rtx-2080-ti" : "v100-sxm2-16gb");
    const ExecutionGraph plain = bert_large(Head::kClassifier, 8, 384, half);
    const bool with_tempo = row["variant"] == "tempo";
    const LargestBatch most = largest_batch(with_tempo ? tempo(plain) : plain, board).value();
    std::printf("%s %s %s: measured %d, predicted %d (%.2f GiB; %.2f GiB with one more)\n",
                row["gpu"].get<std::string>().c_str(), row["precision"].get<std::string>().c_str(),
                row["variant"].get<std::string>().c_str(), row["max_batch_per_gpu"].get<int>(),
                static_cast<int>(most.batch), most.memory.needed_bytes() / (1 << 30),
                most.next.needed_bytes() / (1 << 30));
    EXPECT_EQ(most.batch, row["max_batch_per_gpu"].get<std::int64_t>());
    EXPECT_LE(most.rewrites, 12);
  }
}

// What the backward pass has made again of one layer counts, too: with checkpoints, all that the
// forward pass or its repetition made and the backward pass has at the peak. Their layers keep the
// masks of dropout.
double activations_of(const ExecutionGraph& graph, bool recomputed) {
  const PredictedMemory memory = memory_report(graph, nullptr).memory;
  if (!recomputed) return memory.activation_bytes;
  return at(memory.by_purpose, MemoryPurpose::kActivations) +
         at(memory.by_purpose, MemoryPurpose::kTemporaries);
}

// Pre-training in mixed precision with fp32 master weights; the GPU is not named, its size suits a
// V100 of 16 GB.
TEST(TrainingMemory, ActivationsOfOnnxRuntimeWithinFivePercent) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const Json data = seeds("activation_memory_bert_large.json");
  for (const Json& row : data["layer_recompute"]["rows"]) {
    const bool recomputed = row[1];
    ExecutionGraph graph = bert_large(Head::kPreTraining, row[2], row[0] == 1 ? 128 : 512, true);
    if (recomputed) graph = rewrite_checkpointing(graph, {.keep_masks = true}).value();
    const double measured = row[3], predicted = activations_of(graph, recomputed);
    std::printf("phase %d, batch %d%s: measured %.3f GB, predicted %.3f GB, %+.1f %%\n",
                row[0].get<int>(), row[2].get<int>(), recomputed ? ", layers recomputed" : "",
                measured / 1e9, predicted / 1e9, error_percent(predicted, measured));
    EXPECT_NEAR(error_percent(predicted, measured), 0, 5);
  }
  const Json& plain = data["local_recompute"]["rows"][0];
  const auto most = [&](std::int64_t sequence) {
    const auto graph = bert_large(Head::kPreTraining, 8, sequence, true);
    return largest_batch(graph, accuracy::gpu("v100-sxm2-16gb")).value().batch;
  };
  const std::int64_t at_128 = most(128), at_512 = most(512);
  std::printf("largest batches: measured %d and %d, predicted %d and %d\n", plain[1].get<int>(),
              plain[3].get<int>(), static_cast<int>(at_128), static_cast<int>(at_512));
  EXPECT_NEAR(error_percent(static_cast<double>(at_128), plain[1]), 0, 10);
  EXPECT_NEAR(static_cast<double>(at_512), plain[3], 1);
}

}  // namespace
}  // namespace perfmodel
