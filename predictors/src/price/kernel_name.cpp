#include <cctype>
#include <string>
#include <utility>

#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel {

std::optional<KernelFamily> kernel_family_of_name(std::string_view name) {
  std::string lower;
  for (char c : name) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (const auto at = lower.find("fbgemm"); at != std::string::npos) lower.erase(at, 6);
  // In this order: the first that fits decides.
  constexpr std::pair<std::string_view, KernelFamily> kParts[] = {
      {"nccl", KernelFamily::kCollective},
      {"rccl", KernelFamily::kCollective},
      {"allreduce", KernelFamily::kCollective},
      {"memcpy", KernelFamily::kCopy},
      {"memset", KernelFamily::kSet},
      {"fillbuffer", KernelFamily::kSet},
      {"embedding_backward", KernelFamily::kEmbeddingBackward},
      {"embedding_codegen_backward", KernelFamily::kEmbeddingBackward},
      {"split_embedding", KernelFamily::kEmbeddingForward},
      {"embedding", KernelFamily::kEmbeddingForward},
      {"softmax", KernelFamily::kSoftmax},
      {"batch_norm", KernelFamily::kNorm},
      {"layer_norm", KernelFamily::kNorm},
      {"layernorm", KernelFamily::kNorm},
      {"bn_fw", KernelFamily::kNorm},
      {"bn_bw", KernelFamily::kNorm},
      {"multi_tensor", KernelFamily::kOptimizer},
      {"pool", KernelFamily::kPooling},
      {"scudnn", KernelFamily::kConvolution},
      {"winograd", KernelFamily::kConvolution},
      {"wgrad", KernelFamily::kConvolution},
      {"dgrad", KernelFamily::kConvolution},
      {"fprop", KernelFamily::kConvolution},
      {"conv", KernelFamily::kConvolution},
      {"gemm", KernelFamily::kGemm},
      {"gemv", KernelFamily::kGemm},
      {"cijk", KernelFamily::kGemm},
      {"cutlass", KernelFamily::kGemm},
      {"splitkreduce", KernelFamily::kGemm},
      {"sort", KernelFamily::kSort},
      {"catarray", KernelFamily::kConcat},
      {"gather", KernelFamily::kIndex},
      {"scatter", KernelFamily::kIndex},
      {"index", KernelFamily::kIndex},
      {"reduce", KernelFamily::kReduction},
      {"elementwise", KernelFamily::kElementwise},
      {"nchwtonhwc", KernelFamily::kElementwise},
      {"nhwctonchw", KernelFamily::kElementwise},
      {"transpose", KernelFamily::kElementwise},
      {"triton", KernelFamily::kElementwise}};
  for (const auto& [part, family] : kParts) {
    if (lower.find(part) != std::string::npos) return family;
  }
  return {};
}

}  // namespace perfmodel
