#include "fused_loss.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/contains.hpp"
#include "builders/emit/memory.hpp"
#include "builders/emit/update.hpp"
#include "ops/catalogue.hpp"
#include "perfmodel/graph/rewrites/fusion.hpp"
#include "rewrite/change_tensors.hpp"
#include "step/dialect.hpp"
#include "step/losses.hpp"
#include "step/pattern.hpp"
#include "step/tensor_arguments.hpp"

namespace perfmodel {
namespace {

constexpr std::int64_t kIgnoredClass = -100;

// Ops that may come between a product and its loss: they change no number, except by casts.
bool keeps_numbers(std::string_view name) {
  static constexpr std::array<std::string_view, 9> kViews = {
      "aten::view",  "aten::_unsafe_view", "aten::reshape", "aten::flatten", "aten::contiguous",
      "aten::clone", "aten::slice",        "aten::narrow",  "aten::squeeze"};
  return contains(kViews, name) || is_conversion(name);
}

class LossFinder {
 public:
  explicit LossFinder(const StepView& step)
      : step_(step), graph_(step.graph()), flow_(step.forward()), matcher_(step) {}

  /// Also notes why other ops are no such loss.
  std::vector<UnfusedLoss> find(LossFusion fusion) {
    std::vector<UnfusedLoss> found;
    for (const std::int32_t op : flow_.ops()) {
      auto loss = loss_at(op);
      if (!loss) continue;
      if (fusion == LossFusion::kLinear && !add_layer(*loss)) continue;
      found.push_back(std::move(*loss));
    }
    std::vector<FusedGroup> groups;
    for (UnfusedLoss& loss : found) groups.push_back(std::move(loss.group));
    find_backward(step_, groups);
    for (std::size_t i = 0; i < found.size(); ++i) found[i].group = std::move(groups[i]);
    std::erase_if(found, [&](const UnfusedLoss& loss) {
      if (!loss.group.broken.empty()) left = loss.group.broken;
      return !loss.group.broken.empty();
    });
    for (UnfusedLoss& loss : found) loss.is_scaled = is_scaled(loss.group);
    return found;
  }

  std::string left;

 private:
  bool leave(std::int32_t op, std::string_view why) {
    left = fmt::format("{} (node {}){}", graph_.name(op), graph_.node(op).id, why);
    return false;
  }

  // aten::cross_entropy_loss, or the two ops that it is made of.
  std::optional<UnfusedLoss> loss_at(std::int32_t op) {
    const std::string_view name = graph_.name(op);
    const bool is_whole = name == "aten::cross_entropy_loss";
    if (!is_whole && name != "aten::nll_loss" && name != "aten::nll_loss_nd") return std::nullopt;
    const auto& read = flow_.inputs(op);
    if (read.size() < 2 || flow_.outputs(op).empty()) return std::nullopt;
    UnfusedLoss loss{.logits = read[0], .target = read[1]};
    loss.group = {.ops = {op}, .result = flow_.outputs(op).front()};
    if (!is_whole) {
      const std::int32_t softmax = read[0]->op;
      if (softmax < 0 || graph_.name(softmax) != "aten::log_softmax" ||
          flow_.inputs(softmax).empty()) {
        return std::nullopt;
      }
      loss.logits = flow_.inputs(softmax).front();
      loss.group.ops.insert(loss.group.ops.begin(), softmax);
    }
    return is_covered(op, loss) ? std::optional(loss) : std::nullopt;
  }

  bool is_covered(std::int32_t op, const UnfusedLoss& loss) {
    const Tensor &logits = graph_.tensors[loss.logits->tensor],
                 &target = graph_.tensors[loss.target->tensor];
    const auto inputs = graph_.inputs(op);
    if (!logits.on_gpu()) return leave(op, " on a CPU: --retarget comes first");
    if (logits.rank != 2) return leave(op, " over images of classes");
    if (is_floating_point(target.dtype)) return leave(op, " of probabilities of classes");
    if (inputs.size() > 2 && inputs[2].kind == Argument::Kind::kTensor &&
        !is_undefined(graph_.tensors[inputs[2].index])) {
      return leave(op, " with weights of classes");
    }
    const bool has_result = graph_.tensors[loss.group.result->tensor].numel == 1;
    return has_result || leave(op, " that gives a loss per sample");
  }

  // The layer, through views and casts, with all of them.
  bool add_layer(UnfusedLoss& loss) {
    const std::int32_t op = loss.group.ops.back();
    LogitsLayer layer;
    const Version* at = loss.logits;
    while (at->op >= 0 && keeps_numbers(graph_.name(at->op)) && !flow_.inputs(at->op).empty()) {
      loss.group.ops.push_back(at->op);
      const Version* from = flow_.inputs(at->op).front();
      const bool is_cut = graph_.tensors[from->tensor].numel != graph_.tensors[at->tensor].numel;
      if (is_cut && std::exchange(layer.slice, at->op))
        return leave(op, " of logits that are cut twice");
      at = from;
    }
    layer.logits = at;
    for (const Pattern& product : products_) {
      Match match;
      if (!matcher_.match(product, *at, match)) continue;
      layer.op = at->op;
      layer.input = match["x"];
      layer.weight = match["weight"];
      layer.bias = match["bias"];
      for (const std::int32_t part : match.ops) loss.group.ops.push_back(part);
      std::ranges::sort(loss.group.ops);
      if (layer.slice && !is_cut_by_tokens(layer))
        return leave(*layer.slice, " that cuts no tokens");
      if (!sizes_agree(layer, loss)) return leave(op, " whose sizes contradict its layer's");
      loss.layer = layer;
      return true;
    }
    return leave(op, at->op < 0 ? " whose logits come from outside"
                                : fmt::format(" of what {} (node {}) gives", graph_.name(at->op),
                                              graph_.node(at->op).id));
  }

  bool is_cut_by_tokens(const LogitsLayer& layer) const {
    const Tensor& logits = graph_.tensors[layer.logits->tensor];
    const Argument* axis =
        graph_.inputs(*layer.slice).size() > 1 ? &graph_.inputs(*layer.slice)[1] : nullptr;
    return logits.rank == 3 && graph_.name(*layer.slice) == "aten::slice" && axis &&
           axis->integer == 1;
  }

  // Input [..., K], weight [C, K], logits [..., C], one target for each row that is not cut off.
  bool sizes_agree(const LogitsLayer& layer, const UnfusedLoss& loss) const {
    const auto tensor = [&](const Version* version) -> const Tensor& {
      return graph_.tensors[version->tensor];
    };
    const auto input = graph_.shape(tensor(layer.input)),
               logits = graph_.shape(tensor(layer.logits));
    const auto weight = graph_.shape(tensor(layer.weight));
    if (input.empty() || weight.size() != 2 || logits.size() != input.size()) return false;
    return input.back() == weight[1] && logits.back() == weight[0] &&
           std::equal(input.begin(), input.end() - 1, logits.begin()) &&
           tensor(loss.logits).numel == tensor(loss.target).numel * weight[0];
  }

  bool is_scaled(const FusedGroup& group) const {
    if (group.functions.empty()) return false;
    const std::int32_t first = step_.backward().functions[group.functions.front()].evaluate;
    return std::ranges::none_of(losses_,
                                [&](const Loss& loss) { return loss.function.evaluate == first; });
  }

  const StepView& step_;
  const ExecutionGraph& graph_;
  const ForwardFlow& flow_;
  const PatternMatcher matcher_;
  const std::vector<Loss> losses_ = losses(step_);
  const Pattern transposed_ = one_of({"t", "transpose"}, {value("weight")});
  const std::vector<Pattern> products_ = {
      op("linear", {value("x"), value("weight")}),
      op("linear", {value("x"), value("weight"), value("bias")}),
      op("addmm", {value("bias"), value("x"), transposed_}),
      one_of({"mm", "matmul"}, {value("x"), transposed_})};
};

// Liger 0.4 and later, from memory. LigerCrossEntropyFunction puts the gradient of the logits in
// their place in the forward pass.
void replace_loss(GraphEdit& edit, const StepView& step, const UnfusedLoss& loss,
                  SharedStorages& shared) {
  GraphBuilder& builder = edit.builder();
  const auto tensor = [&](const Version* version) {
    return builder.tensor_of_source(version->tensor);
  };
  const auto forward = [&builder, &loss, tensor] {
    const TensorRef logits = tensor(loss.logits), target = tensor(loss.target);
    builder.begin_plain("LigerCrossEntropyFunction", {logits, target}, loss.group.sequence);
    const TensorRef losses = zeros(builder, DType::kFloat32, {builder.shape(logits)[0]});
    write_target_count(builder, target);
    write_cross_entropy(builder, logits, target, losses);
    const TensorRef result = tensor(loss.group.result);
    builder.leaf_op("aten::sum", {losses, kNone}, {result});
    builder.end_op({result});
  };
  const auto backward = [&builder, &loss, &shared, tensor](TensorRef gradient,
                                                           const std::vector<TensorRef>& parts) {
    const TensorRef logits = tensor(loss.logits);
    write_scaling(builder, loss, gradient, {logits});
    for (const TensorRef part : parts) hand_over(builder, logits, part, shared);
  };
  replace_group(edit, step, loss.group, forward, "LigerCrossEntropyFunctionBackward", backward);
}

}  // namespace

void write_target_count(GraphBuilder& builder, TensorRef target) {
  const TensorRef counts = builder.new_tensor(DType::kBool, builder.shape(target));
  builder.leaf_op("aten::ne.Scalar", {target, kIgnoredClass}, {counts});
  const TensorRef count = builder.new_tensor(DType::kInt64, {});
  builder.leaf_op("aten::sum", {counts, kNone}, {count});
  item(builder, count, 1);
}

void write_cross_entropy(GraphBuilder& builder, TensorRef logits, TensorRef target,
                         TensorRef losses) {
  builder.leaf_op("liger::cross_entropy", {logits, target, losses, kIgnoredClass},
                  {logits, losses});
}

void write_scaling(GraphBuilder& builder, const UnfusedLoss& loss, TensorRef gradient,
                   const std::vector<TensorRef>& made) {
  const TensorRef one = tensor_of_list(builder, builder.dtype(gradient), builder.device(), 1, -1);
  const TensorRef equal = builder.new_tensor(DType::kBool, {}), all = like(builder, equal);
  builder.leaf_op("aten::eq.Tensor", {gradient, one}, {equal});
  builder.leaf_op("aten::all", {equal}, {all});
  item(builder, all, !loss.is_scaled);
  if (!loss.is_scaled) return;
  for (const TensorRef tensor : made) {
    builder.leaf_op("liger::scale_gradient_", {tensor, gradient}, {tensor});
  }
}

void hand_over(GraphBuilder& builder, TensorRef made, TensorRef part, SharedStorages& shared) {
  builder.leaf_op("aten::view", {made, builder.shape(part)}, {part});
  shared.emplace_back(builder.mention_of(part).storage_id, builder.mention_of(made).storage_id);
}

Result<ExecutionGraph> rewrite_fused_loss(const ExecutionGraph& source, LossFusion fusion) {
  const StepView step(source);
  if (auto good = step.check("fuse-loss", {.no_checkpoints = true, .eager = true}); !good) {
    return Unexpected{good.error()};
  }
  LossFinder finder(step);
  const std::vector<UnfusedLoss> losses = finder.find(fusion);
  if (losses.empty()) {
    return fail(ErrorCode::kImpossible,
                fmt::format("fuse-loss: expected a cross-entropy over classes{}, found {}",
                            fusion == LossFusion::kLinear ? " of what a linear layer gives" : "",
                            finder.left.empty() ? "none" : finder.left));
  }
  GraphEdit edit(step.graph(), dialect_of(step.graph()));
  SharedStorages shared;
  for (const UnfusedLoss& loss : losses) {
    if (loss.layer) {
      replace_linear_loss(edit, step, loss, shared);
    } else {
      replace_loss(edit, step, loss, shared);
    }
  }
  ExecutionGraph made = edit.write();
  for (Tensor& tensor : made.tensors) {
    for (const auto& [own, other] : shared) {
      if (tensor.storage_id == own) tensor.storage_id = other;
    }
  }
  if (!finder.left.empty()) made.warnings.push_back("fuse-loss: found also " + finder.left);
  return made;
}

}  // namespace perfmodel
