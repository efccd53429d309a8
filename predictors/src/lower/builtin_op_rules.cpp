#include <unordered_map>

#include "lower/ops/families.hpp"
#include "ops/catalogue.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {
namespace {

using Rules = std::unordered_map<std::string_view, ops::Lower>;

void add(Rules& rules, std::span<const ops::NamedLower> family) {
  for (const ops::NamedLower& rule : family) rules.emplace(rule.name, rule.lower);
}

Rules named_rules() {
  Rules rules = {{"nothing", nullptr}};
  add(rules, ops::attention_rules());
  add(rules, ops::collective_rules());
  add(rules, ops::concat_rules());
  add(rules, ops::convolution_rules());
  add(rules, ops::copy_rules());
  add(rules, ops::ctc_rules());
  add(rules, ops::data_sized_rules());
  add(rules, ops::detection_rules());
  add(rules, ops::elementwise_rules());
  add(rules, ops::embedding_rules());
  add(rules, ops::fbgemm_rules());
  add(rules, ops::foreach_rules());
  add(rules, ops::gemm_rules());
  add(rules, ops::hashed_weight_rules());
  add(rules, ops::index_rules());
  add(rules, ops::loss_rules());
  add(rules, ops::norm_rules());
  add(rules, ops::pooling_rules());
  add(rules, ops::quantize_rules());
  add(rules, ops::recurrent_rules());
  add(rules, ops::reduction_rules());
  add(rules, ops::softmax_rules());
  add(rules, ops::sort_rules());
  add(rules, ops::triton_rules());
  return rules;
}

}  // namespace

const OpRuleRegistry& OpRuleRegistry::builtin() {
  static const OpRuleRegistry& registry = *new OpRuleRegistry([] {  // never destroyed
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
    result.set_autograd(ops::make_rule(nullptr));
    result.set_collectives(ops::make_rule(rules.at("collective.by_name")));
    return result;
  }());
  return registry;
}

}  // namespace perfmodel
