// Hosts that compare: programs that were recorded on different machines, brought to one host.
#include <array>
#include <cstdio>
#include <map>

#include "accuracy_support.hpp"
#include "overheads/pool_overheads.hpp"
#include "perfmodel/choose_overheads.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"

namespace perfmodel {
namespace hosts_test {

using accuracy::error_percent;
using accuracy::RecordedRun;

const std::filesystem::path kData = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data";

ExecutionGraph mlperf_dlrm() {
  DlrmConfig config = *dlrm_preset("mlperf");
  config.batch = 2048;
  return build_dlrm(config).value();
}

double host_us(const ExecutionGraph& graph, const OverheadTable& table, const std::string& gpu,
               double host_scale = 1) {
  return predict(graph, accuracy::gpu(gpu), table, {.keep_ops = false, .host_scale = host_scale})
      .value()
      .cpu_us;
}

OverheadTable program_table(const std::string& name) {
  return read_overheads(kData / "overheads" / "programs" / (name + ".json")).value();
}

TEST(ReferenceHost, IsBusyForTheSameTimeBesideEveryGpu) {
  const ExecutionGraph graph = mlperf_dlrm();
  OverheadTables tables(kData);
  double least = 1e300, most = 0;
  for (const char* name : {"v100-sxm2-32gb", "a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm-80gb",
                           "h200-sxm-141gb", "b200-sxm-180gb", "mi300x"}) {
    const auto chosen = tables.choose("", accuracy::gpu(name)).value();
    EXPECT_TRUE(chosen.warning.empty()) << chosen.warning;
    const double us = host_us(graph, *chosen.table, name);
    std::printf("%-16s host %.0f us\n", name, us);
    least = std::min(least, us);
    most = std::max(most, us);
  }
  EXPECT_LE(most, 1.03 * least);
  EXPECT_GT(least, 2500);
  EXPECT_LT(most, 4000);
}

// Recordings with two collectors are brought there by the ops they share, since both are inflated
// alike; the others by the factors of the pool.
TEST(ReferenceHost, TablesOfProgramsAgreeOnAGraphThatNoneOfThemRan) {
  const ExecutionGraph graph = mlperf_dlrm();
  const OverheadTable reference =
      read_overheads(kData / "overheads" / "v100-server-2023.json").value();
  std::map<std::string, double> host;
  for (const OverheadProgram& program : reference.programs) {
    OverheadTable table = program_table(program.name);
    if (program.left_out.empty()) {
      scale_host(table, program.host_scale);
    } else {
      OverheadTable ops = table;
      ops.t4.clear();  // collectors lengthen ops, not calls of the driver
      scale_host(table, scale_to_shared_ops(ops, reference).factor);
    }
    if (table.python_recorded) table.t1 = reference.t1;  // gaps that recording Python lengthened
    host[program.name] = host_us(graph, table, "a100-sxm-40gb");
    std::printf("%-24s host %.0f us\n", program.name.c_str(), host[program.name]);
  }
  ASSERT_EQ(host.size(), 7u);
  // ResNet-18 ran together with the processes of its data loader: 26.6 ms between two steps.
  OverheadTable resnet18 = program_table("resnet18_rtx2080ti");
  const auto& border = resnet18.t1.by_name.at(gap_class_key(GapClass::kIteration)).stats;
  EXPECT_GT(border.median_us, 20'000);
  host.erase("resnet18_rtx2080ti");
  // The MI250 recorded one step of 15 ops, most of them once, with two collectors on: too few to
  // tell a host by. It is in no pool.
  const OverheadTable minitoy = program_table("minitoy_mi250");
  EXPECT_FALSE(minitoy.unfit_for_pools.empty());
  EXPECT_EQ(minitoy.iterations, 1u);
  EXPECT_LT(minitoy.t1.all.count, 20u);
  host.erase("minitoy_mi250");
  // ResNet-50 had two collectors, too, whose cost no shared op tells.
  EXPECT_FALSE(program_table("resnet50_ddp_a100").unfit_for_pools.empty());
  EXPECT_LE(host.at("resnet50_ddp_a100"), 1.5 * host.at("dlrm_v100"));
  host.erase("resnet50_ddp_a100");
  std::vector<double> sorted;
  for (const auto& [name, us] : host) sorted.push_back(us);
  std::ranges::sort(sorted);
  // The program of inference knows no gradient, not even a kind of them.
  EXPECT_LE(sorted.back(), 1.45 * sorted.front());
}

// ---- host time of a program from the other programs
// ----------------------------------------------

struct Program {
  std::string name, gpu;
  std::vector<RecordedRun> runs;
};

class OtherPrograms : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  }

  static OverheadTable learn(const Program& program) {
    std::vector<OverheadSource> sources;
    for (const RecordedRun& run : program.runs) sources.push_back({&run.trace, &run.graph});
    return extract_overheads(sources, {}).value();
  }

  // The pool of the programs that are fit, without this one.
  static OverheadTable pool_without(const std::string& name) {
    std::vector<std::string> names;
    std::vector<OverheadTable> tables;
    for (const char* other : {"dlrm_v100", "rm_8gpu_a100", "linear_rtx2080ti", "resnet18_rtx2080ti",
                              "bert_small_infer_h100"}) {
      if (other == name) continue;
      names.emplace_back(other);
      tables.push_back(program_table(other));
    }
    std::vector<PoolMember> members;
    for (std::size_t i = 0; i < names.size(); ++i) members.push_back({names[i], &tables[i]});
    return pool_overheads(members).value();
  }

  static double mean_host_us(const Program& program, const OverheadTable& table,
                             double host_scale = 1) {
    double sum = 0;
    for (const RecordedRun& run : program.runs) {
      sum += host_us(run.graph, table, program.gpu, host_scale);
    }
    return sum / static_cast<double>(program.runs.size());
  }

  // The one scalar that a user can measure in a minute: what a launch takes.
  static double launch_ratio(const OverheadTable& own, const OverheadTable& pool) {
    return own.call_us("cudaLaunchKernel").us / pool.call_us("cudaLaunchKernel").us;
  }
};

TEST_F(OtherPrograms, AndOneScalarGiveTheHostTimeOfAProgram) {
  std::vector<Program> programs(2);
  programs[0] = {.name = "dlrm_v100", .gpu = "v100-sxm2-32gb", .runs = {}};
  for (int rank = 0; rank < 4; ++rank) {
    const std::string stem = "dlrm_v100_rank" + std::to_string(rank) + "of8_";
    programs[0].runs.push_back(accuracy::read_run(stem + "et", stem + "kineto"));
  }
  programs[1] = {.name = "linear_rtx2080ti", .gpu = "rtx-2080-ti", .runs = {}};
  programs[1].runs.push_back(accuracy::read_run("linear_et", "linear_kineto"));
  double sum = 0;
  for (const Program& program : programs) {
    const OverheadTable own = learn(program), pool = pool_without(program.name);
    const double truth = mean_host_us(program, own);
    const double error = error_percent(mean_host_us(program, pool, launch_ratio(own, pool)), truth);
    OverheadTable shared = pool;
    scale_to_shared_ops(shared, own);
    std::printf("%-18s %.0f us: %+.1f %% by its launches, %+.1f %% by the shared ops\n",
                program.name.c_str(), truth, error,
                error_percent(mean_host_us(program, shared), truth));
    EXPECT_LE(std::abs(error), 30) << program.name;
    sum += std::abs(error);
  }
  EXPECT_LE(sum / 2, 15);
}

// Programs without an execution graph: the trace's graph replaces it. They launch by several calls
// of the runtime and the driver; the scalar is the mean time of any of them.
TEST_F(OtherPrograms, AndOneScalarGiveTheHostTimeOfProgramsWithoutAGraph) {
  const auto mean_launch_us = [](const OverheadTable& table) {
    double sum = 0, count = 0;
    for (const auto& [call, stats] : table.t4) {
      if (call.find("LaunchKernel") == std::string::npos) continue;
      sum += stats.mean_us * static_cast<double>(stats.count);
      count += static_cast<double>(stats.count);
    }
    return sum / count;
  };
  for (const auto& [name, gpu, file] :
       {std::array<const char*, 3>{"rm_8gpu_a100", "a100-sxm-40gb", "rm_8gpu_a100_rank3_kineto"},
        {"bert_small_infer_h100", "h100-sxm-80gb", "bert_small_infer_h100_torch26_kineto"}}) {
    auto recorded = read_recorded_program(*accuracy::public_data() / "traces" /
                                          (std::string(file) + ".json.gz"));
    ASSERT_TRUE(recorded && recorded->trace);
    Program program{.name = name, .gpu = gpu, .runs = {}};
    program.runs.push_back({std::move(recorded->graph), *recorded->trace});
    const OverheadTable own = learn(program), pool = pool_without(name);
    const double truth = mean_host_us(program, own);
    const double scale = mean_launch_us(own) / mean_launch_us(pool);
    const double error = error_percent(mean_host_us(program, pool, scale), truth);
    std::printf("%-21s %.0f us: %+.1f %%\n", name, truth, error);
    EXPECT_LE(std::abs(error), 30) << name;
  }
}

}  // namespace hosts_test
}  // namespace perfmodel
