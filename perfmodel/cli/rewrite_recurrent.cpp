#include <fmt/format.h>

#include "perfmodel/graph/rewrites/fusion.hpp"
#include "rewrite_flags.hpp"

namespace perfmodel::cli {

RewriteOption lstm_option() {
  return {.flag = "--lstm",
          .value = "unfused|fused",
          .help =
              "Cells of LSTM, GRU and RNN layers in single ops (unfused) get one pointwise kernel "
              "forward and one backward (fused)",
          .parse = [](const std::string& text) -> Result<Rewrite> {
            if (text == "fused") return rewrite_recurrent_cells;
            if (text == "unfused") return check_unfused_cells;
            return fail(ErrorCode::kUnknownName,
                        fmt::format("expected unfused or fused, found {} (a library's layers are a "
                                    "graph of their own: build lstm --form library)",
                                    text));
          }};
}

}  // namespace perfmodel::cli
