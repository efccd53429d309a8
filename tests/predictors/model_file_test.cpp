#include "price/learned/model_file.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "../scratch.hpp"
#include "kernel_mix.hpp"
#include "price/learned/tree_text.hpp"
#include "price_matchers.hpp"

namespace perfmodel {
namespace model_file_test {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using learned::LearnedModel;
using learned::read_model_file;
using learned::tree_text, learned::TreeEnsemble;
using learned::write_model_file;
using test_support::is_same_price;
using test_support::kernel_mix;
using test_support::made_model;

std::string read_text(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

LearnedModel gemm_model() {
  LearnedModel model = made_model(KernelFamily::kGemm, DType::kFloat32, 6, 5);
  model.launch_costs = {{"a100-sxm-40gb", "linear", 31.25, 10.5}};
  model.vendors = {"nvidia"};
  model.sibling_trust = 1;
  model.unseen_trust = 0.75;
  auto& board = model.intervals[static_cast<std::size_t>(Knowledge::kBoard)];
  board.own = {{"a100-sxm-40gb", {{{0.875, 1.125, 1000}, {0.625, 1.375, 90}, {0.5, 2, 0}}}}};
  learned::Correction& correction = model.corrections.emplace_back();
  correction.gpu = "t4";
  correction.weights = {0.1, -1.0 / 7, 1e-17};
  correction.anchors = {{learned::Correction::axes(model.features(), {}), 0.25}};
  correction.anchors[0].at[0] = 10.0 / 3;
  correction.rows = 9;
  model.card = R"({"note": "made \"up\", not measured", "seed": 7, "share": 0.1})";
  return model;
}

class ModelFiles : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path write(const std::vector<LearnedModel>& models, const std::string& name = "model.json") {
    const auto written = write_model_file(folder_ / name, models);
    EXPECT_TRUE(written.has_value()) << to_string(written.error());
    return folder_ / name;
  }
  fs::path write_text(const std::string& text) {
    const fs::path file = folder_ / "broken.json";
    std::ofstream(file, std::ios::binary) << text;
    return file;
  }
  /// The error without the folder, on one line; "no error" where the file is read.
  std::string error_of(const fs::path& file) {
    const auto models = read_model_file(file);
    if (models) return "no error";
    const std::string text = to_string(models.error());
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_EQ(text.find(file.string()), 0u) << text;
    return text.substr(std::min(text.size(), (folder_ / "").string().size()));
  }
  std::string error_of_text(const std::string& text) { return error_of(write_text(text)); }

  /// The error of a good file after a change to its first model.
  std::string error_after(const std::function<void(Json& model)>& change) {
    Json file = Json::parse(good_);
    change(file["models"][0]);
    return error_of_text(file.dump());
  }

  fs::path folder_ = test_support::scratch() / "model_file";
  std::string good_ = [this] {
    fs::create_directories(folder_);
    return read_text(write({gemm_model()}));
  }();
};

// ---- round trip --------------------------------------------------------------------------------

TEST_F(ModelFiles, WhatIsReadIsWrittenAgainByteForByte) {
  const fs::path first =
      write({gemm_model(), made_model(KernelFamily::kNorm, DType::kFloat16, 3, 8)}, "first.json");
  const auto models = read_model_file(first);
  ASSERT_TRUE(models.has_value()) << to_string(models.error());
  ASSERT_EQ(models->size(), 2u);
  EXPECT_EQ(read_text(write(*models, "second.json")), read_text(first));
  const LearnedModel &model = models->front(), written = gemm_model();
  EXPECT_EQ(model.name, written.name);
  EXPECT_EQ(model.family, KernelFamily::kGemm);
  EXPECT_EQ(model.dtype, DType::kFloat32);
  EXPECT_EQ(model.chips, written.chips);
  EXPECT_EQ(model.gpus, written.gpus);
  EXPECT_EQ(model.common_cells, written.common_cells);
  EXPECT_EQ(model.chip_cells, written.chip_cells);
  EXPECT_EQ(model.chip_devices, written.chip_devices);
  ASSERT_EQ(model.launch_costs.size(), 1u);
  EXPECT_EQ(model.launch_costs[0].op, "linear");
  EXPECT_EQ(model.launch_costs[0].floor_us, 31.25);
  EXPECT_EQ(model.launch_costs[0].dispatch_us, 10.5);
  EXPECT_EQ(model.vendors, written.vendors);
  EXPECT_EQ(model.sibling_trust, 1);
  EXPECT_EQ(model.unseen_trust, 0.75);
  const auto& board = model.intervals[static_cast<std::size_t>(Knowledge::kBoard)];
  ASSERT_EQ(board.own.size(), 1u);
  EXPECT_EQ(board.own[0].of, "a100-sxm-40gb");
  EXPECT_EQ(board.own[0].intervals[1].high, 1.375);
  EXPECT_EQ(board.own[0].intervals[1].rows, 90);
  EXPECT_EQ(board.any[0].high, 1.125);
  ASSERT_EQ(model.corrections.size(), 1u);
  EXPECT_EQ(model.corrections[0].weights, written.corrections[0].weights);
  EXPECT_EQ(model.corrections[0].rows, 9);
  ASSERT_EQ(model.corrections[0].anchors.size(), 1u);
  EXPECT_EQ(model.corrections[0].anchors[0].at, written.corrections[0].anchors[0].at);
  EXPECT_EQ(model.corrections[0].anchors[0].weight, 0.25);
  EXPECT_EQ(Json::parse(model.card)["note"], "made \"up\", not measured");
  EXPECT_EQ(models->back().dtype, DType::kFloat16);
}

TEST_F(ModelFiles, PredictsToTheBitWhatWasWritten) {
  const LearnedModel written = gemm_model();
  const auto models = read_model_file(write({written}));
  ASSERT_TRUE(models.has_value());
  int compared = 0;
  for (const char* gpu : {"a100-sxm-40gb", "t4"}) {
    const auto found = find_gpu(gpu, fs::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus");
    ASSERT_TRUE(found.has_value());
    for (const KernelWork& work : kernel_mix(2000)) {
      if (!written.is_of(work, *found) || !written.knows_vendor(*found)) continue;
      Price a = KernelModels::heuristic().price(work, *found), b = a;
      ASSERT_TRUE(written.refine(work, *found, a));
      ASSERT_TRUE(models->front().refine(work, *found, b));
      ASSERT_TRUE(is_same_price(a, b));
      ++compared;
    }
  }
  EXPECT_GT(compared, 300);
}

TEST_F(ModelFiles, FloatsOfEverySizeSurvive) {
  LearnedModel model = gemm_model();
  const std::vector<float> values = {0.0F,
                                     -0.0F,
                                     1.0F / 3,
                                     -1e-30F,
                                     std::numeric_limits<float>::max(),
                                     std::numeric_limits<float>::min(),
                                     std::numeric_limits<float>::denorm_min(),
                                     std::nextafter(1.0F, 2.0F),
                                     16777217.0F};
  model.common = {.base = std::nextafter(0.1F, 1.0F)};
  for (float value : values) {
    model.common.roots.push_back(static_cast<std::uint32_t>(model.common.nodes.size()));
    model.common.nodes.push_back({.value = value, .feature = 0, .right = 2});
    model.common.nodes.push_back({.value = std::abs(value) < 1 ? value : 0});  // answers are small
    model.common.nodes.push_back({.value = 0.5F});
  }
  const auto models = read_model_file(write({model}));
  ASSERT_TRUE(models.has_value()) << to_string(models.error());
  const auto& common = models->front().common;
  EXPECT_EQ(common.base, model.common.base);
  ASSERT_EQ(common.nodes.size(), model.common.nodes.size());
  for (std::size_t i = 0; i < common.nodes.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(common.nodes[i].value),
              std::bit_cast<std::uint32_t>(model.common.nodes[i].value))
        << common.nodes[i].value;
  }
}

// ---- errors ------------------------------------------------------------------------------------

TEST_F(ModelFiles, FilesThatAreNone) {
  EXPECT_EQ(error_of(folder_ / "none.json"),
            "none.json: expected a readable kernel-model file, found none");
  fs::create_directories(folder_ / "folder.json");
  EXPECT_EQ(error_of(folder_ / "folder.json"),
            "folder.json: expected a readable kernel-model file, found none");
  EXPECT_NE(error_of_text("").find("expected a whole JSON document"), std::string::npos);
  EXPECT_NE(error_of_text("trees").find("expected a whole JSON document"), std::string::npos);
  EXPECT_NE(error_of_text("[]").find("/schema: expected"), std::string::npos);
  EXPECT_NE(error_of_text("{}").find("/schema: expected"), std::string::npos);
  EXPECT_NE(error_of_text(R"({"schema": "perfmodel-gpu", "version": 1})").find("/schema: expected"),
            std::string::npos);
  EXPECT_NE(error_of_text(std::string(100'000, '[')).find("expected a whole JSON"),
            std::string::npos);
}

TEST_F(ModelFiles, CutOffAnywhereIsAnError) {
  const std::size_t whole = good_.find_last_of('}') + 1;
  ASSERT_EQ(error_of_text(good_.substr(0, whole)), "no error");
  std::vector<std::size_t> lengths = {1, 2, 20};
  for (std::size_t length = 50; length < whole; length += 173) lengths.push_back(length);
  for (std::size_t back = 1; back < 20; ++back) lengths.push_back(whole - back);
  for (const std::size_t length : lengths) {
    const std::string error = error_of_text(good_.substr(0, length));
    EXPECT_NE(error.find("expected a whole JSON document, found " + std::to_string(length)),
              std::string::npos)
        << length << ": " << error;
  }
}

TEST_F(ModelFiles, AnotherSchemaOrVersion) {
  Json file = Json::parse(good_);
  file["version"] = 4;
  EXPECT_EQ(error_of_text(file.dump()),
            "broken.json:1:47: /version: expected version 3, found 4, which needs a newer program");
  file["version"] = 2;  // intervals of chips seen and unseen
  EXPECT_EQ(error_of_text(file.dump()),
            "broken.json:1:47: /version: expected version 3, found 2, which an older program "
            "wrote: fit it anew, `perfpredict train`");
  file["version"] = "2";
  EXPECT_NE(error_of_text(file.dump()).find("/version: expected an integer"), std::string::npos);
  file.erase("version");
  EXPECT_NE(error_of_text(file.dump()).find("/version: expected"), std::string::npos);
  file["version"] = 3;
  file["models"] = Json::array();
  EXPECT_NE(error_of_text(file.dump()).find("/models: expected at least one model"),
            std::string::npos);
  file["models"] = "none";
  EXPECT_NE(error_of_text(file.dump()).find("/models: expected a list"), std::string::npos);
}

TEST_F(ModelFiles, ErrorsNameTheirPlace) {
  struct Case {
    const char* place;
    std::function<void(Json&)> change;
  };
  const Case cases[] = {
      {"/family: expected a family", [](Json& m) { m["family"] = "gem"; }},
      {"/family: expected a family", [](Json& m) { m["family"] = "collective"; }},
      {"/dtype: expected a known element type", [](Json& m) { m["dtype"] = "float33"; }},
      {"/trees/common/base: expected a number from -50 to 50",
       [](Json& m) { m["trees"]["common"]["base"] = -9.2e18; }},
      {"/trees/chip: expected trees whose answers lie within 50",
       [](Json& m) {
         const TreeEnsemble leaf{.nodes = {{.value = -80}}, .roots = {0}};
         m["trees"]["chip"]["nodes"] = tree_text(leaf);
       }},
      {"/corrections/0/weights: expected numbers whose sum is within 50",
       [](Json& m) {
         m["corrections"][0]["weights"] = {30, -30, 0};
       }},
      {"/unseen_trust: expected a number from 0 to 1", [](Json& m) { m["unseen_trust"] = 1.5; }},
      {"/launch_costs/0/dispatch_us: expected a number from 0 to",
       [](Json& m) { m["launch_costs"][0]["dispatch_us"] = -1; }},
      {"/intervals/none/any/0/high: expected a number from 0 to",
       [](Json& m) { m["intervals"]["none"]["any"][0]["high"] = 1e300; }},
      {"/features: expected the features", [](Json& m) { m["features"][3] = "log2_depth"; }},
      {"/features: expected the features", [](Json& m) { m["features"].erase(0); }},
      {"/features: expected the features", [](Json& m) { m["features"].push_back("more"); }},
      {"/features/0: expected a string", [](Json& m) { m["features"][0] = 7; }},
      {"/name: expected", [](Json& m) { m.erase("name"); }},
      {"/trees: expected", [](Json& m) { m.erase("trees"); }},
      {"/card: expected", [](Json& m) { m.erase("card"); }},
      {"/chips: expected a list", [](Json& m) { m["chips"] = "ampere/108"; }},
      {"/chips/0: expected", [](Json& m) { m["chips"][0] = "ampere"; }},
      {"/chips/0: expected", [](Json& m) { m["chips"][0] = "ampere/99999999999999999999"; }},
      {"/chip_cells: expected one list of cells per chip",
       [](Json& m) { m["chip_cells"] = Json::array(); }},
      {"/chip_devices: expected one list", [](Json& m) { m["chip_devices"] = Json::array(); }},
      {"/chip_devices/0: expected 6 numbers", [](Json& m) { m["chip_devices"][0].erase(0); }},
      {"/chip_devices/0: expected numbers of at most 3.4e+38",
       [](Json& m) { m["chip_devices"][0][1] = -1e60; }},
      {"/common_cells/0: expected", [](Json& m) { m["common_cells"][0].erase(0); }},
      {"/common_cells/0/1: expected an integer", [](Json& m) { m["common_cells"][0][1] = 200; }},
      {"/intervals/board/any: expected 3 intervals",
       [](Json& m) { m["intervals"]["board"]["any"].erase(2); }},
      {"/intervals/board/own/0/of: expected a string",
       [](Json& m) { m["intervals"]["board"]["own"][0]["of"] = 4; }},
      {"/intervals/chip: expected", [](Json& m) { m["intervals"].erase("chip"); }},
      {"/intervals/none/any: expected 3 intervals",
       [](Json& m) { m["intervals"]["none"]["any"].push_back(m["intervals"]["none"]["any"][0]); }},
      {"/intervals/architecture/any/1/low: expected a number",
       [](Json& m) { m["intervals"]["architecture"]["any"][1]["low"] = nullptr; }},
      {"/sibling_trust: expected", [](Json& m) { m.erase("sibling_trust"); }},
      {"/unseen_trust: expected", [](Json& m) { m.erase("unseen_trust"); }},
      {"/launch_costs/0/floor_us: expected",
       [](Json& m) { m["launch_costs"][0].erase("floor_us"); }},
      {"/corrections/0/anchors/0/at: expected ",
       [](Json& m) { m["corrections"][0]["anchors"][0]["at"].erase(0); }},
      {"/corrections/0/weights: expected 3 numbers",
       [](Json& m) { m["corrections"][0]["weights"].erase(0); }},
      {"/trees/common/base: expected a number",
       [](Json& m) { m["trees"]["common"]["base"] = "0"; }},
      {"/trees/chip/nodes: expected a string", [](Json& m) { m["trees"]["chip"]["nodes"] = 1; }},
      {"/trees/common/nodes: expected", [](Json& m) { m["trees"]["common"].erase("nodes"); }},
  };
  for (const Case& c : cases) {
    const std::string error = error_after(c.change);
    EXPECT_NE(error.find(std::string("/models/0") + c.place), std::string::npos)
        << c.place << " is not in " << error;
  }
}

TEST_F(ModelFiles, TreesMustBeWhole) {
  using Node = TreeEnsemble::Node;
  const Node split{.value = 0.5F, .feature = 0}, leaf{.value = 0.25F};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  struct Case {
    const char* expected;
    std::vector<Node> nodes;
  };
  const Case cases[] = {
      {"trees that are whole", {split}},
      {"trees that are whole", {split, leaf}},
      {"trees that are whole", {split, leaf, split, leaf}},
      {"trees that are whole", {leaf, split, leaf}},  // the second tree
      {"a feature below 34 in node 1", {split, {.value = 1, .feature = 34}, leaf, leaf, leaf}},
      {"a feature below 34 in node 0", {{.value = 1, .feature = 254}, leaf, leaf}},
      {"a finite number in node 2", {split, leaf, {.value = nan}}},
      {"a finite number in node 0", {{.value = infinity, .feature = 0}, leaf, leaf}},
      {"trees of at most 65535 nodes", std::vector<Node>(65536, split)},
  };
  for (const Case& c : cases) {
    const std::string error = error_after(
        [&](Json& m) { m["trees"]["common"]["nodes"] = tree_text({.nodes = c.nodes}); });
    EXPECT_NE(error.find(std::string("/models/0/trees/common/nodes: expected ") + c.expected),
              std::string::npos)
        << c.expected << ": " << error;
  }
  const std::string whole = tree_text({.nodes = {split, leaf, leaf}});
  ASSERT_EQ(whole.size(), 20u);  // 15 bytes
  for (const std::string& text :
       {whole + "A", whole.substr(1), whole + "====", "!" + whole, whole.substr(0, 19) + "\xC3\xA9",
        "@[`{" + whole.substr(4) + whole + whole, whole + "-.:," + whole.substr(4) + whole}) {
    const std::string error = error_after([&](Json& m) { m["trees"]["common"]["nodes"] = text; });
    EXPECT_NE(error.find("/nodes: expected base64 of five bytes per node"), std::string::npos)
        << text << ": " << error;
  }
}

TEST_F(ModelFiles, DeepAndManyTreesAreReadAsTheyWereGrown) {
  using Node = TreeEnsemble::Node;
  TreeEnsemble grown{.nodes = {{.value = 1}}, .roots = {0, 1}};  // a tree of one leaf
  const auto add_comb = [&](bool leans_left) {
    constexpr int kSplits = 300;
    for (int i = 0; i < kSplits; ++i) {
      const int right = leans_left ? 2 * (kSplits - i) : 2;
      grown.nodes.push_back({.value = 1,
                             .feature = static_cast<std::uint16_t>(i % 7),
                             .right = static_cast<std::uint16_t>(right)});
      if (!leans_left) grown.nodes.push_back(Node{.value = 2});
    }
    const int leaves = leans_left ? kSplits + 1 : 1;
    for (int i = 0; i < leaves; ++i) grown.nodes.push_back(Node{.value = 3});
  };
  add_comb(true);
  grown.roots.push_back(static_cast<std::uint32_t>(grown.nodes.size()));
  add_comb(false);
  TreeEnsemble read;
  ASSERT_EQ(learned::read_tree_text(tree_text(grown), 7, read), "");
  EXPECT_EQ(read.roots, grown.roots);
  ASSERT_EQ(read.nodes.size(), grown.nodes.size());
  for (std::size_t i = 0; i < read.nodes.size(); ++i) {
    EXPECT_EQ(read.nodes[i].feature, grown.nodes[i].feature) << i;
    EXPECT_EQ(read.nodes[i].right, grown.nodes[i].right) << i;
  }
}

TEST_F(ModelFiles, NothingIsWrittenWhereItCannotBe) {
  const auto nowhere = write_model_file(folder_ / "no" / "such.json", {gemm_model()});
  ASSERT_FALSE(nowhere.has_value());
  EXPECT_EQ(nowhere.error().code, ErrorCode::kIo);
  EXPECT_FALSE(fs::exists(folder_ / "no"));
  fs::create_directories(folder_ / "taken.json");
  EXPECT_FALSE(write_model_file(folder_ / "taken.json", {gemm_model()}).has_value());
  EXPECT_FALSE(write_model_file(folder_ / "model.json" / "x.json", {gemm_model()}).has_value());
  EXPECT_TRUE(fs::is_empty(folder_ / "taken.json"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2);  // and no temporary file
  if (::geteuid() == 0) return;                                      // root may write everywhere
  fs::create_directories(folder_ / "closed");
  fs::permissions(folder_ / "closed", fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_FALSE(write_model_file(folder_ / "closed" / "x.json", {gemm_model()}).has_value());
  EXPECT_TRUE(fs::is_empty(folder_ / "closed"));
}

}  // namespace model_file_test
}  // namespace perfmodel
