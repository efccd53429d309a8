#include "cli/memory/measured_memory_report.hpp"
#include "cli/shared/arguments.hpp"
#include "trace/trace_results.hpp"
#include "trace_output.hpp"

namespace perfmodel::cli {
namespace {

Json six_or_null(const std::optional<double>& value) {
  return value ? six_digits(*value) : Json(nullptr);
}

Json trace_iteration_json(const TraceReport::Iteration& iteration,
                          const TraceAnalysis::Split& split) {
  return {{"name", iteration.name},
          {"wall_us", rounded(iteration.wall_us)},
          {"gpu_busy_us", rounded(iteration.gpu_busy_us)},
          {"kernels", iteration.kernels},
          {"memcpy", iteration.copies},
          {"memset", iteration.sets},
          {"kernel_us", rounded(split.kernel_us)},
          {"memcpy_us", rounded(split.memcpy_us)},
          {"memset_us", rounded(split.memset_us)},
          {"runtime_us", rounded(split.runtime_us)},
          {"data_loader_us", rounded(split.data_loader_us)},
          {"op_us", rounded(split.op_us)},
          {"other_us", rounded(split.other_us)},
          {"window_us", rounded(split.window_us)},
          {"breakdown", json_object(split.breakdown, kBreakdownFields)},
          {"comm_overlap_fraction", six_or_null(split.breakdown.comm_overlap_fraction)}};
}

void add_trace_report(Json& json, const TraceFindings& found) {
  const TraceReport& report = found.report;
  json.update({{"trace", file_name(report.source)},
               {"gpu", report.gpu},
               {"rank", report.rank >= 0 ? Json(report.rank) : Json(nullptr)},
               {"world_size", report.world_size >= 0 ? Json(report.world_size) : Json(nullptr)}});
  json["iterations"] = Json::array();
  for (std::size_t i = 0; i < report.iterations.size(); ++i) {
    json["iterations"].push_back(
        trace_iteration_json(report.iterations[i], found.analysis.splits.at(i)));
  }
  json["events"] = report.events;
  json["host_ops"] = report.host_ops;
  json["calls"] = report.calls;
  json["annotations"] = report.annotations;
  json["threads"] = report.threads;
  json["kernels_total"] = report.kernels_total;
  json["memcpy_total"] = report.memcpy_total;
  json["memset_total"] = report.memset_total;
  json["gpu_without_launch"] = report.without_launch;
  json["gpu_busy_us"] = rounded(report.gpu_busy_us);
  json["compute_kernel_us"] = rounded(report.compute_kernel_us);
  json["comm_kernel_us"] = rounded(report.comm_kernel_us);
  json["memcpy_us"] = rounded(report.memcpy_us);
  json["memset_us"] = rounded(report.memset_us);
  json["streams"] = report.streams.size();
  json["stream_list"] = json_list(report.streams, kStreamFields);
  json["memory"] = measured_memory_json(report.memory);
  json["top_kernels"] = json_list(report.top_kernels, kTopKernelFields);
}

void add_trace_device_tables(Json& json, const TraceAnalysis& analysis) {
  json["breakdown"] = json_object(analysis.breakdown, kBreakdownFields);
  json["comm_overlap_fraction"] = six_or_null(analysis.breakdown.comm_overlap_fraction);
  json["idle"] = Json::array();
  for (const auto& idle : analysis.idle) {
    json["idle"].push_back({{"device", idle.device},
                            {"stream", idle.stream},
                            {"host_wait_us", rounded(idle.host_wait_us)},
                            {"kernel_wait_us", rounded(idle.kernel_wait_us)},
                            {"other_us", rounded(idle.other_us)}});
  }
  json["queue_length"] = Json::array();
  for (const auto& queue : analysis.queue_length) {
    json["queue_length"].push_back({{"device", queue.device},
                                    {"stream", queue.stream},
                                    {"changes", queue.changes},
                                    {"mean", six_digits(queue.mean)},
                                    {"max", queue.max},
                                    {"at_limit_us", rounded(queue.at_limit_us)}});
  }
  json["launch"] = {{"count", analysis.launch.count},
                    {"delay_mean_us", rounded(analysis.launch.mean_us)},
                    {"delay_median_us", rounded(analysis.launch.median_us)},
                    {"delay_max_us", rounded(analysis.launch.max_us)},
                    {"shorter_than_launch", analysis.launch.shorter_than_launch}};
  json["copies"] = json_list(analysis.copies, kCopyFields);
  json["copy_bandwidth"] = Json::array();
  for (const auto& point : analysis.copy_bandwidth) {
    json["copy_bandwidth"].push_back({{"kind", point.kind},
                                      {"time_us", rounded(point.time_us)},
                                      {"gb_per_s", six_digits(point.gb_per_s)}});
  }
  json["counters"] = json_list(analysis.counters, kCounterFields);
  json["occupancy"] = {{"occupancy_percent", six_or_null(analysis.occupancy_percent)},
                       {"blocks_per_sm", six_or_null(analysis.blocks_per_sm)},
                       {"sm_efficiency_percent", six_or_null(analysis.sm_efficiency_percent)}};
}

void add_trace_op_tables(Json& json, const TraceAnalysis& analysis) {
  json["ops"] = json_list(analysis.ops, kOpFields);
  json["ops_by_shape"] = json_list(analysis.ops_by_shape, kShapedOpFields);
  json["device_outside_ops_us"] = rounded(analysis.device_outside_ops_us);
  json["roofline_gpu"] = analysis.gpu.empty() ? Json(nullptr) : Json(analysis.gpu);
  json["phases"] = {{"forward_us", rounded(analysis.phases.forward_us)},
                    {"backward_us", rounded(analysis.phases.backward_us)},
                    {"recompute_us", rounded(analysis.phases.recompute_us)},
                    {"optimizer_us", rounded(analysis.phases.optimizer_us)}};
  json["modules"] = json_list(analysis.modules, kModuleFields);
  json["collectives"] = json_list(analysis.collectives, kCollectiveFields);
}

}  // namespace

Json trace_keys(const TraceFindings& found) {
  Json json;
  add_trace_report(json, found);
  add_trace_device_tables(json, found.analysis);
  add_trace_op_tables(json, found.analysis);
  json["warnings"] = found.report.warnings;
  for (const std::string& warning : found.analysis.warnings) json["warnings"].push_back(warning);
  return json;
}

void add_ranks(Json& json, std::span<const TraceFindings> found, const TraceRanks& ranks) {
  json["ranks"] = Json::array();
  for (std::size_t i = 0; i < found.size(); ++i) {
    Json keys = trace_keys(found[i]);
    const TraceRanks::Rank& rank = ranks.ranks[i];
    keys.update({{"last_arrivals", rank.last_arrivals},
                 {"waiting_us", rounded(rank.waiting_us)},
                 {"caused_us", rounded(rank.caused_us)},
                 {"clock_offset_us", rounded(rank.clock_offset_us)}});
    json["ranks"].push_back(std::move(keys));
  }
  json["job"] = {{"straggler", json_value(ranks.straggler)},
                 {"compute_imbalance", six_digits(ranks.compute_imbalance)},
                 {"collectives_matched", ranks.matched},
                 {"collectives_unmatched", ranks.unmatched},
                 {"collectives", json_list(ranks.collectives, kCollectiveFields)}};
  for (const std::string& warning : ranks.warnings) json["warnings"].push_back(warning);
}

}  // namespace perfmodel::cli
