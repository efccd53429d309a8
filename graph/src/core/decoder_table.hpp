#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "perfmodel/graph/detail/decoder_sizes.hpp"

namespace perfmodel {

/// Members that few models set; they mean the same as in `DecoderModel`.
struct DecoderExtras {
  bool gated = true;
  std::int64_t head_width = 0;
  DecoderExperts experts = {};
  LatentAttentionSizes latent = {};
  std::int64_t state_layers = 0, attention_layers = 0;
  StateSpaceSizes states = {};
  std::int64_t window = 0, windowed_layers = 0;
  bool sinks = false;
  std::int64_t next_tokens = 0;
  std::int64_t expert_groups = 1, groups_of_token = 1;
  bool delta_states = false, gated_heads = false, chunked = false;
};

/// A row of data/decoders.csv; the file describes its columns.
struct DecoderRow {
  std::string_view name, family;
  std::int64_t layers, hidden, heads, kv_heads, feed_forward, vocabulary, sequence;
  bool tied, layout;
  int build;
  DecoderExtras extras;
};

/// All rows, compiled in: no caller needs the data folder.
std::span<const DecoderRow> decoder_rows();
/// The presets of `build FAMILY`, in the order of its lists.
std::vector<DecoderRow> built_decoders(std::string_view family);

}  // namespace perfmodel
