#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "perfmodel/detail/units.hpp"
#include "perfmodel/predictors/detail/collectives.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// A network and its collectives as ASTRA-sim's analytical backends price them: a second opinion to
/// `collective_time`, and the same figures for users of both.
struct AstraSimNetwork {
  enum class Shape : std::uint8_t { kRing, kSwitch, kFullyConnected };
  enum class Algorithm : std::uint8_t { kRing, kDirect, kHalvingDoubling };
  struct Dimension {
    Shape shape = Shape::kRing;
    double gib_per_s = 0;  ///< 2^30 B/s, as ASTRA-sim reads it
    double latency_ns = 0;
  };
  std::string name;
  Dimension inside;                  ///< between the GPUs of a node
  std::optional<Dimension> between;  ///< between nodes; none: one node only
  Algorithm all_reduce = Algorithm::kRing, all_gather = Algorithm::kRing,
            reduce_scatter = Algorithm::kRing, all_to_all = Algorithm::kDirect;
  int splits = 1;         ///< chunks that a collective is cut into
  int active_chunks = 1;  ///< chunks at work at once
  double endpoint_delay_ns = 10;
  double local_memory_gb_per_s = 1600;
  /// Links carry one message at a time and hand whole messages on; false: every message leaves at
  /// the full rate, whatever else is under way.
  bool congestion_aware = false;
  std::vector<std::string> sources;
};

/// Time of a collective. One dimension, n ranks, C chunks of which A are active:
///
///   t    = ceil(C / A) t_chunk,  t_chunk = sum over the steps of a phase (tau + e [+ r]) + e
///   tau  = hops latency + m / bandwidth, cut to whole ns;  congestion-aware: hops (latency + m /
///          bandwidth), messages of a rank that share a link one after the other
///   r    = 3 floor(m / local memory bandwidth), of steps that sum;  e = the endpoint's delay
///   hops: ring, the shorter way; switch 2; fully connected 1
///
///                        steps and message m, S the buffer of a chunk
///   ring                 n - 1 of S / n to the neighbour (all-gather: of the rank's input);
///                        all-reduce: summing, then gathering; all-to-all n (n - 1) / 2
///   direct               one of S / n to all others (as slow as the one furthest away)
///   halving-doubling     log2 n: S / 2, S / 4, ... at distances 1, 2, 4, ...; gathers backwards
///
/// Two dimensions (m ranks per node on N nodes): reduce-scatter inside, the collective between,
/// all-gather inside, each with 1 / m of the bytes between (ASTRA-sim's localBWAware order);
/// chunks follow one another through the dimensions. Send: one message.
///
/// Source: ASTRA-sim 518bd51 (MIT), its ring met to the ns by the public cases of rings and of
/// all-to-all direct; halving-doubling and direct sums by the same rules, without a public case.
/// Errors: halving-doubling among ranks that are no power of two, several nodes without `between`,
/// kinds that ASTRA-sim has no model of (broadcast, reduce, gather, scatter).
Result<Microseconds> astra_sim_time(const AstraSimNetwork& network, const CollectiveQuery& query);

/// Schema perfmodel-collectives (docs/formats.md). Errors name the missing or odd field.
Result<AstraSimNetwork> read_astra_sim_network(const std::filesystem::path& file);

}  // namespace perfmodel
