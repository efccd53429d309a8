#include "layout_names.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "json/csv_file.hpp"

namespace perfmodel {
namespace {

template <class Value>
struct LayoutName {
  std::string_view name;
  Value value;
};

constexpr LayoutName<Sharding> kShardingNames[] = {
    {"0", Sharding::kNone},   {"none", Sharding::kNone}, {"1", Sharding::kZero1},
    {"2", Sharding::kZero2},  {"3", Sharding::kZero3},   {"fsdp", Sharding::kFsdp},
    {"hsdp", Sharding::kHsdp}};
constexpr LayoutName<LayoutRecompute> kRecomputeNames[] = {
    {"none", LayoutRecompute::kNone},
    {"selective", LayoutRecompute::kSelective},
    {"full", LayoutRecompute::kFull},
    {"op", LayoutRecompute::kOp}};
constexpr LayoutName<PipelineOrder> kOrderNames[] = {{"1f1b", PipelineOrder::k1F1B},
                                                     {"gpipe", PipelineOrder::kGpipe},
                                                     {"zb-h1", PipelineOrder::kZbH1},
                                                     {"zb-v", PipelineOrder::kZbV},
                                                     {"dualpipe", PipelineOrder::kDualPipe}};
constexpr LayoutName<LayoutJob::Precision> kPrecisionNames[] = {
    {"bf16", LayoutJob::Precision::kBf16},
    {"fp16", LayoutJob::Precision::kFp16},
    {"fp8", LayoutJob::Precision::kFp8},
    {"fp4", LayoutJob::Precision::kFp4},
    {"fp32", LayoutJob::Precision::kFp32}};
constexpr LayoutName<LayoutJob::Attention> kAttentionNames[] = {
    {"flash", LayoutJob::Attention::kFlash},  {"eager", LayoutJob::Attention::kEager},
    {"fa2", LayoutJob::Attention::kFa2},      {"fa3", LayoutJob::Attention::kFa3},
    {"fa4", LayoutJob::Attention::kFa4},      {"cudnn", LayoutJob::Attention::kCudnn},
    {"triton", LayoutJob::Attention::kTriton}};
constexpr LayoutName<LayoutJob::Optimizer> kOptimizerNames[] = {
    {"adamw", LayoutJob::Optimizer::kAdamW},
    {"adamw-8bit", LayoutJob::Optimizer::kAdamW8bit},
    {"sgd", LayoutJob::Optimizer::kSgd}};
constexpr LayoutName<ContextExchange> kExchangeNames[] = {
    {"ring", ContextExchange::kRing},
    {"all-gather", ContextExchange::kAllGather},
    {"all-to-all", ContextExchange::kAllToAll}};

// The last of its names.
template <class Value, std::size_t kCount>
std::string_view layout_name(Value value, const LayoutName<Value> (&known)[kCount]) {
  std::string_view name = "unknown";
  for (const LayoutName<Value>& one : known) {
    if (one.value == value) name = one.name;
  }
  return name;
}

template <class Value, std::size_t kCount>
Result<Value> layout_choice(std::string_view what, std::string_view text,
                            const LayoutName<Value> (&known)[kCount]) {
  std::vector<std::string_view> names;
  for (const auto& [name, value] : known) {
    if (name == text) return value;
    names.push_back(name);
  }
  return fail(ErrorCode::kUnknownName, fmt::format("{}: expected one of {}, found \"{}\"", what,
                                                   fmt::join(names, ", "), text));
}

}  // namespace

Result<Sharding> parse_sharding(std::string_view text) {
  return layout_choice("zero", text, kShardingNames);
}
Result<LayoutRecompute> parse_recompute(std::string_view text) {
  return layout_choice("recompute", text, kRecomputeNames);
}
Result<PipelineOrder> parse_pipeline_order(std::string_view text) {
  return layout_choice("schedule", text, kOrderNames);
}
Result<LayoutJob::Precision> parse_layout_precision(std::string_view text) {
  return layout_choice("precision", text, kPrecisionNames);
}
Result<LayoutJob::Attention> parse_layout_attention(std::string_view text) {
  return layout_choice("attention", text, kAttentionNames);
}
Result<LayoutJob::Optimizer> parse_layout_optimizer(std::string_view text) {
  return layout_choice("optimizer", text, kOptimizerNames);
}
Result<std::int64_t> parse_loss(std::string_view text) {
  constexpr std::string_view kChunked = "chunked:";
  static constexpr LayoutName<std::int64_t> kLosses[] = {{"full", 1}, {"fused", 0}, {"chunked", 8}};
  if (!text.starts_with(kChunked)) return layout_choice("loss", text, kLosses);
  const auto pieces = parse_double(text.substr(kChunked.size()));
  if (pieces && *pieces >= 1 && *pieces <= 1 << 20 && *pieces == std::floor(*pieces)) {
    return static_cast<std::int64_t>(*pieces);
  }
  return fail(ErrorCode::kUnknownName,
              fmt::format("loss: expected chunked:N, N from 1 to {}, found \"{}\"", 1 << 20, text));
}
Result<ContextExchange> parse_context_exchange(std::string_view text) {
  return layout_choice("context", text, kExchangeNames);
}

std::string_view to_string(Sharding sharding) { return layout_name(sharding, kShardingNames); }
std::string_view to_string(LayoutRecompute recompute) {
  return layout_name(recompute, kRecomputeNames);
}
std::string_view to_string(PipelineOrder order) { return layout_name(order, kOrderNames); }
std::string_view to_string(LayoutJob::Precision precision) {
  return layout_name(precision, kPrecisionNames);
}
std::string_view to_string(LayoutJob::Attention attention) {
  return layout_name(attention, kAttentionNames);
}
std::string_view to_string(LayoutJob::Optimizer optimizer) {
  return layout_name(optimizer, kOptimizerNames);
}
std::string_view to_string(ContextExchange exchange) {
  return layout_name(exchange, kExchangeNames);
}

}  // namespace perfmodel
