#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "perfmodel/result.hpp"

namespace perfmodel {

/// One collective of one rank, as far as it is known.
struct RankCollective {
  std::string kind;                                  ///< canonical: all_reduce, all_to_all, ...
  std::string process_group;                         ///< empty: not known
  std::int64_t sequence = -1;                        ///< within its group; -1: not known
  std::int64_t in_elements = -1, out_elements = -1;  ///< or bytes, alike on all ranks
  std::int64_t element_bytes = 1;
  std::int64_t group_size = -1;
  double start_us = 0, end_us = 0;  ///< on the rank's clock
  std::int32_t event = -1;          ///< the caller's index

  /// Size of the larger of its buffers; 0: not known.
  std::int64_t largest_bytes() const {
    return std::max({std::int64_t{0}, in_elements, out_elements}) * element_bytes;
  }
};

/// The collectives of several ranks; each rank's are in start order.
struct CollectiveMatch {
  /// Per group: per rank the position in its list, or -1.
  std::vector<std::vector<std::int32_t>> groups;
  std::vector<double> clock_offset_us;  ///< to be taken off each rank's stamps
  std::size_t unmatched = 0;            ///< collectives without a partner
  bool by_end_time = false;             ///< not every collective had group and sequence number
  std::vector<std::string> warnings;
};

struct MatchOptions {
  bool timed = true;           ///< start_us and end_us are measured
  bool missing_ranks = false;  ///< a collective that a rank lacks is no error
};

/// Finds which collectives belong together: by process group, sequence number and kind if all are
/// recorded; else by kind and end time (all ranks of a collective end together, within 300 us),
/// after looking for the clock offset per rank that matches most; without times, by their order
/// within kind and group. Clocks are aligned on the ends of what matched. Sends and receives are
/// left out.
///
/// Errors (`names` are the ranks' files): kinds or sizes that differ under one number, a collective
/// that a rank lacks although it has earlier and later ones, a rank that shares none.
Result<CollectiveMatch> match_collectives(std::span<const std::vector<RankCollective>> ranks,
                                          std::span<const std::string> names,
                                          const MatchOptions& options);

/// "ncclKernel_AllReduce_RING_LL_Sum_float(...)", "allreduce", "_allgather_base" -> "all_reduce",
/// ...
std::string canonical_collective(std::string_view name);

}  // namespace perfmodel
