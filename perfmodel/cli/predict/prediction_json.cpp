#include <cmath>
#include <string>

#include "cli/trace/critical_path_report.hpp"
#include "cli/trace/trace_output.hpp"
#include "memory/memory_results.hpp"
#include "perfmodel/version.hpp"
#include "predict/prediction_results.hpp"
#include "prediction_report.hpp"

namespace perfmodel::cli {
namespace {

double term_us(const Prediction& prediction, Term term) {
  return prediction.terms_us[static_cast<std::size_t>(term)];
}

Json coverage(const Prediction::Coverage& coverage) {
  Json unmodelled = Json::array();
  for (const auto& entry : coverage.unmodelled_ops) {
    unmodelled.push_back(
        {{"op", entry.op}, {"count", entry.count}, {"host_us", rounded(entry.host_us)}});
  }
  Json templates = Json::object(), keys = Json::object();
  for (std::size_t i = 0; i < kTemplateLevels; ++i) {
    templates[std::string(to_string(static_cast<TemplateLevel>(i)))] =
        coverage.nodes_by_template_level[i];
  }
  for (std::size_t i = 0; i < coverage.host_us_by_key_level.size(); ++i) {
    keys[std::string(to_string(static_cast<KeyLevel>(i)))] =
        rounded(coverage.host_us_by_key_level[i]);
  }
  Json knowledge = Json::object();
  for (std::size_t i = coverage.kernel_us_by_knowledge.size(); i-- > 0;) {
    knowledge[std::string(to_string(static_cast<Knowledge>(i)))] =
        rounded(coverage.kernel_us_by_knowledge[i]);
  }
  return {{"modelled_time_fraction", rounded(coverage.modelled_time_fraction)},
          {"unmodelled_ops", std::move(unmodelled)},
          {"inferred_kernels", coverage.inferred_kernels},
          {"inferred_kernel_us", rounded(coverage.inferred_kernel_us)},
          {"traced_kernels", coverage.traced_kernels},
          {"nodes_by_template_level", std::move(templates)},
          {"nodes_by_rule", coverage.nodes_by_rule},
          {"own_launches", coverage.own_launches},
          {"template_rule_disagreements", coverage.disagreements},
          {"host_us_by_key_level", std::move(keys)},
          {"kernel_us_by_knowledge", std::move(knowledge)}};
}

Json families(const Prediction& prediction) {
  Json list = Json::array();
  for (const FamilyTotal& total : totals_by_family(prediction)) {
    list.push_back({{"family", to_string(total.family)},
                    {"count", rounded(total.count)},
                    {"time_us", rounded(total.time_us)},
                    {"low_us", rounded(total.low_us)},
                    {"high_us", rounded(total.high_us)},
                    {"bound", to_string(total.bound)},
                    {"model", total.model}});
  }
  return list;
}

Json ops(const Prediction& prediction) {
  Json list = Json::array();
  for (const PredictedOp& op : prediction.ops) {
    list.push_back(
        {{"id", op.id},
         {"name", op.name},
         {"thread", op.thread},
         {"phase", prediction.phases[op.phase].label},
         {"start_us", rounded(op.start_us)},
         {"host_us", rounded(op.host_us)},
         {"wait_us", rounded(op.wait_us)},
         {"key_levels", {{"gap", to_string(op.gap_level)}, {"op", to_string(op.op_level)}}},
         {"kernels", json_list(op.kernels, kPredictedKernelFields)}});
  }
  return list;
}

Json scale_out_json(const ScaledOut& scaled) {
  return {{"strategy", to_string(scaled.strategy)},
          {"world", scaled.world},
          {"nodes", scaled.nodes},
          {"collectives", scaled.collectives},
          {"parameter_bytes", scaled.parameter_bytes},
          {"own_collectives", scaled.own_collectives}};
}

Json programs(const std::vector<OverheadProgram>& pooled) {
  Json list = Json::array();
  for (const OverheadProgram& program : pooled) {
    Json json = {
        {"name", program.name}, {"gpu", program.gpu}, {"launch_us", rounded(program.launch_us)}};
    if (program.left_out.empty()) {
      json["host_scale"] = rounded(program.host_scale);
    } else {
      json["left_out"] = program.left_out;
    }
    list.push_back(std::move(json));
  }
  return list;
}

Json provenance(const PredictionReport& report, const RankPrediction& rank) {
  Json kernel_times = nullptr;
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
            {"programs", programs(rank.overheads_programs)},
            {"host_scale", rank.host_scale}}},
          {"kernel_models", report.models},
          {"kernel_model_files", report.model_files},
          {"kernel_times", std::move(kernel_times)},
          {"version", program_version()}};
}

void add_throughput(Json& json, const PredictionReport& report, const Prediction& p) {
  const auto rate = [](const std::optional<double>& value) {
    return value ? rounded(*value) : Json(nullptr);
  };
  json.update(json_object(p, kJobFields));
  const StepWork& work = report.work;
  json["tokens_per_sample"] = work.tokens ? Json(*work.tokens) : Json(nullptr);
  json["tokens_per_s"] = rate(report.tokens_per_s());
  json["product_flop"] = work.products.value;
  json["tflop_per_s_per_gpu"] = rate(report.tflop_per_s());
  json["mfu"] = report.mfu() ? Json(*report.mfu()) : Json(nullptr);
  json["mfu_peak"] = work.peak.value > 0
                         ? Json({{"type", work.peak_name}, {"tflop_per_s", work.peak.value / 1e12}})
                         : Json(nullptr);
}

void add_mixed_facts(Json& entry, const RankPrediction& rank) {
  entry["gpu"] = rank.mixed->gpu;
  entry["count"] = rank.mixed->count;
  entry["host_scale"] = rank.host_scale;
  entry["slowdown"] = rank.mixed->slowdown;
  const double link = rank.mixed->link_gb_per_s;
  entry["link_gb_per_s"] = link > 0 ? Json(link) : Json(nullptr);
}

Json drawn_json(const sync::DrawnSteps& drawn) {
  return {{"draws", drawn.draws},
          {"mean_us", rounded(drawn.mean_us)},
          {"median_us", rounded(drawn.median_us)},
          {"p95_us", rounded(drawn.p95_us)},
          {"most_us", rounded(drawn.most_us)}};
}

}  // namespace

Json prediction_json(const PredictionReport& report) {
  const RankPrediction& slowest = report.ranks[report.slowest()];
  const Prediction& p = slowest.prediction;
  Json ranks = Json::array();
  for (std::size_t i = 0; i < report.ranks.size(); ++i) {
    const RankPrediction& rank = report.ranks[i];
    Json entry = {{"rank", i}, {"graph", rank.graph_file}, {"built", rank.graph.built}};
    entry.update(json_object(rank.prediction, kStepFields));
    entry["modelled_time_fraction"] = rounded(rank.prediction.coverage.modelled_time_fraction);
    entry["overheads_file"] = rank.overheads_file;
    if (report.job) entry["communication"] = communication_json(rank.prediction.communication);
    if (!rank.kernel_times_file.empty()) entry["kernel_times_file"] = rank.kernel_times_file;
    if (rank.mixed) add_mixed_facts(entry, rank);
    ranks.push_back(std::move(entry));
  }
  Json json = document(schemas::kPrediction);
  json["gpu"] = report.gpu.name;
  json.update(json_object(p, kStepFields));
  add_throughput(json, report, p);
  json["memory"] = predicted_memory_json(p.memory);
  json["slowest_rank"] = report.slowest();
  json["mean_e2e_us"] = rounded(report.mean_e2e_us());
  json["ranks"] = std::move(ranks);
  if (report.job) json["job"] = job_json(*report.job);
  if (report.drawn) json["stragglers"] = drawn_json(*report.drawn);
  json["device_us"] = {{"kernel", rounded(term_us(p, Term::kKernel))},
                       {"collective", rounded(term_us(p, Term::kCollective))},
                       {"copy", rounded(term_us(p, Term::kCopy))},
                       {"set", rounded(term_us(p, Term::kSet))}};
  json["communication"] = communication_json(p.communication);
  if (const auto& recorded = report.ranks[report.slowest()].recorded_us) {
    json["recorded"] = {{"e2e_us", rounded(*recorded)}};
  }
  if (const auto& measured = report.ranks.front().measured) {
    json["measured_step"] = {{"us", rounded(measured->us)},
                             {"host_scale", rounded(measured->scales.host)},
                             {"device_scale", rounded(measured->scales.device)}};
  }
  if (p.recorded_waits) {
    json["recorded_waits"] = {{"waiting_us", rounded(p.recorded_waits->waiting_us)},
                              {"step_without_us", rounded(p.recorded_waits->step_without_us)}};
  }
  if (p.scaled_out) json["scale_out"] = scale_out_json(*p.scaled_out);
  json["kernels_by_family"] = families(p);
  json["coverage"] = coverage(p.coverage);
  add_critical_path(json, p.critical_path);
  json["warnings"] = report.warnings;
  json["provenance"] = provenance(report, slowest);
  json["ops"] = ops(p);
  for (const RankPrediction& rank : report.ranks) {
    if (rank.against) json["against"].push_back(against_json(*rank.against, rank.against_file));
  }
  return json;
}

}  // namespace perfmodel::cli
