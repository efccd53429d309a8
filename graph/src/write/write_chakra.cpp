#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "core/chakra_format.hpp"
#include "perfmodel/detail/output_file.hpp"

namespace perfmodel {
namespace {

using FieldLayout = chakra::Layout;
using chakra::Wire;

bool is_utf8(std::string_view text) { return simdjson::validate_utf8(text.data(), text.size()); }

// ---- wire format -------------------------------------------------------------------------------

void put_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

void put_tag(std::string& out, std::uint32_t field, Wire wire) {
  put_varint(out, field << 3 | wire);
}

void put_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  put_tag(out, field, chakra::kLength);
  put_varint(out, bytes.size());
  out += bytes;
}

template <class Number>
void put_fixed(std::string& out, Number value) {
  for (std::size_t i = 0; i < sizeof(Number); ++i) out += static_cast<char>(value >> (8 * i));
}

// proto3 leaves out default values, but not within an attribute's value.
void put_nonzero(std::string& out, std::uint32_t field, std::uint64_t value) {
  if (value == 0) return;
  put_tag(out, field, chakra::kVarint);
  put_varint(out, value);
}
void put_nonempty(std::string& out, std::uint32_t field, std::string_view text) {
  if (!text.empty()) put_bytes(out, field, text);
}

Wire wire_of(FieldLayout layout) {
  switch (layout) {
    case FieldLayout::kText:
    case FieldLayout::kRaw: return chakra::kLength;
    case FieldLayout::kFixed32:
    case FieldLayout::kSfixed32:
    case FieldLayout::kFloat: return chakra::kFixed32;
    case FieldLayout::kFixed64:
    case FieldLayout::kSfixed64:
    case FieldLayout::kDouble: return chakra::kFixed64;
    default: return chakra::kVarint;
  }
}

// A value without tag and length. Only called with the C++ type of its layout.
void put_value(std::string& out, FieldLayout layout, std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  if (layout == FieldLayout::kZigzag) return put_varint(out, (bits << 1) ^ (value < 0 ? ~0ull : 0));
  if (layout == FieldLayout::kSfixed32) return put_fixed(out, static_cast<std::uint32_t>(bits));
  if (layout == FieldLayout::kSfixed64) return put_fixed(out, bits);
  put_varint(out, bits);
}
void put_value(std::string& out, FieldLayout layout, std::uint64_t value) {
  if (layout == FieldLayout::kFixed32) return put_fixed(out, static_cast<std::uint32_t>(value));
  if (layout == FieldLayout::kFixed64) return put_fixed(out, value);
  put_varint(out, value);
}
void put_value(std::string& out, FieldLayout layout, double value) {
  if (layout == FieldLayout::kFloat) {
    return put_fixed(out, std::bit_cast<std::uint32_t>(static_cast<float>(value)));
  }
  put_fixed(out, std::bit_cast<std::uint64_t>(value));
}

// ---- what a file must hold ---------------------------------------------------------------------

constexpr double kMaxTime = static_cast<double>(chakra::kMaxMicroseconds);

// Each check returns the text of the problem, empty if there is none.
template <class Number>
bool fits(ChakraValueType type, Number value) {
  using Type = ChakraValueType;
  if constexpr (std::is_same_v<Number, std::int64_t>) {
    switch (type) {
      case Type::kInt32:
      case Type::kInt32List:
      case Type::kSint32:
      case Type::kSint32List:
      case Type::kSfixed32:
      case Type::kSfixed32List: return value == static_cast<std::int32_t>(value);
      default: return true;
    }
  } else if constexpr (std::is_same_v<Number, std::uint64_t>) {
    switch (type) {
      case Type::kUint32:
      case Type::kUint32List:
      case Type::kFixed32:
      case Type::kFixed32List: return value == static_cast<std::uint32_t>(value);
      case Type::kBool:
      case Type::kBoolList: return value <= 1;
      default: return true;
    }
  } else if constexpr (std::is_same_v<Number, double>) {
    return (type != Type::kFloat && type != Type::kFloatList) || std::isnan(value) ||
           value == static_cast<double>(static_cast<float>(value));
  }
  return true;
}

template <class Number>
constexpr bool holds(FieldLayout layout) {
  switch (layout) {
    case FieldLayout::kSigned:
    case FieldLayout::kZigzag:
    case FieldLayout::kSfixed32:
    case FieldLayout::kSfixed64: return std::is_same_v<Number, std::int64_t>;
    case FieldLayout::kUnsigned:
    case FieldLayout::kFixed32:
    case FieldLayout::kFixed64: return std::is_same_v<Number, std::uint64_t>;
    case FieldLayout::kFloat:
    case FieldLayout::kDouble: return std::is_same_v<Number, double>;
    case FieldLayout::kText:
    case FieldLayout::kRaw: return std::is_same_v<Number, std::string>;
    case FieldLayout::kNone: break;
  }
  return std::is_same_v<Number, std::monostate>;
}

std::string value_defect(const ChakraAttribute& attribute) {
  const ChakraValueType type = attribute.type;
  const FieldLayout layout = chakra::layout_of(type);
  const bool is_list = chakra::is_list(type);
  const auto wrong = [&] {
    return fmt::format("expected a value that is {} in attribute \"{}\", found another type",
                       chakra::to_string(type), attribute.name);
  };
  const auto one = [&](const auto& value) -> std::string {
    if (!fits(type, value)) {
      return fmt::format("expected a value that fits {} in attribute \"{}\"",
                         chakra::to_string(type), attribute.name);
    }
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
      if (layout == FieldLayout::kText && !is_utf8(value)) {
        return fmt::format("expected UTF-8 in attribute \"{}\", found other bytes", attribute.name);
      }
    }
    return {};
  };
  return std::visit(
      [&]<class Value>(const Value& value) -> std::string {
        if constexpr (requires { typename Value::value_type; } &&
                      !std::is_same_v<Value, std::string>) {
          if (!is_list || !holds<typename Value::value_type>(layout)) return wrong();
          for (const auto& element : value) {
            if (auto defect = one(element); !defect.empty()) return defect;
          }
          return {};
        } else {
          if (is_list || !holds<Value>(layout)) return wrong();
          return one(value);
        }
      },
      attribute.value);
}

std::string attribute_defect(const ChakraAttribute& attribute, bool of_node) {
  if (!is_utf8(attribute.name) || !is_utf8(attribute.doc)) {
    return "expected UTF-8 in the names and descriptions of attributes, found other bytes";
  }
  if (of_node && chakra::known_attribute(attribute.name)) {
    return fmt::format("expected attribute {} in the member of that name, found it in the list",
                       attribute.name);
  }
  return value_defect(attribute);
}

std::string time_defect(double us, std::string_view what) {
  if (us >= 0 && us <= kMaxTime) return {};
  return fmt::format("expected {} from 0 to 2^53 us, found {}", what, us);
}

std::string node_defect(const ChakraNode& node) {
  const auto type = static_cast<int>(node.type);
  if (type < 1 || type > 7) {
    return fmt::format("expected a node type from 1 (metadata) to 7 (collective), found {}", type);
  }
  if (auto defect = time_defect(node.start_us, "a start"); !defect.empty()) return defect;
  if (auto defect = time_defect(node.duration_us, "a duration"); !defect.empty()) return defect;
  for (const std::string* text :
       {&node.name, &node.pg_name, &node.inputs.values, &node.inputs.shapes, &node.inputs.types,
        &node.outputs.values, &node.outputs.shapes, &node.outputs.types}) {
    if (!is_utf8(*text)) return "expected UTF-8 in all texts, found other bytes";
  }
  const auto needs = [&](bool there, std::string_view what) {
    return there ? std::string{}
                 : fmt::format("expected {} of a {} node, found none", what, to_string(node.type));
  };
  std::string missing;
  switch (node.type) {
    case ChakraNodeType::kCollective:
      missing = needs(node.comm_type.has_value(), "comm_type");
      if (missing.empty() && node.comm_type != ChakraCollective::kBarrier) {
        missing = needs(node.comm_size.has_value(), "comm_size");
      }
      break;
    case ChakraNodeType::kSend:
    case ChakraNodeType::kReceive:
      missing = needs(node.comm_src.has_value(), "comm_src");
      if (missing.empty()) missing = needs(node.comm_dst.has_value(), "comm_dst");
      if (missing.empty()) missing = needs(node.comm_size.has_value(), "comm_size");
      if (missing.empty()) missing = needs(node.comm_tag.has_value(), "comm_tag");
      break;
    case ChakraNodeType::kMemoryLoad:
    case ChakraNodeType::kMemoryStore:
      missing = needs(node.tensor_size.has_value(), "tensor_size");
      break;
    case ChakraNodeType::kMetadata:
    case ChakraNodeType::kCompute: break;
  }
  if (!missing.empty()) return missing;
  if (node.comm_type && static_cast<int>(*node.comm_type) > 9) {
    return fmt::format("expected comm_type from 0 to 9, found {}",
                       static_cast<int>(*node.comm_type));
  }
  const std::pair<std::string_view, std::int64_t> naturals[] = {
      {"comm_size", node.comm_size.value_or(0)},
      {"comm_src", node.comm_src.value_or(0)},
      {"comm_dst", node.comm_dst.value_or(0)},
      {"num_ops", node.num_ops.value_or(0)},
      {"tensor_size", node.tensor_size.value_or(0)}};
  for (const auto& [name, value] : naturals) {
    if (value < 0) return fmt::format("expected {} of 0 or more, found {}", name, value);
  }
  for (const ChakraAttribute& attribute : node.attributes) {
    if (auto defect = attribute_defect(attribute, true); !defect.empty()) return defect;
  }
  return {};
}

Unexpected node_error(std::span<const ChakraNode> nodes, std::size_t node,
                      std::string_view message) {
  return fail(ErrorCode::kFormat,
              fmt::format("node {} ({}): {}", node, chakra::describe(nodes[node]), message));
}

Result<void> check(const ChakraTrace& trace) {
  if (!is_utf8(trace.version)) {
    return fail(ErrorCode::kFormat, "expected UTF-8 in the version, found other bytes");
  }
  for (const ChakraAttribute& attribute : trace.attributes) {
    if (auto defect = attribute_defect(attribute, false); !defect.empty()) {
      return fail(ErrorCode::kFormat, "GlobalMetadata: " + defect);
    }
  }
  for (std::size_t i = 0; i < trace.nodes.size(); ++i) {
    if (const auto defect = node_defect(trace.nodes[i]); !defect.empty()) {
      return node_error(trace.nodes, i, defect);
    }
  }
  if (const auto defect = chakra::find_dependency_defect(trace.nodes)) {
    return node_error(trace.nodes, defect->node, defect->message);
  }
  return {};
}

// ---- one file ----------------------------------------------------------------------------------

class ChakraWriter {
 public:
  explicit ChakraWriter(OutputFile& out) : out_(out) {}

  Result<void> write(const ChakraTrace& trace) {
    message_.clear();
    put_nonempty(message_, chakra::metadata_field::kVersion, trace.version);
    for (const ChakraAttribute& attribute : trace.attributes) {
      put_attribute(chakra::metadata_field::kAttribute, attribute);
    }
    message_ += trace.unknown_fields;
    if (!flush()) return fail(ErrorCode::kFormat, "GlobalMetadata: " + too_long());
    for (std::size_t i = 0; i < trace.nodes.size(); ++i) {
      put_node(trace.nodes[i]);
      if (!flush()) return node_error(trace.nodes, i, too_long());
    }
    out_.write(text_);
    return {};
  }

 private:
  static std::string too_long() {
    return fmt::format("expected a message of at most {} bytes, found more",
                       chakra::kMaxMessageBytes);
  }

  bool flush() {
    constexpr std::size_t kPiece = std::size_t{1} << 18;
    if (message_.size() > chakra::kMaxMessageBytes) return false;
    put_varint(text_, message_.size());
    text_ += message_;
    if (text_.size() >= kPiece) {
      out_.write(text_);
      text_.clear();
    }
    return true;
  }

  // Whole microseconds; the rounded part is added to the next node. A tie goes up on the host and
  // down on the device, so that the two errors together stay below 1 us.
  std::uint64_t whole_duration(const ChakraNode& node) {
    double& carry = node.is_cpu_op ? host_carry_ : device_carry_;
    const double exact = node.duration_us + carry;
    const double whole = std::clamp(
        node.is_cpu_op ? std::floor(exact + 0.5) : std::ceil(exact - 0.5), 0.0, kMaxTime);
    carry = exact - whole;
    return static_cast<std::uint64_t>(whole);
  }

  void put_node(const ChakraNode& node) {
    message_.clear();
    put_nonzero(message_, chakra::node_field::kId, node.id);
    put_nonempty(message_, chakra::node_field::kName, node.name);
    put_nonzero(message_, chakra::node_field::kType, static_cast<std::uint64_t>(node.type));
    put_ids(chakra::node_field::kCtrlDeps, node.ctrl_deps);
    put_ids(chakra::node_field::kDataDeps, node.data_deps);
    put_nonzero(message_, chakra::node_field::kStart,
                static_cast<std::uint64_t>(std::llround(node.start_us)));
    put_nonzero(message_, chakra::node_field::kDuration, whole_duration(node));
    put_io(chakra::node_field::kInputs, node.inputs);
    put_io(chakra::node_field::kOutputs, node.outputs);
    // Types as in Chakra's own feeder, which looks at one type per attribute.
    put_number("is_cpu_op", ChakraValueType::kBool, node.is_cpu_op);
    if (node.comm_type) {
      put_number("comm_type", ChakraValueType::kInt64, static_cast<int>(*node.comm_type));
    }
    put_optional("comm_size", ChakraValueType::kInt64, node.comm_size);
    if (!node.pg_name.empty()) {
      begin_attribute("pg_name");
      put_bytes(attribute_, static_cast<std::uint32_t>(ChakraValueType::kString), node.pg_name);
      put_bytes(message_, chakra::node_field::kAttribute, attribute_);
    }
    put_optional("comm_src", ChakraValueType::kInt32, node.comm_src);
    put_optional("comm_dst", ChakraValueType::kInt32, node.comm_dst);
    put_optional("comm_tag", ChakraValueType::kInt32, node.comm_tag);
    put_optional("comm_priority", ChakraValueType::kInt32, node.comm_priority);
    if (!node.involved_dim.empty()) {
      begin_attribute("involved_dim");
      list_.clear();
      for (const bool involved : node.involved_dim) list_ += involved ? '\1' : '\0';
      put_list(ChakraValueType::kBoolList, true);
      put_bytes(message_, chakra::node_field::kAttribute, attribute_);
    }
    put_optional("num_ops", ChakraValueType::kInt64, node.num_ops);
    put_optional("tensor_size", ChakraValueType::kUint64, node.tensor_size);
    for (const ChakraAttribute& attribute : node.attributes) {
      put_attribute(chakra::node_field::kAttribute, attribute);
    }
    message_ += node.unknown_fields;
  }

  void put_ids(std::uint32_t field, const std::vector<std::uint64_t>& ids) {
    if (ids.empty()) return;
    list_.clear();
    for (const std::uint64_t id : ids) put_varint(list_, id);
    put_bytes(message_, field, list_);
  }

  void put_io(std::uint32_t field, const ChakraIo& io) {
    if (io == ChakraIo{}) return;
    attribute_.clear();
    put_nonempty(attribute_, chakra::io_field::kValues, io.values);
    put_nonempty(attribute_, chakra::io_field::kShapes, io.shapes);
    put_nonempty(attribute_, chakra::io_field::kTypes, io.types);
    attribute_ += io.unknown_fields;
    put_bytes(message_, field, attribute_);
  }

  void begin_attribute(std::string_view name) {
    attribute_.clear();
    put_bytes(attribute_, chakra::attribute_field::kName, name);
  }

  void put_number(std::string_view name, ChakraValueType type, std::int64_t value) {
    begin_attribute(name);
    put_tag(attribute_, static_cast<std::uint32_t>(type), chakra::kVarint);
    put_varint(attribute_, static_cast<std::uint64_t>(value));
    put_bytes(message_, chakra::node_field::kAttribute, attribute_);
  }

  template <class Number>
  void put_optional(std::string_view name, ChakraValueType type,
                    const std::optional<Number>& value) {
    if (value) put_number(name, type, *value);
  }

  // `list_` as the list of an attribute; `packed`: it holds the bare values.
  void put_list(ChakraValueType type, bool packed) {
    std::string message;
    if (packed && !list_.empty()) put_bytes(message, 1, list_);
    put_bytes(attribute_, static_cast<std::uint32_t>(type), packed ? message : list_);
  }

  void put_attribute(std::uint32_t field, const ChakraAttribute& attribute) {
    attribute_.clear();
    put_nonempty(attribute_, chakra::attribute_field::kName, attribute.name);
    put_nonempty(attribute_, chakra::attribute_field::kDoc, attribute.doc);
    const FieldLayout layout = chakra::layout_of(attribute.type);
    const auto number = static_cast<std::uint32_t>(attribute.type);
    std::visit(
        [&]<class Value>(const Value& value) {
          if constexpr (std::is_same_v<Value, std::string>) {
            put_bytes(attribute_, number, value);
          } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
            list_.clear();
            for (const std::string& text : value) put_bytes(list_, 1, text);
            put_list(attribute.type, false);
          } else if constexpr (requires { typename Value::value_type; }) {
            list_.clear();
            for (const auto element : value) put_value(list_, layout, element);
            put_list(attribute.type, true);
          } else if constexpr (!std::is_same_v<Value, std::monostate>) {
            put_tag(attribute_, number, wire_of(layout));
            put_value(attribute_, layout, value);
          }
        },
        attribute.value);
    attribute_ += attribute.unknown_fields;
    put_bytes(message_, field, attribute_);
  }

  OutputFile& out_;
  std::string text_, message_, attribute_, list_;
  double host_carry_ = 0, device_carry_ = 0;
};

// Writes everything; the caller gives the file its name.
Result<OutputFile> write_unnamed(const ChakraTrace& trace, const std::filesystem::path& file) {
  auto out = OutputFile::create(file);
  if (!out) return out;
  if (auto written = ChakraWriter(*out).write(trace); !written) return Unexpected{written.error()};
  if (auto finished = out->finish(); !finished) return Unexpected{finished.error()};
  return out;
}

// ---- a job -------------------------------------------------------------------------------------

class Job {
 public:
  Job(std::span<const ChakraTrace> ranks, const ChakraJobOptions& options)
      : ranks_(ranks), options_(options) {}

  // The rank that an error is about goes to `rank`.
  Result<void> check_all(std::size_t& rank) {
    for (rank = 0; rank < ranks_.size(); ++rank) {
      if (auto good = check(ranks_[rank]); !good) return good;
      if (auto good = collect(rank); !good) return good;
    }
    for (const auto& [group, members] : collectives_) {
      if (auto good = check_group(group, members, rank); !good) return good;
    }
    return check_messages(rank);
  }

 private:
  // Sender, receiver, tag and size of a message. ASTRA-sim pairs by all of them.
  using Message = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  struct Open {
    std::vector<std::size_t> sends, receives;  // nodes
  };

  Result<void> collect(std::size_t rank) {
    const auto& nodes = ranks_[rank].nodes;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const ChakraNode& node = nodes[i];
      if (node.type == ChakraNodeType::kCollective) {
        const std::string_view group = node.pg_name == "0" ? "" : std::string_view(node.pg_name);
        if (auto good = check_membership(group, rank, i); !good) return good;
        collectives_[group][rank].push_back(i);
      } else if (node.type == ChakraNodeType::kSend || node.type == ChakraNodeType::kReceive) {
        const bool sends = node.type == ChakraNodeType::kSend;
        const auto own = static_cast<std::size_t>(sends ? *node.comm_src : *node.comm_dst);
        const auto other = static_cast<std::size_t>(sends ? *node.comm_dst : *node.comm_src);
        if (own != rank) {
          return node_error(nodes, i,
                            fmt::format("expected {} {} as in the file's name, found {}",
                                        sends ? "comm_src" : "comm_dst", rank, own));
        }
        if (other >= ranks_.size() || other == rank) {
          return node_error(nodes, i,
                            fmt::format("expected another rank below {} in {}, found {}",
                                        ranks_.size(), sends ? "comm_dst" : "comm_src", other));
        }
        Open& open = messages_[{*node.comm_src, *node.comm_dst, *node.comm_tag, *node.comm_size}];
        (sends ? open.sends : open.receives).push_back(i);
      }
    }
    return {};
  }

  Result<void> check_membership(std::string_view group, std::size_t rank, std::size_t node) const {
    if (group.empty() || options_.groups.empty()) return {};
    const auto known = options_.groups.find(std::string(group));
    if (known == options_.groups.end()) {
      return node_error(ranks_[rank].nodes, node,
                        fmt::format("expected a process group of the job, found \"{}\"", group));
    }
    if (std::find(known->second.begin(), known->second.end(), static_cast<std::int64_t>(rank)) ==
        known->second.end()) {
      return node_error(
          ranks_[rank].nodes, node,
          fmt::format("expected a process group that rank {} is in, found \"{}\"", rank, group));
    }
    return {};
  }

  // Ranks that must take part; without a list the ranks that do.
  std::vector<std::size_t> members_of(
      std::string_view group, const std::map<std::size_t, std::vector<std::size_t>>& seen) const {
    std::vector<std::size_t> members;
    const auto known = options_.groups.find(std::string(group));
    if (known != options_.groups.end() && !group.empty()) {
      for (const std::int64_t rank : known->second) {
        members.push_back(static_cast<std::size_t>(rank));
      }
      std::sort(members.begin(), members.end());
    } else if (group.empty()) {
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) members.push_back(rank);
    } else {
      for (const auto& [rank, nodes] : seen) members.push_back(rank);
    }
    return members;
  }

  static std::string text_of(const ChakraNode& node) {
    return fmt::format("{} of {} B ({})", to_string(*node.comm_type), node.comm_size.value_or(0),
                       chakra::describe(node));
  }

  Result<void> check_group(std::string_view group,
                           const std::map<std::size_t, std::vector<std::size_t>>& seen,
                           std::size_t& rank) const {
    static const std::vector<std::size_t> kNone;
    const auto members = members_of(group, seen);
    const auto nodes_of = [&](std::size_t member) -> const std::vector<std::size_t>& {
      const auto found = seen.find(member);
      return found == seen.end() ? kNone : found->second;
    };
    const std::string name = group.empty() ? "all ranks" : fmt::format("group \"{}\"", group);
    const std::size_t first = members.front();
    const auto& expected = nodes_of(first);
    for (const std::size_t member : members) {
      rank = member;
      const auto& found = nodes_of(member);
      for (std::size_t i = 0; i < std::max(expected.size(), found.size()); ++i) {
        const ChakraNode* want = i < expected.size() ? &ranks_[first].nodes[expected[i]] : nullptr;
        const ChakraNode* have = i < found.size() ? &ranks_[member].nodes[found[i]] : nullptr;
        if (want && have && want->comm_type == have->comm_type &&
            want->comm_size.value_or(0) == have->comm_size.value_or(0)) {
          continue;
        }
        return fail(ErrorCode::kFormat,
                    fmt::format("rank {}, collective {} of {}: expected {} as in rank {}, found {}",
                                member, i, name, want ? text_of(*want) : "no more", first,
                                have ? text_of(*have) : "no more"));
      }
    }
    return {};
  }

  Result<void> check_messages(std::size_t& rank) const {
    for (const auto& [message, open] : messages_) {
      if (open.sends.size() == open.receives.size()) continue;
      const auto [source, destination, tag, size] = message;
      const bool extra_send = open.sends.size() > open.receives.size();
      rank = static_cast<std::size_t>(extra_send ? source : destination);
      const std::size_t node =
          extra_send ? open.sends[open.receives.size()] : open.receives[open.sends.size()];
      return node_error(
          ranks_[rank].nodes, node,
          fmt::format("expected {} in rank {} (from {} to {}, tag {}, {} B), found none",
                      extra_send ? "a receive" : "a send", extra_send ? destination : source,
                      source, destination, tag, size));
    }
    return {};
  }

  std::span<const ChakraTrace> ranks_;
  const ChakraJobOptions& options_;
  // Nodes of each group and rank, in order of the file.
  std::map<std::string_view, std::map<std::size_t, std::vector<std::size_t>>> collectives_;
  std::map<Message, Open> messages_;
};

std::string group_name(const std::string& name) { return name.empty() ? "\"\"" : name; }

Result<void> check_groups(const ChakraJobOptions& options, std::size_t world) {
  for (const auto& [name, members] : options.groups) {
    if (members.empty()) {
      return fail(ErrorCode::kFormat,
                  fmt::format("process group {}: expected ranks, found none", group_name(name)));
    }
    std::vector<std::int64_t> sorted = members;
    std::sort(sorted.begin(), sorted.end());
    if (sorted.front() < 0 || sorted.back() >= static_cast<std::int64_t>(world) ||
        std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
      return fail(ErrorCode::kFormat,
                  fmt::format("process group {}: expected different ranks from 0 to {}, found [{}]",
                              group_name(name), static_cast<std::int64_t>(world) - 1,
                              fmt::join(members, ", ")));
    }
  }
  return {};
}

Result<void> check_copies(std::span<const ChakraTrace> ranks, const ChakraJobOptions& options) {
  PERFMODEL_CHECK(options.copies >= 1);
  if (options.copies == 1) return {};
  if (ranks.size() != 1 || !options.groups.empty()) {
    return fail(ErrorCode::kImpossible, "expected one trace of one group to copy for every rank");
  }
  for (const ChakraNode& node : ranks[0].nodes) {
    const bool one_to_one =
        node.type == ChakraNodeType::kSend || node.type == ChakraNodeType::kReceive;
    if (!one_to_one && (node.pg_name.empty() || node.pg_name == "0")) continue;
    return fail(
        ErrorCode::kImpossible,
        fmt::format("expected collectives of all ranks alone, to write the files of {} ranks "
                    "from one, found \"{}\" of process group \"{}\"; give every rank's own",
                    options.copies, node.name, node.pg_name));
  }
  return {};
}

}  // namespace

Result<void> write_chakra(const ChakraTrace& trace, const std::filesystem::path& file) {
  auto good = check(trace);
  if (good) {
    auto out = write_unnamed(trace, file);
    if (out) return out->commit();
    good = Unexpected{out.error()};
  }
  good.error().file = file;
  return good;
}

Result<void> write_chakra(std::span<const ChakraTrace> ranks, const std::filesystem::path& prefix,
                          const ChakraJobOptions& options) {
  const auto file_of = [&](std::size_t rank) {
    std::filesystem::path file = prefix;
    file += fmt::format(".{}.et", rank);
    return file;
  };
  if (ranks.empty()) return fail(ErrorCode::kFormat, "expected traces of ranks, found none");
  if (auto good = check_copies(ranks, options); !good) return good;
  if (auto good = check_groups(options, ranks.size()); !good) return good;
  std::size_t rank = 0;
  if (auto good = Job(ranks, options).check_all(rank); !good) {
    good.error().file = file_of(rank);
    return good;
  }

  std::vector<OutputFile> files;
  for (rank = 0; rank < ranks.size() * options.copies; ++rank) {
    auto out = write_unnamed(ranks[options.copies > 1 ? 0 : rank], file_of(rank));
    if (!out) {
      out.error().file = file_of(rank);
      return Unexpected{out.error()};
    }
    files.push_back(std::move(*out));
  }
  if (!options.groups.empty()) {
    std::filesystem::path file = prefix;
    file += ".groups.json";
    PERFMODEL_TRY(out, OutputFile::create(file));
    out->write(nlohmann::json(options.groups)
                   .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
               "\n");
    if (auto finished = out->finish(); !finished) return finished;
    files.push_back(std::move(*out));
  }
  for (OutputFile& file : files) {
    if (auto named = file.commit(); !named) return named;
  }
  return {};
}

}  // namespace perfmodel
