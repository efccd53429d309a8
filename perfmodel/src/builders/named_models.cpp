#include "named_models.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "configured_decoder.hpp"
#include "model_family.hpp"

namespace perfmodel {
namespace {

std::string batch_of(const ModelFacts& facts) {
  const auto batch = std::ranges::find(
      facts.lines, "batch", [](const auto& line) { return std::string_view(line.first); });
  return batch == facts.lines.end() ? "" : ", batch " + batch->second;
}

template <class Config>
Result<ExecutionGraph> graph_of_preset(const ModelFamily<Config>& family, Config config,
                                       const std::string& word, std::string_view preset) {
  if (family.after_sizes) family.after_sizes(config);
  auto graph = family.build(config);
  if (!graph) return graph;
  graph->warnings.insert(graph->warnings.begin(),
                         fmt::format("{} is what `build {} --preset {}` makes{}", word, family.name,
                                     preset, batch_of(family.facts(config))));
  return graph;
}

/// Whether a preset names a model without its family: "gpt2", not "default" or "tbd".
bool names_model(std::string_view preset, std::string_view family) {
  const auto letters = [](std::string_view text) {
    std::string made(text);
    std::erase_if(made, [](char c) { return c == '-' || c == '_'; });
    return made;
  };
  const bool has_digit = preset.find_first_of("0123456789") != preset.npos;
  return letters(preset).find(letters(family)) != std::string::npos ||
         (has_digit && family != "torchrec" && family != "lstm");
}

std::optional<Result<ExecutionGraph>> graph_of_any_preset(const std::string& word) {
  const std::size_t colon = word.find(':');
  const std::string_view wanted = colon == word.npos ? "" : std::string_view(word).substr(0, colon);
  const std::string_view preset = std::string_view(word).substr(colon == word.npos ? 0 : colon + 1);
  std::optional<Result<ExecutionGraph>> graph;
  const auto look = [&](const auto& family) {
    if (graph || !family.preset) return;
    if (wanted.empty() ? !names_model(preset, family.name) : family.name != wanted) return;
    if (auto config = family.preset(preset)) {
      graph = graph_of_preset(family, std::move(*config), word, preset);
    }
  };
  std::apply([&](const auto&... family) { (look(family), ...); }, builder_families());
  return graph;
}

Result<ExecutionGraph> graph_of_known(const std::string& word, const NamedDecoder& decoder) {
  auto graph = graph_of_decoder(decoder, word);
  if (!graph) return graph;
  graph->warnings.insert(
      graph->warnings.begin(),
      fmt::format("{} is built with batch 1 of {} tokens", word, decoder.sequence));
  return graph;
}

}  // namespace

std::optional<Result<ExecutionGraph>> graph_of_model(const std::string& word) {
  if (is_model_config(word)) {
    const auto decoder = read_decoder_config(word);
    return decoder ? graph_of_known(word, *decoder) : Unexpected{decoder.error()};
  }
  std::error_code ignored;
  if (names_config(word) || std::filesystem::exists(word, ignored)) return std::nullopt;
  if (auto graph = graph_of_any_preset(word)) return graph;
  if (const auto decoder = find_decoder(word)) return graph_of_known(word, *decoder);
  return std::nullopt;
}

}  // namespace perfmodel
