#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "samples.hpp"

namespace perfmodel::test_support {
namespace trace_test {

using ::testing::HasSubstr;

std::string event(const std::string& category, const std::string& name, const std::string& thread,
                  double at, double us, const std::string& args) {
  return fmt::format(
      "{{\"ph\": \"X\", \"cat\": \"{}\", \"name\": \"{}\", \"pid\": 1, \"tid\": {}, \"ts\": {}, "
      "\"dur\": {}, \"args\": {{{}}}}}",
      category, name, thread, at, us, args);
}

struct Program {
  double mm_us = 40;
  std::string op = "aten::mm";
  bool shapes = true, device = true;
  std::string gpu = "Tesla V100-SXM2-32GB";
};

// Two steps of one product of 256 x 256 matrices and one copy to the host.
std::string traced(const std::string& name, const Program& program) {
  const std::string file = scratch_file(name + ".json");
  std::ofstream out(file);
  out << "{\"deviceProperties\": [{\"id\": 0, \"name\": \"" << program.gpu
      << "\"}], \"traceEvents\": [";
  const std::string shapes =
      program.shapes ? "\"Input Dims\": [[256, 256], [256, 256]], \"Input type\": [\"float\", "
                       "\"float\"]"
                     : "";
  for (int step = 0; step < 2; ++step) {
    const double at = 1000.0 * step;
    out << (step ? ",\n" : "")
        << event("user_annotation", fmt::format("ProfilerStep#{}", step), "1", at, 1000, "")
        << ",\n"
        << event("cpu_op", program.op, "1", at + 10, 30, shapes) << ",\n"
        << event("cuda_runtime", "cudaLaunchKernel", "1", at + 15, 5,
                 fmt::format("\"correlation\": {}", step + 1));
    if (!program.device) continue;
    out << ",\n"
        << event("kernel", "volta_sgemm_128x32_nn", "7", at + 22, program.mm_us,
                 fmt::format("\"correlation\": {}, \"device\": 0, \"stream\": 7", step + 1));
  }
  out << "]}";
  return file;
}

TEST(TraceCommand, CountsWhatTheSamplesHold) {
  std::size_t checked = 0;
  for (const auto& [name, figures] : expected_samples().items()) {
    if (figures["kind"] != "kineto") continue;
    SCOPED_TRACE(name);
    const Json report = json_of({"trace", sample(name)});
    EXPECT_EQ(report["events"], figures["events"]);
    EXPECT_EQ(report["kernels_total"], figures["kernels_total"]);
    EXPECT_EQ(report["memcpy_total"], figures["memcpy"]);
    EXPECT_EQ(report["memset_total"], figures["memset"]);
    EXPECT_EQ(report["gpu_without_launch"], figures["gpu_without_launch"]);
    EXPECT_NEAR(report["gpu_busy_us"], figures["gpu_busy_us"], 0.01);
    EXPECT_TRUE(report["gpu"].is_string());
    EXPECT_EQ(report["streams"], report["stream_list"].size());
    double kernels = sum_of(report["top_kernels"], "count");
    EXPECT_EQ(kernels, report["kernels_total"]);
    ASSERT_EQ(report["iterations"].size(), figures["iterations"].size());
    for (std::size_t i = 0; i < report["iterations"].size(); ++i) {
      const Json &own = report["iterations"][i], &other = figures["iterations"][i];
      EXPECT_EQ(own["name"], other["name"]);
      EXPECT_EQ(own["kernels"], other["kernels"]);
      EXPECT_NEAR(own["wall_us"], other["wall_us"], 0.01);
      EXPECT_NEAR(own["gpu_busy_us"], other["gpu_busy_us"], 0.01);
    }
    EXPECT_EQ(run({"trace", sample(name)}).status, 0);
    ++checked;
  }
  EXPECT_GT(checked, 20U);
}

TEST(TraceCommand, AWindowHoldsOnlyItsIterations) {
  const Json all = json_of({"trace", sample("kineto_plain_2023.json")});
  const Json second = json_of({"trace", sample("kineto_plain_2023.json"), "--iterations", "1:2"});
  ASSERT_EQ(second["iterations"].size(), 1U);
  EXPECT_EQ(second["iterations"][0], all["iterations"][1]);
  EXPECT_EQ(second["kernels_total"], second["iterations"][0]["kernels"]);
  EXPECT_EQ(second["events"], all["events"]);
}

std::string record_of_memory(int at, long long allocated, long long reserved) {
  return fmt::format(
      R"({{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 2,
      "ts": {}, "args": {{"Total Reserved": {}, "Total Allocated": {}, "Bytes": 1, "Addr": 4096,
      "Device Id": 0, "Device Type": 1}}}})",
      at, reserved, allocated);
}

TEST(TraceCommand, MemoryCurveIsATableAndAChart) {
  constexpr long long kMiB = 1 << 20;
  const std::string trace =
      written("recorded_memory.json", "[" + event("cpu_op", "aten::mm", "2", 0, 100, "") + ",\n" +
                                          record_of_memory(10, 300 * kMiB, 512 * kMiB) + ",\n" +
                                          event("cpu_op", "aten::relu", "2", 120, 50, "") + ",\n" +
                                          record_of_memory(130, 600 * kMiB, 1024 * kMiB) + ",\n" +
                                          record_of_memory(160, 300 * kMiB, 1024 * kMiB) + "]");
  const std::string csv = scratch_file("curve.csv"), svg = scratch_file("curve.svg");
  EXPECT_THAT(output_of({"trace", trace, "--memory-curve", csv}),
              HasSubstr("cuda:0            629,145,600  600 MiB  0.130  aten::relu"));
  EXPECT_EQ(read(csv),
            "device,time_us,allocated_bytes,reserved_bytes\n"
            "cuda:0,10.000,314572800,536870912\n"
            "cuda:0,130.000,629145600,1073741824\n"
            "cuda:0,160.000,314572800,1073741824\n");
  output_of({"trace", trace, "--memory-curve", svg});
  for (const char* part :
       {"cuda:0: peak 600 MiB allocated, 1 GiB reserved", "reserved, not allocated", "<polygon"}) {
    EXPECT_THAT(read(svg), HasSubstr(part));
  }
  expect_error({"trace", traced("no_memory", {}), "--memory-curve", csv}, 1, "memory");
}

TEST(TraceCommand, SalvageKeepsWhatIsComplete) {
  const std::string broken = sample("bad_cut_off_between.json");
  expect_error({"trace", broken}, 1, "expected");
  const Json report = json_of({"trace", broken, "--salvage"});
  EXPECT_FALSE(report["warnings"].empty());
}

TEST(TraceAnalysisCommand, FlopOverTimeByHand) {
  // 2 * 256^3 FLOP in 40 us: 0.839 TFLOP/s; 3 matrices of 256 KiB: 19.7 GB/s.
  const Json json = json_of({"trace", traced("flop", {})});
  const Json& mm = json["ops"][0];
  EXPECT_EQ(mm["name"], "aten::mm");
  EXPECT_EQ(mm["category"], "gemm");
  EXPECT_NEAR(mm["flop"].get<double>(), 2 * 2.0 * 256 * 256 * 256, 1);
  EXPECT_NEAR(mm["tflop_per_s"].get<double>(), 2.0 * 256 * 256 * 256 / 40e-6 / 1e12, 1e-5);
  EXPECT_NEAR(mm["gb_per_s"].get<double>(), 3.0 * 256 * 256 * 4 / 40e-6 / 1e9, 1e-3);
  // 15.7 TFLOP/s of the data sheet bound it.
  EXPECT_NEAR(mm["roofline_share"].get<double>(), 2.0 * 256 * 256 * 256 / 15.7e12 / 40e-6, 2e-3);
  EXPECT_EQ(json["ops_by_shape"][0]["shapes"], Json::parse("[[256, 256], [256, 256]]"));
}

TEST(TraceAnalysisCommand, CompareNamesTheOpAndTheAmount) {
  const std::string before = traced("before", {}), after = traced("after", {.mm_us = 80});
  const Json same = json_of({"trace", before, "--compare", before});
  EXPECT_EQ(same["schema"], "perfmodel-trace-comparison");
  EXPECT_TRUE(same["ops"].empty());
  EXPECT_TRUE(same["kernels"].empty());
  EXPECT_EQ(same["change_us"], 0.0);
  const Json changed = json_of({"trace", before, "--compare", after});
  ASSERT_EQ(changed["ops"].size(), 1U);
  EXPECT_EQ(changed["ops"][0]["op"], "aten::mm");
  EXPECT_EQ(changed["ops"][0]["change_us"], 40.0);
  EXPECT_THAT(run({"trace", before, "--compare", after}).out, HasSubstr("+0.040"));
}

TEST(TraceAnalysisCommand, CsvHasOneFilePerTable) {
  const auto folder = scratch() / "tables";
  EXPECT_EQ(run({"trace", traced("csv", {}), "--csv", folder.string()}).status, 0);
  std::ifstream ops(folder / "ops.csv");
  std::string header, row;
  std::getline(ops, header);
  std::getline(ops, row);
  EXPECT_THAT(header, ::testing::StartsWith("name,category,count,host_self_us"));
  EXPECT_THAT(row, ::testing::StartsWith("aten::mm,gemm,2,"));
  EXPECT_TRUE(std::filesystem::exists(folder / "breakdown.csv"));
}

TEST(TraceAnalysisCommand, WhatIsMissingIsSaid) {
  const auto output = [](const Words& words) {
    const auto done = run(words);
    return done.out + done.err;
  };
  EXPECT_THAT(output({"trace", traced("no_shapes", {.shapes = false})}),
              HasSubstr("no shapes were recorded"));
  EXPECT_THAT(output({"trace", traced("no_device", {.device = false})}),
              HasSubstr("no device activity was recorded"));
  EXPECT_THAT(output({"trace", traced("odd_gpu", {.gpu = "Voodoo 2"})}),
              HasSubstr("\"Voodoo 2\" is not among the known ones"));
  const std::string mm = traced("mm", {});
  const auto other = run({"trace", mm, "--compare", traced("bmm", {.op = "aten::other"})});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, HasSubstr("expected two traces of one program"));
  EXPECT_EQ(run({"trace", mm, traced("mm2", {}), "--compare", mm}).status, 2);
}

// Each step: 10 us, an op of 30 us (5 us to its call of 5 us), a kernel of 40 us, 960 us of
// nothing.
TEST(PredictionAgainstATrace, TermsByHandAndSums) {
  const std::string file = traced("against", {});
  const Json json = json_of(
      {"predict", file, "--gpu", "v100-sxm2-32gb", "--kernel-times", file, "--against", file});
  ASSERT_EQ(json["against"].size(), 1U);
  const Json& against = json["against"][0];
  EXPECT_EQ(against["trace"], "against.json");
  EXPECT_EQ(against["measured_steps"], 2);
  EXPECT_EQ(against["measured_us"], 1000.0);
  EXPECT_EQ(against["predicted_us"], json["e2e_us"]);
  const std::map<std::string, double> device = {
      {"compute", 40}, {"exposed_comm", 0}, {"exposed_memcpy", 0}, {"idle", 960}};
  for (const Json& term : against["terms"]) {
    EXPECT_EQ(term["measured_us"], device.at(term["term"])) << term;
  }
  const std::map<std::string, double> host = {{"t1", 970}, {"t2", 5}, {"t3", 20}, {"t4", 5},
                                              {"t5", 0},   {"tx", 0}, {"wait", 0}};
  ASSERT_EQ(against["host_terms"].size(), host.size());
  for (const Json& term : against["host_terms"]) {
    EXPECT_EQ(term["measured_us"], host.at(term["term"])) << term;
    // The trace's own host.
    EXPECT_NEAR(term["predicted_us"], host.at(term["term"]), 0.01) << term;
  }
  for (const char* terms : {"terms", "host_terms"}) {
    EXPECT_NEAR(sum_of(against[terms], "measured_us"), against["measured_us"], 0.01);
    EXPECT_NEAR(sum_of(against[terms], "predicted_us"), against["predicted_us"], 0.01);
    EXPECT_NEAR(sum_of(against[terms], "change_us"), against["change_us"], 0.01);
  }
  EXPECT_NEAR(sum_of(against["ops"], "measured_host_us"), 1000, 0.01);
  ASSERT_EQ(against["families"].size(), 1U);
  EXPECT_EQ(against["families"][0]["family"], "gemm");
  EXPECT_EQ(against["families"][0]["measured_us"], 40.0);
  EXPECT_EQ(against["families"][0]["predicted_us"], 40.0);
  EXPECT_THAT(run({"predict", file, "--gpu", "v100-sxm2-32gb", "--against", file}).out,
              HasSubstr("Mean step, the host"));
}

TEST(PredictionAgainstATrace, SlowerKernelsAreThatFamilyAndThatAmount) {
  const std::string file = traced("fast", {}), slower = traced("slower", {.mm_us = 100});
  const Json json = json_of(
      {"predict", file, "--gpu", "v100-sxm2-32gb", "--kernel-times", file, "--against", slower});
  const Json& against = json["against"][0];
  EXPECT_EQ(against["families"][0]["change_us"], -60.0);
  EXPECT_EQ(against["ops"][0]["op"], "aten::mm");
  EXPECT_EQ(against["ops"][0]["families"][0]["change_us"], -60.0);
  EXPECT_EQ(against["terms"][0]["change_us"], -60.0);
  EXPECT_EQ(against["terms"][3]["change_us"], 60.0);
}

TEST(PredictionAgainstATrace, OtherJobsAndOtherGpusAreSaid) {
  const std::string file = traced("job", {});
  const auto other = run({"predict", file, "--gpu", "v100-sxm2-32gb", "--against",
                          traced("other_job", {.op = "aten::other"})});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, HasSubstr("expected a trace and a prediction of one program"));
  const auto idle = run({"predict", file, "--gpu", "v100-sxm2-32gb", "--against",
                         traced("idle_job", {.device = false})});
  EXPECT_EQ(idle.status, 1);
  EXPECT_THAT(idle.err, HasSubstr("expected device work to compare, found none"));
  EXPECT_THAT(json_of({"predict", file, "--gpu", "a100-sxm-40gb", "--against",
                       file})["against"][0]["warnings"]
                  .dump(),
              HasSubstr("another GPU than was asked for: Tesla V100"));
  EXPECT_EQ(run({"predict", file, "--gpu", "v100-sxm2-32gb", "--against", file, file}).status, 2);
  EXPECT_EQ(run({"predict", file, "--gpu", "v100-sxm2-32gb", "--against", file,
                 "--against-iterations", "1:3"})
                .status,
            1);
}

TEST(TraceInPlaceOfAGraph, IsPredictedWithItsOwnHost) {
  const std::string file = traced("as_graph", {});
  const Json json = json_of({"predict", file, "--gpu", "v100-sxm2-32gb"});
  EXPECT_EQ(json["provenance"]["overheads"]["file"], "as_graph.json");
  EXPECT_EQ(json["ops"][0]["name"], "aten::mm");
  EXPECT_EQ(json["ops"][0]["kernels"][0]["family"], "gemm");
}

TEST(TraceInPlaceOfAGraph, WithoutShapesKernelsKeepTheirTime) {
  const std::string file = traced("no_sizes", {.shapes = false});
  const Json same = json_of({"predict", file, "--gpu", "v100-sxm2-32gb"});
  EXPECT_NEAR(same["kernel_sum_us"].get<double>(), 40, 1e-3);
  EXPECT_THAT(same["warnings"].dump(), HasSubstr("the trace has no shapes"));
  // Products by the peaks: 15.7 to 19.5 TFLOP/s.
  const Json other = json_of({"predict", file, "--gpu", "a100-sxm-40gb"});
  EXPECT_NEAR(other["kernel_sum_us"].get<double>(), 40 * 15.7 / 19.5, 0.05);
}

// A cell in the first row of a CSV.
double first_cell(const std::string& table, const std::string& column) {
  std::istringstream lines(table);
  std::string header, row, name, cell;
  std::getline(lines, header);
  std::getline(lines, row);
  std::istringstream names(header), cells(row);
  while (std::getline(names, name, ',') && std::getline(cells, cell, ',')) {
    if (name == column) return std::stod(cell);
  }
  return -1;
}

TEST(TraceInPlaceOfAGraph, IsTheSameForServeSweepAndPredict) {
  for (const bool shapes : {true, false}) {
    const char* refusal = shapes ? "name its size: --batch OLD=NEW" : "record_shapes=True";
    const std::string file = traced(shapes ? "asked" : "asked_bare", {.shapes = shapes});
    const double step = json_of({"predict", file, "--gpu", "a100-sxm-40gb"})["e2e_us"];
    const auto requests = scratch() / "requests";
    std::ofstream(requests)
        << Json{{"op", "load"}, {"name", "t"}, {"file", file}} << "\n"
        << Json{{"op", "predict"}, {"graph", "t"}, {"gpu", "a100-sxm-40gb"}} << "\n"
        << Json{{"op", "predict"}, {"graph", "t"}, {"gpu", "a100-sxm-40gb"}, {"batch", 8}} << "\n";
    const auto served =
        run({"serve", "--gpus", "a100-sxm-40gb"}, "", "<'" + requests.string() + "'");
    std::istringstream lines(served.out);
    std::vector<Json> answers;
    for (std::string line; std::getline(lines, line);) answers.push_back(Json::parse(line));
    ASSERT_EQ(answers.size(), 3U) << served.out << served.err;
    EXPECT_NEAR(answers[1]["result"]["e2e_us"].get<double>(), step, 1e-3);
    EXPECT_THAT(answers[2]["error"]["message"].get<std::string>(), HasSubstr(refusal));
    const auto spec = scratch() / "trace_sweep.json";
    std::ofstream(spec) << Json{{"schema", "perfmodel-sweep"},
                                {"version", 1},
                                {"graphs", {{{"name", "t"}, {"file", file}}}},
                                {"rewrites", {{{"batch", {"same", 8}}}}},
                                {"gpus", {"a100-sxm-40gb"}}};
    const auto rows = scratch() / (shapes ? "trace_rows.csv" : "trace_rows_bare.csv");
    const auto swept = run({"sweep", spec.string(), "-o", rows.string()});
    EXPECT_EQ(swept.status, 0) << swept.err;
    const std::string table = read(rows);
    EXPECT_NEAR(first_cell(table, "e2e_us"), step, 1e-3);
    EXPECT_THAT(table, HasSubstr(refusal));
    const auto merged = run({"whatif", file, "--gpu", "a100-sxm-40gb", "--batch", "same,8"});
    EXPECT_EQ(merged.status, 1);
    EXPECT_THAT(merged.err, HasSubstr(refusal));
    const auto cast = run({"whatif", file, "--gpu", "a100-sxm-40gb", "--precision", "bf16"});
    EXPECT_EQ(cast.status, 1);
    EXPECT_THAT(cast.err, HasSubstr("expected an execution graph for --precision, found a trace"));
  }
}

TEST(TraceInPlaceOfAGraph, TakesAnotherBatch) {
  const std::string file = traced("batches", {});
  const auto made = run({"whatif", file, "--gpu", "a100-sxm-40gb", "--batch", "same,256=512"});
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out + made.err, HasSubstr("a trace does not record which tensors are the same"));
}

TEST(TraceInPlaceOfAGraph, MemoryIsWhatTheTraceRecorded) {
  const auto none = run({"memory", traced("no_memory", {})});
  EXPECT_EQ(none.status, 0) << none.err;
  EXPECT_THAT(none.out, HasSubstr("memory is not predicted"));
  EXPECT_THAT(none.out, HasSubstr("profile_memory=True"));
  const std::string file = scratch_file("memory.json");
  std::ofstream(file)
      << "{\"deviceProperties\": [{\"id\": 0, \"name\": \"Tesla T4\"}], \"traceEvents\": ["
      << event("cpu_op", "aten::mm", "1", 10, 30, "") << ",\n"
      << R"({"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 15, "args": {"Bytes": 1024,
             "Addr": 1, "Total Allocated": 4294967296, "Total Reserved": 8589934592,
             "Device Type": 1, "Device Id": 0}}]})";
  const Json json = json_of({"memory", file, "--gpu", "t4"});
  EXPECT_EQ(json["peak_allocated_bytes"], 4294967296);
  EXPECT_EQ(json["peak_reserved_bytes"], 8589934592);
  EXPECT_EQ(json["fits"], true);
  EXPECT_TRUE(json["by_purpose"].is_null());
  EXPECT_EQ(json["needed_bytes"].get<std::int64_t>(),
            8589934592 + json["context_bytes"].get<std::int64_t>());
  const auto more = run({"memory", file, "--gpu", "t4", "--max-batch"});
  EXPECT_EQ(more.status, 1);
  EXPECT_THAT(more.err, HasSubstr("expected an execution graph for --max-batch, found a trace"));
}

TEST(TraceInPlaceOfAGraph, KeepsWhatItLacksWhenItIsWritten) {
  const std::string graph = scratch_file("written.json");
  ASSERT_EQ(run({"rewrite", traced("written_trace", {}), "-o", graph}).status, 0);
  EXPECT_EQ(json_of({"predict", graph, "--gpu", "t4"})["ops"][0]["name"], "aten::mm");
  const auto done = run({"predict", graph, "--gpu", "t4", "--world", "8", "--strategy", "ddp"});
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.err, HasSubstr("expected an execution graph for a strategy, found a trace"));
  const std::string other = scratch_file("rewritten_again.json");
  EXPECT_EQ(run({"rewrite", graph, "--batch", "8", "-o", other}).status, 1);
  EXPECT_EQ(run({"rewrite", graph, "--scale-kernel", "aten::mm=2", "-o", other}).status, 0);
}

TEST(TraceInPlaceOfAGraph, RewritesThatFollowTensorsRefuse) {
  const auto done =
      run({"rewrite", traced("rewritten", {}), "--sequence", "8", "-o", scratch_file("out.json")});
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.err, HasSubstr("expected an execution graph for --sequence, found a trace"));
}

}  // namespace trace_test
}  // namespace perfmodel::test_support
