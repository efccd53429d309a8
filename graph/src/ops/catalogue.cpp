#include "catalogue.hpp"

#include <unordered_map>
#include <vector>

#include "perfmodel/result.hpp"

namespace perfmodel {
namespace {

// Entry of a row for which the rule of the kind does not hold.
constexpr std::string_view kNoRule = "none";

struct KindRules {
  std::string_view price = {}, size = {}, retarget = {};
};

KindRules rules_of(OpKind kind) {
  switch (kind) {
    case OpKind::kPointwise:
      return {.price = "pointwise", .size = "same_shape"};
    case OpKind::kProduct:
      return {.price = "gemm.matrix_product"};
    case OpKind::kReduction:
      return {.price = "reduction", .size = "reduce", .retarget = "reduction"};
    case OpKind::kSoftmax:
      return {.price = "softmax"};
    case OpKind::kAttention:
      return {.price = "attention"};
    case OpKind::kForeach:
      return {.price = "foreach", .retarget = "foreach"};
    case OpKind::kCollective:
      return {.price = "collective"};
    case OpKind::kTriton:
      return {.price = "triton"};
    case OpKind::kView:
    case OpKind::kAllocation:
    case OpKind::kCast:
    case OpKind::kQuery:
    case OpKind::kWrapper:
      return {.price = "nothing"};
    default:
      return {};
  }
}

std::string_view chosen(std::string_view own, std::string_view of_kind) {
  if (own == kNoRule) return {};
  return own.empty() ? of_kind : own;
}

struct Catalogue {
  std::vector<Op> ops;
  std::unordered_map<std::string_view, const Op*> by_name;
  std::vector<const Op*> prefixes;

  Catalogue() {
    for (const auto family :
         {wrapper_ops(), view_ops(), query_ops(), memory_ops(), pointwise_ops(), product_ops(),
          reduction_ops(), norm_ops(), convolution_ops(), attention_ops(), recurrent_ops(),
          embedding_ops(), fbgemm_ops(), indexing_ops(), loss_ops(), optimizer_ops()}) {
      ops.insert(ops.end(), family.begin(), family.end());
    }
    by_name.reserve(ops.size());
    for (const Op& op : ops) {
      if (op.is_prefix) {
        prefixes.push_back(&op);
        continue;
      }
      const bool is_new = by_name.emplace(op.name, &op).second;
      PERFMODEL_CHECK(is_new);  // two rows for one op
    }
  }
};

const Catalogue& catalogue() {
  static const Catalogue made;
  return made;
}

// Row of the op itself: in-place variants have none.
const Op* row_of(std::string_view name) {
  const auto at = catalogue().by_name.find(name);
  return at == catalogue().by_name.end() ? nullptr : at->second;
}

}  // namespace

std::span<const Op> op_catalogue() { return catalogue().ops; }

const Op* find_op(std::string_view name) {
  const Catalogue& known = catalogue();
  if (const auto at = known.by_name.find(name); at != known.by_name.end()) return at->second;
  if (name.ends_with('_')) {
    const auto at = known.by_name.find(name.substr(0, name.size() - 1));
    if (at != known.by_name.end() && at->second->in_place) return at->second;
  }
  for (const Op* op : known.prefixes) {
    if (name.starts_with(op->name)) return op;
  }
  return nullptr;
}

std::string_view price_rule(const Op& op) { return chosen(op.price, rules_of(op.kind).price); }

std::string_view size_rule(const Op& op) {
  const bool moves = op.kind == OpKind::kPointwise && !op.fusible;
  return chosen(op.size, moves ? std::string_view() : rules_of(op.kind).size);
}

std::string_view retarget_rule(const Op& op) {
  return chosen(op.retarget, rules_of(op.kind).retarget);
}

AutocastPolicy autocast_policy(std::string_view name, bool on_gpu) {
  const Op* op = row_of(name);
  if (!op) return AutocastPolicy::kKeep;
  return on_gpu ? op->autocast : op->autocast_cpu;
}

bool is_conversion(std::string_view name) {
  const Op* op = row_of(name);
  return op && op->converts;
}

bool is_copy(std::string_view name) {
  const Op* op = row_of(name);
  return op && price_rule(*op) == "copy";
}

bool is_sum(std::string_view name) {
  const Op* op = find_op(name);
  return op && op->name == "aten::add";
}

bool is_empty(std::string_view name) { return name.starts_with("aten::empty"); }

bool is_zeros(std::string_view name) { return name == "aten::zeros"; }

bool is_matrix_product(std::string_view name) {
  const Op* op = find_op(name);
  return op && price_rule(*op) == "gemm.matrix_product";
}

bool is_convolution(std::string_view name) {
  const Op* op = find_op(name);
  return op && price_rule(*op).starts_with("convolution.");
}

bool is_row_lookup(std::string_view name) { return name == "aten::embedding"; }

bool gives_strides(std::string_view name) {
  const Op* op = row_of(name);
  return op && size_rule(*op) == "as_strided";
}

}  // namespace perfmodel
