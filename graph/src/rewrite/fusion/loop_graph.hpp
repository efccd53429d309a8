#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// A tensor between the loops of a compiled region: a storage as one loop or library call left it.
struct LoopValue {
  static constexpr std::uint32_t kNoTensor = ~0u;

  std::int64_t numel = 0;
  DType dtype = DType::kFloat32;
  Device device = {};
  std::uint32_t tensor =
      kNoTensor;              ///< a mention in the graph; kNoTensor: only the compiler has it
  std::int64_t columns = 0;   ///< if it is a padded copy, else 0
  std::int32_t made_by = -1;  ///< op, -1: it was there before the region
  bool is_blank = false;      ///< allocated, not written yet
  bool leaves = false;        ///< something outside of the region reads it
  bool in_backward = false;   ///< belongs to the backward pass
  std::vector<std::int32_t> readers = {};  ///< ops in their order

  std::int64_t bytes() const { return numel * size_in_bytes(dtype); }
};

/// The part of a value that an op reads.
struct LoopRead {
  std::int32_t value = -1;
  std::int64_t numel = 0;  ///< elements that it touches
  bool in_order = true;    ///< element by element as they are in memory
  friend bool operator==(const LoopRead&, const LoopRead&) = default;
};

/// A loop over elements, or a library call.
struct LoopOp {
  enum class Kind : std::uint8_t {
    kPointwise,  ///< `rows` elements
    kRows,       ///< a result for each of `rows` rows of `columns` neighbouring elements
    kColumns,    ///< `rows` results, each of `columns` elements that are apart in memory
    kScatter,    ///< adds `rows` elements to places of its result
    kLibrary,    ///< a node of the graph that stays as it is
  } kind = Kind::kPointwise;
  std::string name = {};  ///< name of the ATen op: "native_layer_norm"
  std::int32_t node = -1;
  std::vector<LoopRead> reads = {};
  std::vector<std::int32_t> writes = {};
  std::int64_t rows = 1, columns = 1;
  /// A product of matrices that was written with an addend and runs without, or the other way
  /// round.
  enum class Addend : std::uint8_t { kAsItIs, kDropped, kTaken } addend = Addend::kAsItIs;
  bool is_padded = false;  ///< a product of matrices that reads copies with longer rows
  bool in_backward = false, is_random = false;
  bool is_large = false;   ///< reads many elements for each result: not computed where it is read
  bool runs_once = false;  ///< the partitioner keeps its result
  bool stays = false;      ///< a checkpoint runs it again: the forward pass must not run it instead

  bool is_loop() const { return kind != Kind::kLibrary; }
  bool reduces() const { return kind == Kind::kRows || kind == Kind::kColumns; }
};

using LoopKind = LoopOp::Kind;

/// Ops in an order in which they could run.
struct LoopGraph {
  std::vector<LoopValue> values = {};
  std::vector<LoopOp> ops = {};

  std::int32_t add(LoopValue value) {
    values.push_back(std::move(value));
    return static_cast<std::int32_t>(values.size()) - 1;
  }
  /// Appends the op and notes it at the values that it reads and writes.
  std::int32_t add(LoopOp op) {
    const auto index = static_cast<std::int32_t>(ops.size());
    for (const LoopRead& read : op.reads) {
      std::vector<std::int32_t>& readers = values[read.value].readers;
      if (readers.empty() || readers.back() != index) readers.push_back(index);
    }
    for (const std::int32_t written : op.writes) {
      values[written].made_by = index;
      values[written].in_backward = op.in_backward;
    }
    ops.push_back(std::move(op));
    return index;
  }
};

}  // namespace perfmodel
