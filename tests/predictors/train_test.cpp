#include "training/train.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "../scratch.hpp"
#include "made_campaign.hpp"
#include "made_kernels.hpp"
#include "perfmodel/predictors/detail/learned_models.hpp"
#include "price/kernel_work.hpp"
#include "price/learned/model_file.hpp"

namespace perfmodel {
namespace train_test {

namespace fs = std::filesystem;
using test_support::add_rows;
using test_support::add_us;
using test_support::Campaign;
using test_support::gemm_rows;
using test_support::gpu_of_data;
using test_support::kAddHead;
using test_support::kGemmHead;
using training::calibrate;
using training::EvalReport;
using training::evaluate;
using training::few_shot;
using training::RowChoice;
using training::train;
using training::TrainOptions;
using training::TrainReport;
using Tables = std::vector<KernelTable>;

/// Few rounds for few rows.
TrainOptions quick() {
  TrainOptions options;
  options.recipe = training::Recipe{.rounds = 120,
                                    .chip_rounds = 60,
                                    .depth = 4,
                                    .eta = 0.15,
                                    .subsample = 0.8,
                                    .columns = 0.8,
                                    .min_child_weight = 2,
                                    .lambda = 1};
  return options;
}

TrainOptions fit_only() {
  TrainOptions options = quick();
  options.validate = false;
  return options;
}

class Training : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  KernelTable table(const std::string& text, bool needs_time = true) {
    const fs::path file = folder_ / "table.csv";
    std::ofstream(file, std::ios::binary) << text;
    auto read = read_kernel_table(
        file,
        {.gpu_folder = fs::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus", .needs_time = needs_time});
    EXPECT_TRUE(read.has_value()) << to_string(read.error());
    return read ? *read : KernelTable{};
  }
  TrainReport trained(const Tables& tables, const TrainOptions& options,
                      const std::string& name = "model.json") {
    auto report = train(tables, options, folder_ / name);
    EXPECT_TRUE(report.has_value()) << to_string(report.error());
    return report ? std::move(*report) : TrainReport{};
  }
  EvalReport judged(const KernelTable& of, const std::string& name = "model.json") {
    auto report = evaluate(of, folder_ / name, {});
    EXPECT_TRUE(report.has_value()) << to_string(report.error());
    return report ? std::move(*report) : EvalReport{};
  }
  static ErrorSummary errors(const training::Validation& rows) {
    const auto summary = summarize_errors(rows.measured_us, rows.predicted_us);
    EXPECT_TRUE(summary.has_value());
    return summary ? *summary : ErrorSummary{};
  }
  std::string bytes(const std::string& name) {
    std::ifstream in(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  Tables adds(int count, const Campaign& campaign = {}) {
    return {table(kAddHead + add_rows("a100-pcie-40gb", count, campaign) +
                  add_rows("v100-pcie-16gb", count, campaign))};
  }

  /// The heuristic's times of A100, V100 and P100, times a factor each, with noise.
  KernelTable erring(double a100, double v100, double p100) {
    KernelTable made = table(kAddHead + add_rows("a100-pcie-40gb", 150) +
                             add_rows("v100-pcie-16gb", 150) + add_rows("p100-pcie-16gb", 150));
    test_support::Draw draw(3);
    for (KernelRow& row : made.rows) {
      const Gpu& gpu = made.gpus[static_cast<std::size_t>(row.gpu)];
      const double factor = std::array{a100, v100, p100}[static_cast<std::size_t>(row.gpu)];
      row.measured_us = KernelModels::heuristic().price(row.work, gpu).time.count() * factor *
                        std::exp(0.01 * draw.normal());
    }
    return made;
  }

  fs::path folder_ = test_support::scratch() / "train";
};

// ---- accuracy ----------------------------------------------------------------------------------

TEST_F(Training, RecoversACurveOfTheBandwidth) {
  const TrainReport report = trained(adds(300), quick());
  ASSERT_EQ(report.models.size(), 1u);
  const auto& model = report.models[0];
  EXPECT_EQ(model.rows, 600u);
  EXPECT_EQ(model.fitted_rows, 600u);
  EXPECT_LT(errors(model.random).mape, 0.03);  // noise 0.01
  EXPECT_LT(errors(model.grouped).mape, 0.03);
  // Rows that no part of the training saw.
  const EvalReport fresh = judged(adds(100, {.seed = 77}).front());
  EXPECT_EQ(fresh.rows.measured_us.size(), 200u);
  EXPECT_EQ(fresh.unseen_rows + fresh.unknown_rows, 0u);
  EXPECT_LT(errors(fresh.rows).mape, 0.03);
  const auto heuristic = summarize_errors(fresh.rows.measured_us, fresh.heuristic_us);
  EXPECT_GT(heuristic->mape, 3 * errors(fresh.rows).mape);
}

TEST_F(Training, RecoversACurveOfThePeak) {
  const auto gemms = [&](int count, unsigned seed) {
    return Tables{table(kGemmHead + gemm_rows("a100-pcie-40gb", count, {.seed = seed}) +
                        gemm_rows("v100-pcie-16gb", count, {.seed = seed}))};
  };
  trained(gemms(400, 1), fit_only());
  const EvalReport fresh = judged(gemms(100, 77).front());
  EXPECT_LT(errors(fresh.rows).mape, 0.08);
  const auto heuristic = summarize_errors(fresh.rows.measured_us, fresh.heuristic_us);
  EXPECT_GT(heuristic->mape, 2 * errors(fresh.rows).mape);
}

TEST_F(Training, RangesHoldNineRowsOfTen) {
  const Campaign noisy{.noise = 0.1};
  const TrainReport report = trained(adds(500, noisy), quick());
  EXPECT_NEAR(report.models[0].random.coverage, 0.9, 0.06);
  const EvalReport fresh = judged(adds(300, {.seed = 78, .noise = 0.1}).front());
  EXPECT_EQ(fresh.rows.coverage_rows, 600u);
  EXPECT_NEAR(fresh.rows.coverage, 0.9, 0.06);
}

// Errors of the heuristic on three GPUs; the other GPUs judge each one.
TEST_F(Training, WhatAllGpusShareIsFollowedOnANewOne) {
  const TrainReport report = trained({erring(1.6, 1.6, 1.6)}, quick());
  const auto& left_out = report.models[0].left_out;
  ASSERT_EQ(left_out.size(), 3u);
  for (const auto& left : left_out) {
    EXPECT_EQ(left.learned.rows, 150u);
    EXPECT_NEAR(left.heuristic.mape, 1 - 1 / 1.6, 0.01);
    EXPECT_LT(left.learned.mape, 0.03) << left.gpu;
    EXPECT_GT(left.coverage, 0.7);
    // Times of the same kernels on another GPU, too, except for differences by size.
    EXPECT_EQ(left.best_ratio.rows, 150u);
    EXPECT_NE(left.best_ratio_gpu, left.gpu);
    EXPECT_GE(left.mean_ratio_mape, left.best_ratio.mape);
  }
  const auto models = learned::read_model_file(folder_ / "model.json");
  ASSERT_TRUE(models.has_value());
  EXPECT_EQ(models->front().unseen_trust, 1);
  EXPECT_EQ(judged(erring(1.6, 1.6, 1.6)).unseen_rows, 0u);
}

TEST_F(Training, WhatGpusDoNotShareIsNotFollowed) {
  const TrainReport report = trained({erring(0.4, 1, 2.5)}, quick());
  const auto models = learned::read_model_file(folder_ / "model.json");
  ASSERT_TRUE(models.has_value());
  EXPECT_LE(models->front().unseen_trust, 0.25);
  // Measured chips have trees of their own.
  EXPECT_LT(errors(report.models[0].random).mape, 0.04);
  // Ranges say how little is known.
  const auto& none = models->front().intervals[static_cast<std::size_t>(Knowledge::kNone)].any;
  EXPECT_LT(none[0].low, 0.6);
  EXPECT_GT(none[0].high, 1.7);
}

TEST_F(Training, LowTimeAndHighAreInOrder) {
  trained(adds(300), quick());
  const auto learned = LearnedModels::read(folder_ / "model.json");
  ASSERT_TRUE(learned.has_value()) << to_string(learned.error());
  for (const char* gpu : {"a100-pcie-40gb", "a100-sxm-80gb", "h100-sxm-80gb", "p4", "titan-xp"}) {
    for (double elements = 10; elements < 1e10; elements *= 7) {
      const Price price = learned->models().price(elementwise_work(elements, 2, 1, DType::kFloat32),
                                                  gpu_of_data(gpu));
      EXPECT_EQ(price.model, "elementwise-learned");
      EXPECT_LE(price.low, price.time) << gpu << " " << elements;
      EXPECT_LE(price.time, price.high) << gpu << " " << elements;
    }
  }
}

// ---- launch costs ------------------------------------------------------------------------------

TEST_F(Training, LaunchCostsAreFoundAndAreNoPartOfAPrice) {
  // Calls take 40 us at least, of which 17.2 (0.43 of it) pass before the launch.
  const Campaign host{.noise = 0.005, .floor_us = 40, .dispatch_us = 17.2, .low_log2 = 10};
  trained(adds(300, host), fit_only());
  const auto models = learned::read_model_file(folder_ / "model.json");
  ASSERT_TRUE(models.has_value()) << to_string(models.error());
  ASSERT_EQ(models->front().launch_costs.size(), 2u);
  for (const auto& cost : models->front().launch_costs) {
    EXPECT_EQ(cost.op, "add");
    EXPECT_NEAR(cost.floor_us, 40, 0.5);
    EXPECT_NEAR(cost.dispatch_us, 17.2, 0.5);
  }
  // As measured: launch cost included.
  const EvalReport fresh = judged(
      adds(100, {.seed = 77, .noise = 0.005, .floor_us = 40, .dispatch_us = 17.2, .low_log2 = 10})
          .front());
  EXPECT_LT(errors(fresh.rows).mape, 0.03);
  EXPECT_LT(fresh.rows.coverage_rows, 150u);  // rows at the floor say nothing about kernels
  // Kernels alone.
  const auto learned = LearnedModels::read(folder_ / "model.json");
  ASSERT_TRUE(learned.has_value());
  const Gpu gpu = gpu_of_data("v100-pcie-16gb");
  const auto price_us = [&](double elements) {
    return learned->models()
        .price(elementwise_work(elements, 2, 1, DType::kFloat32), gpu)
        .time.count();
  };
  for (const double elements : {0x1p23, 0x1p24, 0x1p25, 0x1p26}) {
    EXPECT_NEAR(price_us(elements) / add_us(gpu, elements), 1, 0.05) << elements;
  }
  EXPECT_LT(price_us(0x1p12), 40 - 17.2);
}

TEST_F(Training, TimesWithoutAPlateauHaveNoLaunchCost) {
  trained(adds(200), fit_only());
  const auto models = learned::read_model_file(folder_ / "model.json");
  ASSERT_TRUE(models.has_value());
  for (const auto& cost : models->front().launch_costs) {
    EXPECT_EQ(cost.floor_us, 0);
    EXPECT_EQ(cost.dispatch_us, 0);
  }
}

TEST_F(Training, TablesTimedOnTheDeviceHaveNoLaunchCost) {
  // All kernels far below 40 us take just that: a plateau, or the time of the tiniest kernels.
  const Campaign host{.noise = 0.005, .floor_us = 40, .dispatch_us = 17.2, .low_log2 = 10};
  const std::string rows = kAddHead + add_rows("a100-pcie-40gb", 300, host);
  const auto cost_of = [&](const std::string& head) {
    trained({table(head + rows)}, fit_only());
    const auto models = learned::read_model_file(folder_ / "model.json");
    const auto* cost = models ? models->front().launch_cost("a100-pcie-40gb", "add") : nullptr;
    return cost ? cost->floor_us : 0;
  };
  EXPECT_NEAR(cost_of(""), 40, 0.5);
  EXPECT_NEAR(cost_of("# timing: events round each call\n"), 40, 0.5);
  EXPECT_EQ(cost_of("# Timing: graph replay, no launch cost\n"), 0);
  // The price is the whole time.
  const auto learned = LearnedModels::read(folder_ / "model.json");
  ASSERT_TRUE(learned.has_value());
  const Price price = learned->models().price(elementwise_work(65'536, 2, 1, DType::kFloat32),
                                              gpu_of_data("a100-pcie-40gb"));
  EXPECT_NEAR(price.time.count(), 40, 2);
}

TEST_F(Training, LaunchCostsOfOneCampaignAreNotTakenOffAnother) {
  // The same kernels, called one by one and timed on the device.
  const Campaign host{.noise = 0.005, .floor_us = 40, .dispatch_us = 17.2, .low_log2 = 10};
  const Tables tables = {table(kAddHead + add_rows("a100-pcie-40gb", 300, host)),
                         table("# timing: no launch cost\n" + kAddHead +
                               add_rows("a100-pcie-40gb", 300, {.noise = 0.005, .low_log2 = 10}))};
  trained(tables, fit_only());
  const EvalReport device = judged(tables[1]);
  EXPECT_LT(errors(device.rows).median_ape, 0.03);
  EXPECT_EQ(device.rows.coverage_rows, 300u);  // none counts as a row at a floor
}

// ---- one GPU -----------------------------------------------------------------------------------

class OneGpu : public Training {
 protected:
  static constexpr const char* kGpu = "h100-sxm-80gb";

  static const std::map<std::string, int>& rows_of() {
    static const std::map<std::string, int> rows = {{"gemm", 500},   {"bmm", 300},
                                                    {"memory", 200}, {"embedding", 1000},
                                                    {"vector", 200}, {"convolution", 250}};
    return rows;
  }
  Tables campaign(unsigned seed, double share = 1) {
    Tables tables;
    for (const auto& [name, rows] : rows_of()) {
      test_support::MadeKernels made(kGpu, seed);
      tables.push_back(table(made.table(name, static_cast<int>(share * rows))));
    }
    return tables;
  }
  /// A third of the rounds of the real one.
  static TrainOptions one_gpu() {
    TrainOptions options = fit_only();
    options.recipe = training::one_gpu_recipe();
    options.recipe->rounds = 200;
    options.recipe->eta = 0.12;
    return options;
  }
  std::vector<std::string> files(const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }
};

TEST_F(OneGpu, EveryFamilyOfACampaignIsRecovered) {
  const fs::path out = folder_ / "models";
  fs::create_directories(out);
  const auto report = training::train_folder(campaign(1), one_gpu(), out);
  ASSERT_TRUE(report.has_value()) << to_string(report.error());
  EXPECT_TRUE(report->skipped.empty());
  EXPECT_EQ(report->warm_rows, 500u);
  std::set<std::string> families;
  for (const auto& model : report->models)
    families.insert(model.name.substr(0, model.name.find('-')));
  EXPECT_EQ(families.size(), 15u);  // all that `kernels_bench` measures
  const std::vector<std::string> known = training::learned_families();
  for (const std::string& family : families) {
    EXPECT_NE(std::ranges::find(known, family), known.end()) << family;
  }
  for (const char* name : {"gemm-float32.json", "gemm-tf32.json", "gemm-bfloat16.json",
                           "convolution-tf32.json", "copy-uint8.json"}) {
    EXPECT_TRUE(fs::exists(out / name)) << name;
  }
  // Rows that no part of the training saw.
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> by_model;
  const auto learned = LearnedModels::open(out);
  ASSERT_TRUE(learned.has_value());
  for (const KernelTable& fresh : campaign(77, 0.5)) {
    for (const KernelRow& row : fresh.rows) {
      if (row.is_l2_warm) continue;
      // Batch norms are kinds of monotone models, which this recipe does not make.
      const auto* rows = std::get_if<RowShape>(&row.work.shape);
      if (rows && rows->is_channel) continue;
      const Price price = learned->models().price(row.work, fresh.gpus[0]);
      auto& [measured, predicted] = by_model[std::string(price.model)];
      measured.push_back(row.measured_us);
      predicted.push_back(price.time.count());
    }
  }
  EXPECT_FALSE(learned->problem().has_value());
  EXPECT_EQ(by_model.size(), report->models.size());
  for (const auto& [name, times] : by_model) {
    EXPECT_NE(name.find("-learned"), std::string::npos) << name;
    const auto summary = summarize_errors(times.first, times.second);
    ASSERT_TRUE(summary.has_value());
    EXPECT_LT(summary->geomean_ape, 0.03) << name;  // noise 0.01
  }
}

TEST_F(OneGpu, Tf32IsNotFp32) {
  const fs::path out = folder_ / "models";
  fs::create_directories(out);
  Tables tables = {table(test_support::MadeKernels(kGpu).table("gemm", 60))};
  ASSERT_TRUE(training::train_folder(tables, one_gpu(), out).has_value());
  const auto learned = LearnedModels::open(out);
  ASSERT_TRUE(learned.has_value());
  const Gpu gpu = gpu_of_data(kGpu);
  const GemmShape shape{.m = 4096, .n = 4096, .k = 1024};
  const auto model = [&](DType dtype, bool matrix_units) {
    return learned->models().price(gemm_work(shape, dtype, matrix_units), gpu).model;
  };
  EXPECT_EQ(model(DType::kFloat32, false), "gemm-learned");
  EXPECT_EQ(model(DType::kFloat32, true), "gemm-tf32-learned");
  EXPECT_EQ(model(DType::kBFloat16, true), "gemm-bfloat16-learned");
  const auto tf32 = learned::read_model_file(out / "gemm-tf32.json");
  ASSERT_TRUE(tf32.has_value());
  EXPECT_TRUE(tf32->front().tf32);
  // AMD's matrix units for fp32 are exact: such products are fp32.
  const Gpu amd = gpu_of_data("mi210");
  const KernelWork product = gemm_work(shape, DType::kFloat32, true);
  EXPECT_TRUE(learned::is_tf32(product, gpu));
  EXPECT_FALSE(learned::is_tf32(product, amd));
}

TEST_F(OneGpu, FewRowsAreJudgedAFifthAtATime) {
  TrainOptions options;
  options.seed = 3;
  const TrainReport report =
      trained({table("# timing: no launch cost\n" + kAddHead + add_rows("l4", 50))}, options);
  const auto& model = report.models.at(0);
  EXPECT_EQ(model.gpus, 1u);
  EXPECT_TRUE(model.left_out.empty());
  EXPECT_TRUE(model.recipe.one_gpu);
  EXPECT_EQ(model.recipe.seed, 3u);
  EXPECT_EQ(model.random.measured_us.size(), 50u);  // each once
  // The heuristic has these rows in L2, where the made ones never are: a ratio that falls with
  // size, which a monotone model follows only in part.
  EXPECT_LT(errors(model.random).geomean_ape, 0.1);
}

TEST_F(OneGpu, SizesBetweenMeasuredOnesAreInRange) {
  // 2^12, 2^18 and 2^24 elements of 12 bytes.
  std::string rows = "# timing: no launch cost\n" + kAddHead;
  for (int i = 0; i < 60; ++i) {
    const Campaign at{.seed = static_cast<unsigned>(i),
                      .low_log2 = 12.0 + 6 * (i % 3),
                      .high_log2 = 12.0 + 6 * (i % 3) + 0.01};
    rows += add_rows(kGpu, 1, at);
  }
  TrainOptions options = one_gpu();
  trained({table(rows)}, options);
  const auto in_range = [&](double log2_elements) {
    const auto learned = LearnedModels::read(folder_ / "model.json");
    return learned->models()
        .price(elementwise_work(std::exp2(log2_elements), 2, 1, DType::kFloat32), gpu_of_data(kGpu))
        .in_range;
  };
  for (double at : {12.5, 15.0, 17.0, 21.0, 24.0}) EXPECT_TRUE(in_range(at)) << at;
  EXPECT_FALSE(in_range(8));
  EXPECT_FALSE(in_range(28));
}

TEST_F(OneGpu, ABoardAtItsPowerLimitIsFittedAsItIs) {
  trained({table("# timing: no launch cost\n" + kGemmHead + gemm_rows("t4", 200, {.slowness = 3}))},
          one_gpu());
  const EvalReport fresh = judged(table("# timing: no launch cost\n" + kGemmHead +
                                        gemm_rows("t4", 100, {.seed = 7, .slowness = 3})));
  EXPECT_LT(errors(fresh.rows).geomean_ape, 0.05);
}

TEST_F(OneGpu, FamiliesWithFewRowsAreSkipped) {
  const fs::path out = folder_ / "models";
  fs::create_directories(out);
  std::string half = add_rows(kGpu, 49, {.seed = 2});
  for (std::size_t at; (at = half.find("fp32")) != std::string::npos;) half.replace(at, 4, "fp16");
  const Tables tables = {table(kAddHead + add_rows(kGpu, 50) + half),
                         table("device,op,dtype,elements,time_us\nt4,adam,fp32,4096,9\n")};
  const auto report = training::train_folder(tables, one_gpu(), out);
  ASSERT_TRUE(report.has_value()) << to_string(report.error());
  EXPECT_EQ(files(out), std::vector<std::string>{"elementwise-float32.json"});
  EXPECT_EQ(report->models.at(0).file, "elementwise-float32.json");
  ASSERT_EQ(report->skipped.size(), 1u);
  EXPECT_EQ(report->skipped[0].name, "elementwise-float16");
  EXPECT_EQ(report->skipped[0].rows, 49u);
  EXPECT_EQ(report->other_families.at("optimizer"), 1u);
  // Nothing with enough rows: an error, and no file.
  fs::remove_all(out);
  fs::create_directories(out);
  const auto none =
      training::train_folder(std::vector{table(kAddHead + add_rows(kGpu, 49))}, one_gpu(), out);
  ASSERT_FALSE(none.has_value());
  EXPECT_NE(to_string(none.error()).find("expected at least 50 rows"), std::string::npos);
  EXPECT_TRUE(files(out).empty());
}

// ---- files and choices -------------------------------------------------------------------------

TEST_F(Training, SameRowsAndSeedGiveTheSameBytes) {
  const Tables tables = adds(120);
  TrainOptions options = quick();
  options.recipe->rounds = options.recipe->chip_rounds = 20;
  options.card = R"({"note": "made up"})";
  trained(tables, options, "a.json");
  trained(tables, options, "b.json");
  EXPECT_EQ(bytes("a.json"), bytes("b.json"));
  EXPECT_NE(bytes("a.json").find("made up"), std::string::npos);
  options.recipe->seed = 2;
  trained(tables, options, "c.json");
  const auto a = learned::read_model_file(folder_ / "a.json");
  const auto c = learned::read_model_file(folder_ / "c.json");
  ASSERT_TRUE(a.has_value() && c.has_value());
  const auto card = nlohmann::json::parse(a->front().card);
  EXPECT_EQ(card["rows"]["fitted"], 240);
  EXPECT_EQ(card["recipe"]["rounds"], 20);
  EXPECT_TRUE(card["errors"]["random_rows"]["mape"].is_number());
  EXPECT_TRUE(card["errors"]["gpu_left_out"]["v100-pcie-16gb"]["mape"].is_number());
  const auto values = [](const learned::TreeEnsemble& trees) {
    std::vector<float> list;
    for (const auto& node : trees.nodes) list.push_back(node.value);
    return list;
  };
  EXPECT_NE(values(a->front().common), values(c->front().common));
}

TEST_F(Training, ACardThatIsNoObjectIsReplaced) {
  TrainOptions options = fit_only();
  options.recipe->rounds = options.recipe->chip_rounds = 2;
  for (const char* card : {"", "none", "[1, 2]", "7"}) {
    options.card = card;
    trained(adds(30), options);
  }
}

TEST_F(Training, RowsAreChosen) {
  // A100: 40 of NeuSight's own, 30 others, 20 of LLMs; V100: no row of its own.
  const Tables tables = {table(kAddHead + add_rows("a100-pcie-40gb", 40, {.seed = 1}, "train,1") +
                               add_rows("a100-pcie-40gb", 30, {.seed = 2}, "train,0") +
                               add_rows("a100-pcie-40gb", 20, {.seed = 3}, "llm,0") +
                               add_rows("v100-pcie-16gb", 25, {.seed = 4}, "train,0") +
                               add_rows("v100-pcie-16gb", 10, {.seed = 5}, "llm,0"))};
  TrainOptions options = fit_only();
  options.recipe->rounds = options.recipe->chip_rounds = 2;
  const auto fitted = [&](RowChoice rows) {
    options.rows = rows;
    return trained(tables, options).models.at(0).fitted_rows;
  };
  EXPECT_EQ(fitted(RowChoice::kAll), 125u);
  EXPECT_EQ(fitted(RowChoice::kTrain), 95u);
  EXPECT_EQ(fitted(RowChoice::kPaper), 75u);
}

TEST_F(Training, EachFamilyAndArithmeticIsAModel) {
  std::string half = add_rows("a100-pcie-40gb", 30);
  for (std::size_t at; (at = half.find("fp32")) != std::string::npos;) half.replace(at, 4, "fp16");
  const Tables tables = {table(kAddHead + add_rows("a100-pcie-40gb", 30) + half),
                         table(kGemmHead + gemm_rows("a100-pcie-40gb", 30)),
                         table("device,op,dtype,elements,time_us\n"
                               "t4,adam,fp32,4096,9\n")};
  TrainOptions options = fit_only();
  options.recipe->rounds = options.recipe->chip_rounds = 2;
  const TrainReport all = trained(tables, options);
  ASSERT_EQ(all.models.size(), 3u);
  const auto models = learned::read_model_file(folder_ / "model.json");
  ASSERT_TRUE(models.has_value());
  EXPECT_EQ(models->at(0).name, "gemm-learned");
  EXPECT_EQ(models->at(1).name, "elementwise-learned");
  EXPECT_EQ(models->at(2).name, "elementwise-float16-learned");
  EXPECT_EQ(models->at(0).chips, std::vector<std::string>{"ampere/108"});
  options.family = KernelFamily::kGemm;
  const TrainReport gemms = trained(tables, options);
  ASSERT_EQ(gemms.models.size(), 1u);
  EXPECT_EQ(gemms.models[0].name, "gemm-learned");
}

TEST_F(Training, ARunThatWasCutOffGoesOnWhereItStopped) {
  const Tables tables = {table(kAddHead + add_rows("a100-pcie-40gb", 30)),
                         table(kGemmHead + gemm_rows("a100-pcie-40gb", 30))};
  TrainOptions options = fit_only();
  options.recipe->rounds = options.recipe->chip_rounds = 2;
  const auto partial_files = [&] {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().extension() == ".partial") files.push_back(entry.path());
    }
    return files;
  };
  // A killed run leaves these files next to the output while the second model is fitted.
  fs::create_directories(folder_ / "kept");
  std::vector<std::string> steps;
  options.progress = [&](const std::string& what, int, int) {
    steps.push_back(what);
    for (const fs::path& file : partial_files()) {
      fs::copy_file(file, folder_ / "kept" / file.filename(), fs::copy_options::overwrite_existing);
    }
  };
  trained(tables, options);
  const std::string whole = bytes("model.json");
  EXPECT_EQ(steps.size(), 2u);
  EXPECT_TRUE(partial_files().empty());

  const auto put_back = [&] {
    for (const auto& entry : fs::directory_iterator(folder_ / "kept")) {
      fs::copy_file(entry.path(), folder_ / entry.path().filename());
    }
    ASSERT_EQ(partial_files().size(), 1u);
  };
  put_back();
  steps.clear();
  options.progress = [&](const std::string& what, int, int) { steps.push_back(what); };
  const TrainReport resumed = trained(tables, options);
  EXPECT_EQ(steps, std::vector<std::string>{"elementwise float32: fitting"});
  EXPECT_TRUE(resumed.models.at(0).is_resumed);
  EXPECT_FALSE(resumed.models.at(1).is_resumed);
  EXPECT_EQ(bytes("model.json"), whole);
  EXPECT_TRUE(partial_files().empty());

  put_back();  // another seed is another model
  steps.clear();
  options.recipe->seed = 2;
  trained(tables, options);
  EXPECT_EQ(steps.size(), 2u);
}

TEST_F(Training, ProgressIsToldStepByStep) {
  TrainOptions options = quick();
  options.recipe->rounds = options.recipe->chip_rounds = 2;
  int steps = 0;
  options.progress = [&](const std::string& what, int done, int total) {
    EXPECT_TRUE(what.starts_with("elementwise float32: ")) << what;
    EXPECT_EQ(done, steps++);
    EXPECT_EQ(total, 5);  // all rows, two splits, two GPUs
  };
  trained(adds(60), options);
  EXPECT_EQ(steps, 5);
}

TEST_F(Training, AGridChoosesRoundsAndDepth) {
  TrainOptions options = quick();
  options.tries_grid = true;
  options.validate = false;
  options.recipe->rounds = options.recipe->chip_rounds = 40;
  options.recipe->depth = 3;
  const auto recipe = trained(adds(150), options).models.at(0).recipe;
  EXPECT_TRUE(recipe.depth == 3 || recipe.depth == 4);
  EXPECT_TRUE(recipe.rounds == 40 || recipe.rounds == 20);
}

// GEMMs in fp32 of boards that their power limit holds back are not fitted: a campaign of such a
// board and one other has nothing to fit where the other is left out.
TEST_F(Training, ABoardAtItsPowerLimitCanBeTheOnlyOther) {
  trained({table(kGemmHead + gemm_rows("a100-pcie-40gb", 60) + gemm_rows("t4", 60))}, quick());
}

TEST_F(Training, MatrixUnitsOfAmdAlone) {
  const auto report =
      train(Tables{table(kGemmHead + gemm_rows("mi100", 60))}, fit_only(), folder_ / "model.json");
  EXPECT_TRUE(report.has_value()) << to_string(report.error());
}

// ---- a new GPU ---------------------------------------------------------------------------------

TEST_F(Training, TenPointsOfASlowerGpuTakeItsBiasAway) {
  trained(adds(200), quick());
  const Campaign slow{.seed = 5, .slowness = 1.5};
  const KernelTable all = table(kAddHead + add_rows("p100-pcie-16gb", 200, slow));
  const KernelTable few =
      table(kAddHead + add_rows("p100-pcie-16gb", 10, {.seed = 6, .slowness = 1.5}));
  const EvalReport before = judged(all);
  EXPECT_EQ(before.unseen_rows, 200u);
  EXPECT_LT(errors(before.rows).bias, -0.2);
  const auto used = calibrate(few, folder_ / "model.json", folder_ / "p100.json");
  ASSERT_TRUE(used.has_value()) << to_string(used.error());
  EXPECT_EQ(used->used, 10u);
  const EvalReport after = judged(all, "p100.json");
  EXPECT_LT(std::abs(errors(after.rows).bias), 0.08);
  EXPECT_LT(errors(after.rows).mape, 0.5 * errors(before.rows).mape);
  // Other GPUs keep their times; the base is not touched; calibrating again replaces.
  const KernelTable a100 = table(kAddHead + add_rows("a100-pcie-40gb", 50, {.seed = 9}));
  EXPECT_EQ(judged(a100).rows.predicted_us, judged(a100, "p100.json").rows.predicted_us);
  ASSERT_TRUE(calibrate(few, folder_ / "p100.json", folder_ / "twice.json").has_value());
  const auto twice = learned::read_model_file(folder_ / "twice.json");
  ASSERT_TRUE(twice.has_value());
  EXPECT_EQ(twice->front().corrections.size(), 1u);
  EXPECT_EQ(twice->front().corrections[0].gpu, "p100-pcie-16gb");
  // The library applies it as the judge does.
  const auto learned = LearnedModels::read(folder_ / "p100.json");
  ASSERT_TRUE(learned.has_value());
  const auto& row = all.rows.front();
  EXPECT_DOUBLE_EQ(learned->models().price(row.work, all.gpus[0]).time.count(),
                   judged(all, "p100.json").rows.predicted_us.front());
}

// Two equal kernels, one slow and one fast: corrected by either, the other is worse.
TEST_F(Training, ACorrectionThatDoesNotHelpIsLeftOut) {
  trained(adds(200), quick());
  const auto rows = [](double slowness) {
    return add_rows("p100-pcie-16gb", 1, {.seed = 6, .noise = 0, .slowness = slowness});
  };
  const KernelTable few = table(kAddHead + rows(1.5) + rows(1 / 1.5));
  const auto made = calibrate(few, folder_ / "model.json", folder_ / "p100.json");
  ASSERT_TRUE(made.has_value()) << to_string(made.error());
  EXPECT_EQ(made->used, 0u);
  ASSERT_EQ(made->left_out.size(), 1u);
  EXPECT_TRUE(made->left_out[0].ends_with(" on p100-pcie-16gb")) << made->left_out[0];
  EXPECT_TRUE(learned::read_model_file(folder_ / "p100.json")->front().corrections.empty());
}

TEST_F(Training, MorePointsOfANewGpuHelp) {
  const Tables tables = {table(kAddHead + add_rows("a100-pcie-40gb", 150) +
                               add_rows("v100-pcie-16gb", 150) +
                               add_rows("p100-pcie-16gb", 150, {.seed = 5, .slowness = 1.5}))};
  constexpr std::array kCounts = {1, 5, 60, 150};  // 150 leave none to judge
  const auto curves = few_shot(tables, quick(), "p100-pcie-16gb", kCounts, 3);
  ASSERT_TRUE(curves.has_value()) << to_string(curves.error());
  ASSERT_EQ(curves->size(), 2u);
  EXPECT_EQ(curves->at(0).sampling, "random");
  EXPECT_EQ(curves->at(1).sampling, "k-means");
  for (const auto& curve : *curves) {
    EXPECT_EQ(curve.gpu, "p100-pcie-16gb");
    ASSERT_EQ(curve.points.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(curve.points[i].points, kCounts[i]);
      EXPECT_LE(curve.points[i].low, curve.points[i].mean + 1e-12);
      EXPECT_GE(curve.points[i].high, curve.points[i].mean - 1e-12);
    }
    EXPECT_LT(curve.points[1].mean, curve.points[0].mean);
    EXPECT_LT(curve.points[2].mean, curve.points[1].mean + 0.005);
    EXPECT_LT(curve.points[2].mean, 0.15);
  }
}

// ---- errors ------------------------------------------------------------------------------------

TEST_F(Training, WhatCannotBeFittedIsAnErrorAndLeavesNoFile) {
  const fs::path file = folder_ / "model.json";
  const auto error = [&](const Tables& tables, const TrainOptions& options) {
    const auto report = train(tables, options, file);
    EXPECT_FALSE(fs::exists(file));
    return report ? std::string("no error") : to_string(report.error());
  };
  const std::string expected = "expected rows with a time and of a family that can be learned";
  const KernelTable untimed = table("device,op,dtype,m,n,k\nt4,gemm,fp32,64,64,64\n", false);
  EXPECT_NE(error({untimed}, fit_only()).find(expected), std::string::npos);
  const KernelTable unknown = table("device,op,dtype,elements,time_us\nt4,adam,fp32,4096,9\n");
  EXPECT_NE(error({unknown}, fit_only()).find(expected), std::string::npos);
  EXPECT_NE(error({}, fit_only()).find(expected), std::string::npos);
  TrainOptions softmax = fit_only();
  softmax.family = KernelFamily::kSoftmax;
  EXPECT_NE(error(adds(5), softmax).find(expected), std::string::npos);
  TrainOptions tiny = fit_only();
  tiny.recipe->rounds = tiny.recipe->chip_rounds = 1;
  EXPECT_FALSE(train(adds(20), tiny, folder_ / "no" / "such.json").has_value());
  EXPECT_FALSE(fs::exists(folder_ / "no"));
}

TEST_F(Training, FewRowsAreFitted) {
  for (int rows : {1, 2, 3}) trained(adds(rows), quick());  // and all may be kept out
  EXPECT_EQ(judged(adds(3).front()).rows.measured_us.size(), 6u);
  trained({table(kAddHead + add_rows("t4", 1))}, quick());
}

TEST_F(Training, PointsByKMeansAreJudgedByTheOthers) {
  trained(adds(200), quick());
  const KernelTable slow =
      table(kAddHead + add_rows("p100-pcie-16gb", 200, {.seed = 5, .slowness = 1.5}));
  const auto made = calibrate(slow, folder_ / "model.json", folder_ / "p100.json", 20);
  ASSERT_TRUE(made.has_value()) << to_string(made.error());
  EXPECT_EQ(made->used, 20u);
  ASSERT_EQ(made->judged.size(), 1u);
  const training::JudgedCalibration& judged = made->judged.front();
  EXPECT_EQ(judged.gpu, "p100-pcie-16gb");
  EXPECT_EQ(judged.used, 20u);
  EXPECT_GT(judged.others, 100u);
  EXPECT_GT(judged.before, 0.2);  // a third of the time is missing
  EXPECT_LT(judged.after, 0.5 * judged.before);
  EXPECT_NE(to_string(calibrate(slow, folder_ / "model.json", folder_ / "none.json", 1000).error())
                .find("expected more than 1000 rows of GPU p100-pcie-16gb"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "none.json"));
}

TEST_F(Training, WhatCannotBeJudgedOrCalibratedIsAnError) {
  TrainOptions tiny = fit_only();
  tiny.recipe->rounds = tiny.recipe->chip_rounds = 1;
  trained(adds(20), tiny);
  const fs::path model = folder_ / "model.json", out = folder_ / "out.json";
  const KernelTable gemms = table(kGemmHead + gemm_rows("t4", 5));
  const auto judgement = evaluate(gemms, model, {});
  ASSERT_FALSE(judgement.has_value());
  EXPECT_NE(to_string(judgement.error()).find("found 5 rows of others"), std::string::npos);
  EXPECT_FALSE(evaluate(gemms, folder_ / "none.json", {}).has_value());
  const auto calibrated = calibrate(gemms, model, out);
  ASSERT_FALSE(calibrated.has_value());
  EXPECT_NE(to_string(calibrated.error())
                .find("expected measured rows of a family that the model file knows"),
            std::string::npos);
  EXPECT_FALSE(calibrate(adds(5).front(), folder_ / "none.json", out).has_value());
  EXPECT_FALSE(fs::exists(out));
  constexpr std::array kCounts = {3};
  for (const char* gpu : {"h100-sxm-80gb", "nobody's"}) {
    const auto curves = few_shot(adds(20), tiny, gpu, kCounts, 1);
    ASSERT_FALSE(curves.has_value());
    EXPECT_NE(to_string(curves.error()).find(gpu), std::string::npos);
  }
}

TEST_F(Training, JudgesTheRowsThatAreAskedFor) {
  TrainOptions tiny = fit_only();
  tiny.recipe->rounds = tiny.recipe->chip_rounds = 1;
  const KernelTable both = table(kAddHead + add_rows("t4", 30, {.seed = 1}, "train,1") +
                                 add_rows("t4", 20, {.seed = 2}, "llm,0"));
  trained({both}, tiny);
  const auto rows = [&](const training::EvalOptions& options) {
    const auto report = evaluate(both, folder_ / "model.json", options);
    return report ? report->rows.measured_us.size() : 0;
  };
  EXPECT_EQ(rows({}), 50u);
  EXPECT_EQ(rows({.only_llm = true}), 20u);
  EXPECT_EQ(rows({.only_train = true}), 30u);
  EXPECT_LT(rows({.min_us = 100}), 50u);
  EXPECT_EQ(rows({.min_us = 1e9}), 0u);
}

}  // namespace train_test
}  // namespace perfmodel
