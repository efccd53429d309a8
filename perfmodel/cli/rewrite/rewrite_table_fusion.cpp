#include <fmt/format.h>

#include "perfmodel/graph/rewrites/fusion.hpp"
#include "rewrite_flags.hpp"

namespace perfmodel::cli {
namespace {

Result<Rewrite> parse_table_fusion(const std::string& text) {
  using Optimizer = TableFusionRewrite::Optimizer;
  TableFusionRewrite rewrite;
  if (text == "rowwise_adagrad") {
    rewrite.optimizer = Optimizer::kRowwiseAdagrad;
  } else if (text != "sgd") {
    return fail(ErrorCode::kUnknownName,
                fmt::format("expected sgd or rowwise_adagrad, found {}", text));
  }
  return [rewrite](const ExecutionGraph& graph) { return rewrite_table_fusion(graph, rewrite); };
}

}  // namespace

RewriteOption fuse_tables_option() {
  return {.flag = "--fuse-tables",
          .value = "sgd|rowwise_adagrad",
          .help =
              "All nn.EmbeddingBag of a step become one FBGEMM lookup, which trains the tables in "
              "its backward pass",
          .for_build = true,
          .parse = parse_table_fusion};
}

}  // namespace perfmodel::cli
