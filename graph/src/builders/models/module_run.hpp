#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "module_syntax.hpp"
#include "perfmodel/result.hpp"
#include "training_step.hpp"

namespace perfmodel {

/// A value of a text: a number, a flag, a word, a tensor, a list or a record.
struct Item {
  using List = std::vector<Item>;
  using Record = std::vector<std::pair<Name, Item>>;
  struct None {
    friend bool operator==(None, None) { return true; }
  };

  Item() = default;
  Item(TensorRef tensor) : value(tensor) {}
  Item(std::int64_t number) : value(number) {}
  Item(double number) : value(number) {}
  Item(bool flag) : value(flag) {}
  Item(std::string text) : value(std::move(text)) {}
  Item(List list) : value(std::make_shared<List>(std::move(list))) {}
  Item(Record record) : value(std::make_shared<const Record>(std::move(record))) {}
  Item(const Shape& sizes) : Item(List(sizes.begin(), sizes.end())) {}
  Item(const std::vector<TensorRef>& tensors) : Item(List(tensors.begin(), tensors.end())) {}

  template <class Kind>
  const Kind* get() const {
    return std::get_if<Kind>(&value);
  }
  bool exists() const { return !get<None>(); }
  const List& list() const { return **std::get_if<std::shared_ptr<const List>>(&value); }
  /// Null if it is no record or has none of that name.
  const Item* member(Name name) const;
  /// A whole number counts as a real one.
  double real() const;
  /// As an argument of an op.
  Value argument() const;
  /// Adds the items of a list to the end of this one if no other item shares it, so that lists can
  /// grow item by item without copies. False if it did not.
  bool append(const Item& more);

  std::variant<None, TensorRef, std::int64_t, double, bool, std::string,
               std::shared_ptr<const List>, std::shared_ptr<const Record>>
      value;
};

/// Thrown by checks of a configuration; build_module() makes it an error.
struct Refusal {
  std::string message;
};

class ModuleRun;

/// A call of a function that is written in C++; arguments by their places, those at the end may be
/// missing.
struct ModuleCall {
  ModuleRun& run;
  std::vector<Item> given;
  TrainingStep& step;
  AutogradTape& tape;
  GraphBuilder& graph = tape.graph();

  bool has(std::size_t i) const { return i < given.size() && given[i].exists(); }
  /// May not exist.
  TensorRef tensor(std::size_t i) const {
    return has(i) ? *given[i].get<TensorRef>() : TensorRef{};
  }
  std::int64_t integer(std::size_t i) const { return *given[i].get<std::int64_t>(); }
  int dim(std::size_t i) const { return static_cast<int>(integer(i)); }
  double real(std::size_t i) const { return given[i].real(); }
  /// False if it is missing.
  bool flag(std::size_t i) const { return has(i) && *given[i].get<bool>(); }
  const std::string& text(std::size_t i) const { return *given[i].get<std::string>(); }
  /// By its name, or the type of a tensor.
  DType dtype(std::size_t i) const;
  Shape shape(std::size_t i) const;
  std::vector<TensorRef> tensors(std::size_t i) const;
  std::vector<Value> arguments(std::size_t i) const;
};
/// A model while its text is followed.
class ModuleRun {
 public:
  /// `settings` are names that all functions see.
  ModuleRun(Item::Record settings, const TrainingOptions& options,
            std::optional<TrainingOptions::Optimizer> sparse_optimizer = {})
      : step_(options, sparse_optimizer) {
    for (auto& [name, value] : settings) set(name, std::move(value));
  }

  TrainingStep& step() { return step_; }
  /// The value of a name that all functions see; null: it has none.
  const Item* get(Name name) const;
  void set(Name name, Item value) { seen_by_all(name) = std::move(value); }
  /// Values by texts that a model makes as it runs.
  std::map<std::string, Item>& kept() { return kept_; }

  /// Follows a function without parameters; all functions see the names that it sets.
  Item follow(std::string_view function);
  /// The step of `model`: its functions parameters, inputs, forward, loss and after_optimizer, of
  /// which only forward is needed.
  ExecutionGraph step_of(std::string_view model);

  Item call(std::string_view function, std::vector<Item> given) {
    return call(callee_of(function), function, std::move(given));
  }
  /// A function of a backward pass, whose ops have no number; a gradient may not exist. `listed`:
  /// the function takes all gradients as one list.
  std::vector<TensorRef> call_backward(std::string_view function,
                                       const std::vector<TensorRef>& gradients,
                                       const Item::List& saved, bool listed = false);

 private:
  /// By slots; empty until they are set.
  using Values = std::vector<std::optional<Item>>;

  Item call(Callee callee, std::string_view name, std::vector<Item> given, int line = 0);
  Item evaluate(const Syntax& node, Values& scope);
  /// The same without a copy of what has a name; `made` holds what has none.
  const Item& look_up(const Syntax& node, Values& scope, Item& made);
  std::vector<Item> evaluate_all(const std::vector<Syntax>& nodes, Values& scope);
  const Item& find(const Syntax& name, const Values& scope) const;
  std::optional<Item>& place_of(const Syntax& name, Values& scope) {
    return name.slot >= 0 ? scope[name.slot] : seen_by_all(name.name);
  }
  std::optional<Item>& seen_by_all(Name name) {
    if (name.number >= model_.size()) model_.resize(name.number + 1);
    return model_[name.number];
  }
  Item operation(const Syntax& node, Values& scope);
  Item combined(std::string_view sign, const Item& left, const Item& right);
  Item each(const Syntax& node, Values& scope);
  Item emitted(std::string_view op, const std::vector<Item>& given);
  void assign(const Syntax& node, Values& scope);
  void add_to(const Syntax& node, Values& scope);
  /// Whether a return ended it; its value is in `result`.
  bool execute(const Syntax& node, Values& scope, Item& result);
  AutogradTape& tape() { return without_gradient_ ? no_tape_ : step_.tape(); }

  std::deque<std::optional<Item>> model_;  ///< by names; each stays where it is as more come
  std::map<std::string, Item> kept_;
  TrainingStep step_;
  AutogradTape no_tape_{step_.graph(), -1};
  bool without_gradient_ = false;
};

}  // namespace perfmodel
