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
    const std::int64_t rows = value.columns > 0 ? value.numel / value.columns : 1;
    const Shape shape = rows > 1 ? Shape{rows, value.columns} : Shape{value.numel};
    const TensorRef made = builder_.new_tensor(value.dtype, value.device, shape);
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
  /// The tensors of a product as the call in `source` mentions them, or their padded copies.
  std::vector<Argument> operands(const ExecutionGraph& source, const LoopGraph& loops,
                                 const LoopOp& product) {
    std::vector<Argument> made;
    if (product.addend == LoopOp::Addend::kTaken) {
      made.push_back(argument(loops.values[product.reads[0].value]));
    }
    const bool drops = product.addend == LoopOp::Addend::kDropped;
    for (const Argument& input : source.inputs(product.node).subspan(drops ? 1 : 0)) {
      if (input.kind == Argument::Kind::kTensor) made.push_back(input);
    }
    for (std::size_t i = 0; product.is_padded && i < made.size(); ++i) {
      const LoopValue& read = loops.values[product.reads[i].value];
      if (read.columns > 0) made[i] = argument(read);
    }
    return made;
  }

 private:
  GraphBuilder& builder_;
  std::unordered_map<const LoopValue*, TensorRef> made_;
};

}  // namespace perfmodel
