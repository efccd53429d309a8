#include "trace_results.hpp"

#include <fmt/format.h>

namespace perfmodel {
namespace {

using Traced = TraceAnalysis;

std::string three_digits(double value) { return fmt::format("{:.3g}", value); }
std::string one_decimal(double value) { return fmt::format("{:.1f}", value); }
std::string plain_count(std::int64_t count) { return std::to_string(count); }
std::string rate_text(double rate) { return rate == 0 ? "" : three_digits(rate); }
std::string whole_percent(double share) { return percent(share, 0); }

// Of the ops whose work is known alone.
auto rate_of_op(std::optional<double> Traced::Op::*amount, double per_us) {
  return [amount, per_us](const Traced::Op& op) -> std::optional<double> {
    if (!(op.*amount) || !(op.worked_us > 0)) return std::nullopt;
    return *(op.*amount) / op.worked_us / per_us;
  };
}

auto text_or_null(std::string Traced::Collective::*text) {
  return [text](const Traced::Collective& at) {
    return (at.*text).empty() ? OrderedJson(nullptr) : OrderedJson(at.*text);
  };
}

// The file's own text; what is no JSON stays text.
OrderedJson json_of_shapes(const Traced::Op& op) {
  if (op.shapes.empty()) return nullptr;
  OrderedJson shapes = OrderedJson::parse(op.shapes, nullptr, false);
  return shapes.is_discarded() ? OrderedJson(op.shapes) : shapes;
}

const ResultFields<Traced::OpKernel> kOpKernelFields = {
    {"name", &Traced::OpKernel::name},
    {"count", &Traced::OpKernel::count},
    {"total_us", &Traced::OpKernel::total_us},
};

const ResultFields<Traced::Op> kOpFigures = {
    {"category", &Traced::Op::category},
    {"count", &Traced::Op::count, "count"},
    {"host_self_us", &Traced::Op::host_self_us, "host ms"},
    {"host_total_us", &Traced::Op::host_total_us},
    {"device_self_us", &Traced::Op::device_self_us, "GPU ms"},
    {"device_total_us", &Traced::Op::device_total_us, "with ops inside"},
    {"recomputed_us", &Traced::Op::recomputed_us},
    {"flop", &Traced::Op::flop},
    {"bytes", &Traced::Op::bytes},
    {"worked_us", &Traced::Op::worked_us},
    {"tflop_per_s", rate_of_op(&Traced::Op::flop, 1e6), "TFLOP/s", rate_text},
    {"gb_per_s", rate_of_op(&Traced::Op::bytes, 1e3), "GB/s", rate_text},
    {"roofline_share", rate_of_op(&Traced::Op::roofline_us, 1), "roofline", whole_percent},
    {"kernels", [](const Traced::Op& op) { return json_list(op.kernels, kOpKernelFields); }},
};

}  // namespace

const ResultFields<Traced::Breakdown> kBreakdownFields = {
    {"compute_us", &Traced::Breakdown::compute_us},
    {"comm_us", &Traced::Breakdown::comm_us},
    {"exposed_comm_us", &Traced::Breakdown::exposed_comm_us},
    {"memcpy_us", &Traced::Breakdown::memcpy_us},
    {"exposed_memcpy_us", &Traced::Breakdown::exposed_memcpy_us},
    {"busy_us", &Traced::Breakdown::busy_us},
    {"idle_us", &Traced::Breakdown::idle_us},
    {"span_us", &Traced::Breakdown::span_us},
    {"compute_kernel_us", &Traced::Breakdown::compute_kernel_us},
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

}  // namespace perfmodel
