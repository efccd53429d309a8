#include "price/astra_sim.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <queue>
#include <tuple>

#include "base/each_name.hpp"
#include "base/impossible.hpp"
#include "files/json_file.hpp"
#include "gpu/choice.hpp"

namespace perfmodel {
namespace {

using Shape = AstraSimNetwork::Shape;
using Algorithm = AstraSimNetwork::Algorithm;

constexpr std::string_view kShapeNames[] = {"ring", "switch", "fully-connected"};
constexpr std::string_view kAlgorithmNames[] = {"ring", "direct", "halving-doubling"};

/// A phase of a collective on one dimension.
enum class Phase : std::uint8_t { kReduceScatter, kAllGather, kAllToAll };

/// One dimension of the network with `ranks` ranks.
class DimensionClock {
 public:
  DimensionClock(const AstraSimNetwork& network, const AstraSimNetwork::Dimension& dimension,
                 int ranks)
      : network_(network), dimension_(dimension), ranks_(ranks) {}

  /// The steps of a phase [ns] with the algorithm; `bytes` is the whole buffer of the phase.
  double phase_ns(Phase phase, Algorithm algorithm, double bytes) const {
    if (ranks_ < 2) return 0;
    if (algorithm == Algorithm::kDirect) {
      const double part = bytes / ranks_;
      return step_ns(phase, part, all_peers_ns(part));
    }
    if (algorithm == Algorithm::kRing) {
      const double part = bytes / ranks_, n = ranks_;
      const double steps = phase == Phase::kAllToAll ? n * (n - 1) / 2 : n - 1;
      return steps * step_ns(phase, part, message_ns(1, part));
    }
    double sum = 0;
    for (int distance = 1; distance < ranks_; distance *= 2) {
      const double part = bytes / 2 / distance;
      sum += step_ns(phase, part, message_ns(distance, part));
    }
    return sum;
  }

  double message_ns(int distance, double bytes) const {
    const double sending = bytes / (dimension_.gib_per_s * kBytesPerNsOfGib);
    const double hops = hops_of(distance);
    return std::floor(network_.congestion_aware ? hops * (dimension_.latency_ns + sending)
                                                : hops * dimension_.latency_ns + sending);
  }

 private:
  static constexpr double kBytesPerNsOfGib = 1.073741824;

  double hops_of(int distance) const {
    switch (dimension_.shape) {
      case Shape::kRing: return std::min(distance, ranks_ - distance);
      case Shape::kSwitch: return 2;
      case Shape::kFullyConnected: return 1;
    }
    return 1;
  }

  double step_ns(Phase phase, double bytes, double message_ns) const {
    const double sum = 3 * std::floor(bytes / network_.local_memory_gb_per_s);
    return message_ns + network_.endpoint_delay_ns + (phase == Phase::kReduceScatter ? sum : 0);
  }

  /// Messages from every rank to every other, all sent at once.
  double all_peers_ns(double bytes) const {
    if (!network_.congestion_aware || dimension_.shape == Shape::kFullyConnected) {
      return message_ns(std::max(1, ranks_ / 2), bytes);
    }
    const double sending = bytes / (dimension_.gib_per_s * kBytesPerNsOfGib);
    if (dimension_.shape == Shape::kSwitch) {
      // A rank's messages leave one after the other; the last one still has to go down.
      return std::floor((ranks_ - 1) * sending + sending + 2 * dimension_.latency_ns);
    }
    return std::floor(
        std::max(one_way_ns((ranks_ - 1) / 2, sending), one_way_ns(ranks_ / 2, sending)));
  }

  // Messages to the ranks 1 to `furthest` links away: all ranks do the same, so a link passes on as
  // much as it receives. Simulates one link, messages in order of arrival.
  double one_way_ns(int furthest, double sending) const {
    using Message = std::tuple<double, int, int>;  // when it comes, its number, links to go
    std::priority_queue<Message, std::vector<Message>, std::greater<>> coming;
    for (int distance = 1; distance <= furthest; ++distance) coming.emplace(0, distance, distance);
    int number = furthest;
    double free = 0, last = 0;
    while (!coming.empty()) {
      const auto [at, ignored, left] = coming.top();
      coming.pop();
      free = std::max(free, at) + sending;
      last = std::max(last, free + dimension_.latency_ns);
      if (left > 1) coming.emplace(free + dimension_.latency_ns, ++number, left - 1);
    }
    return last;
  }

  const AstraSimNetwork& network_;
  const AstraSimNetwork::Dimension& dimension_;
  int ranks_;
};

Algorithm algorithm_of(const AstraSimNetwork& network, CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllGather: return network.all_gather;
    case CollectiveKind::kReduceScatter: return network.reduce_scatter;
    case CollectiveKind::kAllToAll: return network.all_to_all;
    default: return network.all_reduce;
  }
}

/// Phases that a chunk passes one after the other [ns].
std::vector<double> phases_of(const AstraSimNetwork& network, const CollectiveQuery& query,
                              double chunk) {
  const Algorithm algorithm = algorithm_of(network, query.kind);
  const double e = network.endpoint_delay_ns;
  const auto times = [&](const DimensionClock& clock, double bytes) {
    switch (query.kind) {
      case CollectiveKind::kAllGather:
        return clock.phase_ns(Phase::kAllGather, algorithm, bytes) + e;
      case CollectiveKind::kReduceScatter:
        return clock.phase_ns(Phase::kReduceScatter, algorithm, bytes) + e;
      case CollectiveKind::kAllToAll: return clock.phase_ns(Phase::kAllToAll, algorithm, bytes) + e;
      default:
        return clock.phase_ns(Phase::kReduceScatter, algorithm, bytes) +
               clock.phase_ns(Phase::kAllGather, algorithm, bytes) + e;
    }
  };
  const int local = query.ranks / query.nodes;
  const DimensionClock inside(network, network.inside, local);
  if (query.nodes == 1) return {times(inside, chunk)};
  const DimensionClock between(network, *network.between, query.nodes);
  if (local == 1) return {times(between, chunk)};
  if (query.kind == CollectiveKind::kAllToAll) {
    return {times(inside, chunk), times(between, chunk)};
  }
  std::vector<double> phases;
  if (query.kind != CollectiveKind::kAllGather) {
    phases.push_back(inside.phase_ns(Phase::kReduceScatter, algorithm, chunk) + e);
  }
  phases.push_back(times(between, chunk / local));
  if (query.kind != CollectiveKind::kReduceScatter) {
    phases.push_back(inside.phase_ns(Phase::kAllGather, algorithm, chunk) + e);
  }
  return phases;
}

Result<void> check_astra_query(const AstraSimNetwork& network, const CollectiveQuery& query) {
  using enum CollectiveKind;
  if (query.kind != kAllReduce && query.kind != kAllGather && query.kind != kReduceScatter &&
      query.kind != kAllToAll && query.kind != kSend && query.kind != kRecv) {
    return impossible(
        "all-reduce, all-gather, reduce-scatter, all-to-all or send, which ASTRA-sim "
        "has models of",
        std::string(to_string(query.kind)));
  }
  if (query.nodes < 1 || query.ranks < 1 || query.ranks % query.nodes != 0) {
    return impossible("ranks that fill " + std::to_string(query.nodes) + " nodes evenly",
                      std::to_string(query.ranks));
  }
  if (query.nodes > 1 && !network.between) {
    return impossible("one node, as " + network.name + " has no network between nodes",
                      std::to_string(query.nodes));
  }
  if (algorithm_of(network, query.kind) != Algorithm::kHalvingDoubling) return {};
  if (query.kind == kAllToAll) {
    return impossible("ring or direct for all-to-all", std::string("halving-doubling"));
  }
  for (const int ranks : {query.nodes, query.ranks / query.nodes}) {
    if (!std::has_single_bit(static_cast<unsigned>(ranks))) {
      return impossible("a power of two of ranks for halving-doubling", std::to_string(ranks));
    }
  }
  return {};
}

AstraSimNetwork::Dimension parse_dimension(const Json& json, const std::string& pointer,
                                           std::optional<Error>& error) {
  ObjectReader reader(json, pointer, error);
  AstraSimNetwork::Dimension made;
  made.shape = static_cast<Shape>(choice(reader, "shape", kShapeNames));
  made.gib_per_s = reader.positive("gib_per_s");
  made.latency_ns = reader.number_below("latency_ns", 1e12, "ns of at least 0");
  reader.finish();
  return made;
}

AstraSimNetwork parse_astra_network(const Json& document, std::optional<Error>& error) {
  AstraSimNetwork made;
  ObjectReader root(document, "", error);
  root.expect_schema(schemas::kCollectives);
  made.name = root.plain_name("name");
  root.expect_value("model", "astra-sim");
  if (const Json* json = root.object("inside")) {
    made.inside = parse_dimension(*json, "/inside", error);
  }
  if (const Json* json = root.object("between", true)) {
    made.between = parse_dimension(*json, "/between", error);
  }
  if (const Json* json = root.object("algorithms")) {
    ObjectReader reader(*json, "/algorithms", error);
    const auto one = [&](const char* key) {
      return static_cast<Algorithm>(choice(reader, key, kAlgorithmNames));
    };
    made.all_reduce = one("all_reduce");
    made.all_gather = one("all_gather");
    made.reduce_scatter = one("reduce_scatter");
    made.all_to_all = one("all_to_all");
    if (made.all_to_all == Algorithm::kHalvingDoubling) {
      reader.reject("all_to_all", "\"ring\" or \"direct\"");
    }
    reader.finish();
  }
  PERFMODEL_READ(made, root.positive_integer, splits, active_chunks);
  made.endpoint_delay_ns = root.number_below("endpoint_delay_ns", 1e12, "ns of at least 0");
  made.local_memory_gb_per_s = root.positive("local_memory_gb_per_s");
  made.congestion_aware = root.boolean("congestion_aware");
  made.sources = root.strings("sources");
  root.finish();
  return made;
}

}  // namespace

Result<Microseconds> astra_sim_time(const AstraSimNetwork& network, const CollectiveQuery& query) {
  PERFMODEL_TRY_TO(check_astra_query(network, query));
  if (query.kind == CollectiveKind::kSend || query.kind == CollectiveKind::kRecv) {
    const auto& dimension = query.nodes > 1 ? *network.between : network.inside;
    return Microseconds{1e-3 *
                        (DimensionClock(network, dimension, 2).message_ns(1, query.bytes.value) +
                         network.endpoint_delay_ns)};
  }
  if (query.ranks == 1) return Microseconds{0};
  const std::vector<double> phases = phases_of(network, query, query.bytes.value / network.splits);
  double sum = 0, longest = 0;
  for (const double phase : phases) {
    sum += phase;
    longest = std::max(longest, phase);
  }
  const int rounds = (network.splits + network.active_chunks - 1) / network.active_chunks;
  return Microseconds{1e-3 * (sum + (rounds - 1) * longest)};
}

Result<AstraSimNetwork> read_astra_sim_network(const std::filesystem::path& file) {
  return read_json_file(file, "collectives file", parse_astra_network);
}

}  // namespace perfmodel
