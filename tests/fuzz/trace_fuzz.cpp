// Kineto traces, plain and gzip.
#include "fuzz.hpp"
#include "perfmodel/detail/trace_report.hpp"
#include "perfmodel/graph/trace.hpp"

using namespace perfmodel;

namespace {

void check_indices(const Trace& trace) {
  const auto threads = static_cast<std::int32_t>(trace.threads.size());
  const auto calls = static_cast<std::int32_t>(trace.host.size());
  for (const HostEvent& event : trace.host) {
    PERFMODEL_CHECK(event.thread >= 0 && event.thread < threads);
    PERFMODEL_CHECK(event.duration_ns >= 0);
  }
  for (const GpuEvent& event : trace.gpu) {
    PERFMODEL_CHECK(event.launch >= -1 && event.launch < calls);
    PERFMODEL_CHECK(event.collective < static_cast<std::int32_t>(trace.collectives.size()));
    PERFMODEL_CHECK(event.duration_ns >= 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto& file = fuzz::file_with(fuzz::text_of(data, size));
  const auto salvaged = read_trace(file, {.salvage = true});
  const auto trace = read_trace(file);
  // A whole trace needs no salvaging, and salvaging it loses nothing.
  if (trace) PERFMODEL_CHECK(salvaged && salvaged->event_count == trace->event_count);
  if (!salvaged) {
    fuzz::check_error(salvaged.error());
    return 0;
  }
  if (!trace) fuzz::check_error(trace.error());
  check_indices(*salvaged);
  fuzz::check_lines(salvaged->warnings);
  const auto summed = report(*salvaged);
  if (!summed) {
    fuzz::check_error(summed.error());
    return 0;
  }
  fuzz::check_lines(summed->warnings);
  PERFMODEL_CHECK(summed->gpu_busy_us >= 0);
  PERFMODEL_CHECK(summed->kernels_total + summed->memcpy_total + summed->memset_total ==
                  salvaged->gpu.size());
  return 0;
}
