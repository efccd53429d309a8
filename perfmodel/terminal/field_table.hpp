#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "fields/result_field.hpp"
#include "text_table.hpp"

namespace perfmodel::cli {

/// The first `most` results as rows; columns are the named fields, headed by their titles. `title`:
/// heads the first column instead.
template <class Rows, class Result>
TextTable field_table(const Rows& rows, const ResultFields<Result>& fields,
                      const std::vector<std::string_view>& names, std::string_view title = {},
                      std::size_t most = std::numeric_limits<std::size_t>::max()) {
  const auto columns = named_fields(fields, names);
  std::vector<std::string> cells;
  for (const auto& column : columns) cells.emplace_back(column.title);
  if (!title.empty()) cells.front() = title;
  TextTable table(cells);
  for (std::size_t i = 0; i < std::min(most, rows.size()); ++i) {
    cells.clear();
    for (const auto& column : columns) cells.push_back(column.text(rows[i]));
    table.row(cells);
  }
  return table;
}

}  // namespace perfmodel::cli
