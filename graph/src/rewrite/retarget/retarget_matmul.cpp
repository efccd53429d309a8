#include "builders/emit/matmul.hpp"
#include "retarget_rules.hpp"

namespace perfmodel {

// addmm(bias, a, b, beta, alpha): cuBLASLt adds a bias vector itself where it can; rocBLAS has no
// such epilogue, so that the bias is spread over the result first.
void retarget_product_with_bias(const CpuOp& op) {
  const Tensor* bias = op.input(0);
  const bool plain = bias && bias->rank == 1 && op.real(3) == 1 && op.real(4) == 1;
  if (!plain || op.amd()) return op.keep_children({"aten::expand"});
  op.replace([op](GraphBuilder& graph) {
    addmm(graph, op.tensor(0), op.tensor(1, 2), op.tensor(2, 2), op.sequence());
  });
}

}  // namespace perfmodel
