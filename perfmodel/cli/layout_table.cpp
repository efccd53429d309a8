#include "layout_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/progress_bar.hpp"
#include "base/secrets.hpp"
#include "interrupt_guard.hpp"
#include "layout_measured.hpp"
#include "layout_rows.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

constexpr std::string_view kAnswerColumns[] = {"predicted_step_ms",
                                               "low_ms",
                                               "high_ms",
                                               "tokens_per_s_per_gpu",
                                               "mfu",
                                               "memory_gb",
                                               "fits",
                                               "bubble_share",
                                               "exposed_comm_share",
                                               "limit",
                                               "error",
                                               "allocated_gb",
                                               "hfu"};

// A cell as it stands in a table: in quotes where it holds a comma, a quote or a line break.
std::string layout_csv_cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

// One pricer per machine that the rows name.
class TablePricers {
 public:
  TablePricers(const Predictor& predictor, const LayoutArguments& arguments)
      : predictor_(predictor), arguments_(arguments) {}

  struct Machine {
    LayoutPricer pricer;
    Gpu gpu;
  };
  Result<const Machine*> of(const LayoutRowReader& row) {
    LayoutMachine machine{.gpu = arguments_.gpu,
                          .topology = arguments_.topology,
                          .host_scale = arguments_.host_scale,
                          .collectives = arguments_.collectives};
    if (machine.gpu.empty()) machine.gpu = row.text("gpu");
    if (machine.topology.empty()) machine.topology = row.text("topology");
    if (machine.gpu.empty()) {
      return fail(ErrorCode::kImpossible, "gpu: expected --gpu or a column gpu, found neither");
    }
    const auto key = std::pair(machine.gpu, machine.topology);
    const auto known = machines_.find(key);
    if (known != machines_.end()) return &known->second;
    auto made = LayoutPricer::make(predictor_, machine);
    if (!made) return Unexpected{made.error()};
    auto gpu = predictor_.gpu(machine.gpu);
    if (!gpu) return Unexpected{gpu.error()};
    if (!arguments_.measured.empty()) {
      made = measured_pricer(*made, arguments_, nullptr, *gpu);
      if (!made) return Unexpected{made.error()};
    }
    return &machines_.emplace(key, Machine{std::move(*made), std::move(*gpu)}).first->second;
  }

 private:
  const Predictor& predictor_;
  const LayoutArguments& arguments_;
  std::map<std::pair<std::string, std::string>, Machine> machines_;
};

std::vector<std::string> answer_cells(const LayoutPrediction& made) {
  const auto number = [](double value) { return fmt::format("{:.6g}", value); };
  constexpr double kGigabyte = 1e9;
  return {number(made.step_ms),
          number(made.low_ms),
          number(made.high_ms),
          number(made.tokens_per_s_per_gpu),
          number(made.mfu),
          number(made.reserved_bytes / kGigabyte),
          made.fits ? "1" : "0",
          number(made.bubble_share),
          number(made.exposed_comm_share),
          std::string(to_string(made.limit)),
          "",
          number(made.allocated_bytes / kGigabyte),
          number(made.hfu)};
}

std::vector<std::string> error_cells(std::string message) {
  std::vector<std::string> cells(std::size(kAnswerColumns));
  std::ranges::replace(message, '\n', ' ');
  const auto at = std::ranges::find(kAnswerColumns, "error") - std::begin(kAnswerColumns);
  cells[at] = std::move(message);
  return cells;
}

// `taken`: rows by the software that was taken for want of a name.
std::vector<std::string> priced_row(const CsvFile& rows, const LayoutArguments& arguments,
                                    TablePricers& pricers,
                                    std::map<std::string, std::size_t>& taken) {
  LayoutRowReader row(rows);
  LayoutJob job = job_of(row, arguments);
  const ParallelLayout layout = row_layout(row);
  if (row.error()) return error_cells(*row.error());
  const auto pricer = pricers.of(row);
  if (!pricer) return error_cells(pricer.error().message);
  if (job.software.empty()) {
    job.software = nearest_software((*pricer)->gpu, job, layout);
    ++taken[job.software];
  }
  const auto made = (*pricer)->pricer.predict(job, layout);
  return made ? answer_cells(*made) : error_cells(made.error().message);
}

// A count that is not there is 1, as anybody would think; of a flag that is less plain.
void warn_of_flags(const CsvFile& rows) {
  std::vector<std::string_view> missing;
  for (const char* name : {"gated", "tied", "sequence_parallel"}) {
    if (rows.column(name) < 0) missing.push_back(name);
  }
  if (missing.empty()) return;
  warn(fmt::format("the table has no column {}: taken as 1", fmt::join(missing, ", ")));
}

bool is_given(const LayoutArguments& arguments, const LayoutField& field) {
  const auto in_list = [&](auto list) {
    if constexpr (std::is_same_v<decltype(list), std::monostate>) {
      return false;
    } else {
      return !(arguments.lists.*list).empty();
    }
  };
  const auto in_member = [&](auto member) {
    const auto& value = arguments.*member;
    if constexpr (std::is_same_v<decltype(value), const std::string&>) {
      return !value.empty();
    } else if constexpr (std::is_same_v<decltype(value), const double&>) {
      return value != 0;
    } else {
      return value.has_value();
    }
  };
  return std::visit(in_list, field.list) || std::visit(in_member, field.member);
}

// Flags that the rows' columns stand for would be ignored.
Result<void> refuse_row_flags(const LayoutArguments& arguments) {
  const auto refuse = [](const std::string& flag) {
    return fail(ErrorCode::kImpossible,
                fmt::format("expected models and layouts in the table's columns, found {} beside "
                            "--table",
                            flag));
  };
  for (const LayoutField& field : layout_fields()) {
    if (field.is_of_row && is_given(arguments, field)) return refuse(flag_of(field.name));
  }
  if (arguments.searched_stages) return refuse("--stages searched");
  if (!arguments.measured_layout.empty()) return refuse("--measured-layout");
  if (arguments.json) return refuse("--json");
  return {};
}

void warn_of_software(const std::map<std::string, std::size_t>& taken) {
  if (taken.empty()) return;
  std::vector<std::string> parts;
  for (const auto& [name, rows] : taken) parts.push_back(fmt::format("{} ({} rows)", name, rows));
  warn(
      fmt::format("neither --software nor a column software says whose program ran the rows: "
                  "taken are the costs of {}",
                  fmt::join(parts, ", ")));
}

std::size_t row_count(const std::string& file) {
  auto rows = CsvFile::open(file);
  std::size_t count = 0;
  while (rows && rows->next()) ++count;
  return count;
}

}  // namespace

Result<void> price_layout_table(const Predictor& predictor, const LayoutArguments& arguments,
                                const std::string& table, const std::string& output) {
  if (auto good = refuse_row_flags(arguments); !good) return good;
  auto rows = CsvFile::open(table);
  if (!rows) return Unexpected{rows.error()};
  if (arguments.gpu.empty() && rows->column("gpu") < 0) {
    return fail(ErrorCode::kImpossible, "expected --gpu or a column gpu in the table, found none");
  }
  warn_of_flags(*rows);
  // Columns of an earlier answer give way.
  std::vector<int> kept;
  std::string text;
  for (std::size_t i = 0; i < rows->columns().size(); ++i) {
    const std::string& name = rows->columns()[i];
    if (std::ranges::find(kAnswerColumns, name) != std::end(kAnswerColumns)) continue;
    text += fmt::format("{}{}", kept.empty() ? "" : ",", layout_csv_cell(name));
    kept.push_back(static_cast<int>(i));
  }
  for (std::string_view name : kAnswerColumns) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", name);
  }
  text += '\n';
  TablePricers pricers(predictor, arguments);
  std::map<std::string, std::size_t> taken;
  ProgressBar bar("price layouts", row_count(table));
  const InterruptGuard guard;  // Ctrl-C: the rows so far
  while (rows->next()) {
    if (InterruptGuard::interrupted()) {
      warn("stopped: the rows behind are left out");
      break;
    }
    std::string line;
    for (int column : kept) {
      line += fmt::format("{}{}", column == kept.front() ? "" : ",",
                          layout_csv_cell(rows->cell(column)));
    }
    for (const std::string& cell : priced_row(*rows, arguments, pricers, taken)) {
      line += "," + layout_csv_cell(cell);
    }
    text += line + '\n';
    bar.advance();
  }
  bar.finish();
  if (rows->error()) return Unexpected{*rows->error()};
  warn_of_software(taken);
  return print_or_write(text, output);
}

}  // namespace perfmodel::cli
