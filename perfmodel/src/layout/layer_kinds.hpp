#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/graph/detail/decoder_layers.hpp"
#include "perfmodel/layout.hpp"

namespace perfmodel {

/// Layers of a model that are alike.
struct LayerKind : DecoderLayerKind {
  std::int64_t layers = 0;
};

/// All kinds that the model has layers of.
std::vector<LayerKind> layer_kinds(const DecoderModel& model);

/// The kind of each layer, the first one first.
std::vector<DecoderLayerKind> kinds_in_order(const DecoderModel& model);

/// Sets the sizes that one rank of tensor parallelism has. Those that batches, experts of other
/// ranks and kernels change are left.
void take_sizes(const DecoderModel& model, std::int64_t tp, DecoderLayersConfig& config);

/// Whether all layers have attention and a dense feed-forward part with heads of hidden / heads:
/// what `build llama` and `build gpt` write.
bool has_plain_layers(const DecoderModel& model);
/// Whether nothing but the output layer follows such layers.
bool is_plain(const DecoderModel& model);

/// Weights that a token meets in a layer, as a mean over all layers.
double active_layer_parameters(const DecoderModel& model);

std::int64_t head_width_of(const DecoderModel& model);
std::int64_t kv_heads_of(const DecoderModel& model);
std::int64_t expert_hidden_of(const DecoderModel& model);  ///< width inside of an expert
std::int64_t expert_input_of(const DecoderModel& model);   ///< width that routed experts see

/// Numbers of keys and values of one token in one layer.
std::int64_t key_value_width(const DecoderModel& model);

/// Parameters of a layer of that kind: routed experts apart.
struct LayerParameters {
  double dense = 0, experts = 0;
};
LayerParameters layer_parameters(const DecoderModel& model, const LayerKind& kind);

/// Counts the parameters of all routed experts of the model.
double expert_parameter_count(const DecoderModel& model);

/// `model_flop_per_token` of the job; frozen weights have no gradients: 4 N instead of 6 N.
double job_flop_per_token(const LayoutJob& job);

/// FLOP of causal attention per token, forward and backward pass: 12 per layer, hidden number and
/// token that it sees, which are half of the sequence.
double attention_flop_per_token(const DecoderModel& model, std::int64_t sequence);

}  // namespace perfmodel
