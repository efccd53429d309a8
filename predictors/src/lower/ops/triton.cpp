#include <string_view>

#include "families.hpp"
#include "ops/catalogue.hpp"

/// A Triton kernel of torch.compile: one memory-bound kernel. Its arguments do not say which
/// tensors it writes; each is moved once, which is exact for kernels that do not read what they
/// write. Where outputs are recorded (fused ops of rewrites), all inputs are read and all outputs
/// written. Reductions are taken as streams too, products ("triton_tem_fused_mm_0", the templates
/// that max-autotune chooses) as products. Inductor's names tell which ops were fused, each
/// of them once ("triton_poi_fused_add_cos_0"), from which the FLOP per element follow.
namespace perfmodel::ops {
namespace {

constexpr double kFlopOfUnknownKernel = 10;  // per element
constexpr std::string_view kFused = "_fused_";

struct PointwiseName {
  std::string_view bare;  // without its library
  double flop = 0;        // per element
};

std::vector<PointwiseName> make_pointwise_names() {
  std::vector<PointwiseName> names;
  for (const Op& op : pointwise_ops()) {
    if (op.kind != OpKind::kPointwise) continue;
    names.push_back({op.name.substr(op.name.find("::") + 2), op.flop});
  }
  return names;
}

// The longest pointwise op with which `text` begins; null: none.
const PointwiseName* first_op(std::string_view text) {
  static const std::vector<PointwiseName> names = make_pointwise_names();
  const PointwiseName* longest = nullptr;
  for (const PointwiseName& name : names) {
    if (!text.starts_with(name.bare)) continue;
    const bool whole = text.size() == name.bare.size() || text[name.bare.size()] == '_';
    if (whole && (!longest || name.bare.size() > longest->bare.size())) longest = &name;
  }
  return longest;
}

}  // namespace

double flop_of_fused_ops(std::string_view name) {
  const auto fused = name.find(kFused);
  if (fused == std::string_view::npos) return kFlopOfUnknownKernel;
  double flop = 0;
  bool known = false;
  std::string_view rest = name.substr(fused + kFused.size());
  while (!rest.empty()) {
    std::size_t length = rest.find('_', 1);
    if (const PointwiseName* op = first_op(rest)) {
      known = true;
      flop += op->flop;
      length = op->bare.size();
    }
    rest = length < rest.size() ? rest.substr(length + 1) : std::string_view();
  }
  return known ? flop : kFlopOfUnknownKernel;
}

namespace {

std::int64_t size_from_end(const OpView& op, const Tensor& tensor, int axis) {
  return tensor.rank >= axis ? dim(op, tensor, -axis) : 0;
}

/// The product of a template: the first two tensors of the same rank that multiply to the size of
/// the result. All other tensors are read by its epilogue. A tuned template is priced as the
/// library's kernel, which stands among the candidates that max-autotune measures. False: no two
/// tensors fit.
bool lower_template(const OpView& op, const Gpu& gpu, std::vector<KernelWork>& kernels) {
  std::vector<const Tensor*> tensors;
  for_each_gpu_tensor(op, op.inputs(), [&](const Tensor& one) { tensors.push_back(&one); });
  const Tensor* made = op.tensor_output(0);
  if (!made) {  // the result stands last among the arguments
    if (tensors.empty()) return false;
    made = tensors.back();
    tensors.pop_back();
  }
  for (std::size_t i = 0; i + 1 < tensors.size(); ++i) {
    const Tensor &a = *tensors[i], &b = *tensors[i + 1];
    const std::int64_t m = size_from_end(op, a, 2), k = size_from_end(op, a, 1),
                       n = size_from_end(op, b, 1);
    if (a.rank < 2 || a.rank != b.rank || m * k * n <= 0) continue;
    if (size_from_end(op, b, 2) != k || made->numel * k != a.numel * n) continue;
    KernelWork work = gemm_work(a.numel / (m * k), m, n, k, a, gpu);
    for (std::size_t other = 0; other < tensors.size(); ++other) {
      if (other != i && other != i + 1) work.bytes_read += {bytes(*tensors[other])};
    }
    kernels.push_back(work);
    return true;
  }
  return false;
}

bool lower_triton(const OpView& op, const Gpu& gpu, std::vector<KernelWork>& kernels) {
  if (op.name().starts_with("triton_tem")) return lower_template(op, gpu, kernels);
  Traffic t = traffic(op);
  if (!t.any) return false;
  double read = 0, last = 0;  // by convention of the code generator outputs stand last
  for_each_gpu_tensor(op, op.inputs(), [&](const Tensor& tensor) {
    last = bytes(tensor);
    read += last;
  });
  const bool is_reduction =
      op.name().starts_with("triton_red") || op.name().starts_with("triton_per");
  const double written = t.written == 0 ? last : t.written;
  if (t.written == 0) read -= last;
  kernels.push_back(
      make_work(is_reduction ? KernelFamily::kReduction : KernelFamily::kElementwise, t.dtype, read,
                written, flop_of_fused_ops(op.name()) * static_cast<double>(t.output_elements)));
  return true;
}

}  // namespace

std::span<const NamedLower> triton_rules() {
  static constexpr NamedLower kRules[] = {
      {"triton", lower_triton},
  };
  return kRules;
}

}  // namespace perfmodel::ops
