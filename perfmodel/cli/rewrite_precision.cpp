#include <fmt/format.h>

#include "perfmodel/graph/rewrites/training.hpp"
#include "rewrite_flags.hpp"

namespace perfmodel::cli {
namespace {

Result<Rewrite> parse_precision(const std::string& text) {
  using Precision = PrecisionOptions::Precision;
  PrecisionOptions options;
  if (text == "fp32") {
    options.precision = Precision::kFp32;
  } else if (text == "tf32") {
    options.precision = Precision::kTf32;
  } else if (text == "bf16") {
    options.precision = Precision::kBf16;
  } else if (text == "fp16" || text == "fp16-scaled") {
    options.precision = Precision::kFp16;
    options.grad_scaler = text == "fp16-scaled";
  } else {
    return fail(ErrorCode::kUnknownName,
                fmt::format("expected fp32, tf32, bf16, fp16 or fp16-scaled, found {}", text));
  }
  return [options](const ExecutionGraph& graph) { return rewrite_precision(graph, options); };
}

}  // namespace

RewriteOption precision_option() {
  return {.flag = "--precision",
          .value = "fp32|tf32|bf16|fp16|fp16-scaled",
          .help =
              "Matrix products in TF32, or torch.autocast around the forward pass; scaled: with "
              "a GradScaler",
          .for_build = true,
          .parse = parse_precision};
}

}  // namespace perfmodel::cli
