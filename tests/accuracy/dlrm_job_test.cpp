// The four recorded ranks of a DLRM job predicted together: each rank with the overheads and launch
// templates of the other three, kernels and collectives predicted. Ranks 4-7 were not recorded.
#include <cstdio>

#include "accuracy_support.hpp"

namespace perfmodel {
namespace dlrm_job_test {

using accuracy::error_percent;
using accuracy::RecordedRun;

class DlrmJob : public ::testing::Test {
 protected:
  static constexpr std::size_t kRanks = 4;
  static constexpr std::size_t kLastArriving = 2;  // it waits for no rank: 0.03 ms in the recording

  void SetUp() override {
    if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      const std::string stem = "dlrm_v100_rank" + std::to_string(rank) + "of8_";
      runs_.push_back(accuracy::read_run(stem + "et", stem + "kineto"));
      const auto step = iterations(runs_.back().trace).at(0);
      starts_us_.push_back(
          static_cast<double>(runs_.back().trace.base_ns + step.begin_ns - first_stamp()) / 1e3);
    }
  }

  std::int64_t first_stamp() const { return runs_.front().trace.base_ns; }
  double measured_us(std::size_t rank) const {
    return accuracy::truth_of(runs_[rank].trace, 0).wall_us;
  }

  OverheadTable table_of_others(std::size_t rank) const {
    std::vector<OverheadSource> sources;
    for (std::size_t i = 0; i < kRanks; ++i) {
      if (i != rank) sources.push_back({&runs_[i].trace, &runs_[i].graph});
    }
    return extract_overheads(sources, {}).value();
  }
  OverheadTable own_table(std::size_t rank) const {
    const OverheadSource own{&runs_[rank].trace, &runs_[rank].graph};
    return extract_overheads({&own, 1}, {}).value();
  }

  JobPrediction predict(const std::vector<OverheadTable>& tables, const JobOptions& options,
                        const std::vector<KernelTimes>& traced = {}) const {
    std::vector<RankInput> inputs;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      inputs.push_back({.graph = &runs_[rank].graph, .table = &tables[rank]});
      if (!traced.empty()) inputs.back().options.kernel_times = &traced[rank];
    }
    return predict_job(inputs, gpu_, options).value();
  }

  std::vector<RecordedRun> runs_;
  std::vector<double> starts_us_;
  Gpu gpu_ = accuracy::gpu("v100-sxm2-32gb");
};

TEST_F(DlrmJob, OwnGapsAndKernelsLeaveOnlyTheWaits) {
  std::vector<OverheadTable> tables;
  std::vector<KernelTimes> traced;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    tables.push_back(own_table(rank));
    traced.push_back(kernel_times(runs_[rank].graph, runs_[rank].trace).value());
  }
  const JobPrediction job = predict(tables, {.rank_start_us = starts_us_}, traced);
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    const double together = error_percent(job.ranks[rank].e2e_us, measured_us(rank));
    // Alone, the recorded durations of collectives hold the waiting for other ranks.
    PredictOptions options;
    options.kernel_times = &traced[rank];
    const auto alone = perfmodel::predict(runs_[rank].graph, gpu_, tables[rank], options).value();
    const double apart = error_percent(alone.e2e_us, measured_us(rank));
    std::printf("rank %zu: together %+.2f %%, alone %+.2f %%\n", rank, together, apart);
    EXPECT_LE(std::abs(together), 1) << "rank " << rank;
    EXPECT_LE(std::abs(apart), 1) << "rank " << rank;
  }
}

TEST_F(DlrmJob, NothingAsTracedButTheStarts) {
  std::vector<OverheadTable> tables;
  for (std::size_t rank = 0; rank < kRanks; ++rank) tables.push_back(table_of_others(rank));
  const JobPrediction started = predict(tables, {.rank_start_us = starts_us_});
  const JobPrediction steady = predict(tables, {});
  std::printf("rank  measured us   started    steady   waiting us (started)\n");
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    const double measured = measured_us(rank);
    const double error = error_percent(started.ranks[rank].e2e_us, measured);
    std::printf("%4zu  %11.0f  %+7.1f%%  %+7.1f%%   %8.0f\n", rank, measured, error,
                error_percent(steady.ranks[rank].e2e_us, measured),
                started.ranks[rank].communication.waiting_us);
    EXPECT_LE(std::abs(error), 5) << "rank " << rank;
  }
  // Without the starts only the rank that the others waited for can be known.
  EXPECT_LE(std::abs(error_percent(steady.ranks[kLastArriving].e2e_us, measured_us(kLastArriving))),
            6);
  // Who waits for whom is as recorded: all for rank 2, most of all rank 1.
  ASSERT_TRUE(started.job);
  EXPECT_EQ(started.job->straggler, kLastArriving);
  for (std::size_t rank : {0, 3}) {
    EXPECT_GT(started.ranks[1].communication.waiting_us,
              started.ranks[rank].communication.waiting_us);
  }
}

}  // namespace dlrm_job_test
}  // namespace perfmodel
