#include "named_models.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>

#include "base/model_source.hpp"
#include "configured_decoder.hpp"
#include "files/lower_case.hpp"
#include "model_family.hpp"
#include "rewrites/model_batch.hpp"

namespace perfmodel {
namespace {

std::string batch_of(const ModelFacts& facts) {
  const auto batch = std::ranges::find(
      facts.lines, "batch", [](const auto& line) { return std::string_view(line.first); });
  return batch == facts.lines.end() ? "" : ", batch " + batch->second;
}

template <class Config>
Result<ExecutionGraph> graph_of_preset(const ModelFamily<Config>& family, Config config,
                                       const std::string& word, std::string_view preset,
                                       std::int64_t batch) {
  if (family.after_sizes) family.after_sizes(config);
  constexpr bool kHasBatch = requires { config.batch; };  // else the graph is resized
  if constexpr (kHasBatch) {
    if (batch > 0) config.batch = batch;
  }
  PERFMODEL_TRY(graph, family.build(config));
  if (kHasBatch) graph->source = fmt::format("{}{}", kModelSource, word);
  graph->warnings.insert(
      graph->warnings.begin(),
      fmt::format("{} is what `build {} --preset {}{}` makes{}", word, family.name, preset,
                  kHasBatch && batch > 0 ? fmt::format(" --batch {}", batch) : "",
                  batch_of(family.facts(config))));
  return graph;
}

std::string without_dashes(std::string_view text) {
  std::string made(text);
  std::erase_if(made, [](char c) { return c == '-' || c == '_' || c == '.'; });
  return made;
}

/// Without what Hugging Face adds to a model's name: "Llama-2-7b-hf" is "llama-2-7b".
std::string plain_name(std::string_view word) {
  std::string name = lower_case(word);
  if (name.starts_with("meta-llama-")) name.erase(0, std::string_view("meta-").size());
  for (const std::string_view added : {"-v0.1", "-hf", "-uncased", "-instruct", "-chat"}) {
    if (name.ends_with(added)) name.resize(name.size() - added.size());
  }
  return name;
}

/// Whether a preset names a model without its family: "gpt2", not "default" or "tbd".
bool names_model(std::string_view preset, std::string_view family) {
  const bool has_digit = preset.find_first_of("0123456789") != preset.npos;
  return without_dashes(preset).find(without_dashes(family)) != std::string::npos ||
         (has_digit && family != "torchrec" && family != "lstm" && family != "decoder");
}

std::optional<Result<ExecutionGraph>> graph_of_any_preset(const std::string& word,
                                                          std::int64_t batch) {
  const std::size_t colon = word.find(':');
  const std::string_view wanted = colon == word.npos ? "" : std::string_view(word).substr(0, colon);
  const std::string_view preset = std::string_view(word).substr(colon == word.npos ? 0 : colon + 1);
  std::optional<Result<ExecutionGraph>> graph;
  const auto look = [&](const auto& family) {
    if (graph || !family.preset) return;
    if (wanted.empty() ? !names_model(preset, family.name) : family.name != wanted) return;
    if (auto config = family.preset(preset)) {
      graph = graph_of_preset(family, std::move(*config), word, preset, batch);
    }
  };
  std::apply([&](const auto&... family) { (look(family), ...); }, builder_families());
  return graph;
}

// Scores of all tokens are written, of which a rewrite cannot tell those that a window hides.
void warn_of_windows(const std::string& word, const NamedDecoder& decoder, ExecutionGraph& graph) {
  const DecoderModel& model = decoder.model;
  if (model.windowed_layers == 0 || decoder.sequence <= model.window || model.sinks) return;
  graph.warnings.push_back(fmt::format(
      "{} of {} layers of {} look back {} tokens alone: --attention prices scores of all tokens, "
      "a graph of `build decoder --preset {} --attention flash` has fewer",
      model.windowed_layers, model.layers, word, model.window, word));
}

Result<ExecutionGraph> graph_of_known(const std::string& word, const NamedDecoder& decoder,
                                      std::int64_t batch) {
  batch = std::max<std::int64_t>(1, batch);
  PERFMODEL_TRY(graph, graph_of_decoder(decoder, batch));
  graph->source = fmt::format("{}{}", kModelSource, word);
  warn_of_windows(word, decoder, *graph);
  graph->warnings.insert(
      graph->warnings.begin(),
      fmt::format("{} is built with batch {} of {} tokens", word, batch, decoder.sequence));
  return graph;
}

/// Presets of a family, as its refusal of another name lists them: "expected ... (a, b, ...), ...".
std::vector<std::string> presets_in(const std::string& refusal) {
  const std::size_t begin = refusal.find('('), end = refusal.find(')');
  std::vector<std::string> names;
  if (begin == refusal.npos || end == refusal.npos) return names;
  std::istringstream list(refusal.substr(begin + 1, end - begin - 1));
  for (std::string name; std::getline(list >> std::ws, name, ',');) {
    if (name != "...") names.push_back(name);
  }
  return names;
}

std::set<std::string> all_models() {
  std::set<std::string> names;
  for (const std::string_view name : decoder_names()) names.emplace(name);
  const auto add = [&](const auto& family) {
    if (!family.preset) return;
    const auto refused = family.preset("?");
    if (refused) return;
    for (const std::string& preset : presets_in(refused.error().message)) {
      const bool is_clear = names_model(preset, family.name);
      names.insert(is_clear ? preset : fmt::format("{}:{}", family.name, preset));
    }
  };
  std::apply([&](const auto&... family) { (add(family), ...); }, builder_families());
  return names;
}

}  // namespace

std::string models_like(const std::string& word) {
  const std::set<std::string> all = all_models();
  const std::string wanted = without_dashes(plain_name(word));
  std::vector<std::string> like;
  std::ranges::copy_if(all, std::back_inserter(like), [&](const std::string& name) {
    return wanted.size() > 1 && without_dashes(name).starts_with(wanted);
  });
  if (!like.empty()) return fmt::format("like it: {}", fmt::join(like, ", "));
  return fmt::format("known: {}", fmt::join(all, ", "));
}

std::optional<Result<ExecutionGraph>> graph_of_model(const std::string& word, std::int64_t batch) {
  if (is_model_config(word)) {
    const auto decoder = read_decoder_config(word);
    return decoder ? graph_of_known(word, *decoder, batch) : Unexpected{decoder.error()};
  }
  std::error_code ignored;
  if (word.ends_with(".json") || std::filesystem::exists(word, ignored)) return std::nullopt;
  // "openai/gpt2" is an owner's model, unless the owner is a folder.
  const std::size_t slash = word.find('/');
  if (slash == word.npos) return graph_of_name(word, batch);
  const bool is_path =
      slash != word.rfind('/') || std::filesystem::exists(word.substr(0, slash), ignored);
  return is_path ? std::nullopt : graph_of_name(word.substr(slash + 1), batch);
}

std::optional<Result<ExecutionGraph>> graph_of_name(const std::string& word, std::int64_t batch) {
  if (auto graph = graph_of_any_preset(word, batch)) return graph;
  const std::set<std::string> all = all_models();
  const auto known = std::ranges::find_if(
      all, [plain = plain_name(word)](const auto& model) { return is_name_of(plain, model); });
  const std::string& name = known == all.end() ? word : *known;
  if (auto graph = graph_of_any_preset(name, batch)) return graph;
  if (const auto decoder = find_decoder(name)) return graph_of_known(name, *decoder, batch);
  return std::nullopt;
}

std::optional<Result<ExecutionGraph>> model_with_batch(const ExecutionGraph& graph,
                                                       std::int64_t batch) {
  std::error_code ignored;
  if (batch <= 0 || !is_known_model(graph)) return std::nullopt;
  if (std::filesystem::exists(graph.source, ignored)) return std::nullopt;  // a file named so
  return graph_of_model(graph.source.substr(kModelSource.size()), batch);
}

Result<RecordedProgram> program_of(const std::string& word) {
  auto graph = graph_of_model(word);
  if (!graph) return read_recorded_program(word);
  return std::move(*graph).map([](ExecutionGraph built) {
    return RecordedProgram{std::move(built), nullptr};
  });
}

}  // namespace perfmodel
