#include "batch_norm.hpp"

#include "memory.hpp"
#include "reduction.hpp"
#include "update.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

constexpr double kMomentum = 0.1;

struct SavedStatistics {
  TensorRef out, mean, deviation, reserve;
};

TensorRef empty_like_dense(GraphBuilder& graph, TensorRef x) {
  if (!graph.pytorch().on_gpu()) return empty_like_contiguous(graph, x);
  const TensorRef made = like(graph, x);
  allocate_like(graph, made, x);
  return made;
}

SavedStatistics cudnn_forward(GraphBuilder& graph, TensorRef x, const BatchNorm& norm,
                              const std::vector<Value>& arguments, std::int64_t sequence) {
  SavedStatistics made;
  const std::int64_t channels = graph.shape(x)[1];
  graph.begin_op("aten::cudnn_batch_norm", arguments, sequence);
  made.out = empty_like_dense(graph, x);
  view(graph, norm.weight, {1, channels, 1, 1});
  made.mean = empty(graph, DType::kFloat32, {channels});
  made.deviation = empty(graph, DType::kFloat32, {channels});
  empty(graph, DType::kUInt8, {0});  // workspace
  made.reserve = empty(graph, DType::kUInt8, {0});
  graph.end_op({made.out, made.mean, made.deviation, made.reserve});
  return made;
}

// As PyTorch 1.13 has it: statistics, then per channel a factor and a shift.
SavedStatistics native_forward(GraphBuilder& graph, TensorRef x,
                               const std::vector<Value>& arguments, std::int64_t sequence) {
  SavedStatistics made;
  const std::int64_t channels = graph.shape(x)[1];
  made.reserve = empty(graph, DType::kUInt8, {0});
  graph.begin_op("aten::native_batch_norm", arguments, sequence);
  made.mean = empty(graph, DType::kFloat32, {channels});
  made.deviation = empty(graph, DType::kFloat32, {channels});
  for (int i = 0; i < 2; ++i) empty(graph, DType::kFloat32, {channels});
  if (graph.shape(x).size() == 2) zero(graph, zeros(graph, DType::kFloat32, {1, channels}));
  made.out = empty_like_dense(graph, x);
  for (int i = 0; i < 2; ++i) empty(graph, DType::kFloat32, {channels});
  graph.end_op({made.out, made.mean, made.deviation});
  return made;
}

// PyTorch's own kernels on a GPU, which x [B, C] gets.
SavedStatistics native_forward_on_gpu(GraphBuilder& graph, TensorRef x,
                                      const std::vector<Value>& arguments, std::int64_t sequence) {
  SavedStatistics made;
  const std::int64_t channels = graph.shape(x)[1];
  made.reserve = empty(graph, DType::kUInt8, {0});
  graph.begin_op("aten::native_batch_norm", arguments, sequence);
  made.out = empty_like(graph, x);
  made.mean = empty(graph, DType::kFloat32, {channels});
  made.deviation = empty(graph, DType::kFloat32, {channels});
  graph.end_op({made.out, made.mean, made.deviation});
  return made;
}

std::vector<TensorRef> cudnn_backward(GraphBuilder& graph, TensorRef x, TensorRef gradient,
                                      const BatchNorm& norm, const SavedStatistics& saved) {
  const std::int64_t channels = graph.shape(x)[1];
  graph.begin_op("aten::cudnn_batch_norm_backward",
                 {x, gradient, norm.weight, norm.mean, norm.variance, saved.mean, saved.deviation,
                  norm.epsilon, saved.reserve});
  std::vector<TensorRef> made = {like(graph, x)};
  allocate(graph, made.front(), {.order = true});
  for (int i = 0; i < 2; ++i) made.push_back(empty(graph, DType::kFloat32, {channels}));
  view(graph, norm.weight, {1, channels, 1, 1});
  empty(graph, DType::kUInt8, {0});  // workspace
  graph.end_op({made[0], made[1], made[2]});
  return made;
}

std::vector<TensorRef> native_backward(GraphBuilder& graph, TensorRef x, TensorRef gradient,
                                       const BatchNorm& norm, const SavedStatistics& saved) {
  const std::int64_t channels = graph.shape(x)[1];
  graph.begin_op("aten::native_batch_norm_backward",
                 {gradient, x, norm.weight, norm.mean, norm.variance, saved.mean, saved.deviation,
                  true, norm.epsilon, Value::List{true, true, true}});
  TensorRef made, weight, bias;
  if (graph.pytorch().on_gpu()) {
    for (int i = 0; i < 2; ++i) empty(graph, DType::kFloat32, {channels});  // sums
    weight = empty(graph, DType::kFloat32, {channels});
    bias = empty(graph, DType::kFloat32, {channels});
    made = empty_like(graph, x);
  } else {
    made = empty_like_dense(graph, x);
    weight = empty(graph, DType::kFloat32, {channels});
    bias = empty(graph, DType::kFloat32, {channels});
    if (graph.is_contiguous(gradient)) {
      made = empty_like_dense(graph, x);
    } else {  // the kernel for tensors of any memory order
      Shape axes = {0};
      for (std::size_t i = 2; i < graph.shape(x).size(); ++i) {
        axes.push_back(static_cast<std::int64_t>(i));
      }
      sum(graph, gradient, axes, false);
    }
    if (graph.shape(x).size() == 2) {
      empty(graph, DType::kFloat32, {0});
      zeros(graph, DType::kFloat32, {2, 1, channels});
    }
  }
  graph.end_op({made, weight, bias});
  return {made, weight, bias};
}

}  // namespace

TensorRef batch_norm(AutogradTape& tape, TensorRef x, const BatchNorm& norm) {
  GraphBuilder& graph = tape.graph();
  const bool on_gpu = graph.pytorch().on_gpu();
  const bool by_cudnn = on_gpu && graph.shape(x).size() > 2;
  const std::int64_t sequence = tape.sequence();
  add_(graph, norm.batches, wrapped_number(graph), sequence);
  std::vector<Value> arguments = {x,    norm.weight, norm.bias,   norm.mean, norm.variance,
                                  true, kMomentum,   norm.epsilon};
  std::vector<Value> with_cudnn_flag = arguments;
  with_cudnn_flag.emplace_back(true);
  graph.begin_op("aten::batch_norm", with_cudnn_flag, sequence);
  graph.begin_op("aten::_batch_norm_impl_index", with_cudnn_flag, sequence);
  SavedStatistics saved;
  if (by_cudnn) {
    saved = cudnn_forward(graph, x, norm, arguments, sequence);
  } else {
    saved = on_gpu ? native_forward_on_gpu(graph, x, arguments, sequence)
                   : native_forward(graph, x, arguments, sequence);
  }
  const int implementation = by_cudnn ? 1 : 0;
  graph.end_op({saved.out, saved.mean, saved.deviation, saved.reserve, implementation});
  graph.end_op({saved.out});
  tape.record(by_cudnn ? "CudnnBatchNormBackward0" : "NativeBatchNormBackward0",
              {x, norm.weight, norm.bias}, saved.out,
              [&graph, x, norm, saved, by_cudnn](TensorRef gradient) {
                return by_cudnn ? cudnn_backward(graph, x, gradient, norm, saved)
                                : native_backward(graph, x, gradient, norm, saved);
              });
  return saved.out;
}

}  // namespace perfmodel
