// `perfpredict suite`: the bundled benchmark, its document and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "program.hpp"

namespace perfmodel::test_support {
namespace suite_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> keys(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [key, value] : object.items()) names.push_back(key);
  return names;
}

const Json& tbd() {
  static const Json document = json_of({"suite", "tbd"});
  return document;
}

// Published counts, or closed forms if there are none.
TEST(SuiteCommand, ModelsHaveTheirParameters) {
  const std::map<std::string, double> known = {
      {"resnet-50", 25'557'032},     // torchvision
      {"inception-v3", 27'161'264},  // torchvision, with the auxiliary classifier
      // Embeddings 512 (17,191 + 7,709); encoder 2 x 4 x 256 (512 + 256 + 2) and
      // 4 x 512 (512 + 512 + 2); decoder 4 x 512 (1,024 + 512 + 2) and 4 x 512 (512 + 512 + 2);
      // attention 2 x 512^2 + 512, combination 512 x 1,024, output 7,709 x 513.
      {"seq2seq", 512.0 * 24'900 + 1'576'960 + 2'101'248 + 3'149'824 + 2'101'248 + 524'800 +
                      524'288 + 7'709 * 513.0},
      // 6 + 6 layers as PyTorch's nn.Transformer (44,140,544) less its two last norms, and 37,000
      // words of 512 (Vaswani et al., section 5.1).
      {"transformer", 44'140'544 - 2'048 + 37'000 * 512.0},
      {"faster-rcnn", 41'755'286},  // torchvision, fasterrcnn_resnet50_fpn
      // DCGAN of PyTorch's examples: generator and discriminator.
      {"wgan", 3'576'704 + 2'765'568},
      // Mnih et al. 2013 with six actions, and a value.
      {"a3c", 677'686 + 257}};
  std::size_t compared = 0;
  for (const Json& model : tbd()["models"]) {
    const std::string name = model["name"];
    const double parameters = model["parameters"];
    if (const auto at = known.find(name); at != known.end()) {
      EXPECT_NEAR(parameters / at->second, 1, 0.01) << name;
      ++compared;
    }
    if (!model["published_parameters"].is_null()) {
      EXPECT_NEAR(parameters / model["published_parameters"].get<double>(), 1, 0.01) << name;
    }
  }
  EXPECT_EQ(compared, known.size());
}

TEST(SuiteCommand, UtilisationsAreShares) {
  for (const char* gpu : {"titan-xp", "v100-sxm2-32gb", "h100-sxm-80gb", "mi300x"}) {
    const Outcome outcome = run({"suite", "tbd", "--gpu", gpu, "--json"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const Json json = Json::parse(outcome.out);
    bool matrix = false;
    for (const Json& model : json["models"]) {
      for (const Json& row : model["rows"]) {
        SCOPED_TRACE(model["name"].get<std::string>() + " " + row["batch"].dump() + " " + gpu);
        for (const char* key :
             {"gpu_utilization", "fp32_utilization", "matrix_utilization", "cpu_utilization"}) {
          EXPECT_GE(row[key].get<double>(), 0) << key;
          EXPECT_LE(row[key].get<double>(), 1) << key;
        }
        EXPECT_NEAR(row["gpu_utilization"].get<double>(),
                    row["gpu_active_us"].get<double>() / row["step_us"].get<double>(), 1e-5);
        EXPECT_LE(row["step_low_us"], row["step_us"]);
        EXPECT_GE(row["step_high_us"], row["step_us"]);
        matrix |= row["matrix_utilization"].get<double>() > 0;
      }
    }
    // TF32 of cuDNN on Hopper, fp32 on AMD's matrix cores.
    EXPECT_EQ(matrix, std::string(gpu) == "h100-sxm-80gb" || std::string(gpu) == "mi300x") << gpu;
  }
}

// A batch twice as large is no slower per image; the model of convolutions may lose 5 %.
TEST(SuiteCommand, ThroughputGrowsOrSaturates) {
  for (const Json& model : tbd()["models"]) {
    double best = 0;
    for (const Json& row : model["rows"]) {
      const double rate = row["throughput"];
      EXPECT_GT(rate, 0.95 * best) << model["name"] << " " << row["batch"];
      best = std::max(best, rate);
    }
  }
}

// An iteration of the WGAN: five steps of the critic and one of the generator.
TEST(SuiteCommand, GraphsComeFromTheFlagsOfBuild) {
  double sum = 0;
  for (const auto& [step, times] : {std::pair<std::string, int>{"critic", 5}, {"generator", 1}}) {
    const std::string file = scratch_file("wgan.json");
    ASSERT_EQ(run({"build", "wgan", "--preset", "wgan", "--step", step, "--optimizer", "adam",
                   "--batch", "16", "-o", file})
                  .status,
              0);
    const Outcome outcome = run({"predict", file, "--gpu", "titan-xp", "--json"});
    sum += times * Json::parse(outcome.out)["e2e_us"].get<double>();
  }
  const Outcome outcome = run({"suite", "tbd", "--only", "wgan", "--batches", "16", "--json"});
  const Json json = Json::parse(outcome.out);
  ASSERT_EQ(json["models"].size(), 1U);
  const Json& row = json["models"][0]["rows"][0];
  EXPECT_NEAR(row["step_us"].get<double>(), sum, 0.01);
  EXPECT_NEAR(row["throughput"].get<double>(), 5 * 16e6 / sum, 1e-4 * 5 * 16e6 / sum);
}

TEST(SuiteCommandGolden, TheDocumentHasItsKeys) {
  EXPECT_THAT(keys(tbd()),
              ::testing::UnorderedElementsAre("schema", "version", "minor_version", "program",
                                              "suite", "title", "gpu", "fp32_peak_tflop_per_s",
                                              "kernel_models", "host", "host_scale", "cpu_cores",
                                              "models", "unmodelled_ops", "sources", "warnings"));
  EXPECT_EQ(tbd()["schema"], "perfmodel-suite-report");
  EXPECT_EQ(tbd()["gpu"], "titan-xp");
  EXPECT_EQ(tbd()["unmodelled_ops"], Json::array());
  std::vector<std::string> names;
  for (const Json& model : tbd()["models"]) names.push_back(model["name"]);
  EXPECT_THAT(names, ElementsAre("resnet-50", "inception-v3", "seq2seq", "transformer",
                                 "faster-rcnn", "deep-speech-2", "wgan", "a3c"));
  const Json& model = tbd()["models"][0];
  EXPECT_THAT(keys(model), ::testing::UnorderedElementsAre(
                               "name", "title", "domain", "unit", "batch_unit", "units_per_sample",
                               "parameters", "published_parameters", "best_batch", "rows"));
  EXPECT_THAT(keys(model["rows"][0]),
              ::testing::UnorderedElementsAre(
                  "batch", "step_us", "step_low_us", "step_high_us", "throughput", "throughput_low",
                  "throughput_high", "gpu_active_us", "cpu_us", "gpu_utilization",
                  "fp32_utilization", "matrix_utilization", "cpu_utilization", "memory",
                  "modelled_time_fraction", "kernels_out_of_range", "warnings"));
  EXPECT_THAT(keys(model["rows"][0]["memory"]),
              ::testing::UnorderedElementsAre("needed_bytes", "by_purpose"));
  EXPECT_THAT(
      keys(model["rows"][0]["memory"]["by_purpose"]),
      ::testing::UnorderedElementsAre("weights", "gradients", "optimizer", "activations",
                                      "temporaries", "workspace", "communication", "reserve"));
}

// ResNet-50 with momentum: 4 bytes of weight, gradient and momentum per parameter; weights also
// count 2 x 26,560 statistics of 53 norms with their 53 counters of 8 bytes.
TEST(SuiteCommand, MemoryOfAResnetIsKnown) {
  const Json& held = tbd()["models"][0]["rows"][0]["memory"]["by_purpose"];
  // Each storage takes whole blocks of 512 bytes: at most so much more for 161 parameters, and as
  // many statistics.
  const auto expect = [&](const char* purpose, double bytes, double storages) {
    EXPECT_GE(held[purpose].get<double>(), bytes) << purpose;
    EXPECT_LE(held[purpose].get<double>(), bytes + 512 * storages) << purpose;
  };
  expect("gradients", 4 * 25'557'032.0, 161);
  expect("optimizer", 4 * 25'557'032.0, 161);
  expect("weights", 4 * (25'557'032.0 + 2 * 26'560) + 53 * 8, 161 + 3 * 53);
  EXPECT_GT(held["activations"].get<double>(), 0);
}

TEST(SuiteCommand, TheTextHasATableAndASummaryPerModel) {
  const Outcome outcome = run({"suite", "tbd", "--only", "resnet-50,a3c"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("  ResNet-50, image classification: 25,557,032 parameters\n"));
  EXPECT_THAT(outcome.out, HasSubstr("  images  images/s  step ms"));
  EXPECT_THAT(outcome.out,
              HasSubstr("  images     MiB  weights  gradients  optimizer  activations  "
                        "temporaries  workspace  reserve\n"));
  EXPECT_THAT(outcome.out, HasSubstr(" frames/s at 32"));
  EXPECT_THAT(outcome.out, HasSubstr("the host sets the pace throughout"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("WGAN")));
  EXPECT_THAT(outcome.out, Not(HasSubstr("matrix  ")));  // Pascal has no matrix units
  for (std::size_t begin = 0; begin < outcome.out.size();) {
    const std::size_t end = outcome.out.find('\n', begin);
    EXPECT_LE(end - begin, 100U) << outcome.out.substr(begin, end - begin);
    begin = end + 1;
  }
}

TEST(SuiteCommand, ListsWhatThereIs) {
  const Outcome text = run({"suite", "list"});
  EXPECT_EQ(text.status, 0);
  EXPECT_THAT(text.out, HasSubstr("Benchmarking and Analyzing Deep Neural Network Training"));
  EXPECT_THAT(text.out, HasSubstr("1 2 4 8 16 32 64 128 images"));
  const Json json = Json::parse(run({"suite", "list", "--json"}).out);
  EXPECT_EQ(json["schema"], "perfmodel-suites");
  ASSERT_EQ(json["suites"].size(), 1U);
  EXPECT_EQ(json["suites"][0]["name"], "tbd");
  EXPECT_EQ(json["suites"][0]["models"].size(), 8U);
}

TEST(SuiteCommand, WritesRowsAndADrawing) {
  const std::string csv = scratch_file("tbd.csv");
  const std::string folder = scratch_file("drawn");
  fs::create_directory(folder);
  const Outcome outcome = run({"suite", "tbd", "--csv", csv, "--plot", folder});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::string rows = read(csv);
  EXPECT_THAT(rows, HasSubstr("suite,gpu,model,batch,unit,throughput,"));
  std::size_t expected = 1;
  for (const Json& model : tbd()["models"]) expected += model["rows"].size();
  EXPECT_EQ(static_cast<std::size_t>(std::count(rows.begin(), rows.end(), '\n')), expected);
  const std::string svg = read(fs::path(folder) / "tbd.svg");
  EXPECT_THAT(svg, HasSubstr("images per second"));
  EXPECT_THAT(svg, HasSubstr("batch (sentences)"));
  EXPECT_THAT(svg, HasSubstr("Deep Speech 2: utilisation"));
  EXPECT_THAT(svg, HasSubstr("FP32, by FLOP"));
}

TEST(SuiteCommand, BadInputIsOneLineAndOne) {
  expect_error({"suite", "tdb"}, 1,
               "expected a suite (tbd) or a file that ends in .json, found \"tdb\"");
  expect_error({"suite", "tbd", "--gpu", "titan-xq"}, 1, "expected the name of a known GPU");
  expect_error({"suite", "tbd", "--only", "resnet"}, 1, "expected a model of tbd (resnet-50, ");
  expect_error({"suite", "no_such_file.json"}, 1, "no_such_file.json: expected a readable suite");
  const std::string file = scratch_file("own.json");
  const auto own = [&](const std::string& graph) {
    std::ofstream(file) << R"({"schema": "perfmodel-suite", "version": 1, "name": "own",
      "title": "Own", "gpu": "t4", "sources": [], "models": [{"name": "a", "title": "A",
      "domain": "d", "unit": "u", "batch_unit": "b", "batches": [2], "graphs": [)"
                        << graph << "]}]}";
    return file;
  };
  expect_error(
      {"suite", own(R"({"build": "resnt"})")}, 1,
      "/models/0/graphs/0/build: expected a builder, found \"resnt\" (nearest: \"resnet\")");
  expect_error({"suite", own(R"({"build": "mlp", "options": {"prest": "mnist"}})")}, 1,
               "/models/0/graphs/0/options/prest: expected an option of `perfpredict build mlp`");
  expect_error({"suite", own(R"({"build": "mlp", "options": {"preset": "mnst"}})")}, 1,
               "/models/0/graphs/0/options: expected");
  expect_error({"suite", own(R"({"build": "mlp", "count": 2})")}, 1, "/models/0/graphs/0/count");
  const Outcome good = run({"suite", own(R"({"build": "mlp", "options": {"preset": "mnist"}})")});
  EXPECT_EQ(good.status, 0) << good.err;
  EXPECT_EQ(run({"suite"}).status, 2);
  EXPECT_EQ(run({"suite", "list", "--csv", file}).status, 2);
  EXPECT_EQ(run({"suite", "tbd", "--batches", "0"}).status, 2);
}

}  // namespace suite_test
}  // namespace perfmodel::test_support
