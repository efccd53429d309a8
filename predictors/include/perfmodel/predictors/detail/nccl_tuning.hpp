#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "perfmodel/detail/units.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// An operation that a group of GPUs does together.
enum class CollectiveKind : std::uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kSend,
  kRecv,
};
std::string_view to_string(CollectiveKind kind);  ///< "all_reduce"
/// The kind of that name, or nothing.
std::optional<CollectiveKind> collective_kind(std::string_view name);
/// Bytes on the wire by the buffer: busbw of nccl-tests by its algbw.
double bus_factor(CollectiveKind kind, int ranks);

/// Rows of NCCL's constant tables. Older GPUs use Volta's row, Ada and Turing the row of the
/// generation before them.
enum class NcclGeneration : std::uint8_t { kVolta, kAmpere, kHopper, kBlackwell };
inline constexpr std::string_view kNcclGenerationNames[] = {"volta", "ampere", "hopper",
                                                            "blackwell"};
enum class NcclLink : std::uint8_t { kNvlink, kPcie };
enum class NcclAlgorithm : std::uint8_t { kTree, kRing, kNvls, kNvlsTree };
enum class NcclProtocol : std::uint8_t { kLl, kLl128, kSimple };
std::string_view to_string(NcclAlgorithm algorithm);  ///< "Ring"
std::string_view to_string(NcclProtocol protocol);    ///< "LL128"

/// The result of NCCL's topology search for one algorithm. Bandwidths in GB/s per channel.
struct NcclGraph {
  int channels = 0;
  double intra_gb_per_s = 0, inter_gb_per_s = 0;
  double inter_latency_us = 0;  ///< the NIC's, added to every network hop
};

struct NcclTuningInput {
  CollectiveKind collective = CollectiveKind::kAllReduce;
  int ranks = 2, nodes = 1;
  NcclGeneration generation = NcclGeneration::kAmpere;
  bool cpu_amd = false;  ///< AMD or mixed CPUs
  NcclLink intra_link = NcclLink::kNvlink;
  std::optional<NcclGraph> ring, tree, nvls, nvls_tree;  ///< no graph: not offered
  bool nvls_available = false, ll128_enabled = true;
  bool tree_pattern = true;  ///< plain tree: 0.85 of its bandwidth
};

/// One algorithm with one protocol: time = latency + bytes / bandwidth.
struct NcclOption {
  NcclAlgorithm algorithm;
  NcclProtocol protocol;
  double latency_us = 0;          ///< before the ring plateau's factor
  double bandwidth_gb_per_s = 0;  ///< before the tree's size correction
};

/// The formulas by which NCCL 2.30 chooses algorithm and protocol.
///
///   t = latency f + bytes / (1000 c bandwidth)          [us; bytes, GB/s]
///
/// `bytes` is the full buffer (the gathered one for all-gather and reduce-scatter). f: 1.4 (Volta
/// 1.9) for ring/Simple all-reduce over several nodes from 64 bytes per channel and rank on,
/// else 1. c: the tree's size correction, looked up by floor(log2(bytes / 64)) in 0..22, else 1.
/// With n ranks on N nodes, m = n / N, bus bandwidth = channels x per-channel bandwidth (that
/// inside the node for N <= 2):
///
/// - ring: LL takes half, capped by the LL table; LL128 0.92, capped per channel.
/// - tree: 0.92, capped per channel; LL then / 3.8, capped by the LL table; LL128 then 7/9 (one
///   node) or 120/128 (capped per channel); 0.85 with `tree_pattern`.
/// - NVLS (one node), NVLSTree (several), Simple only, c channels: per channel min(intra e (c-1)/c
///   2, inter (x 2 for NVLSTree on two nodes), cap of NVLSTree); outside all-reduce (m-1)/m for 2.
///
/// To algorithm bandwidth: all-reduce ring, NVLS, NVLSTree n / (2 (n-1)), tree 1/2; all-gather and
/// reduce-scatter ring n / (n-1), NVLS 1; broadcast and reduce 1.
/// Latency = base + hops: ring (steps - inter) intra + inter net, steps 2 (n-1) or n-1, inter 2
/// (N-1) or N-1; intra is at least the network overhead when N > 1. Tree 2 ((m-1) intra +
/// floor(log2 N) net). NVLS intra, NVLSTree intra + 2 floor(log2 N) net. net holds the NIC's
/// latency once, for Simple twice.
///
/// All-reduce offers every algorithm, all-gather and reduce-scatter ring and NVLS, broadcast and
/// reduce the ring alone. Left out: CollNet, PAT. A figure of NCCL's own, uncalibrated: 6-21 % too
/// fast on A100 for 1 MiB-1 GiB. Constants: NVIDIA/nccl src/graph/tuning.cc and topo.h, commit
/// 5067397 (2.30.7), Apache-2.0, numbers only.
class NcclTuning {
 public:
  /// Errors: fewer than 2 ranks, more nodes than ranks, a collective without tuning formula, a
  /// graph without channels or bandwidth, nothing to choose from.
  static Result<NcclTuning> make(const NcclTuningInput& input);

  const std::vector<NcclOption>& options() const { return options_; }
  Microseconds time(const NcclOption& option, Bytes bytes) const;
  /// The fastest option; without `simple`, of the protocols LL and LL128.
  const NcclOption& best(Bytes bytes, bool simple = true) const;

  /// Time of `best`, made monotone: no less than any smaller buffer takes (the size
  /// correction of trees makes steps down at powers of two).
  Microseconds monotone_time(Bytes bytes, bool simple = true) const;
  /// Whether the protocol Simple is the fastest at this size, or was at a smaller one.
  bool leaves_ll(Bytes bytes) const;

 private:
  NcclTuning() = default;
  NcclTuningInput input_;
  std::vector<NcclOption> options_;  // never empty
};

/// Efficiency of NVLink SHARP on a generation; 0: the hardware has none.
double nvls_efficiency(NcclGeneration generation);

}  // namespace perfmodel
