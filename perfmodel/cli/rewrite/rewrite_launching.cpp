#include <utility>

#include "rewrite_flags.hpp"

namespace perfmodel::cli {
namespace {

RewriteOption launching_option(std::string flag, Launching launching, std::string help) {
  return {.flag = std::move(flag),
          .value = {},
          .help = std::move(help),
          .parse = [](const std::string&) -> Result<Rewrite> {
            return [](const ExecutionGraph& graph) -> Result<ExecutionGraph> { return graph; };
          },
          .of_ops_alone = true,
          .launching = launching};
}

}  // namespace

RewriteOption cuda_graphs_option() {
  return launching_option("--cuda-graphs", Launching::kCudaGraphs, kCudaGraphsHelp);
}

RewriteOption compiled_option() {
  return launching_option("--compiled", Launching::kCompiled, kCompiledHelp);
}

}  // namespace perfmodel::cli
