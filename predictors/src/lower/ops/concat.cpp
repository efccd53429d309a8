
#include "families.hpp"

/// Concatenation: reads and writes the whole result. One kernel takes up to 128 inputs
/// (CatArrayBatchedCopy in ATen's Shape.cu). split, chunk and stack are views or call cat; copying
/// variants move everything once.
namespace perfmodel::ops {
namespace {

bool lower_cat(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  constexpr std::int64_t kInputsPerKernel = 128;
  if (op.inputs().empty() || op.inputs()[0].kind != Argument::Kind::kList) return false;
  double read = 0;
  std::int64_t inputs = 0;
  DType dtype = DType::kFloat32;
  for_each_gpu_tensor(op, std::span(op.inputs()).first(1), [&](const Tensor& tensor) {
    if (tensor.numel == 0) return;
    read += bytes(tensor);
    dtype = tensor.dtype;
    ++inputs;
  });
  const std::int64_t launches = (inputs + kInputsPerKernel - 1) / kInputsPerKernel;
  for (std::int64_t i = 0; i < launches; ++i) {
    const double part = read / static_cast<double>(launches);
    kernels.push_back(make_work(KernelFamily::kConcat, dtype, part, part));
  }
  return true;
}

bool lower_split_copy(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* input = op.tensor_input(0);
  if (!input) return false;
  kernels.push_back(make_work(KernelFamily::kConcat, input->dtype, bytes(*input), bytes(*input)));
  return true;
}

}  // namespace

std::span<const NamedLower> concat_rules() {
  static constexpr NamedLower kRules[] = {
      {"concat.cat", lower_cat},
      {"concat.split_copy", lower_split_copy},
  };
  return kRules;
}

}  // namespace perfmodel::ops
