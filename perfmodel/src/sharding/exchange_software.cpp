#include "used_topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace perfmodel::sharding {
namespace {

// Behaviour of the frameworks. TorchRec: NCCL's all-to-all between all ranks, DDP's all-reduces in
// the same order of calls. HugeCTR (its MLPerf submissions): vectors inside the hosts first, its
// own all-reduce in one kernel inside a host, overlapped with the exchanges.
//
// Settings that each table may have. TorchRec: CacheParams of its planner's ParameterConstraints;
// its wire types (QCommsConfig) and distinct ids (use_index_dedup) belong to a whole sharder.
// HugeCTR: compression_strategy (Unique or Reduction) of EmbeddingCollectionConfig.shard(); mixed
// precision sets its wire type, and its training tables have no cache.
ExchangeSoftware preset(std::string_view name) {
  ExchangeSoftware software{.name = std::string(name)};
  if (name == "hugectr") {
    software.hierarchical = software.one_shot = software.reduces_beside = true;
    software.fuses_layers = true;
    software.settings = {.deduplication = true};
  }
  if (name == "torchrec") software.settings = {.cache_share = true};
  return software;
}

struct Word {
  std::string_view name;
  bool ExchangeSoftware::*member;
  bool value;
};
constexpr Word kWords[] = {{"hierarchical", &ExchangeSoftware::hierarchical, true},
                           {"flat", &ExchangeSoftware::hierarchical, false},
                           {"one-shot", &ExchangeSoftware::one_shot, true},
                           {"rings", &ExchangeSoftware::one_shot, false},
                           {"overlap", &ExchangeSoftware::reduces_beside, true},
                           {"in-order", &ExchangeSoftware::reduces_beside, false},
                           {"no-p2p", &ExchangeSoftware::peer_to_peer, false},
                           {"p2p", &ExchangeSoftware::peer_to_peer, true}};

Unexpected refuse_word(std::string_view found) {
  return decline(
      fmt::format("expected plain, torchrec or hugectr, with any of hierarchical, flat, one-shot, "
                  "rings, overlap, in-order, p2p, no-p2p, peer-us=US, straggler-us=US, nics=N "
                  "behind commas, found \"{}\"",
                  found));
}

Result<void> set_number(std::string_view word, ExchangeSoftware& software) {
  const std::size_t equal = word.find('=');
  if (equal == std::string_view::npos) return refuse_word(word);
  const std::string_view key = word.substr(0, equal), text = word.substr(equal + 1);
  double value = -1;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || !(value >= 0) ||
      !std::isfinite(value)) {
    return refuse_word(word);
  }
  if (key == "peer-us") {
    software.peer_us = value;
  } else if (key == "straggler-us") {
    software.straggler_us = value;
  } else if (key == "nics") {
    constexpr double kMostNics = 1024;
    if (value < 1 || value > kMostNics || value != std::floor(value)) return refuse_word(word);
    software.nics = static_cast<int>(value);
  } else {
    return refuse_word(word);
  }
  return {};
}

}  // namespace

Result<ExchangeSoftware> ExchangeSoftware::parse(std::string_view text) {
  constexpr std::array<std::string_view, 3> kPresets = {"plain", "torchrec", "hugectr"};
  ExchangeSoftware software;
  bool first = true;
  for (std::string_view rest = text; first || !rest.empty(); first = false) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    if (first && std::find(kPresets.begin(), kPresets.end(), word) != kPresets.end()) {
      software = preset(word);
      continue;
    }
    const auto known = std::find_if(std::begin(kWords), std::end(kWords),
                                    [&](const Word& one) { return one.name == word; });
    if (known != std::end(kWords)) {
      software.*known->member = known->value;
    } else if (auto good = set_number(word, software); !good) {
      return Unexpected{good.error()};
    }
  }
  software.name = std::string(text);
  return software;
}

std::int64_t host_size(const ShardingStudy& study, const Topology& topology) {
  const std::int64_t most = topology.gpus_per_node, machine = topology.gpus_per_machine;
  std::int64_t host = std::min(*study.world, most);
  if (machine <= 0 || machine == most || study.local_world.value_or(1) > machine) {
    return study.local_world.value_or(host);
  }
  const std::int64_t whole = host;
  while (*study.world % host != 0) --host;
  return 2 * host > whole ? host : whole;  // refused: no equal parts of racks make up the world
}

Topology used_topology(const ExchangeSoftware& network, Topology topology) {
  if (!network.peer_to_peer && topology.intra.kind == IntraLink::kPcie) {
    // Every byte crosses PCIe twice: to host memory, and from there.
    constexpr double kThroughHost = 0.5;
    for (BytesPerSecond* rate :
         {&topology.intra.gpu_bandwidth, &topology.intra.channel_bandwidth,
          &topology.intra.p2p_bandwidth, &topology.intra.all_to_all_bandwidth}) {
      rate->value *= kThroughHost;
    }
    for (Topology::Curve& curve : topology.curves) curve.bus.value *= kThroughHost;
    topology.nccl.reset();
  }
  if (network.nics && topology.nic) topology.nic->count = *network.nics;
  return topology;
}

}  // namespace perfmodel::sharding
