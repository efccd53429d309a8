#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "part_costs.hpp"
#include "perfmodel/predictor.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Two questions with the same text have the same answer.
std::string key_of(const ShardQuestion& question);

/// Vocabulary as Megatron pads it: to a multiple of 128 rows per tensor-parallel rank.
std::int64_t padded_vocabulary(std::int64_t vocabulary, std::int64_t tp);

/// One training step of `layers` layers of the model without an optimizer, as one rank runs it.
/// Errors: sizes that do not divide.
Result<ExecutionGraph> shard_graph(const ShardQuestion& question, std::int64_t layers,
                                   bool compiled = false);

/// Asks `price` once per key and remembers the answer.
using PricedOnce = std::function<Result<std::shared_ptr<const ShardCosts>>(
    const std::string& key, const std::function<Result<ShardCosts>()>& price)>;

/// Prices of the parts, from the predictions of a graph with one layer and of one with two: what
/// the second has more is a layer, what is left of the first are embeddings, output layer and
/// loss. Recomputation is added afterwards (recomputed_layer.hpp), so that questions which differ
/// only in it share their graphs: `once` remembers the costs of a kind of layers.
///
/// With cp > 1 a rank has sequence / cp tokens; of causal attention over all of them it does cp
/// times what its own tokens alone would take, 2 cp - 1 times where the last rank has the last
/// tokens. Of models with several kinds of layers `layer` is the mean over all layers. Errors: as
/// `shard_graph` and predictions.
Result<ShardCosts> shard_costs(const ShardQuestion& question, const Predictor& predictor,
                               std::string_view gpu, const AskOptions& options,
                               const PricedOnce& once = {});

/// `build_decoder_layers` writes the layers, kind by kind, as one rank holds them.
bool is_built_by_kind(const ShardQuestion& question);

}  // namespace perfmodel
