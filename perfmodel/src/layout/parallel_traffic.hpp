#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/layout.hpp"
#include "perfmodel/predictors/detail/collectives.hpp"

/// The exchanges among ranks of context- and expert-parallel groups in one layer, one microbatch
/// and one pass.
namespace perfmodel {

/// One collective, with its buffer as `CollectiveQuery` counts it [bytes].
struct ExchangedBuffer {
  CollectiveKind kind = CollectiveKind::kAllToAll;
  double bytes = 0;
};

/// Keys and values of T / cp tokens a rank, b microbatch, s bytes, kv numbers of keys and values of
/// a token, q of queries, o of what attention makes, all over tp:
///
/// - ring and all-gather, forward: each rank sends its part cp - 1 times on: b T / cp kv s (cp -
/// 1).
///   Backward: keys and values once more, and their gradients back.
/// - all-to-all: all of q, kv and o in either pass, b T / cp (q + kv + o) s (cp - 1) / cp.
std::vector<ExchangedBuffer> context_exchange(const LayoutJob& job, const ParallelLayout& layout,
                                              bool backward);

/// Rows to the experts and back (the same in either pass): each rank has b T / cp / tp tokens of W
/// numbers and sends each to k experts, (ep - 1) / ep of which lie elsewhere. With etp > 1 each
/// group of etp ranks gathers its rows and scatters sums.
std::vector<ExchangedBuffer> expert_exchange(const LayoutJob& job, const ParallelLayout& layout,
                                             double load);

/// The share of a token's k rows that go to different ranks, with its experts spread at random over
/// ep ranks of E / ep experts each: ep (1 - C(E - E / ep, k) / C(E, k)) / k.
double share_of_distinct_ranks(const DecoderModel& model, std::int64_t ep);

/// Bytes that one rank puts on the wire for it: all-to-all and reduce-scatter (n - 1) / n of the
/// buffer, all-gather too (of what it gathers).
double wire_bytes(const ExchangedBuffer& buffer, std::int64_t ranks);

/// Rows of the slowest rank of an expert-parallel group over the mean, where an expert's rows have
/// the coefficient of variation cv, independent except for their sum: the largest of ep normal
/// variables with deviation cv sqrt(ep / E (E - E / ep) / (E - 1)); its mean (Blom 1958), or what
/// it exceeds with a chance of `beyond`. A capacity fixes it.
double slowest_expert_load(const LayoutJob& job, const ParallelLayout& layout, double beyond = 0);

/// The largest of so many draws from the standard normal law, as it is expected (Blom 1958).
double expected_largest(double draws);

}  // namespace perfmodel
