// Commands that rewrite their graph first, in the order of the flags.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "samples.hpp"

namespace perfmodel::test_support {
namespace one_command_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string& mlp() {
  static const std::string file = built("one_command.json", {"mlp", "--batch", "64"});
  return file;
}

const Words kRewrites = {"--batch", "128", "--precision", "bf16"};
constexpr const char* kLine = "rewritten by  --batch 128 --precision bf16\n";

// The members of a document that say nothing of its inputs.
Json figures_of(Json document) {
  for (const char* key : {"rewrites", "provenance", "graph", "inputs", "ranks"})
    document.erase(key);
  return document;
}

TEST(OneCommand, AnswersAsAboutTheFileThatRewriteWrites) {
  const std::string changed = scratch_file("one_command_changed.json");
  output_of(with(with({"rewrite", mlp()}, kRewrites), {"-o", changed}));
  const std::vector<Words> commands = {{"predict", "--gpu", "a100-sxm-80gb"},
                                       {"memory", "--gpu", "a100-sxm-80gb"},
                                       {"analyze", "--gpu", "a100-sxm-80gb"}};
  for (const Words& command : commands) {
    SCOPED_TRACE(command.front());
    const auto asked_of = [&](const std::string& graph) {
      Words words = {command.front(), graph};
      words.insert(words.end(), command.begin() + 1, command.end());
      return words;
    };
    const Words one = with(asked_of(mlp()), kRewrites);
    const Json document = json_of(one);
    EXPECT_EQ(figures_of(document), figures_of(json_of(asked_of(changed))));
    EXPECT_THAT(document["rewrites"], ElementsAre("--batch 128", "--precision bf16"));
    const std::string text = output_of(one);
    EXPECT_THAT(text, HasSubstr(kLine));
    expect_narrow(text);
  }
}

TEST(OneCommand, OptimizeStartsWithTheRewrittenGraph) {
  const Words words = with({"optimize", mlp(), "--gpu", "t4", "--allow", "optimizer"}, kRewrites);
  EXPECT_THAT(output_of(words), HasSubstr(kLine));
  const Json advice = json_of(words);
  EXPECT_THAT(advice["rewrites"], ElementsAre("--batch 128", "--precision bf16"));
  for (const Json& step : advice["steps"]) {
    EXPECT_THAT(step["command"].get<std::string>(),
                HasSubstr("one_command.json --batch 128 --precision bf16"));
  }
}

TEST(OneCommand, AReportIsOfTheRewrittenGraph) {
  const std::string page = scratch_file("one_command.html");
  output_of(with({"report", mlp(), "--gpu", "t4", "-o", page}, kRewrites));
  EXPECT_THAT(read(page), HasSubstr("--batch 128 --precision bf16"));
}

TEST(OneCommand, EveryRankIsRewrittenOrRefusedByName) {
  const std::string changed = scratch_file("one_command_half.json");
  output_of({"rewrite", mlp(), "--precision", "bf16", "-o", changed});
  const Words words = {"predict", mlp(), changed, "--gpu", "t4", "--precision", "bf16"};
  expect_error(words, 1, "one_command_half.json: --precision bf16: ");
}

TEST(OneCommand, RefusesValuesThatAreNone) {
  const Words predict = {"predict", mlp(), "--gpu", "t4"};
  expect_error(with(predict, {"--batch", "none"}), 2, "--batch: expected a size of at least 1");
  expect_error(with(predict, {"--precision", ""}), 2, "--precision: expected fp32|");
  expect_error(with(predict, {"--world", ""}), 2, "--world: expected a number, found nothing");
  expect_error({"build", "mlp", "--batch", "", "-o", scratch_file("none.json")}, 2,
               "--batch: expected a number, found nothing");
}

TEST(OneCommand, HelpHasTheRewritesInAGroupOfTheirOwn) {
  const std::string predict = output_of({"predict", "--help"});
  const std::size_t group = predict.find("Rewrites, applied to the graph first:");
  ASSERT_NE(group, std::string::npos);
  EXPECT_LT(predict.find("--timeline FILE"), group);
  EXPECT_GT(predict.find("--precision fp32|"), group);
  EXPECT_THAT(predict, Not(HasSubstr("nvfp4: bf16 with"))) << "a sentence each";
  EXPECT_THAT(output_of({"rewrite", "--help"}), HasSubstr("nvfp4: bf16 with"));
}

}  // namespace one_command_test
}  // namespace perfmodel::test_support
