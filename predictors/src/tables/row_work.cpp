#include "row_work.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "files/lower_case.hpp"
#include "price/kernel_work.hpp"

namespace perfmodel::table {
namespace {

class WorkReader {
 public:
  WorkReader(RowCells& cells, const TableRow& row) : cells_(cells), row_(row) {}

  KernelWork work() {
    const DType dtype = row_.type.storage;
    KernelWork result;
    switch (row_.op.kind) {
      case OpKind::kGemm:
      case OpKind::kLinear:
        result = gemm();
        break;
      case OpKind::kConvolution:
        result = convolution();
        break;
      case OpKind::kElementwise:
        result = elementwise_work(
            cells_.elements(),
            cells_.given(kInputs) ? static_cast<double>(cells_.count(kInputs)) : row_.op.inputs,
            row_.op.flop, dtype);
        result.layout = layout();
        if (says("aten::masked_fill") && !says("masked_fill_")) fill_copy(result);
        break;
      case OpKind::kReduction:
        result =
            reduction_work(cells_.count(kRows), cells_.count(kCols), dtype, cells_.flag(kStrided));
        break;
      case OpKind::kSoftmax:
        result = softmax_work(cells_.count(kRows), cells_.count(kCols), row_pass(), dtype);
        std::get<RowShape>(result.shape).is_log = says("log_softmax");
        break;
      case OpKind::kLayerNorm:
      case OpKind::kRmsNorm:
        result = layer_norm_work(cells_.count(kRows), cells_.count(kCols), row_pass(), dtype);
        std::get<RowShape>(result.shape).is_rms =
            row_.op.kind == OpKind::kRmsNorm || says("rms_norm");
        break;
      case OpKind::kBatchNorm:
        result = batch_norm_work(cells_.count(kRows), cells_.count(kCols), row_pass(), dtype);
        std::get<RowShape>(result.shape).is_cudnn = by_cudnn();
        std::get<RowShape>(result.shape).is_channels_last = channels_last();
        break;
      case OpKind::kDropout:
        result = dropout_work(cells_.elements(), row_pass(), dtype);
        break;
      case OpKind::kTranspose:
        result =
            transpose_work(cells_.count_or(kB, 1), cells_.count(kRows), cells_.count(kCols), dtype);
        break;
      case OpKind::kConcat:
        result = concat_work(cells_.elements(), dtype);
        break;
      case OpKind::kGather:
        result = gather_work(cells_.count(kRows), cells_.count(kCols), dtype,
                             cells_.count_or(kTableRows, 0));
        break;
      case OpKind::kScatterAdd:
        result = scatter_add_work(cells_.count(kRows), cells_.count(kCols), dtype,
                                  cells_.count_or(kTableRows, 0));
        break;
      case OpKind::kTril:
        result = tril_interaction_work(cells_.count(kBatch), cells_.count(kFeatures), false,
                                       row_pass(), dtype);
        break;
      case OpKind::kMove:
        result = movement();
        break;
      case OpKind::kCopy:
        result = copy();
        break;
      case OpKind::kStridedCopy:
        result = strided_copy_work(cells_.positive(kBytes), cells_.count(kRowBytes));
        break;
      case OpKind::kSet:
        result = memset_work(cells_.positive(kBytes));
        break;
      case OpKind::kEmbeddingForward:
      case OpKind::kEmbeddingBackward:
        result = embedding();
        break;
      case OpKind::kAttention:
        result = attention();
        break;
      case OpKind::kGroupedGemm:
        result = grouped_gemm();
        break;
      case OpKind::kExperts:
        result = experts();
        break;
      case OpKind::kLinearAttention:
        result = linear_attention();
        break;
      case OpKind::kRecurrent:
        result = recurrent();
        break;
      case OpKind::kRecurrentCell:
        result = recurrent_cell_work(cell(), cells_.count(kBatch), cells_.count(kHidden),
                                     row_pass(), dtype);
        break;
      case OpKind::kOptimizer:
        result = optimizer_work(cells_.elements(), optimizer_kind(), dtype);
        break;
      case OpKind::kHashedProduct:
        result = hashed_product();
        break;
      case OpKind::kQuantize:
        if (!is_scaled()) cells_.reject(kType, "fp8 or fp4, which numbers are quantised to");
        result = quantize_work(cells_.count(kRows), cells_.count(kCols), dtype, scaling());
        break;
      case OpKind::kCollective:
        return collective();
    }
    if (row_.type.storage != row_.type.arithmetic && result.dtype == row_.type.storage) {
      result.dtype = row_.type.arithmetic;  // bytes are those of the narrow type by now
    }
    if (row_.is_graph_table && !cells_.error()) count_node_bytes(result);
    return result;
  }

 private:
  bool uses_matrix_units() const {
    if (row_.type.units != TypeSpec::Units::kAsPyTorch) {
      return row_.type.units == TypeSpec::Units::kMatrix;
    }
    static const Gpu kUnnamed;  // see `for_gpu`
    return gemm_uses_matrix_units(row_.type.arithmetic, row_.gpu ? *row_.gpu : kUnnamed);
  }

  /// Whether the framework's own name of the op, where a column has it, holds the words.
  bool says(std::string_view words) const {
    return cells_.text(kName).find(words) != std::string_view::npos;
  }

  /// `masked_fill` is two kernels: a copy, and a fill of the copy that reads a mask of bytes.
  static void fill_copy(KernelWork& work) {
    const double copy = work.bytes_written.value;
    work.bytes_read = {2 * copy + copy / size_in_bytes(work.dtype)};
    work.bytes_written = {2 * copy};
  }

  bool channels_last() {
    const std::string_view value = cells_.text(kMemoryFormat);
    if (!value.empty() && value != "contiguous" && value != "channels_last") {
      cells_.reject_unknown(kMemoryFormat, "contiguous or channels_last");
    }
    return value == "channels_last";
  }

  /// Who computes a batch norm; where no column says, kernels like PyTorch's own.
  bool by_cudnn() {
    const std::string_view value = cells_.text(kLibrary);
    if (value.empty()) return false;
    if (value != "native" && value != "cudnn" && value != "miopen") {
      cells_.reject_unknown(kLibrary, "cudnn, miopen or native");
    }
    return value != "native";
  }

  RowPass row_pass() {
    // Operator graphs: the bytes come from the columns.
    if (row_.is_graph_table && !cells_.given(kDirection)) return RowPass::kForward;
    const std::string_view value = cells_.text(kDirection);
    if (value.empty() || value == "fwd" || value == "fw" || value == "forward") {
      return RowPass::kForward;
    }
    if (value != "bwd" && value != "bw" && value != "backward") {
      cells_.reject_unknown(kDirection, "fwd or bwd");
    }
    return RowPass::kBackward;
  }

  bool is_scaled() const {
    return row_.type.storage == DType::kFloat8 || row_.type.storage == DType::kFloat4;
  }

  void reject_lacking_type() {
    if (!row_.gpu || has_matrix_units(row_.type.arithmetic, *row_.gpu)) return;
    cells_.refuse(kType, "a type that the matrix units of " + row_.gpu->name + " have, found " +
                             std::string(row_.type.name));
  }

  /// Types that need no scales say "none" or nothing.
  Scaling scaling() {
    const std::string_view value = cells_.text(kScaling);
    if (is_scaled()) {
      for (const Scaling known : {Scaling::kTensor, Scaling::kToken, Scaling::kBlock}) {
        if (value == to_string(known)) return known;
      }
      if (!value.empty()) cells_.reject_unknown(kScaling, "tensor, token or block");
    } else if (!value.empty() && value != "none") {
      cells_.reject(kScaling, "none, as the type has no scales");
    }
    return row_.type.storage == DType::kFloat4 ? Scaling::kBlock : Scaling::kTensor;
  }

  bool quantizes() {
    const bool value = cells_.flag(kQuantizes);
    if (value && !is_scaled()) cells_.reject(kQuantizes, "0: only fp8 and fp4 are quantised to");
    return value;
  }

  Layout layout() {
    const std::string_view value = cells_.text(kLayout);
    if (value != to_string(Layout::kContiguous) && says("aten::upsample") && says("3d")) {
      return Layout::kUpsampled3d;
    }
    if (value == to_string(Layout::kStrided) && says("_across")) return Layout::kTransposed;
    for (const Layout known : {Layout::kContiguous, Layout::kBroadcast, Layout::kStrided,
                               Layout::kTransposed, Layout::kMixedTypes, Layout::kUpsampled3d}) {
      if (value == to_string(known)) return known;
    }
    if (!value.empty()) {
      cells_.reject_unknown(
          kLayout, "contiguous, broadcast, strided, transposed, mixed types or upsampled 3d");
    }
    return Layout::kContiguous;
  }

  /// Operator graphs give what the node reads and writes: vector kernels of broadcast or split
  /// nodes move 4 (in + out) / out bytes per element of theirs.
  void count_node_bytes(KernelWork& work) {
    if (work.family == KernelFamily::kGemm || row_.op.kind == OpKind::kMove) return;
    if (!cells_.given(kInElements) || !cells_.given(kOutElements) || !cells_.given(kRows)) return;
    const double own = static_cast<double>(cells_.count(kRows)) *
                       static_cast<double>(cells_.count(kCols)) * size_in_bytes(row_.type.storage);
    work.bytes_written = {own};
    work.bytes_read = {own * (cells_.at_least_zero(kInElements) / cells_.positive(kOutElements))};
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
  KernelWork gemm() {
    GemmShape shape{.batch = cells_.count_or(kB, 1),
                    .m = cells_.count(kM),
                    .n = cells_.count(kN),
                    .k = cells_.count(kK)};
    const bool backward = row_.is_graph_table && row_.stage != "fw";
    if (row_.op.kind == OpKind::kLinear && !backward) shape.has_bias = shape.b_transposed = true;
    if (cells_.given(kLayout)) {
      const std::string layout = lower_case(cells_.text(kLayout));
      if (layout != "nn" && layout != "nt" && layout != "tn" && layout != "tt") {
        cells_.reject_unknown(kLayout, "nn, nt, tn or tt");
      } else {
        shape.b_transposed = layout[0] == 't';
        shape.a_transposed = layout[1] == 't';
      }
    } else if (cells_.given(kTransA) || cells_.given(kTransB)) {
      shape.b_transposed = transposed(kTransA);
      shape.a_transposed = transposed(kTransB);
      std::swap(shape.m, shape.n);
    }
    shape.scaling = scaling();
    shape.quantizes_a = quantizes();
    reject_lacking_type();
    return gemm_work(shape, row_.type.storage, uses_matrix_units());
  }

  bool transposed(Column column) {
    const std::string_view value = cells_.text(column);
    if (value == "T" || value == "t") return true;
    if (value != "N" && value != "n") cells_.reject_unknown(column, "N or T");
    return false;
  }

  KernelWork convolution() {
    ConvolutionShape shape{};
    std::int64_t pad_h = 0, pad_w = 0, stride_w = 1;
    Column image_h = kH, image_w = kW;
    if (cells_.given(kChannelsIn)) {  // NeuSight: square images and filters
      shape.n = cells_.count(kBatch);
      shape.c = cells_.count(kChannelsIn);
      shape.k = cells_.count(kChannelsOut);
      shape.h = shape.w = cells_.count(kImage);
      shape.r = shape.s = cells_.count(kFilter);
      shape.stride = stride_w = cells_.count_or(kStride, 1);
      pad_h = pad_w = cells_.size_or_zero(kPad);
      image_h = image_w = kImage;
    } else {
      shape.n = cells_.count(kN);
      shape.c = cells_.count(kC);
      shape.h = cells_.count(kH);
      shape.w = cells_.count(kW);
      shape.k = cells_.count(kK);
      shape.r = cells_.count(kR);
      shape.s = cells_.count(kS);
      pad_h = cells_.given(kPadH) ? cells_.size_or_zero(kPadH) : cells_.size_or_zero(kPad);
      pad_w = cells_.given(kPadW) ? cells_.size_or_zero(kPadW) : cells_.size_or_zero(kPad);
      shape.stride = cells_.given(kStrideH) ? cells_.count(kStrideH) : cells_.count_or(kStride, 1);
      stride_w = cells_.given(kStrideW) ? cells_.count(kStrideW) : cells_.count_or(kStride, 1);
    }
    shape.groups = cells_.count_or(kGroups, 1);
    shape.channels_last = channels_last();
    if (shape.c % shape.groups != 0 || shape.k % shape.groups != 0) {
      cells_.reject(kGroups, "a divisor of both channel counts");
    }
    const std::string_view direction = cells_.text(kDirection);
    using Pass = ConvolutionShape::Pass;
    if (direction.empty() || direction == "fwd" || direction == "forward") {
      shape.pass = Pass::kForward;
    } else if (direction == "dgrad") {
      shape.pass = Pass::kInputGradient;
    } else if (direction == "wgrad") {
      shape.pass = Pass::kWeightGradient;
    } else {
      cells_.reject_unknown(kDirection, "fwd, dgrad or wgrad");
    }
    if (cells_.error()) return {};
    if (shape.h + 2 * pad_h < shape.r) cells_.reject(image_h, "an image that the filter fits in");
    if (shape.w + 2 * pad_w < shape.s) cells_.reject(image_w, "an image that the filter fits in");
    shape.p = convolution_output(shape.h, shape.r, pad_h, shape.stride);
    shape.q = convolution_output(shape.w, shape.s, pad_w, stride_w);
    reject_lacking_type();
    return convolution_work(shape, row_.type.storage, uses_matrix_units());
  }

  /// Pure movement of `bytes`, half of them read: an elementwise kernel without arithmetic.
  KernelWork movement() {
    const double scale = size_in_bytes(row_.type.storage) / 4.0;  // the column counts 4 per element
    const double bytes = cells_.positive(kBytes) * (row_.is_graph_table ? scale : 1);
    KernelWork work =
        elementwise_work(bytes / (2.0 * size_in_bytes(row_.type.storage)), 1, 0, row_.type.storage);
    work.bytes_read = work.bytes_written = {bytes / 2};
    return work;
  }

  KernelWork copy() {
    CopyShape shape{};
    const std::string kind = lower_case(cells_.text(kCopyKind));
    if (kind == "h2d") {
      shape.kind = CopyKind::kHostToDevice;
    } else if (kind == "d2h") {
      shape.kind = CopyKind::kDeviceToHost;
    } else if (kind == "p2p") {
      shape.kind = CopyKind::kPeer;
    } else if (!kind.empty() && kind != "d2d") {
      cells_.reject_unknown(kCopyKind, "h2d, d2h, d2d or p2p");
    }
    shape.pageable = !cells_.flag(kPinned);
    return memcpy_work(cells_.positive(kBytes), shape);
  }

  KernelWork embedding() {
    EmbeddingShape shape;
    shape.num_tables = cells_.count_or(kTables, 1);
    shape.num_rows = cells_.positive(kRows);
    shape.dim = cells_.positive(kDim);
    shape.pooling_factor = cells_.positive(kPooling);
    if (cells_.has(kBags) && (cells_.given(kBags) || !cells_.given(kBatch))) {
      const std::int64_t bags = cells_.count(kBags);
      if (!cells_.error() && bags % shape.num_tables != 0)
        cells_.reject(kBags, "a multiple of the tables");
      shape.batch = bags / shape.num_tables;
    } else {
      shape.batch = cells_.count(kBatch);
    }
    shape.weight_bytes = size_in_bytes(row_.type.storage);
    if (cells_.given(kZipf)) shape.zipf_exponent = cells_.at_least_zero(kZipf);
    if (cells_.given(kIndexBytes)) {
      shape.index_bytes = static_cast<int>(cells_.count(kIndexBytes));
      if (shape.index_bytes != 4 && shape.index_bytes != 8) cells_.reject(kIndexBytes, "4 or 8");
    }
    if (cells_.given(kOutputType)) {
      const TypeSpec* output = find_type(cells_.text(kOutputType));
      if (!output) cells_.reject_unknown(kOutputType, a_known_type(cells_.text(kOutputType)));
      if (output) shape.output_bytes = size_in_bytes(output->storage);
    }
    if (row_.op.kind == OpKind::kEmbeddingForward && row_pass() == RowPass::kForward) {
      return embedding_forward_work(shape);
    }
    const std::string optimizer =
        lower_case(cells_.text(kOptimizer));  // fp32 states, read and written
    if (optimizer == "rowwise_adagrad" || optimizer == "exact_rowwise_adagrad") {
      shape.optimizer_bytes_per_row = 2 * 4;
    } else if (optimizer == "adagrad") {
      shape.optimizer_bytes_per_row = 2 * 4 * shape.dim;
    } else if (optimizer == "adam") {
      shape.optimizer_bytes_per_row = 2 * 2 * 4 * shape.dim;
    } else if (!optimizer.empty() && optimizer != "sgd") {
      cells_.reject_unknown(kOptimizer, "sgd, rowwise_adagrad, adagrad or adam");
    }
    return embedding_backward_work(shape);
  }

  KernelWork attention() {
    AttentionShape shape;
    shape.batch = cells_.count(kBatch);
    shape.heads = cells_.count(kHeads);
    shape.seq_q = cells_.count(kSeqQ);
    shape.seq_k = cells_.count_or(kSeqK, shape.seq_q);
    shape.head_dim = cells_.count(kHeadDim);
    shape.causal = cells_.flag(kCausal);
    shape.kv_heads = cells_.count_or(kKvHeads, 0);
    if (shape.kv_heads > 0 && shape.heads % shape.kv_heads != 0) {
      cells_.reject(kKvHeads, "a divisor of heads");
    }
    shape.pass = row_pass() == RowPass::kForward ? AttentionShape::Pass::kForward
                                                 : AttentionShape::Pass::kBackward;
    if (cells_.text(kMethod) == "math") {
      shape.method = AttentionShape::Method::kMath;
    } else if (cells_.given(kMethod) && cells_.text(kMethod) != "flash") {
      cells_.reject_unknown(kMethod, "flash or math");
    }
    shape.writes_cache = cells_.flag(kWritesCache);
    shape.kernel = attention_kernel();
    reject_lacking_type();
    return attention_work(shape, row_.type.storage, uses_matrix_units());
  }

  AttentionGeneration attention_kernel() {
    if (!cells_.given(kKernel)) {
      const std::string_view library = cells_.text(kLibrary);
      if (library == "cudnn") return AttentionGeneration::kCudnn;
      if (library == "flash") return AttentionGeneration::kFa2;
      if (!library.empty() && library != "efficient") {
        cells_.reject_unknown(kLibrary, "cudnn, efficient or flash");
      }
      return AttentionGeneration::kFramework;
    }
    const auto* name = std::ranges::find(kAttentionGenerationNames, cells_.text(kKernel));
    if (name == std::end(kAttentionGenerationNames)) {
      cells_.reject_unknown(kKernel, "fa2, fa3, fa4, trtllm_gen or cudnn");
      return AttentionGeneration::kFramework;
    }
    return static_cast<AttentionGeneration>(name - std::begin(kAttentionGenerationNames));
  }

  KernelWork grouped_gemm() {
    GroupedGemmShape shape{.groups = cells_.count(kGroups),
                           .rows = cells_.count(kRows),
                           .n = cells_.count(kN),
                           .k = cells_.count(kK)};
    if (cells_.given(kImbalance)) shape.imbalance = cells_.positive(kImbalance);
    if (shape.imbalance < 1) cells_.reject(kImbalance, "a number of at least 1");
    return grouped_gemm_work(shape, row_.type.storage, uses_matrix_units());
  }

  KernelWork experts() {
    ExpertsShape shape{.kernel = experts_kernel(),
                       .tokens = cells_.count(kTokens),
                       .hidden = cells_.count(kHidden),
                       .inter = cells_.count(kInter),
                       .experts = cells_.count(kExperts),
                       .topk = cells_.count(kTopk)};
    set_routing(shape);
    const std::int64_t shards = cells_.count_or(kShards, 1);
    if (shape.inter % shards != 0) cells_.reject(kShards, "a divisor of inter");
    shape.inter /= shards;
    if (shape.topk > shape.experts) cells_.reject(kTopk, "at most as many as experts");
    return experts_work(shape, row_.type.storage, uses_matrix_units());
  }

  /// AMD's library has one family of kernels; on other GPUs the row has to say.
  ExpertsLibrary experts_kernel() {
    const std::string_view name = cells_.text(kKernel);
    if (name.empty() && row_.gpu && row_.gpu->vendor == "amd") return ExpertsLibrary::kTuned;
    const auto* known = std::ranges::find(kExpertsLibraryNames, name);
    if (known == std::end(kExpertsLibraryNames)) {
      cells_.reject_unknown(kKernel, "triton, cutlass or tuned");
      return ExpertsLibrary::kTriton;
    }
    return static_cast<ExpertsLibrary>(known - std::begin(kExpertsLibraryNames));
  }

  void set_routing(ExpertsShape& shape) {
    using Routing = ExpertsShape::Routing;
    constexpr std::string_view kPowerLaw = "power_law_";
    const std::string_view name = cells_.text(kDistribution);
    if (name.empty() || name == "random") {
      shape.routing = Routing::kRandom;
    } else if (name == "balanced") {
      shape.routing = Routing::kBalanced;
    } else {
      shape.routing = Routing::kPowerLaw;
      const auto exponent =
          name.starts_with(kPowerLaw) ? parse_double(name.substr(kPowerLaw.size())) : std::nullopt;
      if (!exponent || !(*exponent > 0 && *exponent <= 10)) {
        return cells_.reject(kDistribution, "random, balanced or power_law_X, X up to 10");
      }
      shape.power_law = *exponent;
    }
  }

  KernelWork linear_attention() {
    using Kernel = LinearAttentionShape::Kernel;
    LinearAttentionShape shape{.batch = cells_.count(kBatch),
                               .seq = cells_.count(kSeqQ),
                               .k_heads = cells_.count(kKHeads),
                               .k_dim = cells_.count(kKDim),
                               .v_heads = cells_.count(kVHeads),
                               .v_dim = cells_.count(kVDim)};
    const std::string_view name = cells_.text(kKernel);
    if (name == "causal_conv1d_fn") {
      shape.kernel = Kernel::kConvolution;
      shape.filter = cells_.count(kTaps);
    } else if (name != "chunk_gated_delta_rule") {
      cells_.reject_unknown(kKernel, "causal_conv1d_fn or chunk_gated_delta_rule");
    }
    return linear_attention_work(shape, row_.type.storage, uses_matrix_units());
  }

  RecurrentShape::Cell cell() {
    std::string name = lower_case(cells_.text(kCell));
    if (name.empty()) name = row_.op.name.substr(0, row_.op.name.find('_'));
    if (name == "lstm") return RecurrentShape::Cell::kLstm;
    if (name == "gru") return RecurrentShape::Cell::kGru;
    if (name != "rnn" && name != "plain") cells_.reject_unknown(kCell, "rnn, lstm or gru");
    return RecurrentShape::Cell::kPlain;
  }

  KernelWork recurrent() {
    RecurrentShape shape;
    using Pass = RecurrentShape::Pass;
    const std::string_view direction = cells_.text(kDirection);
    shape.cell = cell();
    shape.hidden = cells_.count(kHidden);
    shape.batch = cells_.count(kBatch);
    shape.timesteps = cells_.count(kTimesteps);
    if (direction == "bwd" || direction == "backward") {
      shape.pass = Pass::kBackward;
    } else if (direction == "bwd_data") {
      shape.pass = Pass::kBackwardData;
    } else if (direction == "bwd_weights") {
      shape.pass = Pass::kBackwardWeights;
    } else if (!direction.empty() && direction != "fwd" && direction != "forward") {
      cells_.reject_unknown(kDirection, "fwd, bwd, bwd_data or bwd_weights");
    }
    return recurrent_work(shape, row_.type.storage);
  }

  KernelWork hashed_product() {
    HashedProductShape shape;
    const std::string scheme = lower_case(cells_.text(kScheme));
    if (scheme == "hashednet") {
      shape.scheme = HashedProductShape::Scheme::kElements;
    } else if (scheme != "roast") {
      cells_.reject_unknown(kScheme, "roast or hashednet");
    }
    const std::string_view direction = cells_.text(kDirection);
    shape.is_weight_gradient = direction == "bwd_weights";
    if (!direction.empty() && direction != "fwd" && !shape.is_weight_gradient) {
      cells_.reject_unknown(kDirection, "fwd or bwd_weights");
    }
    shape.m = cells_.count(kM);
    shape.n = cells_.count(kN);
    shape.k = cells_.count(kK);
    shape.elements = cells_.count(kElements);
    return hashed_product_work(shape, row_.type.storage, uses_matrix_units());
  }

  OptimizerKind optimizer_kind() {
    std::string name = lower_case(cells_.text(kOptimizer));
    if (name.empty()) name = row_.op.name;
    if (name == "sgd") return OptimizerKind::kSgd;
    if (name == "momentum") return OptimizerKind::kMomentum;
    if (name == "adagrad") return OptimizerKind::kAdagrad;
    if (name == "rowwise_adagrad") return OptimizerKind::kRowWiseAdagrad;
    if (name == "adam") return OptimizerKind::kAdam;
    cells_.reject_unknown(kOptimizer, "sgd, momentum, adagrad, rowwise_adagrad or adam");
    return OptimizerKind::kSgd;
  }

  KernelWork collective() {
    KernelWork work;
    work.family = KernelFamily::kCollective;
    work.dtype = row_.type.arithmetic;
    const double scale = size_in_bytes(row_.type.storage) / 4.0;
    const double bytes = cells_.positive(kBytes) * (row_.is_graph_table ? scale : 1);
    work.bytes_read = work.bytes_written = {bytes};
    // Operator graphs are those of four GPUs.
    const std::int64_t ranks = row_.op.collective == "send" ? 2 : row_.is_graph_table ? 4 : 0;
    work.shape = CollectiveShape{.kind = std::string(row_.op.collective),
                                 .world_size = cells_.count_or(kWorldSize, ranks)};
    return work;
  }

  RowCells& cells_;
  const TableRow& row_;
};

}  // namespace

KernelWork row_work(RowCells& cells, const TableRow& row) { return WorkReader(cells, row).work(); }

}  // namespace perfmodel::table
