#include "perfmodel/timeline.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace perfmodel {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kHostProcess = 1, kGpuProcess = 2;
constexpr int kPhaseLane = 1, kFirstHostLane = 10, kFirstStreamLane = 1000;

double rounded(double us) { return std::round(us * 1e3) / 1e3; }

std::string to_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

int host_lane(std::int32_t thread) { return kFirstHostLane + thread; }
int stream_lane(std::int32_t stream) { return kFirstStreamLane + stream; }

// The categories are those of Kineto, so tools for its traces know the colours.
std::string_view category(KernelFamily family) {
  if (family == KernelFamily::kCopy) return "gpu_memcpy";
  if (family == KernelFamily::kSet) return "gpu_memset";
  return "kernel";
}

class Writer {
 public:
  Writer(const Prediction& prediction, const TimelineTitle& title)
      : prediction_(prediction), title_(title) {}

  std::string run() {
    names();
    // The host is one serial chain over its threads, so the end of every op follows from the sums.
    for (const PredictedOp& op : prediction_.ops) {
      end_ += op.host_us + op.wait_us;
      add_phase(op);
      add_op(op);
      for (const PredictedKernel& kernel : op.kernels) add_kernel(op, kernel);
    }
    close_phase();
    text_ += "\n]}\n";
    return std::move(text_);
  }

 private:
  void emit(const Json& event) {
    text_ += first_ ? "\n" : ",\n";
    first_ = false;
    text_ += to_line(event);
  }

  void name_lane(const char* what, int process, int lane, const std::string& name, int order) {
    emit({{"ph", "M"},
          {"name", std::string(what) + "_name"},
          {"pid", process},
          {"tid", lane},
          {"args", {{"name", name}}}});
    emit({{"ph", "M"},
          {"name", std::string(what) + "_sort_index"},
          {"pid", process},
          {"tid", lane},
          {"args", {{"sort_index", order}}}});
  }

  void names() {
    const Json head = {{"graph", title_.graph},
                       {"gpu", title_.gpu},
                       {"e2e_us", rounded(prediction_.e2e_us)},
                       {"made_by", "perfmodel"}};
    const Json devices = {{{"id", 0}, {"name", title_.gpu}}};
    text_ = "{\"displayTimeUnit\": \"ms\", \"otherData\": " + to_line(head) +
            ", \"deviceProperties\": " + to_line(devices) + ", \"traceEvents\": [";
    std::set<std::int32_t> threads, streams;
    for (const PredictedOp& op : prediction_.ops) {
      threads.insert(op.thread);
      for (const PredictedKernel& kernel : op.kernels) streams.insert(kernel.stream);
    }
    name_lane("process", kHostProcess, 0, "host (predicted): " + title_.graph, 0);
    name_lane("process", kGpuProcess, 0, "GPU (predicted): " + title_.gpu, 1);
    name_lane("thread", kHostProcess, kPhaseLane, "phases", 0);
    for (std::int32_t thread : threads) {
      name_lane("thread", kHostProcess, host_lane(thread), "thread " + std::to_string(thread),
                1 + thread);
    }
    for (std::int32_t stream : streams) {
      name_lane("thread", kGpuProcess, stream_lane(stream),
                stream == 0 ? "stream 0 (main)" : "stream " + std::to_string(stream), stream);
    }
  }

  void slice(int process, int lane, std::string_view category, std::string_view name, double start,
             double end, Json args) {
    Json event = {{"ph", "X"},
                  {"cat", category},
                  {"name", name},
                  {"pid", process},
                  {"tid", lane},
                  {"ts", rounded(start)},
                  {"dur", rounded(std::max(0.0, rounded(end) - rounded(start)))}};
    if (!args.empty()) event["args"] = std::move(args);
    emit(event);
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
    slice(kHostProcess, kPhaseLane, "user_annotation",
          prediction_.phases[static_cast<std::size_t>(phase_)].label, phase_start_, phase_end_, {});
  }

  void add_op(const PredictedOp& op) {
    // Calls of a label have no gap before them and may begin with a wait.
    const bool own_call_of_label =
        op.gap_level == KeyLevel::kMissing && op.op_level == KeyLevel::kMissing;
    const double start = own_call_of_label ? end_ - op.host_us - op.wait_us : op.start_us;
    Json args = {{"id", op.id},
                 {"host_us", rounded(op.host_us)},
                 {"wait_us", rounded(op.wait_us)},
                 {"gap_key", to_string(op.gap_level)},
                 {"op_key", to_string(op.op_level)}};
    slice(kHostProcess, host_lane(op.thread), own_call_of_label ? "user_annotation" : "cpu_op",
          op.name, start, end_, std::move(args));
    if (op.wait_us <= 0) return;
    double wait_end = end_;
    const auto limit = std::lower_bound(device_ends_.begin(), device_ends_.end(), end_);
    if (limit != device_ends_.begin() && *(limit - 1) > start) wait_end = *(limit - 1);
    for (const PredictedKernel& kernel : op.kernels) {  // a blocking copy of its own decides
      const double end = kernel.start_us + kernel.price.time.count();
      if (end <= end_ && end > start && (wait_end == end_ || end > wait_end)) wait_end = end;
    }
    wait_end = std::clamp(wait_end, std::min(end_, start + op.wait_us), end_);
    slice(kHostProcess, host_lane(op.thread), "wait", "wait for the GPU",
          std::max(start, wait_end - op.wait_us), wait_end, {});
  }

  void add_kernel(const PredictedOp& op, const PredictedKernel& kernel) {
    const Price& price = kernel.price;
    const double end = kernel.start_us + price.time.count();
    device_ends_.insert(std::upper_bound(device_ends_.begin(), device_ends_.end(), end), end);
    Json args = {{"op", op.name},
                 {"op_id", op.id},
                 {"device", 0},
                 {"stream", kernel.stream},
                 {"family", to_string(kernel.family)},
                 {"model", price.model},
                 {"bound", to_string(price.bound)},
                 {"in_range", price.in_range},
                 {"low_us", rounded(price.low.count())},
                 {"high_us", rounded(price.high.count())}};
    if (kernel.inferred) args["inferred"] = true;
    slice(kGpuProcess, stream_lane(kernel.stream), category(kernel.family), kernel.name,
          kernel.start_us, end, std::move(args));
  }

  const Prediction& prediction_;
  const TimelineTitle& title_;
  std::string text_;
  bool first_ = true;
  double end_ = 0;  // of the op at hand
  std::int32_t phase_ = -1;
  double phase_start_ = 0, phase_end_ = 0;
  std::vector<double> device_ends_;  // of the work of the ops before, sorted
};

}  // namespace

Result<std::string> timeline_json(const Prediction& prediction, const TimelineTitle& title) {
  if (prediction.ops.empty()) {
    return fail(ErrorCode::kImpossible,
                "expected a prediction that places its ops in time for a timeline, found none "
                "(method lin gives sums only)");
  }
  return Writer(prediction, title).run();
}

Result<void> write_timeline(const Prediction& prediction, const TimelineTitle& title,
                            const std::filesystem::path& file) {
  const auto text = timeline_json(prediction, title);
  if (!text) return Unexpected{text.error()};
  return write_text_file(file, *text);
}

}  // namespace perfmodel
