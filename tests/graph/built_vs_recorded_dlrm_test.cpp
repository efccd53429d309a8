// DLRMs recorded by PyTorch 1.13 on a CPU, and the same from the builder.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "graph_comparison.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"

namespace perfmodel {
namespace built_vs_recorded_dlrm_test {

// The model of record_et.py.
DlrmConfig recorded_model(bool sparse) {
  DlrmConfig config;
  config.bottom_mlp = {13, 64, 16};
  config.top_mlp = {64, 1};
  for (std::int64_t rows : {1000, 2000, 500, 4000}) {
    config.tables.push_back({.num_rows = rows, .dim = 16, .pooling_factor = 8});
  }
  config.batch = 64;
  config.table_batched = false;
  config.sparse_gradients = sparse;
  config.stacked_offsets = false;
  config.training.pytorch = {
      .major = 1, .minor = 13, .device = {.kind = Device::Kind::kCpu}, .mkl = false};
  config.training.resident_input = true;
  config.training.regions = TrainingOptions::Regions::kLossInForward;
  config.training.step_label.clear();
  return config;
}

class RecordedDlrm : public testing::TestWithParam<bool> {};

TEST_P(RecordedDlrm, OnACpuIsTheBuiltOneOpByOp) {
  const char* data = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (data == nullptr) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const std::string name = GetParam() ? "dlrm_sparse_sgd" : "dlrm_dense_sgd";
  const auto recorded =
      read_execution_graph(std::filesystem::path(data) / "traces_cpu" / (name + ".et.json.gz"));
  ASSERT_TRUE(recorded) << to_string(recorded.error());
  const auto built = build_dlrm(recorded_model(GetParam()));
  ASSERT_TRUE(built) << to_string(built.error());
  const GraphComparison comparison = compare_graphs(*recorded, *built);
  EXPECT_TRUE(comparison.same()) << comparison;
}

INSTANTIATE_TEST_SUITE_P(Gradients, RecordedDlrm, testing::Bool(),
                         [](const auto& instance) { return instance.param ? "Sparse" : "Dense"; });

// The small ones of recorded/record.py: other interactions and optimizers.
struct SmallDlrm {
  const char* name;
  void (*change)(DlrmConfig&);
};

class RecordedSmallDlrm : public testing::TestWithParam<SmallDlrm> {};

TEST_P(RecordedSmallDlrm, OnACpuIsTheBuiltOneOpByOp) {
  DlrmConfig config;
  config.bottom_mlp = {5, 6, 4};
  config.top_mlp = {8, 1};
  config.tables = {{.num_rows = 10, .dim = 4, .pooling_factor = 3},
                   {.num_rows = 20, .dim = 4, .pooling_factor = 3}};
  config.batch = 6;
  config.table_batched = false;
  config.sparse_gradients = false;
  config.stacked_offsets = false;
  config.training = recorded_model(false).training;
  config.training.regions = TrainingOptions::Regions::kOff;
  config.training.learning_rate = 0.01;
  GetParam().change(config);
  const auto recorded =
      read_execution_graph(std::filesystem::path(PERFMODEL_SOURCE_DIR) / "tests/graph/recorded" /
                           (std::string(GetParam().name) + ".json.gz"));
  ASSERT_TRUE(recorded) << to_string(recorded.error());
  const auto built = build_dlrm(config);
  ASSERT_TRUE(built) << to_string(built.error());
  // A recording has six decimals of a number, which Adam computes from its step.
  ComparisonOptions options;
  options.leave_out = [](const ExecutionGraph& graph, const Node& node) {
    return graph.name(node) == "aten::addcdiv_" &&
           std::string_view(GetParam().name) == "dlrm_dot_adam";
  };
  const GraphComparison comparison = compare_graphs(*recorded, *built, options);
  EXPECT_TRUE(comparison.same()) << comparison;
}

constexpr SmallDlrm kSmall[] = {
    {"dlrm_dot_adam", [](DlrmConfig& c) { c.optimizer = DlrmConfig::Optimizer::kAdam; }},
    {"dlrm_cat_sparse",
     [](DlrmConfig& c) {
       c.interaction_dot = false;
       c.sparse_gradients = true;
     }},
    {"dlrm_sparse_adagrad",
     [](DlrmConfig& c) {
       c.interaction_dot = false;
       c.sparse_gradients = true;
       c.optimizer = DlrmConfig::Optimizer::kAdagrad;
     }},
    {"dlrm_sparse_adam",
     [](DlrmConfig& c) {
       c.interaction_dot = false;
       c.sparse_gradients = true;
       c.optimizer = DlrmConfig::Optimizer::kSparseAdam;
       c.dense_optimizer = TrainingOptions::Optimizer::kSgd;
     }},
    {"dlrm_dcnv2_adagrad",
     [](DlrmConfig& c) {
       c.cross = {.layers = 2, .rank = 2};
       c.optimizer = DlrmConfig::Optimizer::kAdagrad;
     }},
};

INSTANTIATE_TEST_SUITE_P(Models, RecordedSmallDlrm, testing::ValuesIn(kSmall),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace built_vs_recorded_dlrm_test
}  // namespace perfmodel
