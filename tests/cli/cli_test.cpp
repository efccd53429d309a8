// The program perfpredict as its users see it: exit codes, what is on which stream, keys, files.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "program.hpp"

namespace cli_test {

using namespace perfmodel::test_support;

// stderr is one line that holds `part`, stdout is empty.
void expect_complaint(const Words& arguments, int status, const std::string& part) {
  SCOPED_TRACE(shown(arguments));
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.status, status);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_TRUE(outcome.err.ends_with('\n'));
  EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
}

// Standard output is one JSON document with schema and version, standard error is empty.
Json json_of(Words arguments) {
  arguments.push_back("--json");
  SCOPED_TRACE(shown(arguments));
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err, "");
  Json document = Json::parse(outcome.out, nullptr, false);
  EXPECT_FALSE(document.is_discarded()) << outcome.out.substr(0, 200);
  if (document.is_discarded()) return Json::object();
  EXPECT_TRUE(document["schema"].is_string());
  EXPECT_TRUE(document["version"].is_number_integer());
  EXPECT_TRUE(document["minor_version"].is_number_integer());
  EXPECT_TRUE(document["program"]["version"].is_string());
  EXPECT_TRUE(document["program"]["git"].is_string());
  return document;
}

std::string sample(const std::string& name) {
  return (fs::path(PERFMODEL_SAMPLES) / name).string();
}

const Json& expected_samples() {
  static const Json files =
      Json::parse(read(fs::path(PERFMODEL_SAMPLES) / "expected.json"))["files"];
  return files;
}

// A table learned from a made-up run, and a built graph: made once.
const std::string& table() {
  static const std::string file = [] {
    const std::string made = (scratch() / "table.json").string();
    const Outcome outcome = run({"overheads", sample("kineto_plain_2023.json"), "--graph",
                                 sample("et_plain_2023.json"), "-o", made});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return made;
  }();
  return file;
}

const std::string& built_graph() {
  static const std::string file = [] {
    const std::string made = (scratch() / "ddp.json").string();
    const Outcome outcome = run({"build", "dlrm", "--preset", "ddp", "--batch", "64", "-o", made});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return made;
  }();
  return file;
}

Words predict_words(const std::string& graph) {
  return {"predict", graph, "--gpu", "v100-sxm2-16gb", "--overheads", table()};
}

double sum_of(const Json& list, const char* key) {
  double sum = 0;
  for (const Json& entry : list) sum += entry.at(key).get<double>();
  return sum;
}

bool warns(const Json& document, const std::string& part) {
  return std::any_of(document["warnings"].begin(), document["warnings"].end(), [&](const Json& w) {
    return w.get<std::string>().find(part) != std::string::npos;
  });
}

// A rank of two: host work, then an all-reduce that ends at 1712 on both, and a call that waits.
std::string rank_trace(int rank, int work_us, int world = 2) {
  const auto event = [](const char* category, const char* name, int start, int end, Json args) {
    return Json{{"ph", "X"}, {"cat", category},    {"name", name},       {"pid", 1},
                {"tid", 1},  {"ts", 1000 + start}, {"dur", end - start}, {"args", args}};
  };
  const Json trace = {
      {"distributedInfo", {{"rank", rank}, {"world_size", world}}},
      {"traceEvents",
       {event("user_annotation", "ProfilerStep#1", 0, 1716, Json::object()),
        event("cpu_op", "c10d::allreduce_", 0, work_us + 10, Json::object()),
        event("cuda_runtime", "cudaLaunchKernel", work_us, work_us + 10, {{"correlation", 1}}),
        event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", work_us + 12, 1712,
              {{"correlation", 1}, {"stream", 7}, {"device", 0}}),
        event("cuda_runtime", "cudaStreamSynchronize", work_us + 10, 1716, {{"correlation", 2}})}}};
  const fs::path file = scratch() / ("replay_rank" + std::to_string(rank) + ".json");
  std::ofstream(file) << trace.dump();
  return file.string();
}

// ---- usage -------------------------------------------------------------------------------------

TEST(Usage, HelpAndVersionSucceedOnStandardOutput) {
  for (const Words& words : {Words{"--help"},
                             {"--version"},
                             {"predict", "--help"},
                             {"trace", "-h"},
                             {"overheads", "--help"},
                             {"gpus", "--help"},
                             {"build", "--help"},
                             {"build", "dlrm", "--help"}}) {
    SCOPED_TRACE(shown(words));
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.err, "");
    EXPECT_NE(outcome.out, "");
  }
}

TEST(Usage, MistakesExitWithTwoAndOneLine) {
  const std::string trace = sample("kineto_plain_2023.json");
  expect_complaint({}, 2, "subcommand");
  expect_complaint({"foretell"}, 2, "unknown command: foretell, expected one of predict, ");
  expect_complaint({"predct", "g.json", "--gpu", "t4"}, 2,
                   "unknown command: predct, the nearest is predict");
  expect_complaint({"predict"}, 2, "required");
  expect_complaint({"predict", "g.json"}, 2, "--gpu");
  expect_complaint({"predict", "--gpu", "t4"}, 2, "GRAPH");
  expect_complaint({"predict", "g.json", "--gpus", "t4"}, 2, "--gpus");
  expect_complaint({"predict", "g.json", "--gpu", "t4", "--use", "comm"}, 2, "--kernel-times");
  expect_complaint({"predict", "g.json", "--gpu", "t4", "--models", "oracle"}, 2, "--models");
  expect_complaint({"predict", "g.json", "--gpu", "t4", "--world", "0"}, 2, "--world");
  expect_complaint({"trace", trace, "--iterations", "2"}, 2, "A:B");
  expect_complaint({"trace", trace, "--iterations", "2:2"}, 2, "A:B");
  expect_complaint({"trace", trace, "--iterations", "-1:2"}, 2, "A:B");
  expect_complaint({"overheads", trace, "--method", "best"}, 2, "--method");
  expect_complaint({"overheads", trace, "--profiler-cost", "nan"}, 2, "--profiler-cost");
  expect_complaint({"build"}, 2, "subcommand");
  expect_complaint({"build", "dlrm", "--preset", "ddp"}, 2, "--output");
  expect_complaint({"build", "dlrm", "-o", "g.json"}, 2, "--preset");
  expect_complaint({"build", "dlrm", "--preset", "ddp", "--top", "8-x", "-o", "g.json"}, 2, "8-x");
}

TEST(Usage, OneFileForAllOrOnePerGraph) {
  const std::string& g = built_graph();
  expect_complaint({"predict", g, g, g, "--gpu", "t4", "--overheads", table(), table()}, 2,
                   "one per graph (3)");
  const std::string trace = sample("kineto_plain_2023.json");
  expect_complaint({"overheads", trace, trace, "--graph", sample("et_plain_2023.json")}, 2,
                   "one graph per trace");
}

TEST(Usage, FlagsMayStandBeforeTheFiles) {
  const Json after = json_of(predict_words(built_graph()));
  const Json before =
      json_of({"predict", "--overheads", table(), built_graph(), "--gpu", "v100-sxm2-16gb"});
  EXPECT_EQ(before, after);
}

// ---- bad input ---------------------------------------------------------------------------------

TEST(BadInput, EveryBrokenSampleIsRefusedWithItsPlace) {
  for (const auto& [name, figures] : expected_samples().items()) {
    if (figures["kind"] != "bad") continue;
    const std::string message = figures["message"];
    if (figures["reads_as"] != "kineto") {
      Words words = predict_words(sample(name));
      expect_complaint(words, 1, message);
      expect_complaint(words, 1, name);
    }
    if (figures["reads_as"] != "execution_trace") {
      expect_complaint({"trace", sample(name)}, 1, message);
      expect_complaint({"overheads", sample(name)}, 1, message);
    }
  }
}

TEST(BadInput, FilesOfAnotherKindAreToldByName) {
  const std::string trace = sample("kineto_plain_2023.json"), graph = sample("et_plain_2023.json");
  expect_complaint({"memory", trace}, 1,
                   "expected an execution graph, or records of a GPU's memory");
  expect_complaint({"trace", graph}, 1, "found an execution graph");
  expect_complaint({"overheads", graph}, 1, "found an execution graph");
  expect_complaint({"overheads", trace, "--graph", trace}, 1, "expected an execution graph");
  expect_complaint({"predict", graph, "--gpu", "t4", "--overheads", trace}, 1,
                   "perfmodel-overheads");
  expect_complaint(predict_words(scratch().string()), 1, "found a directory");
  expect_complaint(predict_words("no-such.json"), 1, "no-such.json: expected a readable file");
  expect_complaint({"trace", scratch().string()}, 1, "found a directory");
  expect_complaint({"predict", graph, "--gpu", "t4", "--overheads", scratch().string()}, 1,
                   "found a directory");
  expect_complaint({"gpus", table()}, 1, "perfmodel-gpu");
}

TEST(BadInput, UnknownGpusAreAnsweredWithNearNames) {
  expect_complaint({"gpus", "v100-sxm2-16"}, 1, "v100-sxm2-16gb");
  expect_complaint({"predict", built_graph(), "--gpu", "a100-sxm-40", "--overheads", table()}, 1,
                   "a100-sxm-40gb");
  expect_complaint({"predict", built_graph(), "--gpu", "rtx9"}, 1, "docs/extending.md");
}

TEST(BadInput, RequestsThatTheFilesCannotAnswer) {
  const std::string trace = sample("kineto_plain_2023.json");
  expect_complaint({"trace", trace, "--iterations", "0:9"}, 1, "expected iterations within 0:2");
  expect_complaint({"overheads", trace, "--iterations", "5:9"}, 1, "expected iterations within");
  Words words = predict_words(built_graph());
  words.insert(words.end(), {"--iterations", "0:2"});
  expect_complaint(words, 1, "expected iterations within 0:1");
  words = predict_words(built_graph());
  words.insert(words.end(), {"--kernel-times", trace});
  expect_complaint(words, 1, "same program");
  for (const auto& [name, figures] : expected_samples().items()) {
    if (figures.contains("overheads_error")) {
      expect_complaint({"overheads", sample(name)}, 1, "device activity");
    }
  }
  expect_complaint({"build", "dlrm", "--preset", "ddp", "--batch", "0", "-o",
                    (scratch() / "none.json").string()},
                   1, "batch");
  EXPECT_FALSE(fs::exists(scratch() / "none.json"));
}

TEST(BadInput, AModelFileOfAnotherKindIsToldByName) {
  Words words = predict_words(built_graph());
  words.insert(words.end(), {"--models", sample("kineto_plain_2023.json")});
  expect_complaint(words, 1, "kineto_plain_2023.json:1:1: /schema: expected");
}

TEST(BadInput, DataFolderAndOutputsThatDoNotExist) {
  const Outcome no_data = run({"gpus"}, "PERFMODEL_DATA=/no/such/folder");
  EXPECT_EQ(no_data.status, 1);
  EXPECT_NE(no_data.err.find("PERFMODEL_DATA"), std::string::npos);
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const Outcome full = run({"gpus"}, "", ">/dev/full");
  EXPECT_EQ(full.status, 1);
  EXPECT_NE(full.err.find("standard output"), std::string::npos);
}

// ---- files -------------------------------------------------------------------------------------

TEST(Files, NothingIsLeftBehindWhenAnOutputCannotBeWritten) {
  const fs::path folder = scratch() / "outputs";
  fs::create_directories(folder / "taken.json");  // a folder where the file should go
  const std::string taken = (folder / "taken.json").string();
  const std::string nowhere = (folder / "no" / "such.json").string();
  const std::string trace = sample("kineto_plain_2023.json");
  for (const std::string& target : {taken, nowhere}) {
    expect_complaint({"overheads", trace, "-o", target}, 1, target);
    expect_complaint({"build", "dlrm", "--preset", "ddp", "-o", target}, 1, target);
    Words words = predict_words(built_graph());
    words.insert(words.end(), {"--timeline", target});
    expect_complaint(words, 1, target);
  }
  EXPECT_EQ(std::distance(fs::recursive_directory_iterator(folder), {}), 1);
}

TEST(Files, AnOldFileSurvivesAFailedRun) {
  const fs::path file = scratch() / "old.json";
  std::ofstream(file) << "old";
  expect_complaint({"overheads", sample("kineto_no_gpu.json"), "-o", file.string()}, 1, "device");
  EXPECT_EQ(read(file), "old");
}

TEST(Files, OverheadsOnStandardOutputAreThoseOfTheFile) {
  const std::string file = (scratch() / "same.json").string();
  const Outcome outcome =
      run({"overheads", sample("kineto_plain_2023.json"), "-o", file, "--json"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, read(file));
}

TEST(Files, EqualBuildsGiveEqualBytes) {
  const std::string again = (scratch() / "again.json").string();
  EXPECT_EQ(run({"build", "dlrm", "--preset", "ddp", "--batch", "64", "-o", again}).status, 0);
  EXPECT_EQ(read(again), read(built_graph()));
  EXPECT_NE(read(again).find("perfpredict build dlrm --preset ddp --batch 64"), std::string::npos);
}

// ---- trace -------------------------------------------------------------------------------------

TEST(TraceCommand, CountsWhatTheSamplesHold) {
  std::size_t checked = 0;
  for (const auto& [name, figures] : expected_samples().items()) {
    if (figures["kind"] != "kineto") continue;
    SCOPED_TRACE(name);
    const Json report = json_of({"trace", sample(name)});
    EXPECT_EQ(report["events"], figures["events"]);
    EXPECT_EQ(report["kernels_total"], figures["kernels_total"]);
    EXPECT_EQ(report["memcpy_total"], figures["memcpy"]);
    EXPECT_EQ(report["memset_total"], figures["memset"]);
    EXPECT_EQ(report["gpu_without_launch"], figures["gpu_without_launch"]);
    EXPECT_NEAR(report["gpu_busy_us"], figures["gpu_busy_us"], 0.01);
    EXPECT_TRUE(report["gpu"].is_string());
    EXPECT_EQ(report["streams"], report["stream_list"].size());
    double kernels = sum_of(report["top_kernels"], "count");
    EXPECT_EQ(kernels, report["kernels_total"]);
    ASSERT_EQ(report["iterations"].size(), figures["iterations"].size());
    for (std::size_t i = 0; i < report["iterations"].size(); ++i) {
      const Json &own = report["iterations"][i], &other = figures["iterations"][i];
      EXPECT_EQ(own["name"], other["name"]);
      EXPECT_EQ(own["kernels"], other["kernels"]);
      EXPECT_NEAR(own["wall_us"], other["wall_us"], 0.01);
      EXPECT_NEAR(own["gpu_busy_us"], other["gpu_busy_us"], 0.01);
    }
    EXPECT_EQ(run({"trace", sample(name)}).status, 0);
    ++checked;
  }
  EXPECT_GT(checked, 20U);
}

TEST(TraceCommand, AWindowHoldsOnlyItsIterations) {
  const Json all = json_of({"trace", sample("kineto_plain_2023.json")});
  const Json second = json_of({"trace", sample("kineto_plain_2023.json"), "--iterations", "1:2"});
  ASSERT_EQ(second["iterations"].size(), 1U);
  EXPECT_EQ(second["iterations"][0], all["iterations"][1]);
  EXPECT_EQ(second["kernels_total"], second["iterations"][0]["kernels"]);
  EXPECT_EQ(second["events"], all["events"]);
}

TEST(TraceCommand, SalvageKeepsWhatIsComplete) {
  const std::string broken = sample("bad_cut_off_between.json");
  expect_complaint({"trace", broken}, 1, "expected");
  const Json report = json_of({"trace", broken, "--salvage"});
  EXPECT_FALSE(report["warnings"].empty());
}

// ---- overheads ---------------------------------------------------------------------------------

TEST(OverheadsCommand, TablesHaveTheContractedKeys) {
  for (const std::string method : {"context", "raw", "lin"}) {
    SCOPED_TRACE(method);
    const Json made = json_of({"overheads", sample("kineto_plain_2023.json"), "--graph",
                               sample("et_plain_2023.json"), "--method", method});
    EXPECT_EQ(made["method"], method);
    for (const char* key : {"median_us", "mean_us", "std_us", "count"}) {
      EXPECT_TRUE(made["t1"].contains(key)) << key;
    }
    for (const char* key : {"t2", "t3", "t4", "t5", "tx", "ops"}) {
      EXPECT_TRUE(made[key].is_object()) << key;
    }
    EXPECT_TRUE(made["t4"].contains("cudaLaunchKernel"));
  }
}

TEST(OverheadsCommand, TheCommandNamesFilesWithoutFolders) {
  const Json made =
      json_of({"overheads", sample("kineto_plain_2023.json"), sample("kineto_optimizer_2023.json"),
               "--graph", "-", sample("et_optimizer_2023.json"), "--profiler-cost", "0.5"});
  EXPECT_EQ(made["command"],
            "perfpredict overheads kineto_plain_2023.json kineto_optimizer_2023.json --graph - "
            "et_optimizer_2023.json --method context --profiler-cost 0.5");
  EXPECT_EQ(made["sources"].size(), 2U);
}

TEST(OverheadsCommand, ScalingToItselfChangesNothingAndIsSaid) {
  const Words words = {"overheads", sample("kineto_plain_2023.json"), "--graph",
                       sample("et_plain_2023.json")};
  Words scaled_words = words;
  scaled_words.insert(scaled_words.end(), {"--scale-to", table()});
  const Json plain = json_of(words), scaled = json_of(scaled_words);
  EXPECT_NEAR(scaled["t1"]["mean_us"], plain["t1"]["mean_us"], 1e-3);
  EXPECT_TRUE(warns(scaled, "table.json"));
}

// ---- gpus --------------------------------------------------------------------------------------

TEST(GpusCommand, ListsAllAndShowsOneUnderAnyOfItsNames) {
  const Json all = json_of({"gpus"});
  EXPECT_GE(all["gpus"].size(), 30U);
  const Json one = json_of({"gpus", "Tesla V100-SXM2-16GB"});
  ASSERT_EQ(one["gpus"].size(), 1U);
  EXPECT_EQ(one["gpus"][0]["name"], "v100-sxm2-16gb");
  EXPECT_FALSE(one["gpus"][0]["sources"].empty());
  EXPECT_NE(run({"gpus", "t4"}).out.find("T4"), std::string::npos);
}

TEST(GpusCommand, SaysWhatWasMeasuredOnEach) {
  const auto kernels = [](const char* gpu) { return json_of({"gpus", gpu})["gpus"][0]["kernels"]; };
  EXPECT_EQ(kernels("h100-sxm-80gb")["gemm-bfloat16"], "board");
  EXPECT_EQ(kernels("h200-sxm-141gb")["gemm-bfloat16"], "chip");
  EXPECT_EQ(kernels("h100-pcie-80gb")["gemm-bfloat16"], "architecture");
  EXPECT_EQ(kernels("l40s")["gemm-bfloat16"], "none");
  EXPECT_EQ(kernels("v100-sxm2-32gb")["embedding_forward"], "board");  // the heuristic's
  const std::string table = run({"gpus", "--full"}).out;
  EXPECT_NE(table.find("gemm-bfloat16"), std::string::npos);
  for (const char* letter : {" M ", " C ", " A ", " - "}) {
    EXPECT_NE(table.find(letter), std::string::npos) << letter;
  }
}

TEST(GpusCommand, AClockThatNobodyStatesIsNotZero) {
  EXPECT_TRUE(json_of({"gpus", "h200-sxm-141gb"})["gpus"][0]["base_clock_mhz"].is_null());
  const std::string text = run({"gpus", "h200-sxm-141gb"}).out;
  EXPECT_NE(text.find("- base, 1980 MHz boost"), std::string::npos) << text;
}

// ---- kernels -----------------------------------------------------------------------------------

std::string written(const std::string& name, const std::string& text) {
  const fs::path file = scratch() / name;
  std::ofstream(file, std::ios::binary) << text;
  return file.string();
}

TEST(KernelsCommand, PricesEachRowOnItsGpu) {
  const std::string file = written("queries.csv",
                                   "id,device,op,dtype,m,n,k,rows,cols\n"
                                   "\"a,b\",V100,linear,fp16,512,512,512,,\n"
                                   "c,mi210,softmax,fp32,,,,4096,1024\n");
  const Outcome outcome = run({"kernels", file, "--models", "roofline"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err, "");
  // Reads and writes of 4096 x 1024 x 4 B at 1638 GB/s: 20.5 us.
  EXPECT_TRUE(
      outcome.out.starts_with("id,time_us,model,bound,in_range,low_us,high_us,knowledge\n\"a,b\","))
      << outcome.out;
  EXPECT_NE(outcome.out.find("\nc,20.4"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find(",roofline,memory,1,"), std::string::npos) << outcome.out;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 3);

  const Json document = json_of({"kernels", file});
  EXPECT_EQ(document["schema"], "perfmodel-kernels");
  EXPECT_EQ(document["gpus"], Json({"v100-sxm2-16gb", "mi210"}));
  ASSERT_EQ(document["kernels"].size(), 2u);
  for (const Json& kernel : document["kernels"]) {
    EXPECT_GT(kernel["time_us"], 0);
    EXPECT_LE(kernel["low_us"], kernel["time_us"]);
    EXPECT_GE(kernel["high_us"], kernel["time_us"]);
  }
}

TEST(KernelsCommand, WritesAWholeFileOrNone) {
  const std::string file = written("queries2.csv", "m,n,k\n64,64,64\n8,8,8\n");
  const Words words = {"kernels", file, "--gpu", "t4", "--dtype", "fp32"};
  Words to_file = words;
  const std::string target = (scratch() / "prices.csv").string();
  to_file.insert(to_file.end(), {"-o", target});
  const Outcome outcome = run(to_file);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(read(target), run(words).out);
  std::ofstream(target) << "old";
  expect_complaint({"kernels", written("queries3.csv", "m,n,k\n64,64,-1\n"), "--gpu", "t4",
                    "--dtype", "fp32", "-o", target},
                   1, ":2:7: k: expected an integer above 0");
  EXPECT_EQ(read(target), "old");
}

TEST(KernelsCommand, TheGpuFlagWinsAndSaysSo) {
  const std::string file = written("queries4.csv", "gpu,m,n,k,dtype\nH20,64,64,64,fp8\n");
  const Outcome outcome = run({"kernels", file, "--gpu", "h100"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.err.find("h100-sxm-80gb: the column gpu is not read"), std::string::npos)
      << outcome.err;
}

TEST(KernelsCommand, RefusesSizesWithoutAFiniteTime) {
  const std::string file =
      written("endless.csv", "op,elements,dtype\nrelu,64,fp32\nrelu,1e308,fp32\n");
  expect_complaint({"kernels", file, "--gpu", "t4"}, 1,
                   "endless.csv:3:1: expected sizes of a kernel whose time is a number");
}

TEST(KernelsCommand, FusedRowsAfterTheFirstAreFree) {
  const std::string file =
      written("ops.csv",
              "graph,node_idx,stage,fused,repeat,op,rows,cols,in_elems,out_elems,dtype\n"
              "g,1,fw,1,1,add,64,64,8192,4096,fp32\n"
              "g,1,fw,1,1,softmax,64,64,8192,4096,fp32\n");
  const Outcome outcome = run({"kernels", file, "--gpu", "t4"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.out.find("\n2,0.000,fused,fused,1,0.000,0.000,fused\n"), std::string::npos)
      << outcome.out;
}

TEST(KernelsCommand, MistakesAreOneLine) {
  const std::string bare = written("bare.csv", "m,n,k\n64,64,64\n");
  expect_complaint({"kernels"}, 2, "QUERIES");
  expect_complaint({"kernels", bare, "--models", "none"}, 2, "--models");
  expect_complaint({"kernels", bare, "--dtype", "fp32"}, 1, ":2:1: device: expected a GPU");
  expect_complaint({"kernels", bare, "--gpu", "t4"}, 1, ":1:1: dtype: expected this column");
  expect_complaint({"kernels", bare, "--gpu", "t400", "--dtype", "fp32"}, 1, "t4");
  expect_complaint({"kernels", written("none.csv", ""), "--gpu", "t4"}, 1, "an empty file");
}

// ---- predict -----------------------------------------------------------------------------------

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
  EXPECT_THAT(text, ::testing::HasSubstr("- 1 kernel lies outside the range "));
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
  expect_complaint(windowed, 1, "expected iterations within 0:2");
  words.insert(words.end(), {"--kernel-iterations", "0:1", "--iterations", "1:2"});
  expect_complaint(words, 1, "expected iterations within 0:1");
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
  const Json t4 = json_of({"gpus", "t4"});
  fs::create_directories(data / "gpus");
  fs::path source;  // the folder that the program finds by itself
  const std::string environment = "PERFMODEL_DATA='" + data.string() + "'";
#ifdef PERFMODEL_SOURCE_DIR
  source = fs::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus";
#endif
  if (source.empty()) GTEST_SKIP() << "PERFMODEL_SOURCE_DIR is not defined";
  fs::create_directory_symlink(source.parent_path() / "architectures", data / "architectures");
  for (const char* name : {"t4.json", "l4.json"}) {
    fs::copy(source / name, data / "gpus" / name, fs::copy_options::overwrite_existing);
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
  EXPECT_NE(unmeasured.err.find("recorded beside l4, found those of t4"), std::string::npos)
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
  const Json same = json_of(words), twice = with("2"), other = with("1.5");
  EXPECT_NEAR(twice["cpu_us"].get<double>(), 2 * same["cpu_us"].get<double>(), 0.1);
  EXPECT_EQ(twice["kernel_sum_us"], same["kernel_sum_us"]);
  ASSERT_EQ(same["host_sensitivity"].size(), 2u);
  EXPECT_EQ(same["host_sensitivity"][0]["scale"], 0.7);
  EXPECT_EQ(same["host_sensitivity"][1]["scale"], 1.5);
  EXPECT_EQ(same["host_sensitivity"][1]["e2e_us"], other["e2e_us"]);
  EXPECT_LE(same["host_sensitivity"][0]["e2e_us"], same["e2e_us"]);
  Words bad = words;
  bad.insert(bad.end(), {"--scale-host", "0"});
  EXPECT_EQ(run(bad).status, 2);
}

TEST(PredictCommand, TablesFitAHundredColumnsWithoutEscapes) {
  for (const Words& words :
       {predict_words(built_graph()), predict_words(sample("et_comms_1.1.0.json")),
        Words{"predict", built_graph(), "--gpu", "t4", "--full"}, Words{"gpus"},
        Words{"gpus", "mi250"}, Words{"trace", sample("kineto_comms_1.1.0.json")},
        Words{"overheads", sample("kineto_comms_1.1.0.json")}, Words{"predict", "--help"},
        Words{"replay", sample("kineto_comms_1.1.0.json")}, Words{"replay", "--help"},
        Words{"replay", rank_trace(0, 1000), rank_trace(1, 1500)}}) {
    SCOPED_TRACE(shown(words));
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.out.find('\033'), std::string::npos);
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) {
      const auto width = std::count_if(line.begin(), line.end(), [](unsigned char byte) {
        return (byte & 0xc0) != 0x80;  // characters, not bytes
      });
      EXPECT_LE(width, 100) << line;
      EXPECT_FALSE(line.ends_with(' ')) << line;
    }
  }
}

// ---- replay ------------------------------------------------------------------------------------

TEST(ReplayCommand, EverySampleTraceHasTheContractedKeys) {
  std::size_t checked = 0;
  for (const auto& [name, figures] : expected_samples().items()) {
    if (figures["kind"] != "kineto" || figures["iterations"].empty()) continue;
    SCOPED_TRACE(name);
    Json made = json_of({"replay", sample(name)});
    EXPECT_EQ(made["schema"], "perfmodel-replay");
    ASSERT_EQ(made["iterations"].size(), figures["iterations"].size());
    for (std::size_t i = 0; i < made["iterations"].size(); ++i) {
      Json& iteration = made["iterations"][i];
      EXPECT_EQ(iteration["name"], figures["iterations"][i]["name"]);
      EXPECT_NEAR(iteration["measured_us"], figures["iterations"][i]["wall_us"], 0.01);
      EXPECT_NEAR(iteration["replayed_us"].get<double>(),
                  iteration["measured_us"].get<double>() * (1 + iteration["error"].get<double>()),
                  0.01);
      EXPECT_TRUE(iteration["data_loading_us"].is_number());
    }
    EXPECT_TRUE(made["mean_abs_error"].is_number());
    EXPECT_TRUE(made["warnings"].is_array());
    EXPECT_FALSE(made.contains("job"));
    ASSERT_EQ(made["ranks"].size(), 1U);
    Json& rank = made["ranks"][0];
    EXPECT_EQ(rank["iterations"], made["iterations"]);
    EXPECT_EQ(rank["trace"], name);
    double path = 0;
    for (const Json& step : rank["critical_path"]) {
      for (const char* key : {"op", "term", "time_us", "count", "own_us", "slack_us"}) {
        EXPECT_TRUE(step.contains(key)) << key;
      }
      path += step["time_us"].get<double>();
    }
    EXPECT_NEAR(path, made["iterations"].back()["replayed_us"], 0.1);
    EXPECT_NEAR(sum_of(rank["critical_path_shares"], "time_us"), path, 0.1);
    ++checked;
  }
  EXPECT_GT(checked, 10U);
}

TEST(ReplayCommand, SeveralRanksAreAJob) {
  const std::string early = rank_trace(0, 1000), late = rank_trace(1, 1500);
  Json made = json_of({"replay", early, late});
  ASSERT_EQ(made["iterations"].size(), 2U);
  EXPECT_EQ(made["iterations"][1]["rank"], 1);
  EXPECT_LT(made["mean_abs_error"], 1e-5);
  EXPECT_EQ(made["collectives"]["matched"], 1);
  EXPECT_EQ(made["collectives"]["unmatched"], 0);
  EXPECT_NEAR(made["job"]["step_us"], 1716, 0.01);
  EXPECT_EQ(made["job"]["straggler"], 1);
  EXPECT_NEAR(made["job"]["straggler_saving_us"], 250, 0.01);
  EXPECT_NEAR(made["ranks"][0]["communication"]["waiting_us"], 500, 0.01);
  EXPECT_NEAR(made["ranks"][1]["communication"]["caused_us"], 500, 0.01);
  const std::string text = run({"replay", early, late}).out;
  EXPECT_NE(text.find("straggler     rank 1"), std::string::npos) << text;
  EXPECT_NE(text.find("0.500"), std::string::npos) << text;
}

TEST(ReplayCommand, WhatIfsAreCalledChangesNotErrors) {
  const std::string trace = rank_trace(0, 1000, 1);
  // Collectives do not scale; the host does: 1010 more before the kernel, 4 more after it.
  const Json same = json_of({"replay", trace, "--scale-kernels", "3"});
  EXPECT_NEAR(same["iterations"][0]["replayed_us"], 1716, 0.01);
  EXPECT_EQ(same["scale_kernels"], 3);
  const Json slow = json_of({"replay", trace, "--scale-host", "2"});
  EXPECT_NEAR(slow["iterations"][0]["replayed_us"], 1716 + 1010 + 4, 0.01);
  const std::string text = run({"replay", trace, "--scale-host", "2"}).out;
  EXPECT_NE(text.find("2.730 ms median, 1.716 ms as recorded (+59.09 %)"), std::string::npos)
      << text;
  EXPECT_NE(text.find("× 2"), std::string::npos) << text;
  EXPECT_NE(text.find("replay error  0.00 % mean"), std::string::npos) << text;
  EXPECT_NEAR(slow["iterations"][0]["unscaled_us"], 1716, 0.01);
  EXPECT_NEAR(slow["iterations"][0]["change"], 1014. / 1716, 1e-5);
  EXPECT_NEAR(slow["iterations"][0]["error"], 0, 1e-5);
  EXPECT_NE(run({"replay", trace}).out.find("replay error"), std::string::npos);
}

TEST(ReplayCommand, WindowsAndMistakes) {
  const std::string trace = sample("kineto_plain_2023.json");
  const Json all = json_of({"replay", trace});
  const Json second = json_of({"replay", trace, "--iterations", "1:2"});
  ASSERT_EQ(second["iterations"].size(), 1U);
  EXPECT_EQ(second["iterations"][0], all["iterations"][1]);
  expect_complaint({"replay"}, 2, "TRACE");
  expect_complaint({"replay", trace, "--scale-kernels", "-1"}, 2, "--scale-kernels");
  expect_complaint({"replay", trace, "--scale-host", "nan"}, 2, "--scale-host");
  expect_complaint({"replay", trace, "--iterations", "2:1"}, 2, "A:B");
  expect_complaint({"replay", trace, "--speed", "2"}, 2, "--speed");
  expect_complaint({"replay", trace, "--iterations", "0:9"}, 1, "expected iterations within 0:2");
  expect_complaint({"replay", sample("et_plain_2023.json")}, 1, "found an execution graph");
  expect_complaint({"replay", "no-such.json"}, 1, "no-such.json: expected a readable file");
  const std::string rank = rank_trace(0, 1000);
  expect_complaint({"replay", rank, rank}, 1, "found this one a second time");
  expect_complaint({"replay", rank, rank_trace(1, 1500, 4)}, 1, "a world of 4 ranks");
  const std::string whole = read(rank), broken = (scratch() / "replay_broken.json").string();
  std::ofstream(broken) << whole.substr(0, whole.rfind("cudaStreamSynchronize"));
  expect_complaint({"replay", broken}, 1, "expected");
  EXPECT_TRUE(warns(json_of({"replay", broken, "--salvage"}), "4 complete events were kept"));
}

TEST(ReplayCommand, DeviceBoundStepsComeBackFromChakraFilesAsPredicted) {
  const std::string graph = (scratch() / "gpt.json").string();
  run({"build", "gpt", "--layers", "2", "--hidden", "256", "--heads", "4", "--feed-forward", "1024",
       "--vocabulary", "5000", "--batch", "16", "--sequence", "256", "-o", graph});
  for (const std::string strategy : {"ddp", "fsdp"}) {
    SCOPED_TRACE(strategy);
    const std::string prefix = (scratch() / ("job_" + strategy)).string();
    const Json p = json_of({"predict", graph, "--gpu", "p4", "--world", "4", "--strategy", strategy,
                            "--topology", "pcie", "--chakra", prefix});
    EXPECT_GT(p["gpu_active_us"], 0.95 * p["e2e_us"].get<double>());
    Words words = {"replay"};
    for (int rank = 0; rank < 4; ++rank) {
      words.push_back(prefix + "." + std::to_string(rank) + ".et");
    }
    EXPECT_FALSE(fs::exists(prefix + ".4.et"));
    const Json again = json_of(words);
    ASSERT_EQ(again["iterations"].size(), 4U);
    for (const Json& rank : again["iterations"]) {
      EXPECT_NEAR(rank["replayed_us"].get<double>() / p["e2e_us"].get<double>(), 1, 0.01);
    }
  }
}

TEST(ReplayCommand, ChakraFilesNeedTheSizesOfCollectives) {
  const std::string trace = rank_trace(0, 1000, 1);
  expect_complaint({"replay", trace, "--chakra", (scratch() / "sizes").string()}, 1,
                   "expected the sizes of all collectives for a Chakra trace, found none of 1");
  EXPECT_FALSE(fs::exists(scratch() / "sizes.0.et"));
  expect_complaint({"replay", trace, "--graph", sample("et_plain_2023.json")}, 1,
                   "expected the collectives of et_plain_2023.json");
}

// ---- timeline ----------------------------------------------------------------------------------

TEST(Timeline, SlicesNestOnNamedLanesAndHoldEveryKernel) {
  const fs::path file = scratch() / "timeline.json";
  Words words = predict_words(built_graph());
  words.insert(words.end(), {"--timeline", file.string()});
  const Json p = json_of(words);
  const Json timeline = Json::parse(read(file));
  std::set<std::pair<int, int>> named;
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> lanes;
  std::size_t kernels = 0, ops = 0;
  std::map<std::string, std::size_t> arrows;  // by category and phase
  for (const Json& event : timeline["traceEvents"]) {
    if (event["ph"] == "s" || event["ph"] == "t" || event["ph"] == "f") {
      ++arrows[event["cat"].get<std::string>() + " " + event["ph"].get<std::string>()];
      continue;
    }
    const std::pair<int, int> lane{event["pid"], event["tid"]};
    if (event["ph"] == "M") {
      if (event["name"] == "thread_name") named.insert(lane);
      continue;
    }
    ASSERT_EQ(event["ph"], "X");
    lanes[lane].emplace_back(event["ts"], event["dur"]);
    EXPECT_GE(event["dur"], 0);
    ops += event["cat"] == "cpu_op";
    if (event["cat"] == "kernel" && event["args"].value("step", "") != "before") {
      ++kernels;
      for (const char* key : {"model", "bound", "in_range"}) {
        EXPECT_TRUE(event["args"].contains(key)) << key;
      }
    }
  }
  double predicted_kernels = 0;
  for (const Json& family : p["kernels_by_family"]) {
    if (family["family"] != "copy" && family["family"] != "set") {
      predicted_kernels += family["count"].get<double>();
    }
  }
  EXPECT_EQ(kernels, predicted_kernels);
  EXPECT_EQ(ops, p["ops"].size());
  EXPECT_GT(arrows["ac2g s"], 0U);
  EXPECT_EQ(arrows["ac2g s"], arrows["ac2g f"]);
  EXPECT_EQ(arrows["critical_path s"], arrows["critical_path f"]);
  EXPECT_GE(arrows["critical_path s"], 1U);
  for (auto& [lane, slices] : lanes) {
    EXPECT_TRUE(named.contains(lane)) << lane.first << "/" << lane.second;
    std::sort(slices.begin(), slices.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    std::vector<double> open;  // ends of the slices around
    for (const auto& [start, duration] : slices) {
      while (!open.empty() && open.back() <= start + 1e-6) open.pop_back();
      EXPECT_TRUE(open.empty() || start + duration <= open.back() + 2e-3);  // stamps are rounded
      open.push_back(start + duration);
    }
  }
}

TEST(Timeline, CanBeReadAndReplayedAsATrace) {
  // Once bound by the host, and once by the device, which then lags behind by more than a step.
  for (const std::string slower : {"1", "300"}) {
    SCOPED_TRACE(slower);
    const std::string graph = (scratch() / ("timed_" + slower + ".json")).string();
    const std::string file = (scratch() / "as_trace.json").string();
    run({"rewrite", built_graph(), "--scale-kernel", "aten::*=" + slower, "-o", graph});
    Words words = predict_words(graph);
    words.insert(words.end(), {"--timeline", file});
    const Json p = json_of(words);
    const Json trace = json_of({"trace", file});
    EXPECT_EQ(trace["gpu"], "NVIDIA Tesla V100-SXM2-16GB");
    ASSERT_EQ(trace["iterations"].size(), 1U);
    EXPECT_NEAR(trace["iterations"][0]["wall_us"], p["e2e_us"], 0.01);
    // Work of the step before is in the file, too.
    EXPECT_GE(trace["gpu_busy_us"].get<double>(), p["gpu_active_us"].get<double>() - 0.5);
    const Json replayed = json_of({"replay", file});
    const double predicted = p["e2e_us"];
    EXPECT_NEAR(replayed["iterations"][0]["replayed_us"], predicted, 1e-4 * predicted);
    EXPECT_NEAR(replayed["unrecorded_device_us"], 0, 1);
    if (slower == "1") continue;
    const Json half = json_of({"replay", file, "--scale-kernels", "0.5"});
    EXPECT_NEAR(half["iterations"][0]["change"], -0.5, 0.05);  // copies and pauses stay
  }
}

}  // namespace cli_test
