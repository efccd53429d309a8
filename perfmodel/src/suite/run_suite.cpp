#include "perfmodel/suite/run_suite.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/contains.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/model_size.hpp"
#include "perfmodel/memory.hpp"
#include "perfmodel/predictor.hpp"
#include "perfmodel/predictors/detail/lower.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/predictors/kernel.hpp"
#include "perfmodel/suite/detail/memory_purpose.hpp"
#include "study/answer_rows.hpp"

namespace perfmodel::suite {
namespace {

/// GPU memory of a step of `graph`, each purpose at its own peak, in the order of `perfpredict
/// memory`.
struct MemoryOfGraph {
  std::vector<MemoryPurpose> purposes;
  double needed_bytes = 0;  ///< at the common peak
};

MemoryOfGraph graph_memory(const ExecutionGraph& graph, const Gpu& gpu) {
  const MemoryReport report = memory_report(graph, &gpu, {.largest = 0});
  MemoryOfGraph made{.purposes = {}, .needed_bytes = report.memory.needed_bytes()};
  for (std::size_t i = 0; i < kMemoryPurposes; ++i) {
    made.purposes.push_back({to_string(static_cast<perfmodel::MemoryPurpose>(i)),
                             std::max(report.each_peak[i], report.memory.by_purpose[i])});
  }
  return made;
}

// Adds a graph that takes turns with others in one program: all read the same weights, so the
// largest counts; gradients and optimizer state belong to the part that learns in each, so they
// add up.
void add_graph(std::vector<MemoryPurpose>& memory, const std::vector<MemoryPurpose>& graph) {
  for (const MemoryPurpose& purpose : graph) {
    const auto known = std::ranges::find(memory, purpose.name, &MemoryPurpose::name);
    if (known == memory.end()) {
      memory.push_back(purpose);
    } else if (purpose.name == "gradients" || purpose.name == "optimizer") {
      known->bytes += purpose.bytes;
    } else {
      known->bytes = std::max(known->bytes, purpose.bytes);
    }
  }
}

/// Load of a graph's kernels on the GPU's pipes: seconds at peak rate, multiply-add as 2 FLOP.
/// Convolutions count as if computed directly, whatever algorithm runs.
struct PipeWork {
  double fp32_s = 0;    ///< kernels that compute in fp32 without matrix units
  double matrix_s = 0;  ///< kernels on matrix units, each at the peak of its type
};

PipeWork pipe_work(const ExecutionGraph& graph, const Gpu& gpu) {
  PipeWork sum;
  Lowering lowering(graph, gpu, nullptr);
  LoweredOp op;
  for (std::int32_t node : top_level_ops(graph)) {
    lowering.lower(node, op);
    for (const LoweredCall& call : op.calls) {
      if (call.work < 0) continue;
      const KernelWork& work = op.work[call.work];
      const double peak = gpu.peak(work.dtype, work.matrix_units).value;
      if (peak <= 0) continue;
      if (work.matrix_units) {
        sum.matrix_s += work.flop.value / peak;
      } else if (work.dtype == DType::kFloat32) {
        sum.fp32_s += work.flop.value / peak;
      }
    }
  }
  return sum;
}

using BuildGraph = std::function<Result<ExecutionGraph>(const sweep::GraphSource&)>;

/// A row and its parts that belong to the whole report.
struct MadeRow {
  SuiteRow row;
  std::int64_t parameters = 0;
  std::vector<std::string> unmodelled_ops;
};

Unexpected at_graph(const Suite& suite, const SuiteGraph& graph, Error error) {
  error.file = suite.file;
  error.json_pointer = graph.pointer + error.json_pointer;
  return Unexpected{std::move(error)};
}

class RowBuilder {
 public:
  RowBuilder(const Suite& suite, const BuildGraph& build, const Predictor& predictor,
             const Gpu& gpu, double host_scale)
      : suite_(suite), build_(build), predictor_(predictor), gpu_(gpu), host_scale_(host_scale) {}

  Result<MadeRow> make(const SuiteModel& model, std::int64_t batch) const {
    MadeRow made{.row = {.batch = batch}};
    Sums sums;
    for (const SuiteGraph& graph : model.graphs) PERFMODEL_TRY_TO(add(graph, made, sums));
    finish(model, sums, made.row);
    return made;
  }

 private:
  // Sums over all graphs of an iteration.
  struct Sums {
    double modelled_us = 0, fp32_s = 0, matrix_s = 0;
  };

  Result<void> add(const SuiteGraph& graph, MadeRow& made, Sums& sums) const {
    sweep::GraphSource source = graph.source;
    source.options.emplace_back("batch", std::to_string(made.row.batch));
    const auto built = build_(source);
    if (!built) return at_graph(suite_, graph, built.error());
    const auto predicted = predictor_.predict(*built, gpu_.name, {.host_scale = host_scale_});
    if (!predicted) return at_graph(suite_, graph, predicted.error());
    const auto times = static_cast<double>(graph.times);
    SuiteRow& row = made.row;
    row.step_us += times * predicted->e2e_us;
    row.low_us += times * predicted->e2e_low_us;
    row.high_us += times * predicted->e2e_high_us;
    row.gpu_active_us += times * predicted->gpu_active_us;
    row.cpu_us += times * predicted->cpu_us;
    row.kernels_out_of_range += predicted->coverage.kernels_out_of_range;
    sums.modelled_us += times * predicted->e2e_us * predicted->coverage.modelled_time_fraction;
    const PipeWork work = pipe_work(*built, gpu_);
    sums.fp32_s += times * work.fp32_s;
    sums.matrix_s += times * work.matrix_s;
    const MemoryOfGraph memory = graph_memory(*built, gpu_);
    add_graph(row.memory, memory.purposes);
    row.needed_bytes = std::max(row.needed_bytes, memory.needed_bytes);
    made.parameters += model_size(*built).parameters;
    for (const auto& unmodelled : predicted->coverage.unmodelled_ops) {
      made.unmodelled_ops.push_back(unmodelled.op);
    }
    add_each_once(row.warnings, predicted->warnings);
    return {};
  }

  void finish(const SuiteModel& model, const Sums& sums, SuiteRow& row) const {
    const double units = static_cast<double>(row.batch) * model.units_per_sample;
    row.throughput = units * 1e6 / row.step_us;
    row.throughput_low = units * 1e6 / row.high_us;
    row.throughput_high = units * 1e6 / row.low_us;
    row.gpu_utilization = row.gpu_active_us / row.step_us;
    row.cpu_utilization = row.cpu_us / row.step_us;
    row.modelled_time_fraction = sums.modelled_us / row.step_us;
    if (row.gpu_active_us > 0) {
      row.fp32_utilization = sums.fp32_s * 1e6 / row.gpu_active_us;
      row.matrix_utilization = sums.matrix_s * 1e6 / row.gpu_active_us;
    }
  }

  const Suite& suite_;
  const BuildGraph& build_;
  const Predictor& predictor_;
  const Gpu& gpu_;
  double host_scale_;
};

Result<std::vector<SuiteModelReport>> chosen_models(const Suite& suite,
                                                    const SuiteOptions& options) {
  std::vector<SuiteModelReport> chosen;
  const std::set<std::int64_t> batches(options.batches.begin(), options.batches.end());
  for (const std::string& name : options.models) {
    if (std::ranges::find(suite.models, name, &SuiteModel::name) != suite.models.end()) continue;
    std::vector<std::string_view> names;
    for (const SuiteModel& model : suite.models) names.push_back(model.name);
    return fail(ErrorCode::kUnknownName, fmt::format("expected a model of {} ({}), found \"{}\"",
                                                     suite.name, fmt::join(names, ", "), name));
  }
  for (const SuiteModel& model : suite.models) {
    const bool asked = options.models.empty() ||
                       std::ranges::find(options.models, model.name) != options.models.end();
    if (!asked) continue;
    chosen.push_back({.model = model});
    std::vector<std::int64_t>& list = chosen.back().model.batches;
    if (!batches.empty()) list.assign(batches.begin(), batches.end());
    for (const std::int64_t batch : list) chosen.back().rows.push_back({.batch = batch});
  }
  return chosen;
}

template <class Take>
void each_row(SuiteReport& report, Take take) {
  for (SuiteModelReport& model : report.models) {
    for (SuiteRow& row : model.rows) take(row);
  }
}

// A warning of all rows appears once.
void share_warnings(SuiteReport& report) {
  report.warnings = report.models.front().rows.front().warnings;
  each_row(report, [&](const SuiteRow& row) {
    std::erase_if(report.warnings, [&](const std::string& text) {
      return std::ranges::find(row.warnings, text) == row.warnings.end();
    });
  });
  each_row(report, [&](SuiteRow& row) {
    std::erase_if(row.warnings, [&](const std::string& text) {
      return std::ranges::find(report.warnings, text) != report.warnings.end();
    });
  });
}

// All rows, each by whichever thread is free; the error of the first row that fails.
Result<void> make_rows(const RowBuilder& builder, const SuiteOptions& options,
                       SuiteReport& report) {
  std::vector<std::pair<SuiteModelReport*, SuiteRow*>> jobs;
  for (SuiteModelReport& model : report.models) {
    for (SuiteRow& row : model.rows) jobs.emplace_back(&model, &row);
  }
  std::vector<Result<MadeRow>> made(jobs.size());
  const auto answer = [&](std::size_t i) {
    made[i] = builder.make(jobs[i].first->model, jobs[i].second->batch);
    return true;
  };
  const auto progress = [&](std::size_t done) {
    if (options.progress) options.progress(done, jobs.size());
  };
  answer_rows(jobs.size(), options.threads, progress, [&] { return answer; });
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (!made[i]) return Unexpected{made[i].error()};
    *jobs[i].second = std::move(made[i]->row);
    jobs[i].first->parameters = made[i]->parameters;
    add_each_once(report.unmodelled_ops, made[i]->unmodelled_ops);
  }
  return {};
}

}  // namespace

bool SuiteModelReport::uses_matrix_units() const {
  return std::ranges::any_of(rows, [](const SuiteRow& row) { return row.matrix_utilization > 0; });
}

const SuiteRow& SuiteModelReport::best() const {
  return *std::ranges::max_element(rows, {}, &SuiteRow::throughput);
}

const SuiteRow& SuiteModelReport::first_to_reach(double share) const {
  const double enough = share * best().throughput;
  return *std::ranges::find_if(rows, [&](const SuiteRow& row) { return row.throughput >= enough; });
}

std::size_t SuiteReport::row_count() const {
  std::size_t count = 0;
  for (const SuiteModelReport& model : models) count += model.rows.size();
  return count;
}

Result<SuiteReport> run_suite(const Suite& suite, const BuildGraph& build,
                              const SuiteOptions& options) {
  const std::string& asked = options.gpu.empty() ? suite.gpu : options.gpu;
  PERFMODEL_TRY(predictor, Predictor::load({.data = options.data,
                                            .gpus = {asked},
                                            .models = options.kernel_models,
                                            .overheads = options.overheads}));
  PERFMODEL_TRY(gpu, predictor->gpu(predictor->gpus().front()));
  PERFMODEL_TRY(models, chosen_models(suite, options));
  SuiteReport report{.suite = suite,
                     .gpu = std::move(*gpu),
                     .fp32_peak_flop_per_s = 0,
                     .models = std::move(*models),
                     .unmodelled_ops = {},
                     .warnings = {}};
  report.fp32_peak_flop_per_s = report.gpu.peak(DType::kFloat32, false).value;
  const RowBuilder builder(suite, build, *predictor, report.gpu, options.host_scale);
  PERFMODEL_TRY_TO(make_rows(builder, options, report));
  share_warnings(report);
  return report;
}

}  // namespace perfmodel::suite
