// Times of nccl-tests in one node (A100, H100, B200, GB200, RTX PRO 6000). The constants of the
// topologies' `nccl` were fitted to the fp16 rows of this very table (for all-to-all to the int8
// rows, too), so the limits of `RowsThatTheConstantsWereFittedTo` say that they are priced as they
// were fitted, not how well they predict. `ShapesLeftOut` fits them anew without the judged rows.
#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <set>

#include "accuracy_support.hpp"
#include "perfmodel/predictors/detail/collective_model.hpp"
#include "perfmodel/predictors/detail/collectives.hpp"
#include "tables/kernel_table.hpp"

namespace perfmodel {
namespace nccl_test {

constexpr double kMib = 1 << 20;

struct Mean {
  double sum = 0;
  int rows = 0;
  void add(double percent) {
    sum += std::abs(percent);
    ++rows;
  }
  double percent() const { return rows ? sum / rows : 0; }
};

/// Errors of one GPU; `other` without all-reduce, in which dgx-a100 follows the curves of another
/// table.
struct Errors {
  Mean below, from, other_below, other_from;
  void add(double bytes, bool all_reduce, double percent) {
    (bytes < kMib ? below : from).add(percent);
    if (!all_reduce) (bytes < kMib ? other_below : other_from).add(percent);
  }
};

KernelTable measured_rows() {
  const auto gpus = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus";
  return read_kernel_table(*accuracy::public_data() / "silicon" / "nccl.csv.gz",
                           {.gpu_folder = gpus, .needs_time = true})
      .value();
}

double size_of(const KernelRow& row) {
  return std::max(row.work.bytes_read.value, row.work.bytes_written.value);
}

const KernelModel& model_of(const Gpu& gpu) {
  static std::map<std::string, std::unique_ptr<KernelModel>> models;
  std::unique_ptr<KernelModel>& model = models[gpu.name];
  if (!model) {
    model = make_collective_model(topology_for(gpu));
  }
  return *model;
}

TEST(NcclTimes, RowsThatTheConstantsWereFittedTo) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::map<std::pair<std::string, DType>, Errors> groups;
  const KernelTable table = measured_rows();
  ASSERT_EQ(table.rows.size(), 1332U);
  for (const KernelRow& row : table.rows) {
    const Gpu& gpu = table.gpus[static_cast<std::size_t>(row.gpu)];
    const auto& shape = std::get<CollectiveShape>(row.work.shape);
    const Price price = model_of(gpu).price(row.work, gpu);
    EXPECT_TRUE(price.in_range) << "row " << row.id;
    groups[{gpu.name, row.work.dtype}].add(
        size_of(row), shape.kind == "all_reduce",
        accuracy::error_percent(price.time.count(), row.measured_us));
  }
  ASSERT_EQ(groups.size(), 10U);
  std::printf("mean |error| %%               < 1 MiB  >= 1 MiB, without all-reduce\n");
  for (const auto& [key, errors] : groups) {
    const auto& [name, dtype] = key;
    std::printf("%-20s %-6s %8.1f %9.1f %6.1f %6.1f\n", name.c_str(),
                std::string(to_string(dtype)).c_str(), errors.below.percent(),
                errors.from.percent(), errors.other_below.percent(), errors.other_from.percent());
    const bool curves = name == "a100-sxm-80gb";
    EXPECT_LE(errors.below.percent(), 20) << name;
    EXPECT_LE((curves ? errors.other_from : errors.from).percent(), 8) << name;
  }
}

using NcclTimes = Topology::NcclTimes;

/// Turns figures in the order of `first_guess` into times with the ranks of `pattern`.
NcclTimes times_of(const std::vector<double>& figures, NcclTimes pattern) {
  std::size_t at = 0;
  const auto next = [&] { return figures[at++]; };
  pattern.base = Microseconds{next()};
  pattern.hop = Microseconds{next()};
  pattern.rise = next();
  pattern.rise_bytes = {next()};
  pattern.low_rate = {next()};
  pattern.simple_base = Microseconds{next()};
  pattern.simple_hop = Microseconds{next()};
  pattern.all_to_all = {
      .base = Microseconds{next()}, .low_rate = {next()}, .simple_base = Microseconds{next()}};
  for (NcclTimes::Rates& rates : pattern.rates) {
    for (auto rate : {&NcclTimes::Rates::all_reduce, &NcclTimes::Rates::all_gather,
                      &NcclTimes::Rates::reduce_scatter, &NcclTimes::Rates::all_to_all}) {
      rates.*rate = {next()};
    }
  }
  return pattern;
}

/// Before anything was measured: round figures, and shares of the data sheet's rate of the links.
std::vector<double> first_guess(const Topology& topology) {
  const double link = topology.intra.gpu_bandwidth.value;
  std::vector<double> figures = {5, 1, 0.1, 1e4, 0.2 * link, 15, 2, 8, 0.2 * link, 15};
  figures.resize(figures.size() + 4 * topology.nccl->rates.size(), 0.7 * link);
  return figures;
}

using Rows = std::vector<const KernelRow*>;

/// Mean of the soft L1 loss of the logarithm, with a scale of 5 %.
double loss_of(const Topology& topology, const Gpu& gpu, const Rows& rows) {
  const auto model = make_collective_model(topology);
  double sum = 0;
  for (const KernelRow* row : rows) {
    const double off = std::log(model->price(row->work, gpu).time.count() / row->measured_us);
    sum += std::sqrt(off * off + 0.05 * 0.05);
  }
  return sum / static_cast<double>(rows.size());
}

/// One figure after the other is moved by a factor while that helps; the factor shrinks to 1 %.
Topology fitted_to(const Rows& rows, Topology topology, const Gpu& gpu) {
  topology.curves.clear();  // they come from another table
  const NcclTimes pattern = *topology.nccl;
  std::vector<double> figures = first_guess(topology);
  const auto loss = [&] {
    topology.nccl = times_of(figures, pattern);
    return loss_of(topology, gpu, rows);
  };
  double least = loss();
  for (double step = 2; step > 1.01;) {
    bool helps = false;
    for (double& figure : figures) {
      for (const double factor : {step, 1 / step}) {
        const double before = figure;
        figure *= factor;
        const double now = loss();
        if (now < least - 1e-6) {
          least = now;
          helps = true;
          break;
        }
        figure = before;
      }
    }
    if (!helps) step = std::sqrt(step);
  }
  loss();  // the topology holds the figures that were kept
  return topology;
}

/// The rows of fp16, which are judged, and the int8 rows of all-to-all, which run the same kernel.
struct GpuRows {
  const Gpu* gpu = nullptr;
  Rows fp16, other;
};

std::map<std::string, GpuRows> rows_by_gpu(const KernelTable& table) {
  std::map<std::string, GpuRows> by_gpu;
  for (const KernelRow& row : table.rows) {
    const Gpu& gpu = table.gpus[static_cast<std::size_t>(row.gpu)];
    GpuRows& own = by_gpu[gpu.name];
    own.gpu = &gpu;
    if (row.work.dtype == DType::kFloat16) {
      own.fp16.push_back(&row);
    } else if (std::get<CollectiveShape>(row.work.shape).kind.starts_with("all_to_all")) {
      own.other.push_back(&row);
    }
  }
  return by_gpu;
}

/// Number of a shape (size, ranks, operation), so that every fourth one of each operation and group
/// size has the same remainder.
class ShapeNumbers {
 public:
  explicit ShapeNumbers(const Rows& rows) {
    for (const KernelRow* row : rows) {
      sizes_.insert(size_of(*row));
      groups_.insert(group_of(*row));
    }
  }
  std::ptrdiff_t operator()(const KernelRow& row) const {
    return std::distance(sizes_.begin(), sizes_.lower_bound(size_of(row))) +
           std::distance(groups_.begin(), groups_.lower_bound(group_of(row)));
  }

 private:
  static std::pair<std::string, std::int64_t> group_of(const KernelRow& row) {
    const auto& shape = std::get<CollectiveShape>(row.work.shape);
    return {shape.kind, shape.world_size};
  }
  std::set<double> sizes_;
  std::set<std::pair<std::string, std::int64_t>> groups_;
};

// A quarter of the shapes is judged by constants that the others alone give. The form of the
// equations was chosen with all rows in view. The goal is 20 % below and 8 % from 1 MiB. B200
// misses the second: its all-gathers and reduce-scatters on 8 GPUs follow no one rate (18 and 13 %
// even of the fit).
TEST(NcclTimes, ShapesLeftOut) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  constexpr std::ptrdiff_t kFolds = 4;
  const KernelTable table = measured_rows();
  const auto by_gpu = rows_by_gpu(table);
  ASSERT_EQ(by_gpu.size(), 5U);
  std::printf("shapes left out: mean |error| %% < 1 MiB  >= 1 MiB\n");
  for (const auto& [name, own] : by_gpu) {
    const ShapeNumbers number(own.fp16);
    Errors errors;
    std::array<double, 2> inside{}, count{};  // below and from 1 MiB
    for (std::ptrdiff_t fold = 0; fold < kFolds; ++fold) {
      const auto is_left_out = [&](const KernelRow* row) { return number(*row) % kFolds == fold; };
      Rows others;
      for (const Rows* rows : {&own.fp16, &own.other}) {
        std::ranges::remove_copy_if(*rows, std::back_inserter(others), is_left_out);
      }
      const auto model = make_collective_model(fitted_to(others, topology_for(*own.gpu), *own.gpu));
      for (const KernelRow* row : own.fp16) {
        if (!is_left_out(row)) continue;
        const Price price = model->price(row->work, *own.gpu);
        errors.add(size_of(*row), false,
                   accuracy::error_percent(price.time.count(), row->measured_us));
        const std::size_t large = size_of(*row) < kMib ? 0 : 1;
        inside[large] +=
            row->measured_us >= price.low.count() && row->measured_us <= price.high.count();
        ++count[large];
      }
    }
    std::printf("%-30s %9.1f %9.1f; inside low..high %3.0f %3.0f %%\n", name.c_str(),
                errors.below.percent(), errors.from.percent(), 100 * inside[0] / count[0],
                100 * inside[1] / count[1]);
    for (const std::size_t large : {0U, 1U}) EXPECT_GE(inside[large] / count[large], 0.85) << name;
    EXPECT_LE(errors.below.percent(), 20) << name;
    EXPECT_LE(errors.from.percent(), name == "b200-sxm-180gb" ? 10.5 : 8) << name;
  }
}

}  // namespace nccl_test
}  // namespace perfmodel
