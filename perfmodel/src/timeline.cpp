#include "perfmodel/timeline.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/timeline_events.hpp"
#include "perfmodel/version.hpp"

namespace perfmodel {
namespace {

constexpr int kHostProcess = 1, kGpuProcess = 2;  // of the first rank; the next has 3 and 4, ...
constexpr int kPhaseLane = 1, kFirstHostLane = 10, kFirstStreamLane = 1000;

double rounded(double us) { return std::round(us * 1e3) / 1e3; }

// The categories are those of Kineto, so tools for its traces know the colours.
std::string_view category(KernelFamily family) {
  if (family == KernelFamily::kCopy) return "gpu_memcpy";
  if (family == KernelFamily::kSet) return "gpu_memset";
  return "kernel";
}

class Writer {
 public:
  Writer(const Prediction& prediction, const TimelineTitle& title, std::size_t rank,
         TimelineEvents& events)
      : prediction_(prediction),
        events_(events),
        host_process_(kHostProcess + 2 * static_cast<std::int64_t>(rank)),
        gpu_process_(kGpuProcess + 2 * static_cast<std::int64_t>(rank)) {
    add_tracks(title);
  }

  // Where arrows to an op, or one of its kernels, begin and end.
  struct Points {
    TimelinePoint op;
    std::vector<TimelinePoint> kernels;
  };

  std::vector<Points> run() {
    // The host is one serial chain over its threads, so the end of every op follows from the sums.
    for (const PredictedOp& op : prediction_.ops) {
      end_ += op.host_us + op.wait_us;
      add_phase(op);
      points_.push_back({.op = add_op(op)});
      for (const PredictedKernel& kernel : op.kernels) {
        points_.back().kernels.push_back(add_kernel(op, kernel));
      }
    }
    close_phase();
    for (const Points& points : points_) {
      for (const TimelinePoint& kernel : points.kernels) {
        events_.flow(kLaunchFlow, points.op, kernel);
      }
    }
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

  void add_phase(const PredictedOp& op) {
    if (op.phase != phase_) {
      close_phase();
      phase_ = op.phase;
      phase_start_ = op.start_us;
    }
    phase_end_ = end_;
  }

  void close_phase() {
    if (phase_ < 0) return;
    slice(phases_, "user_annotation", prediction_.phases[static_cast<std::size_t>(phase_)].label,
          phase_start_, phase_end_, {});
  }

  TimelinePoint add_op(const PredictedOp& op) {
    // Calls of a label have no gap before them and may begin with a wait.
    const bool own_call_of_label =
        op.gap_level == KeyLevel::kMissing && op.op_level == KeyLevel::kMissing;
    const double start = own_call_of_label ? end_ - op.host_us - op.wait_us : op.start_us;
    const TimelineTrack track = threads_.at(op.thread);
    const TimelineArg args[] = {{"id", op.id},
                                {"host_us", rounded(op.host_us)},
                                {"wait_us", rounded(op.wait_us)},
                                {"gap_key", to_string(op.gap_level)},
                                {"op_key", to_string(op.op_level)}};
    const TimelinePoint point =
        slice(track, own_call_of_label ? "user_annotation" : "cpu_op", op.name, start, end_, args);
    if (op.wait_us <= 0) return point;
    double wait_end = end_;
    const auto limit = std::lower_bound(device_ends_.begin(), device_ends_.end(), end_);
    if (limit != device_ends_.begin() && *(limit - 1) > start) wait_end = *(limit - 1);
    for (const PredictedKernel& kernel : op.kernels) {  // a blocking copy of its own decides
      const double end = kernel.start_us + kernel.price.time.count();
      if (end <= end_ && end > start && (wait_end == end_ || end > wait_end)) wait_end = end;
    }
    wait_end = std::clamp(wait_end, std::min(end_, start + op.wait_us), end_);
    slice(track, "wait", "wait for the GPU", std::max(start, wait_end - op.wait_us), wait_end, {});
    return point;
  }

  TimelinePoint add_kernel(const PredictedOp& op, const PredictedKernel& kernel) {
    const Price& price = kernel.price;
    const double end = kernel.start_us + kernel.waiting_us + price.time.count();
    device_ends_.insert(std::upper_bound(device_ends_.begin(), device_ends_.end(), end), end);
    const TimelineArg args[] = {{"op", op.name},
                                {"op_id", op.id},
                                {"device", std::int64_t{0}},
                                {"stream", std::int64_t{kernel.stream}},
                                {"family", to_string(kernel.family)},
                                {"model", std::string_view(price.model)},
                                {"bound", to_string(price.bound)},
                                {"in_range", price.in_range},
                                {"low_us", rounded(price.low.count())},
                                {"high_us", rounded(price.high.count())},
                                {"waiting_us", rounded(kernel.waiting_us)},
                                {"inferred", true}};
    const std::span<const TimelineArg> shown =
        std::span(args).first(std::size(args) - (kernel.inferred ? 0 : 1));
    return slice(streams_.at(kernel.stream), category(kernel.family), kernel.name, kernel.start_us,
                 end, shown);
  }

  const Prediction& prediction_;
  TimelineEvents& events_;
  TimelineTrack phases_;
  std::map<std::int32_t, TimelineTrack> threads_, streams_;
  double end_ = 0;  // of the op at hand
  std::int32_t phase_ = -1;
  double phase_start_ = 0, phase_end_ = 0;
  const std::int64_t host_process_, gpu_process_;
  std::vector<Points> points_;       // per op
  std::vector<double> device_ends_;  // of the work of the ops before, sorted
};

Result<void> check(const Prediction& prediction) {
  if (!prediction.ops.empty()) return {};
  return fail(ErrorCode::kImpossible,
              "expected a prediction that places its ops in time for a timeline, found none "
              "(method lin gives sums only)");
}

// Calls `make` with the head of the timeline.
template <class Make>
auto with_head(const Prediction& prediction, const TimelineTitle& title, Make&& make) {
  const std::string made_by = "perfmodel " + version_text();
  const TimelineArg other_data[] = {{"graph", std::string_view(title.graph)},
                                    {"gpu", std::string_view(title.gpu)},
                                    {"e2e_us", rounded(prediction.e2e_us)},
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
  // Arrows start where slices do: what began before the last one on the path is left out.
  std::vector<TimelinePoint> path;
  for (const auto& at : ranks[path_of]->path_points) {
    const auto& op = points[static_cast<std::size_t>(at.rank)][static_cast<std::size_t>(at.op)];
    const TimelinePoint point =
        at.kernel < 0 ? op.op : op.kernels[static_cast<std::size_t>(at.kernel)];
    if (path.empty() || point.ns >= path.back().ns) path.push_back(point);
  }
  if (path.size() > 1) events.flow(kCriticalPathFlow, path);
  return events.finish();
}

}  // namespace

Result<std::string> timeline_json(const Prediction& prediction, const TimelineTitle& title) {
  if (auto good = check(prediction); !good) return Unexpected{good.error()};
  std::string text;
  auto events = with_head(prediction, title, [&](const TimelineEvents::Head& head) {
    return TimelineEvents([&text](std::string_view piece) { text += piece; }, head);
  });
  const Prediction* const rank = &prediction;
  if (auto done = draw({&rank, 1}, {&title, 1}, 0, events); !done) return Unexpected{done.error()};
  return text;
}

Result<void> write_timeline(std::span<const Prediction* const> ranks,
                            std::span<const TimelineTitle> titles, std::size_t path_of,
                            const std::filesystem::path& file) {
  PERFMODEL_CHECK(ranks.size() == titles.size() && path_of < ranks.size());
  for (const Prediction* rank : ranks) {
    if (auto good = check(*rank); !good) return good;
  }
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
