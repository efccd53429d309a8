#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "build_arguments.hpp"
#include "perfmodel/graph/build_transformers.hpp"

namespace perfmodel::cli {

/// Options that all transformer families share; what is not given stays as the preset has it.
struct TransformerArguments {
  BuildArguments build;
  std::string preset;
  std::optional<std::int64_t> batch, sequence, layers, hidden, heads, feed_forward, vocabulary;
  std::optional<double> dropout;
  std::optional<std::string> attention, name;
};

/// Adds them and those of `add_build_options`; AdamW is the optimizer unless told otherwise.
/// A family without presets gives an empty first one.
void add_transformer_options(CommandParser app, TransformerArguments& arguments,
                             const std::string& first_preset);

/// Writes over what was given.
void configure(const TransformerArguments& arguments, TransformerConfig& config);

/// What was given of layers of experts.
struct ExpertArguments {
  std::optional<std::int64_t> experts, top_k, hidden, shared;
  std::optional<double> balance_loss;
};
void add_expert_options(CommandParser app, ExpertArguments& arguments);
/// Error: --top-k for layers without experts.
Result<void> configure(const ExpertArguments& arguments, ExpertsConfig& config);
/// Adds to the lines and keys of the transformer, if it has experts.
void tell_of_experts(const TransformerConfig& transformer, const ExpertsConfig& config,
                     ModelFacts& facts);

/// Lines and keys that tell of a transformer.
ModelFacts transformer_facts(const TransformerConfig& config);

}  // namespace perfmodel::cli
