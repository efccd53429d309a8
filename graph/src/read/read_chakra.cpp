#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>
#include <unordered_set>
#include <utility>

#include "base/budget.hpp"
#include "base/byte_source.hpp"
#include "base/python_text.hpp"
#include "base/secrets.hpp"
#include "core/chakra_format.hpp"
#include "json/file_kind.hpp"

namespace perfmodel {
namespace {

using chakra::Known;
using FieldLayout = chakra::Layout;
using chakra::Wire;

// The first problem within a message. `at` points into the message.
struct Failure {
  const char* at = nullptr;
  std::string message;
};

std::string_view wire_name(std::uint32_t wire) {
  constexpr std::string_view kNames[] = {"a varint",           "8 bytes", "a length", "a group",
                                         "the end of a group", "4 bytes"};
  return wire < std::size(kNames) ? kNames[wire] : "an unknown wire type";
}

// Walks the fields of one message. After a failure everything returns false.
class WireFields {
 public:
  WireFields(std::string_view message, Failure& failure)
      : at_(message.data()), end_(message.data() + message.size()), failure_(failure) {}

  // The next field's number and wire type; false at the end and after a failure.
  bool next() {
    if (at_ == end_ || failed()) return false;
    field_begin_ = at_;
    std::uint64_t tag = 0;
    if (!raw_varint(tag, "a field")) return false;
    number_ = static_cast<std::uint32_t>(tag >> 3);
    wire_ = static_cast<std::uint32_t>(tag & 7);
    if (tag >> 32 != 0 || number_ == 0) {
      return fail(field_begin_,
                  fmt::format("expected a field number from 1 to 2^29 - 1, found {}", tag >> 3));
    }
    if (wire_ > 5 || wire_ == 3 || wire_ == 4) {
      return fail(field_begin_, fmt::format("expected wire type 0, 1, 2 or 5 of field {}, found {}",
                                            number_, wire_));
    }
    return true;
  }

  std::uint32_t number() const { return number_; }
  std::uint32_t wire() const { return wire_; }
  bool failed() const { return failure_.at != nullptr; }

  bool varint(std::uint64_t& value, std::string_view what) {
    return expect(chakra::kVarint, what) && raw_varint(value, what);
  }

  bool bytes(std::string_view& value, std::string_view what) {
    if (!expect(chakra::kLength, what)) return false;
    return raw_bytes(value, what);
  }

  bool text(std::string& value, std::string_view what) {
    std::string_view found;
    if (!bytes(found, what)) return false;
    if (!simdjson::validate_utf8(found.data(), found.size())) {
      return fail(found.data(), fmt::format("expected UTF-8 in {}, found other bytes", what));
    }
    value.assign(found);
    return true;
  }

  template <class Number>  // std::uint32_t, std::uint64_t
  bool fixed(Number& value, std::string_view what) {
    if (!expect(sizeof(Number) == 4 ? chakra::kFixed32 : chakra::kFixed64, what)) return false;
    return raw_fixed(value, what);
  }

  // Appends the raw field to `unknown`.
  bool keep(std::string& unknown) {
    std::uint64_t number = 0;
    std::uint32_t word = 0;
    std::string_view text;
    const bool good = wire_ == chakra::kVarint    ? raw_varint(number, "an unknown field")
                      : wire_ == chakra::kFixed64 ? raw_fixed(number, "an unknown field")
                      : wire_ == chakra::kFixed32 ? raw_fixed(word, "an unknown field")
                                                  : raw_bytes(text, "an unknown field");
    if (good) unknown.append(field_begin_, at_);
    return good;
  }

  // Values of a repeated number, packed or one by one.
  template <class Add>
  bool varints(std::string_view what, Add&& add) {
    std::uint64_t value = 0;
    if (wire_ != chakra::kLength) {
      if (!varint(value, what)) return false;
      add(value);
      return true;
    }
    std::string_view packed;
    if (!raw_bytes(packed, what)) return false;
    WireFields inner(packed, failure_);
    while (inner.at_ != inner.end_) {
      if (!inner.raw_varint(value, what)) return false;
      add(value);
    }
    return true;
  }

  template <class Number, class Add>
  bool fixeds(std::string_view what, Add&& add) {
    Number value = 0;
    if (wire_ != chakra::kLength) {
      if (!fixed(value, what)) return false;
      add(value);
      return true;
    }
    std::string_view packed;
    if (!raw_bytes(packed, what)) return false;
    WireFields inner(packed, failure_);
    while (inner.at_ != inner.end_) {
      if (!inner.raw_fixed(value, what)) return false;
      add(value);
    }
    return true;
  }

  // Always false, for `return fail(...)`.
  bool fail(std::string message) { return fail(field_begin_, std::move(message)); }
  bool fail(const char* at, std::string message) {
    if (!failed()) failure_ = {at, std::move(message)};
    return false;
  }

 private:
  bool expect(Wire wire, std::string_view what) {
    if (wire_ == wire) return true;
    return fail(field_begin_, fmt::format("expected {} as {}, found {}", what, wire_name(wire),
                                          wire_name(wire_)));
  }

  bool raw_varint(std::uint64_t& value, std::string_view what) {
    if (at_ != end_ && static_cast<unsigned char>(*at_) < 0x80) {
      value = static_cast<unsigned char>(*at_++);
      return true;
    }
    const char* begin = at_;
    value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at_ == end_) {
        return fail(begin,
                    fmt::format("expected the rest of {}, found the end of its message", what));
      }
      const auto byte = static_cast<unsigned char>(*at_++);
      if (shift == 63 && byte > 1) break;
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return fail(begin, fmt::format("expected a number of at most 64 bits in {}, found more", what));
  }

  bool raw_bytes(std::string_view& value, std::string_view what) {
    const char* begin = at_;
    std::uint64_t length = 0;
    if (!raw_varint(length, what)) return false;
    const auto left = static_cast<std::uint64_t>(end_ - at_);
    if (length > left) {
      return fail(begin, fmt::format("expected {} bytes of {}, found {} to the end of its message",
                                     length, what, left));
    }
    value = {at_, static_cast<std::size_t>(length)};
    at_ += length;
    return true;
  }

  template <class Number>
  bool raw_fixed(Number& value, std::string_view what) {
    const auto left = static_cast<std::size_t>(end_ - at_);
    if (left < sizeof(Number)) {
      return fail(at_, fmt::format("expected {} bytes of {}, found {} to the end of its message",
                                   sizeof(Number), what, left));
    }
    value = 0;
    for (std::size_t i = 0; i < sizeof(Number); ++i) {
      value |= static_cast<Number>(static_cast<unsigned char>(at_[i])) << (8 * i);
    }
    at_ += sizeof(Number);
    return true;
  }

  const char* at_;
  const char* end_;
  Failure& failure_;
  const char* field_begin_ = nullptr;
  std::uint32_t number_ = 0, wire_ = 0;
};

// ---- attributes --------------------------------------------------------------------------------

std::int64_t to_signed(std::uint64_t value, ChakraValueType type) {
  const bool narrow =
      type == ChakraValueType::kInt32 || type == ChakraValueType::kInt32List;  // sign-extended
  return narrow ? static_cast<std::int32_t>(value) : static_cast<std::int64_t>(value);
}
std::uint64_t to_unsigned(std::uint64_t value, ChakraValueType type) {
  switch (type) {
    case ChakraValueType::kBool:
    case ChakraValueType::kBoolList: return value != 0;
    case ChakraValueType::kUint32:
    case ChakraValueType::kUint32List: return static_cast<std::uint32_t>(value);
    default: return value;
  }
}
std::int64_t from_zigzag(std::uint64_t value) {
  return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

// Reads field `fields` of the given layout; calls `add` with each std::int64_t, std::uint64_t,
// double or std::string in it. A single value and one element of a list look the same.
template <class Add>
bool read_values(WireFields& fields, ChakraValueType type, std::string_view what, Add&& add) {
  switch (chakra::layout_of(type)) {
    case FieldLayout::kSigned:
      return fields.varints(what, [&](std::uint64_t value) { add(to_signed(value, type)); });
    case FieldLayout::kUnsigned:
      return fields.varints(what, [&](std::uint64_t value) { add(to_unsigned(value, type)); });
    case FieldLayout::kZigzag:
      return fields.varints(what, [&](std::uint64_t value) { add(from_zigzag(value)); });
    case FieldLayout::kFixed32:
      return fields.fixeds<std::uint32_t>(
          what, [&](std::uint32_t value) { add(static_cast<std::uint64_t>(value)); });
    case FieldLayout::kFixed64: return fields.fixeds<std::uint64_t>(what, add);
    case FieldLayout::kSfixed32:
      return fields.fixeds<std::uint32_t>(what, [&](std::uint32_t value) {
        add(static_cast<std::int64_t>(static_cast<std::int32_t>(value)));
      });
    case FieldLayout::kSfixed64:
      return fields.fixeds<std::uint64_t>(
          what, [&](std::uint64_t value) { add(static_cast<std::int64_t>(value)); });
    case FieldLayout::kFloat:
      return fields.fixeds<std::uint32_t>(what, [&](std::uint32_t value) {
        add(static_cast<double>(std::bit_cast<float>(value)));
      });
    case FieldLayout::kDouble:
      return fields.fixeds<std::uint64_t>(
          what, [&](std::uint64_t value) { add(std::bit_cast<double>(value)); });
    case FieldLayout::kText: {
      std::string text;
      if (!fields.text(text, what)) return false;
      add(std::move(text));
      return true;
    }
    case FieldLayout::kRaw: {
      std::string_view bytes;
      if (!fields.bytes(bytes, what)) return false;
      add(std::string(bytes));
      return true;
    }
    case FieldLayout::kNone: break;
  }
  return false;
}

bool is_scalar_wire(std::uint32_t wire, FieldLayout layout) {
  switch (layout) {
    case FieldLayout::kText:
    case FieldLayout::kRaw: return wire == chakra::kLength;
    case FieldLayout::kFixed32:
    case FieldLayout::kSfixed32:
    case FieldLayout::kFloat: return wire == chakra::kFixed32;
    case FieldLayout::kFixed64:
    case FieldLayout::kSfixed64:
    case FieldLayout::kDouble: return wire == chakra::kFixed64;
    default: return wire == chakra::kVarint;
  }
}

void empty_list(ChakraAttribute& attribute) {
  switch (chakra::layout_of(attribute.type)) {
    case FieldLayout::kSigned:
    case FieldLayout::kZigzag:
    case FieldLayout::kSfixed32:
    case FieldLayout::kSfixed64: attribute.value.emplace<std::vector<std::int64_t>>(); break;
    case FieldLayout::kUnsigned:
    case FieldLayout::kFixed32:
    case FieldLayout::kFixed64: attribute.value.emplace<std::vector<std::uint64_t>>(); break;
    case FieldLayout::kFloat:
    case FieldLayout::kDouble: attribute.value.emplace<std::vector<double>>(); break;
    default: attribute.value.emplace<std::vector<std::string>>();
  }
}

bool read_value(WireFields& fields, ChakraAttribute& attribute, Failure& failure) {
  constexpr std::string_view kWhat = "an attribute's value";
  const auto type = static_cast<ChakraValueType>(fields.number());
  attribute.type = type;
  if (!chakra::is_list(type)) {
    if (!is_scalar_wire(fields.wire(), chakra::layout_of(type))) {
      return fields.fail(fmt::format("expected the attribute's value to be {}, found {}",
                                     chakra::to_string(type), wire_name(fields.wire())));
    }
    return read_values(fields, type, kWhat,
                       [&](auto value) { attribute.value.emplace<decltype(value)>(value); });
  }
  std::string_view message;
  if (!fields.bytes(message, "an attribute's list")) return false;
  empty_list(attribute);
  WireFields list(message, failure);
  while (list.next()) {
    if (list.number() != 1) {
      return list.fail(
          fmt::format("expected field 1, the values of a list, found field {}", list.number()));
    }
    if (!read_values(list, type, "a list's values", [&](auto value) {
          std::get<std::vector<decltype(value)>>(attribute.value).push_back(std::move(value));
        })) {
      return false;
    }
  }
  return !list.failed();
}

bool read_attribute(std::string_view message, ChakraAttribute& attribute, Failure& failure) {
  WireFields fields(message, failure);
  while (fields.next()) {
    switch (fields.number()) {
      case chakra::attribute_field::kName:
        fields.text(attribute.name, "an attribute's name");
        break;
      case chakra::attribute_field::kDoc:
        fields.text(attribute.doc, "an attribute's description");
        break;
      default:
        if (fields.number() <= 32) {
          read_value(fields, attribute, failure);
        } else {
          fields.keep(attribute.unknown_fields);
        }
    }
  }
  return !fields.failed();
}

// Takes an attribute with a member of its own out of its general form.
class KnownAttribute {
 public:
  KnownAttribute(const ChakraAttribute& attribute, WireFields& fields)
      : attribute_(attribute), fields_(fields) {}

  bool place(Known which, ChakraNode& node) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    constexpr std::int64_t kMost32 = std::numeric_limits<std::int32_t>::max();
    std::int64_t value = 0;
    switch (which) {
      case Known::kIsCpuOp:
        if (!integer(0, 1, value)) return false;
        node.is_cpu_op = value == 1;
        return true;
      case Known::kCommType:
        if (!integer(0, 9, value)) return false;
        node.comm_type = static_cast<ChakraCollective>(value);
        return true;
      case Known::kCommSize: return integer(0, kMost, value) && (node.comm_size = value, true);
      case Known::kNumOps: return integer(0, kMost, value) && (node.num_ops = value, true);
      case Known::kTensorSize: return integer(0, kMost, value) && (node.tensor_size = value, true);
      case Known::kCommSource: return small(0, kMost32, node.comm_src);
      case Known::kCommDestination: return small(0, kMost32, node.comm_dst);
      case Known::kCommTag: return small(-kMost32 - 1, kMost32, node.comm_tag);
      case Known::kCommPriority: return small(-kMost32 - 1, kMost32, node.comm_priority);
      case Known::kProcessGroup:
        if (attribute_.type != ChakraValueType::kString) return wrong("a string");
        node.pg_name = process_group_name(std::get<std::string>(attribute_.value));
        return true;
      case Known::kInvolvedDim:
        if (attribute_.type != ChakraValueType::kBoolList) return wrong("a list of bool");
        for (std::uint64_t flag : std::get<std::vector<std::uint64_t>>(attribute_.value)) {
          node.involved_dim.push_back(flag != 0);
        }
        return true;
    }
    return false;
  }

 private:
  bool wrong(std::string_view expected) {
    return fields_.fail(fmt::format("expected {} in attribute {}, found {}", expected,
                                    shown_text(attribute_.name),
                                    chakra::to_string(attribute_.type)));
  }

  bool integer(std::int64_t least, std::int64_t most, std::int64_t& value) {
    std::string found;
    if (const auto* number = std::get_if<std::int64_t>(&attribute_.value)) {
      value = *number;
      if (value >= least && value <= most) return true;
      found = std::to_string(value);
    } else if (const auto* natural = std::get_if<std::uint64_t>(&attribute_.value)) {
      value = static_cast<std::int64_t>(*natural);
      if (value >= 0 && value >= least && value <= most) return true;
      found = std::to_string(*natural);
    } else {
      return wrong("an integer");
    }
    return fields_.fail(
        fmt::format("expected {} from {} to {}, found {}", attribute_.name, least, most, found));
  }

  bool small(std::int64_t least, std::int64_t most, std::optional<std::int32_t>& member) {
    std::int64_t value = 0;
    if (!integer(least, most, value)) return false;
    member = static_cast<std::int32_t>(value);
    return true;
  }

  const ChakraAttribute& attribute_;
  WireFields& fields_;
};

// ---- messages ----------------------------------------------------------------------------------

bool read_metadata(std::string_view message, ChakraTrace& trace, Failure& failure) {
  trace.version.clear();
  WireFields fields(message, failure);
  while (fields.next()) {
    switch (fields.number()) {
      case chakra::metadata_field::kVersion: fields.text(trace.version, "the version"); break;
      case chakra::metadata_field::kAttribute: {
        std::string_view bytes;
        if (fields.bytes(bytes, "an attribute")) {
          read_attribute(bytes, trace.attributes.emplace_back(), failure);
        }
        break;
      }
      default: fields.keep(trace.unknown_fields);
    }
  }
  return !fields.failed();
}

bool read_io(std::string_view message, ChakraIo& io, Failure& failure) {
  WireFields fields(message, failure);
  while (fields.next()) {
    switch (fields.number()) {
      case chakra::io_field::kValues: fields.text(io.values, "values"); break;
      case chakra::io_field::kShapes: fields.text(io.shapes, "shapes"); break;
      case chakra::io_field::kTypes: fields.text(io.types, "types"); break;
      default: fields.keep(io.unknown_fields);
    }
  }
  return !fields.failed();
}

bool read_time(WireFields& fields, double& us, std::string_view what) {
  std::uint64_t value = 0;
  if (!fields.varint(value, what)) return false;
  if (value > chakra::kMaxMicroseconds) {
    const auto number = static_cast<std::int64_t>(value);
    return fields.fail(fmt::format("expected {} from 0 to 2^53 us, found {}", what,
                                   number < 0 ? std::to_string(number) : std::to_string(value)));
  }
  us = static_cast<double>(value);
  return true;
}

// Lists of a node while they grow; the node gets copies of just the size.
struct Lists {
  std::vector<std::uint64_t> ctrl_deps, data_deps;
  std::vector<ChakraAttribute> attributes;
};

bool read_node(std::string_view message, ChakraNode& node, Lists& lists, Failure& failure) {
  lists.ctrl_deps.clear();
  lists.data_deps.clear();
  lists.attributes.clear();
  WireFields fields(message, failure);
  std::uint64_t number = 0, type = 0;
  std::string_view bytes;
  unsigned known_seen = 0;
  while (fields.next()) {
    switch (fields.number()) {
      case chakra::node_field::kId: fields.varint(node.id, "a node's id"); break;
      case chakra::node_field::kName: fields.text(node.name, "a node's name"); break;
      case chakra::node_field::kType:
        if (!fields.varint(number, "a node's type")) break;
        type = number;
        if (type < 1 || type > 7) {
          fields.fail(
              fmt::format("expected a node type from 1 (metadata) to 7 (collective), found {}",
                          static_cast<std::int64_t>(type)));
        }
        break;
      case chakra::node_field::kCtrlDeps:
        fields.varints("control dependencies",
                       [&](std::uint64_t id) { lists.ctrl_deps.push_back(id); });
        break;
      case chakra::node_field::kDataDeps:
        fields.varints("data dependencies",
                       [&](std::uint64_t id) { lists.data_deps.push_back(id); });
        break;
      case chakra::node_field::kStart: read_time(fields, node.start_us, "a start"); break;
      case chakra::node_field::kDuration: read_time(fields, node.duration_us, "a duration"); break;
      case chakra::node_field::kInputs:
        if (fields.bytes(bytes, "inputs")) read_io(bytes, node.inputs, failure);
        break;
      case chakra::node_field::kOutputs:
        if (fields.bytes(bytes, "outputs")) read_io(bytes, node.outputs, failure);
        break;
      case chakra::node_field::kAttribute: {
        ChakraAttribute attribute;
        if (!fields.bytes(bytes, "an attribute") || !read_attribute(bytes, attribute, failure)) {
          break;
        }
        const auto known = chakra::known_attribute(attribute.name);
        if (!known) {
          lists.attributes.push_back(std::move(attribute));
          break;
        }
        const unsigned bit = 1u << static_cast<unsigned>(*known);
        if (known_seen & bit) {
          fields.fail(fmt::format("expected attribute {} once, found it twice", attribute.name));
        } else {
          KnownAttribute(attribute, fields).place(*known, node);
        }
        known_seen |= bit;
        break;
      }
      default: fields.keep(node.unknown_fields);
    }
  }
  if (fields.failed()) return false;
  if (type == 0) {
    return fields.fail(message.data(),
                       "expected a node type from 1 (metadata) to 7 (collective), "
                       "found none");
  }
  node.type = static_cast<ChakraNodeType>(type);
  node.ctrl_deps = lists.ctrl_deps;
  node.data_deps = lists.data_deps;
  node.attributes.assign(std::move_iterator(lists.attributes.begin()),
                         std::move_iterator(lists.attributes.end()));
  return true;
}

// ---- the file ----------------------------------------------------------------------------------

// The inflated bytes of a file, piece by piece.
class ChakraBytes {
 public:
  static Result<ChakraBytes> open(const std::filesystem::path& file, const ReadOptions& options) {
    PERFMODEL_TRY(source, ByteSource::open(file, options));
    return ChakraBytes(std::move(*source));
  }

  // Makes `count` bytes available, or as many as there are.
  Result<std::size_t> require(std::size_t count) {
    while (end_ - begin_ < count && !at_end_) {
      if (begin_ > 0) {
        std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
        consumed_ += begin_;
        end_ -= begin_;
        begin_ = 0;
      }
      if (end_ == buffer_.size()) buffer_.resize(2 * buffer_.size());
      const auto read = source_.read(buffer_.data() + end_, buffer_.size() - end_);
      if (!read) {
        Error error = read.error();
        if (error.code != ErrorCode::kIo) {
          error.message = fmt::format("byte {}: {}", consumed_ + end_, error.message);
        }
        return Unexpected{std::move(error)};
      }
      at_end_ = *read == 0;
      end_ += *read;
    }
    return std::min(count, end_ - begin_);
  }

  std::uint64_t offset() const { return consumed_ + begin_; }
  std::string_view view(std::size_t count) const { return {buffer_.data() + begin_, count}; }
  void skip(std::size_t count) { begin_ += count; }

 private:
  explicit ChakraBytes(ByteSource source) : source_(std::move(source)) {
    buffer_.resize(std::size_t{1} << 20);
  }

  ByteSource source_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  std::uint64_t consumed_ = 0;  // before buffer_
  bool at_end_ = false;
};

bool looks_like_json(std::string_view text) {
  const auto blank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(blank);
  if (first == std::string_view::npos || (text[first] != '{' && text[first] != '[')) return false;
  const std::size_t second = text.find_first_not_of(blank, first + 1);
  return second != std::string_view::npos &&
         std::string_view("\"{[]}").find(text[second]) != std::string_view::npos;
}

class ChakraReader {
 public:
  ChakraReader(ChakraBytes bytes, const std::filesystem::path& file, const ReadOptions& options)
      : bytes_(std::move(bytes)),
        file_(file),
        limits_(options.limits),
        salvage_(options.salvage),
        most_bytes_(std::min<std::uint64_t>(chakra::kMaxMessageBytes, limits_.element_bytes)) {}

  Result<ChakraTrace> run() {
    constexpr std::size_t kHead = std::size_t{1} << 16;
    PERFMODEL_TRY(head, bytes_.require(kHead));
    if (*head == 0) return fail(ErrorCode::kFormat, "expected a Chakra trace, found an empty file");
    const std::string start(bytes_.view(*head));
    if (auto read = messages(); !read && salvage_ && !in_metadata_) {
      trace_.warnings.push_back(fmt::format("the file breaks off; {} complete nodes were kept: {}",
                                            trace_.nodes.size(), read.error().message));
    } else if (!read) {
      if (in_metadata_ && looks_like_json(start)) {
        return fail(ErrorCode::kFormat,
                    "expected a Chakra trace (length-delimited protobuf), found JSON");
      }
      if (in_metadata_ && read.error().code != ErrorCode::kIo) {
        if (const std::string kind = file_kind(start, file_); !kind.empty()) {
          return fail(ErrorCode::kFormat,
                      "expected a Chakra trace (length-delimited protobuf), found " + kind);
        }
        read.error().message += "; is this a Chakra trace?";
      }
      return Unexpected{std::move(read.error())};
    }
    if (salvage_) leave_out_repeated();
    if (const auto defect = chakra::find_repeated_id(trace_.nodes)) {
      const ChakraNode& node = trace_.nodes[defect->node];
      return fail(ErrorCode::kFormat,
                  fmt::format("byte {}, node {} ({}): {}", offsets_[defect->node], defect->node,
                              chakra::describe(node), defect->message));
    }
    drop_missing_dependencies();
    mask();
    return std::move(trace_);
  }

 private:
  void leave_out_repeated() {
    std::unordered_set<std::uint64_t> ids;
    const std::size_t before = trace_.nodes.size();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < before; ++i) {
      if (!ids.insert(trace_.nodes[i].id).second) continue;
      if (kept != i) {
        trace_.nodes[kept] = std::move(trace_.nodes[i]);
        offsets_[kept] = offsets_[i];
      }
      ++kept;
    }
    trace_.nodes.resize(kept);
    offsets_.resize(kept);
    if (broken_ > 0) {
      trace_.warnings.push_back(
          fmt::format("{} broken nodes were left out, the first one: {}", broken_, first_broken_));
    }
    if (kept < before) {
      trace_.warnings.push_back(fmt::format(
          "{} nodes were left out because a node before them has their id", before - kept));
    }
  }

  // Callers that were still open when a recording stopped are in no file: who waits for them is a
  // root.
  void drop_missing_dependencies() {
    std::unordered_set<std::uint64_t> ids;
    ids.reserve(trace_.nodes.size());
    for (const ChakraNode& node : trace_.nodes) ids.insert(node.id);
    std::size_t missing = 0;
    for (ChakraNode& node : trace_.nodes) {
      for (auto* list : {&node.ctrl_deps, &node.data_deps}) {
        missing += std::erase_if(*list, [&](std::uint64_t id) { return !ids.contains(id); });
      }
    }
    if (missing > 0) {
      trace_.warnings.push_back(
          fmt::format("{} dependencies on nodes that are not there were dropped", missing));
    }
  }

  void mask() {
    std::size_t masked = 0;
    for (ChakraNode& node : trace_.nodes) {
      for (std::string* text : {&node.name, &node.pg_name}) {
        if (auto without = mask_secrets(*text)) {
          *text = std::move(*without);
          ++masked;
        }
      }
    }
    if (masked > 0) trace_.warnings.push_back(masked_warning(masked));
  }

  std::string place(std::uint64_t offset) const {
    return in_metadata_ ? fmt::format("byte {}, GlobalMetadata: ", offset)
                        : fmt::format("byte {}, node {}: ", offset, trace_.nodes.size());
  }

  Unexpected error(std::uint64_t offset, std::string_view message) const {
    return fail(ErrorCode::kFormat, place(offset) + std::string(message));
  }

  Result<void> messages() {
    for (;;) {
      const std::uint64_t begin = bytes_.offset();
      PERFMODEL_TRY(length, message_length());
      if (!*length) return {};
      PERFMODEL_TRY(available, bytes_.require(**length));
      if (*available < **length) {
        return error(begin, fmt::format("expected a message of {} bytes, found {} to the end of "
                                        "the file",
                                        **length, *available));
      }
      const std::uint64_t offset = bytes_.offset();
      const std::string_view message = bytes_.view(**length);
      Failure failure;
      bool good = false;
      if (in_metadata_) {
        good = read_metadata(message, trace_, failure);
      } else {
        ChakraNode node;
        good = read_node(message, node, lists_, failure);
        if (good) {
          trace_.nodes.push_back(std::move(node));
          offsets_.push_back(begin);
        }
      }
      if (!good && salvage_ && !in_metadata_) {
        if (broken_++ == 0) {
          first_broken_ = place(offset + static_cast<std::uint64_t>(failure.at - message.data())) +
                          failure.message;
        }
      } else if (!good) {
        return error(offset + static_cast<std::uint64_t>(failure.at - message.data()),
                     failure.message);
      }
      in_metadata_ = false;
      bytes_.skip(**length);
      if (auto fits = check_limits(message.size()); !fits) return fits;
    }
  }

  Result<void> check_limits(std::size_t message_bytes) {
    growth_point(trace_.nodes.size());
    kept_bytes_ += sizeof(ChakraNode) + message_bytes;
    if (trace_.nodes.size() > limits_.elements) {
      return fail(ErrorCode::kFormat,
                  fmt::format("expected at most {} nodes, found more (limit elements; --limit "
                              "elements=N raises it)",
                              limits_.elements));
    }
    if (kept_bytes_ > limits_.kept_bytes) {
      return fail(ErrorCode::kFormat,
                  fmt::format("expected nodes of at most {} bytes in memory, found more (limit "
                              "kept-bytes; --limit kept-bytes=N raises it)",
                              limits_.kept_bytes));
    }
    return {};
  }

  // Nothing at the end of the file.
  Result<std::optional<std::size_t>> message_length() {
    const std::uint64_t begin = bytes_.offset();
    PERFMODEL_TRY(available, bytes_.require(5));
    if (*available == 0) return std::optional<std::size_t>{};
    const std::string_view text = bytes_.view(*available);
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      length |= static_cast<std::uint64_t>(byte & 0x7f) << (7 * i);
      if (byte >= 0x80) continue;
      if (length > most_bytes_) {
        return error(
            begin,
            fmt::format("expected a message of at most {} bytes, found {}{}", most_bytes_, length,
                        most_bytes_ < chakra::kMaxMessageBytes
                            ? " (limit element-bytes; --limit element-bytes=N raises it)"
                            : ""));
      }
      bytes_.skip(i + 1);
      return std::optional<std::size_t>{length};
    }
    return error(begin, text.size() < 5
                            ? "expected the rest of a message's length, found the end of the file"
                            : "expected a message's length of at most 5 bytes, found more");
  }

  ChakraBytes bytes_;
  const std::filesystem::path& file_;
  ChakraTrace trace_;
  Lists lists_;
  std::vector<std::uint64_t> offsets_;  // offsets of the nodes' messages, with their length
  bool in_metadata_ = true;
  ReadLimits limits_;
  bool salvage_;
  std::uint64_t most_bytes_;
  std::uint64_t kept_bytes_ = 0;
  std::size_t broken_ = 0;
  std::string first_broken_;
};

}  // namespace

Result<ChakraTrace> read_chakra(const std::filesystem::path& file, const ReadOptions& options) {
  auto trace = within_budget<ChakraTrace>([&]() -> Result<ChakraTrace> {
    PERFMODEL_TRY(bytes, ChakraBytes::open(file, options));
    return ChakraReader(std::move(*bytes), file, options).run();
  });
  if (!trace) trace.error().file = file;
  return trace;
}

}  // namespace perfmodel
