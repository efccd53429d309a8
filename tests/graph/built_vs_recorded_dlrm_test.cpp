// DLRMs recorded by PyTorch 1.13 on a CPU, and the same from the builder.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "graph_comparison.hpp"
#include "perfmodel/graph/build_dlrm.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"

namespace perfmodel {
namespace {

// That of record_et.py.
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

}  // namespace
}  // namespace perfmodel
