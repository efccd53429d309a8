#pragma once

#include <string_view>

#include "names.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/predictors/kernel.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "row_cells.hpp"

namespace perfmodel::table {

/// Facts of the current row that are known before its sizes are read.
struct TableRow {
  const OpSpec& op;
  const TypeSpec& type;
  const Gpu* gpu = nullptr;     ///< nullptr: the row names none
  bool is_graph_table = false;  ///< a row is an operator graph's node with its bytes
  std::string_view stage = {};  ///< the node's: fw, bw, acc
};

/// Sets the kernel that the row's cells describe. Where `cells.error()` is set, it means nothing.
void read_row_work(RowCells& cells, const TableRow& row, KernelWork& work);

/// Reads the facts of the machine that a collective's row gives.
NetworkFacts row_network(RowCells& cells);

}  // namespace perfmodel::table
