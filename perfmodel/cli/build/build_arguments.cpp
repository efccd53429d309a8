#include "build_arguments.hpp"

#include <fmt/format.h>

#include <map>

#include "cli/rewrite/rewrite_options.hpp"
#include "cli/shared/arguments.hpp"
#include "perfmodel/graph/model_size.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

template <class Enum>
Option add_choice(CommandParser app, const std::string& name, Enum& value,
                  const std::map<std::string, Enum>& choices, const std::string& help) {
  return app
      .add_option_function<std::string>(
          name, [&value, choices](const std::string& text) { value = choices.at(text); }, help)
      .check(one_of(choices));
}

void parse_version(const std::string& text, PyTorch& pytorch) {
  if (text == "1.13") {
    pytorch.major = 1;
    pytorch.minor = 13;
  } else {
    pytorch.major = 2;
    pytorch.minor = text == "2.0" ? 0 : 4;
  }
}

/// "2.94 PFLOP"
std::string flop_text(double flop) {
  if (flop >= 1e15) return fmt::format("{:.4g} PFLOP", flop / 1e15);
  if (flop >= 1e12) return fmt::format("{:.4g} TFLOP", flop / 1e12);
  return fmt::format("{:.4g} GFLOP", flop / 1e9);
}

std::vector<std::string_view> names(const std::vector<NamedRewrite>& rewrites) {
  std::vector<std::string_view> list;
  for (const NamedRewrite& rewrite : rewrites) list.push_back(rewrite.name);
  return list;
}

// At the root of the commands, if somebody wants their graph.
const GraphTaker* graph_taker(CommandParser app) {
  return dynamic_cast<const GraphTaker*>(&app.root());
}

}  // namespace

Option add_optimizer_option(CommandParser app, const std::string& flag,
                            const std::function<void(TrainingOptions::Optimizer)>& set,
                            const std::string& help) {
  using Optimizer = TrainingOptions::Optimizer;
  static const std::map<std::string, Optimizer> choices = {
      {"none", Optimizer::kNoOptimizer},  {"sgd", Optimizer::kSgd},
      {"momentum", Optimizer::kMomentum}, {"adagrad", Optimizer::kAdagrad},
      {"adam", Optimizer::kAdam},         {"adamw", Optimizer::kAdamW}};
  return app
      .add_option_function<std::string>(
          flag, [set](const std::string& text) { set(choices.at(text)); }, help)
      .check(one_of(choices));
}

void add_build_options(CommandParser app, BuildArguments& arguments) {
  TrainingOptions& training = arguments.training;
  add_optimizer_option(
      app, "--optimizer",
      [&training](TrainingOptions::Optimizer optimizer) { training.optimizer = optimizer; },
      "Optimizer of all parameters");
  add_build_options_but_optimizer(app, arguments);
}

void add_build_options_but_optimizer(CommandParser app, BuildArguments& arguments) {
  using Training = TrainingOptions;
  Training& training = arguments.training;
  add_choice<Training::Phase>(
      app, "--phase", training.phase,
      {{"training", Training::Phase::kTraining}, {"forward", Training::Phase::kForward}},
      "A whole training step, or its forward pass");
  add_choice<Training::Implementation>(
      app, "--implementation", training.implementation,
      {{"default", Training::Implementation::kDefault},
       {"loop", Training::Implementation::kLoop},
       {"foreach", Training::Implementation::kForeach},
       {"fused", Training::Implementation::kFused}},
      "How the optimizer walks the parameters: one by one, as lists, in one op; the default of "
      "this PyTorch on this device");
  add_choice<Training::ZeroGrad>(app, "--zero-grad", training.zero_grad,
                                 {{"default", Training::ZeroGrad::kDefault},
                                  {"none", Training::ZeroGrad::kToNone},
                                  {"zero", Training::ZeroGrad::kToZero}},
                                 "Gradients are dropped, or kept and filled with zeros");
  add_choice<Training::ZeroGradPlace>(
      app, "--zero-grad-place", training.zero_grad_place,
      {{"before-backward", Training::ZeroGradPlace::kBeforeBackward},
       {"before-forward", Training::ZeroGradPlace::kBeforeForward},
       {"before-loss", Training::ZeroGradPlace::kBeforeLoss}},
      "Where zero_grad is called");
  add_choice<Training::Regions>(app, "--regions", training.regions,
                                {{"off", Training::Regions::kOff},
                                 {"loss-in-forward", Training::Regions::kLossInForward},
                                 {"loss-in-backward", Training::Regions::kLossInBackward}},
                                "Labels around forward pass, backward pass and optimizer");
  app.add_option_function<std::string>(
         "--device",
         [&training](const std::string& text) {
           if (text == "cpu") training.pytorch.device = {.kind = Device::Kind::kCpu};
         },
         "Where the model computes")
      .check(one_of({"gpu", "cpu"}));
  app.add_option_function<std::string>(
         "--torch", [&training](const std::string& text) { parse_version(text, training.pytorch); },
         "Version of PyTorch whose ops are written")
      .check(one_of({"1.13", "2.0", "2"}));
  app.add_flag_function(
      "--pinned-input,!--no-pinned-input",
      [&training](std::int64_t count) { training.pinned_input = count > 0; },
      "Whether the batch lies in pinned host memory");
  app.add_flag("--resident-input", training.resident_input,
               "The batch lies where the model computes; nothing is copied");
  app.add_flag_function(
      "--mkl,!--no-mkl", [&training](std::int64_t count) { training.pytorch.mkl = count > 0; },
      "On a CPU: linear algebra by MKL, or by the generic BLAS of other builds");
  add_output_options(app, arguments);
}

void add_output_options(CommandParser app, BuildArguments& arguments) {
  app.add_option("-o,--output", arguments.output, "Graph to write (.json or .json.gz)")
      .required()
      .type_name("GRAPH");
  app.add_flag("--json", arguments.json, "Print a summary as one JSON document");
  add_rewrite_options(app, arguments.rewrites, RewriteFlags::kForBuild);
}

std::string build_command_line(CommandParser app) {
  std::string text = "perfpredict build " + app.name();
  for (const Option option : app.options()) {
    if (option.count() == 0) continue;
    const std::string name = option.long_names().front();
    if (name == "output" || name == "json") continue;
    const bool file = option.type_name() == "FILE";
    for (const std::string& value : option.values()) {
      if (option.is_flag()) {
        text += value == "false" || value.starts_with('-') ? " --no-" + name : " --" + name;
      } else {
        text += " --" + name + " " + (file ? file_name(value) : value);
      }
    }
  }
  return text;
}

Result<void> write_built_graph(CommandParser app, const BuildArguments& arguments,
                               const ExecutionGraph& built, const ModelFacts& facts) {
  auto rewritten = apply_rewrites(built, arguments.rewrites);
  if (!rewritten) return Unexpected{rewritten.error()};
  if (const GraphTaker* taker = graph_taker(app)) {
    taker->take(std::move(*rewritten));
    return {};
  }
  const ExecutionGraph& graph = *rewritten;
  const std::string command = build_command_line(app);
  const auto written = write_execution_graph(graph, arguments.output, {.generator = command});
  if (!written) return written;
  const ModelSize size = model_size(graph);
  const std::size_t ops = top_level_ops(graph).size();
  if (arguments.json) {
    Json json = document(schemas::kBuild);
    json.update({{"graph", file_name(arguments.output)},
                 {"built", true},
                 {"model", facts.model},
                 {"parameters", size.parameters},
                 {"matrix_flop", size.matrix_flop},
                 {"nodes", graph.nodes.size()},
                 {"rewrites", names(arguments.rewrites)},
                 {"top_level_ops", ops},
                 {"command", command}});
    json.update(facts.keys);
    return print_document(json);
  }
  TextList list;
  list.row("graph", arguments.output + " (built)");
  list.row("model", facts.model);
  for (const auto& [label, text] : facts.lines) list.row(label, text);
  list.row("parameters", grouped(size.parameters));
  if (!arguments.rewrites.empty()) {
    list.row("rewritten by", fmt::format("{}", fmt::join(names(arguments.rewrites), " ")));
  }
  list.row("products", flop_text(size.matrix_flop) + " in matrix products and convolutions");
  list.row("size", fmt::format("{}, {}", counted(graph.nodes.size(), "node"),
                               counted(ops, "top-level op")));
  return print_report("\n" + list.text());
}

}  // namespace perfmodel::cli
