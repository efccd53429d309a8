#include "transformer_arguments.hpp"

#include <fmt/format.h>

#include "terminal/command_parser.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

template <class T>
void take(const std::optional<T>& given, T& value) {
  if (given) value = *given;
}

}  // namespace

void add_transformer_options(CommandParser app, TransformerArguments& arguments,
                             const std::string& first_preset) {
  arguments.preset = first_preset;
  arguments.build.training.optimizer = TrainingOptions::Optimizer::kAdamW;
  if (!first_preset.empty()) {
    app.add_option("--preset", arguments.preset, "Start from a known model; flags override it")
        .capture_default_str();
  }
  app.add_option("--batch", arguments.batch, "Samples per batch").type_name("B");
  app.add_option("--sequence", arguments.sequence, "Tokens per sample").type_name("S");
  app.add_option("--layers", arguments.layers, "Layers").type_name("N");
  app.add_option("--hidden", arguments.hidden, "Width of a token").type_name("H");
  app.add_option("--heads", arguments.heads, "Heads of attention").type_name("N");
  app.add_option("--feed-forward", arguments.feed_forward, "Width inside of a feed-forward layer")
      .type_name("F");
  app.add_option("--vocabulary", arguments.vocabulary, "Rows of the word embeddings")
      .type_name("V");
  app.add_option("--dropout", arguments.dropout, "Probability of dropout; 0: none").type_name("P");
  app.add_option("--attention", arguments.attention,
                 "Ops of its own, or one library op with the kernel for float32 or the one for "
                 "half precision")
      .check(one_of({"eager", "efficient", "flash"}));
  app.add_option("--name", arguments.name, "Name of the model in the graph");
  add_build_options(app, arguments.build);
}

void configure(const TransformerArguments& arguments, TransformerConfig& config) {
  config.training = arguments.build.training;
  take(arguments.batch, config.batch);
  take(arguments.sequence, config.sequence);
  take(arguments.layers, config.layers);
  take(arguments.hidden, config.hidden);
  take(arguments.heads, config.heads);
  take(arguments.feed_forward, config.feed_forward);
  take(arguments.vocabulary, config.vocabulary);
  take(arguments.dropout, config.dropout);
  take(arguments.name, config.name);
  if (arguments.attention) {
    using Attention = TransformerConfig::Attention;
    config.attention = *arguments.attention == "eager"       ? Attention::kEager
                       : *arguments.attention == "efficient" ? Attention::kEfficient
                                                             : Attention::kFlash;
  }
}

void add_expert_options(CommandParser app, ExpertArguments& arguments) {
  app.add_option("--experts", arguments.experts,
                 "Feed-forward layers of N experts, whose products are grouped; 0: dense layers")
      .type_name("N");
  app.add_option("--top-k", arguments.top_k, "Experts that take a token (default: 2)")
      .type_name("K");
  app.add_option("--expert-hidden", arguments.hidden,
                 "Width inside of one expert (default: that of --feed-forward)")
      .type_name("F");
  app.add_option("--shared-experts", arguments.shared,
                 "Experts beside these that take every token, as one layer of N times the width")
      .type_name("N");
  app.add_option("--balance-loss", arguments.balance_loss,
                 "Weight of the loss that makes the loads of experts even; 0: none")
      .type_name("X");
}

Result<void> configure(const ExpertArguments& arguments, ExpertsConfig& config) {
  take(arguments.experts, config.experts);
  take(arguments.top_k, config.top_k);
  take(arguments.hidden, config.hidden);
  take(arguments.shared, config.shared);
  take(arguments.balance_loss, config.balance_loss);
  if (arguments.top_k && config.experts == 0) {
    return fail(ErrorCode::kImpossible, "top-k: expected --experts beside it, found none");
  }
  return {};
}

void tell_of_experts(const TransformerConfig& transformer, const ExpertsConfig& config,
                     ModelFacts& facts) {
  if (config.experts == 0) return;
  const std::int64_t width = config.hidden > 0 ? config.hidden : transformer.feed_forward;
  std::string line =
      fmt::format("{} of width {}, {} per token", config.experts, width, config.top_k);
  if (config.shared > 0) line += fmt::format(", {} shared", config.shared);
  facts.lines.emplace_back("experts", line);
  facts.keys["experts"] = config.experts;
  facts.keys["top_k"] = config.top_k;
  facts.keys["expert_hidden"] = width;
  facts.keys["shared_experts"] = config.shared;
  facts.keys["balance_loss"] = config.balance_loss;
}

ModelFacts transformer_facts(const TransformerConfig& config) {
  ModelFacts facts;
  facts.model = config.name;
  facts.lines = {
      {"batch", fmt::format("{} of {} tokens", config.batch, config.sequence)},
      {"layers", fmt::format("{} of width {}, {} heads, {} in feed-forward", config.layers,
                             config.hidden, config.heads, config.feed_forward)},
      {"vocabulary", grouped(config.vocabulary)}};
  facts.keys = {{"batch", config.batch},          {"sequence", config.sequence},
                {"layers", config.layers},        {"hidden", config.hidden},
                {"heads", config.heads},          {"feed_forward", config.feed_forward},
                {"vocabulary", config.vocabulary}};
  return facts;
}

}  // namespace perfmodel::cli
