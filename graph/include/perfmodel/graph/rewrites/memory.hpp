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
/// - `aten::gelu` becomes `tempo::gelu`, which also writes a mask of one byte per element: the side
/// of
///   GELU's minimum on which the input is. `aten::gelu_backward` becomes
///   `tempo::gelu_backward`, which reads gradient, output and mask and takes the derivative from
///   polynomials of the output;
/// - `aten::native_layer_norm` becomes `tempo::layer_norm` without the mean;
///   `tempo::layer_norm_backward` gets the normalised input from output, weight and bias and reads
///   the reciprocal deviations as before.
///
/// A tensor that the backward op no longer reads is freed after the forward op, unless another op
/// reads it.
/// Autograd's functions keep their names and numbers, an `aten::layer_norm` around the op its name.
///
/// Preconditions (kImpossible): one step with a backward pass; no such ops in checkpoints; at least
/// one op of each requested kind with its backward function; as many layers as asked for.
Result<ExecutionGraph> rewrite_in_place(const ExecutionGraph& graph, const InPlaceOptions& options);

/// The activations that the backward pass recomputes instead of keeping them.
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
/// Dropout and scoring are in a region `CheckpointFunctionRecompute`, without autograd's numbers:
/// no program records one.
///
/// Preconditions (kImpossible): as for rewrite_checkpointing(); an attention in separate ops (a
/// fused kernel keeps no scores), with dropout for kDropout; a scoring for kScoring.
Result<ExecutionGraph> rewrite_recomputation(const ExecutionGraph& graph,
                                             const RecomputeOptions& options);

/// Which activations leave the GPU, and how many of them at once.
struct OffloadOptions {
  std::int64_t least_bytes = std::int64_t{1} << 20;  ///< smallest storage that leaves
  /// Most bytes on their way to the host or back; twice the largest storage that leaves, if that is
  /// more. As many bytes of the last storages of the forward pass stay.
  std::int64_t bytes_on_their_way = std::int64_t{256} << 20;
};

/// Activations go to pinned host memory when the forward pass has used them last, and return before
/// the backward pass reads them, in copies on a stream of their own:
///
/// - `offload::to_host` after the last op that uses a storage; it begins when that op has run;
/// - `offload::release` when its memory is needed: the main stream waits for the copy;
/// - `offload::to_device` before a function, as early as the bytes on their way allow; it begins
/// when
///   all work before that function has run, and the reader of the tensor waits for it.
///
/// torchtune's OffloadActivations with streams and Transformer Engine's CPU offloading work like
/// this, but count tensors or layers instead of bytes. The copies run at the rate of PCIe; if they
/// cannot keep up, the step takes longer.
///
/// Preconditions (kImpossible): one step with a backward pass; more activations of that size than
/// may be on their way; none offloaded yet.
Result<ExecutionGraph> rewrite_offload(const ExecutionGraph& graph, const OffloadOptions& options);

/// Gradient accumulation, as PyTorch programs write it: `passes` times a forward and a backward
/// pass of (loss / passes), each with a batch as large as the graph's, and one step of the
/// optimizer. The samples of the step are `passes` times as many.
///
/// Every pass repeats the given one, its copies of the batch included. From the second pass on,
/// AccumulateGrad adds the gradient to the kept one (`aten::add_`) and frees it, and no zero_grad
/// is called. Each pass has its own tensors; a kept gradient lives until the optimizer has read it.
/// Optimizers within the backward pass (batched tables) run in each pass. With data-parallel after
/// it, only the last pass reduces gradients (DistributedDataParallel.no_sync around the others).
/// One pass: the graph as it is.
///
/// Preconditions (kImpossible): AccumulateGrad for dense gradients, one backward pass per step,
/// before the optimizer; no collectives.
Result<ExecutionGraph> rewrite_accumulation(const ExecutionGraph& graph, std::int64_t passes);

/// Backward passes that add to one gradient in the first step of a graph; 1 without gradients.
std::int64_t accumulated_passes(const ExecutionGraph& graph);

/// Samples of one step: the batch of a pass (batch_size(), whose errors these are) times
/// accumulated_passes().
Result<std::int64_t> samples_per_step(const ExecutionGraph& graph);

struct HashedWeightOptions {
  std::string pattern;       ///< names ops or labels: all layers at or below them
  double compression = 100;  ///< elements of a weight per element of its array, at least 1
  enum class Scheme {
    kRoast,      ///< tiles of 64 x 32 (outputs x inputs), chunks of 32 columns of tables
    kHashedNet,  ///< every element for itself
    kRobe,       ///< tables alone, chunks of 32 columns
  } scheme = Scheme::kRoast;
};

/// Replaces stored weights by hashed lookups in a smaller array: HashedNet (Chen et al., ICML
/// 2015), ROBE (Desai et al., MLSys 2022), ROAST (Desai et al., ICML 2023).
///
/// Each weight matrix [n, k] of a product or a table becomes an array of ceil(n k / compression)
/// elements of its own, with the gradient and the state of the optimizer. Products with it, forward
/// and for the gradient of the input, become `hashed::mm` and `hashed::addmm`; products whose
/// result is its gradient `hashed::weight_gradient`, which adds to the array by atomics; lookups
/// and their gradients `hashed::embedding`, `hashed::embedding_bag` and
/// `hashed::embedding_gradient`. Optimizer steps are rewritten. Tiles and chunks are halved until
/// the array holds more than one. The quality of the model is out of scope.
///
/// Apply it after rewrites of sizes and precision, before data-parallel ones. Errors: a
/// compression below 1, no such layer on a GPU, arrays of 8 elements or fewer, sparse gradients,
/// tables that a lookup trains itself (FBGEMM), a weight that something else reads, collectives,
/// optimizer steps that are not known.
Result<ExecutionGraph> rewrite_hashed_weights(const ExecutionGraph& graph,
                                              const HashedWeightOptions& options);

}  // namespace perfmodel
