#include <fmt/format.h>

#include <string>
#include <string_view>

#include "perfmodel/graph/rewrites/fusion.hpp"
#include "rewrite_flags.hpp"

namespace perfmodel::cli {

namespace {

constexpr std::string_view kLayoutDetail = ":lstm-layout=";

Unexpected unknown_lstm_word(std::string_view expected, std::string_view found) {
  return fail(ErrorCode::kUnknownName, fmt::format("expected {}, found {}", expected, found));
}

// "fused:lstm-layout=hidden-major"
Result<Rewrite> parse_lstm(const std::string& text) {
  const std::size_t detail = text.find(kLayoutDetail);
  const std::string_view form = std::string_view(text).substr(0, detail);
  const std::string_view layout =
      detail == std::string::npos ? "batch-major"
                                  : std::string_view(text).substr(detail + kLayoutDetail.size());
  if (layout != "batch-major" && layout != "hidden-major") {
    return unknown_lstm_word("the layout batch-major or hidden-major", layout);
  }
  const bool hidden_major = layout == "hidden-major";
  const auto call = [](RecurrentCall which) -> Rewrite {
    return [which](const ExecutionGraph& graph) { return rewrite_recurrent_layers(graph, which); };
  };
  if (form == "fused") {
    return [which = hidden_major ? RecurrentLayout::kHiddenMajor : RecurrentLayout::kBatchMajor](
               const ExecutionGraph& graph) { return rewrite_recurrent_cells(graph, which); };
  }
  if (form != "unfused" && form != "library" && form != "fused-wavefront") {
    return unknown_lstm_word("unfused, fused, fused-wavefront or library", form);
  }
  if (hidden_major) {
    return unknown_lstm_word(
        "--lstm fused beside the layout hidden-major (libraries have their own)", form);
  }
  if (form == "unfused") return check_unfused_cells;
  return call(form == "library" ? RecurrentCall::kLibrary : RecurrentCall::kWavefront);
}

}  // namespace

RewriteOption lstm_option() {
  return {
      .flag = "--lstm",
      .value = "unfused|fused|fused-wavefront|library",
      .help =
          "Cells of LSTM, GRU and RNN layers in single ops (unfused) get one pointwise kernel "
          "forward and one backward, the inputs of all steps one product (fused); whole layers "
          "become calls of cuDNN (library) or run side by side on streams of their own "
          "(fused-wavefront)",
      .parse = parse_lstm,
      .details = {{"--lstm-layout", "batch-major|hidden-major",
                   "How --lstm fused lays out states and gates: with the batch as rows of the "
                   "products, or the gates (EcoRNN), which turns the sequence and the result"}}};
}

}  // namespace perfmodel::cli
