#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "fields/result_field.hpp"
#include "layout/measured_steps.hpp"
#include "perfmodel/predictor.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Callbacks of a long run over layouts: its messages and questions while it lasts.
struct LayoutRunHooks {
  TakeWarning warn;
  std::function<bool()> is_stopped;  ///< it ends with what it has
  std::function<void(std::size_t done, std::size_t all)> progress;
};

/// Errors: a field that the rows' columns stand for, as it would be ignored.
Result<void> refuse_row_fields(const LayoutInputs& inputs);

/// Prices every row of a table; its CSV has the table's columns and then the columns of the
/// answers.
///
/// Columns of the rows: layers, hidden, heads, kv_heads, feed_forward, gated, vocabulary, tied,
/// sequence, global_batch, gpus, dp, tp, pp, vp, cp, ep, zero, micro_batch, recompute,
/// sequence_parallel, precision, schedule; gpu, topology and software too, where the inputs leave
/// them out. Missing columns and empty cells mean 1, none, bf16, no ZeRO; of kv_heads as many as
/// heads, of dp what is left of gpus. Other columns are kept. A row that cannot be read or priced
/// gets its reason in `error`.
///
/// Errors: a table that cannot be read or has neither models nor layers, a GPU that no row names.
Result<std::string> price_layout_rows(const Predictor& predictor, const LayoutInputs& inputs,
                                      const std::string& table, const LayoutRunHooks& hooks);

/// The same as members of a JSON document: `rows`, each an object by column of numbers, texts and
/// null for empty cells.
Result<OrderedJson> layout_rows_json(const std::string& priced_rows);

}  // namespace perfmodel
