#pragma once

#include <span>
#include <string_view>

#include "perfmodel/detail/units.hpp"
#include "perfmodel/predictors/detail/nccl_tuning.hpp"
#include "perfmodel/predictors/kernel.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// One collective that all ranks enter together; waiting for late ranks is the scheduler's
/// business.
struct CollectiveQuery {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  /// S. All-reduce, broadcast, reduce, send, recv: the buffer; all-gather: the gathered output;
  /// reduce-scatter, all-to-all: one rank's input; gather, scatter: the root's whole buffer.
  Bytes bytes;
  int ranks = 1;
  int nodes = 1;  ///< over which the ranks are spread evenly
  /// Groups active at once in each of these nodes, this one included: they share its NICs, but no
  /// links inside the node.
  int groups_per_node = 1;
  /// Distance between these nodes; the nodes in between hold groups of the same kind.
  int node_stride = 1;
};

struct CollectiveOptions {
  /// Factor on the wire term: kernels that overlap a collective take memory bandwidth and SMs from
  /// it. 1: nothing overlaps it. At least 1.
  double interference = 1;
};

/// A collective's time with its reasons: time = latency + wire.
struct CollectiveTime {
  Microseconds time{0}, latency{0}, wire{0};
  std::string_view algorithm = "none";  ///< "Ring", "Tree", "NVLS", "NVLSTree", "Pairwise", "none"
  std::string_view protocol = "none";   ///< "LL", "LL128", "Simple", "none"
  Bound bound = Bound::kLatency;        ///< kLink if the wire takes longer than the latency
  bool in_range = false;                ///< within the sizes and groups that were fitted
  Bytes wire_bytes;                     ///< sent (or received) by the busiest rank
  BytesPerSecond bus_bandwidth;  ///< wire_bytes / time, as nccl-tests counts it; 0 without bytes
};

/// Time of a collective among `ranks` GPUs on `nodes` nodes of the topology; never falls with
/// bytes.
///
/// n ranks, N nodes, m = n / N, w = wire bytes (all-reduce 2 (n-1)/n S; all-gather, reduce-scatter,
/// all-to-all, gather, scatter (n-1)/n S; others S).
///
/// All-reduce in one node, calibrated topology:
///   S >= S_0:  t = (alpha + w / B) c(S)              Topology::Curve
///   S <  S_0:  t = t_L + (t(S_0) - t_L) S / S_0
/// S_0 = first_bytes, t_L = NCCL's latency of an empty buffer.
/// Group sizes without a curve: the two nearest curves at equal w per ring, mixed linearly in n.
/// All-gather, reduce-scatter: (t_all_reduce(S) + t_B) / 2: an all-reduce is one after the other,
/// t_B = base latency, paid once. Broadcast, reduce: as an all-gather with the same wire bytes.
///
/// One node whose topology has `nccl` (Topology::NcclTimes): the cheaper of two protocols,
///   low    = (base + hop steps) (1 + rise S / (S + rise_bytes)) + passes S / low_rate
///   simple = simple_base + simple_hop steps + passes (n-1)/n S / rate(op, n)
/// passes = 2 all-reduce, 1 else; steps = passes (n-1); no steps and no rise for all-to-all,
/// gather, scatter and (n = 2, 2 S) send and recv, which have latencies of their own; broadcast,
/// reduce: an all-gather with the same wire bytes. An all-reduce with curves follows them from S_0
/// on and below takes no longer than at S_0.
///
/// Several nodes where NCCL takes Simple, m GPUs of each: R the rate of the group's NICs (below),
///   t = latency + fill / R + max(inside, passes S / R)
/// All-reduce: fill min(S, m F) with F = 5.7 MB (Topology::Nic::in_flight), inside S by the rate of
/// 1 GiB in a node, passes 2 (n-1)/n, of trees over two nodes 1. All-gather, reduce-scatter: fill
/// 0, passes (n-1)/n, inside as many bytes. Broadcast, reduce: fill N-2 steps, passes 1.
///
/// Else one node without curves, or several: NCCL's tuning model with the topology's rings
/// (bandwidths x `efficiency`; between nodes x the NIC's, shared by the rings), made
/// monotone. Over several nodes nothing takes less than the same buffer inside one, nor less than
/// on fewer nodes with as many ranks each. A curve of exactly the group (Topology::GroupCurve) goes
/// before all of it.
///
/// All-to-all, gather, scatter, pairwise: the cheaper of LL and Simple (docs/collectives.md),
///   t = t_0 + max(inside, between), of LL twice the bytes
///   inside = S (m-1)/n / B_all_to_all,  between = m S (N-1)/N / (NICs x NIC bandwidth)
///   Simple: t_0 = 8.4 + (m-1) hop + [N > 1] (14 + 2 NIC latency + (n-m) 1 us),
///   hop 3.4 us, PCIe 5.7
/// Send, recv: t = t_0(one hop) + S / B_p2p, or S / NIC bandwidth between nodes (`nodes` 2).
///
/// NICs that a group uses in each node, G such groups at once (`groups_per_node`), C NICs for M
/// GPUs: min(max(C m / M, 1), C / G). A group gets the NICs of its own ranks, and this function
/// shares them among groups: callers hand over whole topologies.
///
/// Networks of several levels (Topology::Network), N nodes d apart (`node_stride`): a switch of
/// level i joins n_i = max(1, nodes_i / d) of them, and O_i is the product of the
/// oversubscriptions up to it, of all levels that the group leaves:
///   rings, trees, send, recv   node's NICs x min(1, n_i / O_i): each of the d groups crosses the
///                              border of a switch once in each direction
///   all-to-all, gather, ...    between = b / NICs max(1, max_i O_i (N - n_i) / (N - 1)), b leaves
/// the node
///   rails, PXN                 inside + (k-1)/k b / m / B_all_to_all, k = min(m, rails)
///   rails without PXN          (k-1)/k of the bytes below a leaf leave it as well
///
/// One rank: no time. Valid for NCCL; RCCL is approximated. Algorithm and protocol are the tuning
/// model's choice for this buffer. Sources: the topology file; nccl_tuning.hpp; all-to-all
/// latencies are estimates from the same tables. Errors: counts that do not fit the topology (or
/// each other), groups that do not fit a node, several nodes without NIC, bytes below 0 or not
/// finite, interference below 1, more nodes than the network has.
Result<CollectiveTime> collective_time(const Topology& topology, const CollectiveQuery& query,
                                       const CollectiveOptions& options = {});

/// All-to-all with other sizes per rank: bytes that each rank sends to and receives from the
/// *others*. Ranks are ordered by node. Inside a node the rank with the most bytes in one direction
/// decides, between nodes the node; (n-m)/(n-1) of a rank's bytes are assumed to leave the node.
/// Equal lists give `collective_time`'s all-to-all.
Result<CollectiveTime> all_to_all_v_time(const Topology& topology, int nodes,
                                         std::span<const Bytes> sent,
                                         std::span<const Bytes> received,
                                         const CollectiveOptions& options = {});

/// NCCL's knowledge of such a group; bandwidths x `efficiency` unless `datasheet_rates`.
/// Meant for all_reduce, all_gather, reduce_scatter, broadcast, reduce; the bytes do not matter.
NcclTuningInput nccl_tuning_input(const Topology& topology, const CollectiveQuery& query,
                                  bool datasheet_rates = false);

}  // namespace perfmodel
