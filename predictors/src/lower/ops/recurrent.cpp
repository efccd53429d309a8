#include <algorithm>

#include "base/size_limits.hpp"
#include "families.hpp"
#include "price/kernel_work.hpp"
#include "rule_support.hpp"

/// Recurrent layers. Gates g: LSTM 4, GRU 3, plain 1. Fused cells add the two gate vectors and
/// apply the nonlinearities: memory-bound over their tensors. _cudnn_rnn runs per layer and
/// direction one GEMM over all steps for the input (t b x g h x in), two in the backward pass, and
/// the recurrent part of all steps, which counts as one piece of work: measured library calls cost
/// several times what the sum of its small kernels would.
namespace perfmodel::ops {
namespace {

bool lower_fused_cell(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Traffic t = traffic(op);
  if (!t.any) return false;
  constexpr double kFlopPerElement = 20;  // sigmoid and tanh of each gate
  kernels.push_back(make_work(KernelFamily::kElementwise, t.dtype, t.read, t.written,
                              kFlopPerElement * static_cast<double>(t.output_elements)));
  return true;
}

/// Whether PyTorch asks cuDNN for kernels that keep the weights in registers (its heuristics:
/// fp16, one layer and direction, sizes of whole blocks; by GPU what the architecture says).
bool is_persistent(const RecurrentShape& s, std::int64_t features, std::int64_t layers,
                   std::int64_t directions, DType dtype, const Gpu& gpu) {
  if (dtype != DType::kFloat16 || layers != 1 || directions != 1) return false;
  if (s.hidden > 1024 || s.hidden % 128 != 0 || features % 128 != 0) return false;
  switch (gpu.architecture.persistent_recurrent) {
    case PersistentRecurrent::kNone: return false;
    case PersistentRecurrent::kVolta:
      return s.batch == 8 || (s.batch % 16 == 0 && s.batch != 80 && s.batch != 112);
    case PersistentRecurrent::kAmpere: {
      using Cell = RecurrentShape::Cell;
      if (gpu.num_sms < 98 || s.cell == Cell::kGru || s.batch % 8 != 0 || s.batch > 128) {
        return false;
      }
      return s.cell == Cell::kLstm || s.batch < 96 || s.hidden < 896;
    }
  }
  return false;
}

/// _cudnn_rnn(input, weight[], weight_stride0, weight_buf, hx, cx, mode, hidden_size, proj_size,
/// num_layers, batch_first, dropout, train, bidirectional, ...); mode 0 relu, 1 tanh, 2 lstm, 3
/// gru. miopen_rnn: same without proj_size. recurrent::wavefront has the arguments of _cudnn_rnn:
/// the steps of all layers run side by side on streams of their own, products of the inputs before.
/// So do today's libraries (`recurrent_cycles`) of themselves where layers have one direction: the
/// reverse one begins with what the layer below ends with.
bool lower_rnn(const OpView& op, const Gpu& gpu, std::vector<KernelWork>& kernels) {
  const Tensor* input = op.tensor_input(0);
  if (!input || input->rank < 2) return false;
  const auto scalar = [&](std::string_view parameter, std::size_t fallback,
                          std::int64_t otherwise) {
    const int index = parameter_index(op, parameter);
    return int_input(op, index >= 0 ? static_cast<std::size_t>(index) : fallback, otherwise);
  };
  const auto flag = [&](std::string_view parameter, std::size_t fallback) {
    const int index = parameter_index(op, parameter);
    return bool_input(op, index >= 0 ? static_cast<std::size_t>(index) : fallback, false);
  };
  const bool is_backward = op.name().find("backward") != std::string_view::npos;
  const std::int64_t mode = scalar("mode", 6, 2);
  const std::int64_t hidden = scalar("hidden_size", 7, 0);
  const std::int64_t layers = scalar("num_layers", 9, 1);
  const bool batch_first = flag("batch_first", 10);
  const std::int64_t directions = flag("bidirectional", 13) ? 2 : 1;
  if (hidden <= 0 || layers <= 0 || layers > kMostLayers) return false;
  const std::int64_t gates = mode == 2 ? 4 : mode == 3 ? 3 : 1;
  const std::int64_t features = dim(op, *input, -1);
  const std::int64_t steps = input->rank == 3 ? dim(op, *input, batch_first ? 1 : 0) : 1;
  const std::int64_t batch = features * steps > 0 ? input->numel / (features * steps) : 0;
  if (batch <= 0) return false;

  RecurrentShape shape{
      .cell = mode == 2   ? RecurrentShape::Cell::kLstm
              : mode == 3 ? RecurrentShape::Cell::kGru
                          : RecurrentShape::Cell::kPlain,
      .pass = is_backward ? RecurrentShape::Pass::kBackward : RecurrentShape::Pass::kForward,
      .hidden = hidden,
      .batch = batch,
      .timesteps = steps};
  shape.persistent = is_persistent(shape, features, layers, directions, input->dtype, gpu);
  const bool lies_side_by_side =
      op.name().find("wavefront") != std::string_view::npos ||
      (gpu.architecture.recurrent_cycles && directions == 1 && !shape.persistent);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const std::int64_t in = layer == 0 ? features : directions * hidden;
    for (std::int64_t direction = 0; direction < directions; ++direction) {
      // Backward: gradients of the input and of its weights.
      for (int product = 0; product < (is_backward ? 2 : 1); ++product) {
        kernels.push_back(gemm_work(1, steps * batch, gates * hidden, in, *input, gpu));
      }
      if (!lies_side_by_side) kernels.push_back(recurrent_work(shape, input->dtype));
    }
  }
  if (lies_side_by_side) {
    shape.layers = layers;
    for (std::int64_t direction = 0; direction < directions; ++direction) {
      kernels.push_back(recurrent_work(shape, input->dtype));
    }
  }
  return true;
}

}  // namespace

std::span<const NamedLower> recurrent_rules() {
  static constexpr NamedLower kRules[] = {
      {"recurrent.fused_cell", lower_fused_cell},
      {"recurrent.rnn", lower_rnn},
  };
  return kRules;
}

}  // namespace perfmodel::ops
