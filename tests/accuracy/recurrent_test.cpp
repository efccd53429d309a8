// Library LSTM, GRU and plain layers on GPUs of 2015 to 2018 (DeepBench). The model's constants
// were chosen on the fp32 rows, so `DeepBenchTimes` has errors of a fit. The other tests choose
// them anew without the judged GPU; the form of the equation was chosen with all GPUs in view.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <string>

#include "accuracy_support.hpp"
#include "base/accuracy.hpp"
#include "price/kernel_work.hpp"
#include "price/kernels/recurrent.hpp"
#include "tables/kernel_table.hpp"

namespace perfmodel {
namespace recurrent_test {

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
      {"all", 18},          {"nvidia forward", 21},       {"nvidia backward", 40},
      {"amd forward", 15},  {"nvidia backward data", 19}, {"nvidia backward weights", 15},
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

using kernels::RecurrentConstants, kernels::RecurrentStep;
using JudgedRows = std::vector<const KernelRow*>;

std::vector<double*> figures_of(RecurrentStep& step) {
  return {&step.peak_share,   &step.cell_cycles,      &step.gru_cycles,
          &step.depth_cycles, &step.odd_batch_cycles, &step.memory_share};
}

/// The figures that rows of a vendor tell.
std::vector<double*> figures_of(RecurrentConstants& constants, bool amd) {
  std::vector<double*> figures = figures_of(amd ? constants.forward_amd : constants.forward);
  for (double* figure : figures_of(amd ? constants.backward_amd : constants.backward_data)) {
    figures.push_back(figure);
  }
  if (amd) return figures;
  figures.insert(figures.end(),
                 {&constants.weight_gradient_share, &constants.weight_gradient_cycles,
                  &constants.weight_gradient_step_cycles});
  return figures;
}

/// As the shipped ones were chosen: the least mean |log error| of fp32 rows, shares of the peak at
/// or below 0.95. From round figures, one after the other is moved by a factor while that helps.
RecurrentConstants chosen_on(const JudgedRows& rows, const KernelTable& table, bool amd) {
  constexpr double kMostOfPeak = 0.95;
  constexpr RecurrentStep kStep{0.7, 1e5, 1e5, 30, 30, 0.7};
  RecurrentConstants constants{kStep, kStep, kStep, kStep, 0.7, 1e5, 300};
  const auto loss = [&] {
    const auto model = kernels::make_recurrent_model(constants);
    double sum = 0;
    for (const KernelRow* row : rows) {
      const Gpu& gpu = table.gpus[static_cast<std::size_t>(row->gpu)];
      sum += std::abs(std::log(model->price(row->work, gpu).time.count() / row->measured_us));
    }
    return sum;
  };
  double least = loss();
  for (double step = 2; step > 1.01;) {
    bool helps = false;
    for (double* figure : figures_of(constants, amd)) {
      for (const double factor : {step, 1 / step}) {
        const double before = *figure;
        *figure *= factor;
        const bool is_share = before <= 1;
        if (is_share) *figure = std::min(*figure, kMostOfPeak);
        const double now = loss();
        if (now < least - 1e-6) {
          least = now;
          helps = true;
          break;
        }
        *figure = before;
      }
    }
    if (!helps) step = std::sqrt(step);
  }
  return constants;
}

/// P100's `pseudo_fp16` rows store 16-bit numbers and compute in fp32: nothing is fitted on them.
bool is_stored_in_fp32(const KernelRow& row) {
  const auto& shape = std::get<RecurrentShape>(row.work.shape);
  return row.work.bytes_read.value == recurrent_work(shape, DType::kFloat32).bytes_read.value;
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

std::string cell_and_pass(const RecurrentShape& shape) {
  constexpr const char* kCells[] = {"plain", "lstm", "gru"};
  constexpr const char* kPasses[] = {"forward", "backward", "backward data", "backward weights"};
  return std::string(kCells[static_cast<int>(shape.cell)]) + " " +
         kPasses[static_cast<int>(shape.pass)];
}

/// Against another GPU's measured times of the same layers times the best constant for these rows,
/// in all pairs of GPUs; the constants of the model come from the vendor's other GPUs.
TEST(RecurrentLayers, OneGpuLeftOut) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const auto gpus = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus";
  const auto table = read_kernel_table(*accuracy::public_data() / "deepbench" / "rnn.csv.gz",
                                       {.gpu_folder = gpus, .needs_time = true})
                         .value();
  struct Times {
    double measured = 0, ours = 0;
  };
  std::map<int, std::map<std::string, Times>> by_gpu;
  std::map<std::string, Group> by_cell;  // fp32 rows, over all GPUs
  for (std::size_t left_out = 0; left_out < table.gpus.size(); ++left_out) {
    const Gpu& gpu = table.gpus[left_out];
    JudgedRows others, own;
    for (const KernelRow& row : table.rows) {
      const Gpu& other = table.gpus[static_cast<std::size_t>(row.gpu)];
      if (other.name == gpu.name) {
        own.push_back(&row);
      } else if (other.vendor == gpu.vendor && is_stored_in_fp32(row)) {
        others.push_back(&row);
      }
    }
    const auto model = kernels::make_recurrent_model(chosen_on(others, table, gpu.vendor == "amd"));
    for (const KernelRow* row : own) {
      const double ours = model->price(row->work, gpu).time.count();
      by_gpu[row->gpu][layer_of(*row)] = {row->measured_us, ours};
      if (!is_stored_in_fp32(*row)) continue;
      Group& group = by_cell[cell_and_pass(std::get<RecurrentShape>(row->work.shape))];
      group.measured.push_back(row->measured_us);
      group.ours.push_back(ours);
    }
  }
  EXPECT_EQ(by_cell.size(), 12U);
  for (const auto& [name, group] : by_cell) {
    const double error = mape(group.ours, group.measured);
    std::printf("%-20s %4zu rows, the GPU left out: %4.1f %%\n", name.c_str(), group.ours.size(),
                error);
    EXPECT_LT(error, 25) << name;
  }
  int pairs = 0, ahead = 0;
  for (const auto& [gpu, own] : by_gpu) {
    Group all;
    for (const auto& [layer, times] : own) {
      all.measured.push_back(times.measured);
      all.ours.push_back(times.ours);
    }
    int own_ahead = 0, own_pairs = 0;
    double best = std::numeric_limits<double>::infinity();
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
      const double rival = mape(constant, group.measured, factor);
      best = std::min(best, rival);
      ++own_pairs;
      own_ahead += mape(group.ours, group.measured) < rival;
    }
    std::printf(
        "%-16s left out: %4zu layers, mean %4.1f %%; best constant ratio %4.1f %%, ahead in %d of "
        "%d\n",
        table.gpus[static_cast<std::size_t>(gpu)].name.c_str(), all.ours.size(),
        mape(all.ours, all.measured), best, own_ahead, own_pairs);
    pairs += own_pairs;
    ahead += own_ahead;
  }
  std::printf("ahead in %d of %d pairs\n", ahead, pairs);
  EXPECT_EQ(pairs, 56);
  // With products and convolutions (79 of 112, `DeepBench.OneGpuLeftOut`) it is ahead in 119 of 168
  // pairs.
  EXPECT_GE(ahead, 40);
}

}  // namespace recurrent_test
}  // namespace perfmodel
