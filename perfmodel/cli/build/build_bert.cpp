#include "perfmodel/graph/build_transformers.hpp"

#include <map>
#include <memory>
#include <string>

#include "build_commands.hpp"
#include "terminal/command_parser.hpp"
#include "transformer_arguments.hpp"

namespace perfmodel::cli {
namespace {

struct BertArguments : TransformerArguments {
  std::string head = "masked-lm";
};

const std::map<std::string, BertConfig::Head> kHeads = {
    {"pooler", BertConfig::Head::kPooler},
    {"masked-lm", BertConfig::Head::kMaskedLm},
    {"causal-lm", BertConfig::Head::kCausalLm},
    {"classifier", BertConfig::Head::kClassifier},
    {"pretraining", BertConfig::Head::kPreTraining},
    {"question-answering", BertConfig::Head::kQuestionAnswering}};

Result<void> run_build_bert(CommandParser app, const BertArguments& arguments) {
  auto config = bert_preset(arguments.preset);
  if (!config) return Unexpected{config.error()};
  configure(arguments, *config);
  config->head = kHeads.at(arguments.head);
  const auto graph = build_bert(*config);
  if (!graph) return Unexpected{graph.error()};
  return write_built_graph(app, arguments.build, *graph, transformer_facts(*config));
}

}  // namespace

Command build_bert_command(CommandParser parent) {
  auto arguments = std::make_shared<BertArguments>();
  const CommandParser app = parent.add_subcommand("bert", "One step of a BERT");
  add_transformer_options(app, *arguments, "bert-base");
  app.add_option("--head", arguments->head, "What stands on top")
      .check(one_of(kHeads))
      .capture_default_str();
  return {app, [app, arguments] { return run_build_bert(app, *arguments); }};
}

}  // namespace perfmodel::cli
