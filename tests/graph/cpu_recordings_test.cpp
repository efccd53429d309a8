#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/trace.hpp"

/// Steps recorded on a CPU with PyTorch 1.13, whose figures were counted independently.
namespace perfmodel {
namespace cpu_recordings_test {

using Json = nlohmann::json;

class CpuRecordings : public testing::Test {
 protected:
  void SetUp() override {
    const char* root = std::getenv("PERFMODEL_PUBLIC_DATA");
    if (!root || !*root) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
    folder_ = std::filesystem::path(root) / "traces_cpu";
    expected_ = Json::parse(std::ifstream(folder_ / "expected.json"));
    ASSERT_EQ(expected_.size(), 4u);
  }

  std::filesystem::path folder_;
  Json expected_;
};

TEST_F(CpuRecordings, GraphsHaveTheirNodesAndOps) {
  for (const auto& [name, figures] : expected_.items()) {
    SCOPED_TRACE(name);
    const auto graph = read_execution_graph(folder_ / (name + ".et.json.gz"));
    ASSERT_TRUE(graph) << to_string(graph.error());
    std::map<std::string, std::size_t> scopes, ops;
    std::size_t leaves = 0;
    for (const Node& node : graph->nodes) {
      ++scopes[std::to_string(static_cast<int>(node.scope))];
      leaves += node.children_count == 0;
      const std::string op(graph->name(node));
      if (figures["op_counts"].contains(op)) ++ops[op];
    }
    EXPECT_EQ(graph->nodes.size(), figures["nodes"]);
    EXPECT_EQ(leaves, figures["leaf_nodes"]);
    EXPECT_EQ(Json(scopes), figures["scope"]);
    EXPECT_EQ(Json(ops), figures["op_counts"]);
  }
}

// Bare arrays of events without categories, as the profiler of 2022 wrote them.
TEST_F(CpuRecordings, TracesHaveTheirEvents) {
  for (const auto& [name, figures] : expected_.items()) {
    SCOPED_TRACE(name);
    const auto trace = read_trace(folder_ / (name + ".trace.json.gz"));
    ASSERT_TRUE(trace) << to_string(trace.error());
    EXPECT_EQ(trace->host.size(), figures["trace_events"]);
    EXPECT_TRUE(trace->gpu.empty());
  }
}

}  // namespace cpu_recordings_test
}  // namespace perfmodel
