#include "perfmodel/graph/read_execution_graph.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <unordered_map>

#include "base/budget.hpp"
#include "base/python_text.hpp"
#include "base/secrets.hpp"
#include "json/json_kind.hpp"
#include "json/json_stream.hpp"
#include "json/json_tree.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "read_captured.hpp"
#include "trace_numbers.hpp"
#include "whole_graph.hpp"

namespace perfmodel {
namespace {

namespace dom = simdjson::dom;

constexpr std::size_t kMostEntries = std::size_t{1} << 31;  // max 2^32; a piece adds less than 2^31
constexpr std::uint16_t kMostDimensions = 0xFFFF;
// Their product is a number of bytes that fits.
constexpr std::int64_t kMostTensorElements = std::int64_t{1} << 53, kMostItemBytes = 1 << 9;

// The value that a field held instead of the expected one; `tail` is the pointer below the node.
struct FieldError {
  std::string tail;
  std::string message;
};

// Whether two texts are equal, faster than ==: the compiler knows the length of one.
template <std::size_t N>
bool equals(std::string_view text, const char (&other)[N]) {
  return text.size() == N - 1 && std::memcmp(text.data(), other, N - 1) == 0;
}

// Returns the code, but throws if memory is out: a parser in that state must not be used again.
simdjson::error_code checked(simdjson::error_code code) {
  if (code == simdjson::MEMALLOC) throw std::bad_alloc();
  return code;
}

std::string_view kind_of(JsonValue element) {
  switch (element.type()) {
    case dom::element_type::ARRAY: return "an array";
    case dom::element_type::OBJECT: return "an object";
    case dom::element_type::STRING: return "a string";
    case dom::element_type::BOOL: return "a boolean";
    case dom::element_type::NULL_VALUE: return "null";
    default: return "a number";
  }
}

DType tensor_dtype(std::string_view leaf) {
  constexpr std::string_view kPrefix = "Tensor(";
  if (!leaf.starts_with(kPrefix) || !leaf.ends_with(")")) return DType::kUnknown;
  return parse_dtype(leaf.substr(kPrefix.size(), leaf.size() - kPrefix.size() - 1));
}

struct Leaf {
  std::string_view type = {};
  DType dtype = DType::kUnknown;  // if it is a tensor's
};

// Element types of a PyTorch type text in the order of the values it describes:
// "GenericList[Tensor(float),Int]" has two leaves. Lists that were cut off have fewer.
std::vector<Leaf> leaf_types(std::string_view type) {
  std::vector<Leaf> leaves;
  std::size_t begin = 0;
  int round = 0;  // inside "Tensor(...)": no list structure there
  const auto close_leaf = [&](std::size_t end) {
    const std::string_view leaf = type.substr(begin, end - begin);
    if (end > begin) leaves.push_back({leaf, tensor_dtype(leaf)});
  };
  for (std::size_t i = 0; i < type.size(); ++i) {
    const char c = type[i];
    if (c == '(') ++round;
    if (c == ')') --round;
    if (round > 0) continue;
    if (c == '[') {
      begin = i + 1;  // "GenericList" and "Tuple" are no leaves
    } else if (c == ',' || c == ']') {
      close_leaf(i);
      begin = i + 1;
    }
  }
  close_leaf(type.size());
  return leaves;
}

Device parse_device(std::string_view text) {
  if (text.empty()) return {};
  Device device{.kind = Device::Kind::kOther};
  const std::size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  if (kind == "cpu") device.kind = Device::Kind::kCpu;
  if (kind == "cuda" || kind == "hip") device.kind = Device::Kind::kGpu;
  if (kind == "meta") device.kind = Device::Kind::kMeta;
  if (colon != std::string_view::npos) {
    std::from_chars(text.data() + colon + 1, text.data() + text.size(), device.index);
  }
  return device;
}

// The place of a node's attribute, which only errors need as text.
struct AttributePlace {
  std::int64_t in_attrs = -1;  // position in "attrs"; -1: a member of the node itself
  std::string pointer(std::string_view key) const {
    return in_attrs < 0 ? fmt::format("/{}", key) : fmt::format("/attrs/{}/{}", in_attrs, key);
  }
};

class ExecutionGraphReader {
 public:
  ExecutionGraphReader(ExecutionGraph& graph, const ReadOptions& options)
      : graph_(graph), limits_(options.limits), salvage_(options.salvage) {}

  void head_member(const std::string& key, const std::string& text) {
    kind_.see(key);
    dom::element value;
    if (text.empty() || checked(parser_.parse(text).get(value))) return;
    std::string_view string;
    if (key == "schema" && value.get(string) == simdjson::SUCCESS) graph_.schema = string;
    if (key == "pid") to_integer(value, graph_.process_id);
    if (key == "built") graph_.built = value.is_bool() && bool(value);
    if (key == "allow_tf32") graph_.allow_tf32 = value.is_bool() && bool(value);
    if (key == "captured") read_captured(value, graph_);
  }

  const JsonKind& kind() const { return kind_; }

  // Whether the elements of a bare array are nodes, by the first ones.
  bool is_of_nodes(const JsonStream& stream) {
    if (!stream.bare() || stream.first_index() > 0) return true;
    kind_.see_elements(stream);
    return kind_.is_graph();
  }

  Result<void> piece(JsonStream& stream) {
    if (auto error = checked(tree_.parse(stream.elements()))) {
      if (!salvage_) return Unexpected{stream.syntax_error(simdjson::error_message(error))};
      if (!stream.rescan_piece()) stream.drop_element(0, "", simdjson::error_message(error));
      return {};
    }
    std::size_t i = 0;
    for (JsonValue element : tree_.root()) {
      const Mark before = mark();
      if (auto problem = node(element)) {
        if (!salvage_) {
          return Unexpected{stream.element_error(i, problem->tail, std::move(problem->message))};
        }
        go_back(before);
        stream.drop_element(i, problem->tail, problem->message);
      }
      ++i;
    }
    return check_kept_bytes();
  }

  // Warns of tensors with impossible sizes.
  void report_sizes() {
    if (odd_sizes_ == 0) return;
    graph_.warnings.push_back(fmt::format(
        "{} tensors have sizes, a number of elements or bytes per element that no tensor has; "
        "they count as empty",
        odd_sizes_));
  }

  // Nothing that looks like a secret leaves the reader.
  void mask() {
    std::size_t masked = mask_secrets(graph_.names);
    const auto mask_text = [&](std::string& text) {
      if (auto without = mask_secrets(text)) {
        text = std::move(*without);
        ++masked;
      }
    };
    mask_text(graph_.schema);
    for (CommRecord& record : graph_.comm_records) {
      mask_text(record.collective);
      mask_text(record.process_group);
    }
    for (ProcessGroup& group : graph_.process_groups) {
      mask_text(group.name);
      mask_text(group.description);
      mask_text(group.backend);
    }
    if (masked > 0) graph_.warnings.push_back(masked_warning(masked));
  }

 private:
  using Problem = std::optional<FieldError>;

  // Sizes of the lists before a node, to take a half-read one back.
  struct Mark {
    std::size_t arguments, tensors, shapes, comm_records, process_groups;
  };
  Mark mark() const {
    return {graph_.arguments.size(), graph_.tensors.size(), graph_.shape_pool.size(),
            graph_.comm_records.size(), graph_.process_groups.size()};
  }
  void go_back(const Mark& mark) {
    graph_.arguments.resize(mark.arguments);
    graph_.tensors.resize(mark.tensors);
    graph_.shape_pool.resize(mark.shapes);
    graph_.comm_records.resize(mark.comm_records);
    graph_.process_groups.resize(mark.process_groups);
  }

  Result<void> check_kept_bytes() {
    for (; counted_names_ < graph_.names.size(); ++counted_names_) {
      name_bytes_ +=
          graph_.names.text(static_cast<NameId>(counted_names_)).size() + StringPool::kBytesPerName;
    }
    const std::uint64_t kept = name_bytes_ + graph_.nodes.size() * sizeof(Node) +
                               graph_.arguments.size() * sizeof(Argument) +
                               graph_.tensors.size() * sizeof(Tensor) +
                               graph_.shape_pool.size() * sizeof(std::int64_t) +
                               graph_.comm_records.size() * sizeof(CommRecord);
    if (kept > limits_.kept_bytes) {
      return fail(ErrorCode::kFormat,
                  fmt::format("expected nodes of at most {} bytes in memory, found more (limit "
                              "kept-bytes; --limit kept-bytes=N raises it)",
                              limits_.kept_bytes));
    }
    const std::size_t longest =
        std::max({graph_.arguments.size(), graph_.tensors.size(), graph_.shape_pool.size()});
    if (longest > kMostEntries) {
      return fail(ErrorCode::kFormat,
                  fmt::format("expected at most {} arguments, tensors and extents, found more",
                              kMostEntries));
    }
    return {};
  }

  static FieldError expected(std::string_view what, JsonValue found, std::string_view tail) {
    return {std::string(tail), fmt::format("expected {}, found {}", what, kind_of(found))};
  }

  template <class Value, class Integer>
  static bool to_integer(Value value, Integer& out) {
    std::int64_t number = 0;
    if (value.get(number) == simdjson::SUCCESS) {
      out = static_cast<Integer>(number);
      return true;
    }
    std::uint64_t big = 0;
    if (value.get(big) == simdjson::SUCCESS) {  // addresses above 2^63
      out = static_cast<Integer>(big);
      return true;
    }
    return false;
  }

  Problem node(JsonValue element) {
    JsonObject object;
    if (element.get(object) != simdjson::SUCCESS) {
      return FieldError{"", fmt::format("expected an object, found {}", kind_of(element))};
    }
    Node node;
    values_[0] = values_[1] = {};
    comm_ = {};
    has_comm_ = false;
    bool has_id = false, has_name = false, has_parent = false;
    for (auto [key, value] : object) {
      Problem problem;
      if (equals(key, "id")) {
        has_id = true;
        if (!to_integer(value, node.id)) return expected("an integer", value, "/id");
      } else if (equals(key, "name")) {
        has_name = true;
        std::string_view text;
        if (value.get(text) != simdjson::SUCCESS) return expected("a string", value, "/name");
        node.name = graph_.names.intern(text);
      } else if (equals(key, "parent") || equals(key, "ctrl_deps")) {
        has_parent = true;
        if (!to_integer(value, node.parent_id)) {
          return expected("an integer", value, equals(key, "parent") ? "/parent" : "/ctrl_deps");
        }
      } else if (equals(key, "inputs") || equals(key, "outputs")) {
        problem = argument_block(key, value);
      } else if (equals(key, "input_shapes") || equals(key, "output_shapes")) {
        problem = take(values_[key[0] == 'o'].shapes, value, key);
      } else if (equals(key, "input_types") || equals(key, "output_types")) {
        problem = take(values_[key[0] == 'o'].types, value, key);
      } else if (equals(key, "attrs")) {
        problem = attributes(value, node);
      } else {
        problem = attribute(key, value, node, {});
      }
      if (problem) return problem;
    }
    if (!has_id) return FieldError{"", "expected key \"id\", found none"};
    if (!has_name) return FieldError{"", "expected key \"name\", found none"};
    if (!has_parent) {
      return FieldError{"", "expected key \"parent\" or \"ctrl_deps\", found neither"};
    }
    if (auto problem = arguments(values_[0], "inputs", node.inputs_begin, node.inputs_count)) {
      return problem;
    }
    if (auto problem = arguments(values_[1], "outputs", node.outputs_begin, node.outputs_count)) {
      return problem;
    }
    if (graph_.names.text(node.name) == "record_param_comms") comm_record(node);
    if (graph_.names.text(node.name) == "## process_group:init ##") process_groups(node);
    graph_.nodes.push_back(node);
    return {};
  }

  // "inputs" is the list of values in the flat layout and an object of lists in the nested one.
  Problem argument_block(std::string_view key, JsonValue value) {
    Block& block = values_[equals(key, "outputs")];
    if (value.is_array()) return take(block.values, value, key);
    JsonObject object;
    if (value.get(object) != simdjson::SUCCESS) {
      return expected("an array or object", value, fmt::format("/{}", key));
    }
    for (auto [part, list] : object) {
      Problem problem;
      if (equals(part, "values")) problem = take(block.values, list, "values");
      if (equals(part, "shapes")) problem = take(block.shapes, list, "shapes");
      if (equals(part, "types")) problem = take(block.types, list, "types");
      if (equals(part, "strides")) problem = take(block.strides, list, "strides");
      if (problem) {
        problem->tail = fmt::format("/{}{}", key, problem->tail);
        return problem;
      }
    }
    return {};
  }

  static Problem take(std::optional<JsonArray>& slot, JsonValue value, std::string_view key) {
    JsonArray array;
    if (value.get(array) != simdjson::SUCCESS) {
      return expected("an array", value, fmt::format("/{}", key));
    }
    slot = array;
    return {};
  }

  Problem attributes(JsonValue value, Node& node) {
    JsonArray list;
    if (value.get(list) != simdjson::SUCCESS) return expected("an array", value, "/attrs");
    AttributePlace place{.in_attrs = 0};
    for (JsonValue attr : list) {
      std::optional<JsonValue> name, content;
      JsonObject members;
      if (attr.get(members) == simdjson::SUCCESS) {
        for (const auto [key, member] : members) {
          if (equals(key, "name") && !name) name = member;
          if (equals(key, "value") && !content) content = member;
        }
      }
      std::string_view key;
      if (!name || name->get(key) != simdjson::SUCCESS || !content) {
        return FieldError{fmt::format("/attrs/{}", place.in_attrs),
                          "expected an object with \"name\" and \"value\""};
      }
      if (auto problem = attribute(key, *content, node, place)) return problem;
      ++place.in_attrs;
    }
    return {};
  }

  Problem attribute(std::string_view key, JsonValue value, Node& node,
                    const AttributePlace& place) {
    const auto integer = [&](auto& out) -> Problem {
      if (to_integer(value, out)) return {};
      return expected("an integer", value, place.pointer(key));
    };
    const auto text = [&](NameId& out) -> Problem {
      std::string_view string;
      if (value.get(string) != simdjson::SUCCESS) {
        return expected("a string", value, place.pointer(key));
      }
      out = graph_.names.intern(string);
      return {};
    };
    if (equals(key, "rf_id")) return integer(node.rf_id);
    if (equals(key, "fw_parent")) return integer(node.fw_parent);
    if (equals(key, "seq_id")) {
      if (auto problem = integer(node.seq_id)) return problem;
      if (node.seq_id <= kMostAutogradNumber) return {};
      return FieldError{place.pointer(key),
                        fmt::format("expected an integer of at most {}, found {}",
                                    kMostAutogradNumber, node.seq_id)};
    }
    if (equals(key, "tid")) return integer(node.thread);
    if (equals(key, "fw_tid")) return integer(node.fw_thread);
    if (equals(key, "op_schema")) return text(node.op_schema);
    if (equals(key, "kernel_backend")) return text(node.kernel_backend);
    if (equals(key, "kernel_file")) return text(node.kernel_file);
    if (equals(key, "kernel_time_us") || equals(key, "kernel_time_scale") ||
        equals(key, "index_zipf_exponent")) {
      return rewritten(key, node, value, place);
    }
    if (equals(key, "scope")) {
      int number = 0;
      auto problem = integer(number);
      node.scope = number == 0   ? Scope::kFunction
                   : number == 1 ? Scope::kBackward
                   : number == 7 ? Scope::kUser
                                 : Scope::kOther;
      return problem;
    }
    return comm_attribute(key, value);
  }

  // Reads the keys that rewrites add to a node.
  Problem rewritten(std::string_view key, Node& node, JsonValue value,
                    const AttributePlace& place) {
    struct Bounded {
      double& number;
      double most;
    };
    const Bounded at =
        equals(key, "kernel_time_us")      ? Bounded{node.kernel_time_us, kMostKernelTimeUs}
        : equals(key, "kernel_time_scale") ? Bounded{node.kernel_time_scale, kMostKernelTimeScale}
                                           : Bounded{node.index_zipf_exponent, kMostZipfExponent};
    if (value.get(at.number) == simdjson::SUCCESS && at.number >= 0 && at.number <= at.most) {
      return {};
    }
    return expected(fmt::format("a number from 0 to {}", at.most), value, place.pointer(key));
  }

  // Communication attributes exist from schema 1.1.0 on; numbers of odd types are no reason to
  // fail.
  Problem comm_attribute(std::string_view key, JsonValue value) {
    std::string_view string;
    if (equals(key, "collective_name") && value.get(string) == simdjson::SUCCESS) {
      comm_.collective = string;
      has_comm_ = true;
    } else if (equals(key, "pg_name") && value.get(string) == simdjson::SUCCESS) {
      comm_.process_group = string;
    } else if (equals(key, "pg_size")) {
      to_integer(value, comm_.group_size);
    }
    return {};
  }

  struct Block {
    std::optional<JsonArray> values, shapes, types, strides;
  };

  // A run of values with its cursor through the leaf types.
  struct Leaves {
    const std::vector<Leaf>* types;
    std::size_t next = 0;
    Leaf take() { return next < types->size() ? (*types)[next++] : Leaf(); }
  };

  const std::vector<Leaf>& types_of(std::string_view type) {
    auto known = type_cache_.find(type);
    if (known == type_cache_.end()) {
      const std::string_view stored = graph_.names.text(graph_.names.intern(type));
      known = type_cache_.emplace(stored, leaf_types(stored)).first;
    }
    return known->second;
  }

  // Gives the elements of a list one by one, and nothing once they end or if there is no list.
  class Elements {
   public:
    explicit Elements(const std::optional<JsonArray>& list)
        : at_(list.value_or(JsonArray()).begin()), end_(list.value_or(JsonArray()).end()) {}
    explicit Elements(const std::optional<JsonValue>& list) : Elements(array_of(list)) {}
    std::optional<JsonValue> next() {
      if (!(at_ != end_)) return {};
      const JsonValue value = *at_;
      ++at_;
      return value;
    }

   private:
    static std::optional<JsonArray> array_of(const std::optional<JsonValue>& value) {
      JsonArray array;
      if (!value || value->get(array) != simdjson::SUCCESS) return {};
      return array;
    }
    JsonArray::Iterator at_, end_;
  };

  Problem arguments(const Block& block, std::string_view side, std::uint32_t& begin,
                    std::uint32_t& count) {
    if (!block.values) return {};
    const std::size_t size = block.values->size();
    begin = static_cast<std::uint32_t>(graph_.arguments.size());
    count = static_cast<std::uint32_t>(size);
    graph_.arguments.resize(graph_.arguments.size() + size);
    Elements shapes(block.shapes), types(block.types), strides(block.strides);
    std::size_t i = 0;
    for (JsonValue value : *block.values) {
      std::string_view type;
      const auto type_text = types.next();
      if (type_text && type_text->get(type) != simdjson::SUCCESS) {
        return expected("a string", *type_text, fmt::format("/{}/types/{}", side, i));
      }
      const Extents extents = {shapes.next(), strides.next()};
      if (extents.shape && !extents.shape->is_array()) {
        return expected("an array", *extents.shape, fmt::format("/{}/shapes/{}", side, i));
      }
      Leaves leaves{.types = &types_of(type)};
      const bool list = type.find('[') != std::string_view::npos;
      argument(value, extents, leaves, list, begin + static_cast<std::uint32_t>(i));
      ++i;
    }
    return {};
  }

  // Extents of a tensor, or lists with the extents of a list's elements.
  struct Extents {
    std::optional<JsonValue> shape, strides;
  };

  void argument(JsonValue value, const Extents& extents, Leaves& leaves, bool list,
                std::uint32_t slot) {
    Argument made;
    JsonArray array;
    std::string_view text;
    if (value.get(array) == simdjson::SUCCESS) {
      if (is_tensor(array, leaves)) {
        made.kind = Argument::Kind::kTensor;
        made.index = tensor(array, extents, leaves.take().dtype);
      } else {
        made = list_argument(array, extents, leaves);
      }
    } else if (value.get(text) == simdjson::SUCCESS) {
      const std::string_view type =
          list || leaves.next < leaves.types->size() ? leaves.take().type : "";
      if (equals(text, "<None>") && !equals(type, "String")) {
        made.kind = Argument::Kind::kNone;
      } else if (equals(type, "Double") || equals(type, "Float")) {  // "inf", "nan"
        made.kind = Argument::Kind::kDouble;
        made.real = equals(text, "-inf")  ? -std::numeric_limits<double>::infinity()
                    : equals(text, "inf") ? std::numeric_limits<double>::infinity()
                                          : std::numeric_limits<double>::quiet_NaN();
      } else {
        made.kind = equals(type, "String") || type.empty() ? Argument::Kind::kString
                                                           : Argument::Kind::kOpaque;
        made.index = graph_.names.intern(text);
      }
    } else {
      leaves.take();
      bool flag = false;
      if (value.get(flag) == simdjson::SUCCESS) {
        made.kind = Argument::Kind::kBool;
        made.integer = flag;
      } else if (to_integer(value, made.integer)) {
        made.kind = Argument::Kind::kInt;
        made.real = static_cast<double>(made.integer);
      } else if (value.get(made.real) == simdjson::SUCCESS) {
        made.kind = Argument::Kind::kDouble;
      }
    }
    graph_.arguments[slot] = made;
  }

  // A tensor is [id, storage, offset, numel, itemsize(, device)]; only its type tells it from a
  // list of five integers.
  static bool is_tensor(JsonArray array, const Leaves& leaves) {
    if (leaves.next >= leaves.types->size()) return false;
    if (!(*leaves.types)[leaves.next].type.starts_with("Tensor")) return false;
    if (array.size() < 5) return false;
    return array.begin() != array.end() && !(*array.begin()).is_array();
  }

  bool reads_channels_last(const Tensor& tensor, const std::optional<JsonValue>& recorded) const {
    if (tensor.rank < 4) return false;
    std::vector<std::int64_t> strides;
    Elements parts(recorded);
    while (const auto part = parts.next()) {
      if (!to_integer(*part, strides.emplace_back())) return false;
    }
    return lie_channels_last(graph_.shape(tensor), strides);
  }

  std::uint32_t tensor(JsonArray array, const Extents& extents, DType dtype) {
    Tensor made{.dtype = dtype};
    std::size_t field = 0;
    for (JsonValue part : array) {
      switch (field++) {
        case 0: to_integer(part, made.id); break;
        case 1: to_integer(part, made.storage_id); break;
        case 2: to_integer(part, made.offset); break;
        case 3: to_integer(part, made.numel); break;
        case 4: to_integer(part, made.item_size); break;
        case 5: {
          std::string_view device;
          if (part.get(device) == simdjson::SUCCESS) made.device = parse_device(device);
          break;
        }
        default: break;
      }
    }
    bool odd = made.numel < 0 || made.numel > kMostTensorElements || made.offset < 0 ||
               made.offset > kMostTensorElements - made.numel || made.item_size < 0 ||
               made.item_size > kMostItemBytes;
    made.shape_begin = static_cast<std::uint32_t>(graph_.shape_pool.size());
    JsonArray sizes;
    std::int64_t elements = 1;  // were none of the sizes 0
    if (extents.shape && extents.shape->get(sizes) == simdjson::SUCCESS) {
      for (JsonValue size : sizes) {
        std::int64_t extent = 0;
        if (made.rank == kMostDimensions || !to_integer(size, extent)) break;
        graph_.shape_pool.push_back(extent);
        ++made.rank;
        odd = odd || extent < 0 || extent > kMostTensorElements / elements;
        if (!odd && extent > 0) elements *= extent;
      }
    }
    if (odd) {
      made.offset = made.numel = made.item_size = 0;
      std::fill(graph_.shape_pool.begin() + made.shape_begin, graph_.shape_pool.end(), 0);
      ++odd_sizes_;
    }
    made.is_channels_last = reads_channels_last(made, extents.strides);
    graph_.tensors.push_back(made);
    return static_cast<std::uint32_t>(graph_.tensors.size() - 1);
  }

  Argument list_argument(JsonArray array, const Extents& extents, Leaves& leaves) {
    Argument list{.kind = Argument::Kind::kList};
    const std::size_t size = array.size();
    list.index = static_cast<std::uint32_t>(graph_.arguments.size());
    list.count = static_cast<std::uint32_t>(size);
    graph_.arguments.resize(graph_.arguments.size() + size);
    Elements shapes(extents.shape), strides(extents.strides);
    std::size_t i = 0;
    for (JsonValue value : array) {
      const Extents inner = {shapes.next(), strides.next()};
      argument(value, inner, leaves, true, list.index + static_cast<std::uint32_t>(i));
      ++i;
    }
    return list;
  }

  // record_param_comms arguments by position: [tensors,] sequence, group, rank, collective,
  // in splits, out splits, ...; "wait" and "init" records have no tensors in front.
  void comm_record(Node& node) {
    const auto inputs = graph_.inputs(node);
    std::size_t at = 0;
    while (at < inputs.size() && inputs[at].kind != Argument::Kind::kInt) ++at;
    if (at < inputs.size()) comm_.sequence = inputs[at].integer;
    if (at + 1 < inputs.size() && comm_.process_group.empty()) {
      const Argument& group = inputs[at + 1];
      if (group.kind == Argument::Kind::kInt) {
        comm_.process_group = std::to_string(group.integer);
      } else if (group.kind == Argument::Kind::kList && group.count > 0) {
        const Argument& name = graph_.elements(group)[0];
        if (name.kind == Argument::Kind::kString) {
          comm_.process_group = graph_.names.text(name.index);
        }
      }
    }
    if (at + 3 < inputs.size() && inputs[at + 3].kind == Argument::Kind::kString &&
        comm_.collective.empty()) {
      comm_.collective = graph_.names.text(inputs[at + 3].index);
    }
    splits(inputs, at + 4, comm_.in_splits);
    splits(inputs, at + 5, comm_.out_splits);
    if (comm_.group_size == 0 && at + 8 < inputs.size() &&
        inputs[at + 8].kind == Argument::Kind::kInt) {
      comm_.group_size = inputs[at + 8].integer;
    }
    if (comm_.group_size == 0) {
      comm_.group_size = static_cast<std::int64_t>(comm_.in_splits.size());
    }
    node.comm = static_cast<std::int32_t>(graph_.comm_records.size());
    graph_.comm_records.push_back(comm_);
  }

  void splits(std::span<const Argument> inputs, std::size_t at, std::vector<std::int64_t>& out) {
    if (at >= inputs.size() || inputs[at].kind != Argument::Kind::kList) return;
    for (const Argument& size : graph_.elements(inputs[at])) out.push_back(size.integer);
  }

  // The one string argument is itself JSON or Python: [{pg_name, pg_desc, backend_config, ranks,
  // group_size}], or one such entry.
  void process_groups(const Node& node) {
    for (const Argument& argument : graph_.inputs(node)) {
      if (argument.kind != Argument::Kind::kString) continue;
      dom::parser inner;
      dom::element groups;
      if (checked(inner.parse(json_of_python(graph_.names.text(argument.index))).get(groups))) {
        graph_.warnings.emplace_back(
            "the process_group:init text is neither JSON nor Python; groups unknown");
        continue;
      }
      dom::array list;
      if (groups.get(list) == simdjson::SUCCESS) {
        for (dom::element entry : list) process_group(entry);
      } else {
        process_group(groups);
      }
    }
  }

  void process_group(dom::element entry) {
    if (!entry.is_object()) return;
    ProcessGroup group;
    std::string_view string;
    dom::element number;
    if (entry["pg_name"].get(string) == simdjson::SUCCESS) group.name = string;
    if (entry["pg_desc"].get(string) == simdjson::SUCCESS) group.description = string;
    if (entry["backend_config"].get(string) == simdjson::SUCCESS) group.backend = string;
    if (entry["group_size"].get(number) == simdjson::SUCCESS) to_integer(number, group.size);
    dom::array ranks;
    if (entry["ranks"].get(ranks) == simdjson::SUCCESS) {
      for (dom::element rank : ranks) {
        std::int64_t value = 0;
        if (to_integer(rank, value)) group.ranks.push_back(value);
      }
    }
    graph_.process_groups.push_back(std::move(group));
  }

  ExecutionGraph& graph_;
  ReadLimits limits_;
  bool salvage_;
  std::uint64_t name_bytes_ = 0;
  std::size_t counted_names_ = 0;
  std::size_t odd_sizes_ = 0;
  dom::parser parser_;  // reads the head
  JsonTree tree_;
  Block values_[2];
  CommRecord comm_;
  bool has_comm_ = false;
  JsonKind kind_;
  std::unordered_map<std::string_view, std::vector<Leaf>> type_cache_;
};

Result<ExecutionGraph> read_all(JsonStream stream, const std::filesystem::path& file,
                                const ReadOptions& options) {
  ExecutionGraph graph;
  graph.source = file.string();
  ExecutionGraphReader reader(graph, options);
  bool has_trace_events = false;
  for (;;) {
    growth_point(graph.nodes.size());
    const auto item = stream.next();
    if (!item && reader.kind().is_sequence()) break;
    if (!item) return Unexpected{item.error()};
    if (*item == JsonStream::Item::kEnd) break;
    if (*item == JsonStream::Item::kMember) {
      has_trace_events |= stream.member_key() == "traceEvents";
      if (!options.salvage && !has_trace_events) {
        if (auto good = stream.check_member(JsonManner::kStrict); !good)
          return Unexpected{good.error()};
      }
      reader.head_member(stream.member_key(), stream.member_text());
    } else if (!reader.is_of_nodes(stream)) {
      return format_error(file, "", "expected an execution graph" + reader.kind().found());
    } else if (auto read = reader.piece(stream); !read) {
      if (read.error().file.empty()) read.error().file = file;
      return Unexpected{std::move(read.error())};
    }
    if (has_trace_events) break;
  }
  if (has_trace_events || !stream.array_seen()) {
    const std::string found = reader.kind().found();
    return format_error(file, reader.kind().is_trace() ? "/traceEvents" : "",
                        found.empty() ? "expected key \"nodes\", found none"
                                      : "expected an execution graph" + found);
  }
  if (graph.nodes.empty()) {
    const std::string lost = stream.salvage_log().first_place();
    return format_error(file, "/nodes",
                        "expected nodes, found none" + (lost.empty() ? lost : "; " + lost));
  }
  if (stream.cut_off()) {
    graph.warnings.push_back(stream.cut_text(graph.nodes.size(), "nodes"));
  }
  stream.salvage_log().report("nodes", graph.warnings);
  number_nodes_without_id(graph);
  if (options.salvage) drop_repeated_ids(graph);
  if (auto unique = check_ids(graph, file); !unique) return Unexpected{unique.error()};
  const bool salvaged = stream.cut_off() || stream.salvage_log().dropped > 0;
  reader.report_sizes();
  reader.mask();
  index_graph(graph);
  if (auto sound = check_structure(graph, file, options.limits.depth, salvaged); !sound) {
    return Unexpected{sound.error()};
  }
  warn_of_missing_kernels(graph);
  return graph;
}

Result<ExecutionGraph> read_within_budget(JsonStream stream, const std::filesystem::path& file,
                                          const ReadOptions& options) {
  auto graph = within_budget([&] { return read_all(std::move(stream), file, options); });
  if (!graph && graph.error().file.empty()) graph.error().file = file;
  return graph;
}

}  // namespace

Result<ExecutionGraph> read_execution_graph(const std::filesystem::path& file,
                                            const ReadOptions& options) {
  PERFMODEL_TRY(stream, JsonStream::open(file, "nodes", options));
  return read_within_budget(std::move(*stream), file, options);
}

Result<ExecutionGraph> parse_execution_graph(std::string_view text, std::string_view name,
                                             const ReadOptions& options) {
  const std::filesystem::path file(name);
  return read_within_budget(JsonStream::over(text, file, "nodes", options), file, options);
}

}  // namespace perfmodel
