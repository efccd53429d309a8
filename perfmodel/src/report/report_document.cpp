#include "report/report_document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <vector>

#include "files/json_file.hpp"

namespace perfmodel::report_page {
namespace {

// The first picture of a document on the page: bars of one figure of the rows of one list.
struct DocumentKind {
  std::string_view schema, title, list, value, low, high;
  double scale = 1;                             // to the unit of the column's kind
  std::array<std::string_view, 9> labels = {};  // keys that name a row
};
constexpr DocumentKind kKinds[] = {
    {"perfmodel-whatif",
     "What-if",
     "rows",
     "e2e_us",
     "e2e_low_us",
     "e2e_high_us",
     1,
     {"variant", "gpu", "batch"}},
    {"perfmodel-layout",
     "Parallel layouts",
     "layouts",
     "predicted_step_ms",
     "low_ms",
     "high_ms",
     1000,
     {"dp", "tp", "pp", "vp", "cp", "zero", "micro_batch", "recompute"}},
    {"perfmodel-shard",
     "Sharding of tables",
     "plans",
     "predicted_us",
     "low_us",
     "high_us",
     1,
     {"name", "kind", "label"}},
    {"perfmodel-optimize", "What to change", "steps", "step_us", "", "", 1, {"rewrite"}},
    {"perfmodel-memory", "Memory", "largest", "bytes", "", "", 1, {"purpose", "op"}},
    {"perfmodel-replay", "Replay", "iterations", "replayed_us", "", "", 1, {"name"}},
    {"perfmodel-suite-report", "Suite", "rows", "e2e_us", "", "", 1, {"model", "batch", "gpu"}},
};

const DocumentKind* kind_of(std::string_view schema) {
  for (const DocumentKind& kind : kKinds) {
    if (kind.schema == schema) return &kind;
  }
  return nullptr;
}

std::string_view kind_of_column(std::string_view name, bool is_text) {
  if (is_text) return "text";
  if (name.ends_with("_us")) return "us";
  if (name.ends_with("_bytes") || name == "bytes") return "bytes";
  for (const std::string_view share : {"_share", "_fraction", "mfu", "hfu"}) {
    if (name.ends_with(share)) return "share";
  }
  return "number";
}

// "memory.needed_bytes": objects in rows become columns of their own; lists are left out.
void flatten(const Json& row, const std::string& prefix,
             std::vector<std::pair<std::string, Json>>& cells) {
  for (const auto& [key, value] : row.items()) {
    if (value.is_object()) {
      flatten(value, prefix + key + ".", cells);
    } else if (value.is_boolean()) {
      cells.emplace_back(prefix + key, value.get<bool>() ? "yes" : "no");
    } else if (!value.is_array()) {
      cells.emplace_back(prefix + key, value);
    }
  }
}

Json table_data(std::string_view title, const Json& rows) {
  std::vector<std::string> columns;
  std::vector<std::vector<std::pair<std::string, Json>>> flat;
  for (const Json& row : rows) {
    flatten(row, "", flat.emplace_back());
    for (const auto& [name, value] : flat.back()) {
      if (std::ranges::find(columns, name) == columns.end()) columns.push_back(name);
    }
  }
  Json table = {{"title", title}, {"columns", Json::array()}, {"rows", Json::array()}};
  std::vector<bool> is_text(columns.size(), false);
  for (const auto& cells : flat) {
    Json row = Json::array();
    for (std::size_t at = 0; at < columns.size(); ++at) {
      const auto found =
          std::ranges::find(cells, columns[at], &std::pair<std::string, Json>::first);
      row.push_back(found == cells.end() ? Json() : found->second);
      is_text[at] = is_text[at] || row.back().is_string();
    }
    table["rows"].push_back(std::move(row));
  }
  for (std::size_t at = 0; at < columns.size(); ++at) {
    table["columns"].push_back(
        {{"name", columns[at]}, {"kind", kind_of_column(columns[at], is_text[at])}});
  }
  return table;
}

std::string label_of(const DocumentKind& kind, const Json& row, std::size_t number) {
  std::string made;
  for (const std::string_view key : kind.labels) {
    const auto found = row.find(std::string(key));
    if (key.empty() || found == row.end() || found->is_null()) continue;
    std::string value = found->is_string() ? found->get<std::string>() : found->dump();
    if (kind.schema == "perfmodel-layout") {
      if (value == "none" || (value == "1" && !found->is_string())) continue;  // ZeRO-1 is a text
      value = fmt::format("{} {}", key, value);
    }
    made += (made.empty() ? "" : ", ") + value;
  }
  const std::string_view one = kind.list.substr(0, kind.list.size() - 1);  // "plans": "plan"
  if (made.find_first_not_of("0123456789") != std::string::npos) return made;
  return fmt::format("{} {}", one, made.empty() ? std::to_string(number + 1) : made);
}

Json bars_data(const DocumentKind& kind, const Json& rows) {
  const auto figure = [&](const Json& row, std::string_view key) -> Json {
    const auto found = row.find(std::string(key));
    if (key.empty() || found == row.end() || !found->is_number()) return nullptr;
    return found->get<double>() * kind.scale;
  };
  Json bars = {{"title", kind.title},
               {"kind", kind.value.ends_with("bytes") ? "bytes" : "us"},
               {"rows", Json::array()}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Json value = figure(rows[i], kind.value);
    if (value.is_null()) continue;  // refused: its table row says why
    Json bar = {{"name", label_of(kind, rows[i], i)}, {"value", value}};
    if (const Json low = figure(rows[i], kind.low); !low.is_null()) bar["low"] = low;
    if (const Json high = figure(rows[i], kind.high); !high.is_null()) bar["high"] = high;
    const auto fits = rows[i].find("fits");
    if (fits != rows[i].end() && fits->is_boolean() && !fits->get<bool>()) bar["bad"] = true;
    bars["rows"].push_back(std::move(bar));
  }
  return bars;
}

std::string summary_of(const Json& bars) {
  if (bars["rows"].empty()) return "";
  const Json* least = nullptr;
  for (const Json& bar : bars["rows"]) {
    if (!least || bar["value"].get<double>() < (*least)["value"].get<double>()) least = &bar;
  }
  if (bars["kind"] == "bytes") return fmt::format("{} rows.", bars["rows"].size());
  return fmt::format("{} rows; the shortest is {} with {:.3f} ms.", bars["rows"].size(),
                     (*least)["name"].get<std::string>(), (*least)["value"].get<double>() / 1000);
}

Json figures_table(const Json& document) {
  std::vector<std::pair<std::string, Json>> cells;
  flatten(document, "", cells);
  Json rows = Json::array();
  for (const auto& [name, cell] : cells) {
    const bool is_head = name == "schema" || name == "version" || name == "minor_version";
    if (is_head || name.starts_with("program.") || cell.is_null()) continue;
    const bool has_digits = cell.is_number_float();
    const Json whole = cell.is_string() ? cell : Json(cell.dump());
    rows.push_back(
        {{"figure", name},
         {"value", has_digits ? Json(fmt::format("{:.10g}", cell.get<double>())) : whole}});
  }
  return table_data("Figures", rows);
}

}  // namespace

bool is_document(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string head(400, '\0');
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(in.gcount());
  const std::size_t at = head.find("\"schema\"");
  if (at == std::string::npos || head.find_first_not_of(" \n\r\t") == std::string::npos)
    return false;
  return head[head.find_first_not_of(" \n\r\t")] == '{' &&
         head.find("\"perfmodel-", at) != std::string::npos;
}

Result<Json> document_data(const std::filesystem::path& file) {
  PERFMODEL_TRY(text, read_json_text(file, "JSON document of a command"));
  const Json document = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const auto refused = [&](const char* found) {
    return fail(ErrorCode::kFormat, std::string("expected a JSON document of a command, ") + found,
                file);
  };
  if (!document.is_object()) return refused("found no whole one");
  const auto named = document.find("schema");
  if (named == document.end() || !named->is_string()) return refused("found one without a schema");
  const auto schema = named->get<std::string>();
  const DocumentKind* kind = kind_of(schema);
  Json made = {{"title", kind ? std::string(kind->title) : schema.substr(schema.find('-') + 1)},
               {"summary", ""},
               {"tables", Json::array()}};
  for (const auto& [key, value] : document.items()) {
    const bool rows = value.is_array() && !value.empty() && value[0].is_object();
    if (!rows) continue;
    made["tables"].push_back(table_data(key, value));
    if (kind && key == kind->list) {
      made["bars"] = bars_data(*kind, value);
      made["summary"] = summary_of(made["bars"]);
    }
  }
  made["tables"].push_back(figures_table(document));
  made["title"] = fmt::format("{}: {}", made["title"].get<std::string>(), file.filename().string());
  return made;
}

}  // namespace perfmodel::report_page
