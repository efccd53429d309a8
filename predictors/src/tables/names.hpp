#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "perfmodel/graph/execution_graph.hpp"

/// The words in tables of kernels: ops and dtypes.
namespace perfmodel::table {

enum class OpKind : std::uint8_t {
  kGemm,
  kLinear,
  kConvolution,
  kElementwise,
  kReduction,
  kSoftmax,
  kLayerNorm,
  kRmsNorm,
  kBatchNorm,
  kDropout,
  kTranspose,
  kConcat,
  kGather,
  kScatterAdd,
  kTril,
  kMove,
  kCopy,
  kStridedCopy,
  kSet,
  kEmbeddingForward,
  kEmbeddingBackward,
  kAttention,
  kGroupedGemm,
  kExperts,
  kLinearAttention,
  kRecurrent,
  kRecurrentCell,
  kOptimizer,
  kCollective,
  kQuantize,
  kHashedProduct,
};

struct OpSpec {
  std::string_view name;
  OpKind kind;
  double flop = 0, inputs = 0;       // elementwise: per element, and tensors where no column tells
  std::string_view collective = {};  // its name in `CollectiveShape`
};

/// The meaning of a `dtype` or `precision` cell.
struct TypeSpec {
  std::string_view name;
  DType storage;  // the tensors' type
  DType arithmetic;
  enum class Units : std::uint8_t { kAsPyTorch, kVector, kMatrix } units = Units::kAsPyTorch;
};

/// By any of its names, whatever the case; nullptr for others.
const OpSpec* find_op(std::string_view name);
const TypeSpec* find_type(std::string_view name);

/// Single precision: for ops whose work is counted in bytes.
const TypeSpec& default_type();

/// "a known op (the nearest are add, mul, div)"
std::string a_known_op(std::string_view name);
std::string a_known_type(std::string_view name);

}  // namespace perfmodel::table
