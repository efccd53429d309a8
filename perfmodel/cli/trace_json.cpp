#include <type_traits>

#include "arguments.hpp"
#include "measured_memory_report.hpp"
#include "trace_output.hpp"

namespace perfmodel::cli {
namespace {

template <class Value>
Json value_or_null(const std::optional<Value>& value) {
  if (!value) return nullptr;
  if constexpr (std::is_floating_point_v<Value>) {
    return six_digits(*value);
  } else {
    return *value;
  }
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json trace_breakdown_json(const TraceAnalysis::Breakdown& at) {
  return {{"compute_us", rounded(at.compute_us)},
          {"comm_us", rounded(at.comm_us)},
          {"exposed_comm_us", rounded(at.exposed_comm_us)},
          {"memcpy_us", rounded(at.memcpy_us)},
          {"exposed_memcpy_us", rounded(at.exposed_memcpy_us)},
          {"busy_us", rounded(at.busy_us)},
          {"idle_us", rounded(at.idle_us)},
          {"span_us", rounded(at.span_us)},
          {"compute_kernel_us", rounded(at.compute_kernel_us)}};
}

// FLOP over time: of the ops whose work is known alone.
Json trace_rate(const std::optional<double>& amount, double us, double per_us) {
  return amount && us > 0 ? six_digits(*amount / us / per_us) : Json(nullptr);
}

Json trace_op_json(const TraceAnalysis::Op& op, bool by_shape) {
  Json json = {{"name", op.name}};
  if (by_shape) {
    // The file's own text; what is no JSON stays text.
    Json shapes = Json::parse(op.shapes, nullptr, false);
    json["shapes"] = op.shapes.empty()       ? Json(nullptr)
                     : shapes.is_discarded() ? Json(op.shapes)
                                             : std::move(shapes);
  }
  json.update({{"category", op.category},
               {"count", op.count},
               {"host_self_us", rounded(op.host_self_us)},
               {"host_total_us", rounded(op.host_total_us)},
               {"device_self_us", rounded(op.device_self_us)},
               {"device_total_us", rounded(op.device_total_us)},
               {"recomputed_us", rounded(op.recomputed_us)},
               {"flop", value_or_null(op.flop)},
               {"bytes", value_or_null(op.bytes)},
               {"worked_us", rounded(op.worked_us)},
               {"tflop_per_s", trace_rate(op.flop, op.worked_us, 1e6)},
               {"gb_per_s", trace_rate(op.bytes, op.worked_us, 1e3)},
               {"roofline_share", trace_rate(op.roofline_us, op.worked_us, 1)},
               {"kernels", Json::array()}});
  for (const auto& kernel : op.kernels) {
    json["kernels"].push_back(
        {{"name", kernel.name}, {"count", kernel.count}, {"total_us", rounded(kernel.total_us)}});
  }
  return json;
}

Json trace_collectives_json(const std::vector<TraceAnalysis::Collective>& collectives) {
  Json json = Json::array();
  for (const auto& at : collectives) {
    json.push_back({{"name", at.name},
                    {"elements", value_or_null(at.elements)},
                    {"dtype", text_or_null(at.dtype)},
                    {"group", text_or_null(at.group)},
                    {"group_size", value_or_null(at.group_size)},
                    {"count", at.count},
                    {"total_us", rounded(at.total_us)},
                    {"algorithm_gb_per_s", value_or_null(at.algorithm_gb_per_s)},
                    {"bus_gb_per_s", value_or_null(at.bus_gb_per_s)},
                    {"skew_us", value_or_null(at.skew_us)}});
  }
  return json;
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
          {"breakdown", trace_breakdown_json(split.breakdown)},
          {"comm_overlap_fraction", value_or_null(split.breakdown.comm_overlap_fraction)}};
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
  json["stream_list"] = Json::array();
  for (const auto& stream : report.streams) {
    json["stream_list"].push_back({{"device", stream.device},
                                   {"stream", stream.stream},
                                   {"tasks", stream.tasks},
                                   {"busy_us", rounded(stream.busy_us)}});
  }
  json["memory"] = measured_memory_json(report.memory);
  json["top_kernels"] = Json::array();
  for (const auto& kernel : report.top_kernels) {
    json["top_kernels"].push_back({{"name", kernel.name},
                                   {"count", kernel.count},
                                   {"total_us", rounded(kernel.total_us)},
                                   {"mean_us", rounded(kernel.mean_us())},
                                   {"min_us", rounded(kernel.min_us)},
                                   {"max_us", rounded(kernel.max_us)},
                                   {"collective", kernel.collective}});
  }
}

void add_trace_device_tables(Json& json, const TraceAnalysis& analysis) {
  json["breakdown"] = trace_breakdown_json(analysis.breakdown);
  json["comm_overlap_fraction"] = value_or_null(analysis.breakdown.comm_overlap_fraction);
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
  json["copies"] = Json::array();
  for (const auto& copy : analysis.copies) {
    json["copies"].push_back({{"kind", copy.kind},
                              {"count", copy.count},
                              {"total_us", rounded(copy.total_us)},
                              {"bytes", copy.bytes},
                              {"gb_per_s", value_or_null(copy.gb_per_s)}});
  }
  json["copy_bandwidth"] = Json::array();
  for (const auto& point : analysis.copy_bandwidth) {
    json["copy_bandwidth"].push_back({{"kind", point.kind},
                                      {"time_us", rounded(point.time_us)},
                                      {"gb_per_s", six_digits(point.gb_per_s)}});
  }
  json["counters"] = Json::array();
  for (const auto& counter : analysis.counters) {
    json["counters"].push_back(
        {{"name", counter.name},
         {"ranges", counter.ranges},
         {"total", six_digits(counter.total)},
         {"mean", six_digits(counter.total / static_cast<double>(counter.ranges))},
         {"min", six_digits(counter.least)},
         {"max", six_digits(counter.most)}});
  }
  json["occupancy"] = {{"occupancy_percent", value_or_null(analysis.occupancy_percent)},
                       {"blocks_per_sm", value_or_null(analysis.blocks_per_sm)},
                       {"sm_efficiency_percent", value_or_null(analysis.sm_efficiency_percent)}};
}

void add_trace_op_tables(Json& json, const TraceAnalysis& analysis) {
  json["ops"] = Json::array();
  for (const auto& op : analysis.ops) json["ops"].push_back(trace_op_json(op, false));
  json["ops_by_shape"] = Json::array();
  for (const auto& op : analysis.ops_by_shape)
    json["ops_by_shape"].push_back(trace_op_json(op, true));
  json["device_outside_ops_us"] = rounded(analysis.device_outside_ops_us);
  json["roofline_gpu"] = text_or_null(analysis.gpu);
  json["phases"] = {{"forward_us", rounded(analysis.phases.forward_us)},
                    {"backward_us", rounded(analysis.phases.backward_us)},
                    {"recompute_us", rounded(analysis.phases.recompute_us)},
                    {"optimizer_us", rounded(analysis.phases.optimizer_us)}};
  json["modules"] = Json::array();
  for (const auto& module : analysis.modules) {
    json["modules"].push_back({{"name", module.name},
                               {"count", module.count},
                               {"host_total_us", rounded(module.host_total_us)},
                               {"device_total_us", rounded(module.device_total_us)}});
  }
  json["collectives"] = trace_collectives_json(analysis.collectives);
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
  json["job"] = {{"straggler", value_or_null(ranks.straggler)},
                 {"compute_imbalance", six_digits(ranks.compute_imbalance)},
                 {"collectives_matched", ranks.matched},
                 {"collectives_unmatched", ranks.unmatched},
                 {"collectives", trace_collectives_json(ranks.collectives)}};
  for (const std::string& warning : ranks.warnings) json["warnings"].push_back(warning);
}

}  // namespace perfmodel::cli
