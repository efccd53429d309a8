#include "layout/layout_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/decimal_number.hpp"
#include "json/csv_file.hpp"
#include "layout/layout_results.hpp"
#include "layout/layout_rows.hpp"

namespace perfmodel {
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
                                               "hfu",
                                               "host_memory_gb"};

// One pricer per machine that the rows name.
class TablePricers {
 public:
  TablePricers(const Predictor& predictor, const LayoutInputs& inputs, const TakeWarning& warn)
      : predictor_(predictor), inputs_(inputs), warn_(warn) {}

  struct Machine {
    LayoutPricer pricer;
    Gpu gpu;
  };
  Result<const Machine*> of(const LayoutRowReader& row) {
    LayoutMachine machine = inputs_.machine;
    if (machine.gpu.empty()) machine.gpu = row.text("gpu");
    if (machine.topology.empty()) machine.topology = row.text("topology");
    if (machine.gpu.empty()) {
      return decline("gpu: expected --gpu or a column gpu, found neither");
    }
    const auto key = std::pair(machine.gpu, machine.topology);
    const auto known = machines_.find(key);
    if (known != machines_.end()) return &known->second;
    PERFMODEL_TRY(made, layout_pricer(predictor_, machine, inputs_, nullptr, warn_));
    PERFMODEL_TRY(gpu, predictor_.gpu(machine.gpu));
    return &machines_.emplace(key, Machine{std::move(*made), std::move(*gpu)}).first->second;
  }

 private:
  const Predictor& predictor_;
  const LayoutInputs& inputs_;
  const TakeWarning& warn_;
  std::map<std::pair<std::string, std::string>, Machine> machines_;
};

// ",cell,cell": a price or why there is none.
std::string answer_cells(const Result<LayoutPrediction>& price) {
  std::string line;
  for (const std::string_view name : kAnswerColumns) {
    line += ',';
    if (name == "error" && !price) {
      std::string message = price.error().message;
      std::ranges::replace(message, '\n', ' ');
      line += csv_cell(message);
    } else if (name != "error" && price) {
      const auto& field = named_field(kLayoutPriceFields, name);
      line += csv_cell(field.value(*price), field.digits);
    }
  }
  return line;
}

// `taken`: rows by the software that was taken for want of a name.
Result<LayoutPrediction> priced_row(const CsvFile& rows, const LayoutInputs& inputs,
                                    TablePricers& pricers,
                                    std::map<std::string, std::size_t>& taken) {
  LayoutRowReader row(rows);
  LayoutJob job = job_of(row, inputs);
  const ParallelLayout layout = row_layout(row);
  if (row.error()) return decline(*row.error());
  PERFMODEL_TRY(pricer, pricers.of(row));
  if (job.software.empty()) {
    job.software = nearest_software((*pricer)->gpu, job, layout);
    ++taken[job.software];
  }
  return (*pricer)->pricer.predict(job, layout);
}

// A count that is not there is 1, as anybody would think; of a flag that is less plain.
void warn_of_flags(const CsvFile& rows, const TakeWarning& warn) {
  std::vector<std::string_view> missing;
  for (const char* name : {"gated", "tied", "sequence_parallel"}) {
    if (rows.column(name) < 0) missing.push_back(name);
  }
  if (missing.empty()) return;
  warn(fmt::format("the table has no column {}: taken as 1", fmt::join(missing, ", ")));
}

void warn_of_software(const std::map<std::string, std::size_t>& taken, const TakeWarning& warn) {
  if (taken.empty()) return;
  std::vector<std::string> parts;
  for (const auto& [name, rows] : taken) parts.push_back(fmt::format("{} ({} rows)", name, rows));
  warn(
      fmt::format("neither --software nor a column software says whose program ran the rows: "
                  "taken are the costs of {}",
                  fmt::join(parts, ", ")));
}

bool is_given(const LayoutInputs& inputs, const LayoutField& field) {
  const auto is_set = [](const auto& value) {
    return value != std::remove_cvref_t<decltype(value)>{};
  };
  const auto in_list = [&](auto list) {
    if constexpr (std::is_same_v<decltype(list), std::monostate>) {
      return false;
    } else {
      return is_set(inputs.lists.*list);
    }
  };
  return std::visit(in_list, field.list) ||
         std::visit([&](auto member) { return is_set(inputs.*member); }, field.member);
}

std::size_t row_count(const std::string& file) {
  auto rows = CsvFile::open(file);
  std::size_t count = 0;
  while (rows && rows->next()) ++count;
  return count;
}

}  // namespace

Result<void> refuse_row_fields(const LayoutInputs& inputs) {
  std::string flag;
  for (const LayoutField& field : layout_fields()) {
    if (flag.empty() && field.is_of_row && is_given(inputs, field)) flag = flag_of(field.name);
  }
  if (flag.empty() && inputs.searched_stages) flag = "--stages searched";
  if (flag.empty() && !inputs.measured_layout.empty()) flag = "--measured-layout";
  if (flag.empty()) return {};
  return decline(fmt::format(
      "expected models and layouts in the table's columns, found {} with --table", flag));
}

Result<std::string> price_layout_rows(const Predictor& predictor, const LayoutInputs& inputs,
                                      const std::string& table, const LayoutRunHooks& hooks) {
  PERFMODEL_TRY(rows, CsvFile::open(table));
  if (inputs.machine.gpu.empty() && rows->column("gpu") < 0) {
    return decline("expected --gpu or a column gpu in the table, found none");
  }
  if (rows->column("model") < 0 && rows->column("layers") < 0) {
    return Unexpected{
        rows->missing_column("layers", " (or model: each row is a model with its layout)")};
  }
  warn_of_flags(*rows, hooks.warn);
  // Columns of an earlier answer give way.
  std::vector<int> kept;
  std::string text;
  for (std::size_t i = 0; i < rows->columns().size(); ++i) {
    const std::string& name = rows->columns()[i];
    if (std::ranges::find(kAnswerColumns, name) != std::end(kAnswerColumns)) {
      continue;
    }
    text += fmt::format("{}{}", kept.empty() ? "" : ",", csv_cell(name));
    kept.push_back(static_cast<int>(i));
  }
  for (const std::string_view name : kAnswerColumns) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", name);
  }
  text += '\n';
  TablePricers pricers(predictor, inputs, hooks.warn);
  std::map<std::string, std::size_t> taken;
  const std::size_t count = row_count(table);
  hooks.progress(0, count);
  for (std::size_t done = 1; rows->next(); ++done) {
    if (hooks.is_stopped()) {
      hooks.warn("stopped: the rows after this are left out");
      break;
    }
    std::string line;
    for (int column : kept) {
      line += fmt::format("{}{}", column == kept.front() ? "" : ",", csv_cell(rows->cell(column)));
    }
    text += line + answer_cells(priced_row(*rows, inputs, pricers, taken)) + '\n';
    hooks.progress(done, count);
  }
  if (rows->error()) return Unexpected{*rows->error()};
  warn_of_software(taken, hooks.warn);
  return text;
}

namespace {

// Null if empty, a number if it is one, else a text.
OrderedJson json_of_cell(std::string_view cell) {
  if (cell.empty()) return nullptr;
  if (std::int64_t whole = 0; read_decimal(cell, whole)) return whole;
  const auto number = parse_double(cell);
  return number && std::isfinite(*number) ? OrderedJson(*number) : OrderedJson(std::string(cell));
}

}  // namespace

Result<OrderedJson> layout_rows_json(const std::string& priced_rows) {
  PERFMODEL_TRY(table, CsvFile::of_text("", priced_rows));
  OrderedJson rows = OrderedJson::array();
  while (table->next()) {
    OrderedJson row = OrderedJson::object();
    for (std::size_t i = 0; i < table->columns().size(); ++i) {
      row[table->columns()[i]] = json_of_cell(table->cell(static_cast<int>(i)));
    }
    rows.push_back(std::move(row));
  }
  if (table->error()) return Unexpected{*table->error()};
  return OrderedJson{{"rows", std::move(rows)}};
}

}  // namespace perfmodel
