// `perfpredict gate`: verdicts as exit statuses, and what three changes of a program cost on five
// GPUs, as a recording of the program after each change would show them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "program.hpp"

namespace perfmodel::test_support {
namespace gate_cli_test {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const Words kFive = {"--gpus", "h100-sxm-80gb,a100-sxm-80gb,rtx-4090,v100-sxm2-16gb,l4"};

std::string log_of(const std::string& name, double ms, std::size_t steps = 61) {
  std::mt19937_64 random(steps + name.size());
  std::normal_distribution<double> normal;
  std::string text;
  for (std::size_t i = 0; i < steps; ++i) {
    text += std::to_string(ms * std::exp(0.01 * normal(random))) + " ms\n";
  }
  return written(name, text);
}

Outcome gate(const Words& words) { return run(with({"gate"}, words)); }

TEST(GateCommand, TheVerdictIsTheExitStatus) {
  const std::string base = log_of("base.log", 400), slow = log_of("slow.log", 420),
                    same = log_of("same.log", 400), fast = log_of("fast.log", 380),
                    few = log_of("few.log", 400, 6);
  EXPECT_EQ(gate({base, base}).status, 0);
  EXPECT_EQ(gate({base, same}).status, 0);
  EXPECT_EQ(gate({base, fast}).status, 0);
  EXPECT_EQ(gate({base, slow}).status, 3);
  EXPECT_EQ(gate({base, slow, "--threshold", "10%"}).status, 0);
  const Outcome open = gate({base, few});
  EXPECT_EQ(open.status, 4);
  EXPECT_EQ(open.err, "");
  EXPECT_THAT(open.out, HasSubstr("cannot tell: 60 and 5 steps, 10 of each are the fewest"));
  EXPECT_THAT(open.out, HasSubstr("steps of each would tell"));
  expect_narrow(open.out);
}

TEST(GateCommand, FlagsOfOtherFilesAreRefused) {
  const std::string base = log_of("base.log", 400), same = log_of("same.log", 400);
  const Outcome logs = gate({base, same, "--gpus", "l4"});
  EXPECT_EQ(logs.status, 1);
  EXPECT_THAT(logs.err, HasSubstr("expected graphs or traces with --gpus and --topology"));
}

// Predictions have no noise that a confidence could be of.
TEST(GateCommand, PredictionsTakeNoConfidence) {
  const std::string graph = built("mlp.json", {"mlp"});
  expect_error({"gate", graph, graph, "--gpus", "l4", "--confidence", "99%"}, 1,
               "--confidence: expected measured steps, found predictions");
  EXPECT_EQ(gate({graph, graph, "--gpus", "l4"}).status, 0);
}

TEST(GateCommand, TellsProgramsAndReadersTheSame) {
  const std::string base = log_of("base.log", 400), slow = log_of("slow.log", 420);
  const Outcome outcome = gate({base, slow, "--json"});
  ASSERT_EQ(outcome.status, 3);
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["schema"], "perfmodel-gate");
  EXPECT_EQ(json["verdict"], "slower");
  EXPECT_EQ(json["exit_status"], 3);
  EXPECT_NEAR(json["steps"]["change"].get<double>(), 0.05, 0.005);
  EXPECT_LT(json["steps"]["low"], json["steps"]["change"]);
  EXPECT_GT(json["steps"]["high"], json["steps"]["change"]);
  const Outcome page = gate({base, slow, "--markdown"});
  EXPECT_EQ(page.status, 3);
  EXPECT_THAT(page.out, StartsWith("### Speed gate: slower: 5."));
}

TEST(GateCommand, RefusesWhatItCannotCompare) {
  const std::string log = log_of("base.log", 400);
  const std::string other = built("mlp.json", {"mlp"});
  expect_error({"gate", log, other}, 1, "expected two logs, two traces or two graphs");
  expect_error({"gate", built("again.json", {"mlp"}), other}, 1, "expected --gpus for a graph");
  expect_error({"gate", log, "nowhere.log"}, 1, "nowhere.log: expected a readable log");
  expect_error({"gate", log, written("none.log", "nothing\n")}, 1, "expected step times of");
  expect_error({"gate", log, log_of("b.log", 400), "--threshold", "3"}, 2,
               "expected a percentage such as 3%");
}

/// A graph whose nodes have room for others between their ids.
Json spaced(const std::string& file) {
  Json graph = Json::parse(read(file));
  for (Json& node : graph["nodes"]) {
    node["id"] = node["id"].get<std::int64_t>() * 64;
    node["ctrl_deps"] = node["ctrl_deps"].get<std::int64_t>() * 64;
  }
  graph.erase("built");  // it is changed by hand
  return graph;
}

// Nodes of a subtree, in order.
std::vector<Json> subtree(const std::map<std::int64_t, std::vector<Json>>& children,
                          const Json& node) {
  std::vector<Json> nodes = {node};
  const auto found = children.find(node["id"].get<std::int64_t>());
  if (found == children.end()) return nodes;
  for (const Json& child : found->second) {
    for (Json& below : subtree(children, child)) nodes.push_back(std::move(below));
  }
  return nodes;
}

// The graph with `added(subtree)` after each op that `wanted` chooses; nodes get the next ids.
template <class Wanted, class Added>
std::string with_added(const std::string& file, const std::string& name, Wanted&& wanted,
                       Added&& added) {
  Json graph = spaced(file);
  std::map<std::int64_t, std::vector<Json>> children;
  for (const Json& node : graph["nodes"]) children[node["ctrl_deps"]].push_back(node);
  Json nodes = Json::array();
  std::map<std::int64_t, std::vector<Json>>
      added_after;  // last node of a subtree -> nodes after it
  for (const Json& node : graph["nodes"]) {
    if (!wanted(node, children[node["id"]])) continue;
    const std::vector<Json> own = subtree(children, node);
    const std::int64_t last = own.back()["id"];
    std::vector<Json> more = added(own);
    std::map<std::int64_t, std::int64_t> ids;
    for (Json& one : more) {
      const std::int64_t id = last + 1 + static_cast<std::int64_t>(ids.size());
      ids[one["id"]] = id;
      one["id"] = id;
      const std::int64_t parent = one["ctrl_deps"];
      if (ids.contains(parent)) one["ctrl_deps"] = ids[parent];
    }
    added_after[last] = std::move(more);
  }
  for (Json& node : graph["nodes"]) {
    const std::int64_t id = node["id"];
    nodes.push_back(std::move(node));
    for (Json& one : added_after[id]) nodes.push_back(std::move(one));
  }
  graph["nodes"] = std::move(nodes);
  return written(name, graph.dump());
}

// Reads one value of the result of each layer norm: `x.mean().item()` without the mean.
std::string with_items(const std::string& file) {
  return with_added(
      file, "items.json",
      [](const Json& node, const auto&) { return node["name"] == "aten::layer_norm"; },
      [](const std::vector<Json>& norm) {
        Json item = norm.front();
        Json value = item["outputs"]["values"][0];
        value[3] = 1;  // elements
        item["name"] = "aten::item";
        item["inputs"] = {{"values", {value}},
                          {"shapes", {Json::array()}},
                          {"types", {"Tensor(float)"}},
                          {"strides", {Json::array()}}};
        item["outputs"] = {{"values", {1.0}},
                           {"shapes", {Json::array()}},
                           {"types", {"Double"}},
                           {"strides", {Json::array()}}};
        Json scalar = item;
        scalar["name"] = "aten::_local_scalar_dense";
        scalar["ctrl_deps"] = item["id"];
        scalar["id"] = item["id"].template get<std::int64_t>() + 1;
        return std::vector<Json>{item, scalar};
      });
}

// Each cast happens twice.
std::string with_casts(const std::string& file) {
  return with_added(
      file, "casts.json",
      [](const Json& node, const auto& children) {
        return node["name"] == "aten::to" && std::ranges::any_of(children, [](const Json& one) {
                 return one["name"] == "aten::_to_copy";
               });
      },
      [](const std::vector<Json>& cast) { return cast; });
}

// The largest reason of each of five GPUs; the answer comes within ten seconds.
std::vector<Json> reasons_on_five(const std::string& before, const std::string& after) {
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = gate(with(with({before, after}, kFive), {"--json"}));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_THAT(outcome.status, ::testing::AnyOf(0, 3)) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["gpus"].size(), 5U);
  std::vector<Json> first;
  for (const Json& gpu : json["gpus"]) {
    EXPECT_FALSE(gpu["reasons"].empty()) << gpu["gpu"];
    if (gpu["reasons"].empty()) continue;
    first.push_back(gpu["reasons"][0]);
    first.back()["gpu"] = gpu["gpu"];
    first.back()["share"] =
        gpu["reasons"][0]["cost_us"].get<double>() / gpu["change_us"].get<double>();
  }
  return first;
}

std::string gpt2(const std::string& name, const Words& more) {
  return built(name, with({"gpt", "--batch", "8", "--layers", "4", "--precision", "bf16"}, more));
}

void expect_reason(const std::string& before, const std::string& after, const std::string& reason,
                   double share) {
  for (const Json& found : reasons_on_five(before, after)) {
    SCOPED_TRACE(found.dump());
    EXPECT_EQ(found["reason"], reason);
    EXPECT_GT(found["cost_us"], 0);
    EXPECT_NEAR(found["share"], 1, share);
  }
}

TEST(GateCommand, NamesAnItemPerLayerWithItsCostOnFiveGpus) {
  const std::string flash = gpt2("flash.json", {"--attention", "flash"});
  expect_reason(flash, with_items(flash), "waits for the GPU", 0.1);
}

// `analyze` says what it gains to leave the values on the GPU: what reading them costs.
TEST(GateCommand, AnalyzeGainsWhatAnItemPerLayerCosts) {
  const std::string flash = gpt2("flash.json", {"--attention", "flash"});
  const std::string items = with_items(flash);
  const auto step_us = [](const std::string& file) {
    return json_of({"predict", file, "--gpu", "h100-sxm-80gb"})["e2e_us"].get<double>();
  };
  const Json found = json_of({"analyze", items, "--gpu", "h100-sxm-80gb"})["findings"];
  const auto waits =
      std::ranges::find_if(found, [](const Json& one) { return one["rule"] == "blocking-waits"; });
  ASSERT_NE(waits, found.end());
  const double cost = step_us(items) - step_us(flash);
  EXPECT_NEAR((*waits)["gain_us"].get<double>(), cost, 0.15 * cost);
}

TEST(GateCommand, NamesAttentionThatIsNoLongerFused) {
  const std::string flash = gpt2("flash.json", {"--attention", "flash"});
  expect_reason(flash, gpt2("eager.json", {}), "attention", 0.3);
}

TEST(GateCommand, NamesCastsThatDoubled) {
  const std::string flash = gpt2("flash.json", {"--attention", "flash"});
  const std::string twice = with_casts(flash);
  expect_reason(flash, twice, "casts", 0.1);
  const Outcome gain = gate(with({twice, flash}, kFive));
  EXPECT_EQ(gain.status, 0);
  EXPECT_THAT(gain.out, HasSubstr("faster on"));
  expect_narrow(gain.out);
}

TEST(GateCommand, PricesLikePredict) {
  const std::string flash = gpt2("flash.json", {"--attention", "flash"});
  const std::string eager = gpt2("eager.json", {});
  const Outcome outcome = gate({flash, eager, "--gpus", "a100-sxm-80gb", "--json"});
  ASSERT_EQ(outcome.status, 3) << outcome.err;
  const Json gpu = Json::parse(outcome.out)["gpus"][0];
  const auto step_us = [](const std::string& graph) {
    return json_of({"predict", graph, "--gpu", "a100-sxm-80gb"})["e2e_us"].get<double>();
  };
  EXPECT_NEAR(gpu["before_us"].get<double>(), step_us(flash), 1);
  EXPECT_NEAR(gpu["after_us"].get<double>(), step_us(eager), 1);
}

}  // namespace gate_cli_test
}  // namespace perfmodel::test_support
