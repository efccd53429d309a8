#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "files/json_file.hpp"
#include "layout/layer_kinds.hpp"
#include "layout/layout_results.hpp"
#include "layout/layout_rows.hpp"
#include "layout/measured_steps.hpp"
#include "layout_report.hpp"
#include "perfmodel/predictor.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

Json machine_json(const LayoutArguments& arguments, const std::string& gpu,
                  const std::string& topology, const std::string& output,
                  const std::vector<MeasuredStep>& steps, const MeasuredFit& fit) {
  std::string name = std::filesystem::path(output).stem().string();
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  Json json = document(schemas::kMeasuredMachine);
  json["name"] = is_plain_name(name) ? name : "machine";
  json["gpu"] = gpu;
  json["topology"] = topology;
  json["attention"] = arguments.attention;
  json["optimizer"] = arguments.optimizer;
  json["grad_dtype"] = arguments.grad_dtype;
  json["dropout"] = arguments.dropout;
  json["host_scale"] = arguments.machine.host_scale;
  json["source"] = arguments.measured;
  json["fit"] = json_object(fit, kMeasuredFitFields);
  const MeasuredTable table = measured_table(steps);
  json["columns"] = table.columns;
  json["rows"] = table.rows;
  return json;
}

std::string fit_text(const MeasuredFit& fit, bool bold) {
  TextTable errors{"<missed by", "mean", "median"};
  const auto row = [&](const char* what, double mean, double median) {
    errors.row({what, fmt::format("{:.1f} %", 100 * mean), fmt::format("{:.1f} %", 100 * median)});
  };
  row("as predicted", fit.mape_before, fit.median_before);
  row("calibrated", fit.mape_after, fit.median_after);
  row("each by the others", fit.mape_left_out, fit.median_left_out);
  std::string text = fmt::format("\n  {} measured times\n\n{}", fit.steps, errors.text(bold));
  // Those that moved most.
  constexpr std::size_t kShown = 12;
  auto factors = fit.factors;
  std::ranges::stable_sort(factors, [](const auto& a, const auto& b) {
    return std::abs(std::log(a.second)) > std::abs(std::log(b.second));
  });
  TextTable table{"<times the prediction of", "factor"};
  for (std::size_t i = 0; i < std::min(kShown, factors.size()); ++i) {
    table.row({factors[i].first, fmt::format("{:.3f}", factors[i].second)});
  }
  return text + "\n" + table.text(bold);
}

// A machine's file has columns for plain decoders alone.
Result<void> expect_plain_steps(const std::vector<MeasuredStep>& steps) {
  for (const MeasuredStep& step : steps) {
    const ParallelLayout& layout = step.layout;
    const bool splits = layout.cp > 1 || layout.ep > 1 || layout.etp > 1;
    if (is_plain(step.job.model) && step.job.lora_rank == 0 && !splits) continue;
    return fail(ErrorCode::kImpossible,
                "-o: expected steps of dense models without cp, ep and adapters (a machine's file "
                "holds no other sizes; --measured TABLE.csv takes them all), found others");
  }
  return {};
}

}  // namespace

Result<void> calibrate_machine(const LayoutArguments& arguments, const std::string& output) {
  const auto predictor = Predictor::load({.gpus = {arguments.machine.gpu}});
  if (!predictor) return Unexpected{predictor.error()};
  const auto gpu = predictor->gpu(arguments.machine.gpu);
  if (!gpu) return Unexpected{gpu.error()};
  // Rows that name their models need none.
  const bool names_model = !arguments.model.empty() || arguments.layers;
  std::optional<LayoutQuestion> question;
  if (names_model) {
    auto asked = layout_question(arguments);
    if (!asked) return Unexpected{asked.error()};
    question = std::move(*asked);
  }
  const auto pricer = LayoutPricer::make(*predictor, arguments.machine);
  if (!pricer) return Unexpected{pricer.error()};
  const auto steps = measured_steps(arguments, question ? &question->job : nullptr, *gpu, warn);
  if (!steps) return Unexpected{steps.error()};
  const auto calibrated = pricer->measured(*steps);
  if (!calibrated) return Unexpected{calibrated.error()};
  const MeasuredFit fit = *calibrated->fit();
  const std::string topology =
      arguments.machine.topology.empty() ? topology_for(*gpu).name : arguments.machine.topology;
  if (!output.empty()) {
    if (auto good = expect_plain_steps(*steps); !good) return good;
  }
  const Json machine = machine_json(arguments, gpu->name, topology, output, *steps, fit);
  if (!output.empty()) {
    if (auto written = write_file(output, to_text(machine)); !written) return written;
  }
  if (arguments.json) return print_document(machine);
  return print_report(fit_text(fit, bold_allowed()));
}

}  // namespace perfmodel::cli
