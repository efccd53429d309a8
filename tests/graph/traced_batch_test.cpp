// Another batch of a graph that was made of a trace, against traces and recordings of the same
// programs at that batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/catalogue.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/trace.hpp"

namespace perfmodel {
namespace traced_batch_test {

using ::testing::HasSubstr;

const std::filesystem::path kMeasured =
    std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "measurements" / "h200-sxm-141gb";

// Ops that launch kernels and take a matrix of floats or more, with the extents of their tensors,
// and how often a step calls them. (Lists of optimizers are not in traces.)
using Calls = std::map<std::string, double>;

bool may_launch(std::string_view name) {
  const Op* op = find_op(name);
  if (!op) return false;
  switch (op->kind) {
    case OpKind::kComposite:
    case OpKind::kView:
    case OpKind::kAllocation:
    case OpKind::kQuery:
    case OpKind::kWrapper:
    case OpKind::kForeach:
    case OpKind::kOptimizer:
      return false;
    default:
      return true;
  }
}

Calls calls(const ExecutionGraph& graph) {
  Calls found;
  std::size_t steps = 0;
  for (const Node& node : graph.nodes) {
    const std::string_view name = graph.name(node);
    steps += name.starts_with("ProfilerStep#");
    if (!may_launch(name)) continue;
    std::string text(name);
    std::size_t matrices = 0;
    for_each_tensor(graph, graph.inputs(node), [&](const Tensor& tensor) {
      const bool seeds = tensor.rank == 1 && tensor.numel <= 2;  // dropout in attention
      const bool empty = std::ranges::count(graph.shape(tensor), 0) > 0;
      if (tensor.rank == 0 || seeds || empty) return;
      matrices += tensor.rank > 1 && is_floating_point(tensor.dtype);
      text += " [";
      for (const std::int64_t size : graph.shape(tensor)) text += std::to_string(size) + " ";
      text += "]";
    });
    if (matrices > 0) ++found[text];
  }
  for (auto& [call, count] : found) count /= static_cast<double>(std::max<std::size_t>(1, steps));
  return found;
}

ExecutionGraph traced(const std::string& program) {
  return program_of_trace(read_trace(kMeasured / (program + ".kineto.json.gz")).value())
      .value()
      .graph;
}

ExecutionGraph recorded(const std::string& program) {
  return read_execution_graph(kMeasured / (program + ".et.json.gz")).value();
}

// Calls per step that `made` has and `truth` has not.
std::map<std::string, double> wrong(const Calls& made, const Calls& truth) {
  std::map<std::string, double> found;
  for (const auto& [call, count] : made) {
    const auto at = truth.find(call);
    const double more = count - (at == truth.end() ? 0 : at->second);
    if (more > 1e-9) found[call] = more;
  }
  return found;
}

// Traces have no indices in lists; what cuDNN reserves for the backward pass is not in proportion.
const std::set<std::string_view> kKnownMisses = {"aten::index", "aten::_index_put_impl_",
                                                 "aten::_cudnn_rnn_backward"};

void expect_calls(const ExecutionGraph& made, const ExecutionGraph& truth) {
  const Calls found = calls(made);
  EXPECT_GT(found.size(), 20U);
  for (const auto& [call, more] : wrong(found, calls(truth))) {
    const std::string_view op = std::string_view(call).substr(0, call.find(' '));
    EXPECT_TRUE(kKnownMisses.contains(op)) << more << " " << call;
  }
}

struct Pair {
  std::string_view from;
  std::int64_t from_batch;
  std::string_view to;
  std::int64_t to_batch;
  bool to_is_trace = true;
};

class TracedBatch : public ::testing::TestWithParam<Pair> {};

TEST_P(TracedBatch, IsThatOfTheProgramAtThatBatch) {
  const Pair& pair = GetParam();
  const ExecutionGraph before = traced(std::string(pair.from));
  EXPECT_EQ(batch_size(before).value(), pair.from_batch);
  const ExecutionGraph made = set_batch_size(before, {.batch = pair.to_batch}).value();
  const std::string to(pair.to);
  expect_calls(made, pair.to_is_trace ? traced(to) : recorded(to));
  EXPECT_THAT(made.warnings.back(), HasSubstr("places and values of sizes"));
}

INSTANTIATE_TEST_SUITE_P(
    Programs, TracedBatch,
    ::testing::Values(Pair{"dlrm-default-b512", 512, "dlrm-default-b2048", 2048},
                      Pair{"dlrm-mlperf-b512", 512, "dlrm-mlperf-b4096", 4096},
                      Pair{"dlrm-ddp-b1024", 1024, "dlrm-ddp-b512", 512},
                      Pair{"resnet50-b16", 16, "resnet50-b32", 32},
                      Pair{"lstm-512x2-b32", 32, "lstm-512x2-b128", 128},
                      Pair{"gpt2-small-512-b4", 4, "gpt2-small-512-b16", 16, false},
                      Pair{"bert-base-384.bf16-b8", 8, "bert-base-384.bf16-b32", 32, false},
                      Pair{"inception-v3-b4", 4, "inception-v3-b16", 16, false},
                      Pair{"transformer-base-b4", 4, "transformer-base-b16", 16, false}),
    [](const auto& test) {
      std::string name(test.param.from);
      for (char& c : name) {
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
      }
      return name;
    });

// By the rules that follow tensors through the execution graph of the same step. The rules for
// traces were written before these programs were tried.
TEST(TracedBatchOfOtherPrograms, IsThatOfTheirExecutionGraphs) {
  for (const char* program :
       {"gpt2-small-512.sdpa-flash-b4", "bert-base-384.sdpa-flash-b8", "dlrm-mix100-bags-b2048",
        "dlrm-mix26-batched-b2048", "resnet50.bf16-b16"}) {
    SCOPED_TRACE(program);
    const ExecutionGraph graph = recorded(program), trace = traced(program);
    const std::int64_t batch = batch_size(trace).value();
    EXPECT_TRUE(std::string(program).ends_with("-b" + std::to_string(batch)));
    expect_calls(set_batch_size(trace, {.batch = 3 * batch}).value(),
                 set_batch_size(graph, {.batch = 3 * batch, .current = batch}).value());
  }
}

TEST(TracedBatchOfARank, IsThatOfItsExecutionGraph) {
  const char* data = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (!data) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA names no folder of measurements";
  for (const char* rank : {"dlrm_v100_rank0of8", "dlrm_v100_rank1of8"}) {
    const std::filesystem::path file = std::filesystem::path(data) / "traces" / rank;
    const auto trace = program_of_trace(read_trace(file.string() + "_kineto.json.gz").value());
    const auto graph = read_execution_graph(file.string() + "_et.json.gz").value();
    EXPECT_EQ(batch_size(trace->graph).value(), batch_size(graph).value());
    expect_calls(set_batch_size(trace->graph, {.batch = 48}).value(),
                 set_batch_size(graph, {.batch = 48}).value());
  }
}

}  // namespace traced_batch_test
}  // namespace perfmodel
