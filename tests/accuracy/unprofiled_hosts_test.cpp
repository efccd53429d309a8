// Hosts without their profiler: programs for which data/measurements has an unrecorded step and a
// trace. Factors that take the profiler out are fitted to steps of the H100.
#include <map>

#include "overheads/collector_cost.hpp"
#include "overheads/host_kind.hpp"
#include "overheads/own_host.hpp"
#include "overheads/pool_overheads.hpp"
#include "perfmodel/choose_overheads.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "trace/moved_kernel_times.hpp"
#include "unprofiled_points.hpp"

namespace perfmodel {
namespace unprofiled_hosts_test {

using namespace unprofiled;

// ---- the reference host, without the judged program
// ------------------------------------------------

/// Tables of the eager programs that a board's traces for training show.
std::map<std::string, OverheadTable> programs_of(const std::string& gpu) {
  std::map<std::string, std::vector<Trace>> traces;
  for (const Point& point : points_of(gpu)) {
    if (point.trace.empty() || point.split != "train" || point.tier > 3) continue;
    if (point.compiled) continue;  // the profiler adds less to it
    traces[point.workload].push_back(read_trace(point.trace).value());
  }
  std::map<std::string, OverheadTable> tables;
  for (const auto& [workload, of_workload] : traces) {
    std::vector<OverheadSource> sources;
    for (const Trace& trace : of_workload) sources.push_back({.trace = &trace});
    tables[gpu.substr(0, 5) + workload] = extract_overheads(sources, {}).value();
  }
  return tables;
}

/// Tables of the programs that the reference host is learned from (data/overheads/extract.sh).
std::map<std::string, OverheadTable> reference_programs() {
  std::map<std::string, OverheadTable> tables = programs_of(kH200);
  for (const char* name : {"dlrm_v100", "rm_8gpu_a100", "linear_rtx2080ti", "resnet18_rtx2080ti",
                           "bert_small_infer_h100"}) {
    tables[name] =
        read_overheads(kData / "overheads" / "programs" / (std::string(name) + ".json")).value();
  }
  return tables;
}

OverheadTable pool_without(const std::map<std::string, OverheadTable>& tables,
                           const std::string& family, const TermFactors& factors,
                           const std::string& host = {}) {
  std::vector<PoolMember> members;
  for (const auto& [name, table] : tables) {
    const bool left_out = name[4] == '-' && family_of(name.substr(5)) == family;
    if (!left_out) members.push_back({name, &table});
  }
  OverheadTable pooled = pool_overheads(members, host).value();
  scale_terms(pooled, factors);
  pooled.without_collector = factors;
  return pooled;
}

TEST(UnprofiledHosts, WholeStepsWithTheJudgedProgramLeftOut) {
  const auto reference = read_overheads(kData / "overheads" / "reference.json").value();
  ASSERT_TRUE(reference.without_collector);
  const auto tables = reference_programs();
  EXPECT_EQ(tables.size(), 18u);
  std::map<std::string, OverheadTable> hosts;
  std::map<std::string, Errors> errors, shipped;
  for (const Point& point : all_points()) {
    if (point.graph.empty() || point.tier > 3) continue;
    const std::string family = family_of(point.workload);
    if (!hosts.contains(family)) {
      hosts[family] = pool_without(tables, family, *reference.without_collector, "dlrm_v100");
    }
    const ExecutionGraph graph = graph_of(point);
    errors[point.gpu].add(point, step_of(graph, point.gpu, hosts.at(family)).e2e_us);
    shipped[point.gpu].add(point, step_of(graph, point.gpu, reference).e2e_us);
  }
  for (const std::string& gpu : {kH100, kH200}) {
    std::printf("%s: %s; with its program among them %s\n", gpu.c_str(), errors[gpu].text().c_str(),
                shipped[gpu].text().c_str());
  }
  // The H100's steps for training gave the three factors; nothing of the H200's steps did.
  EXPECT_EQ(errors[kH100].all.size(), 56u);
  EXPECT_LE(Errors::mean(errors[kH100].all), 11);
  EXPECT_LE(Errors::mean(errors[kH100].host_bound), 15);
  EXPECT_EQ(errors[kH200].all.size(), 33u);
  EXPECT_LE(Errors::mean(errors[kH200].all), 12);
  EXPECT_LE(Errors::mean(errors[kH200].host_bound), 16);
}

// A machine's own traces, pooled, less the cost of the profiler as measured on the H200's
// machine. The judged program and its relatives are left out. On the H100's machine the profiler
// costs less, and few of its programs were traced, so that its pool is too fast.
TEST(UnprofiledHosts, PooledTracesOfAMachineTellItsHost) {
  const auto reference = read_overheads(kData / "overheads" / "reference.json").value();
  const auto reference_tables = reference_programs();
  std::map<std::string, Errors> pooled, by_reference;
  for (const std::string& gpu : {kH100, kH200}) {
    const auto tables = programs_of(gpu);
    std::map<std::string, std::pair<OverheadTable, OverheadTable>> hosts;
    for (const Point& point : points_of(gpu)) {
      if (point.graph.empty() || point.tier > 3) continue;
      const std::string family = family_of(point.workload);
      if (!hosts.contains(family)) {
        hosts[family] = {
            pool_without(tables, family, kWithoutProfiler),
            pool_without(reference_tables, family, *reference.without_collector, "dlrm_v100")};
      }
      const ExecutionGraph graph = graph_of(point);
      pooled[gpu].add(point, step_of(graph, gpu, hosts.at(family).first).e2e_us);
      by_reference[gpu].add(point, step_of(graph, gpu, hosts.at(family).second).e2e_us);
    }
    std::printf("%s: %zu programs pooled %s; reference host %s\n", gpu.c_str(), tables.size(),
                pooled[gpu].text().c_str(), by_reference[gpu].text().c_str());
  }
  EXPECT_LT(Errors::mean(pooled[kH200].host_bound), Errors::mean(by_reference[kH200].host_bound));
  EXPECT_LE(Errors::mean(pooled[kH200].host_bound), 15);
  EXPECT_LE(Errors::mean(pooled[kH100].host_bound), 22);
}

// An op that the table does not know takes the time of its kind, so no figure is absurd.
TEST(UnprofiledHosts, OpsWithoutASampleTakeWhatTheirKindDoes) {
  const auto reference = read_overheads(kData / "overheads" / "reference.json").value();
  std::size_t kinds = 0;
  for (const OverheadTerm* term : {&reference.t2, &reference.t3, &reference.tx}) {
    std::map<std::string_view, std::vector<double>> of_kind;
    for (const auto& [key, named] : term->by_name) {
      if (!is_host_kind(named.name)) {
        of_kind[host_kind(named.name)].push_back(named.stats.mean_us);
      }
    }
    for (auto& [kind, means] : of_kind) {
      if (kind == kAnyList) continue;
      std::ranges::sort(means);
      const double median = means[means.size() / 2];
      const auto found = term->find({}, hash_text("no such op"), hash_text(kind));
      EXPECT_EQ(found.level, KeyLevel::kKind) << kind;
      EXPECT_LE(found.us, 3 * median) << kind;
      ++kinds;
    }
  }
  EXPECT_GE(kinds, 20u);
}

// ---- a program's own trace
// --------------------------------------------------------------------------

struct OwnStep {
  Prediction prediction;
  double recorded_us = 0;
};

OwnStep from_its_trace(const Point& point, const OverheadTable& table,
                       const RecordedProgram& program) {
  auto moved = kernel_times_on(program.graph, *program.trace, accuracy::gpu(point.gpu)).value();
  auto prediction = predict(program.graph, accuracy::gpu(point.gpu), table,
                            {.kernel_times = &moved.times,
                             .use = KernelTimes::Use::kAll,
                             .models = &learned_models(),
                             .keep_ops = false,
                             .step_range = true})
                        .value();
  return {std::move(prediction), recorded_step_us(*program.trace)};
}

TEST(UnprofiledHosts, StepsFromTheirOwnTraces) {
  OverheadTables tables(kData);
  const auto reference = read_overheads(kData / "overheads" / "reference.json").value();
  Errors ours, divisor, longest, by_reference;
  double worst_recorded = 0, worst_active = 0;
  std::size_t pairs = 0, inside = 0, host_bound = 0;
  for (const Point& point : all_points()) {
    if (point.trace.empty()) continue;
    ++pairs;
    const auto program = read_recorded_program(point.trace).value();
    const auto own = tables.own(*program.trace, program.graph).value();
    ASSERT_TRUE(own.table->without_collector) << point.key;
    const OwnStep step = from_its_trace(point, *own.table, program);
    const auto recorded = tables.own(*program.trace, program.graph, true).value();
    const OwnStep as_recorded = from_its_trace(point, *recorded.table, program);
    ours.add(point, step.prediction.e2e_us);
    divisor.add(point, std::max(step.prediction.gpu_active_us, step.recorded_us / 1.78));
    longest.add(point, std::max(step.prediction.gpu_active_us, step.recorded_us / 2.2));
    by_reference.add(point, from_its_trace(point, reference, program).prediction.e2e_us);
    const double off = std::abs(as_recorded.prediction.e2e_us / step.recorded_us - 1);
    const double active = std::abs(as_recorded.prediction.gpu_active_us / point.active_us - 1);
    std::printf("%s %-28s %8.3f ms, predicted %8.3f; recorded %8.3f (%.1f %% off), GPU %.1f %%\n",
                point.gpu.substr(0, 4).c_str(), point.key.c_str(), point.wall_us / 1e3,
                step.prediction.e2e_us / 1e3, step.recorded_us / 1e3, 100 * off, 100 * active);
    worst_recorded = std::max(worst_recorded, off);
    worst_active = std::max(worst_active, active);
    if (!point.host_bound()) continue;
    ++host_bound;
    inside +=
        point.wall_us >= step.prediction.e2e_low_us && point.wall_us <= step.prediction.e2e_high_us;
  }
  std::printf(
      "%zu pairs: %s\nplain divisor 1.78: %s\nmax(GPU, step / 2.2): %s\nreference host: %s\n",
      pairs, ours.text().c_str(), divisor.text().c_str(), longest.text().c_str(),
      by_reference.text().c_str());
  std::printf("recorded: worst %.1f %%, GPU active: worst %.1f %%; %zu of %zu host-bound inside\n",
              100 * worst_recorded, 100 * worst_active, inside, host_bound);
  EXPECT_EQ(pairs, 55u);
  EXPECT_LE(Errors::mean(ours.all), 16);
  EXPECT_LE(Errors::mean(ours.host_bound), 18);
  EXPECT_LE(Errors::mean(ours.gpu_bound), 6);
  EXPECT_LT(Errors::mean(ours.all), Errors::mean(divisor.all));
  EXPECT_GE(static_cast<double>(inside), 0.85 * static_cast<double>(host_bound));
}

// ---- one number from the user
// -----------------------------------------------------------------------

// The time of one batch of a program calibrates the others, and the other board's.
TEST(UnprofiledHosts, AMeasuredStepTellsOtherBatchesAndTheOtherBoard) {
  const auto predictor = Predictor::load({.data = kData, .gpus = {kH100, kH200}}).value();
  const std::vector<Point> points = all_points();
  Errors itself, batches, boards, without;
  std::map<std::filesystem::path, PreparedGraph> prepared;
  const auto graph_at = [&](const std::filesystem::path& file) -> const PreparedGraph& {
    auto known = prepared.find(file);
    if (known == prepared.end()) {
      auto made = predictor.prepare(read_execution_graph(file).value()).value();
      known = prepared.emplace(file, std::move(made)).first;
    }
    return known->second;
  };
  for (const Point& measured : points) {
    if (measured.graph.empty() || measured.tf32) continue;
    const auto scales =
        predictor.match_step(graph_at(measured.graph), measured.gpu, measured.wall_us);
    ASSERT_TRUE(scales) << measured.key << ": " << scales.error().message;
    for (const Point& other : points) {
      if (other.workload != measured.workload || other.graph.empty()) continue;
      const PreparedGraph& asked = graph_at(other.graph);
      const auto told = predictor.predict(
          asked, other.gpu, {.host_scale = scales->host, .device_scale = scales->device});
      ASSERT_TRUE(told) << other.key;
      const bool same_batch = other.key == measured.key;
      if (same_batch && other.gpu == measured.gpu) {
        itself.add(other, told->e2e_us);
      } else {
        (other.gpu == measured.gpu ? batches : boards).add(other, told->e2e_us);
        without.add(other, predictor.predict(asked, other.gpu).value().e2e_us);
      }
    }
  }
  std::printf("itself %s\nother batches %s\nother board %s\nunmeasured %s\n", itself.text().c_str(),
              batches.text().c_str(), boards.text().c_str(), without.text().c_str());
  EXPECT_LE(*std::ranges::max_element(itself.all), 0.05);
  EXPECT_LE(Errors::mean(batches.all), 11);
  EXPECT_LE(Errors::mean(boards.all), 13.5);  // another machine: its host differs by as much
}

}  // namespace unprofiled_hosts_test
}  // namespace perfmodel
