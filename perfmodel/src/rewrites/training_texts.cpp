#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <string_view>

#include "base/decimal_number.hpp"
#include "base/named_values.hpp"
#include "builders/optimizer_names.hpp"
#include "rewrite_texts.hpp"

namespace perfmodel {
namespace {

using PrecisionKind = PrecisionOptions::Precision;
using ScalingKind = PrecisionOptions::Scaling;
constexpr Named<PrecisionOptions> kPrecisionOptions[] = {
    {"fp32", {.precision = PrecisionKind::kFp32}},
    {"tf32", {.precision = PrecisionKind::kTf32}},
    {"bf16", {.precision = PrecisionKind::kBf16}},
    {"fp16", {.precision = PrecisionKind::kFp16}},
    {"fp16-scaled", {.precision = PrecisionKind::kFp16, .grad_scaler = true}},
    {"bf16-o2", {.precision = PrecisionKind::kBf16, .master_weights = true}},
    {"fp16-o2", {.precision = PrecisionKind::kFp16, .master_weights = true}},
    {"fp8", {.precision = PrecisionKind::kFp8, .scaling = ScalingKind::kDelayed}},
    {"fp8-current", {.precision = PrecisionKind::kFp8, .scaling = ScalingKind::kCurrent}},
    {"fp8-token", {.precision = PrecisionKind::kFp8, .scaling = ScalingKind::kToken}},
    {"fp8-block", {.precision = PrecisionKind::kFp8, .scaling = ScalingKind::kBlock128}},
    {"mxfp8", {.precision = PrecisionKind::kFp8, .scaling = ScalingKind::kMx}},
    {"nvfp4", {.precision = PrecisionKind::kFp4, .scaling = ScalingKind::kNv16}},
};

// PyTorch's names.
constexpr Named<std::string_view> kPrecisionsOfTorch[] = {
    {"half", "fp16"}, {"float16", "fp16"}, {"bfloat16", "bf16"}, {"float32", "fp32"}};

constexpr Named<DType> kGradientTypes[] = {
    {"fp32", DType::kFloat32}, {"bf16", DType::kBFloat16}, {"fp16", DType::kFloat16}};

using Implementation = TrainingOptions::Implementation;
constexpr Named<Implementation> kImplementations[] = {{"loop", Implementation::kLoop},
                                                      {"foreach", Implementation::kForeach},
                                                      {"fused", Implementation::kFused},
                                                      {"8bit", Implementation::kEightBit}};

using Vendor = RetargetOptions::Vendor;
constexpr Named<Vendor> kVendors[] = {{"nvidia", Vendor::kNvidia}, {"amd", Vendor::kAmd}};
using Inputs = RetargetOptions::Inputs;
constexpr Named<Inputs> kInputs[] = {
    {"pinned", Inputs::kPinned}, {"pageable", Inputs::kPageable}, {"on-device", Inputs::kOnDevice}};

bool read_mebibytes(std::string_view text, std::int64_t& bytes) {
  double mebibytes = 0;
  if (!read_decimal(text, mebibytes) || !(mebibytes > 0) || !(mebibytes < 1e9)) return false;
  bytes = std::llround(mebibytes * (1 << 20));
  return true;
}

// "views", "cap=50", ...
bool read_data_parallel_part(std::string_view part, DataParallelRewrite& rewrite) {
  if (part == "views") return rewrite.gradient_as_bucket_view = true;
  if (part == "delayed") return rewrite.delayed = true;
  if (part.starts_with("cap=")) return read_mebibytes(part.substr(4), rewrite.bucket_cap_bytes);
  if (part.starts_with("first=")) return read_mebibytes(part.substr(6), rewrite.first_bucket_bytes);
  if (!part.starts_with("split=")) return false;
  return read_mebibytes(part.substr(6), rewrite.split_bytes.emplace());
}

}  // namespace

Result<PrecisionOptions> read_precision(const std::string& text) {
  const auto* torch = find_named(kPrecisionsOfTorch, text);
  if (const auto* known = find_named(kPrecisionOptions, torch ? *torch : text)) return *known;
  return fail(ErrorCode::kUnknownName,
              fmt::format("expected one of {}, found {}",
                          fmt::join(names_of(kPrecisionOptions), ", "), text));
}

Result<DType> read_gradient_type(const std::string& text) {
  if (const DType* known = find_named(kGradientTypes, text)) return *known;
  return fail(ErrorCode::kUnknownName,
              fmt::format("expected fp32, bf16 or fp16, found \"{}\"", text));
}

Result<OptimizerRewrite> read_optimizer(const std::string& text) {
  OptimizerRewrite rewrite;
  const std::string_view all = text;
  const std::size_t slash = all.find('/');
  const bool both = slash != all.npos;
  const auto* kind = find_named(kOptimizerNames, all.substr(0, slash));
  if (kind && *kind != TrainingOptions::Optimizer::kNoOptimizer) rewrite.optimizer = *kind;
  if (const auto* how = find_named(kImplementations, both ? all.substr(slash + 1) : all)) {
    rewrite.implementation = *how;
  }
  if (both ? rewrite.optimizer && rewrite.implementation
           : rewrite.optimizer || rewrite.implementation) {
    return rewrite;
  }
  return fail(ErrorCode::kUnknownName,
              fmt::format("expected sgd, momentum, adagrad, adam or adamw, loop, foreach, fused or "
                          "8bit, or both as adam/fused, found \"{}\"",
                          text));
}

Result<std::int64_t> read_accumulation(const std::string& text) {
  std::int64_t passes = 0;
  if (read_decimal(text, passes) && passes >= 1) return passes;
  return fail(ErrorCode::kFormat,
              fmt::format("expected a number of backward passes, found \"{}\"", text));
}

Result<DataParallelRewrite> read_data_parallel(const std::string& text) {
  DataParallelRewrite rewrite;
  std::string_view rest = text;
  for (bool first = true; first || !rest.empty(); first = false) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest = part.size() < rest.size() ? rest.substr(part.size() + 1) : std::string_view();
    if (first ? read_decimal(part, rewrite.world_size) && rewrite.world_size >= 1
              : read_data_parallel_part(part, rewrite)) {
      continue;
    }
    return decline(
        fmt::format("expected a number of GPUs, then cap=MIB, first=MIB, split=MIB, views or "
                    "delayed, as in 8,cap=50,views, found \"{}\"",
                    text));
  }
  return rewrite;
}

Result<TensorParallelOptions> read_tensor_parallel(const std::string& text) {
  TensorParallelOptions options;
  std::string_view number = text;
  constexpr std::string_view kSequence = ",sequence";
  if (number.ends_with(kSequence)) {
    options.sequence_parallel = true;
    number.remove_suffix(kSequence.size());
  }
  if (read_decimal(number, options.ranks) && options.ranks >= 1) return options;
  return decline(fmt::format(
      "expected a number of GPUs, then ,sequence or nothing, as in 8,sequence, found \"{}\"",
      text));
}

Result<RetargetOptions> read_retarget(const std::string& text) {
  const std::string_view all = text;
  const std::size_t comma = all.find(',');
  const std::string_view vendor_name = all.substr(0, comma);
  const Vendor* vendor = find_named(kVendors, vendor_name);
  if (!vendor) {
    return fail(ErrorCode::kUnknownName,
                fmt::format("expected a GPU vendor (nvidia, amd), found \"{}\"", vendor_name));
  }
  if (comma == all.npos) return RetargetOptions{.vendor = *vendor};
  const std::string_view inputs_name = all.substr(comma + 1);
  const Inputs* inputs = find_named(kInputs, inputs_name);
  if (inputs) return RetargetOptions{.vendor = *vendor, .inputs = *inputs};
  return fail(ErrorCode::kUnknownName,
              fmt::format("expected where the inputs lie (pinned, pageable, on-device), found "
                          "\"{}\"",
                          inputs_name));
}

}  // namespace perfmodel
