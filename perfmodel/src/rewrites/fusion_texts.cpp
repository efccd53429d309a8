#include <fmt/format.h>

#include <string_view>

#include "rewrite_texts.hpp"

namespace perfmodel {
namespace {

Unexpected unknown_fusion(std::string_view expected, std::string_view found) {
  return fail(ErrorCode::kUnknownName, fmt::format("expected {}, found {}", expected, found));
}

}  // namespace

Result<TableFusionRewrite> read_table_fusion(const std::string& text) {
  using Optimizer = TableFusionRewrite::Optimizer;
  if (text == "sgd") return TableFusionRewrite{};
  if (text == "rowwise_adagrad") return TableFusionRewrite{.optimizer = Optimizer::kRowwiseAdagrad};
  return unknown_fusion("sgd or rowwise_adagrad", text);
}

Result<LossFusion> read_loss_fusion(const std::string& text) {
  if (text == "liger") return LossFusion::kCrossEntropy;
  if (text == "linear") return LossFusion::kLinear;
  return unknown_fusion("liger or linear", text);
}

Result<AttentionBackend> read_attention(const std::string& text) {
  if (text == "flash") return AttentionBackend::kFlash;
  if (text == "efficient") return AttentionBackend::kEfficient;
  if (text == "cudnn") return AttentionBackend::kCudnn;
  if (text == "math") return AttentionBackend::kMath;
  return unknown_fusion("flash, efficient, cudnn or math", text);
}

Result<CompileRewrite> read_compile(const std::string& text) {
  constexpr std::string_view kExpected = "default, reduce-overhead or max-autotune[,model|,step]";
  const std::size_t comma = text.find(',');
  const std::string_view mode = std::string_view(text).substr(0, comma);
  CompileRewrite rewrite;
  if (mode == "reduce-overhead") {
    rewrite.mode = CompileMode::kReduceOverhead;
  } else if (mode == "max-autotune") {
    rewrite.mode = CompileMode::kMaxAutotune;
  } else if (mode != "default") {
    return unknown_fusion(kExpected, text);
  }
  if (comma == std::string::npos) return rewrite;
  const std::string_view extent = std::string_view(text).substr(comma + 1);
  if (extent != "model" && extent != "step") return unknown_fusion(kExpected, text);
  rewrite.extent = extent == "model" ? CompileExtent::kModel : CompileExtent::kStep;
  return rewrite;
}

Result<Rewrite> read_fusion(const std::string& text) {
  if (text == "post-scheduling") return rewrite_post_scheduling_fusion;
  return unknown_fusion("post-scheduling", text);
}

Result<Rewrite> read_recurrent(const std::string& text) {
  constexpr std::string_view kLayoutDetail = ":lstm-layout=";
  const std::size_t detail = text.find(kLayoutDetail);
  const std::string_view form = std::string_view(text).substr(0, detail);
  const std::string_view layout =
      detail == std::string::npos ? "batch-major"
                                  : std::string_view(text).substr(detail + kLayoutDetail.size());
  const bool hidden_major = layout == "hidden-major";
  if (layout != "batch-major" && !hidden_major) {
    return unknown_fusion("the layout batch-major or hidden-major", layout);
  }
  if (form == "fused") {
    return [rows = hidden_major ? RecurrentLayout::kHiddenMajor : RecurrentLayout::kBatchMajor](
               const ExecutionGraph& graph) { return rewrite_recurrent_cells(graph, rows); };
  }
  if (form != "unfused" && form != "library" && form != "fused-wavefront") {
    return unknown_fusion("unfused, fused, fused-wavefront or library", form);
  }
  if (hidden_major) {
    return unknown_fusion("--lstm fused with the layout hidden-major (libraries have their own)",
                          form);
  }
  if (form == "unfused") return check_unfused_cells;
  return [call = form == "library" ? RecurrentCall::kLibrary : RecurrentCall::kWavefront](
             const ExecutionGraph& graph) { return rewrite_recurrent_layers(graph, call); };
}

}  // namespace perfmodel
