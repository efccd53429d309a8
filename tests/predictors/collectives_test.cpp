#include "perfmodel/predictors/detail/collectives.hpp"
#include "perfmodel/predictors/detail/collective_model.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "graph_fixture.hpp"

namespace perfmodel {
namespace collectives_test {

using enum CollectiveKind;

constexpr double kMib = 1 << 20;

Topology known(std::string_view name) { return TopologyCatalog::builtin().find(name).value(); }

/// 8 GPUs, 10 rings of 10 GB/s, curves for 2 and 8 ranks of 40 and 100 us and 100 GB/s.
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
  topology.first_bytes = {1e6};
  for (const auto& [ranks, alpha] : {std::pair{2, 40.0}, {8, 100.0}}) {
    topology.curves.push_back({.ranks = ranks,
                               .alpha = Microseconds{alpha},
                               .bus = {100e9},
                               .octave_factors = {1, 1, 1.5, 1.5, 1}});
  }
  return topology;
}

CollectiveTime time_of(const Topology& topology, CollectiveKind kind, double bytes, int ranks,
                       int nodes = 1) {
  const auto result =
      collective_time(topology, {.kind = kind, .bytes = {bytes}, .ranks = ranks, .nodes = nodes});
  EXPECT_TRUE(result.has_value()) << to_string(result.error());
  return result.value_or(CollectiveTime{});
}

double microseconds(const Topology& topology, CollectiveKind kind, double bytes, int ranks,
                    int nodes = 1) {
  return time_of(topology, kind, bytes, ranks, nodes).time.count();
}

// A curve of 16 ranks: two whole nodes of 8. It is for this group alone.
TEST(Collectives, CurvesBetweenNodes) {
  Topology topology = round_topology();
  const Topology plain = topology;
  topology.curves.push_back({.ranks = 16,
                             .alpha = Microseconds{200},
                             .bus = {20e9},
                             .octave_factors = {1, 1, 1.5, 1.5, 1.5}});
  // 200 us + 1.875 x 2 MB / 20 GB/s = 187.5 us, factor 1
  const CollectiveTime at_2mb = time_of(topology, kAllReduce, 2e6, 16, 2);
  EXPECT_NEAR(at_2mb.time.count(), 387.5, 1e-9);
  EXPECT_TRUE(at_2mb.in_range);
  EXPECT_FALSE(time_of(topology, kAllReduce, 64e6, 16, 2).in_range);
  // Below the first size: straight from an empty buffer, without a step.
  const double empty = microseconds(plain, kAllReduce, 0, 16, 2);
  EXPECT_NEAR(microseconds(topology, kAllReduce, 0, 16, 2), empty, 1e-9);
  EXPECT_NEAR(microseconds(topology, kAllReduce, 0.5e6, 16, 2), (empty + 293.75) / 2, 1e-9);
  for (const auto& [kind, ranks, nodes] : {std::tuple{kAllGather, 16, 2},
                                           {kAllReduce, 16, 4},
                                           {kAllReduce, 24, 3},
                                           {kAllReduce, 8, 1},
                                           {kAllReduce, 4, 1}}) {
    EXPECT_EQ(microseconds(topology, kind, 2e6, ranks, nodes),
              microseconds(plain, kind, 2e6, ranks, nodes))
        << ranks;
  }
  const CollectiveQuery apart{
      .kind = kAllReduce, .bytes = {2e6}, .ranks = 16, .nodes = 2, .node_stride = 2};
  EXPECT_FALSE(collective_time(topology, apart)->in_range);
}

TEST(Collectives, AllReduceFollowsTheCurve) {
  const Topology topology = round_topology();
  const CollectiveTime at_2mb = time_of(topology, kAllReduce, 2e6, 8);
  // 100 us + 1.75 x 2 MB / 100 GB/s = 35 us, factor 1
  EXPECT_NEAR(at_2mb.latency.count(), 100, 1e-9);
  EXPECT_NEAR(at_2mb.wire.count(), 35, 1e-9);
  EXPECT_NEAR(at_2mb.time.count(), 135, 1e-9);
  EXPECT_EQ(at_2mb.bound, Bound::kLatency);
  EXPECT_TRUE(at_2mb.in_range);
  EXPECT_NEAR(at_2mb.wire_bytes.value, 3.5e6, 1e-6);
  EXPECT_NEAR(at_2mb.bus_bandwidth.value, 3.5e6 / 135e-6, 1);
  // Half an octave on, by log: factor sqrt(1.5).
  EXPECT_NEAR(microseconds(topology, kAllReduce, 2e6 * std::sqrt(2), 8),
              (100 + 35 * std::sqrt(2)) * std::sqrt(1.5), 1e-6);
  EXPECT_NEAR(microseconds(topology, kAllReduce, 4e6, 8), 170 * 1.5, 1e-9);
  EXPECT_NEAR(microseconds(topology, kAllReduce, 16e6, 8), 380, 1e-9);
  // Beyond the last octave its factor holds, but it was not measured there.
  const CollectiveTime beyond = time_of(topology, kAllReduce, 1e9, 8);
  EXPECT_NEAR(beyond.time.count(), 17600, 1e-6);
  EXPECT_EQ(beyond.bound, Bound::kLink);
  EXPECT_FALSE(beyond.in_range);
}

TEST(Collectives, SmallBuffersLieBetweenAnEmptyOneAndTheFirstMeasured) {
  const Topology topology = round_topology();
  // Empty, 8 ranks: ring LL 6.6 + 14 x 0.6 = 15; first point 117.5 us.
  const CollectiveTime empty = time_of(topology, kAllReduce, 0, 8);
  EXPECT_NEAR(empty.time.count(), 15, 1e-9);
  EXPECT_EQ(empty.algorithm, "Ring");
  EXPECT_EQ(empty.protocol, "LL");
  EXPECT_FALSE(empty.in_range);
  EXPECT_EQ(empty.bus_bandwidth.value, 0);
  EXPECT_NEAR(microseconds(topology, kAllReduce, 0.5e6, 8), (15 + 117.5) / 2, 1e-9);
  EXPECT_NEAR(microseconds(topology, kAllReduce, 1e6, 8), 117.5, 1e-9);
}

TEST(Collectives, OtherGroupSizesLieBetweenTheirNeighbours) {
  Topology topology = round_topology();
  // 5 of 2..8: the middle of 40 and 100 us; 1.6 x S / 100 GB/s.
  const CollectiveTime five = time_of(topology, kAllReduce, 100e6, 5);
  EXPECT_NEAR(five.time.count(), 70 + 1600, 1e-6);
  EXPECT_FALSE(five.in_range);
  // With half the rings the wire term doubles.
  topology.intra.ring_channels_by_ranks = {{.ranks = 5, .channels = 5}};
  EXPECT_NEAR(microseconds(topology, kAllReduce, 100e6, 5), 70 + 3200, 1e-6);
  // Outside the curves' sizes: the nearest one.
  topology.intra.ring_channels_by_ranks.clear();
  topology.curves.erase(topology.curves.begin());
  EXPECT_NEAR(microseconds(topology, kAllReduce, 100e6, 2), 100 + 1000, 1e-6);
  topology.curves = {round_topology().curves[0]};
  EXPECT_NEAR(microseconds(topology, kAllReduce, 100e6, 8), 40 + 1750, 1e-6);
}

TEST(Collectives, GathersAreHalfAnAllReduce) {
  const Topology topology = round_topology();
  for (CollectiveKind kind : {kAllGather, kReduceScatter}) {
    const CollectiveTime result = time_of(topology, kind, 2e6, 8);
    EXPECT_NEAR(result.latency.count(), (100 + 6.6) / 2, 1e-9);  // one launch
    EXPECT_NEAR(result.wire.count(), 17.5, 1e-9);
    EXPECT_NEAR(result.wire_bytes.value, 1.75e6, 1e-6);
    EXPECT_FALSE(result.in_range);
  }
}

TEST(Collectives, BroadcastSendsTheWholeBuffer) {
  const Topology topology = round_topology();
  for (CollectiveKind kind : {kBroadcast, kReduce}) {
    // 16 MB on the wire, factor 1 again.
    const CollectiveTime result = time_of(topology, kind, 16e6, 8);
    EXPECT_NEAR(result.wire.count(), 160, 1e-9);
    EXPECT_NEAR(result.latency.count(), 53.3, 1e-9);
    EXPECT_NEAR(result.wire_bytes.value, 16e6, 1e-6);
  }
}

TEST(Collectives, AllToAllInOneNode) {
  // 8.4 + 7 x 3.4 = 32.2 us; 7/8 x 80 MB / 50 GB/s
  const CollectiveTime result = time_of(round_topology(), kAllToAll, 80e6, 8);
  EXPECT_NEAR(result.latency.count(), 32.2, 1e-9);
  EXPECT_NEAR(result.wire.count(), 1400, 1e-9);
  EXPECT_EQ(result.algorithm, "Pairwise");
  EXPECT_EQ(result.bound, Bound::kLink);
  for (CollectiveKind kind : {kGather, kScatter}) {
    EXPECT_NEAR(microseconds(round_topology(), kind, 80e6, 8), 1432.2, 1e-9);
  }
  Topology pcie = round_topology();
  pcie.intra.kind = IntraLink::kPcie;
  EXPECT_NEAR(time_of(pcie, kAllToAll, 80e6, 8).latency.count(), 8.4 + 7 * 5.7, 1e-9);
}

TEST(Collectives, AllToAllOverNodesIsBoundByTheNics) {
  // 16 ranks, 2 nodes: 8 x 80 MB x 1/2 per node over 4 x 10 GB/s = 8 ms; inside 0.7 ms.
  // Latency 32.2 + 14 + 2 x 1 + 8 x 1.
  const CollectiveTime result = time_of(round_topology(), kAllToAll, 80e6, 16, 2);
  EXPECT_NEAR(result.latency.count(), 56.2, 1e-9);
  EXPECT_NEAR(result.wire.count(), 8000, 1e-6);
  // Two ranks on two nodes use one NIC each: 40 MB / 10 GB/s.
  EXPECT_NEAR(time_of(round_topology(), kAllToAll, 80e6, 2, 2).wire.count(), 4000, 1e-6);
  // A fast network: no faster than as large a buffer inside one node, 80 MB x 7/8 / 50 GB/s.
  Topology fast = round_topology();
  fast.nic->bandwidth = {1e15};
  EXPECT_NEAR(time_of(fast, kAllToAll, 80e6, 16, 2).wire.count(), 1400, 1e-6);
  // Gather: the root's 40 MB from the other node through its NIC.
  EXPECT_NEAR(time_of(round_topology(), kGather, 80e6, 16, 2).wire.count(), 4000, 1e-6);
}

TEST(Collectives, SendGoesOverOneLinkOrOneNic) {
  EXPECT_NEAR(microseconds(round_topology(), kSend, 80e6, 2), 8.4 + 3.4 + 1000, 1e-9);
  EXPECT_NEAR(microseconds(round_topology(), kRecv, 80e6, 2, 2), 8.4 + 14 + 2 + 1 + 8000, 1e-9);
}

TEST(Collectives, UnevenAllToAllWaitsForTheWorstRank) {
  const Topology topology = round_topology();
  std::vector<Bytes> sent(8, Bytes{70e6}), received(8, Bytes{70e6});
  const auto even = all_to_all_v_time(topology, 1, sent, received);
  ASSERT_TRUE(even.has_value());
  EXPECT_NEAR(even->time.count(), microseconds(topology, kAllToAll, 80e6, 8), 1e-9);
  received[3] = {140e6};
  const auto uneven = all_to_all_v_time(topology, 1, sent, received);
  EXPECT_NEAR(uneven->wire.count(), 2 * even->wire.count(), 1e-9);
  EXPECT_EQ(uneven->wire_bytes.value, 140e6);
  // Sends and receives overlap: the smaller direction is free.
  sent.assign(8, Bytes{1});
  EXPECT_EQ(all_to_all_v_time(topology, 1, sent, received)->time, uneven->time);
}

TEST(Collectives, UnevenAllToAllOverNodesWaitsForTheWorstNode) {
  const Topology topology = round_topology();
  std::vector<Bytes> sent(16, Bytes{75e6}), received(16, Bytes{75e6});
  const auto even = all_to_all_v_time(topology, 2, sent, received);
  EXPECT_NEAR(even->time.count(), microseconds(topology, kAllToAll, 80e6, 16, 2), 1e-6);
  // The second node receives 9 times 75 MB, 8/15 of it from the first one.
  received[12] = {150e6};
  const auto uneven = all_to_all_v_time(topology, 2, sent, received);
  EXPECT_NEAR(uneven->wire.count(), 9.0 / 8 * even->wire.count(), 1e-6);
  EXPECT_EQ(all_to_all_v_time(topology, 1, {sent.data(), 1}, {sent.data(), 1})->time.count(), 0);
}

TEST(Collectives, OneRankNeedsNoTime) {
  for (CollectiveKind kind : {kAllReduce, kAllToAll, kBroadcast, kSend}) {
    const CollectiveTime result = time_of(round_topology(), kind, 1e9, 1);
    EXPECT_EQ(result.time.count(), 0);
    EXPECT_EQ(result.algorithm, "none");
    EXPECT_EQ(result.bound, Bound::kLatency);
  }
}

TEST(Collectives, InterferenceStretchesTheWire) {
  const Topology topology = round_topology();
  const CollectiveQuery query{.bytes = {2e6}, .ranks = 8};
  const auto result = collective_time(topology, query, {.interference = 1.2});
  ASSERT_TRUE(result.has_value());
  EXPECT_NEAR(result->latency.count(), 100, 1e-9);
  EXPECT_NEAR(result->wire.count(), 42, 1e-9);
  EXPECT_EQ(collective_time(topology, query)->wire.count(), 35);
}

TEST(Collectives, WithoutCurvesTheTuningModelSpeaks) {
  Topology topology = round_topology();
  topology.curves.clear();
  topology.intra.efficiency = 0.8;
  // Ring/Simple: 8.4 + 14 x 3.4 = 56; bus 80 GB/s.
  const CollectiveTime result = time_of(topology, kAllReduce, 1e9, 8);
  EXPECT_NEAR(result.latency.count(), 56, 1e-9);
  EXPECT_NEAR(result.wire.count(), 1.75e9 / 80e3, 1e-6);
  EXPECT_EQ(result.algorithm, "Ring");
  EXPECT_EQ(result.protocol, "Simple");
  EXPECT_FALSE(result.in_range);
  const auto datasheet = nccl_tuning_input(topology, {.ranks = 8}, true);
  EXPECT_DOUBLE_EQ(datasheet.ring->intra_gb_per_s, 10);
}

TEST(Collectives, NvlsWhereTheSwitchHasIt) {
  EXPECT_EQ(time_of(known("hgx-h100"), kAllReduce, 1e9, 8).algorithm, "NVLS");
  EXPECT_EQ(time_of(known("hgx-b200"), kAllReduce, 1e9, 8).algorithm, "NVLS");
  EXPECT_EQ(time_of(known("dgx-a100"), kAllReduce, 1e9, 8).algorithm, "Ring");
  const auto input = nccl_tuning_input(known("hgx-h100"), {.ranks = 16, .nodes = 2});
  EXPECT_FALSE(input.nvls.has_value());
  ASSERT_TRUE(input.nvls_tree.has_value());
  EXPECT_NEAR(input.nvls_tree->inter_gb_per_s, 8 * 50 * 0.9 / 16, 1e-9);
  EXPECT_NEAR(input.ring->inter_latency_us, 1, 1e-9);
}

TEST(Collectives, SeveralNodesAreBoundByTheNics) {
  const Topology topology = round_topology();
  // 32 ranks, 4 nodes: 4 x 12.5 x 0.8 = 40 GB/s of each node, 2 x 31/32 S, 8 x 5.7 MB to fill.
  const CollectiveTime result = time_of(topology, kAllReduce, 1e9, 32, 4);
  EXPECT_NEAR(result.wire.count(), (1.9375e9 + 45.6e6) / 40e3, 1e-6);
  EXPECT_FALSE(result.in_range);
  // Half the ranks of each node, half the NICs.
  EXPECT_NEAR(time_of(topology, kAllReduce, 1e9, 16, 4).wire.count(), (1.875e9 + 22.8e6) / 20e3,
              1e-6);
  // A fast network: no faster than inside a node.
  Topology fast = topology;
  fast.nic->bandwidth = {1e15};
  fast.curves[1].bus = {10e9};
  EXPECT_EQ(microseconds(fast, kAllReduce, 1e9, 16, 2), microseconds(fast, kAllReduce, 1e9, 8));
  // One rank per node has no inside.
  EXPECT_GT(microseconds(topology, kAllReduce, 1e9, 4, 4), 1.5e9 / 12.5e3);
}

/// Wire time of one of `groups` equal groups that are active in each node.
double wire_us(const Topology& topology, CollectiveKind kind, double bytes, int ranks, int nodes,
               int groups) {
  const auto result = collective_time(
      topology,
      {.kind = kind, .bytes = {bytes}, .ranks = ranks, .nodes = nodes, .groups_per_node = groups});
  EXPECT_TRUE(result.has_value()) << to_string(result.error());
  return result ? result->wire.count() : 0;
}

TEST(Collectives, GroupsWithANicOfTheirOwnDoNotShare) {
  // 8 NICs of 12.5 x 0.8 = 10 GB/s for 8 GPUs.
  Topology topology = round_topology();
  topology.nic->count = 8;
  // Eight pairs over two nodes, as with tensor parallel 8: 1 GB and 5.7 MB at 10 GB/s, alone or
  // not.
  for (int groups : {1, 8}) {
    EXPECT_NEAR(wire_us(topology, kAllReduce, 1e9, 2, 2, groups), 1005.7e6 / 10e3, 1e-6);
    EXPECT_NEAR(wire_us(topology, kSend, 80e6, 2, 2, groups), 80e6 / 10e3, 1e-9);
  }
  // Two groups of 4 ranks per node, each with 4 NICs: 2 x 15/16 x 1 GB and 4 x 5.7 MB at 40 GB/s.
  for (int groups : {1, 2}) {
    EXPECT_NEAR(wire_us(topology, kAllReduce, 1e9, 16, 4, groups), 1897.8e6 / 40e3, 1e-6);
  }
}

TEST(Collectives, MoreGroupsThanNicsShareThem) {
  // 4 NICs of 10 GB/s for 8 GPUs. One pair alone has a NIC, and so have four pairs; eight pairs
  // have half a NIC each.
  const Topology topology = round_topology();
  EXPECT_NEAR(wire_us(topology, kSend, 80e6, 2, 2, 1), 8000, 1e-9);
  EXPECT_NEAR(wire_us(topology, kSend, 80e6, 2, 2, 4), 8000, 1e-9);
  EXPECT_NEAR(wire_us(topology, kSend, 80e6, 2, 2, 8), 16000, 1e-9);
  EXPECT_NEAR(wire_us(topology, kAllToAll, 80e6, 2, 2, 8), 8000, 1e-9);  // half of 80 MB leaves
  EXPECT_NEAR(wire_us(topology, kAllReduce, 1e9, 2, 2, 8), 1e9 / 5e3, 0.01 * 1e9 / 5e3);
  // Inside a node nothing is shared.
  EXPECT_EQ(wire_us(topology, kSend, 80e6, 2, 1, 4), wire_us(topology, kSend, 80e6, 2, 1, 1));
}

TEST(Collectives, NeverFasterWithMoreBytes) {
  std::vector<Topology> topologies = TopologyCatalog::builtin().topologies();
  topologies.push_back(round_topology());
  topologies.back().curves[0].octave_factors = {1, 1.2, 1.1, 1.05, 1};
  topologies.back().curves[1].octave_factors = {1, 0.95, 1.2, 1.1, 1};
  topologies.push_back(datasheet_topology(test_support::round_gpu()));
  for (const Topology& topology : topologies) {
    for (auto [ranks, nodes] :
         {std::pair{2, 1}, {3, 1}, {5, 1}, {8, 1}, {2, 2}, {16, 2}, {24, 3}, {512, 64}}) {
      if (nodes > 1 && !topology.nic) continue;
      if (ranks > nodes * topology.gpus_per_node) continue;  // GH200: 4 per node
      for (int kind = 0; kind <= static_cast<int>(kRecv); ++kind) {
        double last = 0;
        for (double bytes = 0; bytes < 1e10; bytes = std::max(1.0, bytes * 1.13)) {
          const CollectiveTime result =
              time_of(topology, static_cast<CollectiveKind>(kind), bytes, ranks, nodes);
          EXPECT_GE(result.time.count(), last * (1 - 1e-12))
              << topology.name << " " << to_string(static_cast<CollectiveKind>(kind)) << " "
              << ranks << " on " << nodes << ": " << bytes;
          EXPECT_GE(result.wire.count(), 0);
          EXPECT_GE(result.latency.count(), 0);
          EXPECT_NEAR(result.time.count(), result.latency.count() + result.wire.count(),
                      1e-9 * result.time.count());
          last = result.time.count();
        }
      }
    }
  }
}

TEST(Collectives, NeverFasterThanTheLink) {
  for (const Topology& topology : TopologyCatalog::builtin().topologies()) {
    for (int ranks : {2, 4, 8}) {
      if (ranks > topology.gpus_per_node) continue;
      for (CollectiveKind kind : {kAllGather, kReduceScatter, kAllToAll, kBroadcast, kSend}) {
        const CollectiveTime result = time_of(topology, kind, 1e10, ranks);
        EXPECT_LE(result.bus_bandwidth, topology.intra.gpu_bandwidth)
            << topology.name << " " << to_string(kind) << " " << ranks;
      }
      // The switch adds up: an NVLS all-reduce may double the link.
      const double factor = topology.intra.nvls_channels ? 2 : 1;
      EXPECT_LE(time_of(topology, kAllReduce, 1e10, ranks).bus_bandwidth,
                factor * topology.intra.gpu_bandwidth)
          << topology.name;
    }
  }
}

/// The round topology with NCCL's times in round figures and without curves.
Topology fitted_topology() {
  Topology topology = round_topology();
  topology.curves.clear();
  topology.nccl = {
      .base = Microseconds{4},
      .hop = Microseconds{1},
      .rise = 0.5,
      .rise_bytes = {1000},
      .low_rate = {100e9},
      .simple_base = Microseconds{20},
      .simple_hop = Microseconds{2},
      .all_to_all = {.base = Microseconds{10}, .low_rate = {20e9}, .simple_base = Microseconds{15}},
      .rates = {{2, true, {200e9}, {150e9}, {120e9}, {160e9}},
                {8, true, {350e9}, {300e9}, {240e9}, {280e9}}},
      .first_bytes = {512},
      .last_bytes = {1e9}};
  return topology;
}

TEST(Collectives, NcclTakesTheCheaperProtocol) {
  const Topology topology = fitted_topology();
  // Low: (4 + 14 x 1) x (1 + 0.5 / 2) + 2 x 1000 B / 100 GB/s.
  const CollectiveTime small = time_of(topology, kAllReduce, 1000, 8);
  EXPECT_NEAR(small.latency.count(), 22.5, 1e-9);
  EXPECT_NEAR(small.wire.count(), 0.02, 1e-9);
  EXPECT_TRUE(small.in_range);
  // Simple: 20 + 14 x 2, 1.75 x 350 MB / 350 GB/s.
  const CollectiveTime large = time_of(topology, kAllReduce, 350e6, 8);
  EXPECT_NEAR(large.latency.count(), 48, 1e-9);
  EXPECT_NEAR(large.wire.count(), 1750, 1e-9);
  // One pass: 7 steps, 7/8 of the bytes; broadcast and reduce put all of them on the wire.
  EXPECT_NEAR(microseconds(topology, kAllGather, 300e6, 8), 34 + 875, 1e-9);
  EXPECT_NEAR(microseconds(topology, kReduceScatter, 240e6, 8), 34 + 875, 1e-9);
  EXPECT_NEAR(microseconds(topology, kBroadcast, 300e6, 8), 34 + 1000, 1e-9);
  EXPECT_NEAR(microseconds(topology, kReduce, 300e6, 8), 34 + 1000, 1e-9);
  // Rates are linear in n: 250 GB/s on 4.
  EXPECT_NEAR(microseconds(topology, kAllReduce, 250e6, 4), 32 + 1500, 1e-9);
}

TEST(Collectives, NcclSendsToAllRanksAtOnce) {
  const Topology topology = fitted_topology();
  EXPECT_NEAR(microseconds(topology, kAllToAll, 20e3, 8), 10 + 1, 1e-9);
  for (CollectiveKind kind : {kAllToAll, kGather, kScatter}) {
    EXPECT_NEAR(microseconds(topology, kind, 320e6, 8), 15 + 1000, 1e-9);
  }
  // One direction of an all-to-all of twice the bytes between two.
  for (CollectiveKind kind : {kSend, kRecv}) {
    EXPECT_NEAR(microseconds(topology, kind, 160e6, 2), 15 + 1000, 1e-9);
    EXPECT_FALSE(time_of(topology, kind, 160e6, 2).in_range);
  }
  const std::vector<Bytes> each(8, Bytes{280e6});
  EXPECT_NEAR(all_to_all_v_time(topology, 1, each, each)->time.count(), 15 + 1000, 1e-9);
  // Several nodes add a hop and a message for each of 8 peers to what one takes.
  EXPECT_NEAR(time_of(topology, kAllToAll, 80e6, 16, 2).latency.count(), 15 + 14 + 2 + 8, 1e-9);
}

TEST(Collectives, NcclIsInRangeWhereItWasMeasured) {
  Topology topology = fitted_topology();
  for (CollectiveKind kind : {kAllReduce, kAllGather, kReduceScatter, kAllToAll}) {
    EXPECT_TRUE(time_of(topology, kind, 512, 2).in_range);
    EXPECT_TRUE(time_of(topology, kind, 1e9, 8).in_range);
    EXPECT_FALSE(time_of(topology, kind, 511, 2).in_range);
    EXPECT_FALSE(time_of(topology, kind, 1.1e9, 2).in_range);
    EXPECT_FALSE(time_of(topology, kind, 1e6, 4).in_range);
    EXPECT_FALSE(time_of(topology, kind, 1e6, 8, 2).in_range);
  }
  EXPECT_FALSE(time_of(topology, kBroadcast, 1e6, 8).in_range);
  topology.nccl->rates[0].measured = false;
  EXPECT_FALSE(time_of(topology, kAllReduce, 1e6, 2).in_range);
}

// Curves win from their first size on; below it the protocols do, but never above the first point.
TEST(Collectives, NcclFillsInBelowTheCurve) {
  Topology topology = fitted_topology();
  const Topology without = topology;
  topology.curves = round_topology().curves;
  for (double bytes : {1e6, 2e6, 5e6}) {
    EXPECT_EQ(microseconds(topology, kAllReduce, bytes, 8),
              microseconds(round_topology(), kAllReduce, bytes, 8));
  }
  EXPECT_EQ(microseconds(topology, kAllReduce, 1e5, 8), microseconds(without, kAllReduce, 1e5, 8));
  topology.nccl->simple_base = topology.nccl->base = Microseconds{500};
  EXPECT_NEAR(microseconds(topology, kAllReduce, 1e5, 8), 117.5, 1e-9);  // the first point
  // Other collectives do not lean on the curve.
  EXPECT_EQ(microseconds(topology, kAllGather, 0, 8), 507);
}

// Prices of the program that fitted the constants.
TEST(Collectives, NcclTimesAreThoseOfTheFit) {
  EXPECT_NEAR(microseconds(known("dgx-a100"), kAllGather, 4 * kMib, 4), 43.9984, 0.04);
  EXPECT_NEAR(microseconds(known("hgx-h100"), kAllReduce, 512 * kMib, 8), 2214.2596, 2);
  EXPECT_NEAR(microseconds(known("hgx-h100"), kAllToAll, 16 * kMib, 6), 63.35, 0.06);
  EXPECT_NEAR(microseconds(known("hgx-h200"), kReduceScatter, 1024, 2), 5.3878, 0.005);
  EXPECT_NEAR(microseconds(known("hgx-b200"), kAllReduce, 64 * kMib, 4), 187.9594, 0.18);
  EXPECT_NEAR(microseconds(known("gb200-nvl72"), kAllToAll, 4096, 8), 10.162, 0.01);
  EXPECT_NEAR(microseconds(known("pcie-gen5-server"), kAllGather, 32 * kMib, 8), 1287.6288, 1.2);
  Topology a100 = known("dgx-a100");
  a100.curves.clear();  // which go before from 1 MiB on
  EXPECT_NEAR(microseconds(a100, kAllReduce, kMib, 8), 41.0798, 0.04);
}

// Small buffers: every further rank is a further hop. Large ones may be faster on more ranks, as
// measured (NVLS on 8 H100), but beyond the measured groups rates stay what they are.
TEST(Collectives, NcclNeverFallsWithRanksBeyondTheMeasuredOnes) {
  for (const Topology& topology : TopologyCatalog::builtin().topologies()) {
    if (!topology.nccl) continue;
    for (CollectiveKind kind : {kAllReduce, kAllGather, kReduceScatter, kAllToAll}) {
      for (int ranks = 3; ranks <= topology.gpus_per_node; ++ranks) {
        EXPECT_GE(microseconds(topology, kind, 1024, ranks),
                  microseconds(topology, kind, 1024, ranks - 1))
            << topology.name << " " << ranks;
        if (ranks <= 8) continue;
        EXPECT_GE(microseconds(topology, kind, 1e9, ranks),
                  microseconds(topology, kind, 1e9, ranks - 1))
            << topology.name << " " << ranks;
        EXPECT_FALSE(time_of(topology, kind, 1e8, ranks).in_range);
      }
    }
  }
}

TEST(Collectives, ErrorsSayWhatWasExpected) {
  const Topology topology = round_topology();
  const auto message = [](const auto& result) {
    EXPECT_FALSE(result.has_value());
    if (result.has_value()) return std::string();
    EXPECT_EQ(result.error().code, ErrorCode::kImpossible);
    return result.error().message;
  };
  EXPECT_EQ(message(collective_time(topology, {.ranks = 0})), "expected 1 rank or more, found 0");
  EXPECT_EQ(message(collective_time(topology, {.ranks = 4, .nodes = 5})),
            "expected 1 to 4 nodes (ranks), found 5");
  EXPECT_EQ(message(collective_time(topology, {.ranks = 4, .nodes = 0})),
            "expected 1 to 4 nodes (ranks), found 0");
  EXPECT_EQ(message(collective_time(topology, {.ranks = 9})),
            "expected at most 8 ranks per node of round, found 9 on 1");
  EXPECT_EQ(message(collective_time(topology, {.bytes = {-1}, .ranks = 2})).substr(0, 34),
            "expected bytes of at least 0, foun");
  EXPECT_NE(message(collective_time(topology, {.bytes = {std::nan("")}, .ranks = 2})), "");
  EXPECT_NE(message(collective_time(topology, {.bytes = {INFINITY}, .ranks = 2})), "");
  EXPECT_EQ(message(collective_time(topology, {.ranks = 2}, {.interference = 0.5})),
            "expected an interference factor of at least 1, found 0.500000");
  EXPECT_EQ(message(collective_time(topology, {.ranks = 2, .groups_per_node = 0})),
            "expected 1 to 8 groups per node of round, found 0");
  EXPECT_EQ(message(collective_time(topology, {.ranks = 2, .groups_per_node = 9})),
            "expected 1 to 8 groups per node of round, found 9");
  Topology lonely = topology;
  lonely.nic.reset();
  EXPECT_EQ(message(collective_time(lonely, {.ranks = 16, .nodes = 2})),
            "expected one node, as round has no NIC, found 2");

  const std::vector<Bytes> three(3, Bytes{1}), four(4, Bytes{1});
  EXPECT_EQ(message(all_to_all_v_time(topology, 1, three, four)),
            "expected as many received as sent sizes, 3, found 4");
  EXPECT_EQ(message(all_to_all_v_time(topology, 2, three, three)),
            "expected equally many ranks on each of 2 nodes, found 3 ranks");
  EXPECT_EQ(message(all_to_all_v_time(topology, 1, {}, {})), "expected 1 rank or more, found 0");
  std::vector<Bytes> odd = three;
  odd[2] = {-1};
  EXPECT_NE(message(all_to_all_v_time(topology, 1, three, odd)).find("at rank 2"),
            std::string::npos);
}

KernelWork work(const char* kind, std::int64_t ranks, double in, double out) {
  return {.family = KernelFamily::kCollective,
          .bytes_read = {in},
          .bytes_written = {out},
          .shape = CollectiveShape{.kind = kind, .world_size = ranks}};
}

TEST(CollectiveModel, PricesOnItsTopology) {
  const Topology topology = round_topology();
  const auto model = make_collective_model(topology);
  const Gpu gpu = test_support::round_gpu();
  const Price price = model->price(work("all_reduce", 8, 2e6, 2e6), gpu);
  EXPECT_NEAR(price.time.count(), 135, 1e-9);
  EXPECT_NEAR(price.latency.count(), 100, 1e-9);
  EXPECT_EQ(price.model, "collective-curve");
  EXPECT_TRUE(price.in_range);
  EXPECT_NEAR(price.low.count(), 121.5, 1e-9);
  EXPECT_NEAR(price.high.count(), 148.5, 1e-9);
  // All-gather counts the output.
  EXPECT_NEAR(model->price(work("all_gather", 8, 1e6, 8e6), gpu).time.count(),
              microseconds(topology, kAllGather, 8e6, 8), 1e-9);
  EXPECT_NEAR(model->price(work("reduce_scatter", 8, 8e6, 1e6), gpu).time.count(),
              microseconds(topology, kReduceScatter, 8e6, 8), 1e-9);
  const Price large = model->price(work("all_to_all", 8, 80e6, 80e6), gpu);
  EXPECT_EQ(large.bound, Bound::kLink);
  EXPECT_EQ(large.model, "collective-nccl");
  EXPECT_FALSE(large.in_range);
  // More ranks than a node holds: several nodes, also unequal ones.
  EXPECT_NEAR(model->price(work("all_reduce", 16, 1e9, 1e9), gpu).time.count(),
              microseconds(topology, kAllReduce, 1e9, 16, 2), 1e-6);
  EXPECT_NEAR(model->price(work("all_reduce", 9, 1e9, 1e9), gpu).time.count(),
              microseconds(topology, kAllReduce, 1e9, 9, 2), 1e-6);
  // A send is between two, whatever the group.
  EXPECT_NEAR(model->price(work("send", 64, 80e6, 80e6), gpu).time.count(), 1011.8, 1e-9);
}

TEST(CollectiveModel, RanksThatAreKnownLieOnTheirNodes) {
  const Topology topology = round_topology();
  ASSERT_EQ(topology.gpus_per_node, 8);
  const auto model = make_collective_model(topology);
  const Gpu gpu = test_support::round_gpu();
  const auto price = [&](std::vector<std::int64_t> ranks) {
    KernelWork asked = work("all_to_all", static_cast<std::int64_t>(ranks.size()), 1e6, 1e6);
    std::get<CollectiveShape>(asked.shape).ranks = std::move(ranks);
    return model->price(asked, gpu).time.count();
  };
  const auto direct = [&](int ranks, int nodes) {
    return collective_time(
               topology,
               {.kind = CollectiveKind::kAllToAll, .bytes = {1e6}, .ranks = ranks, .nodes = nodes})
        ->time.count();
  };
  EXPECT_DOUBLE_EQ(price({2, 10}), direct(2, 2));
  EXPECT_DOUBLE_EQ(price({8, 9, 10, 11}), direct(4, 1));
  EXPECT_DOUBLE_EQ(price({6, 7, 8, 9}), direct(4, 2));
  EXPECT_DOUBLE_EQ(model->price(work("all_to_all", 2, 1e6, 1e6), gpu).time.count(), direct(2, 1));
  EXPECT_LT(direct(2, 1), direct(2, 2));
}

TEST(CollectiveModel, SaysWhatItDoesNotKnow) {
  const auto model = make_collective_model(round_topology());
  const Gpu gpu = test_support::round_gpu();
  const Price unknown_group = model->price(work("all_reduce", 0, 2e6, 2e6), gpu);
  EXPECT_NEAR(unknown_group.time.count(), 135, 1e-9);  // a full node
  EXPECT_FALSE(unknown_group.in_range);
  EXPECT_FALSE(model->price(work("all_meet", 8, 2e6, 2e6), gpu).in_range);
  const KernelWork bare{.family = KernelFamily::kCollective, .shape = {}};
  EXPECT_FALSE(model->price(bare, gpu).in_range);
  EXPECT_GT(model->price(bare, gpu).time.count(), 0);
  // No NIC: as if one node were larger.
  Topology lonely = round_topology();
  lonely.nic.reset();
  lonely.curves.clear();
  const auto one_node = make_collective_model(lonely);
  const Price sixteen = one_node->price(work("all_reduce", 16, 1e9, 1e9), gpu);
  EXPECT_GT(sixteen.time.count(), 1.875e9 / 100e3);
  EXPECT_FALSE(sixteen.in_range);
  // One rank: a copy.
  EXPECT_GT(model->price(work("all_reduce", 1, 1e9, 1e9), gpu).time.count(), 0);
  EXPECT_LT(model->price(work("all_reduce", 1, 1e9, 1e9), gpu).time.count(), 10);
}

TEST(CollectiveModel, InterferenceIsPassedOn) {
  const auto model = make_collective_model(round_topology(), {.interference = 2});
  EXPECT_NEAR(model->price(work("all_reduce", 8, 2e6, 2e6), test_support::round_gpu()).time.count(),
              170, 1e-9);
}

TEST(CollectiveModel, TheDefaultUsesTheGpusTopology) {
  Gpu gpu = test_support::round_gpu();
  gpu.name = "a100-sxm-80gb";
  const Price price =
      KernelModels::heuristic().price(work("all_reduce", 8, 64 * kMib, 64 * kMib), gpu);
  EXPECT_NEAR(price.time.count(), microseconds(known("dgx-a100"), kAllReduce, 64 * kMib, 8), 1e-9);
  EXPECT_TRUE(price.in_range);
  EXPECT_EQ(price.model, "collective-curve");
}

// Four NICs of 12.5 GB/s at 0.8: 40 GB/s. Links: 2 x 7/8 GiB at 100 GB/s, factor 1 at its octave.
TEST(Collectives, SimpleBetweenTwoNodesFillsThePipelineOnce) {
  const Topology topology = round_topology();
  const double bytes = 4e9, in_flight = 8 * 5.7e6;
  const CollectiveTime time = time_of(topology, kAllReduce, bytes, 16, 2);
  EXPECT_EQ(time.algorithm, "Tree");
  EXPECT_NEAR(time.wire.count(), (in_flight + bytes) / 40e3, 1);
}

TEST(Collectives, MoreNodesPassTwiceTheBytes) {
  const Topology topology = round_topology();
  const double bytes = 4e9, in_flight = 8 * 5.7e6;
  const CollectiveTime time = time_of(topology, kAllReduce, bytes, 32, 4);
  EXPECT_NEAR(time.wire.count(), (in_flight + 2 * 31.0 / 32 * bytes) / 40e3, 1);
}

TEST(Collectives, NeverFallWithBytesBetweenNodes) {
  for (const Topology& topology : TopologyCatalog::builtin().topologies()) {
    if (!topology.nic) continue;
    for (const int nodes : {2, 3, 16, 128}) {
      double before = 0;
      for (double bytes = 64; bytes < 1e11; bytes *= 1.3) {
        const double us =
            microseconds(topology, kAllReduce, bytes, nodes * topology.gpus_per_node, nodes);
        EXPECT_GE(us, before * (1 - 1e-12)) << topology.name << " " << nodes << " " << bytes;
        before = us;
      }
    }
  }
}

TEST(Collectives, NetworksAreTold) {
  const Topology base = round_topology();
  const Topology efa =
      with_network(base, {.nics = 8, .nic_bandwidth = {50e9}, .network = "EFA, p5"}).value();
  EXPECT_EQ(efa.nic->count, 8);
  EXPECT_EQ(efa.nic->bandwidth.value, 50e9);
  EXPECT_EQ(efa.nic->latency.count(), 36);
  EXPECT_TRUE(efa.nic->ll128);
  EXPECT_FALSE(with_network(base, {.network = "EFA 4 x 100, p4d"})->nic->ll128);
  EXPECT_EQ(with_network(base, {.network = "400 Gb/s"})->nic->latency, base.nic->latency);
  EXPECT_EQ(with_network(base, {.network = "pigeons"}).error().message,
            "expected a network (infiniband, roce, efa, efa-p4d), found \"pigeons\"");
}

}  // namespace collectives_test
}  // namespace perfmodel
