// Collectives over several nodes, exchanges between all pairs and NVLink domains of several
// machines: times by hand, and what must hold for every topology.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "perfmodel/predictors/detail/collectives.hpp"

namespace perfmodel {
namespace collectives_between_test {

using enum CollectiveKind;

/// 8 GPUs, 10 rings of 10 GB/s, 4 NICs that reach 10 GB/s each.
Topology round_topology() {
  Topology topology;
  topology.name = "round";
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

CollectiveTime time_of(const Topology& topology, CollectiveKind kind, double bytes, int ranks,
                       int nodes) {
  const auto result =
      collective_time(topology, {.kind = kind, .bytes = {bytes}, .ranks = ranks, .nodes = nodes});
  EXPECT_TRUE(result.has_value()) << to_string(result.error());
  return result.value_or(CollectiveTime{});
}

// One chain through 16 ranks: 14 hops inside of 3.4 us, one network hop of 14 + 2 x 1; each edge
// carries 15/16 of the buffer, between the nodes at 40 GB/s.
TEST(CollectivesBetween, GathersAreARingThatFillsItself) {
  for (const CollectiveKind kind : {kAllGather, kReduceScatter}) {
    const CollectiveTime time = time_of(round_topology(), kind, 1e9, 16, 2);
    EXPECT_NEAR(time.latency.count(), 8.4 + 14 * 3.4 + 16, 1e-9);
    EXPECT_NEAR(time.wire.count(), 1e9 * 15 / 16 / 40e3, 1e-6);
    EXPECT_EQ(time.algorithm, "Ring");
    EXPECT_EQ(time.protocol, "Simple");
    // The links inside carry as much: 10 rings of 10 GB/s.
    Topology fast = round_topology();
    fast.nic->bandwidth = {1e15};
    EXPECT_NEAR(time_of(fast, kind, 1e9, 16, 2).wire.count(), 1e9 * 15 / 16 / 100e3, 10);
  }
}

// The third and the fourth node wait for 512 KiB on each of 10 channels before they pass anything.
TEST(CollectivesBetween, BroadcastsAreAChain) {
  for (const CollectiveKind kind : {kBroadcast, kReduce}) {
    const CollectiveTime time = time_of(round_topology(), kind, 1e9, 32, 4);
    EXPECT_NEAR(time.latency.count(), 8.4 + 28 * 3.4 + 3 * 16, 1e-9);
    EXPECT_NEAR(time.wire.count(), (1e9 + 2 * 10 * 524288) / 40e3, 1e-6);
  }
}

// LL: 6.6 + 7 x 0.6 us inside, 2.7 + 1 us between and 1 us for each of 8 peers there; every word
// carries a flag, so that 6.4 kB take the time of 12.8.
TEST(CollectivesBetween, SmallExchangesTakeLl) {
  const CollectiveTime time = time_of(round_topology(), kAllToAll, 1600, 16, 2);
  EXPECT_NEAR(time.latency.count(), 10.8 + 3.7 + 8, 1e-9);
  EXPECT_NEAR(time.wire.count(), 12.8e3 / 40e3, 1e-9);
  EXPECT_EQ(time.protocol, "LL");
  EXPECT_EQ(time_of(round_topology(), kAllToAll, 80e6, 16, 2).protocol, "Simple");
  EXPECT_NEAR(time_of(round_topology(), kSend, 1000, 2, 2).time.count(), 6.6 + 3.7 + 1 + 0.2, 1e-9);
}

// Uneven sizes see the switches between the nodes as even ones do.
TEST(CollectivesBetween, UnevenExchangesUseTheSameNetwork) {
  Topology topology = round_topology();
  topology.network = {.rails = 4, .levels = {{2, 3}, {8, 1}}};
  const std::vector<Bytes> each(32, Bytes{31e6});
  const auto uneven = all_to_all_v_time(topology, 4, each, each);
  ASSERT_TRUE(uneven.has_value());
  EXPECT_NEAR(uneven->time.count(), time_of(topology, kAllToAll, 32e6, 32, 4).time.count(), 1e-6);
}

// Eight boards on two host bridges reach 50 GB/s each: 8 x S / 4 cross. With six boards, 6 x S / 4
// cross, so that each gets (64 / 7) / (36 / 5) as much; four are limited by 80 GB/s between two
// boards.
TEST(CollectivesBetween, FewerBoardsGetMoreOfTheHostBridge) {
  Topology topology = round_topology();
  topology.intra.kind = IntraLink::kPcie;
  const auto wire = [&](int ranks) {
    return time_of(topology, kAllToAll, 60e6, ranks, 1).wire.count();
  };
  EXPECT_NEAR(wire(8), 60e6 * 7 / 8 / 50e3, 1e-6);
  EXPECT_NEAR(wire(6), 60e6 * 5 / 6 / (50e3 * 64 / 7 * 5 / 36), 1e-6);
  EXPECT_NEAR(wire(4), 60e6 * 3 / 4 / 80e3, 1e-6);
  EXPECT_NEAR(wire(2), 60e6 / 2 / 80e3, 1e-6);
}

TEST(CollectivesBetween, MachinesOfOneDomainAreOneNode) {
  const Topology rack = TopologyCatalog::builtin().find("gb200-nvl72").value();
  EXPECT_EQ(nodes_of_machines(rack, 64, 16), 1);
  EXPECT_EQ(nodes_of_machines(rack, 144, 36), 2);
  EXPECT_EQ(nodes_of_machines(rack, 72, 1), 1);  // the rack as one machine
  EXPECT_EQ(nodes_of_machines(TopologyCatalog::builtin().find("hgx-h100").value(), 4, 2), 2);
  // Four NICs of a machine are 72 of a rack.
  const Topology told = with_network(rack, {.nics = 4, .nic_bandwidth = {50e9}}).value();
  EXPECT_EQ(told.nic->count, 72);
  EXPECT_EQ(with_network(rack, {.network = "NVLink 5"})->nic->count, rack.nic->count);
}

// Two racks of 72: 72 x 50 GB/s x 0.9 fill 72 x 5.7 MB, then NVLink, 824.1 GB/s of bus bandwidth,
// takes longer than the NICs.
TEST(CollectivesBetween, RacksAreASecondTier) {
  const Topology rack = TopologyCatalog::builtin().find("gb200-nvl72").value();
  const double nics = 72 * 45e3;
  EXPECT_NEAR(time_of(rack, kAllReduce, 1e9, 144, 2).wire.count(),
              72 * 5.7e6 / nics + 2 * 71.0 / 72 * 1e9 / 824.1e3, 1);
}

// Inside one rack NVLink SHARP sums in the switches: 25 us and 2 x 71/72 GB at 824.1 GB/s, where
// 142 steps of a ring would take 1.1 ms. Few bytes take no less than among the 8 measured GPUs.
TEST(CollectivesBetween, SwitchesSumAWholeRack) {
  const Topology rack = TopologyCatalog::builtin().find("gb200-nvl72").value();
  EXPECT_NEAR(time_of(rack, kAllReduce, 1e9, 72, 1).time.count(),
              25 + 2 * 71.0 / 72 * 1e9 / 824.1e3, 0.1);
  EXPECT_GE(time_of(rack, kAllReduce, 1024, 72, 1).time,
            time_of(rack, kAllReduce, 1024, 8, 1).time);
  EXPECT_LE(time_of(rack, kAllReduce, 1024, 72, 1).time.count(), 30);
}

/// Nodes and bytes spread evenly over their logarithms.
double drawn(std::mt19937& random, double most) {
  return std::pow(most, std::uniform_real_distribution<double>(0, 1)(random));
}

// More bytes or more hops are never faster: seeded groups of every topology and collective.
TEST(CollectivesBetween, NeverFallWithBytesOrNodes) {
  std::mt19937 random(60);
  const auto& topologies = TopologyCatalog::builtin().topologies();
  for (int i = 0; i < 60000; ++i) {
    const Topology& topology = topologies[random() % topologies.size()];
    const auto kind = static_cast<CollectiveKind>(random() % 10);
    if (!topology.nic) continue;
    const bool is_message = kind == kSend || kind == kRecv;
    const int most = is_message ? 1 : topology.gpus_per_node;
    const int local = 1 + static_cast<int>(random() % static_cast<unsigned>(most));
    const int nodes = is_message ? 1 : static_cast<int>(drawn(random, 300));
    const int more = nodes + (is_message ? 1 : static_cast<int>(drawn(random, 300)));
    const double bytes = drawn(random, 1e11), larger = bytes * drawn(random, 4);
    const double usual = time_of(topology, kind, bytes, nodes * local, nodes).time.count();
    const auto text = [&] {
      return topology.name + " " + std::string(to_string(kind)) + " " + std::to_string(bytes) +
             " B, " + std::to_string(local) + " on each of " + std::to_string(nodes) + ", " +
             std::to_string(more) + " nodes";
    };
    const double slack = 1 - 1e-9;
    EXPECT_GE(time_of(topology, kind, larger, nodes * local, nodes).time.count(), usual * slack)
        << text() << ", " << larger << " B";
    EXPECT_GE(time_of(topology, kind, bytes, more * local, more).time.count(), usual * slack)
        << text();
  }
}

}  // namespace collectives_between_test
}  // namespace perfmodel
