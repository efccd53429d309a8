#include "recorded_arguments.hpp"

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "ops/rows.hpp"

namespace perfmodel {
namespace {

constexpr std::size_t kMostRank = 64;
constexpr std::int64_t kMostRecordedElements = std::int64_t{1} << 48;

std::vector<std::int64_t> extents_of(simdjson::dom::array dims, bool& odd) {
  std::vector<std::int64_t> shape;
  std::int64_t elements = 1;
  for (simdjson::dom::element part : dims) {
    std::int64_t extent = 0;
    if (part.get(extent) != simdjson::SUCCESS || extent < 0 || shape.size() == kMostRank ||
        (extent > 0 && elements > kMostRecordedElements / extent)) {
      odd = true;
      return {};
    }
    elements *= std::max<std::int64_t>(1, extent);
    shape.push_back(extent);
  }
  return shape;
}

bool holds_lists(simdjson::dom::array dims) {
  for (simdjson::dom::element part : dims) return part.is_array();
  return false;
}

// "2", "0.5", "True", "[1, 2]", "" as `Concrete Inputs` writes values.
RecordedArgument value_of(std::string_view text) {
  RecordedArgument made{.kind = Argument::Kind::kNone};
  const char* const end = text.data() + text.size();
  if (text == "True" || text == "False") {
    made.kind = Argument::Kind::kBool;
    made.integer = text == "True";
    return made;
  }
  if (text.starts_with('[')) {
    made.kind = Argument::Kind::kList;
    text.remove_prefix(1);
    while (!text.empty() && text.back() != ']') text.remove_suffix(1);
    while (!text.empty()) {
      const std::size_t comma = std::min(text.find_first_of(",]"), text.size());
      std::string_view item = text.substr(0, comma);
      while (item.starts_with(' ')) item.remove_prefix(1);
      if (!item.empty()) made.elements.push_back(value_of(item));
      text.remove_prefix(std::min(comma + 1, text.size()));
    }
    return made;
  }
  if (const auto [at, error] = std::from_chars(text.data(), end, made.integer);
      error == std::errc() && at == end) {
    made.kind = Argument::Kind::kInt;
    made.real = static_cast<double>(made.integer);
    return made;
  }
  if (const auto [at, error] = std::from_chars(text.data(), end, made.real);
      error == std::errc() && at == end) {
    made.kind = Argument::Kind::kDouble;
    return made;
  }
  if (!text.empty()) {
    made.kind = Argument::Kind::kString;
    made.text = text;
  }
  return made;
}

// Takes the texts of one call apart.
class CallReader {
 public:
  CallReader(const StringPool& names, std::size_t& odd) : names_(names), odd_(odd) {}

  std::vector<RecordedArgument> read(const OpArguments& recorded) {
    std::vector<RecordedArgument> made;
    simdjson::dom::parser dims_parser, types_parser, values_parser, strides_parser;
    simdjson::dom::array dims, types, values, strides;
    if (!parsed(dims_parser, recorded.dims, dims)) {
      ++odd_;
      return made;
    }
    const std::vector<std::string_view> type_names = texts(types_parser, recorded.types, types);
    const std::vector<std::string_view> value_texts =
        texts(values_parser, recorded.concrete, values);
    const auto at = [](const std::vector<std::string_view>& list, std::size_t i) {
      return i < list.size() ? list[i] : std::string_view();
    };
    std::size_t i = 0;
    for (simdjson::dom::element entry : dims) {
      made.push_back(argument(entry, at(type_names, i), at(value_texts, i)));
      ++i;
    }
    i = 0;
    if (parsed(strides_parser, recorded.strides, strides)) {
      for (simdjson::dom::element entry : strides) {
        if (i < made.size()) {
          made[i].is_channels_last = lie_channels_last(made[i].shape, integers(entry));
        }
        ++i;
      }
    }
    type_lists(made);
    return made;
  }

 private:
  bool parsed(simdjson::dom::parser& parser, NameId id, simdjson::dom::array& out) const {
    const std::string text(names_.text(id));
    return !text.empty() && parser.parse(text).get(out) == simdjson::SUCCESS;
  }

  static std::vector<std::int64_t> integers(simdjson::dom::element entry) {
    std::vector<std::int64_t> made;
    simdjson::dom::array list;
    if (entry.get(list) != simdjson::SUCCESS) return made;
    for (simdjson::dom::element part : list) {
      if (part.get(made.emplace_back()) != simdjson::SUCCESS) return {};
    }
    return made;
  }

  std::vector<std::string_view> texts(simdjson::dom::parser& parser, NameId id,
                                      simdjson::dom::array& array) const {
    std::vector<std::string_view> made;
    if (!parsed(parser, id, array)) return made;
    for (simdjson::dom::element part : array) {
      std::string_view text;
      if (part.get(text) != simdjson::SUCCESS) text = {};
      made.push_back(text);
    }
    return made;
  }

  RecordedArgument argument(simdjson::dom::element entry, std::string_view type,
                            std::string_view value) {
    simdjson::dom::array dims;
    if (entry.get(dims) != simdjson::SUCCESS) return {};
    RecordedArgument made;
    if (holds_lists(dims)) {
      made.kind = Argument::Kind::kList;
      for (simdjson::dom::element part : dims) {
        made.elements.push_back(argument(part, "TensorList", ""));
      }
      return made;
    }
    const DType dtype = parse_dtype(type);
    const bool of_list = type == "TensorList" || type.starts_with("GenericList[Tensor");
    if (dtype == DType::kUnknown && !(of_list && dims.size() > 0)) {
      // A value, or a list of tensors whose shapes an old trace leaves out.
      return of_list || type.empty() ? value_of(value)
             : value.empty()         ? RecordedArgument{}
                                     : value_of(value);
    }
    bool odd = false;
    made.kind = Argument::Kind::kTensor;
    made.dtype = dtype;
    made.shape = extents_of(dims, odd);
    odd_ += odd;
    return made;
  }

  // Lists of tensors come without types: they get the type of the op's other floats, else fp32.
  static void type_lists(std::vector<RecordedArgument>& arguments) {
    DType dtype = DType::kFloat32;
    for (const RecordedArgument& argument : arguments) {
      if (argument.kind == Argument::Kind::kTensor && is_floating_point(argument.dtype) &&
          !argument.shape.empty()) {
        dtype = argument.dtype;
        break;
      }
    }
    for (RecordedArgument& argument : arguments) {
      for (RecordedArgument& element : argument.elements) {
        if (element.kind == Argument::Kind::kTensor && element.dtype == DType::kUnknown) {
          element.dtype = dtype;
        }
      }
    }
  }

  const StringPool& names_;
  std::size_t& odd_;
};

// Commas of the parameter list, defaults in brackets aside, plus one.
std::size_t parameter_count(std::string_view schema) {
  const std::size_t open = schema.find('('), close = schema.find(") ->");
  if (open == schema.npos || close == schema.npos || close == open + 1) return 0;
  std::size_t count = 1, depth = 0;
  bool star = false;
  for (const char c : schema.substr(open + 1, close - open - 1)) {
    depth += c == '[' || c == '(';
    depth -= c == ']' || c == ')';
    count += c == ',' && depth == 0;
    star |= c == '*';
  }
  return count - star;
}

struct CountedSchema {
  std::string_view text;
  std::size_t parameters = 0;
};

// By the name of their op without overload.
const std::unordered_multimap<std::string_view, CountedSchema>& schemas_by_op() {
  static const auto kTable = [] {
    std::unordered_multimap<std::string_view, CountedSchema> table;
    for (const OpRow& row : op_rows()) {
      if (row.schema.empty()) continue;
      table.emplace(row.name.substr(0, row.name.find('.')),
                    CountedSchema{row.schema, parameter_count(row.schema)});
    }
    return table;
  }();
  return kTable;
}

std::uint32_t add_recorded_tensor(ExecutionGraph& graph, const RecordedArgument& recorded,
                                  bool on_gpu) {
  const auto id = static_cast<std::int64_t>(graph.tensors.size()) + 1;
  // Numbers that an op was called with are tensors of no extent on the host.
  const bool is_number = recorded.shape.empty() &&
                         (recorded.dtype == DType::kFloat64 || recorded.dtype == DType::kInt64);
  Tensor made{.id = id,
              .storage_id = id,
              .numel = 1,
              .item_size = size_in_bytes(recorded.dtype),
              .dtype = recorded.dtype,
              .device = on_gpu && !is_number ? Device{Device::Kind::kGpu, 0}
                                             : Device{Device::Kind::kCpu, -1},
              .shape_begin = static_cast<std::uint32_t>(graph.shape_pool.size()),
              .rank = static_cast<std::uint16_t>(recorded.shape.size()),
              .is_channels_last = recorded.is_channels_last};
  for (const std::int64_t extent : recorded.shape) {
    made.numel *= extent;
    graph.shape_pool.push_back(extent);
  }
  graph.tensors.push_back(made);
  return static_cast<std::uint32_t>(graph.tensors.size() - 1);
}

}  // namespace

const std::vector<RecordedArgument>& ArgumentParser::parse(std::int32_t index) {
  auto& made = by_index_[index];
  if (!made) {
    const OpArguments& recorded = trace_.arguments[index];
    made = CallReader(trace_.names, odd_).read(recorded);
  }
  return *made;
}

std::string_view schema_for(std::string_view op, std::size_t inputs) {
  const auto [begin, end] = schemas_by_op().equal_range(op);
  for (auto at = begin; at != end; ++at) {
    if (at->second.parameters == inputs) return at->second.text;
  }
  return {};
}

void place_argument(ExecutionGraph& graph, const RecordedArgument& recorded, bool on_gpu,
                    std::uint32_t slot) {
  Argument argument{.kind = recorded.kind, .integer = recorded.integer, .real = recorded.real};
  if (recorded.kind == Argument::Kind::kTensor) {
    argument.index = add_recorded_tensor(graph, recorded, on_gpu);
  } else if (recorded.kind == Argument::Kind::kString) {
    argument.index = graph.names.intern(recorded.text);
  } else if (recorded.kind == Argument::Kind::kList) {
    argument.index = static_cast<std::uint32_t>(graph.arguments.size());
    argument.count = static_cast<std::uint32_t>(recorded.elements.size());
    graph.arguments.resize(graph.arguments.size() + recorded.elements.size());
    for (std::size_t i = 0; i < recorded.elements.size(); ++i) {
      place_argument(graph, recorded.elements[i], on_gpu,
                     argument.index + static_cast<std::uint32_t>(i));
    }
  }
  graph.arguments[slot] = argument;
}

}  // namespace perfmodel
