#include <fmt/format.h>

#include "perfmodel/graph/rewrites/fusion.hpp"
#include "rewrite_flags.hpp"

namespace perfmodel::cli {

RewriteOption lstm_option() {
  return {
      .flag = "--lstm",
      .value = "unfused|fused|fused-wavefront|library",
      .help =
          "Cells of LSTM, GRU and RNN layers in single ops (unfused) get one pointwise kernel "
          "forward and one backward (fused); whole layers become calls of cuDNN (library) or run "
          "side by side on streams of their own (fused-wavefront)",
      .parse = [](const std::string& text) -> Result<Rewrite> {
        const auto call = [](RecurrentCall which) -> Rewrite {
          return [which](const ExecutionGraph& graph) {
            return rewrite_recurrent_layers(graph, which);
          };
        };
        if (text == "fused") return rewrite_recurrent_cells;
        if (text == "unfused") return check_unfused_cells;
        if (text == "library") return call(RecurrentCall::kLibrary);
        if (text == "fused-wavefront") return call(RecurrentCall::kWavefront);
        return fail(
            ErrorCode::kUnknownName,
            fmt::format("expected unfused, fused, fused-wavefront or library, found {}", text));
      }};
}

}  // namespace perfmodel::cli
