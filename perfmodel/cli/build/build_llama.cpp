#include "perfmodel/graph/build_transformers.hpp"

#include <memory>
#include <optional>

#include "build_commands.hpp"
#include "terminal/command_parser.hpp"
#include "transformer_arguments.hpp"

namespace perfmodel::cli {
namespace {

struct LlamaArguments : TransformerArguments {
  std::optional<std::int64_t> kv_heads;
  ExpertArguments experts;
  std::int64_t lora = 0;
  std::string lora_on = "attention";
};

Result<void> run_build_llama(CommandParser app, const LlamaArguments& arguments) {
  auto config = llama_preset(arguments.preset);
  if (!config) return Unexpected{config.error()};
  configure(arguments, *config);
  if (arguments.kv_heads) config->kv_heads = *arguments.kv_heads;
  if (auto good = configure(arguments.experts, config->experts); !good) return good;
  config->lora.rank = arguments.lora;
  config->lora.on = arguments.lora_on == "all" ? LoraConfig::On::kAll : LoraConfig::On::kAttention;
  const auto graph = build_llama(*config);
  if (!graph) return Unexpected{graph.error()};
  ModelFacts facts = transformer_facts(*config);
  tell_of_experts(*config, config->experts, facts);
  return write_built_graph(app, arguments.build, *graph, facts);
}

}  // namespace

Command build_llama_command(CommandParser parent) {
  auto arguments = std::make_shared<LlamaArguments>();
  const CommandParser app = parent.add_subcommand("llama", "One step of a Llama-like decoder");
  add_transformer_options(app, *arguments, "llama-7b");
  app.add_option("--kv-heads", arguments->kv_heads, "Heads of keys and values").type_name("N");
  add_expert_options(app, arguments->experts);
  app.add_option("--lora", arguments->lora,
                 "Rank of adapters; all other weights are frozen (0: all learn)")
      .type_name("R");
  app.add_option("--lora-on", arguments->lora_on, "Layers that have adapters")
      .check(one_of({"attention", "all"}))
      .capture_default_str()
      .type_name("WHICH");
  return {app, [app, arguments] { return run_build_llama(app, *arguments); }};
}

}  // namespace perfmodel::cli
