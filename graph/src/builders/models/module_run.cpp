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
  switch (sign.front()) {
    case '+': return static_cast<std::int64_t>(a + b);
    case '-': return static_cast<std::int64_t>(a - b);
    case '*': return static_cast<std::int64_t>(a * b);
    default: PERFMODEL_CHECK(right != 0); return sign == "%" ? left % right : left / right;
  }
}

double real_operation(std::string_view sign, double left, double right) {
  switch (sign.front()) {
    case '+': return left + right;
    case '-': return left - right;
    case '*': return left * right;
    default: PERFMODEL_CHECK(sign == "/"); return left / right;
  }
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

const Item* Item::member(Name name) const {
  const auto* record = std::get_if<std::shared_ptr<const Record>>(&value);
  if (!record) return nullptr;
  const auto named = [&](const auto& member) { return member.first.number == name.number; };
  const auto at = std::ranges::find_if(**record, named);
  return at == (*record)->end() ? nullptr : &at->second;
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

Item ModuleRun::call(Callee callee, std::string_view name, std::vector<Item> given, int line) {
  if (callee.written) return callee.written({*this, std::move(given), step_, tape()});
  if (!callee.text) return emitted(name, given);
  const Definition& text = definition_of(*callee.text);
  if (given.size() > text.parameters.size()) defect(line, "too many arguments of", name);
  Values scope(text.num_slots);
  for (std::size_t i = 0; i < text.parameters.size(); ++i) {
    const Syntax& parameter = text.parameters[i];
    const bool missing = i >= given.size();
    if (missing && parameter.kind == Kind::kName) defect(line, "too few arguments of", name);
    scope[i] = missing ? evaluate(parameter.parts[0], scope) : std::move(given[i]);
  }
  Item result;
  execute(text.body, scope, result);
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
  Values scope(text->num_slots);
  Item result;
  execute(text->body, scope, result);
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

const Item* ModuleRun::get(Name name) const {
  return name.number < model_.size() && model_[name.number] ? &*model_[name.number] : nullptr;
}

const Item& ModuleRun::find(const Syntax& name, const Values& scope) const {
  if (name.slot >= 0 && scope[name.slot]) return *scope[name.slot];
  if (const Item* value = get(name.name)) return *value;
  defect(name.line, "no name", name.text);
}

Item ModuleRun::combined(std::string_view sign, const Item& left, const Item& right) {
  if (std::string_view("=<>!").find(sign.front()) != sign.npos) return compare(sign, left, right);
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

Item ModuleRun::operation(const Syntax& node, Values& scope) {
  const std::string_view sign = node.text;
  Item made[2];
  const Item& left = look_up(node.parts[0], scope, made[0]);
  if (sign == "not") return !is_true(left);
  if (node.parts.size() == 1) {
    if (is_tensor(left)) return emitted("aten::neg", {left});
    if (is_whole(left)) return whole_operation("-", 0, *left.get<std::int64_t>());
    return -left.real();
  }
  if (sign == "and" && !is_true(left)) return false;
  if (sign == "or" && is_true(left)) return true;
  const Item& right = look_up(node.parts[1], scope, made[1]);
  if (sign == "and" || sign == "or") return is_true(right);
  return combined(sign, left, right);
}

Item ModuleRun::each(const Syntax& node, Values& scope) {
  const Item all = evaluate(node.parts[1], scope);
  Item::List made;
  made.reserve(all.list().size());
  for (const Item& item : all.list()) {
    place_of(node.parts[2], scope) = item;
    made.push_back(evaluate(node.parts[0], scope));
  }
  return made;
}

std::vector<Item> ModuleRun::evaluate_all(const std::vector<Syntax>& nodes, Values& scope) {
  std::vector<Item> values;
  values.reserve(nodes.size());
  for (const Syntax& node : nodes) values.push_back(evaluate(node, scope));
  return values;
}

const Item& ModuleRun::look_up(const Syntax& node, Values& scope, Item& made) {
  switch (node.kind) {
    case Kind::kName: return find(node, scope);
    case Kind::kMember: {
      const Item& of = look_up(node.parts[0], scope, made);
      if (is_tensor(of) && node.text == "shape") {
        return made = step_.graph().shape(*of.get<TensorRef>());
      }
      const Item* member = of.member(node.name);
      if (!member) defect(node.line, "no member", node.text);
      return *member;
    }
    case Kind::kIndex: {
      const std::int64_t at = *evaluate(node.parts[1], scope).get<std::int64_t>();
      const Item::List& list = look_up(node.parts[0], scope, made).list();
      return list.at(at < 0 ? at + std::ssize(list) : at);
    }
    default: return made = evaluate(node, scope);
  }
}

Item ModuleRun::evaluate(const Syntax& node, Values& scope) {
  switch (node.kind) {
    case Kind::kConstant:
      if (const auto* whole = std::get_if<std::int64_t>(&node.constant)) return *whole;
      if (const auto* real = std::get_if<double>(&node.constant)) return *real;
      if (const auto* flag = std::get_if<bool>(&node.constant)) return *flag;
      return {};
    case Kind::kText: return std::string(node.text);
    case Kind::kName: return find(node, scope);
    case Kind::kMember:
    case Kind::kIndex: {
      Item made;
      return look_up(node, scope, made);
    }
    case Kind::kList: return evaluate_all(node.parts, scope);
    case Kind::kCall:
      return call(node.callee, node.text, evaluate_all(node.parts, scope), node.line);
    case Kind::kEach: return each(node, scope);
    case Kind::kRecord: {
      Item::Record made;
      made.reserve(node.parts.size());
      for (const Syntax& part : node.parts) {
        made.emplace_back(part.name, evaluate(part.parts[0], scope));
      }
      return made;
    }
    case Kind::kOperator: return operation(node, scope);
    case Kind::kChoice:
      return evaluate(node.parts[is_true(evaluate(node.parts[0], scope)) ? 1 : 2], scope);
    default: defect(node.line, "a statement in the place of a value:", node.text);
  }
}

void ModuleRun::assign(const Syntax& node, Values& scope) {
  Item value = evaluate(node.parts[0], scope);
  if (node.parts.size() == 2) {
    place_of(node.parts[1], scope) = std::move(value);
    return;
  }
  for (std::size_t i = 1; i < node.parts.size(); ++i) {
    place_of(node.parts[i], scope) = value.list().at(i - 1);
  }
}

void ModuleRun::add_to(const Syntax& node, Values& scope) {
  const Syntax& target = node.parts[1];
  const Item right = evaluate(node.parts[0], scope);
  std::optional<Item>& place = place_of(target, scope);
  if (place && place->append(right)) return;
  const Item left = find(target, scope);
  if (is_tensor(left)) {
    emitted("aten::add_.Tensor", {left, right, std::int64_t{1}});
  } else {
    place = combined("+", left, right);
  }
}

bool ModuleRun::execute(const Syntax& node, Values& scope, Item& result) {
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
        place_of(node.parts[2], scope) = item;
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
