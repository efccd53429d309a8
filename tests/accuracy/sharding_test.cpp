// Whole batches of sharded recommenders against published iteration times. MLPerf: constants of all
// other rows judge each row, next to two baselines with the same constants; the library's factors
// are medians of the even rows. Synthetic models: constants of software that takes tables one by
// one were fitted on the even rows.
#include <cstdio>
#include <functional>
#include <map>
#include <numeric>

#include "perfmodel/predictors/topology.hpp"
#include "perfmodel/sharding/rank_plans.hpp"
#include "sharding_models.hpp"

namespace perfmodel::accuracy {
namespace sharding_test {

using namespace sharding;

struct System {
  std::string gpu, topology;
};

// Names of a row's GPU and topology in our catalogue.
System system_of(const std::string& gpu, const std::string& form, const std::string& memory_gb) {
  if (gpu == "A100" && form == "SXM") {
    return {memory_gb == "40" ? "a100-sxm-40gb" : "a100-sxm-80gb", "dgx-a100"};
  }
  if (gpu == "A100") return {"a100-pcie-" + memory_gb + "gb", "pcie-gen4"};
  if (gpu == "H100") return {"h100-sxm-80gb", "hgx-h100"};
  if (gpu == "H200") return {"h200-sxm-141gb", "hgx-h200"};
  if (gpu == "B200") return {"b200-sxm-180gb", "hgx-b200"};
  if (gpu == "V100") return {"v100-sxm2-32gb", "dgx2-v100"};
  return {"a30", "pcie-gen4"};
}

struct Row {
  std::string gpu, model, round, system, implementation;
  System is;
  int world = 0, local = 0;
  double batch = 0, measured_ms = 0;
  double predicted_ms = 0, roofline_ms = 0;  // without a factor
  std::vector<double> late_ms;               // with each of kStragglers
  std::int64_t hot_rows = 0;                 // hybrid embedding only; 0: none
  std::string largest;
};

std::vector<Row> unflagged_rows() {
  const CsvRows csv = read_csv(*public_data() / "sharding" / "mlperf_dlrm_iter_ms.csv");
  std::vector<Row> rows;
  for (std::size_t i = 0; i < csv.rows.size(); ++i) {
    if (!csv.at(i, "flags").empty()) continue;
    rows.push_back({.gpu = csv.at(i, "gpu"),
                    .model = csv.at(i, "model"),
                    .round = csv.at(i, "round"),
                    .system = csv.at(i, "system"),
                    .implementation = csv.at(i, "implementation"),
                    .is = system_of(csv.at(i, "gpu"), csv.at(i, "form"), csv.at(i, "gpu_mem_gb")),
                    .world = std::stoi(csv.at(i, "gpus")),
                    .local = std::stoi(csv.at(i, "gpus_per_node")),
                    .batch = std::stod(csv.at(i, "batch_per_gpu")),
                    .measured_ms = std::stod(csv.at(i, "ms_per_iter")),
                    .largest = {}});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::tie(a.gpu, a.model, a.world, a.round, a.system) <
           std::tie(b.gpu, b.model, b.world, b.round, b.system);
  });
  return rows;
}

// HugeCTR, mixed precision: fp16 vectors of fp32 tables that lie whole, split by rows, or on all
// ranks; SGD for the one-hot model, Adagrad for DCNv2.
ShardingStudy mlperf_study(const Row& row) {
  ShardingStudy study = public_model(row.model);
  const bool dcnv2 = row.model == "criteo_dcnv2_multihot";
  for (ShardedTable& table : study.tables) {
    table.optimizer = dcnv2 ? TableOptimizer::kAdagrad : TableOptimizer::kSgd;
    table.output_bytes = 2;
    table.rules.types = {ShardingType::kTableWise, ShardingType::kRowSplit,
                         ShardingType::kTableRowWise, ShardingType::kHostRowSplit,
                         ShardingType::kDataParallel};
  }
  study.dense->dtype = "float16";
  study.world = row.world;
  study.local_world = row.local;
  study.batch_per_rank = std::llround(row.batch);
  study.free_share = 0.05;
  study.network = ExchangeSoftware::parse("hugectr").value();
  return study;
}

constexpr double kStragglers[] = {0, 10, 20, 30, 40, 60, 80};  // us

// HugeCTR's hybrid embedding of the one-hot model: rows owned by hash, a vector per distinct id,
// and copies of the most frequent rows on every rank. The distribution of Criteo's ids is not
// public: they are taken to follow the Zipf law of NVIDIA's synthetic recommenders.
ShardingStudy hybrid_study(const Row& row, std::int64_t hot_rows) {
  constexpr double kZipf = 1.05;
  ShardingStudy study = mlperf_study(row);
  for (ShardedTable& table : study.tables) {
    table.skew.exponent = kZipf;
    table.deduplicated = true;
    table.hot_rows = std::min(hot_rows, table.rows / 2);
  }
  return study;
}

std::vector<TablePlacement> hybrid_plan(const ShardingStudy& study, std::int64_t hot_rows) {
  std::vector<TablePlacement> plan;
  for (const ShardedTable& table : study.tables) {
    if (table.rows <= 2 * hot_rows) {
      plan.push_back({.type = ShardingType::kDataParallel, .kernel = ComputeKernel::kDense});
    } else {
      plan.push_back({.type = ShardingType::kRowWise});
    }
  }
  return plan;
}

void predict_row(Row& row) {
  const auto topology = TopologyCatalog::builtin().find(row.is.topology);
  ASSERT_TRUE(topology) << topology.error().message;
  ShardingStudy study = mlperf_study(row);
  auto model = BatchModel::make(study, gpu(row.is.gpu), *topology, {.device_factor = 1});
  ASSERT_TRUE(model) << model.error().message;
  const auto plans = rank_plans(*model, {.time_budget_s = 20});
  ASSERT_TRUE(plans) << row.system << ": " << plans.error().message;
  std::vector<TablePlacement> plan = plans->plans.front().placements;
  BatchTime time = plans->plans.front().time;
  if (row.model == "criteo_dlrm_onehot" && row.implementation == "hugectr") {
    for (const std::int64_t hot_rows : {1'000, 3'000, 10'000, 30'000, 100'000}) {
      const ShardingStudy hybrid = hybrid_study(row, hot_rows);
      const auto made = model->with(hybrid);
      ASSERT_TRUE(made) << made.error().message;
      const std::vector<TablePlacement> placements = hybrid_plan(hybrid, hot_rows);
      const auto other = made->time(placements);
      ASSERT_TRUE(other) << other.error().message;
      if (!other->ranks_over_memory.empty() || other->predicted_us >= time.predicted_us) continue;
      study = hybrid;
      plan = placements;
      time = *other;
      row.hot_rows = hot_rows;
    }
  }
  row.predicted_ms = time.predicted_us / 1000;
  for (const double us : kStragglers) {
    study.network.straggler_us = us;
    const auto late = model->with(study);
    ASSERT_TRUE(late) << late.error().message;
    row.late_ms.push_back(late->time(plan)->predicted_us / 1000);
  }
  study.network.straggler_us = 0;
  // Baseline: the same plan with flop and bytes at peak rates for the dense part and the sorts.
  const auto roofline = BatchModel::make(study, gpu(row.is.gpu), *topology,
                                         {.device_factor = 1, .models = &KernelModels::roofline()});
  ASSERT_TRUE(roofline) << roofline.error().message;
  row.roofline_ms = roofline->time(plan)->predicted_us / 1000;
  BatchPart largest = BatchPart::kLookupForward;
  for (std::size_t i = 0; i < kBatchParts; ++i) {
    const auto part = static_cast<BatchPart>(i);
    if (time.critical[part] > time.critical[largest]) largest = part;
  }
  row.largest = std::string(to_string(largest)) + " " +
                std::to_string(std::lround(100 * time.critical[largest] / time.predicted_us)) +
                " %";
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return std::sqrt(values[middle - 1] * values[middle]);
}

// ---- one constant per GPU type and one per release of the software ------------------------------

/// Logarithms of measured over predicted: per GPU type, plus a term per software release.
struct Constants {
  std::map<std::string, double> gpu, software;
  double other_gpu = 0;  ///< for a GPU type without rows
};

std::string software_of(const Row& row) { return row.implementation + " " + row.round; }

double log_median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

using Predict = std::function<double(const Row&)>;

/// Medians in turn; a release that few rows have is taken for half or two thirds of what they say.
Constants fit(const std::vector<const Row*>& rows, const Predict& predict, bool with_software) {
  Constants c;
  const auto residual = [&](const Row& row) {
    return std::log(row.measured_ms / predict(row)) - c.gpu[row.gpu] - c.software[software_of(row)];
  };
  for (int round = 0; round < 20; ++round) {
    for (const bool of_gpu : {true, false}) {
      if (!of_gpu && !with_software) continue;
      std::map<std::string, std::vector<double>> groups;
      for (const Row* row : rows) {
        groups[of_gpu ? row->gpu : software_of(*row)].push_back(residual(*row));
      }
      for (const auto& [name, values] : groups) {
        const double n = static_cast<double>(values.size());
        double& constant = (of_gpu ? c.gpu : c.software)[name];
        constant += (of_gpu ? 1 : n / (n + 1)) * log_median(values);
        if (!of_gpu) constant *= n / (n + 0.25);
      }
    }
  }
  std::vector<double> gpus;
  for (const auto& [name, value] : c.gpu) gpus.push_back(value);
  c.other_gpu = gpus.empty() ? 0 : log_median(gpus);
  return c;
}

double factor(const Constants& c, const Row& row) {
  const auto gpu = c.gpu.find(row.gpu);
  const auto software = c.software.find(software_of(row));
  return std::exp((gpu == c.gpu.end() ? c.other_gpu : gpu->second) +
                  (software == c.software.end() ? 0 : software->second));
}

struct Errors {
  int rows = 0;
  double geomean = 0, mean = 0;
};

Errors errors_of(const std::vector<double>& all) {
  Errors errors;
  double logs = 0;
  for (const double error : all) {
    logs += std::log(std::max(error, 1e-3));
    errors.mean += error;
    ++errors.rows;
  }
  if (errors.rows == 0) return errors;
  errors.geomean = std::exp(logs / errors.rows);
  errors.mean /= errors.rows;
  return errors;
}

bool is_one_nvlink_host(const Row& row) {
  return row.world == row.local && row.is.topology.find("pcie") == std::string::npos;
}

std::vector<const Row*> others_than(const std::vector<Row>& rows, const Row& judged,
                                    bool whole_gpu) {
  std::vector<const Row*> others;
  for (const Row& row : rows) {
    if (&row != &judged && !(whole_gpu && row.gpu == judged.gpu)) others.push_back(&row);
  }
  return others;
}

/// Judges each row by constants of all others of its class, or of other GPU types. Rows with a
/// network have an error of their own, independent of their GPU and release.
Errors one_host_errors(const std::vector<Row>& rows, const Predict& predict, bool with_software,
                       bool whole_gpu = false) {
  std::vector<double> errors;
  for (const Row& judged : rows) {
    if (!is_one_nvlink_host(judged)) continue;
    auto others = others_than(rows, judged, whole_gpu);
    std::erase_if(others, [](const Row* row) { return !is_one_nvlink_host(*row); });
    const double ours = factor(fit(others, predict, with_software), judged) * predict(judged);
    errors.push_back(std::abs(ours / judged.measured_ms - 1));
  }
  return errors_of(errors);
}

/// Rows with a network: constants of one host, and one for the whole class from its other rows. The
/// spread of ranks is the one that suits these others best.
Errors network_errors(const std::vector<Row>& rows, const std::vector<Predict>& predicts,
                      bool with_software, bool whole_gpu = false, bool shown = false) {
  std::vector<double> errors;
  for (const Row& judged : rows) {
    if (is_one_nvlink_host(judged)) continue;
    const auto others = others_than(rows, judged, whole_gpu);
    std::vector<const Row*> hosts, networks;
    for (const Row* row : others) (is_one_nvlink_host(*row) ? hosts : networks).push_back(row);
    double least = 1e300, chosen = 0;
    for (const Predict& predict : predicts) {
      const Constants c = fit(hosts, predict, with_software);
      std::vector<double> residuals;
      for (const Row* row : networks) {
        residuals.push_back(std::log(row->measured_ms / predict(*row) / factor(c, *row)));
      }
      const double middle = log_median(residuals);
      double spread = 0;
      for (const double residual : residuals) spread += std::abs(residual - middle);
      if (spread >= least) continue;
      least = spread;
      chosen = std::exp(middle) * factor(c, judged) * predict(judged);
    }
    errors.push_back(std::abs(chosen / judged.measured_ms - 1));
    if (shown) {
      std::printf("  %-4s %4d GPUs %-5s %-34.34s %8.3f, left out %8.3f %+6.1f %%, %lld hot rows\n",
                  judged.gpu.c_str(), judged.world, judged.round.c_str(), judged.system.c_str(),
                  judged.measured_ms, chosen, 100 * (chosen / judged.measured_ms - 1),
                  static_cast<long long>(judged.hot_rows));
    }
  }
  return errors_of(errors);
}

// The deviation from the median that four fifths of the ratios keep.
double spread(const std::vector<double>& ratios) {
  constexpr double kLeast = 0.15;
  std::vector<double> deviations;
  for (double ratio : ratios) deviations.push_back(std::abs(ratio / median(ratios) - 1));
  std::sort(deviations.begin(), deviations.end());
  const auto at =
      static_cast<std::size_t>(std::ceil(0.8 * static_cast<double>(deviations.size())) - 1);
  return std::max(kLeast, deviations[at]);
}

// Inside one model, on equal numbers of GPUs and batches: median times of GPU types come in the
// measured order.
void expect_ranking(const std::vector<Row>& rows,
                    const std::map<std::string, std::vector<double>>& fitted) {
  using Times = std::map<std::string, std::pair<std::vector<double>, std::vector<double>>>;
  std::map<std::string, Times> groups;  // by question, then GPU: measured, predicted
  for (const Row& row : rows) {
    const std::string question =
        row.model + " " + std::to_string(row.world) + " " + std::to_string(row.batch);
    auto& [measured, predicted] = groups[question][row.gpu];
    measured.push_back(row.measured_ms);
    predicted.push_back(median(fitted.at(row.gpu)) * row.predicted_ms);
  }
  int compared = 0;
  for (const auto& [question, times] : groups) {
    for (auto a = times.begin(); a != times.end(); ++a) {
      for (auto b = std::next(a); b != times.end(); ++b) {
        ++compared;
        EXPECT_EQ(median(a->second.first) < median(b->second.first),
                  median(a->second.second) < median(b->second.second))
            << question << ": " << a->first << " and " << b->first;
      }
    }
  }
  std::printf("%d pairs of GPU types asked the same question\n", compared);
  EXPECT_GE(compared, 6);
}

TEST(ShardingAccuracy, MlperfIterationTimes) {
  if (!public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::vector<Row> rows = unflagged_rows();
  std::map<std::string, Row> known;  // equal questions are asked once
  std::map<std::string, std::vector<double>> fitted;
  std::map<std::string, int> count;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Row& row = rows[i];
    const std::string key = row.is.gpu + row.is.topology + row.model + std::to_string(row.world) +
                            " " + std::to_string(row.local) + " " + std::to_string(row.batch) +
                            row.implementation;
    if (!known.contains(key)) {
      ASSERT_NO_FATAL_FAILURE(predict_row(row));
      known[key] = row;
    }
    row.predicted_ms = known[key].predicted_ms;
    row.roofline_ms = known[key].roofline_ms;
    row.late_ms = known[key].late_ms;
    row.hot_rows = known[key].hot_rows;
    row.largest = known[key].largest;
    ++count[row.gpu];
    if (i % 2 == 0) fitted[row.gpu].push_back(row.measured_ms / row.predicted_ms);
  }
  std::printf("%-4s %-22s %4s %6s %-5s %-34.34s %8s %8s %7s  %s\n", "GPU", "model", "GPUs", "batch",
              "round", "system", "ms", "ours", "error", "largest term");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const double ours = median(fitted.at(row.gpu)) * row.predicted_ms;
    std::printf("%-4s %-22s %4d %6.0f %-5s %-34.34s %8.3f %8.3f %6.1f%%%s %s\n", row.gpu.c_str(),
                row.model.c_str(), row.world, row.batch, row.round.c_str(), row.system.c_str(),
                row.measured_ms, ours, 100 * (ours / row.measured_ms - 1), i % 2 == 0 ? "*" : " ",
                row.largest.c_str());
  }
  std::printf(
      "* in the fit of the library's factors\n"
      "Each row judged by constants of the others: geometric mean error (mean) [%%]\n"
      "%-28s %4s %-22s %14s %14s %14s\n",
      "class", "rows", "constants", "ours", "roofline", "samples");
  const Predict ours = [](const Row& row) { return row.predicted_ms; };
  const Predict roofline = [](const Row& row) { return row.roofline_ms; };
  const Predict samples = [](const Row& row) { return row.batch; };
  std::vector<Predict> late;
  for (std::size_t i = 0; i < std::size(kStragglers); ++i) {
    late.push_back(
        [i](const Row& row) { return row.world > row.local ? row.late_ms[i] : row.predicted_ms; });
  }
  for (const auto& [name, with_software, whole_gpu] :
       {std::tuple{"per GPU and release", true, false},
        {"per GPU", false, false},
        {"of other GPUs", true, true}}) {
    const char* constants = name;
    const auto print = [&](const char* of, const Errors& a, const Errors& b, const Errors& c) {
      std::printf("%-28s %4d %-22s %6.1f (%5.1f) %6.1f (%5.1f) %6.1f (%5.1f)\n", of, a.rows,
                  constants, 100 * a.geomean, 100 * a.mean, 100 * b.geomean, 100 * b.mean,
                  100 * c.geomean, 100 * c.mean);
    };
    const Errors one = one_host_errors(rows, ours, with_software, whole_gpu);
    const Errors many = network_errors(rows, late, with_software, whole_gpu);
    print("one NVLink host", one, one_host_errors(rows, roofline, with_software, whole_gpu),
          one_host_errors(rows, samples, with_software, whole_gpu));
    print("several hosts or PCIe", many, network_errors(rows, {roofline}, with_software, whole_gpu),
          network_errors(rows, {samples}, with_software, whole_gpu));
    if (with_software && !whole_gpu) {
      EXPECT_LE(one.geomean, 0.06);
      EXPECT_LE(one.mean, 0.12);
      EXPECT_LE(many.geomean, 0.15);
      EXPECT_LE(many.mean, 0.25);
    }
    if (whole_gpu) {
      EXPECT_LE(one.geomean, 0.20);
      EXPECT_LE(many.geomean, 0.20);
    }
  }
  network_errors(rows, late, true, false, true);
  // The library has these factors and spreads.
  for (const auto& [name, is] : {std::pair{"A100", "a100-sxm-80gb"},
                                 {"H100", "h100-sxm-80gb"},
                                 {"H200", "h200-sxm-141gb"},
                                 {"B200", "b200-sxm-180gb"}}) {
    const Calibration calibration = calibration_of(gpu(is));
    EXPECT_TRUE(calibration.known);
    EXPECT_NEAR(calibration.factor, median(fitted.at(name)), 0.005) << name;
    EXPECT_NEAR(calibration.spread, spread(fitted.at(name)), 0.01) << name;
  }
  EXPECT_FALSE(calibration_of(gpu("v100-sxm2-32gb")).known);
  expect_ranking(rows, fitted);
}

// NVIDIA's memory_balanced strategy: tables by size, one rank after the other and back again; a
// table larger than a rank's share is cut into pieces of columns.
std::vector<TablePlacement> memory_balanced(const ShardingStudy& study) {
  const std::int64_t world = *study.world;
  const auto elements = [&](std::size_t t) {
    return static_cast<double>(study.tables[t].rows * study.tables[t].dim);
  };
  std::vector<std::size_t> order(study.tables.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return elements(a) > elements(b); });
  double share = 0;
  for (std::size_t t : order) share += elements(t) / static_cast<double>(world);
  std::int64_t turn = 0;
  std::vector<TablePlacement> plan(study.tables.size());
  for (std::size_t t : order) {
    std::int64_t pieces = 1;
    while (pieces < world && elements(t) / static_cast<double>(pieces) > share &&
           study.tables[t].dim / pieces >= 8) {
      pieces *= 2;
    }
    if (pieces > 1) {
      plan[t].type = ShardingType::kColumnWise;
      plan[t].least_columns = study.tables[t].dim / pieces;
    }
    std::vector<std::int64_t>& ranks = plan[t].ranks;
    while (static_cast<std::int64_t>(ranks.size()) < pieces) {
      const std::int64_t lap = turn / world, place = turn % world;
      const std::int64_t rank = lap % 2 == 0 ? place : world - 1 - place;
      ++turn;
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
    }
  }
  return plan;
}

TEST(ShardingAccuracy, SyntheticModelsOnA100) {
  if (!public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const CsvRows csv = read_csv(*public_data() / "sharding" / "synthetic_models_iter_ms.csv");
  const Topology topology = TopologyCatalog::builtin().find("dgx-a100").value();
  for (std::size_t i = 0; i < csv.rows.size(); ++i) {
    ShardingStudy study = public_model(csv.at(i, "model"));
    study.world = std::stoi(csv.at(i, "gpus"));
    study.batch_per_rank = std::stoi(csv.at(i, "global_batch")) / *study.world;
    study.dense->dtype = "tf32";
    study.pipeline = TorchrecSettings::Pipeline::kNone;
    for (ShardedTable& table : study.tables) {
      table.optimizer = TableOptimizer::kAdagrad;
      table.skew.exponent = std::stod(csv.at(i, "zipf_alpha"));
    }
    const auto model = BatchModel::make(study, gpu("a100-sxm-80gb"), topology,
                                        {.software = TableSoftware::kPerTable, .device_factor = 1});
    ASSERT_TRUE(model) << model.error().message;
    const auto time = model->time(memory_balanced(study));
    ASSERT_TRUE(time) << time.error().message;
    const double measured_ms = std::stod(csv.at(i, "ms_per_iter"));
    const double error = time->predicted_us / 1000 / measured_ms - 1;
    std::printf("%-17s %2ld GPUs %7.2f ms, ours %7.2f %+6.1f %% %s\n", study.name.c_str(),
                static_cast<long>(*study.world), measured_ms, time->predicted_us / 1000,
                100 * error, i % 2 == 0 ? "fitted" : "judged");
    EXPECT_LE(std::abs(error), 0.12) << study.name << " on " << *study.world;
  }
}

}  // namespace sharding_test
}  // namespace perfmodel::accuracy
