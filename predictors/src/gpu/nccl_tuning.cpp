#include "perfmodel/predictors/detail/nccl_tuning.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "base/impossible.hpp"

namespace perfmodel {
namespace {

// Figures by protocol: LL, LL128, Simple.
using ByProtocol = std::array<double, 3>;
// Figures by number of nodes: 1, 2, more.
using ByNodes = std::array<double, 3>;

/// NVIDIA/nccl src/graph/tuning.cc and topo.h, commit 5067397 (2.30.7). Latencies in us, bandwidths
/// in GB/s. Algorithms are in the order of NcclAlgorithm.
constexpr ByProtocol kBaseLatency[] = {{6.8, 14.0, 8.4}, {6.6, 14.0, 8.4}, {0, 0, 0}, {0, 0, 0}};
constexpr ByProtocol kNvlinkHop[] = {{0.6, 1.25, 4.0}, {0.6, 1.9, 3.4}, {0, 0, 25}, {0, 0, 25}};
constexpr ByProtocol kPcieHop[] = {{1.0, 1.9, 4.0}, {1.0, 2.5, 5.7}, {0, 0, 0}, {0, 0, 0}};
constexpr ByProtocol kNetworkHop[] = {{5.0, 8.5, 14.0}, {2.7, 4.0, 14.0}, {0, 0, 18}, {0, 0, 20.9}};

// By generation; across nodes row 0 stands for Intel and others, row 1 for AMD or mixed CPUs.
constexpr ByNodes kLlMax[] = {{39, 39, 20.4}, {87.7, 22.5, 19.0}, {141, 45, 35}, {282, 90, 70}};
// Per channel, by generation.
constexpr ByNodes kRingLl128Max[] = {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {40, 40, 40}};
constexpr ByNodes kTreeLl128Max[] = {
    {20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29.0}, {55.6, 31.67, 20.0}};
constexpr ByNodes kTreeMax[] = {
    {26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {38.7, 41.4, 36.0}, {70, 42.8, 24}};
constexpr ByNodes kNvlsTreeMax[] = {
    {26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {0, 57.7, 45.5}, {0, 96.0, 80.0}};
constexpr double kNvlsEfficiency[] = {0, 0, 0.85, 0.74};

constexpr double kTreeSizeCorrection[3][23] = {
    {1,   1,   1,   1,   0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5,
     0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1,   1,   1,   1},
    {1,   1,   1,   1,   1,   0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6,
     0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1,   1},
    {0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5,
     0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9}};
constexpr double kCorrectionUnit = 64;  // bytes

constexpr std::string_view kKindNames[] = {
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast",
    "reduce",     "gather",     "scatter",        "send",       "recv"};

std::size_t index(auto value) { return static_cast<std::size_t>(value); }

int floor_log2(int value) { return std::bit_width(static_cast<unsigned>(value)) - 1; }

/// The largest buffer of each step of the size correction, for steps below `bytes`.
std::vector<Bytes> ends_of_steps(Bytes bytes) {
  std::vector<Bytes> ends;
  double step = 2 * kCorrectionUnit;
  for (std::size_t i = 1; i <= std::size(kTreeSizeCorrection[0]) && step <= bytes.value; ++i) {
    ends.push_back({std::nextafter(step, 0)});
    step *= 2;
  }
  return ends;
}

/// Bytes from which rings of Simple take a longer latency.
double slower_rings_from(const NcclTuningInput& input) {
  const bool rises = input.collective == CollectiveKind::kAllReduce && input.nodes > 1;
  if (!rises || !input.ring) return std::numeric_limits<double>::infinity();
  return 64.0 * input.ring->channels * static_cast<double>(input.ranks);
}

/// One row of the tables, with everything that does not depend on the buffer.
class Formulas {
 public:
  explicit Formulas(const NcclTuningInput& input)
      : in_(input),
        n_(input.ranks),
        ranks_per_node_(static_cast<double>(input.ranks) / input.nodes),
        node_class_(static_cast<std::size_t>(std::min(input.nodes, 3) - 1)) {}

  double latency(NcclAlgorithm algorithm, NcclProtocol protocol, const NcclGraph& graph) const {
    const std::size_t a = index(algorithm), p = index(protocol);
    const bool simple = protocol == NcclProtocol::kSimple;
    const double base = kBaseLatency[a][p];
    const double intra = (in_.intra_link == NcclLink::kNvlink ? kNvlinkHop : kPcieHop)[a][p];
    const double net = kNetworkHop[a][p] + (simple ? 2 : 1) * graph.inter_latency_us;
    const double levels = floor_log2(in_.nodes);
    switch (algorithm) {
      case NcclAlgorithm::kRing: {
        const double passes = in_.collective == CollectiveKind::kAllReduce ? 2 : 1;
        const double steps = passes * (n_ - 1), inter = passes * (in_.nodes - 1);
        const double overhead = (in_.cpu_amd ? 2.0 : 1.0) * (simple ? 3 : 1);
        const double hop = in_.nodes > 1 ? std::max(intra, overhead) : intra;
        return base + (steps - inter) * hop + inter * net;
      }
      case NcclAlgorithm::kTree: return base + 2 * ((ranks_per_node_ - 1) * intra + levels * net);
      case NcclAlgorithm::kNvls: return base + intra;
      case NcclAlgorithm::kNvlsTree: break;
    }
    return base + intra + 2 * levels * net;
  }

  double bandwidth(NcclAlgorithm algorithm, NcclProtocol protocol, const NcclGraph& graph) const {
    const std::size_t generation = index(in_.generation);
    const bool all_reduce = in_.collective == CollectiveKind::kAllReduce;
    const double c = graph.channels;
    const double ll_cap =
        kLlMax[in_.nodes == 1 ? generation : std::size_t{in_.cpu_amd}][node_class_];
    double bus = c * (in_.nodes <= 2 ? graph.intra_gb_per_s : graph.inter_gb_per_s);
    switch (algorithm) {
      case NcclAlgorithm::kRing:
        if (protocol == NcclProtocol::kLl) bus = std::min(bus / 2, ll_cap);
        if (protocol == NcclProtocol::kLl128) {
          bus = std::min(0.92 * bus, c * kRingLl128Max[generation][node_class_]);
        }
        if (all_reduce) return bus * n_ / (2 * (n_ - 1));
        return is_gather() ? bus * n_ / (n_ - 1) : bus;
      case NcclAlgorithm::kTree:
        bus = std::min(0.92 * bus, c * kTreeMax[generation][node_class_]);
        if (protocol == NcclProtocol::kLl) bus = std::min(bus / 3.8, ll_cap);
        if (protocol == NcclProtocol::kLl128) {
          bus = in_.nodes == 1 ? bus * 7 / 9 : bus * 120 / 128;
          bus = std::min(bus, c * kTreeLl128Max[generation][node_class_]);
        }
        return 0.5 * bus * (in_.tree_pattern ? 0.85 : 1);
      case NcclAlgorithm::kNvls:
      case NcclAlgorithm::kNvlsTree: break;
    }
    const bool tree = algorithm == NcclAlgorithm::kNvlsTree;
    double channel = graph.intra_gb_per_s * kNvlsEfficiency[generation] * (c - 1) / c *
                     (all_reduce ? 2 : (ranks_per_node_ - 1) / ranks_per_node_);
    channel = std::min(channel, graph.inter_gb_per_s * (tree && in_.nodes == 2 ? 2 : 1));
    if (tree) channel = std::min(channel, kNvlsTreeMax[generation][node_class_]);
    return c * channel * (all_reduce ? n_ / (2 * (n_ - 1)) : 1);
  }

 private:
  bool is_gather() const {
    return in_.collective == CollectiveKind::kAllGather ||
           in_.collective == CollectiveKind::kReduceScatter;
  }

  const NcclTuningInput& in_;
  double n_, ranks_per_node_;
  std::size_t node_class_;
};

}  // namespace

std::string_view to_string(CollectiveKind kind) { return kKindNames[index(kind)]; }

std::optional<CollectiveKind> collective_kind(std::string_view name) {
  const auto* at = std::ranges::find(kKindNames, name);
  if (at == std::end(kKindNames)) return std::nullopt;
  return static_cast<CollectiveKind>(at - kKindNames);
}

double bus_factor(CollectiveKind kind, int ranks) {
  const double share = (ranks - 1.0) / ranks;
  switch (kind) {
    case CollectiveKind::kAllReduce: return 2 * share;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv: return 1;
    default: return share;
  }
}

std::string_view to_string(NcclAlgorithm algorithm) {
  constexpr std::string_view kNames[] = {"Tree", "Ring", "NVLS", "NVLSTree"};
  return kNames[index(algorithm)];
}

std::string_view to_string(NcclProtocol protocol) {
  constexpr std::string_view kNames[] = {"LL", "LL128", "Simple"};
  return kNames[index(protocol)];
}

double nvls_efficiency(NcclGeneration generation) { return kNvlsEfficiency[index(generation)]; }

Result<NcclTuning> NcclTuning::make(const NcclTuningInput& input) {
  if (input.ranks < 2) return impossible("2 ranks or more", std::to_string(input.ranks));
  if (input.nodes < 1 || input.nodes > input.ranks) {
    return impossible("1 to " + std::to_string(input.ranks) + " nodes (ranks)",
                      std::to_string(input.nodes));
  }
  const CollectiveKind kind = input.collective;
  const bool all_reduce = kind == CollectiveKind::kAllReduce;
  const bool gather = kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter;
  if (!all_reduce && !gather && kind != CollectiveKind::kBroadcast &&
      kind != CollectiveKind::kReduce) {
    return impossible("a collective that NCCL tunes", std::string(to_string(kind)));
  }
  const bool one_node = input.nodes == 1;
  struct Candidate {
    NcclAlgorithm algorithm;
    const std::optional<NcclGraph>& graph;
    bool offered;
  };
  const Candidate candidates[] = {
      {NcclAlgorithm::kTree, input.tree, all_reduce},
      {NcclAlgorithm::kRing, input.ring, true},
      {NcclAlgorithm::kNvls, input.nvls,
       input.nvls_available && one_node && (all_reduce || gather)},
      {NcclAlgorithm::kNvlsTree, input.nvls_tree, input.nvls_available && !one_node && all_reduce},
  };
  NcclTuning tuning;
  tuning.input_ = input;
  const Formulas formulas(tuning.input_);
  for (const auto& [algorithm, graph, offered] : candidates) {
    if (!graph || !offered) continue;
    if (graph->channels < 1 || !(graph->intra_gb_per_s > 0) || !(graph->inter_gb_per_s > 0) ||
        !(graph->inter_latency_us >= 0)) {
      return impossible("channels, bandwidths above 0 and a latency of at least 0",
                        "other figures for " + std::string(to_string(algorithm)));
    }
    const bool simple_only =
        algorithm == NcclAlgorithm::kNvls || algorithm == NcclAlgorithm::kNvlsTree;
    for (NcclProtocol protocol : {NcclProtocol::kLl, NcclProtocol::kLl128, NcclProtocol::kSimple}) {
      if (simple_only && protocol != NcclProtocol::kSimple) continue;
      if (protocol == NcclProtocol::kLl128 && !input.ll128_enabled) continue;
      const NcclOption option{
          .algorithm = algorithm,
          .protocol = protocol,
          .latency_us = formulas.latency(algorithm, protocol, *graph),
          .bandwidth_gb_per_s = formulas.bandwidth(algorithm, protocol, *graph)};
      if (option.bandwidth_gb_per_s > 0) tuning.options_.push_back(option);
    }
  }
  if (tuning.options_.empty()) return impossible("a graph for an algorithm to use", "none");
  return tuning;
}

Microseconds NcclTuning::time(const NcclOption& option, Bytes bytes) const {
  double latency = option.latency_us, bandwidth = option.bandwidth_gb_per_s;
  if (input_.collective == CollectiveKind::kAllReduce) {
    if (option.algorithm == NcclAlgorithm::kTree && bytes.value >= kCorrectionUnit) {
      const int step = std::ilogb(bytes.value / kCorrectionUnit);
      if (step < static_cast<int>(std::size(kTreeSizeCorrection[0]))) {
        bandwidth *= kTreeSizeCorrection[index(option.protocol)][step];
      }
    }
    if (option.algorithm == NcclAlgorithm::kRing && option.protocol == NcclProtocol::kSimple &&
        bytes.value >= slower_rings_from(input_)) {
      latency *= input_.generation == NcclGeneration::kVolta ? 1.9 : 1.4;
    }
  }
  return Microseconds{latency + bytes.value / (1000 * bandwidth)};
}

const NcclOption& NcclTuning::best(Bytes bytes, bool simple) const {
  const NcclOption* best = &options_.front();  // trees and rings begin with LL
  for (const NcclOption& option : options_) {
    if (!simple && option.protocol == NcclProtocol::kSimple) continue;
    if (time(option, bytes) < time(*best, bytes)) best = &option;
  }
  return *best;
}

namespace {

/// Whether Simple is faster than all LL and LL128 somewhere between two sizes; times of all options
/// are straight lines there.
bool simple_wins(const NcclTuning& tuning, double from, double to) {
  const auto beats_others = [&](const NcclOption& simple) {
    double low = 0, high = 1;  // shares of the way between which it is faster than those so far
    for (const NcclOption& other : tuning.options()) {
      if (other.protocol == NcclProtocol::kSimple) continue;
      const auto behind_us = [&](double bytes) {
        return (tuning.time(simple, {bytes}) - tuning.time(other, {bytes})).count();
      };
      const double first = behind_us(from), last = behind_us(to);
      if (first >= 0 && last >= 0) return false;
      if (first > 0) low = std::max(low, first / (first - last));
      if (last > 0) high = std::min(high, first / (first - last));
    }
    return low < high;
  };
  return std::ranges::any_of(tuning.options(), [&](const NcclOption& option) {
    return option.protocol == NcclProtocol::kSimple && beats_others(option);
  });
}

}  // namespace

bool NcclTuning::leaves_ll(Bytes bytes) const {
  std::vector<Bytes> ends = ends_of_steps(bytes);
  const Bytes slower{std::nextafter(slower_rings_from(input_), 0)};
  if (slower < bytes) ends.push_back(slower);
  ends.push_back(bytes);
  std::ranges::sort(ends);
  double from = 0;
  for (const Bytes end : ends) {
    if (simple_wins(*this, from, end.value)) return true;
    from = std::nextafter(end.value, std::numeric_limits<double>::infinity());
  }
  return false;
}

Microseconds NcclTuning::monotone_time(Bytes bytes, bool simple) const {
  Microseconds longest = time(best(bytes, simple), bytes);
  for (const Bytes before : ends_of_steps(bytes)) {
    longest = std::max(longest, time(best(before, simple), before));
  }
  return longest;
}

}  // namespace perfmodel
