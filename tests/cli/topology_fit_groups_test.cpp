// `perfpredict topology fit` of other collectives than all-reduces, of one node, of NVLink domains.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "topology_fit_support.hpp"

namespace perfmodel::test_support::topology_fit_test {

using ::testing::HasSubstr;
using ::testing::Not;

// All-reduces of two H100 nodes are limited by NVLink, exchanges between all of them by the NICs.
TEST(TopologyFit, AMissingNicOfTwoNodesIsNamedWhereTheNetworkDecides) {
  const auto one_less = [](const Json& at) {
    return wire_longer(at, at["bytes"] > kMib ? 8.0 / 7 : 1);
  };
  const auto usual = [](const Json& at) { return at["time_us"].get<double>(); };
  const Outcome hidden = fit(all_reduce_log(sizes_of(16, usual), 16, 2));
  EXPECT_THAT(on_one_line(hidden.out), HasSubstr("a missing NIC would not show between 2 nodes"));
  const std::string exchange =
      log_of("alltoall_perf", sizes_of(16, one_less, "all_to_all"), 16, 2, 15.0 / 16);
  const Outcome shown = fit(all_reduce_log(sizes_of(16, usual), 16, 2) + exchange);
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(on_one_line(shown.out), HasSubstr("as if one NIC of 8 is missing"));
  EXPECT_THAT(on_one_line(shown.out), Not(HasSubstr("would not show")));
}

// 20 us, then 50 GB/s of bus bandwidth: times by hand in every collective's own curve.
TEST(TopologyFit, OtherCollectivesHaveCurves) {
  for (const auto& [op, program, factor] : {std::tuple{"all_gather", "all_gather_perf", 15.0 / 16},
                                            {"reduce_scatter", "reduce_scatter_perf", 15.0 / 16},
                                            {"all_to_all", "alltoall_perf", 15.0 / 16},
                                            {"broadcast", "broadcast_perf", 1.0}}) {
    const std::string file = scratch_file("other.json");
    const std::string log = log_of(program, line_sizes(factor, 50), 16, 2, factor);
    const Outcome made = fit(log, with(kH100, {"-o", file}));
    ASSERT_EQ(made.status, 0) << made.err;
    EXPECT_EQ(Json::parse(read(file))["collectives"][0]["op"], op);
    const Words here = with(kH100, {"--world", "16", "--topology", file});
    const Json at = collective({{3 * kMib, 0}}, here, op)[0];
    EXPECT_NEAR(at["time_us"], 20 + 3 * kMib * factor / 50e3, 0.03) << op;
    EXPECT_EQ(at["in_range"], true);
    EXPECT_EQ(collective({{2048 * kMib, 0}}, here, op)[0]["in_range"], false);
  }
}

// Eight GPUs of one node at 100 GB/s: NCCL's rate of that group, and so what two nodes reach at
// most, 1 GiB x 15/16 at 100 GB/s.
TEST(TopologyFit, OneNodeChangesTheRates) {
  const std::string file = scratch_file("rates.json");
  const Outcome made =
      fit(log_of("all_gather_perf", line_sizes(0.875), 8, 1, 0.875), with(kH100, {"-o", file}));
  ASSERT_EQ(made.status, 0) << made.err;
  const Json rates = Json::parse(read(file))["nccl"]["rates"];
  EXPECT_NEAR(rates[2]["all_gather_gb_per_s"], 100, 0.1);
  EXPECT_NEAR(rates[1]["all_gather_gb_per_s"], 301.3, 1e-6);
  EXPECT_NEAR(rates[2]["reduce_scatter_gb_per_s"], 342, 1e-6);
  const Json two = collective({{1024 * kMib, 0}},
                              with(kH100, {"--world", "16", "--topology", file}), "all_gather")[0];
  EXPECT_NEAR(two["wire_us"], 1024 * kMib * 15 / 16 / 100e3, 20);
}

// 16 hosts of four GB200 are 64 GPUs of one NVLink domain, not 16 nodes.
TEST(TopologyFit, MachinesOfOneDomainAreOneNode) {
  const Outcome outcome = fit(all_reduce_log(line_sizes(), 64, 16), {"--gpu", "gb200"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("all_reduce of 64 GPUs on 1 node"));
}

}  // namespace perfmodel::test_support::topology_fit_test
