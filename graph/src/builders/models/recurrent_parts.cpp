#include "recurrent_parts.hpp"

#include <utility>

namespace perfmodel {
namespace {

// A view of `buffer` from `offset` on; `offset` moves to its end.
TensorRef next_part(GraphBuilder& graph, TensorRef buffer, std::int64_t& offset, Shape shape) {
  Shape strides = contiguous_strides(shape);
  const TensorRef part = graph.new_view(buffer, std::move(shape), std::move(strides), offset);
  offset += graph.numel(part);
  return part;
}

}  // namespace

RecurrentLayers make_recurrent_layers(TrainingStep& step, RecurrentLayers shape) {
  GraphBuilder& graph = step.graph();
  const std::int64_t rows = gate_count(shape.cell) * shape.hidden;
  std::int64_t elements = 0, matrices = 0;
  const auto width = [&](int layer) {
    return layer == 0 ? shape.input : shape.directions() * shape.hidden;
  };
  for (int layer = 0; layer < shape.layers; ++layer) {
    matrices += shape.directions() * rows * (width(layer) + shape.hidden);
    elements += shape.directions() * recurrent_parameters(shape.cell, width(layer), shape.hidden);
  }
  const bool on_gpu = graph.pytorch().on_gpu();
  if (on_gpu) shape.weight_buffer = graph.new_tensor(DType::kFloat32, {elements});
  std::int64_t matrix_offset = 0, bias_offset = matrices;
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (std::int64_t direction = 0; direction < shape.directions(); ++direction) {
      const auto parameter = [&](std::int64_t& offset, Shape sizes) {
        if (!on_gpu) return step.parameter(std::move(sizes));
        return step.adopt_parameter(
            next_part(graph, shape.weight_buffer, offset, std::move(sizes)));
      };
      CellWeights weights;
      weights.input = parameter(matrix_offset, {rows, width(layer)});
      weights.hidden = parameter(matrix_offset, {rows, shape.hidden});
      weights.input_bias = parameter(bias_offset, {rows});
      weights.hidden_bias = parameter(bias_offset, {rows});
      shape.weights.push_back(weights);
    }
  }
  return shape;
}

CellWeights make_cell(TrainingStep& step, RecurrentCell cell, std::int64_t input,
                      std::int64_t hidden) {
  const std::int64_t rows = gate_count(cell) * hidden;
  CellWeights weights;
  weights.input = step.parameter({rows, input});
  weights.hidden = step.parameter({rows, hidden});
  weights.input_bias = step.parameter({rows});
  weights.hidden_bias = step.parameter({rows});
  return weights;
}

CellState step_of(AutogradTape& tape, RecurrentForm form, RecurrentCell cell,
                  const CellWeights& weights, TensorRef x, const CellState& state) {
  return form == RecurrentForm::kUnfused ? unfused_cell(tape, cell, weights, x, state)
                                         : library_cell(tape, cell, weights, x, state);
}

}  // namespace perfmodel
