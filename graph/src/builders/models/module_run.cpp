#include "module_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "builders/emit/emitter.hpp"
#include "ops/programs.hpp"

namespace perfmodel {
namespace {

using Kind = Syntax::Kind;

// Texts are compiled in: a mistake in them is a bug, not an error.
[[noreturn]] void defect(int line, std::string_view what, std::string_view name) {
  fmt::print(stderr, "defect of a model's text, line {}: {} \"{}\"\n", line, what, name);
  std::abort();
}

bool is_true(const Item& item) {
  if (const bool* flag = item.get<bool>()) return *flag;
  if (const auto* number = item.get<std::int64_t>()) return *number != 0;
  return item.exists();
}

bool is_tensor(const Item& item) { return item.get<TensorRef>() != nullptr; }

bool is_whole(const Item& item) { return item.get<std::int64_t>() != nullptr; }

// Sizes may be absurd until they are checked: they wrap round.
std::int64_t whole_operation(std::string_view sign, std::int64_t left, std::int64_t right) {
  const auto a = static_cast<std::uint64_t>(left), b = static_cast<std::uint64_t>(right);
  if (sign == "+") return static_cast<std::int64_t>(a + b);
  if (sign == "-") return static_cast<std::int64_t>(a - b);
  if (sign == "*") return static_cast<std::int64_t>(a * b);
  PERFMODEL_CHECK(right != 0);
  return sign == "%" ? left % right : left / right;
}

double real_operation(std::string_view sign, double left, double right) {
  if (sign == "+") return left + right;
  if (sign == "-") return left - right;
  PERFMODEL_CHECK(sign == "*" || sign == "/");
  return sign == "*" ? left * right : left / right;
}

bool are_equal(const Item& left, const Item& right) {
  if (const auto* text = left.get<std::string>()) {
    const auto* other = right.get<std::string>();
    return other && *other == *text;
  }
  if (!left.exists() || !right.exists()) return left.exists() == right.exists();
  if (is_whole(left) && is_whole(right))
    return *left.get<std::int64_t>() == *right.get<std::int64_t>();
  return left.real() == right.real();
}

template <class Number>
bool is_ordered(std::string_view sign, Number a, Number b) {
  if (sign == "<") return a < b;
  if (sign == ">") return a > b;
  return sign == "<=" ? a <= b : a >= b;
}

bool compare(std::string_view sign, const Item& left, const Item& right) {
  if (sign == "==") return are_equal(left, right);
  if (sign == "!=") return !are_equal(left, right);
  if (is_whole(left) && is_whole(right)) {
    return is_ordered(sign, *left.get<std::int64_t>(), *right.get<std::int64_t>());
  }
  return is_ordered(sign, left.real(), right.real());
}

Item::List joined(const Item& left, const Item& right) {
  Item::List all = left.list();
  all.insert(all.end(), right.list().begin(), right.list().end());
  return all;
}

}  // namespace

double Item::real() const {
  if (const auto* whole = get<std::int64_t>()) return static_cast<double>(*whole);
  return *get<double>();
}

Value Item::argument() const {
  struct Convert {
    Value operator()(None) const { return kNone; }
    Value operator()(TensorRef tensor) const { return tensor; }
    Value operator()(std::int64_t number) const { return number; }
    Value operator()(double number) const { return number; }
    Value operator()(bool flag) const { return flag; }
    // The observer shows objects as "<Storage>", devices as "cpu" and "cuda:0".
    Value operator()(const std::string& text) const {
      const bool shown = text.starts_with('<') || text == "cpu" || text.starts_with("cuda:");
      return shown ? Value(Value::Opaque{text}) : Value(text.c_str());
    }
    Value operator()(const std::shared_ptr<const List>& list) const {
      Value::List made;
      for (const Item& item : *list) made.push_back(item.argument());
      return made;
    }
    Value operator()(const std::shared_ptr<const Record>&) const { return kNone; }
  };
  return std::visit(Convert{}, value);
}

bool Item::append(const Item& more) {
  auto* held = std::get_if<std::shared_ptr<const List>>(&value);
  if (!held || held->use_count() != 1) return false;
  auto& mine = const_cast<List&>(**held);  // all lists are made as plain ones
  mine.insert(mine.end(), more.list().begin(), more.list().end());
  return true;
}

Item ModuleRun::emitted(std::string_view op, const std::vector<Item>& given) {
  std::vector<Value> values;
  for (const Item& item : given) values.push_back(item.argument());
  // An op without a derivative carries autograd's number all the same.
  if (!program_of(op).node.empty()) return emit(tape(), op, std::move(values));
  return emit(step_.graph(), op, std::move(values), tape().sequence());
}

Item ModuleRun::call(std::string_view function, std::vector<Item> given, int line) {
  const Definition* text = module_definitions().find(function);
  if (!text) {
    if (function.find("::") != std::string_view::npos) return emitted(function, given);
    const auto known = module_functions().find(function);
    if (known == module_functions().end()) defect(line, "no function", function);
    return known->second({*this, std::move(given), step_, tape()});
  }
  if (given.size() > text->parameters.size()) defect(line, "too many arguments of", function);
  Item::Record scope;
  for (std::size_t i = 0; i < text->parameters.size(); ++i) {
    const Syntax& parameter = text->parameters[i];
    const bool missing = i >= given.size();
    if (missing && parameter.kind == Kind::kName) defect(line, "too few arguments of", function);
    scope[parameter.text] = missing ? evaluate(parameter.parts[0], scope) : std::move(given[i]);
  }
  Item result;
  execute(text->body, scope, result);
  return result;
}

std::vector<TensorRef> ModuleRun::call_backward(std::string_view function,
                                                const std::vector<TensorRef>& gradients,
                                                const Item::List& saved, bool listed) {
  Item::List given;
  for (const TensorRef gradient : gradients) {
    given.push_back(gradient.exists() ? Item(gradient) : Item());
  }
  if (listed) given = {Item(std::move(given))};
  given.insert(given.end(), saved.begin(), saved.end());
  const bool outside = std::exchange(without_gradient_, true);
  const Item made = call(function, std::move(given));
  without_gradient_ = outside;
  std::vector<TensorRef> of_inputs;
  for (const Item& gradient : made.list()) {
    of_inputs.push_back(gradient.exists() ? *gradient.get<TensorRef>() : TensorRef{});
  }
  return of_inputs;
}

Item ModuleRun::follow(std::string_view function) {
  const Definition* text = module_definitions().find(function);
  if (!text) defect(0, "no function", function);
  Item result;
  execute(text->body, model_, result);
  return result;
}

ExecutionGraph ModuleRun::step_of(std::string_view model) {
  const auto part = [&](std::string_view name) { return fmt::format("{}.{}", model, name); };
  const auto has = [&](std::string_view name) {
    return module_definitions().find(part(name)) != nullptr;
  };
  if (has("parameters")) follow(part("parameters"));
  TrainingStep::Parts parts;
  if (has("inputs")) parts.inputs = [&] { follow(part("inputs")); };
  parts.forward = [&] { return *follow(part("forward")).get<TensorRef>(); };
  if (has("loss")) {
    parts.loss = [&](TensorRef made) { return *call(part("loss"), {made}).get<TensorRef>(); };
  }
  if (has("after_optimizer")) parts.behind_optimizer = [&] { follow(part("after_optimizer")); };
  return step_.run(parts);
}

Item ModuleRun::find(const Syntax& node, const Item::Record& scope) const {
  if (const auto at = scope.find(node.text); at != scope.end()) return at->second;
  if (const auto at = model_.find(node.text); at != model_.end()) return at->second;
  defect(node.line, "no name", node.text);
}

Item ModuleRun::combined(std::string_view sign, const Item& left, const Item& right) {
  if (sign.find_first_of("=<>!") != std::string_view::npos) return compare(sign, left, right);
  if (is_tensor(left) || is_tensor(right)) {
    if (sign == "*") return emitted("aten::mul.Tensor", {left, right});
    if (sign == "/") return emitted("aten::div.Tensor", {left, right});
    if (sign == "+") return emitted("aten::add.Tensor", {left, right, std::int64_t{1}});
    if (is_tensor(left)) return emitted("aten::sub.Tensor", {left, right, std::int64_t{1}});
    return emitted("aten::rsub.Scalar", {right, left, std::int64_t{1}});
  }
  if (left.get<std::shared_ptr<const Item::List>>()) return joined(left, right);
  if (is_whole(left) && is_whole(right) && sign != "/") {
    return whole_operation(sign, *left.get<std::int64_t>(), *right.get<std::int64_t>());
  }
  return real_operation(sign, left.real(), right.real());
}

Item ModuleRun::operation(const Syntax& node, Item::Record& scope) {
  const std::string_view sign = node.text;
  const Item left = evaluate(node.parts[0], scope);
  if (sign == "not") return !is_true(left);
  if (node.parts.size() == 1) {
    if (is_tensor(left)) return emitted("aten::neg", {left});
    if (is_whole(left)) return whole_operation("-", 0, *left.get<std::int64_t>());
    return -left.real();
  }
  if (sign == "and" && !is_true(left)) return false;
  if (sign == "or" && is_true(left)) return true;
  const Item right = evaluate(node.parts[1], scope);
  if (sign == "and" || sign == "or") return is_true(right);
  return combined(sign, left, right);
}

Item ModuleRun::each(const Syntax& node, Item::Record& scope) {
  Item::Record inner = scope;
  Item::List made;
  const Item all = evaluate(node.parts[1], scope);
  for (const Item& item : all.list()) {
    inner[node.text] = item;
    made.push_back(evaluate(node.parts[0], inner));
  }
  return made;
}

Item ModuleRun::evaluate(const Syntax& node, Item::Record& scope) {
  std::vector<Item> values;
  switch (node.kind) {
    case Kind::kConstant:
      if (const auto* whole = std::get_if<std::int64_t>(&node.constant)) return *whole;
      if (const auto* real = std::get_if<double>(&node.constant)) return *real;
      if (const auto* flag = std::get_if<bool>(&node.constant)) return *flag;
      return {};
    case Kind::kText: return std::string(node.text);
    case Kind::kName: return find(node, scope);
    case Kind::kMember: {
      const Item of = evaluate(node.parts[0], scope);
      if (is_tensor(of) && node.text == "shape") return step_.graph().shape(*of.get<TensorRef>());
      const Item::Record* record = of.record();
      if (!record || !record->contains(node.text)) defect(node.line, "no member", node.text);
      return record->at(node.text);
    }
    case Kind::kIndex: {
      const Item of = evaluate(node.parts[0], scope), at = evaluate(node.parts[1], scope);
      const std::int64_t place = *at.get<std::int64_t>();
      return of.list().at(place < 0 ? place + std::ssize(of.list()) : place);
    }
    case Kind::kList:
    case Kind::kCall:
      for (const Syntax& part : node.parts) values.push_back(evaluate(part, scope));
      return node.kind == Kind::kList ? Item(std::move(values))
                                      : call(node.text, std::move(values), node.line);
    case Kind::kEach: return each(node, scope);
    case Kind::kRecord: {
      Item::Record made;
      for (const Syntax& part : node.parts) made[part.text] = evaluate(part.parts[0], scope);
      return made;
    }
    case Kind::kOperator: return operation(node, scope);
    case Kind::kChoice:
      return evaluate(node.parts[is_true(evaluate(node.parts[0], scope)) ? 1 : 2], scope);
    default: defect(node.line, "a statement in the place of a value:", node.text);
  }
}

void ModuleRun::assign(const Syntax& node, Item::Record& scope) {
  const Item value = evaluate(node.parts[0], scope);
  std::string_view targets = node.text;
  while (targets.ends_with(' ')) targets.remove_suffix(1);
  if (targets.find(',') == std::string_view::npos) {
    scope[targets] = value;
    return;
  }
  for (const Item& item : value.list()) {
    const std::string_view target = targets.substr(0, targets.find(','));
    scope[target] = item;
    targets.remove_prefix(std::min(target.size() + 2, targets.size()));
  }
}

void ModuleRun::add_to(const Syntax& node, Item::Record& scope) {
  const std::string_view target = node.text.substr(0, node.text.find(' '));
  const Item right = evaluate(node.parts[0], scope);
  const auto at = scope.find(target);
  if (at != scope.end() && at->second.append(right)) return;
  const Item left = find({.text = target, .line = node.line}, scope);
  if (is_tensor(left)) {
    emitted("aten::add_.Tensor", {left, right, std::int64_t{1}});
  } else {
    scope[target] = combined("+", left, right);
  }
}

bool ModuleRun::execute(const Syntax& node, Item::Record& scope, Item& result) {
  switch (node.kind) {
    case Kind::kBlock:
      for (const Syntax& statement : node.parts) {
        if (execute(statement, scope, result)) return true;
      }
      return false;
    case Kind::kAssign: assign(node, scope); return false;
    case Kind::kAdd: add_to(node, scope); return false;
    case Kind::kIf: {
      const bool holds = is_true(evaluate(node.parts[0], scope));
      const std::size_t branch = holds ? 1 : 2;
      return branch < node.parts.size() && execute(node.parts[branch], scope, result);
    }
    case Kind::kWhile:
      while (is_true(evaluate(node.parts[0], scope))) {
        if (execute(node.parts[1], scope, result)) return true;
      }
      return false;
    case Kind::kFor: {
      const Item all = evaluate(node.parts[0], scope);
      for (const Item& item : all.list()) {
        scope[node.text] = item;
        if (execute(node.parts[1], scope, result)) return true;
      }
      return false;
    }
    case Kind::kWithout: {
      const bool outside = std::exchange(without_gradient_, true);
      const bool ended = execute(node.parts[0], scope, result);
      without_gradient_ = outside;
      return ended;
    }
    case Kind::kReturn: result = evaluate(node.parts[0], scope); return true;
    default: evaluate(node, scope); return false;
  }
}

}  // namespace perfmodel
