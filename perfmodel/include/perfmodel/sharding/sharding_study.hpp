#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/result.hpp"
#include "perfmodel/sharding/detail/embedding_shards.hpp"
#include "perfmodel/sharding/detail/torchrec_plan.hpp"

namespace perfmodel::sharding {

/// The layers around the tables. Every rank has all of them (data-parallel).
struct DensePart {
  std::vector<std::int64_t> bottom_mlp;  ///< widths, the dense features first; empty: none
  std::vector<std::int64_t> top_mlp;     ///< widths after the interaction, the last one 1
  enum class Interaction : std::uint8_t {
    kDot,            ///< dot products of all pairs of vectors, and the bottom MLP's output
    kConcatenation,  ///< vectors side by side
    kAveragePool,    ///< side by side, then means over `pool_stride` elements
    kLowRankCross    ///< DCNv2: side by side, through `cross_layers` of rank `cross_rank`
  } interaction = Interaction::kDot;
  std::int64_t cross_layers = 3, cross_rank = 512, pool_stride = 1;
  std::string dtype = "float32";  ///< type of its GEMMs: float32, tf32, float16, bfloat16
  /// Instead of the layers: known times [us] and parameters.
  std::optional<double> forward_us = {}, backward_us = {};
  std::optional<std::int64_t> parameter_bytes = {};
};

/// One array of weights for many tables (ROBE, Desai et al., MLSys 2022): block c of `chunk`
/// columns of a row starts at a hashed offset of the array, the same on every rank.
struct HashedArray {
  double elements = 0;  ///< m
  double chunk = 32;    ///< Z, columns that lie side by side
  int element_bytes = 4;
  /// As the public CUDA code does it: an 8-byte index per id and column, and a sort of all of them
  /// in the backward pass. Otherwise as a kernel that keeps and sorts an index per chunk might.
  bool reference_kernel = true;
  double iterations_multiplier = 1;  ///< iterations to the same quality, relative to full tables
};

/// Settings that a search chooses for each table which leaves them open.
struct SearchedSettings {
  bool deduplication = false;  ///< for pooled tables, if it saves a tenth of the ids
  bool cache_share = false;    ///< share of rows in HBM, for the kernel fused_uvm_caching
  bool wire = false;           ///< vectors in 2 bytes per element
  bool hot_rows = false;       ///< powers of ten, of tables with skew
  bool operator==(const SearchedSettings&) const = default;
  bool any() const { return deduplication || cache_share || wire || hot_rows; }
};

/// How the software exchanges data between ranks. If it knows several ways, the fastest one counts.
struct ExchangeSoftware {
  std::string name = "plain";  ///< as it was chosen, for reports
  /// Vectors first inside each host, then between the ranks of equal place on all hosts.
  bool hierarchical = false;
  /// On one host, each rank reads the gradients of all others at once in place of NCCL's rings.
  bool one_shot = false;
  /// All-reduces have their own communicator and stream, so they overlap the exchanges.
  bool reduces_beside = false;
  /// HugeCTR runs the layers: fused, all of a batch launched at once. Otherwise PyTorch does.
  bool fuses_layers = false;
  /// PCIe cards that cannot read each other pass everything through host memory.
  bool peer_to_peer = true;
  /// Time per other rank in every exchange, however small the message [us].
  double peer_us = 0;
  /// Spread of the times at which ranks reach an exchange [us]: of W ranks the last one comes
  /// sqrt(2 ln W) of it late.
  double straggler_us = 0;
  std::optional<int> nics;  ///< per host, if other than the topology's number
  /// Settings that may differ by table (presets: exchange_software.cpp).
  SearchedSettings settings = {.deduplication = true, .cache_share = true, .wire = true};

  /// "plain", "torchrec", "hugectr", or with changes: "hugectr,flat,nics=4,peer-us=0.3". Errors
  /// (kImpossible): unknown words, numbers below 0.
  static Result<ExchangeSoftware> parse(std::string_view text);
};

/// Who starts PyTorch's kernels: the host op by op, CUDA graphs that were captured once, or
/// compiled code.
enum class Launch : std::uint8_t { kEager, kGraphs, kCompiled };

/// A question: which tables, on which machine. What a file leaves open, the caller fills in.
struct ShardingStudy {
  std::string name;
  std::vector<ShardedTable> tables;
  std::optional<DensePart> dense;
  std::optional<HashedArray> hashed;               ///< for tables whose kernel is `hashed`
  std::string gpu, topology;                       ///< names; empty: not given
  std::optional<std::int64_t> world, local_world;  ///< ranks; ranks per host
  std::optional<std::int64_t> batch_per_rank;      ///< samples
  std::optional<TorchrecSettings::Pipeline> pipeline;
  ExchangeSoftware network;
  SearchedSettings searched;         ///< none: tables are as they say
  std::optional<Launch> launch;      ///< none: eager, with HugeCTR graphs
  std::optional<double> free_share;  ///< share of HBM that stays free (0.15)
  /// TorchRec's planner, for plans by its own figures; world and hosts are the study's.
  std::optional<TorchrecTopology> torchrec;
  std::vector<std::string> warnings;  ///< the reader's
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
