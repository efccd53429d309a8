#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../scratch.hpp"
#include "perfmodel/graph/trace.hpp"

namespace perfmodel::test_support {

/// A host with a GPU that runs a program written as calls and prints the Kineto trace of it. Run
/// with other paces, the same program tells what a replay with these scales should find: an
/// independent simulation, call by call, that shares no code with the replay. Times in
/// microseconds.
class MadeTrace {
 public:
  /// Not the replay's defaults, so that only measuring them gives the right times.
  static constexpr double kLatency = 2.5, kGap = 0.75, kEventLag = 3, kBlockingLatency = 9;

  struct Pace {
    double kernels = 1, host = 1;
  };
  using Body = std::function<void()>;

  MadeTrace() = default;
  explicit MadeTrace(Pace pace) : pace_(pace) {}

  bool sync_records = false;       ///< print cuda_sync events
  double base_us = 1000;           ///< stamp of time 0
  std::size_t queue_depth = 0;     ///< launches that find room; 0: all
  bool muted = false;              ///< print nothing: the recording has not begun
  std::string head;                ///< further members of the document: "\"k\": 1, "
  std::vector<double> step_walls;  ///< length of each step

  // ---- host ----
  double now() { return now_[thread_]; }
  void spend(double us) { now_[thread_] += us * pace_.host; }
  void load_data(double us) {
    annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
               [&] { now_[thread_] += us; });
  }
  /// `args`: members of the op's record: "\"Input Dims\": [[4, 8]]".
  void op(const std::string& name, const Body& body, const std::string& args = "") {
    region("cpu_op", name, body, args);
  }
  /// A call of a Python function or of a module ("train.py(30): main", "nn.Module: Linear_0").
  void python(const std::string& name, const Body& body) { region("python_function", name, body); }
  void annotation(const std::string& name, const Body& body) {
    region("user_annotation", name, body);
  }
  void step(const Body& body) {
    begin_step();
    body();
    end_step();
  }
  void begin_step() { step_begin_ = now(); }
  void end_step() {
    step_walls.push_back(now() - step_begin_);
    print("user_annotation", fmt::format("ProfilerStep#{}", step_walls.size()), thread_,
          step_begin_, now(), "");
  }
  void call(const std::string& name, double us) { timed_call(name, us); }

  /// Another thread works from `lag_us` after now, this one goes on `back_us` after its end.
  void on_thread(int thread, double lag_us, double back_us, const Body& body) {
    const int caller = std::exchange(thread_, thread);
    now_[thread] = std::max(now_[thread], now_[caller]) + lag_us * pace_.host;
    body();
    thread_ = caller;
    now_[caller] = std::max(now_[caller], now_[thread]) + back_us * pace_.host;
  }

  // ---- device ----
  /// `args`: further members of the kernel's record: ", \"blocks per SM\": 0.5".
  void launch(double call_us, double kernel_us, int stream = 7, const std::string& kernel = "gemm",
              const std::string& args = "") {
    wait_for_room();
    timed_call("cudaLaunchKernel", call_us);
    run_work("kernel", kernel, kernel_us * pace_.kernels, stream, now() + kLatency, 0, args);
  }
  /// Device to pageable host memory: the call ends `own_us` after the copy.
  void blocking_copy(double copy_us, double own_us, int stream = 7) {
    const double begin = now();
    ++correlation_;
    run_work("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", copy_us, stream,
             begin + kBlockingLatency, 64);
    now_[thread_] = ends_[stream].back() + own_us * pace_.host;
    print_call("cudaMemcpyAsync", begin);
  }
  /// A large pageable buffer to the device: staged for `staging_us` from the call's start; the call
  /// ends `early_us` before the copy does.
  void upload(double staging_us, double copy_us, double early_us, int stream = 7) {
    const double begin = now();
    ++correlation_;
    run_work("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", copy_us, stream, begin + staging_us,
             77'000'000);
    now_[thread_] = ends_[stream].back() - early_us;
    print_call("cudaMemcpyAsync", begin);
  }
  void sync_stream(double own_us, int stream = 7) {
    sync("cudaStreamSynchronize", own_us, end_of(stream),
         fmt::format(R"("cuda_sync_kind": "Stream Synchronize", "stream": {})", stream));
  }
  void sync_device(double own_us, const std::string& name = "cudaDeviceSynchronize") {
    double last = 0;
    for (const auto& [stream, ends] : ends_) last = std::max(last, end_of(stream));
    sync(name, own_us, last, R"("cuda_sync_kind": "Context Synchronize")");
  }
  void record(int event, int stream = 7) {
    timed_call("cudaEventRecord", 1);
    events_[event] = {end_of(stream), stream, correlation_};
  }
  void wait_event(int event, int stream) {
    timed_call("cudaStreamWaitEvent", 1);
    awaited_[stream] = std::max(awaited_[stream], events_[event].end);
    print_sync(fmt::format(R"("cuda_sync_kind": "Stream Wait Event", "stream": {}, )", stream) +
               event_args(event));
  }
  void sync_event(int event, double own_us) {
    sync("cudaEventSynchronize", own_us, events_[event].end,
         R"("cuda_sync_kind": "Event Synchronize", )" + event_args(event));
  }

  struct Node {
    int stream;
    double us;
    std::vector<std::size_t> after;
    bool recorded = true;  ///< no: runs at its own pace, unrecorded
  };
  /// A captured graph: one call, many kernels.
  void launch_graph(double call_us, const std::vector<Node>& nodes) {
    wait_for_room();
    timed_call("cudaGraphLaunch", call_us);
    std::vector<double> ends;
    double last = 0;
    const double free = end_of(7) + kGap;  // the graph runs on stream 7 as a whole
    for (const Node& node : nodes) {
      double start = std::max(now() + kLatency, free);
      for (std::size_t before : node.after) start = std::max(start, ends[before] + 1);
      const double us = node.us * (node.recorded ? pace_.kernels : 1);
      if (node.recorded) print_work("kernel", "captured", start, us, node.stream, 0, "");
      ends.push_back(start + us);
      last = std::max(last, start + us);
    }
    for (const Node& node : nodes) ends_[node.stream].push_back(last);
    if (!ends_.contains(7)) ends_[7].push_back(last);
  }

  /// Work without a call in the trace.
  void earlier_kernel(double start_us, double us, int stream = 7) {
    const int own = std::exchange(correlation_, 1'000'000 + static_cast<int>(ends_[stream].size()));
    us *= pace_.kernels;
    start_us = std::max(start_us, end_of(stream) + kGap);
    print_work("kernel", "earlier", start_us, us, stream, 0, "");
    ends_[stream].push_back(start_us + us);
    correlation_ = own;
  }

  /// A collective: arrives now (returned: when it is on the device), ends when told.
  double arrive(double call_us) {
    timed_call("cudaLaunchKernel", call_us);
    return arrival_ = std::max(now() + kLatency, end_of(13) + kGap);
  }
  void finish(double end_us, const std::string& args = "",
              const std::string& kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL") {
    print_work("kernel", kernel, arrival_, end_us - arrival_, 13, 0, args);
    ends_[13].push_back(end_us);
  }

  /// Lets a trace show its constants: latencies, gap, distance of an awaited event.
  void calibrate(int other_stream = 20) {
    op("warm-up", [&] {
      launch(5, 100);
      launch(5, 100);
      sync_stream(4);
      spend(100);
      blocking_copy(3, 6);
      spend(100);
      launch(5, 100);
      record(99);
      wait_event(99, other_stream);
      launch(5, 10, other_stream);
      sync_stream(4, other_stream);
      spend(200);
    });
  }

  /// An event as written in the file.
  void raw(const std::string& event) {
    if (!muted) events_text_ += (events_text_.empty() ? "" : ",\n") + event;
  }

  std::string text() const { return "{" + head + "\"traceEvents\": [\n" + events_text_ + "\n]}\n"; }

  Trace trace(const std::string& name = "made.json", const ReadOptions& options = {}) const {
    static int made = 0;
    const auto folder = test_support::scratch() / fmt::format("made_trace_{}", ++made);
    std::filesystem::create_directories(folder);
    std::ofstream(folder / name) << text();
    auto read = read_trace(folder / name, options);
    std::filesystem::remove_all(folder);
    EXPECT_TRUE(read) << (read ? "" : read.error().message);
    return read ? std::move(*read) : Trace{};
  }

 private:
  struct Event {
    double end = 0;
    int stream = 0, correlation = 0;
  };

  std::string stamp(double us) const {
    // The base is whole microseconds: added as integers, nothing is lost.
    const auto ns = static_cast<std::int64_t>(std::llround(us * 1000));
    const auto whole = static_cast<std::int64_t>(base_us) + ns / 1000;
    return fmt::format("{}.{:03}", whole, ns % 1000);
  }
  // A duration is the difference of two rounded stamps.
  static std::string length(double start, double end) {
    return fmt::format(
        "{:.3f}",
        static_cast<double>(std::llround(end * 1000) - std::llround(start * 1000)) / 1000);
  }

  void print(const std::string& category, const std::string& name, int thread, double start,
             double end, const std::string& args) {
    raw(fmt::format(R"({{"ph": "X", "cat": "{}", "name": "{}", "pid": 1, "tid": {}, "ts": {}, )"
                    R"("dur": {}, "args": {{{}}}}})",
                    category, name, thread, stamp(start), length(start, end), args));
  }
  void print_call(const std::string& name, double begin) {
    print("cuda_runtime", name, thread_, begin, now(),
          fmt::format(R"("correlation": {})", correlation_));
  }
  void print_sync(const std::string& args) {
    if (!sync_records) return;
    print("cuda_sync", "sync", 0, now() - 1, now(),
          args + fmt::format(R"(, "correlation": {})", correlation_));
  }
  void print_work(const std::string& category, const std::string& name, double start, double us,
                  int stream, int bytes, const std::string& args) {
    print(category, name, stream, start, start + us,
          fmt::format(R"("device": 0, "stream": {}, "correlation": {}, "bytes": {}{})", stream,
                      correlation_, bytes, args));
  }

  void region(const std::string& category, const std::string& name, const Body& body,
              const std::string& args = "") {
    const double begin = now();
    body();
    print(category, name, thread_, begin, now(), args);
  }
  void timed_call(const std::string& name, double us) {
    const double begin = now();
    ++correlation_;
    spend(us);
    print_call(name, std::min(begin, begin_of_wait_.value_or(begin)));
    begin_of_wait_.reset();
  }
  void sync(const std::string& name, double own_us, double awaited, const std::string& args) {
    const double begin = now();
    ++correlation_;
    now_[thread_] = std::max(begin, awaited) + own_us * pace_.host;
    print_call(name, begin);
    print_sync(args);
  }
  std::string event_args(int event) {
    return fmt::format(R"("wait_on_stream": {}, "wait_on_cuda_event_record_corr_id": {})",
                       events_[event].stream, events_[event].correlation);
  }
  void run_work(const std::string& category, const std::string& name, double us, int stream,
                double issued, int bytes = 0, const std::string& args = "") {
    double start = issued;
    if (ends_.contains(stream)) start = std::max(start, end_of(stream) + kGap);
    if (const auto wait = awaited_.find(stream); wait != awaited_.end()) {
      start = std::max(start, wait->second + kEventLag);
      awaited_.erase(wait);
    }
    print_work(category, name, start, us, stream, bytes, args);
    ends_[stream].push_back(start + us);
    queue_.push_back(start + us);
  }
  // The wait is a part of the call.
  void wait_for_room() {
    if (queue_depth == 0 || queue_.size() < queue_depth) return;
    begin_of_wait_ = now();
    now_[thread_] = std::max(now(), queue_[queue_.size() - queue_depth]);
  }
  double end_of(int stream) const {
    const auto at = ends_.find(stream);
    return at == ends_.end() || at->second.empty() ? -kGap : at->second.back();
  }

  Pace pace_;
  std::string events_text_;
  int thread_ = 1, correlation_ = 0;
  double arrival_ = 0, step_begin_ = 0;
  std::map<int, double> now_;
  std::map<int, std::vector<double>> ends_;  // per stream, of all its work
  std::vector<double> queue_;                // ends of queued work
  std::map<int, Event> events_;
  std::map<int, double> awaited_;
  std::optional<double> begin_of_wait_;
};

}  // namespace perfmodel::test_support
