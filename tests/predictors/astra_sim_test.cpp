// ASTRA-sim's collectives: its published cycle counts, and arithmetic a reader can redo.
#include "price/astra_sim.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace perfmodel {
namespace astra_sim_test {

using Shape = AstraSimNetwork::Shape;
using Algorithm = AstraSimNetwork::Algorithm;

// 50 GiB/s are 53.687 bytes per ns.
AstraSimNetwork ring_network(Algorithm algorithm = Algorithm::kRing) {
  return {.name = "test",
          .inside = {.shape = Shape::kRing, .gib_per_s = 50, .latency_ns = 500},
          .all_reduce = algorithm,
          .all_gather = algorithm,
          .reduce_scatter = algorithm,
          .all_to_all = Algorithm::kDirect};
}

double ns(const AstraSimNetwork& network, CollectiveKind kind, double bytes, int ranks,
          int nodes = 1) {
  const auto time = astra_sim_time(
      network, {.kind = kind, .bytes = Bytes{bytes}, .ranks = ranks, .nodes = nodes});
  EXPECT_TRUE(time) << to_string(time.error());
  return time ? time->count() * 1e3 : 0;
}

TEST(AstraSim, PublicCases) {
  const char* folder = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (!folder) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const auto file = std::filesystem::path(folder) / "distributed" / "astra_sim_collectives.json";
  const auto cases = nlohmann::json::parse(std::ifstream(file)).at("cases");
  ASSERT_EQ(cases.size(), 32U);
  for (const auto& c : cases) {
    AstraSimNetwork network = ring_network();
    ASSERT_EQ(c.at("topology"), nlohmann::json({"Ring"}));
    network.inside.gib_per_s = c.at("bandwidth_GiBps")[0];
    network.inside.latency_ns = c.at("latency_ns")[0];
    network.splits = c.at("splits");
    network.active_chunks = c.at("active_chunks");
    network.endpoint_delay_ns = c.at("endpoint_delay");
    network.local_memory_gb_per_s = c.at("local_mem_bw");
    network.congestion_aware = c.at("backend") == "analytical congestion aware";
    network.all_to_all = c.at("algorithm")[0] == "direct" ? Algorithm::kDirect : Algorithm::kRing;
    const std::string name = c.at("collective");
    const int ranks = c.at("npus_count")[0];
    double bytes = c.at("comm_size_bytes");
    if (name == "all_gather") bytes *= ranks;  // it counts what a rank puts in
    const auto kind = name == "all_reduce"       ? CollectiveKind::kAllReduce
                      : name == "all_gather"     ? CollectiveKind::kAllGather
                      : name == "reduce_scatter" ? CollectiveKind::kReduceScatter
                                                 : CollectiveKind::kAllToAll;
    EXPECT_NEAR(ns(network, kind, bytes, ranks), c.at("cycles_ns").get<double>(), 0.5) << c["id"];
  }
}

TEST(AstraSim, HalvingDoublingTakesTwiceTheLogarithmOfSteps) {
  // 8 ranks, 80,000 B on a full mesh of 1 GiB/s without latency: messages of 40,000, 20,000 and
  // 10,000 B take 37,252, 18,626 and 9,313 ns, each with 10 ns at its end; sums read and write
  // 3 m / 1600 ns, 75, 36 and 18.
  AstraSimNetwork network = ring_network(Algorithm::kHalvingDoubling);
  network.inside = {.shape = Shape::kFullyConnected, .gib_per_s = 1, .latency_ns = 0};
  const double one_way = 37252 + 18626 + 9313 + 3 * 10;
  const double sums = 75 + 36 + 18;
  EXPECT_NEAR(ns(network, CollectiveKind::kAllReduce, 80000, 8), 2 * one_way + sums + 10, 0.5);
  EXPECT_NEAR(ns(network, CollectiveKind::kAllGather, 80000, 8), one_way + 10, 0.5);
  // On a ring the partner at distance 4 is four hops away.
  network.inside = {.shape = Shape::kRing, .gib_per_s = 1, .latency_ns = 100};
  EXPECT_NEAR(ns(network, CollectiveKind::kAllGather, 80000, 8), one_way + 10 + 100 * (1 + 2 + 4),
              0.5);
}

TEST(AstraSim, DirectSumsSendEveryPartAtOnce) {
  // 8 ranks: parts of 10,000 B take 9,313 ns at 1 GiB/s, sums 18 ns.
  AstraSimNetwork network = ring_network(Algorithm::kDirect);
  network.inside = {.shape = Shape::kFullyConnected, .gib_per_s = 1, .latency_ns = 0};
  EXPECT_NEAR(ns(network, CollectiveKind::kAllReduce, 80000, 8), 2 * (9313 + 10) + 18 + 10, 0.5);
  // A switch that carries one message at a time: seven leave one after the other, the last one
  // goes down, 8 messages in all.
  network.inside = {.shape = Shape::kSwitch, .gib_per_s = 1, .latency_ns = 0};
  network.congestion_aware = true;
  EXPECT_NEAR(ns(network, CollectiveKind::kAllToAll, 80000, 8), 8 * 9313.2 + 20, 1);
  // A ring of four: of each rank's three messages two go one way, over one and two links: the
  // second follows the first, and takes another link then.
  network.inside = {.shape = Shape::kRing, .gib_per_s = 1, .latency_ns = 0};
  EXPECT_NEAR(ns(network, CollectiveKind::kAllToAll, 40000, 4), 3 * 9313.2 + 20, 1);
}

TEST(AstraSim, NodesSumInsideFirst) {
  AstraSimNetwork network = ring_network();
  network.between = {{.shape = Shape::kRing, .gib_per_s = 5, .latency_ns = 2000}};
  const double scattered = ns(network, CollectiveKind::kReduceScatter, 8e6, 8);
  const double gathered = ns(network, CollectiveKind::kAllGather, 8e6, 8);
  AstraSimNetwork outer = network;
  outer.inside = *network.between;
  const double between = ns(outer, CollectiveKind::kAllReduce, 1e6, 4);
  EXPECT_NEAR(ns(network, CollectiveKind::kAllReduce, 8e6, 32, 4), scattered + between + gathered,
              1);
}

TEST(AstraSim, RefusesWhatItHasNoModelOf) {
  const auto refused = [](const AstraSimNetwork& network, const CollectiveQuery& query) {
    const auto time = astra_sim_time(network, query);
    return time ? std::string() : time.error().message;
  };
  const AstraSimNetwork halving = ring_network(Algorithm::kHalvingDoubling);
  EXPECT_NE(refused(halving, {.bytes = {1e6}, .ranks = 6}).find("power of two"), std::string::npos);
  EXPECT_NE(refused(halving, {.bytes = {1e6}, .ranks = 16, .nodes = 2}).find("one node"),
            std::string::npos);
  EXPECT_NE(refused(halving, {.kind = CollectiveKind::kBroadcast, .bytes = {1e6}, .ranks = 8})
                .find("ASTRA"),
            std::string::npos);
}

}  // namespace astra_sim_test
}  // namespace perfmodel
