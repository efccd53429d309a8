#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "perfmodel/graph/rewrites/training.hpp"
#include "rewrite_flags.hpp"

namespace perfmodel::cli {
namespace {

using Precision = PrecisionOptions::Precision;
using Scaling = PrecisionOptions::Scaling;

struct NamedPrecision {
  std::string_view name;
  PrecisionOptions options;
};
constexpr NamedPrecision kPrecisions[] = {
    {"fp32", {.precision = Precision::kFp32}},
    {"tf32", {.precision = Precision::kTf32}},
    {"bf16", {.precision = Precision::kBf16}},
    {"fp16", {.precision = Precision::kFp16}},
    {"fp16-scaled", {.precision = Precision::kFp16, .grad_scaler = true}},
    {"bf16-o2", {.precision = Precision::kBf16, .master_weights = true}},
    {"fp16-o2", {.precision = Precision::kFp16, .master_weights = true}},
    {"fp8", {.precision = Precision::kFp8, .scaling = Scaling::kDelayed}},
    {"fp8-current", {.precision = Precision::kFp8, .scaling = Scaling::kCurrent}},
    {"fp8-token", {.precision = Precision::kFp8, .scaling = Scaling::kToken}},
    {"fp8-block", {.precision = Precision::kFp8, .scaling = Scaling::kBlock128}},
    {"mxfp8", {.precision = Precision::kFp8, .scaling = Scaling::kMx}},
    {"nvfp4", {.precision = Precision::kFp4, .scaling = Scaling::kNv16}},
};

Result<Rewrite> parse_precision(const std::string& text) {
  const auto* known = std::ranges::find(kPrecisions, text, &NamedPrecision::name);
  if (known == std::end(kPrecisions)) {
    std::vector<std::string_view> names;
    for (const NamedPrecision& one : kPrecisions) names.push_back(one.name);
    return fail(ErrorCode::kUnknownName,
                fmt::format("expected one of {}, found {}", fmt::join(names, ", "), text));
  }
  return [options = known->options](const ExecutionGraph& graph) {
    return rewrite_precision(graph, options);
  };
}

Result<Rewrite> parse_gradient_type(const std::string& text) {
  constexpr std::pair<std::string_view, DType> kTypes[] = {
      {"fp32", DType::kFloat32}, {"bf16", DType::kBFloat16}, {"fp16", DType::kFloat16}};
  const auto* known = std::ranges::find(kTypes, text, &std::pair<std::string_view, DType>::first);
  if (known == std::end(kTypes)) {
    return fail(ErrorCode::kUnknownName,
                fmt::format("expected fp32, bf16 or fp16, found \"{}\"", text));
  }
  return [dtype = known->second](const ExecutionGraph& graph) {
    return rewrite_gradient_type(graph, dtype);
  };
}

}  // namespace

RewriteOption grad_dtype_option() {
  return {.flag = "--grad-dtype",
          .value = "fp32|bf16|fp16",
          .help =
              "The type in which gradients of parameters are kept: a wider one in buffers that "
              "each gradient is added to, a narrower one by a cast",
          .for_build = true,
          .parse = parse_gradient_type};
}

RewriteOption precision_option() {
  return {
      .flag = "--precision",
      .value = "fp32|tf32|bf16|fp16|fp16-scaled|bf16-o2|fp16-o2|fp8|...",
      .help =
          "Matrix products in TF32, or torch.autocast around the forward pass; scaled: with "
          "a GradScaler. o2: weights and activations in the half type, fp32 master weights in the "
          "optimizer. fp8, fp8-current, fp8-token, fp8-block, mxfp8, nvfp4: bf16 with the "
          "products of linear layers in 8 or 4 bits, by what shares a scale",
      .for_build = true,
      .parse = parse_precision};
}

RewriteOption channels_last_option() {
  return {.flag = "--channels-last",
          .value = "",
          .help =
              "Store images and filters of convolutions channels-last (NHWC), like "
              "model.to(memory_format=torch.channels_last); strides of a recording already say so",
          .for_build = true,
          .parse = [](const std::string&) -> Result<Rewrite> { return rewrite_channels_last; },
          .of_ops_alone = true};
}

}  // namespace perfmodel::cli
