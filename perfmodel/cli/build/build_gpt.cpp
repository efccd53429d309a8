#include "perfmodel/graph/build_transformers.hpp"

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "build_commands.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/text_table.hpp"
#include "transformer_arguments.hpp"

namespace perfmodel::cli {
namespace {

struct GptArguments : TransformerArguments {
  std::optional<std::int64_t> positions;
  std::string activation = "gelu_new";
  ExpertArguments experts;
};

const std::map<std::string, GptConfig::Activation> kActivations = {
    {"gelu_new", GptConfig::Activation::kGeluNew},
    {"gelu_tanh", GptConfig::Activation::kGeluTanh},
    {"gelu", GptConfig::Activation::kGelu},
    {"relu", GptConfig::Activation::kRelu},
    {"silu", GptConfig::Activation::kSilu}};

Result<void> run_build_gpt(CommandParser app, const GptArguments& arguments) {
  auto config = gpt_preset(arguments.preset);
  if (!config) return Unexpected{config.error()};
  configure(arguments, *config);
  set_sequence(*config, config->sequence);
  if (arguments.positions) config->positions = *arguments.positions;
  config->activation = kActivations.at(arguments.activation);
  if (auto good = configure(arguments.experts, config->experts); !good) return good;
  const auto graph = build_gpt(*config);
  if (!graph) return Unexpected{graph.error()};
  ModelFacts facts = transformer_facts(*config);
  facts.lines.emplace_back("positions", grouped(config->positions));
  facts.lines.emplace_back("activation", arguments.activation);
  facts.keys["positions"] = config->positions;
  facts.keys["activation"] = arguments.activation;
  tell_of_experts(*config, config->experts, facts);
  return write_built_graph(app, arguments.build, *graph, facts);
}

}  // namespace

Command build_gpt_command(CommandParser parent) {
  auto arguments = std::make_shared<GptArguments>();
  const CommandParser app = parent.add_subcommand("gpt", "One step of a GPT-2 or GPT-3");
  add_transformer_options(app, *arguments, "gpt2");
  app.add_option("--positions", arguments->positions,
                 "Rows of the table of positions, the longest sequence that the model takes "
                 "(default: the preset's, or --sequence where that is more)")
      .type_name("N");
  app.add_option("--activation", arguments->activation,
                 "Between the products of a feed-forward layer: gelu_new is HuggingFace's, the "
                 "tanh form of GELU in eight ops; gelu_tanh the same in one kernel; gelu with erf")
      .check(one_of(kActivations))
      .capture_default_str();
  add_expert_options(app, arguments->experts);
  app.footer(
      "Presets: gpt2, gpt2-medium, gpt2-large, gpt2-xl are OpenAI's. gpt3-xl and gpt3-2.7b have "
      "the\n"
      "shapes that NeuSight (ASPLOS 2025) measured: its XL has 24 heads of 128 and is 3,072 wide,\n"
      "where the paper of GPT-3 says 24 heads of 128 and a width of 2,048. gpt3-175b is the "
      "paper's.\n"
      "All are written as HuggingFace's GPT2LMHeadModel.");
  return {app, [app, arguments] { return run_build_gpt(app, *arguments); }};
}

}  // namespace perfmodel::cli
