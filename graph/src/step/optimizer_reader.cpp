#include "optimizer_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/contains.hpp"

namespace perfmodel {
namespace {

using Kind = Argument::Kind;
using Optimizer = TrainingOptions::Optimizer;
using Implementation = TrainingOptions::Implementation;
using Indices = std::vector<std::int64_t>;  // of tensors

constexpr std::array kOpsInFront = {"aten::slice",  "aten::view",   "aten::empty",
                                    "aten::select", "aten::detach", "aten::as_strided",
                                    "aten::narrow", "aten::alias",  "aten::reshape"};
// `torch.tensor(1.0)`, and 1.13's arithmetic with the counters of Adagrad.
constexpr std::array kOpsOnNumbers = {"aten::empty",   "aten::to",  "aten::lift_fresh",
                                      "aten::detach_", "aten::sub", "aten::reciprocal",
                                      "aten::mul"};

// Numbers were computed in floating point (1 - 0.9): the shortest decimal is what was meant.
double cleaned(double value) { return std::stod(fmt::format("{:.10g}", value)); }

// Identity of a list of tensors: of its first one.
struct Key {
  std::int64_t id = -1, storage = -1, offset = -1;
  friend auto operator<=>(const Key&, const Key&) = default;
};

class StepReader {
 public:
  StepReader(const ExecutionGraph& graph, std::int32_t label) : graph_(graph) {
    step_.label = label;
  }

  Result<ReadStep> read() {
    const Node& label = graph_.node(step_.label);
    for (std::int32_t child : children_in_order(graph_, label)) {
      node_ = child;
      if (!take(graph_.node(child))) {
        const Node& op = graph_.node(child);
        return fail(
            ErrorCode::kImpossible,
            fmt::format("{}: expected ops of SGD, Adagrad, Adam or AdamW, found {} (node {})",
                        graph_.name(label), graph_.name(op), op.id));
      }
    }
    if (step_.groups.empty()) {
      return fail(
          ErrorCode::kImpossible,
          fmt::format("{}: expected ops that update parameters, found none", graph_.name(label)));
    }
    return std::move(step_);
  }

 private:
  // What is known of the parameters whose update is not over.
  struct Pending {
    Indices step, gradient, first, second, first_scale, second_scale;
    std::map<Key, double> scaled;  // multiplied by a number, 0 where no argument tells it
    Key decayed, root, quotient, rated;
    double weight_decay = 0, beta1 = 0.9, beta2 = 0.999, rate = 0;
    bool counted = false;
  };

  Key key(std::int64_t tensor) const {
    if (tensor < 0) return {};
    const Tensor& t = graph_.tensors[tensor];
    return {t.id, t.storage_id, t.offset};
  }
  Key key(const Indices& list) const { return list.empty() ? Key{} : key(list.front()); }

  // Lists of tensors among the arguments; a tensor alone is a list of one.
  std::vector<Indices> lists(std::span<const Argument> arguments) const {
    std::vector<Indices> found;
    for (const Argument& argument : arguments) {
      if (argument.kind == Kind::kTensor) found.push_back({argument.index});
      if (argument.kind != Kind::kList || argument.count == 0) continue;
      Indices list;
      for (const Argument& element : graph_.elements(argument)) {
        if (element.kind == Kind::kTensor) list.push_back(element.index);
      }
      if (!list.empty()) found.push_back(std::move(list));
    }
    return found;
  }

  // Numbers among the arguments; of a list of numbers the first.
  std::vector<double> numbers(std::span<const Argument> arguments) const {
    std::vector<double> found;
    for (const Argument& argument : arguments) {
      const Argument* number = &argument;
      if (argument.kind == Kind::kList && argument.count > 0) {
        number = graph_.elements(argument).data();
      }
      if (number->kind == Kind::kInt) found.push_back(static_cast<double>(number->integer));
      if (number->kind == Kind::kDouble) found.push_back(number->real);
    }
    return found;
  }

  const Tensor& tensor(std::int64_t index) const { return graph_.tensors[index]; }
  // A number that became a tensor on the CPU.
  bool is_wrapped(const Indices& list) const {
    const Tensor& t = tensor(list.front());
    return list.size() == 1 && t.rank == 0 && t.on_cpu() &&
           (t.dtype == DType::kFloat64 || t.dtype == DType::kInt64);
  }
  bool is_number(const Indices& list) const {
    return tensor(list.front()).rank == 0 && tensor(list.front()).on_cpu();
  }

  bool take(const Node& node) {
    const std::string_view name = graph_.name(node);
    in_ = lists(graph_.inputs(node));
    out_ = lists(graph_.outputs(node));
    numbers_ = numbers(graph_.inputs(node));
    if (step_.groups.empty() && !started_ && contains(kOpsInFront, name) && !numbers_only()) {
      step_.first.push_back(node_);
      return true;
    }
    if (contains(kOpsOnNumbers, name) && numbers_only()) return start();
    if (in_.empty()) return false;
    if (name == "aten::to" && take_cast()) return start();
    if (name == "aten::copy_" && take_write_back()) return start();
    if (name.starts_with("bitsandbytes::optimizer_update_")) return start() && take_eight_bit(name);
    foreach_ = name.starts_with("aten::_foreach_");
    std::string_view op = name.substr(name.find("::") + 2);
    if (foreach_) op.remove_prefix(std::string_view("_foreach_").size());
    return start() && (take_numbers(op, node) || take_means(op) || take_last(op));
  }

  bool start() { return started_ = true; }

  // A gradient in the type of its parameter.
  bool take_cast() {
    if (out_.empty() || in_[0].size() != 1 || out_[0].size() != 1) return false;
    const Tensor &from = tensor(in_[0][0]), &to = tensor(out_[0][0]);
    if (!from.on_gpu() || !is_floating_point(from.dtype) || !is_floating_point(to.dtype)) {
      return false;
    }
    casts_[to.id] = in_[0][0];
    return true;
  }

  // The model's weight gets what its wider copy has become.
  bool take_write_back() {
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
  bool take_numbers(std::string_view op, const Node& node) {
    if (op == "item") {
      const auto values = numbers(graph_.outputs(node));
      if (!values.empty()) step_count_ = values.front();
      return true;
    }
    const bool adds = op == "add_", two = in_.size() == 2;
    const bool scalars = tensor(in_[0].front()).rank == 0;
    if (adds && scalars && !pending_.counted &&
        ((two && counts_by(in_[1])) || (!two && numbers_.size() == 1 && numbers_[0] == 1))) {
      if (two && foreach_) step_.is_2 = true;
      pending_.step = in_[0];
      return pending_.counted = true;
    }
    if (op == "add" && two && is_wrapped(in_[1])) return numbers_only();  // 1.13's Adagrad
    if (op == "add" && two) {
      if (numbers_.empty() || out_.empty()) return false;
      pending_.weight_decay = numbers_.back();
      pending_.gradient = in_[0];
      pending_.decayed = key(out_[0]);
      return true;
    }
    // 1.13's lists of Adagrad and Adam decay in place.
    if (adds && two && foreach_ && pending_.counted && pending_.first.empty() &&
        !pending_.scaled.contains(key(in_[0])) && !numbers_.empty() && numbers_.back() > 0) {
      step_.before_2 = true;
      pending_.weight_decay = numbers_.back();
      pending_.gradient = in_[0];
      pending_.decayed = key(in_[0]);
      return true;
    }
    if (op == "mul_") {
      pending_.scaled[key(in_[0])] = numbers_.empty() ? 0 : numbers_.back();
      return true;
    }
    return false;
  }

  // Loops add a wrapped integer to the counter, lists of PyTorch 2 a tensor.
  bool counts_by(const Indices& other) const {
    const Tensor& t = tensor(other.front());
    return other.size() == 1 && t.rank == 0 && t.on_cpu() &&
           (t.dtype == DType::kInt64 || (foreach_ && t.dtype == DType::kFloat32));
  }

  // Means of gradients and what divides by them.
  bool take_means(std::string_view op) {
    if (op == "lerp_") {
      step_.is_2 = true;
      if (in_.size() < 2 || numbers_.empty()) return false;
      pending_.beta1 = cleaned(1 - numbers_.back());
      return take_first(in_[0], in_[1]);
    }
    if (op == "addcmul_") {
      if (in_.size() < 3 || numbers_.empty()) return false;
      if (pending_.first.empty()) return take_first(in_[0], in_[1]);
      pending_.beta2 = cleaned(1 - numbers_.back());
      pending_.second = in_[0];
      return true;
    }
    if (op == "sqrt" && !out_.empty()) {
      pending_.root = key(out_[0]);
      return true;
    }
    const bool on_root = pending_.root != Key{} && key(in_[0]) == pending_.root;
    if (on_root && (op == "div" || op == "add") && !out_.empty()) {
      if (op == "add") step_.before_2 = true;
      pending_.root = key(out_[0]);
      return true;
    }
    if (on_root && (op == "div_" || op == "add_")) return true;
    if (op == "mul" && !out_.empty()) {  // Adagrad's gradients times its rate
      pending_.rated = key(out_[0]);
      if (in_.size() == 2) {
        step_.before_2 = true;
      } else if (!numbers_.empty()) {
        pending_.rate = -numbers_.back();
      }
      return true;
    }
    if (op == "div" && !out_.empty() && key(in_[0]) == pending_.rated) {
      pending_.quotient = key(out_[0]);
      return true;
    }
    // Momentum, or the mean of 1.13's Adam.
    if (op == "add_" && in_.size() == 2 && pending_.scaled.contains(key(in_[0])) &&
        !numbers_.empty() && numbers_.back() > 0) {
      if (numbers_.back() != 1) {
        pending_.beta1 = cleaned(1 - numbers_.back());
        step_.before_2 = true;
      }
      return take_first(in_[0], in_[1]);
    }
    return false;
  }

  bool take_first(const Indices& first, const Indices& gradient) {
    pending_.first = first;
    if (key(gradient) != pending_.decayed || pending_.gradient.empty())
      pending_.gradient = gradient;
    return true;
  }

  // What changes the parameters ends a group.
  bool take_last(std::string_view op) {
    if (op == "add_" && in_.size() == 2 && !numbers_.empty()) return take_sum();
    if (op == "addcdiv_" && in_.size() == 3 && !numbers_.empty()) return take_quotient();
    if (op == "_fused_adam_" || op == "_fused_adamw_") return take_fused_adam(op);
    if (op == "_fused_sgd_") return take_fused_sgd();
    return false;
  }

  Implementation implementation() const {
    return foreach_ ? Implementation::kForeach : Implementation::kLoop;
  }

  bool take_sum() {
    OptimizerSettings settings = optimizer_settings(Optimizer::kSgd, implementation());
    if (pending_.quotient != Key{} && key(in_[1]) == pending_.quotient) {  // 1.13, lists
      settings = optimizer_settings(Optimizer::kAdagrad, implementation());
    } else {
      if (key(in_[1]) == key(pending_.first) && !pending_.first.empty()) {
        settings.optimizer = Optimizer::kMomentum;
        const double momentum = pending_.scaled[key(in_[1])];
        if (momentum != 0) settings.momentum = momentum;
      } else if (key(in_[1]) != pending_.decayed || pending_.gradient.empty()) {
        pending_.gradient = in_[1];
      }
      settings.learning_rate = -numbers_.back();
    }
    return close(settings);
  }

  bool take_quotient() {
    if (pending_.second.empty()) {
      OptimizerSettings settings = optimizer_settings(Optimizer::kAdagrad, implementation());
      settings.learning_rate = foreach_ ? pending_.rate : -numbers_.back();
      return close(settings);
    }
    // AdamW without decay has Adam's ops.
    const auto decay = pending_.scaled.find(key(in_[0]));
    const bool decays = decay != pending_.scaled.end(), decoupled = decays || is_class("AdamW");
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

  bool is_class(std::string_view name) const {
    const auto label = graph_.name(step_.label);
    return label.find(std::string("#") + std::string(name) + ".") != std::string_view::npos;
  }

  bool take_fused_adam(std::string_view op) {
    if (in_.size() < 5 || numbers_.size() < 5) return false;
    OptimizerSettings settings = optimizer_settings(
        op == "_fused_adam_" ? Optimizer::kAdam : Optimizer::kAdamW, Implementation::kFused);
    settings.learning_rate = numbers_[0];
    settings.beta1 = numbers_[1];
    settings.beta2 = numbers_[2];
    pending_.weight_decay = settings.weight_decay = numbers_[3];
    settings.eps = numbers_[4];
    pending_.gradient = in_[1];
    pending_.first = in_[2];
    pending_.second = in_[3];
    pending_.step = in_[4];
    return close(settings);
  }

  // optimizer_update_8bit_blockwise(name, gradient, parameter, two states, two maps, two scales,
  // ...), or optimizer_update_32bit(name, gradient, parameter, two states, ...) of small tensors.
  bool take_eight_bit(std::string_view name) {
    const bool narrow = name.ends_with("8bit_blockwise");
    if (in_.size() != (narrow ? 8 : 4) || numbers_.size() < (narrow ? 8U : 10U)) return false;
    const std::string_view label = graph_.name(step_.label);
    OptimizerSettings settings = optimizer_settings(
        label.find("AdamW") != std::string_view::npos ? Optimizer::kAdamW : Optimizer::kAdam,
        Implementation::kEightBit);
    const std::size_t first = narrow ? 0 : 2;  // of the numbers
    settings.beta1 = numbers_[first];
    settings.beta2 = numbers_[first + 1];
    settings.eps = numbers_[first + 4];
    pending_.weight_decay = settings.weight_decay = numbers_[7];
    step_count_ = numbers_[narrow ? 5 : 8];
    settings.learning_rate = numbers_[narrow ? 6 : 9];
    pending_.gradient = in_[0];
    pending_.first = in_[2];
    pending_.second = in_[3];
    if (narrow) {
      pending_.first_scale = in_[6];
      pending_.second_scale = in_[7];
    }
    in_[0] = in_[1];
    return close(settings);
  }

  bool take_fused_sgd() {
    if (in_.size() < 2 || numbers_.size() < 3) return false;
    const bool momentum = in_.size() == 3;
    OptimizerSettings settings = optimizer_settings(
        momentum ? Optimizer::kMomentum : Optimizer::kSgd, Implementation::kFused);
    pending_.weight_decay = numbers_[0];
    if (momentum) settings.momentum = numbers_[1];
    settings.learning_rate = numbers_[2];
    pending_.gradient = in_[1];
    if (momentum) pending_.first = in_[2];
    return close(settings);
  }

  bool close(OptimizerSettings settings) {
    const Indices& parameters = in_[0];
    settings.steps = step_count_;
    if (pending_.weight_decay != 0) settings.weight_decay = pending_.weight_decay;
    if (pending_.gradient.size() != parameters.size()) return false;
    for (const Indices* state : {&pending_.step, &pending_.first, &pending_.second}) {
      if (!state->empty() && state->size() != parameters.size()) return false;
    }
    const auto at = [](const Indices& list, std::size_t i) { return list.empty() ? -1 : list[i]; };
    ReadGroup group{.settings = settings, .updates = {}};
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
      group.updates.push_back(update);
    }
    pending_ = {};
    add(std::move(group));
    return true;
  }

  void add(ReadGroup group) {
    if (step_.groups.empty() || !(step_.groups.back().settings == group.settings)) {
      step_.groups.push_back({.settings = group.settings, .updates = {}});
    }
    std::vector<ReadUpdate>& updates = step_.groups.back().updates;
    for (const ReadUpdate& update : group.updates) {
      updates_[tensor(update.parameter).id] = {step_.groups.size() - 1, updates.size()};
      updates.push_back(update);
    }
  }

  const ExecutionGraph& graph_;
  ReadStep step_;
  Pending pending_;
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

Result<ReadStep> read_optimizer_step(const ExecutionGraph& graph, std::int32_t label) {
  return StepReader(graph, label).read();
}

}  // namespace perfmodel
