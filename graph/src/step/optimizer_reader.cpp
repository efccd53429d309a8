#include "optimizer_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/contains.hpp"

namespace perfmodel {
namespace {

using Kind = Argument::Kind;
using Optimizer = TrainingOptions::Optimizer;
using Implementation = TrainingOptions::Implementation;
using Indices = std::vector<std::int64_t>;  // tensors

constexpr std::array kOpsInFront = {"aten::slice",  "aten::view",   "aten::empty",
                                    "aten::select", "aten::detach", "aten::as_strided",
                                    "aten::narrow", "aten::alias",  "aten::reshape"};
// `torch.tensor(1.0)`, and 1.13's arithmetic with the counters of Adagrad.
constexpr std::array kOpsOnNumbers = {"aten::empty",   "aten::to",  "aten::lift_fresh",
                                      "aten::detach_", "aten::sub", "aten::reciprocal",
                                      "aten::mul"};

// Ops on the rows of a merged gradient and of the state.
constexpr std::array kOpsOnRows = {"aten::_indices", "aten::_values", "aten::sub",
                                   "aten::sub_",     "aten::mul",     "aten::mul_",
                                   "aten::pow",      "aten::to",      "aten::sparse_coo_tensor",
                                   "aten::add_",     "aten::sqrt_",   "aten::div",
                                   "aten::div_"};

// Numbers were computed in floating point (1 - 0.9): the shortest decimal is the intended one.
double cleaned(double value) { return std::stod(fmt::format("{:.10g}", value)); }

// Lists of tensors among the arguments; a single tensor is a list of one.
std::vector<Indices> lists_of(const ExecutionGraph& graph, std::span<const Argument> arguments) {
  std::vector<Indices> found;
  for (const Argument& argument : arguments) {
    if (argument.kind == Kind::kTensor) found.push_back({argument.index});
    if (argument.kind != Kind::kList || argument.count == 0) continue;
    Indices list;
    for (const Argument& element : graph.elements(argument)) {
      if (element.kind == Kind::kTensor) list.push_back(element.index);
    }
    if (!list.empty()) found.push_back(std::move(list));
  }
  return found;
}

// Numbers among the arguments; of a list of numbers the first.
std::vector<double> numbers_of(const ExecutionGraph& graph, std::span<const Argument> arguments) {
  std::vector<double> found;
  for (const Argument& argument : arguments) {
    const bool is_list = argument.kind == Kind::kList && argument.count > 0;
    const Argument& number = is_list ? graph.elements(argument).front() : argument;
    if (number.kind == Kind::kInt) found.push_back(static_cast<double>(number.integer));
    if (number.kind == Kind::kDouble) found.push_back(number.real);
  }
  return found;
}

/// The parameters whose update is not over.
struct PendingUpdates {
  Indices parameter, gradient, step, first, second, first_scale, second_scale;
  std::map<std::int64_t, double> scaled;  ///< multiplied by a number; 0: no argument says it
  /// Tensors that ops made of the gradients or the state; -1: none.
  std::int64_t decayed = -1, root = -1, quotient = -1, rated = -1;
  double weight_decay = 0, beta1 = 0.9, beta2 = 0.999, rate = 0;
  bool counted = false;
};

/// An update by a sparse gradient whose entries are merged first.
struct MergedUpdate {
  Indices gradient;
  Indices changed;     ///< state, then the parameter: sparse tensors are added to them
  bool adam = false;   ///< looks its state up before it changes it
  bool looks = false;  ///< a sparse_mask was met
};

/// An op that does all of a step: its lists of tensors and its numbers in order, null: another
/// thing.
struct FusedUpdate {
  std::string_view op;
  Optimizer optimizer;
  Implementation implementation;
  std::vector<Indices PendingUpdates::*> tensors;
  std::vector<double OptimizerSettings::*> numbers;
};

const std::vector<FusedUpdate>& fused_updates() {
  using P = PendingUpdates;
  using S = OptimizerSettings;
  const std::vector<Indices P::*> adam = {&P::parameter, &P::gradient, &P::first, &P::second,
                                          &P::step};
  const std::vector<double S::*> adam_numbers = {&S::learning_rate, &S::beta1, &S::beta2,
                                                 &S::weight_decay, &S::eps};
  static const std::vector<FusedUpdate> rows = {
      {"aten::_fused_adam_", Optimizer::kAdam, Implementation::kFused, adam, adam_numbers},
      {"aten::_fused_adamw_", Optimizer::kAdamW, Implementation::kFused, adam, adam_numbers},
      {"aten::_fused_sgd_",
       Optimizer::kMomentum,
       Implementation::kFused,
       {&P::parameter, &P::gradient, &P::first},
       {&S::weight_decay, &S::momentum, &S::learning_rate}},
      {"aten::_fused_sgd_",
       Optimizer::kSgd,
       Implementation::kFused,
       {&P::parameter, &P::gradient},
       {&S::weight_decay, nullptr, &S::learning_rate}},
      // The two states are followed by their maps from 8 bits to numbers.
      {"bitsandbytes::optimizer_update_8bit_blockwise",
       Optimizer::kAdam,
       Implementation::kEightBit,
       {&P::gradient, &P::parameter, &P::first, &P::second, nullptr, nullptr, &P::first_scale,
        &P::second_scale},
       {&S::beta1, &S::beta2, nullptr, nullptr, &S::eps, &S::steps, &S::learning_rate,
        &S::weight_decay}},
      {"bitsandbytes::optimizer_update_32bit",
       Optimizer::kAdam,
       Implementation::kEightBit,
       {&P::gradient, &P::parameter, &P::first, &P::second},
       {nullptr, nullptr, &S::beta1, &S::beta2, nullptr, nullptr, &S::eps, &S::weight_decay,
        &S::steps, &S::learning_rate}}};
  return rows;
}

class StepReader {
 public:
  StepReader(const ExecutionGraph& graph, std::int32_t label) : graph_(graph) {
    step_.label = label;
  }

  Result<ReadStep> read() {
    const auto refuse = [&](std::string_view expected, std::string_view found) {
      return fail(ErrorCode::kImpossible, fmt::format("{}: expected ops {}, found {}",
                                                      graph_.name(step_.label), expected, found));
    };
    for (const std::int32_t child : children_in_order(graph_, graph_.node(step_.label))) {
      node_ = child;
      if (read_op(graph_.node(child))) continue;
      return refuse("of SGD, Adagrad, Adam, AdamW or SparseAdam",
                    fmt::format("{} (node {})", graph_.name(child), graph_.node(child).id));
    }
    if (step_.groups.empty()) return refuse("that update parameters", "none");
    return std::move(step_);
  }

 private:
  // A list of tensors is known by its first one.
  std::int64_t id(const Indices& list) const {
    return list.empty() ? -1 : graph_.tensors[list.front()].id;
  }

  const Tensor& tensor(std::int64_t index) const { return graph_.tensors[index]; }
  bool is_number(const Indices& list) const {
    return tensor(list.front()).rank == 0 && tensor(list.front()).on_cpu();
  }
  bool is_number_of(const Indices& list, DType a, DType b) const {
    const DType dtype = tensor(list.front()).dtype;
    return list.size() == 1 && is_number(list) && (dtype == a || dtype == b);
  }

  bool read_op(const Node& node) {
    const std::string_view name = graph_.name(node);
    in_ = lists_of(graph_, graph_.inputs(node));
    out_ = lists_of(graph_, graph_.outputs(node));
    numbers_ = numbers_of(graph_, graph_.inputs(node));
    if (!started_ && contains(kOpsInFront, name) && !numbers_only()) {
      step_.first.push_back(node_);
      return true;
    }
    started_ = true;
    if (merged_) return read_rows(name);
    if (name == "aten::coalesce" && in_.size() == 1) {
      merged_ = MergedUpdate{.gradient = in_[0]};
      return true;
    }
    if (contains(kOpsOnNumbers, name) && numbers_only()) return true;
    if (in_.empty()) return false;
    if (name == "aten::to" && read_cast()) return true;
    if (name == "aten::copy_" && read_write_back()) return true;
    if (read_fused(name)) return true;
    foreach_ = name.starts_with("aten::_foreach_");
    std::string_view op = name.substr(name.find("::") + 2);
    if (foreach_) op.remove_prefix(std::string_view("_foreach_").size());
    if (read_numbers(op, node) || read_means(op)) return true;
    // An op that changes the parameters ends a group.
    if (op == "add_" && in_.size() == 2 && !numbers_.empty()) return read_sum();
    return op == "addcdiv_" && in_.size() == 3 && !numbers_.empty() && read_quotient();
  }

  // Between the merge of a sparse gradient and the change of its parameter.
  bool read_rows(std::string_view name) {
    if (name == "aten::sparse_mask") return merged_->looks = true;
    if (name == "aten::sparse_coo_tensor") {  // PyTorch 1.13 looks at its indices
      const auto below = graph_.children(graph_.node(node_));
      const bool checks = std::ranges::any_of(
          below, [this](std::int32_t child) { return graph_.name(child) == "aten::min"; });
      (checks ? step_.before_2 : step_.is_2) = true;
    }
    const bool adds_rows =
        name == "aten::add_" && in_.size() == 2 && tensor(in_[1].front()).storage_id == 0;
    if (!adds_rows) return contains(kOpsOnRows, name);
    MergedUpdate& update = *merged_;
    if (update.changed.empty()) update.adam = update.looks;
    update.changed.push_back(in_[0].front());
    const std::size_t wanted = update.adam ? 3 : 2;
    if (update.changed.size() < wanted) return true;
    OptimizerSettings settings = optimizer_settings(
        update.adam ? Optimizer::kSparseAdam : Optimizer::kAdagrad, Implementation::kLoop);
    if (!update.adam && !numbers_.empty()) settings.learning_rate = -numbers_.back();
    pending_.gradient = update.gradient;
    pending_.first = {update.changed[0]};
    if (update.adam) pending_.second = {update.changed[1]};
    pending_.parameter = {update.changed.back()};
    merged_.reset();
    return close(settings);
  }

  // A gradient in the type of its parameter.
  bool read_cast() {
    if (out_.empty() || in_[0].size() != 1 || out_[0].size() != 1) return false;
    const Tensor &from = tensor(in_[0][0]), &to = tensor(out_[0][0]);
    if (!from.on_gpu() || !is_floating_point(from.dtype) || !is_floating_point(to.dtype)) {
      return false;
    }
    casts_[to.id] = in_[0][0];
    return true;
  }

  // The model's weight gets the updated value of its wider copy.
  bool read_write_back() {
    if (in_.size() < 2 || in_[0].size() != 1 || in_[1].size() != 1) return false;
    const auto at = updates_.find(tensor(in_[1][0]).id);
    if (at == updates_.end()) return false;
    const auto [group, position] = at->second;
    ReadUpdate& update = step_.groups[group].updates[position];
    update.weight = in_[0][0];
    update.last_op = node_;
    return true;
  }

  // All tensors are numbers on the CPU.
  bool numbers_only() const {
    if (in_.empty()) return !out_.empty() && is_number(out_.front());
    return std::all_of(in_.begin(), in_.end(),
                       [this](const auto& list) { return is_number(list); });
  }

  // Counters, decay, the constants of a step.
  bool read_numbers(std::string_view op, const Node& node) {
    if (op == "item") {
      const auto values = numbers_of(graph_, graph_.outputs(node));
      if (!values.empty()) step_count_ = values.front();
      return true;
    }
    const bool adds = op == "add_", two = in_.size() == 2;
    const bool scalars = tensor(in_[0].front()).rank == 0;
    // Loops add a wrapped integer to the counter, lists of PyTorch 2 a tensor.
    const DType counted = foreach_ ? DType::kFloat32 : DType::kInt64;
    const bool counts = two ? is_number_of(in_[1], DType::kInt64, counted)
                            : numbers_.size() == 1 && numbers_[0] == 1;
    if (adds && scalars && !pending_.counted && counts) {
      if (two && foreach_) step_.is_2 = true;
      pending_.step = in_[0];
      return pending_.counted = true;
    }
    if (op == "add" && two && is_number_of(in_[1], DType::kFloat64, DType::kInt64)) {
      return numbers_only();  // 1.13's Adagrad
    }
    // 1.13's lists of Adagrad and Adam decay in place.
    const bool in_place = adds && foreach_ && pending_.counted && pending_.first.empty() &&
                          !pending_.scaled.contains(id(in_[0]));
    const bool decays = in_place ? !numbers_.empty() && numbers_.back() > 0
                                 : op == "add" && !numbers_.empty() && !out_.empty();
    if (two && decays) {
      step_.before_2 |= in_place;
      pending_.weight_decay = numbers_.back();
      pending_.gradient = in_[0];
      pending_.decayed = id(in_place ? in_[0] : out_[0]);
      return true;
    }
    if (op == "mul_") {
      pending_.scaled[id(in_[0])] = numbers_.empty() ? 0 : numbers_.back();
      return true;
    }
    return false;
  }

  // Reads means of gradients and ops that divide by them.
  bool read_means(std::string_view op) {
    if (op == "lerp_") {
      step_.is_2 = true;
      if (in_.size() < 2 || numbers_.empty()) return false;
      pending_.beta1 = cleaned(1 - numbers_.back());
      return read_first(in_[0], in_[1]);
    }
    if (op == "addcmul_") {
      if (in_.size() < 3 || numbers_.empty()) return false;
      if (pending_.first.empty()) return read_first(in_[0], in_[1]);
      pending_.beta2 = cleaned(1 - numbers_.back());
      pending_.second = in_[0];
      return true;
    }
    if (op == "sqrt" && !out_.empty()) {
      pending_.root = id(out_[0]);
      return true;
    }
    const bool on_root = pending_.root != -1 && id(in_[0]) == pending_.root;
    if (on_root && (op == "div" || op == "add") && !out_.empty()) {
      if (op == "add") step_.before_2 = true;
      pending_.root = id(out_[0]);
      return true;
    }
    if (on_root && (op == "div_" || op == "add_")) return true;
    if (op == "mul" && !out_.empty()) {  // Adagrad's gradients times its rate
      pending_.rated = id(out_[0]);
      if (in_.size() == 2) {
        step_.before_2 = true;
      } else if (!numbers_.empty()) {
        pending_.rate = -numbers_.back();
      }
      return true;
    }
    if (op == "div" && !out_.empty() && id(in_[0]) == pending_.rated) {
      pending_.quotient = id(out_[0]);
      return true;
    }
    // Momentum, or the mean of 1.13's Adam.
    if (op == "add_" && in_.size() == 2 && pending_.scaled.contains(id(in_[0])) &&
        !numbers_.empty() && numbers_.back() > 0) {
      if (numbers_.back() != 1) {
        pending_.beta1 = cleaned(1 - numbers_.back());
        step_.before_2 = true;
      }
      return read_first(in_[0], in_[1]);
    }
    return false;
  }

  bool read_first(const Indices& first, const Indices& gradient) {
    pending_.first = first;
    if (id(gradient) != pending_.decayed || pending_.gradient.empty()) pending_.gradient = gradient;
    return true;
  }

  Implementation implementation() const {
    return foreach_ ? Implementation::kForeach : Implementation::kLoop;
  }

  bool read_sum() {
    OptimizerSettings settings = optimizer_settings(Optimizer::kSgd, implementation());
    if (pending_.quotient != -1 && id(in_[1]) == pending_.quotient) {  // 1.13, lists
      settings = optimizer_settings(Optimizer::kAdagrad, implementation());
    } else {
      if (id(in_[1]) == id(pending_.first) && !pending_.first.empty()) {
        settings.optimizer = Optimizer::kMomentum;
        const double momentum = pending_.scaled[id(in_[1])];
        if (momentum != 0) settings.momentum = momentum;
      } else if (id(in_[1]) != pending_.decayed || pending_.gradient.empty()) {
        pending_.gradient = in_[1];
      }
      settings.learning_rate = -numbers_.back();
    }
    return close(settings);
  }

  bool read_quotient() {
    if (pending_.second.empty()) {
      OptimizerSettings settings = optimizer_settings(Optimizer::kAdagrad, implementation());
      settings.learning_rate = foreach_ ? pending_.rate : -numbers_.back();
      return close(settings);
    }
    // AdamW without decay has Adam's ops.
    const auto decay = pending_.scaled.find(id(in_[0]));
    const bool decays = decay != pending_.scaled.end();
    const bool decoupled =
        decays || graph_.name(step_.label).find("#AdamW.") != std::string_view::npos;
    OptimizerSettings settings =
        optimizer_settings(decoupled ? Optimizer::kAdamW : Optimizer::kAdam, implementation());
    settings.beta1 = pending_.beta1;
    settings.beta2 = pending_.beta2;
    settings.learning_rate =
        cleaned(-numbers_.back() * (1 - std::pow(pending_.beta1, step_count_)));
    if (!decays) settings.weight_decay = 0;
    if (decays && decay->second != 0) {
      settings.weight_decay = cleaned((1 - decay->second) / settings.learning_rate);
    }
    return close(settings);
  }

  // bitsandbytes' ops do not say whether the decay is AdamW's.
  bool read_fused(std::string_view name) {
    const auto row = std::ranges::find_if(fused_updates(), [&](const FusedUpdate& update) {
      return update.op == name && in_.size() >= update.tensors.size() &&
             numbers_.size() >= update.numbers.size();
    });
    if (row == fused_updates().end()) return false;
    OptimizerSettings settings = optimizer_settings(row->optimizer, row->implementation);
    settings.steps = step_count_;
    if (row->implementation == Implementation::kEightBit &&
        graph_.name(step_.label).find("AdamW") != std::string_view::npos) {
      settings.optimizer = Optimizer::kAdamW;
    }
    for (std::size_t i = 0; i < row->numbers.size(); ++i) {
      if (row->numbers[i]) settings.*row->numbers[i] = numbers_[i];
    }
    for (std::size_t i = 0; i < row->tensors.size(); ++i) {
      if (row->tensors[i]) pending_.*row->tensors[i] = in_[i];
    }
    step_count_ = settings.steps;
    return close(settings);
  }

  bool close(OptimizerSettings settings) {
    if (pending_.parameter.empty()) pending_.parameter = in_[0];
    const Indices& parameters = pending_.parameter;
    settings.steps = step_count_;
    if (pending_.weight_decay != 0) settings.weight_decay = pending_.weight_decay;
    if (pending_.gradient.size() != parameters.size()) return false;
    for (const Indices* state : {&pending_.step, &pending_.first, &pending_.second}) {
      if (!state->empty() && state->size() != parameters.size()) return false;
    }
    const auto at = [](const Indices& list, std::size_t i) { return list.empty() ? -1 : list[i]; };
    if (step_.groups.empty() || !(step_.groups.back().settings == settings)) {
      step_.groups.push_back({.settings = settings, .updates = {}});
    }
    std::vector<ReadUpdate>& updates = step_.groups.back().updates;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      ReadUpdate update{.parameter = parameters[i],
                        .gradient = pending_.gradient[i],
                        .step = at(pending_.step, i),
                        .first = at(pending_.first, i),
                        .second = at(pending_.second, i),
                        .first_scale = at(pending_.first_scale, i),
                        .second_scale = at(pending_.second_scale, i),
                        .last_op = node_};
      const auto cast = casts_.find(tensor(update.gradient).id);
      if (cast != casts_.end()) update.gradient = cast->second;
      update.sparse = tensor(update.gradient).storage_id == 0;
      updates_[tensor(update.parameter).id] = {step_.groups.size() - 1, updates.size()};
      updates.push_back(update);
    }
    pending_ = {};
    return true;
  }

  const ExecutionGraph& graph_;
  ReadStep step_;
  PendingUpdates pending_;
  std::optional<MergedUpdate> merged_;
  std::map<std::int64_t, std::int64_t> casts_;  // id of the cast gradient -> the gradient
  // Group of a parameter, by its id, and position in it.
  std::map<std::int64_t, std::pair<std::size_t, std::size_t>> updates_;
  double step_count_ = OptimizerSettings{}.steps;
  bool started_ = false, foreach_ = false;
  std::int32_t node_ = -1;
  std::vector<Indices> in_, out_;
  std::vector<double> numbers_;
};

}  // namespace

std::vector<std::int32_t> children_in_order(const ExecutionGraph& graph, const Node& node) {
  const auto children = graph.children(node);
  std::vector<std::int32_t> sorted(children.begin(), children.end());
  std::stable_sort(sorted.begin(), sorted.end(), [&graph](std::int32_t a, std::int32_t b) {
    return graph.node(a).rf_id < graph.node(b).rf_id;
  });
  return sorted;
}

std::vector<std::int32_t> optimizer_steps(const ExecutionGraph& graph) {
  std::vector<std::int32_t> found;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.name(graph.nodes[i]).starts_with("Optimizer.step#")) {
      found.push_back(static_cast<std::int32_t>(i));
    }
  }
  return found;
}

bool is_under_optimizer(const ExecutionGraph& graph, std::int32_t node) {
  const auto holds = [&](std::int32_t i) { return graph.name(i).starts_with("Optimizer."); };
  return graph.find_around(node, holds) >= 0;
}

bool is_zero_grad(const ExecutionGraph& graph, std::int32_t node) {
  return graph.name(node).starts_with("Optimizer.zero_grad#");
}

Result<ReadStep> read_optimizer_step(const ExecutionGraph& graph, std::int32_t label) {
  return StepReader(graph, label).read();
}

}  // namespace perfmodel
