#include <cmath>
#include <utility>

#include "foreach.hpp"
#include "optimizer_kinds.hpp"
#include "update.hpp"

namespace perfmodel {
namespace {

bool decoupled_decay(const OptimizerSettings& settings) {
  return settings.optimizer == TrainingOptions::Optimizer::kAdamW;
}

double step_size(const OptimizerSettings& settings) {
  return -settings.learning_rate / (1 - std::pow(settings.beta1, settings.steps));
}

double root_of_second_correction(const OptimizerSettings& settings) {
  return std::sqrt(1 - std::pow(settings.beta2, settings.steps));
}

// PyTorch 2 blends means with lerp, 1.13 with two ops.
void adam_loop(GraphBuilder& graph, const OptimizerSettings& settings,
               const std::vector<ParameterUpdate>& updates) {
  for (const ParameterUpdate& update : updates) {
    TensorRef gradient = update.gradient;
    add_number_(graph, update.step, 1);
    if (settings.weight_decay != 0) {
      if (decoupled_decay(settings)) {
        mul_number_(graph, update.parameter);
      } else {
        gradient = add_scaled(graph, gradient, update.parameter, settings.weight_decay);
      }
    }
    if (graph.pytorch().before(2, 0)) {
      mul_number_(graph, update.first);
      add_scaled_(graph, update.first, gradient, 1 - settings.beta1);
    } else {
      lerp_(graph, update.first, gradient, 1 - settings.beta1);
    }
    mul_number_(graph, update.second);
    addcmul_(graph, update.second, gradient, gradient, 1 - settings.beta2);
    item(graph, update.step, settings.steps);
    const TensorRef root = div_number(graph, sqrt(graph, update.second));
    add_number_(graph, root, settings.eps);
    addcdiv_(graph, update.parameter, update.first, root, step_size(settings));
  }
}

void adam_foreach(GraphBuilder& graph, const OptimizerSettings& settings,
                  const std::vector<ParameterUpdate>& updates) {
  const bool old = graph.pytorch().before(2, 0);
  const auto parameters = listed(updates, &ParameterUpdate::parameter);
  const auto means = listed(updates, &ParameterUpdate::first);
  const auto squares = listed(updates, &ParameterUpdate::second);
  const auto steps = listed(updates, &ParameterUpdate::step);
  auto gradients = listed(updates, &ParameterUpdate::gradient);
  foreach_count(graph, steps);
  if (settings.weight_decay != 0) {
    if (decoupled_decay(settings)) {
      foreach_mul_number_(graph, parameters, 1 - settings.learning_rate * settings.weight_decay);
    } else {
      gradients = foreach_decayed(graph, settings, parameters, gradients);
    }
  }
  if (old) {
    foreach_mul_number_(graph, means, settings.beta1);
    foreach_add_(graph, means, gradients, 1 - settings.beta1);
  } else {
    foreach_lerp_(graph, means, gradients, 1 - settings.beta1);
  }
  foreach_mul_number_(graph, squares, settings.beta2);
  foreach_addcmul_(graph, squares, gradients, gradients, 1 - settings.beta2);
  for (int correction = 0; correction < 2; ++correction) {
    for (TensorRef step : steps) item(graph, step, settings.steps);
  }
  TensorList roots = foreach_sqrt(graph, squares);
  foreach_div_numbers_(graph, roots, root_of_second_correction(settings));
  if (old) {
    roots = foreach_add_number(graph, roots, settings.eps);
  } else {
    foreach_add_number_(graph, roots, settings.eps);
  }
  foreach_addcdiv_numbers_(graph, parameters, means, roots, step_size(settings));
}

void adam_fused(GraphBuilder& graph, const OptimizerSettings& settings,
                const std::vector<ParameterUpdate>& updates) {
  const auto steps = listed(updates, &ParameterUpdate::step);
  foreach_add_number_(graph, steps, 1);
  graph.leaf_op(
      decoupled_decay(settings) ? "aten::_fused_adamw_" : "aten::_fused_adam_",
      {listed(updates, &ParameterUpdate::parameter), listed(updates, &ParameterUpdate::gradient),
       listed(updates, &ParameterUpdate::first), listed(updates, &ParameterUpdate::second),
       TensorList{}, steps, settings.learning_rate, settings.beta1, settings.beta2,
       settings.weight_decay, settings.eps, false, false, kNone, kNone},
      {});
}

// bitsandbytes calls one kernel per parameter. The maps from 8 bits to numbers are shared.
void adam_eight_bit(GraphBuilder& graph, const OptimizerSettings& settings,
                    const std::vector<ParameterUpdate>& updates) {
  constexpr std::int64_t kCodes = 256;
  const Device device = graph.device(updates.front().parameter);
  const TensorRef signed_map = graph.new_tensor(DType::kFloat32, device, {kCodes});
  const TensorRef unsigned_map = graph.new_tensor(DType::kFloat32, device, {kCodes});
  const auto steps = static_cast<std::int64_t>(settings.steps);
  for (const ParameterUpdate& update : updates) {
    if (graph.dtype(update.first) == DType::kUInt8) {
      graph.leaf_op("bitsandbytes::optimizer_update_8bit_blockwise",
                    {"adam", update.gradient, update.parameter, update.first, update.second,
                     settings.beta1, settings.beta2, 0.0, 0.0, settings.eps, steps,
                     settings.learning_rate, signed_map, unsigned_map, update.first_scale,
                     update.second_scale, settings.weight_decay, 1.0, false},
                    {});
    } else {
      graph.leaf_op("bitsandbytes::optimizer_update_32bit",
                    {"adam", update.gradient, update.parameter, update.first, update.second, kNone,
                     0.0, 0.0, settings.beta1, settings.beta2, 0.0, 0.0, settings.eps,
                     settings.weight_decay, steps, settings.learning_rate, 1.0, false},
                    {});
    }
  }
}

}  // namespace

void add_eight_bit_state(GraphBuilder& graph, std::vector<ParameterUpdate>& updates) {
  constexpr std::int64_t kLeast = 4096, kBlock = 256;  // bitsandbytes: min_8bit_size, blocksize
  for (ParameterUpdate& update : updates) {
    if (update.first.exists()) continue;
    const TensorRef of = update.parameter;
    const bool narrow = graph.numel(of) >= kLeast;
    const auto made = [&](DType dtype, Shape shape) {
      return graph.new_tensor(dtype, graph.device(of), std::move(shape));
    };
    const DType dtype = narrow ? DType::kUInt8 : DType::kFloat32;
    update.first = made(dtype, graph.shape(of));
    update.second = made(dtype, graph.shape(of));
    if (!narrow) continue;
    const std::int64_t blocks = (graph.numel(of) + kBlock - 1) / kBlock;
    update.first_scale = made(DType::kFloat32, {blocks});
    update.second_scale = made(DType::kFloat32, {blocks});
  }
}

void emit_adam(GraphBuilder& graph, const OptimizerSettings& settings,
               const std::vector<ParameterUpdate>& updates) {
  if (settings.implementation == TrainingOptions::Implementation::kLoop) {
    adam_loop(graph, settings, updates);
  } else if (settings.implementation == TrainingOptions::Implementation::kForeach) {
    adam_foreach(graph, settings, updates);
  } else if (settings.implementation == TrainingOptions::Implementation::kEightBit) {
    adam_eight_bit(graph, settings, updates);
  } else {
    adam_fused(graph, settings, updates);
  }
}

}  // namespace perfmodel
