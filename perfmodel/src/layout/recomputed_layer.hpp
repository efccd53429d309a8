#pragma once

#include "layer_kinds.hpp"
#include "part_costs.hpp"

namespace perfmodel {

/// Adds recomputation to a layer of that kind, as a mean over all layers: forward kernels before
/// the backward pass, fewer bytes kept, and more bytes while a layer's backward pass runs.
void recompute_layer(const ShardQuestion& question, const LayerKind& kind, ShardCosts& costs);

/// Number of layers that are computed again as a whole.
double recomputed_layers(const LayoutRecompute& recompute, std::int64_t layers,
                         std::int64_t chunks);

/// Share of the FLOP of a layer's products that the parts in `recompute.modules` do again.
double recomputed_products(const LayoutRecompute& recompute, const DecoderModel& model,
                           const LayerKind& kind);

}  // namespace perfmodel
