#include "families.hpp"

/// torchvision's ops of object detectors.
///
/// nms(boxes [N, 4], scores, overlap): its children sort; one kernel compares all pairs (about 14
/// FLOP each) and writes N bits per box.
/// roi_align(features, regions, ..., samples): every result is a mean of samples^2 points, each
/// interpolated from 4 neighbours (about 10 FLOP); neighbours come from the cache, so memory sees
/// the features once. Backward: the same points, added atomically to a result that a child has set
/// to zero, hence read and written.
namespace perfmodel::ops {
namespace {

bool lower_nms(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* boxes = op.tensor_input(0);
  if (!boxes || boxes->rank != 2) return false;
  const double count = static_cast<double>(dim(op, *boxes, 0));
  if (count == 0) return true;
  kernels.push_back(make_work(KernelFamily::kElementwise, boxes->dtype, bytes(*boxes),
                              count * count / 8, 14 * count * count / 2));
  return true;
}

bool lower_roi_align(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Traffic t = traffic(op);
  const Tensor* x = op.tensor_input(0);
  if (!t.any || !x) return false;
  constexpr double kFlopPerPoint = 10;
  const bool is_backward = op.name().find("backward") != std::string_view::npos;
  // Samples per bin and axis: what data-dependent counts (0 and less) come to is about 2.
  const std::size_t at = is_backward ? 9 : 5;
  const std::int64_t given = op.inputs().size() > at ? op.inputs()[at].integer : 0;
  const double samples = given > 0 ? static_cast<double>(given) : 2;
  const double results =
      static_cast<double>(is_backward ? x->numel : t.output_elements) * samples * samples;
  kernels.push_back(make_work(KernelFamily::kPooling, t.dtype,
                              t.read + (is_backward ? t.written : 0), t.written,
                              kFlopPerPoint * results));
  return true;
}

}  // namespace

std::span<const NamedLower> detection_rules() {
  static constexpr NamedLower kRules[] = {
      {"detection.nms", lower_nms},
      {"detection.roi_align", lower_roi_align},
  };
  return kRules;
}

}  // namespace perfmodel::ops
