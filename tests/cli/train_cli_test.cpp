// `perfpredict train` and `perfpredict eval` as their users see them, on made-up measurements.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../predictors/made_campaign.hpp"
#include "../predictors/made_kernels.hpp"
#include "program.hpp"

namespace train_cli_test {

using namespace perfmodel::test_support;

void expect_success(const Words& arguments) {
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.status, 0) << shown(arguments) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_NE(outcome.out, "");
}

// Measurements of two GPUs and a model of them, made once.
const std::string& data() {
  static const std::string file =
      written("data.csv", kAddHead + add_rows("A100-PCIE-40GB", 80) + add_rows("V100", 80));
  return file;
}
const std::string& model() {
  static const std::string file = [] {
    expect_success({"train", data(), "-o", scratch_file("model.json"), "--no-validation"});
    return scratch_file("model.json");
  }();
  return file;
}

void expect_errors(const Json& json, int rows) {
  EXPECT_EQ(json["rows"], rows);
  for (const char* key : {"mape", "median_ape", "geomean_ape", "bias"}) {
    ASSERT_TRUE(json[key].is_number()) << key;
  }
  EXPECT_GE(json["mape"], 0);
  EXPECT_GE(json["mape"], std::abs(json["bias"].get<double>()));
}

// Every element that is opened is closed, in order; returns how many there are, -1 where not.
int elements_of(const std::string& svg) {
  std::vector<std::string> open;
  int count = 0;
  for (std::size_t at = svg.find('<'); at != std::string::npos; at = svg.find('<', at + 1)) {
    const std::size_t end = svg.find('>', at);
    if (end == std::string::npos) return -1;
    const std::string tag = svg.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(0, tag.find_first_of(" \n/", 1));
    if (tag.starts_with('?') || tag.starts_with('!')) continue;
    if (tag.starts_with('/')) {
      if (open.empty() || "/" + open.back() != tag) return -1;
      open.pop_back();
      continue;
    }
    ++count;
    if (!tag.ends_with('/')) open.push_back(name);
  }
  return open.empty() ? count : -1;
}

// ---- usage -------------------------------------------------------------------------------------

TEST(TrainUsage, TheMainProgramKnowsBothCommands) {
  const Outcome help = run({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_NE(help.out.find("train"), std::string::npos);
  EXPECT_NE(help.out.find("eval"), std::string::npos);
  for (const char* command : {"train", "eval"}) {
    const Outcome own = run({command, "--help"});
    EXPECT_EQ(own.status, 0);
    EXPECT_EQ(own.err, "");
    EXPECT_NE(own.out.find("perfpredict " + std::string(command)), std::string::npos) << own.out;
  }
  EXPECT_NE(run({"train", "--help"}).out.find("--calibrate"), std::string::npos);
  EXPECT_NE(run({"eval", "--help"}).out.find("--graphs"), std::string::npos);
}

TEST(TrainUsage, MistakesExitWithTwoAndOneLine) {
  expect_error({"train"}, 2, "DATA");
  expect_error({"train", data()}, 2, "--output");
  expect_error({"train", data(), "-o", scratch_file("x.json"), "--rows", "some"}, 2, "--rows");
  expect_error({"train", data(), "-o", scratch_file("x.json"), "--seed", "one"}, 2, "--seed");
  expect_error({"train", "--calibrate", data(), "-o", scratch_file("x.json")}, 2, "--model");
  expect_error({"train", data(), "--model", "m.json", "-o", scratch_file("x.json")}, 2,
               "--calibrate");
  expect_error(
      {"train", data(), "--calibrate", data(), "--model", model(), "-o", scratch_file("x.json")}, 2,
      "DATA");
  expect_error({"train", data(), "-o", scratch_file("x.json"), "--rounds", "7"}, 2, "--rounds");
  expect_error({"eval"}, 2, "FILES");
  expect_error({"eval", data()}, 2, "--model");
  expect_error({"eval", data(), "--graphs"}, 2, "OPGRAPHS GRAPHS E2E");
  expect_error({"eval", data(), "--model", model(), "--shapes", "big"}, 2, "--shapes");
  EXPECT_FALSE(fs::exists(scratch_file("x.json")));
}

// ---- train -------------------------------------------------------------------------------------

TEST(TrainCommand, ReportsKeptOutErrorsAndPlots) {
  const std::string file = scratch_file("judged.json"), plots = scratch_file("plots");
  const Json json = json_of({"train", data(), "-o", file, "--report", plots, "--note", "made up"});
  EXPECT_EQ(json["schema"], "perfmodel-train");
  EXPECT_EQ(json["model"], "judged.json");
  ASSERT_EQ(json["models"].size(), 1u);
  const Json& fitted = json["models"][0];
  EXPECT_EQ(fitted["name"], "elementwise-learned");
  EXPECT_EQ(fitted["rows"], 160);
  EXPECT_EQ(fitted["fitted_rows"], 160);
  for (const char* kept : {"random", "grouped"}) {
    expect_errors(fitted[kept], fitted[kept]["rows"].get<int>());
    EXPECT_GT(fitted[kept]["rows"], 10);
  }
  for (const char* gpu : {"a100-pcie-40gb", "v100-sxm2-16gb"}) {
    ASSERT_TRUE(fitted["left_out"].contains(gpu)) << fitted["left_out"].dump();
    expect_errors(fitted["left_out"][gpu]["learned"], 80);
    expect_errors(fitted["left_out"][gpu]["heuristic"], 80);
    expect_errors(fitted["left_out"][gpu]["scaled_roofline"], 80);
  }
  const Json card = Json::parse(read(file))["models"][0]["card"];
  EXPECT_EQ(card["note"], "made up");
  EXPECT_EQ(card["data"], Json({"data.csv"}));
  const std::string svg = read(fs::path(plots) / "elementwise-learned.svg");
  EXPECT_TRUE(svg.find("<svg") != std::string::npos);
  EXPECT_GT(elements_of(svg), 100);
  EXPECT_EQ(std::distance(fs::directory_iterator(plots), {}), 1);
}

TEST(TrainCommand, TablesFitAHundredColumnsWithoutEscapes) {
  const Outcome outcome = run({"train", data(), "-o", scratch_file("text.json")});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");  // no progress bar in a pipe
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos);
  EXPECT_NE(outcome.out.find("shapes kept out"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("a100-pcie-40gb"), std::string::npos);
  EXPECT_NE(outcome.out.find("text.json"), std::string::npos);
  for (std::size_t at = 0; at < outcome.out.size();) {
    const std::size_t end = outcome.out.find('\n', at);
    EXPECT_LE(end - at, 100u) << outcome.out.substr(at, end - at);
    at = end + 1;
  }
}

TEST(TrainCommand, EqualRunsGiveEqualBytes) {
  const std::string again = scratch_file("again.json"), other = scratch_file("other.json");
  expect_success({"train", data(), "-o", again, "--no-validation"});
  EXPECT_EQ(read(again), read(model()));
  expect_success({"train", data(), "-o", other, "--no-validation", "--seed", "2"});
  EXPECT_NE(read(other), read(model()));
}

TEST(TrainCommand, CalibratesForANewGpu) {
  const perfmodel::test_support::Campaign slow{.seed = 4, .slowness = 1.5};
  const std::string few = written("few.csv", kAddHead + add_rows("P100", 10, slow)),
                    all = written("all.csv", kAddHead + add_rows("P100", 60, {.slowness = 1.5})),
                    file = scratch_file("p100.json");
  const Json json = json_of({"train", "--calibrate", few, "--model", model(), "-o", file});
  EXPECT_EQ(json["rows"], 10);
  EXPECT_FALSE(json.contains("judged"));
  const Json chosen = json_of({"train", "--calibrate", all, "--model", model(), "--points", "20",
                               "-o", scratch_file("chosen.json")});
  EXPECT_EQ(chosen["rows"], 20);
  EXPECT_EQ(chosen["judged"][0]["rows"], 20);
  EXPECT_LT(chosen["judged"][0]["after"].get<double>(),
            chosen["judged"][0]["before"].get<double>());
  const Json before = json_of({"eval", all, "--model", model()});
  const Json after = json_of({"eval", all, "--model", file});
  EXPECT_EQ(before["rows_of_unseen_gpus"], 60);
  EXPECT_LT(after["mape"].get<double>(), 0.5 * before["mape"].get<double>());
}

TEST(TrainCommand, FewShotStudy) {
  const std::string file =
      written("three.csv", kAddHead + add_rows("A100-PCIE-40GB", 60) + add_rows("V100", 60) +
                               add_rows("P100", 250, {.slowness = 1.5}));
  const Json json = json_of({"train", file, "--few-shot", "P100-PCIE-16GB", "--report",
                             scratch_file("study")});  // under any of its names
  EXPECT_EQ(json["gpu"], "p100-pcie-16gb");
  for (const char* sampling : {"random", "k-means"}) {
    const Json& points = json[sampling];
    ASSERT_EQ(points.size(), 7u);
    EXPECT_LT(points.back()["mape"], points.front()["mape"]);
    for (const Json& point : points) {
      EXPECT_LE(point["low"], point["mape"].get<double>() + 1e-9);
      EXPECT_LE(point["mape"], point["high"].get<double>() + 1e-9);
    }
  }
  EXPECT_GT(elements_of(read(scratch_file("study/few-shot-p100-pcie-16gb.svg"))), 20);
  expect_error({"train", file, "--few-shot", "p101"}, 1, "p100-pcie-16gb");
  expect_error({"train", file, "--few-shot", "h100"}, 1, "rows of GPU h100-sxm-80gb");
}

TEST(TrainCommand, BadInputIsOneLineAndLeavesTheOldFile) {
  const std::string target = written("kept.json", "old");
  const auto refused = [&](const std::string& text, const std::string& part) {
    const std::string file = written("bad.csv", text);
    expect_error({"train", file, "-o", target}, 1, part);
    expect_error({"eval", file, "--model", model()}, 1, part);
    EXPECT_EQ(read(target), "old");
  };
  const std::string head = "device,op,dtype,rows,cols,time_us\n";
  refused("device,op,dtype,rows,cols\nt4,add,fp32,8,8\n",
          "bad.csv:1:1: time_us: expected this column");
  refused("device,op,dtype,rows,time_us\nt4,add,fp32,8,5\n",
          "bad.csv:1:1: cols: expected this column");
  refused(head + "t4,add,fp32,8,8,nan\n", ":2:17: time_us: expected a number above 0");
  refused(head + "t4,add,fp32,8,8,5\nt4,add,fp32,-8,8,5\n", ":3:13: rows: expected an integer");
  refused(head + "t4,add,fp32,8,8,0\n", ":2:17: time_us: expected a number above 0");
  refused(head + "t4,sotfmax,fp32,8,8,5\n", "softmax");
  refused(head + "t4,add,fp23,8,8,5\n", "fp32");
  refused(head + "t400,add,fp32,8,8,5\n", "t4");
  refused("", "expected a header, found an empty file");
  refused(head, "only a header");
  refused(head + "t4,adam,fp32,8,8,5\n", "expected");
  expect_error({"train", scratch_file("none.csv"), "-o", target}, 1, "none.csv");
  expect_error({"train", data(), "-o", target, "--family", "gem"}, 1, "gemm");
  expect_error({"train", data(), "-o", target, "--family", "gemm"}, 1, "expected rows");
  EXPECT_EQ(read(target), "old");
  // Told before all is fitted.
  const std::string nowhere = scratch_file("no/such.json");
  expect_error({"train", data(), "-o", nowhere}, 1, nowhere);
  expect_error({"train", data(), "-o", data() + "/"}, 1, data());
  EXPECT_FALSE(fs::exists(scratch_file("no")));
}

// ---- a campaign of one GPU ---------------------------------------------------------------------

/// Tables as `kernels_bench` leaves them, made up.
const std::string& campaign() {
  static const std::string folder = [] {
    const fs::path kernels = scratch() / "campaign";
    fs::create_directories(kernels);
    MadeKernels made("h100-sxm-80gb");
    std::ofstream(kernels / "memory.csv") << made.table("memory", 60);
    std::ofstream(kernels / "bmm.csv") << made.table("bmm", 60);
    std::ofstream(kernels / "peaks.csv") << "no table of kernels\n";
    std::ofstream(kernels / "notes.txt") << "none either\n";
    return kernels.string();
  }();
  return folder;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(TrainFolder, WritesOneFilePerFamilyAndOneTable) {
  const std::string out = scratch_file("models/h100-sxm-80gb/");  // is made
  const Outcome outcome = run({"train", campaign(), "-o", out});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const std::vector<std::string> files = {"copy-uint8.json", "gemm-bfloat16.json",
                                          "set-uint8.json"};
  EXPECT_EQ(names_in(out), files);
  for (const std::string& file : files) {
    EXPECT_NE(outcome.out.find(file + " "), std::string::npos) << outcome.out;
  }
  EXPECT_NE(outcome.out.find("measured on one GPU"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("geometric mean"), std::string::npos);
  const Json card = Json::parse(read(fs::path(out) / "set-uint8.json"))["models"][0]["card"];
  EXPECT_EQ(card["rows"]["fitted"], 60);
  EXPECT_LT(card["errors"]["random_rows"]["geomean_ape"], 0.05);

  // In data/models they are that GPU's own.
  const fs::path made_data = scratch() / "campaign_data",
                 data = fs::path(PERFMODEL_SOURCE_DIR) / "data";
  fs::create_directories(made_data);
  fs::create_directory_symlink(data / "gpus", made_data / "gpus");
  fs::create_directory_symlink(scratch() / "models", made_data / "models");
  ::setenv("PERFMODEL_DATA", made_data.c_str(), 1);
  const std::string kernels = written("copies.csv", "op,bytes\nmemset,1e6\nmemcpy,1e6\n");
  const Json own = json_of({"kernels", kernels, "--gpu", "h100-sxm-80gb"});
  const Json other = json_of({"kernels", kernels, "--gpu", "h100-pcie-80gb"});
  ::unsetenv("PERFMODEL_DATA");
  EXPECT_EQ(own["kernels"][0]["model"], "set-learned");
  EXPECT_EQ(own["kernels"][1]["model"], "copy-learned");
  EXPECT_EQ(other["kernels"][0]["model"], "set-heuristic");
}

TEST(TrainFolder, SaysWhatWasNotFitted) {
  const std::string few = written("few_halves.csv", [] {
    std::string rows = kAddHead + add_rows("t4", 60, {.seed = 2});
    std::string half = add_rows("t4", 20, {.seed = 3});
    for (std::size_t at; (at = half.find("fp32")) != std::string::npos;) {
      half.replace(at, 4, "fp16");
    }
    return rows + half + "t4,adam,fp32,64,64,train,1,9\n";
  }());
  const std::string out = scratch_file("few_models");
  fs::create_directories(out);  // a folder without a slash at its end
  const Json json = json_of({"train", few, "-o", out, "--no-validation"});
  EXPECT_EQ(names_in(out), std::vector<std::string>{"elementwise-float32.json"});
  EXPECT_EQ(json["model"], "few_models");
  EXPECT_EQ(json["models"][0]["file"], "elementwise-float32.json");
  EXPECT_EQ(json["models"][0]["gpus"], 1);
  EXPECT_EQ(json["skipped"][0]["name"], "elementwise-float16");
  EXPECT_EQ(json["skipped"][0]["rows"], 20);
  EXPECT_EQ(json["other_families"]["optimizer"], 1);
  const Outcome text = run({"train", few, "-o", out + "/", "--no-validation"});
  EXPECT_NE(text.out.find("elementwise-float16: not fitted, fewer than 50 rows (20 rows)"),
            std::string::npos)
      << text.out;
  EXPECT_NE(text.out.find("optimizer: not fitted, no model exists for this family (1 row)"),
            std::string::npos);
}

TEST(TrainFolder, BadFoldersAreOneLine) {
  const std::string empty = scratch_file("empty"), out = scratch_file("nothing/");
  fs::create_directories(empty);
  expect_error({"train", empty, "-o", out}, 1, "expected tables of kernels");
  EXPECT_FALSE(fs::exists(out));
  std::ofstream(fs::path(empty) / "gemm.csv") << "op\n";
  std::ofstream(fs::path(empty) / "gemm.csv.gz") << "op\n";
  expect_error({"train", empty, "-o", out}, 1, "expected each table once");
  const std::string few = written("too_few.csv", kAddHead + add_rows("t4", 20));
  expect_error({"train", few, "-o", out}, 1, "expected at least 50 rows");
  EXPECT_TRUE(names_in(out).empty());
}

// ---- model files -------------------------------------------------------------------------------

TEST(ModelFilesOfUsers, BrokenOnesAreOneLine) {
  const std::string text = read(model());
  Json newer = Json::parse(text), unknown = newer, cut = newer;
  newer["version"] = 4;
  unknown["models"][0]["features"][0] = "log2_of_something";
  const std::string kernels = written("q.csv", "op,rows,cols,dtype\nadd,512,512,fp32\n");
  const std::string target = written("kept2.json", "old");
  for (const auto& [content, part] : std::vector<std::pair<std::string, std::string>>{
           {newer.dump(), ": /version: expected version 3, found 4"},
           {unknown.dump(), "/models/0/features: expected the features of this program's version"},
           {text.substr(0, text.size() / 2), ": expected a whole JSON document"},
           {"", "broken.json:1:1: expected a whole JSON document"}}) {
    const std::string file = written("broken.json", content);
    expect_error({"eval", data(), "--model", file}, 1, part);
    expect_error({"kernels", kernels, "--gpu", "t4", "--models", file}, 1, part);
    expect_error({"train", "--calibrate", data(), "--model", file, "-o", target}, 1, part);
    EXPECT_EQ(read(target), "old");
  }
  expect_error({"eval", data(), "--model", scratch_file("none.json")}, 1, "none.json");
}

TEST(ModelFilesOfUsers, PriceKernels) {
  const std::string kernels =
      written("queries.csv", "op,rows,cols,dtype\nadd,4096,1024,fp32\nsoftmax,4096,1024,fp32\n");
  const Json learned = json_of({"kernels", kernels, "--gpu", "a100-sxm-80gb", "--models", model()});
  ASSERT_EQ(learned["kernels"].size(), 2u);
  EXPECT_EQ(learned["kernels"][0]["model"], "elementwise-learned");
  EXPECT_EQ(learned["kernels"][0]["in_range"], true);
  EXPECT_LE(learned["kernels"][0]["low_us"], learned["kernels"][0]["time_us"]);
  EXPECT_GE(learned["kernels"][0]["high_us"], learned["kernels"][0]["time_us"]);
  const Json heuristic =
      json_of({"kernels", kernels, "--gpu", "a100-sxm-80gb", "--models", "heuristic"});
  EXPECT_NE(learned["kernels"][0]["time_us"], heuristic["kernels"][0]["time_us"]);
  EXPECT_EQ(learned["kernels"][1], heuristic["kernels"][1]);  // no model of that family
}

// ---- eval --------------------------------------------------------------------------------------

TEST(EvalCommand, GivesErrorsByDeviceAndOp) {
  std::string text =
      kAddHead + add_rows("V100", 40, {.seed = 8}) + add_rows("T4", 30, {.seed = 9}, "llm,0");
  text += "t4,transpose,fp32,64,64,train,0,9\n";
  const std::string file = written("fresh.csv", text);
  const Json json = json_of({"eval", file, "--model", model()});
  EXPECT_EQ(json["schema"], "perfmodel-eval");
  EXPECT_EQ(json["model"], "model.json");
  expect_errors(json, 70);
  EXPECT_EQ(json["unknown_rows"], 1);
  EXPECT_EQ(json["rows_of_unseen_gpus"], 30);
  EXPECT_TRUE(json["coverage"].is_number());
  EXPECT_TRUE(json["heuristic_mape"].is_number());
  EXPECT_TRUE(json["roofline_mape"].is_number());
  ASSERT_EQ(json["by_device"].size(), 2u);
  expect_errors(json["by_device"]["v100-sxm2-16gb"], 40);
  expect_errors(json["by_device"]["t4"], 30);
  EXPECT_LT(json["by_device"]["v100-sxm2-16gb"]["mape"], 0.05);
  ASSERT_EQ(json["by_op"].size(), 1u);
  expect_errors(json["by_op"]["add"], 70);
  EXPECT_EQ(json_of({"eval", file, "--model", model(), "--shapes", "llm"})["rows"], 30);
  EXPECT_EQ(json_of({"eval", file, "--model", model(), "--shapes", "train"})["rows"], 40);
  EXPECT_EQ(json_of({"eval", file, file, "--model", model()})["rows"], 140);
  expect_error({"eval", file, "--model", model(), "--min-us", "1e9"}, 1, "expected measured");
  const Outcome table = run({"eval", file, "--model", model()});
  EXPECT_EQ(table.status, 0);
  EXPECT_NE(table.out.find("v100-sxm2-16gb"), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("30 rows of GPUs that the model was not fitted on"), std::string::npos);
}

TEST(EvalCommand, JudgesWholeModels) {
  const std::string ops = written(
      "opgraphs.csv",
      "graph,node_idx,node,kind,stage,fused,repeat,op,b,m,n,k,rows,cols,in_elems,out_elems,bytes\n"
      "g,1,a,x,fw,0,1,add,,,,,4096,1024,8388608,4194304,\n"
      "g,2,b,x,fw,0,2,softmax,,,,,4096,1024,4194304,4194304,\n"
      "g,2,b,x,bw,0,2,mem,,,,,,,,,33554432\n"
      "h,1,a,x,fw,0,1,mem,,,,,,,,,900000000\n");
  const std::string graphs =
      written("graphs.csv",
              "graph,model,phase,seq,batch,option,n_layer,num_nodes,aggregate\n"
              "g,m,train,8,2,none,1,2,sum\n"
              "h,m,inf,8,2,none,1,1,sum\n");
  const std::string head = "device,model,phase,option,graph,measured_ms\n";
  const std::string e2e = written("e2e.csv", head +
                                                 "T4,m,train,none,g,0.6\nV100,m,inf,none,h,1\n"
                                                 "T4,m,inf,none,h,3\n");
  const Json json = json_of({"eval", "--graphs", ops, graphs, e2e, "--models", "roofline"});
  EXPECT_EQ(json["schema"], "perfmodel-eval-graphs");
  EXPECT_EQ(json["rows"], 3);
  ASSERT_EQ(json["graphs"].size(), 3u);
  for (const Json& row : json["graphs"]) {
    const double measured = row["measured_ms"], predicted = row["predicted_ms"];
    EXPECT_NEAR(row["error"], predicted / measured - 1, 1e-6);
    // 0.9 GB at 900 GB/s and at 320 GB/s.
    if (row["graph"] != "h") continue;
    EXPECT_NEAR(predicted, row["gpu"] == "t4" ? 2.8125 : 1, 0.01);
  }
  EXPECT_EQ(json["by_device"]["t4"]["rows"], 2);
  EXPECT_EQ(json["by_device"]["v100-sxm2-16gb"]["rows"], 1);
  // Five kernels a run: one add, two softmaxes, two moves.
  const Json gaps = json_of(
      {"eval", "--graphs", ops, graphs, e2e, "--models", "roofline", "--kernel-gap", "1000"});
  EXPECT_EQ(gaps["kernel_gap_us"], 1000);
  const double without = json["graphs"][0]["predicted_ms"],
               with = gaps["graphs"][0]["predicted_ms"];
  EXPECT_EQ(json["graphs"][0]["graph"], "g");
  EXPECT_NEAR(with - without, 5, 1e-6);
  expect_error({"eval", ops, "--model", model(), "--kernel-gap", "1"}, 2, "--kernel-gap");
  // Elementwise kernels by the model file, the rest by the heuristic.
  const Json own = json_of({"eval", "--graphs", ops, graphs, e2e, "--model", model()});
  EXPECT_NE(own["graphs"][0]["predicted_ms"], own["graphs"][0]["heuristic_ms"]);
  const Outcome table = run({"eval", "--graphs", ops, graphs, e2e, "--model", model()});
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_NE(table.out.find("v100-sxm2-16gb"), std::string::npos);
  expect_error(
      {"eval", "--graphs", ops, graphs, written("bad_e2e.csv", head + "T4,m,inf,none,i,2\n")}, 1,
      "\"i\"");
  expect_error({"eval", "--graphs", ops, graphs, scratch_file("none.csv")}, 1, "none.csv");
}

}  // namespace train_cli_test
