#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "step_view.hpp"

namespace perfmodel {

/// Sibling nodes in order, each with all nodes below it.
using Trees = std::vector<std::int32_t>;

/// The gradient of one input of a segment: all that the segment's functions send to one function
/// outside, in the order in which it is summed. At least one.
struct InputGradient {
  std::vector<GradientEdge> edges;
  std::int32_t sum_before = -1;  ///< adds the first one to gradients from elsewhere; -1: none
};

/// A stretch of the forward pass that gives one tensor with a gradient, and its backward pass.
struct Segment {
  Trees trees;
  std::int32_t begin = 0, end = 0;       ///< nodes
  std::vector<std::uint32_t> inputs;     ///< tensors with a gradient that come in, at their use
  std::uint32_t output = 0;              ///< the one that goes out, at its use
  std::int64_t first = -1, behind = -1;  ///< half-open range of its sequence numbers
  std::int32_t functions_begin = 0;      ///< into BackwardPass::functions: the segment's own
  std::int32_t functions_end = 0;        ///< and of its parameters' gradients
  std::vector<InputGradient> gradients;  ///< ordered by the function that sends the last part

  bool has_sequence(std::int64_t number) const { return number >= first && number < behind; }
};

/// "the segment that begins with aten::linear (node 17)"
std::string describe(const ExecutionGraph& graph, const Segment& segment);

/// Reads segments of a step. Errors tell why a stretch is none: no gradient inside, not one tensor
/// that leaves it, an input that it writes into, parameters that others share, backward functions
/// that did not run one after the other.
class SegmentReader {
 public:
  explicit SegmentReader(const StepView& step);

  Result<Segment> read(Trees trees) const;

 private:
  struct Use {
    std::int32_t node = 0;
    std::uint32_t tensor = 0;
  };

  template <class Visit>
  void for_each_produced(std::int32_t node, Visit&& visit) const;
  std::int64_t sequence_behind(const Segment& segment, std::int32_t thread) const;
  Result<std::vector<std::int64_t>> read_inputs(Segment& segment) const;
  std::int32_t writes_input(const Segment& segment) const;
  Result<void> read_output(Segment& segment) const;
  Result<void> read_functions(Segment& segment) const;
  std::int32_t shared_parameter(const Segment& segment, std::int32_t function) const;
  Result<void> read_gradients(Segment& segment, const std::vector<std::int64_t>& makers) const;

  const ExecutionGraph& graph_;
  const BackwardPass& pass_;
  std::int32_t forward_end_ = 0;                    // node
  std::map<std::int64_t, std::int32_t> functions_;  // by autograd's number
  std::map<std::int64_t, std::vector<Use>> uses_;   // by number of the op that made the tensor
  std::vector<std::vector<std::int32_t>> takers_;   // by function: who takes its gradients
};

}  // namespace perfmodel
