#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <thread>

#include "../scratch.hpp"
#include "graph_fixture.hpp"
#include "kernel_mix.hpp"
#include "perfmodel/predictors/detail/learned_models.hpp"
#include "price/learned/model_file.hpp"
#include "price_matchers.hpp"

namespace perfmodel {
namespace price_many_test {

namespace fs = std::filesystem;
using test_support::is_same_price;
using test_support::kernel_mix;
using test_support::made_model;
using test_support::made_trees;
using test_support::round_gpu;

Gpu measured_gpu() {
  Gpu gpu = round_gpu();
  gpu.num_sms = 108;
  return gpu;
}

void expect_same_in_bulk(const KernelModels& models, std::span<const KernelWork> work,
                         const Gpu& gpu) {
  std::vector<Price> prices(work.size());
  models.price_many(work, gpu, prices);
  for (std::size_t i = 0; i < work.size(); ++i) {
    ASSERT_TRUE(is_same_price(prices[i], models.price(work[i], gpu))) << i;
  }
}

std::vector<learned::LearnedModel> small_models() {
  return {made_model(KernelFamily::kGemm, DType::kFloat32, 20, 6, 1),
          made_model(KernelFamily::kGemm, DType::kFloat16, 7, 3, 3),
          made_model(KernelFamily::kElementwise, DType::kFloat32, 20, 5, 5),
          made_model(KernelFamily::kNorm, DType::kFloat16, 3, 8, 7)};
}

/// A folder with one file per model, for as long as the object lives.
class ModelFolder {
 public:
  ModelFolder() {
    fs::create_directories(path);
    for (auto& model : small_models()) {
      const auto done =
          learned::write_model_file(path / (std::string(model.name) + ".json"), {model});
      EXPECT_TRUE(done.has_value()) << to_string(done.error());
    }
  }
  ~ModelFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;

  const fs::path path = test_support::scratch() / "price_many";
};

TEST(PriceMany, HeuristicEqualsOneByOne) {
  const auto work = kernel_mix(5000);
  for (std::size_t count : {0U, 1U, 2U, 127U, 128U, 129U, 5000U}) {
    expect_same_in_bulk(KernelModels::heuristic(), std::span(work).first(count), round_gpu());
  }
}

TEST(PriceMany, LongRunsOfAFamilyEqualOneByOne) {
  auto work = kernel_mix(2000);
  std::ranges::stable_sort(work, {}, &KernelWork::family);
  expect_same_in_bulk(KernelModels::heuristic(), work, round_gpu());
  std::rotate(work.begin(), work.begin() + 30, work.end());  // a family at both ends
  expect_same_in_bulk(KernelModels::heuristic(), work, round_gpu());
}

TEST(PriceMany, LearnedEqualsOneByOne) {
  const ModelFolder folder;
  const auto learned = LearnedModels::open(folder.path);
  ASSERT_TRUE(learned.has_value());
  const auto work = kernel_mix(3000);
  for (const Gpu& gpu : {round_gpu(), measured_gpu()}) {
    for (std::size_t count : {1U, 15U, 64U, 3000U}) {
      expect_same_in_bulk(learned->models(), std::span(work).first(count), gpu);
    }
  }
  EXPECT_FALSE(learned->problem().has_value());
}

// The way that walks one tree after the other is written down apart from the fast one.
TEST(PriceMany, LearnedEqualsTheModelsOwnWay) {
  const ModelFolder folder;
  const auto learned = LearnedModels::open(folder.path);
  ASSERT_TRUE(learned.has_value());
  std::vector<learned::LearnedModel> models;
  for (const auto& written : small_models()) {
    auto read = learned::read_model_file(folder.path / (std::string(written.name) + ".json"));
    ASSERT_TRUE(read.has_value());
    models.push_back(std::move(read->front()));
  }
  int refined = 0;
  for (const Gpu& gpu : {round_gpu(), measured_gpu()}) {
    for (const KernelWork& work : kernel_mix(1000)) {
      Price expected = KernelModels::heuristic().price(work, gpu);
      for (const auto& model : models) {
        if (model.is_of(work, gpu) && model.knows_vendor(gpu))
          refined += model.refine(work, gpu, expected);
      }
      ASSERT_TRUE(is_same_price(learned->models().price(work, gpu), expected));
    }
  }
  EXPECT_GT(refined, 500);
}

TEST(PriceMany, ThreadsLoadModelsOnce) {
  const ModelFolder folder;
  const auto learned = LearnedModels::open(folder.path);
  ASSERT_TRUE(learned.has_value());
  constexpr std::size_t kThreads = 8;
  const auto work = kernel_mix(300);
  std::array<std::vector<Price>, kThreads> prices;
  {
    std::vector<std::jthread> threads;
    for (std::size_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        prices[thread].resize(work.size());
        if (thread % 2 == 0) {
          learned->models().price_many(work, measured_gpu(), prices[thread]);
        } else {
          for (std::size_t i = 0; i < work.size(); ++i) {
            prices[thread][i] = learned->models().price(work[i], measured_gpu());
          }
        }
        EXPECT_FALSE(learned->problem().has_value());
      });
    }
  }
  for (const auto& of_thread : prices) {
    for (std::size_t i = 0; i < work.size(); ++i) {
      ASSERT_TRUE(is_same_price(of_thread[i], prices[0][i]));
    }
  }
}

TEST(PriceMany, ThreadsFindTheProblemOfABrokenFile) {
  const ModelFolder folder;
  fs::resize_file(folder.path / (std::string(small_models().front().name) + ".json"), 100);
  const auto learned = LearnedModels::open(folder.path);
  ASSERT_TRUE(learned.has_value());
  EXPECT_FALSE(learned->problem().has_value());  // not needed yet
  const KernelWork work = gemm_work({.m = 64, .n = 64, .k = 64}, DType::kFloat32, false);
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      EXPECT_EQ(learned->models().price(work, measured_gpu()).model, "gemm-heuristic");
      EXPECT_TRUE(learned->problem().has_value());
    });
  }
}

TEST(TreeWalker, EqualsTheWalkOfOneRowToTheBit) {
  constexpr std::size_t kColumns = 5, kStride = 7;
  std::mt19937 random(3);
  std::uniform_real_distribution<float> value(-4, 16);
  std::vector<float> features(100 * kStride);
  for (float& x : features) x = value(random);
  features[3] = std::numeric_limits<float>::quiet_NaN();
  features[kStride] = -std::numeric_limits<float>::infinity();
  for (const int depth : {0, 1, 2, 3, 4, 5, 6, 9}) {  // 0: lone leaves
    for (const std::size_t trees : {0U, 1U, 15U, 16U, 33U}) {
      const auto ensemble = made_trees(trees, depth, kColumns, random());
      const learned::TreeWalker walker(ensemble);
      EXPECT_EQ(walker.empty(), trees == 0);
      for (const std::size_t rows : {0U, 1U, 4U, 12U, 16U, 17U, 25U, 40U, 63U, 64U, 65U, 100U}) {
        std::vector<float> results(rows);
        walker.predict(features, kStride, results);
        for (std::size_t row = 0; row < rows; ++row) {
          const auto x = std::span(features).subspan(row * kStride, kStride);
          ASSERT_EQ(results[row], ensemble.predict(x)) << depth << " " << trees << " " << row;
          ASSERT_EQ(walker.predict(x), ensemble.predict(x));
        }
      }
    }
  }
}

TEST(TreeWalker, ValuesOnAThresholdGoRight) {
  learned::TreeEnsemble ensemble;
  ensemble.nodes = {{.value = 1, .feature = 0, .right = 2}, {.value = -7}, {.value = 9}};
  ensemble.roots = {0};
  const learned::TreeWalker walker(ensemble);
  EXPECT_EQ(walker.predict(std::array{1.0F}), 9);
  EXPECT_EQ(walker.predict(std::array{std::nextafter(1.0F, 0.0F)}), -7);
  std::vector<float> rows(64, 1.0F), results(rows.size());
  rows[3] = std::nextafter(1.0F, 0.0F);
  walker.predict(rows, 1, results);
  for (std::size_t row = 0; row < rows.size(); ++row) EXPECT_EQ(results[row], row == 3 ? -7 : 9);
}

TEST(TreeWalker, TreesOfDifferentDepthsStandSideBySide) {
  learned::TreeEnsemble ensemble;
  for (int depth : {0, 3, 0, 1, 7}) {
    const auto tree = made_trees(1, depth, 3, static_cast<unsigned>(depth));
    ensemble.roots.push_back(static_cast<std::uint32_t>(ensemble.nodes.size()));
    ensemble.nodes.insert(ensemble.nodes.end(), tree.nodes.begin(), tree.nodes.end());
  }
  for (int i = 0; i < 2; ++i) {  // more than the walker's lanes
    const auto nodes = ensemble.nodes;
    const auto roots = ensemble.roots;
    for (const auto root : roots) {
      ensemble.roots.push_back(root + static_cast<std::uint32_t>(nodes.size()));
    }
    ensemble.nodes.insert(ensemble.nodes.end(), nodes.begin(), nodes.end());
  }
  const learned::TreeWalker walker(ensemble);
  for (float x = -3; x < 15; ++x) {
    const std::array row = {x, 5 - x, 2 * x};
    ASSERT_EQ(walker.predict(row), ensemble.predict(row));
  }
}

}  // namespace price_many_test
}  // namespace perfmodel
