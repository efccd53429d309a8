#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fields/result_field.hpp"
#include "perfmodel/detail/choose_kernel_models.hpp"
#include "perfmodel/predictors/kernel.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "perfmodel/result.hpp"
#include "tables/kernel_table.hpp"

namespace perfmodel {

/// Where prices go. Threads make the text of their blocks side by side; it is written in the order
/// of the rows, one block at a time.
struct PriceSink {
  /// Adds rows with their prices to the text of their block.
  std::function<void(const KernelTable& rows, std::span<const Price> prices, std::string& text)>
      format;
  /// Takes a block's text, which is not empty. An error ends the work.
  std::function<Result<void>(std::string_view text)> write;
  /// Changes what the models say of a kernel, where there is one; side by side, too.
  std::function<void(const KernelWork& work, const Gpu& gpu, Price& price)> change = {};
  std::optional<Topology> topology = {};  ///< for collectives; none: the GPU's usual one
};

struct PricedTable {
  std::size_t rows = 0, outside = 0;  ///< all, and those out of the range of their model
  std::vector<Gpu> gpus;              ///< in the order of their first rows
  std::vector<std::string> ops;
  std::vector<std::string> warnings;  ///< about the table
};

/// Prices a table of kernels block by block (`KernelTableBlocks`) on `threads` threads, 0: one per
/// CPU. Memory does not grow with the rows, except for operator graphs. Rows of fused nodes after
/// the first have an empty price (`KernelRow::is_free`).
///
/// Errors, the first in the order of the rows, after all earlier blocks were written: as
/// `read_kernel_table` and `write`; a row without a GPU; sizes without a finite time.
Result<PricedTable> price_kernel_table(const std::filesystem::path& file,
                                       const KernelTableOptions& options,
                                       const KernelModels& models, const PriceSink& sink,
                                       std::size_t threads = 0);

/// `id,time_us,model,bound,in_range,low_us,high_us,knowledge`, a line per row. Times in nanoseconds
/// (three decimals); those below 1 us in four digits, so that none becomes 0.
inline constexpr std::string_view kPricesHeader =
    "id,time_us,model,bound,in_range,low_us,high_us,knowledge\n";
void append_prices(const KernelTable& rows, std::span<const Price> prices, std::string& text);

/// A table of kernels to be priced, and defaults for its rows.
struct KernelsQuestion {
  std::string queries, gpu, op, dtype, models = "learned";
  std::string topology;  ///< for collectives, a name or a file; empty: the GPU's usual one
  bool burst = false, sustained = false;

  /// Whether the board's power limit counts. The roofline ignores it unless asked.
  bool holds_power() const { return sustained || (!burst && models != "roofline"); }
};

/// Prices the table with `models`, as the question names them, under the power limit if it counts.
/// `data`: the data folder. Fails if `price_kernel_table` fails or a model cannot be read.
Result<PricedTable> price_kernels(const KernelsQuestion& question,
                                  const std::filesystem::path& data,
                                  const ChosenKernelModels& models, PriceSink sink);

/// The keys of the document above the prices.
OrderedJson kernels_json(const KernelsQuestion& question, const PricedTable& priced);

/// The rows' objects in the list `kernels` of the document, with the blanks that they have there.
/// In front of each block is ",\n", which the document leaves out in front of the first.
void append_price_json(const KernelTable& rows, std::span<const Price> prices, std::string& text);

}  // namespace perfmodel
