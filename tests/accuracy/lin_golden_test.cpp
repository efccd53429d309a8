// Figures that the published code of Lin et al. gives on the public DLRM trace of rank 0, with its
// profiler cost of 2 us per event and without its marker rules (the trace holds one iteration).
#include "accuracy_support.hpp"

namespace perfmodel {
namespace lin_golden_test {

class LinGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
    const Trace trace =
        read_trace(*accuracy::public_data() / "traces" / "dlrm_v100_rank0of8_kineto.json.gz")
            .value();
    const OverheadSource source{&trace, nullptr};
    table_ =
        extract_overheads({&source, 1}, {.method = OverheadMethod::kLin, .profiler_cost_us = 2})
            .value();
  }

  static OverheadStats of(const OverheadTerm& term, std::string_view op) {
    return term.by_name.at(hash_text(op)).stats;
  }

  OverheadTable table_;
};

TEST_F(LinGolden, OpOverheads) {
  EXPECT_NEAR(of(table_.t2, "aten::linear").mean_us, 23.286, 5e-4);
  EXPECT_NEAR(of(table_.t3, "aten::linear").mean_us, 4.833, 5e-4);
  EXPECT_NEAR(of(table_.t2, "aten::relu").mean_us, 8.167, 5e-4);
  EXPECT_NEAR(of(table_.t2, "aten::to").mean_us, 9.182, 5e-4);
  EXPECT_NEAR(of(table_.t3, "aten::to").mean_us, 1.364, 5e-4);
  EXPECT_NEAR(of(table_.t2, "aten::cat").mean_us, 10.667, 5e-4);
  EXPECT_NEAR(of(table_.t3, "aten::cat").mean_us, 5.667, 5e-4);
  EXPECT_NEAR(of(table_.t2, "autograd::engine::evaluate_function: AddmmBackward0").mean_us, 14.714,
              5e-4);
  EXPECT_NEAR(
      of(table_.t3, "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad").mean_us,
      3.083, 5e-4);
  EXPECT_EQ(table_.t4.at("cudaLaunchKernel").mean_us, 4);
}

// Known difference: the published figure is T1 = 3.054 us over 184 gaps. Leaving out one
// `as_strided` after a stream wait at the end of the backward pass, and so its gap of 10 us (8
// without the recording cost), gives just that: (185 x 3.081 - 8) / 184 = 3.054. Why it is left out
// there is not known.
TEST_F(LinGolden, GapsHoldOneMoreThanThePublishedFigure) {
  EXPECT_EQ(table_.t1.all.count, 185u);
  EXPECT_NEAR(table_.t1.all.mean_us, 3.081, 5e-4);
  EXPECT_NEAR((185 * table_.t1.all.mean_us - 8) / 184, 3.054, 5e-4);
}

}  // namespace lin_golden_test
}  // namespace perfmodel
