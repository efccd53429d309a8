#include "pytorch_lines.hpp"

#include <algorithm>

#include "perfmodel/detail/check.hpp"

namespace perfmodel::advice {
namespace {

struct Lines {
  std::string_view move, lines;
};

constexpr Lines kLines[] = {
    {"--batch", "DataLoader(dataset, batch_size={})"},
    {"--fuse-tables sgd",
     "fbgemm_gpu SplitTableBatchedEmbeddingBagsCodegen(tables, optimizer=EXACT_SGD) in the place "
     "of nn.EmbeddingBag"},
    {"--precision tf32",
     "torch.backends.cuda.matmul.allow_tf32 = True\n"
     "torch.backends.cudnn.allow_tf32 = True"},
    {"--precision bf16",
     "with torch.autocast(\"cuda\", dtype=torch.bfloat16):\n"
     "    loss = model(batch)"},
    {"--precision fp16-scaled",
     "with torch.autocast(\"cuda\", dtype=torch.float16):\n"
     "    loss = model(batch)\n"
     "scaler.scale(loss).backward()  # scaler = torch.amp.GradScaler()\n"
     "scaler.step(optimizer)\n"
     "scaler.update()"},
    {"--precision bf16-o2",
     "model.to(torch.bfloat16)  # with an optimizer that keeps fp32 weights (DeepSpeed, Apex O2)"},
    {"--precision fp16-o2",
     "model.half()  # with a loss scale and an optimizer that keeps fp32 weights (DeepSpeed, Apex "
     "O2)"},
    {"--precision fp8",
     "with transformer_engine.pytorch.fp8_autocast():  # te.Linear in the place of nn.Linear\n"
     "    loss = model(batch)"},
    {"--channels-last",
     "model = model.to(memory_format=torch.channels_last)\n"
     "images = images.to(memory_format=torch.channels_last)"},
    {"--attention",
     "{}y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # encoders: attn_mask=mask\n"
     "from_pretrained(name, attn_implementation=\"sdpa\")  # Hugging Face transformers"},
    {"sdpa_kernel",
     "with torch.nn.attention.sdpa_kernel(SDPBackend.{}_ATTENTION):\n"
     "    "},
    {"--fuse-loss liger",
     "from liger_kernel.transformers import LigerCrossEntropyLoss\n"
     "loss = LigerCrossEntropyLoss()(logits, labels)"},
    {"--fuse-loss linear",
     "from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss\n"
     "loss = LigerFusedLinearCrossEntropyLoss()(lm_head.weight, hidden, labels)"},
    {"--fuse-norms",
     "self.norm = torch.nn.RMSNorm(hidden, eps=eps)  # torch.nn.LayerNorm of layer norms"},
    {"--in-place", "Tempo's in-place {} in the place of PyTorch's"},
    {"--recompute dropout", "Tempo's attention, which drops out again in its backward pass"},
    {"--recompute selective", "torch.utils.checkpoint.checkpoint(core_attention, q, k, v)"},
    {"--recompute op", "torch.utils.checkpoint.checkpoint(layer, x, context_fn=every second mm)"},
    {"--recompute full", "torch.utils.checkpoint.checkpoint(layer, x) for every layer"},
    {"--checkpoint 0",
     "torch.utils.checkpoint.checkpoint_sequential(layers, round(sqrt(len(layers))), x)"},
    {"--offload-activations", "with torchtune.training.OffloadActivations(): loss = model(batch)"},
    {"--accumulate",
     "(loss / {0}).backward() for each of {0} parts of the batch, then optimizer.step() (DDP: "
     "model.no_sync() around all but the last)"},
    {"--optimizer", "optimizer = torch.optim.{}(model.parameters(), {}=True)"},
    {"--optimizer 8bit", "optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())"},
    {"cap", "DistributedDataParallel(model, bucket_cap_mb={:g})"},
    {"split",
     "hold parameters above {:g} MiB in pieces (nn.ParameterList): DDP reduces each as it comes"},
    {"views", "DistributedDataParallel(model, gradient_as_bucket_view=True)"},
    {"ranks", "torchrun --nproc-per-node {}"},
    {"--fuse-elementwise",
     "torch.compile of the functions between products: bias and GELU, dropout and residual"},
    {"--compile", "model = torch.compile(model{})  # whose forward returns the loss"},
    {"--cuda-graphs",
     "with torch.cuda.graph(g):\n"
     "    train_step()\n"
     "g.replay()  # for every batch"},
};

}  // namespace

std::string_view pytorch_template(std::string_view move) {
  const auto* row = std::ranges::find(kLines, move, &Lines::move);
  if (row == std::end(kLines)) {
    row = std::ranges::find(kLines, move.substr(0, move.find(' ')), &Lines::move);
  }
  PERFMODEL_CHECK(row != std::end(kLines));
  return row->lines;
}

}  // namespace perfmodel::advice
