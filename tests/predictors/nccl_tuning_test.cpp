#include "perfmodel/predictors/detail/nccl_tuning.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace perfmodel {
namespace nccl_tuning_test {

namespace fs = std::filesystem;
using Json = nlohmann::json;

NcclGraph graph(int channels, double intra, double inter, double latency = 0) {
  return {.channels = channels,
          .intra_gb_per_s = intra,
          .inter_gb_per_s = inter,
          .inter_latency_us = latency};
}

/// 8 ranks on one Ampere node, 10 channels of 20 GB/s.
NcclTuningInput ampere_node() {
  return {.ranks = 8, .ring = graph(10, 20, 20), .tree = graph(10, 20, 20)};
}

std::string label(const NcclOption& option) {
  return std::string(to_string(option.algorithm)) + "/" + std::string(to_string(option.protocol));
}

NcclOption option(const NcclTuningInput& input, NcclAlgorithm algorithm, NcclProtocol protocol) {
  const auto tuning = NcclTuning::make(input);
  EXPECT_TRUE(tuning.has_value());
  for (const NcclOption& found : tuning->options()) {
    if (found.algorithm == algorithm && found.protocol == protocol) return found;
  }
  ADD_FAILURE() << "not offered: " << to_string(algorithm) << "/" << to_string(protocol);
  return {algorithm, protocol};
}

std::set<std::string> offered(const NcclTuningInput& input) {
  std::set<std::string> labels;
  const auto tuning = NcclTuning::make(input);
  for (const NcclOption& found : tuning->options()) labels.insert(label(found));
  return labels;
}

double time(const NcclTuningInput& input, NcclAlgorithm algorithm, NcclProtocol protocol,
            double bytes) {
  const NcclOption found = option(input, algorithm, protocol);
  return NcclTuning::make(input)->time(found, {bytes}).count();
}

using enum NcclAlgorithm;
using enum NcclProtocol;

TEST(NcclTuning, RingInOneNode) {
  const NcclTuningInput input = ampere_node();  // 14 steps, bus 200, algorithm 8/14
  EXPECT_NEAR(option(input, kRing, kLl).latency_us, 6.6 + 14 * 0.6, 1e-9);
  EXPECT_NEAR(option(input, kRing, kLl128).latency_us, 14 + 14 * 1.9, 1e-9);
  EXPECT_NEAR(option(input, kRing, kSimple).latency_us, 8.4 + 14 * 3.4, 1e-9);
  EXPECT_NEAR(option(input, kRing, kLl).bandwidth_gb_per_s, 87.7 * 8 / 14, 1e-9);  // cap < 100
  EXPECT_NEAR(option(input, kRing, kLl128).bandwidth_gb_per_s, 184 * 8.0 / 14, 1e-9);
  EXPECT_NEAR(option(input, kRing, kSimple).bandwidth_gb_per_s, 200 * 8.0 / 14, 1e-9);
}

TEST(NcclTuning, RingCapsPerChannel) {
  NcclTuningInput input = ampere_node();
  input.ring = graph(2, 30, 30);  // 0.92 x 60 = 55.2, at most 2 x 20
  EXPECT_NEAR(option(input, kRing, kLl128).bandwidth_gb_per_s, 40 * 8.0 / 14, 1e-9);
  EXPECT_NEAR(option(input, kRing, kLl).bandwidth_gb_per_s, 30 * 8.0 / 14, 1e-9);
  input.generation = NcclGeneration::kHopper;  // at most 2 x 36.7
  EXPECT_NEAR(option(input, kRing, kLl128).bandwidth_gb_per_s, 55.2 * 8.0 / 14, 1e-9);
}

TEST(NcclTuning, TreeInOneNode) {
  const NcclTuningInput input = ampere_node();  // bus 0.92 x 200 = 184
  EXPECT_NEAR(option(input, kTree, kLl).latency_us, 6.8 + 2 * 7 * 0.6, 1e-9);
  EXPECT_NEAR(option(input, kTree, kLl128).latency_us, 14 + 2 * 7 * 1.25, 1e-9);
  EXPECT_NEAR(option(input, kTree, kSimple).latency_us, 8.4 + 2 * 7 * 4.0, 1e-9);
  EXPECT_NEAR(option(input, kTree, kLl).bandwidth_gb_per_s, 0.425 * 184 / 3.8, 1e-9);
  EXPECT_NEAR(option(input, kTree, kLl128).bandwidth_gb_per_s, 0.425 * 184 * 7 / 9, 1e-9);
  EXPECT_NEAR(option(input, kTree, kSimple).bandwidth_gb_per_s, 0.425 * 184, 1e-9);
}

TEST(NcclTuning, TreePatternCostsFifteenPercent) {
  NcclTuningInput input = ampere_node();
  input.tree_pattern = false;
  for (NcclProtocol protocol : {kLl, kLl128, kSimple}) {
    EXPECT_NEAR(option(ampere_node(), kTree, protocol).bandwidth_gb_per_s,
                0.85 * option(input, kTree, protocol).bandwidth_gb_per_s, 1e-9);
  }
}

TEST(NcclTuning, TreeCaps) {
  NcclTuningInput input = ampere_node();
  input.tree_pattern = false;
  input.tree = graph(2, 100, 100);  // 0.92 x 200 = 184, at most 2 x 24
  EXPECT_NEAR(option(input, kTree, kSimple).bandwidth_gb_per_s, 24, 1e-9);
  EXPECT_NEAR(option(input, kTree, kLl128).bandwidth_gb_per_s, 0.5 * 48 * 7 / 9, 1e-9);
  // Two Blackwell nodes, 2 channels: 85.6 x 120/128 = 80.25, at most 2 x 31.67.
  input.generation = NcclGeneration::kBlackwell;
  input.nodes = 2;
  EXPECT_NEAR(option(input, kTree, kSimple).bandwidth_gb_per_s, 42.8, 1e-9);
  EXPECT_NEAR(option(input, kTree, kLl128).bandwidth_gb_per_s, 31.67, 1e-9);
  // LL: 20 channels reach the cap of 90 (row 0 stands for Intel, whatever the GPU).
  input.tree = graph(20, 100, 100);
  EXPECT_NEAR(option(input, kTree, kLl).bandwidth_gb_per_s, 0.5 * 39, 1e-9);
  input.cpu_amd = true;
  EXPECT_NEAR(option(input, kTree, kLl).bandwidth_gb_per_s, 0.5 * 22.5, 1e-9);
}

TEST(NcclTuning, RingOverManyNodes) {
  // 32 ranks on 4 nodes: 62 steps, 6 of them between nodes; NIC latency 1.5 us.
  NcclTuningInput input{.ranks = 32,
                        .nodes = 4,
                        .generation = NcclGeneration::kHopper,
                        .ring = graph(16, 20, 12, 1.5),
                        .tree = graph(16, 20, 12, 1.5)};
  EXPECT_NEAR(option(input, kRing, kLl).latency_us, 6.6 + 56 * 1.0 + 6 * (2.7 + 1.5), 1e-9);
  EXPECT_NEAR(option(input, kRing, kLl128).latency_us, 14 + 56 * 1.9 + 6 * (4 + 1.5), 1e-9);
  EXPECT_NEAR(option(input, kRing, kSimple).latency_us, 8.4 + 56 * 3.4 + 6 * (14 + 3), 1e-9);
  EXPECT_NEAR(option(input, kRing, kSimple).bandwidth_gb_per_s, 192 * 32.0 / 62, 1e-9);
  EXPECT_NEAR(option(input, kRing, kLl).bandwidth_gb_per_s, 20.4 * 32 / 62, 1e-9);
  input.cpu_amd = true;  // overhead 2, Simple 6; other row of the LL table
  EXPECT_NEAR(option(input, kRing, kLl).latency_us, 6.6 + 56 * 2.0 + 6 * (2.7 + 1.5), 1e-9);
  EXPECT_NEAR(option(input, kRing, kLl128).latency_us, 14 + 56 * 2.0 + 6 * (4 + 1.5), 1e-9);
  EXPECT_NEAR(option(input, kRing, kSimple).latency_us, 8.4 + 56 * 6.0 + 6 * (14 + 3), 1e-9);
  EXPECT_NEAR(option(input, kRing, kLl).bandwidth_gb_per_s, 19.0 * 32 / 62, 1e-9);
}

TEST(NcclTuning, TwoNodesCountWithTheBandwidthInside) {
  NcclTuningInput input{.ranks = 16,
                        .nodes = 2,
                        .generation = NcclGeneration::kAmpere,
                        .ring = graph(8, 20, 12),
                        .tree = graph(8, 20, 12)};
  EXPECT_NEAR(option(input, kRing, kSimple).bandwidth_gb_per_s, 160 * 16.0 / 30, 1e-9);
  input.ranks = 24;
  input.nodes = 3;
  EXPECT_NEAR(option(input, kRing, kSimple).bandwidth_gb_per_s, 96 * 24.0 / 46, 1e-9);
}

TEST(NcclTuning, TreeOverNodesTakesTheFloorOfTheLogarithm) {
  NcclTuningInput input{.ranks = 48,
                        .nodes = 6,
                        .generation = NcclGeneration::kAmpere,
                        .ring = graph(8, 20, 12, 1),
                        .tree = graph(8, 20, 12, 1)};
  EXPECT_NEAR(option(input, kTree, kLl).latency_us, 6.8 + 2 * (7 * 0.6 + 2 * 6.0), 1e-9);
  EXPECT_NEAR(option(input, kTree, kLl128).latency_us, 14 + 2 * (7 * 1.25 + 2 * 9.5), 1e-9);
  EXPECT_NEAR(option(input, kTree, kSimple).latency_us, 8.4 + 2 * (7 * 4.0 + 2 * 16.0), 1e-9);
  // 0.92 x 96 = 88.32; LL128 x 120/128
  EXPECT_NEAR(option(input, kTree, kLl128).bandwidth_gb_per_s, 0.425 * 88.32 * 120 / 128, 1e-9);
}

TEST(NcclTuning, PcieHops) {
  NcclTuningInput input = ampere_node();
  input.intra_link = NcclLink::kPcie;
  EXPECT_NEAR(option(input, kRing, kLl).latency_us, 6.6 + 14 * 1.0, 1e-9);
  EXPECT_NEAR(option(input, kRing, kLl128).latency_us, 14 + 14 * 2.5, 1e-9);
  EXPECT_NEAR(option(input, kRing, kSimple).latency_us, 8.4 + 14 * 5.7, 1e-9);
  EXPECT_NEAR(option(input, kTree, kLl128).latency_us, 14 + 14 * 1.9, 1e-9);
}

TEST(NcclTuning, Ll128CanBeOff) {
  NcclTuningInput input = ampere_node();
  EXPECT_EQ(offered(input), (std::set<std::string>{"Ring/LL", "Ring/LL128", "Ring/Simple",
                                                   "Tree/LL", "Tree/LL128", "Tree/Simple"}));
  input.ll128_enabled = false;
  EXPECT_EQ(offered(input),
            (std::set<std::string>{"Ring/LL", "Ring/Simple", "Tree/LL", "Tree/Simple"}));
}

TEST(NcclTuning, GathersUseTheRingAndNvls) {
  for (CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
    NcclTuningInput input = ampere_node();
    input.collective = kind;
    EXPECT_EQ(offered(input), (std::set<std::string>{"Ring/LL", "Ring/LL128", "Ring/Simple"}));
    EXPECT_NEAR(option(input, kRing, kSimple).latency_us, 8.4 + 7 * 3.4, 1e-9);
    EXPECT_NEAR(option(input, kRing, kSimple).bandwidth_gb_per_s, 200 * 8.0 / 7, 1e-9);
    input.generation = NcclGeneration::kHopper;
    input.nvls_available = true;
    input.nvls = graph(16, 20, 100);  // 16 x 20 x 0.85 x 15/16 x 7/8
    EXPECT_NEAR(option(input, kNvls, kSimple).bandwidth_gb_per_s, 223.125, 1e-9);
    EXPECT_NEAR(option(input, kNvls, kSimple).latency_us, 25, 1e-9);
    input.nodes = 2;
    input.nvls_tree = input.nvls;
    EXPECT_EQ(offered(input), (std::set<std::string>{"Ring/LL", "Ring/LL128", "Ring/Simple"}));
  }
}

TEST(NcclTuning, BroadcastAndReduceUseTheRingAlone) {
  for (CollectiveKind kind : {CollectiveKind::kBroadcast, CollectiveKind::kReduce}) {
    NcclTuningInput input = ampere_node();
    input.collective = kind;
    input.nvls_available = true;
    input.generation = NcclGeneration::kHopper;
    input.nvls = graph(16, 20, 100);
    EXPECT_EQ(offered(input), (std::set<std::string>{"Ring/LL", "Ring/LL128", "Ring/Simple"}));
    EXPECT_NEAR(option(input, kRing, kSimple).bandwidth_gb_per_s, 200, 1e-9);
    EXPECT_NEAR(option(input, kRing, kSimple).latency_us, 8.4 + 7 * 3.4, 1e-9);
  }
}

TEST(NcclTuning, NvlsInOneNode) {
  NcclTuningInput input = ampere_node();
  input.generation = NcclGeneration::kHopper;
  input.nvls = graph(16, 20, 100);
  EXPECT_FALSE(offered(input).contains("NVLS/Simple"));  // not available
  input.nvls_available = true;
  // 16 x 20 x 0.85 x 15/16 x 2 = 510, x 8/14
  EXPECT_NEAR(option(input, kNvls, kSimple).bandwidth_gb_per_s, 510 * 8.0 / 14, 1e-9);
  EXPECT_NEAR(option(input, kNvls, kSimple).latency_us, 25, 1e-9);
  input.nvls = graph(16, 20, 20);  // the other limit of a channel
  EXPECT_NEAR(option(input, kNvls, kSimple).bandwidth_gb_per_s, 320 * 8.0 / 14, 1e-9);
  input.generation = NcclGeneration::kBlackwell;
  input.nvls = graph(16, 40, 100);  // 16 x 40 x 0.74 x 15/16 x 2 = 888
  EXPECT_NEAR(option(input, kNvls, kSimple).bandwidth_gb_per_s, 888 * 8.0 / 14, 1e-9);
  input.generation = NcclGeneration::kAmpere;  // no such unit
  EXPECT_FALSE(offered(input).contains("NVLS/Simple"));
  input.generation = NcclGeneration::kHopper;
  input.nvls = graph(1, 20, 20);  // one channel gives nothing
  EXPECT_FALSE(offered(input).contains("NVLS/Simple"));
  EXPECT_EQ(nvls_efficiency(NcclGeneration::kVolta), 0);
  EXPECT_EQ(nvls_efficiency(NcclGeneration::kHopper), 0.85);
}

TEST(NcclTuning, NvlsTreeOverNodes) {
  NcclTuningInput input{.ranks = 16,
                        .nodes = 2,
                        .generation = NcclGeneration::kHopper,
                        .ring = graph(16, 20, 20),
                        .tree = graph(16, 20, 20),
                        .nvls = graph(16, 40, 20, 1),
                        .nvls_tree = graph(16, 40, 20, 1),
                        .nvls_available = true};
  EXPECT_FALSE(offered(input).contains("NVLS/Simple"));
  // min(40 x 0.85 x 15/16 x 2 = 63.75, 2 x 20, 57.7) = 40 on two nodes, 20 on more
  EXPECT_NEAR(option(input, kNvlsTree, kSimple).bandwidth_gb_per_s, 640 * 16.0 / 30, 1e-9);
  EXPECT_NEAR(option(input, kNvlsTree, kSimple).latency_us, 25 + 2 * (20.9 + 2), 1e-9);
  input.nvls_tree = graph(16, 40, 50);  // the cap decides
  EXPECT_NEAR(option(input, kNvlsTree, kSimple).bandwidth_gb_per_s, 16 * 57.7 * 16 / 30, 1e-9);
  input.ranks = 40;
  input.nodes = 5;
  EXPECT_NEAR(option(input, kNvlsTree, kSimple).bandwidth_gb_per_s, 16 * 45.5 * 40 / 78, 1e-9);
  EXPECT_NEAR(option(input, kNvlsTree, kSimple).latency_us, 25 + 2 * 2 * 20.9, 1e-9);
  input.nvls_tree = graph(16, 40, 20);
  EXPECT_NEAR(option(input, kNvlsTree, kSimple).bandwidth_gb_per_s, 320 * 40.0 / 78, 1e-9);
}

TEST(NcclTuning, SizeCorrectionOfTrees) {
  const NcclTuningInput input = ampere_node();
  const auto factor = [&](NcclProtocol protocol, double bytes) {
    const NcclOption tree = option(input, kTree, protocol);
    const double wire = time(input, kTree, protocol, bytes) - tree.latency_us;
    return bytes / (1000 * tree.bandwidth_gb_per_s) / wire;
  };
  EXPECT_NEAR(factor(kSimple, 63), 1, 1e-6);    // below the table
  EXPECT_NEAR(factor(kSimple, 64), 0.9, 1e-6);  // its first entry
  EXPECT_NEAR(factor(kSimple, 127), 0.9, 1e-6);
  EXPECT_NEAR(factor(kLl, 64.0 * (1 << 4)), 0.9, 1e-6);
  EXPECT_NEAR(factor(kLl, 64.0 * (1 << 12)), 0.4, 1e-6);
  EXPECT_NEAR(factor(kLl, 64.0 * (1 << 14) - 1), 0.4, 1e-6);
  EXPECT_NEAR(factor(kLl, 64.0 * (1 << 14)), 0.5, 1e-6);
  EXPECT_NEAR(factor(kLl128, 64.0 * (1 << 10)), 0.6, 1e-6);
  EXPECT_NEAR(factor(kSimple, 64.0 * (1 << 11)), 0.5, 1e-6);
  EXPECT_NEAR(factor(kSimple, 64.0 * (1 << 22)), 0.9, 1e-6);  // the last
  EXPECT_NEAR(factor(kSimple, 64.0 * (1 << 23)), 1, 1e-6);    // above the table
  EXPECT_NEAR(factor(kSimple, 1e12), 1, 1e-6);
}

TEST(NcclTuning, RingPlateauOverNodes) {
  NcclTuningInput input{.ranks = 16,
                        .nodes = 2,
                        .generation = NcclGeneration::kAmpere,
                        .ring = graph(4, 20, 12),
                        .tree = graph(4, 20, 12)};
  const double threshold = 64 * 4 * 16;
  const auto latency = [&](double bytes) {
    return time(input, kRing, kSimple, bytes) -
           bytes / (1000 * option(input, kRing, kSimple).bandwidth_gb_per_s);
  };
  const double listed = option(input, kRing, kSimple).latency_us;
  EXPECT_NEAR(latency(threshold - 1), listed, 1e-6);
  EXPECT_NEAR(latency(threshold), 1.4 * listed, 1e-6);
  input.generation = NcclGeneration::kVolta;
  EXPECT_NEAR(latency(threshold), 1.9 * listed, 1e-6);
  // Neither other protocols nor other collectives nor a single node.
  const NcclOption ll = option(input, kRing, kLl);
  EXPECT_NEAR(time(input, kRing, kLl, threshold),
              ll.latency_us + threshold / (1000 * ll.bandwidth_gb_per_s), 1e-9);
  input.collective = CollectiveKind::kAllGather;
  EXPECT_NEAR(latency(threshold), option(input, kRing, kSimple).latency_us, 1e-6);
  input.collective = CollectiveKind::kAllReduce;
  input.nodes = 1;
  EXPECT_NEAR(latency(threshold), option(input, kRing, kSimple).latency_us, 1e-6);
}

TEST(NcclTuning, BestIsTheFastest) {
  const auto tuning = NcclTuning::make(ampere_node()).value();
  EXPECT_EQ(label(tuning.best({0})), "Ring/LL");  // 15.0 against the tree's 15.2
  EXPECT_EQ(label(tuning.best({1e9})), "Ring/Simple");
  for (double bytes = 1; bytes < 1e11; bytes *= 3) {
    for (const NcclOption& other : tuning.options()) {
      EXPECT_LE(tuning.time(tuning.best({bytes}), {bytes}), tuning.time(other, {bytes}));
    }
  }
}

TEST(NcclTuning, MonotoneTimeNeverFalls) {
  NcclTuningInput input{.ranks = 512,
                        .nodes = 64,
                        .generation = NcclGeneration::kAmpere,
                        .ring = graph(8, 20, 12),
                        .tree = graph(8, 20, 12)};
  const auto tuning = NcclTuning::make(input).value();
  double last = 0;
  bool raw_falls = false;
  double raw_last = 0;
  for (double bytes = 1; bytes < 1e10; bytes *= 1.01) {
    const double monotone = tuning.monotone_time({bytes}).count();
    const double raw = tuning.time(tuning.best({bytes}), {bytes}).count();
    EXPECT_GE(monotone, last) << bytes;
    EXPECT_GE(monotone, raw);
    raw_falls |= raw < raw_last;
    last = monotone;
    raw_last = raw;
  }
  EXPECT_TRUE(raw_falls);  // else nothing was tested
}

TEST(NcclTuning, ErrorsSayWhatWasExpected) {
  const auto message = [](const NcclTuningInput& input) {
    const auto tuning = NcclTuning::make(input);
    EXPECT_FALSE(tuning.has_value());
    if (tuning) return std::string();
    EXPECT_EQ(tuning.error().code, ErrorCode::kImpossible);
    return tuning.error().message;
  };
  NcclTuningInput input = ampere_node();
  input.ranks = 1;
  EXPECT_EQ(message(input), "expected 2 ranks or more, found 1");
  input = ampere_node();
  input.nodes = 9;
  EXPECT_EQ(message(input), "expected 1 to 8 nodes (ranks), found 9");
  input.nodes = 0;
  EXPECT_EQ(message(input), "expected 1 to 8 nodes (ranks), found 0");
  input = ampere_node();
  input.collective = CollectiveKind::kAllToAll;
  EXPECT_EQ(message(input), "expected a collective that NCCL tunes, found all_to_all");
  input = ampere_node();
  input.ring->channels = 0;
  EXPECT_EQ(message(input),
            "expected channels, bandwidths above 0 and a latency of at least 0, found other "
            "figures for Ring");
  input = ampere_node();
  input.tree->intra_gb_per_s = std::nan("");
  EXPECT_NE(message(input).find("for Tree"), std::string::npos);
  input = ampere_node();
  input.tree->inter_latency_us = -1;
  EXPECT_NE(message(input).find("for Tree"), std::string::npos);
  input = ampere_node();
  input.ring.reset();
  input.tree.reset();
  EXPECT_EQ(message(input), "expected a graph for an algorithm to use, found none");
}

TEST(NcclTuning, NamesOfKinds) {
  EXPECT_EQ(to_string(CollectiveKind::kReduceScatter), "reduce_scatter");
  EXPECT_EQ(collective_kind("all_to_all"), CollectiveKind::kAllToAll);
  EXPECT_EQ(collective_kind("barrier"), std::nullopt);
  EXPECT_EQ(to_string(kNvlsTree), "NVLSTree");
}

/// Half a unit of the last printed digit.
double rounding_of(const Json& number) {
  const std::string text = number.dump();
  const auto point = text.find('.');
  if (point == std::string::npos) return 0.5;
  return 0.5 * std::pow(10, -static_cast<double>(text.size() - point - 1));
}

TEST(NcclTuning, AgreesWithThePublicCases) {
  const char* folder = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (!folder) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const fs::path file = fs::path(folder) / "distributed" / "exact_nccl_tuning_model.json";
  if (!fs::exists(file)) GTEST_SKIP() << file << " does not exist";
  std::ifstream stream(file);
  const Json cases = Json::parse(stream).at("cases");
  ASSERT_FALSE(cases.empty());
  const std::map<std::string, CollectiveKind> kinds = {
      {"AllReduce", CollectiveKind::kAllReduce},
      {"AllGather", CollectiveKind::kAllGather},
      {"ReduceScatter", CollectiveKind::kReduceScatter}};
  const std::map<std::string, NcclGeneration> generations = {
      {"Volta", NcclGeneration::kVolta},
      {"Ampere", NcclGeneration::kAmpere},
      {"Hopper", NcclGeneration::kHopper},
      {"Blackwell", NcclGeneration::kBlackwell}};
  for (const Json& entry : cases) {
    SCOPED_TRACE(entry.at("id").get<std::string>());
    const auto graph_of = [&](const char* name) -> std::optional<NcclGraph> {
      if (!entry.at("graphs").contains(name)) return std::nullopt;
      const Json& json = entry["graphs"][name];
      return graph(json.at("nChannels"), json.at("bwIntra"), json.at("bwInter"),
                   json.at("latencyInter"));
    };
    const NcclTuningInput input{
        .collective = kinds.at(entry.at("collective")),
        .ranks = entry.at("n_ranks"),
        .nodes = entry.at("n_nodes"),
        .generation = generations.at(entry.at("compute_capability")),
        .cpu_amd = entry.at("cpu_amd"),
        .intra_link = entry.at("intra_link") == "nvl" ? NcclLink::kNvlink : NcclLink::kPcie,
        .ring = graph_of("Ring"),
        .tree = graph_of("Tree"),
        .nvls = graph_of("NVLS"),
        .nvls_tree = graph_of("NVLSTree"),
        .nvls_available = entry.at("nvls_available"),
        .ll128_enabled = entry.at("ll128_enabled"),
        .tree_pattern = entry.at("tree_pattern")};
    const auto tuning = NcclTuning::make(input);
    ASSERT_TRUE(tuning.has_value()) << to_string(tuning.error());
    const Bytes bytes{entry.at("bytes").get<double>()};
    const Json& expected = entry.at("expected");
    const Json& pairs = expected.at("latency_us_and_bandwidth_GBps");
    EXPECT_EQ(tuning->options().size(), pairs.size());
    for (const NcclOption& found : tuning->options()) {
      const std::string name = label(found);
      ASSERT_TRUE(pairs.contains(name)) << name;
      const double latency = pairs[name][0], all = expected.at("all_us").at(name);
      EXPECT_NEAR(found.latency_us, latency, 1e-6 * latency) << name;
      EXPECT_NEAR(found.bandwidth_gb_per_s, pairs[name][1].get<double>(),
                  rounding_of(pairs[name][1]) * (1 + 1e-9))
          << name;
      EXPECT_NEAR(tuning->time(found, bytes).count(), all, 1e-6 * all) << name;
    }
    const NcclOption& best = tuning->best(bytes);
    const double best_us = expected.at("best_us");
    EXPECT_NEAR(tuning->time(best, bytes).count(), best_us, 1e-6 * best_us);
    EXPECT_EQ(to_string(best.algorithm), expected.at("algorithm").get<std::string>());
    EXPECT_EQ(to_string(best.protocol), expected.at("protocol").get<std::string>());
  }
}

}  // namespace nccl_tuning_test
}  // namespace perfmodel
