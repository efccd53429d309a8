// Training benchmarks: how a suite is read, and how rows follow from predictions.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "../scratch.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/model_size.hpp"
#include "perfmodel/predictor.hpp"
#include "perfmodel/suite/detail/suite.hpp"
#include "perfmodel/suite/run_suite.hpp"
#include "suite/suite_results.hpp"

namespace perfmodel::suite {
namespace suite_test {

namespace fs = std::filesystem;

constexpr const char* kModel = R"({"name": "a", "title": "A", "domain": "d", "unit": "images",
  "batch_unit": "images", "units_per_sample": 3, "batches": [8, 64],
  "graphs": [{"build": "mlp", "options": {"widths": "64-32-10"}, "times": 2},
             {"build": "mlp", "options": {"widths": "64-10"}}]})";

fs::path suite_file(const std::string& models, const std::string& more = "") {
  const fs::path file = test_support::scratch() / "made_suite.json";
  std::ofstream(file) << R"({"schema": "perfmodel-suite", "version": 1, "name": "made",
    "title": "Made up", "gpu": "titan-xp", "sources": ["none"], )"
                      << more << R"("models": [)" << models << "]}";
  return file;
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const auto at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

Suite made_suite() {
  auto suite = read_suite(suite_file(kModel));
  EXPECT_TRUE(suite) << to_string(suite.error());
  return std::move(*suite);
}

// The flags of `build mlp`, as far as this test needs them.
Result<ExecutionGraph> build(const sweep::GraphSource& source) {
  MlpConfig config;
  for (const auto& [name, value] : source.options) {
    if (name == "batch") config.batch = std::stoll(value);
    if (name == "widths") {
      config.widths = value == "64-10" ? std::vector<std::int64_t>{64, 10}
                                       : std::vector<std::int64_t>{64, 32, 10};
    }
  }
  return build_mlp(config);
}

SuiteReport report_of(const Suite& suite, SuiteOptions options = {}) {
  auto report = run_suite(suite, build, options);
  EXPECT_TRUE(report) << to_string(report.error());
  return std::move(*report);
}

TEST(SuiteFile, IsReadAsItStands) {
  const Suite suite = made_suite();
  ASSERT_EQ(suite.models.size(), 1U);
  const SuiteModel& model = suite.models[0];
  EXPECT_EQ(model.batches, (std::vector<std::int64_t>{8, 64}));
  EXPECT_EQ(model.units_per_sample, 3);
  ASSERT_EQ(model.graphs.size(), 2U);
  EXPECT_EQ(model.graphs[0].times, 2);
  EXPECT_EQ(model.graphs[1].times, 1);
  EXPECT_EQ(model.graphs[0].source.builder, "mlp");
  ASSERT_EQ(model.graphs[0].source.options.size(), 1U);
  EXPECT_EQ(model.graphs[0].source.options[0].second, "64-32-10");
  EXPECT_FALSE(model.published_parameters);
}

TEST(SuiteFile, WhatIsOddHasItsPlace) {
  const auto message = [](const std::string& models, const std::string& more = "") {
    const auto suite = read_suite(suite_file(models, more));
    if (suite) return std::string("read");
    return suite.error().json_pointer + ": " + suite.error().message;
  };
  EXPECT_EQ(message(replaced(kModel, "\"times\"", "\"time\"")).substr(0, 24),
            "/models/0/graphs/0/time:");
  EXPECT_EQ(message(kModel, R"("extra": 1, )").substr(0, 7), "/extra:");
  EXPECT_EQ(message(replaced(kModel, "[8, 64]", "[64, 8]")),
            "/models/0/batches: expected batch sizes that grow, found [64,8]");
  EXPECT_EQ(message(replaced(kModel, "[8, 64]", "[]")),
            "/models/0/batches: expected at least one batch size, found []");
  EXPECT_EQ(message(replaced(kModel, "\"widths\": \"64-10\"", "\"batch\": 4")),
            "/models/0/graphs/1/options/batch: expected the batch sizes under \"batches\", found "
            "one among the options");
  EXPECT_EQ(message(replaced(kModel, "\"64-10\"", "[64]")),
            "/models/0/graphs/1/options/widths: expected a text, a number, true or false, found "
            "[64]");
  EXPECT_EQ(message(std::string(kModel) + "," + kModel),
            "/models/1/name: expected each model once, found \"a\" again");
  EXPECT_EQ(message(""), "/models: expected at least one entry, found []");
}

TEST(SuiteFile, EveryBundledSuiteIsReadUnderItsName) {
  const fs::path data = find_data_folder().value();
  const auto suites = read_suites(data);
  ASSERT_TRUE(suites) << to_string(suites.error());
  ASSERT_EQ(suites->size(), 1U);
  for (const Suite& suite : *suites) {
    EXPECT_EQ(suite.file.stem(), suite.name);
    EXPECT_FALSE(suite.sources.empty());
  }
  EXPECT_EQ(find_suite("tbd", data)->models.size(), 8U);
  EXPECT_EQ(find_suite("tb", data).error().message,
            "expected a suite (tbd) or a file that ends in .json, found \"tb\"");
}

// Two steps of the first graph and one of the second; three images per sample.
TEST(Suite, AnIterationIsTheSumOfItsGraphs) {
  const Suite suite = made_suite();
  const SuiteReport report = report_of(suite);
  ASSERT_EQ(report.models.size(), 1U);
  ASSERT_EQ(report.models[0].rows.size(), 2U);
  const SuiteRow& row = report.models[0].rows[1];
  sweep::GraphSource first = suite.models[0].graphs[0].source;
  sweep::GraphSource second = suite.models[0].graphs[1].source;
  for (sweep::GraphSource* source : {&first, &second}) source->options.emplace_back("batch", "64");
  const ExecutionGraph a = build(first).value(), b = build(second).value();
  const auto predictor = Predictor::load({.gpus = {"titan-xp"}}).value();
  const Prediction of_a = predictor.predict(a, "titan-xp").value();
  const Prediction of_b = predictor.predict(b, "titan-xp").value();
  EXPECT_DOUBLE_EQ(row.step_us, 2 * of_a.e2e_us + of_b.e2e_us);
  EXPECT_DOUBLE_EQ(row.low_us, 2 * of_a.e2e_low_us + of_b.e2e_low_us);
  EXPECT_DOUBLE_EQ(row.high_us, 2 * of_a.e2e_high_us + of_b.e2e_high_us);
  EXPECT_DOUBLE_EQ(row.throughput, 3 * 64 * 1e6 / row.step_us);
  EXPECT_DOUBLE_EQ(row.gpu_utilization,
                   (2 * of_a.gpu_active_us + of_b.gpu_active_us) / row.step_us);
  EXPECT_DOUBLE_EQ(row.cpu_utilization, (2 * of_a.cpu_us + of_b.cpu_us) / row.step_us);
  // 65 32 + 33 10 + 65 10
  EXPECT_EQ(report.models[0].parameters, 2080 + 330 + 650);
  // Products are all but the whole FLOP of such a model: by them alone a little less is used.
  const double products = 2 * model_size(a).matrix_flop + model_size(b).matrix_flop;
  const double by_products = products / (report.fp32_peak_flop_per_s * row.gpu_active_us * 1e-6);
  EXPECT_GT(row.fp32_utilization, by_products);
  EXPECT_LT(row.fp32_utilization, 1.5 * by_products);
  EXPECT_EQ(row.matrix_utilization, 0);
}

// Weights are read by both steps, so the larger graph counts; gradients of both are kept. Bytes: 4
// per parameter, the first has 2,410, the second 650.
TEST(Suite, MemoryIsByPurpose) {
  const SuiteReport report = report_of(made_suite());
  const SuiteRow& row = report.models[0].rows[0];
  ASSERT_EQ(row.memory.size(), kMemoryPurposes);
  // Storages are rounded up to 512 bytes: of the parameters there are 4 and 2.
  EXPECT_EQ(row.memory[0].name, "weights");
  EXPECT_NEAR(row.memory[0].bytes, 4 * 2410 + 2 * 512, 2 * 512);
  EXPECT_EQ(row.memory[1].name, "gradients");
  EXPECT_NEAR(row.memory[1].bytes, 4 * (2410 + 650) + 3 * 512, 3 * 512);
  EXPECT_EQ(row.memory[2].name, "optimizer");
  EXPECT_DOUBLE_EQ(row.memory[2].bytes, 0);  // plain SGD
  EXPECT_EQ(row.memory[3].name, "activations");
  EXPECT_GT(row.memory[3].bytes, 0);
  EXPECT_GT(row.needed_bytes, row.memory[0].bytes + row.memory[3].bytes);
}

TEST(Suite, BatchesAndModelsCanBeChosen) {
  const Suite suite = made_suite();
  const SuiteReport report = report_of(suite, {.batches = {32, 4, 32}});
  ASSERT_EQ(report.models[0].rows.size(), 2U);
  EXPECT_EQ(report.models[0].rows[0].batch, 4);
  EXPECT_EQ(report.models[0].rows[1].batch, 32);
  EXPECT_EQ(report.row_count(), 2U);
  const auto unknown = run_suite(suite, build, {.models = {"b"}});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message, "expected a model of made (a), found \"b\"");
}

TEST(Suite, OneThreadSaysWhatSeveralSay) {
  const Suite suite = made_suite();
  std::size_t last = 0;
  const SuiteReport one =
      report_of(suite, {.threads = 1, .progress = [&](std::size_t done, std::size_t of) {
                          EXPECT_EQ(done, ++last);
                          EXPECT_EQ(of, 2U);
                        }});
  const SuiteReport several = report_of(suite, {.threads = 4});
  EXPECT_EQ(last, 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(one.models[0].rows[i].step_us, several.models[0].rows[i].step_us);
    EXPECT_EQ(one.models[0].rows[i].warnings, several.models[0].rows[i].warnings);
  }
}

TEST(Suite, WhatCannotBeBuiltHasItsPlace) {
  Suite suite = made_suite();
  const auto report = run_suite(suite, [](const sweep::GraphSource&) -> Result<ExecutionGraph> {
    return Unexpected{Error{.message = "expected more", .json_pointer = "/options/x"}};
  });
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().json_pointer, "/models/0/graphs/0/options/x");
  EXPECT_EQ(report.error().file, suite.file);
}

TEST(Suite, SaturationIsTheSmallestBatchThatReachesAShare) {
  SuiteModelReport report;
  for (const auto& [batch, rate] : {std::pair{1, 10.0}, {2, 19.0}, {4, 21.0}, {8, 20.0}}) {
    report.rows.push_back({.batch = batch, .throughput = rate});
  }
  EXPECT_EQ(report.best().batch, 4);
  EXPECT_EQ(report.first_to_reach(0.9).batch, 2);  // 18.9
  EXPECT_EQ(report.first_to_reach(0.95).batch, 4);
}

SuiteOutput small_output() {
  SuiteOutput output{.kernel_models = "learned", .host = "reference"};
  SuiteReport& report = output.report;
  report.suite.name = "made";
  report.gpu.name = "a-gpu";
  SuiteModelReport& model = report.models.emplace_back();
  model.model = {.name = "a", .unit = "images, cut"};
  model.rows = {{.batch = 8,
                 .step_us = 1234.5678,
                 .low_us = 1000,
                 .high_us = 1500,
                 .throughput = 6480.012345,
                 .gpu_utilization = 0.123456789,
                 .memory = {{"weights", 10.4}},
                 .needed_bytes = 20.6}};
  return output;
}

TEST(SuiteResults, JsonRoundsAndNestsMemory) {
  const OrderedJson json = suite_json(small_output());
  EXPECT_EQ(json["host_scale"], 1.0);
  const OrderedJson& model = json["models"][0];
  EXPECT_EQ(model["published_parameters"], nullptr);
  EXPECT_EQ(model["best_batch"], 8);
  const OrderedJson& row = model["rows"][0];
  EXPECT_EQ(row["step_us"], 1234.568);
  EXPECT_EQ(row["throughput"], 6480.01);
  EXPECT_EQ(row["gpu_utilization"], 0.123457);
  EXPECT_EQ(row["memory"]["needed_bytes"], 21);
  EXPECT_EQ(row["memory"]["by_purpose"]["weights"], 10);
}

TEST(SuiteResults, CsvHasFourDecimalsOfShares) {
  EXPECT_EQ(suite_csv(small_output().report),
            "suite,gpu,model,batch,unit,throughput,throughput_low,throughput_high,step_us,"
            "step_low_us,step_high_us,gpu_utilization,fp32_utilization,matrix_utilization,"
            "cpu_utilization,needed_bytes,weights_bytes\n"
            "made,a-gpu,a,8,\"images, cut\",6480.01,0,0,1234.568,1000.000,1500.000,0.1235,0.0000,"
            "0.0000,0.0000,21,10\n");
}

TEST(SuiteResults, ListsModelsWithTheirBatches) {
  Suite suite{.name = "made", .title = "Made up"};
  suite.models = {{.name = "a", .units_per_sample = 3, .batches = {8, 64}}};
  const OrderedJson json = suites_json({suite});
  EXPECT_EQ(json["suites"][0]["name"], "made");
  EXPECT_EQ(json["suites"][0]["models"][0]["batches"], OrderedJson({8, 64}));
  EXPECT_FALSE(json["suites"][0]["models"][0].contains("units_per_sample"));
}

}  // namespace suite_test
}  // namespace perfmodel::suite
