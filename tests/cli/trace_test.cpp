#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "program.hpp"

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
  const std::string file = (scratch() / (name + ".json")).string();
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

Json of(const Words& words) {
  Words all = words;
  all.emplace_back("--json");
  const auto done = run(all);
  EXPECT_EQ(done.status, 0) << done.err;
  return Json::parse(done.out);
}

TEST(TraceAnalysisCommand, FlopOverTimeByHand) {
  // 2 * 256^3 FLOP in 40 us: 0.839 TFLOP/s; 3 matrices of 256 KiB: 19.7 GB/s.
  const Json json = of({"trace", traced("flop", {})});
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
  const Json same = of({"trace", before, "--compare", before});
  EXPECT_EQ(same["schema"], "perfmodel-trace-comparison");
  EXPECT_TRUE(same["ops"].empty());
  EXPECT_TRUE(same["kernels"].empty());
  EXPECT_EQ(same["change_us"], 0.0);
  const Json changed = of({"trace", before, "--compare", after});
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

TEST(TraceInPlaceOfAGraph, IsPredictedWithItsOwnHost) {
  const std::string file = traced("as_graph", {});
  const Json json = of({"predict", file, "--gpu", "v100-sxm2-32gb"});
  EXPECT_EQ(json["provenance"]["overheads"]["file"], "as_graph.json");
  EXPECT_EQ(json["ops"][0]["name"], "aten::mm");
  EXPECT_EQ(json["ops"][0]["kernels"][0]["family"], "gemm");
}

TEST(TraceInPlaceOfAGraph, WithoutShapesKernelsKeepTheirTime) {
  const std::string file = traced("no_sizes", {.shapes = false});
  const Json same = of({"predict", file, "--gpu", "v100-sxm2-32gb"});
  EXPECT_NEAR(same["kernel_sum_us"].get<double>(), 40, 1e-3);
  EXPECT_THAT(same["warnings"].dump(), HasSubstr("the trace has no shapes"));
  // Products by the peaks: 15.7 to 19.5 TFLOP/s.
  const Json other = of({"predict", file, "--gpu", "a100-sxm-40gb"});
  EXPECT_NEAR(other["kernel_sum_us"].get<double>(), 40 * 15.7 / 19.5, 0.05);
}

TEST(TraceInPlaceOfAGraph, RewritesThatFollowTensorsRefuse) {
  const auto done = run({"rewrite", traced("rewritten", {}), "--batch", "8", "-o",
                         (scratch() / "out.json").string()});
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.err, HasSubstr("expected an execution graph for --batch, found a trace"));
}

}  // namespace trace_test
}  // namespace perfmodel::test_support
