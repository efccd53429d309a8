#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "json/csv_file.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::table {

enum Column : std::uint8_t {
  kId,
  kDevice,
  kOp,
  kType,
  kTime,
  kTimeMs,
  kLayout,
  kTransA,
  kTransB,
  kB,
  kM,
  kN,
  kK,
  kC,
  kH,
  kW,
  kR,
  kS,
  kPadH,
  kPadW,
  kStrideH,
  kStrideW,
  kGroups,
  kBatch,
  kChannelsIn,
  kChannelsOut,
  kFilter,
  kImage,
  kStride,
  kPad,
  kDirection,
  kCell,
  kHidden,
  kTimesteps,
  kRows,
  kCols,
  kInputs,
  kElements,
  kFeatures,
  kTables,
  kDim,
  kBags,
  kPooling,
  kIndexBytes,
  kOutputType,
  kOptimizer,
  kBytes,
  kCopyKind,
  kPinned,
  kHeads,
  kKvHeads,
  kSeqQ,
  kSeqK,
  kHeadDim,
  kCausal,
  kMethod,
  kWritesCache,
  kKernel,
  kWorldSize,
  kShapeSet,
  kPaperTrain,
  kGraph,
  kNodeIndex,
  kStage,
  kFused,
  kRepeat,
  kInElements,
  kOutElements,
  kStrided,
  kZipf,
  kRowBytes,
  kTableRows,
  kWarm,
  kScaling,
  kQuantizes,
  kTokens,
  kInter,
  kTopk,
  kExperts,
  kShards,
  kDistribution,
  kImbalance,
  kKHeads,
  kKDim,
  kVHeads,
  kVDim,
  kTaps,
  kScheme,
  kName,
  kLibrary,
  kMemoryFormat,
  kNodes,
  kGpusPerNode,
  kNics,
  kNicRate,
  kNetwork,
  kColumnCount
};

/// Reads a count of at most 15 digits; 0 for any other text, which `parse_count` judges.
std::int64_t short_count(std::string_view text);

/// The cells of a table's current row as sizes, numbers and flags. The first faulty cell sets the
/// row's error and reads as a harmless value: callers check `error()` at the end of a row. Cells of
/// a missing column are empty.
class RowCells {
 public:
  explicit RowCells(CsvFile file);

  const CsvFile& csv() const { return csv_; }
  bool next();  ///< see `CsvFile`
  void go_on(CsvBlock& block) { csv_.go_on(block); }
  const std::optional<Error>& error() const { return error_; }

  bool has(Column column) const { return columns_[column] >= 0; }
  std::string_view text(Column column) const { return csv_.cell(columns_[column]); }
  bool given(Column column) const { return !text(column).empty(); }

  std::int64_t count(Column column) {  ///< 1 or more
    const std::int64_t value = short_count(text(column));
    return value > 0 ? value : long_count(column);
  }
  std::int64_t count_or(Column column, std::int64_t fallback) {
    return given(column) ? count(column) : fallback;
  }
  std::int64_t size_or_zero(Column column);  ///< 0 or more, 0 where the cell is empty: paddings
  double positive(Column column);
  double at_least_zero(Column column);
  bool flag(Column column);
  double elements();  ///< from the column of this name, else rows x columns

  void set_op(std::string_view name) { op_ = name; }  ///< for errors about columns that it needs

  void reject(Column column, std::string_view wanted);  ///< "expected <wanted>, found <the cell>"
  void reject_unknown(Column column, std::string_view wanted);  ///< the same of a name
  /// "expected <what>" for a row; the table may lack the column.
  void refuse(Column column, const std::string& what);
  void reject_gpu(const Error& problem);  ///< a GPU that is not known, or a file of it
  void missing_column(std::string_view name, std::string_view why);

 private:
  std::int64_t long_count(Column column);  ///< 1 or more; judges any text
  void missing(std::string_view name);
  void note(Error error) {
    if (!error_) error_ = std::move(error);
  }

  CsvFile csv_;
  std::array<int, kColumnCount> columns_{};  // positions in the file, -1: none
  struct Choice {
    Column column;
    int first, second;
  };
  std::vector<Choice> choices_;  // columns that the file has under two names
  std::string_view op_;
  std::optional<Error> error_;
};

}  // namespace perfmodel::table
