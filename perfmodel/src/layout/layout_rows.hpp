#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "json/csv_file.hpp"
#include "layout_inputs.hpp"
#include "perfmodel/layout.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// One row of a table of layouts as a question.
class LayoutRowReader {
 public:
  explicit LayoutRowReader(const CsvFile& rows) : rows_(rows) {}

  std::string_view text(std::string_view column) const { return rows_.cell(rows_.column(column)); }

  std::int64_t count(std::string_view column, std::optional<std::int64_t> otherwise) {
    const std::string_view cell = text(column);
    if (cell.empty()) {
      if (!otherwise) refuse(fmt::format("{}: expected a whole number, found none", column));
      return otherwise.value_or(1);
    }
    const auto value = parse_count(cell);
    if (!value) {
      refuse(fmt::format("{}: expected a whole number of at least 1, found \"{}\"", column, cell));
    }
    return value.value_or(1);
  }

  bool flag(std::string_view column) {
    std::string cell(text(column));
    std::ranges::transform(cell, cell.begin(), [](unsigned char c) { return std::tolower(c); });
    if (cell.empty() || cell == "1" || cell == "true" || cell == "1.0") return true;
    if (cell == "0" || cell == "false" || cell == "0.0") return false;
    refuse(fmt::format("{}: expected 0 or 1, found \"{}\"", column, cell));
    return false;
  }

  template <class Parse>
  auto name(std::string_view column, std::string_view otherwise, Parse parse) {
    std::string_view cell = text(column);
    if (cell.ends_with(".0")) cell.remove_suffix(2);  // 1.0 of programs that hold numbers alone
    const auto value = parse(cell.empty() ? otherwise : cell);
    if (!value) refuse(value.error().message);
    using Value = typename std::decay_t<decltype(value)>::value_type;
    return value ? *value : Value{};
  }

  /// The first thing that is wrong.
  const std::optional<std::string>& error() const { return error_; }
  void refuse(std::string why) {
    if (!error_) error_ = std::move(why);
  }

 private:
  const CsvFile& rows_;
  std::optional<std::string> error_;
};

ParallelLayout row_layout(LayoutRowReader& row);

/// Flags stand for what the row leaves out. `model`: of a table that has none.
LayoutJob job_of(LayoutRowReader& row, const LayoutInputs& inputs,
                 const DecoderModel* model = nullptr);

/// Rows of steps that somebody measured: the columns of `price_layout_table` and what was measured,
/// `step_ms` or `tokens_per_s_per_gpu`; `compute_ms` may say what of it kernels took that are no
/// collectives. Rows without a time are left out. If the table has no column `layers`, its rows are
/// of the job in question. Errors: at the row's line, what `price_layout_table` writes into
/// `error`; a table without times.
Result<std::vector<MeasuredStep>> read_measured_rows(CsvFile rows, const LayoutInputs& inputs,
                                                     const LayoutJob* asked, const Gpu& gpu);

/// The same steps as such a table.
struct MeasuredTable {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};
MeasuredTable measured_table(const std::vector<MeasuredStep>& steps);

}  // namespace perfmodel
