#include <fmt/format.h>

#include <cctype>
#include <string>

#include "base/each_name.hpp"
#include "core/decoder_table.hpp"
#include "files/json_file.hpp"
#include "perfmodel/detail/decoder_models.hpp"

namespace perfmodel {
namespace {

// "Qwen3_30B_a3B" and "qwen3-30b-a3b" are the same name, "gpt2" and the path "./gpt2" are not.
std::string letters_of(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || c == '/' || c == ':')
      letters += static_cast<char>(std::tolower(byte));
  }
  return letters;
}

// "1.3" in "opt-1.3b", "3" in "qwen3-30b-a3b".
std::string_view last_number(std::string_view name) {
  const std::size_t end = name.find_last_of("0123456789");
  if (end == name.npos) return "";
  const std::size_t before = name.find_last_not_of("0123456789.", end);
  return name.substr(before + 1, end - before);
}

DecoderModel decoder_of(const DecoderRow& row) {
  const DecoderExtras& extras = row.extras;
  DecoderModel model = {.name = std::string(row.name)};
  PERFMODEL_COPY(model, row, layers, hidden, heads, kv_heads, feed_forward, vocabulary, tied);
  PERFMODEL_COPY(model, extras, gated, head_width, experts, latent, state_layers, attention_layers,
                 states, window, windowed_layers, sinks, next_tokens, expert_groups,
                 groups_of_token, delta_states, gated_heads, chunked);
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

bool is_name_of(std::string_view given, std::string_view known) {
  if (letters_of(given) != letters_of(known)) return false;
  const bool is_plain = given.find_first_of("-_. ") == given.npos;
  const std::string_view size = last_number(known);
  return is_plain ? size.find('.') == size.npos : last_number(given) == size;
}

Result<NamedDecoder> find_decoder(std::string_view name) {
  for (const DecoderRow& row : decoder_rows()) {
    if (!row.layout || !is_name_of(name, row.name)) continue;
    return NamedDecoder{decoder_of(row), row.sequence};
  }
  const std::vector<std::string_view> known = decoder_names();
  return fail(ErrorCode::kUnknownName,
              fmt::format("expected a known model, a config.json or the sizes of a model, "
                          "found \"{}\"; the nearest known model is {}",
                          name, nearest_name(name, known)));
}

}  // namespace perfmodel
