#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "perfmodel/layout.hpp"
#include "perfmodel/result.hpp"

/// Names of what a layout and its job may be.
namespace perfmodel {

// Errors (kUnknownName): other names; they list the known ones.
Result<Sharding> parse_sharding(std::string_view text);  ///< 0, none, 1, 2, 3, fsdp, hsdp
/// none, selective, full, op, N, block:N, uniform:N, or names of parts with + between them.
Result<LayoutRecompute> parse_recompute(std::string_view text);
Result<PipelineOrder> parse_pipeline_order(std::string_view text);  ///< 1f1b, gpipe, zb-h1, ...
Result<ContextExchange> parse_context_exchange(std::string_view text);
/// none, or parts with + between them; zero-offload, zero-infinity, fsdp-cpu-offload,
/// optimizer-cpu-offload.
Result<LayoutOffload> parse_offload(std::string_view text);
Result<LayoutJob::Precision> parse_layout_precision(std::string_view text);
Result<LayoutJob::Attention> parse_layout_attention(std::string_view text);
Result<LayoutJob::Optimizer> parse_layout_optimizer(std::string_view text);
Result<Dispatcher> parse_dispatcher(std::string_view text);  ///< alltoall, deepep, hybridep
/// none, full, or attention, router, preprocess with + or a comma between them, as bits.
Result<std::uint8_t> parse_cuda_graphs(std::string_view text);
/// full, fused, chunked (8 pieces) or chunked:N, as LayoutJob::loss_chunks counts.
Result<std::int64_t> parse_loss(std::string_view text);
std::string cuda_graph_words(std::uint8_t scopes);
std::string_view to_string(LayoutJob::Attention attention);
std::string_view to_string(LayoutJob::Optimizer optimizer);

}  // namespace perfmodel
