#include "uncategorised_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/names_data.hpp"
#include "base/secrets.hpp"
#include "trace_numbers.hpp"

namespace perfmodel {
namespace {

enum class RowKind : std::uint8_t { kOps, kCalls, kDevice, kCopies, kUnread };

struct RowPlace {
  RowKind kind = RowKind::kOps;
  std::int16_t device = 0;
};

std::string_view without_number(std::string_view name) {
  const std::size_t begin = name.find_first_not_of("0123456789 ");
  return begin == name.npos ? name : name.substr(begin);
}

// data/names/rows.json
class RowNames {
 public:
  RowNames() {
    const std::map<std::string, RowKind> kinds = {{"ops", RowKind::kOps},
                                                  {"calls", RowKind::kCalls},
                                                  {"device", RowKind::kDevice},
                                                  {"copies", RowKind::kCopies},
                                                  {"unread", RowKind::kUnread}};
    const nlohmann::json file = nlohmann::json::parse(kRowNamesJson);
    for (const auto& row : file.at("rows")) {
      rows_.push_back({row.at("process").get<std::string>(),
                       kinds.at(row.at("is").get<std::string>()), row.value("numbered", false)});
    }
  }

  std::optional<RowPlace> place(std::string_view process) const {
    const std::string_view name = without_number(process);
    for (const Row& row : rows_) {
      if (name == row.process) return RowPlace{row.kind, 0};
      if (!row.numbered || !name.starts_with(row.process)) continue;
      const std::string_view number = name.substr(row.process.size());
      if (number.find_first_not_of("0123456789") != number.npos || number.size() > 4) continue;
      return RowPlace{row.kind, static_cast<std::int16_t>(parse_integer(number, 0))};
    }
    return {};
  }

 private:
  struct Row {
    std::string process;
    RowKind kind;
    bool numbered;
  };
  std::vector<Row> rows_;
};

GpuKind work_kind(std::string_view name, RowKind row) {
  if (name.starts_with("Memset") || name.starts_with("memset")) return GpuKind::kSet;
  const bool copies = row == RowKind::kCopies || name.starts_with("Memcpy") ||
                      name.starts_with("memcpy") || name == "MEMCPY_ASYNC";
  return copies ? GpuKind::kCopy : GpuKind::kKernel;
}

}  // namespace

void place_uncategorised_rows(Trace& trace, const std::vector<std::size_t>& rows,
                              const ProcessNames& names) {
  if (rows.empty()) return;
  static const RowNames table;
  std::vector<std::optional<RowPlace>> place_of_thread;
  for (const TraceThread& thread : trace.threads) {
    const auto named = names.find(thread.process_id);
    std::string_view process = named == names.end() ? thread.process_id : named->second;
    if (process.starts_with('"') && process.size() > 1) {
      process = process.substr(1, process.size() - 2);
    }
    place_of_thread.push_back(table.place(process));
  }
  std::vector<bool> moved(trace.host.size(), false);
  std::map<std::string, std::size_t> unread;
  std::size_t on_device = 0;
  for (const std::size_t row : rows) {
    HostEvent& event = trace.host[row];
    if (event.thread < 0) continue;
    const auto thread = event.thread;
    const std::optional<RowPlace>& place = place_of_thread[thread];
    if (!place || place->kind == RowKind::kOps) continue;
    if (place->kind == RowKind::kCalls) {
      event.kind = HostKind::kCall;
      continue;
    }
    moved[row] = true;
    if (place->kind == RowKind::kUnread) {
      const auto named = names.find(trace.threads[thread].process_id);
      ++unread[named == names.end() ? trace.threads[thread].process_id : named->second];
      continue;
    }
    ++on_device;
    trace.gpu.push_back({.start_ns = event.start_ns,
                         .duration_ns = event.duration_ns,
                         .name = event.name,
                         .kind = work_kind(trace.name(event), place->kind),
                         .device = place->device,
                         .stream = parse_integer(trace.threads[thread].thread_id, 0)});
  }
  std::size_t at = 0;
  std::erase_if(trace.host, [&](const HostEvent&) { return moved[at++]; });
  trace.recording.say(
      "rows_of_devices", on_device,
      fmt::format("{} events stand without a category in rows of a device: they count as its work, "
                  "launched by no call that is known",
                  on_device));
  std::size_t all = 0;
  std::string list;
  for (const auto& [process, count] : unread) {
    all += count;
    list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", shown_text(process), count);
  }
  trace.recording.say("rows_not_read", all, "rows of these processes are not read: " + list);
}

}  // namespace perfmodel
