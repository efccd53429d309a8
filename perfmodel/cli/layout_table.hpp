#pragma once

#include <string>
#include <vector>

#include "json/csv_file.hpp"
#include "layout_arguments.hpp"
#include "perfmodel/predictor.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::cli {

/// Prices every row of a table and writes it with the columns of the answers behind its own.
///
/// Columns of the rows: layers, hidden, heads, kv_heads, feed_forward, gated, vocabulary, tied,
/// sequence, global_batch, gpus, dp, tp, pp, vp, cp, ep, zero, micro_batch, recompute,
/// sequence_parallel, precision, schedule; gpu, topology and software too, where the flags leave
/// them out. Missing columns and empty cells mean 1, none, bf16, no ZeRO; of kv_heads as many as
/// heads, of dp what is left of gpus. Other columns are kept. A row that cannot be read or priced
/// gets its reason in `error`.
///
/// Errors: a table that cannot be read, a GPU that no row names.
Result<void> price_layout_table(const Predictor& predictor, const LayoutArguments& arguments,
                                const std::string& table, const std::string& output);

/// Rows of steps that somebody measured: the columns above, `schedule`, and what was measured,
/// `step_ms` or `tokens_per_s_per_gpu`; `compute_ms` may say what of it kernels took that are no
/// collectives. Rows without a time are left out. Where the table has no column `layers`, its rows
/// are of the job that is asked about. Errors: at the row's line, what `price_layout_table` writes
/// into `error`; a table without times.
Result<std::vector<MeasuredStep>> read_measured_rows(CsvFile rows, const LayoutArguments& arguments,
                                                     const LayoutJob* asked, const Gpu& gpu);

/// The same steps as such a table.
struct MeasuredTable {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};
MeasuredTable measured_table(const std::vector<MeasuredStep>& steps);

}  // namespace perfmodel::cli
