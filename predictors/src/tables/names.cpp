#include "names.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "core/edit_distance.hpp"
#include "files/lower_case.hpp"

namespace perfmodel::table {
namespace {

// Names of the public tables, of PyTorch and our own. Names that end in `u` combine a tensor with a
// number.
constexpr OpSpec kOps[] = {
    {"gemm", OpKind::kGemm},
    {"bmm", OpKind::kGemm},
    {"mm", OpKind::kGemm},
    {"matmul", OpKind::kGemm},
    {"linear", OpKind::kLinear},
    {"addmm", OpKind::kLinear},
    {"conv2d", OpKind::kConvolution},
    {"conv", OpKind::kConvolution},
    {"convolution", OpKind::kConvolution},
    {"add", OpKind::kElementwise, 1, 2},
    {"sub", OpKind::kElementwise, 1, 2},
    {"mul", OpKind::kElementwise, 1, 2},
    {"div", OpKind::kElementwise, 1, 2},
    {"pow", OpKind::kElementwise, 80, 2},
    {"addu", OpKind::kElementwise, 1, 1},
    {"subu", OpKind::kElementwise, 1, 1},
    {"mulu", OpKind::kElementwise, 1, 1},
    {"divu", OpKind::kElementwise, 1, 1},
    {"powu", OpKind::kElementwise, 20, 1},
    {"relu", OpKind::kElementwise, 1, 1},
    {"gelu", OpKind::kElementwise, 20, 1},
    {"tanh", OpKind::kElementwise, 20, 1},
    {"sigmoid", OpKind::kElementwise, 20, 1},
    {"silu", OpKind::kElementwise, 20, 1},
    {"exp", OpKind::kElementwise, 20, 1},
    {"elementwise", OpKind::kElementwise, 1, 1},
    {"reduction", OpKind::kReduction},
    {"reduce", OpKind::kReduction},
    {"sum", OpKind::kReduction},
    {"max", OpKind::kReduction},
    {"mean", OpKind::kReduction},
    {"softmax", OpKind::kSoftmax},
    {"ln", OpKind::kLayerNorm},
    {"layernorm", OpKind::kLayerNorm},
    {"layer_norm", OpKind::kLayerNorm},
    {"rms_norm", OpKind::kRmsNorm},
    {"batchnorm", OpKind::kBatchNorm},
    {"batch_norm", OpKind::kBatchNorm},
    {"dropout", OpKind::kDropout},
    {"transpose", OpKind::kTranspose},
    {"concat", OpKind::kConcat},
    {"cat", OpKind::kConcat},
    {"gather", OpKind::kGather},
    {"index_select", OpKind::kGather},
    {"scatter_add", OpKind::kScatterAdd},
    {"tril", OpKind::kTril},
    {"interaction", OpKind::kTril},
    {"mem", OpKind::kMove},
    {"memcpy", OpKind::kCopy},
    {"copy", OpKind::kCopy},
    {"strided_copy", OpKind::kStridedCopy},
    {"memset", OpKind::kSet},
    {"embedding", OpKind::kEmbeddingForward},
    {"embedding_bag", OpKind::kEmbeddingForward},
    {"embedding_forward", OpKind::kEmbeddingForward},
    {"tbe_forward", OpKind::kEmbeddingForward},
    {"embedding_backward", OpKind::kEmbeddingBackward},
    {"tbe_backward", OpKind::kEmbeddingBackward},
    {"attention", OpKind::kAttention},
    {"grouped_gemm", OpKind::kGroupedGemm},
    {"experts", OpKind::kExperts},
    {"moe", OpKind::kExperts},
    {"linear_attention", OpKind::kLinearAttention},
    {"gated_delta", OpKind::kLinearAttention},
    {"rnn", OpKind::kRecurrent},
    {"lstm", OpKind::kRecurrent},
    {"gru", OpKind::kRecurrent},
    {"rnn_cell", OpKind::kRecurrentCell},
    {"lstm_cell", OpKind::kRecurrentCell},
    {"gru_cell", OpKind::kRecurrentCell},
    {"optimizer", OpKind::kOptimizer},
    {"sgd", OpKind::kOptimizer},
    {"momentum", OpKind::kOptimizer},
    {"adagrad", OpKind::kOptimizer},
    {"rowwise_adagrad", OpKind::kOptimizer},
    {"adam", OpKind::kOptimizer},
    {"quantize", OpKind::kQuantize},
    {"hashed_product", OpKind::kHashedProduct},
    {"allreduce", OpKind::kCollective, 0, 0, "all_reduce"},
    {"allreduce_async", OpKind::kCollective, 0, 0, "all_reduce"},
    {"all_reduce", OpKind::kCollective, 0, 0, "all_reduce"},
    {"all_gather", OpKind::kCollective, 0, 0, "all_gather"},
    {"reduce_scatter", OpKind::kCollective, 0, 0, "reduce_scatter"},
    {"all_to_all", OpKind::kCollective, 0, 0, "all_to_all"},
    {"broadcast", OpKind::kCollective, 0, 0, "broadcast"},
    {"sendrecv", OpKind::kCollective, 0, 0, "send"},
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
    {"fp4", DType::kFloat4, DType::kFloat4},
    {"nvfp4", DType::kFloat4, DType::kFloat4},
    {"float4", DType::kFloat4, DType::kFloat4},
    {"float4_e2m1fn_x2", DType::kFloat4, DType::kFloat4},
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

}  // namespace

const OpSpec* find_op(std::string_view name) { return find_spec(kOps, name); }

const TypeSpec* find_type(std::string_view name) { return find_spec(kTypes, name); }

const TypeSpec& default_type() { return kTypes[0]; }

std::string a_known_op(std::string_view name) { return one_of(kOps, "op", name); }

std::string a_known_type(std::string_view name) { return one_of(kTypes, "dtype", name); }

}  // namespace perfmodel::table
