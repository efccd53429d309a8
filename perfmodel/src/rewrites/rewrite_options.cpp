#include "rewrite_options.hpp"

#include "rewrite_texts.hpp"

namespace perfmodel {
namespace {

/// The rewrite that `kApply` makes with the options that `kRead` reads from a text.
template <auto kRead, auto kApply>
Result<Rewrite> read(const std::string& text) {
  PERFMODEL_TRY(options, kRead(text));
  return [options = *options](const ExecutionGraph& graph) { return kApply(graph, options); };
}

/// A rewrite without options.
template <auto kApply>
Result<Rewrite> plain(const std::string& /*text*/) {
  return kApply;
}

Result<ExecutionGraph> data_parallel(const ExecutionGraph& graph,
                                     const DataParallelRewrite& rewrite) {
  return rewrite_data_parallel(graph, rewrite);
}
Result<ExecutionGraph> offload(const ExecutionGraph& graph) { return rewrite_offload(graph, {}); }
Result<ExecutionGraph> same_graph(const ExecutionGraph& graph) { return graph; }

}  // namespace

const std::vector<RewriteOption>& rewrite_options() {
  static const std::vector<RewriteOption> options = {
      {.flag = "--batch",
       .value = "B|OLD=NEW[@ID:DIM+...]",
       .help = "Another number of samples per step. Where the inputs do not tell the present one: "
               "OLD names it, or @ the ids of the tensors of which dimension DIM is the batch",
       .parse = read<read_batch_size, set_batch_size>,
       .of_ops_alone = true},
      {.flag = "--sequence",
       .value = "S|OLD=NEW",
       .help = "Another number of tokens per sample",
       .parse = read<read_sequence_length, set_sequence_length>},
      {.flag = "--precision",
       .value = "fp32|tf32|bf16|fp16|fp16-scaled|bf16-o2|fp16-o2|fp8|...",
       .help = "Matrix products in TF32, or torch.autocast around the forward pass; scaled: with "
               "a GradScaler. o2: weights and activations in the half type, fp32 master weights in "
               "the optimizer. fp8, fp8-current, fp8-token, fp8-block, mxfp8, nvfp4: bf16 with the "
               "products of linear layers in 8 or 4 bits, by what shares a scale",
       .for_build = true,
       .parse = read<read_precision, rewrite_precision>},
      {.flag = "--channels-last",
       .help = "Store images and filters of convolutions channels-last (NHWC), like "
               "model.to(memory_format=torch.channels_last); strides of a recording already say so",
       .for_build = true,
       .parse = plain<rewrite_channels_last>,
       .of_ops_alone = true},
      {.flag = "--in-place",
       .value = "gelu[:N],layernorm[:N]",
       .help = "GELU and layer norm that keep output and mask, or output, instead of their input "
               "(Tempo); N: in the first N layers",
       .for_build = true,
       .parse = read<read_in_place, rewrite_in_place>},
      {.flag = "--recompute",
       .value = "none|full|op|selective|dropout|scoring[:N]",
       .help = "What the backward pass computes again: layers, layers without the results of every "
               "second matrix product and of attention (op), attention (selective or attention: "
               "from scores to the product with V), the dropped-out attention matrix alone, the "
               "scoring of recurrent decoders; N: in the first N layers (scoring: steps)",
       .for_build = true,
       .parse = read<read_recomputation, rewrite_recomputation>},
      {.flag = "--checkpoint",
       .value = "EVERY|LABEL[,masks]",
       .help = "torch.utils.checkpoint around every so many repeated layers (0: the square root of "
               "their number), or around regions whose name contains LABEL; masks: dropout masks "
               "are kept, not drawn again",
       .for_build = true,
       .parse = read<read_checkpointing, rewrite_checkpointing>},
      {.flag = "--offload-activations",
       .help = "Activations of 1 MiB and more go to pinned host memory after their last use in the "
               "forward pass and return before the backward pass reads them, in copies on a stream "
               "of their own",
       .for_build = true,
       .parse = plain<offload>},
      {.flag = "--grad-dtype",
       .value = "fp32|bf16|fp16",
       .help = "The type in which gradients of parameters are kept: a wider one in buffers that "
               "each gradient is added to, a narrower one by a cast",
       .for_build = true,
       .parse = read<read_gradient_type, rewrite_gradient_type>},
      {.flag = "--optimizer",
       .value = "KIND/HOW",
       .help = "Another optimizer (sgd, momentum, adagrad, adam, adamw), another way to walk the "
               "parameters (loop, foreach, fused, 8bit: state in 8 bits as bitsandbytes keeps it), "
               "or both: adam/fused",
       .parse = read<read_optimizer, rewrite_optimizer>},
      {.flag = "--accumulate",
       .value = "K",
       .help = "Gradient accumulation: K forward and backward passes, each with the batch of the "
               "graph, and one step of the optimizer; after it, --data-parallel reduces gradients "
               "in the last pass alone (no_sync)",
       .for_build = true,
       .parse = read<read_accumulation, rewrite_accumulation>},
      {.flag = "--data-parallel",
       .value = "N[,cap=MIB][,split=MIB][,views][,delayed]",
       .help =
           "What DistributedDataParallel on N GPUs adds: buckets (the first of 1 MiB, or "
           "first=MIB, then 25 MiB, or cap=MIB; split=MIB: larger gradients in pieces), "
           "all-reduces, copies unless gradients are views of the buckets, broadcasts of buffers; "
           "delayed: one all-reduce after the backward pass, as Apex's delay_allreduce",
       .for_build = true,
       .parse = read<read_data_parallel, data_parallel>},
      {.flag = "--tensor-parallel",
       .value = "N[,sequence]",
       .help = "One rank of N that share each layer (Megatron-LM): heads, feed-forward layers, "
               "vocabulary and loss are cut, all-reduces follow them; with ,sequence "
               "all-gathers and reduce-scatters, norms and residuals on 1/N of the tokens",
       .for_build = true,
       .parse = read<read_tensor_parallel, make_tensor_parallel>},
      {.flag = "--retarget",
       .value = "VENDOR[,INPUTS]",
       .help = "Turn a graph of a machine without a GPU into the one that a GPU of this vendor "
               "(nvidia, amd) would have given; inputs are pinned (default), pageable or on-device",
       .parse = read<read_retarget, retarget>},
      {.flag = "--fuse-tables",
       .value = "sgd|rowwise_adagrad",
       .help = "All nn.EmbeddingBag of a step become one FBGEMM lookup, which trains the tables in "
               "its backward pass",
       .for_build = true,
       .parse = read<read_table_fusion, rewrite_table_fusion>},
      {.flag = "--attention",
       .value = "flash|efficient|cudnn|math",
       .help =
           "Attention in ops of its own, or in another kernel, becomes one call of FlashAttention, "
           "the memory-efficient kernel or cuDNN's, or (math) ops of its own as PyTorch's "
           "scaled_dot_product_attention runs them; comes after --precision",
       .parse = read<read_attention, rewrite_attention>},
      {.flag = "--compile",
       .value = "default|reduce-overhead|max-autotune[,model|,step]",
       .help = "The forward pass with its loss and the backward pass as torch.compile makes them: "
               "Inductor's fused kernels between library calls, CUDA graphs (reduce-overhead, "
               "max-autotune); model: all but the loss, step: the optimizer too. Comes after "
               "rewrites of sizes and precision",
       .for_build = true,
       .parse = read<read_compile, rewrite_compiled>,
       .without_value = "default"},
      {.flag = "--fuse-elementwise",
       .help = "Neighbouring pointwise ops on a GPU run as one kernel each, as torch.compile makes "
               "them; comes after rewrites of sizes and precision",
       .for_build = true,
       .parse = plain<rewrite_elementwise_fusion>},
      {.flag = "--fuse",
       .value = "post-scheduling",
       .help = "Pointwise ops on a GPU run in the kernel of the product, convolution, norm or "
               "reduction next to them, chains that are left as one kernel each, as Hidet fuses; "
               "comes after rewrites of sizes and precision",
       .for_build = true,
       .parse = read_fusion},
      {.flag = "--fuse-loss",
       .value = "liger|linear",
       .help = "The cross-entropy of Liger Kernel, which puts the gradient in the place of the "
               "logits (liger), or the one that takes in the last linear layer and never holds all "
               "logits (linear); comes after rewrites of sizes and precision, before checkpoints",
       .for_build = true,
       .parse = read<read_loss_fusion, rewrite_fused_loss>},
      {.flag = "--fuse-norms",
       .help = "RMS and layer norms of single ops on a GPU run as one kernel forward and one "
               "backward, as nn.RMSNorm, Apex and Liger do; comes before checkpoints",
       .for_build = true,
       .parse = plain<rewrite_fused_norms>},
      {.flag = "--lstm",
       .value = "unfused|fused|fused-wavefront|library",
       .help =
           "Cells of LSTM, GRU and RNN layers in single ops (unfused) get one pointwise kernel "
           "forward and one backward, the inputs of all steps one product (fused); whole layers "
           "become calls of cuDNN (library) or run side by side on streams of their own "
           "(fused-wavefront)",
       .parse = read_recurrent,
       .details = {{"--lstm-layout", "batch-major|hidden-major",
                    "How --lstm fused lays out states and gates: with the batch as rows of the "
                    "products, or the gates (EcoRNN), which turns the sequence and the result"}}},
      {.flag = "--hash-weights",
       .value = "PATTERN",
       .help =
           "Weights of layers and tables at or below ops or labels of this name ('*' stands for "
           "any text) are looked up by a hash in a smaller array; comes after rewrites of sizes "
           "and precision",
       .for_build = true,
       .parse = read<read_hashed_weights, rewrite_hashed_weights>,
       .details = {{"--compression", "X",
                    "Elements of a hashed weight per element of its array (100)"},
                   {"--scheme", "roast|hashednet|robe",
                    "What --hash-weights looks up at a time: a tile (roast), an element "
                    "(hashednet), a chunk of a table's row, tables alone (robe)"}}},
      {.flag = "--cuda-graphs",
       .help = kCudaGraphsHelp,
       .parse = plain<same_graph>,
       .of_ops_alone = true,
       .launching = Launching::kCudaGraphs},
      {.flag = "--compiled",
       .help = kCompiledHelp,
       .parse = plain<same_graph>,
       .of_ops_alone = true,
       .launching = Launching::kCompiled},
      {.flag = "--index-skew",
       .value = "S",
       .help = "Indices of embedding tables follow Zipf's law with this exponent (0: uniform)",
       .for_build = true,
       .parse = read<read_index_skew, set_index_skew>},
      {.flag = "--subgraph",
       .value = "PATTERN",
       .help = "Keep only nodes under labels or ops of this name ('*' stands for any text), or "
               "nodes of ids A:B",
       .parse = read<read_pattern, keep_subgraph>,
       .of_ops_alone = true},
      {.flag = "--remove",
       .value = "PATTERN",
       .help = "Take out ops of this name with all below them",
       .parse = read<read_pattern, remove_ops>,
       .of_ops_alone = true},
      {.flag = "--kernel-time",
       .value = "P=US",
       .help = "Kernels of each op of this name take so many microseconds together",
       .parse = read<read_kernel_time, set_kernel_time>,
       .of_ops_alone = true},
      {.flag = "--scale-kernel",
       .value = "P=X",
       .help = "Multiplies the time of the kernels of ops of this name",
       .parse = read<read_kernel_scale, scale_kernel_time>,
       .of_ops_alone = true},
  };
  return options;
}

}  // namespace perfmodel
