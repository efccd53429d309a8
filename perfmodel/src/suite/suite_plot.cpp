#include "suite_plot.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "plot/line_plot.hpp"
#include "plot/svg_document.hpp"

namespace perfmodel::suite {
namespace {

constexpr double kPanelWidth = 230, kPanelHeight = 150;
constexpr std::size_t kColumns = 4;  // two models side by side

LinePlot panel_of(const SuiteModelReport& report) {
  LinePlot plot{.x_label = "batch (" + report.model.batch_unit + ")",
                .width = kPanelWidth,
                .height = kPanelHeight,
                .legend = false};
  for (const SuiteRow& row : report.rows) plot.x_marks.push_back(static_cast<double>(row.batch));
  return plot;
}

LinePlot throughput_of(const SuiteModelReport& report) {
  LinePlot plot = panel_of(report);
  plot.title = report.model.title;
  plot.y_label = report.model.unit + " per second";
  LinePlot::Line line{.name = "throughput"};
  for (const SuiteRow& row : report.rows) {
    line.points.emplace_back(static_cast<double>(row.batch), row.throughput);
    line.ranges.emplace_back(row.throughput_low, row.throughput_high);
  }
  plot.lines.push_back(std::move(line));
  return plot;
}

LinePlot utilization_of(const SuiteModelReport& report, bool with_matrix_units) {
  LinePlot plot = panel_of(report);
  plot.title = report.model.title + ": utilisation";
  plot.y_label = "utilisation";
  plot.y_unit = svg::Unit::kPercent;
  plot.y_most = 1;
  const auto line = [&](const char* name, double SuiteRow::*share) {
    LinePlot::Line curve{.name = name};
    for (const SuiteRow& row : report.rows) {
      curve.points.emplace_back(static_cast<double>(row.batch), row.*share);
    }
    plot.lines.push_back(std::move(curve));
  };
  line("GPU busy", &SuiteRow::gpu_utilization);
  line("FP32, by FLOP", &SuiteRow::fp32_utilization);
  line("one CPU core busy", &SuiteRow::cpu_utilization);
  if (with_matrix_units) line("matrix units, by FLOP", &SuiteRow::matrix_utilization);
  return plot;
}

}  // namespace

Result<std::string> suite_svg(const SuiteOutput& output) {
  const auto& models = output.report.models;
  // In all panels or in none, so that colours mean the same.
  const bool with_matrix_units = std::ranges::any_of(models, &SuiteModelReport::uses_matrix_units);
  std::vector<SvgPanel> panels;
  for (std::size_t i = 0; i < models.size(); ++i) {
    LinePlot utilization = utilization_of(models[i], with_matrix_units);
    utilization.legend = (i + 1) % (kColumns / 2) == 0 || i + 1 == models.size();
    for (const LinePlot& plot : {throughput_of(models[i]), utilization}) {
      PERFMODEL_TRY(panel, line_panel(plot));
      panels.push_back(std::move(*panel));
    }
  }
  return svg_document(
      fmt::format("{} on {}", output.report.suite.title, output.report.gpu.title),
      fmt::format("predicted by perfmodel, kernel models: {}; bands hold the throughput in nine of "
                  "ten cases",
                  output.kernel_models),
      panels, kColumns);
}

}  // namespace perfmodel::suite
