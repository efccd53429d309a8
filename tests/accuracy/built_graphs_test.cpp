// Predictions of built graphs compared with predictions of recorded graphs of the same models, with
// the same overhead table: nodes that a builder leaves out or adds must not move the prediction.
#include "accuracy_support.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/rewrites/training.hpp"

namespace perfmodel {
namespace built_graphs_test {

using accuracy::error_percent;
using accuracy::RecordedRun;

TrainingOptions pytorch_2_0() {
  TrainingOptions options;
  options.pytorch.major = 2;
  options.pytorch.minor = 0;
  options.step_label = "";
  return options;
}

void expect_same_prediction(const std::string& name, const ExecutionGraph& recorded_graph,
                            const Result<ExecutionGraph>& built, const Gpu& gpu,
                            const OverheadTable& table, double limit_percent) {
  ASSERT_TRUE(built) << to_string(built.error());
  const auto recorded = predict(recorded_graph, gpu, table).value();
  const auto ours = predict(*built, gpu, table).value();
  const double e2e = error_percent(ours.e2e_us, recorded.e2e_us);
  const double active = error_percent(ours.gpu_active_us, recorded.gpu_active_us);
  std::printf("%s: recorded %.0f us, built %+.2f %%; GPU active %+.2f %%\n", name.c_str(),
              recorded.e2e_us, e2e, active);
  EXPECT_LE(std::abs(e2e), limit_percent);
  EXPECT_LE(std::abs(active), limit_percent);
}

// The overhead table comes from the recording.
void expect_same_prediction(const std::string& stem, const std::string& gpu_name,
                            const Result<ExecutionGraph>& built, double limit_percent) {
  const RecordedRun run = accuracy::read_run(stem + "_et", stem + "_kineto");
  const Gpu gpu = accuracy::gpu(gpu_name);
  const OverheadSource source{&run.trace, &run.graph};
  const auto table = extract_overheads({&source, 1}, {}).value();
  expect_same_prediction(stem, run.graph, built, gpu, table, limit_percent);
}

TEST(BuiltGraphs, LinearIsPredictedAsRecorded) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  MlpConfig config = *mlp_preset("linear");
  config.training = pytorch_2_0();
  config.training.zero_grad = TrainingOptions::ZeroGrad::kToZero;
  config.training.zero_grad_place = TrainingOptions::ZeroGradPlace::kBeforeLoss;
  config.training.resident_input = true;
  expect_same_prediction("linear", "rtx-2080-ti", build_mlp(config), 2);
}

TEST(BuiltGraphs, Resnet18IsPredictedAsRecorded) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  ResnetConfig config = *resnet_preset("resnet18");
  config.batch = 128;
  config.training = pytorch_2_0();
  config.training.optimizer = TrainingOptions::Optimizer::kMomentum;
  config.training.weight_decay = 1e-4;
  config.training.zero_grad_place = TrainingOptions::ZeroGradPlace::kBeforeForward;
  config.training.pinned_input = false;
  expect_same_prediction("resnet18", "rtx-2080-ti", build_resnet(config), 2);
}

// Recorded on an A100 with DDP on one GPU; no trace of that run is public, so the table comes from
// the data folder.
TEST(BuiltGraphs, Resnet50WithDataParallelIsPredictedAsRecorded) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const auto recorded =
      read_execution_graph(*accuracy::public_data() / "traces" / "resnet50_ddp_et_1.1.1.json.gz");
  ASSERT_TRUE(recorded) << to_string(recorded.error());
  ResnetConfig config = *resnet_preset("resnet50");
  config.batch = 32;
  config.soft_targets = true;
  config.training.resident_input = true;
  config.training.optimizer = TrainingOptions::Optimizer::kMomentum;
  config.training.zero_grad_place = TrainingOptions::ZeroGradPlace::kBeforeForward;
  config.training.regions = TrainingOptions::Regions::kLossInBackward;
  config.training.step_label = "ProfilerStep#6";
  const auto built = rewrite_data_parallel(build_resnet(config).value(), {.world_size = 1});
  const auto table = read_overheads(std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" /
                                    "overheads" / "reference.json");
  ASSERT_TRUE(table) << to_string(table.error());
  expect_same_prediction("resnet50_ddp", *recorded, built, accuracy::gpu("a100-sxm-80gb"), *table,
                         2);
}

TEST(BuiltGraphs, TorchrecRanksArePredictedAsRecorded) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    TorchrecDlrmConfig config = *torchrec_dlrm_preset("v100-8");
    config.rank = rank;
    expect_same_prediction("dlrm_v100_rank" + std::to_string(rank) + "of8", "v100-sxm2-32gb",
                           build_torchrec_dlrm(config), 2);
  }
}

}  // namespace built_graphs_test
}  // namespace perfmodel
