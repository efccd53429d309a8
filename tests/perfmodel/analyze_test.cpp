#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "made_trace.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/findings.hpp"

namespace perfmodel {
namespace analyze_test {

using test_support::MadeTrace;
using ::testing::HasSubstr;

const Gpu& a100() {
  static const Gpu gpu = *find_gpu("a100-sxm-40gb", *find_data_folder() / "gpus");
  return gpu;
}

constexpr int kSteps = 3, kOps = 20;
constexpr double kKernelUs = 100;

using Defect = std::function<void(MadeTrace&)>;
const Defect kNothing = [](MadeTrace&) {};

// A step without a fault: the device is busy with products in bf16, the host runs ahead.
void healthy_ops(MadeTrace& made, int count = kOps) {
  for (int i = 0; i < count; ++i) {
    made.op("aten::mm", [&] {
      made.spend(3);
      made.launch(4, kKernelUs, 7, "ampere_bf16_s16816gemm_bf16_128x128_ldg8");
      made.spend(2);
    });
  }
}

Trace steps_with(const Defect& first, const Defect& middle, const Defect& last) {
  MadeTrace made;
  made.calibrate();
  for (int step = 0; step < kSteps; ++step) {
    made.step([&] {
      first(made);
      healthy_ops(made, kOps / 2);
      middle(made);
      healthy_ops(made, kOps / 2);
      last(made);
    });
  }
  return made.trace();
}

Findings findings_of(const Trace& trace) {
  auto made = analyze(std::span(&trace, 1), &a100());
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  return made ? std::move(*made) : Findings{};
}

std::vector<std::string> rules_above_fold(const Findings& found) {
  std::vector<std::string> rules;
  for (const Finding& finding : found.findings) {
    if (!finding.folded) rules.emplace_back(finding.rule);
  }
  return rules;
}

// The fault is found, nothing else is.
Finding only_finding(const Trace& trace, const std::string& rule) {
  const Findings found = findings_of(trace);
  EXPECT_THAT(rules_above_fold(found), ::testing::ElementsAre(rule));
  EXPECT_NEAR(found.step_us, *found.measured_us, 0.02 * *found.measured_us);
  return found.findings.empty() ? Finding{} : found.findings.front();
}

TEST(Analyze, AHealthyStepHasNoFindings) {
  EXPECT_THAT(rules_above_fold(findings_of(steps_with(kNothing, kNothing, kNothing))),
              ::testing::IsEmpty());
}

TEST(Analyze, AKernelOfFewBlocksThatTakesMostOfTheStepComesFirst) {
  const Trace trace = steps_with(
      kNothing,
      [](MadeTrace& made) {
        made.op("aten::cumsum", [&] {
          made.launch(4, 3000, 7, "tensor_kernel_scan_outer_dim", ", \"blocks per SM\": 0.01");
        });
      },
      kNothing);
  const Finding first = only_finding(trace, "low-parallelism");
  // 3,000 us, plus 20 kernels of 100, with gaps of 0.75.
  EXPECT_NEAR(first.share, 3000 / (5000 + 21 * MadeTrace::kGap), 0.005);
  // Repaired it fills half of the SMs: 3,000 us * 0.01 / 0.5 = 60 us.
  EXPECT_NEAR(*first.gain_us, 2940, 3);
  EXPECT_THAT(first.where, HasSubstr("aten::cumsum"));
  EXPECT_THAT(first.title, HasSubstr("fills 1.0 %"));
}

// The gain of a repair is the difference to the trace of a repaired program.
struct Repairable {
  std::string rule;
  Defect first = kNothing, middle = kNothing, last = kNothing;
  Defect repaired_middle = kNothing;
};
void PrintTo(const Repairable& at, std::ostream* out) { *out << at.rule; }

class AnalyzeDefects : public ::testing::TestWithParam<Repairable> {};

TEST_P(AnalyzeDefects, IsFoundAloneAndGainsWhatTheRepairedProgramDoes) {
  const auto& at = GetParam();
  const Finding finding = only_finding(steps_with(at.first, at.middle, at.last), at.rule);
  const Findings bad = findings_of(steps_with(at.first, at.middle, at.last));
  const Findings good = findings_of(steps_with(kNothing, at.repaired_middle, kNothing));
  ASSERT_TRUE(finding.gain_us);
  EXPECT_NEAR(*finding.gain_us, *bad.measured_us - *good.measured_us, 0.03 * *bad.measured_us);
}

const auto kItem = [](MadeTrace& made) {
  made.op("aten::item",
          [&] { made.op("aten::_local_scalar_dense", [&] { made.sync_stream(4); }); });
};

INSTANTIATE_TEST_SUITE_P(
    Made, AnalyzeDefects,
    ::testing::Values(
        Repairable{.rule = "data-loader", .first = [](MadeTrace& made) { made.load_data(4000); }},
        Repairable{.rule = "step-gaps", .last = [](MadeTrace& made) { made.spend(4000); }},
        Repairable{
            .rule = "cpu-ops",
            .middle = [](MadeTrace& made) { made.op("aten::unique", [&] { made.spend(4000); }); }},
        Repairable{.rule = "allocator-calls",
                   .middle =
                       [](MadeTrace& made) {
                         made.op("aten::empty", [&] {
                           made.sync_device(500, "cudaFree");
                           made.call("cudaMalloc", 800);
                         });
                       }},
        Repairable{.rule = "blocking-waits",
                   .middle =
                       [](MadeTrace& made) {
                         kItem(made);
                         made.op("aten::add", [&] {
                           made.spend(80);
                           made.launch(4, 50, 7, "ampere_bf16_s16816gemm_bf16_64x64");
                         });
                         kItem(made);
                         made.op("aten::add", [&] {
                           made.spend(80);
                           made.launch(4, 50, 7, "ampere_bf16_s16816gemm_bf16_64x64");
                         });
                       },
                   .repaired_middle =
                       [](MadeTrace& made) {
                         for (int i = 0; i < 2; ++i) {
                           made.op("aten::add", [&] {
                             made.spend(80);
                             made.launch(4, 50, 7, "ampere_bf16_s16816gemm_bf16_64x64");
                           });
                         }
                       }},
        Repairable{.rule = "layout-changes",
                   .middle =
                       [](MadeTrace& made) {
                         for (int i = 0; i < 4; ++i) {
                           made.op("aten::cudnn_convolution",
                                   [&] { made.launch(4, 60, 7, "nchwToNhwcKernel"); });
                         }
                       }},
        Repairable{.rule = "exposed-communication",
                   .last =
                       [](MadeTrace& made) {
                         made.op("c10d::all_to_all", [&] {
                           made.record(1, 7);
                           made.wait_event(1, 13);
                           made.finish(made.arrive(4) + 2500, "",
                                       "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage)");
                           made.record(2, 13);
                           made.wait_event(2, 7);
                         });
                       }}),
    [](const auto& info) {
      std::string name = info.param.rule;
      std::ranges::replace(name, '-', '_');
      return name;
    });

TEST(Analyze, ManySmallKernelsInARow) {
  const Finding found = only_finding(
      steps_with(
          kNothing,
          [](MadeTrace& made) {
            made.annotation("Optimizer", [&] {
              for (int i = 0; i < 60; ++i) {
                made.op("aten::add_",
                        [&] { made.launch(4, 5, 7, "vectorized_elementwise_kernel<4>"); });
              }
            });
          },
          kNothing),
      "small-kernels");
  EXPECT_THAT(found.title, HasSubstr("60 pointwise kernels of 5.0 us"));
  EXPECT_THAT(found.where, HasSubstr("Optimizer"));
  // 60 kernels of 5 us with a gap each become one of 60 * 3.5 + 1.5 us; gaps of streams stay.
  EXPECT_NEAR(*found.gain_us, 60 * 5 - (60 * 3.5 + 1.5), 10);
}

TEST(Analyze, AnUploadFromPageableMemory) {
  const Finding found = only_finding(
      steps_with([](MadeTrace& made) { made.op("aten::to", [&] { made.upload(20, 8000, 5); }); },
                 kNothing, kNothing),
      "pageable-upload");
  // 77 MB at 80 % of 31.5 GB/s.
  const double pinned = 77e6 / (0.8 * a100().pcie_bandwidth.value) * 1e6;
  EXPECT_NEAR(*found.gain_us, 8000 - pinned, 0.1 * 8000);
}

TEST(Analyze, ManySmallReductions) {
  const std::string note =
      R"(, "Collective name": "allreduce", "In msg nelems": 16384, "Out msg nelems": 16384, )"
      R"("dtype": "Float", "Group size": 8, "Process Group Name": "0")";
  const Finding found = only_finding(
      steps_with(kNothing, kNothing,
                 [&](MadeTrace& made) {
                   for (int i = 0; i < 10; ++i) {
                     made.op("c10d::allreduce_", [&] {
                       made.launch(4, 9, 7, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", note);
                     });
                   }
                 }),
      "small-buckets");
  EXPECT_THAT(found.title, HasSubstr("10 reductions of 64 KiB"));
  EXPECT_NEAR(*found.gain_us, 9 * 9, 1);  // one of ten is left
}

TEST(Analyze, ProductsInFp32OnAGpuWithMatrixUnits) {
  const Finding found = only_finding(
      steps_with(
          kNothing,
          [](MadeTrace& made) {
            made.op("aten::addmm", [&] { made.launch(4, 1000, 7, "ampere_sgemm_128x64_tn"); });
          },
          kNothing),
      "fp32-products");
  EXPECT_NEAR(*found.gain_us, 1000 * (1 - 19.5 / 312), 5);  // data sheet: TFLOP/s
}

TEST(Analyze, AHostThatLaunchesTooSlowly) {
  const auto slow = [](MadeTrace& made) {
    for (int i = 0; i < 200; ++i) {
      made.op("aten::baddbmm", [&] {
        made.spend(20);
        made.launch(6, 4, 7, "ampere_bf16_s16816gemm_bf16_64x64");
        made.spend(10);
      });
    }
  };
  const Finding found = only_finding(steps_with(kNothing, slow, kNothing), "host-bound");
  EXPECT_THAT(found.title, HasSubstr("aten::baddbmm"));
}

std::string shapes(const std::string& dims, const std::string& strides, const std::string& type) {
  return fmt::format(R"("Input Dims": [{0}, {0}, []], "Input Strides": [{1}, {2}, []], )"
                     R"("Input type": ["{3}", "{3}", "Scalar"], "Concrete Inputs": ["", "", "1"])",
                     dims, strides, "[8192, 1]", type);
}

TEST(Analyze, AKernelThatReadsAcrossRows) {
  const Finding found = only_finding(
      steps_with(
          kNothing,
          [](MadeTrace& made) {
            made.op(
                "aten::add", [&] { made.launch(4, 2500, 7, "elementwise_kernel<128, 4, add>"); },
                shapes("[8192, 8192]", "[1, 8192]", "float"));
          },
          kNothing),
      "far-below-roofline");
  // Two reads and a write of 268 MB; half of the bandwidth is within reach.
  const double least = 3 * 4.0 * 8192 * 8192 / a100().dram_bandwidth.value * 1e6;
  EXPECT_THAT(found.title, HasSubstr(fmt::format("reaches {:.0f} %", 100 * least / 2500)));
  EXPECT_THAT(found.title, HasSubstr("input 1 is strided"));
  EXPECT_NEAR(*found.gain_us, 2500 - 2 * least, 5);
}

Defect product_of_width(int width) {
  return [width](MadeTrace& made) {
    made.op(
        "aten::mm", [&] { made.launch(4, 350, 7, "ampere_bf16_s16816gemm_bf16_128x128_ldg2"); },
        fmt::format(R"("Input Dims": [[4096, 4096], [4096, {}]], )"
                    R"("Input type": ["c10::BFloat16", "c10::BFloat16"])",
                    width));
  };
}

TEST(Analyze, AProductWhoseRowsDoNotBeginAt16Bytes) {
  const Finding found =
      only_finding(steps_with(kNothing, product_of_width(1023), kNothing), "misaligned-products");
  EXPECT_THAT(found.title, HasSubstr("4096 x 1023 x 4096"));
  // Then it takes the models' time of 1,024 columns, 2 m n k at the peak and a little more.
  const double at_peak = 2.0 * 4096 * 1024 * 4096 / 312e12 * 1e6;
  EXPECT_LT(*found.gain_us, 350 - at_peak);
  EXPECT_GT(*found.gain_us, 350 - 2 * at_peak);
  EXPECT_THAT(rules_above_fold(findings_of(steps_with(kNothing, product_of_width(1024), kNothing))),
              ::testing::IsEmpty());
}

TEST(Analyze, ForwardWorkThatACheckpointDoesAgain) {
  const auto in_backward = [](const std::string& name) -> Defect {
    return [name](MadeTrace& made) {
      made.op("autograd::engine::evaluate_function: " + name,
              [&] { made.op(name, [&] { healthy_ops(made, 6); }); });
    };
  };
  const Finding found = only_finding(
      steps_with(kNothing, in_backward("CheckpointFunctionBackward"), kNothing), "recomputation");
  EXPECT_NEAR(*found.gain_us, 6 * kKernelUs, 5 * MadeTrace::kGap);
  EXPECT_EQ(found.confidence, Confidence::kLow);  // nothing tells how much memory is free
  EXPECT_THAT(
      rules_above_fold(findings_of(steps_with(kNothing, in_backward("MmBackward0"), kNothing))),
      ::testing::IsEmpty());
}

// The allocator's record of a buffer that stays.
Trace trace_that_takes(double reserved) {
  MadeTrace made;
  made.calibrate();
  for (int step = 0; step < kSteps; ++step) {
    made.step([&] {
      healthy_ops(made);
      made.op("aten::empty", [&] {
        made.raw(fmt::format(R"({{"ph": "i", "s": "t", "cat": "cpu_instant_event", )"
                             R"("name": "[memory]", "pid": 1, "tid": 1, "ts": {:.3f}, "args": )"
                             R"({{"Device Type": 1, "Device Id": 0, "Addr": 4096, "Bytes": 512, )"
                             R"("Total Allocated": 1024, "Total Reserved": {:.0f}}}}})",
                             made.base_us + made.now(), reserved));
        made.spend(1);
      });
    });
  }
  return made.trace();
}

TEST(Analyze, MemoryNearTheLimitComesFirstAndCostsNoTime) {
  const double usable = a100().usable_memory().value;
  const Finding found = only_finding(trace_that_takes(0.95 * usable), "memory-limit");
  EXPECT_FALSE(found.gain_us);
  EXPECT_THAT(found.title, HasSubstr("(95 %)"));
  EXPECT_THAT(rules_above_fold(findings_of(trace_that_takes(0.85 * usable))), ::testing::IsEmpty());
}

TEST(Analyze, ARankThatAllOthersWaitFor) {
  std::vector<MadeTrace> ranks(3);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].head = fmt::format(R"("distributedInfo": {{"rank": {}, "world_size": 3}}, )", r);
  }
  for (int step = 0; step < kSteps; ++step) {
    double last = 0;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      ranks[r].begin_step();
      ranks[r].op("aten::mm", [&] {
        ranks[r].spend(r == 2 ? 1600 : 1000);
        ranks[r].launch(4, 50, 7, "ampere_bf16_s16816gemm_bf16_128x128_ldg8");
        last = std::max(last, ranks[r].arrive(5));
      });
    }
    for (MadeTrace& rank : ranks) {
      rank.finish(last + 200, fmt::format(R"(, "Collective name": "allreduce", "Seq": {}, )"
                                          R"("Process Group Name": "0", "Group size": 3, )"
                                          R"("In msg nelems": 8, "Out msg nelems": 8)",
                                          step));
      rank.sync_stream(4, 13);
      rank.end_step();
    }
  }
  std::vector<Trace> traces;
  for (const MadeTrace& rank : ranks) traces.push_back(rank.trace());
  const auto found = analyze(traces, &a100(), {.rules = {"straggler"}});
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->findings.size(), 1U);
  EXPECT_THAT(found->findings.front().title, HasSubstr("wait for rank 2"));
  // Two of three ranks take 600 us less by themselves.
  EXPECT_NEAR(*found->findings.front().gain_us, 600 * 2 / 3.0, 1);
}

TEST(Analyze, AFindingTellsTheLineOfPython) {
  MadeTrace made;
  for (int step = 0; step < kSteps; ++step) {
    made.python("train.py(30): main", [&] {
      made.step([&] {
        healthy_ops(made);
        made.python("model.py(12): forward", [&] {
          made.python("nn.Module: Bag_0", [&] {
            made.python("torch/nn/modules/module.py(1751): _call_impl",
                        [&] { made.op("aten::unique", [&] { made.spend(4000); }); });
          });
        });
      });
    });
  }
  const Trace with = made.trace("made.json", {.python_frames = true}), without = made.trace();
  EXPECT_EQ(only_finding(with, "cpu-ops").where,
            "ProfilerStep / nn.Module: Bag_0 / aten::unique at model.py(12): forward");
  EXPECT_EQ(only_finding(without, "cpu-ops").where,
            "ProfilerStep / nn.Module: Bag_0 / aten::unique");
  EXPECT_TRUE(without.has_python_frames && without.frames.empty());
}

TEST(Analyze, TablesThatTakeLongerOnOneRank) {
  std::vector<Trace> ranks;
  for (const double us : {400.0, 400.0, 1600.0, 400.0}) {
    MadeTrace made;
    made.head =
        fmt::format(R"("distributedInfo": {{"rank": {}, "world_size": 4}}, )", ranks.size());
    for (int step = 0; step < kSteps; ++step) {
      made.step([&] {
        healthy_ops(made);
        made.op("fbgemm::split_embedding_codegen_lookup_sgd_function", [&] {
          made.launch(4, us, 7, "split_embedding_codegen_forward_unweighted_kernel");
        });
      });
    }
    ranks.push_back(made.trace());
  }
  const auto found = analyze(ranks, &a100(), {.rules = {"unbalanced-tables"}});
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->findings.size(), 1U);
  const Finding& finding = found->findings.front();
  EXPECT_THAT(finding.title, HasSubstr("1600 us per step on rank 2, 700 us on average"));
  EXPECT_NEAR(*finding.gain_us, 900, 1);
}

TEST(Analyze, RefusesUnknownRulesAndEmptyTraces) {
  const Trace healthy = steps_with(kNothing, kNothing, kNothing);
  const auto unknown = analyze(std::span(&healthy, 1), &a100(), {.rules = {"magic"}});
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("found \"magic\""));
  const auto window = analyze(std::span(&healthy, 1), &a100(), {.iterations = {{1, 9}}});
  ASSERT_FALSE(window);
  EXPECT_THAT(window.error().message, HasSubstr("0:3"));
  const Trace empty;
  ASSERT_FALSE(analyze(std::span(&empty, 1), &a100()));
}

}  // namespace analyze_test
}  // namespace perfmodel
