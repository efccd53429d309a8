// `perfpredict kernels`: rows, files and mistakes.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "samples.hpp"

namespace perfmodel::test_support {
namespace kernels_test {

TEST(KernelsCommand, PricesEachRowOnItsGpu) {
  const std::string file = written("queries.csv",
                                   "id,device,op,dtype,m,n,k,rows,cols\n"
                                   "\"a,b\",V100,linear,fp16,512,512,512,,\n"
                                   "c,mi210,softmax,fp32,,,,4096,1024\n");
  const Outcome outcome = run({"kernels", file, "--models", "roofline"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err, "");
  // Reads and writes of 4096 x 1024 x 4 B at 1638 GB/s: 20.5 us.
  EXPECT_TRUE(
      outcome.out.starts_with("id,time_us,model,bound,in_range,low_us,high_us,knowledge\n\"a,b\","))
      << outcome.out;
  EXPECT_NE(outcome.out.find("\nc,20.4"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find(",roofline,memory,1,"), std::string::npos) << outcome.out;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 3);

  const Json document = json_of({"kernels", file});
  EXPECT_EQ(document["schema"], "perfmodel-kernels");
  EXPECT_EQ(document["gpus"], Json({"v100-sxm2-16gb", "mi210"}));
  ASSERT_EQ(document["kernels"].size(), 2u);
  for (const Json& kernel : document["kernels"]) {
    EXPECT_GT(kernel["time_us"], 0);
    EXPECT_LE(kernel["low_us"], kernel["time_us"]);
    EXPECT_GE(kernel["high_us"], kernel["time_us"]);
  }
}

TEST(KernelsCommand, WritesAWholeFileOrNone) {
  const std::string file = written("queries2.csv", "m,n,k\n64,64,64\n8,8,8\n");
  const Words words = {"kernels", file, "--gpu", "t4", "--dtype", "fp32"};
  Words to_file = words;
  const std::string target = scratch_file("prices.csv");
  to_file.insert(to_file.end(), {"-o", target});
  const Outcome outcome = run(to_file);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(read(target), run(words).out);
  std::ofstream(target) << "old";
  expect_error({"kernels", written("queries3.csv", "m,n,k\n64,64,-1\n"), "--gpu", "t4", "--dtype",
                "fp32", "-o", target},
               1, ":2:7: k: expected an integer above 0");
  EXPECT_EQ(read(target), "old");
}

TEST(KernelsCommand, TheGpuFlagWinsAndSaysSo) {
  const std::string file = written("queries4.csv", "gpu,m,n,k,dtype\nH20,64,64,64,fp8\n");
  const Outcome outcome = run({"kernels", file, "--gpu", "h100"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.err.find("h100-sxm-80gb: the column gpu is not read"), std::string::npos)
      << outcome.err;
}

TEST(KernelsCommand, HoldsLongKernelsToThePowerLimit) {
  const std::string file = written("long.csv",
                                   "gpu,op,dtype,m,n,k\n"
                                   "a100-sxm-40gb,gemm,bf16,1024,1024,1024\n"
                                   "a100-sxm-40gb,gemm,bf16,16384,8192,8192\n"
                                   "a100-pcie-40gb,gemm,bf16,16384,8192,8192\n");
  const auto us = [](const Json& document, int row) -> double {
    return document["kernels"][row]["time_us"];
  };
  const Json held = json_of({"kernels", file}), burst = json_of({"kernels", file, "--burst"});
  EXPECT_EQ(held["sustained"], true);
  EXPECT_EQ(burst["sustained"], false);
  EXPECT_EQ(us(held, 0), us(burst, 0));
  EXPECT_GT(us(held, 1), us(burst, 1));
  EXPECT_GT(us(held, 2), 1.3 * us(held, 1)) << "250 W in place of 400";
}

TEST(KernelsCommand, RefusesSizesWithoutAFiniteTime) {
  const std::string file =
      written("endless.csv", "op,elements,dtype\nrelu,64,fp32\nrelu,1e308,fp32\n");
  expect_error({"kernels", file, "--gpu", "t4"}, 1,
               "endless.csv:3:1: expected sizes of a kernel whose time is a number");
}

TEST(KernelsCommand, FusedRowsAfterTheFirstAreFree) {
  const std::string file =
      written("ops.csv",
              "graph,node_idx,stage,fused,repeat,op,rows,cols,in_elems,out_elems,dtype\n"
              "g,1,fw,1,1,add,64,64,8192,4096,fp32\n"
              "g,1,fw,1,1,softmax,64,64,8192,4096,fp32\n");
  const Outcome outcome = run({"kernels", file, "--gpu", "t4"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.out.find("\n2,0.000,fused,fused,1,0.000,0.000,fused\n"), std::string::npos)
      << outcome.out;
}

TEST(KernelsCommand, MistakesAreOneLine) {
  const std::string bare = written("bare.csv", "m,n,k\n64,64,64\n");
  expect_error({"kernels"}, 2, "QUERIES");
  expect_error({"kernels", bare, "--models", "none"}, 2, "--models");
  expect_error({"kernels", bare, "--dtype", "fp32"}, 1, ":2:1: device: expected a GPU");
  expect_error({"kernels", bare, "--gpu", "t4"}, 1, ":1:1: dtype: expected this column");
  expect_error({"kernels", bare, "--gpu", "t400", "--dtype", "fp32"}, 1, "t4");
  expect_error({"kernels", written("none.csv", ""), "--gpu", "t4"}, 1, "an empty file");
}

}  // namespace kernels_test
}  // namespace perfmodel::test_support
