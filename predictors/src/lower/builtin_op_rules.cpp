#include "lower/ops/families.hpp"

namespace perfmodel {

const OpRuleRegistry& OpRuleRegistry::builtin() {
  static const OpRuleRegistry registry = [] {
    OpRuleRegistry result;
    ops::add_no_launch(result);
    ops::add_gemm(result);
    ops::add_convolution(result);
    ops::add_attention(result);
    ops::add_recurrent(result);
    ops::add_embedding(result);
    ops::add_fbgemm(result);
    ops::add_elementwise(result);
    ops::add_foreach(result);
    ops::add_reduction(result);
    ops::add_softmax(result);
    ops::add_norm(result);
    ops::add_pooling(result);
    ops::add_index(result);
    ops::add_sort(result);
    ops::add_concat(result);
    ops::add_loss(result);
    ops::add_ctc(result);
    ops::add_copy(result);
    ops::add_detection(result);
    ops::add_collective(result);
    ops::add_triton(result);
    return result;
  }();
  return registry;
}

}  // namespace perfmodel
