// `perfpredict predict`: figures that add up, where kernel times and overheads come from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "samples.hpp"

namespace perfmodel::test_support {
namespace predict_test {

// The parts add up, whatever the graph.
void expect_consistent(Json p) {
  for (const char* key : {"e2e_us", "gpu_active_us", "gpu_idle_us", "cpu_us", "wait_us",
                          "kernel_sum_us", "compute_kernel_us", "comm_kernel_us"}) {
    ASSERT_TRUE(p[key].is_number()) << key;
    EXPECT_GE(p[key], 0) << key;
  }
  for (const char* key : {"iterations", "phases", "critical_path", "ops", "ranks", "warnings"}) {
    ASSERT_TRUE(p[key].is_array()) << key;
  }
  const double e2e = p["e2e_us"];
  EXPECT_GT(e2e, 0);
  EXPECT_LE(p["e2e_low_us"].get<double>(), e2e);
  EXPECT_GE(p["e2e_high_us"].get<double>(), e2e);
  if (p["energy_j"].is_number()) {
    EXPECT_NEAR(p["power_w"], p["energy_j"].get<double>() / e2e * 1e6,
                0.01 + 1e-5 * p["power_w"].get<double>());
  }
  if (p["gpu_idle_us"] > 0) {
    EXPECT_NEAR(p["gpu_active_us"].get<double>() + p["gpu_idle_us"].get<double>(), e2e, 0.01);
  }
  EXPECT_NEAR(p["compute_kernel_us"].get<double>() + p["comm_kernel_us"].get<double>(),
              p["kernel_sum_us"], 0.01);
  double terms = 0;
  for (const char* key : {"t1", "t2", "t3", "t4", "t5", "tx"}) {
    terms += p["overheads_us"].at(key).get<double>();
  }
  const double cpu = p["cpu_us"];
  EXPECT_NEAR(terms, cpu, 0.01);
  EXPECT_NEAR(sum_of(p["phases"], "host_us"), cpu, 0.1);
  const double steps = static_cast<double>(p["iterations"].size());
  ASSERT_GT(steps, 0);
  EXPECT_NEAR(sum_of(p["ops"], "host_us") / steps, cpu, 0.1);
  EXPECT_NEAR(sum_of(p["iterations"], "e2e_us") / steps, e2e, 0.01);
  double kernels = 0;
  for (const Json& op : p["ops"]) {
    for (const char* key :
         {"id", "name", "thread", "start_us", "host_us", "wait_us", "key_levels"}) {
      ASSERT_TRUE(op.contains(key)) << key;
    }
    kernels += sum_of(op["kernels"], "time_us");
    for (const Json& kernel : op["kernels"]) {
      for (const char* key :
           {"name", "stream", "start_us", "time_us", "model", "bound", "in_range"}) {
        ASSERT_TRUE(kernel.contains(key)) << key;
      }
      EXPECT_LE(kernel["low_us"], kernel["time_us"]);
      EXPECT_LE(kernel["time_us"], kernel["high_us"]);
    }
  }
  EXPECT_NEAR(kernels / steps, p["kernel_sum_us"], 0.1);
  EXPECT_TRUE(p["coverage"]["modelled_time_fraction"].is_number());
  EXPECT_TRUE(p["coverage"]["unmodelled_ops"].is_array());
}

TEST(PredictCommand, EverySampleGraphGivesFiguresThatAddUp) {
  for (const auto& [name, figures] : expected_samples().items()) {
    if (figures["kind"] != "execution_trace" || figures["top_level_ops"] == 0) continue;
    SCOPED_TRACE(name);
    const Json p = json_of(predict_words(sample(name)));
    expect_consistent(p);
    EXPECT_EQ(p["provenance"]["schema"], figures["schema"]);
    EXPECT_EQ(p["provenance"]["built"], false);
  }
}

TEST(PredictCommand, TellsThroughputAndMemoryOfTheJob) {
  Words words = predict_words(built_graph());
  words.insert(words.end(), {"--world", "4", "--strategy", "ddp"});
  const Json json = json_of(words);
  EXPECT_EQ(json["gpus"], 4);
  const double batch = json["batch_per_gpu"], step_s = json["e2e_us"].get<double>() * 1e-6;
  EXPECT_NEAR(json["samples_per_s"].get<double>(), 4 * batch / step_s, 0.01);
  EXPECT_NEAR(json["samples_per_s_per_gpu"].get<double>(), batch / step_s, 0.01);
  const Json& memory = json["memory"];
  double sum = 0;
  for (const auto& [purpose, bytes] : memory["by_purpose"].items()) sum += bytes.get<double>();
  EXPECT_NEAR(sum, memory["static_bytes"].get<double>(), 5);
  EXPECT_LE(memory["device_bytes"], 16LL << 30);
  EXPECT_EQ(memory["fits"], true);
  EXPECT_GT(memory["activation_bytes"], 0);
  EXPECT_GT(memory["peak_allocated_bytes"], memory["static_bytes"]);
  EXPECT_GE(memory["peak_reserved_bytes"], memory["peak_allocated_bytes"]);
  EXPECT_GE(memory["needed_bytes"], memory["peak_reserved_bytes"]);
  const std::string text = run(words).out;
  EXPECT_THAT(text, ::testing::HasSubstr(" on each of 4 GPUs, batch "));
  EXPECT_THAT(text, ::testing::HasSubstr(" whatever the batch, "));
  words.push_back("--full");
  EXPECT_THAT(run(words).out, ::testing::HasSubstr(" of 15.77 GiB: weights "));
}

TEST(PredictCommand, TellsOfATinyGraphInWholeWords) {
  const std::string graph = written("tiny.json",
                                    R"JSON({"schema": "1.0.1", "nodes": [
    {"id": 1, "name": "[pytorch|profiler|execution_graph|thread]", "parent": 1},
    {"id": 2, "name": "aten::relu", "parent": 1,
     "op_schema": "aten::relu(Tensor self) -> Tensor",
     "inputs": [[1, 1, 0, 100, 4, "cuda:0"]], "input_shapes": [[10, 10]],
     "input_types": ["Tensor(float)"],
     "outputs": [[2, 2, 0, 100, 4, "cuda:0"]], "output_shapes": [[10, 10]],
     "output_types": ["Tensor(float)"]}]})JSON");
  const std::string text = run(predict_words(graph)).out;
  EXPECT_THAT(text, ::testing::HasSubstr(" GiB: below 0.001 whatever the batch, 0 activations\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("- 1 kernel lies outside the sizes that its model "));
}

TEST(PredictCommand, BuiltGraphsAreCalledBuilt) {
  const Json p = json_of(predict_words(built_graph()));
  expect_consistent(p);
  EXPECT_EQ(p["schema"], "perfmodel-prediction");
  EXPECT_EQ(p["version"], 1);
  const Json& provenance = p["provenance"];
  EXPECT_EQ(provenance["graph"], "ddp.json");
  EXPECT_EQ(provenance["built"], true);
  EXPECT_EQ(provenance["gpu"], "v100-sxm2-16gb");
  EXPECT_EQ(provenance["overheads"]["file"], "table.json");
  EXPECT_EQ(provenance["overheads"]["method"], "context");
  EXPECT_FALSE(provenance["gpu_sources"].empty());
  ASSERT_EQ(p["ranks"].size(), 1U);
  EXPECT_EQ(p["ranks"][0]["e2e_us"], p["e2e_us"]);
  EXPECT_NE(run(predict_words(built_graph())).out.find("ddp.json (built)"), std::string::npos);
}

TEST(PredictCommand, SeveralGraphsAreRanks) {
  const std::string small = sample("et_plain_2023.json");
  const Json p =
      json_of({"predict", built_graph(), small, "--gpu", "v100-sxm2-16gb", "--overheads", table()});
  ASSERT_EQ(p["ranks"].size(), 2U);
  EXPECT_EQ(p["slowest_rank"], 0);
  EXPECT_EQ(p["e2e_us"], p["ranks"][0]["e2e_us"]);
  EXPECT_NEAR(p["mean_e2e_us"], sum_of(p["ranks"], "e2e_us") / 2, 0.01);
  EXPECT_TRUE(warns(p, "do not wait for each other"));
  EXPECT_EQ(p["ranks"][1]["e2e_us"], json_of(predict_words(small))["e2e_us"]);
}

TEST(PredictCommand, KernelTimesAreTakenFromTheTrace) {
  Words words = predict_words(sample("et_plain_2023.json"));
  words.insert(words.end(), {"--kernel-times", sample("kineto_plain_2023.json")});
  const Json p = json_of(words);
  std::size_t kernels = 0;
  for (const Json& op : p["ops"]) {
    for (const Json& kernel : op["kernels"]) {
      EXPECT_EQ(kernel["model"], "as-traced");
      ++kernels;
    }
  }
  EXPECT_GT(kernels, 0U);
  EXPECT_EQ(p["provenance"]["kernel_times"]["file"], "kineto_plain_2023.json");
  EXPECT_EQ(p["provenance"]["kernel_times"]["use"], "all");
  // The window is one of the trace, which has two iterations; the graph has one.
  Words windowed = words;
  windowed.insert(windowed.end(), {"--iterations", "0:1"});
  expect_consistent(json_of(windowed));
  windowed.back() = "0:3";
  expect_error(windowed, 1, "expected iterations within 0:2");
  words.insert(words.end(), {"--kernel-iterations", "0:1", "--iterations", "1:2"});
  expect_error(words, 1, "expected iterations within 0:1");
}

TEST(PredictCommand, TheRooflineIsNoSlowerThanTheHeuristic) {
  Words words = predict_words(built_graph());
  const Json heuristic = json_of(words);
  words.insert(words.end(), {"--models", "roofline"});
  const Json roofline = json_of(words);
  EXPECT_LE(roofline["kernel_sum_us"], heuristic["kernel_sum_us"]);
  EXPECT_EQ(roofline["provenance"]["kernel_models"], "roofline");
}

TEST(PredictCommand, AForeignTableIsSaid) {
  EXPECT_TRUE(warns(json_of({"predict", built_graph(), "--gpu", "mi100", "--overheads", table()}),
                    "not on mi100"));
}

TEST(PredictCommand, WithoutATableThatOfTheDataFolderIsUsed) {
  const fs::path data = scratch() / "data";
  fs::create_directories(data / "overheads");
  fs::copy(table(), data / "overheads" / "t4.json", fs::copy_options::overwrite_existing);
  fs::create_directories(data / "gpus");
  const fs::path source = fs::path(PERFMODEL_SOURCE_DIR) / "data";
  const std::string environment = "PERFMODEL_DATA='" + data.string() + "'";
  fs::create_directory_symlink(source / "architectures", data / "architectures");
  for (const char* name : {"t4.json", "l4.json"}) {
    fs::copy(source / "gpus" / name, data / "gpus" / name, fs::copy_options::overwrite_existing);
  }
  const auto predict_on = [&](const char* gpu, Words more) {
    Words all = {"predict", built_graph(), "--json", "--gpu", gpu};
    all.insert(all.end(), more.begin(), more.end());
    return run(all, environment);
  };
  const auto file_of = [](const Outcome& outcome) {
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return Json::parse(outcome.out)["provenance"]["overheads"]["file"];
  };
  const Outcome none = predict_on("l4", {});
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.err.find("reference.json"), std::string::npos);
  EXPECT_EQ(file_of(predict_on("t4", {"--overheads", "measured"})), "t4.json");
  const Outcome unmeasured = predict_on("l4", {"--overheads", "measured"});
  EXPECT_EQ(unmeasured.status, 1);
  EXPECT_NE(unmeasured.err.find("recorded with l4, found tables of t4"), std::string::npos)
      << unmeasured.err;
  fs::copy(table(), data / "overheads" / "reference.json", fs::copy_options::overwrite_existing);
  for (const char* gpu : {"t4", "l4"}) {  // one host for all, whatever was recorded
    EXPECT_EQ(file_of(predict_on(gpu, {})), "reference.json");
    EXPECT_EQ(file_of(predict_on(gpu, {"--overheads", "reference"})), "reference.json");
  }
}

TEST(PredictCommand, ASlowerHostIsSlowerByItsOwnTimeOnly) {
  const Words words = {"predict", built_graph(), "--gpu", "t4", "--overheads", table()};
  const auto with = [&](const char* scale) {
    Words all = words;
    all.insert(all.end(), {"--scale-host", scale});
    return json_of(all);
  };
  const Json same = json_of(words), twice = with("2"), other = with("1.4");
  EXPECT_NEAR(twice["cpu_us"].get<double>(), 2 * same["cpu_us"].get<double>(), 0.1);
  EXPECT_EQ(twice["kernel_sum_us"], same["kernel_sum_us"]);
  ASSERT_EQ(same["host_sensitivity"].size(), 2u);
  EXPECT_EQ(same["host_sensitivity"][0]["scale"], 0.75);
  EXPECT_EQ(same["host_sensitivity"][1]["scale"], 1.4);
  EXPECT_EQ(same["host_sensitivity"][1]["e2e_us"], other["e2e_us"]);
  EXPECT_LE(same["host_sensitivity"][0]["e2e_us"], same["e2e_us"]);
  Words bad = words;
  bad.insert(bad.end(), {"--scale-host", "0"});
  EXPECT_EQ(run(bad).status, 2);
}

// The measured time of a step tells how fast its host is.
TEST(PredictCommand, AMeasuredStepIsPredictedAsMeasured) {
  const Words words = {"predict", built_graph(), "--gpu", "t4", "--host", table()};
  const auto with = [&](Words more) {
    more.insert(more.begin(), words.begin(), words.end());
    return more;
  };
  const Json plain = json_of(words);
  const double ms = 3 * plain["e2e_us"].get<double>() / 1e3;
  const Json told = json_of(with({"--measured-step", std::to_string(ms) + "ms"}));
  EXPECT_NEAR(told["e2e_us"].get<double>() / 1e3, ms, 2e-4 * ms);
  EXPECT_NEAR(told["measured_step"]["us"].get<double>() / 1e3, ms, 1e-3);
  const double scale = told["measured_step"]["host_scale"];
  EXPECT_GT(scale, 1);
  const Json scaled = json_of(with({"--scale-host", std::to_string(scale)}));
  EXPECT_NEAR(scaled["e2e_us"].get<double>(), told["e2e_us"], 1e-3 * ms * 1e3);
  EXPECT_NE(told["warnings"].dump().find("measured step"), std::string::npos);
  for (const char* bad : {"5", "5 minutes", "0ms", "-1ms", "ms", "1e3us", ""}) {
    const Outcome outcome = run(with({"--measured-step", bad}));
    EXPECT_EQ(outcome.status, 2) << bad;
  }
  EXPECT_EQ(run(with({"--measured-step", "5ms", "--scale-host", "2"})).status, 2);
  EXPECT_EQ(run(with({"--measured-on", "t4"})).status, 2);
  EXPECT_EQ(run(with({"--measured-step", "5ms", "--measured-on", "no-gpu"})).status, 1);
}

}  // namespace predict_test
}  // namespace perfmodel::test_support
