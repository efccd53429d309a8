#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "path_shares.hpp"
#include "perfmodel/graph/rewrite.hpp"

/// The search of `optimize`.
namespace perfmodel::advice {

/// The order in which a sequence is applied: an order that all rewrites allow (docs/rewrites.md).
enum class Stage : std::uint8_t {
  kBatch,
  kTables,
  kPrecision,
  kMemoryFormat,
  kAttention,
  kFusedLayers,
  kInPlace,
  kRecompute,
  kOffload,
  kAccumulate,
  kOptimizer,
  kDataParallel,
  kFusion,
  kLaunch,
};

/// One value of an axis.
struct Choice {
  std::string text;  ///< "--precision bf16"
  std::string code;  ///< lines of PyTorch
  std::optional<NamedRewrite> rewrite = {};
  std::string lacks = {};  ///< says why the GPU cannot run it; empty: it can
  // Of data-parallel ranks.
  double bucket_mib = 0, split_mib = 0;
  std::int64_t ranks = 0;
  std::int64_t batch = 0;   ///< samples per step
  std::int64_t passes = 0;  ///< passes that share these samples
  /// The program computes the same numbers, up to the order of sums.
  bool same_numbers = true;
};

/// Rewrites of which a sequence has one at most.
struct Axis {
  std::string family;
  Stage stage = Stage::kBatch;
  std::vector<Choice> choices;  ///< position 0 of a state is "as it is", choice i is i + 1
  Touch touch = {};
  bool frees_memory = false;  ///< and does not make the step shorter
  /// Choices are sizes in rising order, `below` of them smaller than the step has: a walk over
  /// neighbours finds the best one.
  bool is_ladder = false;
  std::size_t below = 0;
};

/// Position 0 of an axis: as it is.
using State = std::vector<std::uint16_t>;

struct Job {
  std::int64_t world = 1;             ///< ranks that the graph is run on
  std::optional<std::int64_t> batch;  ///< samples of the graph, if its inputs tell
  double largest_gradient_bytes = 0;
  std::string optimizer = {};     ///< "AdamW", as its step is called; empty: not known
  bool from_trace = false;        ///< identity of tensors is not known
  bool batch_statistics = false;  ///< has batch norms: another batch per pass, other numbers
  std::size_t nodes = 0;          ///< nodes of the graph
};

}  // namespace perfmodel::advice
