#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/detail/units.hpp"
#include "perfmodel/predictors/detail/nccl_tuning.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

enum class IntraLink : std::uint8_t { kNvswitch, kNvlinkMesh, kXgmi, kPcie };
std::string_view to_string(IntraLink link);  ///< "nvlink-mesh"

/// Links between the GPUs of a node and between nodes, read from `data/topologies/NAME.json`.
struct Topology {
  std::string name;                      ///< "dgx-a100"
  std::string title;                     ///< "NVIDIA DGX A100 with 8 A100"
  std::vector<std::string> gpus;         ///< names of GPUs that it is built with
  std::vector<std::string> default_for;  ///< GPUs that are in it unless another is named
  int gpus_per_node = 0;                 ///< GPUs that NVLink, or its counterpart, joins
  int gpus_per_machine = 0;  ///< under one operating system; fewer if NVLink joins machines (NVL72)
  NcclGeneration generation = NcclGeneration::kVolta;
  std::string unknown_generation;  ///< as the file says; `generation` replaces it. Empty: known
  std::string cpu;                 ///< "intel", "amd" or "other"

  struct RingChannels {
    int ranks = 0, channels = 0;
  };
  struct Intra {
    IntraLink kind = IntraLink::kPcie;
    std::string unknown_kind;          ///< as the file says; `kind` replaces it. Empty: known
    BytesPerSecond gpu_bandwidth;      ///< one GPU, one direction, datasheet
    int ring_channels = 0;             ///< one-way rings through all GPUs
    BytesPerSecond channel_bandwidth;  ///< as NCCL counts one
    std::vector<RingChannels> ring_channels_by_ranks;  ///< if the mesh makes it differ
    std::optional<int> nvls_channels;                  ///< NVLink SHARP; none: the switch has none
    bool ll128 = true;                                 ///< NCCL may use its LL128 protocol
    BytesPerSecond p2p_bandwidth;                      ///< one GPU to another
    BytesPerSecond all_to_all_bandwidth;               ///< one GPU to all others at once
    double efficiency = 1;  ///< reached share of NCCL's bandwidth, without a curve
  } intra;

  struct Nic {
    int count = 0;
    bool ll128 = true;         ///< NCCL may use LL128 between nodes, too
    bool pair_trees = true;    ///< trees of two nodes pass the NICs once; false: NCCL 2.14
    BytesPerSecond bandwidth;  ///< one NIC, one direction, datasheet
    Microseconds latency{0};
    double efficiency = 1;
    /// Each GPU of a node keeps so many bytes under way between the nodes once NCCL's pipeline of
    /// an all-reduce is full. Fitted to printed nccl-tests and rccl-tests logs of two and four
    /// machines with H100, A100 and MI300X on InfiniBand, RoCE and EFA.
    Bytes in_flight{5.7e6};
  };
  std::optional<Nic> nic;  ///< none: one node only

  /// Switches between the nodes, whose NICs are filled in the order of ranks. Each level joins
  /// `nodes` nodes; traffic that leaves them shares uplinks with 1 / oversubscription of the
  /// bandwidth that enters the level.
  struct Network {
    struct Level {
      int nodes = 0;
      double oversubscription = 1;  ///< at least 1; nothing leaves the last level
    };
    /// 0: a node's NICs are on one leaf switch. Else NIC i of all nodes of a leaf is on its own
    /// switch (rail i mod rails), and only rings and pairs of the same NIC stay below it.
    int rails = 0;
    /// NCCL first moves data inside the node to the GPU of the receiver's rail (PXN); else data
    /// changes rails above the leaves.
    bool pxn = true;
    std::vector<Level> levels;  ///< from the leaves up, nodes ascending; at least one
  };
  std::optional<Network> network;  ///< none: nothing between the nodes is slower than their NICs

  /// Measured all-reduce of one group size inside a node,
  ///   t(S) = (alpha + 2 (n-1)/n S / bus) c(S),
  /// c: `octave_factors` at first_bytes, 2 first_bytes, 4 first_bytes, ..., linear in log c over
  /// log S between them, constant beyond. t never falls (checked when read).
  struct Curve {
    int ranks = 0;
    Microseconds alpha{0};
    BytesPerSecond bus;
    std::vector<double> octave_factors;
  };
  /// The same of any collective of one group, w / bus with the bytes w on its wire.
  struct GroupCurve {
    CollectiveKind kind = CollectiveKind::kAllReduce;
    int nodes = 1;
    Bytes first_bytes;
    Curve curve;
  };
  std::vector<GroupCurve> group_curves;
  Bytes first_bytes;
  std::vector<Curve> curves;  ///< by ranks, ascending; empty: not calibrated
  std::string calibration;    ///< where the curves come from

  /// NCCL's time inside one node for S bytes (counted as nccl-tests does) among n ranks, fitted
  /// to measurements; the equations are in collectives.hpp.
  struct NcclTimes {
    Microseconds base{0}, hop{0};  ///< LL and LL128: of an empty buffer, and per step of the ring
    double rise = 0;               ///< share by which this latency grows if S >> rise_bytes:
    Bytes rise_bytes;              ///< NCCL opens more channels
    BytesPerSecond low_rate;
    Microseconds simple_base{0}, simple_hop{0};  ///< Simple, and NVLS where it is faster
    struct AllToAll {
      Microseconds base{0};
      BytesPerSecond low_rate;
      Microseconds simple_base{0};
    } all_to_all;
    struct Rates {  ///< Simple: rates at which one rank fills the wire
      int ranks = 0;
      bool measured = false;  ///< false: taken over from another GPU with the same links
      BytesPerSecond all_reduce, all_gather, reduce_scatter, all_to_all;
    };
    std::vector<Rates> rates;       ///< by ranks, ascending, at least one
    Bytes first_bytes, last_bytes;  ///< measured sizes
    std::string calibration;        ///< where the figures come from
  };
  std::optional<NcclTimes> nccl;  ///< none: not fitted
  std::string notes;
  std::vector<std::string> sources;

  /// One-way rings of NCCL through a group of that many GPUs of a node.
  int ring_channels(int ranks) const;
};

/// A network as a table of measurements describes it; 0 and empty: the topology's own.
struct NetworkFacts {
  int nodes = 0;                    ///< machines of a group
  int nics = 0;                     ///< per machine
  BytesPerSecond nic_bandwidth{0};  ///< one NIC, one direction
  std::string network;              ///< "EFA 4 x 100, p4d", "roce", "400 Gb/s", "NVLink"

  bool says_nics() const { return nics > 0 || nic_bandwidth.value > 0 || !network.empty(); }
};

/// Nodes of the topology over which so many machines spread a group: machines that one NVLink
/// domain joins are one node.
int nodes_of_machines(const Topology& topology, int ranks, int machines);

/// The kinds that `with_network` knows: "infiniband, roce, efa, efa-p4d".
std::string network_kinds();
/// Whether it is empty, begins with a known kind or NVLink, or is a speed alone.
bool knows_network(const std::string& network);

/// The topology with these NICs. The kind is the first word of `network`, in any case; one that
/// begins with a digit is a speed without a kind, NVLink says nothing of NICs. Errors: an unknown
/// kind, a topology without a NIC whose facts do not say all of one.
Result<Topology> with_network(Topology topology, const NetworkFacts& facts);

/// Error: the topology's switches cannot join so many GPUs.
Result<void> check_fits(const Topology& topology, std::int64_t gpus);

/// One sentence for each substitute that its prices rely on: NCCL's figures of another generation,
/// another link.
std::vector<std::string> stand_ins(const Topology& topology);

/// One topology file. Errors name the missing or odd field. An unknown generation or link is an
/// error, unless the file names a substitute (`like`).
Result<Topology> read_topology(const std::filesystem::path& file);

/// The topologies known by name. Immutable; looking up reads no file.
class TopologyCatalog {
 public:
  /// The files of `data/topologies/` as they were when the library was built.
  static const TopologyCatalog& builtin();

  /// Every topology of a folder. Errors: a broken file, a name that is not the file's, two
  /// topologies that are the default of one GPU.
  static Result<TopologyCatalog> read(const std::filesystem::path& folder);

  /// Sorted by name.
  const std::vector<Topology>& topologies() const { return topologies_; }

  /// By name, ignoring case; or, if `name` is a path to a file, that file. An unknown name is an
  /// error that lists the nearest known ones.
  Result<Topology> find(std::string_view name) const;

  /// By name, ignoring case; opens no file. An unknown name is an error as in `find`.
  Result<const Topology*> named(std::string_view name) const;

  /// The default topology of that GPU, or nullptr.
  const Topology* default_of(std::string_view gpu_name) const;

 private:
  static Result<TopologyCatalog> make(std::vector<Topology> topologies,
                                      const std::filesystem::path& folder);
  std::vector<Topology> topologies_;
};

/// Node of 8 GPUs from the data sheet of one: rings over 0.8 of the link's one-way bandwidth (as
/// NCCL counts NVLink: 20 of 25 GB/s; 12 of 15.75 on PCIe), no curves, no NIC. For GPUs in no
/// topology.
Topology datasheet_topology(const Gpu& gpu);

/// The built-in default topology of the GPU; null: it is in none. Other topologies are not read.
const Topology* default_topology(const Gpu& gpu);

/// The same, else the GPU's `datasheet_topology`.
Topology topology_for(const Gpu& gpu);

}  // namespace perfmodel
