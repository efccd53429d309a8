#include "perfmodel/graph/graph_from_trace.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "alike_ops.hpp"
#include "base/budget.hpp"
#include "check_recording.hpp"
#include "inferred_waits.hpp"
#include "ops/result_sizes.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/detail/op_kinds.hpp"
#include "perfmodel/graph/detail/trace_ops.hpp"
#include "recorded_arguments.hpp"
#include "trace_nesting.hpp"

namespace perfmodel {
namespace {

constexpr std::string_view kTraceSchema = "kineto";

// Inductor's launcher records each kernel as an op of the kernel's name.
bool is_triton_kernel(std::string_view name) { return name.starts_with("triton_"); }

class GraphMaker {
 public:
  explicit GraphMaker(const Trace& trace)
      : trace_(trace), parser_(trace), nesting_(nest_events(trace)) {}

  TraceGraph run() {
    find_steps();
    begin();
    add_nodes({});
    infer_waits(trace_, nesting_, id_of_event_, made_.graph);
    return finish();
  }

  OpKinds run_once_per_kind() {
    nesting_.around = {};  // for waits alone
    find_steps();
    AlikeOps alike = find_alike_ops(trace_, nesting_, events_);
    begin();
    add_nodes(alike.needed);
    TraceGraph made = finish();
    return {std::move(made.graph), std::move(made.event_of_node), std::move(alike.like)};
  }

 private:
  void begin() {
    ExecutionGraph& graph = made_.graph;
    graph.schema = kTraceSchema;
    graph.source = trace_.source;
    graph.recording = trace_.recording;
    graph.warnings = trace_.warnings;
    needs_places_ = std::ranges::none_of(
        trace_.host, [](const HostEvent& event) { return event.record_function_id != 0; });
    add_structure();
  }

  TraceGraph finish() {
    ExecutionGraph& graph = made_.graph;
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

  const HostEvent& host(std::int32_t event) const { return trace_.host[event]; }
  void add_structure() {
    ExecutionGraph& graph = made_.graph;
    graph.nodes.push_back(
        {.id = 1,
         .parent_id = 1,
         .name = graph.names.intern("[pytorch|profiler|execution_trace|process]")});
    made_.event_of_node.push_back(-1);
    for (std::size_t i = 0; i < nesting_.threads; ++i) {
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
  // optimizer. Events after the last whole step are left out.
  void find_steps() {
    events_ = nesting_.order;
    const bool marked = std::ranges::any_of(
        events_, [&](std::int32_t event) { return is_profiler_step(trace_.name(host(event))); });
    if (!marked) steps_ = iterations(trace_);
    if (steps_.empty()) return;
    const auto after = std::ranges::find_if(
        events_, [&](std::int32_t event) { return host(event).start_ns >= steps_.back().end_ns; });
    events_ = events_.first(static_cast<std::size_t>(after - events_.begin()));
  }

  // `needed`: per host event; empty: all are.
  void add_nodes(const std::vector<bool>& needed) {
    std::size_t next = 0;
    if (needed.empty()) made_.graph.nodes.reserve(made_.graph.nodes.size() + events_.size());
    for (const std::int32_t event : events_) {
      for (; next < steps_.size() && host(event).start_ns >= steps_[next].begin_ns; ++next) {
        add_step(next);
      }
      // Between two windows of a schedule.
      if (next > 0 && host(event).start_ns >= steps_[next - 1].end_ns) continue;
      if (needed.empty() || needed[event]) add_node(event);
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
    const std::int32_t parent = nesting_.parent[event];
    const std::int32_t thread = nesting_.thread_number[at.thread];
    const std::int64_t parent_id = parent >= 0 ? id_of_event_[parent] : 0;
    Node node{.id = static_cast<std::int64_t>(graph.nodes.size()) + 1,
              .parent_id = parent_id > 0 ? parent_id : std::int64_t{thread} + 1,
              .name = graph.names.intern(name),
              .rf_id = needs_places_ ? place_in_step(name) : at.record_function_id,
              .seq_id = autograd_number(trace_, event),
              .thread = thread,
              .fw_thread = at.has_forward_thread ? 1 : 0};
    if (at.kind == HostKind::kAnnotation) {
      node.scope = Scope::kUser;
    } else {
      ++made_.ops;
      if (is_triton_kernel(name)) node.kernel_backend = graph.names.intern("triton");
      if (is_backward_of_engine(trace_, nesting_, event)) node.scope = Scope::kBackward;
    }
    id_of_event_[event] = node.id;
    if (at.arguments >= 0 && at.kind == HostKind::kOp) {
      ++made_.ops_with_sizes;
      add_inputs(event, parser_.parse(at.arguments), node);
    }
    if (name == "record_param_comms") add_record(event, node);
    if (graph.nodes.size() % 256 == 0) growth_point(graph.nodes.size());
    graph.nodes.push_back(node);
    made_.event_of_node.push_back(event);
  }

  // Without recorded ids, the place within the step tells ops of one name and shape apart.
  std::int64_t place_in_step(std::string_view name) {
    if (is_profiler_step(name)) place_ = 0;
    return ++place_;
  }

  void add_inputs(std::int32_t event, const std::vector<RecordedArgument>& recorded, Node& node) {
    ExecutionGraph& graph = made_.graph;
    node.inputs_begin = static_cast<std::uint32_t>(graph.arguments.size());
    node.inputs_count = static_cast<std::uint32_t>(recorded.size());
    graph.arguments.resize(graph.arguments.size() + recorded.size());
    const std::string_view name = graph.name(node);
    const Side side = nesting_.side[event];
    for (std::size_t i = 0; i < recorded.size(); ++i) {
      // aten::copy_(self, src); the others copy their first argument.
      const bool is_source = name == "aten::copy_" ? i == 1 : true;
      const bool on_gpu = side == Side::kGpu || (side == Side::kUpload && !is_source) ||
                          (side == Side::kDownload && is_source);
      place_argument(graph, recorded[i], on_gpu, node.inputs_begin + static_cast<std::uint32_t>(i));
    }
    if (node.scope == Scope::kUser) return;
    const std::string_view schema = schema_for(name, recorded.size());
    if (!schema.empty()) node.op_schema = graph.names.intern(schema);
    if (side == Side::kGpu) add_results(node);
  }

  void add_results(Node& node) {
    ExecutionGraph& graph = made_.graph;
    const std::vector<ResultSizes> results = results_of(graph, node);
    node.outputs_begin = static_cast<std::uint32_t>(graph.arguments.size());
    node.outputs_count = static_cast<std::uint32_t>(results.size());
    graph.arguments.resize(graph.arguments.size() + results.size());
    std::uint32_t slot = node.outputs_begin;
    for (const ResultSizes& result : results) {
      place_argument(
          graph, {.kind = Argument::Kind::kTensor, .dtype = result.dtype, .shape = result.shape},
          true, slot++);
    }
  }

  // The record has the kind, else the label inside, which has the sizes in old traces.
  void add_record(std::int32_t event, Node& node) {
    ExecutionGraph& graph = made_.graph;
    const HostEvent& at = host(event);
    CommRecord record;
    if (at.collective >= 0) {
      const CollectiveNote& note = trace_.collectives[at.collective];
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
        nesting_.side[event] = Side::kGpu;
        add_inputs(event, parser_.parse(host(label).arguments), node);
      }
    }
    if (record.group_size == 0 && label >= 0 && trace_.world_size > 0) {
      record.group_size = trace_.world_size;
    }
    node.comm = static_cast<std::int32_t>(graph.comm_records.size());
    graph.comm_records.push_back(std::move(record));
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
      place_argument(graph, {.kind = Argument::Kind::kTensor, .dtype = dtype, .shape = {elements}},
                     true, begin);
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
  TraceNesting nesting_;
  std::vector<TraceIteration> steps_;     // steps without a label
  std::span<const std::int32_t> events_;  // events that become nodes
  std::vector<std::int64_t> id_of_event_;
  std::int64_t place_ = 0;  // place of the last node within its step
  bool needs_places_ = false;
};

}  // namespace

Result<TraceGraph> graph_from_trace(const Trace& trace) {
  if (auto good = check_program(trace); !good) return Unexpected{good.error()};
  return within_budget<TraceGraph>([&] { return GraphMaker(trace).run(); });
}

Result<OpKinds> op_kinds_of_trace(const Trace& trace) {
  if (auto good = check_has_ops(trace); !good) return Unexpected{good.error()};
  return within_budget<OpKinds>([&] { return GraphMaker(trace).run_once_per_kind(); });
}

bool is_from_trace(const ExecutionGraph& graph) { return graph.schema == kTraceSchema; }

bool lacks_sizes(const ExecutionGraph& graph) {
  return is_from_trace(graph) && std::ranges::none_of(graph.nodes, [](const Node& node) {
           return node.comm < 0 && node.inputs_count > 0;
         });
}

}  // namespace perfmodel
