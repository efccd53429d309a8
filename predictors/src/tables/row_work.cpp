#include "row_work.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "files/lower_case.hpp"
#include "price/kernel_work.hpp"

namespace perfmodel::table {
namespace {

bool uses_matrix_units(const TableRow& row) {
  if (row.type.units != TypeSpec::Units::kAsPyTorch) {
    return row.type.units == TypeSpec::Units::kMatrix;
  }
  static const Gpu kUnnamed;  // see `for_gpu`
  return gemm_uses_matrix_units(row.type.arithmetic, row.gpu ? *row.gpu : kUnnamed);
}

/// Whether the framework's own name of the op, where a column has it, holds the words.
bool says(RowCells& cells, std::string_view words) {
  return cells.text(kName).find(words) != std::string_view::npos;
}

/// `masked_fill` is two kernels: a copy, and a fill of the copy that reads a mask of bytes.
void fill_copy(KernelWork& work) {
  const double copy = work.bytes_written.value;
  work.bytes_read = {2 * copy + copy / size_in_bytes(work.dtype)};
  work.bytes_written = {2 * copy};
}

bool channels_last(RowCells& cells) {
  const std::string_view value = cells.text(kMemoryFormat);
  if (!value.empty() && value != "contiguous" && value != "channels_last") {
    cells.reject_unknown(kMemoryFormat, "contiguous or channels_last");
  }
  return value == "channels_last";
}

/// Who computes a batch norm; where no column says, kernels like PyTorch's own.
bool by_cudnn(RowCells& cells) {
  const std::string_view value = cells.text(kLibrary);
  if (value.empty()) return false;
  if (value != "native" && value != "cudnn" && value != "miopen") {
    cells.reject_unknown(kLibrary, "cudnn, miopen or native");
  }
  return value != "native";
}

RowPass row_pass(RowCells& cells, const TableRow& row) {
  // Operator graphs: the bytes come from the columns.
  if (row.is_graph_table && !cells.given(kDirection)) return RowPass::kForward;
  const std::string_view value = cells.text(kDirection);
  if (value.empty() || value == "fwd" || value == "fw" || value == "forward") {
    return RowPass::kForward;
  }
  if (value != "bwd" && value != "bw" && value != "backward") {
    cells.reject_unknown(kDirection, "fwd or bwd");
  }
  return RowPass::kBackward;
}

bool is_scaled(const TableRow& row) {
  return row.type.storage == DType::kFloat8 || row.type.storage == DType::kFloat4;
}

void reject_lacking_type(RowCells& cells, const TableRow& row) {
  if (!row.gpu || has_matrix_units(row.type.arithmetic, *row.gpu)) return;
  cells.refuse(kType, "a type that the matrix units of " + row.gpu->name + " have, found " +
                          std::string(row.type.name));
}

/// Types that need no scales say "none" or nothing.
Scaling scaling(RowCells& cells, const TableRow& row) {
  const std::string_view value = cells.text(kScaling);
  if (is_scaled(row)) {
    for (const Scaling known : {Scaling::kTensor, Scaling::kToken, Scaling::kBlock}) {
      if (value == to_string(known)) return known;
    }
    if (!value.empty()) cells.reject_unknown(kScaling, "tensor, token or block");
  } else if (!value.empty() && value != "none") {
    cells.reject(kScaling, "none, as the type has no scales");
  }
  return row.type.storage == DType::kFloat4 ? Scaling::kBlock : Scaling::kTensor;
}

bool quantizes(RowCells& cells, const TableRow& row) {
  const bool value = cells.flag(kQuantizes);
  if (value && !is_scaled(row)) cells.reject(kQuantizes, "0: only fp8 and fp4 are quantised to");
  return value;
}

Layout layout(RowCells& cells) {
  const std::string_view value = cells.text(kLayout);
  if (value != to_string(Layout::kContiguous) && says(cells, "aten::upsample") &&
      says(cells, "3d")) {
    return Layout::kUpsampled3d;
  }
  if (value == to_string(Layout::kStrided) && says(cells, "_across")) return Layout::kTransposed;
  for (const Layout known : {Layout::kContiguous, Layout::kBroadcast, Layout::kStrided,
                             Layout::kTransposed, Layout::kMixedTypes, Layout::kUpsampled3d}) {
    if (value == to_string(known)) return known;
  }
  if (!value.empty()) {
    cells.reject_unknown(kLayout,
                         "contiguous, broadcast, strided, transposed, mixed types or upsampled 3d");
  }
  return Layout::kContiguous;
}

/// Operator graphs give the node's reads and writes: vector kernels of broadcast or split
/// nodes move 4 (in + out) / out bytes per element of theirs.
void count_node_bytes(RowCells& cells, const TableRow& row, KernelWork& work) {
  if (work.family == KernelFamily::kGemm || row.op.kind == OpKind::kMove) return;
  if (!cells.given(kInElements) || !cells.given(kOutElements) || !cells.given(kRows)) return;
  const double own = static_cast<double>(cells.count(kRows)) *
                     static_cast<double>(cells.count(kCols)) * size_in_bytes(row.type.storage);
  work.bytes_written = {own};
  work.bytes_read = {own * (cells.at_least_zero(kInElements) / cells.positive(kOutElements))};
}

bool transposed(RowCells& cells, Column column) {
  const std::string_view value = cells.text(column);
  if (value == "T" || value == "t") return true;
  if (value != "N" && value != "n") cells.reject_unknown(column, "N or T");
  return false;
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
KernelWork gemm(RowCells& cells, const TableRow& row) {
  GemmShape shape{.batch = cells.count_or(kB, 1),
                  .m = cells.count(kM),
                  .n = cells.count(kN),
                  .k = cells.count(kK)};
  const bool backward = row.is_graph_table && row.stage != "fw";
  if (row.op.kind == OpKind::kLinear && !backward) shape.has_bias = shape.b_transposed = true;
  if (cells.given(kLayout)) {
    const std::string layout = lower_case(cells.text(kLayout));
    if (layout != "nn" && layout != "nt" && layout != "tn" && layout != "tt") {
      cells.reject_unknown(kLayout, "nn, nt, tn or tt");
    } else {
      shape.b_transposed = layout[0] == 't';
      shape.a_transposed = layout[1] == 't';
    }
  } else if (cells.given(kTransA) || cells.given(kTransB)) {
    shape.b_transposed = transposed(cells, kTransA);
    shape.a_transposed = transposed(cells, kTransB);
    std::swap(shape.m, shape.n);
  }
  shape.scaling = scaling(cells, row);
  shape.quantizes_a = quantizes(cells, row);
  reject_lacking_type(cells, row);
  return gemm_work(shape, row.type.storage, uses_matrix_units(row));
}

KernelWork convolution(RowCells& cells, const TableRow& row) {
  ConvolutionShape shape{};
  std::int64_t pad_h = 0, pad_w = 0, stride_w = 1;
  Column image_h = kH, image_w = kW;
  if (cells.given(kChannelsIn)) {  // NeuSight: square images and filters
    shape.n = cells.count(kBatch);
    shape.c = cells.count(kChannelsIn);
    shape.k = cells.count(kChannelsOut);
    shape.h = shape.w = cells.count(kImage);
    shape.r = shape.s = cells.count(kFilter);
    shape.stride = stride_w = cells.count_or(kStride, 1);
    pad_h = pad_w = cells.size_or_zero(kPad);
    image_h = image_w = kImage;
  } else {
    shape.n = cells.count(kN);
    shape.c = cells.count(kC);
    shape.h = cells.count(kH);
    shape.w = cells.count(kW);
    shape.k = cells.count(kK);
    shape.r = cells.count(kR);
    shape.s = cells.count(kS);
    pad_h = cells.given(kPadH) ? cells.size_or_zero(kPadH) : cells.size_or_zero(kPad);
    pad_w = cells.given(kPadW) ? cells.size_or_zero(kPadW) : cells.size_or_zero(kPad);
    shape.stride = cells.given(kStrideH) ? cells.count(kStrideH) : cells.count_or(kStride, 1);
    stride_w = cells.given(kStrideW) ? cells.count(kStrideW) : cells.count_or(kStride, 1);
  }
  shape.groups = cells.count_or(kGroups, 1);
  shape.channels_last = channels_last(cells);
  if (shape.c % shape.groups != 0 || shape.k % shape.groups != 0) {
    cells.reject(kGroups, "a divisor of both channel counts");
  }
  const std::string_view direction = cells.text(kDirection);
  using Pass = ConvolutionShape::Pass;
  if (direction.empty() || direction == "fwd" || direction == "forward") {
    shape.pass = Pass::kForward;
  } else if (direction == "dgrad") {
    shape.pass = Pass::kInputGradient;
  } else if (direction == "wgrad") {
    shape.pass = Pass::kWeightGradient;
  } else {
    cells.reject_unknown(kDirection, "fwd, dgrad or wgrad");
  }
  if (cells.error()) return {};
  if (shape.h + 2 * pad_h < shape.r) cells.reject(image_h, "an image that the filter fits in");
  if (shape.w + 2 * pad_w < shape.s) cells.reject(image_w, "an image that the filter fits in");
  shape.p = convolution_output(shape.h, shape.r, pad_h, shape.stride);
  shape.q = convolution_output(shape.w, shape.s, pad_w, stride_w);
  reject_lacking_type(cells, row);
  return convolution_work(shape, row.type.storage, uses_matrix_units(row));
}

/// Pure movement of `bytes`, half of them read: an elementwise kernel without arithmetic.
KernelWork movement(RowCells& cells, const TableRow& row) {
  const double scale = size_in_bytes(row.type.storage) / 4.0;  // the column counts 4 per element
  const double bytes = cells.positive(kBytes) * (row.is_graph_table ? scale : 1);
  KernelWork work =
      elementwise_work(bytes / (2.0 * size_in_bytes(row.type.storage)), 1, 0, row.type.storage);
  work.bytes_read = work.bytes_written = {bytes / 2};
  return work;
}

KernelWork copy(RowCells& cells) {
  CopyShape shape{};
  const std::string kind = lower_case(cells.text(kCopyKind));
  if (kind == "h2d") {
    shape.kind = CopyKind::kHostToDevice;
  } else if (kind == "d2h") {
    shape.kind = CopyKind::kDeviceToHost;
  } else if (kind == "p2p") {
    shape.kind = CopyKind::kPeer;
  } else if (!kind.empty() && kind != "d2d") {
    cells.reject_unknown(kCopyKind, "h2d, d2h, d2d or p2p");
  }
  shape.pageable = !cells.flag(kPinned);
  return memcpy_work(cells.positive(kBytes), shape);
}

KernelWork embedding(RowCells& cells, const TableRow& row) {
  EmbeddingShape shape;
  shape.num_tables = cells.count_or(kTables, 1);
  shape.num_rows = cells.positive(kRows);
  shape.dim = cells.positive(kDim);
  shape.pooling_factor = cells.positive(kPooling);
  if (cells.has(kBags) && (cells.given(kBags) || !cells.given(kBatch))) {
    const std::int64_t bags = cells.count(kBags);
    if (!cells.error() && bags % shape.num_tables != 0)
      cells.reject(kBags, "a multiple of the tables");
    shape.batch = bags / shape.num_tables;
  } else {
    shape.batch = cells.count(kBatch);
  }
  shape.weight_bytes = size_in_bytes(row.type.storage);
  if (cells.given(kZipf)) shape.zipf_exponent = cells.at_least_zero(kZipf);
  if (cells.given(kIndexBytes)) {
    shape.index_bytes = static_cast<int>(cells.count(kIndexBytes));
    if (shape.index_bytes != 4 && shape.index_bytes != 8) cells.reject(kIndexBytes, "4 or 8");
  }
  if (cells.given(kOutputType)) {
    const TypeSpec* output = find_type(cells.text(kOutputType));
    if (!output) cells.reject_unknown(kOutputType, a_known_type(cells.text(kOutputType)));
    if (output) shape.output_bytes = size_in_bytes(output->storage);
  }
  if (row.op.kind == OpKind::kEmbeddingForward && row_pass(cells, row) == RowPass::kForward) {
    return embedding_forward_work(shape);
  }
  const std::string optimizer =
      lower_case(cells.text(kOptimizer));  // fp32 states, read and written
  if (optimizer == "rowwise_adagrad" || optimizer == "exact_rowwise_adagrad") {
    shape.optimizer_bytes_per_row = 2 * 4;
  } else if (optimizer == "adagrad") {
    shape.optimizer_bytes_per_row = 2 * 4 * shape.dim;
  } else if (optimizer == "adam") {
    shape.optimizer_bytes_per_row = 2 * 2 * 4 * shape.dim;
  } else if (!optimizer.empty() && optimizer != "sgd") {
    cells.reject_unknown(kOptimizer, "sgd, rowwise_adagrad, adagrad or adam");
  }
  return embedding_backward_work(shape);
}

AttentionGeneration attention_kernel(RowCells& cells) {
  if (!cells.given(kKernel)) {
    const std::string_view library = cells.text(kLibrary);
    if (library == "cudnn") return AttentionGeneration::kCudnn;
    if (library == "flash") return AttentionGeneration::kFa2;
    if (!library.empty() && library != "efficient") {
      cells.reject_unknown(kLibrary, "cudnn, efficient or flash");
    }
    return AttentionGeneration::kFramework;
  }
  const auto* name = std::ranges::find(kAttentionGenerationNames, cells.text(kKernel));
  if (name == std::end(kAttentionGenerationNames)) {
    cells.reject_unknown(kKernel, "fa2, fa3, fa4, trtllm_gen or cudnn");
    return AttentionGeneration::kFramework;
  }
  return static_cast<AttentionGeneration>(name - std::begin(kAttentionGenerationNames));
}

KernelWork attention(RowCells& cells, const TableRow& row) {
  AttentionShape shape;
  shape.batch = cells.count(kBatch);
  shape.heads = cells.count(kHeads);
  shape.seq_q = cells.count(kSeqQ);
  shape.seq_k = cells.count_or(kSeqK, shape.seq_q);
  shape.head_dim = cells.count(kHeadDim);
  shape.causal = cells.flag(kCausal);
  shape.kv_heads = cells.count_or(kKvHeads, 0);
  if (shape.kv_heads > 0 && shape.heads % shape.kv_heads != 0) {
    cells.reject(kKvHeads, "a divisor of heads");
  }
  shape.pass = row_pass(cells, row) == RowPass::kForward ? AttentionShape::Pass::kForward
                                                         : AttentionShape::Pass::kBackward;
  if (cells.text(kMethod) == "math") {
    shape.method = AttentionShape::Method::kMath;
  } else if (cells.given(kMethod) && cells.text(kMethod) != "flash") {
    cells.reject_unknown(kMethod, "flash or math");
  }
  shape.writes_cache = cells.flag(kWritesCache);
  shape.kernel = attention_kernel(cells);
  reject_lacking_type(cells, row);
  return attention_work(shape, row.type.storage, uses_matrix_units(row));
}

KernelWork grouped_gemm(RowCells& cells, const TableRow& row) {
  GroupedGemmShape shape{.groups = cells.count(kGroups),
                         .rows = cells.count(kRows),
                         .n = cells.count(kN),
                         .k = cells.count(kK)};
  if (cells.given(kImbalance)) shape.imbalance = cells.positive(kImbalance);
  if (shape.imbalance < 1 || shape.imbalance > static_cast<double>(shape.groups)) {
    cells.reject(kImbalance, "a number from 1 to the number of groups");
  }
  return grouped_gemm_work(shape, row.type.storage, uses_matrix_units(row));
}

/// AMD's library has one family of kernels; on other GPUs the row has to say.
ExpertsLibrary experts_kernel(RowCells& cells, const TableRow& row) {
  const std::string_view name = cells.text(kKernel);
  if (name.empty() && row.gpu && row.gpu->vendor == "amd") return ExpertsLibrary::kTuned;
  const auto* known = std::ranges::find(kExpertsLibraryNames, name);
  if (known == std::end(kExpertsLibraryNames)) {
    cells.reject_unknown(kKernel, "triton, cutlass or tuned");
    return ExpertsLibrary::kTriton;
  }
  return static_cast<ExpertsLibrary>(known - std::begin(kExpertsLibraryNames));
}

void set_routing(RowCells& cells, ExpertsShape& shape) {
  using Routing = ExpertsShape::Routing;
  constexpr std::string_view kPowerLaw = "power_law_";
  const std::string_view name = cells.text(kDistribution);
  if (name.empty() || name == "random") {
    shape.routing = Routing::kRandom;
  } else if (name == "balanced") {
    shape.routing = Routing::kBalanced;
  } else {
    shape.routing = Routing::kPowerLaw;
    const auto exponent =
        name.starts_with(kPowerLaw) ? parse_double(name.substr(kPowerLaw.size())) : std::nullopt;
    if (!exponent || !(*exponent > 0 && *exponent <= 10)) {
      return cells.reject(kDistribution, "random, balanced or power_law_X, X up to 10");
    }
    shape.power_law = *exponent;
  }
}

KernelWork experts(RowCells& cells, const TableRow& row) {
  ExpertsShape shape{.kernel = experts_kernel(cells, row),
                     .tokens = cells.count(kTokens),
                     .hidden = cells.count(kHidden),
                     .inter = cells.count(kInter),
                     .experts = cells.count(kExperts),
                     .topk = cells.count(kTopk)};
  set_routing(cells, shape);
  const std::int64_t shards = cells.count_or(kShards, 1);
  if (shape.inter % shards != 0) cells.reject(kShards, "a divisor of inter");
  shape.inter /= shards;
  if (shape.topk > shape.experts) cells.reject(kTopk, "at most as many as experts");
  return experts_work(shape, row.type.storage, uses_matrix_units(row));
}

KernelWork linear_attention(RowCells& cells, const TableRow& row) {
  using Kernel = LinearAttentionShape::Kernel;
  LinearAttentionShape shape{.batch = cells.count(kBatch),
                             .seq = cells.count(kSeqQ),
                             .k_heads = cells.count(kKHeads),
                             .k_dim = cells.count(kKDim),
                             .v_heads = cells.count(kVHeads),
                             .v_dim = cells.count(kVDim)};
  const std::string_view name = cells.text(kKernel);
  if (name == "causal_conv1d_fn") {
    shape.kernel = Kernel::kConvolution;
    shape.filter = cells.count(kTaps);
  } else if (name != "chunk_gated_delta_rule") {
    cells.reject_unknown(kKernel, "causal_conv1d_fn or chunk_gated_delta_rule");
  }
  return linear_attention_work(shape, row.type.storage, uses_matrix_units(row));
}

RecurrentShape::Cell cell(RowCells& cells, const TableRow& row) {
  std::string name = lower_case(cells.text(kCell));
  if (name.empty()) name = row.op.name.substr(0, row.op.name.find('_'));
  if (name == "lstm") return RecurrentShape::Cell::kLstm;
  if (name == "gru") return RecurrentShape::Cell::kGru;
  if (name != "rnn" && name != "plain") cells.reject_unknown(kCell, "rnn, lstm or gru");
  return RecurrentShape::Cell::kPlain;
}

KernelWork recurrent(RowCells& cells, const TableRow& row) {
  RecurrentShape shape;
  using Pass = RecurrentShape::Pass;
  const std::string_view direction = cells.text(kDirection);
  shape.cell = cell(cells, row);
  shape.hidden = cells.count(kHidden);
  shape.batch = cells.count(kBatch);
  shape.timesteps = cells.count(kTimesteps);
  if (direction == "bwd" || direction == "backward") {
    shape.pass = Pass::kBackward;
  } else if (direction == "bwd_data") {
    shape.pass = Pass::kBackwardData;
  } else if (direction == "bwd_weights") {
    shape.pass = Pass::kBackwardWeights;
  } else if (!direction.empty() && direction != "fwd" && direction != "forward") {
    cells.reject_unknown(kDirection, "fwd, bwd, bwd_data or bwd_weights");
  }
  return recurrent_work(shape, row.type.storage);
}

KernelWork hashed_product(RowCells& cells, const TableRow& row) {
  HashedProductShape shape;
  const std::string scheme = lower_case(cells.text(kScheme));
  if (scheme == "hashednet") {
    shape.scheme = HashedProductShape::Scheme::kElements;
  } else if (scheme != "roast") {
    cells.reject_unknown(kScheme, "roast or hashednet");
  }
  const std::string_view direction = cells.text(kDirection);
  shape.is_weight_gradient = direction == "bwd_weights";
  if (!direction.empty() && direction != "fwd" && !shape.is_weight_gradient) {
    cells.reject_unknown(kDirection, "fwd or bwd_weights");
  }
  shape.m = cells.count(kM);
  shape.n = cells.count(kN);
  shape.k = cells.count(kK);
  shape.elements = cells.count(kElements);
  return hashed_product_work(shape, row.type.storage, uses_matrix_units(row));
}

OptimizerKind optimizer_kind(RowCells& cells, const TableRow& row) {
  std::string name = lower_case(cells.text(kOptimizer));
  if (name.empty()) name = row.op.name;
  if (name == "sgd") return OptimizerKind::kSgd;
  if (name == "momentum") return OptimizerKind::kMomentum;
  if (name == "adagrad") return OptimizerKind::kAdagrad;
  if (name == "rowwise_adagrad") return OptimizerKind::kRowWiseAdagrad;
  if (name == "adam") return OptimizerKind::kAdam;
  cells.reject_unknown(kOptimizer, "sgd, momentum, adagrad, rowwise_adagrad or adam");
  return OptimizerKind::kSgd;
}

KernelWork collective(RowCells& cells, const TableRow& row) {
  KernelWork work;
  work.family = KernelFamily::kCollective;
  work.dtype = row.type.arithmetic;
  const double scale = size_in_bytes(row.type.storage) / 4.0;
  const double bytes = cells.positive(kBytes) * (row.is_graph_table ? scale : 1);
  work.bytes_read = work.bytes_written = {bytes};
  // Operator graphs are for four GPUs.
  std::int64_t ranks = row.op.collective == "send" ? 2 : row.is_graph_table ? 4 : 0;
  if (ranks == 0 && cells.given(kNodes) && cells.given(kGpusPerNode)) {
    ranks = cells.count(kNodes) * cells.count(kGpusPerNode);
  }
  work.shape = CollectiveShape{.kind = std::string(row.op.collective),
                               .world_size = cells.count_or(kWorldSize, ranks)};
  return work;
}

}  // namespace

NetworkFacts row_network(RowCells& cells) {
  const auto count = [&](Column column) {
    const std::int64_t count = cells.count_or(column, 0);
    if (count > (1 << 24)) cells.reject(column, "at most 16,777,216");
    return static_cast<int>(count);
  };
  NetworkFacts facts{.nodes = count(kNodes), .nics = count(kNics), .network = {}};
  if (cells.given(kNicRate)) facts.nic_bandwidth = {cells.positive(kNicRate) * 1e9};
  facts.network = cells.text(kNetwork);
  if (!knows_network(facts.network)) {
    cells.reject_unknown(kNetwork, "a network (" + network_kinds() + ")");
  }
  return facts;
}

void read_row_work(RowCells& cells, const TableRow& row, KernelWork& work) {
  const DType dtype = row.type.storage;
  switch (row.op.kind) {
    case OpKind::kGemm:
    case OpKind::kLinear: work = gemm(cells, row); break;
    case OpKind::kConvolution: work = convolution(cells, row); break;
    case OpKind::kElementwise:
      work = elementwise_work(
          cells.elements(),
          cells.given(kInputs) ? static_cast<double>(cells.count(kInputs)) : row.op.inputs,
          row.op.flop, dtype);
      work.layout = layout(cells);
      if (says(cells, "aten::masked_fill") && !says(cells, "masked_fill_")) fill_copy(work);
      break;
    case OpKind::kReduction:
      work = reduction_work(cells.count(kRows), cells.count(kCols), dtype, cells.flag(kStrided));
      break;
    case OpKind::kSoftmax:
      work = softmax_work(cells.count(kRows), cells.count(kCols), row_pass(cells, row), dtype);
      std::get<RowShape>(work.shape).is_log = says(cells, "log_softmax");
      break;
    case OpKind::kLayerNorm:
    case OpKind::kRmsNorm:
      work = layer_norm_work(cells.count(kRows), cells.count(kCols), row_pass(cells, row), dtype);
      std::get<RowShape>(work.shape).is_rms =
          row.op.kind == OpKind::kRmsNorm || says(cells, "rms_norm");
      break;
    case OpKind::kBatchNorm:
      work = batch_norm_work(cells.count(kRows), cells.count(kCols), row_pass(cells, row), dtype);
      std::get<RowShape>(work.shape).is_cudnn = by_cudnn(cells);
      std::get<RowShape>(work.shape).is_channels_last = channels_last(cells);
      std::get<RowShape>(work.shape).batch = cells.count_or(kN, 1);
      break;
    case OpKind::kDropout:
      work = dropout_work(cells.elements(), row_pass(cells, row), dtype);
      break;
    case OpKind::kTranspose:
      work = transpose_work(cells.count_or(kB, 1), cells.count(kRows), cells.count(kCols), dtype);
      break;
    case OpKind::kConcat: work = concat_work(cells.elements(), dtype); break;
    case OpKind::kGather:
      work =
          gather_work(cells.count(kRows), cells.count(kCols), dtype, cells.count_or(kTableRows, 0));
      break;
    case OpKind::kScatterAdd:
      work = scatter_add_work(cells.count(kRows), cells.count(kCols), dtype,
                              cells.count_or(kTableRows, 0));
      break;
    case OpKind::kTril:
      work = tril_interaction_work(cells.count(kBatch), cells.count(kFeatures), false,
                                   row_pass(cells, row), dtype);
      break;
    case OpKind::kMove: work = movement(cells, row); break;
    case OpKind::kCopy: work = copy(cells); break;
    case OpKind::kStridedCopy:
      work = strided_copy_work(cells.positive(kBytes), cells.count(kRowBytes));
      break;
    case OpKind::kSet: work = memset_work(cells.positive(kBytes)); break;
    case OpKind::kEmbeddingForward:
    case OpKind::kEmbeddingBackward: work = embedding(cells, row); break;
    case OpKind::kAttention: work = attention(cells, row); break;
    case OpKind::kGroupedGemm: work = grouped_gemm(cells, row); break;
    case OpKind::kExperts: work = experts(cells, row); break;
    case OpKind::kLinearAttention: work = linear_attention(cells, row); break;
    case OpKind::kRecurrent: work = recurrent(cells, row); break;
    case OpKind::kRecurrentCell:
      work = recurrent_cell_work(cell(cells, row), cells.count(kBatch), cells.count(kHidden),
                                 row_pass(cells, row), dtype);
      break;
    case OpKind::kOptimizer:
      work = optimizer_work(cells.elements(), optimizer_kind(cells, row), dtype);
      break;
    case OpKind::kHashedProduct: work = hashed_product(cells, row); break;
    case OpKind::kQuantize:
      if (!is_scaled(row)) cells.reject(kType, "fp8 or fp4, which numbers are quantised to");
      work = quantize_work(cells.count(kRows), cells.count(kCols), dtype, scaling(cells, row));
      break;
    case OpKind::kCollective: work = collective(cells, row); return;
  }
  if (row.type.storage != row.type.arithmetic && work.dtype == row.type.storage) {
    work.dtype = row.type.arithmetic;  // bytes were counted in the narrow type
  }
  if (row.is_graph_table && !cells.error()) count_node_bytes(cells, row, work);
}

}  // namespace perfmodel::table
