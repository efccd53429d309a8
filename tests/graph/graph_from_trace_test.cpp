#include "perfmodel/graph/graph_from_trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "../scratch.hpp"
#include "perfmodel/graph/detail/op_kinds.hpp"
#include "perfmodel/graph/detail/trace_ops.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"

namespace perfmodel {
namespace graph_from_trace_test {

std::string event(const std::string& category, const std::string& name, const std::string& thread,
                  int at, int us, const std::string& args) {
  return "{\"ph\": \"X\", \"cat\": \"" + category + "\", \"name\": \"" + name +
         "\", \"pid\": 1, \"tid\": " + thread + ", \"ts\": " + std::to_string(at) +
         ", \"dur\": " + std::to_string(us) + ", \"args\": {" + args + "}}";
}

TraceGraph graph_of(const std::vector<std::string>& events) {
  const auto file = test_support::scratch() / "graph_from_trace.json";
  std::ofstream out(file);
  out << "{\"traceEvents\": [";
  for (std::size_t i = 0; i < events.size(); ++i) out << (i ? ",\n" : "") << events[i];
  out << "]}";
  out.close();
  const auto trace = read_trace(file);
  std::filesystem::remove(file);
  EXPECT_TRUE(trace) << trace.error().message;
  auto made = graph_from_trace(*trace);
  EXPECT_TRUE(made) << made.error().message;
  return std::move(*made);
}

const Node& node_named(const ExecutionGraph& graph, const std::string& name) {
  for (const Node& node : graph.nodes) {
    if (graph.name(node) == name) return node;
  }
  ADD_FAILURE() << "no node " << name;
  return graph.nodes.front();
}

TEST(GraphFromTrace, OpsHaveShapesTypesAndValues) {
  const TraceGraph made = graph_of(
      {event("cpu_op", "aten::addmm", "1", 0, 20,
             "\"Input Dims\": [[32], [8, 64], [64, 32], [], []], \"Input type\": [\"float\", "
             "\"float\", \"float\", \"Scalar\", \"Scalar\"], \"Concrete Inputs\": [\"\", \"\", "
             "\"\", \"1\", \"0.5\"]"),
       event("cuda_runtime", "cudaLaunchKernel", "1", 5, 2, "\"correlation\": 1"),
       event("kernel", "gemm", "7", 9, 5, "\"correlation\": 1, \"device\": 0, \"stream\": 7")});
  const Node& node = node_named(made.graph, "aten::addmm");
  const auto inputs = made.graph.inputs(node);
  ASSERT_EQ(inputs.size(), 5U);
  const Tensor& a = made.graph.tensors[inputs[1].index];
  EXPECT_THAT(made.graph.shape(a), testing::ElementsAre(8, 64));
  EXPECT_EQ(a.dtype, DType::kFloat32);
  EXPECT_EQ(a.numel, 512);
  EXPECT_TRUE(a.on_gpu());
  EXPECT_EQ(inputs[3].kind, Argument::Kind::kInt);
  EXPECT_EQ(inputs[3].integer, 1);
  EXPECT_EQ(inputs[4].kind, Argument::Kind::kDouble);
  EXPECT_THAT(made.graph.names.text(node.op_schema), testing::StartsWith("aten::addmm("));
  EXPECT_TRUE(is_from_trace(made.graph));
  EXPECT_FALSE(lacks_sizes(made.graph));
}

TEST(GraphFromTrace, AnUploadComesFromTheHost) {
  const TraceGraph made = graph_of(
      {event("cpu_op", "aten::copy_", "1", 0, 20,
             "\"Input Dims\": [[4], [4], []], \"Input type\": [\"float\", \"float\", \"Scalar\"]"),
       event("cuda_runtime", "cudaMemcpyAsync", "1", 5, 2, "\"correlation\": 1"),
       event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", "7", 9, 5,
             "\"correlation\": 1, \"device\": 0, \"stream\": 7")});
  const auto inputs = made.graph.inputs(node_named(made.graph, "aten::copy_"));
  EXPECT_TRUE(made.graph.tensors[inputs[0].index].on_gpu());
  EXPECT_TRUE(made.graph.tensors[inputs[1].index].on_cpu());
}

TEST(GraphFromTrace, OpsWithoutLengthNestAsTheirNamesDoElsewhere) {
  const auto shapes = "\"Input Dims\": [[4]], \"Input type\": [\"float\"]";
  const TraceGraph made = graph_of({event("cpu_op", "aten::detach", "1", 0, 2, shapes),
                                    event("cpu_op", "detach", "1", 1, 1, shapes),
                                    event("cpu_op", "aten::detach", "1", 5, 0, shapes),
                                    event("cpu_op", "detach", "1", 5, 0, shapes)});
  EXPECT_EQ(top_level_ops(made.graph).size(), 2U);
}

TEST(GraphFromTrace, StepsOfTheOptimizerAreMarked) {
  std::vector<std::string> events;
  for (int step = 0; step < 3; ++step) {
    events.push_back(event("cpu_op", "aten::mm", "1", 100 * step, 10, ""));
    events.push_back(
        event("user_annotation", "Optimizer.step#SGD.step", "1", 100 * step + 50, 40, ""));
    events.push_back(event("cpu_op", "aten::add_", "1", 100 * step + 60, 10, ""));
  }
  events.push_back(event("cpu_op", "aten::mm", "1", 300, 10, ""));  // in no whole step
  const TraceGraph made = graph_of(events);
  const auto steps = iterations(made.graph);
  ASSERT_EQ(steps.size(), 2U);
  for (const auto& step : steps) {
    std::size_t ops = 0;
    for (std::int32_t i = step.begin; i < step.end; ++i) {
      ops += !made.graph.nodes[static_cast<std::size_t>(i)].is_label;
    }
    EXPECT_EQ(ops, 2U);
  }
  EXPECT_TRUE(lacks_sizes(made.graph));
}

TEST(GraphFromTrace, ATraceWithoutOpsIsRefused) {
  Trace trace;
  trace.source = "empty.json";
  const auto made = graph_from_trace(trace);
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, testing::HasSubstr("expected ops in the trace, found none"));
}

// Recordings of one run by both collectors: names of the top-level ops, how often.
TEST(GraphFromTrace, HasTheTopLevelOpsOfTheExecutionGraph) {
  const char* folder = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (!folder) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA does not name the public data";
  const std::filesystem::path traces = std::filesystem::path(folder) / "traces";
  for (const std::string rank : {"0", "1", "2", "3"}) {
    SCOPED_TRACE(rank);
    const std::string stem = "dlrm_v100_rank" + rank + "of8";
    const auto trace = read_trace(traces / (stem + "_kineto.json.gz"));
    ASSERT_TRUE(trace);
    const auto made = graph_from_trace(*trace);
    const auto recorded = read_execution_graph(traces / (stem + "_et.json.gz"));
    ASSERT_TRUE(made && recorded);
    std::map<std::string, int> surplus;
    for (const std::int32_t i : top_level_ops(made->graph)) {
      ++surplus[std::string(made->graph.name(made->graph.nodes[static_cast<std::size_t>(i)]))];
    }
    for (const std::int32_t i : top_level_ops(*recorded)) {
      --surplus[std::string(recorded->name(recorded->nodes[static_cast<std::size_t>(i)]))];
    }
    std::erase_if(surplus, [](const auto& entry) { return entry.second == 0; });
    EXPECT_THAT(surplus, testing::IsEmpty());
  }
}

// Each op is represented by one with the same name, arguments and ops inside.
TEST(GraphFromTrace, OpsThatAreAlikeStandOnce) {
  const char* folder = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (!folder) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA does not name the public data";
  const std::filesystem::path traces = std::filesystem::path(folder) / "traces";
  for (const char* name : {"dlrm_v100_rank0of8", "bert_small_infer_h100_torch26"}) {
    SCOPED_TRACE(name);
    const auto trace = read_trace(traces / (std::string(name) + "_kineto.json.gz"));
    ASSERT_TRUE(trace);
    const auto whole = graph_from_trace(*trace);
    const auto kinds = op_kinds_of_trace(*trace);
    ASSERT_TRUE(whole && kinds);
    EXPECT_LT(kinds->graph.nodes.size(), 0.8 * static_cast<double>(whole->graph.nodes.size()));
    const TraceOps nesting = find_trace_ops(*trace);
    std::size_t ops = 0;
    for (std::size_t i = 0; i < trace->host.size(); ++i) {
      const HostEvent& event = trace->host[i];
      if (event.kind != HostKind::kOp) continue;
      ++ops;
      ASSERT_GE(kinds->like[i], 0);
      const HostEvent& like = trace->host[static_cast<std::size_t>(kinds->like[i])];
      ASSERT_EQ(like.name, event.name);
      ASSERT_EQ(like.arguments, event.arguments);
      // A like op is like itself.
      ASSERT_EQ(kinds->like[static_cast<std::size_t>(kinds->like[i])], kinds->like[i]);
    }
    EXPECT_EQ(ops, whole->ops);
  }
}

}  // namespace graph_from_trace_test
}  // namespace perfmodel
