#include "builders/emit/matmul.hpp"
#include "builders/emit/views.hpp"
#include "retarget_rules.hpp"

namespace perfmodel {

namespace {

// The addend has the extents of the product before it is added.
void spread_addend(const CpuOp& op) {
  if (!op.input(0) || !op.output(0)) return;
  op.refill([op](GraphBuilder& graph) { expand(graph, op.tensor(0), graph.shape(op.result(0))); });
}

}  // namespace

// addmm(bias, a, b, beta, alpha): cuBLASLt adds a bias vector itself where it can; rocBLAS has no
// such epilogue, so that the bias is spread over the result first.
void retarget_product_with_bias(const CpuOp& op) {
  const Tensor* bias = op.input(0);
  const bool plain = bias && bias->rank == 1 && op.real(3) == 1 && op.real(4) == 1;
  if ((!plain || op.amd()) && !op.children().empty()) return op.keep_children({"aten::expand"});
  if (!plain || op.amd()) return spread_addend(op);
  op.replace([op](GraphBuilder& graph) {
    addmm(graph, op.tensor(0), op.tensor(1, 2), op.tensor(2, 2), op.sequence());
  });
}

}  // namespace perfmodel
