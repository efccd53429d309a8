#include "perfmodel/detail/timeline.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "perfmodel/version.hpp"
#include "timeline_events.hpp"

namespace perfmodel {
namespace {

constexpr int kHostProcess = 1, kGpuProcess = 2;  // for the first rank; the next has 3 and 4, ...
constexpr int kPhaseLane = 1, kFirstHostLane = 10, kFirstStreamLane = 1000;

constexpr std::int64_t kCorrelationsPerRank = 1'000'000'000;

double three_decimals(double us) { return std::round(us * 1e3) / 1e3; }

// Kineto's categories, so that tools for its traces know the colours.
std::string_view category(KernelFamily family) {
  if (family == KernelFamily::kCopy) return "gpu_memcpy";
  if (family == KernelFamily::kSet) return "gpu_memset";
  return "kernel";
}

std::vector<double> step_ends(const Prediction& prediction) {
  std::vector<double> ends;
  for (const auto& iteration : prediction.iterations) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + iteration.e2e_us);
  }
  return ends;
}

class Writer {
 public:
  Writer(const Prediction& prediction, const TimelineTitle& title, std::size_t rank,
         TimelineEvents& events)
      : prediction_(prediction),
        events_(events),
        host_process_(kHostProcess + 2 * static_cast<std::int64_t>(rank)),
        gpu_process_(kGpuProcess + 2 * static_cast<std::int64_t>(rank)),
        api_(title.gpu.starts_with("AMD") ? "hip" : "cuda"),
        ends_(step_ends(prediction)),
        device_shift_us_(device_shift()),
        rank_(static_cast<std::int64_t>(rank)),
        correlation_(rank_ * kCorrelationsPerRank) {
    add_tracks(title);
  }

  // Begin and end of arrows at an op, or at one of its kernels.
  struct Points {
    TimelinePoint op;
    std::vector<TimelinePoint> kernels;
  };

  std::vector<Points> run() {
    add_steps();
    add_earlier_work();
    for (const PredictedOp& op : prediction_.ops) {
      hold_host(op);
      add_phase(op);
      points_.push_back({.op = add_op(op)});
      add_calls(op);
    }
    close_phase();
    add_held_host(steps_end_);
    for (const auto& [from, to] : launches_) events_.flow(kLaunchFlow, from, to);
    return std::move(points_);
  }

 private:
  void add_tracks(const TimelineTitle& title) {
    events_.name_process(host_process_, "host (predicted): " + title.graph, host_process_ - 1);
    events_.name_process(
        gpu_process_,
        "GPU (predicted): " + title.gpu + (gpu_process_ > kGpuProcess ? ", " + title.graph : ""),
        gpu_process_ - 1);
    phases_ = events_.add_track(host_process_, kPhaseLane, "phases", 0);
    for (const PredictedOp& op : prediction_.ops) {
      threads_[op.thread];
      for (const PredictedKernel& kernel : op.kernels) streams_[kernel.stream];
    }
    for (auto& [thread, track] : threads_) {
      track = events_.add_track(host_process_, kFirstHostLane + thread,
                                "thread " + std::to_string(thread), 1 + thread);
    }
    for (auto& [stream, track] : streams_) {
      track = events_.add_track(
          gpu_process_, kFirstStreamLane + stream,
          stream == 0 ? "stream 0 (main)" : "stream " + std::to_string(stream), stream);
    }
  }

  TimelinePoint slice(TimelineTrack track, std::string_view category, std::string_view name,
                      double start, double end, std::span<const TimelineArg> args) {
    return events_.slice({.track = track,
                          .name = name,
                          .category = category,
                          .start_us = prediction_.begin_us + start,
                          .duration_us = std::max(0.0, end - start),
                          .args = args});
  }

  // Readers of traces find the iterations by these.
  void add_steps() {
    if (prediction_.ops.empty()) return;
    const TimelineTrack track = threads_.at(prediction_.ops.front().thread);
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      slice(track, "user_annotation", "ProfilerStep#" + std::to_string(i + 1),
            i == 0 ? 0 : ends_[i - 1], ends_[i], {});
    }
    steps_end_ = ends_.empty() ? 0 : ends_.back();
  }

  // In steady state the device still works for the step before when this one begins.
  void add_earlier_work() {
    constexpr int kMostSteps = 64;
    if (steps_end_ <= 0 || prediction_.started) return;
    for (int back = kMostSteps; back > 0; --back) {
      for (const PredictedOp& op : prediction_.ops) {
        for (const PredictedKernel& kernel : op.kernels) {
          const auto [start, end] = span(kernel);
          const double until = end - back * steps_end_;
          if (until <= 0) continue;
          const TimelineArg args[] = {{"op", op.name},
                                      {"step", "before"},
                                      {"device", rank_},
                                      {"stream", std::int64_t{kernel.stream}}};
          slice(streams_.at(kernel.stream), category(kernel.family), kernel.name,
                std::max(0.0, start - back * steps_end_), until, args);
        }
      }
    }
  }

  std::pair<double, double> span(const PredictedKernel& kernel) const {
    const double start = kernel.start_us - device_shift_us_;
    return {start, start + kernel.waiting_us + kernel.price.time.count()};
  }

  void add_phase(const PredictedOp& op) {
    if (op.phase != phase_) {
      close_phase();
      phase_ = op.phase;
      phase_start_ = held_us_ + op.start_us;
    }
    phase_end_ = host_end_ = held_us_ + op.end_us;
  }

  void close_phase() {
    if (phase_ < 0) return;
    slice(phases_, "user_annotation", prediction_.phases[phase_].label, phase_start_, phase_end_,
          {});
  }

  // The launch queue holds a host that runs ahead, here all at once at the end of each step, as a
  // call that waits for the device.
  void hold_host(const PredictedOp& op) {
    const std::size_t step = step_of(op);
    if (step == step_) return;
    if (phase_ >= 0) close_phase();
    phase_ = -1;
    add_held_host(ends_[step - 1]);
    held_us_ = held_before(step);
    step_ = step;
  }

  void add_held_host(double until) {
    if (!prediction_.device_bound || host_end_ >= until) return;
    const TimelineArg args[] = {{"why", std::string_view("held by the full launch queue")},
                                {"correlation", ++correlation_}};
    slice(threads_.at(prediction_.ops.back().thread), api_ + "_runtime", api_ + "EventSynchronize",
          host_end_, until, args);
  }

  // Factor on the steps of a host that runs ahead: they become as long as the device's, if those
  // are shorter.
  double pace() const {
    if (!prediction_.device_bound || ends_.empty()) return 1;
    return std::min(1.0, prediction_.ops.back().end_us / ends_.back());
  }
  std::size_t step_of(const PredictedOp& op) const {
    constexpr double kRounding = 1e-3;
    std::size_t step = 0;
    while (step + 1 < ends_.size() && op.end_us > ends_[step] * pace() + kRounding) ++step;
    return step;
  }
  double held_before(std::size_t step) const {
    return step == 0 ? 0 : ends_[step - 1] * (1 - pace());
  }

  TimelinePoint add_op(const PredictedOp& op) {
    // Calls of a label have no gap before them and may begin with a wait.
    const bool own_call_of_label =
        op.gap_level == KeyLevel::kMissing && op.op_level == KeyLevel::kMissing;
    double start = op.start_us;
    if (own_call_of_label && !op.calls.empty()) start = std::min(start, op.calls.front().start_us);
    const TimelineArg args[] = {{"id", op.id},
                                {"host_us", three_decimals(op.host_us)},
                                {"wait_us", three_decimals(op.wait_us)},
                                {"gap_key", to_string(op.gap_level)},
                                {"op_key", to_string(op.op_level)}};
    return slice(threads_.at(op.thread), own_call_of_label ? "user_annotation" : "cpu_op", op.name,
                 held_us_ + start, held_us_ + op.end_us, args);
  }

  void add_calls(const PredictedOp& op) {
    std::vector<TimelinePoint>& kernels = points_.back().kernels;
    kernels.resize(op.kernels.size());
    for (const PredictedCall& call : op.calls) {
      ++correlation_;
      const TimelineArg args[] = {{"correlation", correlation_}};
      const TimelinePoint at = slice(threads_.at(op.thread), api_ + "_runtime", call_name(op, call),
                                     held_us_ + call.start_us, held_us_ + call.end_us, args);
      if (call.kernel < 0) continue;
      const auto k = call.kernel;
      kernels[k] = add_kernel(op, op.kernels[k]);
      launches_.emplace_back(at, kernels[k]);
    }
  }

  std::string call_name(const PredictedOp& op, const PredictedCall& call) const {
    if (call.kernel >= 0) {
      const KernelFamily family = op.kernels[call.kernel].family;
      return api_ + (family == KernelFamily::kCopy  ? "MemcpyAsync"
                     : family == KernelFamily::kSet ? "MemsetAsync"
                                                    : "LaunchKernel");
    }
    return api_ + (call.sync == SyncKind::kDevice  ? "DeviceSynchronize"
                   : call.sync == SyncKind::kEvent ? "EventSynchronize"
                                                   : "StreamSynchronize");
  }

  // If the host runs ahead, the device works on earlier steps. The work is drawn as in a step that
  // finds the device idle: as early as its launches allow.
  double device_shift() const {
    if (!prediction_.device_bound) return 0;
    double earliest = std::numeric_limits<double>::infinity();
    for (const PredictedOp& op : prediction_.ops) {
      for (const PredictedCall& call : op.calls) {
        if (call.kernel < 0) continue;
        const double start = op.kernels[call.kernel].start_us;
        earliest = std::min(earliest, start - held_before(step_of(op)) - call.end_us);
      }
    }
    return std::isfinite(earliest) ? std::max(0.0, earliest) : 0;
  }

  TimelinePoint add_kernel(const PredictedOp& op, const PredictedKernel& kernel) {
    const Price& price = kernel.price;
    const auto [start, end] = span(kernel);
    const TimelineArg args[] = {{"op", op.name},
                                {"op_id", op.id},
                                {"device", rank_},
                                {"stream", std::int64_t{kernel.stream}},
                                {"correlation", correlation_},
                                {"bytes", static_cast<std::int64_t>(kernel.copied_bytes)},
                                {"family", to_string(kernel.family)},
                                {"model", std::string_view(price.model)},
                                {"bound", to_string(price.bound)},
                                {"in_range", price.in_range},
                                {"low_us", three_decimals(price.low.count())},
                                {"high_us", three_decimals(price.high.count())},
                                {"waiting_us", three_decimals(kernel.waiting_us)},
                                {"inferred", true}};
    const std::span<const TimelineArg> shown =
        std::span(args).first(std::size(args) - (kernel.inferred ? 0 : 1));
    return slice(streams_.at(kernel.stream), category(kernel.family), kernel.name, start, end,
                 shown);
  }

  const Prediction& prediction_;
  TimelineEvents& events_;
  TimelineTrack phases_;
  std::map<std::int32_t, TimelineTrack> threads_, streams_;
  double host_end_ = 0, steps_end_ = 0;
  std::int32_t phase_ = -1;
  double phase_start_ = 0, phase_end_ = 0;
  const std::int64_t host_process_, gpu_process_;
  const std::string api_;
  const std::vector<double> ends_;  // ends of the steps
  const double device_shift_us_;
  double held_us_ = 0;  // time for which the host was held so far
  std::size_t step_ = 0;
  const std::int64_t rank_;
  std::int64_t correlation_;
  std::vector<Points> points_;  // per op
  std::vector<std::pair<TimelinePoint, TimelinePoint>> launches_;
};

Result<void> check(const Prediction& prediction) {
  if (prediction.ops.empty()) {
    return decline(
        "expected a prediction that places its ops in time for a timeline, found none (method lin "
        "gives sums only)");
  }
  const auto ends = [](const PredictedOp& op) { return op.end_us > 0; };
  if (std::ranges::any_of(prediction.ops, ends)) return {};
  return decline(
      "expected a prediction with the calls of its ops for a timeline, found none "
      "(PredictOptions::keep_calls)");
}

// Calls `make` with the head of the timeline.
template <class Make>
auto with_head(const Prediction& prediction, const TimelineTitle& title, Make&& make) {
  const std::string made_by = "perfmodel " + version_text();
  const TimelineArg other_data[] = {{"graph", std::string_view(title.graph)},
                                    {"gpu", std::string_view(title.gpu)},
                                    {"e2e_us", three_decimals(prediction.e2e_us)},
                                    {"made_by", std::string_view(made_by)}};
  const std::string_view devices[] = {title.gpu};
  return make(TimelineEvents::Head{.other_data = other_data, .devices = devices});
}

Result<void> draw(std::span<const Prediction* const> ranks, std::span<const TimelineTitle> titles,
                  std::size_t path_of, TimelineEvents& events) {
  std::vector<std::vector<Writer::Points>> points;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    points.push_back(Writer(*ranks[r], titles[r], r, events).run());
  }
  // Arrows start at starts of slices: a slice that began before the last one on the path is left
  // out.
  std::vector<TimelinePoint> path;
  for (const auto& at : ranks[path_of]->path_points) {
    const auto& op = points[at.rank][at.op];
    const TimelinePoint point = at.kernel < 0 ? op.op : op.kernels[at.kernel];
    if (path.empty() || point.ns >= path.back().ns) path.push_back(point);
  }
  if (path.size() > 1) events.flow(kCriticalPathFlow, path);
  return events.finish();
}

}  // namespace

Result<std::string> timeline_json(const Prediction& prediction, const TimelineTitle& title) {
  PERFMODEL_TRY_TO(check(prediction));
  std::string text;
  auto events = with_head(prediction, title, [&](const TimelineEvents::Head& head) {
    return TimelineEvents([&text](std::string_view piece) { text += piece; }, head);
  });
  const Prediction* const rank = &prediction;
  PERFMODEL_TRY_TO(draw({&rank, 1}, {&title, 1}, 0, events));
  return text;
}

Result<void> write_timeline(std::span<const Prediction* const> ranks,
                            std::span<const TimelineTitle> titles, std::size_t path_of,
                            const std::filesystem::path& file) {
  PERFMODEL_CHECK(ranks.size() == titles.size() && path_of < ranks.size());
  for (const Prediction* rank : ranks) PERFMODEL_TRY_TO(check(*rank));
  auto events = with_head(*ranks[path_of], titles[path_of], [&](const TimelineEvents::Head& head) {
    return TimelineEvents::create(file, head);
  });
  if (!events) return Unexpected{events.error()};
  return draw(ranks, titles, path_of, *events);
}

Result<void> write_timeline(const Prediction& prediction, const TimelineTitle& title,
                            const std::filesystem::path& file) {
  const Prediction* const rank = &prediction;
  return write_timeline({&rank, 1}, {&title, 1}, 0, file);
}

}  // namespace perfmodel
