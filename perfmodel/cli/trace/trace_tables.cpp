#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <system_error>
#include <vector>

#include "sweep/csv_text.hpp"
#include "trace_output.hpp"

namespace perfmodel::cli {
namespace {

// Keys of the JSON that are lists of rows without lists in them.
constexpr const char* kTables[] = {"iterations",   "idle",        "queue_length",   "ops",
                                   "ops_by_shape", "modules",     "collectives",    "copies",
                                   "top_kernels",  "stream_list", "copy_bandwidth", "counters"};

std::string trace_cell_of(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return sweep::csv_cell(value.get<std::string>());
  return sweep::csv_cell(value.dump());
}

bool trace_is_nested(const std::string& key, const Json& value) {
  return value.is_object() || (value.is_array() && key != "shapes");
}

std::string trace_csv_of(const Json& rows) {
  std::string text;
  for (const Json& row : rows) {
    if (text.empty()) {
      for (const auto& [key, value] : row.items()) {
        if (!trace_is_nested(key, value)) text += (text.empty() ? "" : ",") + key;
      }
      text += '\n';
    }
    bool first = true;
    for (const auto& [key, value] : row.items()) {
      if (trace_is_nested(key, value)) continue;
      if (!first) text += ',';
      text += trace_cell_of(value);
      first = false;
    }
    text += '\n';
  }
  return text;
}

}  // namespace

Result<void> write_trace_tables(const TraceFindings& found, const std::string& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) {
    return Unexpected{Error{.code = ErrorCode::kIo,
                            .message = "expected a folder for tables, " + failed.message(),
                            .file = folder}};
  }
  const Json json = trace_keys(found);
  Json breakdown = json["breakdown"];
  breakdown["comm_overlap_fraction"] = json["comm_overlap_fraction"];
  std::vector<std::pair<std::string, std::string>> files = {
      {"breakdown", trace_csv_of(Json::array({breakdown}))}};
  for (const char* table : kTables) {
    if (!json[table].empty()) files.emplace_back(table, trace_csv_of(json[table]));
  }
  for (const auto& [name, text] : files) {
    auto written = write_file(std::filesystem::path(folder) / (name + ".csv"), text);
    if (!written) return written;
  }
  return {};
}

}  // namespace perfmodel::cli
