// `perfpredict collective`: figures that a reader can redo, agreement with the price of `kernels`,
// sweeps, and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "program.hpp"

namespace perfmodel::test_support {
namespace collective_cli_test {

using ::testing::HasSubstr;

Json collective(Words words) {
  words.insert(words.begin(), "collective");
  return json_of(words);
}

TEST(CollectiveCommand, OneSizeHasItsTermsAndBandwidths) {
  const Json json = collective({"all_reduce", "64MiB", "--gpu", "h100-sxm-80gb", "--world", "16"});
  EXPECT_EQ(json["schema"], "perfmodel-collective");
  EXPECT_EQ(json["topology"], "hgx-h100");
  EXPECT_EQ(json["nodes"], 2);
  ASSERT_EQ(json["sizes"].size(), 1U);
  const Json& row = json["sizes"][0];
  const double us = row["time_us"], bytes = 64 << 20;
  EXPECT_EQ(row["bytes"], bytes);
  EXPECT_NEAR(row["latency_us"].get<double>() + row["wire_us"].get<double>(), us, 0.002);
  EXPECT_LE(row["low_us"], us);
  EXPECT_GE(row["high_us"], us);
  EXPECT_NEAR(row["algorithm_gb_per_s"], bytes / us * 1e-3, 1e-3);
  EXPECT_NEAR(row["bus_gb_per_s"], bytes / us * 1e-3 * 2 * 15 / 16, 1e-3);
}

// nccl-tests' factors of bus bandwidth.
TEST(CollectiveCommand, BusBandwidthIsThatOfNcclTests) {
  for (const auto& [op, factor] :
       std::vector<std::pair<std::string, double>>{{"all_reduce", 1.75},
                                                   {"all_gather", 0.875},
                                                   {"reduce_scatter", 0.875},
                                                   {"all_to_all", 0.875},
                                                   {"broadcast", 1},
                                                   {"reduce", 1},
                                                   {"gather", 0.875},
                                                   {"scatter", 0.875}}) {
    const Json row = collective({op, "1MiB", "--gpu", "a100-sxm-80gb", "--world", "8"})["sizes"][0];
    EXPECT_NEAR(row["bus_gb_per_s"].get<double>(), factor * row["algorithm_gb_per_s"].get<double>(),
                2e-3)
        << op;
  }
  const Json row =
      collective({"send", "1MiB", "--gpu", "a100-sxm-80gb", "--world", "2"})["sizes"][0];
  EXPECT_EQ(row["bus_gb_per_s"], row["algorithm_gb_per_s"]);
}

TEST(CollectiveCommand, TheTimeIsThatOfKernels) {
  const fs::path queries = scratch() / "queries.csv";
  std::ofstream(queries) << "op,dtype,bytes,world_size\nall_gather,fp32,3000000,16\n";
  const Outcome outcome = run({"kernels", queries.string(), "--gpu", "h100-sxm-80gb", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json kernel = Json::parse(outcome.out)["kernels"][0];
  const Json row =
      collective({"all_gather", "3000000", "--gpu", "h100-sxm-80gb", "--world", "16"})["sizes"][0];
  for (const char* key : {"time_us", "low_us", "high_us"}) {
    EXPECT_NEAR(row[key].get<double>(), kernel[key].get<double>(), 0.001) << key;
  }
}

TEST(CollectiveCommand, TheNetworkIsThatOfKernels) {
  const fs::path queries = scratch() / "network.csv";
  std::ofstream(queries) << "op,dtype,bytes,world_size,nodes,nics,nic_gb_per_s,network\n"
                            "all_reduce,fp32,1024,16,2,32,12.5,EFA\n";
  const Outcome outcome = run({"kernels", queries.string(), "--gpu", "h100-sxm-80gb", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const double us = Json::parse(outcome.out)["kernels"][0]["time_us"];
  const Words usual = {"all_reduce", "1KiB", "--gpu", "h100-sxm-80gb", "--world", "16"};
  const Json told =
      collective(with(usual, {"--nics", "32", "--nic-gb-per-s", "12.5", "--network", "EFA"}));
  EXPECT_NEAR(told["sizes"][0]["time_us"].get<double>(), us, 0.001);
  EXPECT_EQ(told["nics"], 32);
  EXPECT_EQ(told["nic_gb_per_s"], 12.5);
  // Up and down the tree a message crosses the network once, 35 us slower each time.
  EXPECT_NEAR(us - collective(usual)["sizes"][0]["time_us"].get<double>(), 2 * (36 - 1), 0.01);
}

TEST(CollectiveCommand, SweepsDoubleAndNeverFall) {
  const fs::path plot = scratch() / "bus.svg";
  const Json json = collective({"all_reduce", "1KiB:1GiB", "3GiB", "--gpu", "h100", "--world", "32",
                                "--plot", plot.string()});
  ASSERT_EQ(json["sizes"].size(), 22U);
  double before = 0;
  for (const Json& row : json["sizes"]) {
    EXPECT_GE(row["time_us"], before);
    before = row["time_us"];
  }
  EXPECT_EQ(json["sizes"][1]["bytes"], 2048);
  EXPECT_EQ(json["sizes"][20]["bytes"], 1 << 30);
  EXPECT_THAT(read(plot), HasSubstr("Bus bandwidth"));
}

TEST(CollectiveCommand, TypesCountElements) {
  const Words asked = {"all_reduce", "1000", "1KiB", "--gpu", "h100", "--world", "8"};
  Words typed = asked;
  typed.insert(typed.end(), {"--type", "bf16"});
  EXPECT_EQ(collective(asked)["sizes"][0]["bytes"], 1000);
  EXPECT_EQ(collective(typed)["sizes"][0]["bytes"], 2000);
  EXPECT_EQ(collective(typed)["sizes"][1]["bytes"], 1024);
}

const char* const kRails = PERFMODEL_SOURCE_DIR "/examples/topologies/hgx-h100-rails.json";

TEST(CollectiveCommand, RefusesInOneLine) {
  struct Case {
    Words words;
    std::string says;
  };
  const Words h100 = {"--gpu", "h100", "--world", "8"};
  for (const Case& one : {
           Case{with({"all_reduse", "1MiB"}, h100), "all_reduce, all_gather"},
           {with({"all_reduce", "1MB"}, h100), "found \"1MB\""},
           {with({"all_reduce", "0"}, h100), "found \"0\""},
           {with({"all_reduce", "2KiB:1KiB"}, h100), "the smaller first"},
           {with({"all_reduce", "1", "--type", "bf17"}, h100), "bf16"},
           {with({"all_reduce", "1MiB", "--topology", "hgx-h1000"}, h100), "hgx-h100"},
           {with({"all_reduce", "1MiB", "--network", "pigeons"}, h100), "infiniband, roce, efa"},
           {with({"all_reduce", "1MiB", "--nodes", "9"}, h100), "1 to 8 nodes"},
           {with({"send", "1MiB"}, h100), "world of 2 GPUs"},
           {{"all_reduce", "1MiB", "--gpu", "h100", "--world", "1"}, "world of 2"},
           {{"all_reduce", "1MiB", "--gpu", "h1000", "--world", "8"}, "h100"},
           {with({"all_reduce", "1MiB", "--gpu", "h100", "--world", "4096", "--topology"},
                 {kRails}),
            "256 nodes"},
       }) {
    const Outcome outcome = run(with({"collective"}, one.words));
    EXPECT_EQ(outcome.status, 1) << one.says;
    EXPECT_THAT(outcome.err, HasSubstr(one.says));
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  }
}

TEST(CollectiveCommand, HelpHasTwoExamplesThatRun) {
  const std::string help = run({"collective", "--help"}).out;
  EXPECT_THAT(help, HasSubstr("perfpredict collective all_reduce 64MiB --gpu h100 --world 16"));
  EXPECT_THAT(help, HasSubstr("perfpredict collective all_to_all 1KiB:1GiB --gpu a100 --world 8"));
  EXPECT_EQ(run({"collective", "all_to_all", "1KiB:1GiB", "--gpu", "a100", "--world", "8", "--plot",
                 (scratch() / "a2a.svg").string()})
                .status,
            0);
}

TEST(CollectiveCommand, WarnsOfAnotherTopology) {
  const Json json =
      collective({"all_reduce", "1MiB", "--gpu", "h100", "--world", "8", "--topology", "dgx-a100"});
  ASSERT_FALSE(json["warnings"].empty());
  EXPECT_THAT(json["warnings"][0].get<std::string>(), HasSubstr("not of h100-sxm-80gb"));
}

// Twice the NICs, half the time of a large buffer; a later EFA is slower to begin.
TEST(CollectiveCommand, RowsOfKernelsTellTheirNetwork) {
  const std::string rows = written("networks.csv",
                                   "op,dtype,bytes,nodes,gpus_per_node,nics,nic_gb_per_s,network\n"
                                   "all_reduce,fp32,8e9,4,8,2,50,InfiniBand 400\n"
                                   "all_reduce,fp32,8e9,4,8,4,50,InfiniBand 400\n"
                                   "all_reduce,fp32,1024,4,8,,,efa\n"
                                   "all_reduce,fp32,1024,4,8,,,\n");
  const Json kernels =
      Json::parse(run({"kernels", rows, "--gpu", "h100", "--json"}).out)["kernels"];
  const auto us = [&](std::size_t row) { return kernels[row]["time_us"].get<double>(); };
  EXPECT_NEAR(us(0) / us(1), 2, 0.01);
  EXPECT_GT(us(2), us(3) + 100);
  const Outcome slow = run({"kernels", rows, "--gpu", "h100", "--topology", "dgx-a100", "--json"});
  EXPECT_GT(Json::parse(slow.out)["kernels"][3]["time_us"], us(3));
  const Outcome bad = run({"kernels",
                           written("pigeons.csv",
                                   "op,bytes,nodes,gpus_per_node,network\n"
                                   "all_reduce,64,2,8,pigeons\n"),
                           "--gpu", "h100"});
  EXPECT_EQ(bad.status, 1);
  EXPECT_THAT(bad.err, HasSubstr("infiniband, roce, efa, efa-p4d"));
}

}  // namespace collective_cli_test
}  // namespace perfmodel::test_support
