// Rails and oversubscribed levels between nodes: times that a reader can redo.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "../scratch.hpp"
#include "perfmodel/predictors/detail/collectives.hpp"
#include "perfmodel/predictors/topology.hpp"

namespace perfmodel {
namespace network_levels_test {

using enum CollectiveKind;
using testing::HasSubstr;
using Json = nlohmann::json;
using Levels = std::vector<Topology::Network::Level>;

/// 8 GPUs and 4 NICs that reach 10 GB/s each: 40 GB/s per node.
Topology nodes_of_eight() {
  Topology topology;
  topology.name = "levels";
  topology.gpus_per_node = 8;
  topology.generation = NcclGeneration::kAmpere;
  topology.cpu = "intel";
  topology.intra = {.kind = IntraLink::kNvswitch,
                    .gpu_bandwidth = {150e9},
                    .ring_channels = 10,
                    .channel_bandwidth = {10e9},
                    .p2p_bandwidth = {80e9},
                    .all_to_all_bandwidth = {50e9}};
  topology.nic = Topology::Nic{
      .count = 4, .bandwidth = {12.5e9}, .latency = Microseconds{1}, .efficiency = 0.8};
  return topology;
}

Topology with_levels(Levels levels, int rails = 0, bool pxn = true) {
  Topology topology = nodes_of_eight();
  topology.network = {.rails = rails, .pxn = pxn, .levels = std::move(levels)};
  return topology;
}

double time_us(const Topology& topology, const CollectiveQuery& query) {
  const auto result = collective_time(topology, query);
  EXPECT_TRUE(result.has_value()) << to_string(result.error());
  return result ? result->time.count() : 0;
}

// 4 nodes of 8: each node sends 8 x 32 MB x 3/4 = 192 MB, 4,800 us by its NICs; 8.4 + 7 x 3.4 + 14
// + 2 + 24 = 72.2 us to begin.
TEST(NetworkLevels, AllToAllWaitsForTheUplinks) {
  const CollectiveQuery query{.kind = kAllToAll, .bytes = {32e6}, .ranks = 32, .nodes = 4};
  EXPECT_NEAR(time_us(nodes_of_eight(), query), 4872.2, 1e-6);
  // Two nodes per leaf: 2/3 of it leaves the leaf, at a quarter of the rate.
  EXPECT_NEAR(time_us(with_levels({{2, 4}, {8, 1}}), query), 72.2 + 4800 * 2.0 / 3 * 4, 1e-6);
  EXPECT_NEAR(time_us(with_levels({{2, 1}, {8, 1}}), query), 4872.2, 1e-6);
  EXPECT_NEAR(time_us(with_levels({{4, 4}, {8, 1}}), query), 4872.2, 1e-6);
  // Two levels, each two to one: what leaves both has a quarter, as above; 8 nodes, 6/7 of it.
  const CollectiveQuery wide{.kind = kAllToAll, .bytes = {32e6}, .ranks = 64, .nodes = 8};
  const double begin = 8.4 + 7 * 3.4 + 14 + 2 + 56, nics = 8 * 32e6 * 7 / 8 / 40e3;
  EXPECT_NEAR(time_us(with_levels({{2, 2}, {4, 2}, {8, 1}}), wide),
              begin + nics * std::max(2 * 6.0 / 7, 4 * 4.0 / 7), 1e-6);
}

// A ring enters and leaves a leaf once, with the traffic of one node.
TEST(NetworkLevels, RingsCrossABorderOnce) {
  const CollectiveQuery query{.kind = kAllReduce, .bytes = {1e9}, .ranks = 32, .nodes = 4};
  const double plain = time_us(nodes_of_eight(), query);
  EXPECT_DOUBLE_EQ(time_us(with_levels({{2, 2}, {8, 1}}), query), plain);
  Topology half = nodes_of_eight();
  half.nic->bandwidth = {6.25e9};
  EXPECT_DOUBLE_EQ(time_us(with_levels({{2, 4}, {8, 1}}), query), time_us(half, query));
  // Every second node: one per leaf, so that its whole traffic leaves, together with the others'.
  CollectiveQuery apart = query;
  apart.node_stride = 2;
  EXPECT_DOUBLE_EQ(time_us(with_levels({{2, 2}, {8, 1}}), apart), time_us(half, query));
  // To a neighbour of the leaf, and beyond it.
  const CollectiveQuery send{.kind = kSend, .bytes = {1e8}, .ranks = 2, .nodes = 2};
  CollectiveQuery far = send;
  far.node_stride = 2;
  const Topology levels = with_levels({{2, 4}, {8, 1}});
  EXPECT_DOUBLE_EQ(time_us(levels, send), time_us(nodes_of_eight(), send));
  EXPECT_NEAR(time_us(levels, far) - time_us(levels, send), 3 * 1e8 / 10e3, 1e-6);
}

// 2 nodes below one leaf: each sends 8 x 16 MB / 2 = 64 MB, 1,600 us; 56.2 us to begin.
TEST(NetworkLevels, RailsAreReachedInsideTheNodeOrAboveTheLeaves) {
  const CollectiveQuery query{.kind = kAllToAll, .bytes = {16e6}, .ranks = 16, .nodes = 2};
  Topology slow_links = with_levels({{2, 4}, {8, 1}}, 4);
  EXPECT_NEAR(time_us(slow_links, query), 1656.2, 1e-6);
  // 7 MB to the node's own ranks and 3/4 of 8 MB to other rails, at 5 GB/s; with more nodes fewer
  // bytes stay, but it takes no less than 14 MB inside one node, 8.4 + 7 x 3.4 us to begin.
  slow_links.intra.all_to_all_bandwidth = {5e9};
  EXPECT_NEAR(time_us(slow_links, query), 32.2 + 14e6 / 5e3, 1e-6);
  // Without PXN 3/4 go over the spine, at a quarter of the rate.
  EXPECT_NEAR(time_us(with_levels({{2, 4}, {8, 1}}, 4, false), query), 56.2 + 1600 * 3, 1e-6);
  // One GPU per node talks to its own rail alone.
  const CollectiveQuery own{.kind = kAllToAll, .bytes = {16e6}, .ranks = 2, .nodes = 2};
  EXPECT_DOUBLE_EQ(time_us(with_levels({{2, 4}, {8, 1}}, 4, false), own),
                   time_us(nodes_of_eight(), own));
}

TEST(NetworkLevels, MoreNodesThanThereAreIsAnError) {
  const Topology topology = with_levels({{2, 4}, {8, 1}});
  const auto made =
      collective_time(topology, {.kind = kAllReduce, .bytes = {1e6}, .ranks = 128, .nodes = 16});
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("at most the 8 nodes of topology levels"));
  EXPECT_TRUE(check_fits(topology, 64));
  EXPECT_THAT(check_fits(topology, 65).error().message,
              HasSubstr("at most the 64 GPUs of topology levels, found 65"));
}

Result<Topology> changed_example(const std::function<void(Json&)>& change) {
  const auto source = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "examples" / "topologies";
  std::ifstream in(source / "hgx-h100-rails.json");
  Json document = Json::parse(in);
  change(document);
  const auto file = test_support::scratch() / "network_levels.json";
  std::ofstream(file) << document.dump();
  auto made = read_topology(file);
  std::filesystem::remove(file);
  return made;
}

TEST(NetworkLevels, TheExampleIsReadAndMistakesAreNamed) {
  const auto example = changed_example([](Json&) {});
  ASSERT_TRUE(example) << to_string(example.error());
  ASSERT_TRUE(example->network);
  EXPECT_EQ(example->network->rails, 8);
  EXPECT_EQ(example->network->levels.size(), 2U);
  EXPECT_EQ(example->network->levels[0].oversubscription, 2);
  const auto refused = [](const std::function<void(Json&)>& change) {
    const auto made = changed_example(change);
    return made ? "none" : to_string(made.error());
  };
  EXPECT_THAT(refused([](Json& t) { t["network"]["levels"][1]["nodes"] = 32; }),
              HasSubstr("/network/levels/1/nodes: expected more nodes than the level below (32)"));
  EXPECT_THAT(refused([](Json& t) { t["network"]["levels"][0]["oversubscription"] = 0.5; }),
              HasSubstr("expected a factor from 1 to 1e6"));
  EXPECT_THAT(refused([](Json& t) { t["network"]["rails"] = 9; }),
              HasSubstr("expected at most one rail per NIC (8)"));
  EXPECT_THAT(refused([](Json& t) { t["network"]["levels"] = Json::array(); }),
              HasSubstr("at least one level"));
}

}  // namespace network_levels_test
}  // namespace perfmodel
