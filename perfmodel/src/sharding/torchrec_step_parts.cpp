#include "torchrec_step.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/contains.hpp"

namespace perfmodel::sharding {
namespace {

bool has(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}

bool updates_tables(const PredictedOp& op) {
  return std::ranges::any_of(op.kernels, [](const PredictedKernel& kernel) {
    return kernel.family == KernelFamily::kEmbeddingBackward;
  });
}

BatchPart forward_part(BatchPart now, std::string_view name) {
  using enum BatchPart;
  const bool is_before = now == kBottomForward || now == kIdPermute || now == kLookupForward;
  if (name == "aten::split_with_sizes" && (is_before || now == kJoin)) return kInteractionForward;
  if (now == kBottomForward && (name.starts_with("fbgemm::") || name == "record_param_comms")) {
    return kIdPermute;
  }
  return is_before && has(name, "_Wait") ? kJoin : now;
}

BatchPart backward_part(BatchPart now, const PredictedOp& op) {
  using enum BatchPart;
  if (now == kInteractionBackward && (has(op.name, "WaitBackward") || has(op.name, "CppNode"))) {
    now = kSplit;
  }
  if (now == kSplit && (has(op.name, "ReqBackward") || updates_tables(op))) return kLookupBackward;
  const bool is_layer = has(op.name, "ReluBackward") || has(op.name, "AddmmBackward");
  return now == kLookupBackward && is_layer ? kBottomBackward : now;
}

BatchPart part_of(BatchPart now, const PredictedOp& op, std::string_view label) {
  using enum BatchPart;
  const bool sent = now == kIdExchange;
  if (label == "## forward ##") return forward_part(now, op.name);
  if (label == "## sparse_data_dist ##") return sent ? kIdExchange : kIdSizes;
  if (label == "## backward ##") return backward_part(sent ? kTopBackward : now, op);
  return label == "## optimizer ##" ? kDenseOptimizer : kBottomForward;
}

// A call that lasts until its copy has ended waits, too.
bool waits(const PredictedCall& call, const PredictedOp& op) {
  if (call.sync != SyncKind::kNone) return true;
  if (call.kernel < 0) return false;
  const PredictedKernel& kernel = op.kernels[static_cast<std::size_t>(call.kernel)];
  constexpr double kRounding = 1e-6;
  return call.end_us >= kernel.start_us + kernel.price.time.count() - kRounding;
}

// The wait that a call in this part belongs to, and the part that follows it.
struct Waiting {
  HostWait wait;
  BatchPart then;
};
std::optional<Waiting> waiting_in(BatchPart part) {
  using enum BatchPart;
  switch (part) {
    case kTopBackward:
    case kInteractionBackward: return Waiting{HostWait::kIndexBackward, kInteractionBackward};
    case kIdPermute:
    case kLookupForward: return Waiting{HostWait::kIdPermute, kLookupForward};
    case kInteractionForward:
    case kTopForward: return Waiting{HostWait::kIndexForward, kTopForward};
    case kIdSizes:
    case kIdExchange: return Waiting{HostWait::kIdSizes, kIdExchange};
    default: return std::nullopt;
  }
}

// Walks through the ops of a step. All between the first and the last call of one wait counts as
// that wait: the device has caught up and does little.
class StepWalk {
 public:
  explicit StepWalk(double kernel_gap_us) : kernel_gap_us_(kernel_gap_us) {}

  void walk(const PredictedOp& op, std::string_view label) {
    set_part(part_of(part_, op, label));
    waited_ = false;
    std::size_t next = 0;  // kernel that is not counted yet
    for (const PredictedCall& call : op.calls) {
      if (!waits(call, op)) continue;
      const std::size_t own = call.kernel < 0 ? next : static_cast<std::size_t>(call.kernel);
      for (; next < own && next < op.kernels.size(); ++next) {
        count(op.kernels[next], op.start_us);
      }
      wait(call);
      if (call.kernel >= 0) next = own + 1;
    }
    const double launch_us = op.calls.empty() ? op.start_us : op.calls.front().start_us;
    for (; next < op.kernels.size(); ++next) count(op.kernels[next], launch_us);
    if (waited_) end_wait(op.end_us);
    since_.host(part_) += std::max(0.0, op.end_us - host_at_us_);
    host_at_us_ = std::max(host_at_us_, op.end_us);
  }

  BatchWork finish() { return step_.add(since_); }

 private:
  void set_part(BatchPart part) {
    if (part == part_) return;
    part_ = part;
    begin_part();
  }
  void begin_part() {
    part_begin_us_ = host_at_us_;
    launches_ = false;
  }

  // The host goes on at its own pace until the op that waited ends: what follows may be captured.
  void end_wait(double us) {
    if (us <= wait_end_us_) return;
    step_.wait(*last_) += us - wait_end_us_;
    since_.lead(part_) = since_.host(part_) = 0;
    host_at_us_ = wait_end_us_ = us;
    part_begin_us_ = us;
    launches_ = false;
  }

  void count(const PredictedKernel& kernel, double launch_us) {
    if (kernel.family == KernelFamily::kCollective || kernel.stream != 0) return;
    if (!launches_) since_.lead(part_) += std::max(0.0, launch_us - part_begin_us_);
    launches_ = true;
    since_.device(part_) += kernel.price.time.count() + kernel_gap_us_;
    device_end_us_ = kernel.start_us + kernel.price.time.count();
  }

  void wait(const PredictedCall& call) {
    const auto waiting = waiting_in(part_);
    if (!waiting) return;
    if (last_ == waiting->wait) {
      step_.wait(waiting->wait) += call.end_us - wait_end_us_;
    } else {
      since_.host(part_) += std::max(0.0, call.start_us - host_at_us_);
      step_.add(since_);
      step_.wait(waiting->wait) +=
          std::max(0.0, call.end_us - std::max(call.start_us, device_end_us_));
      last_ = waiting->wait;
    }
    since_ = {};
    host_at_us_ = wait_end_us_ = call.end_us;
    part_ = waiting->then;
    waited_ = true;
    begin_part();
  }

  const double kernel_gap_us_;
  BatchPart part_ = BatchPart::kBottomForward;
  std::optional<HostWait> last_;
  BatchWork step_, since_;                  // up to the last wait, since then
  bool waited_ = false, launches_ = false;  // in this op; the part has kernels
  double part_begin_us_ = 0;
  double host_at_us_ = 0, wait_end_us_ = 0, device_end_us_ = 0;
};

}  // namespace

BatchWork torchrec_step_parts(const Prediction& prediction, double kernel_gap_us) {
  StepWalk walk(kernel_gap_us);
  for (const PredictedOp& op : prediction.ops) {
    walk.walk(op, prediction.phases[static_cast<std::size_t>(op.phase)].label);
  }
  return walk.finish();
}

}  // namespace perfmodel::sharding
