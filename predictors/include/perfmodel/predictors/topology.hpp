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

/// How the GPUs of one node and the nodes are tied together, read from `data/topologies/NAME.json`.
struct Topology {
  std::string name;                      ///< "dgx-a100"
  std::string title;                     ///< "NVIDIA DGX A100 with 8 A100"
  std::vector<std::string> gpus;         ///< names of GPUs that it is built with
  std::vector<std::string> default_for;  ///< those that run in it unless one says otherwise
  int gpus_per_node = 0;
  NcclGeneration generation = NcclGeneration::kVolta;
  std::string unknown_generation;  ///< as the file says; `generation` stands in. Empty: known
  std::string cpu;                 ///< "intel", "amd" or "other"

  struct RingChannels {
    int ranks = 0, channels = 0;
  };
  struct Intra {
    IntraLink kind = IntraLink::kPcie;
    std::string unknown_kind;          ///< as the file says; `kind` stands in. Empty: known
    BytesPerSecond gpu_bandwidth;      ///< one GPU, one direction, datasheet
    int ring_channels = 0;             ///< one-way rings through all GPUs
    BytesPerSecond channel_bandwidth;  ///< as NCCL counts one
    std::vector<RingChannels> ring_channels_by_ranks;  ///< where the mesh makes it differ
    std::optional<int> nvls_channels;                  ///< NVLink SHARP; none: the switch has none
    bool ll128 = true;                                 ///< NCCL may use its LL128 protocol
    BytesPerSecond p2p_bandwidth;                      ///< one GPU to one other
    BytesPerSecond all_to_all_bandwidth;               ///< one GPU to all others at once
    double efficiency = 1;  ///< share of NCCL's bandwidth that is reached, where no curve says so
  } intra;

  struct Nic {
    int count = 0;
    BytesPerSecond bandwidth;  ///< one NIC, one direction, datasheet
    Microseconds latency{0};
    double efficiency = 1;
  };
  std::optional<Nic> nic;  ///< none: one node only

  /// Switches between the nodes, whose NICs are filled in the order of ranks. Each level joins
  /// `nodes` nodes; what leaves them shares uplinks of 1 / oversubscription of the bandwidth that
  /// comes up to the level.
  struct Network {
    struct Level {
      int nodes = 0;
      double oversubscription = 1;  ///< at least 1; of the last level nothing leaves
    };
    /// 0: a node's NICs are on one leaf switch. Else NIC i of all nodes of a leaf is on a switch of
    /// its own (of rail i mod rails), and only rings and pairs of the same NIC stay below it.
    int rails = 0;
    /// NCCL moves data inside the node to the GPU of the receiver's rail (PXN); without it, it
    /// crosses over between the rails above the leaves.
    bool pxn = true;
    std::vector<Level> levels;  ///< from the leaves up, nodes ascending; at least one
  };
  std::optional<Network> network;  ///< none: nothing between the nodes is slower than their NICs

  /// Measured all-reduce of one group size inside a node,
  ///   t(S) = (alpha + 2 (n-1)/n S / bus) c(S),
  /// c: `octave_factors` at first_bytes, 2 first_bytes, 4 first_bytes, ..., in between linear in
  /// log c over log S, the end ones beyond. t never falls (checked when read).
  struct Curve {
    int ranks = 0;
    Microseconds alpha{0};
    BytesPerSecond bus;
    std::vector<double> octave_factors;
  };
  Bytes first_bytes;
  std::vector<Curve> curves;  ///< by ranks, ascending; empty: not calibrated
  std::string calibration;    ///< where the curves come from

  /// What NCCL takes inside one node for S bytes (counted as nccl-tests does) among n ranks, fitted
  /// to measurements; the equations are in collectives.hpp.
  struct NcclTimes {
    Microseconds base{0}, hop{0};  ///< LL and LL128: of an empty buffer, and per step of the ring
    double rise = 0;               ///< share that this latency grows by where S >> rise_bytes:
    Bytes rise_bytes;              ///< NCCL opens more channels
    BytesPerSecond low_rate;
    Microseconds simple_base{0}, simple_hop{0};  ///< Simple, and NVLS where it is faster
    struct AllToAll {
      Microseconds base{0};
      BytesPerSecond low_rate;
      Microseconds simple_base{0};
    } all_to_all;
    struct Rates {  ///< of Simple: what one rank puts on the wire, per time
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

  /// One-way rings that NCCL lays through a group of that many GPUs of a node.
  int ring_channels(int ranks) const;
};

/// Whether so many GPUs fit below the topology's switches. Error: they do not.
Result<void> check_fits(const Topology& topology, std::int64_t gpus);

/// What its prices lean on for want of something that is known, one sentence each: NCCL's figures
/// of another generation, another link.
std::vector<std::string> stand_ins(const Topology& topology);

/// One topology file. Errors name the missing or odd field. A generation or link that nobody knows
/// is one, unless the file names another that stands in (`like`).
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
/// NCCL counts NVLink: 20 of 25 GB/s; 12 of 15.75 on PCIe), no curves, no NIC. For GPUs that no
/// topology knows.
Topology datasheet_topology(const Gpu& gpu);

/// The built-in default topology of the GPU, else its `datasheet_topology`.
Topology topology_for(const Gpu& gpu);

}  // namespace perfmodel
