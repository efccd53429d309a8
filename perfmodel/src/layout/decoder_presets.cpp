#include <fmt/format.h>

#include <cctype>
#include <string>

#include "core/decoder_table.hpp"
#include "files/json_file.hpp"
#include "perfmodel/detail/decoder_models.hpp"

namespace perfmodel {
namespace {

// "Qwen3_30B_a3B" and "qwen3-30b-a3b" are the same name.
std::string letters_of(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte)) letters += static_cast<char>(std::tolower(byte));
  }
  return letters;
}

DecoderModel decoder_of(const DecoderRow& row) {
  const DecoderExtras& extras = row.extras;
  DecoderModel model = {.name = std::string(row.name),
                        .layers = row.layers,
                        .hidden = row.hidden,
                        .heads = row.heads,
                        .kv_heads = row.kv_heads,
                        .feed_forward = row.feed_forward,
                        .vocabulary = row.vocabulary,
                        .gated = extras.gated,
                        .tied = row.tied,
                        .head_width = extras.head_width,
                        .experts = extras.experts,
                        .latent = extras.latent,
                        .state_layers = extras.state_layers,
                        .attention_layers = extras.attention_layers,
                        .states = extras.states,
                        .window = extras.window,
                        .windowed_layers = extras.windowed_layers,
                        .sinks = extras.sinks,
                        .next_tokens = extras.next_tokens,
                        .expert_groups = extras.expert_groups,
                        .groups_of_token = extras.groups_of_token,
                        .delta_states = extras.delta_states,
                        .gated_heads = extras.gated_heads,
                        .chunked = extras.chunked};
  constexpr std::int64_t kFirstPositionOfOpt = 2;
  if (row.family == "gpt") make_gpt(model, row.sequence);
  if (row.family == "neox") make_gpt(model, 0);
  if (row.family == "opt") {
    make_gpt(model, row.sequence + kFirstPositionOfOpt);
    model.activation = DecoderModel::Activation::kRelu;
  }
  return model;
}

}  // namespace

void make_gpt(DecoderModel& model, std::int64_t positions) {
  model.positions = positions;
  model.gated = false;
  model.biases = true;
  model.rms_norm = false;
  model.activation = DecoderModel::Activation::kGelu;
}

std::vector<std::string_view> decoder_names() {
  std::vector<std::string_view> names;
  for (const DecoderRow& row : decoder_rows()) {
    if (row.layout) names.push_back(row.name);
  }
  return names;
}

Result<NamedDecoder> find_decoder(std::string_view name) {
  const std::string letters = letters_of(name);
  for (const DecoderRow& row : decoder_rows()) {
    if (!row.layout || letters_of(row.name) != letters) continue;
    return NamedDecoder{decoder_of(row), row.sequence};
  }
  const std::vector<std::string_view> known = decoder_names();
  return fail(ErrorCode::kUnknownName,
              fmt::format("expected a known model, a config.json or the sizes of a model, "
                          "found \"{}\"; the nearest known model is {}",
                          name, nearest_name(name, known)));
}

}  // namespace perfmodel
