#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "perfmodel/graph/chakra.hpp"

// Reader and writer of Chakra traces share these numbers of https://github.com/mlcommons/chakra,
// schema/protobuf/et_def.proto (package ChakraProtoMsg).
//
// The wire format is coded by hand, not by libprotobuf: its parser says "failed" where a user needs
// the byte and the field, it starts with every program that links the library, and it would be
// one more package for those who build. The part of protobuf in use is three kinds of fields.

namespace perfmodel::chakra {

enum Wire : std::uint32_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

namespace metadata_field {
enum : std::uint32_t { kVersion = 1, kAttribute = 2 };
}
namespace node_field {
enum : std::uint32_t {
  kId = 1,
  kName = 2,
  kType = 3,
  kCtrlDeps = 4,
  kDataDeps = 5,
  kStart = 6,
  kDuration = 7,
  kInputs = 8,
  kOutputs = 9,
  kAttribute = 10,
};
}
namespace io_field {
enum : std::uint32_t { kValues = 1, kShapes = 2, kTypes = 3 };
}
namespace attribute_field {  // values: ChakraValueType
enum : std::uint32_t { kName = 1, kDoc = 2 };
}

/// Microseconds above are not exact in a double.
inline constexpr std::uint64_t kMaxMicroseconds = std::uint64_t{1} << 53;

/// Far above any node; keeps a hostile length from becoming an allocation.
inline constexpr std::size_t kMaxMessageBytes = std::size_t{64} << 20;

/// Attributes with a member of their own in ChakraNode.
enum class Known : std::uint8_t {
  kIsCpuOp,
  kCommType,
  kCommSize,
  kProcessGroup,
  kCommSource,
  kCommDestination,
  kCommTag,
  kCommPriority,
  kInvolvedDim,
  kNumOps,
  kTensorSize,
};
inline constexpr std::array<std::string_view, 11> kKnownNames = {
    "is_cpu_op", "comm_type",     "comm_size",    "pg_name", "comm_src",   "comm_dst",
    "comm_tag",  "comm_priority", "involved_dim", "num_ops", "tensor_size"};
std::optional<Known> known_attribute(std::string_view name);

/// How a value type is laid out: the element of a list has the layout of the single value.
enum class Layout : std::uint8_t {
  kNone,
  kSigned,
  kUnsigned,
  kZigzag,
  kFixed32,
  kSfixed32,
  kFixed64,
  kSfixed64,
  kFloat,
  kDouble,
  kText,
  kRaw
};
Layout layout_of(ChakraValueType type);
constexpr bool is_list(ChakraValueType type) {
  return type != ChakraValueType::kNone && static_cast<int>(type) % 2 == 0;
}
std::string_view to_string(ChakraValueType type);

/// `id 17, "name"`, with long names cut.
std::string describe(const ChakraNode& node);

struct Defect {
  std::size_t node = 0;  // index
  std::string message;
};

/// The first id used twice.
std::optional<Defect> find_repeated_id(std::span<const ChakraNode> nodes);

/// The first id used twice, dependency on no node, or cycle: what simulators stop at.
std::optional<Defect> find_dependency_defect(std::span<const ChakraNode> nodes);

}  // namespace perfmodel::chakra
