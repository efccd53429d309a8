#pragma once

#include <string>

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

}  // namespace perfmodel::cli
