#include "perfmodel/predictors/topology.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <mutex>

#include "base/each_name.hpp"
#include "builtin_topologies.hpp"
#include "choice.hpp"
#include "core/edit_distance.hpp"
#include "files/json_file.hpp"
#include "files/lower_case.hpp"

namespace perfmodel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLinkNames[] = {"nvswitch", "nvlink-mesh", "xgmi", "pcie"};
constexpr std::string_view kCpuNames[] = {"intel", "amd", "other"};

// Wide enough for any link, and times stay finite.
double bandwidth(ObjectReader& reader, const char* key) {
  const double gb_per_s = reader.positive(key);
  if (gb_per_s < 1e-6 || gb_per_s > 1e9) reader.reject(key, "GB/s from 1e-6 to 1e9");
  return gb_per_s * 1e9;
}

Microseconds latency(ObjectReader& reader, const char* key) {
  const double us = reader.positive(key);
  if (us > 1e9) reader.reject(key, "us above 0, at most 1e9");
  return Microseconds{us};
}

double share(ObjectReader& reader, const char* key) {
  const double value = reader.positive(key);
  if (value < 1e-6 || value > 1) reader.reject(key, "a share from 1e-6 to 1");
  return value;
}

std::vector<Topology::RingChannels> parse_rings(ObjectReader& intra, std::optional<Error>& error) {
  std::vector<Topology::RingChannels> rings;
  const Json* list = intra.array("ring_channels_by_ranks", true);
  for (std::size_t i = 0; list && i < list->size(); ++i) {
    ObjectReader reader((*list)[i], "/intra/ring_channels_by_ranks/" + std::to_string(i), error);
    Topology::RingChannels entry;
    PERFMODEL_READ(entry, reader.positive_integer, ranks, channels);
    if (!rings.empty() && entry.ranks <= rings.back().ranks) {
      reader.reject("ranks", "more ranks than the entry before");
    }
    reader.finish();
    rings.push_back(entry);
  }
  return rings;
}

std::vector<double> parse_factors(ObjectReader& reader, const char* key, const std::string& pointer,
                                  std::optional<Error>& error) {
  std::vector<double> factors;
  const Json* list = reader.array(key);
  if (!list) return factors;
  if (list->size() < 2) reader.reject(key, "at least 2 factors");
  for (std::size_t i = 0; !error && i < list->size(); ++i) {
    const Json& item = (*list)[i];
    if (!item.is_number() || !(item.get<double>() >= 1e-6) || !(item.get<double>() <= 1e6)) {
      error = Error{.code = ErrorCode::kFormat,
                    .message = "expected a number from 1e-6 to 1e6, found " + found(item),
                    .json_pointer = pointer + "/" + key + "/" + std::to_string(i)};
      break;
    }
    factors.push_back(item.get<double>());
  }
  return factors;
}

/// Octave in which the time of the curve falls, if any. In an octave c ~ S^g, so that the time
/// grows where g >= -(share of the wire), which is smallest at the octave's start.
std::optional<std::size_t> falling_octave(const Topology::Curve& curve, Bytes first,
                                          CollectiveKind kind) {
  for (std::size_t i = 0; i + 1 < curve.octave_factors.size(); ++i) {
    const Bytes wire{bus_factor(kind, curve.ranks) * std::ldexp(first.value, static_cast<int>(i))};
    const double wire_us = (wire / curve.bus).count();
    const double slope = std::log2(curve.octave_factors[i + 1] / curve.octave_factors[i]);
    if (slope < -wire_us / (curve.alpha.count() + wire_us) - 1e-9) return i + 1;
  }
  return std::nullopt;
}

/// alpha, bus and factors of a curve, which must not fall.
void parse_line(ObjectReader& item, Bytes first, CollectiveKind kind, Topology::Curve& curve,
                std::optional<Error>& error) {
  curve.alpha = latency(item, "alpha_us");
  curve.bus = {bandwidth(item, "bus_gb_per_s")};
  curve.octave_factors = parse_factors(item, "octave_factors", item.pointer(), error);
  item.finish();
  if (error) return;
  const auto octave = falling_octave(curve, first, kind);
  if (!octave) return;
  error = Error{
      .code = ErrorCode::kFormat,
      .message = "expected a time that never falls with bytes, found a factor that lowers it: " +
                 found(curve.octave_factors[*octave]),
      .json_pointer = item.pointer() + "/octave_factors/" + std::to_string(*octave)};
}

void parse_curves(const Json& json, Topology& topology, std::optional<Error>& error) {
  ObjectReader reader(json, "/all_reduce", error);
  topology.calibration = reader.string("source");
  reader.string("software");
  topology.calibration += "; " + reader.string("fitted");
  reader.string("command");
  topology.first_bytes = {reader.positive("first_bytes")};
  const Json* curves = reader.array("curves");
  if (curves && curves->empty()) reader.reject("curves", "at least one curve");
  for (std::size_t i = 0; curves && i < curves->size(); ++i) {
    const std::string pointer = "/all_reduce/curves/" + std::to_string(i);
    ObjectReader item((*curves)[i], pointer, error);
    Topology::Curve curve;
    curve.ranks = item.positive_integer("ranks");
    const int before = topology.curves.empty() ? 1 : topology.curves.back().ranks;
    const int node = std::max(1, topology.gpus_per_node);  // 0 if it is missing
    if (curve.ranks <= before ||
        (curve.ranks > node && (!topology.nic || curve.ranks % node != 0))) {
      item.reject("ranks", "more than " + std::to_string(before) + ", at most " +
                               std::to_string(node) +
                               " (gpus_per_node) or, where there is a nic, a multiple of that");
    }
    parse_line(item, topology.first_bytes, CollectiveKind::kAllReduce, curve, error);
    if (error) return;
    topology.curves.push_back(std::move(curve));
  }
  reader.finish();
}

void parse_group_curves(ObjectReader& root, Topology& topology, std::optional<Error>& error) {
  const Json* list = root.array("collectives", true);
  for (std::size_t i = 0; !error && list && i < list->size(); ++i) {
    ObjectReader item((*list)[i], "/collectives/" + std::to_string(i), error);
    Topology::GroupCurve made;
    const auto kind = collective_kind(item.string("op"));
    if (!kind) item.reject("op", "a collective, such as all_gather");
    made.kind = kind.value_or(CollectiveKind::kAllReduce);
    made.curve.ranks = item.positive_integer("ranks");
    made.nodes = item.positive_integer("nodes");
    if (made.curve.ranks < 2) item.reject("ranks", "2 ranks or more");
    if (made.nodes > made.curve.ranks ||
        made.curve.ranks > std::int64_t{made.nodes} * topology.gpus_per_node ||
        (made.nodes > 1 && !topology.nic)) {
      item.reject("nodes", "nodes that hold the ranks, and a nic for more than one");
    }
    made.first_bytes = {item.positive("first_bytes")};
    parse_line(item, made.first_bytes, made.kind, made.curve, error);
    topology.group_curves.push_back(std::move(made));
  }
}

std::vector<Topology::NcclTimes::Rates> parse_rates(ObjectReader& nccl, int gpus_per_node,
                                                    std::optional<Error>& error) {
  std::vector<Topology::NcclTimes::Rates> rates;
  const Json* list = nccl.array("rates");
  if (list && list->empty()) nccl.reject("rates", "rates of at least one group");
  for (std::size_t i = 0; list && i < list->size(); ++i) {
    ObjectReader item((*list)[i], "/nccl/rates/" + std::to_string(i), error);
    Topology::NcclTimes::Rates entry;
    entry.ranks = item.positive_integer("ranks");
    const int before = rates.empty() ? 1 : rates.back().ranks;
    if (entry.ranks <= before || entry.ranks > gpus_per_node) {
      item.reject("ranks", "more than " + std::to_string(before) + ", at most " +
                               std::to_string(gpus_per_node) + " (gpus_per_node)");
    }
    entry.measured = item.boolean("measured");
    entry.all_reduce = {bandwidth(item, "all_reduce_gb_per_s")};
    entry.all_gather = {bandwidth(item, "all_gather_gb_per_s")};
    entry.reduce_scatter = {bandwidth(item, "reduce_scatter_gb_per_s")};
    entry.all_to_all = {bandwidth(item, "all_to_all_gb_per_s")};
    item.finish();
    rates.push_back(entry);
  }
  return rates;
}

Topology::NcclTimes parse_nccl(const Json& json, int gpus_per_node, std::optional<Error>& error) {
  ObjectReader reader(json, "/nccl", error);
  Topology::NcclTimes nccl;
  nccl.calibration = reader.string("source");
  reader.string("software");
  nccl.calibration += "; " + reader.string("fitted");
  nccl.first_bytes = {reader.positive("first_bytes")};
  nccl.last_bytes = {reader.positive("last_bytes")};
  if (nccl.last_bytes < nccl.first_bytes) reader.reject("last_bytes", "at least first_bytes");
  nccl.base = latency(reader, "base_us");
  nccl.hop = latency(reader, "hop_us");
  nccl.rise = share(reader, "rise");
  nccl.rise_bytes = {reader.positive("rise_bytes")};
  nccl.low_rate = {bandwidth(reader, "low_gb_per_s")};
  nccl.simple_base = latency(reader, "simple_base_us");
  nccl.simple_hop = latency(reader, "simple_hop_us");
  if (const Json* own = reader.object("all_to_all")) {
    ObjectReader item(*own, "/nccl/all_to_all", error);
    nccl.all_to_all.base = latency(item, "base_us");
    nccl.all_to_all.low_rate = {bandwidth(item, "low_gb_per_s")};
    nccl.all_to_all.simple_base = latency(item, "simple_base_us");
    item.finish();
  }
  nccl.rates = parse_rates(reader, gpus_per_node, error);
  reader.finish();
  return nccl;
}

Topology::Network parse_network(const Json& json, const Topology& topology,
                                std::optional<Error>& error) {
  ObjectReader reader(json, "/network", error);
  Topology::Network network;
  if (reader.optional_positive("rails")) network.rails = reader.positive_integer("rails");
  if (topology.nic && network.rails > topology.nic->count) {
    reader.reject("rails",
                  "at most one rail per NIC (" + std::to_string(topology.nic->count) + ")");
  }
  network.pxn = reader.boolean("pxn");
  const Json* levels = reader.array("levels");
  if (levels && levels->empty()) reader.reject("levels", "at least one level");
  for (std::size_t i = 0; levels && i < levels->size(); ++i) {
    ObjectReader item((*levels)[i], "/network/levels/" + std::to_string(i), error);
    Topology::Network::Level level;
    level.nodes = item.positive_integer("nodes");
    const int before = network.levels.empty() ? 0 : network.levels.back().nodes;
    if (level.nodes <= before) {
      item.reject("nodes", "more nodes than the level below (" + std::to_string(before) + ")");
    }
    level.oversubscription = item.positive("oversubscription");
    if (level.oversubscription < 1 || level.oversubscription > 1e6) {
      item.reject("oversubscription", "a factor from 1 to 1e6");
    }
    item.finish();
    network.levels.push_back(level);
  }
  reader.finish();
  return network;
}

Topology parse_topology(const Json& document, std::optional<Error>& error) {
  Topology topology;
  ObjectReader root(document, "", error);
  root.expect_schema(schemas::kTopology);
  topology.name = root.plain_name("name");
  topology.title = root.string("title");
  PERFMODEL_READ(topology, root.strings, gpus, default_for);
  for (const std::string& gpu : topology.default_for) {
    if (std::ranges::find(topology.gpus, gpu) == topology.gpus.end()) {
      root.reject("default_for", "names out of gpus");
    }
  }
  topology.gpus_per_node = root.positive_integer("gpus_per_node");
  topology.gpus_per_machine = topology.gpus_per_node;
  if (root.has("gpus_per_machine")) {
    topology.gpus_per_machine = root.positive_integer("gpus_per_machine");
    if (topology.gpus_per_node % std::max(1, topology.gpus_per_machine) != 0) {
      root.reject("gpus_per_machine", "a divisor of gpus_per_node");
    }
  }
  topology.generation = static_cast<NcclGeneration>(
      choice_or_like(root, "generation", kNcclGenerationNames, topology.unknown_generation));
  topology.cpu = kCpuNames[choice(root, "cpu", kCpuNames)];

  if (const Json* json = root.object("intra")) {
    ObjectReader reader(*json, "/intra", error);
    Topology::Intra& intra = topology.intra;
    intra.kind =
        static_cast<IntraLink>(choice_or_like(reader, "kind", kLinkNames, intra.unknown_kind));
    intra.gpu_bandwidth = {bandwidth(reader, "gpu_gb_per_s")};
    intra.ring_channels = reader.positive_integer("ring_channels");
    intra.channel_bandwidth = {bandwidth(reader, "channel_gb_per_s")};
    intra.ring_channels_by_ranks = parse_rings(reader, error);
    if (reader.optional_positive("nvls_channels")) {
      intra.nvls_channels = reader.positive_integer("nvls_channels");
    }
    intra.ll128 = reader.boolean("ll128");
    intra.p2p_bandwidth = {bandwidth(reader, "p2p_gb_per_s")};
    intra.all_to_all_bandwidth = {bandwidth(reader, "all_to_all_gb_per_s")};
    intra.efficiency = share(reader, "efficiency");
    reader.finish();
  }
  if (const Json* json = root.object("nic", true)) {
    ObjectReader reader(*json, "/nic", error);
    Topology::Nic nic;
    nic.count = reader.positive_integer("count");
    nic.bandwidth = {bandwidth(reader, "gb_per_s")};
    nic.latency = latency(reader, "latency_us");
    nic.efficiency = share(reader, "efficiency");
    if (reader.has("ll128")) nic.ll128 = reader.boolean("ll128");
    if (reader.has("pair_trees")) nic.pair_trees = reader.boolean("pair_trees");
    if (reader.has("in_flight_bytes")) nic.in_flight = {reader.positive("in_flight_bytes")};
    reader.finish();
    topology.nic = nic;
  }
  if (root.has("network")) {
    if (const Json* json = root.object("network", true)) {
      topology.network = parse_network(*json, topology, error);
      if (!topology.nic) root.reject("network", "null where there is no nic");
    }
  }
  if (const Json* json = root.object("all_reduce", true)) parse_curves(*json, topology, error);
  if (root.has("collectives")) parse_group_curves(root, topology, error);
  if (root.has("nccl")) {
    if (const Json* json = root.object("nccl", true)) {
      topology.nccl = parse_nccl(*json, topology.gpus_per_node, error);
    }
  }
  topology.notes = root.string("notes");
  topology.sources = root.strings("sources");
  if (topology.sources.empty()) root.reject("sources", "at least one source");
  root.finish();
  return topology;
}

}  // namespace

std::string_view to_string(IntraLink link) { return kLinkNames[static_cast<std::size_t>(link)]; }

int Topology::ring_channels(int ranks) const {
  for (const RingChannels& entry : intra.ring_channels_by_ranks) {
    if (entry.ranks == ranks) return entry.channels;
  }
  return intra.ring_channels;
}

Result<void> check_fits(const Topology& topology, std::int64_t gpus) {
  if (!topology.network) return {};
  const std::int64_t most =
      std::int64_t{topology.network->levels.back().nodes} * topology.gpus_per_node;
  if (gpus <= most) return {};
  return decline("expected at most the " + std::to_string(most) + " GPUs of topology " +
                 topology.name + ", found " + std::to_string(gpus));
}

std::vector<std::string> stand_ins(const Topology& topology) {
  std::vector<std::string> sentences;
  const auto add = [&](std::string_view what, const std::string& unknown, std::string_view known) {
    if (unknown.empty()) return;
    sentences.push_back(std::string(what) + " " + unknown + " of topology " + topology.name +
                        " is not known: " + std::string(known) +
                        " stands in, and every price of a collective is out of range");
  };
  add("generation", topology.unknown_generation,
      kNcclGenerationNames[static_cast<std::size_t>(topology.generation)]);
  add("link", topology.intra.unknown_kind, to_string(topology.intra.kind));
  return sentences;
}

Result<Topology> read_topology(const fs::path& file) {
  return read_json_file(file, "topology file", parse_topology);
}

Result<TopologyCatalog> TopologyCatalog::make(std::vector<Topology> topologies,
                                              const fs::path& folder) {
  std::ranges::sort(topologies, {}, &Topology::name);
  for (const Topology& topology : topologies) {
    for (std::size_t i = 0; i < topology.default_for.size(); ++i) {
      const std::string& gpu = topology.default_for[i];
      for (const Topology& other : topologies) {
        if (&other == &topology) break;
        if (std::ranges::find(other.default_for, gpu) == other.default_for.end()) continue;
        return fail(ErrorCode::kFormat,
                    "expected one default topology per GPU, found " + gpu + ", which " +
                        other.name + " claims too",
                    folder / (topology.name + ".json"), "/default_for/" + std::to_string(i));
      }
    }
  }
  TopologyCatalog catalog;
  catalog.topologies_ = std::move(topologies);
  return catalog;
}

Result<TopologyCatalog> TopologyCatalog::read(const fs::path& folder) {
  PERFMODEL_TRY(files, json_files(folder, "topology files"));
  std::vector<Topology> topologies;
  for (const fs::path& file : *files) {
    PERFMODEL_TRY(topology, read_topology(file));
    if (topology->name != file.stem().string()) {
      return fail(ErrorCode::kFormat,
                  "expected the name of the file, \"" + file.stem().string() + "\", found \"" +
                      topology->name + "\"",
                  file, "/name");
    }
    topologies.push_back(std::move(*topology));
  }
  return make(std::move(topologies), folder);
}

namespace {

/// A file of the sources, read when it is first asked for.
const Topology& builtin_topology(std::size_t file) {
  struct Lazy {
    std::once_flag once;
    Topology topology;
  };
  static std::vector<Lazy> all(builtin_topology_files().size());
  std::call_once(all[file].once, [&] {
    const auto& [name, text] = builtin_topology_files()[file];
    Result<Topology> topology =
        parse_json_text(std::string(text), "a topology file", std::string(name), parse_topology);
    if (!topology) std::fprintf(stderr, "%s\n", to_string(topology.error()).c_str());
    PERFMODEL_CHECK(topology.has_value());  // a broken file in the sources
    all[file].topology = std::move(*topology);
  });
  return all[file].topology;
}

/// Reads only files that name the GPU.
const Topology* find_default_topology(const std::string& gpu) {
  const auto files = builtin_topology_files();
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (files[i].second.find('"' + gpu + '"') == std::string_view::npos) continue;
    const Topology& topology = builtin_topology(i);
    if (std::ranges::find(topology.default_for, gpu) != topology.default_for.end()) {
      return &topology;
    }
  }
  return nullptr;
}

}  // namespace

const TopologyCatalog& TopologyCatalog::builtin() {
  static const TopologyCatalog catalog = [] {
    std::vector<Topology> topologies;
    for (std::size_t i = 0; i < builtin_topology_files().size(); ++i) {
      topologies.push_back(builtin_topology(i));
    }
    Result<TopologyCatalog> made = make(std::move(topologies), {});
    PERFMODEL_CHECK(made.has_value());
    return std::move(*made);
  }();
  return catalog;
}

Result<Topology> TopologyCatalog::find(std::string_view name) const {
  const auto known = named(name);
  if (known) return **known;
  const fs::path path{std::string(name)};
  std::error_code ignored;
  if (path.extension() == ".json" || fs::is_regular_file(path, ignored)) return read_topology(path);
  return Unexpected{known.error()};
}

Result<const Topology*> TopologyCatalog::named(std::string_view name) const {
  const std::string wanted = lower_case(name);
  for (const Topology& topology : topologies_) {
    if (lower_case(topology.name) == wanted) return &topology;
  }
  std::vector<std::pair<std::size_t, std::string>> scored;
  for (const Topology& topology : topologies_) {
    const bool begins = topology.name.starts_with(wanted);
    scored.emplace_back(begins ? 0 : edit_distance(wanted, lower_case(topology.name)),
                        topology.name);
  }
  return fail(ErrorCode::kUnknownName, "expected the name of a known topology or a file, found \"" +
                                           std::string(name) + "\"; the nearest known are " +
                                           nearest_three(std::move(scored)));
}

const Topology* TopologyCatalog::default_of(std::string_view gpu_name) const {
  for (const Topology& topology : topologies_) {
    for (const std::string& gpu : topology.default_for) {
      if (gpu == gpu_name) return &topology;
    }
  }
  return nullptr;
}

Topology datasheet_topology(const Gpu& gpu) {
  constexpr double kNvlinkShare = 20.0 / 25, kPcieShare = 12 / 15.75;  // NCCL's figures
  constexpr double kEfficiency = 0.92;  // [I] what A100 rings reach of NCCL's figure, about
  constexpr double kBridgeShare = 0.5;  // [I] all-to-all through shared host bridges
  Topology topology;
  topology.name = gpu.name + " (data sheet)";
  topology.title = "8 " + gpu.title;
  topology.gpus = {gpu.name};
  topology.gpus_per_node = 8;
  topology.cpu = "other";
  topology.generation = gpu.architecture.nccl_generation;
  Topology::Intra& intra = topology.intra;
  const bool linked = gpu.link_bandwidth.value > 0;
  const double one_way = linked ? gpu.link_bandwidth.value / 2 : gpu.pcie_bandwidth.value;
  const std::string_view type = gpu.link_like.empty() ? gpu.link_type : gpu.link_like;
  intra.kind = !linked          ? IntraLink::kPcie
               : type == "xgmi" ? IntraLink::kXgmi
                                : IntraLink::kNvswitch;
  const double bus = one_way * (linked ? kNvlinkShare : kPcieShare);
  intra.gpu_bandwidth = {one_way};
  intra.ring_channels = linked ? std::max(1, gpu.link_count) : 1;
  intra.channel_bandwidth = {bus / intra.ring_channels};
  intra.ll128 = linked;
  intra.p2p_bandwidth = {bus * kEfficiency};
  intra.all_to_all_bandwidth = {bus * kEfficiency * (linked ? 1 : kBridgeShare)};
  intra.efficiency = kEfficiency;
  return topology;
}

const Topology* default_topology(const Gpu& gpu) {
  static std::mutex mutex;
  static std::map<std::string, const Topology*> known;
  const std::lock_guard lock(mutex);
  const auto at = known.find(gpu.name);
  if (at != known.end()) return at->second;
  constexpr std::size_t kMost = 256;  // files of users name GPUs as they like
  if (known.size() >= kMost) known.clear();
  return known.emplace(gpu.name, find_default_topology(gpu.name)).first->second;
}

Topology topology_for(const Gpu& gpu) {
  const Topology* known = default_topology(gpu);
  return known ? *known : datasheet_topology(gpu);
}

}  // namespace perfmodel
