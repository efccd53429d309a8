#pragma once

#include "perfmodel/predictors/detail/collectives.hpp"
#include "price/collectives/terms.hpp"

namespace perfmodel::collectives {

/// A collective that NCCL tunes among GPUs of one node.
Terms inside_node(const Topology& topology, const CollectiveQuery& query);

/// The rate at which one of so many ranks of a node exchanges with all others.
BytesPerSecond all_to_all_rate(const Topology::NcclTimes& nccl, int ranks);

/// Time of NCCL's tuning model with the latency of its choice; `simple`: whether that may be the
/// protocol Simple.
Terms tuned_terms(const NcclTuning& tuning, Bytes bytes, bool simple = true);

/// The group's time on its own measured curve from `first` bytes on; below that straight from
/// `empty_us`, the latency of an empty buffer.
Terms measured_terms(const Topology::Curve& curve, Bytes first, CollectiveKind kind, Bytes bytes,
                     double empty_us);

/// Prices a collective [us].
using Pricing = Terms (*)(const Topology&, const CollectiveQuery&);

/// The time on the measured curve of exactly this group and collective, alone on its nodes, if the
/// topology has one, else what `price` says.
Terms measured_or(const Topology& topology, const CollectiveQuery& query, Pricing price);

/// Whether the bytes and the group lie inside the measured ones.
bool is_measured(const Topology& topology, const CollectiveQuery& query);

/// The curve of exactly this all-reduce of whole nodes next to each other, or nullptr.
const Topology::Curve* curve_between(const Topology& topology, const CollectiveQuery& query);

}  // namespace perfmodel::collectives
