#include "prediction_json.hpp"

#include "explain/path_results.hpp"
#include "memory/memory_results.hpp"
#include "perfmodel/version.hpp"
#include "prediction_results.hpp"
#include "trace/comparison_results.hpp"

namespace perfmodel {
namespace {

using StepCoverage = Prediction::Coverage;

const ResultFields<Prediction::Unmodelled> kUnmodelledFields = {
    PERFMODEL_FIELDS(Prediction::Unmodelled, op, count, host_us),
};

// The figures of the levels by their names.
template <class Level, class Figures>
auto figures_by_level(Figures StepCoverage::*figures) {
  return [figures](const StepCoverage& coverage) {
    const Figures& of_level = coverage.*figures;
    OrderedJson json = OrderedJson::object();
    for (std::size_t i = 0; i < of_level.size(); ++i) {
      // Measurements of this GPU come first.
      const std::size_t level = std::is_same_v<Level, Knowledge> ? of_level.size() - 1 - i : i;
      json[std::string(to_string(static_cast<Level>(level)))] = of_level[level];
    }
    return with_digits(std::move(json), Digits::kThreeDecimals);
  };
}

const ResultFields<StepCoverage> kCoverageFields = {
    {"modelled_time_fraction", &StepCoverage::modelled_time_fraction, Digits::kThreeDecimals},
    {"unmodelled_ops",
     [](const StepCoverage& of) { return json_list(of.unmodelled_ops, kUnmodelledFields); }},
    PERFMODEL_FIELDS(StepCoverage, inferred_kernels, inferred_kernel_us, traced_kernels),
    {"nodes_by_template_level",
     figures_by_level<TemplateLevel>(&StepCoverage::nodes_by_template_level)},
    PERFMODEL_FIELDS(StepCoverage, nodes_by_rule, own_launches),
    {"template_rule_disagreements", &StepCoverage::disagreements},
    {"host_us_by_key_level", figures_by_level<KeyLevel>(&StepCoverage::host_us_by_key_level)},
    {"kernel_us_by_knowledge", figures_by_level<Knowledge>(&StepCoverage::kernel_us_by_knowledge)},
};

const ResultFields<FamilyTotal> kFamilyFields = {
    {"family", &FamilyTotal::family},
    {"count", &FamilyTotal::count, Digits::kThreeDecimals},
    PERFMODEL_FIELDS(FamilyTotal, time_us, low_us, high_us, bound, model),
};

const ResultFields<ScaledOut> kScaledOutFields = {
    PERFMODEL_FIELDS(ScaledOut, strategy, world, network, nodes, collectives),
    {"parameter_bytes", &ScaledOut::parameter_bytes, Digits::kAll},
    {"own_collectives", &ScaledOut::own_collectives},
};

const ResultFields<sync::DrawnSteps> kDrawnFields = {
    PERFMODEL_FIELDS(sync::DrawnSteps, draws, mean_us, median_us, p95_us, most_us),
};

const ResultFields<Prediction::RecordedWaits> kRecordedWaitFields = {
    PERFMODEL_FIELDS(Prediction::RecordedWaits, waiting_us, step_without_us),
};

const ResultFields<PredictionReport> kWorkFields = {
    {"tokens_per_sample", [](const PredictionReport& of) { return of.work.tokens; }},
    {"tokens_per_s", &PredictionReport::tokens_per_s, Digits::kThreeDecimals},
    {"product_flop", [](const PredictionReport& of) { return of.work.products.value; },
     Digits::kAll},
    {"tflop_per_s_per_gpu", &PredictionReport::tflop_per_s, Digits::kThreeDecimals},
    {"mfu", &PredictionReport::mfu, Digits::kAll},
    {"mfu_peak",
     [](const PredictionReport& of) -> OrderedJson {
       if (!(of.work.peak.value > 0)) return nullptr;
       return {{"type", of.work.peak_name}, {"tflop_per_s", of.work.peak.value / 1e12}};
     }},
};

const ResultFields<RankPrediction> kKindFields = {
    {"gpu", [](const RankPrediction& rank) { return rank.mixed->gpu; }},
    {"count", [](const RankPrediction& rank) { return rank.mixed->count; }},
    {"host_scale", &RankPrediction::host_scale, Digits::kAll},
    {"slowdown", [](const RankPrediction& rank) { return rank.mixed->slowdown; }, Digits::kAll},
    {"link_gb_per_s",
     [](const RankPrediction& rank) {
       const double link = rank.mixed->link_gb_per_s;
       return link > 0 ? std::optional(link) : std::nullopt;
     },
     Digits::kAll},
};

OrderedJson predicted_ops_json(const Prediction& prediction) {
  const ResultFields<PredictedOp> fields = {
      PERFMODEL_FIELDS(PredictedOp, id, name, thread),
      {"phase", [&](const PredictedOp& op) { return prediction.phases[op.phase].label; }},
      PERFMODEL_FIELDS(PredictedOp, start_us, host_us, wait_us),
      {"key_levels",
       [](const PredictedOp& op) -> OrderedJson {
         return {{"gap", to_string(op.gap_level)}, {"op", to_string(op.op_level)}};
       }},
      {"kernels",
       [](const PredictedOp& op) { return json_list(op.kernels, kPredictedKernelFields); }},
  };
  return json_list(prediction.ops, fields);
}

OrderedJson pooled_programs_json(const std::vector<OverheadProgram>& programs) {
  OrderedJson list = OrderedJson::array();
  for (const OverheadProgram& program : programs) {
    list.push_back(
        {{"name", program.name}, {"gpu", program.gpu}, {"launch_us", rounded(program.launch_us)}});
    if (program.left_out.empty()) {
      list.back()["host_scale"] = rounded(program.host_scale);
    } else {
      list.back()["left_out"] = program.left_out;
    }
  }
  return list;
}

OrderedJson prediction_provenance(const PredictionReport& report, const RankPrediction& rank) {
  OrderedJson kernel_times = nullptr;
  if (!rank.kernel_times_file.empty()) {
    kernel_times = {{"file", rank.kernel_times_file},
                    {"use", report.use == KernelTimes::Use::kComm ? "comm" : "all"}};
  }
  return {{"graph", rank.graph_file},
          {"schema", rank.graph.schema},
          {"built", rank.graph.built},
          {"gpu", report.gpu.name},
          {"gpu_title", report.gpu.title},
          {"gpu_sources", report.gpu.sources},
          {"overheads",
           {{"file", rank.overheads_file},
            {"method", to_string(rank.overheads_method)},
            {"gpu", rank.overheads_gpu},
            {"sources", rank.overheads_sources},
            {"programs", pooled_programs_json(rank.overheads_programs)},
            {"host_scale", rank.host_scale}}},
          {"kernel_models", report.models},
          {"kernel_model_files", report.model_files},
          {"kernel_times", std::move(kernel_times)},
          {"version", program_version()}};
}

OrderedJson rank_json(const PredictionReport& report, std::size_t index) {
  const RankPrediction& rank = report.ranks[index];
  OrderedJson json = {{"rank", index}, {"graph", rank.graph_file}, {"built", rank.graph.built}};
  json.update(json_object(rank.prediction, kStepFields));
  json["modelled_time_fraction"] = rounded(rank.prediction.coverage.modelled_time_fraction);
  json["overheads_file"] = rank.overheads_file;
  if (report.job) {
    json["communication"] = json_object(rank.prediction.communication, kRankReportFields);
  }
  if (!rank.kernel_times_file.empty()) json["kernel_times_file"] = rank.kernel_times_file;
  if (rank.mixed) json.update(json_object(rank, kKindFields));
  return json;
}

// Adds the parts that only some questions ask for.
void add_parts(OrderedJson& json, const PredictionReport& report, const RankPrediction& slowest) {
  if (!report.rewrites.empty()) json["rewrites"] = report.rewrites;
  if (slowest.recorded_us) json["recorded"] = {{"e2e_us", rounded(*slowest.recorded_us)}};
  if (const auto& measured = report.ranks.front().measured) {
    json["measured_step"] = {{"us", rounded(measured->us)},
                             {"host_scale", rounded(measured->scales.host)},
                             {"device_scale", rounded(measured->scales.device)}};
  }
  const Prediction& p = slowest.prediction;
  if (p.recorded_waits) {
    json["recorded_waits"] = json_object(*p.recorded_waits, kRecordedWaitFields);
  }
  if (p.communication.collectives > 0) {
    json["parallel_costs"] = json_object(p.parallel, kParallelCostsFields);
  }
  if (p.scaled_out) json["scale_out"] = json_object(*p.scaled_out, kScaledOutFields);
}

}  // namespace

OrderedJson prediction_json(const PredictionReport& report) {
  const RankPrediction& slowest = report.ranks[report.slowest()];
  const Prediction& p = slowest.prediction;
  const auto term_us = [&p](Term term) { return rounded(p.terms_us[static_cast<int>(term)]); };
  OrderedJson json = {{"gpu", report.gpu.name}};
  json.update(json_object(p, kStepFields));
  json.update(json_object(p, kJobFields));
  json.update(json_object(report, kWorkFields));
  json["memory"] = predicted_memory_json(p.memory);
  json["slowest_rank"] = report.slowest();
  json["mean_e2e_us"] = rounded(report.mean_e2e_us());
  json["ranks"] = OrderedJson::array();
  for (std::size_t i = 0; i < report.ranks.size(); ++i) {
    json["ranks"].push_back(rank_json(report, i));
  }
  if (report.job) json["job"] = json_object(*report.job, kJobReportFields);
  if (report.drawn) json["stragglers"] = json_object(*report.drawn, kDrawnFields);
  json["device_us"] = {{"kernel", term_us(Term::kKernel)},
                       {"collective", term_us(Term::kCollective)},
                       {"copy", term_us(Term::kCopy)},
                       {"set", term_us(Term::kSet)}};
  json["communication"] = json_object(p.communication, kRankReportFields);
  add_parts(json, report, slowest);
  json["kernels_by_family"] = json_list(totals_by_family(p), kFamilyFields);
  json["coverage"] = json_object(p.coverage, kCoverageFields);
  json.update(json_object(p.critical_path, kCriticalPathFields));
  json["warnings"] = report.warnings;
  json["provenance"] = prediction_provenance(report, slowest);
  json["ops"] = predicted_ops_json(p);
  for (const RankPrediction& rank : report.ranks) {
    if (rank.against) json["against"].push_back(against_json(*rank.against, rank.against_file));
  }
  return json;
}

}  // namespace perfmodel
