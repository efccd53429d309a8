// Library LSTM, GRU and plain layers on GPUs of 2015 to 2018 (DeepBench). The model's constants
// were chosen on the fp32 rows, so these are errors of a fit; `kernels/recurrent.cpp` has those of
// GPUs left out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "accuracy_support.hpp"
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

}  // namespace
}  // namespace perfmodel
