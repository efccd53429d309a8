#include "perfmodel/layout.hpp"

namespace perfmodel {
namespace {

struct ParameterParts {
  double embeddings = 0, layers = 0, head = 0;  ///< `head` with the last norm
};

ParameterParts parameter_parts(const DecoderModel& model) {
  const auto real = [](std::int64_t number) { return static_cast<double>(number); };
  const double h = real(model.hidden), f = real(model.feed_forward);
  const double kv = model.kv_heads > 0 ? h / real(model.heads) * real(model.kv_heads) : h;
  const double norm = model.rms_norm ? h : 2 * h;
  double layer = 2 * h * h + 2 * h * kv + (model.gated ? 3 : 2) * h * f + 2 * norm;
  if (model.biases) layer += h + 2 * kv + h + (model.gated ? 2 : 1) * f + h;
  return {.embeddings = real(model.vocabulary + model.positions) * h,
          .layers = real(model.layers) * layer,
          .head = norm + (model.tied ? 0 : real(model.vocabulary) * h)};
}

}  // namespace

std::int64_t parameter_count(const DecoderModel& model) {
  const ParameterParts parts = parameter_parts(model);
  return static_cast<std::int64_t>(parts.embeddings + parts.layers + parts.head);
}

double model_flop_per_token(const DecoderModel& model, std::int64_t sequence) {
  const ParameterParts parts = parameter_parts(model);
  const double h = static_cast<double>(model.hidden);
  const double output = model.tied ? static_cast<double>(model.vocabulary) * h : 0;
  return 6 * (parts.layers + parts.head + output) +
         12 * static_cast<double>(model.layers) * h * static_cast<double>(sequence);
}

std::string_view to_string(Sharding sharding) {
  switch (sharding) {
    case Sharding::kNone:
      return "none";
    case Sharding::kZero1:
      return "1";
    case Sharding::kZero2:
      return "2";
    case Sharding::kZero3:
      return "3";
    case Sharding::kFsdp:
      return "fsdp";
    case Sharding::kHsdp:
      return "hsdp";
  }
  return "unknown";
}

std::string_view to_string(LayoutRecompute recompute) {
  switch (recompute) {
    case LayoutRecompute::kNone:
      return "none";
    case LayoutRecompute::kSelective:
      return "selective";
    case LayoutRecompute::kFull:
      return "full";
  }
  return "unknown";
}

std::string_view to_string(PipelineOrder order) {
  switch (order) {
    case PipelineOrder::k1F1B:
      return "1f1b";
    case PipelineOrder::kGpipe:
      return "gpipe";
    case PipelineOrder::kZbH1:
      return "zb-h1";
    case PipelineOrder::kZbV:
      return "zb-v";
    case PipelineOrder::kDualPipe:
      return "dualpipe";
  }
  return "unknown";
}

std::string_view to_string(LayoutJob::Precision precision) {
  switch (precision) {
    case LayoutJob::Precision::kBf16:
      return "bf16";
    case LayoutJob::Precision::kFp16:
      return "fp16";
    case LayoutJob::Precision::kFp8:
      return "fp8";
    case LayoutJob::Precision::kFp32:
      return "fp32";
  }
  return "unknown";
}

std::string_view to_string(LayoutTerm term) {
  switch (term) {
    case LayoutTerm::kCompute:
      return "compute";
    case LayoutTerm::kHost:
      return "host";
    case LayoutTerm::kTensorParallel:
      return "tensor_parallel";
    case LayoutTerm::kPipelineTransfers:
      return "pipeline_transfers";
    case LayoutTerm::kBubble:
      return "bubble";
    case LayoutTerm::kDataParallel:
      return "data_parallel";
    case LayoutTerm::kOptimizer:
      return "optimizer";
  }
  return "unknown";
}

}  // namespace perfmodel
