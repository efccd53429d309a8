// A host without what its collector added, and the scales that a measured step tells.
#include "overheads/own_host.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "overheads/host_kind.hpp"
#include "perfmodel/detail/match_step.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "tiny_run.hpp"

namespace perfmodel {
namespace own_host_test {

using test_support::TinyRun;

Gpu gpu() {
  return find_gpu("v100-sxm2-32gb", std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus")
      .value();
}

// Steps of three ops; all that the host does takes `pace` times as long.
void steps(TinyRun& run, double pace) {
  for (int step = 0; step < 3; ++step) {
    run.label("ProfilerStep#" + std::to_string(step + 1), [&] {
      run.spend(10 * pace);
      for (const char* name : {"aten::mm", "aten::relu"}) {
        run.op(name, [&] {
          run.spend(4 * pace);
          run.launch(6 * pace, 2);
          run.spend(3 * pace);
        });
        run.spend(5 * pace);
      }
      run.op("aten::view", [&] { run.spend(7 * pace); });
      run.spend(20 * pace);
    });
  }
}

struct Recorded {
  TinyRun run;
  OverheadTable table;
  explicit Recorded(double pace) {
    steps(run, pace);
    const OverheadSource source{.trace = &run.trace(), .graph = &run.graph()};
    table = extract_overheads(std::span(&source, 1), {}).value();
    table.unfit_for_pools.clear();
    table.collector = Collector::kProfiler;
  }
};

constexpr TermFactors kFactors = {0.8, 0.5, 0.5, 1.2, 0.5, 0.5};

OverheadTable reference() {
  OverheadTable table = Recorded(1).table;
  scale_terms(table, kFactors);
  table.without_collector = kFactors;
  return table;
}

double mean_us(const OverheadTerm& term, std::string_view name) {
  return term.by_name.at(hash_text(name)).stats.mean_us;
}

TEST(OwnHost, IsThatOfTheReferenceWhereTheRecordingWasOnlySlower) {
  Recorded slow(2);
  slow.table.warnings.clear();
  const OverheadTable with = slow.table;
  ASSERT_TRUE(take_collector_out(slow.table, reference(), slow.run.graph(), gpu()));
  ASSERT_TRUE(slow.table.without_collector);
  EXPECT_NEAR(mean_us(slow.table.t2, "aten::mm"), 4 * 0.5, 0.02);
  EXPECT_NEAR(mean_us(slow.table.tx, "aten::view"), 7 * 0.5, 0.02);
  EXPECT_NEAR(slow.table.t4.at("cudaLaunchKernel").mean_us, 6 * 1.2, 0.05);
  EXPECT_NEAR(slow.table.without_collector->at(0), 0.4, 0.01);
  EXPECT_EQ(slow.table.ops.at("aten::mm").mean_us, with.ops.at("aten::mm").mean_us);
  EXPECT_TRUE(slow.table.warnings.empty());
  // And back.
  const OverheadTable again = as_recorded(slow.table);
  EXPECT_FALSE(again.without_collector);
  EXPECT_NEAR(mean_us(again.t2, "aten::mm"), 8, 1e-9);
  // A recording without a collector has none to take out.
  const double before = mean_us(slow.table.t2, "aten::mm");
  ASSERT_TRUE(take_collector_out(slow.table, reference(), slow.run.graph(), gpu()));
  EXPECT_EQ(mean_us(slow.table.t2, "aten::mm"), before);
}

TEST(OwnHost, OfAnUnknownCollectorIsAsRecordedAndSaysSoFirst) {
  Recorded slow(2);
  slow.table.collector = Collector::kUnknown;
  slow.table.warnings = {"another"};
  ASSERT_TRUE(take_collector_out(slow.table, reference(), slow.run.graph(), gpu()));
  EXPECT_FALSE(slow.table.without_collector);
  EXPECT_EQ(mean_us(slow.table.t2, "aten::mm"), 8);
  ASSERT_EQ(slow.table.warnings.size(), 2u);
  EXPECT_NE(slow.table.warnings[0].find("taken as recorded"), std::string::npos);
}

TEST(OwnHost, BesideAnObserverHasThePaceOfTheReference) {
  Recorded slow(2);
  slow.table.collector = Collector::kProfilerAndObserver;
  scale_terms(slow.table, {1, 3, 1, 1, 1, 1});  // T2 of all ops, as no other recording has it
  ASSERT_TRUE(take_collector_out(slow.table, reference(), slow.run.graph(), gpu()));
  const auto host_us = [&](const OverheadTable& table) {
    return predict(slow.run.graph(), gpu(), table, {.keep_ops = false}).value().cpu_us;
  };
  EXPECT_NEAR(host_us(slow.table), host_us(reference()), 0.05);
  EXPECT_NE(slow.table.warnings.at(0).find("observer"), std::string::npos);
}

TEST(OwnHost, WithCallsOfPythonHasTheGapsOfTheReference) {
  Recorded slow(1);
  slow.table.collector = Collector::kProfilerWithStacks;
  slow.table.python_recorded = true;
  scale_terms(slow.table, {9, 1, 1, 1, 1, 1});
  ASSERT_TRUE(take_collector_out(slow.table, reference(), slow.run.graph(), gpu()));
  EXPECT_NEAR(slow.table.t1.all.mean_us, reference().t1.all.mean_us, 0.05);
  EXPECT_NE(slow.table.warnings.at(0).find("calls of Python"), std::string::npos);
}

TEST(OwnHost, RecordedStepsAreThoseOfTheMarks) {
  Recorded run(1);
  const auto marked = recorded_step_us(run.run.trace());
  EXPECT_NEAR(marked, 10 + 2 * (13 + 5) + 7 + 20, 1e-9);
  EXPECT_NEAR(recorded_step_us(run.run.trace(), std::pair<std::size_t, std::size_t>{1, 2}), marked,
              1e-9);
}

// ---- kinds
// -----------------------------------------------------------------------------------------

TEST(HostKinds, AreToldByNames) {
  EXPECT_EQ(host_kind("aten::view"), host_kind("aten::transpose"));
  EXPECT_EQ(host_kind("aten::relu"), host_kind("aten::mul"));
  EXPECT_NE(host_kind("aten::mul_"), host_kind("aten::mul"));
  EXPECT_EQ(host_kind("aten::_foreach_add_"), kAnyList);
  constexpr std::string_view kCall = "autograd::engine::evaluate_function: ";
  const auto gradient = [&](std::string_view node) {
    return host_kind(std::string(kCall) + std::string(node));
  };
  EXPECT_EQ(gradient("ViewBackward0"), gradient("TransposeBackward0"));
  EXPECT_EQ(gradient("UnsafeViewBackward0"), gradient("ViewBackward0"));
  EXPECT_NE(gradient("ViewBackward0"), gradient("AddmmBackward0"));
  EXPECT_EQ(gradient("AddmmBackward0"), gradient("ConvolutionBackward0"));
  EXPECT_EQ(gradient("torch::autograd::AccumulateGrad"), gradient("NoSuchOpBackward0"));
  EXPECT_TRUE(is_host_kind(host_kind("my_library::op")));
  EXPECT_FALSE(is_host_kind("aten::view"));
}

TEST(HostKinds, StandForOpsThatNobodySaw) {
  OverheadTerm term;
  term.all = {.mean_us = 99, .count = 7};
  const auto add = [&](const std::string& name, double us) {
    term.by_name[hash_text(name)] = {name, {.mean_us = us, .count = 1}};
  };
  add("aten::view", 2);
  add("aten::transpose", 3);
  add("aten::select", 40);
  add("aten::mm", 20);
  add_kinds(term);
  const auto of = [&](std::string_view op) {
    return term.find({}, hash_text(op), host_kind_key(op));
  };
  EXPECT_EQ(of("aten::permute").us, 3);  // the median of views
  EXPECT_EQ(of("aten::permute").level, KeyLevel::kKind);
  EXPECT_EQ(of("aten::select").us, 40);
  EXPECT_EQ(of("aten::select").level, KeyLevel::kName);
  EXPECT_EQ(of("aten::sum").us, 99);
  EXPECT_EQ(of("aten::sum").level, KeyLevel::kAll);
}

// ---- one measured step
// ----------------------------------------------------------------------------

// A host and a device in parallel, and a collective that nothing scales.
Result<Prediction> beside(const StepScales& scales, double host, double device,
                          double collective = 0) {
  Prediction made;
  made.gpu_active_us = scales.device * device + collective;
  made.e2e_us = std::max(scales.host * host, made.gpu_active_us);
  return made;
}

TEST(MatchStep, ScalesWhatBoundsTheStep) {
  const auto match = [](double measured, double host, double device, double collective = 0) {
    return match_step(measured, [=](const StepScales& scales) {
      return beside(scales, host, device, collective);
    });
  };
  const auto slower = match(150, 100, 20);
  ASSERT_TRUE(slower);
  EXPECT_NEAR(slower->host, 1.5, 1e-3);
  EXPECT_EQ(slower->device, 1);
  const auto faster = match(40, 100, 20);
  ASSERT_TRUE(faster);
  EXPECT_NEAR(faster->host, 0.4, 1e-3);
  const auto by_gpu = match(120, 30, 100);
  ASSERT_TRUE(by_gpu);
  EXPECT_EQ(by_gpu->host, 1);
  EXPECT_NEAR(by_gpu->device, 1.2, 1e-3);
  // Host-bound by prediction, but shorter than the kernels: both are too slow.
  const auto both = match(10, 100, 20);
  ASSERT_TRUE(both);
  EXPECT_NEAR(both->host, 0.1, 1e-3);
  EXPECT_EQ(both->host, both->device);
}

TEST(MatchStep, RefusesWhatNothingExplains) {
  const auto match = [](double measured) {
    return match_step(measured,
                      [](const StepScales& scales) { return beside(scales, 50, 10, 90); });
  };
  EXPECT_FALSE(match(0));
  EXPECT_FALSE(match(-1));
  EXPECT_FALSE(match(std::numeric_limits<double>::infinity()));
  const auto shorter = match(80);  // than the collective
  ASSERT_FALSE(shorter);
  EXPECT_NE(shorter.error().message.find("found 80 us"), std::string::npos)
      << shorter.error().message;
  const auto failing = match_step(1, [](const StepScales&) -> Result<Prediction> {
    return fail(ErrorCode::kCancelled, "cancelled");
  });
  ASSERT_FALSE(failing);
  EXPECT_EQ(failing.error().code, ErrorCode::kCancelled);
}

}  // namespace own_host_test
}  // namespace perfmodel
