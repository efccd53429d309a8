#include <string_view>

#include "families.hpp"
#include "ops/catalogue.hpp"

/// A Triton kernel of torch.compile: one memory-bound kernel. Its arguments do not say which
/// tensors it writes; each is moved once, which is exact for kernels that do not read what they
/// write. Where outputs are recorded (fused ops of rewrites), all inputs are read and all outputs
/// written. Reductions are taken as streams too. Inductor's names tell which ops were fused, each
/// of them once ("triton_poi_fused_add_cos_0"), from which the FLOP per element follow.
namespace perfmodel::ops {
namespace {

constexpr double kFlopOfUnknownKernel = 10;  // per element
constexpr std::string_view kFused = "_fused_";

// The longest pointwise op with which `text` begins; null: none.
const Op* first_op(std::string_view text) {
  const Op* longest = nullptr;
  for (const Op& op : pointwise_ops()) {
    if (op.kind != OpKind::kPointwise) continue;
    const std::string_view bare = op.name.substr(op.name.find("::") + 2);
    if (!text.starts_with(bare)) continue;
    const bool whole = text.size() == bare.size() || text[bare.size()] == '_';
    if (whole && (!longest || op.name.size() > longest->name.size())) longest = &op;
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
    if (const Op* op = first_op(rest)) {
      known = true;
      flop += op->flop;
      length = op->name.size() - (op->name.find("::") + 2);
    }
    rest = length < rest.size() ? rest.substr(length + 1) : std::string_view();
  }
  return known ? flop : kFlopOfUnknownKernel;
}

namespace {

bool lower_triton(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
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
