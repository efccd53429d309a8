// The cost of PyTorch's collectors: host-bound programs on the H200's machine, free and recorded
// (data/measurements/h200-sxm-141gb/profiler_cost.json.gz), and how fast that machine's host is.
#include "overheads/collector_cost.hpp"

#include <map>

#include "overheads/pool_overheads.hpp"
#include "unprofiled_points.hpp"

namespace perfmodel {
namespace collector_cost_test {

using namespace unprofiled;

/// Steps of a program: microseconds by collector, "free" without one.
using Steps = std::map<std::string, double>;
struct Program {
  Steps us, events;
};

// By workload and batch, of one process. The GPU bounds one of them; no collector shows in it.
std::map<std::string, Program> programs_of(std::size_t process) {
  const auto document =
      nlohmann::json::parse(measured_board::inflated(folder_of(kH200) / "profiler_cost.json.gz"));
  std::map<std::string, Program> programs;
  for (const auto& row : document["processes"][process]["rows"]) {
    const std::string workload = row["workload"], way = row["way"];
    if (workload == "dlrm-mix100-batched") continue;
    Program& program = programs[workload + "-b" + row["batch"].dump()];
    program.us[way] = row["wall_us"];
    if (row["events_per_step"].is_number()) program.events[way] = row["events_per_step"];
  }
  return programs;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double mean(const std::vector<double>& values) { return Errors::mean(values); }

struct Way {
  const char* name;
  Collector collector;
};
constexpr Way kWays[] = {{"kineto", Collector::kProfilerWithoutShapes},
                         {"kineto: shapes", Collector::kProfiler},
                         {"kineto: shapes, stacks", Collector::kProfilerWithStacks}};

TEST(CollectorCost, IsTheMedianOfElevenPrograms) {
  const auto programs = programs_of(0);
  ASSERT_EQ(programs.size(), 11u);
  for (const Way& way : kWays) {
    std::vector<double> factors;
    for (const auto& [key, program] : programs) {
      factors.push_back(program.us.at(way.name) / program.us.at("free"));
    }
    EXPECT_NEAR(*slowdown_under(way.collector), median(factors), 0.01) << way.name;
  }
  EXPECT_FALSE(slowdown_under(Collector::kUnknown));
  EXPECT_FALSE(slowdown_under(Collector::kProfilerAndObserver));
}

// Every second program is judged by the cost of the others, either way round.
TEST(CollectorCost, IsAFactorAndNotATimePerEvent) {
  const auto programs = programs_of(0);
  for (const Way& way : kWays) {
    std::vector<double> by_factor, by_event;
    for (const std::size_t judged : {0, 1}) {
      std::vector<double> factors, us_per_event;
      std::size_t place = 0;
      for (const auto& [key, program] : programs) {
        if (place++ % 2 == judged) continue;
        const double free = program.us.at("free"), recorded = program.us.at(way.name);
        factors.push_back(recorded / free);
        us_per_event.push_back((recorded - free) / program.events.at(way.name));
      }
      place = 0;
      for (const auto& [key, program] : programs) {
        if (place++ % 2 != judged) continue;
        const double free = program.us.at("free"), recorded = program.us.at(way.name);
        const double added = median(us_per_event) * program.events.at(way.name);
        by_factor.push_back(100 * std::abs(recorded / median(factors) / free - 1));
        by_event.push_back(100 * std::abs((recorded - added) / free - 1));
      }
    }
    std::printf("%-24s free step by a factor %.1f %%, by a time per event %.1f %%\n", way.name,
                mean(by_factor), mean(by_event));
    EXPECT_LE(mean(by_factor), 13) << way.name;
    EXPECT_LT(mean(by_factor), 0.6 * mean(by_event)) << way.name;
  }
}

// The factors keep the proportions that the reference host's have, and take as much out of a step
// as the profiler was measured to add.
TEST(CollectorCost, TermsTogetherLoseTheMeasuredPart) {
  const auto reference = read_overheads(kData / "overheads" / "reference.json").value();
  for (std::size_t i = 0; i < kWithoutProfiler.size(); ++i) {
    EXPECT_NEAR(kWithoutProfiler[i] / reference.without_collector->at(i), 0.652, 0.005) << i;
  }
  const OverheadTable recorded = as_recorded(reference);
  OverheadTable without = recorded;
  scale_terms(without, kWithoutProfiler);
  std::vector<double> factors;
  for (const Point& point : points_of(kH200)) {
    if (point.graph.empty() || point.tier > 3 || !point.host_bound()) continue;
    const ExecutionGraph graph = graph_of(point);
    factors.push_back(step_of(graph, kH200, recorded).cpu_us /
                      step_of(graph, kH200, without).cpu_us);
  }
  EXPECT_NEAR(median(factors), *slowdown_under(Collector::kProfiler), 0.1);
}

// The factor that examples/host_speed.py has to find: free steps of both processes over predicted
// ones, programs whose graph is recorded.
TEST(CollectorCost, HostOfTheMeasuredMachine) {
  const auto reference = read_overheads(kData / "overheads" / "reference.json").value();
  std::vector<double> factors;
  for (const std::size_t process : {0, 1}) {
    for (const auto& [key, program] : programs_of(process)) {
      for (const std::string& board : {kH200, kH100}) {
        const auto file = folder_of(board) / (key + ".et.json.gz");
        if (!std::filesystem::exists(file)) continue;
        const ExecutionGraph graph = read_execution_graph(file).value();
        const double predicted = step_of(graph, kH200, reference).e2e_us;
        factors.push_back(program.us.at("free") / predicted);
        break;
      }
    }
  }
  std::printf("host of the H200's machine: %.3f over %zu steps\n", median(factors), factors.size());
  EXPECT_EQ(factors.size(), 14u);
  EXPECT_NEAR(median(factors), 1.12, 0.06);  // examples/host_speed.py knows this figure
}

}  // namespace collector_cost_test
}  // namespace perfmodel
