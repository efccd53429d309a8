#include "perfmodel/sweep/detail/sweep_spec.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sweep_cases.hpp"

namespace perfmodel::sweep {
namespace sweep_spec_test {

using test_support::Folder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SweepSpec, ReadsWhatIsToBeCrossed) {
  const Folder folder;
  const auto spec = test_support::read_spec(folder, R"({
    "schema": "perfmodel-sweep", "version": 1,
    "graphs": [{"name": "one", "build": "mlp"}, {"build": "mlp", "options": {"hidden": 8}}],
    "rewrites": [{"refuse": ["same", "on"]}, {"batch": [8, "32"]}],
    "gpus": ["A100-SXM-80GB"],
    "topologies": ["usual", "dgx-a100"],
    "strategies": [{"strategy": "none", "world": 4}, {"strategy": "fsdp", "world": [8, 16]}],
    "models": "heuristic"
  })");
  ASSERT_TRUE(spec) << to_string(spec.error());
  ASSERT_EQ(spec->graphs.size(), 2U);
  EXPECT_EQ(spec->graphs[0].name, "one");
  EXPECT_EQ(spec->graphs[1].name, "mlp hidden=8");
  EXPECT_NE(spec->graphs[0].identity, spec->graphs[1].identity);
  EXPECT_EQ(spec->graphs[0].identity.size(), 8U);
  ASSERT_EQ(spec->axes.size(), 2U);
  EXPECT_EQ(spec->axes[0].name, "refuse");
  EXPECT_FALSE(spec->axes[0].values[0].rewrite);
  EXPECT_EQ(spec->axes[1].values[0].text, "8");
  ASSERT_TRUE(spec->axes[1].values[1].rewrite);
  EXPECT_EQ(spec->axes[1].values[1].rewrite->name, "--batch 32");
  EXPECT_THAT(spec->applied, ElementsAre(1, 0));  // as the toolbox has them
  EXPECT_EQ(spec->gpus[0].name, "a100-sxm-80gb");
  EXPECT_THAT(spec->topologies, ElementsAre("usual", "dgx-a100"));
  ASSERT_EQ(spec->strategies.size(), 3U);
  EXPECT_FALSE(spec->strategies[0].strategy);
  EXPECT_EQ(spec->strategies[0].world, 4);
  EXPECT_EQ(spec->strategies[2].strategy, ParallelStrategy::kFsdp);
  EXPECT_EQ(spec->strategies[2].world, 16);
  EXPECT_EQ(spec->models, "heuristic");
}

TEST(SweepSpec, LeavesOutWhatHasADefault) {
  const Folder folder;
  const auto spec = test_support::read_spec(folder, R"({"schema": "perfmodel-sweep", "version": 1,
    "graphs": [{"build": "mlp"}], "gpus": ["t4"]})");
  ASSERT_TRUE(spec) << to_string(spec.error());
  EXPECT_THAT(spec->topologies, ElementsAre("usual"));
  ASSERT_EQ(spec->strategies.size(), 1U);
  EXPECT_FALSE(spec->strategies[0].strategy);
  EXPECT_EQ(spec->strategies[0].world, 0);
  EXPECT_EQ(spec->models, "learned");
}

TEST(SweepSpec, AGraphIsWhatItsFileHolds) {
  const Folder folder;
  const std::string text = R"({"schema": "perfmodel-sweep", "version": 1,
    "graphs": ["graph.json"], "gpus": ["t4"]})";
  test_support::write(folder / "graph.json", "one");
  const auto first = test_support::read_spec(folder, text);
  ASSERT_TRUE(first) << to_string(first.error());
  EXPECT_EQ(first->graphs[0].name, "graph.json");
  EXPECT_EQ(first->graphs[0].file, folder / "graph.json");
  test_support::write(folder / "graph.json", "two");
  const auto second = test_support::read_spec(folder, text);
  EXPECT_NE(first->graphs[0].identity, second->graphs[0].identity);
}

TEST(SweepSpec, AGpuMayBeAFile) {
  const Folder folder;
  fs::copy_file(test_support::data_folder() / "gpus" / "t4.json", folder / "mine.json");
  const auto spec = test_support::read_spec(folder, R"({"schema": "perfmodel-sweep", "version": 1,
    "graphs": [{"build": "mlp"}], "gpus": ["mine.json", "v100-sxm2-16gb"]})");
  ASSERT_TRUE(spec) << to_string(spec.error());
  EXPECT_EQ(spec->gpus[0].name, "t4");
  EXPECT_EQ(spec->gpus[0].identity.size(), 8U);
  EXPECT_EQ(spec->gpus[1].identity, "");
}

struct Mistake {
  std::string change, into, error;  ///< applied to kSmallSpec
};

TEST(SweepSpec, SaysWhatIsWrongAndWhere) {
  const std::vector<Mistake> mistakes = {
      {"\"version\": 1", "\"version\": 2",
       "spec.json:2:43: /version: expected version 1, found 2, which needs a newer program"},
      {"\"gpus\"", "\"gpu\"", "/gpus: expected this key, found nothing"},
      {"\"strategies\"", "\"strategy\"", "no such key (but \"strategies\")"},
      {"\"build\": \"mlp\"}", "\"build\": \"mpl\"}",
       ":3:41: /graphs/0/build: expected a builder, found mpl"},
      {"\"wide\"", "\"small\"", "/graphs/1: expected each graph once, found \"small\" again"},
      {"{\"hidden\": 128}", "{\"hidden\": [128]}",
       "/graphs/1/options/hidden: expected a text, a number, true or false, found [128]"},
      {"\"build\": \"mlp\"}", "\"file\": \"none.json\"}", "/graphs/0: "},
      {"\"build\": \"mlp\"}", "\"file\": \"/dev/zero\"}", "expected a readable regular file"},
      {"\"batch\"", "\"bath\"",
       "/rewrites/0/bath: expected a rewrite, found \"bath\" (nearest: \"batch\")"},
      {"\"same\", 8", "\"same\", 0", ":5:35: /rewrites/0/batch/1: expected a batch, found 0"},
      {"\"same\", 8", "8, 8", "/rewrites/0/batch/1: expected each value once, found 8 again"},
      {"\"same\", 8", "\"same\", true",
       "/rewrites/0/batch/1: expected a text or a number, found true"},
      {"[\"same\", 8, 32]", "8",
       "/rewrites/0/batch: expected a list of at least one value, found 8"},
      {"[\"same\", 8, 32]}", "[8]}, {\"batch\": [9]}",
       "/rewrites/1/batch: expected each rewrite once"},
      {"[\"same\", 8, 32]", "[8], \"refuse\": [1]",
       "/rewrites/0: expected an object with one rewrite"},
      {"h100-sxm-80gb", "h100-sxm-80g", "/gpus/1: "},
      {"h100-sxm-80gb", "a100-sxm-80gb",
       "/gpus/1: expected each GPU once, found a100-sxm-80gb again"},
      {"\"none\"", "\"non\"", "/strategies/0/strategy: expected \"none\", \"ddp\" or \"fsdp\""},
      {"\"world\": [2, 8]", "\"world\": [2, 0]",
       "/strategies/1/world/1: expected a whole number of at least 1, found 0"},
      {", \"world\": [2, 8]", "", "/strategies/1/world: expected this key, found nothing"},
      {"[2, 8]", "[2, 2]",
       "/strategies/1: expected each strategy and world once, found ddp 2 again"},
      {"[2, 8]", "[]", "/strategies/1/world: expected at least one world, found none"},
      {"\"gpus\": [", "\"topologies\": [\"dgx\"], \"gpus\": [", "/topologies/0: "},
      {"\"version\": 1", "\"version\": 1, \"version\": 1", "expected each key once"},
      {"{", "", "expected JSON"},
  };
  for (const Mistake& mistake : mistakes) {
    std::string text = test_support::kSmallSpec;
    const std::size_t place = text.find(mistake.change);
    ASSERT_NE(place, std::string::npos) << mistake.change;
    text.replace(place, mistake.change.size(), mistake.into);
    const Folder folder;
    const auto spec = test_support::read_spec(folder, text);
    ASSERT_FALSE(spec) << mistake.into;
    EXPECT_THAT(to_string(spec.error()), HasSubstr(mistake.error)) << mistake.into;
    EXPECT_EQ(spec.error().file, folder / "spec.json");
    EXPECT_GT(spec.error().line, 0) << to_string(spec.error());
  }
  const Folder folder;
  const auto none = read_sweep_spec(folder / "no.json", test_support::small_toolbox(),
                                    test_support::data_folder());
  ASSERT_FALSE(none);
  EXPECT_THAT(to_string(none.error()), HasSubstr("expected a readable sweep spec, found none"));
}

TEST(SweepSpec, RefusesMoreRowsThanItCanCount) {
  const Folder folder;
  std::string values = "1";
  for (int i = 2; i <= 32000; ++i) values += "," + std::to_string(i);
  const auto spec = test_support::read_spec(
      folder, R"({"schema": "perfmodel-sweep", "version": 1, "graphs": [{"build": "mlp"}],
    "gpus": ["t4"], "rewrites": [{"refuse": [)" +
                  values + "]}, {\"batch\": [" + values + "]}]}");
  ASSERT_FALSE(spec);
  EXPECT_THAT(to_string(spec.error()), HasSubstr("expected at most 1000000000 rows, found more"));
}

}  // namespace sweep_spec_test
}  // namespace perfmodel::sweep
