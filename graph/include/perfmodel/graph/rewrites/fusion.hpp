#pragma once

#include <cstdint>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Runs neighbouring pointwise ops as one kernel, as torch.compile does (Ansel et al., PyTorch 2,
/// ASPLOS 2024) and as Daydream does for optimizers (Zhu et al., USENIX ATC 2020).
///
/// The scheduler of rewrite_compiled() groups the ops of each *stretch*: ops on one thread and
/// under one label, of which each launches one pointwise kernel (of the op catalogue, casts on one
/// device, fills) or nothing (views, allocations). Each group of two or more becomes one op at the
/// place of its first, written like a kernel of Inductor: kernel_backend "triton", name
/// "triton_poi_fused_mul_tanh_0" with the ops in their order and a number per distinct kernel. Its
/// inputs are the tensors that it reads from outside, then the number of elements; its outputs are
/// tensors that are updated in place, tensors that any later node reads (saved for the backward
/// pass or not), and results that nothing reads. Everything else never reaches memory, and its
/// views are gone.
///
/// Any other op ends a stretch, and so do a time that was given to an op by hand, memory that is
/// seen as another tensor to which no view leads, and an op that could not run at the place of its
/// group: something that stays in between makes what it reads, or reads what it overwrites.
///
/// In the backward pass a stretch goes on in the next functions of the engine if all their ops
/// belong to it; functions without any op left are removed. A kernel takes the last of its ops'
/// numbers; other ops keep theirs, so a backward function whose forward op is part of a kernel has
/// no partner.
///
/// A graph without such groups comes back as it is. Streams other than a thread's own are not known
/// to a graph.
Result<ExecutionGraph> rewrite_elementwise_fusion(const ExecutionGraph& graph);

/// The same as torch.jit.script does it in Megatron-LM ("torchscript_fused_add_native_dropout_0"):
/// its dropout uses all four numbers that Philox draws at a time.
Result<ExecutionGraph> rewrite_torchscript_fusion(const ExecutionGraph& graph);

/// How torch.compile compiles; reduce-overhead: with CUDA graphs; max-autotune: with these and
/// products that take pointwise ops into their kernels.
enum class CompileMode : std::uint8_t { kDefault, kReduceOverhead, kMaxAutotune };
/// How much is compiled: the model alone, its loss as well, or also the optimizer.
enum class CompileExtent : std::uint8_t { kModel, kLoss, kStep };

struct CompileRewrite {
  CompileMode mode = CompileMode::kDefault;
  CompileExtent extent = CompileExtent::kLoss;
};

/// Compiles the forward pass and its backward pass like torch.compile (Ansel et al., PyTorch 2,
/// ASPLOS 2024).
///
/// The forward pass becomes regions that end where TorchDynamo breaks the graph, each with one
/// backward function: "Torch-Compiled Region: 0/0" > CompiledFunction and CompiledFunctionBackward.
/// Inside are library calls (products, convolutions, attention, sorts) and Triton kernels, which
/// compute everything else: norms, softmax, losses, activations, dropout, casts, copies, lookups
/// and sums, fused as Inductor's scheduler does it; with kMaxAutotune pointwise loops that read a
/// large product run in its kernel, a Triton template. Views are gone. Values for the backward pass
/// are kept or computed again as AOTAutograd's partitioner chooses. The accumulation of gradients
/// and collectives stay as they are, and so does the optimizer, unless the whole step is compiled
/// (rewrite_compiled_optimizer()).
///
/// Errors: a program that is compiled already, checkpoints, activations on the host, no GPU.
Result<ExecutionGraph> rewrite_compiled(const ExecutionGraph& graph,
                                        const CompileRewrite& rewrite = {});

/// Runs pointwise ops in the kernel of the op before or after them, as Hidet fuses after scheduling
/// (Ding et al., ASPLOS 2023).
///
/// An *anchor* is an op that is not injective and launches one kernel: products, convolutions,
/// norms, softmax, reductions, pooling, lookups, gathers. Its *epilogues*: if a single pointwise op
/// reads its result (of the same size and type), and the op's other inputs were there before the
/// anchor, the op runs in the anchor's kernel; and so on. Its *prologues*: a pointwise op that
/// makes an operand (of its first input's size and type) which the anchor alone reads, from inputs
/// that do not change in between. Epilogues come first. Never: collectives, copies, attention,
/// recurrent and fused ops, gradients, ops of which a tree launches several kernels, ops whose time
/// was given by hand, another thread's.
///
/// The anchor keeps its name and writes the last result itself; its node has kernel_backend
/// "post_scheduling:READ:WRITTEN:_fused_gelu_add": it reads and writes so many tensors more, listed
/// after its own arguments, for these ops. Results in between never reach memory. A tensor saved
/// for the backward pass has a second reader, so training graphs fuse less than inference. A
/// pointwise op that is gone has no partner in the backward pass.
///
/// Chains of pointwise ops that are left become kernels as `rewrite_elementwise_fusion` makes them.
Result<ExecutionGraph> rewrite_post_scheduling_fusion(const ExecutionGraph& graph);

/// Runs norms that are written in single ops as one kernel forward and one backward, like
/// nn.LayerNorm and the nn.RMSNorm of newer PyTorch 2, Apex and Liger.
///
/// RMS norms (x / sqrt(mean(x^2) + eps), as Llama and T5 of Hugging Face and aten::rms_norm of
/// older PyTorch 2 write them) become aten::_fused_rms_norm, layer norms (x less its mean, over its
/// deviation by n) aten::native_layer_norm; casts on the way, weight and bias are part of them.
/// Only x and one or two numbers per row are kept for the backward pass.
///
/// Errors: no such norm, tensors on a CPU, checkpoints. Norms of which something else reads an
/// intermediate result stay, with a warning of the graph.
Result<ExecutionGraph> rewrite_fused_norms(const ExecutionGraph& graph);

/// Which part of a training step becomes the loss of Liger Kernel (Hsu et al., arXiv 2410.10989).
enum class LossFusion {
  kCrossEntropy,  ///< LigerCrossEntropyLoss: the softmax and its gradient, in one kernel
  kLinear         ///< LigerFusedLinearCrossEntropyLoss: with the layer that makes the logits
};

/// Replaces the cross-entropy by Liger's.
///
/// aten::cross_entropy_loss, or log_softmax and nll_loss, over [rows, classes] becomes one kernel,
/// which puts the gradient of the logits in their place in the forward pass; no softmax is kept.
/// The fused linear loss takes views, casts and the linear layer in front of it as well and goes
/// through chunks of rows: the whole logits never exist, the gradients of the layer's input and
/// weight are there when the forward pass ends. The backward pass multiplies them by the gradient
/// of the loss unless that is one, for which the host waits, as it does for the number of targets.
///
/// Errors: no such loss (the error names the op in its way), tensors on a CPU, checkpoints.
/// Other losses stay, with a warning of the graph.
Result<ExecutionGraph> rewrite_fused_loss(const ExecutionGraph& graph, LossFusion fusion);

/// Which kernel computes scaled dot product attention.
enum class AttentionBackend { kFlash, kEfficient, kCudnn, kMath };

/// Runs attention in this kernel, as F.scaled_dot_product_attention calls it (Dao et al.,
/// FlashAttention, NeurIPS 2022; Rabe and Staats, arXiv 2112.05682; cuDNN's).
///
/// Attention in ops of its own (the product of queries and keys, scales, masks, casts, a softmax,
/// dropout, the product with the values) and calls of other kernels become
/// aten::scaled_dot_product_attention with the op of the kernel, forward and backward, as PyTorch
/// 2.4 records it. Scores and weights are not kept. A mask that is made of a triangle of positions,
/// or a square buffer for all samples, is taken as causal; what only makes masks or numbers for the
/// ops that are gone goes as well. Copies after the attention go where its results are laid out as
/// the copy would: results and gradients are [B, S, H, D] in memory.
///
/// Flash and cuDNN's kernels read no padding: masks of keys are left out, with a warning of the
/// graph, as in a batch without padding.
///
/// Errors: no attention (the error names the op that broke the nearest one), attention on a CPU, in
/// types or widths or with masks that the kernel does not have, checkpoints. Attention that the
/// kernel cannot take stays where other attention is rewritten, with a warning of the graph.
Result<ExecutionGraph> rewrite_attention(const ExecutionGraph& graph, AttentionBackend kernel);

/// How states and gates of layers lie in memory: a sample's numbers side by side, so that products
/// have the batch as m, or (EcoRNN) a number's samples, so that the gates are m. The latter
/// transposes the sequence before the layers, their result after them, and both gradients.
enum class RecurrentLayout { kBatchMajor, kHiddenMajor };

/// Gives each step of a recurrent layer one pointwise kernel forward and one backward, as cuDNN's
/// and EcoRNN's cells have them (Zheng et al., arXiv 1805.08899).
///
/// Cells of LSTM, GRU and plain layers are recognised among single ops: gates that are pieces of
/// one tensor (of two, for a GRU), activations, products, sums, in any order of operands and in
/// place or not. Their ops become `aten::_thnn_fused_lstm_cell` or `aten::_thnn_fused_gru_cell`,
/// their backward functions one call of its gradient; plain cells, which no library fuses, one
/// generated kernel forward. Only the gates and the state are kept for the backward pass.
///
/// Layers whose inputs are there before the first step (a sequence, or the layer below) run one
/// after the other: one product of the inputs of all steps, one per step of the state; in the
/// backward pass one product per step and one per weight over all steps. Products of other cells
/// stay one per step, with a warning of the graph.
///
/// Errors: no such cell (the error names the op that broke the nearest one; layer norms inside do),
/// cells that are fused or a library's already, cells on a CPU; in the hidden-major layout no such
/// layer. If some cells are recognised, others stay, with a warning of the graph.
Result<ExecutionGraph> rewrite_recurrent_cells(
    const ExecutionGraph& graph, RecurrentLayout layout = RecurrentLayout::kBatchMajor);

/// How a library runs all steps of such layers: in a call of cuDNN, layer after layer, or in one
/// whose layers run side by side, each on streams of its own (EcoRNN's wavefront).
enum class RecurrentCall { kLibrary, kWavefront };

/// Makes the layers of such cells one call of a library. Steps that share their weights are a
/// layer, layers of one size on top of each other one call, `aten::_cudnn_rnn` or
/// `recurrent::wavefront` with its arguments: inputs of all steps are one product per layer, and so
/// are the gradients of the weights. Dropout between layers goes into the call, what takes the
/// sequence apart and joins the results goes.
///
/// Errors: as rewrite_recurrent_cells(); every layer has inputs that are not there before the first
/// step (attention that feeds a decoder), states that something else reads, or one step. If only
/// some layers are like this, they stay, with a warning of the graph.
Result<ExecutionGraph> rewrite_recurrent_layers(const ExecutionGraph& graph, RecurrentCall call);

/// The graph as it is, if it holds such cells in single ops; the error of rewrite_recurrent_cells()
/// where it does not.
Result<ExecutionGraph> check_unfused_cells(const ExecutionGraph& graph);

struct TableFusionRewrite {
  /// The optimizer that the lookup's backward pass runs on the tables: SGD with the rate of the
  /// step that did it before (0.01 without one), or row-wise Adagrad with FBGEMM's default numbers.
  enum class Optimizer { kSgd, kRowwiseAdagrad } optimizer = Optimizer::kSgd;
};

/// Many nn.EmbeddingBag become one FBGEMM lookup (SplitTableBatchedEmbeddingBags), whose backward
/// pass updates the tables.
///
/// The lookup takes the place of the last bag. Indices and offsets that come from outside of the
/// step (copied from the host, or on the GPU before) are taken as laid out for the lookup: one
/// tensor and one copy each. aten::cat joins lists that the step computes; their offsets are
/// shifted by the number of indices of the tables before them. The cat of the vectors gets one
/// input in place of many, its backward function cuts one gradient. Sparse gradients are gone:
/// their accumulation, zeroing and updates; the optimizer walks what is left as this PyTorch does
/// by default. Autograd's numbers close up.
///
/// Fails unless each step has at least two bags of one batch on one GPU that sum, have sparse
/// gradients, float32 weights of their own, one offset per bag, neither padding nor weights per
/// sample; whose vectors go side by side into one aten::cat along the last dimension and nowhere
/// else; and, where there is an optimizer step, that updates every table by plain SGD of one rate.
/// Nothing else may read tables or their gradients.
Result<ExecutionGraph> rewrite_table_fusion(const ExecutionGraph& graph,
                                            const TableFusionRewrite& rewrite = {});

}  // namespace perfmodel
