// Steps of large GPT models on 8 to 2240 A100. No constant was fitted on these rows: those of
// transformer_step_test.cpp hold.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "training_steps.hpp"

namespace perfmodel::parallel {
namespace {

using accuracy::gpu;

/// FLOP of a step with full recomputation (Narayanan 2021).
double step_flop(const DecoderShape& shape, std::int64_t sequences) {
  const auto h = static_cast<double>(shape.hidden), s = static_cast<double>(shape.seq);
  const auto layers = static_cast<double>(shape.layers), v = static_cast<double>(shape.vocab);
  return 96.0 * static_cast<double>(sequences) * s * layers * h * h *
         (1 + s / (6 * h) + v / (16 * layers * h));
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// vTrain states 800 Gb/s per node: four NICs of the DGX A100. One row has tensor parallel 16.
TEST(MegatronScale, VtrainMultiNode) {
  const auto rows = measured_rows("vtrain_a100_multi_node.json");
  if (rows.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const Gpu a100 = gpu("a100-sxm-80gb");
  const StepCosts costs{.gpu = &a100, .collective_us = costs_on("dgx-a100", 4)};
  const StepCosts roofline = roofline_of(costs);
  std::vector<double> measured, floor, flop_time;
  std::map<std::string, Errors> groups;
  for (const auto& row : rows) {
    const DecoderShape shape = vtrain_shape(row);
    const MegatronPlan plan = vtrain_plan(row);
    const auto step = megatron_step(shape, plan, costs);
    ASSERT_TRUE(step) << to_string(step.error());
    const auto least = megatron_step(shape, plan, roofline);
    ASSERT_TRUE(least) << to_string(least.error());
    measured.push_back(row["iteration_ms"].get<double>() * 1e3);
    floor.push_back(least->step_us);
    flop_time.push_back(step_flop(shape, plan.global_batch) / row["gpus"].get<double>());
    EXPECT_LT(floor.back(), step->step_us);
    for (const std::string& group :
         {std::string("all"), "tp " + std::to_string(plan.tp),
          "hidden " + std::to_string(shape.hidden),
          std::string(measured.size() % 2 == 1 ? "even rows" : "odd rows")}) {
      groups[group].add(step->step_us, measured.back());
    }
  }
  // Both baselines get their constant from the even rows.
  const auto scaled = [&](const std::vector<double>& figures) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < figures.size(); i += 2) ratios.push_back(measured[i] / figures[i]);
    Errors errors;
    for (std::size_t i = 0; i < figures.size(); ++i) {
      errors.add(median(ratios) * figures[i], measured[i]);
    }
    return errors;
  };
  groups["baseline roofline x constant"] = scaled(floor);
  groups["baseline FLOP x constant"] = scaled(flop_time);
  for (const auto& [name, errors] : groups) errors.print(name);
  ASSERT_EQ(groups["all"].signed_percent.size(), rows.size());
  // vTrain reports 14.73 %; Calculon has 12.9 % where it accepts the layout.
  EXPECT_LT(groups["all"].mape(), 10);
  EXPECT_LT(groups["even rows"].mape(), 12);
  EXPECT_LT(groups["odd rows"].mape(), 12);
  for (const char* baseline : {"baseline roofline x constant", "baseline FLOP x constant"}) {
    EXPECT_LT(groups["all"].mape(), groups[baseline].mape()) << baseline;
  }
}

TEST(MegatronScale, RecomputeStudy) {
  const auto cases = measured_cases("megatron_selective_recompute.json");
  if (cases.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const Gpu a100 = gpu("a100-sxm-80gb");
  const StepCosts costs{.gpu = &a100, .collective_us = costs_on("dgx-a100")};
  Errors ours, calculon;
  for (const auto& row : cases) {
    const auto& model = row["model"];
    const auto& run = row["execution"];
    const DecoderShape shape{.hidden = model["hidden"],
                             .heads = model["attn_heads"],
                             .layers = model["num_blocks"],
                             .seq = model["seq_size"],
                             .vocab = 51200,  // of all models of the paper
                             .ffn_hidden = model["feedforward"]};
    const MegatronPlan plan{.tp = run["tensor_par"],
                            .dp = run["data_par"],
                            .pp = run["pipeline_par"],
                            .virtual_stages = run["pipeline_interleaving"],
                            .micro_batch = run["microbatch_size"],
                            .global_batch = run["batch_size"]};
    const auto step = megatron_step(shape, plan, costs);
    ASSERT_TRUE(step) << to_string(step.error());
    const double measured = row["measured"]["iteration_s"];
    ours.add(step->step_us * 1e-6, measured);
    calculon.add(row["other_tools"]["calculon_iteration_s"], measured);
    std::printf("%-18s measured %6.2f s, predicted %6.2f s\n", row["id"].get<std::string>().c_str(),
                measured, step->step_us * 1e-6);
  }
  ours.print("recompute study");
  calculon.print("Calculon");
  EXPECT_EQ(ours.signed_percent.size(), 2U);
  EXPECT_LT(ours.mape(), 10);
}

/// Error in % of a row of the scale-out file.
double scale_out_error(const nlohmann::json& row) {
  const Gpu a100 = gpu("a100-sxm-80gb");
  const StepCosts costs{.gpu = &a100, .collective_us = costs_on("dgx-a100")};
  const auto& model = row["model"];
  const DecoderShape shape{.hidden = model["hidden"],
                           .heads = model["heads"],
                           .layers = model["layers"],
                           .seq = model["seq"],
                           .vocab = model["vocab"]};
  const std::int64_t batch = row["global_batch"], micro_batch = row["micro_batch"],
                     gpus = row["gpus"];
  const auto step = row["scheme"] == "ZeRO-3"
                        ? fsdp_step(shape,
                                    {.gpus = gpus,
                                     .micro_batch = micro_batch,
                                     .microbatches = batch / gpus / micro_batch,
                                     .activation_checkpointing = true},
                                    costs)
                        : megatron_step(shape,
                                        {.tp = row["tp"],
                                         .dp = row["dp"],
                                         .pp = row["pp"],
                                         .micro_batch = micro_batch,
                                         .global_batch = batch},
                                        costs);
  EXPECT_TRUE(step) << to_string(step.error());
  if (!step) return 1e9;
  const auto& figures = row["measured"];
  const double measured =
      figures[figures.contains("iteration_s") ? "iteration_s" : "implied_iteration_s"];
  std::printf("%-24s measured %6.2f s, predicted %6.2f s\n", row["id"].get<std::string>().c_str(),
              measured, step->step_us * 1e-6);
  return 100 * (step->step_us * 1e-6 / measured - 1);
}

// The goal is a mean of 12 %, met by Megatron-LM's row alone. docs/parallel.md says what was tried.
TEST(MegatronScale, ScaleOutWithDeepSpeedIsPredictedTooFast) {
  const auto cases = measured_cases("megatron_scale_out.json");
  if (cases.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::map<std::string, double> errors;
  for (const auto& row : cases) errors[row["id"].get<std::string>()] = scale_out_error(row);
  ASSERT_EQ(errors.size(), 3U);
  EXPECT_NEAR(errors.at("table2-175B-PTD-P-384"), 0, 6);
  EXPECT_NEAR(errors.at("mtnlg-530B-2240"), -21,
              2);  // -18 with products of A100 that were 5 % slower
  EXPECT_NEAR(errors.at("table2-175B-ZeRO-3-384"), -38, 2);  // -35 with them
}

}  // namespace
}  // namespace perfmodel::parallel
