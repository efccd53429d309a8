// Gradients that are kept in another type, alone and with master weights and 8-bit Adam.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/detail/storage_lifetimes.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "perfmodel/graph/rewrites/training.hpp"

namespace perfmodel {
namespace rewrite_gradient_type_test {

using testing::HasSubstr;
using Implementation = TrainingOptions::Implementation;

// Its output layer shares the word embeddings.
ExecutionGraph gpt(TrainingOptions::ZeroGrad zero_grad = TrainingOptions::ZeroGrad::kDefault) {
  GptConfig config = gpt_preset("gpt2").value();
  config.layers = 2;
  config.hidden = 64;
  config.heads = 4;
  config.feed_forward = 256;
  config.vocabulary = 200;
  config.batch = 2;
  config.sequence = 32;
  config.training.optimizer = TrainingOptions::Optimizer::kAdam;
  config.training.zero_grad = zero_grad;
  return build_gpt(config).value();
}

NamedRewrite master_weights() {
  return {"o2", [](const ExecutionGraph& graph) {
            return rewrite_precision(
                graph, {.precision = PrecisionOptions::Precision::kBf16, .master_weights = true});
          }};
}
NamedRewrite gradients(DType dtype) {
  return {"grad-dtype",
          [dtype](const ExecutionGraph& graph) { return rewrite_gradient_type(graph, dtype); }};
}
NamedRewrite optimizer(Implementation implementation) {
  return {"optimizer", [implementation](const ExecutionGraph& graph) {
            return rewrite_optimizer(graph, {.implementation = implementation});
          }};
}
NamedRewrite data_parallel() {
  return {"ddp", [](const ExecutionGraph& graph) {
            return rewrite_data_parallel(graph, {.world_size = 2, .gradient_as_bucket_view = true});
          }};
}

ExecutionGraph rewritten(const ExecutionGraph& graph, const std::vector<NamedRewrite>& rewrites) {
  auto made = apply_rewrites(graph, rewrites);
  if (made) return std::move(*made);
  ADD_FAILURE() << to_string(made.error());
  return {};
}

std::int64_t bytes(const ExecutionGraph& graph, MemoryPurpose purpose) {
  std::int64_t sum = 0;
  for (const StorageLifetime& storage : storage_lifetimes(graph).storages) {
    if (storage.purpose == purpose) sum += storage.bytes;
  }
  return sum;
}

std::int64_t parameters() { return bytes(gpt(), MemoryPurpose::kGradients) / 4; }

// Names of the ops right below each node of this name.
std::vector<std::string> below(const ExecutionGraph& graph, std::string_view name) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) {
    if (graph.name(node) != name) continue;
    for (const std::int32_t child : graph.children(node)) {
      names.emplace_back(graph.name(graph.nodes[static_cast<std::size_t>(child)]));
    }
  }
  return names;
}

std::size_t count(const std::vector<std::string>& names, std::string_view name) {
  return static_cast<std::size_t>(std::ranges::count(names, name));
}

constexpr std::string_view kAccumulate = "torch::autograd::AccumulateGrad";
constexpr std::string_view kStep = "Optimizer.step#Adam.step";

TEST(GradientType, HalfGradientsTakeTwoBytesAndACastEach) {
  const ExecutionGraph made = rewritten(gpt(), {gradients(DType::kBFloat16)});
  EXPECT_EQ(bytes(made, MemoryPurpose::kGradients), 2 * parameters());
  EXPECT_EQ(bytes(made, MemoryPurpose::kOptimizer), 8 * parameters());
  const std::size_t tensors = count(below(made, kAccumulate), "aten::to");
  EXPECT_EQ(tensors, 2U * 12 + 4);  // two layers, two embeddings and the last norm
  EXPECT_EQ(count(below(made, kStep), "aten::to"), tensors + 1);  // one of the step's numbers
}

// 2 of weight, 4 of gradient, 12 of copy and moments; no step casts a gradient any more.
TEST(GradientType, MasterWeightsWithFp32GradientsTakeEighteenBytes) {
  const ExecutionGraph half = rewritten(gpt(), {master_weights()});
  const ExecutionGraph made = rewritten(half, {gradients(DType::kFloat32)});
  EXPECT_EQ(bytes(made, MemoryPurpose::kWeights), bytes(half, MemoryPurpose::kWeights));
  EXPECT_EQ(bytes(half, MemoryPurpose::kGradients), 2 * parameters());
  EXPECT_EQ(bytes(made, MemoryPurpose::kGradients), 4 * parameters());
  EXPECT_EQ(bytes(made, MemoryPurpose::kOptimizer), 12 * parameters());
  EXPECT_EQ(count(below(made, kAccumulate), "aten::add_"), 28U);
  EXPECT_EQ(count(below(half, kStep), "aten::to"), 28U + 1);
  EXPECT_EQ(count(below(made, kStep), "aten::to"), 1U);
  EXPECT_EQ(below(made, "Optimizer.zero_grad#Adam.zero_grad"),
            std::vector<std::string>{"aten::_foreach_zero_"});
  EXPECT_TRUE(storage_lifetimes(made).without_sizes.empty());
}

TEST(GradientType, ThatIsThereAlreadyChangesNothing) {
  const ExecutionGraph plain = gpt(), half = rewritten(plain, {master_weights()});
  EXPECT_EQ(rewritten(plain, {gradients(DType::kFloat32)}).nodes.size(), plain.nodes.size());
  EXPECT_EQ(rewritten(half, {gradients(DType::kBFloat16)}).nodes.size(), half.nodes.size());
}

// Copies in fp32 stay, as do the casts before them and the way back after them.
TEST(GradientType, MasterWeightsTakeAnotherOptimizer) {
  for (const Implementation how : {Implementation::kFused, Implementation::kLoop}) {
    const ExecutionGraph made = rewritten(gpt(), {master_weights(), optimizer(how)});
    EXPECT_EQ(bytes(made, MemoryPurpose::kOptimizer),
              12 * parameters() + (how == Implementation::kFused ? 4 * 28 : 0));
    EXPECT_EQ(count(below(made, kStep), "aten::to"), 28U);
    EXPECT_EQ(count(below(made, kStep), "aten::copy_"), 28U);
    const ExecutionGraph first = rewritten(gpt(), {optimizer(how), master_weights()});
    EXPECT_EQ(below(made, kStep), below(first, kStep));
  }
}

TEST(GradientType, EightBitAdamKeepsFp32Copies) {
  const ExecutionGraph made =
      rewritten(gpt(), {master_weights(), optimizer(Implementation::kEightBit)});
  const auto parameters_bytes = static_cast<double>(4 * parameters());
  const auto state = static_cast<double>(bytes(made, MemoryPurpose::kOptimizer)) - parameters_bytes;
  EXPECT_NEAR(state / parameters_bytes, 2.03125 / 4, 0.02);  // biases and norms keep fp32
  const ExecutionGraph wide = rewritten(made, {gradients(DType::kFloat32)});
  EXPECT_EQ(bytes(wide, MemoryPurpose::kOptimizer), bytes(made, MemoryPurpose::kOptimizer));
  EXPECT_EQ(count(below(wide, kStep), "aten::to"), 0U);
}

// Buckets hold what is kept.
TEST(GradientType, DataParallelReducesTheNewType) {
  const auto reduced = [](const ExecutionGraph& graph) {
    std::int64_t sum = 0;
    for (const Node& node : graph.nodes) {
      if (graph.name(node) != "record_param_comms") continue;
      for_each_tensor(graph, graph.inputs(node), [&](const Tensor& tensor) {
        if (tensor.on_gpu() && is_floating_point(tensor.dtype)) sum += tensor.bytes();
      });
    }
    return sum;
  };
  EXPECT_EQ(reduced(rewritten(gpt(), {data_parallel()})), 4 * parameters());
  EXPECT_EQ(reduced(rewritten(gpt(), {gradients(DType::kBFloat16), data_parallel()})),
            2 * parameters());
}

TEST(GradientType, SaysWhyNot) {
  const auto refusal = [](const ExecutionGraph& graph, DType dtype) {
    const auto made = rewrite_gradient_type(graph, dtype);
    return made ? "none" : made.error().message;
  };
  EXPECT_EQ(refusal(gpt(), DType::kInt8), "grad-dtype: expected fp32, bf16 or fp16, found int8");
  EXPECT_EQ(refusal({}, DType::kBFloat16),
            "grad-dtype: expected a node Optimizer.step#..., found none in the graph");
  const ExecutionGraph buckets = rewritten(gpt(), {data_parallel()});
  EXPECT_THAT(refusal(buckets, DType::kBFloat16), HasSubstr("come after this"));
}

// `model.to(torch.bfloat16)`: the loss is in fp32; moments in half become copies and moments in
// fp32.
TEST(GradientType, ModelsInHalfGetCopies) {
  LlamaConfig config = llama_preset("llama-small").value();
  config.layers = 2;
  config.sequence = 32;
  config.fused_norms = true;
  config.training.weights = DType::kBFloat16;
  config.training.optimizer = TrainingOptions::Optimizer::kAdam;
  const ExecutionGraph plain = build_llama(config).value();
  const ExecutionGraph made = rewritten(plain, {master_weights()});
  const std::int64_t gradients_bytes = bytes(plain, MemoryPurpose::kGradients);
  EXPECT_EQ(bytes(made, MemoryPurpose::kGradients), gradients_bytes);
  EXPECT_EQ(bytes(plain, MemoryPurpose::kOptimizer), 2 * gradients_bytes);
  EXPECT_EQ(bytes(made, MemoryPurpose::kOptimizer), 6 * gradients_bytes);
  EXPECT_EQ(bytes(made, MemoryPurpose::kActivations), bytes(plain, MemoryPurpose::kActivations));
}

}  // namespace rewrite_gradient_type_test
}  // namespace perfmodel
