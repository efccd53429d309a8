#pragma once

#include "step_question.hpp"

namespace perfmodel {

/// Error (kImpossible) if a kernel is named of which nothing is known on the GPU.
Result<void> check_attention(const Gpu& gpu, LayoutJob::Attention attention);

/// The kernel of attention that the job names, else the software's, else the one that frameworks
/// take on the GPU; never `kFlash`.
LayoutJob::Attention attention_kernel(const StepQuestion& question);

/// Whether that kernel adds the learned term of a model's softmax. cuDNN and FlashAttention-4 do
/// since autumn 2025; others leave such attention to scores in memory (`eager`).
bool knows_sinks(LayoutJob::Attention kernel);

/// Times of that kernel over the one that frameworks take on the GPU, for one layer's pass over a
/// microbatch, of packed sequences over whole ones. 1 for scores in memory.
struct AttentionRatios {
  double forward = 1, backward = 1;
};
AttentionRatios attention_ratios(const StepQuestion& question);

}  // namespace perfmodel
