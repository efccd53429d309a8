#pragma once

#include <filesystem>

#include "perfmodel/layout.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Attention of sequences packed from documents, over attention of sequences that are one document
/// each: mean and standard deviation of (sum of lengths squared) / sequence squared.
struct PackedShare {
  double mean = 1, deviation = 0;
};

/// The share of sequences of `sequence` tokens that hold documents of the lengths in `file`, one to
/// a line, or a length and how many have it ("812 40", "812,40"). Documents come at random and are
/// cut where a sequence ends. Errors: no file, a line that is no length above 0, no documents.
Result<PackedShare> packed_share(const std::filesystem::path& file, std::int64_t sequence);

/// The share on the rank that has most to do in a step, as it is expected among dp ranks which
/// each get as many sequences; at most 1.
double slowest_packed_share(const LayoutJob& job, const ParallelLayout& layout);

/// Errors (kImpossible): packed sequences with scores in memory, windows, or context parallelism.
Result<void> check_packed(const LayoutJob& job, const ParallelLayout& layout);

}  // namespace perfmodel
