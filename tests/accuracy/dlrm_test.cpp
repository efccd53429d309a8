// Four ranks of a recorded DLRM step on V100-32GB: the graph of one rank, overheads and launch
// templates of the other three, collectives as traced, everything else predicted.
#include <cstdio>
#include <map>

#include "accuracy_support.hpp"

namespace perfmodel {
namespace dlrm_test {

using accuracy::error_percent;
using accuracy::RecordedRun;

class DlrmRanks : public ::testing::Test {
 protected:
  static constexpr std::size_t kRanks = 4;

  void SetUp() override {
    if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      const std::string stem = "dlrm_v100_rank" + std::to_string(rank) + "of8_";
      runs_.push_back(accuracy::read_run(stem + "et", stem + "kineto"));
    }
  }

  std::vector<OverheadSource> others(std::size_t rank) const {
    std::vector<OverheadSource> sources;
    for (std::size_t i = 0; i < kRanks; ++i) {
      if (i != rank) sources.push_back({&runs_[i].trace, &runs_[i].graph});
    }
    return sources;
  }

  Prediction predict_rank(std::size_t rank, const OverheadTable& table,
                          const KernelModels& models = KernelModels::heuristic()) const {
    const auto traced = kernel_times(runs_[rank].graph, runs_[rank].trace).value();
    PredictOptions options;
    options.kernel_times = &traced;
    options.use = KernelTimes::Use::kComm;
    options.models = &models;
    return predict(runs_[rank].graph, gpu_, table, options).value();
  }

  // Host work of a phase = its label's duration without the waits inside it, on any thread.
  static std::map<std::string, double> host_by_phase(const Trace& trace, const Prediction& like) {
    const auto waits = find_call_waits(trace);
    std::map<std::string, double> host;
    for (const HostEvent& label : trace.host) {
      const std::string name(trace.name(label));
      const bool wanted = std::any_of(like.phases.begin(), like.phases.end(),
                                      [&](const auto& phase) { return phase.label == name; });
      if (label.kind != HostKind::kAnnotation || !wanted) continue;
      double us = static_cast<double>(label.duration_ns) / 1e3;
      for (std::size_t i = 0; i < waits.size(); ++i) {
        const std::int64_t start = trace.host[i].start_ns;
        if (start >= label.start_ns && start < label.end_ns()) {
          us -= static_cast<double>(waits[i].wait_ns) / 1e3;
        }
      }
      host[name] += us;
    }
    return host;
  }

  std::vector<RecordedRun> runs_;
  Gpu gpu_ = accuracy::gpu("v100-sxm2-32gb");
};

TEST_F(DlrmRanks, LeaveOneRankOut) {
  double e2e_sum = 0, phase_sum = 0;
  std::printf(
      "rank   e2e us   error  gpu active  compute  phases |    lin  kernels  roofline  others\n");
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    const auto table = extract_overheads(others(rank), {}).value();
    const Prediction ours = predict_rank(rank, table);
    const auto truth = accuracy::truth_of(runs_[rank].trace, 0);
    const double e2e = error_percent(ours.e2e_us, truth.wall_us);
    const double active = error_percent(ours.gpu_active_us, truth.gpu_active_us);
    const double compute = error_percent(ours.compute_kernel_us, truth.compute_us);

    double phases = 0;
    const auto host = host_by_phase(runs_[rank].trace, ours);
    for (const auto& phase : ours.phases) {
      if (const auto at = host.find(phase.label); at != host.end()) {
        phases +=
            std::abs(error_percent(phase.host_us, at->second)) / static_cast<double>(host.size());
      }
    }
    // Baselines: Lin et al.'s overheads and traversal, device work alone, the plain roofline in our
    // schedule's place, and the mean of the other runs.
    OverheadOptions lin_options{.method = OverheadMethod::kLin, .profiler_cost_us = 2};
    const auto lin = predict_rank(rank, extract_overheads(others(rank), lin_options).value());
    const auto roofline = predict_rank(rank, table, KernelModels::roofline());
    double mean_of_others = 0;
    for (std::size_t i = 0; i < kRanks; ++i) {
      if (i != rank) mean_of_others += accuracy::truth_of(runs_[i].trace, 0).wall_us / (kRanks - 1);
    }
    std::printf(
        "%4zu %8.0f %+6.1f%% %+9.1f%% %+8.1f%% %6.1f%% | %+5.0f%% %+7.0f%% %+8.0f%% %+6.0f%%\n",
        rank, truth.wall_us, e2e, active, compute, phases, error_percent(lin.e2e_us, truth.wall_us),
        error_percent(ours.kernel_sum_us, truth.wall_us),
        error_percent(roofline.kernel_sum_us, truth.wall_us),
        error_percent(mean_of_others, truth.wall_us));
    EXPECT_LE(std::abs(e2e), 6) << "rank " << rank;
    EXPECT_LE(std::abs(active), 5) << "rank " << rank;
    EXPECT_LE(std::abs(compute), 15) << "rank " << rank;
    e2e_sum += std::abs(e2e);
    phase_sum += phases;
  }
  EXPECT_LE(e2e_sum / kRanks, 3);
  EXPECT_LE(phase_sum / kRanks, 10);
}

// The shipped models, fitted on a V100-PCIE-32GB among others, on the V100-SXM2 of the traces.
TEST_F(DlrmRanks, LeaveOneRankOutWithLearnedKernelModels) {
  double sum = 0, heuristic_sum = 0;
  int inside = 0;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    const auto table = extract_overheads(others(rank), {}).value();
    const Prediction ours = predict_rank(rank, table, accuracy::learned_models());
    const Prediction heuristic = predict_rank(rank, table);
    const auto truth = accuracy::truth_of(runs_[rank].trace, 0);
    const double e2e = error_percent(ours.e2e_us, truth.wall_us);
    const double compute = error_percent(ours.compute_kernel_us, truth.compute_us);
    std::printf("rank %zu: e2e %+.2f %% (heuristic %+.2f), compute kernels %+.1f %% (%+.1f)\n",
                rank, e2e, error_percent(heuristic.e2e_us, truth.wall_us), compute,
                error_percent(heuristic.compute_kernel_us, truth.compute_us));
    EXPECT_LE(std::abs(e2e), 6) << "rank " << rank;
    inside += accuracy::holds(ours, truth.wall_us);
    EXPECT_LE(std::abs(compute), 10) << "rank " << rank;
    sum += std::abs(e2e);
    heuristic_sum += std::abs(error_percent(heuristic.e2e_us, truth.wall_us));
  }
  EXPECT_LE(sum / kRanks, 3);
  EXPECT_LE(sum / kRanks, heuristic_sum / kRanks + 0.1);
  EXPECT_GE(inside, static_cast<int>(0.85 * kRanks));
}

TEST_F(DlrmRanks, OwnOverheadsAndKernelsLeaveOnlyTheWaitModel) {
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    const OverheadSource own{&runs_[rank].trace, &runs_[rank].graph};
    const auto table = extract_overheads({&own, 1}, {}).value();
    const auto traced = kernel_times(runs_[rank].graph, runs_[rank].trace).value();
    PredictOptions options;
    options.kernel_times = &traced;
    const auto prediction = predict(runs_[rank].graph, gpu_, table, options).value();
    const auto truth = accuracy::truth_of(runs_[rank].trace, 0);
    const double e2e = error_percent(prediction.e2e_us, truth.wall_us);
    const double active = error_percent(prediction.gpu_active_us, truth.gpu_active_us);
    std::printf("rank %zu: e2e %+.2f %%, gpu active %+.2f %%\n", rank, e2e, active);
    EXPECT_LE(std::abs(e2e), 2) << "rank " << rank;
    EXPECT_LE(std::abs(active), 3) << "rank " << rank;
  }
}

TEST_F(DlrmRanks, LaunchCountsFromTheOtherRanks) {
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    const auto table = extract_overheads(others(rank), {}).value();
    const auto counts =
        accuracy::compare_launches(runs_[rank], gpu_, table.templates, TemplateUse::kCallsAndWork);
    std::printf("rank %zu: %.2f %% of %zu top-level ops\n", rank, counts.percent(), counts.ops);
    EXPECT_EQ(counts.ops, 484u);
    EXPECT_GE(counts.percent(), 99);
  }
}

TEST_F(DlrmRanks, LaunchCountsOfResNet50FromOtherPrograms) {
  const RecordedRun resnet50 =
      accuracy::read_run("resnet50_ddp_et_1.0.3", "resnet50_ddp_2gpu_a100_kineto");
  runs_.push_back(accuracy::read_run("linear_et", "linear_kineto"));
  runs_.push_back(accuracy::read_run("resnet18_et", "resnet18_kineto"));
  std::vector<OverheadSource> sources;
  for (const RecordedRun& run : runs_) sources.push_back({&run.trace, &run.graph});
  const auto table = extract_overheads(sources, {}).value();
  const auto counts = accuracy::compare_launches(resnet50, accuracy::gpu("a100-sxm-40gb"),
                                                 table.templates, TemplateUse::kCalls);
  std::printf("ResNet-50: %.2f %% of %zu top-level ops\n", counts.percent(), counts.ops);
  EXPECT_EQ(counts.ops, 3192u);
  EXPECT_GE(counts.percent(), 88);
}

}  // namespace dlrm_test
}  // namespace perfmodel
