#include "analyze/rules.hpp"

namespace perfmodel::findings {
namespace pageable_upload {
namespace {

constexpr double kLeastShare = 0.01;
// Below it CUDA stages copies anyway and the call does not block (CUDA Runtime API, "API
// synchronization behavior").
constexpr double kLeastBytes = 64 * 1024;
// Share of PCIe's theoretical rate; pinned copies reach 80 to 90 % (nvbandwidth on A100 and H100).
constexpr double kPinnedShare = 0.8;

void find_pageable_upload(const StepFacts& step, const Gpu* gpu, std::vector<Suspicion>& found) {
  if (!step.is_recorded) return;  // a graph does not say where the host's memory is
  Suspicion made;
  double bytes = 0;
  std::int32_t op = -1;
  for (std::size_t i = 0; i < step.kernels.size(); ++i) {
    const KernelFact& copy = step.kernels[i];
    if (copy.copy != CopyKind::kHostToDevice || !copy.pageable) continue;
    if (copy.copied_bytes < kLeastBytes) continue;
    made.share_us += copy.time_us;
    bytes += copy.copied_bytes;
    op = copy.op;
    double pinned = copy.time_us;
    if (gpu && gpu->pcie_bandwidth.value > 0) {
      pinned = copy.copied_bytes / (kPinnedShare * gpu->pcie_bandwidth.value) * 1e6;
    }
    made.repair.kernel_us[i] = std::min(copy.time_us, pinned);
  }
  if (made.share_us < kLeastShare * step.span_us) return;
  // The call no longer waits for the copy.
  for (std::size_t i = 0; i < step.waits.size(); ++i) {
    const std::int32_t waiting = step.waits[i].op;
    const bool copies = step.waits[i].call.find("emcpy") != std::string_view::npos;
    for (const auto& [kernel, us] : made.repair.kernel_us) {
      if (copies && step.kernels[kernel].op == waiting) made.repair.waits.insert(i);
    }
  }
  made.title =
      fmt::format("{:.1f} MB per step go to the GPU from pageable memory at {:.1f} GB/s",
                  bytes / 1e6 / static_cast<double>(step.steps), bytes / made.share_us / 1e3);
  made.where = step.path(op);
  made.confidence = gpu ? Confidence::kHigh : Confidence::kMedium;
  made.advice =
      "pin_memory=True in the DataLoader and .to(device, non_blocking=True): the copy runs at the "
      "rate of PCIe while the host goes on";
  found.push_back(std::move(made));
}

}  // namespace
}  // namespace pageable_upload

const Rule kPageableUpload = {
    {"pageable-upload",
     "copies to the GPU from memory that is not pinned, 64 KiB each or more, take "
     "1 % of the step (traces)"},
    pageable_upload::find_pageable_upload};

}  // namespace perfmodel::findings
