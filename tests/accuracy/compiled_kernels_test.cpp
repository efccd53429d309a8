// Triton's kernels of a recorded compiled program against their prices, kernel by kernel.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/predictors/detail/lower.hpp"
#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel {
namespace compiled_kernels_test {

struct Times {
  double measured_us = 0, predicted_us = 0;
  int measured = 0, predicted = 0;

  double error() const { return predicted_us / predicted / (measured_us / measured) - 1; }
};

// By name, over the recorded steps.
std::map<std::string, Times> times_of_kernels(const Trace& trace, const Gpu& gpu) {
  std::map<std::string, Times> times;
  for (const GpuEvent& event : trace.gpu) {
    const std::string name(trace.name(event));
    if (!name.starts_with("triton_")) continue;
    times[name].measured_us += static_cast<double>(event.duration_ns) / 1e3;
    ++times[name].measured;
  }
  const auto made = graph_from_trace(trace);
  if (!made) {
    ADD_FAILURE() << to_string(made.error());
    return {};
  }
  const ExecutionGraph& graph = made->graph;
  const OpRule* rule = OpRuleRegistry::builtin().find("triton");
  for (const Node& node : graph.nodes) {
    if (graph.names.text(node.kernel_backend) != "triton") continue;
    std::vector<KernelWork> kernels;
    EXPECT_TRUE(rule->lower(OpView{graph, node, nullptr}, gpu, kernels));
    Times& of = times[std::string(graph.name(node))];
    for (const KernelWork& work : kernels) {
      of.predicted_us += KernelModels::heuristic().price(work, gpu).time.count();
      ++of.predicted;
    }
  }
  return times;
}

TEST(CompiledKernels, AreWithinAFewPercentInSum) {
  const std::filesystem::path data = *find_data_folder();
  const auto trace = read_trace(data / "measurements" / "h100-sxm-80gb" /
                                "gpt2-small-512.compile-b4.kineto.json.gz");
  ASSERT_TRUE(trace) << to_string(trace.error());
  const Gpu gpu = find_gpu("h100-sxm-80gb", data / "gpus").value();
  const auto times = times_of_kernels(*trace, gpu);
  EXPECT_EQ(times.size(), 21U);
  struct Sums {
    double measured_us = 0, predicted_us = 0, errors = 0;
    int count = 0;
  };
  std::map<std::string, Sums> by_kind;  // "triton_poi", and all
  for (const auto& [name, one] : times) {
    EXPECT_EQ(one.measured, one.predicted) << name;
    for (const std::string& kind : {name.substr(0, 10), std::string("all")}) {
      Sums& sums = by_kind[kind];
      sums.measured_us += one.measured_us;
      sums.predicted_us += one.predicted_us;
      sums.errors += std::abs(one.error()) * one.measured;
      sums.count += one.measured;
    }
  }
  const std::map<std::string, std::pair<double, double>> most = {// mean error, error of the sum
                                                                 {"triton_poi", {0.15, 0.13}},
                                                                 {"triton_per", {0.08, 0.07}},
                                                                 {"triton_red", {0.18, 0.04}},
                                                                 {"all", {0.11, 0.08}}};
  ASSERT_EQ(by_kind.size(), most.size());
  for (const auto& [kind, sums] : by_kind) {
    const auto& [mean, sum] = most.at(kind);
    EXPECT_LT(sums.errors / sums.count, mean) << kind;
    EXPECT_NEAR(sums.predicted_us / sums.measured_us, 1, sum) << kind;
  }
  EXPECT_EQ(by_kind.at("all").count, 3 * 260);
}

}  // namespace compiled_kernels_test
}  // namespace perfmodel
