#include "expert_layers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "builders/emit/ops.hpp"

namespace perfmodel {
namespace {

std::int64_t width_of_expert(const ExpertsConfig& config, std::int64_t feed_forward) {
  return config.hidden > 0 ? config.hidden : feed_forward;
}

}  // namespace

ExpertLayer make_expert_layer(TrainingStep& step, const ExpertsConfig& config, std::int64_t width,
                              std::int64_t feed_forward, bool gated) {
  const std::int64_t inner = width_of_expert(config, feed_forward), count = config.experts;
  ExpertLayer layer;
  layer.router = make_linear(step, width, count, false);
  if (gated) layer.gate = step.parameter({count, inner, width});
  layer.up = step.parameter({count, inner, width});
  layer.down = step.parameter({count, width, inner});
  if (config.shared > 0) {
    const std::int64_t all = config.shared * inner;
    if (gated) layer.shared_gate = make_linear(step, width, all, false);
    layer.shared_up = make_linear(step, width, all, false);
    layer.shared_down = make_linear(step, all, width, false);
  }
  return layer;
}

ExpertsResult apply_experts(AutogradTape& tape, const ExpertsConfig& config,
                            const ExpertLayer& layer, TensorRef x,
                            const std::function<TensorRef(TensorRef)>& activation) {
  const Shape shape = tape.graph().shape(x);
  const TensorRef tokens = view(tape, x, {-1, shape.back()});
  const ExpertRouting routing =
      route_to_best(tape, linear(tape, tokens, layer.router), config.top_k);
  const TensorRef rows = rows_for_experts(tape, tokens, routing);
  const auto of_experts = [&](TensorRef from, TensorRef weights) {
    return grouped_linear(tape, from, weights, routing.ends);
  };
  TensorRef wide;
  if (layer.gate.exists()) {
    wide = activation(of_experts(rows, layer.gate));
    wide = mul(tape, wide, of_experts(rows, layer.up));
  } else {
    wide = activation(of_experts(rows, layer.up));
  }
  TensorRef sum = sum_of_experts(tape, tokens, of_experts(wide, layer.down), routing);
  if (layer.shared_up.weight.exists()) {
    if (layer.shared_gate.weight.exists()) {
      wide = activation(linear(tape, tokens, layer.shared_gate));
      wide = mul(tape, wide, linear(tape, tokens, layer.shared_up));
    } else {
      wide = activation(linear(tape, tokens, layer.shared_up));
    }
    sum = add(tape, sum, linear(tape, wide, layer.shared_down));
  }
  return {.out = view(tape, sum, shape),
          .balance_loss = config.balance_loss > 0 ? balance_loss(tape, routing) : TensorRef{}};
}

TensorRef with_balance_losses(AutogradTape& tape, const ExpertsConfig& config, TensorRef loss,
                              const std::vector<TensorRef>& of_layers) {
  for (TensorRef one : of_layers) loss = add(tape, loss, mul(tape, one, config.balance_loss));
  return loss;
}

Result<void> check_experts(const TransformerConfig& config, const ExpertsConfig& experts) {
  if (auto good = all_good({expect_at_least("experts", 0, experts.experts),
                            expect_at_least("expert-hidden", 0, experts.hidden),
                            expect_at_least("shared-experts", 0, experts.shared)});
      !good) {
    return good;
  }
  if (!(experts.balance_loss >= 0) || experts.balance_loss > 1e6) {
    return bad_config(
        fmt::format("balance-loss: expected a weight of 0 to 1e6, found {}", experts.balance_loss));
  }
  if (experts.experts == 0) {
    if (experts.hidden == 0 && experts.shared == 0 && experts.balance_loss == 0) return {};
    return bad_config(
        "experts: expected a number of them with their width, shared experts or balance loss, "
        "found 0");
  }
  if (experts.top_k < 1 || experts.top_k > experts.experts) {
    return bad_config(fmt::format("top-k: expected 1 to the {} experts, found {}", experts.experts,
                                  experts.top_k));
  }
  const PyTorch& pytorch = config.training.pytorch;
  if (!pytorch.on_gpu() || pytorch.before(2, 1)) {
    return bad_config(
        "experts: expected PyTorch 2 on a GPU (their products are one op there), found another");
  }
  const std::int64_t inner = width_of_expert(experts, config.feed_forward);
  return all_good(
      {expect_countable("weights of experts", {experts.experts, config.hidden, inner}),
       expect_countable("rows of experts", {config.batch, config.sequence, experts.top_k,
                                            std::max(inner, config.hidden)}),
       expect_countable("shared experts", {experts.shared, inner, config.hidden}),
       expect_countable("rows of shared experts",
                        {config.batch, config.sequence, experts.shared, inner}),
       expect_countable("chances of experts",
                        {config.batch, config.sequence, experts.top_k, experts.experts})});
}

}  // namespace perfmodel
