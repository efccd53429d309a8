#include "memory/memory_of_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/file_name.hpp"
#include "perfmodel/detail/measured_memory.hpp"

namespace perfmodel {
namespace {

// More is allocated than reserved only in broken records; then the allocated figure is true.
void add_peak(const MeasuredMemory& device, MemoryOfTrace& made) {
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
    add_peak(devices.front(), made);
  }
  if (devices.size() > 1) {
    std::string others;
    for (const MeasuredMemory& device : std::span(devices).subspan(1)) {
      others += fmt::format("{}{} ({:.2f} GiB)", others.empty() ? "" : ", ", device.device,
                            static_cast<double>(device.peak_bytes) / (1 << 30));
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

Result<MemoryOfTrace> memory_of_trace(const MemoryQuestion& question,
                                      const RecordedProgram& program, std::optional<Gpu> gpu) {
  std::vector<std::string> purposes;
  for (const NamedRewrite& rewrite : question.rewrites) purposes.push_back(rewrite.name);
  if (question.zero.world > 1) purposes.emplace_back("--world");
  if (question.max_batch) purposes.emplace_back("--max-batch");
  if (question.over_time) purposes.emplace_back("--timeline");
  for (const std::string& purpose : purposes) {
    PERFMODEL_TRY_TO(check_tensors_known(program.graph, purpose));
  }
  return memory_of_trace(*program.trace, std::move(gpu));
}

}  // namespace perfmodel
