// `perfpredict gemm`: the document, the library next to the schedules, and refusals.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "program.hpp"

namespace perfmodel::test_support {
namespace gemm_cli_test {

using ::testing::HasSubstr;

Json gemm(Words words) {
  words.insert(words.begin(), "gemm");
  return json_of(words);
}

TEST(GemmCommand, CountsRanksAndAsksTheLibrary) {
  const Json json =
      gemm({"1024", "1024", "4096", "--gpu", "a100-sxm-80gb", "--space", "simt1", "--explain"});
  EXPECT_EQ(json["schema"], "perfmodel-gemm");
  EXPECT_EQ(json["raw_schedules"], 48);
  EXPECT_EQ(json["valid_schedules"], 25);
  ASSERT_EQ(json["schedules"].size(), 17U);  // 8 are made of the same parts in another order
  double before = 0;
  for (const Json& schedule : json["schedules"]) {
    EXPECT_GE(schedule["time_us"], before);
    before = schedule["time_us"];
    EXPECT_LE(schedule["registers"], 255);
    EXPECT_LE(schedule["shared_bytes"], 49'152);
  }
  EXPECT_EQ(json["best"]["time_us"], json["schedules"][0]["time_us"]);
  for (const char* key : {"tile", "warps", "stages", "split_k"}) {
    EXPECT_TRUE(json["best"].contains(key)) << key;
  }
  EXPECT_GT(json["library"]["time_us"], 0);
  EXPECT_THAT(json["library"]["model"].get<std::string>(), HasSubstr("gemm"));
  EXPECT_EQ(json["choice"],
            json["best"]["time_us"] < json["library"]["time_us"] ? "schedule" : "library");
}

TEST(GemmCommand, TheLibrarysTimeIsThatOfKernels) {
  const fs::path queries = scratch() / "queries.csv";
  std::ofstream(queries) << "op,dtype,m,n,k\ngemm,fp32,512,768,1024\n";
  const Outcome outcome = run({"kernels", queries.string(), "--gpu", "v100-sxm2-32gb", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const double us = Json::parse(outcome.out)["kernels"][0]["time_us"];
  const Json json = gemm({"512", "768", "1024", "--gpu", "v100-sxm2-32gb"});
  EXPECT_NEAR(json["library"]["time_us"].get<double>(), us, 0.001);
}

TEST(GemmCommand, DoubleBuffersPay) {
  const Words product = {"2048",          "2048",    "2048", "--gpu",
                         "h100-sxm-80gb", "--space", "mma",  "--double-buffer"};
  const auto best_us = [&](const char* buffers) {
    Words words = product;
    words.emplace_back(buffers);
    return gemm(words)["best"]["time_us"].get<double>();
  };
  EXPECT_LT(best_us("on"), best_us("off"));
  EXPECT_LE(best_us("off"), 2 * best_us("on"));
}

// A library that takes 1.3 times the fastest schedule of every product.
fs::path measured_products(int count) {
  const fs::path file = scratch() / ("measured" + std::to_string(count) + ".csv");
  std::ofstream rows(file);
  rows << "# timing: made, no launch cost\ngpu,op,dtype,b,m,n,k,time_us\n";
  for (int i = 0; i < count; ++i) {
    const std::string m = std::to_string(64 << (i % 4)), k = std::to_string(128 << (i % 3));
    const Json json =
        gemm({m, "256", k, "--batch", "8", "--gpu", "a100-sxm-80gb", "--space", "mma"});
    rows << "a100-sxm-80gb,bmm,bf16,8," << m << ",256," << k << ","
         << 1.3 * json["best"]["time_us"].get<double>() << "\n";
  }
  rows << "h100-sxm-80gb,bmm,bf16,8,64,256,128,999\n";  // another GPU's
  return file;
}

TEST(GemmCommand, MeasuredProductsTellTheLibrarysTime) {
  const Words product = {"512",   "256",           "512",     "--batch", "8",
                         "--gpu", "a100-sxm-80gb", "--space", "mma",     "--calibrate"};
  Words words = product;
  words.push_back(measured_products(12).string());
  const Json json = gemm(words);
  const double us = 1.3 * json["best"]["time_us"].get<double>();
  EXPECT_NEAR(json["library"]["calibrated_us"].get<double>(), us, 0.03 * us);
  EXPECT_EQ(json["calibration"]["rows"], 12);
  EXPECT_EQ(json["calibration"]["rows_left_out"], 1);
  EXPECT_LT(json["calibration"]["kept_out_error"], 0.05);
  EXPECT_NEAR(json["calibration"]["schedule_error"].get<double>(), 1 - 1 / 1.3, 1e-3);
  EXPECT_EQ(json["choice"], "schedule");
  words.back() = measured_products(3).string();
  words.insert(words.begin(), "gemm");
  expect_error(words, 1,
               "expected at least 10 measured products of a100-sxm-80gb in fp16 or bf16, found 3");
}

// Some schedules are the same tile of the same threads, made of its parts in another order.
TEST(GemmCommand, EqualTilesAreListedOnce) {
  const Json json =
      gemm({"512", "512", "512", "--gpu", "a100-sxm-80gb", "--space", "simt2", "--explain"});
  EXPECT_EQ(json["valid_schedules"], 214);
  std::set<std::string> seen;
  for (const Json& schedule : json["schedules"]) {
    EXPECT_TRUE(seen.insert(schedule.dump()).second) << schedule;
  }
  EXPECT_EQ(seen.size(), 141U);
}

// ROAST's product against a stored weight and HashedNet's, per GPU and pass.
TEST(GemmCommand, HashedWeights) {
  const Json json = gemm(
      {"512", "10240", "10240", "--gpu", "a100-sxm-40gb,h200-sxm-141gb,t4", "--hash", "1048576"});
  EXPECT_EQ(json["array_elements"], 1 << 20);
  ASSERT_EQ(json["hashed"].size(), 6U);
  for (const Json& row : json["hashed"]) {
    SCOPED_TRACE(row.dump());
    EXPECT_GE(row["roast_us"], row["stored_us"]);  // sums bound
    EXPECT_GT(row["hashednet_us"], row["roast_us"]);
    EXPECT_GT(row["ops_us"], row["stored_us"]);
    EXPECT_GT(row["rehashed_us"], row["ops_us"]);
    EXPECT_LT(row["rows_below_stored"], 512);
  }
  EXPECT_EQ(json["hashed"][4]["dtype"], "float16");  // a T4 has no units for bf16
  const Words product = {"gemm", "8", "64", "64", "--gpu", "t4", "--hash"};
  expect_error(with(product, {"2048"}), 1, "expected an array of more than 2048 numbers");
  EXPECT_EQ(run(with(product, {"4096", "--space", "simt2"})).status, 2);
  expect_error({"gemm", "8", "64", "64", "--gpu", "t4,p4"}, 1, "expected one GPU without --hash");
}

TEST(GemmCommand, BadInputIsOneLine) {
  const std::vector<std::pair<Words, std::string>> bad = {
      {{"64", "64", "64", "--gpu", "v100-sxm2-32gb", "--space", "mma"}, "sm_80 or later"},
      {{"64", "64", "64", "--gpu", "mi300x"}, "expected an NVIDIA GPU"},
      {{"64", "64", "64", "--gpu", "a100-sxm-80gb", "--space", "simt3"}, "simt1, simt2, mma"},
      {{"64", "64", "64", "--gpu", "a101"}, "a101"}};
  for (const auto& [words, message] : bad) {
    expect_error(with({"gemm"}, words), 1, message);
  }
  EXPECT_EQ(run({"gemm", "0", "64", "64", "--gpu", "a100-sxm-80gb"}).status, 2);
  EXPECT_EQ(run({"gemm", "64", "64", "--gpu", "a100-sxm-80gb"}).status, 2);
}

}  // namespace gemm_cli_test
}  // namespace perfmodel::test_support
