#include <fmt/format.h>

#include <set>

#include "perfmodel/trace_analysis.hpp"
#include "trace/collective_table.hpp"
#include "trace/device_tables.hpp"
#include "trace/op_tables.hpp"
#include "trace/op_work.hpp"
#include "trace/recorded_tables.hpp"
#include "trace/trace_selection.hpp"

namespace perfmodel {
namespace {

// Warns of gaps in the recording that make figures mean less than they seem to.
void warn_of_gaps(const Trace& trace, const TraceSelection& chosen, TraceAnalysis& analysis) {
  std::set<int> devices;
  bool blank_work = false;
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
    if (!chosen.has_gpu(i)) continue;
    devices.insert(trace.gpu[i].device);
    blank_work = true;
  }
  if (devices.size() > 1) {
    std::string names;
    for (const int device : devices)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", device);
    analysis.warnings.push_back(
        fmt::format("the trace has work of devices {}: the breakdown and its overlap join them, "
                    "tables by stream do not",
                    names));
  }
  if (trace.arguments.empty() && !analysis.ops.empty()) {
    analysis.warnings.push_back(
        "no shapes were recorded (record_shapes=True makes them): ops have no FLOP, bytes and "
        "roofline, and there is no table by shape");
  }
  if (!blank_work && chosen.restricted && !trace.gpu.empty()) {
    analysis.warnings.push_back("the chosen iterations launched no device work");
  }
}

}  // namespace

Result<TraceAnalysis> analyse(const Trace& trace,
                              const std::optional<std::pair<std::size_t, std::size_t>>& window,
                              const Gpu* gpu) {
  const TraceSelection chosen = select_events(trace, window);
  if (auto good = check_window(trace, chosen, window); !good) return Unexpected{good.error()};
  TraceAnalysis made;
  DeviceIntervals work;
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
    if (chosen.has_gpu(i)) work.add(trace.gpu[i], chosen.is_collective[i]);
  }
  made.breakdown = device_breakdown(work);
  made.idle = idle_causes(trace, chosen);
  made.queue_length = queue_lengths(trace, chosen);
  made.launch = launch_delays(trace, chosen);
  made.copies = copies_by_kind(trace, chosen);
  made.copy_bandwidth = copy_bandwidth(trace, chosen);
  made.counters = counter_table(trace, chosen);
  made.splits = split_steps(trace, chosen);
  mean_occupancy(trace, chosen, made);
  made.collectives = collective_table(trace, chosen);
  const OpWorks works = op_works(trace, gpu);  // needs the most memory, so it comes first
  const TraceOps nesting = find_trace_ops(trace);
  const OpTree tree = op_tree(trace, nesting);
  add_op_tables(trace, chosen, nesting, tree, works, made);
  made.modules = module_table(trace, chosen);
  if (gpu) made.gpu = gpu->name;
  warn_of_gaps(trace, chosen, made);
  return made;
}

}  // namespace perfmodel
