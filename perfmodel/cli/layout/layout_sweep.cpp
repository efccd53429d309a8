#include <fmt/format.h>

#include <algorithm>

#include "layout/layout_results.hpp"
#include "layout_report.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {

std::string layout_sweep_text(const std::string& axis, const std::vector<LayoutSweepRow>& rows,
                              bool bold) {
  const bool any_error =
      std::ranges::any_of(rows, [](const auto& row) { return !row.error.empty(); });
  TextTable table{"<" + axis, "step ms",   "tokens/s",     "tokens/s/GPU",
                  "MFU",      "memory GB", "<best layout", any_error ? "<note" : ""};
  for (const LayoutSweepRow& row : rows) {
    if (!row.best) {
      table.row({row.value, "", "", "", "", "", "", row.error});
      continue;
    }
    const LayoutPrediction& made = row.best->prediction;
    table.row({row.value, fmt::format("{:.1f}", made.step_ms),
               fmt::format("{:.0f}", made.tokens_per_s_per_gpu * static_cast<double>(row.gpus)),
               fmt::format("{:.0f}", made.tokens_per_s_per_gpu),
               fmt::format("{:.1f} %", 100 * made.mfu),
               fmt::format("{:.1f}", made.reserved_bytes / 1e9), layout_words(row.best->layout),
               row.error});
  }
  return "\n" + table.text(bold);
}

Json layout_sweep_json(const std::string& axis, const std::vector<LayoutSweepRow>& rows) {
  Json json = document(schemas::kLayoutSweep);
  json["axis"] = axis;
  Json list = Json::array();
  for (const LayoutSweepRow& row : rows) {
    Json one = {{"value", row.value}};
    one["best"] = row.best ? layout_json(*row.best) : Json(nullptr);
    one["error"] = row.error.empty() ? Json(nullptr) : Json(row.error);
    list.push_back(std::move(one));
  }
  json["rows"] = std::move(list);
  return json;
}

std::string layout_sweep_csv(const std::string& axis, const std::vector<LayoutSweepRow>& rows) {
  const auto fields = named_fields(
      kRankedLayoutFields, {"predicted_step_ms", "tokens_per_s_per_gpu", "mfu", "memory_gb", "dp",
                            "tp", "pp", "vp", "micro_batch", "zero", "recompute"});
  std::string text = axis + "," + csv_header(fields) + ",error\n";
  for (const LayoutSweepRow& row : rows) {
    std::string error = row.error;
    std::ranges::replace(error, '"', '\'');
    text += row.best ? fmt::format("{},{},{}\n", row.value, csv_cells(*row.best, fields), row.error)
                     : fmt::format("{}{}\"{}\"\n", row.value, std::string(fields.size() + 1, ','),
                                   error);
  }
  return text;
}

}  // namespace perfmodel::cli
