#include "perfmodel/predictors/detail/op_rules.hpp"

#include <utility>

#include "perfmodel/graph/detail/collective_name.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {
namespace {

const Tensor* tensor_at(const ExecutionGraph& graph, std::span<const Argument> arguments,
                        std::size_t i) {
  if (i >= arguments.size() || arguments[i].kind != Argument::Kind::kTensor) return nullptr;
  const Tensor& tensor = graph.tensors[arguments[i].index];
  return tensor.device.kind == Device::Kind::kNone ? nullptr : &tensor;
}

/// "MulBackward0". Custom functions end in "Backward" without a number and are not meant.
bool is_derivative(std::string_view name) {
  const std::size_t last = name.find_last_not_of("0123456789");
  return last != std::string_view::npos && last + 1 < name.size() &&
         name.substr(0, last + 1).ends_with("Backward");
}

}  // namespace

std::vector<std::string_view> parameter_names(std::string_view schema) {
  // "ns::name.overload(Tensor self, int[2] size=[1, 1], *, Tensor? x=None) -> Tensor": parameters
  // are separated by commas outside of brackets; the name ends at '=' or at the separator.
  std::vector<std::string_view> names;
  const std::size_t open = schema.find('(');
  if (open == std::string_view::npos) return names;
  int depth = 0;
  std::size_t begin = open + 1;
  for (std::size_t i = begin; i < schema.size(); ++i) {
    const char c = schema[i];
    const bool closes_list = c == ')' && depth == 0;
    if (c == '(' || c == '[') ++depth;
    if ((c == ')' || c == ']') && !closes_list) --depth;
    if (!(c == ',' && depth == 0) && !closes_list) continue;
    std::string_view text = schema.substr(begin, i - begin);
    if (const auto equals = text.find('='); equals != std::string_view::npos) {
      text = text.substr(0, equals);
    }
    if (const auto space = text.rfind(' '); space != std::string_view::npos) {
      text = text.substr(space + 1);
    }
    if (text != "*" && !text.empty()) names.push_back(text);
    if (closes_list) break;
    begin = i + 1;
  }
  return names;
}

const Tensor* OpView::tensor_input(std::size_t i) const { return tensor_at(graph, inputs(), i); }

const Tensor* OpView::tensor_output(std::size_t i) const { return tensor_at(graph, outputs(), i); }

void OpRuleRegistry::add(std::vector<std::string> op_names, std::unique_ptr<OpRule> rule) {
  for (std::string& name : op_names) {
    const bool is_new = by_name_.emplace(names_.emplace_back(std::move(name)), rule.get()).second;
    PERFMODEL_CHECK(is_new);  // two rules for one op
  }
  rules_.push_back(std::move(rule));
}

void OpRuleRegistry::add_prefix(std::string prefix, std::unique_ptr<OpRule> rule) {
  by_prefix_.emplace_back(std::move(prefix), rule.get());
  rules_.push_back(std::move(rule));
}

void OpRuleRegistry::set_autograd(std::unique_ptr<OpRule> rule) {
  autograd_ = rule.get();
  rules_.push_back(std::move(rule));
}

void OpRuleRegistry::set_collectives(std::unique_ptr<OpRule> rule) {
  collectives_ = rule.get();
  rules_.push_back(std::move(rule));
}

const OpRule* OpRuleRegistry::find(std::string_view op_name) const {
  if (const auto it = by_name_.find(op_name); it != by_name_.end()) return it->second;
  for (const auto& [prefix, rule] : by_prefix_) {
    if (op_name.starts_with(prefix)) return rule;
  }
  if (!collective_of_op(op_name).empty()) return collectives_;
  return is_derivative(op_name) ? autograd_ : nullptr;
}

}  // namespace perfmodel
