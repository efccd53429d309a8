// Step times of GPT-like models on A100 and H100 nodes against two public measurements. Constants
// were chosen on even rows (file order, from 0); odd rows judge.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "training_steps.hpp"

namespace perfmodel::parallel {
namespace {

using accuracy::gpu;

TEST(MegatronStep, VtrainSingleNode) {
  const auto rows = measured_rows("vtrain_a100_single_node.json");
  if (rows.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const Gpu a100 = gpu("a100-sxm-80gb");
  const StepCosts costs{.gpu = &a100, .collective_us = costs_on("dgx-a100")};
  const StepCosts roofline = roofline_of(costs);
  std::map<std::string, Errors> groups;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    const DecoderShape shape = vtrain_shape(row);
    const MegatronPlan plan = vtrain_plan(row);
    const auto step = megatron_step(shape, plan, costs);
    ASSERT_TRUE(step) << to_string(step.error());
    const double measured = row["iteration_ms"].get<double>() * 1e3;
    const auto floor = megatron_step(shape, plan, roofline);
    ASSERT_TRUE(floor) << to_string(floor.error());
    EXPECT_LT(floor->step_us, step->step_us);
    groups["data-sheet roofline, no host"].add(floor->step_us, measured);
    groups["all"].add(step->step_us, measured);
    groups[i % 2 ? "odd rows (judged)" : "even rows (chosen on)"].add(step->step_us, measured);
    groups["tp " + std::to_string(plan.tp)].add(step->step_us, measured);
    groups["pp " + std::to_string(plan.pp)].add(step->step_us, measured);
    groups["hidden " + std::to_string(shape.hidden) + " micro batch " +
           std::to_string(plan.micro_batch)]
        .add(step->step_us, measured);
  }
  for (const auto& [name, errors] : groups) errors.print(name);
  ASSERT_EQ(groups["all"].signed_percent.size(), rows.size());
  // vTrain reports 8.37 % from profiled layers, Calculon has 38.9 %.
  EXPECT_LT(groups["odd rows (judged)"].mape(), 8.37);
  EXPECT_LT(groups["all"].mape(), 8.37);
  EXPECT_GT(groups["data-sheet roofline, no host"].mape(), 2 * groups["all"].mape());
}

TEST(FsdpStep, MptThroughput) {
  const auto rows = measured_rows("fsdp_mpt_throughput.json");
  if (rows.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::map<std::string, Errors> groups;
  std::map<std::string, double> first_ratio;  // predicted / measured of a model's first GPU count
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    const std::string name = row["gpu"], precision = row["precision"];
    const bool is_h100 = name == "h100_80gb";
    Gpu device = gpu(is_h100               ? "h100-sxm-80gb"
                     : name == "a100_80gb" ? "a100-sxm-80gb"
                                           : "a100-sxm-40gb");
    device.architecture.matrix_gemm->always_hot = true;  // a step is a sustained load
    StepCosts costs{.gpu = &device, .collective_us = costs_on(is_h100 ? "hgx-h100" : "dgx-a100")};
    costs.dtype = costs.linear_dtype = DType::kBFloat16;
    if (precision == "amp_fp8") costs.linear_dtype = DType::kFloat8;
    // Best of a grid on the even rows: 35 pairs of shares, seven factors from 1 to 1.15.
    costs.kernel_factor = 1.15;
    costs.flash_attention_share = is_h100 ? 0.20 : 0.38;
    const DecoderShape shape{.hidden = row["d_model"],
                             .heads = row["heads"],
                             .layers = row["layers"],
                             .seq = row["seq"],
                             .vocab = 50368,
                             .dropout = false,
                             .flash_attention = true,
                             .fused_cross_entropy = true,
                             .extra_losses = 2};
    EXPECT_NEAR(decoder_parameters(shape), row["params"].get<double>(), 1);
    FsdpPlan plan{.gpus = row["gpus"],
                  .micro_batch = row["micro_batch"],
                  .microbatches = row["grad_accum"],
                  .activation_checkpointing = row["activation_checkpointing"]};
    plan.fsdp.reshard_after_forward = row["sharding"] == "FULL_SHARD";
    const auto step = fsdp_step(shape, plan, costs);
    ASSERT_TRUE(step) << to_string(step.error());
    const double tokens = row["global_batch"].get<double>() * row["seq"].get<double>();
    const double predicted = tokens / (step->step_us * 1e-6);
    const double measured = row["tokens_per_s"];
    groups["all"].add(predicted, measured);
    groups[i % 2 ? "odd rows (judged)" : "even rows (chosen on)"].add(predicted, measured);
    groups[name].add(predicted, measured);
    groups[name + " " + precision].add(predicted, measured);
    const std::string model = name + row["model"].get<std::string>() + row["seq"].dump() +
                              (plan.activation_checkpointing ? " ac" : "");
    const auto [first, is_new] = first_ratio.try_emplace(model, predicted / measured);
    if (!is_new) groups["scaling ratio"].add(predicted / measured, first->second);
  }
  for (const auto& [name, errors] : groups) errors.print(name);
  ASSERT_EQ(groups["all"].signed_percent.size(), rows.size());
  // One constant share of peak per GPU type has about 13 %.
  // The judged rows were printed beside the grid: 4.4 to 10.8 %.
  EXPECT_LT(groups["odd rows (judged)"].mape(), 6);
  EXPECT_LT(groups["all"].mape(), 10);
}

}  // namespace
}  // namespace perfmodel::parallel
