#include "trace/collective_table.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {
namespace {

std::optional<std::int64_t> if_recorded(std::int64_t value) {
  return value >= 0 ? std::optional(value) : std::nullopt;
}

}  // namespace

std::optional<double> bus_factor(std::string_view kind, std::optional<std::int64_t> ranks) {
  if (!ranks || *ranks < 1) return std::nullopt;
  const double share = static_cast<double>(*ranks - 1) / static_cast<double>(*ranks);
  if (kind == "all_reduce") return 2 * share;
  if (kind == "all_gather" || kind == "reduce_scatter" || kind == "all_to_all") return share;
  if (kind == "broadcast" || kind == "reduce") return 1.0;
  return std::nullopt;
}

std::vector<RankCollective> collectives_of(const Trace& trace, const TraceSelection& chosen) {
  std::vector<RankCollective> made;
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
    const GpuEvent& event = trace.gpu[i];
    if (!chosen.is_collective[i] || !chosen.has_gpu(i)) continue;
    RankCollective collective{.kind = canonical_collective(trace.name(event)),
                              .start_us = static_cast<double>(event.start_ns) / 1e3,
                              .end_us = static_cast<double>(event.end_ns()) / 1e3,
                              .event = static_cast<std::int32_t>(i)};
    if (event.collective >= 0) {
      const auto& note = trace.collectives[event.collective];
      collective.kind = canonical_collective(trace.names.text(note.kind));
      collective.process_group = trace.names.text(note.process_group);
      collective.sequence = note.sequence;
      collective.in_elements = note.in_elements;
      collective.out_elements = note.out_elements;
      collective.element_bytes =
          std::max(1, size_in_bytes(parse_dtype(trace.names.text(note.dtype))));
      collective.group_size = note.group_size;
    }
    made.push_back(std::move(collective));
  }
  std::ranges::stable_sort(made, {}, &RankCollective::start_us);
  return made;
}

std::vector<TraceAnalysis::Collective> collective_table(const Trace& trace,
                                                        const TraceSelection& chosen) {
  std::map<std::tuple<std::string, std::int64_t, std::string, std::int64_t, std::string>,
           TraceAnalysis::Collective>
      table;
  for (const RankCollective& at : collectives_of(trace, chosen)) {
    const GpuEvent& event = trace.gpu[at.event];
    std::string dtype;
    if (event.collective >= 0) {
      dtype = trace.names.text(trace.collectives[event.collective].dtype);
    }
    const std::int64_t elements = std::max(at.in_elements, at.out_elements);
    TraceAnalysis::Collective& row =
        table[{at.kind, elements, at.process_group, at.group_size, dtype}];
    row.name = at.kind;
    row.elements = if_recorded(elements);
    row.dtype = dtype;
    row.group = at.process_group;
    row.group_size = if_recorded(at.group_size);
    ++row.count;
    row.total_us += at.end_us - at.start_us;
  }
  std::vector<TraceAnalysis::Collective> made;
  for (auto& [key, row] : table) {
    const int bytes = size_in_bytes(parse_dtype(row.dtype));
    if (row.elements && *row.elements > 0 && bytes > 0 && row.total_us > 0) {
      row.algorithm_gb_per_s = static_cast<double>(*row.elements) * bytes *
                               static_cast<double>(row.count) / row.total_us / 1e3;
      if (const auto factor = bus_factor(row.name, row.group_size)) {
        row.bus_gb_per_s = *row.algorithm_gb_per_s * *factor;
      }
    }
    made.push_back(std::move(row));
  }
  std::ranges::stable_sort(made, std::ranges::greater{}, &TraceAnalysis::Collective::total_us);
  return made;
}

}  // namespace perfmodel
