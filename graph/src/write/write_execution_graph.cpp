#include "perfmodel/graph/write_execution_graph.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <span>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/stop_point.hpp"
#include "ops/catalogue.hpp"

namespace perfmodel {
namespace {

constexpr std::string_view kSchema = "1.1.1-chakra.0.0.4";

std::string_view torch_name(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return "double";
    case DType::kFloat32: return "float";
    case DType::kFloat16: return "c10::Half";
    case DType::kBFloat16: return "c10::BFloat16";
    case DType::kFloat8: return "c10::Float8_e4m3fn";
    case DType::kFloat4: return "c10::Float4_e2m1fn_x2";
    case DType::kInt64: return "long";
    case DType::kInt32: return "int";
    case DType::kInt16: return "short";
    case DType::kInt8: return "signed char";
    case DType::kUInt8: return "unsigned char";
    case DType::kBool: return "bool";
    case DType::kComplex64: return "c10::complex<float>";
    case DType::kComplex128: return "c10::complex<double>";
    case DType::kUnknown: break;
  }
  return "unknown";
}

std::string_view opaque_type(std::string_view text) {
  if (text == "<Storage>") return "Storage";
  if (text == "<Stream>") return "Stream";
  if (text == "<Generator>") return "Generator";
  if (text.starts_with("<")) return "Object";
  return "Device";  // "cuda:0", "cpu"
}

// Strides of the tensors that `aten::as_strided` made, by all that identifies a tensor reference.
class StrideTable {
 public:
  explicit StrideTable(const ExecutionGraph& graph) : graph_(graph) {
    for (const Node& node : graph.nodes) {
      if (gives_strides(graph.name(node))) note(node);
    }
  }

  // Appends "1,16" into `text`.
  void append(std::string& text, const Tensor& tensor) const {
    const auto shape = graph_.shape(tensor);
    if (const auto known = strides_.find(key(tensor)); known != strides_.end()) {
      for (std::size_t i = 0; i < known->second.size(); ++i) {
        fmt::format_to(std::back_inserter(text), "{}{}", i ? "," : "", known->second[i]);
      }
      return;
    }
    std::int64_t stride = 1;
    for (std::int64_t size : shape) stride *= std::max<std::int64_t>(size, 1);
    if (tensor.is_channels_last) {
      const std::int64_t image = stride / std::max<std::int64_t>(shape[0], 1);
      fmt::format_to(std::back_inserter(text), "{},1", image);
      stride = image;
      for (std::size_t i = 2; i < shape.size(); ++i) {
        stride /= std::max<std::int64_t>(shape[i], 1);
        fmt::format_to(std::back_inserter(text), ",{}", stride);
      }
      return;
    }
    for (std::size_t i = 0; i < shape.size(); ++i) {
      stride /= std::max<std::int64_t>(shape[i], 1);
      fmt::format_to(std::back_inserter(text), "{}{}", i ? "," : "", stride);
    }
  }

 private:
  void note(const Node& node) {
    const auto inputs = graph_.inputs(node), outputs = graph_.outputs(node);
    if (inputs.size() < 3 || outputs.empty() || inputs[2].kind != Argument::Kind::kList ||
        outputs[0].kind != Argument::Kind::kTensor) {
      return;
    }
    const Tensor& made = graph_.tensors[outputs[0].index];
    if (inputs[2].count != made.rank) return;
    std::vector<std::int64_t> strides;
    for (const Argument& stride : graph_.elements(inputs[2])) strides.push_back(stride.integer);
    strides_[key(made)] = std::move(strides);
  }

  std::uint64_t key(const Tensor& tensor) const {
    std::uint64_t hash = hash_mix(static_cast<std::uint64_t>(tensor.id),
                                  static_cast<std::uint64_t>(tensor.storage_id));
    hash = hash_mix(hash, static_cast<std::uint64_t>(tensor.offset));
    for (std::int64_t size : graph_.shape(tensor)) {
      hash = hash_mix(hash, static_cast<std::uint64_t>(size));
    }
    return hash;
  }

  const ExecutionGraph& graph_;
  std::unordered_map<std::uint64_t, std::vector<std::int64_t>> strides_;
};

// Takes the text piece by piece.
using Sink = std::function<void(std::string_view)>;

class ExecutionGraphWriter {
 public:
  ExecutionGraphWriter(const ExecutionGraph& graph, Sink sink)
      : graph_(graph), strides_(graph), sink_(std::move(sink)) {}

  void write(const WriteOptions& options) {
    format(
        "{{\n  \"schema\": \"{}\", \"pid\": {}, \"time\": \"1970-01-01 00:00:00\", "
        "\"start_ts\": 0,\n",
        is_from_trace(graph_) ? std::string_view(graph_.schema) : kSchema, graph_.process_id);
    if (graph_.built) {
      text_ += "  \"built\": true, \"generator\": ";
      string(options.generator);
      text_ += ",\n";
    }
    if (graph_.allow_tf32) text_ += "  \"allow_tf32\": true,\n";
    if (!graph_.captured.empty()) format("  \"captured\": {},\n", graph_.captured);
    text_ += "  \"nodes\": [";
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      text_ += i == 0 ? "\n" : ",\n";
      node(graph_.nodes[i]);
      if (text_.size() <= kPieceSize) continue;
      flush();
      stop_point();
    }
    text_ += "\n  ],\n  \"finish_ts\": 0\n}\n";
    flush();
  }

 private:
  using Kind = Argument::Kind;
  static constexpr std::size_t kPieceSize = std::size_t{1} << 20;

  void flush() {
    sink_(text_);
    text_.clear();
  }

  template <class... Args>
  void format(fmt::format_string<Args...> pattern, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), pattern, std::forward<Args>(args)...);
  }

  void string(std::string_view value) {
    text_ += '"';
    for (const char c : value) {
      if (c == '"' || c == '\\') {
        text_ += '\\';
        text_ += c;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
      } else {
        text_ += c;
      }
    }
    text_ += '"';
  }

  // Shortest text that reads back as the same number and still looks like a double.
  void number(double value) {
    if (std::isnan(value)) {
      text_ += "\"nan\"";
    } else if (std::isinf(value)) {
      text_ += value > 0 ? "\"inf\"" : "\"-inf\"";
    } else {
      const std::string digits = fmt::format("{}", value);
      text_ += digits;
      if (digits.find_first_of(".e") == std::string::npos) text_ += ".0";
    }
  }

  void node(const Node& node) {
    format("    {{\n      \"id\": {}, \"name\": ", node.id);
    string(graph_.name(node));
    format(", \"ctrl_deps\": {},\n", node.parent_id);
    in_comm_record_ = graph_.name(node) == "record_param_comms";
    block("inputs", graph_.inputs(node));
    block("outputs", graph_.outputs(node));
    attributes(node);
    text_ += "\n    }";
  }

  void block(std::string_view key, std::span<const Argument> arguments) {
    format("      \"{}\": {{\"values\": [", key);
    separated(arguments, [this](const Argument& a) { value(a); });
    text_ += "], \"shapes\": [";
    separated(arguments, [this](const Argument& a) { shape(a); });
    text_ += "], \"types\": [";
    separated(arguments, [this](const Argument& a) {
      text_ += '"';
      type(a);
      text_ += '"';
    });
    text_ += "], \"strides\": [";
    separated(arguments, [this](const Argument& a) { stride(a); });
    text_ += "]},\n";
  }

  template <class Each>
  void separated(std::span<const Argument> arguments, Each each) {
    bool first = true;
    for (const Argument& argument : arguments) {
      if (!first) text_ += ',';
      first = false;
      each(argument);
    }
  }

  template <class Each>
  void bracketed(const Argument& list, Each each) {
    text_ += '[';
    separated(graph_.elements(list), each);
    text_ += ']';
  }

  void value(const Argument& argument) {
    switch (argument.kind) {
      case Kind::kNone: text_ += "\"<None>\""; break;
      case Kind::kTensor: tensor(graph_.tensors[argument.index]); break;
      case Kind::kInt: format("{}", argument.integer); break;
      case Kind::kDouble: number(argument.real); break;
      case Kind::kBool: text_ += argument.integer ? "true" : "false"; break;
      case Kind::kString: string(graph_.names.text(argument.index)); break;
      case Kind::kList: bracketed(argument, [this](const Argument& a) { value(a); }); break;
      case Kind::kOpaque: string(opaque(argument)); break;
    }
  }

  std::string_view opaque(const Argument& argument) const {
    return argument.index == 0 ? std::string_view("<Object>") : graph_.names.text(argument.index);
  }

  void tensor(const Tensor& tensor) {
    format("[{},{},{},{},{},\"", tensor.id, tensor.storage_id, tensor.offset, tensor.numel,
           tensor.item_size);
    switch (tensor.device.kind) {
      case Device::Kind::kNone: break;
      case Device::Kind::kCpu: text_ += "cpu"; break;
      case Device::Kind::kGpu: text_ += "cuda"; break;
      case Device::Kind::kOther: text_ += "other"; break;
      case Device::Kind::kMeta: text_ += "meta"; break;
    }
    if (tensor.device.index >= 0) format(":{}", tensor.device.index);
    text_ += "\"]";
  }

  void shape(const Argument& argument) {
    if (argument.kind == Kind::kList) {
      bracketed(argument, [this](const Argument& a) { shape(a); });
      return;
    }
    text_ += '[';
    if (argument.kind == Kind::kTensor) {
      const auto sizes = graph_.shape(graph_.tensors[argument.index]);
      for (std::size_t i = 0; i < sizes.size(); ++i) format("{}{}", i ? "," : "", sizes[i]);
    }
    text_ += ']';
  }

  void stride(const Argument& argument) {
    if (argument.kind == Kind::kList) {
      bracketed(argument, [this](const Argument& a) { stride(a); });
      return;
    }
    text_ += '[';
    if (argument.kind == Kind::kTensor) strides_.append(text_, graph_.tensors[argument.index]);
    text_ += ']';
  }

  void type(const Argument& argument) {
    switch (argument.kind) {
      case Kind::kNone: text_ += "None"; break;
      case Kind::kInt: text_ += "Int"; break;
      case Kind::kDouble: text_ += "Double"; break;
      case Kind::kBool: text_ += "Bool"; break;
      case Kind::kString: text_ += "String"; break;
      case Kind::kOpaque: text_ += opaque_type(opaque(argument)); break;
      case Kind::kTensor: {
        const Tensor& tensor = graph_.tensors[argument.index];
        const bool undefined = tensor.storage_id == 0 && tensor.dtype == DType::kUnknown;
        format("Tensor({})", undefined ? "nullptr (uninitialized)" : torch_name(tensor.dtype));
        break;
      }
      case Kind::kList:
        text_ += is_process_group(argument) ? "Tuple[" : "GenericList[";
        separated(graph_.elements(argument), [this](const Argument& a) { type(a); });
        text_ += ']';
        break;
    }
  }

  // The (name, description) pair of a record_param_comms node is its one tuple.
  bool is_process_group(const Argument& list) const {
    if (!in_comm_record_ || list.count != 2) return false;
    const auto parts = graph_.elements(list);
    return parts[0].kind == Kind::kString && parts[1].kind == Kind::kString;
  }

  template <class T>
  void attribute(std::string_view key, std::string_view type_name, T value) {
    format("{{\"name\": \"{}\", \"type\": \"{}\", \"value\": {}}}", key, type_name, value);
  }

  void text_attribute(std::string_view key, std::string_view value) {
    format("{{\"name\": \"{}\", \"type\": \"string\", \"value\": ", key);
    string(value);
    text_ += '}';
  }

  void attributes(const Node& node) {
    text_ += "      \"attrs\": [";
    attribute("rf_id", "uint64", node.rf_id);
    text_ += ',';
    attribute("fw_parent", "uint64", node.fw_parent);
    text_ += ',';
    attribute("seq_id", "int64", node.seq_id);
    text_ += ',';
    attribute("scope", "uint64", static_cast<int>(node.scope));
    text_ += ',';
    attribute("tid", "uint64", node.thread);
    text_ += ',';
    attribute("fw_tid", "uint64", node.fw_thread);
    text_ += ',';
    text_attribute("op_schema", graph_.names.text(node.op_schema));
    text_ += ',';
    text_attribute("kernel_backend", graph_.names.text(node.kernel_backend));
    text_ += ',';
    text_attribute("kernel_file", graph_.names.text(node.kernel_file));
    for (const auto& [key, value, unset] :
         {std::tuple("kernel_time_us", node.kernel_time_us, -1.0),
          std::tuple("kernel_time_scale", node.kernel_time_scale, 1.0),
          std::tuple("index_zipf_exponent", node.index_zipf_exponent, 0.0)}) {
      if (value == unset) continue;
      text_ += ',';
      attribute(key, "double", value);
    }
    if (node.comm >= 0) comm(graph_.comm_records[node.comm]);
    text_ += ']';
  }

  void comm(const CommRecord& record) {
    constexpr std::string_view kNext = ", \n  ";
    text_ += kNext;
    text_attribute("collective_name", record.collective);
    text_ += kNext;
    text_attribute("in_split_size", fmt::format("[{}]", fmt::join(record.in_splits, ",")));
    text_ += kNext;
    text_attribute("out_split_size", fmt::format("[{}]", fmt::join(record.out_splits, ",")));
    text_ += kNext;
    text_attribute("pg_name", record.process_group);
    text_ += kNext;
    attribute("pg_size", "uint64", record.group_size);
  }

  const ExecutionGraph& graph_;
  StrideTable strides_;
  Sink sink_;
  std::string text_;
  bool in_comm_record_ = false;
};

}  // namespace

std::string execution_graph_json(const ExecutionGraph& graph, const WriteOptions& options) {
  std::string text;
  ExecutionGraphWriter(graph, [&text](std::string_view piece) { text += piece; }).write(options);
  return text;
}

Result<OutputFile> write_unnamed_execution_graph(const ExecutionGraph& graph,
                                                 const std::filesystem::path& file,
                                                 const WriteOptions& options) {
  auto out = OutputFile::create(file);
  if (!out) return out;
  ExecutionGraphWriter(graph, [&out](std::string_view piece) { out->write(piece); }).write(options);
  if (auto finished = out->finish(); !finished) return Unexpected{finished.error()};
  return out;
}

Result<void> write_execution_graph(const ExecutionGraph& graph, const std::filesystem::path& file,
                                   const WriteOptions& options) {
  PERFMODEL_TRY(out, write_unnamed_execution_graph(graph, file, options));
  return out->commit();
}

}  // namespace perfmodel
