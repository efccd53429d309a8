#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "perfmodel/graph/detail/read_options.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

enum class ChakraNodeType : std::uint8_t {
  kMetadata = 1,
  kMemoryLoad = 2,
  kMemoryStore = 3,
  kCompute = 4,
  kSend = 5,
  kReceive = 6,
  kCollective = 7,
};
std::string_view to_string(ChakraNodeType type);

/// ASTRA-sim simulates all-reduce, all-gather, all-to-all and reduce-scatter, replays broadcast
/// from its duration and stops at the others.
enum class ChakraCollective : std::uint8_t {
  kAllReduce = 0,
  kReduce = 1,
  kAllGather = 2,
  kGather = 3,
  kScatter = 4,
  kBroadcast = 5,
  kAllToAll = 6,
  kReduceScatter = 7,
  kReduceScatterBlock = 8,
  kBarrier = 9,
};
std::string_view to_string(ChakraCollective collective);

/// Type of an attribute's value in the file, numbered like the protobuf fields.
enum class ChakraValueType : std::uint8_t {
  kNone = 0,
  kDouble = 3,
  kDoubleList,
  kFloat,
  kFloatList,
  kInt32,
  kInt32List,
  kInt64,
  kInt64List,
  kUint32,
  kUint32List,
  kUint64,
  kUint64List,
  kSint32,
  kSint32List,
  kSint64,
  kSint64List,
  kFixed32,
  kFixed32List,
  kFixed64,
  kFixed64List,
  kSfixed32,
  kSfixed32List,
  kSfixed64,
  kSfixed64List,
  kBool,
  kBoolList,
  kString,
  kStringList,
  kBytes,
  kBytesList = 32,
};

/// An attribute that has no member of its own in ChakraNode.
struct ChakraAttribute {
  /// int64 for the signed types, uint64 for the unsigned ones and bool, double for float and
  /// double, string for string and bytes; a vector of those for the lists.
  using Value = std::variant<std::monostate, std::int64_t, std::uint64_t, double, std::string,
                             std::vector<std::int64_t>, std::vector<std::uint64_t>,
                             std::vector<double>, std::vector<std::string>>;

  std::string name, doc;
  ChakraValueType type = ChakraValueType::kNone;
  Value value;
  std::string unknown_fields;  ///< raw, of schemas to come

  static ChakraAttribute integer(std::string name, std::int64_t value);
  static ChakraAttribute real(std::string name, double value);
  static ChakraAttribute flag(std::string name, bool value);
  static ChakraAttribute text(std::string name, std::string value);

  friend bool operator==(const ChakraAttribute&, const ChakraAttribute&) = default;
};

/// Arguments or results of a node, each a JSON text.
struct ChakraIo {
  std::string values, shapes, types;
  std::string unknown_fields;

  friend bool operator==(const ChakraIo&, const ChakraIo&) = default;
};

struct ChakraNode {
  std::uint64_t id = 0;  ///< unique in the file
  std::string name;
  ChakraNodeType type = ChakraNodeType::kCompute;
  /// Ids. A node starts after all of `data_deps`; files written here hold every reason there.
  /// Others use `ctrl_deps` in other ways (callers, in Chakra's converter); simulators honour both.
  std::vector<std::uint64_t> ctrl_deps, data_deps;
  double start_us = 0, duration_us = 0;  ///< whole in files: see write_chakra
  ChakraIo inputs, outputs;

  bool is_cpu_op = false;
  std::optional<ChakraCollective> comm_type;
  std::optional<std::int64_t> comm_size;  ///< bytes; for collectives see chakra_comm_size
  std::string pg_name;                    ///< process group; "" and "0": all ranks
  std::optional<std::int32_t> comm_src, comm_dst, comm_tag, comm_priority;
  std::vector<bool> involved_dim;  ///< empty: not given (ASTRA-sim takes the first four)
  std::optional<std::int64_t> num_ops, tensor_size;  ///< FLOP; bytes

  std::vector<ChakraAttribute> attributes;  ///< all others, in the order of the file
  std::string unknown_fields;

  friend bool operator==(const ChakraNode&, const ChakraNode&) = default;
};

/// One rank's file.
struct ChakraTrace {
  std::string version = "0.0.4";
  std::vector<ChakraAttribute> attributes;  ///< the head's: "schema", ...
  std::string unknown_fields;
  std::vector<ChakraNode> nodes;
  std::vector<std::string> warnings;  ///< the reader's; not in files

  friend bool operator==(const ChakraTrace&, const ChakraTrace&) = default;
};

/// `comm_size` of a collective, as ASTRA-sim counts it, from the largest buffer that a rank holds:
/// one part of `group_size` (rounded up) for an all-gather, whose result is meant, else all of it.
std::int64_t chakra_comm_size(ChakraCollective collective, std::int64_t buffer_bytes,
                              std::int64_t group_size);

/// Reads one rank's Chakra trace (`.et`), plain or gzip. The file is streamed: no more of its text
/// is held than its longest message, which may have 64 MiB, or ReadLimits::element_bytes if that is
/// less.
///
/// Members of a node may come in any integer type; fields and attributes without a member are kept
/// as they are. Errors name the byte (of the inflated text) and the node: text that is no such
/// file, a length beyond the end, a broken message, a text that is no UTF-8, an unknown node or
/// collective type, an attribute given twice or of the wrong type, negative times or sizes, an id
/// used twice. Dependencies on nodes that are not in the file are dropped with a warning; nodes may
/// wait for each other, as callers and callees do in files of other tools (`write_chakra` refuses
/// them).
///
/// With `salvage`, messages before a cut are kept, broken ones and nodes whose id was there before
/// are left out. Names that look like secrets are
/// masked (perfmodel/graph/secrets.hpp); attributes, arguments and results stay as they are.
Result<ChakraTrace> read_chakra(const std::filesystem::path& file, const ReadOptions& options = {});

/// Writes one rank's trace (compressed if the name ends in `.gz`, which ASTRA-sim does not read).
/// The file appears whole or not at all; equal traces give equal bytes.
///
/// Files hold whole microseconds. Starts are rounded; of the durations, each node's rounding error
/// is carried to the next node in order, separately for host (`is_cpu_op`) and device. So either
/// sum is off by at most half a microsecond, and a rank's sum by less than one. No node is merged
/// or dropped: one that becomes 0 takes 1 ns in ASTRA-sim. List nodes in the order in which they
/// run.
///
/// Errors name the node: one that `read_chakra` would refuse; a collective, send, receive or memory
/// node without the attributes that it needs; an attribute that has its own member.
Result<void> write_chakra(const ChakraTrace& trace, const std::filesystem::path& file);

struct ChakraJobOptions {
  /// Ranks of each process group by `pg_name`; "0" and "" need no entry. If given, every group
  /// named in a node must be there, and `<prefix>.groups.json` is written, for ASTRA-sim's
  /// --comm-group-configuration. Without it a group is taken to be the ranks that name it.
  std::map<std::string, std::vector<std::int64_t>> groups;
  /// The trace of one rank stands for so many: ranks that do the same get the same file.
  std::size_t copies = 1;
};

/// Writes a whole job as `<prefix>.<rank>.et`, where the rank is the index in `ranks`. All files
/// are complete before the first one gets its name.
///
/// A network simulator hangs if the ranks disagree. Errors are therefore, in addition to
/// those for one file: ranks of a group that do not run the same collectives (type and comm_size)
/// in the same order of nodes; a send that does not start at its own rank or has no receive with
/// the same ranks, tag and size. Copies of one trace need a trace without sends, whose collectives
/// span all ranks.
Result<void> write_chakra(std::span<const ChakraTrace> ranks, const std::filesystem::path& prefix,
                          const ChakraJobOptions& options = {});

}  // namespace perfmodel
