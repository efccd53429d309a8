#include "layout/measured_steps.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/each_name.hpp"
#include "files/json_file.hpp"
#include "layout/layout_rows.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/trace_report.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/trace_analysis.hpp"

namespace perfmodel {
namespace {

/// A machine that was measured, as its file says it.
struct MachineFile {
  std::string gpu, topology, attention, optimizer, grad_dtype;
  double dropout = 0, host_scale = 1;
  MeasuredTable table;
};

bool is_table(std::string_view file) { return file.ends_with(".csv") || file.ends_with(".csv.gz"); }

bool is_file(std::string_view name) {
  return name.ends_with(".json") || name.ends_with(".gz") || name.find('/') != std::string::npos;
}

MeasuredTable parse_table(ObjectReader& root) {
  MeasuredTable table{.columns = root.strings("columns")};
  const Json* rows = root.array("rows");
  for (std::size_t i = 0; rows && i < rows->size(); ++i) {
    const Json& row = (*rows)[i];
    const bool is_row = row.is_array() && row.size() == table.columns.size() &&
                        std::ranges::all_of(row, [](const auto& cell) { return cell.is_string(); });
    if (!is_row) {
      root.fail_at(fmt::format("/rows/{}", i),
                   fmt::format("{} cells of text", table.columns.size()), found(row));
      return table;
    }
    table.rows.push_back(row.get<std::vector<std::string>>());
  }
  return table;
}

MachineFile parse_machine(const Json& document, std::optional<Error>& error) {
  MachineFile made;
  ObjectReader root(document, "", error);
  root.expect_schema(schemas::kMeasuredMachine);
  root.any("program");
  root.plain_name("name");
  PERFMODEL_READ(made, root.string, gpu, topology, attention, optimizer, grad_dtype);
  if (!parse_layout_attention(made.attention))
    root.reject("attention", "a kernel that --attention names");
  if (!parse_layout_optimizer(made.optimizer)) {
    root.reject("optimizer", "adamw, adamw-8bit or sgd");
  }
  if (made.grad_dtype != "fp32" && made.grad_dtype != "bf16") {
    root.reject("grad_dtype", "fp32 or bf16");
  }
  made.dropout = root.number_below("dropout", 1, "a probability");
  made.host_scale = root.positive("host_scale");
  root.string("source");
  root.any("fit");
  made.table = parse_table(root);
  root.finish();
  return made;
}

std::string csv_of(const MeasuredTable& table) {
  std::string text = fmt::format("{}\n", fmt::join(table.columns, ","));
  for (const auto& row : table.rows) text += fmt::format("{}\n", fmt::join(row, ","));
  return text;
}

Result<std::vector<MeasuredStep>> steps_of_machine(const std::filesystem::path& file,
                                                   const LayoutInputs& inputs, const Gpu& gpu) {
  PERFMODEL_TRY(machine, read_json_file(file, "machine file",
                                        [](const Json& json, std::optional<Error>& error) {
                                          return parse_machine(json, error);
                                        }));
  if (machine->gpu != gpu.name) {
    return decline(
        fmt::format("expected a machine measured on {}, found one of {}", gpu.name, machine->gpu),
        file, "/gpu");
  }
  LayoutInputs own = inputs;
  own.attention = machine->attention;
  own.optimizer = machine->optimizer;
  own.grad_dtype = machine->grad_dtype;
  own.dropout = machine->dropout;
  own.software.clear();  // each row has its own
  PERFMODEL_TRY(rows, CsvFile::of_text(file, csv_of(machine->table)));
  return read_measured_rows(std::move(*rows), own, nullptr, gpu);
}

/// Whole numbers of a text.
std::vector<std::int64_t> numbers_in(std::string_view text) {
  std::vector<std::int64_t> numbers;
  std::optional<std::int64_t> number;
  for (const char c : text) {
    if (c >= '0' && c <= '9') {
      number = std::min<std::int64_t>(number.value_or(0), std::int64_t{1} << 50) * 10 + (c - '0');
    } else if (number) {
      numbers.push_back(*number);
      number.reset();
    }
  }
  if (number) numbers.push_back(*number);
  return numbers;
}

/// Whether some product of the trace has both widths of the model's feed-forward layers; nothing:
/// no product says its shapes.
std::optional<bool> multiplies_model(const TraceAnalysis& analysis, const DecoderModel& model,
                                     std::int64_t tp) {
  std::optional<bool> found;
  for (const TraceAnalysis::Op& op : analysis.ops_by_shape) {
    const bool is_product = op.name == "aten::mm" || op.name == "aten::addmm" ||
                            op.name == "aten::linear" || op.name == "aten::matmul";
    if (!is_product || op.shapes.empty()) continue;
    const std::vector<std::int64_t> sizes = numbers_in(op.shapes);
    const auto has = [&](std::int64_t size) {
      return std::ranges::find(sizes, size) != sizes.end();
    };
    const std::int64_t wide = model.feed_forward / tp;
    const bool is_own = has(model.hidden) && (has(wide) || has(2 * wide));
    found = found.value_or(false) || is_own;
  }
  return found;
}

double median_us(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// One rank's step.
Result<std::vector<MeasuredStep>> step_of_trace(const LayoutInputs& inputs, const LayoutJob* asked,
                                                const Gpu& gpu, const TakeWarning& warn) {
  const std::string& file = inputs.measured;
  const auto refuse = [&](std::string message) { return decline(std::move(message), file); };
  if (!asked) return refuse("expected a table with --table, found a trace");
  PERFMODEL_TRY(layout, inputs.measured_layout.empty() ? named_layout(inputs)
                                                       : parse_layout(inputs.measured_layout, {}));
  PERFMODEL_TRY(trace, read_trace(file));
  PERFMODEL_TRY(report, perfmodel::report(*trace));
  const auto recorded = gpu_of_trace(report->gpu);
  if (recorded && *recorded && (*recorded)->name != gpu.name) {
    return refuse(
        fmt::format("expected a trace of {}, found one of {}", gpu.name, (*recorded)->name));
  }
  PERFMODEL_TRY(analysis, analyse(*trace, std::nullopt, nullptr));
  const auto is_own = multiplies_model(*analysis, asked->model, layout->tp);
  if (is_own && !*is_own) {
    return refuse(
        fmt::format("expected products of {} with tp {} (hidden {}, feed-forward {}), "
                    "found none: a step of another model",
                    asked->model.name, layout->tp, asked->model.hidden,
                    asked->model.feed_forward / layout->tp));
  }
  if (!is_own) {
    warn(
        fmt::format("{}: the trace has no shapes of products: that it is a step of {} with {} is "
                    "taken on trust",
                    file, asked->model.name, layout_words(*layout)));
  }
  MeasuredStep step{.job = *asked, .layout = *layout};
  if (step.job.software.empty()) step.job.software = suitable_software(gpu, step.job, *layout);
  if (report->iterations.empty()) {
    warn(fmt::format("{}: the trace has no marks of steps: all of it is taken as one", file));
    step.step_ms = 1e-3 * analysis->breakdown.span_us;
    step.compute_ms = 1e-3 * analysis->breakdown.compute_kernel_us;
  } else {
    std::vector<double> walls, kernels;
    for (const auto& one : report->iterations) walls.push_back(one.wall_us);
    for (const auto& one : analysis->splits) kernels.push_back(one.breakdown.compute_kernel_us);
    step.step_ms = 1e-3 * median_us(walls);
    if (!kernels.empty()) step.compute_ms = 1e-3 * median_us(kernels);
  }
  if (!(*step.compute_ms > 0)) {
    return refuse("expected a step with kernels on the GPU, found none");
  }
  return std::vector{std::move(step)};
}

bool is_machine_text(const std::string& file) {
  const auto text = read_json_text(file, "machine file");
  return text && text->find(schemas::kMeasuredMachine.name) != std::string::npos;
}

}  // namespace

Result<std::vector<MeasuredStep>> measured_steps(const LayoutInputs& inputs, const LayoutJob* asked,
                                                 const Gpu& gpu, const TakeWarning& warn) {
  const std::string& name = inputs.measured;
  if (is_table(name)) {
    PERFMODEL_TRY(rows, CsvFile::open(name));
    return read_measured_rows(std::move(*rows), inputs, asked, gpu);
  }
  if (is_file(name)) {
    // Machines are small; a trace is read by its own reader.
    std::error_code failure;
    const auto size = std::filesystem::file_size(name, failure);
    constexpr std::uintmax_t kLargestMachine = 1 << 24;
    const bool may_be_machine = name.ends_with(".json") && !failure && size <= kLargestMachine;
    if (may_be_machine && is_machine_text(name)) return steps_of_machine(name, inputs, gpu);
    return step_of_trace(inputs, asked, gpu, warn);
  }
  PERFMODEL_TRY(data, find_data_folder());
  const auto folder = *data / "machines";
  std::vector<std::string> known;
  if (const auto files = json_files(folder, "machine files")) {
    for (const auto& file : *files) known.push_back(file.stem().string());
  }
  if (std::ranges::find(known, name) != known.end()) {
    return steps_of_machine(folder / (name + ".json"), inputs, gpu);
  }
  return fail(
      ErrorCode::kUnknownName,
      fmt::format("--measured: expected a table (.csv), a trace or a machine's file, or the "
                  "name of one in {} ({}), found \"{}\"",
                  folder.string(),
                  known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")), name));
}

Result<LayoutPricer> layout_pricer(const Predictor& predictor, const LayoutMachine& machine,
                                   const LayoutInputs& inputs, const LayoutJob* asked,
                                   const TakeWarning& warn) {
  auto pricer = LayoutPricer::make(predictor, machine);
  if (!pricer || inputs.measured.empty()) return pricer;
  PERFMODEL_TRY(gpu, predictor.gpu(machine.gpu));
  PERFMODEL_TRY(steps, measured_steps(inputs, asked, *gpu, warn));
  auto measured = pricer->measured(*steps);
  if (!measured && measured.error().file.empty()) measured.error().file = inputs.measured;
  return measured;
}

}  // namespace perfmodel
