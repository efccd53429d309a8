#include "program/launch_regions.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace perfmodel {
namespace launch_regions_test {

// Items of one step each: 10 us of gap, 3 us to the call of 4 us, 2 us after it.
class Host {
 public:
  Host& op(std::int32_t iteration = 0) { return item(iteration, false, false); }
  Host& reads_back(std::int32_t iteration = 0) { return item(iteration, true, false); }
  Host& synchronises(std::int32_t iteration = 0) { return item(iteration, false, true); }

  /// Host time of each item after the rewrite.
  std::vector<double> launched(Launching launching, LaunchRegions* found = nullptr) {
    OverheadTable table;
    table.t4["cudaLaunchKernel"] = {.mean_us = 4, .count = 1};
    const LaunchRegions made = launch_by_regions(table, launching, program_);
    if (found) *found = made;
    std::vector<double> sums(program_.items.size(), 0);
    for (const Instruction& at : program_.instructions) {
      double& sum = sums[static_cast<std::size_t>(at.item)];
      if (const auto* work = std::get_if<HostWork>(&at.what)) sum += work->us;
      if (const auto* launch = launch_of(at)) sum += launch->host_us;
      if (const auto* sync = std::get_if<Synchronisation>(&at.what)) sum += sync->host_us;
    }
    return sums;
  }

 private:
  Host& item(std::int32_t iteration, bool blocking, bool synchronising) {
    const auto index = static_cast<std::int32_t>(program_.items.size());
    program_.items.push_back({.node = index, .subject = index, .iteration = iteration});
    const auto add = [&](decltype(Instruction::what) what) {
      program_.instructions.push_back({.item = index, .what = std::move(what)});
    };
    add(HostWork{.term = Term::kT1, .us = 10});
    add(HostWork{.term = Term::kT2, .us = 3});
    add(Launch{.blocking = blocking, .host_us = 4});
    if (synchronising) add(Synchronisation{.kind = SyncKind::kStream, .host_us = 1});
    add(HostWork{.term = Term::kT3, .us = 2});
    return *this;
  }
  HostProgram program_;
};

TEST(LaunchRegions, EagerStaysAsItIs) {
  EXPECT_EQ(Host().op().op().launched(Launching::kEager), (std::vector<double>{19, 19}));
}

TEST(LaunchRegions, OneLaunchOfAGraphStandsForAll) {
  // The gap of 10 us, a launch of 4 us, 1 ns for each of three nodes.
  LaunchRegions found;
  const auto us = Host().op().op().op().launched(Launching::kCudaGraphs, &found);
  EXPECT_NEAR(us[0], 10 + 4 + 3e-3, 1e-9);
  EXPECT_EQ(us[1], 0);
  EXPECT_EQ(us[2], 0);
  EXPECT_EQ(found.regions, 1U);
  EXPECT_EQ(found.launches, 3U);
}

TEST(LaunchRegions, CompiledCodeLaunchesEachKernel) {
  EXPECT_EQ(Host().op().op().op().launched(Launching::kCompiled), (std::vector<double>{14, 4, 4}));
}

TEST(LaunchRegions, EndWhereTheHostWaitsAndWhereTheStepEnds) {
  LaunchRegions found;
  const auto us = Host().op().op().reads_back().op().op().synchronises().op().op(1).op(1).launched(
      Launching::kCudaGraphs, &found);
  EXPECT_NEAR(us[0], 14.002, 1e-9);
  EXPECT_EQ(us[1], 0);
  EXPECT_EQ(us[2], 19);
  EXPECT_NEAR(us[3], 14.002, 1e-9);
  EXPECT_EQ(us[4], 0);
  EXPECT_EQ(us[5], 20);
  EXPECT_EQ(us[6], 19);  // a single launch is none to capture
  EXPECT_NEAR(us[7], 14.002, 1e-9);
  EXPECT_EQ(found.regions, 3U);
  EXPECT_EQ(found.launches, 6U);
}

TEST(LaunchRegions, ARecordedGraphLaunchTellsItsTime) {
  OverheadTable table;
  table.t4["cudaLaunchKernel"] = {.mean_us = 4, .count = 1};
  table.t4["cudaGraphLaunch"] = {.mean_us = 9, .count = 1};
  HostProgram program;
  program.items.push_back({.node = 0, .subject = 0});
  for (int i = 0; i < 2; ++i) program.instructions.push_back({.what = Launch{.host_us = 4}});
  launch_by_regions(table, Launching::kCudaGraphs, program);
  EXPECT_NEAR(launch_of(program.instructions[0])->host_us, 9.002, 1e-9);
}

}  // namespace launch_regions_test
}  // namespace perfmodel
