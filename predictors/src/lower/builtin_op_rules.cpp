#include <unordered_map>

#include "lower/ops/families.hpp"
#include "ops/catalogue.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {
namespace {

using Rules = std::unordered_map<std::string_view, ops::Lower>;

bool lower_nothing(const OpView&, const Gpu&, std::vector<KernelWork>&) { return true; }

Rules named_rules() {
  using namespace ops;
  Rules rules = {{"nothing", lower_nothing}};
  for (const auto family :
       {attention_rules(), collective_rules(), concat_rules(),    convolution_rules(),
        copy_rules(),      ctc_rules(),        detection_rules(), elementwise_rules(),
        embedding_rules(), fbgemm_rules(),     foreach_rules(),   gemm_rules(),
        index_rules(),     loss_rules(),       norm_rules(),      pooling_rules(),
        recurrent_rules(), reduction_rules(),  softmax_rules(),   sort_rules(),
        triton_rules()}) {
    for (const NamedLower& rule : family) rules.emplace(rule.name, rule.lower);
  }
  return rules;
}

}  // namespace

const OpRuleRegistry& OpRuleRegistry::builtin() {
  static const OpRuleRegistry registry = [] {
    OpRuleRegistry result;
    const Rules rules = named_rules();
    for (const Op& op : op_catalogue()) {
      const std::string_view name = price_rule(op);
      if (name.empty()) continue;
      const auto rule = rules.find(name);
      PERFMODEL_CHECK(rule != rules.end());  // a row names a rule that no family has
      if (op.is_prefix) {
        result.add_prefix(std::string(op.name), ops::make_rule(rule->second, op.calls));
        continue;
      }
      std::vector<std::string> names = {std::string(op.name)};
      if (op.in_place) names.push_back(names.front() + "_");
      result.add(std::move(names), ops::make_rule(rule->second, op.calls));
    }
    result.set_autograd(ops::make_rule(lower_nothing));
    return result;
  }();
  return registry;
}

}  // namespace perfmodel
