#include "measured_memory_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "base/number_text.hpp"
#include "cli/shared/arguments.hpp"
#include "explain/measured_memory_results.hpp"
#include "plot/area_plot.hpp"
#include "plot/svg_document.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

std::string exact_bytes(std::int64_t bytes) { return grouped(bytes); }

struct ByteUnit {
  const char* name;
  double bytes;
};

// The largest one of which there is at least one.
ByteUnit unit_for(std::int64_t bytes) {
  constexpr ByteUnit kUnits[] = {{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}};
  for (const ByteUnit& unit : kUnits) {
    if (static_cast<double>(bytes) >= unit.bytes) return unit;
  }
  return {"bytes", 1};
}

std::string short_bytes(std::int64_t bytes) {
  const ByteUnit unit = unit_for(bytes);
  return fmt::format("{:.4g} {}", static_cast<double>(bytes) / unit.bytes, unit.name);
}

std::string panel_title(const MeasuredMemory& memory) {
  std::string title =
      fmt::format("{}: peak {} allocated", memory.device, short_bytes(memory.peak_bytes));
  if (!memory.totals_recorded) title += " above the lowest level";
  if (memory.reserved_bytes)
    title += fmt::format(", {} reserved", short_bytes(*memory.reserved_bytes));
  return title;
}

// Allocated memory, and on top of it the rest of the reserved memory.
Result<SvgPanel> curve_panel(const MeasuredMemory& memory) {
  const ByteUnit unit = unit_for(std::max(memory.peak_bytes, memory.reserved_bytes.value_or(0)));
  AreaPlot plot{.title = panel_title(memory),
                .x_label = "time",
                .y_label = unit.name,
                .x_unit = svg::Unit::kTime,
                .layers = {{.name = "allocated"}}};
  AreaPlot::Layer spare{.name = "reserved, not allocated"};
  for (const auto& point : memory.curve) {
    plot.x.push_back(point.time_us);
    plot.layers[0].amounts.push_back(static_cast<double>(point.allocated_bytes) / unit.bytes);
    const std::int64_t reserved = point.reserved_bytes.value_or(0);
    spare.amounts.push_back(
        static_cast<double>(std::max<std::int64_t>(0, reserved - point.allocated_bytes)) /
        unit.bytes);
  }
  if (memory.reserved_bytes) plot.layers.push_back(std::move(spare));
  return area_panel(plot);
}

Result<std::string> curves_svg(const std::vector<MeasuredMemory>& devices,
                               const std::string& source) {
  std::vector<SvgPanel> panels;
  for (const MeasuredMemory& memory : devices) {
    PERFMODEL_TRY(panel, curve_panel(memory));
    panels.push_back(std::move(*panel));
  }
  return svg_document("Memory: " + file_name(source), "as recorded by PyTorch's allocator", panels,
                      1);
}

}  // namespace

std::string measured_memory_text(const std::vector<MeasuredMemory>& devices, bool bold) {
  if (devices.empty()) return {};
  TextTable table{"Memory", "peak allocated, bytes", "", "at ms", "<in", "reserved, bytes", ""};
  for (const MeasuredMemory& memory : devices) {
    const auto& reserved = memory.reserved_bytes;
    table.row({memory.device, exact_bytes(memory.peak_bytes), short_bytes(memory.peak_bytes),
               milliseconds(memory.peak_us), memory.peak_op, reserved ? exact_bytes(*reserved) : "",
               reserved ? short_bytes(*reserved) : ""});
  }
  std::string text = "\n" + table.text(bold);
  for (const MeasuredMemory& memory : devices) {
    if (memory.totals_recorded) continue;
    text += wrapped(memory.device + ": the file tells changes only; 0 is the lowest level recorded",
                    "  ", 2);
  }
  return text;
}

Result<void> check_curve_name(const std::string& file) {
  if (file.ends_with(".csv") || file.ends_with(".svg")) return {};
  return fail(ErrorCode::kFormat,
              fmt::format("expected a name that ends in .svg or .csv, found \"{}\"", file));
}

Result<void> write_memory_curves(const std::vector<MeasuredMemory>& devices,
                                 const std::string& source, const std::string& file) {
  if (devices.empty()) {
    return decline("expected records of memory (profile_memory=True), found none", source);
  }
  if (file.ends_with(".csv")) return write_file(file, memory_curves_csv(devices));
  PERFMODEL_TRY(svg, curves_svg(devices, source));
  return write_file(file, *svg);
}

}  // namespace perfmodel::cli
