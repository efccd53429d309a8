#pragma once

#include <cstdint>
#include <string_view>

#include "perfmodel/layout.hpp"
#include "perfmodel/result.hpp"

/// Names of what a layout and its job may be.
namespace perfmodel {

// Errors (kUnknownName): other names; they list the known ones.
Result<Sharding> parse_sharding(std::string_view text);          ///< 0, none, 1, 2, 3, fsdp, hsdp
Result<LayoutRecompute> parse_recompute(std::string_view text);  ///< none, selective, full, op
Result<PipelineOrder> parse_pipeline_order(std::string_view text);  ///< 1f1b, gpipe, zb-h1, ...
Result<ContextExchange> parse_context_exchange(std::string_view text);
Result<LayoutJob::Precision> parse_layout_precision(std::string_view text);
Result<LayoutJob::Attention> parse_layout_attention(std::string_view text);
Result<LayoutJob::Optimizer> parse_layout_optimizer(std::string_view text);
/// full, fused, chunked (8 pieces) or chunked:N, as LayoutJob::loss_chunks counts.
Result<std::int64_t> parse_loss(std::string_view text);
std::string_view to_string(LayoutJob::Attention attention);
std::string_view to_string(LayoutJob::Optimizer optimizer);

}  // namespace perfmodel
