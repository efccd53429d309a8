#include <algorithm>

#include "builders/emit/index.hpp"
#include "retarget_rules.hpp"

namespace perfmodel {
namespace {

// _index_put_impl_(x, indices, values, accumulate, unsafe): a CPU walks the indices, a GPU that
// adds up sorts them.
void index_put(Retargeter& rewrite, std::int32_t node) {
  const auto inputs = rewrite.source().inputs(node);
  if (rewrite.integer(node, 3) == 0 || inputs[1].kind != Argument::Kind::kList) {
    return rewrite.copy(node);
  }
  std::vector<TensorRef> indices;
  for (const Argument& index : rewrite.source().elements(inputs[1])) {
    const bool given = index.kind == Argument::Kind::kTensor &&
                       rewrite.source().tensors[index.index].storage_id != 0;
    indices.push_back(given ? rewrite.graph().tensor_of_source(index.index) : TensorRef{});
    // A mask is turned into indices first, and tensors of several axes are spread.
    if (given && rewrite.graph().dtype(indices.back()) != DType::kInt64) {
      return rewrite.copy(node);
    }
  }
  const Tensor* made = rewrite.input_entry(node, 0);
  const bool indexed = std::ranges::any_of(indices, &TensorRef::exists);
  if (!made || !indexed || indices.size() > made->rank) return rewrite.copy(node);
  rewrite.leave_out(node);
  rewrite.continue_beside(node);
  const Retargeter::Start start = rewrite.start();
  index_put_accumulate(rewrite.graph(), rewrite.input_tensor(node, 0), indices,
                       rewrite.input_tensor(node, 2));
  rewrite.adopt_outputs(start, node);
}

}  // namespace

std::span<const NamedRetargetRule> index_retarget_rules() {
  static constexpr NamedRetargetRule kRules[] = {
      {"index_put", index_put},
  };
  return kRules;
}

}  // namespace perfmodel
