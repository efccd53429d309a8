// Answers of `trace`, `replay` and `overheads` as the library makes them, without the commands.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "explain/measured_memory_results.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/replay.hpp"
#include "replay/replay_results.hpp"
#include "trace/trace_results.hpp"

namespace perfmodel {
namespace trace_answers_test {

TEST(ReplayAnswer, FilesAreOfOneKind) {
  EXPECT_EQ(are_chakra_files(std::vector<std::string>{"a.0.et", "a.1.et.gz"}), true);
  EXPECT_EQ(are_chakra_files(std::vector<std::string>{"a.json"}), false);
  const auto mixed = are_chakra_files(std::vector<std::string>{"x/a.et", "b.json"});
  ASSERT_FALSE(mixed);
  EXPECT_EQ(mixed.error().message,
            "expected all Kineto traces or all Chakra traces, found a.et with it");
}

TEST(ReplayAnswer, WhatWasNotMeasuredIsNull) {
  Replay replay{.ranks = {{.source = "x/rank0.json",
                           .iterations = {{.name = "step", .unscaled_us = 2, .replayed_us = 3}}}}};
  const OrderedJson json = replay_json(replay, {.scale_kernels = 2});
  EXPECT_EQ(json["scale_kernels"], 2);
  EXPECT_TRUE(json["mean_abs_error"].is_null());
  EXPECT_EQ(json["iterations"].dump(),
            R"([{"name":"step","measured_us":null,"unscaled_us":2.0,"replayed_us":3.0,)"
            R"("error":null,"change":0.5,"data_loading_us":0.0,"unrecorded_device_us":0.0,)"
            R"("queue_filling":false}])");
  EXPECT_EQ(json["ranks"][0]["trace"], "rank0.json");
  EXPECT_TRUE(json["ranks"][0]["rank"].is_null());
}

TEST(ReplayAnswer, IterationsOfAMeasuredDeviceHaveItsPeriod) {
  Replay::Iteration second{.name = "b",
                           .measured_us = 4,
                           .unscaled_us = 5,
                           .replayed_us = 5,
                           .measured_device_period_us = 6};
  const OrderedJson json = replay_json(
      {.ranks = {{.rank = 0, .iterations = {second}}, {.rank = 1, .iterations = {second}}}}, {});
  EXPECT_EQ(json["iterations"][1]["measured_device_period_us"], 6.0);
  EXPECT_EQ(json["iterations"][1]["error"], 0.25);
  EXPECT_EQ(json["iterations"][1]["rank"], 1);  // only there: a rank's own list needs none
  EXPECT_FALSE(json["ranks"][1]["iterations"][0].contains("rank"));
}

TraceFindings one_step() {
  return {.report = {.source = "x/trace.json",
                     .gpu = "T4",
                     .iterations = {{.name = "step, first", .wall_us = 2000, .gpu_busy_us = 500}},
                     .warnings = {"of the file"}},
          .analysis = {.breakdown = {.compute_us = 500},
                       .splits = {{.kernel_us = 400}},
                       .warnings = {"of the times"}}};
}

TEST(TraceAnswer, KeysOfATrace) {
  const OrderedJson json = trace_json(one_step());
  EXPECT_EQ(json.begin().key(), "trace");
  EXPECT_EQ(json["trace"], "trace.json");
  EXPECT_TRUE(json["rank"].is_null());
  EXPECT_EQ(json["iterations"][0]["kernel_us"], 400.0);
  EXPECT_FALSE(json["iterations"][0].contains("busy_share"));
  EXPECT_EQ(json["breakdown"]["compute_us"], 500.0);
  EXPECT_TRUE(json["memory"].is_null());
  EXPECT_EQ(json["warnings"], OrderedJson({"of the file", "of the times"}));
}

TEST(TraceAnswer, TablesOfATraceAreThoseWithRows) {
  const auto tables = trace_tables(one_step());
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0].name, "breakdown");
  EXPECT_TRUE(tables[0].csv.starts_with("compute_us,comm_us,"));
  EXPECT_EQ(tables[1].name, "iterations");
  EXPECT_TRUE(tables[1].csv.starts_with("name,wall_us,gpu_busy_us,"));
  EXPECT_NE(tables[1].csv.find("\n\"step, first\",2000.0,500.0,"), std::string::npos);
}

TEST(TraceAnswer, ColumnsOfIterations) {
  const auto rows = traced_iterations(one_step());
  EXPECT_EQ(named_field(kTracedIterationColumns, "busy_share").text(rows[0]), "25.0 %");
  EXPECT_EQ(named_field(kTracedIterationColumns, "data_loader_us").text(rows[0]), "");
}

TEST(TraceAnswer, RanksRepeatTheFirstAndListAll) {
  const std::vector<TraceFindings> found = {one_step(), one_step()};
  const TraceRanks ranks{
      .ranks = {{.waiting_us = 1}, {.waiting_us = 2}}, .matched = 3, .warnings = {"of the job"}};
  const OrderedJson json = trace_ranks_json(found, ranks);
  EXPECT_EQ(json["trace"], "trace.json");
  EXPECT_EQ(json["ranks"][1]["waiting_us"], 2.0);
  EXPECT_EQ(json["job"]["collectives_matched"], 3);
  EXPECT_EQ(json["warnings"].back(), "of the job");
}

TEST(MemoryAnswer, CurvesAsCsv) {
  const MeasuredMemory memory{.device = "cuda:0", .curve = {{1.5, 10, 20}, {2, 5, {}}}};
  EXPECT_EQ(memory_curves_csv({memory}),
            "device,time_us,allocated_bytes,reserved_bytes\ncuda:0,1.500,10,20\n"
            "cuda:0,2.000,5,\n");
  EXPECT_TRUE(measured_memory_json({}).is_null());
  EXPECT_TRUE(measured_memory_json({memory})["devices"][0]["peak_op"].is_null());
}

TEST(OverheadsAnswer, CallsTogetherAndOpsByTime) {
  OverheadTable table;
  table.ops = {{"a", {.mean_us = 2, .count = 3}}, {"b", {.mean_us = 10, .count = 1}}};
  EXPECT_EQ(stats_of_all(table.ops).mean_us, 4);  // (2 * 3 + 10) / 4
  EXPECT_EQ(stats_of_all(table.ops).count, 4u);
  EXPECT_EQ(stats_of_all({}).mean_us, 0);
  EXPECT_EQ(ops_by_host_time(table).front().first, "b");  // 10 us against 6 us
}

}  // namespace trace_answers_test
}  // namespace perfmodel
