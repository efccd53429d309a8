#pragma once

#include <cstdint>
#include <optional>
#include <string>

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
    kOp,         ///< every repeated layer but results of every second product and of attention
    kDropout,    ///< the dropped-out attention matrix, from softmax and mask
    kScoring,    ///< tanh(query + key) of recurrent decoders
  } what = What::kNone;

  /// Full, op, selective and dropout: in so many layers; scoring: in so many steps of the decoder.
  /// The first ones; without a number: all.
  FirstLayers layers;
};

/// - Op: as full, with CheckpointOptions::keep_products.
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

/// Which activations leave the GPU, and how many of them at once.
struct OffloadOptions {
  std::int64_t least_bytes = std::int64_t{1} << 20;  ///< of a storage; smaller ones stay
  /// That are on their way to the host or back at most, or twice the largest storage that leaves if
  /// that is more. The last ones of the forward pass stay, up to as many.
  std::int64_t bytes_on_their_way = std::int64_t{256} << 20;
};

/// Activations go to pinned host memory when the forward pass has used them last, and return before
/// the backward pass reads them, in copies on a stream of their own:
///
/// - `offload::to_host` behind the last op that uses a storage; it begins when that op has run;
/// - `offload::release` where its memory is needed: the main stream waits for the copy;
/// - `offload::to_device` in front of a function, early enough that as many bytes are on their way
///   as may be; it begins when all work in front of that function has run, and whoever reads what
///   came back waits for it.
///
/// As torchtune's OffloadActivations with streams and Transformer Engine's CPU offloading do, which
/// count tensors or layers instead of bytes. The copies take the rates of PCIe; where they cannot
/// keep up, the step takes longer.
///
/// Preconditions (kImpossible): a backward pass, of one step; activations of that size, more than
/// may be on their way; none that are offloaded already.
Result<ExecutionGraph> rewrite_offload(const ExecutionGraph& graph, const OffloadOptions& options);

/// Gradient accumulation, as PyTorch programs write it: `passes` times a forward and a backward
/// pass of (loss / passes), each with a batch as large as the graph's, and one step of the
/// optimizer. The samples of the step are `passes` times as many.
///
/// Every pass does what the given one does, its copies of the batch included. From the second one
/// on AccumulateGrad adds the gradient to the one that is kept (`aten::add_`) and lets it go, and
/// no zero_grad is called. What a pass makes is its own; a gradient that was kept lives until the
/// optimizer has read it. Optimizers that run within the backward pass (batched tables) run in
/// each. With data-parallel behind it the last pass alone reduces gradients
/// (DistributedDataParallel.no_sync around the others). One pass: the graph as it is.
///
/// Preconditions (kImpossible): AccumulateGrad for dense gradients, one backward pass per step, in
/// front of the optimizer; no collectives.
Result<ExecutionGraph> rewrite_accumulation(const ExecutionGraph& graph, std::int64_t passes);

/// Backward passes that add to one gradient in the first step of a graph; 1 without gradients.
std::int64_t accumulated_passes(const ExecutionGraph& graph);

/// Samples of one step: the batch of a pass (batch_size(), whose errors these are) times
/// accumulated_passes().
Result<std::int64_t> samples_per_step(const ExecutionGraph& graph);

struct HashedWeightOptions {
  std::string pattern;       ///< of ops or labels; the weights of all layers at or below them
  double compression = 100;  ///< elements of a weight over those of its array, at least 1
  enum class Scheme {
    kRoast,      ///< tiles of 64 x 32 (outputs x inputs), chunks of 32 columns of tables
    kHashedNet,  ///< every element for itself
    kRobe,       ///< tables alone, chunks of 32 columns
  } scheme = Scheme::kRoast;
};

/// Weights that are looked up by a hash in a smaller array instead of being stored: HashedNet (Chen
/// et al., ICML 2015), ROBE (Desai et al., MLSys 2022), ROAST (Desai et al., ICML 2023).
///
/// Each weight matrix [n, k] of a product or a table becomes an array of ceil(n k / compression)
/// elements of its own, with the gradient and the state of the optimizer. Products with it, forward
/// and for the gradient of the input, become `hashed::mm` and `hashed::addmm`; products whose
/// result is its gradient `hashed::weight_gradient`, which adds to the array by atomics; lookups
/// and their gradients `hashed::embedding`, `hashed::embedding_bag` and
/// `hashed::embedding_gradient`. Optimizer steps are written anew. Tiles and chunks are halved
/// until the array holds more than one. What becomes of the quality is not asked.
///
/// Comes behind rewrites of sizes and precision, in front of data-parallel ones. Errors: a
/// compression below 1, no such layer on a GPU, arrays of 8 elements or fewer, sparse gradients,
/// tables that a lookup trains itself (FBGEMM), a weight that something else reads, collectives,
/// optimizer steps that are not known.
Result<ExecutionGraph> rewrite_hashed_weights(const ExecutionGraph& graph,
                                              const HashedWeightOptions& options);

}  // namespace perfmodel
