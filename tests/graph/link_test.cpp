#include "perfmodel/graph/detail/link.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace perfmodel {
namespace link_test {

// A graph of leaves: per thread the names in id order; ids run over all threads in the given order.
ExecutionGraph graph_of(const std::vector<std::pair<std::int32_t, std::string>>& nodes) {
  ExecutionGraph graph;
  graph.nodes.push_back({.id = 1, .parent_id = 1, .name = graph.names.intern("root")});
  std::int64_t id = 2;
  for (const auto& [thread, name] : nodes) {
    Node node{.id = id,
              .parent_id = 1,
              .name = graph.names.intern(name),
              .rf_id = id - 1,
              .thread = thread};
    graph.nodes.push_back(node);
    ++id;
  }
  index_graph(graph);
  return graph;
}

struct Tiny {
  Trace trace;
  double now = 0;

  /// An op of 1 us on a thread, 2 us after the last one.
  HostEvent& op(std::int32_t thread, const std::string& name) {
    now += 2;
    return op_at(thread, name, now);
  }
  HostEvent& op_at(std::int32_t thread, const std::string& name, double start) {
    while (trace.threads.size() <= static_cast<std::size_t>(thread)) trace.threads.emplace_back();
    trace.host.push_back({.start_ns = static_cast<std::int64_t>(start * 1000),
                          .duration_ns = 1000,
                          .name = trace.names.intern(name),
                          .thread = thread});
    return trace.host.back();
  }
  /// `Trace::host` is sorted by thread first.
  Trace& sorted() {
    std::stable_sort(trace.host.begin(), trace.host.end(),
                     [](const HostEvent& a, const HostEvent& b) {
                       return std::pair(a.thread, a.start_ns) < std::pair(b.thread, b.start_ns);
                     });
    return trace;
  }
};

GraphLink good(const ExecutionGraph& graph, const Trace& trace) {
  auto linked = link(graph, trace);
  if (!linked) {
    ADD_FAILURE() << to_string(linked.error());
    return {};
  }
  return std::move(*linked);
}

TEST(Link, RecordFunctionIdsWinWhereNamesAgree) {
  const auto graph = graph_of({{1, "a"}, {1, "b"}, {1, "a"}});
  Tiny tiny;
  tiny.op(0, "a").record_function_id = 3;  // start order would say otherwise
  tiny.op(0, "b").record_function_id = 2;
  tiny.op(0, "a").record_function_id = 1;
  const GraphLink linked = good(graph, tiny.sorted());
  EXPECT_EQ(linked.method, GraphLink::Method::kRecordFunctionId);
  EXPECT_EQ(linked.nodes, 3u);
  EXPECT_EQ(linked.linked_nodes, 3u);
  ASSERT_EQ(linked.occurrences.size(), 1u);
  EXPECT_EQ(linked.occurrences[0].event_of_node, (std::vector<std::int32_t>{-1, 2, 1, 0}));
  EXPECT_EQ(linked.occurrences[0].begin_ns, 2'000);
  EXPECT_EQ(linked.occurrences[0].end_ns, 7'000);
}

TEST(Link, ShiftedIdsAreNotTrusted) {
  // Every id exists, but names differ: the order of starts decides.
  const auto graph = graph_of({{1, "a"}, {1, "b"}, {1, "c"}});
  Tiny tiny;
  tiny.op(0, "a").record_function_id = 2;
  tiny.op(0, "b").record_function_id = 3;
  tiny.op(0, "c").record_function_id = 4;
  EXPECT_EQ(good(graph, tiny.sorted()).method, GraphLink::Method::kThreadOrder);
}

TEST(Link, ExternalIdsAreTheSecondChoice) {
  const auto graph = graph_of({{1, "a"}, {1, "b"}});
  Tiny tiny;
  tiny.op(0, "b").external_id = 2;
  tiny.op(0, "a").external_id = 1;
  const GraphLink linked = good(graph, tiny.sorted());
  EXPECT_EQ(linked.method, GraphLink::Method::kExternalId);
  EXPECT_EQ(linked.occurrences[0].event_of_node, (std::vector<std::int32_t>{-1, 1, 0}));
}

TEST(Link, StartOrderFindsEveryRepetition) {
  // Main thread a b, autograd thread c; the trace shows warm-up, then the step three times.
  const auto graph = graph_of({{1, "a"}, {1, "b"}, {2, "c"}});
  Tiny tiny;
  tiny.op(0, "x");
  tiny.op(0, "a");
  for (int step = 0; step < 3; ++step) {
    tiny.op(0, "a");
    tiny.op(0, "b");
    tiny.op(1, "c");
  }
  const Trace& trace = tiny.sorted();
  const GraphLink linked = good(graph, trace);
  EXPECT_EQ(linked.method, GraphLink::Method::kThreadOrder);
  EXPECT_EQ(linked.linked_nodes, 3u);
  ASSERT_EQ(linked.occurrences.size(), 3u);
  // Host: x a | a b a b a b on thread 0 (indices 0..7), c c c on thread 1 (8..10).
  EXPECT_EQ(linked.occurrences[0].event_of_node, (std::vector<std::int32_t>{-1, 2, 3, 8}));
  EXPECT_EQ(linked.occurrences[2].event_of_node, (std::vector<std::int32_t>{-1, 6, 7, 10}));
  EXPECT_LT(linked.occurrences[0].end_ns, linked.occurrences[1].begin_ns);
}

TEST(Link, NumbersOfProfilerStepsDoNotMatter) {
  const auto graph = graph_of({{1, "ProfilerStep#4"}, {1, "a"}});
  Tiny tiny;
  for (const char* step : {"ProfilerStep#4", "ProfilerStep#5", "ProfilerStep#6"}) {
    tiny.op(0, step);
    tiny.op(0, "a");
  }
  const GraphLink linked = good(graph, tiny.sorted());
  EXPECT_EQ(linked.method, GraphLink::Method::kThreadOrder);
  EXPECT_EQ(linked.occurrences.size(), 3u);
}

TEST(Link, AStepWithoutItsAutogradPartIsDropped) {
  // Recording stopped in the middle of the second step.
  const auto graph = graph_of({{1, "a"}, {1, "b"}, {2, "c"}});
  Tiny tiny;
  tiny.op(0, "a");
  tiny.op(0, "b");
  tiny.op(1, "c");
  tiny.op(0, "a");
  tiny.op(0, "b");
  EXPECT_EQ(good(graph, tiny.sorted()).occurrences.size(), 1u);
}

TEST(Link, TiesOfStampsAreBrokenByTheEventIndex) {
  // Four ops of one stamp, written in any order.
  const auto graph = graph_of({{1, "a"}, {1, "b"}, {1, "c"}, {1, "d"}});
  Tiny tiny;
  tiny.op_at(0, "d", 5).event_index = 13;
  tiny.op_at(0, "b", 5).event_index = 11;
  tiny.op_at(0, "a", 5).event_index = 10;
  tiny.op_at(0, "c", 5).event_index = 12;
  const GraphLink linked = good(graph, tiny.sorted());
  EXPECT_EQ(linked.method, GraphLink::Method::kThreadOrder);
  EXPECT_EQ(linked.occurrences[0].event_of_node, (std::vector<std::int32_t>{-1, 2, 1, 3, 0}));
}

TEST(Link, MissingEventsAreAlignedAround) {
  // 20 nodes; the trace lacks node 5 and has a stranger after node 15.
  std::vector<std::pair<std::int32_t, std::string>> nodes;
  for (int i = 0; i < 20; ++i) nodes.emplace_back(1, "op" + std::to_string(i));
  const auto graph = graph_of(nodes);
  Tiny tiny;
  for (int i = 0; i < 20; ++i) {
    if (i != 5) tiny.op(0, "op" + std::to_string(i));
    if (i == 15) tiny.op(0, "stranger");
  }
  const GraphLink linked = good(graph, tiny.sorted());
  EXPECT_EQ(linked.method, GraphLink::Method::kAlignment);
  EXPECT_EQ(linked.linked_nodes, 19u);
  EXPECT_EQ(linked.occurrences[0].event_of_node[6], -1);  // op5, after the root and op0..op4
  EXPECT_EQ(linked.occurrences[0].event_of_node[20], 19);
}

TEST(Link, KernelsThatOnlyAProfilerSawAreNoGaps) {
  // An observer alone sees neither Triton's kernels nor the labels of compiled code.
  Tiny tiny;
  for (int step = 0; step < 2; ++step) {
    tiny.op(0, "CompiledFunction");
    tiny.op(0, "## Call CompiledFxGraph abc ##");
    tiny.op(0, "aten::mm");
    tiny.op(0, "triton_poi_fused_gelu_0");
    tiny.op(0, "aten::mm");
  }
  const ExecutionGraph graph =
      graph_of({{1, "CompiledFunction"}, {1, "aten::mm"}, {1, "aten::mm"}});
  const GraphLink found = good(graph, tiny.sorted());
  EXPECT_EQ(found.method, GraphLink::Method::kThreadOrder);
  ASSERT_EQ(found.occurrences.size(), 2U);
  EXPECT_EQ(found.occurrences[1].event_of_node[3], 9);
}

TEST(Link, ATraceOfAnotherProgramIsAnError) {
  const auto graph = graph_of({{1, "a"}, {1, "b"}, {1, "c"}});
  Tiny tiny;
  for (const char* name : {"x", "y", "a", "z"}) tiny.op(0, name);
  const auto linked = link(graph, tiny.sorted());
  ASSERT_FALSE(linked);
  EXPECT_EQ(linked.error().code, ErrorCode::kImpossible);
  EXPECT_NE(linked.error().message.find("same program"), std::string::npos);
}

TEST(Link, AnEmptyTraceIsAnError) { EXPECT_FALSE(link(graph_of({{1, "a"}}), Trace{})); }

TEST(Link, CallsAreNoPartners) {
  const auto graph = graph_of({{1, "a"}, {1, "b"}});
  Tiny tiny;
  tiny.op(0, "a");
  tiny.op(0, "cudaLaunchKernel").kind = HostKind::kCall;
  tiny.op(0, "b");
  const GraphLink linked = good(graph, tiny.sorted());
  EXPECT_EQ(linked.method, GraphLink::Method::kThreadOrder);
  EXPECT_EQ(linked.linked_nodes, 2u);
}

}  // namespace link_test
}  // namespace perfmodel
