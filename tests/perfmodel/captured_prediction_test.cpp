// A Predictor is asked about a captured graph: it calls the libraries of each GPU's vendor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "perfmodel/graph/captured.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/retarget.hpp"
#include "perfmodel/optimize.hpp"
#include "perfmodel/predictor.hpp"

namespace perfmodel {
namespace captured_prediction_test {

using testing::HasSubstr;
using testing::StartsWith;

ExecutionGraph captured() {
  return *read_execution_graph(std::filesystem::path(PERFMODEL_SOURCE_DIR) /
                               "tests/graph/captured/resnet.json.gz");
}

ExecutionGraph retargeted(RetargetOptions::Vendor vendor) {
  ExecutionGraph graph = captured();
  EXPECT_TRUE(retarget_captured(graph, vendor));
  return graph;
}

bool calls(const Prediction& prediction, std::string_view op) {
  return std::ranges::any_of(prediction.graph->nodes,
                             [&](const Node& node) { return prediction.graph->name(node) == op; });
}

class CapturedPrediction : public testing::Test {
 protected:
  Predictor predictor_ = *Predictor::load({.gpus = {"t4", "mi300x"}});
};

TEST_F(CapturedPrediction, IsThatOfTheRetargetedGraph) {
  const PreparedGraph prepared = *predictor_.prepare(captured());
  using enum RetargetOptions::Vendor;
  for (const auto& [gpu, vendor] : {std::pair{"t4", kNvidia}, {"mi300x", kAmd}, {"t4", kNvidia}}) {
    const ExecutionGraph own = retargeted(vendor);
    for (const std::int64_t batch : {0, 8}) {
      const auto expected = predictor_.predict(own, gpu, {.batch = batch});
      ASSERT_TRUE(expected) << expected.error().message;
      EXPECT_EQ(predictor_.predict(prepared, gpu, {.batch = batch})->e2e_us, expected->e2e_us);
      EXPECT_EQ(predictor_.predict(captured(), gpu, {.batch = batch})->e2e_us, expected->e2e_us);
    }
  }
}

TEST_F(CapturedPrediction, NamesTheOpsOfTheVendor) {
  const PreparedGraph prepared = *predictor_.prepare(captured());
  const auto nvidia = predictor_.predict(prepared, "t4", {.keep_ops = true});
  const auto amd = predictor_.predict(prepared, "mi300x", {.keep_ops = true});
  EXPECT_TRUE(calls(*nvidia, "aten::cudnn_convolution"));
  EXPECT_TRUE(calls(*amd, "aten::miopen_convolution"));
  EXPECT_THAT(nvidia->warnings[0], StartsWith("captured: "));
  EXPECT_THAT(amd->warnings[0], HasSubstr("--retarget amd"));
}

TEST_F(CapturedPrediction, IsOptimizedToo) {
  const PreparedGraph prepared = *predictor_.prepare(captured());
  const auto advice = predictor_.optimize(prepared, "t4", {.allow = {"precision"}});
  ASSERT_TRUE(advice) << advice.error().message;
}

TEST_F(CapturedPrediction, KnowsItsBatch) {
  EXPECT_EQ(predictor_.prepare(captured())->batch(),
            predictor_.prepare(retargeted(RetargetOptions::Vendor::kNvidia))->batch());
}

}  // namespace captured_prediction_test
}  // namespace perfmodel
