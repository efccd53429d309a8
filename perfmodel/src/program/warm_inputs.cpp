#include "warm_inputs.hpp"

#include <algorithm>
#include <optional>

#include "price/terms.hpp"
#include "step/by_id.hpp"

namespace perfmodel {
namespace {

/// The bytes that kernels touched one after the other, and which storages were among them.
class TouchedBytes {
 public:
  TouchedBytes(const ExecutionGraph& graph, const Gpu& gpu, const WarmInputs& warm)
      : all_held_(warm.all_held * terms::cache_bytes(gpu)),
        none_held_(warm.none_held * terms::cache_bytes(gpu)),
        touches_(graph.tensors.size()) {}

  /// A kernel that touches `bytes`. On average it is halfway when it comes to one of them.
  void begin_kernel(double bytes) {
    at_ = end_ + bytes / 2;
    end_ += bytes;
  }

  /// Bytes of the tensor that the kernel finds in the cache.
  double held(const Tensor& tensor) {
    const Touch& last = touches_[tensor.storage_id];
    const double since = at_ - last.at;
    const double share = std::clamp((none_held_ - since) / (none_held_ - all_held_), 0.0, 1.0);
    return share * std::min(static_cast<double>(tensor.bytes()), last.bytes);
  }

  void note(const Tensor& tensor) {
    touches_[tensor.storage_id] = {.at = at_, .bytes = static_cast<double>(tensor.bytes())};
  }

 private:
  struct Touch {
    double at = 0, bytes = 0;
  };
  double all_held_, none_held_;
  double at_ = 0, end_ = 0;
  ById<Touch> touches_;  // by storage; of no bytes: none so far
};

template <class Visit>
void visit_stored(const ExecutionGraph& graph, std::span<const Argument> arguments, Visit visit) {
  for_each_tensor(graph, arguments, [&](const Tensor& tensor) {
    if (tensor.on_gpu() && tensor.storage_id != 0) visit(tensor);
  });
}

/// Backward passes of norms and norms of channels were not measured.
bool is_forward_norm(const KernelWork& work) {
  const auto* rows = std::get_if<RowShape>(&work.shape);
  return rows && !rows->is_channel && work.bytes_read.value < 1.3 * work.bytes_written.value;
}

double saved_share(const KernelQuestion& question, const WarmInputs& warm) {
  if (question.traced) return 0;
  switch (question.work.family) {
    case KernelFamily::kElementwise: return warm.elementwise;
    case KernelFamily::kSoftmax: return warm.softmax;
    case KernelFamily::kNorm: return is_forward_norm(question.work) ? warm.norm : 0;
    default: return 0;
  }
}

// Heuristic prices know the cache already: `terms::stream_time` counts smaller tensors as cached.
bool is_heuristic(const Price& price) { return price.model.ends_with("heuristic"); }

void shorten(Price& price, double saved_share, const Gpu& gpu) {
  if (is_heuristic(price)) return;
  const double us = price.time.count();
  const double above = us - terms::empty_kernel_us(gpu);
  if (above <= 0) return;
  const double kept = 1 - saved_share * above / us;
  for (Microseconds* time : {&price.time, &price.low, &price.high}) *time *= kept;
}

}  // namespace

void take_warm_inputs(const ExecutionGraph& graph, std::span<const KernelQuestion> questions,
                      const Gpu& gpu, std::span<PredictedKernel> kernels) {
  const std::optional<WarmInputs>& warm = gpu.architecture.warm_inputs;
  if (!warm) return;
  TouchedBytes touched(graph, gpu, *warm);
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const KernelQuestion& question = questions[i];
    const double bytes = question.work.bytes().value * question.tasks;
    touched.begin_kernel(bytes);
    if (question.node < 0) continue;
    const auto inputs = graph.inputs(question.node);
    if (const double share = saved_share(question, *warm); share > 0 && bytes > 0) {
      double held = 0;
      visit_stored(graph, inputs, [&](const Tensor& tensor) { held += touched.held(tensor); });
      const double read = question.work.bytes_read.value * question.tasks;
      shorten(kernels[i].price, share * std::min(held, read) / bytes, gpu);
    }
    // The next kernel of a node touches the same tensors: only the last one counts.
    const bool is_last = i + 1 == questions.size() || questions[i + 1].node != question.node ||
                         saved_share(questions[i + 1], *warm) > 0;
    if (!is_last) continue;
    const auto note = [&](const Tensor& tensor) { touched.note(tensor); };
    visit_stored(graph, inputs, note);
    visit_stored(graph, graph.outputs(question.node), note);
  }
}

}  // namespace perfmodel
