// `build` and `rewrite` as commands: refusals, files that they leave, messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "program.hpp"

namespace perfmodel::test_support {
namespace build_rewrite_test {

using ::testing::HasSubstr;

// One line on standard error, nothing on standard output, no file.
void expect_refusal(Words words, int status, const std::string& text) {
  const std::string output = scratch_file("refused.json");
  words.insert(words.end(), {"-o", output});
  expect_error(words, status, text);
  EXPECT_FALSE(fs::exists(output));
}

std::string gpt() {
  static const std::string graph =
      built("gpt.json", {"gpt", "--layers", "2", "--batch", "4", "--sequence", "64"});
  return graph;
}

TEST(BuildCommand, SaysWhatRewroteTheGraph) {
  const Words words = {"build",        "gpt", "--layers",    "2",
                       "--batch",      "8",   "--precision", "bf16",
                       "--checkpoint", "0",   "-o",          scratch_file("said.json")};
  const Outcome text = run(words);
  EXPECT_THAT(text.out, HasSubstr("--precision bf16 --checkpoint 0"));
  EXPECT_THAT(text.out, HasSubstr(" TFLOP in matrix products"));
  Words json = words;
  json.emplace_back("--json");
  EXPECT_EQ(Json::parse(run(json).out)["rewrites"], Json({"--precision bf16", "--checkpoint 0"}));
}

TEST(BuildCommand, EveryFamilyBuildsAndIsPredicted) {
  const std::vector<Words> families = {{"a3c", "--preset", "a3c-lstm"},
                                       {"bert", "--layers", "1"},
                                       {"deepspeech2", "--batch", "2"},
                                       {"dlrm", "--preset", "ddp"},
                                       {"faster-rcnn", "--preset", "fasterrcnn_resnet50_fpn"},
                                       {"gpt", "--layers", "1"},
                                       {"inception", "--batch", "4"},
                                       {"llama", "--layers", "1"},
                                       {"lstm"},
                                       {"mlp", "--preset", "mnist"},
                                       {"opt", "--layers", "1"},
                                       {"resnet", "--preset", "resnet18", "--batch", "4"},
                                       {"seq2seq", "--batch", "4"},
                                       {"t5", "--layers", "1"},
                                       {"torch-encoder", "--layers", "1"},
                                       {"torchrec", "--preset", "v100-8"},
                                       {"transformer", "--layers", "1"},
                                       {"vgg", "--preset", "vgg11", "--batch", "4"},
                                       {"wgan", "--batch", "4"}};
  // Overhead tables know different ops of different GPUs by their launches.
#ifdef PERFMODEL_SANITIZED
  const std::vector<const char*> gpus = {"v100-sxm2-32gb"};
#else
  const std::vector<const char*> gpus = {"a100-sxm-80gb", "h100-sxm-80gb", "v100-sxm2-32gb"};
#endif
  for (const Words& words : families) {
    SCOPED_TRACE(words.front());
    const std::string graph = built("family.json", words);
    for (const char* gpu : gpus) {
      const Outcome outcome = run({"predict", graph, "--gpu", gpu, "--json"});
      ASSERT_EQ(outcome.status, 0) << outcome.err;
      const Json json = Json::parse(outcome.out);
      EXPECT_GT(json["e2e_us"].get<double>(), 0);
      EXPECT_EQ(json["coverage"]["unmodelled_ops"], Json::array()) << gpu;
    }
  }
}

TEST(BuildCommand, UnknownPresetsAreAnsweredWithTheKnownOnes) {
  expect_refusal({"build", "gpt", "--preset", "gpt3"}, 1, "gpt3-175b), found \"gpt3\"");
  expect_refusal({"build", "bert", "--preset", "bert"}, 1, "bert-base, bert-large");
  expect_refusal({"build", "resnet", "--preset", "resnet51"}, 1, "resnet50");
  expect_refusal({"build", "llama", "--preset", "llama-70b"}, 1, "llama-7b");
  expect_refusal({"build", "lstm", "--preset", "ptb"}, 1, "ptb-small, ptb-medium");
  expect_refusal({"build", "torchrec", "--preset", "v100"}, 1, "v100-8");
  expect_refusal({"build", "wavenet"}, 2, "wavenet");
}

TEST(BuildCommand, APresetWhereAFamilyStandsIsToldToWhich) {
  expect_refusal({"build", "gpt2", "--batch", "8"}, 2,
                 "unknown command: gpt2, did you mean build gpt --preset gpt2? (see --help)");
  expect_refusal({"build", "bert-large"}, 2, "did you mean build bert --preset bert-large?");
  expect_refusal({"build", "v100-8"}, 2, "did you mean build torchrec --preset v100-8?");
  expect_refusal({"build", "resnt"}, 2, "unknown command: resnt, the nearest is resnet");
  expect_refusal({"build", "wavenet"}, 2, "unknown command: wavenet, expected one of a3c, bert, ");
}

TEST(BuildCommand, GptTakesMoreTokensThanItsPresetHasPositions) {
  const Outcome long_one = run({"build", "gpt", "--layers", "1", "--sequence", "4096", "-o",
                                scratch_file("long_gpt.json"), "--json"});
  ASSERT_EQ(long_one.status, 0) << long_one.err;
  const Json json = Json::parse(long_one.out);
  EXPECT_EQ(json["positions"], 4096);
  EXPECT_EQ(json["activation"], "gelu_new");
  const Outcome text =
      run({"build", "gpt", "--layers", "1", "--sequence", "64", "--positions", "512",
           "--activation", "gelu_tanh", "-o", scratch_file("short_gpt.json")});
  EXPECT_THAT(text.out, HasSubstr("gelu_tanh"));
  EXPECT_THAT(text.out, HasSubstr("512"));
  expect_refusal({"build", "gpt", "--sequence", "2048", "--positions", "1024"}, 1,
                 "sequence: expected at most the 1024 positions, found 2048");
  expect_refusal({"build", "gpt", "--activation", "swish"}, 2, "gelu_tanh");
}

TEST(BuildCommand, ImpossibleSizesAreNamed) {
  expect_refusal({"build", "bert", "--batch", "0"}, 1, "batch: expected at least 1, found 0");
  expect_refusal({"build", "gpt", "--heads", "7"}, 1, "heads");
  expect_refusal({"build", "gpt", "--sequence", "-5"}, 1, "sequence");
  expect_refusal({"build", "gpt", "--dropout", "1.5"}, 1, "dropout");
  expect_refusal({"build", "bert", "--sequence", "100000"}, 1, "512");
  expect_refusal({"build", "lstm", "--batch", "99999999999999"}, 1, "less than 2^60 elements");
  expect_refusal({"build", "resnet", "--batch", "99999999999999"}, 1, "less than 2^60 elements");
  expect_refusal({"build", "bert", "--batch", "many"}, 2, "--batch");
}

TEST(RewriteCommand, TheInputIsNeverTheOutput) {
  const std::string graph = gpt(), before = read(graph);
  fs::create_symlink(graph, scratch_file("link.json"));
  const std::string link = scratch_file("link.json"), rows = scratch_file("rows");
  const std::string input = "expected an output other than the input, found the same file";
  // For every command, by whatever flag and path the files are named.
  for (const auto& [words, message] : std::vector<std::pair<Words, std::string>>{
           {{"rewrite", graph, "--batch", "8", "-o", graph}, input},
           {{"rewrite", graph, "--batch", "8", "-o", link}, input},
           {{"predict", graph, "--gpu", "t4", "--timeline", link}, input},
           {{"overheads", graph, "-o", graph}, input},
           {{"whatif", graph, "--gpu", "t4", "--csv", rows, "--plot", rows},
            "expected another output for --"}}) {
    const Outcome same = run(words);
    EXPECT_EQ(same.status, 1);
    EXPECT_THAT(same.err, HasSubstr(message));
  }
  EXPECT_FALSE(fs::exists(rows));
  EXPECT_EQ(read(graph), before);
}

TEST(RewriteCommand, SaysWhatSalvageLeftOut) {
  const std::string text = read(gpt());
  std::ofstream(scratch_file("cut.json")) << text.substr(0, text.size() / 2);
  const Words words = {"rewrite", scratch_file("cut.json"), "--salvage", "-o",
                       scratch_file("saved.json")};
  const Outcome lines = run(words);
  EXPECT_EQ(lines.status, 0) << lines.err;
  EXPECT_THAT(lines.out, HasSubstr("warning: the file breaks off in line "));
  Words json = words;
  json.push_back("--json");
  EXPECT_THAT(Json::parse(run(json).out)["warnings"][0], HasSubstr("the file breaks off in line "));
  const Outcome asked =
      run({"whatif", scratch_file("cut.json"), "--salvage", "--gpu", "t4", "--json"});
  EXPECT_THAT(Json::parse(asked.out)["warnings"].dump(), HasSubstr("the file breaks off in line "));
}

TEST(RewriteCommand, AFailedPreconditionWritesNothing) {
  expect_refusal({"rewrite", gpt(), "--batch", "99999999999999"}, 1, "a batch from 1 to 2^40");
  expect_refusal({"rewrite", gpt(), "--batch", "77=8"}, 1, "expected an input of batch 77");
  expect_refusal({"rewrite", gpt(), "--batch", "8", "--retarget", "nvidia"}, 1, "--retarget");
  expect_refusal({"rewrite", gpt(), "--precision", "bf16", "--precision", "fp16"}, 1,
                 "--precision fp16:");
  expect_refusal({"rewrite", gpt(), "--remove", "aten::adm"}, 1, "near: aten::add");
  expect_refusal({"rewrite", gpt(), "--subgraph", "no such label"}, 1, "found none");
  expect_refusal({"rewrite", "no-such.json", "--batch", "8"}, 1, "no-such.json");
}

TEST(RewriteCommand, ValuesThatNoGraphCouldMeanAreBadUsage) {
  expect_refusal({"rewrite", gpt(), "--batch", "many"}, 2, "--batch");
  expect_refusal({"rewrite", gpt(), "--batch", "0"}, 2, "at least 1");
  expect_refusal({"rewrite", gpt(), "--precision", "fp7"}, 2, "bf16");
  expect_refusal({"rewrite", gpt(), "--optimizer", "lamb"}, 2, "adamw");
  expect_refusal({"rewrite", gpt(), "--kernel-time", "aten::mm"}, 2, "PATTERN=US");
  expect_refusal({"rewrite", gpt(), "--scale-kernel", "aten::mm=-1"}, 2, "PATTERN=X");
  expect_refusal({"rewrite", gpt(), "--retarget", "intel"}, 2, "nvidia, amd");
}

TEST(RewriteCommand, SaysWhatChangedAndWhatDidNot) {
  const std::string output = scratch_file("rewritten.json");
  const Outcome outcome = run({"rewrite", gpt(), "--batch", "4", "--batch", "8", "--scale-kernel",
                               "aten::mm=0.5", "-o", output, "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  ASSERT_EQ(json["rewrites"].size(), 3U);
  EXPECT_EQ(json["rewrites"][0]["nodes_changed"], 0);
  EXPECT_GT(json["rewrites"][1]["nodes_changed"], 500);
  EXPECT_GT(json["rewrites"][2]["nodes_changed"], 5);
  EXPECT_THAT(read(output), HasSubstr("perfpredict rewrite gpt.json --batch 4 --batch 8"));
}

TEST(RewriteCommand, TheIdentityGivesTheSameBytesButForItsCommand) {
  const auto graph_of = [](const std::string& name) {
    Json json = Json::parse(read(name));
    json.erase("generator");
    return json;
  };
  const std::string output = scratch_file("identity.json");
  ASSERT_EQ(run({"rewrite", gpt(), "--batch", "4", "-o", output}).status, 0);
  EXPECT_EQ(graph_of(output), graph_of(gpt()));
  ASSERT_EQ(run({"rewrite", gpt(), "-o", output}).status, 0);
  EXPECT_EQ(graph_of(output), graph_of(gpt()));
}

// A strategy and the rewrite of the same name answer alike, and ranks without either are refused.
TEST(RewriteCommand, DataParallelIsTheStrategy) {
  const auto figures = [](Words words) {
    words.insert(words.begin(), "predict");
    words.insert(words.end(), {"--gpu", "a100-sxm-80gb", "--json"});
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 0) << shown(words) << outcome.err;
    const Json json = Json::parse(outcome.out);
    return Json({json["e2e_us"], json["gpu_active_us"], json["communication"]["collectives"]});
  };
  for (const char* ranks : {"2", "64"}) {
    const std::string output = scratch_file(std::string("ranks") + ranks + ".json");
    EXPECT_EQ(run({"rewrite", gpt(), "--data-parallel", ranks, "-o", output}).status, 0);
    EXPECT_EQ(figures({gpt(), "--world", ranks, "--strategy", "ddp"}), figures({output}));
    EXPECT_EQ(figures({output, "--world", ranks}), figures({output}));
  }
  const Outcome alone = run({"predict", gpt(), "--gpu", "a100-sxm-80gb", "--world", "8"});
  EXPECT_EQ(alone.status, 1);
  EXPECT_EQ(alone.out, "");
  EXPECT_THAT(alone.err, HasSubstr("--strategy ddp or fsdp"));
}

TEST(RewriteCommand, GivenKernelTimesArePredicted) {
  const std::string output = scratch_file("given.json");
  ASSERT_EQ(run({"rewrite", gpt(), "--kernel-time", "aten::addmm=50", "-o", output}).status, 0);
  const auto kernels_of = [](const std::string& graph) {
    const Outcome outcome = run({"predict", graph, "--gpu", "a100-sxm-80gb", "--json"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return Json::parse(outcome.out);
  };
  const Json given = kernels_of(output);
  int products = 0;
  for (const Json& op : given["ops"]) {
    if (op["name"] != "aten::addmm") continue;
    double sum = 0;
    for (const Json& kernel : op["kernels"]) sum += kernel["time_us"].get<double>();
    EXPECT_NEAR(sum, 50, 1e-6);
    ++products;
  }
  EXPECT_GT(products, 4);
}

}  // namespace build_rewrite_test
}  // namespace perfmodel::test_support
