#include "perfmodel/suite/run_suite.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/contains.hpp"
#include "graph_memory.hpp"
#include "perfmodel/graph/model_size.hpp"
#include "perfmodel/predictor.hpp"
#include "pipe_work.hpp"
#include "study/answer_rows.hpp"

namespace perfmodel::suite {
namespace {

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
    for (const SuiteGraph& graph : model.graphs) {
      if (auto added = add(graph, made, sums); !added) {
        return Unexpected{added.error()};
      }
    }
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
  if (auto done = make_rows(builder, options, report); !done) return Unexpected{done.error()};
  share_warnings(report);
  return report;
}

}  // namespace perfmodel::suite
