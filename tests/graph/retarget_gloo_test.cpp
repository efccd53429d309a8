// Gloo's collectives, which a machine without a GPU records, become collectives of the GPU's
// library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/rewrites/retarget.hpp"

namespace perfmodel {
namespace retarget_gloo_test {

using testing::Contains;
using testing::HasSubstr;

/// A step on a CPU, one op of which is called `name`.
ExecutionGraph recorded_with(const char* name) {
  MlpConfig config;
  config.widths = {64, 64, 64};
  config.batch = 8;
  config.training.pytorch.device = {.kind = Device::Kind::kCpu};
  ExecutionGraph graph = build_mlp(config).value();
  for (Node& node : graph.nodes) {
    if (graph.name(node) == "aten::relu") node.name = graph.names.intern(name);
  }
  return graph;
}

std::size_t count(const ExecutionGraph& graph, std::string_view name) {
  std::size_t found = 0;
  for (const Node& node : graph.nodes) found += graph.name(node) == name && !node.is_label;
  return found;
}

TEST(RetargetGloo, AnAllReduceWithoutAnOpAroundItIsThatOp) {
  const ExecutionGraph recorded = recorded_with("gloo:all_reduce");
  const auto made = retarget(recorded);
  ASSERT_TRUE(made) << to_string(made.error());
  EXPECT_EQ(count(*made, "gloo:all_reduce"), 0U);
  EXPECT_EQ(count(*made, "c10d::allreduce_"), 1U);
}

TEST(RetargetGloo, NamesACollectiveWithoutAPrice) {
  const auto made = retarget(recorded_with("gloo:gather"));
  ASSERT_TRUE(made) << to_string(made.error());
  EXPECT_THAT(made->warnings, Contains(HasSubstr("gloo:gather has no price on a GPU")));
}

}  // namespace retarget_gloo_test
}  // namespace perfmodel
