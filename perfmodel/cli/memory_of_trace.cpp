#include "memory_of_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "arguments.hpp"
#include "perfmodel/detail/measured_memory.hpp"
#include "perfmodel/detail/predicted_memory.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

std::string in_gib(double bytes) { return fmt::format("{:.2f} GiB", bytes / (1 << 30)); }

Json in_bytes(double bytes) { return static_cast<std::int64_t>(std::llround(bytes)); }

// More is allocated than reserved only in broken records; then what was allocated is true.
void note_peak(const MeasuredMemory& device, MemoryOfTrace& made) {
  made.device = device.device;
  made.totals_recorded = device.totals_recorded;
  made.peak_op = device.peak_op;
  made.memory.peak_allocated_bytes = static_cast<double>(device.peak_bytes);
  made.memory.peak_reserved_bytes =
      static_cast<double>(std::max(device.reserved_bytes.value_or(0), device.peak_bytes));
  if (!device.totals_recorded) {
    made.warnings.emplace_back(
        "the records have no totals: the peak is what was allocated above the lowest level within "
        "the recording, a lower bound");
  }
  if (!device.reserved_bytes) {
    made.warnings.emplace_back(
        "the trace does not tell what was reserved: allocated bytes stand "
        "in its place");
  }
  made.warnings.emplace_back(
      "memory as the trace recorded it, within the recording: a trace does not tell purposes, nor "
      "the memory of other batches");
}

}  // namespace

std::optional<bool> MemoryOfTrace::fits() const {
  if (!gpu || !measured()) return std::nullopt;
  if (!totals_recorded && memory.fits()) return std::nullopt;
  return memory.fits();
}

MemoryOfTrace memory_of_trace(const Trace& trace, std::optional<Gpu> gpu) {
  std::vector<MeasuredMemory> devices = measured_memory(trace);
  std::erase_if(devices, [](const MeasuredMemory& device) { return device.on_host; });
  MemoryOfTrace made{.file = file_name(trace.source), .gpu = std::move(gpu)};
  if (devices.empty()) {
    made.warnings = {std::string(kMemoryOfTraceUnknown) +
                     "; profile_memory=True records what a GPU holds"};
  } else {
    note_peak(devices.front(), made);
  }
  if (devices.size() > 1) {
    std::string others;
    for (const MeasuredMemory& device : std::span(devices).subspan(1)) {
      others += fmt::format("{}{} ({})", others.empty() ? "" : ", ", device.device,
                            in_gib(static_cast<double>(device.peak_bytes)));
    }
    made.warnings.insert(
        made.warnings.begin(),
        fmt::format("the trace has records of {} devices: {} has the highest peak, "
                    "before {}",
                    devices.size(), made.device, others));
  }
  made.warnings.insert(made.warnings.begin(), trace.warnings.begin(), trace.warnings.end());
  if (made.gpu) {
    made.memory.context_bytes = static_cast<double>(made.gpu->architecture.context_bytes);
    made.memory.device_bytes = made.gpu->usable_memory().value;
  }
  return made;
}

Json memory_json(const MemoryOfTrace& made) {
  const PredictedMemory& memory = made.memory;
  const auto if_measured = [&](double bytes) { return made.measured() ? in_bytes(bytes) : Json(); };
  const auto fits = made.fits();
  Json json = document(schemas::kMemory);
  json.update({{"graph", made.file},
               {"gpu", made.gpu ? Json(made.gpu->name) : Json()},
               {"measured", made.measured()},
               {"device", made.measured() ? Json(made.device) : Json()},
               {"batch", nullptr},
               {"peak_allocated_bytes", if_measured(memory.peak_allocated_bytes)},
               {"peak_reserved_bytes", if_measured(memory.peak_reserved_bytes)},
               {"context_bytes", in_bytes(memory.context_bytes)},
               {"needed_bytes", if_measured(memory.needed_bytes())},
               {"low_bytes", if_measured(memory.low_bytes())},
               {"high_bytes", if_measured(memory.high_bytes())},
               {"device_bytes", made.gpu ? in_bytes(memory.device_bytes) : Json()},
               {"fits", fits ? Json(*fits) : Json()},
               {"headroom_bytes", fits ? in_bytes(memory.headroom_bytes()) : Json()},
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
  list.row("trace", made.measured() ? fmt::format("{}, {}", made.file, made.device) : made.file);
  if (made.gpu) {
    list.row("GPU", fmt::format("{} ({}), {}", made.gpu->title, made.gpu->name,
                                in_gib(memory.device_bytes)));
  }
  if (const auto fits = made.fits()) {
    list.row("memory", fmt::format("{}: {} {}", in_gib(memory.needed_bytes()),
                                   *fits ? "fits, to spare" : "does not fit by",
                                   in_gib(std::abs(memory.headroom_bytes()))));
  }
  if (made.measured()) {
    list.row("PyTorch",
             fmt::format("allocated {}, reserved {} at the peak",
                         in_gib(memory.peak_allocated_bytes), in_gib(memory.peak_reserved_bytes)));
  } else {
    list.row("memory", "not predicted");
  }
  if (!made.peak_op.empty()) list.row("peak", "in " + made.peak_op);
  std::string text;
  for (const std::string& warning : made.warnings) text += wrapped(warning, "  warning: ", 4);
  return text + "\n" + list.text();
}

}  // namespace perfmodel::cli
