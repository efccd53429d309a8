#include "perfmodel/graph/rewrites/checkpointing.hpp"

#include <gtest/gtest.h>

#include <string>

#include "graph_comparison.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"

namespace perfmodel {
namespace {

ExecutionGraph recorded(const std::string& name) {
  auto graph = read_execution_graph(std::string(PERFMODEL_SOURCE_DIR "/tests/graph/recorded/") +
                                    name + ".json.gz");
  if (!graph) {
    ADD_FAILURE() << to_string(graph.error());
    return {};
  }
  return std::move(*graph);
}

ExecutionGraph checkpointed(const ExecutionGraph& graph, const CheckpointOptions& options = {}) {
  auto made = rewrite_checkpointing(graph, options);
  if (!made) {
    ADD_FAILURE() << to_string(made.error());
    return {};
  }
  return std::move(*made);
}

TEST(RewriteCheckpointing, PlainBlocksBecomeTheRecordedCheckpoints) {
  const GraphComparison comparison = compare_graphs(
      recorded("blocks_checkpointed"), checkpointed(recorded("blocks_plain")), {.schemas = true});
  EXPECT_TRUE(comparison.same()) << comparison;
}

}  // namespace
}  // namespace perfmodel
