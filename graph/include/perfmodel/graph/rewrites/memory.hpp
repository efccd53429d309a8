#pragma once

#include <optional>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// The first so many layers, counted as by CheckpointOptions; without a number: everywhere, outside
/// of layers too.
struct FirstLayers {
  std::optional<int> count;
};

/// Activations that keep less for the backward pass, one by one.
struct InPlaceOptions {
  std::optional<FirstLayers> gelu, layer_norm;
};

/// GELU and layer norm as Tempo writes them (Andoorveedu et al., NeurIPS 2022, section 3), which
/// can overwrite their input:
///
/// - `aten::gelu` becomes `tempo::gelu`, which makes a mask of one byte per element beside its
///   output: on which side of GELU's minimum the input lay. `aten::gelu_backward` becomes
///   `tempo::gelu_backward`, which reads gradient, output and mask and takes the derivative from
///   polynomials of the output;
/// - `aten::native_layer_norm` becomes `tempo::layer_norm` without the mean;
///   `tempo::layer_norm_backward` gets the normalised input from output, weight and bias and reads
///   the reciprocal deviations as before.
///
/// What is not read any more is free when the forward op is done, unless somebody else reads it.
/// Autograd's functions keep their names and numbers, an `aten::layer_norm` around the op its name.
///
/// Preconditions (kImpossible): a backward pass, of one step; no such ops in checkpoints; at least
/// one with its backward function, of each kind that is asked for; as many layers as are asked for.
Result<ExecutionGraph> rewrite_in_place(const ExecutionGraph& graph, const InPlaceOptions& options);

/// What the backward pass computes again instead of keeping it.
struct RecomputeOptions {
  enum class What {
    kNone,       ///< the graph as it is
    kFull,       ///< every repeated layer: rewrite_checkpointing()
    kSelective,  ///< scores, softmax, dropout and the product with V of every attention
    kDropout,    ///< the dropped-out attention matrix, from softmax and mask
    kScoring,    ///< tanh(query + key) of recurrent decoders
  } what = What::kNone;

  /// Full, selective and dropout: in so many layers; scoring: in so many steps of the decoder. The
  /// first ones; without a number: all.
  FirstLayers layers;
};

/// - Full, selective: torch.utils.checkpoint around each layer, or around each attention that is
///   found by its ops: two batched products with a softmax between, from the first to the second
///   (Korthikanti et al. 2022, section 5). An attention that cannot be a checkpoint stays as it is.
/// - Dropout: the function of the product with V multiplies the softmax by the kept mask once more
///   (`aten::_masked_scale`) before it reads the result (Andoorveedu et al., NeurIPS 2022).
///   Softmax, dropout and product keep functions of their own; Tempo writes them as one.
/// - Scoring: the first function that reads a decoder step's tanh(query + key) (layer-normalised or
///   not) runs sum, norm and tanh again (Zheng et al., ISCA 2020: Echo).
///
/// Dropout and scoring stand in a region `CheckpointFunctionRecompute`, without numbers of
/// autograd's: no program records one.
///
/// Preconditions (kImpossible): those of rewrite_checkpointing(); an attention in ops of its own (a
/// fused kernel keeps no scores), with dropout for kDropout; a scoring for kScoring.
Result<ExecutionGraph> rewrite_recomputation(const ExecutionGraph& graph,
                                             const RecomputeOptions& options);

}  // namespace perfmodel
