#include "perfmodel/predictors/kernel_table.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <unordered_map>

#include "csv_file.hpp"
#include "json_file.hpp"
#include "known_gpu.hpp"
#include "perfmodel/graph/plain_text.hpp"
#include "perfmodel/predictors/kernel_work.hpp"

namespace perfmodel {
namespace {

// ------------------------------------------------------------------------------------------- names

enum class Kind : std::uint8_t {
  kGemm,
  kLinear,
  kConvolution,
  kElementwise,
  kReduction,
  kSoftmax,
  kLayerNorm,
  kBatchNorm,
  kDropout,
  kTranspose,
  kConcat,
  kGather,
  kScatterAdd,
  kTril,
  kMove,
  kCopy,
  kStridedCopy,
  kSet,
  kEmbeddingForward,
  kEmbeddingBackward,
  kAttention,
  kRecurrent,
  kRecurrentCell,
  kOptimizer,
  kCollective,
};

struct OpSpec {
  std::string_view name;
  Kind kind;
  double flop = 0, inputs = 0;       // elementwise: per element, and tensors where no column tells
  std::string_view collective = {};  // its name in `CollectiveShape`
};

// Names of the public tables, of PyTorch and our own. Those that end in `u` combine a tensor with
// a number.
constexpr OpSpec kOps[] = {
    {"gemm", Kind::kGemm},
    {"bmm", Kind::kGemm},
    {"mm", Kind::kGemm},
    {"matmul", Kind::kGemm},
    {"linear", Kind::kLinear},
    {"addmm", Kind::kLinear},
    {"conv2d", Kind::kConvolution},
    {"conv", Kind::kConvolution},
    {"convolution", Kind::kConvolution},
    {"add", Kind::kElementwise, 1, 2},
    {"sub", Kind::kElementwise, 1, 2},
    {"mul", Kind::kElementwise, 1, 2},
    {"div", Kind::kElementwise, 1, 2},
    {"pow", Kind::kElementwise, 80, 2},
    {"addu", Kind::kElementwise, 1, 1},
    {"subu", Kind::kElementwise, 1, 1},
    {"mulu", Kind::kElementwise, 1, 1},
    {"divu", Kind::kElementwise, 1, 1},
    {"powu", Kind::kElementwise, 20, 1},
    {"relu", Kind::kElementwise, 1, 1},
    {"gelu", Kind::kElementwise, 20, 1},
    {"tanh", Kind::kElementwise, 20, 1},
    {"sigmoid", Kind::kElementwise, 20, 1},
    {"silu", Kind::kElementwise, 20, 1},
    {"exp", Kind::kElementwise, 20, 1},
    {"elementwise", Kind::kElementwise, 1, 1},
    {"reduction", Kind::kReduction},
    {"reduce", Kind::kReduction},
    {"sum", Kind::kReduction},
    {"max", Kind::kReduction},
    {"mean", Kind::kReduction},
    {"softmax", Kind::kSoftmax},
    {"ln", Kind::kLayerNorm},
    {"layernorm", Kind::kLayerNorm},
    {"layer_norm", Kind::kLayerNorm},
    {"batchnorm", Kind::kBatchNorm},
    {"batch_norm", Kind::kBatchNorm},
    {"dropout", Kind::kDropout},
    {"transpose", Kind::kTranspose},
    {"concat", Kind::kConcat},
    {"cat", Kind::kConcat},
    {"gather", Kind::kGather},
    {"index_select", Kind::kGather},
    {"scatter_add", Kind::kScatterAdd},
    {"tril", Kind::kTril},
    {"interaction", Kind::kTril},
    {"mem", Kind::kMove},
    {"memcpy", Kind::kCopy},
    {"copy", Kind::kCopy},
    {"strided_copy", Kind::kStridedCopy},
    {"memset", Kind::kSet},
    {"embedding", Kind::kEmbeddingForward},
    {"embedding_bag", Kind::kEmbeddingForward},
    {"embedding_forward", Kind::kEmbeddingForward},
    {"tbe_forward", Kind::kEmbeddingForward},
    {"embedding_backward", Kind::kEmbeddingBackward},
    {"tbe_backward", Kind::kEmbeddingBackward},
    {"attention", Kind::kAttention},
    {"rnn", Kind::kRecurrent},
    {"lstm", Kind::kRecurrent},
    {"gru", Kind::kRecurrent},
    {"rnn_cell", Kind::kRecurrentCell},
    {"lstm_cell", Kind::kRecurrentCell},
    {"gru_cell", Kind::kRecurrentCell},
    {"optimizer", Kind::kOptimizer},
    {"sgd", Kind::kOptimizer},
    {"momentum", Kind::kOptimizer},
    {"adagrad", Kind::kOptimizer},
    {"rowwise_adagrad", Kind::kOptimizer},
    {"adam", Kind::kOptimizer},
    {"allreduce", Kind::kCollective, 0, 0, "all_reduce"},
    {"allreduce_async", Kind::kCollective, 0, 0, "all_reduce"},
    {"all_reduce", Kind::kCollective, 0, 0, "all_reduce"},
    {"all_gather", Kind::kCollective, 0, 0, "all_gather"},
    {"reduce_scatter", Kind::kCollective, 0, 0, "reduce_scatter"},
    {"all_to_all", Kind::kCollective, 0, 0, "all_to_all"},
    {"broadcast", Kind::kCollective, 0, 0, "broadcast"},
    {"sendrecv", Kind::kCollective, 0, 0, "send"},
};

/// What a `dtype` or `precision` cell says.
struct TypeSpec {
  std::string_view name;
  DType storage;  // of the tensors
  DType arithmetic;
  enum class Units : std::uint8_t { kAsPyTorch, kVector, kMatrix } units = Units::kAsPyTorch;
};
constexpr TypeSpec kTypes[] = {
    {"fp32", DType::kFloat32, DType::kFloat32},
    {"float32", DType::kFloat32, DType::kFloat32},
    {"float", DType::kFloat32, DType::kFloat32},
    {"f32", DType::kFloat32, DType::kFloat32},
    {"tf32", DType::kFloat32, DType::kFloat32, TypeSpec::Units::kMatrix},
    {"fp16", DType::kFloat16, DType::kFloat16},
    {"float16", DType::kFloat16, DType::kFloat16},
    {"half", DType::kFloat16, DType::kFloat16},
    {"f16", DType::kFloat16, DType::kFloat16},
    // 16-bit tensors, single-precision arithmetic without matrix units.
    {"pseudo_fp16", DType::kFloat16, DType::kFloat32, TypeSpec::Units::kVector},
    {"bf16", DType::kBFloat16, DType::kBFloat16},
    {"bfloat16", DType::kBFloat16, DType::kBFloat16},
    {"fp8", DType::kFloat8, DType::kFloat8},
    {"float8", DType::kFloat8, DType::kFloat8},
    {"fp64", DType::kFloat64, DType::kFloat64},
    {"float64", DType::kFloat64, DType::kFloat64},
    {"double", DType::kFloat64, DType::kFloat64},
    {"int8", DType::kInt8, DType::kInt8},
    {"uint8", DType::kUInt8, DType::kUInt8},
    {"int32", DType::kInt32, DType::kInt32},
    {"int64", DType::kInt64, DType::kInt64},
};

template <class Spec, std::size_t kCount>
const Spec* find_spec(const Spec (&specs)[kCount], std::string_view name) {
  const std::string wanted = lower_case(name);
  const auto found = std::ranges::find(specs, wanted, &Spec::name);
  return found == std::end(specs) ? nullptr : &*found;
}

/// "an op (the nearest known are add, mul, div)"
template <class Spec, std::size_t kCount>
std::string one_of(const Spec (&specs)[kCount], std::string_view what, std::string_view name) {
  const std::string wanted = lower_case(name.substr(0, 40));
  std::vector<std::pair<std::size_t, std::string_view>> scored;
  for (const Spec& spec : specs) scored.emplace_back(edit_distance(wanted, spec.name), spec.name);
  std::ranges::stable_sort(scored, {}, [](const auto& entry) { return entry.first; });
  std::string text = "a known " + std::string(what) + " (the nearest are ";
  for (std::size_t i = 0; i < 3; ++i) text += (i ? ", " : "") + std::string(scored[i].second);
  return text + ")";
}

// ----------------------------------------------------------------------------------------- columns

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
  kSeqQ,
  kSeqK,
  kHeadDim,
  kCausal,
  kMethod,
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
  kColumnCount
};

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
    {kSeqQ, {"seq_q", "seq"}},
    {kSeqK, {"seq_k"}},
    {kHeadDim, {"head_dim"}},
    {kCausal, {"causal"}},
    {kMethod, {"method"}},
    {kWorldSize, {"world_size"}},
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
};
static_assert(std::size(kColumns) == kColumnCount);

std::string_view column_name(Column column) {
  return std::ranges::find(kColumns, column, &ColumnSpec::column)->names[0];
}

/// "# timing: graph replay, no launch cost"
bool says_no_launch_cost(std::string_view comment) {
  const std::string text = lower_case(comment);
  const std::size_t key = text.find_first_not_of("# \t");
  return key != text.npos && text.compare(key, 7, "timing:") == 0 &&
         text.find("no launch cost", key) != text.npos;
}

// ------------------------------------------------------------------------------------------ reader

class TableReader {
 public:
  TableReader(CsvFile file, const KernelTableOptions& options)
      : csv_(std::move(file)), options_(options) {}

  Result<KernelTable> read() {
    table_.file = csv_.path();
    table_.has_launch_cost = std::ranges::none_of(csv_.head(), says_no_launch_cost);
    for (const ColumnSpec& spec : kColumns) {
      int& at = columns_[spec.column];
      for (const std::string_view name : spec.names) {
        if (name.empty() || at >= 0) continue;
        at = csv_.column(name);
      }
    }
    is_graph_table_ = has(kGraph) && has(kNodeIndex) && has(kStage) && has(kRepeat);
    if (auto known = resolve_options(); !known) return Unexpected{known.error()};
    if (options_.needs_time && !has(kTime) && !has(kTimeMs)) {
      return Unexpected{csv_.missing_column("time_us", " with measured times")};
    }
    while (csv_.next()) {
      read_row();
      if (error_) return Unexpected{std::move(*error_)};
    }
    if (csv_.error()) return Unexpected{*csv_.error()};
    if (table_.rows.empty()) {
      return Unexpected{Error{.code = ErrorCode::kFormat,
                              .message = "expected rows, found only a header",
                              .file = csv_.path()}};
    }
    for (const FusedGroup& group : fused_) merge(group);
    return std::move(table_);
  }

 private:
  struct FusedGroup {
    std::size_t first = 0;
    std::vector<std::size_t> rows;
    std::optional<double> in_elements, out_elements;
    double element_size = 4;
  };

  bool has(Column column) const { return columns_[column] >= 0; }
  std::string_view text(Column column) const { return csv_.cell(columns_[column]); }
  bool given(Column column) const { return !text(column).empty(); }

  // The first problem of a row stays. The column may be one that the table lacks.
  void reject(Column column, std::string_view wanted) {
    if (!has(column)) return missing(column_name(column));
    if (!error_) error_ = csv_.expected(columns_[column], wanted);
  }
  void reject_unknown(Column column, std::string wanted) {
    if (!has(column)) return missing(column_name(column));
    if (error_) return;
    error_ = csv_.expected(columns_[column], wanted);
    error_->code = ErrorCode::kUnknownName;
  }
  void missing(std::string_view name) {
    if (error_) return;
    error_ = csv_.missing_column(
        name, " for op " + (op_spec_ ? std::string(op_spec_->name) : std::string("names")));
  }

  std::int64_t count(Column column) {
    if (!has(column)) {
      missing(column_name(column));
      return 1;
    }
    const auto value = parse_count(text(column));
    if (!value) reject(column, "an integer above 0");
    return value.value_or(1);
  }
  std::int64_t count_or(Column column, std::int64_t fallback) {
    return given(column) ? count(column) : fallback;
  }
  /// 0 or more: paddings.
  std::int64_t size_or_zero(Column column) {
    if (!given(column)) return 0;
    if (text(column) == "0") return 0;
    const auto value = parse_count(text(column));
    if (!value) reject(column, "an integer of at least 0");
    return value.value_or(0);
  }
  double positive(Column column) {
    if (!has(column)) {
      missing(column_name(column));
      return 1;
    }
    const auto value = parse_double(text(column));
    const bool good = value && *value > 0 && std::isfinite(*value);
    if (!good) reject(column, "a number above 0");
    return good ? *value : 1;
  }
  double at_least_zero(Column column) {
    const auto value = parse_double(text(column));
    const bool good = value && *value >= 0 && std::isfinite(*value);
    if (!good) reject(column, "a number of at least 0");
    return good ? *value : 0;
  }
  bool flag(Column column) {
    const std::string_view value = text(column);
    if (value == "1" || value == "true") return true;
    if (!value.empty() && value != "0" && value != "false") reject(column, "0 or 1");
    return false;
  }
  double elements() {
    if (given(kElements)) return positive(kElements);
    if (!has(kRows)) {
      missing("rows");
      return 1;
    }
    return static_cast<double>(count(kRows)) * static_cast<double>(count(kCols));
  }

  Result<void> resolve_options() {
    if (!options_.gpu.empty()) {
      auto gpu = find_gpu(options_.gpu, options_.gpu_folder);
      if (!gpu) return Unexpected{gpu.error()};
      table_.gpus.push_back(std::move(*gpu));
      gpu_ = 0;
      if (has(kDevice)) {
        table_.warnings.push_back(
            "all rows are taken for " + table_.gpus[0].name + ": the column " +
            std::string(csv_.column("device") >= 0 ? "device" : "gpu") + " is not read");
      }
    }
    if (!options_.op.empty()) {
      if (!find_spec(kOps, options_.op)) {
        return fail(ErrorCode::kUnknownName, "expected " + one_of(kOps, "op", options_.op) +
                                                 ", found \"" + options_.op + "\"");
      }
    }
    if (!options_.dtype.empty()) {
      option_type_ = find_spec(kTypes, options_.dtype);
      if (!option_type_) {
        return fail(ErrorCode::kUnknownName, "expected " + one_of(kTypes, "dtype", options_.dtype) +
                                                 ", found \"" + options_.dtype + "\"");
      }
    }
    return {};
  }

  void read_row() {
    const std::size_t number = table_.rows.size() + 1;
    KernelRow& row = table_.rows.emplace_back();
    row.line = csv_.line();
    if (given(kId)) {
      row.id = text(kId);
      if (!is_plain_text(row.id)) reject(kId, "one line of plain text");
    } else {
      row.id = std::to_string(number);
    }
    find_op(row);
    if (error_) return;
    row.gpu = find_row_gpu();
    type_ = find_type();
    if (error_) return;
    read_time(row);
    row.is_llm_shape = text(kShapeSet) == "llm";
    row.paper_train = text(kPaperTrain) == "1";
    row.is_l2_warm = flag(kWarm);
    if (is_graph_table_) read_node(row);
    row.work = work(row);
    if (is_graph_table_ && !error_) note_fused(row);
  }

  void find_op(KernelRow& row) {
    std::string_view name = text(kOp);
    if (name.empty()) name = options_.op;
    if (name.empty()) {
      const auto all = [this](std::initializer_list<Column> needed) {
        return std::ranges::all_of(needed, [this](Column column) { return given(column); });
      };
      if (all({kM, kN, kK})) {
        name = "gemm";
      } else if (all({kC, kH, kW, kR, kS}) || all({kChannelsIn, kChannelsOut, kImage})) {
        name = "conv2d";
      } else if (all({kCell})) {
        name = "rnn";
      } else if (has(kOp)) {
        return reject(kOp, "an op");
      } else {
        if (!error_) {
          error_ = csv_.missing_column(
              "op",
              ", or columns that tell (m, n, k: gemm; c, h, w, r, s: conv2d; cell: rnn), or "
              "--op");
        }
        return;
      }
    }
    if (name == last_op_name_ && row_op_ >= 0) {
      row.op = row_op_;
      return;
    }
    const OpSpec* spec = find_spec(kOps, name);
    if (!spec) return reject_unknown(kOp, one_of(kOps, "op", name));
    op_spec_ = spec;
    last_op_name_ = name;
    const auto known = std::ranges::find(table_.ops, spec->name);
    row_op_ = static_cast<int>(known - table_.ops.begin());
    if (known == table_.ops.end()) table_.ops.emplace_back(spec->name);
    row.op = row_op_;
  }

  int find_row_gpu() {
    if (gpu_ >= 0) return gpu_;
    const std::string_view name = text(kDevice);
    if (name.empty()) return -1;
    if (name == last_gpu_name_) return last_gpu_;
    auto known = gpu_names_.find(std::string(name));
    if (known == gpu_names_.end()) {
      auto gpu = find_known_gpu(name, options_.gpu_folder);
      if (!gpu) {
        if (!error_) {
          // Problems of the GPU files stand as they are.
          error_ = gpu.error().code == ErrorCode::kUnknownName
                       ? csv_.at_cell(columns_[kDevice], gpu.error().message)
                       : gpu.error();
          error_->code = gpu.error().code;
        }
        return -1;
      }
      const auto same = std::ranges::find(table_.gpus, gpu->name, &Gpu::name);
      const int index = static_cast<int>(same - table_.gpus.begin());
      if (same == table_.gpus.end()) table_.gpus.push_back(std::move(*gpu));
      known = gpu_names_.emplace(std::string(name), index).first;
    }
    last_gpu_name_ = name;
    last_gpu_ = known->second;
    return last_gpu_;
  }

  const TypeSpec* find_type() {
    const std::string_view name = text(kType);
    if (name.empty()) {
      if (option_type_) return option_type_;
      switch (op_spec_->kind) {
        case Kind::kMove:
        case Kind::kCopy:
        case Kind::kStridedCopy:
        case Kind::kSet:
        case Kind::kCollective:
          return &kTypes[0];  // bytes only
        default:
          break;
      }
      if (is_graph_table_) {
        if (!warned_type_) {
          table_.warnings.push_back(
              "no column names the dtype: operator graphs count 4 bytes per element, so fp32 is "
              "taken");
          warned_type_ = true;
        }
        return &kTypes[0];
      }
      if (has(kType)) {
        reject(kType, "a dtype (or --dtype)");
      } else if (!error_) {
        error_ = csv_.missing_column("dtype", " (or precision, or --dtype)");
      }
      return nullptr;
    }
    if (name != last_type_name_) {
      const TypeSpec* spec = find_spec(kTypes, name);
      if (!spec) {
        reject_unknown(kType, one_of(kTypes, "dtype", name));
        return nullptr;
      }
      last_type_name_ = name;
      last_type_ = spec;
    }
    return last_type_;
  }

  void read_time(KernelRow& row) {
    const Column column = given(kTime) || !has(kTimeMs) ? kTime : kTimeMs;
    if (given(column)) {
      row.measured_us = positive(column) * (column == kTimeMs ? 1e3 : 1);
    } else if (options_.needs_time) {
      reject(column, "a number above 0");
    }
  }

  void read_node(KernelRow& row) {
    if (!given(kGraph)) return reject(kGraph, "the name of a graph");
    if (table_.graphs.empty() || table_.graphs[static_cast<std::size_t>(graph_)] != text(kGraph)) {
      const auto known = std::ranges::find(table_.graphs, text(kGraph));
      graph_ = static_cast<int>(known - table_.graphs.begin());
      if (known == table_.graphs.end()) table_.graphs.emplace_back(text(kGraph));
    }
    row.graph = graph_;
    row.node_index = static_cast<int>(size_or_zero(kNodeIndex));
    row.stage = text(kStage);
    if (row.stage != "fw" && row.stage != "bw" && row.stage != "acc") {
      reject_unknown(kStage, "fw, bw or acc");
    }
    row.repeat = positive(kRepeat);
  }

  void note_fused(KernelRow& row) {
    if (!flag(kFused) || error_) return;
    const auto key = std::tuple(row.graph, row.node_index, row.stage);
    auto [found, is_new] = fused_of_.emplace(key, fused_.size());
    if (is_new) fused_.emplace_back().first = table_.rows.size() - 1;
    FusedGroup& group = fused_[found->second];
    group.rows.push_back(table_.rows.size() - 1);
    group.element_size = size_in_bytes(type_->storage);
    // Every row of a node repeats what the whole node reads and writes.
    if (given(kInElements)) group.in_elements = at_least_zero(kInElements);
    if (given(kOutElements)) group.out_elements = positive(kOutElements);
    row.fused_group = static_cast<int>(found->second) + 1;
    row.is_free = !is_new;
  }

  /// One kernel does all listed ops, reads `in_elems` and writes `out_elems`. It is of the class of
  /// its GEMM, else of its last op.
  void merge(const FusedGroup& group) {
    const KernelWork* leader = nullptr;
    KernelWork sum;
    for (const std::size_t index : group.rows) {
      const KernelWork& part = table_.rows[index].work;
      sum.flop += part.flop;
      sum.bytes_read += part.bytes_read;
      sum.bytes_written += part.bytes_written;
      const bool is_gemm = part.family == KernelFamily::kGemm;
      if (!leader || is_gemm || leader->family != KernelFamily::kGemm) leader = &part;
    }
    KernelWork merged = *leader;
    merged.flop = sum.flop;
    merged.bytes_read =
        group.in_elements ? Bytes{group.element_size * *group.in_elements} : sum.bytes_read;
    merged.bytes_written =
        group.out_elements ? Bytes{group.element_size * *group.out_elements} : sum.bytes_written;
    for (const std::size_t index : group.rows) table_.rows[index].work = KernelWork{};
    table_.rows[group.first].work = merged;
  }

  // -------------------------------------------------------------------------------- work of a row

  bool uses_matrix_units(int gpu) const {
    if (type_->units != TypeSpec::Units::kAsPyTorch) {
      return type_->units == TypeSpec::Units::kMatrix;
    }
    static const Gpu kUnnamed;  // see `for_gpu`
    return gemm_uses_matrix_units(type_->arithmetic,
                                  gpu >= 0 ? table_.gpus[static_cast<std::size_t>(gpu)] : kUnnamed);
  }

  RowPass row_pass() {
    if (is_graph_table_ && !given(kDirection)) return RowPass::kForward;  // bytes from the columns
    const std::string_view value = text(kDirection);
    if (value.empty() || value == "fwd" || value == "fw" || value == "forward") {
      return RowPass::kForward;
    }
    if (value != "bwd" && value != "bw" && value != "backward") {
      reject_unknown(kDirection, "fwd or bwd");
    }
    return RowPass::kBackward;
  }

  KernelWork work(const KernelRow& row) {
    const DType dtype = type_->storage;
    KernelWork result;
    switch (op_spec_->kind) {
      case Kind::kGemm:
      case Kind::kLinear:
        result = gemm(row);
        break;
      case Kind::kConvolution:
        result = convolution(row);
        break;
      case Kind::kElementwise:
        result = elementwise_work(
            elements(), given(kInputs) ? static_cast<double>(count(kInputs)) : op_spec_->inputs,
            op_spec_->flop, dtype);
        break;
      case Kind::kReduction:
        result = reduction_work(count(kRows), count(kCols), dtype, flag(kStrided));
        break;
      case Kind::kSoftmax:
        result = softmax_work(count(kRows), count(kCols), row_pass(), dtype);
        break;
      case Kind::kLayerNorm:
        result = layer_norm_work(count(kRows), count(kCols), row_pass(), dtype);
        break;
      case Kind::kBatchNorm:
        result = batch_norm_work(count(kRows), count(kCols), row_pass(), dtype);
        break;
      case Kind::kDropout:
        result = dropout_work(elements(), row_pass(), dtype);
        break;
      case Kind::kTranspose:
        result = transpose_work(count_or(kB, 1), count(kRows), count(kCols), dtype);
        break;
      case Kind::kConcat:
        result = concat_work(elements(), dtype);
        break;
      case Kind::kGather:
        result = gather_work(count(kRows), count(kCols), dtype, count_or(kTableRows, 0));
        break;
      case Kind::kScatterAdd:
        result = scatter_add_work(count(kRows), count(kCols), dtype, count_or(kTableRows, 0));
        break;
      case Kind::kTril:
        result = tril_interaction_work(count(kBatch), count(kFeatures), false, row_pass(), dtype);
        break;
      case Kind::kMove:
        result = movement();
        break;
      case Kind::kCopy:
        result = copy();
        break;
      case Kind::kStridedCopy:
        result = strided_copy_work(positive(kBytes), count(kRowBytes));
        break;
      case Kind::kSet:
        result = memset_work(positive(kBytes));
        break;
      case Kind::kEmbeddingForward:
      case Kind::kEmbeddingBackward:
        result = embedding();
        break;
      case Kind::kAttention:
        result = attention(row);
        break;
      case Kind::kRecurrent:
        result = recurrent();
        break;
      case Kind::kRecurrentCell:
        result = recurrent_cell_work(cell(), count(kBatch), count(kHidden), row_pass(), dtype);
        break;
      case Kind::kOptimizer:
        result = optimizer_work(elements(), optimizer_kind(), dtype);
        break;
      case Kind::kCollective:
        return collective();
    }
    if (type_->storage != type_->arithmetic && result.dtype == type_->storage) {
      result.dtype = type_->arithmetic;  // bytes are those of the narrow type by now
    }
    if (is_graph_table_ && !error_) count_node_bytes(result);
    return result;
  }

  /// Operator graphs give what the node reads and writes: vector kernels of broadcast or split
  /// nodes move 4 (in + out) / out bytes per element of theirs.
  void count_node_bytes(KernelWork& work) {
    if (work.family == KernelFamily::kGemm || op_spec_->kind == Kind::kMove) return;
    if (!given(kInElements) || !given(kOutElements) || !given(kRows)) return;
    const double own = static_cast<double>(count(kRows)) * static_cast<double>(count(kCols)) *
                       size_in_bytes(type_->storage);
    work.bytes_written = {own};
    work.bytes_read = {own * (at_least_zero(kInElements) / positive(kOutElements))};
  }

  /// Rows of GEMMs come in two conventions.
  ///
  /// `layout`, two letters as libraries name kernels: such libraries are column-major, so that they
  /// compute C^T = B^T A^T of our row-major product and name its first operand, our B, first. "tn":
  /// B is stored transposed (a linear layer's weight), A is not.
  ///
  /// `trans_a`, `trans_b` (DeepBench): a column-major C(m x n) = op(A) op(B). Read as row-major
  /// memory that is C^T(n x m) = op(B)^T op(A)^T: our m and n change places, our A is their B and
  /// our B is their A. A column-major matrix that is not transposed is, read row-major, just the
  /// transposed one that our product needs, so `N` is not transposed for us either.
  KernelWork gemm(const KernelRow& row) {
    GemmShape shape{.batch = count_or(kB, 1), .m = count(kM), .n = count(kN), .k = count(kK)};
    const bool backward = is_graph_table_ && row.stage != "fw";
    if (op_spec_->kind == Kind::kLinear && !backward) shape.has_bias = shape.b_transposed = true;
    if (given(kLayout)) {
      const std::string layout = lower_case(text(kLayout));
      if (layout != "nn" && layout != "nt" && layout != "tn" && layout != "tt") {
        reject_unknown(kLayout, "nn, nt, tn or tt");
      } else {
        shape.b_transposed = layout[0] == 't';
        shape.a_transposed = layout[1] == 't';
      }
    } else if (given(kTransA) || given(kTransB)) {
      shape.b_transposed = transposed(kTransA);
      shape.a_transposed = transposed(kTransB);
      std::swap(shape.m, shape.n);
    }
    return gemm_work(shape, type_->storage, uses_matrix_units(row.gpu));
  }

  bool transposed(Column column) {
    const std::string_view value = text(column);
    if (value == "T" || value == "t") return true;
    if (value != "N" && value != "n") reject_unknown(column, "N or T");
    return false;
  }

  KernelWork convolution(const KernelRow& row) {
    ConvolutionShape shape{};
    std::int64_t pad_h = 0, pad_w = 0, stride_w = 1;
    Column image_h = kH, image_w = kW;
    if (has(kChannelsIn) && given(kChannelsIn)) {  // NeuSight: square images and filters
      shape.n = count(kBatch);
      shape.c = count(kChannelsIn);
      shape.k = count(kChannelsOut);
      shape.h = shape.w = count(kImage);
      shape.r = shape.s = count(kFilter);
      shape.stride = stride_w = count_or(kStride, 1);
      pad_h = pad_w = size_or_zero(kPad);
      image_h = image_w = kImage;
    } else {
      shape.n = count(kN);
      shape.c = count(kC);
      shape.h = count(kH);
      shape.w = count(kW);
      shape.k = count(kK);
      shape.r = count(kR);
      shape.s = count(kS);
      pad_h = given(kPadH) ? size_or_zero(kPadH) : size_or_zero(kPad);
      pad_w = given(kPadW) ? size_or_zero(kPadW) : size_or_zero(kPad);
      shape.stride = given(kStrideH) ? count(kStrideH) : count_or(kStride, 1);
      stride_w = given(kStrideW) ? count(kStrideW) : count_or(kStride, 1);
    }
    shape.groups = count_or(kGroups, 1);
    if (shape.c % shape.groups != 0 || shape.k % shape.groups != 0) {
      reject(kGroups, "a divisor of both channel counts");
    }
    const std::string_view direction = text(kDirection);
    using Pass = ConvolutionShape::Pass;
    if (direction.empty() || direction == "fwd" || direction == "forward") {
      shape.pass = Pass::kForward;
    } else if (direction == "dgrad") {
      shape.pass = Pass::kInputGradient;
    } else if (direction == "wgrad") {
      shape.pass = Pass::kWeightGradient;
    } else {
      reject_unknown(kDirection, "fwd, dgrad or wgrad");
    }
    if (error_) return {};
    if (shape.h + 2 * pad_h < shape.r) reject(image_h, "an image that the filter fits in");
    if (shape.w + 2 * pad_w < shape.s) reject(image_w, "an image that the filter fits in");
    shape.p = convolution_output(shape.h, shape.r, pad_h, shape.stride);
    shape.q = convolution_output(shape.w, shape.s, pad_w, stride_w);
    return convolution_work(shape, type_->storage, uses_matrix_units(row.gpu));
  }

  /// Pure movement of `bytes`, half of them read: an elementwise kernel without arithmetic.
  KernelWork movement() {
    const double scale = size_in_bytes(type_->storage) / 4.0;  // the column counts 4 per element
    const double bytes = positive(kBytes) * (is_graph_table_ ? scale : 1);
    KernelWork work =
        elementwise_work(bytes / (2.0 * size_in_bytes(type_->storage)), 1, 0, type_->storage);
    work.bytes_read = work.bytes_written = {bytes / 2};
    return work;
  }

  KernelWork copy() {
    CopyShape shape{};
    const std::string kind = lower_case(text(kCopyKind));
    if (kind == "h2d") {
      shape.kind = CopyKind::kHostToDevice;
    } else if (kind == "d2h") {
      shape.kind = CopyKind::kDeviceToHost;
    } else if (kind == "p2p") {
      shape.kind = CopyKind::kPeer;
    } else if (!kind.empty() && kind != "d2d") {
      reject_unknown(kCopyKind, "h2d, d2h, d2d or p2p");
    }
    shape.pageable = !flag(kPinned);
    return memcpy_work(positive(kBytes), shape);
  }

  KernelWork embedding() {
    EmbeddingShape shape;
    shape.num_tables = count_or(kTables, 1);
    shape.num_rows = positive(kRows);
    shape.dim = positive(kDim);
    shape.pooling_factor = positive(kPooling);
    if (has(kBags) && (given(kBags) || !given(kBatch))) {
      const std::int64_t bags = count(kBags);
      if (!error_ && bags % shape.num_tables != 0) reject(kBags, "a multiple of the tables");
      shape.batch = bags / shape.num_tables;
    } else {
      shape.batch = count(kBatch);
    }
    shape.weight_bytes = size_in_bytes(type_->storage);
    if (given(kZipf)) shape.zipf_exponent = at_least_zero(kZipf);
    if (given(kIndexBytes)) {
      shape.index_bytes = static_cast<int>(count(kIndexBytes));
      if (shape.index_bytes != 4 && shape.index_bytes != 8) reject(kIndexBytes, "4 or 8");
    }
    if (given(kOutputType)) {
      const TypeSpec* output = find_spec(kTypes, text(kOutputType));
      if (!output) reject_unknown(kOutputType, one_of(kTypes, "dtype", text(kOutputType)));
      if (output) shape.output_bytes = size_in_bytes(output->storage);
    }
    if (op_spec_->kind == Kind::kEmbeddingForward && row_pass() == RowPass::kForward) {
      return embedding_forward_work(shape);
    }
    const std::string optimizer = lower_case(text(kOptimizer));  // fp32 states, read and written
    if (optimizer == "rowwise_adagrad" || optimizer == "exact_rowwise_adagrad") {
      shape.optimizer_bytes_per_row = 2 * 4;
    } else if (optimizer == "adagrad") {
      shape.optimizer_bytes_per_row = 2 * 4 * shape.dim;
    } else if (optimizer == "adam") {
      shape.optimizer_bytes_per_row = 2 * 2 * 4 * shape.dim;
    } else if (!optimizer.empty() && optimizer != "sgd") {
      reject_unknown(kOptimizer, "sgd, rowwise_adagrad, adagrad or adam");
    }
    return embedding_backward_work(shape);
  }

  KernelWork attention(const KernelRow& row) {
    AttentionShape shape;
    shape.batch = count(kBatch);
    shape.heads = count(kHeads);
    shape.seq_q = count(kSeqQ);
    shape.seq_k = count_or(kSeqK, shape.seq_q);
    shape.head_dim = count(kHeadDim);
    shape.causal = flag(kCausal);
    shape.pass = row_pass() == RowPass::kForward ? AttentionShape::Pass::kForward
                                                 : AttentionShape::Pass::kBackward;
    if (text(kMethod) == "math") {
      shape.method = AttentionShape::Method::kMath;
    } else if (given(kMethod) && text(kMethod) != "flash") {
      reject_unknown(kMethod, "flash or math");
    }
    return attention_work(shape, type_->storage, uses_matrix_units(row.gpu));
  }

  RecurrentShape::Cell cell() {
    std::string name = lower_case(text(kCell));
    if (name.empty()) name = op_spec_->name.substr(0, op_spec_->name.find('_'));
    if (name == "lstm") return RecurrentShape::Cell::kLstm;
    if (name == "gru") return RecurrentShape::Cell::kGru;
    if (name != "rnn" && name != "plain") reject_unknown(kCell, "rnn, lstm or gru");
    return RecurrentShape::Cell::kPlain;
  }

  KernelWork recurrent() {
    RecurrentShape shape;
    using Pass = RecurrentShape::Pass;
    const std::string_view direction = text(kDirection);
    shape.cell = cell();
    shape.hidden = count(kHidden);
    shape.batch = count(kBatch);
    shape.timesteps = count(kTimesteps);
    if (direction == "bwd" || direction == "backward") {
      shape.pass = Pass::kBackward;
    } else if (direction == "bwd_data") {
      shape.pass = Pass::kBackwardData;
    } else if (direction == "bwd_weights") {
      shape.pass = Pass::kBackwardWeights;
    } else if (!direction.empty() && direction != "fwd" && direction != "forward") {
      reject_unknown(kDirection, "fwd, bwd, bwd_data or bwd_weights");
    }
    return recurrent_work(shape, type_->storage);
  }

  OptimizerKind optimizer_kind() {
    std::string name = lower_case(text(kOptimizer));
    if (name.empty()) name = op_spec_->name;
    if (name == "sgd") return OptimizerKind::kSgd;
    if (name == "momentum") return OptimizerKind::kMomentum;
    if (name == "adagrad") return OptimizerKind::kAdagrad;
    if (name == "rowwise_adagrad") return OptimizerKind::kRowWiseAdagrad;
    if (name == "adam") return OptimizerKind::kAdam;
    if (has(kOptimizer)) {
      reject_unknown(kOptimizer, "sgd, momentum, adagrad, rowwise_adagrad or adam");
    } else {
      missing("optimizer");
    }
    return OptimizerKind::kSgd;
  }

  KernelWork collective() {
    KernelWork work;
    work.family = KernelFamily::kCollective;
    work.dtype = type_->arithmetic;
    const double scale = size_in_bytes(type_->storage) / 4.0;
    const double bytes = positive(kBytes) * (is_graph_table_ ? scale : 1);
    work.bytes_read = work.bytes_written = {bytes};
    // Operator graphs are those of four GPUs.
    const std::int64_t ranks = op_spec_->collective == "send" ? 2 : is_graph_table_ ? 4 : 0;
    work.shape = CollectiveShape{.kind = std::string(op_spec_->collective),
                                 .world_size = count_or(kWorldSize, ranks)};
    table_.rows.back().transfer_bytes = bytes;
    return work;
  }

  CsvFile csv_;
  const KernelTableOptions& options_;
  KernelTable table_;
  std::array<int, kColumnCount> columns_ = [] {
    std::array<int, kColumnCount> none{};
    none.fill(-1);
    return none;
  }();
  bool is_graph_table_ = false, warned_type_ = false;
  const TypeSpec* option_type_ = nullptr;
  std::optional<Error> error_;

  // Names repeat from row to row. The cells live as long as the file.
  const OpSpec* op_spec_ = nullptr;
  const TypeSpec* type_ = nullptr;
  const TypeSpec* last_type_ = nullptr;
  std::string last_op_name_, last_type_name_, last_gpu_name_;
  int row_op_ = -1, gpu_ = -1, last_gpu_ = -1, graph_ = 0;
  std::unordered_map<std::string, int> gpu_names_;
  std::map<std::tuple<int, int, std::string>, std::size_t> fused_of_;
  std::vector<FusedGroup> fused_;
};

}  // namespace

KernelWork for_gpu(KernelWork work, const Gpu& gpu) {
  const bool multiplies = work.family == KernelFamily::kGemm ||
                          work.family == KernelFamily::kConvolution ||
                          work.family == KernelFamily::kAttention;
  const bool is_tf32 = work.dtype == DType::kFloat32 && work.matrix_units;  // asked for by the row
  if (multiplies && !is_tf32) work.matrix_units = gemm_uses_matrix_units(work.dtype, gpu);
  return work;
}

Result<KernelTable> read_kernel_table(const std::filesystem::path& file,
                                      const KernelTableOptions& options) {
  auto csv = CsvFile::open(file);
  if (!csv) return Unexpected{csv.error()};
  return TableReader(std::move(*csv), options).read();
}

}  // namespace perfmodel
