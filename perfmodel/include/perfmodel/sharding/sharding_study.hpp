#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perfmodel/sharding/embedding_shards.hpp"
#include "perfmodel/sharding/torchrec_plan.hpp"

namespace perfmodel::sharding {

/// The layers around the tables. Every rank has all of them (data-parallel).
struct DensePart {
  std::vector<std::int64_t> bottom_mlp;  ///< widths, the dense features first; empty: none
  std::vector<std::int64_t> top_mlp;     ///< widths behind the interaction, the last one 1
  enum class Interaction : std::uint8_t {
    kDot,            ///< dot products of all pairs of vectors, beside the bottom MLP's output
    kConcatenation,  ///< vectors side by side
    kAveragePool,    ///< side by side, then means over `pool_stride` elements
    kLowRankCross    ///< DCNv2: side by side, through `cross_layers` of rank `cross_rank`
  } interaction = Interaction::kDot;
  std::int64_t cross_layers = 3, cross_rank = 512, pool_stride = 1;
  std::string dtype = "float32";  ///< of its GEMMs: float32, tf32, float16, bfloat16
  /// Instead of the layers: known times [us] and parameters.
  std::optional<double> forward_us = {}, backward_us = {};
  std::optional<std::int64_t> parameter_bytes = {};
};

/// A question: which tables, on which machine. What a file leaves open, the caller fills in.
struct ShardingStudy {
  std::string name;
  std::vector<ShardedTable> tables;
  std::optional<DensePart> dense;
  std::string gpu, topology;                       ///< names; empty: not given
  std::optional<std::int64_t> world, local_world;  ///< ranks; ranks per host
  std::optional<std::int64_t> batch_per_rank;      ///< samples
  std::optional<TorchrecSettings::Pipeline> pipeline;
  std::optional<double> free_share;   ///< of HBM that is left alone (0.15)
  std::vector<std::string> warnings;  ///< of the reader
};

/// A plan for named tables, as files hold it.
struct NamedPlan {
  struct Table {
    std::string name;
    TablePlacement placement = {};
    /// As the file says; empty: not said.
    std::optional<std::int64_t> rows = {}, dim = {};
    std::string module = {};  ///< that holds it, in plans of TorchRec
  };
  std::vector<Table> tables;
  std::optional<std::int64_t> world = {}, local_world = {};
};

}  // namespace perfmodel::sharding
