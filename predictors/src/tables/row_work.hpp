#pragma once

#include <string_view>

#include "names.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/predictors/kernel.hpp"
#include "row_cells.hpp"

namespace perfmodel::table {

/// What is known of the row at hand before its sizes are read.
struct TableRow {
  const OpSpec& op;
  const TypeSpec& type;
  const Gpu* gpu = nullptr;     ///< nullptr: the row names none
  bool is_graph_table = false;  ///< of operator graphs: a node each, with what it reads and writes
  std::string_view stage = {};  ///< of the node: fw, bw, acc
};

/// The kernel that the row's cells describe. Where `cells.error()` is set, it means nothing.
KernelWork row_work(RowCells& cells, const TableRow& row);

}  // namespace perfmodel::table
