#include "analyze/rules.hpp"

namespace perfmodel::findings {
namespace unfused_attention {
namespace {

constexpr double kLeastShare = 0.03;
// Between two products: scale, mask, casts, softmax, dropout and their backward kernels. The
// longest eager form that we recorded (T5 under autocast) has nine.
constexpr std::size_t kMostBetween = 16;

bool is_product(const KernelFact& kernel) {
  return kernel.kind == DeviceKind::kKernel && kernel.family == KernelFamily::kGemm;
}

// Scores are products of one matrix per sample and head.
bool is_batched_product(const StepFacts& step, const KernelFact& kernel) {
  if (!is_product(kernel)) return false;
  if (kernel.work) {
    const auto* shape = std::get_if<GemmShape>(&kernel.work->shape);
    if (shape) return shape->batch > 1;
  }
  const std::string_view op = kernel.op < 0 ? std::string_view() : step.ops[kernel.op].name;
  return op == "aten::bmm" || op == "aten::baddbmm";
}

bool works_on_scores(const KernelFact& kernel) {
  if (kernel.kind == DeviceKind::kSet) return true;
  if (kernel.kind == DeviceKind::kCopy) return kernel.copy == CopyKind::kDeviceToDevice;
  if (kernel.kind != DeviceKind::kKernel) return false;
  switch (kernel.family) {
    case KernelFamily::kElementwise:
    case KernelFamily::kDropout:
    case KernelFamily::kSoftmax:
    case KernelFamily::kReduction:
    case KernelFamily::kTranspose:
    case KernelFamily::kSmall: return true;
    default: return false;
  }
}

bool is_log_softmax(const StepFacts& step, const KernelFact& kernel) {
  const std::string_view op = kernel.op < 0 ? std::string_view() : step.ops[kernel.op].name;
  return op.find("log_softmax") != std::string_view::npos ||
         kernel.name.find("LogSoftMax") != std::string_view::npos;
}

// The kernels between the batched products around a softmax; empty: it is no attention's.
std::vector<std::size_t> scores_around(const StepFacts& step, std::span<const std::size_t> order,
                                       std::size_t softmax) {
  const auto kernel = [&](std::size_t place) -> const KernelFact& {
    return step.kernels[order[place]];
  };
  std::size_t first = softmax, last = softmax;
  while (first > 0 && works_on_scores(kernel(first - 1))) --first;
  while (last + 1 < order.size() && works_on_scores(kernel(last + 1))) ++last;
  if (first == 0 || last + 1 == order.size() || last - first >= kMostBetween) return {};
  if (!is_batched_product(step, kernel(first - 1))) return {};
  if (!is_batched_product(step, kernel(last + 1))) return {};
  return {order.begin() + static_cast<std::ptrdiff_t>(first),
          order.begin() + static_cast<std::ptrdiff_t>(last + 1)};
}

void find_unfused_attention(const StepFacts& step, const Gpu*, std::vector<Suspicion>& found) {
  Suspicion made;
  std::size_t softmaxes = 0;
  for (const auto& order : kernels_by_stream(step)) {
    for (std::size_t place = 0; place < order.size(); ++place) {
      const KernelFact& softmax = step.kernels[order[place]];
      if (softmax.family != KernelFamily::kSoftmax || is_log_softmax(step, softmax)) continue;
      const std::vector<std::size_t> between = scores_around(step, order, place);
      if (between.empty()) continue;
      ++softmaxes;
      if (made.where.empty()) made.where = step.path(softmax.op);
      for (const std::size_t i : between) {
        if (!made.repair.launches.contains(i)) made.share_us += step.kernels[i].time_us;
        made.repair.remove_kernel(i);
      }
    }
  }
  if (made.share_us < kLeastShare * step.span_us) return;
  free_ops_of_removed(step, made.repair);
  const auto steps = static_cast<double>(step.steps);
  made.title = fmt::format(
      "Attention runs as many kernels: {:.0f} around {:.0f} softmaxes per step write and read "
      "every "
      "score, {}",
      static_cast<double>(made.repair.launches.size()) / steps,
      static_cast<double>(softmaxes) / steps, per_step(made.share_us, step));
  made.confidence = Confidence::kMedium;
  made.advice =
      "F.scaled_dot_product_attention(q, k, v, is_causal=True) (of transformers: "
      "attn_implementation=\"sdpa\") keeps scores on the chip. The gain counts with products that "
      "take as long as now; `rewrite --attention flash` predicts it";
  found.push_back(std::move(made));
}

}  // namespace
}  // namespace unfused_attention

const Rule kUnfusedAttention = {
    {"unfused-attention",
     "kernels between the products of attention (scale, mask, softmax, dropout) take 3 % of the "
     "step"},
    unfused_attention::find_unfused_attention};

}  // namespace perfmodel::findings
