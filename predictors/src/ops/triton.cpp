#include "families.hpp"
#include "rule_support.hpp"

/// A Triton kernel of torch.compile: one memory-bound kernel. Its arguments do not say which
/// tensors it writes; each is moved once, which is exact for kernels that do not read what they
/// write. Reductions are taken as streams too.
namespace perfmodel::ops {
namespace {

bool lower_triton(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  Traffic t = traffic(op);
  if (!t.any) return false;
  double last = 0;  // by convention of the code generator outputs stand last, before the sizes
  for_each_gpu_tensor(op, op.inputs(), [&](const Tensor& tensor) { last = bytes(tensor); });
  if (t.written == 0) {
    t.read -= last;
    t.written = last;
  }
  const bool is_reduction =
      op.name().starts_with("triton_red") || op.name().starts_with("triton_per");
  kernels.push_back(make_work(is_reduction ? KernelFamily::kReduction : KernelFamily::kElementwise,
                              t.dtype, t.read, t.written,
                              10 * static_cast<double>(t.output_elements)));
  return true;
}

}  // namespace

void add_triton(OpRuleRegistry& registry) { registry.add({"triton"}, make_rule(lower_triton)); }

}  // namespace perfmodel::ops
