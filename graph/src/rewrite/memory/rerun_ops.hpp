#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "builders/emit/graph_builder.hpp"
#include "rewrite/tensor_places.hpp"
#include "step/segment.hpp"
#include "step/step_view.hpp"

namespace perfmodel {

/// Whether the op draws its mask itself: `aten::native_dropout`. A CPU draws noise in ops of its
/// own: retarget() first.
bool draws_mask(const ExecutionGraph& graph, const Node& node);

struct RerunOptions {
  std::int32_t thread = -1;
  std::optional<std::int64_t> later_by;     ///< added to autograd's numbers; none: no numbers
  bool keep_masks = false;                  ///< dropout multiplies by the mask of the first time
  const std::vector<bool>* kept = nullptr;  ///< by node: does not run again
};

/// Writes ops of the forward pass a second time. Tensors that they make get new ids, tensors that
/// they only take stay, and TensorPlaces learns the new ones.
class RerunWriter {
 public:
  RerunWriter(const StepView& step, GraphBuilder& builder, TensorPlaces& places)
      : step_(step), graph_(step.graph()), builder_(builder), places_(places) {}

  /// The ops take `by` instead of `input`.
  void replace_input(const Tensor& input, const Tensor& by);
  /// Writes under the open node of the thread.
  void write(std::int32_t tree, const RerunOptions& options);

 private:
  struct NewIds {
    std::unordered_map<std::int32_t, std::int64_t> ids;  // by value
    std::vector<std::int32_t> taken;                     // values that the last node takes
  };
  void open(std::int32_t node, const RerunOptions& options, bool keeps_mask);
  void rename(std::int32_t node, const Node& copy, bool keeps_mask);
  void rename(std::int64_t& id, std::int32_t value, NewIds& known, bool is_output);

  const StepView& step_;
  const ExecutionGraph& graph_;
  GraphBuilder& builder_;
  TensorPlaces& places_;
  NewIds tensors_, storages_;
};

/// Ops of the forward pass that a backward function runs once more before it reads their results.
struct Rerun {
  Trees nodes;
  std::int32_t function = -1;  ///< into BackwardPass::functions
};

/// The region around such ops. Nothing records one; rewrites that must come first find it.
inline constexpr std::string_view kRecomputeRegion = "CheckpointFunctionRecompute";

/// Writes them, without autograd's numbers, in a region inside of the function. This function and
/// all later ones then read the new tensors. Dropout reuses the mask of the forward pass.
ExecutionGraph write_reruns(const StepView& step, const std::vector<Rerun>& reruns);

}  // namespace perfmodel
