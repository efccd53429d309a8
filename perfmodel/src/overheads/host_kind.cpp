#include "host_kind.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <vector>

#include "ops/catalogue.hpp"
#include "statistics.hpp"

namespace perfmodel {
namespace {

constexpr std::string_view kEngineCall = "autograd::engine::evaluate_function: ";

/// Name of a kind, and of the kind that computes the gradients of its ops.
struct Kind {
  std::string_view forward, backward;
};
constexpr Kind kView = {"any view", "any gradient of a view"};
constexpr Kind kOneKernel = {"any op of one kernel", "any gradient of an op of one kernel"};
constexpr Kind kInPlace = {"any op in place", "any op in place"};
constexpr Kind kProduct = {"any product", "any gradient of a product"};
constexpr Kind kReduction = {"any reduction", "any gradient of a reduction"};
constexpr Kind kComposite = {"any op of other ops", "any gradient of an op of other ops"};
constexpr Kind kQuery = {"any query of a tensor", "any query of a tensor"};
constexpr Kind kRest = {"any other op", "any other gradient"};
constexpr Kind kKinds[] = {kView,      kOneKernel, kInPlace, kProduct,
                           kReduction, kComposite, kQuery,   kRest};

Kind kind_of(const Op& op) {
  switch (op.kind) {
    case OpKind::kView:
    case OpKind::kAllocation: return kView;
    case OpKind::kPointwise:
    case OpKind::kFill:
    case OpKind::kRandom:
    case OpKind::kCopy:
    case OpKind::kCast:
    case OpKind::kConcat:
    case OpKind::kIndex: return kOneKernel;
    case OpKind::kProduct:
    case OpKind::kConvolution:
    case OpKind::kAttention: return kProduct;
    case OpKind::kReduction:
    case OpKind::kSoftmax:
    case OpKind::kNorm:
    case OpKind::kLoss:
    case OpKind::kPooling: return kReduction;
    case OpKind::kComposite: return kComposite;
    case OpKind::kQuery: return kQuery;
    default: return kRest;
  }
}

// "NativeLayerNormBackward0" is the gradient of "native_layer_norm".
std::string snake_case(std::string_view camel) {
  std::string made;
  for (const char c : camel) {
    const bool upper = std::isupper(static_cast<unsigned char>(c)) != 0;
    if (upper && !made.empty()) made += '_';
    made += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return made;
}

std::string_view gradient_kind(std::string_view node) {
  const std::size_t end = node.find("Backward");
  if (end == node.npos) return kRest.backward;
  const std::string op = snake_case(node.substr(0, end));
  const Op* known = find_op("aten::" + op);
  if (!known) known = find_op("aten::_" + op);
  return known ? kind_of(*known).backward : kRest.backward;
}

}  // namespace

bool runs_gradient(std::string_view op) { return op.starts_with(kEngineCall); }

std::string_view host_kind(std::string_view op) {
  if (walks_list(op)) return kAnyList;
  if (runs_gradient(op)) return gradient_kind(op.substr(kEngineCall.size()));
  const Op* known = find_op(op);
  if (!known) return kRest.forward;
  const bool writes_its_input = op.ends_with('_') && kind_of(*known).forward == kOneKernel.forward;
  return writes_its_input ? kInPlace.forward : kind_of(*known).forward;
}

std::uint64_t host_kind_key(std::string_view op) { return hash_text(host_kind(op)); }

bool is_host_kind(std::string_view name) {
  return name == kAnyList || std::ranges::any_of(kKinds, [name](const Kind& kind) {
           return name == kind.forward || name == kind.backward;
         });
}

void add_kinds(OverheadTerm& term) {
  std::map<std::string_view, std::vector<double>> means;
  for (const auto& [key, named] : term.by_name) {
    if (is_host_kind(named.name)) continue;
    if (const auto kind = host_kind(named.name); kind != kAnyList) {
      means[kind].push_back(named.stats.mean_us);
    }
  }
  for (const auto& [kind, of_ops] : means) {
    OverheadStats stats = stats_of(of_ops);
    stats.mean_us = stats.median_us;
    term.by_name[hash_text(kind)] = {std::string(kind), stats};
  }
}

}  // namespace perfmodel
