#pragma once

#include <functional>
#include <string>
#include <vector>

#include "builders/model_family.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "perfmodel/result.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

/// Arguments of all `build` commands.
struct BuildArguments {
  TrainingOptions training;
  std::string output;
  bool json = false;
  std::vector<NamedRewrite> rewrites;  ///< applied to the built graph: precision, checkpoints, ...
};

/// Adds -o, --json and the flags of rewrites that suit built graphs.
void add_output_options(CommandParser app, BuildArguments& arguments);

/// A parser whose `build` commands hand their graph over: they write no file and print nothing.
class GraphTaker : public ProgramParser {
 public:
  std::function<void(ExecutionGraph)> take;
};

/// Applies the requested rewrites, writes the graph and prints its contents: the model, numbers of
/// parameters, FLOP, nodes and ops. Below a GraphTaker, the graph is handed to that.
Result<void> write_built_graph(CommandParser app, const BuildArguments& arguments,
                               const ExecutionGraph& graph, const std::string& model,
                               const ModelFacts& facts);

}  // namespace perfmodel::cli
