// Library LSTM, GRU and plain layers on GPUs of 2015 to 2018 (DeepBench). The model's constants
// were chosen on the fp32 rows, so these are errors of a fit; `kernels/recurrent.cpp` has those of
// GPUs left out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "accuracy_support.hpp"
#include "base/accuracy.hpp"
#include "tables/kernel_table.hpp"

namespace perfmodel {
namespace {

using Pass = RecurrentShape::Pass;

std::string pass_name(Pass pass, const Gpu& gpu) {
  switch (pass) {
    case Pass::kForward:
      return gpu.vendor + " forward";
    case Pass::kBackward:
      return gpu.vendor + " backward";
    case Pass::kBackwardData:
      return gpu.vendor + " backward data";
    case Pass::kBackwardWeights:
      return gpu.vendor + " backward weights";
  }
  return "unknown";
}

struct Group {
  std::vector<double> measured, ours, roofline;
};

double mape(const std::vector<double>& predicted, const std::vector<double>& measured,
            double factor = 1) {
  double sum = 0;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    sum += std::abs(accuracy::error_percent(factor * predicted[i], measured[i]));
  }
  return sum / static_cast<double>(measured.size());
}

/// Median of measured over roofline on the even rows.
double roofline_factor(const Group& group) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < group.measured.size(); i += 2) {
    ratios.push_back(group.measured[i] / group.roofline[i]);
  }
  std::sort(ratios.begin(), ratios.end());
  return ratios[ratios.size() / 2];
}

TEST(RecurrentLayers, DeepBenchTimes) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const auto gpus = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus";
  const auto table = read_kernel_table(*accuracy::public_data() / "deepbench" / "rnn.csv.gz",
                                       {.gpu_folder = gpus, .needs_time = true});
  ASSERT_TRUE(table.has_value()) << to_string(table.error());
  std::map<std::string, Group> groups;
  for (const KernelRow& row : table->rows) {
    const Gpu& gpu = table->gpus[static_cast<std::size_t>(row.gpu)];
    const auto* shape = std::get_if<RecurrentShape>(&row.work.shape);
    ASSERT_NE(shape, nullptr) << "row " << row.id;
    const Price price = KernelModels::heuristic().price(row.work, gpu);
    EXPECT_EQ(price.model, "recurrent-heuristic") << "row " << row.id;
    const double roofline = KernelModels::roofline().price(row.work, gpu).time.count();
    for (const std::string& name : {std::string("all"), pass_name(shape->pass, gpu)}) {
      Group& group = groups[name];
      group.measured.push_back(row.measured_us);
      group.ours.push_back(price.time.count());
      group.roofline.push_back(roofline);
    }
  }
  ASSERT_EQ(groups["all"].measured.size(), 1272U);
  const std::map<std::string, double> limits = {
      {"all", 21},          {"nvidia forward", 26},       {"nvidia backward", 40},
      {"amd forward", 15},  {"nvidia backward data", 23}, {"nvidia backward weights", 15},
      {"amd backward", 15},
  };
  std::printf("%-24s %4s  ours  roofline  roofline x constant\n", "MAPE %", "rows");
  for (const auto& [name, group] : groups) {
    const double ours = mape(group.ours, group.measured);
    const double roofline = mape(group.roofline, group.measured);
    const double scaled = mape(group.roofline, group.measured, roofline_factor(group));
    std::printf("%-24s %4zu %5.1f %9.1f %20.1f\n", name.c_str(), group.measured.size(), ours,
                roofline, scaled);
    ASSERT_TRUE(limits.contains(name)) << name;
    EXPECT_LT(ours, limits.at(name)) << name;
    EXPECT_LT(ours, scaled) << name;
    EXPECT_LT(ours, roofline) << name;
  }
}

/// Everything that makes two rows of different GPUs one layer.
std::string layer_of(const KernelRow& row) {
  const auto& s = std::get<RecurrentShape>(row.work.shape);
  std::string key;
  for (const std::int64_t part :
       {static_cast<std::int64_t>(s.cell), static_cast<std::int64_t>(s.pass), s.hidden, s.batch,
        s.timesteps, static_cast<std::int64_t>(row.work.bytes_read.value)}) {
    key += std::to_string(part) + " ";
  }
  return key;
}

// Against another GPU's measured times of the same layers times the best constant for these rows.
// The constants of the model saw all of these GPUs.
TEST(RecurrentLayers, BeatOtherGpusTimesAndAConstantInTwoThirdsOfThePairs) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const auto gpus = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus";
  const auto table = read_kernel_table(*accuracy::public_data() / "deepbench" / "rnn.csv.gz",
                                       {.gpu_folder = gpus, .needs_time = true})
                         .value();
  struct Times {
    double measured = 0, ours = 0;
  };
  std::map<int, std::map<std::string, Times>> by_gpu;
  for (const KernelRow& row : table.rows) {
    const Gpu& gpu = table.gpus[static_cast<std::size_t>(row.gpu)];
    by_gpu[row.gpu][layer_of(row)] = {row.measured_us,
                                      KernelModels::heuristic().price(row.work, gpu).time.count()};
  }
  int pairs = 0, ahead = 0;
  for (const auto& [gpu, own] : by_gpu) {
    for (const auto& [other, theirs] : by_gpu) {
      Group group;
      std::vector<double> constant;
      for (const auto& [layer, times] : own) {
        const auto at = theirs.find(layer);
        if (gpu == other || at == theirs.end()) continue;
        group.measured.push_back(times.measured);
        group.ours.push_back(times.ours);
        constant.push_back(at->second.measured);
      }
      if (constant.empty()) continue;
      const double factor = best_constant_ratio(constant, group.measured).value();
      ++pairs;
      ahead += mape(group.ours, group.measured) < mape(constant, group.measured, factor);
    }
  }
  std::printf("ahead in %d of %d pairs\n", ahead, pairs);
  EXPECT_EQ(pairs, 56);
  EXPECT_GE(3 * ahead, 2 * pairs);
}

}  // namespace
}  // namespace perfmodel
