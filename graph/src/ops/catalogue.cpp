#include "catalogue.hpp"

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "perfmodel/result.hpp"
#include "rows.hpp"

namespace perfmodel {
namespace {

// Entry of a row for which the rule of the kind does not hold.
constexpr std::string_view kNoRule = "none";

struct KindRules {
  std::string_view price = {}, size = {}, retarget = {};
};

KindRules rules_of(OpKind kind) {
  switch (kind) {
    case OpKind::kPointwise: return {.price = "pointwise", .size = "same_shape"};
    case OpKind::kProduct: return {.price = "gemm.matrix_product"};
    case OpKind::kReduction:
      return {.price = "reduction", .size = "reduce", .retarget = "reduction"};
    case OpKind::kSoftmax: return {.price = "softmax"};
    case OpKind::kAttention: return {.price = "attention"};
    case OpKind::kForeach: return {.price = "foreach", .retarget = "foreach"};
    case OpKind::kCollective: return {.price = "collective"};
    case OpKind::kTriton: return {.price = "triton"};
    case OpKind::kView:
    case OpKind::kAllocation:
    case OpKind::kCast:
    case OpKind::kQuery:
    case OpKind::kWrapper: return {.price = "nothing"};
    default: return {};
  }
}

std::string_view chosen(std::string_view own, std::string_view of_kind) {
  if (own == kNoRule) return {};
  return own.empty() ? of_kind : own;
}

constexpr std::string_view kKindNames[] = {
    "composite",  "pointwise", "product",   "reduction",  "softmax", "norm",  "convolution",
    "pooling",    "attention", "recurrent", "embedding",  "index",   "sort",  "concat",
    "loss",       "detection", "foreach",   "optimizer",  "copy",    "fill",  "random",
    "collective", "triton",    "view",      "allocation", "cast",    "query", "wrapper"};
constexpr std::string_view kPolicyNames[] = {"keep",      "lower",   "fp32",
                                             "fp32_type", "promote", "banned"};

template <class Named>
Named value_of(std::span<const std::string_view> names, std::string_view name) {
  const auto at = std::ranges::find(names, name);
  PERFMODEL_CHECK(at != names.end());  // a row of rows.txt with an unknown kind or policy
  return static_cast<Named>(at - names.begin());
}

template <class Number>
Number number_of(std::string_view text) {
  Number number = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  PERFMODEL_CHECK(read.ec == std::errc() && read.ptr == end);
  return number;
}

using Member = std::variant<bool OpFacts::*, double OpFacts::*, std::string_view OpFacts::*,
                            AutocastPolicy OpFacts::*, Positions OpFacts::*>;
const std::pair<std::string_view, Member> kMembers[] = {
    {"flop", &OpFacts::flop},
    {"in_place", &OpFacts::in_place},
    {"fusible", &OpFacts::fusible},
    {"is_prefix", &OpFacts::is_prefix},
    {"converts", &OpFacts::converts},
    {"has_addend", &OpFacts::has_addend},
    {"narrow", &OpFacts::narrow},
    {"takes_numbers", &OpFacts::takes_numbers},
    {"price", &OpFacts::price},
    {"size", &OpFacts::size},
    {"retarget", &OpFacts::retarget},
    {"autocast", &OpFacts::autocast},
    {"autocast_cpu", &OpFacts::autocast_cpu},
    {"calls", &OpFacts::calls},
    {"weights", &OpFacts::weights},
    {"constants", &OpFacts::constants},
    {"data", &OpFacts::data},
    {"keeps_inputs", &OpFacts::keeps_inputs},
    {"keeps_results", &OpFacts::keeps_results},
    {"keeps_for_others", &OpFacts::keeps_for_others},
    {"keeps_results_for_others", &OpFacts::keeps_results_for_others},
};

// Sets a member of `facts` to the text after its "name=".
struct SetMember {
  OpFacts& facts;
  std::string_view text;

  void operator()(bool OpFacts::*member) const {
    PERFMODEL_CHECK(text.empty() || text == "no");
    facts.*member = text.empty();
  }
  void operator()(double OpFacts::*member) const { facts.*member = number_of<double>(text); }
  void operator()(std::string_view OpFacts::*member) const { facts.*member = text; }
  void operator()(AutocastPolicy OpFacts::*member) const {
    facts.*member = value_of<AutocastPolicy>(kPolicyNames, text);
  }
  void operator()(Positions OpFacts::*member) const {
    for (std::string_view rest = text; !rest.empty();) {
      const auto position = number_of<std::size_t>(take_before(rest, ","));
      PERFMODEL_CHECK(position < 32);  // a set of bits
      (facts.*member).add(position);
    }
  }
};

Op op_of_row(const OpRow& row) {
  std::string_view text = row.facts;
  const OpKind kind = value_of<OpKind>(kKindNames, take_before(text, " "));
  OpFacts facts;
  while (!text.empty()) {
    std::string_view fact = take_before(text, " ");
    const std::string_view name = take_before(fact, "=");
    const auto member =
        std::ranges::find(kMembers, name, &std::pair<std::string_view, Member>::first);
    PERFMODEL_CHECK(member != std::end(kMembers));  // a row of rows.txt with an unknown fact
    std::visit(SetMember{facts, fact}, member->second);
  }
  return {row.name, kind, facts};
}

struct Catalogue {
  std::vector<Op> ops;
  std::unordered_map<std::string_view, const Op*> by_name;
  std::vector<const Op*> prefixes;

  Catalogue() {
    ops.reserve(op_rows().size());
    for (const OpRow& row : op_rows()) {
      if (!row.facts.empty()) ops.push_back(op_of_row(row));
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
  static const Catalogue& made = *new Catalogue;  // never destroyed: a process ends sooner
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
