#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perfmodel/graph/detail/bucket_limits.hpp"
#include "perfmodel/graph/detail/training_options.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

struct PrecisionOptions {
  enum class Precision {
    kFp32,  ///< matrix products in fp32, PyTorch's default
    kTf32,  ///< torch.backends.cuda.matmul.allow_tf32: fp32 tensors, products in TF32
    kFp16,  ///< torch.autocast(dtype=torch.float16)
    kBf16,  ///< torch.autocast(dtype=torch.bfloat16)
    kFp8,   ///< bf16, with the products of linear layers in 8 bits (Transformer Engine)
    kFp4,   ///< the same in 4 bits: nvfp4, 16 numbers of a row share a scale
  } precision = Precision::kFp32;

  /// Numbers that share one scale, in 8 bits.
  enum class Scaling {
    kDelayed,   ///< a tensor; from the magnitudes that it had in earlier steps
    kCurrent,   ///< a tensor; from its own magnitude, which a kernel of its own finds first
    kToken,     ///< a row of the operand along which the product sums
    kBlock128,  ///< 128 numbers of such a row, 128 x 128 of weights (DeepSeek-V3)
    kMx,        ///< 32 numbers of such a row; scales are powers of two (mxfp8)
    kNv16,      ///< 16 numbers of such a row, in 4 bits
  } scaling = Scaling::kDelayed;

  /// The loss is scaled, gradients are unscaled and checked (torch.cuda.amp.GradScaler): fp16 only.
  bool grad_scaler = false;

  /// fp16 and bf16: instead of autocast, the model itself is in the half type (`model.half()`), and
  /// the optimizer changes fp32 copies of its weights, as in Apex's O2, DeepSpeed, Megatron-LM and
  /// ONNX Runtime.
  bool master_weights = false;
};

/// An fp32 graph as the same program would have been recorded in another precision.
///
/// fp32 and TF32 set ExecutionGraph::allow_tf32, TF32 also the switch of cuDNN's convolutions,
/// nothing else. Half types do what torch.autocast does around the forward pass (lists of ops:
/// PyTorch 2 on GPUs, PyTorch 1.13 on CPUs):
///
/// - an op of its lists appears twice: the outer node has no sequence number, and the casts of its
///   arguments (last argument first) come between the two; casts of parameters are kept for the
///   rest of the forward pass;
/// - later ops compute in the type of their inputs, with mixed inputs in fp32;
/// - each cast that autograd sees has its ToCopyBackward0; if a gradient has another type than its
///   tensor, the engine casts it after the function; gradients of parameters arrive in fp32;
/// - sequence numbers grow by the casts that came before.
///
/// With master weights there are no such casts. All fp32 tensors on the GPU become half ones, the
/// loss included; statistics of norms, log-sum-exps of attention and all tensors of a batch norm
/// except its input and result stay in fp32. Each optimizer step casts the gradients to fp32,
/// changes its own fp32 copies of the weights and copies these into the model. A loss scaler's
/// check for infinities is not written.
///
/// fp8 and fp4 first take an fp32 graph to bf16; a graph with products in half types keeps them.
/// Then, like Transformer Engine's recipes on Hopper:
///
/// - products of linear layers (mm, addmm and grouped products with a parameter), forward and
///   backward, become `aten::_scaled_mm` and `aten::_scaled_grouped_mm`, which write the half type;
/// - `transformer_engine::quantize` writes the narrow copies, one kernel per operand: each layer's
///   input and gradient, and each weight once per step, directly from its fp32 parameter instead of
///   autocast's half copy. One kernel writes the copies along rows and along columns that the
///   layer's products need, since these sum along rows of both operands;
/// - everything else stays: attention, norms, losses, embeddings, optimizers, gradients of biases,
/// and
///   products whose result becomes probabilities (the head, a router) or whose sizes are no
///   multiples of 16 (32 with mx and in 4 bits, 128 with blocks of 128).
///
/// Preconditions (kImpossible): tensors on a GPU, or bfloat16 on a CPU; no products in half types
/// yet (fp8 and fp4 take them); no checkpoints, no fused kernels; at least one op that autocast
/// changes. The GradScaler needs fp16 and a backward pass, master weights tensors on a GPU, dense
/// gradients and optimizer steps that read_optimizer_step() knows. A graph whose weights are in
/// that half type already, as `model.to(torch.bfloat16)` makes them, gets the fp32 copies alone.
Result<ExecutionGraph> rewrite_precision(const ExecutionGraph& graph,
                                         const PrecisionOptions& options);

/// The same program with images, their gradients and filters of convolutions in channels-last
/// order, as by `model.to(memory_format=torch.channels_last)` and a batch in that order. Ops,
/// sizes and types stay. A graph without a convolution is an error (kImpossible).
Result<ExecutionGraph> rewrite_channels_last(const ExecutionGraph& graph);

/// Changes of every optimizer step; empty fields leave it as it is.
struct OptimizerRewrite {
  /// Another kind starts with PyTorch's default numbers and state of its own.
  std::optional<TrainingOptions::Optimizer> optimizer;
  std::optional<TrainingOptions::Implementation> implementation;
};

/// Rewrites the ops of each `Optimizer.step#...` as PyTorch runs them on this device. Parameters,
/// gradients, state and numbers stay. A step that is already like that stays as it is.
///
/// Numbers that no op of the old step shows (momentum, eps and the decay of AdamW in loops) become
/// PyTorch's defaults. Fused steps do not show the number of steps so far, which becomes 4.
///
/// Errors: no optimizer step; ops in it that belong to no known optimizer; sparse gradients, unless
/// the step stays a loop of plain SGD; a step that PyTorch does not have (fused on a CPU, fused
/// Adagrad).
Result<ExecutionGraph> rewrite_optimizer(const ExecutionGraph& graph,
                                         const OptimizerRewrite& rewrite);

/// Gradients of parameters kept in `dtype` (fp32, bf16 or fp16), whatever type the backward pass
/// computes them in:
///
/// - wider: a buffer of `dtype` per parameter, there from step to step. AccumulateGrad adds to it
///   and lets the gradient go, zero_grad empties it (Megatron-LM's main_grad, nanotron's
///   accumulator);
/// - narrower: AccumulateGrad casts the gradient and keeps the cast.
///
/// Steps of the optimizer cast a gradient that is not of its parameter's type, as they do with the
/// fp32 copies of PrecisionOptions::master_weights. Gradients that are of this type already stay.
///
/// Fails (kImpossible) without an optimizer step that read_optimizer_step() knows; at gradients
/// that are sparse, on a CPU, or made by something else than AccumulateGrad (buckets); for a wider
/// type without a zero_grad.
Result<ExecutionGraph> rewrite_gradient_type(const ExecutionGraph& graph, DType dtype);

/// Which parts of the forward pass are computed again in the backward pass.
struct CheckpointOptions {
  /// Every region whose name contains this text is a segment; empty: repeated layers are.
  std::string label;

  /// Layers per segment; 0: the square root of the number of layers. Layers are runs of sibling ops
  /// of the forward pass that recur with the same names and shapes and hold a matrix product or a
  /// convolution. A layer begins where the one before gives it a single tensor. A first layer may
  /// do a few ops more.
  int every = 1;

  /// Only so many layers, from the first one on; without: all. Not of regions.
  std::optional<int> layers;

  /// Masks of dropout are kept from the first time, and the second time multiplies by them instead
  /// of drawing them again (`aten::_masked_scale`), as some libraries' layers do.
  bool keep_masks = false;

  /// Results of every second product with a weight (the first, third, ... of each segment) and of
  /// fused attention are kept from the first time, and these ops do not run again: torchtitan's
  /// selective checkpointing by op. Non-reentrant checkpoints do that; they are written here as
  /// reentrant ones.
  bool keep_products = false;
};

/// The graph as the program would have been recorded with torch.utils.checkpoint around these
/// segments (use_reentrant=True, the default of PyTorch 1.13 and of 2.x with a warning):
///
/// - forward: a CheckpointFunction node around the segment, one sequence number for all of it;
/// - backward: CheckpointFunctionBackward restores the random state (two copies of the GPU's),
///   detaches the segment's inputs, runs the segment again under new numbers and its backward
///   functions inside itself, with the inputs' gradients accumulated as leaves. Gradients from
///   several segments to one tensor are summed after each of them.
///
/// Source: torch/utils/checkpoint.py and torch/csrc/autograd/input_buffer.cpp, 1.13 and 2.x;
/// recordings of 1.13 on a CPU. Recomputed ops get numbers after the last one of the graph; PyTorch
/// counts per thread. Masks and the like count as captured, not as inputs.
///
/// Preconditions (kImpossible): one step with a backward pass; no checkpoints yet; at least one
/// segment. Each segment has one output with a gradient and at least one input that is not written
/// into; its backward functions ran one after the other; its parameters are its own. There are as
/// many layers as asked for, and dropout if masks are to be kept.
Result<ExecutionGraph> rewrite_checkpointing(const ExecutionGraph& graph,
                                             const CheckpointOptions& options);

/// PyTorch's DistributedDataParallel, one process per GPU.
struct DataParallelRewrite {
  std::int64_t world_size = 2, first_bucket_bytes = kFirstBucketBytes;
  std::int64_t bucket_cap_bytes = kBucketCapBytes;  ///< for all buckets but the first
  /// Larger gradients are reduced in even pieces of at most this size, like the gradients of a
  /// parameter that the program holds in pieces: the copy of one piece into its bucket overlaps the
  /// all-reduce of the one before. Not with views.
  std::optional<std::int64_t> split_bytes = {};
  /// Gradients are pieces of the buckets, so nothing is copied back after the all-reduces.
  bool gradient_as_bucket_view = false;
  /// Apex's delay_allreduce: after the backward pass the gradients of each type are put into one
  /// buffer, reduced and divided there, and copied back. No buckets, and nothing overlaps.
  bool delayed = false;
  std::int64_t first_collective = 1;  ///< number of the first collective of the process group
};

/// Adds to each step of a graph of one GPU what DistributedDataParallel does: the broadcast of
/// buffers before the model and the region `DistributedDataParallel.forward` around it; after each
/// AccumulateGrad the copy of the gradient into its bucket (see `gradient_buckets`) and the
/// all-reduce of a full bucket; the copies back at the end of the backward pass. The batch is one
/// GPU's.
///
/// Known buffers are the statistics of batch norms. The region ends before the first op whose name
/// contains a loss, or before the backward pass. An optimizer step shows which parameter a gradient
/// belongs to; without one, `copy_bucket_to_grad` names the gradient.
///
/// Errors: sizes below 1, a graph with collectives or without AccumulateGrad on a GPU, sparse
/// gradients (NCCL does not reduce them). `copies`, if given, gets the new position of each
/// of the graph's nodes.
Result<ExecutionGraph> rewrite_data_parallel(const ExecutionGraph& graph,
                                             const DataParallelRewrite& rewrite,
                                             std::vector<std::int32_t>* copies = nullptr);

/// Megatron's tensor parallelism (Shoeybi et al. 2019) of one rank of `ranks`.
struct TensorParallelOptions {
  std::int64_t ranks = 1;
  /// Norms, dropout and residuals work on 1/ranks of each sequence; an all-gather and a
  /// reduce-scatter replace each all-reduce (Korthikanti et al. 2022).
  bool sequence_parallel = false;
};

/// The graph of one rank: products of attention and feed-forward layers split by columns, then by
/// rows, heads and vocabulary (embedding, output layer, loss) split, with the collectives of the
/// forward and backward pass between them (`record_param_comms`, kinds and sizes as Megatron's).
/// With one rank the graph as it is. Errors: a graph in which no decoder layer is found, heads,
/// widths or vocabulary that do not divide, collectives that are there already.
Result<ExecutionGraph> make_tensor_parallel(const ExecutionGraph& graph,
                                            const TensorParallelOptions& options);

}  // namespace perfmodel
