#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "builders/emit/graph_builder.hpp"
#include "loop_graph.hpp"

namespace perfmodel {

/// The tensors that values of compiled regions are in the graph being made. Values that only the
/// compiler has get a new one each.
class CompiledTensors {
 public:
  explicit CompiledTensors(GraphBuilder& builder) : builder_(builder) {}

  TensorRef ref(const LoopValue& value) {
    if (value.tensor != LoopValue::kNoTensor) {
      return builder_.tensor_of_source(builder_.graph_being_made().tensors[value.tensor]);
    }
    const auto known = made_.find(&value);
    if (known != made_.end()) return known->second;
    const TensorRef made = builder_.new_tensor(value.dtype, value.device, Shape{value.numel});
    return made_.emplace(&value, made).first->second;
  }
  Argument argument(const LoopValue& value) {
    if (value.tensor == LoopValue::kNoTensor) return builder_.tensor_argument(ref(value));
    return {.kind = Argument::Kind::kTensor, .index = value.tensor};
  }
  std::vector<Argument> arguments(const LoopGraph& loops, const std::vector<std::int32_t>& values) {
    std::vector<Argument> made;
    for (const std::int32_t value : values) made.push_back(argument(loops.values[value]));
    return made;
  }

 private:
  GraphBuilder& builder_;
  std::unordered_map<const LoopValue*, TensorRef> made_;
};

}  // namespace perfmodel
