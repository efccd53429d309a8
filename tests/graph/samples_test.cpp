// Made-up samples of every schema, vintage and defect (tests/make_samples.py) against the figures
// in their expected.json, which plain Python took from the finished files.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "../scratch.hpp"
#include "core/call_waits.hpp"
#include "perfmodel/graph/detail/link.hpp"
#include "perfmodel/graph/detail/trace_ops.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/overheads.hpp"

namespace perfmodel {
namespace samples_test {

using Json = nlohmann::json;
using std::filesystem::path;

path samples() { return PERFMODEL_SAMPLES; }

const Json& expected() {
  static const Json document = Json::parse(std::ifstream(samples() / "expected.json"));
  return document;
}

std::vector<std::string> files_of_kind(const std::string& kind) {
  std::vector<std::string> names;
  for (const auto& [name, figures] : expected()["files"].items()) {
    if (figures["kind"] == kind) names.push_back(name);
  }
  return names;
}

struct Sample {
  std::string name;
  path file() const { return samples() / name; }
  const Json& figures() const { return expected()["files"][name]; }
};

// Runs a check on every sample of one kind, so that one bad sample hides no other.
void for_each_sample(const std::string& kind, void (*check)(const Sample&)) {
  const auto names = files_of_kind(kind);
  EXPECT_FALSE(names.empty());
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    check({name});
  }
}

// ---- execution traces --------------------------------------------------------------------------

void check_figures_of_graph(const Sample& sample) {
  const auto graph = read_execution_graph(sample.file());
  ASSERT_TRUE(graph) << to_string(graph.error());
  EXPECT_EQ(graph->schema, sample.figures()["schema"]);
  EXPECT_EQ(graph->nodes.size(), sample.figures()["nodes"]);
  EXPECT_EQ(top_level_ops(*graph).size(), sample.figures()["top_level_ops"]);
  EXPECT_EQ(data_edges(*graph, DataEdgeKey::kTensor).size(), sample.figures()["tensor_edges"]);
  EXPECT_EQ(data_edges(*graph, DataEdgeKey::kStorage).size(), sample.figures()["storage_edges"]);

  std::set<int> threads;
  Json collectives = Json::object();
  std::size_t orphans = 0, triton = 0, optimizer_steps = 0;
  for (const Node& node : graph->nodes) {
    const std::string name(graph->name(node));
    threads.insert(node.thread);
    orphans += node.is_orphan;
    triton += graph->names.text(node.kernel_backend) == "triton";
    optimizer_steps += name.starts_with("Optimizer.step#");
    if (name.starts_with("c10d::") || name.starts_with("nccl:") || name == "record_param_comms") {
      collectives[name] = collectives.value(name, 0) + 1;
    }
  }
  threads.erase(0);
  EXPECT_EQ(Json(threads), sample.figures()["threads"]);
  EXPECT_EQ(collectives, sample.figures()["collectives"]);
  EXPECT_EQ(orphans, sample.figures()["orphans"]);
  EXPECT_EQ(triton, sample.figures()["triton_nodes"]);
  EXPECT_EQ(optimizer_steps, sample.figures()["optimizer_steps"]);
  EXPECT_EQ(graph->warnings.empty(), orphans == 0);

  const auto partners = forward_partners(*graph);
  EXPECT_EQ(
      std::count_if(partners.begin(), partners.end(), [](int partner) { return partner >= 0; }),
      sample.figures()["backward_pairs"]);
}

void check_iterations_of_graph(const Sample& sample) {
  const auto graph = read_execution_graph(sample.file());
  ASSERT_TRUE(graph) << to_string(graph.error());
  // Steps without an op are no iterations; a graph without any mark is one iteration.
  std::vector<std::string> wanted;
  for (const auto& name : sample.figures()["iterations"]) {
    const auto& empty = sample.figures()["empty_iterations"];
    if (std::find(empty.begin(), empty.end(), name) == empty.end()) wanted.push_back(name);
  }
  if (sample.figures()["iterations"].empty()) wanted.push_back("iteration");
  std::vector<std::string> found;
  for (const auto& iteration : iterations(*graph)) found.push_back(iteration.name);
  EXPECT_EQ(found, wanted);
}

void check_collectives_of_graph(const Sample& sample) {
  const auto graph = read_execution_graph(sample.file());
  ASSERT_TRUE(graph) << to_string(graph.error());
  std::size_t with_attributes = 0;
  for (const CommRecord& record : graph->comm_records) {
    with_attributes += !record.collective.empty();
    EXPECT_TRUE(record.collective == "allreduce" || record.collective == "wait")
        << record.collective;
    EXPECT_EQ(record.sequence, 7);
    if (record.collective == "allreduce") {
      EXPECT_FALSE(record.process_group.empty());
      EXPECT_EQ(record.group_size, 2);
    }
  }
  // Every record names its collective, by an attribute (1.1.0 on) or by an argument.
  EXPECT_EQ(with_attributes, sample.figures()["collectives"].value("record_param_comms", 0));
}

TEST(ExecutionTraceSamples, HaveTheExpectedFigures) {
  for_each_sample("execution_trace", check_figures_of_graph);
}
TEST(ExecutionTraceSamples, HaveTheExpectedIterations) {
  for_each_sample("execution_trace", check_iterations_of_graph);
}
TEST(ExecutionTraceSamples, KeepTheAttributesOfEachCollective) {
  for_each_sample("execution_trace", check_collectives_of_graph);
}

TEST(ExecutionTraceSamples, ProcessGroupsKeepTheirRanks) {
  const auto graph = read_execution_graph(samples() / "et_groups_1.1.0.json");
  ASSERT_TRUE(graph) << to_string(graph.error());
  ASSERT_EQ(graph->process_groups.size(), 3u);
  EXPECT_TRUE(graph->process_groups[0].ranks.empty());  // all of them
  EXPECT_EQ(graph->process_groups[0].size, 4);
  EXPECT_EQ(graph->process_groups[1].ranks, (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(graph->process_groups[2].description, "mesh_tp");
}

TEST(ExecutionTraceSamples, NamesAreUnescaped) {
  const auto graph = read_execution_graph(samples() / "et_names.json");
  ASSERT_TRUE(graph) << to_string(graph.error());
  const auto found = std::find_if(graph->nodes.begin(), graph->nodes.end(), [&](const Node& node) {
    return graph->name(node) == "say \"hi\" \\ to\n\tünïcode 😀 \x01";
  });
  EXPECT_NE(found, graph->nodes.end());
}

TEST(ExecutionTraceSamples, ListsOfListsKeepTheirTensors) {
  const auto graph = read_execution_graph(samples() / "et_nested_lists_1.1.0.json");
  ASSERT_TRUE(graph) << to_string(graph.error());
  // [[dw, db]] has 64 + 4 elements.
  for (const Node& node : graph->nodes) {
    if (graph->name(node) != "c10d::allgather_") continue;
    std::int64_t elements = 0;
    for_each_tensor(*graph, graph->inputs(node).subspan(0, 1),
                    [&](const Tensor& tensor) { elements += tensor.numel; });
    EXPECT_EQ(elements, 68);
  }
}

TEST(ExecutionTraceSamples, OrderOfNodesAndKeysDoesNotMatter) {
  const auto sorted = read_execution_graph(samples() / "et_no_finish.json");
  const auto shuffled = read_execution_graph(samples() / "et_shuffled.json");
  ASSERT_TRUE(sorted && shuffled);
  ASSERT_EQ(sorted->nodes.size(), shuffled->nodes.size());
  for (std::size_t i = 0; i < sorted->nodes.size(); ++i) {
    EXPECT_EQ(sorted->nodes[i].id, shuffled->nodes[i].id);
    EXPECT_EQ(sorted->name(sorted->nodes[i]), shuffled->name(shuffled->nodes[i]));
    EXPECT_EQ(sorted->nodes[i].parent, shuffled->nodes[i].parent);
  }
}

// ---- Kineto traces -----------------------------------------------------------------------------

double us(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

double busy_us(const Trace& trace, const std::vector<std::int32_t>& iteration,
               std::int32_t wanted) {
  std::vector<std::pair<std::int64_t, std::int64_t>> spans;
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
    if (wanted < -1 || iteration[i] == wanted) {
      spans.emplace_back(trace.gpu[i].start_ns, trace.gpu[i].end_ns());
    }
  }
  return us(union_length(spans));
}
constexpr std::int32_t kAnyIteration = -2;

void check_figures_of_trace(const Sample& sample) {
  const auto trace = read_trace(sample.file());
  ASSERT_TRUE(trace) << to_string(trace.error());
  EXPECT_EQ(trace->event_count, sample.figures()["events"]);
  std::map<GpuKind, std::size_t> kinds;
  std::size_t unlaunched = 0;
  for (const GpuEvent& event : trace->gpu) {
    ++kinds[event.kind];
    unlaunched += event.launch < 0;
  }
  EXPECT_EQ(kinds[GpuKind::kKernel], sample.figures()["kernels_total"]);
  EXPECT_EQ(kinds[GpuKind::kCopy], sample.figures()["memcpy"]);
  EXPECT_EQ(kinds[GpuKind::kSet], sample.figures()["memset"]);
  EXPECT_EQ(unlaunched, sample.figures()["gpu_without_launch"]);
  EXPECT_EQ(find_trace_ops(*trace).top_level.size(), sample.figures()["top_level_ops"]);

  const CallWork work = work_of_calls(*trace);
  std::size_t launches = 0, without_work = 0;
  for (std::size_t i = 0; i < trace->host.size(); ++i) {
    const HostEvent& event = trace->host[i];
    if (!event.launches) continue;
    ++launches;
    without_work += work.count(i) == 0;
  }
  EXPECT_EQ(launches, sample.figures()["launches"]);
  EXPECT_EQ(without_work, sample.figures()["launches_without_gpu"]);
}

void check_iterations_of_trace(const Sample& sample) {
  const auto trace = read_trace(sample.file());
  ASSERT_TRUE(trace) << to_string(trace.error());
  const auto steps = iterations(*trace);
  const auto step_of = gpu_iterations(*trace, steps);
  ASSERT_EQ(steps.size(), sample.figures()["iterations"].size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Json& wanted = sample.figures()["iterations"][i];
    SCOPED_TRACE(wanted["name"]);
    EXPECT_EQ(steps[i].name, wanted["name"]);
    EXPECT_DOUBLE_EQ(us(steps[i].end_ns - steps[i].begin_ns), wanted["wall_us"]);
    EXPECT_DOUBLE_EQ(busy_us(*trace, step_of, static_cast<std::int32_t>(i)), wanted["gpu_busy_us"]);
    std::size_t kernels = 0;
    for (std::size_t k = 0; k < trace->gpu.size(); ++k) {
      kernels += trace->gpu[k].kind == GpuKind::kKernel && step_of[k] == static_cast<int>(i);
    }
    EXPECT_EQ(kernels, wanted["kernels"]);
  }
  EXPECT_DOUBLE_EQ(busy_us(*trace, step_of, kAnyIteration), sample.figures()["gpu_busy_us"]);
}

void check_overheads_of_trace(const Sample& sample) {
  const auto trace = read_trace(sample.file());
  ASSERT_TRUE(trace) << to_string(trace.error());
  const OverheadSource source{.trace = &*trace};
  const auto table = extract_overheads({&source, 1}, {.method = OverheadMethod::kRaw});
  if (sample.figures().contains("overheads_error")) {
    ASSERT_FALSE(table);
    const std::string message = to_string(table.error());
    EXPECT_NE(message.find(sample.figures()["overheads_error"].get<std::string>()),
              std::string::npos)
        << message;
    EXPECT_NE(message.find(sample.name), std::string::npos) << message;
    return;
  }
  ASSERT_TRUE(table) << to_string(table.error());
  const auto check = [&](const char* term, std::uint64_t count, double mean) {
    SCOPED_TRACE(term);
    const Json& wanted = sample.figures()["overheads"][term];
    EXPECT_EQ(count, wanted["count"]);
    if (count > 0) {
      EXPECT_NEAR(mean, wanted["mean_us"], 1e-6);  // six decimals in the file
    }
  };
  check("t1", table->t1.all.count, table->t1.all.mean_us);
  check("t2", table->t2.all.count, table->t2.all.mean_us);
  check("t3", table->t3.all.count, table->t3.all.mean_us);
  check("t5", table->t5.all.count, table->t5.all.mean_us);
  check("tx", table->tx.all.count, table->tx.all.mean_us);
  std::uint64_t calls = 0;
  double sum = 0;
  for (const auto& [call, stats] : table->t4) {
    calls += stats.count;
    sum += stats.mean_us * static_cast<double>(stats.count);
  }
  check("t4", calls, calls > 0 ? sum / static_cast<double>(calls) : 0);
}

TEST(KinetoSamples, HaveTheExpectedFigures) { for_each_sample("kineto", check_figures_of_trace); }
TEST(KinetoSamples, HaveTheExpectedIterations) {
  for_each_sample("kineto", check_iterations_of_trace);
}
TEST(KinetoSamples, HaveTheExpectedRawOverheads) {
  for_each_sample("kineto", check_overheads_of_trace);
}

TEST(KinetoSamples, DirtyNamesAreRepairedWithAWarning) {
  const auto trace = read_trace(samples() / "kineto_dirty_name.json");
  ASSERT_TRUE(trace) << to_string(trace.error());
  // \x01 \x1f \xff \xc3: four bytes that are no text.
  EXPECT_TRUE(std::any_of(trace->host.begin(), trace->host.end(), [&](const HostEvent& event) {
    return trace->name(event) == R"(aten::????( bytes)";
  }));
  EXPECT_EQ(trace->warnings.size(), 1u);
}

TEST(KinetoSamples, GzipChangesNothing) {
  const auto plain = read_trace(samples() / "kineto_external_2023.json");
  ASSERT_TRUE(plain) << to_string(plain.error());
  for (const char* name : {"kineto_gzip.json.gz", "kineto_gzip_members.json.gz"}) {
    const auto packed = read_trace(samples() / name);
    ASSERT_TRUE(packed) << to_string(packed.error());
    EXPECT_EQ(packed->text_bytes, plain->text_bytes);
    ASSERT_EQ(packed->host.size(), plain->host.size());
    for (std::size_t i = 0; i < plain->host.size(); ++i) {
      EXPECT_EQ(packed->host[i].start_ns, plain->host[i].start_ns);
      EXPECT_EQ(packed->name(packed->host[i]), plain->name(plain->host[i]));
    }
  }
}

TEST(KinetoSamples, HeadSaysDeviceRankAndWorldSize) {
  const auto trace = read_trace(samples() / "kineto_comms_1.1.0.json");
  ASSERT_TRUE(trace) << to_string(trace.error());
  EXPECT_EQ(trace->rank, 0);
  EXPECT_EQ(trace->world_size, 2);
  EXPECT_EQ(trace->gpu_name(), "NVIDIA Example GPU");
  const auto last = read_trace(samples() / "kineto_head_last_2025.json");
  ASSERT_TRUE(last) << to_string(last.error());
  EXPECT_EQ(last->gpu_name(), "NVIDIA Example GPU");
  const auto headless = read_trace(samples() / "kineto_no_head.json");
  ASSERT_TRUE(headless) << to_string(headless.error());
  EXPECT_EQ(headless->gpu_name(), "");
}

// ---- defects -----------------------------------------------------------------------------------

void expect_error(const Sample& sample, const Error& error) {
  const std::string message = to_string(error);
  EXPECT_NE(message.find(sample.figures()["message"].get<std::string>()), std::string::npos)
      << message;
  EXPECT_NE(message.find(sample.name), std::string::npos) << message;
}

void check_refusal_of_defect(const Sample& sample) {
  const Json& reads_as = sample.figures()["reads_as"];
  if (reads_as != "kineto") {
    const auto graph = read_execution_graph(sample.file());
    ASSERT_FALSE(graph);
    expect_error(sample, graph.error());
  }
  if (reads_as != "execution_trace") {
    const auto trace = read_trace(sample.file());
    ASSERT_FALSE(trace);
    expect_error(sample, trace.error());
  }
}

void check_salvage_of_defect(const Sample& sample) {
  const ReadOptions salvage{.salvage = true};
  if (const auto graph = read_execution_graph(sample.file(), salvage); !graph) {
    EXPECT_FALSE(graph.error().message.empty());
  }
  if (const auto trace = read_trace(sample.file(), salvage); !trace) {
    EXPECT_FALSE(trace.error().message.empty());
  }
}

TEST(BadSamples, AreRefusedWithALocatedMessage) { for_each_sample("bad", check_refusal_of_defect); }
TEST(BadSamples, SalvagingNeverCrashes) { for_each_sample("bad", check_salvage_of_defect); }

TEST(BadSamples, EveryGoodFileReadAsTheOtherKindIsAnErrorNotACrash) {
  for (const std::string& name : files_of_kind("execution_trace")) {
    const auto trace = read_trace(samples() / name);
    ASSERT_FALSE(trace) << name;
    EXPECT_NE(to_string(trace.error()).find("execution graph"), std::string::npos)
        << to_string(trace.error());
  }
  for (const std::string& name : files_of_kind("kineto")) {
    const auto graph = read_execution_graph(samples() / name);
    ASSERT_FALSE(graph) << name;
    EXPECT_NE(to_string(graph.error()).find(name), std::string::npos);
  }
}

// Any byte may be anything: an error or a graph, never a crash. Fixed seed.
TEST(BadSamples, RandomDamageNeverCrashes) {
  std::mt19937 random(17);
  const path damaged = test_support::scratch() / "damaged.json";
  for (const auto& [name, figures] : expected()["files"].items()) {
    std::ifstream in(samples() / name, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    if (text.empty()) continue;
    for (int round = 0; round < 12; ++round) {
      std::string changed = text;
      for (auto changes = 1 + random() % 4; changes > 0; --changes) {
        const std::size_t at = random() % changed.size();
        static constexpr std::string_view kBytes = "{}[]\",:\\0-9eE.\0 \x80t";
        switch (random() % 4) {
          case 0:
            changed[at] = kBytes[random() % kBytes.size()];
            break;
          case 1:
            changed.erase(at, 1 + random() % 40);
            break;
          case 2:
            changed.insert(at, 1, kBytes[random() % kBytes.size()]);
            break;
          default:
            changed.insert(at, changed.substr(random() % changed.size(), random() % 60));
        }
        if (changed.empty()) changed = "[";
      }
      std::ofstream(damaged, std::ios::binary) << changed;
      const ReadOptions options{.salvage = round % 2 == 1};
      if (const auto graph = read_execution_graph(damaged, options)) {
        EXPECT_LE(top_level_ops(*graph).size(), graph->nodes.size());
        EXPECT_LE(iterations(*graph).size(), graph->nodes.size());
      } else {
        EXPECT_FALSE(graph.error().message.empty());
      }
      if (const auto trace = read_trace(damaged, options)) {
        const OverheadSource source{.trace = &*trace};
        for (auto method : {OverheadMethod::kRaw, OverheadMethod::kContext}) {
          const auto table = extract_overheads({&source, 1}, {.method = method});
          EXPECT_TRUE(table || !table.error().message.empty());
        }
      } else {
        EXPECT_FALSE(trace.error().message.empty());
      }
    }
  }
  std::filesystem::remove(damaged);
}

// ---- pairs -------------------------------------------------------------------------------------

void check_pair(const Json& pair) {
  const auto graph = read_execution_graph(samples() / pair["et"].get<std::string>());
  const auto trace = read_trace(samples() / pair["kineto"].get<std::string>());
  ASSERT_TRUE(graph && trace);
  const auto linked = link(*graph, *trace);
  ASSERT_TRUE(linked) << to_string(linked.error());
  EXPECT_EQ(linked->linked_nodes, pair["linked"]);
  const std::string key = pair["key"];
  if (key == "Record function id") {
    EXPECT_EQ(linked->method, GraphLink::Method::kRecordFunctionId);
  } else if (key == "External id") {
    EXPECT_EQ(linked->method, GraphLink::Method::kExternalId);
  } else {
    // A node more on either side (an init record that the trace has no event for) needs alignment.
    const bool all = linked->linked_nodes == linked->nodes;
    EXPECT_EQ(linked->method, all ? GraphLink::Method::kThreadOrder : GraphLink::Method::kAlignment)
        << to_string(linked->method);
  }
  // Whatever the key: partners have equal names, lie inside their parents and follow one another.
  for (const GraphOccurrence& occurrence : linked->occurrences) {
    for (std::size_t i = 0; i < graph->nodes.size(); ++i) {
      if (occurrence.event_of_node[i] < 0) continue;
      const Node& node = graph->nodes[i];
      const HostEvent& event = trace->host[static_cast<std::size_t>(occurrence.event_of_node[i])];
      if (!is_profiler_step(graph->name(node))) {  // any step may stand for any other
        EXPECT_EQ(trace->name(event), graph->name(node));
      }
      const std::int32_t above =
          node.parent < 0 ? -1 : occurrence.event_of_node[static_cast<std::size_t>(node.parent)];
      if (above < 0) continue;
      const HostEvent& parent = trace->host[static_cast<std::size_t>(above)];
      EXPECT_GE(event.start_ns, parent.start_ns);
      EXPECT_LE(event.end_ns(), parent.end_ns());
    }
  }
}

TEST(PairSamples, LinkWithTheExpectedKey) {
  for (const Json& pair : expected()["pairs"]) {
    SCOPED_TRACE(pair["et"]);
    check_pair(pair);
  }
}

TEST(PairSamples, OneStepIsFoundAsOftenAsTheTraceRepeatsIt) {
  const auto graph = read_execution_graph(samples() / "et_plain_2023.json");
  const auto trace = read_trace(samples() / "kineto_plain_2023.json");
  ASSERT_TRUE(graph && trace);
  // The trace has ProfilerStep#5 and #6, the graph only #5: steps are alike except for their
  // number.
  const auto linked = link(*graph, *trace);
  ASSERT_TRUE(linked) << to_string(linked.error());
  EXPECT_EQ(linked->occurrences.size(), 2u);

  const auto unmarked = read_execution_graph(samples() / "et_optimizer_2023.json");
  const auto repeated = read_trace(samples() / "kineto_optimizer_2023.json");
  ASSERT_TRUE(unmarked && repeated);
  const auto three = link(*unmarked, *repeated);
  ASSERT_TRUE(three) << to_string(three.error());
  EXPECT_EQ(three->occurrences.size(), 3u);
}

}  // namespace samples_test
}  // namespace perfmodel
