#include "trace_results.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/each_name.hpp"
#include "base/file_name.hpp"
#include "explain/measured_memory_results.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/detail/trace_ops.hpp"
#include "sweep/csv_text.hpp"

namespace perfmodel {
namespace {

using Traced = TraceAnalysis;

std::string three_digits(double value) { return fmt::format("{:.3g}", value); }
std::string one_decimal(double value) { return fmt::format("{:.1f}", value); }
std::string plain_count(std::int64_t count) { return std::to_string(count); }
std::string rate_text(double rate) { return rate == 0 ? "" : three_digits(rate); }
std::string whole_percent(double share) { return percent(share, 0); }

// Rate over those ops only whose work is known.
auto rate_of_op(std::optional<double> Traced::Op::*amount, double per_us) {
  return [amount, per_us](const Traced::Op& op) -> std::optional<double> {
    if (!(op.*amount) || !(op.worked_us > 0)) return std::nullopt;
    return *(op.*amount) / op.worked_us / per_us;
  };
}

// The file's own text; text that is no JSON stays text.
OrderedJson json_of_shapes(const Traced::Op& op) {
  if (op.shapes.empty()) return nullptr;
  OrderedJson shapes = OrderedJson::parse(op.shapes, nullptr, false);
  return shapes.is_discarded() ? OrderedJson(op.shapes) : shapes;
}

const ResultFields<Traced::OpKernel> kOpKernelFields = {
    PERFMODEL_FIELDS(Traced::OpKernel, name, count, total_us),
};

const ResultFields<Traced::Op> kOpFigures = {
    {"category", &Traced::Op::category},
    {"count", &Traced::Op::count, "count"},
    {"host_self_us", &Traced::Op::host_self_us, "host ms"},
    {"host_total_us", &Traced::Op::host_total_us},
    {"device_self_us", &Traced::Op::device_self_us, "GPU ms"},
    {"device_total_us", &Traced::Op::device_total_us, "with ops inside"},
    PERFMODEL_FIELDS(Traced::Op, recomputed_us, flop, bytes, worked_us),
    {"tflop_per_s", rate_of_op(&Traced::Op::flop, 1e6), "TFLOP/s", rate_text},
    {"gb_per_s", rate_of_op(&Traced::Op::bytes, 1e3), "GB/s", rate_text},
    {"roofline_share", rate_of_op(&Traced::Op::roofline_us, 1), "roofline", whole_percent},
    {"kernels", [](const Traced::Op& op) { return json_list(op.kernels, kOpKernelFields); }},
};

}  // namespace

const ResultFields<Traced::Breakdown> kBreakdownFields = {
    PERFMODEL_FIELDS(Traced::Breakdown, compute_us, comm_us, exposed_comm_us, memcpy_us,
                     exposed_memcpy_us, busy_us, idle_us, span_us, compute_kernel_us),
};

const ResultFields<Traced::Op> kOpFields =
    joined_fields<Traced::Op>({{{"name", &Traced::Op::name, "Ops"}}, kOpFigures});
const ResultFields<Traced::Op> kShapedOpFields =
    joined_fields<Traced::Op>({{{"name", &Traced::Op::name, "Ops by shape",
                                 [](const Traced::Op& op) { return op.name + " " + op.shapes; }},
                                {"shapes", json_of_shapes}},
                               kOpFigures});

const ResultFields<Traced::Collective> kCollectiveFields = {
    {"name", &Traced::Collective::name, "Collectives"},
    {"elements", &Traced::Collective::elements, "elements"},
    {"dtype", text_or_null(&Traced::Collective::dtype)},
    {"group", text_or_null(&Traced::Collective::group)},
    {"group_size", &Traced::Collective::group_size, "ranks", plain_count},
    {"count", &Traced::Collective::count, "count"},
    {"total_us", &Traced::Collective::total_us, "total ms"},
    {"algorithm_gb_per_s", &Traced::Collective::algorithm_gb_per_s, "algorithm GB/s", three_digits},
    {"bus_gb_per_s", &Traced::Collective::bus_gb_per_s, "bus GB/s", three_digits},
    {"skew_us", &Traced::Collective::skew_us, Digits::kSix, "skew µs", three_digits},
};

const ResultFields<Traced::Copy> kCopyFields = {
    {"kind", &Traced::Copy::kind, "Copies and sets"},
    {"count", &Traced::Copy::count, "count"},
    {"total_us", &Traced::Copy::total_us, "total ms"},
    {"bytes", &Traced::Copy::bytes, "bytes"},
    {"gb_per_s", &Traced::Copy::gb_per_s, "GB/s", three_digits},
};

const ResultFields<Traced::Counter> kCounterFields = {
    {"name", &Traced::Counter::name, "Counters (CUPTI)"},
    {"ranges", &Traced::Counter::ranges, "ranges"},
    {"total", &Traced::Counter::total, "total"},
    {"mean", [](const Traced::Counter& at) { return at.total / static_cast<double>(at.ranges); },
     "mean"},
    {"min", &Traced::Counter::least, "min"},
    {"max", &Traced::Counter::most, "max"},
};

const ResultFields<Traced::Module> kModuleFields = {
    {"name", &Traced::Module::name, "Modules"},
    {"count", &Traced::Module::count, "count"},
    {"host_total_us", &Traced::Module::host_total_us, "host ms"},
    {"device_total_us", &Traced::Module::device_total_us, "GPU ms"},
};

const ResultFields<TraceReport::Kernel> kTopKernelFields = {
    {"name", &TraceReport::Kernel::name, "Kernels"},
    {"count", &TraceReport::Kernel::count, "count"},
    {"total_us", &TraceReport::Kernel::total_us, "total ms"},
    {"mean_us", &TraceReport::Kernel::mean_us, "mean µs", one_decimal},
    {"min_us", &TraceReport::Kernel::min_us},
    {"max_us", &TraceReport::Kernel::max_us, "max µs", one_decimal},
    {"collective", &TraceReport::Kernel::collective},
};

const ResultFields<TraceReport::Stream> kStreamFields = {
    {"device", &TraceReport::Stream::device},
    {"stream", &TraceReport::Stream::stream, "Streams",
     [](const TraceReport::Stream& at) {
       return fmt::format("device {} stream {}", at.device, at.stream);
     }},
    {"tasks", &TraceReport::Stream::tasks, "tasks"},
    {"busy_us", &TraceReport::Stream::busy_us, "busy ms"},
};

namespace {

auto of_mark(auto member) {
  return [member](const TracedIteration& at) { return at.mark.*member; };
}
auto of_split(auto member) {
  return [member](const TracedIteration& at) { return at.split.*member; };
}

// -1: not recorded.
auto recorded_number(std::int64_t TraceReport::*number) {
  return [number](const TraceReport& report) {
    return report.*number >= 0 ? std::optional(report.*number) : std::nullopt;
  };
}

const ResultFields<TraceReport> kTraceSourceFields = {
    {"trace", [](const TraceReport& report) { return file_name(report.source); }},
    {"gpu", &TraceReport::gpu},
    {"rank", recorded_number(&TraceReport::rank)},
    {"world_size", recorded_number(&TraceReport::world_size)},
};

const ResultFields<TraceReport> kTraceReportFields = {
    PERFMODEL_FIELDS(TraceReport, events, host_ops, calls, annotations, threads, kernels_total,
                     memcpy_total, memset_total),
    {"gpu_without_launch", &TraceReport::without_launch},
    PERFMODEL_FIELDS(TraceReport, gpu_busy_us, compute_kernel_us, comm_kernel_us, memcpy_us,
                     memset_us),
    {"streams", [](const TraceReport& report) { return report.streams.size(); }},
    {"stream_list", list_of(&TraceReport::streams, kStreamFields)},
    {"memory", [](const TraceReport& report) { return measured_memory_json(report.memory); }},
    {"top_kernels", list_of(&TraceReport::top_kernels, kTopKernelFields)},
};

const ResultFields<Traced::Idle> kIdleFields = {
    PERFMODEL_FIELDS(Traced::Idle, device, stream, host_wait_us, kernel_wait_us, other_us),
};
const ResultFields<Traced::Queue> kQueueFields = {
    PERFMODEL_FIELDS(Traced::Queue, device, stream, changes, mean, max, at_limit_us),
};
const ResultFields<Traced::Launches> kLaunchFields = {
    {"count", &Traced::Launches::count},
    {"delay_mean_us", &Traced::Launches::mean_us},
    {"delay_median_us", &Traced::Launches::median_us},
    {"delay_max_us", &Traced::Launches::max_us},
    {"shorter_than_launch", &Traced::Launches::shorter_than_launch},
};
const ResultFields<Traced::BandwidthPoint> kBandwidthFields = {
    PERFMODEL_FIELDS(Traced::BandwidthPoint, kind, time_us, gb_per_s),
};
const ResultFields<Traced> kOccupancyFields = {
    PERFMODEL_FIELDS(Traced, occupancy_percent, blocks_per_sm, sm_efficiency_percent),
};
const ResultFields<Traced::Phases> kTracePhaseFields = {
    PERFMODEL_FIELDS(Traced::Phases, forward_us, backward_us, recompute_us, optimizer_us),
};

const ResultFields<Traced> kTraceAnalysisFields = {
    {"breakdown", object_of(&Traced::breakdown, kBreakdownFields)},
    {"comm_overlap_fraction", [](const Traced& at) { return at.breakdown.comm_overlap_fraction; }},
    {"idle", list_of(&Traced::idle, kIdleFields)},
    {"queue_length", list_of(&Traced::queue_length, kQueueFields)},
    {"launch", object_of(&Traced::launch, kLaunchFields)},
    {"copies", list_of(&Traced::copies, kCopyFields)},
    {"copy_bandwidth", list_of(&Traced::copy_bandwidth, kBandwidthFields)},
    {"counters", list_of(&Traced::counters, kCounterFields)},
    {"occupancy", [](const Traced& at) { return json_object(at, kOccupancyFields); }},
    {"ops", list_of(&Traced::ops, kOpFields)},
    {"ops_by_shape", list_of(&Traced::ops_by_shape, kShapedOpFields)},
    {"device_outside_ops_us", &Traced::device_outside_ops_us},
    {"roofline_gpu", text_or_null(&Traced::gpu)},
    {"phases", object_of(&Traced::phases, kTracePhaseFields)},
    {"modules", list_of(&Traced::modules, kModuleFields)},
    {"collectives", list_of(&Traced::collectives, kCollectiveFields)},
};

const ResultFields<TraceRanks::Rank> kTraceRankFields = {
    PERFMODEL_FIELDS(TraceRanks::Rank, last_arrivals, waiting_us, caused_us, clock_offset_us),
};
const ResultFields<TraceRanks> kTraceJobFields = {
    PERFMODEL_FIELDS(TraceRanks, straggler, compute_imbalance),
    {"collectives_matched", &TraceRanks::matched},
    {"collectives_unmatched", &TraceRanks::unmatched},
    {"collectives", list_of(&TraceRanks::collectives, kCollectiveFields)},
};

// All iterations of a trace that has some: work before and after them belongs to no step.
TraceWindow window_of_steps(const Trace& trace, const TraceWindow& window) {
  const std::size_t steps = iterations(trace).size();
  return window || steps == 0 ? window : std::pair<std::size_t, std::size_t>(0, steps);
}

std::string table_cell(const OrderedJson& value) {
  if (value.is_null()) return "";
  return sweep::csv_cell(value.is_string() ? value.get<std::string>() : value.dump());
}

bool is_cell(const std::string& key, const OrderedJson& value) {
  return !value.is_structured() || (value.is_array() && key == "shapes");
}

std::string csv_of_rows(const OrderedJson& rows) {
  std::string text;
  for (const OrderedJson& row : rows) {
    std::string header, line;
    for (const auto& [key, value] : row.items()) {
      if (!is_cell(key, value)) continue;
      if (!header.empty()) header += ',', line += ',';
      header += key;
      line += table_cell(value);
    }
    if (text.empty()) text += header + "\n";
    text += line + "\n";
  }
  return text;
}

const ResultFields<TracedIteration> kTracedIterationFields = {
    {"name", of_mark(&TraceReport::Iteration::name), "Iterations"},
    {"wall_us", of_mark(&TraceReport::Iteration::wall_us), "wall ms"},
    {"gpu_busy_us", of_mark(&TraceReport::Iteration::gpu_busy_us), "GPU busy ms"},
    {"kernels", of_mark(&TraceReport::Iteration::kernels), "kernels"},
    {"memcpy", of_mark(&TraceReport::Iteration::copies), "copies"},
    {"memset", of_mark(&TraceReport::Iteration::sets), "sets"},
    {"kernel_us", of_split(&Traced::Split::kernel_us)},
    {"memcpy_us", of_split(&Traced::Split::memcpy_us)},
    {"memset_us", of_split(&Traced::Split::memset_us)},
    {"runtime_us", of_split(&Traced::Split::runtime_us), "calls ms"},
    {"data_loader_us", of_split(&Traced::Split::data_loader_us), "loading ms",
     [](double us) { return us > 0 ? milliseconds(us) : ""; }},
    {"op_us", of_split(&Traced::Split::op_us)},
    {"other_us", of_split(&Traced::Split::other_us)},
    {"window_us", of_split(&Traced::Split::window_us)},
    {"breakdown",
     [](const TracedIteration& at) { return json_object(at.split.breakdown, kBreakdownFields); }},
    {"comm_overlap_fraction",
     [](const TracedIteration& at) { return at.split.breakdown.comm_overlap_fraction; }},
};

double busy_share(const TracedIteration& at) { return at.mark.gpu_busy_us / at.mark.wall_us; }

std::string busy_share_text(const TracedIteration& at) {
  return percent_of(at.mark.gpu_busy_us, at.mark.wall_us);
}

}  // namespace

const ResultFields<TracedIteration> kTracedIterationColumns = joined_fields<TracedIteration>(
    {kTracedIterationFields, {{"busy_share", busy_share, "share", busy_share_text}}});

std::vector<std::string> TraceFindings::warnings() const {
  std::vector<std::string> all = report.warnings;
  all.insert(all.end(), analysis.warnings.begin(), analysis.warnings.end());
  return all;
}

Result<TraceFindings> trace_findings(const Trace& trace, const TraceWindow& window) {
  PERFMODEL_TRY(summed, report(trace, window));
  PERFMODEL_TRY(gpu, gpu_of_trace(summed->gpu));
  PERFMODEL_TRY(analysis, analyse(trace, window, *gpu ? &**gpu : nullptr));
  if (!*gpu && !summed->gpu.empty() && !trace.arguments.empty()) {
    analysis->warnings.push_back(unknown_gpu(summed->gpu) +
                                 ": ops have no FLOP, bytes and roofline");
  }
  return TraceFindings{std::move(*summed), std::move(*analysis)};
}

Result<std::vector<TraceFindings>> trace_findings(std::span<const Trace> traces,
                                                  const TraceWindow& window) {
  std::vector<TraceFindings> all;
  for (const Trace& trace : traces) {
    PERFMODEL_TRY(found, trace_findings(trace, window));
    all.push_back(std::move(*found));
  }
  return all;
}

Result<TraceComparison> compare_traces(const Trace& before, const Trace& after,
                                       const TraceWindow& window) {
  PERFMODEL_TRY(old_steps, trace_findings(before, window_of_steps(before, window)));
  PERFMODEL_TRY(new_steps, trace_findings(after, window_of_steps(after, window)));
  return compare({old_steps->report, old_steps->analysis},
                 {new_steps->report, new_steps->analysis});
}

std::vector<TracedIteration> traced_iterations(const TraceFindings& found) {
  std::vector<TracedIteration> all;
  for (std::size_t i = 0; i < found.report.iterations.size(); ++i) {
    all.push_back({found.report.iterations[i], found.analysis.splits.at(i)});
  }
  return all;
}

OrderedJson trace_json(const TraceFindings& found) {
  OrderedJson json = json_object(found.report, kTraceSourceFields);
  json["iterations"] = json_list(traced_iterations(found), kTracedIterationFields);
  json.update(json_object(found.report, kTraceReportFields));
  json.update(json_object(found.analysis, kTraceAnalysisFields));
  json["warnings"] = found.warnings();
  return json;
}

OrderedJson trace_ranks_json(std::span<const TraceFindings> found, const TraceRanks& ranks) {
  OrderedJson list = OrderedJson::array();
  for (std::size_t i = 0; i < found.size(); ++i) {
    list.push_back(trace_json(found[i]));
    list.back().update(json_object(ranks.ranks[i], kTraceRankFields));
  }
  OrderedJson json = trace_json(found.front());
  json["ranks"] = std::move(list);
  json["job"] = json_object(ranks, kTraceJobFields);
  for (const std::string& warning : ranks.warnings) json["warnings"].push_back(warning);
  return json;
}

std::vector<NamedTable> trace_tables(const TraceFindings& found) {
  // Lists of rows without lists in them.
  constexpr const char* kTables[] = {"iterations",   "idle",        "queue_length",   "ops",
                                     "ops_by_shape", "modules",     "collectives",    "copies",
                                     "top_kernels",  "stream_list", "copy_bandwidth", "counters"};
  const OrderedJson json = trace_json(found);
  OrderedJson breakdown = json["breakdown"];
  breakdown["comm_overlap_fraction"] = json["comm_overlap_fraction"];
  std::vector<NamedTable> tables = {{"breakdown", csv_of_rows(OrderedJson::array({breakdown}))}};
  for (const char* table : kTables) {
    if (!json[table].empty()) tables.push_back({table, csv_of_rows(json[table])});
  }
  return tables;
}

}  // namespace perfmodel
