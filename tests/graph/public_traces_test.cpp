// Real traces against figures that were computed independently of this project: reference.json of
// public/traces (definitions in front of its figures) and expected.json of public/traces_cpu.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "../scratch.hpp"
#include "core/call_waits.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/detail/link.hpp"
#include "perfmodel/graph/detail/trace_ops.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/overheads.hpp"

namespace perfmodel {
namespace public_traces_test {

using Json = nlohmann::json;
using std::filesystem::path;

double us(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

constexpr double kExact = 1e-3;  // figures of the reference have three decimals

class PublicData : public testing::Test {
 protected:
  void SetUp() override {
    const char* root = std::getenv("PERFMODEL_PUBLIC_DATA");
    if (!root || !*root) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
    root_ = root;
  }
  static Json load(const path& file) { return Json::parse(std::ifstream(file)); }
  path root_;
};

class PublicTraces : public PublicData {
 protected:
  void SetUp() override {
    PublicData::SetUp();
    if (!root_.empty()) reference_ = load(folder() / "reference.json");
  }
  path folder() const { return root_ / "traces"; }

  template <class Check>
  void for_each_file(const std::string& kind, Check&& check) {
    std::size_t files = 0;
    for (const auto& [name, figures] : reference_["files"].items()) {
      if (figures["kind"] != kind) continue;
      SCOPED_TRACE(name);
      check(folder() / name, figures);
      ++files;
    }
    EXPECT_GT(files, 0u);
  }
  template <class Check>
  void for_each_graph(Check&& check) {
    for_each_file("pytorch_et", [&](const path& file, const Json& figures) {
      const auto graph = read_execution_graph(file);
      ASSERT_TRUE(graph) << to_string(graph.error());
      check(*graph, figures);
    });
  }
  template <class Check>
  void for_each_trace(Check&& check) {
    for_each_file("kineto", [&](const path& file, const Json& figures) {
      const auto trace = read_trace(file);
      ASSERT_TRUE(trace) << to_string(trace.error());
      check(*trace, figures);
    });
  }

  Json reference_;
};

// ---- execution traces --------------------------------------------------------------------------

TEST_F(PublicTraces, ExecutionTracesHaveTheirNodesAndTopLevelOps) {
  for_each_graph([](const ExecutionGraph& graph, const Json& figures) {
    EXPECT_EQ(graph.schema, figures["schema"]);
    EXPECT_EQ(graph.process_id, figures["pid"]);
    EXPECT_EQ(graph.nodes.size(), figures["n_nodes"]);
    EXPECT_EQ(graph.nodes.front().id, figures["id_min"]);
    EXPECT_EQ(graph.nodes.back().id, figures["id_max"]);
    std::map<std::string, std::size_t> scopes, threads, top_by_thread, collectives;
    std::size_t orphans = 0, labels = 0, leaves = 0, with_schema = 0, triton = 0, accumulate = 0;
    for (const Node& node : graph.nodes) {
      const std::string name(graph.name(node));
      ++scopes[std::to_string(static_cast<int>(node.scope))];
      ++threads[std::to_string(node.thread)];
      orphans += node.is_orphan;
      labels += is_label_name(name) && !is_structural_name(name);  // by name, nccl:* not counted
      leaves += node.children_count == 0;
      with_schema += node.op_schema != 0;
      triton += graph.names.text(node.kernel_backend) == "triton";
      accumulate += name == "torch::autograd::AccumulateGrad";
      if (figures["collectives"].contains(name)) ++collectives[name];
    }
    for (std::int32_t op : top_level_ops(graph)) {
      ++top_by_thread[std::to_string(graph.nodes[static_cast<std::size_t>(op)].thread)];
    }
    EXPECT_EQ(Json(scopes), figures["by_scope"]);
    EXPECT_EQ(Json(threads), figures["by_tid"]);
    EXPECT_EQ(orphans, figures["missing_parents"]);
    EXPECT_EQ(labels, figures["labels"]);
    EXPECT_EQ(leaves, figures["leaf_nodes"]);
    EXPECT_EQ(with_schema, figures["nodes_with_op_schema"]);
    EXPECT_EQ(triton, figures["triton_nodes"]);
    EXPECT_EQ(accumulate, figures["accumulate_grad"]);
    EXPECT_EQ(top_level_ops(graph).size(), figures["top_level_ops"]);
    EXPECT_EQ(Json(top_by_thread), figures["top_level_ops_by_tid"]);
    if (!collectives.empty()) {
      EXPECT_EQ(Json(collectives), figures["collectives"]);
    }
    EXPECT_EQ(graph.comm_records.size(), figures["collectives"].value("record_param_comms", 0));
  });
}

TEST_F(PublicTraces, ExecutionTracesHaveTheirIterations) {
  for_each_graph([](const ExecutionGraph& graph, const Json& figures) {
    std::vector<std::string> found;
    for (const auto& step : iterations(graph)) found.push_back(step.name);
    // A mark without later ops is no iteration; a graph without marks is one.
    std::vector<std::string> wanted = figures["profiler_steps"];
    if (wanted.empty()) wanted = {"iteration"};
    ASSERT_LE(found.size(), wanted.size());
    wanted.resize(found.size());
    EXPECT_EQ(found, wanted);
    if (figures["profiler_steps"].size() > found.size()) {
      std::size_t inside = 0;
      const auto steps = iterations(graph);
      for (std::int32_t op : top_level_ops(graph)) {
        for (const auto& step : steps) inside += op >= step.begin && op < step.end;
      }
      EXPECT_EQ(inside, top_level_ops(graph).size());
    }
  });
}

TEST_F(PublicTraces, ExecutionTracesHaveTheirTensorsAndDataEdges) {
  for_each_graph([](const ExecutionGraph& graph, const Json& figures) {
    const Json& wanted = figures["tensors"];
    std::set<std::int64_t> ids, storages;
    std::size_t references = 0, without_storage = 0;
    const auto look = [&](const Tensor& tensor) {
      ++references;
      without_storage += tensor.storage_id == 0;
      ids.insert(tensor.id);
      storages.insert(tensor.storage_id);
    };
    for (const Node& node : graph.nodes) {
      for_each_tensor(graph, graph.inputs(node), look);
      for_each_tensor(graph, graph.outputs(node), look);
    }
    storages.erase(0);
    EXPECT_EQ(references, wanted["references"]);
    EXPECT_EQ(without_storage, wanted["references_without_storage"]);
    EXPECT_EQ(ids.size(), wanted["unique_tensor_ids"]);
    EXPECT_EQ(storages.size(), wanted["unique_storage_ids"]);
    EXPECT_EQ(data_edges(graph, DataEdgeKey::kTensor).size(),
              wanted["leaf_edges_by_tensor_id_last_writer"]);
    EXPECT_EQ(data_edges(graph, DataEdgeKey::kStorage).size(),
              wanted["leaf_edges_by_storage_id_last_writer"]);
  });
}

TEST_F(PublicTraces, EveryBackwardNodeHasAForwardPartner) {
  for_each_graph([](const ExecutionGraph& graph, const Json&) {
    const auto partners = forward_partners(graph);
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      if (node.scope != Scope::kBackward || node.seq_id < 0) continue;
      ASSERT_GE(partners[i], 0) << graph.name(node);
      EXPECT_EQ(graph.nodes[static_cast<std::size_t>(partners[i])].seq_id, node.seq_id);
    }
  });
}

// ---- Kineto traces -----------------------------------------------------------------------------

TEST_F(PublicTraces, KinetoTracesHaveTheirEvents) {
  for_each_trace([](const Trace& trace, const Json& figures) {
    EXPECT_EQ(trace.event_count, figures["n_events"]);
    EXPECT_EQ(trace.text_bytes, figures["uncompressed_bytes"]);
    std::map<std::string, std::size_t> devices;
    for (const TraceDevice& device : trace.devices) ++devices[device.name];
    EXPECT_EQ(Json(devices), devices.empty() ? Json() : figures["devices"]);
    std::size_t ops = 0, labels = 0, launches = 0, calls = 0;
    for (const HostEvent& event : trace.host) {
      ops += event.kind == HostKind::kOp;
      labels += event.kind == HostKind::kAnnotation;
      calls += event.kind == HostKind::kCall;
      launches += event.kind == HostKind::kCall && is_launch_call(trace.name(event));
    }
    EXPECT_EQ(ops, figures["host"]["cpu_ops"]);
    EXPECT_EQ(labels, figures["host"]["labels"]);
    EXPECT_EQ(calls, figures["calls"]["n"]);
    EXPECT_EQ(launches, figures["calls"]["launches"]);
    EXPECT_EQ(find_trace_ops(trace).top_level.size(), figures["host"]["top_level_ops"]);
  });
}

TEST_F(PublicTraces, KinetoTracesHaveTheirDeviceWork) {
  for_each_trace([](const Trace& trace, const Json& figures) {
    const Json& wanted = figures["gpu"];
    std::map<GpuKind, std::size_t> kinds;
    std::map<std::string, std::size_t> streams;
    std::vector<std::pair<std::int64_t, std::int64_t>> all, communication;
    std::int64_t sum = 0;
    std::size_t unlinked = 0;
    for (const GpuEvent& event : trace.gpu) {
      ++kinds[event.kind];
      ++streams["dev" + std::to_string(event.device) + "/stream" + std::to_string(event.stream)];
      all.emplace_back(event.start_ns, event.end_ns());
      if (event.kind == GpuKind::kKernel && is_collective_kernel(trace.name(event))) {
        communication.push_back(all.back());
      }
      sum += event.duration_ns;
      unlinked += event.launch < 0;
    }
    EXPECT_EQ(kinds[GpuKind::kKernel], wanted["kernels"]);
    EXPECT_EQ(kinds[GpuKind::kCopy], wanted["memcpy"]);
    EXPECT_EQ(kinds[GpuKind::kSet], wanted["memset"]);
    EXPECT_EQ(unlinked, wanted["unlinked"]);
    EXPECT_NEAR(us(union_length(all)), wanted["busy_us"], kExact);
    EXPECT_NEAR(us(union_length(communication)), wanted["comm_busy_us"], kExact);
    EXPECT_NEAR(us(sum), wanted["sum_us"], kExact);
    ASSERT_EQ(streams.size(), wanted["streams"].size());
    for (const auto& [stream, count] : streams) EXPECT_EQ(count, wanted["streams"][stream]["n"]);
  });
}

TEST_F(PublicTraces, KinetoTracesHaveTheirIterations) {
  for_each_trace([](const Trace& trace, const Json& figures) {
    const Json& wanted = figures["iterations"]["list"];
    const auto steps = iterations(trace);
    const auto step_of = gpu_iterations(trace, steps);
    ASSERT_EQ(steps.size(), figures["iterations"]["n"]);
    ASSERT_EQ(steps.size(), wanted.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      SCOPED_TRACE(steps[i].name);
      EXPECT_EQ(steps[i].name, wanted[i]["name"]);
      EXPECT_NEAR(us(steps[i].end_ns - steps[i].begin_ns), wanted[i]["wall_us"], kExact);
      std::vector<std::pair<std::int64_t, std::int64_t>> spans;
      std::size_t kernels = 0;
      for (std::size_t k = 0; k < trace.gpu.size(); ++k) {
        if (step_of[k] != static_cast<std::int32_t>(i)) continue;
        spans.emplace_back(trace.gpu[k].start_ns, trace.gpu[k].end_ns());
        kernels += trace.gpu[k].kind == GpuKind::kKernel;
      }
      EXPECT_EQ(kernels, wanted[i]["kernels_launched"]);
      EXPECT_NEAR(us(union_length(spans)), wanted[i]["busy_of_launched_us"], kExact);
    }
  });
}

void expect_stats(const char* term, const OverheadStats& found, const Json& wanted) {
  SCOPED_TRACE(term);
  const std::uint64_t count = wanted.is_null() ? 0 : wanted.value("n", std::uint64_t{0});
  EXPECT_EQ(found.count, count);
  if (count == 0) return;
  EXPECT_NEAR(found.mean_us, wanted["mean"], kExact);
  EXPECT_NEAR(found.median_us, wanted["median"], kExact);
}

TEST_F(PublicTraces, RawOverheadsEqualTheReference) {
  for_each_trace([](const Trace& trace, const Json& figures) {
    const Json& wanted = figures["overheads_us"];
    const OverheadSource source{.trace = &trace};
    const auto table = extract_overheads({&source, 1}, {.method = OverheadMethod::kRaw});
    ASSERT_TRUE(table) << to_string(table.error());
    expect_stats("T1", table->t1.all, wanted["T1"]);
    expect_stats("T2", table->t2.all, wanted["T2"]);
    expect_stats("T3", table->t3.all, wanted["T3"]);
    expect_stats("T5", table->t5.all, wanted["T5"]);
    expect_stats("TX", table->tx.all, wanted["TX"]);
    ASSERT_EQ(table->t4.size(), wanted["T4"].size());
    for (const auto& [call, stats] : wanted["T4"].items()) {
      ASSERT_TRUE(table->t4.contains(call)) << call;
      expect_stats(call.c_str(), table->t4.at(call), stats);
    }
  });
}

// T2 + sum of T4 + sum of T5 + T3 = duration, for every op with calls.
TEST_F(PublicTraces, OverheadsOfAnOpAddUpToItsDuration) {
  for_each_trace([](const Trace& trace, const Json& figures) {
    const TraceOps ops = find_trace_ops(trace);
    std::vector<std::vector<const HostEvent*>> calls(ops.top_level.size());
    std::size_t owned = 0;
    for (std::size_t i = 0; i < trace.host.size(); ++i) {
      if (ops.call_owner[i] < 0) continue;
      calls[static_cast<std::size_t>(ops.call_owner[i])].push_back(&trace.host[i]);
      ++owned;
    }
    std::size_t with_calls = 0;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].empty()) continue;
      ++with_calls;
      const HostEvent& op = trace.host[static_cast<std::size_t>(ops.top_level[i])];
      std::int64_t sum = calls[i].front()->start_ns - op.start_ns;  // T2
      for (std::size_t c = 0; c < calls[i].size(); ++c) {
        sum += calls[i][c]->duration_ns;                                      // T4
        if (c > 0) sum += calls[i][c]->start_ns - calls[i][c - 1]->end_ns();  // T5
      }
      sum += op.end_ns() - calls[i].back()->end_ns();  // T3
      ASSERT_EQ(sum, op.duration_ns) << trace.name(op);
    }
    const Json& wanted = figures["overheads_us"];
    EXPECT_EQ(owned, wanted["launches_owned"]);
    EXPECT_EQ(with_calls, wanted["ops_with_launch"]);
    EXPECT_EQ(with_calls, wanted["ops_where_T2+T4+T5+T3_is_duration"]);
  });
}

// ---- pairs -------------------------------------------------------------------------------------

TEST_F(PublicTraces, PairsLinkAsTheReferenceCounts) {
  for (const Json& pair : reference_["pairs"]) {
    SCOPED_TRACE(pair["et"]);
    const auto graph = read_execution_graph(folder() / pair["et"].get<std::string>());
    const auto trace = read_trace(folder() / pair["kineto"].get<std::string>());
    ASSERT_TRUE(graph && trace);
    const auto linked = link(*graph, *trace);
    ASSERT_TRUE(linked) << to_string(linked.error());
    const std::size_t nodes = pair["et_nodes"];
    EXPECT_EQ(linked->nodes, nodes);
    // By start order: as many nodes as the threads' sequences share, as often as all threads
    // repeat.
    std::size_t in_order = 0, lengths = 0, repeats = ~std::size_t{0};
    for (const auto& [thread, sequence] : pair["sequence"].items()) {
      in_order += sequence["best_equal"].get<std::size_t>();
      lengths += sequence["length"].get<std::size_t>();
      repeats = std::min(repeats, sequence["exact_occurrences"].get<std::size_t>());
    }
    if (pair["Record function id"]["name_equal"] == nodes) {
      EXPECT_EQ(linked->method, GraphLink::Method::kRecordFunctionId);
      EXPECT_EQ(linked->linked_nodes, nodes);
    } else if (pair["External id"]["name_equal"] == nodes) {
      EXPECT_EQ(linked->method, GraphLink::Method::kExternalId);
      EXPECT_EQ(linked->linked_nodes, nodes);
    } else if (in_order == lengths) {
      EXPECT_EQ(linked->method, GraphLink::Method::kThreadOrder);
      EXPECT_EQ(linked->linked_nodes, in_order);
      EXPECT_EQ(linked->occurrences.size(), repeats);
    } else {
      // One node more in the graph (process_group:init): alignment finds all the others.
      EXPECT_EQ(linked->method, GraphLink::Method::kAlignment);
      EXPECT_EQ(linked->linked_nodes, nodes - 1);
    }
    for (const GraphOccurrence& occurrence : linked->occurrences) {
      for (std::size_t i = 0; i < graph->nodes.size(); ++i) {
        const std::int32_t event = occurrence.event_of_node[i];
        if (event < 0) continue;
        ASSERT_EQ(trace->name(trace->host[static_cast<std::size_t>(event)]),
                  graph->name(graph->nodes[i]));
      }
    }
  }
}

// ---- traces recorded without a GPU -------------------------------------------------------------

class CpuTraces : public PublicData {
 protected:
  path folder() const { return root_ / "traces_cpu"; }
};

TEST_F(CpuTraces, HaveTheirNodesScopesAndOps) {
  const Json expected = load(folder() / "expected.json");
  for (const auto& [stem, figures] : expected.items()) {
    SCOPED_TRACE(stem);
    const auto graph = read_execution_graph(folder() / (stem + ".et.json.gz"));
    ASSERT_TRUE(graph) << to_string(graph.error());
    EXPECT_EQ(graph->nodes.size(), figures["nodes"]);
    std::map<std::string, std::size_t> scopes, ops;
    std::map<std::string, std::int64_t> flops;
    std::size_t leaves = 0;
    for (const Node& node : graph->nodes) {
      ++scopes[std::to_string(static_cast<int>(node.scope))];
      leaves += node.children_count == 0;
      const std::string name(graph->name(node));
      if (figures["op_counts"].contains(name)) ++ops[name];
      if (!figures["gemm_flops"].contains(name)) continue;
      // 2 M N K: elements of the first matrix, M K, times the last extent of the second, N.
      const auto inputs = graph->inputs(node).subspan(name == "aten::addmm" ? 1 : 0);
      const Tensor& a = graph->tensors[inputs[0].index];
      const Tensor& b = graph->tensors[inputs[1].index];
      flops[name] += 2 * a.numel * graph->shape(b).back();
    }
    EXPECT_EQ(Json(scopes), figures["scope"]);
    EXPECT_EQ(leaves, figures["leaf_nodes"]);
    EXPECT_EQ(Json(ops), figures["op_counts"]);
    EXPECT_EQ(Json(flops), figures["gemm_flops"]);
  }
}

TEST_F(CpuTraces, BareArraysOfTheOldProfilerAreRead) {
  const Json expected = load(folder() / "expected.json");
  for (const auto& [stem, figures] : expected.items()) {
    SCOPED_TRACE(stem);
    const auto trace = read_trace(folder() / (stem + ".trace.json.gz"));
    ASSERT_TRUE(trace) << to_string(trace.error());
    EXPECT_EQ(trace->event_count, figures["trace_events"]);
    EXPECT_EQ(trace->host.size(), figures["trace_events"]);
    EXPECT_TRUE(trace->gpu.empty());
    EXPECT_GT(find_trace_ops(*trace).top_level.size(), 0u);
    const OverheadSource source{.trace = &*trace};
    const auto table = extract_overheads({&source, 1}, {});
    ASSERT_FALSE(table);  // nothing to learn launches from
    EXPECT_NE(to_string(table.error()).find(stem), std::string::npos);
  }
}

// ---- memory ------------------------------------------------------------------------------------

// AddressSanitizer keeps freed memory, so what it shows is not the reader's.
#if !defined(__SANITIZE_ADDRESS__)

std::size_t peak_kilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoul(line.substr(6));
  }
  return 0;
}

// Growth of the peak while a child process reads the file, in bytes; 0 if it cannot be read.
std::size_t peak_of_reading(const path& file, std::size_t expected_events) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return 0;
  const pid_t child = fork();
  if (child == 0) {
    const std::size_t before = peak_kilobytes();
    const auto trace = read_trace(file);
    std::size_t growth = 0;
    if (trace && trace->event_count == expected_events) growth = (peak_kilobytes() - before) * 1024;
    const bool written = write(pipe_ends[1], &growth, sizeof growth) == sizeof growth;
    _exit(written ? 0 : 1);
  }
  std::size_t growth = 0;
  if (read(pipe_ends[0], &growth, sizeof growth) != sizeof growth) growth = 0;
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  int status = 0;
  waitpid(child, &status, 0);
  return growth;
}

TEST(TraceMemory, IsAtMostHalfTheTextPlus100Megabytes) {
  const path folder = test_support::scratch() / "memory";
  std::filesystem::create_directories(folder);
  const path plain = folder / "trace.json", packed = folder / "trace.json.gz";
  constexpr std::size_t kBytes = 200'000'000;
  std::size_t bytes = 0, events = 0;
  {
    // An op, its launch and its kernel, with the fields that PyTorch writes, again and again.
    std::ofstream out(plain, std::ios::binary);
    gzFile zip = gzopen(packed.c_str(), "wb1");
    ASSERT_NE(zip, nullptr);
    const auto put = [&](const std::string& text) {
      out << text;
      gzwrite(zip, text.data(), static_cast<unsigned>(text.size()));
      bytes += text.size();
    };
    put("{\"schemaVersion\": 1, \"traceEvents\": [\n");
    while (bytes < kBytes) {
      std::ostringstream text;
      for (int i = 0; i < 1000; ++i) {
        const std::string n = std::to_string(events / 3 + 1);
        const std::string ts = std::to_string(1'700'000'000'000'000 + events * 10);
        text
            << (events > 0 ? ",\n" : "")
            << R"({"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "pid": 17, "tid": 17, "ts": )"
            << ts << R"(.125, "dur": 9.5, "args": {"External id": )" << n
            << R"(, "Record function id": 0, "Ev Idx": )" << n
            << R"(, "Input Dims": [[64], [512, 64], [64, 64], [], []], "Concrete Inputs": )"
            << R"(["", "", "", "1", "1"], "Input type": ["float", "float", "float", "Scalar", "Scalar"]}},
)"
            << R"({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 17, "tid": 17, "ts": )"
            << ts << R"(.5, "dur": 4.25, "args": {"External id": )" << n
            << R"(, "cbid": 211, "correlation": )" << n << R"(}},
)"
            << R"({"ph": "X", "cat": "kernel", "name": "ampere_sgemm_64x64_tn", "pid": 0, "tid": 7, "ts": )"
            << ts << R"(.75, "dur": 6.0, "args": {"External id": )" << n
            << R"(, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": )" << n
            << R"(, "registers per thread": 32, "shared memory": 0, "blocks per SM": 0.05, )"
            << R"("warps per SM": 0.2, "grid": [4, 1, 1], "block": [128, 1, 1], )"
            << R"("est. achieved occupancy %": 1}})";
        events += 3;
      }
      put(text.str());
    }
    put("]}\n");
    gzclose(zip);
  }
  const std::size_t limit = bytes / 2 + 100'000'000;
  for (const path& file : {plain, packed}) {
    const std::size_t peak = peak_of_reading(file, events);
    EXPECT_GT(peak, 0u) << file;
    EXPECT_LE(peak, limit) << file << ": " << peak / 1'000'000 << " MB for " << bytes / 1'000'000
                           << " MB of text";
    RecordProperty(file.extension() == ".gz" ? "gzip_peak_mb" : "plain_peak_mb",
                   static_cast<int>(peak / 1'000'000));
  }
  std::filesystem::remove_all(folder);
}

#endif

}  // namespace public_traces_test
}  // namespace perfmodel
