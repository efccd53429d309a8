#include "layout/layout_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <utility>

#include "base/each_name.hpp"
#include "files/json_file.hpp"
#include "layout/layer_kinds.hpp"
#include "layout/layout_results.hpp"
#include "layout/layout_rows.hpp"
#include "perfmodel/predictors/topology.hpp"

namespace perfmodel {
namespace {

std::string topology_of(const LayoutInputs& inputs, const Gpu& gpu) {
  return inputs.machine.topology.empty() ? topology_for(gpu).name : inputs.machine.topology;
}

// The machine has a pricer, so that its topology is known.
std::int64_t gpus_of_node(const std::string& topology, const Gpu& gpu) {
  const auto found = TopologyCatalog::builtin().find(topology);
  return found ? found->gpus_per_node : topology_for(gpu).gpus_per_node;
}

// Adds the effects whose measurement would narrow the range of the first layout's step.
void add_open_effects(LayoutReport& report) {
  constexpr std::size_t kMostEffects = 5;
  auto open = report.pricer.worth_measuring(report.job, report.layouts.front().layout);
  if (!open) return;  // its layout was priced: the same cannot fail
  if (open->size() > kMostEffects) open->resize(kMostEffects);
  report.open = std::move(*open);
}

template <class Share>
OrderedJson shares_json(const std::vector<Share>& shares) {
  OrderedJson list = OrderedJson::array();
  for (const auto& [what, share] : shares) {
    list.push_back({{"what", what}, {"share", six_digits(share)}});
  }
  return list;
}

OrderedJson ranked_json(const RankedLayout& ranked) {
  OrderedJson json = json_object(ranked, kRankedLayoutFields);
  json["levers"] = shares_json(layout_levers(ranked));
  return json;
}

OrderedJson ranked_json(const std::vector<RankedLayout>& layouts) {
  OrderedJson list = OrderedJson::array();
  for (const RankedLayout& one : layouts) list.push_back(ranked_json(one));
  return list;
}

OrderedJson tries_json(const std::vector<DeadlineTry>& tries) {
  OrderedJson list = OrderedJson::array();
  for (const DeadlineTry& one : tries) {
    OrderedJson json = training_run_json(one.run);
    json["gpus"] = one.gpus;
    json["layout"] = ranked_json(one.best);
    list.push_back(std::move(json));
  }
  return list;
}

OrderedJson machine_json(const LayoutInputs& inputs, const std::string& gpu,
                         const std::string& topology, const std::string& output,
                         const std::vector<MeasuredStep>& steps, const MeasuredFit& fit) {
  std::string name = std::filesystem::path(output).stem().string();
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  const MeasuredTable table = measured_table(steps);
  return {{"name", is_plain_name(name) ? name : "machine"},
          {"gpu", gpu},
          {"topology", topology},
          PERFMODEL_VALUES(inputs, attention, optimizer, grad_dtype, dropout),
          {"host_scale", inputs.machine.host_scale},
          {"source", inputs.measured},
          {"fit", json_object(fit, kMeasuredFitFields)},
          {"columns", table.columns},
          {"rows", table.rows}};
}

// A machine's file has columns for plain decoders alone.
Result<void> expect_plain_steps(const std::vector<MeasuredStep>& steps) {
  for (const MeasuredStep& step : steps) {
    const ParallelLayout& layout = step.layout;
    const bool splits = layout.cp > 1 || layout.ep > 1 || layout.etp > 1 || layout.async_tp ||
                        layout.offload.any() || step.job.compiled || step.job.cuda_graphs != 0;
    if (is_plain(step.job.model) && step.job.lora_rank == 0 && !splits) continue;
    return decline(
        "-o: expected eager steps of dense models without cp, ep, offload, adapters, captured "
        "graphs and asynchronous tensor parallelism (a machine's file holds no other sizes; "
        "--measured TABLE.csv takes them all), found others");
  }
  return {};
}

}  // namespace

Result<Predictor> layout_predictor(const std::string& gpu) {
  PredictorConfig config;
  if (!gpu.empty()) config.gpus = {gpu};
  return Predictor::load(config);
}

Result<LayoutReport> load_layout(const LayoutInputs& inputs, const TakeWarning& warn) {
  PERFMODEL_TRY(question, layout_question(inputs));
  PERFMODEL_TRY(predictor, layout_predictor(inputs.machine.gpu));
  PERFMODEL_TRY(pricer, layout_pricer(*predictor, inputs.machine, inputs, &question->job, warn));
  PERFMODEL_TRY(gpu, predictor->gpu(inputs.machine.gpu));
  LayoutReport report{.pricer = std::move(*pricer),
                      .job = std::move(question->job),
                      .gpu = gpu->name,
                      .gpu_title = gpu->title,
                      .topology = topology_of(inputs, *gpu),
                      .gpu_power_w = gpu->tdp_w,
                      .node = gpus_of_node(topology_of(inputs, *gpu), *gpu),
                      .warnings = std::move(question->notes)};
  report.measured = report.pricer.fit();
  return report;
}

Result<LayoutReport> named_layout_report(const LayoutInputs& inputs, const TakeWarning& warn) {
  PERFMODEL_TRY(report, load_layout(inputs, warn));
  PERFMODEL_TRY(priced, named_layout(inputs).and_then([&](const ParallelLayout& layout) {
    return add_layout(layout, *report);
  }));
  add_layout_warnings(*report);
  add_open_effects(*report);
  return report;
}

Result<void> add_layout(const ParallelLayout& layout, LayoutReport& report) {
  return report.pricer.predict(report.job, layout).map([&](LayoutPrediction prediction) {
    report.gpus = layout.gpus();
    report.layouts.push_back({layout, std::move(prediction)});
  });
}

Result<LayoutRanking> search_layouts(const LayoutReport& report, const LayoutInputs& inputs,
                                     std::size_t keep, const LayoutRunHooks& hooks,
                                     sweep::Team* team) {
  if (!inputs.world) return decline("expected --world (GPUs), found none");
  return layout_space(inputs).and_then([&](const LayoutSpace& space) {
    return search_layouts(report.pricer, report.job, *inputs.world, space, keep, hooks, team);
  });
}

Result<void> report_ranking(const LayoutInputs& inputs, std::size_t keep,
                            const LayoutRunHooks& hooks, sweep::Team* team, LayoutReport& report) {
  const auto start = std::chrono::steady_clock::now();
  PERFMODEL_TRY(ranking, search_layouts(report, inputs, keep, hooks, team));
  if (team && team->rank() > 0) return {};
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report.gpus = *inputs.world;
  report.layouts = ranking->best;
  report.search = std::move(*ranking);
  add_layout_warnings(report);
  if (!report.search->unfit.empty()) report.warnings.push_back(report.search->unfit);
  add_open_effects(report);
  if (!report.search->complete) {
    report.warnings.insert(report.warnings.begin(),
                           "the search was stopped: these are the best layouts so far");
  }
  return {};
}

std::string software_words(const LayoutReport& report) {
  if (!report.job.software.empty()) return report.job.software;
  std::vector<std::string> names;
  for (const RankedLayout& one : report.layouts) {
    const std::string& name = one.prediction.software;
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void add_layout_warnings(LayoutReport& report) {
  for (const RankedLayout& one : report.layouts) {
    for (const std::string& warning : one.prediction.warnings) {
      if (std::ranges::find(report.warnings, warning) == report.warnings.end()) {
        report.warnings.push_back(warning);
      }
    }
  }
}

OrderedJson layout_json(const LayoutReport& report) {
  const LayoutJob& job = report.job;
  OrderedJson json = {{"model", json_object(job.model, kDecoderFields)},
                      PERFMODEL_VALUES(report, gpu, topology, gpus),
                      {"global_batch", job.global_batch},
                      {"sequence", job.sequence},
                      {"software", software_words(report)},
                      {"flop_per_token", job_flop_per_token(job)},
                      {"mfu_convention", kMfuConvention},
                      {"defaults", kDefaultsBesidePredict}};
  if (report.search) {
    const LayoutRanking& search = *report.search;
    json["search"] = {PERFMODEL_VALUES(search, considered, priced, fitting, complete),
                      {"seconds", six_digits(report.seconds)}};
  }
  json["layouts"] = ranked_json(report.layouts);
  if (report.search) {
    json["frontier"] = ranked_json(report.search->frontier);
    json["smallest"] = ranked_json(report.search->smallest);
  }
  json["worth_measuring"] = shares_json(report.open);
  if (report.measured) json["measured"] = json_object(*report.measured, kMeasuredFitFields);
  if (report.run) json["run"] = training_run_json(*report.run);
  if (!report.tries.empty()) json["tried"] = tries_json(report.tries);
  json["warnings"] = report.warnings;
  return json;
}

OrderedJson layout_sweep_json(const std::string& axis, const std::vector<LayoutSweepRow>& rows) {
  OrderedJson list = OrderedJson::array();
  for (const LayoutSweepRow& row : rows) {
    list.push_back({{"value", row.value},
                    {"best", row.best ? ranked_json(*row.best) : OrderedJson(nullptr)},
                    {"error", row.error.empty() ? OrderedJson(nullptr) : OrderedJson(row.error)}});
  }
  return {{"axis", axis}, {"rows", std::move(list)}};
}

std::string layout_sweep_csv(const std::string& axis, const std::vector<LayoutSweepRow>& rows) {
  const auto fields = named_fields(
      kRankedLayoutFields, {"predicted_step_ms", "tokens_per_s_per_gpu", "mfu", "memory_gb", "dp",
                            "tp", "pp", "vp", "micro_batch", "zero", "recompute"});
  const auto later =
      named_fields(kRankedLayoutFields, {"cp", "ep", "schedule", "dispatcher", "offload"});
  std::string text = axis + "," + csv_header(fields) + ",error," + csv_header(later) + "\n";
  for (const LayoutSweepRow& row : rows) {
    std::string error = row.error;
    std::ranges::replace(error, '"', '\'');
    text += row.best ? fmt::format("{},{},{},{}\n", row.value, csv_cells(*row.best, fields),
                                   row.error, csv_cells(*row.best, later))
                     : fmt::format("{}{}\"{}\"{}\n", row.value, std::string(fields.size() + 1, ','),
                                   error, std::string(later.size(), ','));
  }
  return text;
}

Result<CalibratedMachine> calibrate_machine(const LayoutInputs& inputs, const std::string& output,
                                            const TakeWarning& warn) {
  if (inputs.measured.empty()) {
    return decline("expected --measured (steps of this machine), found none");
  }
  PERFMODEL_TRY(predictor, layout_predictor(inputs.machine.gpu));
  PERFMODEL_TRY(gpu, predictor->gpu(inputs.machine.gpu));
  // Rows that name their models need none.
  std::optional<LayoutQuestion> question;
  if (!inputs.model.empty() || inputs.layers) {
    PERFMODEL_TRY(asked, layout_question(inputs));
    question = std::move(*asked);
  }
  PERFMODEL_TRY(pricer, LayoutPricer::make(*predictor, inputs.machine));
  PERFMODEL_TRY(steps, measured_steps(inputs, question ? &question->job : nullptr, *gpu, warn));
  PERFMODEL_TRY(calibrated, pricer->measured(*steps));
  if (!output.empty()) PERFMODEL_TRY_TO(expect_plain_steps(*steps));
  const MeasuredFit fit = *calibrated->fit();
  return CalibratedMachine{
      fit, machine_json(inputs, gpu->name, topology_of(inputs, *gpu), output, *steps, fit)};
}

}  // namespace perfmodel
