#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel {

std::string_view to_string(KernelFamily family) {
  switch (family) {
    case KernelFamily::kGemm:
      return "gemm";
    case KernelFamily::kConvolution:
      return "convolution";
    case KernelFamily::kEmbeddingForward:
      return "embedding_forward";
    case KernelFamily::kEmbeddingBackward:
      return "embedding_backward";
    case KernelFamily::kElementwise:
      return "elementwise";
    case KernelFamily::kReduction:
      return "reduction";
    case KernelFamily::kSoftmax:
      return "softmax";
    case KernelFamily::kNorm:
      return "norm";
    case KernelFamily::kPooling:
      return "pooling";
    case KernelFamily::kDropout:
      return "dropout";
    case KernelFamily::kTranspose:
      return "transpose";
    case KernelFamily::kIndex:
      return "index";
    case KernelFamily::kInteraction:
      return "interaction";
    case KernelFamily::kSort:
      return "sort";
    case KernelFamily::kConcat:
      return "concat";
    case KernelFamily::kOptimizer:
      return "optimizer";
    case KernelFamily::kAttention:
      return "attention";
    case KernelFamily::kRecurrent:
      return "recurrent";
    case KernelFamily::kCopy:
      return "copy";
    case KernelFamily::kSet:
      return "set";
    case KernelFamily::kCollective:
      return "collective";
    case KernelFamily::kSmall:
      return "small";
  }
  return "unknown";
}

std::string_view to_string(Bound bound) {
  switch (bound) {
    case Bound::kCompute:
      return "compute";
    case Bound::kMemory:
      return "memory";
    case Bound::kLatency:
      return "latency";
    case Bound::kLink:
      return "link";
    case Bound::kMeasured:
      return "measured";
  }
  return "unknown";
}

}  // namespace perfmodel
