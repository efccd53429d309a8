// Common behaviour of all commands: exit codes, streams, complaints, files.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "samples.hpp"

namespace perfmodel::test_support {
namespace usage_test {

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
  expect_error({}, 2, "subcommand");
  expect_error({"foretell"}, 2, "unknown command: foretell, expected one of predict, ");
  expect_error({"predct", "g.json", "--gpu", "t4"}, 2,
               "unknown command: predct, the nearest is predict");
  expect_error({"predict"}, 2, "required");
  expect_error({"predict", "g.json"}, 2, "--gpu");
  expect_error({"predict", "--gpu", "t4"}, 2, "GRAPH");
  expect_error({"predict", "g.json", "--gpus", "t4,p4"}, 2, "--gpus");
  expect_error({"predict", "g.json", "--gpu", "t4", "--use", "comm"}, 2, "--kernel-times");
  expect_error({"predict", "g.json", "--gpu", "t4", "--models", "oracle"}, 2, "--models");
  expect_error({"predict", "g.json", "--gpu", "t4", "--world", "0"}, 2, "--world");
  expect_error({"trace", trace, "--iterations", "2"}, 2, "A:B");
  expect_error({"trace", trace, "--iterations", "2:2"}, 2, "A:B");
  expect_error({"trace", trace, "--iterations", "-1:2"}, 2, "A:B");
  expect_error({"overheads", trace, "--method", "best"}, 2, "--method");
  expect_error({"overheads", trace, "--profiler-cost", "nan"}, 2, "--profiler-cost");
  expect_error({"build"}, 2, "subcommand");
  expect_error({"build", "dlrm", "--preset", "ddp"}, 2, "--output");
  expect_error({"build", "dlrm", "-o", "g.json"}, 2, "--preset");
  expect_error({"build", "dlrm", "--preset", "ddp", "--top", "8-x", "-o", "g.json"}, 2, "8-x");
}

TEST(Usage, FlagsAreKnownByTheNamesOfOtherCommands) {
  const Words predict = predict_words(built_graph());
  const auto step = [&](const Words& flags) { return json_of(with(predict, flags))["e2e_us"]; };
  EXPECT_NE(step({"--batch-size=16"}), step({}));
  EXPECT_EQ(step({"--batch", "16"}), step({"--batch-size", "16"}));
  EXPECT_EQ(step({"--precision", "bf16"}), step({"--dtype", "bf16"}));
  expect_error(with(predict, {"--gpus", "2"}), 1, "expected collectives for 2 ranks");
  expect_error(with(predict, {"--world-size", "0"}), 2, "--world");
}

TEST(Usage, OneFileForAllOrOnePerGraph) {
  const std::string& g = built_graph();
  expect_error({"predict", g, g, g, "--gpu", "t4", "--overheads", table(), table()}, 2,
               "one per graph (3)");
  const std::string trace = sample("kineto_plain_2023.json");
  expect_error({"overheads", trace, trace, "--graph", sample("et_plain_2023.json")}, 2,
               "one graph per trace");
}

TEST(Usage, FlagsMayStandBeforeTheFiles) {
  const Json after = json_of(predict_words(built_graph()));
  const Json before =
      json_of({"predict", "--overheads", table(), built_graph(), "--gpu", "v100-sxm2-16gb"});
  EXPECT_EQ(before, after);
}

TEST(Usage, TablesFitAHundredColumnsWithoutEscapes) {
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
    expect_narrow(outcome.out);
  }
}

// ---- bad input ---------------------------------------------------------------------------------

TEST(BadInput, EveryBrokenSampleIsRefusedWithItsPlace) {
  for (const auto& [name, figures] : expected_samples().items()) {
    if (figures["kind"] != "bad") continue;
    const std::string message = figures["message"];
    if (figures["reads_as"] != "kineto") {
      Words words = predict_words(sample(name));
      expect_error(words, 1, message);
      expect_error(words, 1, name);
    }
    if (figures["reads_as"] != "execution_trace") {
      expect_error({"trace", sample(name)}, 1, message);
      expect_error({"overheads", sample(name)}, 1, message);
    }
  }
}

TEST(BadInput, FilesOfAnotherKindAreToldByName) {
  const std::string trace = sample("kineto_plain_2023.json"), graph = sample("et_plain_2023.json");
  expect_error({"trace", graph}, 1, "found an execution graph");
  expect_error({"overheads", graph}, 1, "found an execution graph");
  expect_error({"overheads", trace, "--graph", trace}, 1, "expected an execution graph");
  expect_error({"predict", graph, "--gpu", "t4", "--overheads", trace}, 1, "perfmodel-overheads");
  expect_error(predict_words(scratch().string()), 1, "found a directory");
  expect_error(predict_words("no-such.json"), 1, "no-such.json: expected a readable file");
  expect_error({"trace", scratch().string()}, 1, "found a directory");
  expect_error({"predict", graph, "--gpu", "t4", "--overheads", scratch().string()}, 1,
               "found a directory");
  expect_error({"gpus", table()}, 1, "perfmodel-gpu");
}

TEST(BadInput, UnknownGpusAreAnsweredWithNearNames) {
  expect_error({"gpus", "v100-sxm2-16"}, 1, "v100-sxm2-16gb");
  expect_error({"predict", built_graph(), "--gpu", "a100-sxm-40", "--overheads", table()}, 1,
               "a100-sxm-40gb");
  expect_error({"predict", built_graph(), "--gpu", "rtx9"}, 1, "docs/extending.md");
}

TEST(BadInput, RequestsThatTheFilesCannotAnswer) {
  const std::string trace = sample("kineto_plain_2023.json");
  expect_error({"trace", trace, "--iterations", "0:9"}, 1, "expected iterations within 0:2");
  expect_error({"overheads", trace, "--iterations", "5:9"}, 1, "expected iterations within");
  Words words = predict_words(built_graph());
  words.insert(words.end(), {"--iterations", "0:2"});
  expect_error(words, 1, "expected iterations within 0:1");
  words = predict_words(built_graph());
  words.insert(words.end(), {"--kernel-times", trace});
  expect_error(words, 1, "same program");
  for (const auto& [name, figures] : expected_samples().items()) {
    if (figures.contains("overheads_error")) {
      expect_error({"overheads", sample(name)}, 1, "device activity");
    }
  }
  expect_error(
      {"build", "dlrm", "--preset", "ddp", "--batch", "0", "-o", scratch_file("none.json")}, 1,
      "batch");
  EXPECT_FALSE(fs::exists(scratch() / "none.json"));
}

TEST(BadInput, AModelFileOfAnotherKindIsToldByName) {
  Words words = predict_words(built_graph());
  words.insert(words.end(), {"--models", sample("kineto_plain_2023.json")});
  expect_error(words, 1, "kineto_plain_2023.json:1:1: /schema: expected");
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
    expect_error({"overheads", trace, "-o", target}, 1, target);
    expect_error({"build", "dlrm", "--preset", "ddp", "-o", target}, 1, target);
    Words words = predict_words(built_graph());
    words.insert(words.end(), {"--timeline", target});
    expect_error(words, 1, target);
  }
  EXPECT_EQ(std::distance(fs::recursive_directory_iterator(folder), {}), 1);
}

TEST(Files, AnOldFileSurvivesAFailedRun) {
  const fs::path file = scratch() / "old.json";
  std::ofstream(file) << "old";
  expect_error({"overheads", sample("kineto_no_gpu.json"), "-o", file.string()}, 1, "device");
  EXPECT_EQ(read(file), "old");
}

TEST(Files, OverheadsOnStandardOutputAreThoseOfTheFile) {
  const std::string file = scratch_file("same.json");
  const Outcome outcome =
      run({"overheads", sample("kineto_plain_2023.json"), "-o", file, "--json"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, read(file));
}

TEST(Files, EqualBuildsGiveEqualBytes) {
  const std::string again = scratch_file("again.json");
  EXPECT_EQ(run({"build", "dlrm", "--preset", "ddp", "--batch", "64", "-o", again}).status, 0);
  EXPECT_EQ(read(again), read(built_graph()));
  EXPECT_NE(read(again).find("perfpredict build dlrm --preset ddp --batch 64"), std::string::npos);
}

}  // namespace usage_test
}  // namespace perfmodel::test_support
