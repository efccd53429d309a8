#pragma once

#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "json/csv_file.hpp"
#include "perfmodel/predictors/kernel.hpp"
#include "perfmodel/predictors/topology.hpp"

namespace perfmodel {

/// One kernel of a table: a question, or a measurement.
struct KernelRow {
  std::string id;  ///< the `id` column, else the 1-based row number
  int gpu = -1;    ///< index into `KernelTable::gpus`; -1: the row names none
  int op = -1;     ///< index into `KernelTable::ops`
  KernelWork work;
  double measured_us = std::numeric_limits<double>::quiet_NaN();
  int line = 0;               ///< 1-based, in the inflated text
  bool is_llm_shape = false;  ///< NeuSight's `shape_set` = llm
  bool paper_train = false;   ///< NeuSight's `paper_train` = 1
  bool is_l2_warm = false;    ///< `l2_warm` = 1: operands were in L2 on purpose; not fitted
  /// Rows of operator graphs (else 0, empty): how often the node runs; its stage; rows of one node
  /// that are one fused kernel share a positive `fused_group` (the first carries the whole work).
  double repeat = 1;
  int graph = -1;  ///< index into `KernelTable::graphs`
  int node_index = -1;
  std::string stage;
  int fused_group = 0;
  bool is_free = false;       ///< a fused row whose work the first row of its group carries
  double transfer_bytes = 0;  ///< collectives and send/recv of operator graphs: buffer size
  std::optional<NetworkFacts> network = {};  ///< set if a collective's row tells any
};

/// A table in columns of any `README.md` of the public data, or of our own measurements.
struct KernelTable {
  std::filesystem::path file;
  std::vector<Gpu> gpus;  ///< named by the rows, found in the GPU folder
  std::vector<std::string> ops;
  std::vector<std::string> graphs;
  std::vector<KernelRow> rows;
  std::vector<std::string> warnings;
  /// False if a comment before the header says that times are the device's alone:
  /// "# timing: ... no launch cost".
  bool has_launch_cost = true;
};

struct KernelTableOptions {
  std::filesystem::path gpu_folder = {};  ///< data/gpus
  std::string gpu = {};                   ///< wins over a `device` or `gpu` column (with a warning)
  std::string op = {};                    ///< where no column tells
  std::string dtype = {};                 ///< where no column tells
  bool needs_time = false;                ///< a missing or empty `time_us` is an error
};

/// Reads `.csv` or `.csv.gz`. `op` comes from its column, else from the options, else from the
/// columns present; `dtype` from `dtype` or `precision`. Errors name the file, line and column: a
/// column that is missing, NaN, a negative or zero size, an unknown op, dtype or GPU (with near
/// names), a file without rows.
Result<KernelTable> read_kernel_table(const std::filesystem::path& file,
                                      const KernelTableOptions& options);

/// All tables of these files and folders. The tables of a folder are its `.csv` and `.csv.gz` files
/// by name, except `peaks`, which holds no kernels. Errors: a folder without tables, or with one of
/// them twice.
Result<std::vector<KernelTable>> read_kernel_tables(const std::vector<std::string>& paths,
                                                    const KernelTableOptions& options);

/// One table in blocks of rows, for tables that need not be in memory as a whole: one thread
/// at a time takes the text of the next rows, and any number of threads, each with a reader of its
/// own, make rows of it. Rows and errors are as in `read_kernel_table`, but a table without rows is
/// no error. An operator graph is one block: the rows of a fused node need each other.
class KernelTableBlocks {
 public:
  static Result<KernelTableBlocks> open(const std::filesystem::path& file,
                                        const KernelTableOptions& options);

  /// The next rows; false at the end. Errors: see `CsvBlocks`.
  Result<bool> next(CsvBlock& block);

  class Reader {
   public:
    Reader(Reader&&) noexcept;
    Reader& operator=(Reader&&) noexcept;
    ~Reader();

    /// Puts the rows of the block in the place of those that `table` has. The answer is the first
    /// error; the rows before it are there.
    std::optional<Error> read(CsvBlock& block);

    /// GPUs and ops of all blocks that this reader has read, in the order of their first rows.
    KernelTable& table();

   private:
    friend class KernelTableBlocks;
    struct State;
    explicit Reader(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
  };
  Result<Reader> reader() const;

 private:
  KernelTableBlocks(CsvBlocks blocks, KernelTableOptions options);

  CsvBlocks blocks_;
  KernelTableOptions options_;
  std::size_t rows_per_block_;
};

/// The work of a row that names no GPU, on this one: its library may use matrix units for matrix
/// products in the row's type.
KernelWork for_gpu(KernelWork work, const Gpu& gpu);

}  // namespace perfmodel
