#include "perfmodel/predictors/detail/learned_models.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <thread>

#include "../scratch.hpp"
#include "perfmodel/predictors/detail/price_cache.hpp"
#include "price/kernel_work.hpp"
#include "price/learned/model_file.hpp"
#include "price_matchers.hpp"

namespace perfmodel {
namespace learned_models_test {

namespace fs = std::filesystem;
using learned::LearnedModel;
using test_support::is_same_price;

Gpu gpu_of(const std::string& name) {
  const auto gpu = find_gpu(name, fs::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus");
  EXPECT_TRUE(gpu.has_value()) << name;
  return gpu ? *gpu : Gpu{};
}

KernelWork square(std::int64_t m, std::int64_t k, DType dtype = DType::kFloat32) {
  return gemm_work({.m = m, .n = 1024, .k = k}, dtype, false);
}

learned::TreeEnsemble one_leaf(double value) {
  return {.base = 0, .nodes = {{.value = static_cast<float>(value)}}, .roots = {0}};
}

/// Twice the heuristic, on A100 chips three times, on others 2^0.25 times; fitted on products of
/// 1024 to 4096 each way, measured on a100-pcie-40gb.
LearnedModel literal_model(KernelFamily family, const KernelWork& inside) {
  const learned::FeatureSet& set = *learned::feature_set(family);
  const Gpu gpu = gpu_of("a100-pcie-40gb");
  LearnedModel model;
  model.name = learned::interned(std::string(to_string(family)) + "-learned");
  model.family = family;
  model.dtype = DType::kFloat32;
  for (const auto& spec : set.specs) model.feature_names.emplace_back(spec.name);
  model.common = one_leaf(std::log(2));
  model.chip = one_leaf(std::log(1.5));
  model.chips = {learned::chip_of(gpu)};
  model.gpus = {gpu.name};
  model.sibling_trust = 0.5;
  model.unseen_trust = 0.25;
  learned::FeatureRow row;
  EXPECT_TRUE(set.fill(inside, gpu, KernelModels::heuristic().price(inside, gpu), row));
  model.common_cells = {LearnedModel::cell_of(set, row)};
  model.chip_cells = {model.common_cells};
  std::copy_n(
      row.begin() + static_cast<std::ptrdiff_t>(set.specs.size() - learned::kDeviceFeatures),
      learned::kDeviceFeatures, model.chip_devices.emplace_back().begin());
  const auto intervals = [&](Knowledge level) -> learned::IntervalsByDistance& {
    return model.intervals[static_cast<std::size_t>(level)].any;
  };
  intervals(Knowledge::kBoard) = {{{0.9, 1.2, 500}, {0.8, 1.3, 100}, {0.5, 2, 50}}};
  intervals(Knowledge::kChip) = {{{0.85, 1.25, 500}, {0.75, 1.4, 100}, {0.5, 2, 50}}};
  intervals(Knowledge::kArchitecture) = {{{0.8, 1.3, 500}, {0.7, 1.5, 100}, {0.4, 2.2, 50}}};
  intervals(Knowledge::kNone) = {{{0.7, 1.4, 500}, {0.6, 1.6, 100}, {0.4, 2.5, 50}}};
  return model;
}

LearnedModel literal_gemms() { return literal_model(KernelFamily::kGemm, square(1024, 1024)); }

class Learned : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::vector<LearnedModel>& models) {
    const auto written = learned::write_model_file(folder_ / name, models);
    ASSERT_TRUE(written.has_value()) << to_string(written.error());
  }
  LearnedModels read(const std::vector<LearnedModel>& models) {
    write("models.json", models);
    auto learned = LearnedModels::read(folder_ / "models.json");
    EXPECT_TRUE(learned.has_value()) << to_string(learned.error());
    return std::move(*learned);
  }

  /// Time over the heuristic's time.
  static double ratio(const LearnedModels& learned, const KernelWork& work, const Gpu& gpu) {
    return learned.models().price(work, gpu).time / KernelModels::heuristic().price(work, gpu).time;
  }
  static void expect_range(const Price& price, double low, double high) {
    EXPECT_NEAR(price.low / price.time, low, 1e-9);
    EXPECT_NEAR(price.high / price.time, high, 1e-9);
  }
  static void expect_heuristic(const LearnedModels& learned, const KernelWork& work,
                               const Gpu& gpu) {
    const Price price = learned.models().price(work, gpu);
    EXPECT_TRUE(is_same_price(price, KernelModels::heuristic().price(work, gpu)));
    EXPECT_EQ(price.model.find("learned"), std::string_view::npos) << price.model;
  }

  fs::path folder_ = test_support::scratch() / "learned_models";
  const Gpu a100_ = gpu_of("a100-pcie-40gb"), v100_ = gpu_of("v100-pcie-16gb");
};

// ---- prices ------------------------------------------------------------------------------------

TEST_F(Learned, AMeasuredChipGetsBothTreesAndItsInterval) {
  const LearnedModels learned = read({literal_gemms()});
  const KernelWork work = square(1024, 1024);
  const Price price = learned.models().price(work, a100_);
  EXPECT_NEAR(ratio(learned, work, a100_), 3, 1e-6);
  EXPECT_EQ(price.model, "gemm-learned");
  EXPECT_TRUE(price.in_range);
  expect_range(price, 0.9, 1.2);
  const Price heuristic = KernelModels::heuristic().price(work, a100_);
  EXPECT_EQ(price.bound, heuristic.bound);
  EXPECT_EQ(price.compute, heuristic.compute);
}

TEST_F(Learned, AnUnseenChipGetsTheCommonTreesInPartAndWiderIntervals) {
  const LearnedModels learned = read({literal_gemms()});
  const KernelWork work = square(1024, 1024);
  EXPECT_NEAR(ratio(learned, work, v100_), std::pow(2, 0.25), 1e-6);
  const Price price = learned.models().price(work, v100_);
  EXPECT_TRUE(price.in_range);
  expect_range(price, 0.7, 1.4);
}

// Its memory, clocks and power are others: the chip's trees count, with a range of their own.
TEST_F(Learned, AnotherBoardOfAMeasuredChipIsNotTheMeasuredOne) {
  const LearnedModels learned = read({literal_gemms()});
  const KernelWork work = square(1024, 1024);
  const Gpu sibling = gpu_of("a100-sxm-80gb");
  EXPECT_NEAR(ratio(learned, work, sibling), 3, 1e-6);
  EXPECT_EQ(learned.models().price(work, sibling).knowledge, Knowledge::kChip);
  expect_range(learned.models().price(work, sibling), 0.85, 1.25);
  Gpu fewer = sibling;  // the same architecture with other units is another chip
  fewer.num_sms = 107;
  EXPECT_NEAR(ratio(learned, work, fewer), std::sqrt(3), 1e-6);
  EXPECT_EQ(learned.models().price(work, fewer).knowledge, Knowledge::kArchitecture);
  expect_range(learned.models().price(work, fewer), 0.8, 1.3);
  EXPECT_EQ(learned.models().price(work, v100_).knowledge, Knowledge::kNone);
  EXPECT_EQ(learned.models().price(work, a100_).knowledge, Knowledge::kBoard);
}

TEST_F(Learned, AnotherVendorsGpusKeepTheHeuristic) {
  LearnedModel model = literal_gemms();
  const KernelWork work = square(1024, 1024);
  const Gpu amd = gpu_of("mi210");
  EXPECT_EQ(read({model}).models().price(work, amd).model, "gemm-learned");
  model.vendors = {"nvidia"};
  const LearnedModels learned = read({model});
  expect_heuristic(learned, work, amd);
  EXPECT_EQ(learned.models().price(work, v100_).model, "gemm-learned");
  EXPECT_EQ(learned.knowledge(amd).at("gemm-float32"), Knowledge::kBoard);  // the heuristic's
}

TEST_F(Learned, BoardsAndArchitecturesMayHaveRangesOfTheirOwn) {
  LearnedModel model = literal_gemms();
  const auto level = [&](Knowledge k) -> learned::LevelIntervals& {
    return model.intervals[static_cast<std::size_t>(k)];
  };
  level(Knowledge::kBoard).own = {{"t4", {{{0.1, 9, 50}, {0.1, 9, 50}, {0.1, 9, 50}}}},
                                  {a100_.name, {{{0.95, 1.05, 50}, {0.9, 1.1, 50}, {0.5, 2, 0}}}}};
  level(Knowledge::kArchitecture).own = {
      {"ampere", {{{0.6, 1.7, 50}, {0.6, 1.7, 50}, {0.5, 2, 0}}}}};
  const LearnedModels learned = read({model});
  const KernelWork work = square(1024, 1024);
  expect_range(learned.models().price(work, a100_), 0.95, 1.05);
  expect_range(learned.models().price(work, gpu_of("a30")), 0.6, 1.7);
  expect_range(learned.models().price(work, v100_), 0.7, 1.4);
  const auto kinds = learned.knowledge(gpu_of("a30"));
  EXPECT_EQ(kinds.at("gemm-float32"), Knowledge::kArchitecture);
  // The heuristic's facts, where no model goes before them.
  EXPECT_EQ(kinds.at("attention-bfloat16"), Knowledge::kArchitecture);
  EXPECT_EQ(learned.knowledge(gpu_of("a100-sxm-80gb")).at("attention-bfloat16"), Knowledge::kBoard);
  EXPECT_FALSE(learned.knowledge(v100_).contains("attention-bfloat16"));
}

TEST_F(Learned, TheRatioFadesWithTheDistanceToTheFittedRange) {
  const LearnedModels learned = read({literal_gemms()});
  const struct {
    double log2_k;
    double share;  // part of log(3) that is left: 1 / (1 + d^2)
    double low, high;
  } cases[] = {{10, 1, 0.9, 1.2},     {12, 1, 0.9, 1.2},      {13, 1 / 2.0, 0.8, 1.3},
               {14, 1 / 5.0, 0.5, 2}, {15, 1 / 10.0, 0.5, 2}, {9, 1 / 2.0, 0.8, 1.3},
               {8, 1 / 5.0, 0.5, 2},  {26, 1 / 197.0, 0.5, 2}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.log2_k);
    const KernelWork work = square(1024, static_cast<std::int64_t>(std::exp2(c.log2_k)));
    EXPECT_NEAR(ratio(learned, work, a100_), std::pow(3, c.share), 1e-5);
    const Price price = learned.models().price(work, a100_);
    EXPECT_EQ(price.in_range, c.share == 1);
    EXPECT_EQ(price.model, "gemm-learned");
    expect_range(price, c.low, c.high);
    EXPECT_LE(price.low, price.time);
    EXPECT_LE(price.time, price.high);
  }
  // The farthest axis counts, not the sum.
  EXPECT_NEAR(ratio(learned, square(8192, 8192), a100_), std::sqrt(3), 1e-5);
  // Outside and unseen: both widen.
  const Price far = learned.models().price(square(1024, 8192), v100_);
  EXPECT_FALSE(far.in_range);
  expect_range(far, 0.6, 1.6);
  EXPECT_NEAR(ratio(learned, square(1024, 8192), v100_), std::pow(2, 0.25 / 2), 1e-5);
}

TEST_F(Learned, BoxesAreNotTakenTogether) {
  // Small m with small k and large m with large k, never one small and one large.
  LearnedModel model = literal_gemms();
  const learned::FeatureSet& set = *learned::feature_set(KernelFamily::kGemm);
  model.common_cells.clear();
  for (const KernelWork& work : {square(1024, 256), square(16384, 16384)}) {
    learned::FeatureRow row;
    ASSERT_TRUE(set.fill(work, a100_, KernelModels::heuristic().price(work, a100_), row));
    model.common_cells.push_back(LearnedModel::cell_of(set, row));
  }
  model.chip_cells = {model.common_cells};
  const LearnedModels learned = read({model});
  EXPECT_TRUE(learned.models().price(square(1024, 256), a100_).in_range);
  EXPECT_TRUE(learned.models().price(square(16384, 16384), a100_).in_range);
  EXPECT_FALSE(learned.models().price(square(1024, 16384), a100_).in_range);
  EXPECT_FALSE(learned.models().price(square(16384, 256), a100_).in_range);
}

TEST_F(Learned, TreesSeeTheMeasuredBoardOfTheChipOrTheNearestOne) {
  LearnedModel model = literal_gemms();
  model.chips.push_back("ampere/20");
  model.chip_devices.push_back({9, 8, 7, 6, 5, 4});
  model.chip_cells.push_back(model.common_cells);
  const std::size_t own = learned::feature_set(KernelFamily::kGemm)->specs.size();
  const auto seen = [&](const Gpu& gpu) {
    learned::FeatureRow row{};
    model.add_chip(model.for_gpu(gpu), row);
    return std::pair(row[own], row[own - learned::kDeviceFeatures]);
  };
  EXPECT_EQ(seen(a100_), std::pair(0.0F, 0.0F));  // measured: its own
  EXPECT_EQ(seen(gpu_of("a100-sxm-80gb")), std::pair(0.0F, model.chip_devices[0][0]));
  Gpu small = a100_;
  small.num_sms = 30;
  EXPECT_EQ(seen(small), std::pair(1.0F, 9.0F));
  EXPECT_EQ(seen(v100_), std::pair(-1.0F, 0.0F));  // another architecture
}

TEST_F(Learned, CorrectionsOfAGpuAreThatBoardsAlone) {
  LearnedModel model = literal_gemms();
  model.corrections = {{.gpu = "v100-pcie-16gb", .weights = {std::log(1.5), 0, 0}, .rows = 10}};
  const LearnedModels learned = read({model});
  const KernelWork work = square(1024, 1024);
  EXPECT_NEAR(ratio(learned, work, v100_), 1.5 * std::pow(2, 0.25), 1e-6);
  EXPECT_NEAR(ratio(learned, work, gpu_of("v100-sxm2-16gb")), std::pow(2, 0.25), 1e-6);
  EXPECT_NEAR(ratio(learned, work, a100_), 3, 1e-6);
}

TEST_F(Learned, WhatWasNotFittedIsHeuristicAndSaysSo) {
  const LearnedModels learned = read({literal_gemms()});
  for (const Gpu& gpu : {a100_, v100_}) {
    expect_heuristic(learned, square(1024, 1024, DType::kFloat16), gpu);  // another arithmetic
    expect_heuristic(learned, softmax_work(512, 512, RowPass::kForward, DType::kFloat32), gpu);
    expect_heuristic(learned, memcpy_work(1e6, {}), gpu);
    expect_heuristic(learned, transpose_work(8, 512, 512, DType::kFloat32), gpu);
    KernelWork shapeless = square(1024, 1024);
    shapeless.shape = std::monostate{};
    expect_heuristic(learned, shapeless, gpu);
  }
}

// ---- files -------------------------------------------------------------------------------------

TEST_F(Learned, AFolderIsReadWhenItIsNeeded) {
  write("gemm-float32.json", {literal_gemms()});
  std::ofstream(folder_ / "softmax-float32.json") << "{\"schema\": ";
  std::ofstream(folder_ / "notes.json") << "no model";
  const auto learned = LearnedModels::open(folder_);
  ASSERT_TRUE(learned.has_value()) << to_string(learned.error());
  EXPECT_FALSE(learned->problem().has_value());
  EXPECT_NEAR(ratio(*learned, square(1024, 1024), a100_), 3, 1e-6);
  EXPECT_FALSE(learned->problem().has_value());  // the broken file was not needed
  expect_heuristic(*learned, softmax_work(512, 512, RowPass::kForward, DType::kFloat32), a100_);
  const auto problem = learned->problem();
  ASSERT_TRUE(problem.has_value());
  EXPECT_EQ(problem->file, folder_ / "softmax-float32.json");
  EXPECT_NE(to_string(*problem).find("expected a whole JSON document"), std::string::npos);
  EXPECT_NEAR(ratio(*learned, square(1024, 1024), a100_), 3, 1e-6);
}

TEST_F(Learned, EachArithmeticHasItsFile) {
  LearnedModel half = literal_gemms();
  half.name = "gemm-float16-learned";
  half.dtype = DType::kFloat16;
  half.common = one_leaf(std::log(5));
  half.chip = {};
  write("gemm-float32.json", {literal_gemms()});
  write("gemm-float16.json", {half});
  const auto learned = LearnedModels::open(folder_);
  ASSERT_TRUE(learned.has_value());
  EXPECT_NEAR(ratio(*learned, square(1024, 1024), a100_), 3, 1e-6);
  EXPECT_NEAR(ratio(*learned, square(1024, 1024, DType::kFloat16), a100_), 5, 1e-5);
}

TEST_F(Learned, Tf32HasItsFile) {
  LearnedModel tf32 = literal_gemms();
  tf32.name = "gemm-tf32-learned";
  tf32.tf32 = true;
  tf32.common = one_leaf(std::log(5));
  tf32.chip = {};
  write("gemm-float32.json", {literal_gemms()});
  write("gemm-tf32.json", {tf32});
  const auto learned = LearnedModels::open(folder_);
  ASSERT_TRUE(learned.has_value());
  const GemmShape shape{.m = 1024, .n = 1024, .k = 1024};
  const KernelWork product = gemm_work(shape, DType::kFloat32, true);
  EXPECT_NEAR(ratio(*learned, gemm_work(shape, DType::kFloat32, false), a100_), 3, 1e-6);
  EXPECT_NEAR(ratio(*learned, product, a100_), 5, 1e-5);
  EXPECT_EQ(learned->models().price(product, a100_).model, "gemm-tf32-learned");
  // Without such a file the heuristic speaks, not the model of another arithmetic.
  fs::remove(folder_ / "gemm-tf32.json");
  expect_heuristic(*LearnedModels::open(folder_), product, a100_);
}

TEST_F(Learned, CopiesAreCopiedWhateverTheirType) {
  const KernelWork inside = memcpy_work(1e6, {.kind = CopyKind::kHostToDevice});
  LearnedModel model = literal_model(KernelFamily::kCopy, inside);
  model.dtype = DType::kUInt8;
  write("copy-uint8.json", {model});
  const auto learned = LearnedModels::open(folder_);
  ASSERT_TRUE(learned.has_value());
  KernelWork floats = inside;
  floats.dtype = DType::kFloat32;
  EXPECT_NEAR(ratio(*learned, inside, a100_), 3, 1e-6);
  EXPECT_NEAR(ratio(*learned, floats, a100_), 3, 1e-6);
  // The other direction is another kind, two powers of two away.
  const KernelWork back = memcpy_work(1e6, {.kind = CopyKind::kDeviceToHost});
  EXPECT_NEAR(ratio(*learned, back, a100_), std::pow(3, 1 / 5.0), 1e-5);
}

TEST_F(Learned, AGpusOwnModelsGoFirst) {
  LearnedModel own = literal_gemms();
  own.name = "gemm-own";
  own.common = one_leaf(std::log(7));
  own.chip = {};
  fs::create_directories(folder_ / a100_.name);
  write("gemm-float32.json", {literal_gemms()});
  write(a100_.name + "/gemm-float32.json", {own});
  const auto learned = LearnedModels::open(folder_);
  ASSERT_TRUE(learned.has_value()) << to_string(learned.error());
  const KernelWork work = square(1024, 1024);
  EXPECT_NEAR(ratio(*learned, work, a100_), 7, 1e-5);
  EXPECT_EQ(learned->models().price(work, a100_).model, "gemm-own");
  // The shared file was not needed so far.
  EXPECT_EQ(learned->files_read(), std::vector<std::string>{a100_.name + "/gemm-float32.json"});
  // Other boards, even of the same chip, have the shared models.
  EXPECT_NEAR(ratio(*learned, work, gpu_of("a100-sxm-80gb")), 3, 1e-6);
  EXPECT_NEAR(ratio(*learned, work, v100_), std::pow(2, 0.25), 1e-6);
  EXPECT_EQ(learned->files_read().size(), 2u);
  EXPECT_FALSE(learned->problem().has_value());
  // Many at once, in both arithmetics: to the bit what one by one gives, also from a cache.
  std::vector<KernelWork> many;
  for (std::int64_t i = 0; i < 200; ++i) {
    many.push_back(square(512 + 16 * i, 1024, i % 3 ? DType::kFloat32 : DType::kFloat16));
  }
  std::vector<Price> prices(many.size());
  learned->models().price_many(many, a100_, prices);
  PriceCache cache(learned->models(), a100_);
  for (std::size_t i = 0; i < many.size(); ++i) {
    EXPECT_TRUE(is_same_price(prices[i], learned->models().price(many[i], a100_)));
    EXPECT_TRUE(is_same_price(prices[i], cache.price(many[i])));
    EXPECT_TRUE(is_same_price(prices[i], cache.price(many[i])));
  }
}

TEST_F(Learned, AGpusOwnModelsMayBeAllThereIs) {
  fs::create_directories(folder_ / a100_.name);
  write(a100_.name + "/gemm-float32.json", {literal_gemms()});
  const auto learned = LearnedModels::open(folder_);
  ASSERT_TRUE(learned.has_value()) << to_string(learned.error());
  EXPECT_NEAR(ratio(*learned, square(1024, 1024), a100_), 3, 1e-6);
  expect_heuristic(*learned, square(1024, 1024), v100_);
  // Kernels that it does not cover are looked for in the shared ones, and in the heuristic.
  expect_heuristic(*learned, square(1024, 1024, DType::kFloat16), a100_);
}

TEST_F(Learned, ABrokenFileOfOneGpuIsToldWhereItIsNeeded) {
  fs::create_directories(folder_ / a100_.name);
  write("gemm-float32.json", {literal_gemms()});
  std::ofstream(folder_ / a100_.name / "gemm-float32.json") << "{\"schema\": ";
  const auto learned = LearnedModels::open(folder_);
  ASSERT_TRUE(learned.has_value());
  ratio(*learned, square(1024, 1024), v100_);
  EXPECT_FALSE(learned->problem().has_value());
  EXPECT_NEAR(ratio(*learned, square(1024, 1024), a100_), 3, 1e-6);  // the shared model
  const auto problem = learned->problem();
  ASSERT_TRUE(problem.has_value());
  EXPECT_EQ(problem->file, folder_ / a100_.name / "gemm-float32.json");
}

TEST_F(Learned, AFileThatIsNamedAfterAnotherFamilyIsTold) {
  write("gemm-float32.json", {literal_gemms()});
  write("softmax-float32.json", {literal_gemms()});
  const auto learned = LearnedModels::open(folder_);
  ASSERT_TRUE(learned.has_value());
  EXPECT_NEAR(ratio(*learned, square(1024, 1024), a100_), 3, 1e-6);
  EXPECT_FALSE(learned->problem().has_value());
  expect_heuristic(*learned, softmax_work(512, 512, RowPass::kForward, DType::kFloat32), a100_);
  const auto problem = learned->problem();
  ASSERT_TRUE(problem.has_value());
  EXPECT_NE(to_string(*problem).find("expected models of softmax kernels"), std::string::npos);
  EXPECT_NE(to_string(*problem).find("found one of gemm"), std::string::npos);
}

TEST_F(Learned, ThreadsShareTheReadingOfAFile) {
  fs::create_directories(folder_ / a100_.name);
  write(a100_.name + "/gemm-float32.json", {literal_gemms()});
  const auto learned = LearnedModels::open(folder_);
  ASSERT_TRUE(learned.has_value());
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      if (std::abs(ratio(*learned, square(1024, 1024), a100_) - 3) < 1e-6) ++right;
      if (!learned->problem()) ++right;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 16);
}

TEST_F(Learned, OneFileMayHoldSeveralFamilies) {
  const KernelWork rows = softmax_work(4096, 1024, RowPass::kForward, DType::kFloat32);
  const LearnedModels learned =
      read({literal_gemms(), literal_model(KernelFamily::kSoftmax, rows)});
  EXPECT_NEAR(ratio(learned, rows, a100_), 3, 1e-6);
  EXPECT_EQ(learned.models().price(rows, a100_).model, "softmax-learned");
  EXPECT_NEAR(ratio(learned, square(1024, 1024), a100_), 3, 1e-6);
}

TEST_F(Learned, PricesLiveOnWhenTheModelsMove) {
  LearnedModels first = read({literal_gemms()});
  const KernelModels& models = first.models();
  const Price before = models.price(square(1024, 1024), a100_);
  const LearnedModels second = std::move(first);
  EXPECT_EQ(&second.models(), &models);
  EXPECT_TRUE(is_same_price(second.models().price(square(1024, 1024), a100_), before));
}

TEST_F(Learned, PricesOutliveTheModels) {
  Price price;
  {
    const LearnedModels learned = read({literal_gemms()});
    price = learned.models().price(square(1024, 1024), a100_);
  }
  EXPECT_EQ(price.model, "gemm-learned");
}

TEST_F(Learned, FoldersAndFilesThatHoldNoneAreErrors) {
  const auto empty = LearnedModels::open(folder_);
  ASSERT_FALSE(empty.has_value());
  EXPECT_NE(to_string(empty.error()).find("expected kernel-model files (<family>-<dtype>.json)"),
            std::string::npos);
  const auto none = LearnedModels::open(folder_ / "none");
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, ErrorCode::kIo);
  const auto file = LearnedModels::read(folder_ / "none.json");
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code, ErrorCode::kIo);
  EXPECT_FALSE(LearnedModels::read(folder_).has_value());
}

// ---- the shipped models ------------------------------------------------------------------------

TEST(ShippedModels, AreAllReadAndKeepTheirRanges) {
  const fs::path folder = fs::path(PERFMODEL_SOURCE_DIR) / "data" / "models";
  const auto learned = LearnedModels::open(folder);
  ASSERT_TRUE(learned.has_value()) << to_string(learned.error());
  for (const char* name : {"a100-pcie-40gb", "h100-sxm-80gb", "rtx-2080-ti", "mi250"}) {
    const Gpu gpu = gpu_of(name);
    for (std::int64_t size : {8, 100, 512, 3000, 20000}) {
      for (const KernelWork& work :
           {gemm_work({.m = size, .n = size, .k = 768}, DType::kFloat32, false),
            elementwise_work(static_cast<double>(size * size), 2, 1, DType::kFloat32),
            softmax_work(size, size, RowPass::kForward, DType::kFloat32),
            layer_norm_work(size, 1024, RowPass::kForward, DType::kFloat32)}) {
        const Price price = learned->models().price(work, gpu);
        ASSERT_TRUE(std::isfinite(price.time.count()) && price.time.count() > 0);
        EXPECT_GT(price.low.count(), 0);
        EXPECT_LE(price.low, price.time) << price.model << " " << name << " " << size;
        EXPECT_LE(price.time, price.high) << price.model << " " << name << " " << size;
        const double factor = price.time / KernelModels::heuristic().price(work, gpu).time;
        EXPECT_GT(factor, 1.0 / 20);
        EXPECT_LT(factor, 20);
      }
    }
  }
  EXPECT_FALSE(learned->problem().has_value()) << to_string(*learned->problem());
}

}  // namespace learned_models_test
}  // namespace perfmodel
