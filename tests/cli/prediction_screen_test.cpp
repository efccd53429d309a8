// Output of `predict` for people: a screen of 40 lines, everything with --full.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "program.hpp"

namespace perfmodel::test_support {
namespace prediction_screen_test {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kLines = 40, kColumns = 100;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string built_once(const std::string& name, const Words& words) {
  return fs::exists(scratch() / name) ? scratch_file(name) : built(name, words);
}

std::string gpt(const std::string& batch = "2") {
  return built_once("gpt" + batch + ".json", {"gpt", "--layers", "2", "--hidden", "64", "--heads",
                                              "4", "--sequence", "32", "--batch", batch});
}
std::string dlrm() { return built_once("dlrm.json", {"dlrm", "--preset", "mlperf"}); }

std::string text_of(Words words, const Words& more = {}) {
  words.insert(words.begin(), "predict");
  words.insert(words.end(), more.begin(), more.end());
  SCOPED_TRACE(shown(words));
  const Outcome outcome = run(words);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return outcome.out;
}

void expect_screen(const std::string& text) {
  const auto lines = lines_of(text);
  EXPECT_LE(lines.size(), kLines);
  EXPECT_GT(lines.size(), 10U);
  for (const std::string& line : lines) EXPECT_LE(width(line), kColumns) << line;
}
void expect_screen(const Words& words) {
  SCOPED_TRACE(shown(words));
  expect_screen(text_of(words));
}

// Rows of the table whose header begins with `name`, without "(8 more)".
std::size_t rows(const std::string& text, const std::string& name) {
  const auto lines = lines_of(text);
  const auto header = std::ranges::find_if(
      lines, [&](const std::string& line) { return line.starts_with("  " + name); });
  if (header == lines.end()) return 0;
  const auto end = std::find(header, lines.end(), "");
  return static_cast<std::size_t>(std::count_if(
      header + 1, end, [](const std::string& line) { return !line.starts_with("  ("); }));
}

TEST(PredictionScreen, FitsWhateverTheModelTheGpuAndTheStrategy) {
  const std::vector<std::string> graphs = {gpt(),
                                           dlrm(),
                                           built("resnet.json", {"resnet", "--batch", "8"}),
                                           built("lstm.json", {"lstm"}),
                                           sample("et_plain_2023.json"),
                                           sample("et_comms_1.1.0.json")};
  const std::vector<std::string> gpus = {"v100-sxm2-32gb", "h100-sxm-80gb", "b200-sxm-180gb",
                                         "mi300x"};
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    expect_screen(Words{graphs[i], "--gpu", gpus[i % gpus.size()]});
    expect_screen(Words{graphs[i], "--gpu", gpus[(i + 1) % gpus.size()]});
  }
  const Words on = {gpt(), "--gpu", "h100-sxm-80gb"};
  for (const Words& more :
       {Words{"--world", "16", "--strategy", "ddp"}, Words{"--world", "16", "--strategy", "fsdp"},
        Words{"--models", "roofline"}, Words{"--scale-host", "3"}, Words{"--top", "0"}}) {
    Words words = on;
    words.insert(words.end(), more.begin(), more.end());
    expect_screen(words);
  }
  expect_screen(Words{sample("et_plain_2023.json"), "--gpu", "t4", "--kernel-times",
                      sample("kineto_plain_2023.json")});
}

TEST(PredictionScreen, FitsForManyRanksWithWarningsOfTheirOwn) {
  Words words;
  for (int batch = 1; batch <= 8; ++batch) words.push_back(gpt(std::to_string(batch)));
  words.insert(words.end(), {"--gpu", "b200-sxm-180gb"});
  const std::string text = text_of(words);
  expect_screen(text);
  EXPECT_TRUE(text.starts_with("\n  Warnings\n")) << text;
  EXPECT_THAT(text, HasSubstr("more: --full\n"));
  EXPECT_THAT(text, HasSubstr(" slowest of 8 ranks"));
  EXPECT_LT(rows(text, "Ranks"), 8U);
}

TEST(PredictionScreen, FitsWithLongNames) {
  Json graph = Json::parse(read(sample("et_plain_2023.json")));
  for (Json& node : graph["nodes"]) {
    const std::string name = node["name"];
    if (name.starts_with("aten::")) node["name"] = name + std::string(300, 'x');
  }
  const std::string file = scratch_file(std::string(200, 'y') + ".json");
  std::ofstream(file) << graph.dump();
  expect_screen(Words{file, "--gpu", "t4"});
}

TEST(PredictionScreen, BeginsWithWarningsAndNamesTheStep) {
  const std::string text = text_of({dlrm(), "--gpu", "a100-sxm-40gb"});
  const std::size_t warnings = text.find("  Warnings\n"), step = text.find(" per batch (");
  EXPECT_LT(warnings, step);
  EXPECT_LT(step, text.find("  samples/s "));
  EXPECT_LT(text.find("  TFLOP/s "), text.find("  limited by "));
  EXPECT_LT(text.find("  busy "), text.find("  GPU work "));
  EXPECT_LT(text.find("  Ops, by "), text.find("  Coverage: "));
  EXPECT_THAT(text, HasSubstr(" times the host time\n"));
  EXPECT_THAT(text, HasSubstr("it does not fit\n"));
  EXPECT_THAT(text, Not(HasSubstr("tokens/s")));
  EXPECT_EQ(rows(text, "GPU work"), 5U);
  EXPECT_EQ(rows(text, "Ops, by"), 5U);
}

// Lacking units are named before lacking memory.
TEST(PredictionScreen, SaysFirstThatUnitsAreLacking) {
  const std::string narrow = built("narrow.json", {"gpt", "--preset", "gpt2", "--layers", "1",
                                                   "--batch", "64", "--precision", "fp8"});
  const std::string text = text_of({narrow, "--gpu", "t4"});
  EXPECT_TRUE(text.starts_with("\n  Warnings\n  - t4 has no matrix units for float8: ")) << text;
  EXPECT_THAT(text, HasSubstr("it does not fit\n"));
}

TEST(PredictionScreen, NamesOpsByWhatLimitsTheStep) {
  EXPECT_THAT(text_of({gpt(), "--gpu", "h100-sxm-80gb"}), HasSubstr("  Ops, by host time"));
  const std::string slow = text_of({gpt(), "--gpu", "h100-sxm-80gb", "--scale-host", "0.001"});
  EXPECT_THAT(slow, HasSubstr("  Ops, by GPU time"));
  EXPECT_THAT(slow, HasSubstr(" kernels, busy for "));
}

TEST(PredictionScreen, HasAsManyRowsAsAskedFor) {
  for (const std::size_t top : {1U, 3U, 8U}) {
    const std::string text = text_of({gpt(), "--gpu", "t4", "--top", std::to_string(top)});
    EXPECT_EQ(rows(text, "GPU work"), top);
    EXPECT_EQ(rows(text, "Ops, by"), top);
  }
}

TEST(PredictionScreen, FullHoldsEveryTable) {
  const Words words = {sample("et_comms_1.1.0.json"), "--gpu", "v100-sxm2-16gb"};
  const std::string full = text_of(words, {"--full"}), brief = text_of(words);
  for (const char* part :
       {" per batch\n", "  graph ", "  host ", "  other hosts ", "  kernels ", "\n  Time ",
        "\n  Communication", "\n  Host busy ", "  T4  calls", "\n  GPU work ",
        "\n  Phases of the host ", "\n  Critical path of the step ", "\n  Longest on it ",
        "\n  Ops, by name ", "\n  Coverage\n", "  host time found by ", "arnings\n"}) {
    EXPECT_THAT(full, HasSubstr(part));
  }
  EXPECT_THAT(brief, Not(HasSubstr("Critical path")));
  EXPECT_GT(lines_of(full).size(), lines_of(brief).size());
  EXPECT_EQ(rows(text_of(words, {"--full", "--top", "3"}), "Ops, by name"), 3U);
}

TEST(PredictionScreen, JsonHasTheSameFigures) {
  const Outcome outcome = run(
      {"predict", gpt(), "--gpu", "h100-sxm-80gb", "--world", "4", "--strategy", "ddp", "--json"});
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["tokens_per_sample"], 32);
  EXPECT_NEAR(json["tokens_per_s"], 32 * json["samples_per_s"].get<double>(), 0.1);
  const double rate = json["product_flop"].get<double>() / json["e2e_us"].get<double>() / 1e6;
  EXPECT_NEAR(json["tflop_per_s_per_gpu"], rate, 0.001);
  EXPECT_EQ(json["mfu_peak"]["type"], "fp32");
  EXPECT_NEAR(json["mfu"], rate / json["mfu_peak"]["tflop_per_s"].get<double>(), 1e-6);
  const Json none = Json::parse(run({"predict", dlrm(), "--gpu", "t4", "--json"}).out);
  EXPECT_TRUE(none["tokens_per_s"].is_null());
  EXPECT_GT(none["mfu"], 0);
}

// As convolutions of Winograd's algorithm do where no units for TF32 are faster.
TEST(PredictionScreen, MoreThanTheDensePeakIsExplained) {
  Json graph = Json::parse(read(built("vgg.json", {"vgg", "--preset", "vgg16", "--batch", "64"})));
  for (Json& node : graph["nodes"]) {
    const std::string name = node["name"];
    if (name.find("convolution") != std::string::npos) node["kernel_time_us"] = 1;
  }
  const Words words = {written("short.json", graph.dump()), "--gpu", "t4"};
  const Json json = Json::parse(text_of(words, {"--json"}));
  EXPECT_GT(json["mfu"], 1);
  const auto warnings = json["warnings"].get<std::vector<std::string>>();
  EXPECT_THAT(warnings, ::testing::Contains(HasSubstr("algorithms such as Winograd's")));
  const std::string text = text_of(words);
  EXPECT_THAT(text, HasSubstr("FLOP counted are "));
  EXPECT_THAT(text, Not(HasSubstr("MFU")));
  EXPECT_THAT(text_of({gpt(), "--gpu", "t4", "--json"}), Not(HasSubstr("of the dense peak")));
}

}  // namespace prediction_screen_test
}  // namespace perfmodel::test_support
