#include "perfmodel/graph/graph_from_trace.hpp"

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "ops/schemas.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/detail/trace_ops.hpp"

namespace perfmodel {
namespace {

constexpr std::string_view kTraceSchema = "kineto";
constexpr std::size_t kMostRank = 64;
constexpr std::int64_t kMostElements = std::int64_t{1} << 48;

// One input of an op as the trace has it, before it is known where its tensors live.
struct RecordedArgument {
  Argument::Kind kind = Argument::Kind::kOpaque;
  DType dtype = DType::kUnknown;
  std::vector<std::int64_t> shape;  // of a tensor
  std::int64_t integer = 0;
  double real = 0;
  std::string text;
  std::vector<RecordedArgument> elements;  // of a list
};

std::vector<std::int64_t> extents_of(simdjson::dom::array dims, bool& odd) {
  std::vector<std::int64_t> shape;
  std::int64_t elements = 1;
  for (simdjson::dom::element part : dims) {
    std::int64_t extent = 0;
    if (part.get(extent) != simdjson::SUCCESS || extent < 0 || shape.size() == kMostRank ||
        (extent > 0 && elements > kMostElements / extent)) {
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

// Takes the recorded texts of one kind of call apart.
class ArgumentParser {
 public:
  explicit ArgumentParser(const Trace& trace) : trace_(trace), by_index_(trace.arguments.size()) {}

  const std::vector<RecordedArgument>& parse(std::int32_t index) {
    auto& made = by_index_[static_cast<std::size_t>(index)];
    if (!made) made = read(trace_.arguments[static_cast<std::size_t>(index)]);
    return *made;
  }
  std::size_t odd() const { return odd_; }

 private:
  std::vector<RecordedArgument> read(const OpArguments& recorded) {
    std::vector<RecordedArgument> made;
    simdjson::dom::parser dims_parser, types_parser, values_parser;
    simdjson::dom::array dims, types, values;
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
    type_lists(made);
    return made;
  }

  bool parsed(simdjson::dom::parser& parser, NameId id, simdjson::dom::array& out) const {
    const std::string text(trace_.names.text(id));
    return !text.empty() && parser.parse(text).get(out) == simdjson::SUCCESS;
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

  // Lists of tensors come without types: they have that of the op's other floats, else fp32.
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

  const Trace& trace_;
  std::vector<std::optional<std::vector<RecordedArgument>>> by_index_;
  std::size_t odd_ = 0;
};

// Schemas by the name of their op without overload.
const std::unordered_multimap<std::string_view, std::string_view>& schemas_by_op() {
  static const auto kTable = [] {
    std::unordered_multimap<std::string_view, std::string_view> table;
    for (const std::string_view schema : op_schemas()) {
      const std::string_view name = schema.substr(0, schema.find('('));
      table.emplace(name.substr(0, name.find('.')), schema);
    }
    return table;
  }();
  return kTable;
}

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

std::string_view schema_for(std::string_view op, std::size_t inputs) {
  const auto [begin, end] = schemas_by_op().equal_range(op);
  for (auto at = begin; at != end; ++at) {
    if (parameter_count(at->second) == inputs) return at->second;
  }
  return {};
}

enum class Side : std::uint8_t { kHost, kGpu, kUpload, kDownload };

class GraphMaker {
 public:
  explicit GraphMaker(const Trace& trace) : trace_(trace), parser_(trace) {}

  TraceGraph run() {
    ExecutionGraph& graph = made_.graph;
    graph.schema = kTraceSchema;
    graph.source = trace_.source;
    graph.warnings = trace_.warnings;
    needs_places_ = std::ranges::none_of(
        trace_.host, [](const HostEvent& event) { return event.record_function_id != 0; });
    number_threads();
    order_events();
    nest();
    find_sides();
    add_structure();
    add_nodes();
    infer_waits();
    index_graph(graph);
    // index_graph keeps the order of ids, in which nodes and events were made.
    if (parser_.odd() > 0) {
      graph.warnings.push_back(
          std::to_string(parser_.odd()) +
          " recorded shapes are no lists of extents, or of more elements than memory has: they "
          "count as empty");
    }
    return std::move(made_);
  }

 private:
  const HostEvent& host(std::int32_t event) const {
    return trace_.host[static_cast<std::size_t>(event)];
  }
  static bool is_node(const HostEvent& event) { return event.kind != HostKind::kCall; }

  // As PyTorch's observer numbers them: 1 the thread of the program, 2 that of autograd.
  void number_threads() {
    std::vector<std::size_t> nodes(trace_.threads.size(), 0);
    std::vector<bool> autograd(trace_.threads.size(), false), marked(trace_.threads.size(), false);
    for (const HostEvent& event : trace_.host) {
      if (!is_node(event) || event.thread < 0) continue;
      const auto thread = static_cast<std::size_t>(event.thread);
      ++nodes[thread];
      const std::string_view name = trace_.name(event);
      autograd[thread] = autograd[thread] || name.starts_with("autograd::engine");
      marked[thread] = marked[thread] || is_profiler_step(name) || name.starts_with("Optimizer.");
    }
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i] > 0) order.push_back(i);
    }
    const bool any_marked = std::ranges::find(marked, true) != marked.end();
    const auto rank = [&](std::size_t thread) {
      if (any_marked && marked[thread]) return 0;
      return autograd[thread] ? 1 : any_marked ? 2 : 0;
    };
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
      return rank(a) != rank(b) ? rank(a) < rank(b) : nodes[a] > nodes[b];
    });
    thread_number_.assign(nodes.size(), 0);
    for (std::size_t i = 0; i < order.size(); ++i) {
      thread_number_[order[i]] = static_cast<std::int32_t>(i) + 1;
    }
    threads_ = order.size();
  }

  // Start order of each thread; whole microseconds make ties, which the event index breaks.
  void order_events() {
    for (std::size_t i = 0; i < trace_.host.size(); ++i) {
      if (is_node(trace_.host[i]) && trace_.host[i].thread >= 0) {
        order_.push_back(static_cast<std::int32_t>(i));
      }
    }
    for (auto begin = order_.begin(); begin != order_.end();) {
      const HostEvent& first = host(*begin);
      auto end = begin;
      bool indexed = true;
      for (; end != order_.end() && host(*end).thread == first.thread &&
             host(*end).start_ns == first.start_ns;
           ++end) {
        indexed = indexed && host(*end).event_index >= 0;
      }
      if (indexed) {
        std::sort(begin, end, [&](std::int32_t a, std::int32_t b) {
          return host(a).event_index < host(b).event_index;
        });
      }
      begin = end;
    }
  }

  void nest() {
    parent_.assign(trace_.host.size(), -1);
    std::set<std::pair<NameId, NameId>> seen;
    for (const bool learn : {true, false}) {
      std::vector<std::int32_t> open;
      std::int32_t thread = -1;
      for (const std::int32_t event : order_) {
        const HostEvent& at = host(event);
        if (at.thread != thread) open.clear();
        thread = at.thread;
        while (!open.empty() && !holds(host(open.back()), at, seen)) open.pop_back();
        if (!open.empty()) {
          parent_[static_cast<std::size_t>(event)] = open.back();
          if (learn) seen.emplace(host(open.back()).name, at.name);
        }
        open.push_back(event);
      }
    }
    std::ranges::stable_sort(order_, {}, [&](std::int32_t event) { return host(event).start_ns; });
  }

  // Of an op that ends where another of no length stands the stamps do not tell; the names do where
  // such ops lie within each other elsewhere.
  static bool holds(const HostEvent& outer, const HostEvent& inner,
                    const std::set<std::pair<NameId, NameId>>& seen) {
    if (inner.start_ns < outer.end_ns()) return true;
    return inner.start_ns == outer.end_ns() && inner.duration_ns == 0 &&
           seen.contains({outer.name, inner.name});
  }

  // Where an op's tensors live: by the device work of the op and of those inside.
  void find_sides() {
    side_.assign(trace_.host.size(), Side::kHost);
    const TraceOps nesting = find_trace_ops(trace_);
    around_ = nesting.parent;
    for (const GpuEvent& event : trace_.gpu) {
      if (event.launch < 0) continue;
      Side side = Side::kGpu;
      if (event.kind == GpuKind::kCopy) {
        const std::string_view name = trace_.name(event);
        if (name.find("HtoD") != name.npos || name.find("HostToDevice") != name.npos) {
          side = Side::kUpload;
        } else if (name.find("DtoH") != name.npos || name.find("DeviceToHost") != name.npos) {
          side = Side::kDownload;
        }
      }
      for (std::int32_t op = nesting.parent[static_cast<std::size_t>(event.launch)]; op >= 0;
           op = parent_[static_cast<std::size_t>(op)]) {
        Side& known = side_[static_cast<std::size_t>(op)];
        if (known == Side::kHost || side == Side::kGpu) known = side;
        // A copy says nothing of the ops around those that copy.
        if (side != Side::kGpu && !copies(trace_.name(host(op)))) break;
      }
    }
  }

  static bool copies(std::string_view name) {
    constexpr std::string_view kNames[] = {"aten::copy_", "aten::_to_copy", "aten::to",
                                           "aten::item", "aten::_local_scalar_dense"};
    return std::ranges::find(kNames, name) != std::end(kNames);
  }

  void add_structure() {
    ExecutionGraph& graph = made_.graph;
    graph.nodes.push_back(
        {.id = 1,
         .parent_id = 1,
         .name = graph.names.intern("[pytorch|profiler|execution_trace|process]")});
    made_.event_of_node.push_back(-1);
    for (std::size_t i = 0; i < threads_; ++i) {
      graph.nodes.push_back(
          {.id = static_cast<std::int64_t>(i) + 2,
           .parent_id = 1,
           .name = graph.names.intern("[pytorch|profiler|execution_trace|thread]"),
           .thread = static_cast<std::int32_t>(i) + 1});
      made_.event_of_node.push_back(-1);
    }
    id_of_event_.assign(trace_.host.size(), 0);
  }

  // A trace without ProfilerStep labels gets them where its steps begin: at the ends of the
  // optimizer. What runs after the last whole step is left out.
  void add_nodes() {
    const bool marked = std::ranges::any_of(
        order_, [&](std::int32_t event) { return is_profiler_step(trace_.name(host(event))); });
    const std::vector<TraceIteration> steps =
        marked ? std::vector<TraceIteration>() : iterations(trace_);
    std::size_t next = 0;
    for (const std::int32_t event : order_) {
      for (; next < steps.size() && host(event).start_ns >= steps[next].begin_ns; ++next) {
        add_step(next);
      }
      if (!steps.empty() && host(event).start_ns >= steps.back().end_ns) break;
      add_node(event);
    }
  }

  // A node that is its own parent is no op and no event.
  void add_step(std::size_t number) {
    ExecutionGraph& graph = made_.graph;
    const auto id = static_cast<std::int64_t>(graph.nodes.size()) + 1;
    place_ = 0;
    graph.nodes.push_back({.id = id,
                           .parent_id = id,
                           .name = graph.names.intern("ProfilerStep#" + std::to_string(number)),
                           .thread = 1,
                           .scope = Scope::kUser});
    made_.event_of_node.push_back(-1);
  }

  void add_node(std::int32_t event) {
    ExecutionGraph& graph = made_.graph;
    const HostEvent& at = host(event);
    const std::string_view name = trace_.name(at);
    const std::int32_t parent = parent_[static_cast<std::size_t>(event)];
    const std::int32_t thread = thread_number_[static_cast<std::size_t>(at.thread)];
    Node node{.id = static_cast<std::int64_t>(graph.nodes.size()) + 1,
              .parent_id = parent >= 0 ? id_of_event_[static_cast<std::size_t>(parent)]
                                       : std::int64_t{thread} + 1,
              .name = graph.names.intern(name),
              .rf_id = needs_places_ ? place_in_step(name) : at.record_function_id,
              .seq_id = at.sequence,
              .thread = thread,
              .fw_thread = at.has_forward_thread ? 1 : 0};
    if (at.kind == HostKind::kAnnotation) {
      node.scope = Scope::kUser;
    } else {
      ++made_.ops;
      if (parent >= 0 && is_backward(trace_.name(host(parent)), name)) {
        node.scope = Scope::kBackward;
      }
      if (name.starts_with("autograd::engine::evaluate_function")) node.seq_id = -1;
    }
    id_of_event_[static_cast<std::size_t>(event)] = node.id;
    if (at.arguments >= 0 && at.kind == HostKind::kOp) {
      ++made_.ops_with_sizes;
      add_inputs(event, parser_.parse(at.arguments), node);
    }
    if (name == "record_param_comms") add_record(event, node);
    graph.nodes.push_back(node);
    made_.event_of_node.push_back(event);
  }

  // Without recorded ids, the place within the step tells ops of one name and shape apart.
  std::int64_t place_in_step(std::string_view name) {
    if (is_profiler_step(name)) place_ = 0;
    return ++place_;
  }

  static bool is_backward(std::string_view outer, std::string_view name) {
    constexpr std::string_view kEngine = "autograd::engine::evaluate_function: ";
    return outer.starts_with(kEngine) && outer.substr(kEngine.size()) == name;
  }

  void add_inputs(std::int32_t event, const std::vector<RecordedArgument>& recorded, Node& node) {
    ExecutionGraph& graph = made_.graph;
    node.inputs_begin = static_cast<std::uint32_t>(graph.arguments.size());
    node.inputs_count = static_cast<std::uint32_t>(recorded.size());
    graph.arguments.resize(graph.arguments.size() + recorded.size());
    const std::string_view name = graph.name(node);
    const Side side = side_[static_cast<std::size_t>(event)];
    for (std::size_t i = 0; i < recorded.size(); ++i) {
      // aten::copy_(self, src); the others copy their first argument.
      const bool is_source = name == "aten::copy_" ? i == 1 : true;
      const bool on_gpu = side == Side::kGpu || (side == Side::kUpload && !is_source) ||
                          (side == Side::kDownload && is_source);
      place(recorded[i], on_gpu, node.inputs_begin + static_cast<std::uint32_t>(i));
    }
    if (node.scope == Scope::kUser) return;
    const std::string_view schema = schema_for(name, recorded.size());
    if (!schema.empty()) node.op_schema = graph.names.intern(schema);
  }

  void place(const RecordedArgument& recorded, bool on_gpu, std::uint32_t slot) {
    ExecutionGraph& graph = made_.graph;
    Argument argument{.kind = recorded.kind, .integer = recorded.integer, .real = recorded.real};
    if (recorded.kind == Argument::Kind::kTensor) {
      argument.index = tensor(recorded, on_gpu);
    } else if (recorded.kind == Argument::Kind::kString) {
      argument.index = graph.names.intern(recorded.text);
    } else if (recorded.kind == Argument::Kind::kList) {
      argument.index = static_cast<std::uint32_t>(graph.arguments.size());
      argument.count = static_cast<std::uint32_t>(recorded.elements.size());
      graph.arguments.resize(graph.arguments.size() + recorded.elements.size());
      for (std::size_t i = 0; i < recorded.elements.size(); ++i) {
        place(recorded.elements[i], on_gpu, argument.index + static_cast<std::uint32_t>(i));
      }
    }
    graph.arguments[slot] = argument;
  }

  std::uint32_t tensor(const RecordedArgument& recorded, bool on_gpu) {
    ExecutionGraph& graph = made_.graph;
    // Numbers that an op was called with are tensors of no extent on the host.
    const bool is_number = recorded.shape.empty() &&
                           (recorded.dtype == DType::kFloat64 || recorded.dtype == DType::kInt64);
    Tensor made{.id = ++last_tensor_,
                .storage_id = last_tensor_,
                .numel = 1,
                .item_size = size_in_bytes(recorded.dtype),
                .dtype = recorded.dtype,
                .device = on_gpu && !is_number ? Device{Device::Kind::kGpu, 0}
                                               : Device{Device::Kind::kCpu, -1},
                .shape_begin = static_cast<std::uint32_t>(graph.shape_pool.size()),
                .rank = static_cast<std::uint16_t>(recorded.shape.size())};
    for (const std::int64_t extent : recorded.shape) {
      made.numel *= extent;
      graph.shape_pool.push_back(extent);
    }
    graph.tensors.push_back(made);
    return static_cast<std::uint32_t>(graph.tensors.size() - 1);
  }

  // The kind is that of the record, else of the label inside, which has the sizes in old traces.
  void add_record(std::int32_t event, Node& node) {
    ExecutionGraph& graph = made_.graph;
    const HostEvent& at = host(event);
    CommRecord record;
    if (at.collective >= 0) {
      const CollectiveNote& note = trace_.collectives[static_cast<std::size_t>(at.collective)];
      record.collective = trace_.names.text(note.kind);
      record.process_group = trace_.names.text(note.process_group);
      record.sequence = note.sequence;
      record.group_size = std::max<std::int64_t>(0, note.group_size);
      add_sizes(note, node);
    }
    const std::int32_t label = label_inside(event);
    if (label >= 0) {
      const std::string_view name = trace_.name(host(label));
      if (record.collective.empty()) record.collective = name.substr(name.find(':') + 1);
      if (host(label).arguments >= 0 && !has_tensor(node)) {
        side_[static_cast<std::size_t>(event)] = Side::kGpu;
        add_inputs(event, parser_.parse(host(label).arguments), node);
      }
    }
    if (record.group_size == 0 && label >= 0 && trace_.world_size > 0) {
      record.group_size = trace_.world_size;
    }
    node.comm = static_cast<std::int32_t>(graph.comm_records.size());
    graph.comm_records.push_back(std::move(record));
  }

  // Nothing says which work waits for a collective on another stream where PyTorch wrote no "wait"
  // record with its number. The times do: work that was launched long before and whose stream was
  // free, yet began right when the collective ended. Its op is made to touch the memory of the
  // collective.
  void infer_waits() {
    constexpr std::int64_t kLatestNs = 15'000, kEarliestNs = 1'000, kFreeNs = 4'000,
                           kStagedNs = 30'000;
    struct Held {
      std::int64_t start_ns = 0;
      std::size_t event = 0;
    };
    std::vector<Held> held;  // that neither their stream nor their call explains
    for (std::size_t i = 0; i < trace_.gpu.size(); ++i) {
      const GpuEvent& at = trace_.gpu[i];
      if (at.launch < 0) continue;
      const bool has_before =
          i > 0 && trace_.gpu[i - 1].device == at.device && trace_.gpu[i - 1].stream == at.stream;
      // A copy that blocks its call begins within the call.
      const HostEvent& call = host(at.launch);
      const std::int64_t called = at.kind == GpuKind::kCopy
                                      ? std::min(call.end_ns(), call.start_ns + kStagedNs)
                                      : call.end_ns();
      const std::int64_t free = std::max(called, has_before ? trace_.gpu[i - 1].end_ns() : 0);
      if (at.start_ns > free + kFreeNs) held.push_back({at.start_ns, i});
    }
    std::ranges::sort(held, {}, &Held::start_ns);
    for (const GpuEvent& collective : trace_.gpu) {
      if (collective.launch < 0 || collective.kind != GpuKind::kKernel) continue;
      Node* const record = record_of(collective.launch);
      if (!record || !is_collective_kernel(trace_.name(collective)) || is_awaited(*record)) {
        continue;
      }
      const auto tensor = first_gpu_tensor(*record);
      if (!tensor) continue;
      auto at =
          std::ranges::lower_bound(held, collective.end_ns() - kEarliestNs, {}, &Held::start_ns);
      for (; at != held.end() && at->start_ns <= collective.end_ns() + kLatestNs; ++at) {
        const GpuEvent& waiting = trace_.gpu[at->event];
        if (waiting.stream == collective.stream || waiting.device != collective.device ||
            host(waiting.launch).start_ns <= host(collective.launch).start_ns) {
          continue;
        }
        if (touch(waiting.launch, record->id, *tensor)) break;
      }
    }
  }

  // The record_param_comms node around a call.
  Node* record_of(std::int32_t call) {
    for (std::int32_t event = around_[static_cast<std::size_t>(call)]; event >= 0;
         event = parent_[static_cast<std::size_t>(event)]) {
      const std::int64_t id = id_of_event_[static_cast<std::size_t>(event)];
      if (id == 0) return nullptr;
      Node& node = made_.graph.nodes[static_cast<std::size_t>(id) - 1];
      if (node.comm >= 0) return &node;
    }
    return nullptr;
  }

  bool is_awaited(const Node& record) const {
    const auto& records = made_.graph.comm_records;
    const CommRecord& own = records[static_cast<std::size_t>(record.comm)];
    return own.sequence >= 0 && std::ranges::any_of(records, [&](const CommRecord& other) {
             return other.collective == "wait" && other.sequence == own.sequence;
           });
  }

  std::optional<std::uint32_t> first_gpu_tensor(const Node& node) const {
    const ExecutionGraph& graph = made_.graph;
    for (const Argument& argument : graph.inputs(node)) {
      if (argument.kind == Argument::Kind::kTensor && graph.tensors[argument.index].on_gpu()) {
        return argument.index;
      }
    }
    return std::nullopt;
  }

  // The innermost op around the call that has a tensor on the GPU and comes behind the record;
  // where none has, the innermost one gets an empty result there.
  bool touch(std::int32_t call, std::int64_t record, std::uint32_t tensor) {
    const std::int64_t storage = made_.graph.tensors[tensor].storage_id;
    Node* innermost = nullptr;
    for (std::int32_t event = around_[static_cast<std::size_t>(call)]; event >= 0;
         event = parent_[static_cast<std::size_t>(event)]) {
      const std::int64_t id = id_of_event_[static_cast<std::size_t>(event)];
      if (id <= record) break;
      Node& node = made_.graph.nodes[static_cast<std::size_t>(id) - 1];
      if (node.comm >= 0 || host(event).kind != HostKind::kOp) continue;
      if (const auto own = first_gpu_tensor(node)) {
        made_.graph.tensors[*own].storage_id = storage;
        return true;
      }
      if (!innermost) innermost = &node;
    }
    if (!innermost || innermost->outputs_count > 0) return false;
    innermost->outputs_begin = static_cast<std::uint32_t>(made_.graph.arguments.size());
    innermost->outputs_count = 1;
    made_.graph.arguments.resize(made_.graph.arguments.size() + 1);
    place({.kind = Argument::Kind::kTensor, .dtype = DType::kFloat32, .shape = {0}}, true,
          innermost->outputs_begin);
    made_.graph.tensors.back().storage_id = storage;
    return true;
  }

  bool has_tensor(const Node& node) const {
    bool any = false;
    for_each_tensor(made_.graph, made_.graph.inputs(node),
                    [&](const Tensor& tensor) { any |= tensor.on_gpu() && tensor.numel > 0; });
    return any;
  }

  void add_sizes(const CollectiveNote& note, Node& node) {
    ExecutionGraph& graph = made_.graph;
    const std::string_view type = trace_.names.text(note.dtype);
    if (has_tensor(node) || note.in_elements < 0) return;
    const DType dtype = parse_dtype(type);
    const auto put = [&](std::int64_t elements, std::uint32_t& begin, std::uint32_t& count) {
      begin = static_cast<std::uint32_t>(graph.arguments.size());
      count = 1;
      graph.arguments.resize(graph.arguments.size() + 1);
      place({.kind = Argument::Kind::kTensor, .dtype = dtype, .shape = {elements}}, true, begin);
    };
    put(note.in_elements, node.inputs_begin, node.inputs_count);
    if (note.out_elements >= 0) put(note.out_elements, node.outputs_begin, node.outputs_count);
  }

  std::int32_t label_inside(std::int32_t event) const {
    const HostEvent& outer = host(event);
    for (std::size_t i = static_cast<std::size_t>(event) + 1; i < trace_.host.size(); ++i) {
      const HostEvent& at = trace_.host[i];
      if (at.thread != outer.thread || at.start_ns > outer.end_ns()) break;
      const std::string_view name = trace_.name(at);
      if (at.kind == HostKind::kAnnotation &&
          (name.starts_with("nccl:") || name.starts_with("rccl:"))) {
        return static_cast<std::int32_t>(i);
      }
    }
    return -1;
  }

  const Trace& trace_;
  ArgumentParser parser_;
  TraceGraph made_;
  std::vector<std::int32_t> thread_number_;  // per thread of the trace; 0: none
  std::size_t threads_ = 0;
  std::vector<std::int32_t> order_;   // events that become nodes
  std::vector<std::int32_t> parent_;  // per host event
  std::vector<Side> side_;            // per host event
  std::vector<std::int32_t> around_;  // per host event: innermost op or label, by time
  std::vector<std::int64_t> id_of_event_;
  std::int64_t last_tensor_ = 0;
  std::int64_t place_ = 0;  // of the last node, within its step
  bool needs_places_ = false;
};

}  // namespace

Result<TraceGraph> graph_from_trace(const Trace& trace) {
  const bool any = std::ranges::any_of(
      trace.host, [](const HostEvent& event) { return event.kind == HostKind::kOp; });
  if (!any) {
    return Unexpected{Error{.code = ErrorCode::kFormat,
                            .message = "expected ops in the trace, found none",
                            .file = trace.source}};
  }
  return GraphMaker(trace).run();
}

bool is_from_trace(const ExecutionGraph& graph) { return graph.schema == kTraceSchema; }

bool lacks_sizes(const ExecutionGraph& graph) {
  return is_from_trace(graph) && std::ranges::none_of(graph.nodes, [](const Node& node) {
           return node.comm < 0 && node.inputs_count > 0;
         });
}

}  // namespace perfmodel
