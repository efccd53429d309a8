#include "layout_names.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "json/csv_file.hpp"
#include "layout_choice.hpp"

namespace perfmodel {
namespace {

constexpr LayoutName<Sharding> kShardingNames[] = {
    {"0", Sharding::kNone},   {"none", Sharding::kNone}, {"1", Sharding::kZero1},
    {"2", Sharding::kZero2},  {"3", Sharding::kZero3},   {"fsdp", Sharding::kFsdp},
    {"hsdp", Sharding::kHsdp}};
constexpr LayoutName<LayoutRecompute::What> kRecomputeNames[] = {
    {"none", LayoutRecompute::kNone},
    {"selective", LayoutRecompute::kSelective},
    {"full", LayoutRecompute::kFull},
    {"op", LayoutRecompute::kOp}};
constexpr LayoutName<LayoutRecompute::What> kCountedNames[] = {
    {"", LayoutRecompute::kEvery},
    {"block:", LayoutRecompute::kBlock},
    {"uniform:", LayoutRecompute::kUniform}};
constexpr LayoutName<std::uint8_t> kModuleNames[] = {
    {"core_attn", LayoutRecompute::kCoreAttention},
    {"moe_act", LayoutRecompute::kExpertActivation},
    {"layernorm", LayoutRecompute::kNorms},
    {"mla_up_proj", LayoutRecompute::kLatentProjection},
    {"mlp", LayoutRecompute::kDenseInner},
    {"moe", LayoutRecompute::kExpertInner},
    {"shared_experts", LayoutRecompute::kSharedExpert}};
constexpr LayoutName<Dispatcher> kDispatcherNames[] = {{"alltoall", Dispatcher::kAllToAll},
                                                       {"deepep", Dispatcher::kDeepEp},
                                                       {"hybridep", Dispatcher::kHybridEp}};
constexpr LayoutName<std::uint8_t> kScopeNames[] = {{"attention", LayoutJob::kAttentionGraph},
                                                    {"router", LayoutJob::kRouterGraph},
                                                    {"preprocess", LayoutJob::kPreprocessGraph},
                                                    {"full", LayoutJob::kFullGraph}};
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

// Names of DeepSpeed, FSDP and Megatron first.
constexpr LayoutOffload kOffloadsOptimizer = {.optimizer = true};
constexpr LayoutOffload kOffloadsStates = {.optimizer = true, .parameters = true};
constexpr LayoutName<LayoutOffload> kOffloadNames[] = {
    {"none", {}},
    {"zero-offload", kOffloadsOptimizer},
    {"optimizer-cpu-offload", kOffloadsOptimizer},
    {"zero-infinity", kOffloadsStates},
    {"fsdp-cpu-offload", kOffloadsStates},
    {"activations", {.activations = true}},
    {"optimizer", kOffloadsOptimizer},
    {"optimizer+activations", {.optimizer = true, .activations = true}},
    {"optimizer+parameters", kOffloadsStates},
    {"optimizer+parameters+activations",
     {.optimizer = true, .parameters = true, .activations = true}},
    {"optimizer-nvme", {.optimizer = true, .nvme = true}},
    {"optimizer-nvme+activations", {.optimizer = true, .activations = true, .nvme = true}},
    {"optimizer-nvme+parameters", {.optimizer = true, .parameters = true, .nvme = true}},
    {"optimizer-nvme+parameters+activations",
     {.optimizer = true, .parameters = true, .activations = true, .nvme = true}}};

// The last of its names.
template <class Value, std::size_t kCount>
std::string_view layout_name(Value value, const LayoutName<Value> (&known)[kCount]) {
  std::string_view name = "unknown";
  for (const LayoutName<Value>& one : known) {
    if (one.value == value) name = one.name;
  }
  return name;
}

// A whole number from 1 to 2^20.
std::optional<std::int64_t> small_count(std::string_view text) {
  const auto number = parse_double(text);
  if (!number || *number < 1 || *number > 1 << 20 || *number != std::floor(*number)) return {};
  return static_cast<std::int64_t>(*number);
}

// Names with + or a comma between them.
template <std::size_t kCount>
Result<std::uint8_t> layout_bits(std::string_view what, std::string_view text,
                                 const LayoutName<std::uint8_t> (&known)[kCount]) {
  std::uint8_t bits = 0;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find_first_of("+,", begin), text.size());
    PERFMODEL_TRY(bit, layout_choice(what, text.substr(begin, end - begin), known));
    bits |= *bit;
    begin = end + 1;
  }
  return bits;
}

template <std::size_t kCount>
std::string words_of_bits(std::uint8_t bits, const LayoutName<std::uint8_t> (&known)[kCount]) {
  std::string words;
  for (const auto& [name, bit] : known) {
    if ((bits & bit) != 0) words += fmt::format("{}{}", words.empty() ? "" : "+", name);
  }
  return words;
}

std::optional<LayoutRecompute> counted_recompute(std::string_view text) {
  for (const auto& [name, what] : kCountedNames) {
    if (!text.starts_with(name)) continue;
    if (const auto count = small_count(text.substr(name.size()))) {
      return LayoutRecompute(what, *count);
    }
  }
  return {};
}

}  // namespace

Result<Sharding> parse_sharding(std::string_view text) {
  return layout_choice("zero", text, kShardingNames);
}
Result<LayoutRecompute> parse_recompute(std::string_view text) {
  for (const auto& [name, what] : kRecomputeNames) {
    if (name == text) return LayoutRecompute(what);
  }
  if (const auto counted = counted_recompute(text)) return *counted;
  const auto modules = layout_bits("recompute", text, kModuleNames);
  if (modules) return LayoutRecompute(LayoutRecompute::kModules, 1, *modules);
  return fail(ErrorCode::kUnknownName,
              modules.error().message +
                  " (or none, selective, full, op, N: each Nth layer, block:N, uniform:N)");
}
Result<Dispatcher> parse_dispatcher(std::string_view text) {
  return layout_choice("dispatcher", text, kDispatcherNames);
}
Result<std::uint8_t> parse_cuda_graphs(std::string_view text) {
  if (text.empty() || text == "none") return std::uint8_t{0};
  return layout_bits("cuda_graphs", text, kScopeNames);
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
  if (const auto pieces = small_count(text.substr(kChunked.size()))) return *pieces;
  return fail(ErrorCode::kUnknownName,
              fmt::format("loss: expected chunked:N, N from 1 to {}, found \"{}\"", 1 << 20, text));
}
Result<ContextExchange> parse_context_exchange(std::string_view text) {
  return layout_choice("context", text, kExchangeNames);
}

Result<LayoutOffload> parse_offload(std::string_view text) {
  return layout_choice("offload", text, kOffloadNames);
}

std::string_view to_string(LayoutOffload offload) { return layout_name(offload, kOffloadNames); }
std::string_view to_string(Sharding sharding) { return layout_name(sharding, kShardingNames); }
std::string to_string(const LayoutRecompute& recompute) {
  if (recompute.what == LayoutRecompute::kModules) {
    return words_of_bits(recompute.modules, kModuleNames);
  }
  for (const auto& [name, what] : kCountedNames) {
    if (what == recompute.what) return fmt::format("{}{}", name, recompute.count);
  }
  return std::string(layout_name(recompute.what, kRecomputeNames));
}
std::string_view to_string(Dispatcher dispatcher) {
  return layout_name(dispatcher, kDispatcherNames);
}
std::string cuda_graph_words(std::uint8_t scopes) {
  return scopes == 0 ? "none" : words_of_bits(scopes, kScopeNames);
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
