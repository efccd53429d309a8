#include "inferred_waits.hpp"

#include <algorithm>
#include <optional>

#include "perfmodel/graph/detail/event_names.hpp"
#include "recorded_arguments.hpp"

namespace perfmodel {
namespace {

class WaitFinder {
 public:
  WaitFinder(const Trace& trace, const TraceNesting& nesting,
             const std::vector<std::int64_t>& id_of_event, ExecutionGraph& graph)
      : trace_(trace), nesting_(nesting), id_of_event_(id_of_event), graph_(graph) {}

  // Without a "wait" record of PyTorch that has its number, nothing says which work waits for a
  // collective on another stream. The times do: work that was launched long before and whose stream
  // was free, yet began right when the collective ended. Its op is made to touch the memory of the
  // collective.
  void run() {
    constexpr std::int64_t kLatestNs = 15'000, kEarliestNs = 1'000, kFreeNs = 4'000,
                           kStagedNs = 30'000;
    struct Held {
      std::int64_t start_ns = 0;
      std::size_t event = 0;
    };
    std::vector<Held> held;  // neither their stream nor their call explains them
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

 private:
  const HostEvent& host(std::int32_t event) const { return trace_.host[event]; }

  // The record_param_comms node around a call.
  Node* record_of(std::int32_t call) {
    for (std::int32_t event = nesting_.around[call]; event >= 0; event = nesting_.parent[event]) {
      const std::int64_t id = id_of_event_[event];
      if (id == 0) return nullptr;
      Node& node = graph_.nodes[static_cast<std::size_t>(id) - 1];
      if (node.comm >= 0) return &node;
    }
    return nullptr;
  }

  bool is_awaited(const Node& record) const {
    const auto& records = graph_.comm_records;
    const CommRecord& own = records[record.comm];
    return own.sequence >= 0 && std::ranges::any_of(records, [&](const CommRecord& other) {
             return other.collective == "wait" && other.sequence == own.sequence;
           });
  }

  std::optional<std::uint32_t> first_gpu_tensor(const Node& node) const {
    const ExecutionGraph& graph = graph_;
    for (const Argument& argument : graph.inputs(node)) {
      if (argument.kind == Argument::Kind::kTensor && graph.tensors[argument.index].on_gpu()) {
        return argument.index;
      }
    }
    return std::nullopt;
  }

  // The innermost op around the call that has a tensor on the GPU and comes after the record; if
  // none has, the innermost one gets an empty result there.
  bool touch(std::int32_t call, std::int64_t record, std::uint32_t tensor) {
    const std::int64_t storage = graph_.tensors[tensor].storage_id;
    Node* innermost = nullptr;
    for (std::int32_t event = nesting_.around[call]; event >= 0; event = nesting_.parent[event]) {
      const std::int64_t id = id_of_event_[event];
      if (id <= record) break;
      Node& node = graph_.nodes[static_cast<std::size_t>(id) - 1];
      if (node.comm >= 0 || host(event).kind != HostKind::kOp) continue;
      if (const auto own = first_gpu_tensor(node)) {
        graph_.tensors[*own].storage_id = storage;
        return true;
      }
      if (!innermost) innermost = &node;
    }
    if (!innermost || innermost->outputs_count > 0) return false;
    innermost->outputs_begin = static_cast<std::uint32_t>(graph_.arguments.size());
    innermost->outputs_count = 1;
    graph_.arguments.resize(graph_.arguments.size() + 1);
    place_argument(graph_,
                   {.kind = Argument::Kind::kTensor, .dtype = DType::kFloat32, .shape = {0}}, true,
                   innermost->outputs_begin);
    graph_.tensors.back().storage_id = storage;
    return true;
  }

  const Trace& trace_;
  const TraceNesting& nesting_;
  const std::vector<std::int64_t>& id_of_event_;
  ExecutionGraph& graph_;
};

}  // namespace

void infer_waits(const Trace& trace, const TraceNesting& nesting,
                 const std::vector<std::int64_t>& id_of_event, ExecutionGraph& graph) {
  WaitFinder(trace, nesting, id_of_event, graph).run();
}

}  // namespace perfmodel
