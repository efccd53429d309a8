#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/impossible.hpp"
#include "builtin_topologies.hpp"
#include "files/json_file.hpp"
#include "files/lower_case.hpp"
#include "perfmodel/predictors/topology.hpp"

namespace perfmodel {
namespace {

struct NetworkKind {
  std::string name;
  Microseconds latency{0};
  bool ll128 = true;
};

/// Contents of `data/networks.json`, the usual kind first.
struct Networks {
  std::vector<NetworkKind> kinds;
  double efficiency = 1;
};

Networks parse_networks(const Json& document, std::optional<Error>& error) {
  ObjectReader root(document, "", error);
  Networks made{.kinds = {}, .efficiency = root.positive("efficiency")};
  const Json* list = root.array("kinds");
  for (std::size_t i = 0; list && i < list->size(); ++i) {
    ObjectReader kind((*list)[i], "/kinds/" + std::to_string(i), error);
    made.kinds.push_back({.name = kind.string("name"),
                          .latency = Microseconds{kind.positive("latency_us")},
                          .ll128 = kind.boolean("ll128")});
    kind.finish();
  }
  root.string("notes");
  root.finish();
  return made;
}

const Networks& networks() {
  static const Networks known = [] {
    auto read = parse_json_text(std::string(builtin_networks_file()), "the file of networks",
                                "networks.json", parse_networks);
    PERFMODEL_CHECK(read.has_value() && !read->kinds.empty());  // a broken file in the sources
    return std::move(*read);
  }();
  return known;
}

const NetworkKind* kind_of(const std::string& network) {
  const auto end = std::ranges::find_if(
      network, [](unsigned char c) { return std::isspace(c) != 0 || c == ','; });
  std::string name = lower_case(std::string(network.begin(), end));
  if (name == "efa" && lower_case(network).find("p4d") != std::string::npos) name = "efa-p4d";
  const auto found = std::ranges::find(networks().kinds, name, &NetworkKind::name);
  return found == networks().kinds.end() ? nullptr : &*found;
}

bool says_no_kind(const std::string& network) {
  return network.empty() || std::isdigit(static_cast<unsigned char>(network[0])) != 0 ||
         lower_case(network).starts_with("nvlink");
}

/// Machines in one NVLink domain.
int machines_of(const Topology& topology) {
  const int gpus =
      topology.gpus_per_machine > 0 ? topology.gpus_per_machine : topology.gpus_per_node;
  return std::max(1, topology.gpus_per_node / std::max(1, gpus));
}

}  // namespace

bool knows_network(const std::string& network) {
  return says_no_kind(network) || kind_of(network) != nullptr;
}

std::string network_kinds() {
  std::string names;
  for (const NetworkKind& kind : networks().kinds) {
    names += (names.empty() ? "" : ", ") + kind.name;
  }
  return names;
}

int nodes_of_machines(const Topology& topology, int ranks, int machines) {
  const int joined = machines_of(topology);
  if (machines < 1 || ranks > machines * (topology.gpus_per_node / joined)) return machines;
  return (machines - 1) / joined + 1;
}

Result<Topology> with_network(Topology topology, const NetworkFacts& facts) {
  if (!topology.nic) {
    if (facts.nics == 0 || facts.nic_bandwidth.value <= 0) {
      return impossible("the NICs of " + topology.name + ", which has none (nics, nic_gb_per_s)",
                        "none");
    }
    topology.nic = Topology::Nic{.latency = networks().kinds.front().latency,
                                 .efficiency = networks().efficiency};
  }
  if (facts.nics > 0) topology.nic->count = facts.nics * machines_of(topology);
  if (facts.nic_bandwidth.value > 0) topology.nic->bandwidth = facts.nic_bandwidth;
  if (says_no_kind(facts.network)) return topology;
  const NetworkKind* kind = kind_of(facts.network);
  if (!kind) {
    return fail(ErrorCode::kUnknownName, fmt::format("expected a network ({}), found \"{}\"",
                                                     network_kinds(), facts.network));
  }
  topology.nic->latency = kind->latency;
  topology.nic->ll128 = kind->ll128;
  return topology;
}

}  // namespace perfmodel
