#include "row_cells.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace perfmodel::table {
namespace {

struct ColumnSpec {
  Column column;
  std::array<std::string_view, 3> names;  // the first is the one that errors ask for
};
constexpr ColumnSpec kColumns[] = {
    {kId, {"id"}},
    {kDevice, {"device", "gpu"}},
    {kOp, {"op"}},
    {kType, {"dtype", "precision"}},
    {kTime, {"time_us"}},
    {kTimeMs, {"ms"}},
    {kLayout, {"layout"}},
    {kTransA, {"trans_a"}},
    {kTransB, {"trans_b"}},
    {kB, {"b"}},
    {kM, {"m"}},
    {kN, {"n"}},
    {kK, {"k"}},
    {kC, {"c"}},
    {kH, {"h"}},
    {kW, {"w"}},
    {kR, {"r"}},
    {kS, {"s"}},
    {kPadH, {"pad_h"}},
    {kPadW, {"pad_w"}},
    {kStrideH, {"stride_h"}},
    {kStrideW, {"stride_w"}},
    {kGroups, {"groups"}},
    {kBatch, {"batch"}},
    {kChannelsIn, {"c_in"}},
    {kChannelsOut, {"c_out"}},
    {kFilter, {"ksize"}},
    {kImage, {"hw"}},
    {kStride, {"stride"}},
    {kPad, {"pad"}},
    {kDirection, {"direction", "pass"}},
    {kCell, {"cell"}},
    {kHidden, {"hidden"}},
    {kTimesteps, {"timesteps"}},
    {kRows, {"rows", "num_rows"}},
    {kCols, {"cols"}},
    {kInputs, {"n_inputs"}},
    {kElements, {"elements", "parameters"}},
    {kFeatures, {"features"}},
    {kTables, {"tables", "num_tables"}},
    {kDim, {"dim"}},
    {kBags, {"bags_total"}},
    {kPooling, {"pooling", "pooling_factor"}},
    {kIndexBytes, {"index_bytes"}},
    {kOutputType, {"output_dtype"}},
    {kOptimizer, {"optimizer"}},
    {kBytes, {"bytes"}},
    {kCopyKind, {"copy_kind"}},
    {kPinned, {"pinned"}},
    {kHeads, {"heads"}},
    {kKvHeads, {"kv_heads"}},
    {kSeqQ, {"seq_q", "seq"}},
    {kSeqK, {"seq_k"}},
    {kHeadDim, {"head_dim"}},
    {kCausal, {"causal"}},
    {kMethod, {"method"}},
    {kWritesCache, {"kv_write"}},
    {kKernel, {"kernel"}},  // ops without a choice ignore the name
    {kWorldSize, {"world_size"}},
    {kNodes, {"nodes"}},
    {kGpusPerNode, {"gpus_per_node"}},
    {kNics, {"nics"}},
    {kNicRate, {"nic_gb_per_s"}},
    {kNetwork, {"network"}},
    {kShapeSet, {"shape_set"}},
    {kPaperTrain, {"paper_train"}},
    {kGraph, {"graph"}},
    {kNodeIndex, {"node_idx"}},
    {kStage, {"stage"}},
    {kFused, {"fused"}},
    {kRepeat, {"repeat"}},
    {kInElements, {"in_elems"}},
    {kOutElements, {"out_elems"}},
    {kStrided, {"strided"}},
    {kZipf, {"zipf"}},
    {kRowBytes, {"row_bytes"}},
    {kTableRows, {"table_rows"}},
    {kWarm, {"l2_warm"}},
    {kScaling, {"scaling"}},
    {kQuantizes, {"quantizes"}},
    {kTokens, {"tokens"}},
    {kInter, {"inter"}},
    {kTopk, {"topk"}},
    {kExperts, {"experts"}},
    {kShards, {"tp"}},
    {kDistribution, {"distribution"}},
    {kImbalance, {"imbalance"}},
    {kKHeads, {"k_heads"}},
    {kKDim, {"k_dim"}},
    {kVHeads, {"v_heads"}},
    {kVDim, {"v_dim"}},
    {kTaps, {"d_conv"}},
    {kScheme, {"scheme"}},
    {kName, {"name"}},
    {kLibrary, {"library"}},
    {kMemoryFormat, {"memory_format"}},
};
static_assert(std::size(kColumns) == kColumnCount);

std::string_view column_name(Column column) {
  return std::ranges::find(kColumns, column, &ColumnSpec::column)->names[0];
}

}  // namespace

std::int64_t short_count(std::string_view text) {
  constexpr std::size_t kMostDigits = 15;
  if (text.size() > kMostDigits) return 0;
  std::int64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return 0;
    value = 10 * value + (c - '0');
  }
  return value;
}

RowCells::RowCells(CsvFile file) : csv_(std::move(file)) {
  columns_.fill(-1);
  for (const ColumnSpec& spec : kColumns) {
    int& at = columns_[spec.column];
    for (const std::string_view name : spec.names) {
      const int found = name.empty() ? -1 : csv_.column(name);
      if (at >= 0 && found >= 0) choices_.push_back({spec.column, at, found});
      if (at < 0) at = found;
    }
  }
}

// Rows of several sources name a size in either column.
bool RowCells::next() {
  if (!csv_.next()) return false;
  for (const auto [column, first, second] : choices_) {
    columns_[column] = csv_.cell(first).empty() ? second : first;
  }
  return true;
}

void RowCells::reject(Column column, std::string_view wanted) {
  if (!has(column)) return missing(column_name(column));
  note(csv_.expected(columns_[column], wanted));
}

void RowCells::reject_unknown(Column column, std::string_view wanted) {
  if (!has(column)) return missing(column_name(column));
  Error error = csv_.expected(columns_[column], wanted);
  error.code = ErrorCode::kUnknownName;
  note(std::move(error));
}

void RowCells::refuse(Column column, const std::string& what) {
  Error error = has(column) ? csv_.at_cell(columns_[column], "expected " + what)
                            : Error{.message = "expected " + what,
                                    .file = csv_.path(),
                                    .json_pointer = std::string(column_name(column)),
                                    .line = csv_.line(),
                                    .column = 1};
  error.code = ErrorCode::kImpossible;
  note(std::move(error));
}

void RowCells::reject_gpu(const Error& problem) {
  // Errors of GPU files are kept as they are.
  if (problem.code != ErrorCode::kUnknownName) return note(problem);
  Error error = csv_.at_cell(columns_[kDevice], problem.message);
  error.code = problem.code;
  note(std::move(error));
}

void RowCells::missing_column(std::string_view name, std::string_view why) {
  note(csv_.missing_column(name, why));
}

void RowCells::missing(std::string_view name) {
  missing_column(name, " for op " + std::string(op_.empty() ? "names" : op_));
}

std::int64_t RowCells::long_count(Column column) {
  const auto value = parse_count(text(column));
  if (!value) reject(column, "an integer above 0");
  return value.value_or(1);
}

std::int64_t RowCells::size_or_zero(Column column) {
  if (!given(column) || text(column) == "0") return 0;
  const auto value = parse_count(text(column));
  if (!value) reject(column, "an integer of at least 0");
  return value.value_or(0);
}

double RowCells::positive(Column column) {
  const auto value = parse_double(text(column));
  const bool good = value && *value > 0 && std::isfinite(*value);
  if (!good) reject(column, "a number above 0");
  return good ? *value : 1;
}

double RowCells::at_least_zero(Column column) {
  const auto value = parse_double(text(column));
  const bool good = value && *value >= 0 && std::isfinite(*value);
  if (!good) reject(column, "a number of at least 0");
  return good ? *value : 0;
}

bool RowCells::flag(Column column) {
  const std::string_view value = text(column);
  if (value == "1" || value == "true") return true;
  if (!value.empty() && value != "0" && value != "false") reject(column, "0 or 1");
  return false;
}

double RowCells::elements() {
  if (given(kElements)) return positive(kElements);
  const auto rows = static_cast<double>(count(kRows));  // first: its error is the one that stays
  return rows * static_cast<double>(count(kCols));
}

}  // namespace perfmodel::table
