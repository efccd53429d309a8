#include <algorithm>
#include <array>

#include "families.hpp"
#include "ops/catalogue.hpp"

/// Ops over lists of tensors: `_foreach_*` and the fused optimizers of PyTorch, one multi-tensor
/// kernel for as many tensors as its argument struct holds.
///
/// Launch rule (ATen/native/cuda/MultiTensorApply.cuh): tensors are cut into chunks of 65,536
/// elements; a launch takes at most 320 chunks and, with a depth of 1, 2, 3, 4, 5 lists, at most
/// 110, 64, 48, 36, 30 tensors. A tensor whose chunks do not all fit goes on in the next launch.
/// Foreach ops that cannot take this path call one op per tensor; those are children.
namespace perfmodel::ops {
namespace {

constexpr std::int64_t kChunkElements = 65536;
constexpr double kMostElements = 0x1p40;
constexpr int kMaxChunks = 320;
constexpr std::array<int, 5> kMaxTensors = {110, 64, 48, 36, 30};

/// A list argument of GPU tensors.
struct TensorList {
  std::span<const Argument> items;
};

std::vector<TensorList> tensor_lists(const OpView& op, std::span<const Argument> arguments) {
  std::vector<TensorList> lists;
  for (const Argument& argument : arguments) {
    if (argument.kind != Argument::Kind::kList || argument.count == 0) continue;
    const auto items = op.graph.elements(argument);
    if (items[0].kind == Argument::Kind::kTensor) lists.push_back({items});
  }
  return lists;
}

/// How many of them differ: the gradients that addcmul_ multiplies with themselves come once from
/// memory.
int different(const OpView& op, const std::vector<TensorList>& lists) {
  std::vector<std::int64_t> ids;
  for (const TensorList& list : lists) {
    const std::int64_t id = op.graph.tensors[list.items[0].index].id;
    if (id == 0 || std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  }
  return static_cast<int>(ids.size());
}

const Tensor* tensor_of(const OpView& op, const Argument& argument) {
  return argument.kind == Argument::Kind::kTensor ? &op.graph.tensors[argument.index] : nullptr;
}

bool only_bookkeeping_children(const OpView& op) {
  return std::ranges::all_of(op.graph.children(op.node), [&](std::int32_t child) {
    const std::string_view name = op.graph.name(child);
    return name == "aten::result_type" || is_empty(name) || name == "aten::is_same_size" ||
           is_zeros(name);
  });
}

/// `reads`, `writes`: how many of the lists each kernel reads and writes; `depth`: lists in the
/// struct. `flop`: per element of the first list. False for more elements than any memory holds,
/// which would be kernels without end.
bool append_multi_tensor(const OpView& op, const TensorList& first, int depth, double reads,
                         double writes, double flop, std::vector<KernelWork>& kernels) {
  const int max_tensors = kMaxTensors[std::clamp(depth, 1, 5) - 1];
  double all_elements = 0;
  for (const Argument& item : first.items) {
    const Tensor* tensor = tensor_of(op, item);
    if (tensor) all_elements += static_cast<double>(tensor->numel);
  }
  if (all_elements > kMostElements) return false;
  int chunks = 0, tensors = 0;
  double elements = 0;
  std::int32_t item_size = 4;
  DType dtype = DType::kFloat32;
  const auto launch = [&] {
    kernels.push_back(make_work(KernelFamily::kOptimizer, dtype, elements * item_size * reads,
                                elements * item_size * writes, elements * flop));
    elements = 0;
    chunks = 0;
  };
  for (const Argument& item : first.items) {
    const Tensor* tensor = tensor_of(op, item);
    if (!tensor || tensor->numel == 0) continue;
    item_size = tensor->item_size;
    dtype = tensor->dtype;
    ++tensors;
    for (std::int64_t done = 0; done < tensor->numel; done += kChunkElements) {
      const std::int64_t size = std::min(kChunkElements, tensor->numel - done);
      const bool is_last_chunk = done + size == tensor->numel;
      elements += static_cast<double>(size);
      ++chunks;
      const bool tensors_full = tensors == max_tensors && is_last_chunk;
      if (!tensors_full && chunks < kMaxChunks) continue;
      launch();
      tensors = is_last_chunk ? 0 : 1;  // the rest of this tensor opens the next launch
    }
  }
  if (chunks > 0) launch();
  return true;
}

bool lower_foreach(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  if (!only_bookkeeping_children(op)) return true;  // the slow path: one op per tensor
  const auto inputs = tensor_lists(op, op.inputs());
  if (inputs.empty()) return false;
  bool on_gpu = false;
  for_each_gpu_tensor(op, op.inputs(), [&](const Tensor&) { on_gpu = true; });
  if (!on_gpu) return true;
  const std::string_view name = op.name();
  const bool in_place = name.ends_with('_');
  const auto lists = static_cast<int>(inputs.size());
  if (name == "aten::_foreach_norm") {  // partial sums, then one kernel that finishes them
    if (!append_multi_tensor(op, inputs[0], 1, 1, 0, 2, kernels)) return false;
    kernels.push_back(small_work());
    return true;
  }
  const bool only_writes = name == "aten::_foreach_zero_";
  return append_multi_tensor(op, inputs[0], in_place ? lists : lists + 1,
                             only_writes ? 0 : different(op, inputs), 1, static_cast<double>(lists),
                             kernels);
}

/// _fused_adam_(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, ...): depth 4,
/// or 5 with amsgrad; the step counts are single numbers. _fused_adamw_ likewise.
bool lower_fused_adam(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const auto lists = tensor_lists(op, op.inputs());
  if (lists.size() < 4) return false;
  const bool amsgrad = lists.size() > 5;
  return append_multi_tensor(op, lists[0], amsgrad ? 5 : 4, amsgrad ? 5 : 4, amsgrad ? 4 : 3, 15,
                             kernels);
}

/// _fused_sgd_(params, grads, momentum_buffers, ...): depth 2, or 3 with momentum.
bool lower_fused_sgd(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const auto lists = tensor_lists(op, op.inputs());
  if (lists.size() < 2) return false;
  const bool momentum = lists.size() > 2;
  return append_multi_tensor(op, lists[0], momentum ? 3 : 2, momentum ? 3 : 2, momentum ? 2 : 1, 4,
                             kernels);
}

/// _fused_adagrad_(params, grads, state_sums, state_steps, ...).
bool lower_fused_adagrad(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const auto lists = tensor_lists(op, op.inputs());
  if (lists.size() < 3) return false;
  return append_multi_tensor(op, lists[0], 3, 3, 2, 10, kernels);
}

/// bitsandbytes::optimizer_update_8bit_blockwise(name, gradient, parameter, two states, ..., two
/// maps, two scales, ...) and optimizer_update_32bit(name, gradient, parameter, two states, ...):
/// one kernel reads all and writes all except the gradient. It looks up each number of an 8-bit
/// state in a map of 256, and searches the new one there in 8 comparisons
/// (kOptimizerBlockwise8bit2State).
bool lower_adam_of_one(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor *gradient = op.tensor_input(1), *parameter = op.tensor_input(2);
  if (!gradient || !parameter) return false;
  if (parameter->numel == 0) return true;
  double all = 0;
  bool narrow = false;
  for_each_gpu_tensor(op, op.inputs(), [&](const Tensor& tensor) {
    all += static_cast<double>(tensor.bytes());
    narrow |= tensor.dtype == DType::kUInt8;
  });
  constexpr double kAdam = 15, kCodes = 2 * 20;  // FLOP per number; both states
  kernels.push_back(make_work(
      KernelFamily::kOptimizer, parameter->dtype, all, all - static_cast<double>(gradient->bytes()),
      static_cast<double>(parameter->numel) * (narrow ? kAdam + kCodes : kAdam)));
  return true;
}

/// _amp_foreach_non_finite_check_and_unscale_(tensors, found_inf, inv_scale).
bool lower_unscale(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const auto lists = tensor_lists(op, op.inputs());
  if (lists.empty()) return false;
  return append_multi_tensor(op, lists[0], 1, 1, 1, 2, kernels);
}

}  // namespace

std::span<const NamedLower> foreach_rules() {
  static constexpr NamedLower kRules[] = {
      {"foreach", lower_foreach},
      {"foreach.fused_adam", lower_fused_adam},
      {"foreach.fused_sgd", lower_fused_sgd},
      {"foreach.fused_adagrad", lower_fused_adagrad},
      {"foreach.unscale", lower_unscale},
      {"foreach.adam_of_one", lower_adam_of_one},
  };
  return kRules;
}

}  // namespace perfmodel::ops
