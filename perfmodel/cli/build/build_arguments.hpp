#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "perfmodel/graph/detail/training_options.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "perfmodel/result.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {

/// What all `build` commands share.
struct BuildArguments {
  TrainingOptions training;
  std::string output;
  bool json = false;
  std::vector<NamedRewrite> rewrites;  ///< of what was built: precision, checkpoints, ...
};

/// Adds -o, --json and the flags of rewrites that suit built graphs.
void add_output_options(CommandParser app, BuildArguments& arguments);

/// Adds those and what is in TrainingOptions: --device, --torch, --phase, --optimizer, ...
void add_build_options(CommandParser app, BuildArguments& arguments);
/// Without --optimizer, for families that have one of their own.
void add_build_options_but_optimizer(CommandParser app, BuildArguments& arguments);
/// A flag that takes the name of an optimizer.
Option add_optimizer_option(CommandParser app, const std::string& flag,
                            const std::function<void(TrainingOptions::Optimizer)>& set,
                            const std::string& help);

/// "perfpredict build bert --batch 8": the command line that was parsed, for the head of the graph.
/// Files without folders, no output, options in the order of `--help`.
std::string build_command_line(CommandParser app);

/// A parser whose `build` commands hand their graph over: they write no file and print nothing.
class GraphTaker : public ProgramParser {
 public:
  std::function<void(ExecutionGraph)> take;
};

/// What a family tells of its model: lines for people, keys for programs.
struct ModelFacts {
  std::string model;  ///< its name
  std::vector<std::pair<std::string, std::string>> lines;
  Json keys = Json::object();
};

/// Applies the rewrites that were asked for, writes the graph and prints what it holds: the model,
/// numbers of parameters, FLOP, nodes and ops. Below a GraphTaker, the graph is handed to that.
Result<void> write_built_graph(CommandParser app, const BuildArguments& arguments,
                               const ExecutionGraph& graph, const ModelFacts& facts);

}  // namespace perfmodel::cli
