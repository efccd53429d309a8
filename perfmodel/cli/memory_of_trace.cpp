#include "memory_of_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "arguments.hpp"
#include "perfmodel/detail/measured_memory.hpp"
#include "text_table.hpp"

namespace perfmodel::cli {
namespace {

std::string in_gib(double bytes) { return fmt::format("{:.2f} GiB", bytes / (1 << 30)); }

Json in_bytes(double bytes) { return static_cast<std::int64_t>(std::llround(bytes)); }

}  // namespace

Result<MemoryOfTrace> memory_of_trace(const Trace& trace, std::optional<Gpu> gpu) {
  const std::vector<MeasuredMemory> devices = measured_memory(trace);
  const auto of_gpu =
      std::ranges::find_if(devices, [](const MeasuredMemory& device) { return !device.on_host; });
  if (of_gpu == devices.end() || !of_gpu->totals_recorded) {
    return Unexpected{Error{
        .code = ErrorCode::kImpossible,
        .message = fmt::format("expected an execution graph, or records of a GPU's memory in the "
                               "trace (profile_memory=True makes them), found {}",
                               of_gpu == devices.end() ? "neither" : "records without totals"),
        .file = trace.source}};
  }
  MemoryOfTrace made{.file = file_name(trace.source),
                     .gpu = std::move(gpu),
                     .device = of_gpu->device,
                     .peak_op = of_gpu->peak_op,
                     .warnings = trace.warnings};
  made.memory.peak_allocated_bytes = static_cast<double>(of_gpu->peak_bytes);
  made.memory.peak_reserved_bytes =
      static_cast<double>(of_gpu->reserved_bytes.value_or(of_gpu->peak_bytes));
  if (!of_gpu->reserved_bytes) {
    made.warnings.emplace_back(
        "the trace does not tell what was reserved: allocated bytes stand "
        "in its place");
  }
  made.warnings.emplace_back(
      "memory as the trace recorded it, within the recording: a trace does not tell purposes, nor "
      "the memory of other batches");
  if (made.gpu) {
    made.memory.context_bytes = static_cast<double>(made.gpu->architecture.context_bytes);
    made.memory.device_bytes = made.gpu->usable_memory().value;
  }
  return made;
}

Json memory_json(const MemoryOfTrace& made) {
  const PredictedMemory& memory = made.memory;
  Json json = document(schemas::kMemory);
  json.update({{"graph", made.file},
               {"gpu", made.gpu ? Json(made.gpu->name) : Json()},
               {"measured", true},
               {"device", made.device},
               {"batch", nullptr},
               {"peak_allocated_bytes", in_bytes(memory.peak_allocated_bytes)},
               {"peak_reserved_bytes", in_bytes(memory.peak_reserved_bytes)},
               {"context_bytes", in_bytes(memory.context_bytes)},
               {"needed_bytes", in_bytes(memory.needed_bytes())},
               {"low_bytes", in_bytes(memory.low_bytes())},
               {"high_bytes", in_bytes(memory.high_bytes())},
               {"device_bytes", made.gpu ? in_bytes(memory.device_bytes) : Json()},
               {"fits", made.gpu ? Json(memory.fits()) : Json()},
               {"headroom_bytes", made.gpu ? in_bytes(memory.headroom_bytes()) : Json()},
               {"activation_bytes", nullptr},
               {"bytes_per_sample", nullptr},
               {"by_purpose", nullptr},
               {"peak", {{"op", made.peak_op}, {"node", nullptr}}},
               {"warnings", made.warnings}});
  return json;
}

std::string memory_text(const MemoryOfTrace& made) {
  const PredictedMemory& memory = made.memory;
  TextList list;
  list.row("trace", fmt::format("{}, {}", made.file, made.device));
  if (made.gpu) {
    list.row("GPU", fmt::format("{} ({}), {}", made.gpu->title, made.gpu->name,
                                in_gib(memory.device_bytes)));
    list.row("memory", fmt::format("{}: {} {}", in_gib(memory.needed_bytes()),
                                   memory.fits() ? "fits, to spare" : "does not fit by",
                                   in_gib(std::abs(memory.headroom_bytes()))));
  }
  list.row("PyTorch",
           fmt::format("allocated {}, reserved {} at the peak", in_gib(memory.peak_allocated_bytes),
                       in_gib(memory.peak_reserved_bytes)));
  if (!made.peak_op.empty()) list.row("peak", "in " + made.peak_op);
  std::string text;
  for (const std::string& warning : made.warnings) text += wrapped(warning, "  warning: ", 4);
  return text + "\n" + list.text();
}

}  // namespace perfmodel::cli
