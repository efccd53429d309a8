// Recordings whose ids, stamps, marks, processes and devices are changed: what cannot be is cut or
// left out, and counted. The bytes of an input choose the recording and its changes.
#include <fmt/format.h>

#include <array>
#include <map>

#include "fuzz.hpp"
#include "perfmodel/graph/trace.hpp"

using namespace perfmodel;

namespace {

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  std::uint32_t next() { return at_ < size_ ? data_[at_++] : 0; }
  std::uint32_t below(std::uint32_t count) { return (next() << 8 | next()) % count; }
  bool empty() const { return at_ >= size_; }

 private:
  const std::uint8_t* data_;
  std::size_t size_, at_ = 0;
};

struct Event {
  enum Kind { kMark, kOp, kCall, kKernel, kCopy } kind = kOp;
  std::int64_t start_ns = 0, duration_ns = 0;
  std::int64_t process = 1000, thread = 1000, correlation = -1, device = 0, stream = 7;
  std::uint32_t name = 0;
};

std::vector<Event> valid_recording(Bytes& bytes) {
  std::vector<Event> made;
  const std::uint32_t steps = 1 + bytes.below(4), launches = 1 + bytes.below(6);
  const std::int64_t base = bytes.next() % 2 ? 1'700'000'000'000'000'000 : 0;
  std::int64_t correlation = 100;
  for (std::uint32_t step = 0; step < steps; ++step) {
    const std::int64_t at = base + step * 1'000'000;
    made.push_back({.kind = Event::kMark, .start_ns = at, .duration_ns = 1'000'000, .name = step});
    for (std::uint32_t i = 0; i < launches; ++i) {
      const std::int64_t begin = at + 10'000 + i * 150'000;
      made.push_back({.kind = Event::kOp, .start_ns = begin, .duration_ns = 40'000});
      made.push_back({.kind = Event::kCall,
                      .start_ns = begin + 10'000,
                      .duration_ns = 8'000,
                      .correlation = ++correlation,
                      .name = bytes.below(4)});
      made.push_back({.kind = i % 3 == 2 ? Event::kCopy : Event::kKernel,
                      .start_ns = begin + 25'000,
                      .duration_ns = 100'000,
                      .correlation = correlation,
                      .name = bytes.below(3)});
    }
  }
  return made;
}

std::int64_t odd_stamp(Bytes& bytes, std::int64_t stamp_ns) {
  constexpr std::int64_t kHour = 3'600'000'000'000;
  const std::array<std::int64_t, 8> stamps = {0,
                                              stamp_ns - 27 * kHour,
                                              stamp_ns + 27 * kHour,
                                              stamp_ns - 1'000,
                                              stamp_ns + 90'000,
                                              stamp_ns - 200'000,
                                              stamp_ns + 1'000'000,
                                              -1'000};
  return stamps[bytes.below(stamps.size())];
}

void change(Bytes& bytes, std::vector<Event>& events) {
  const std::uint32_t at = bytes.below(static_cast<std::uint32_t>(events.size()));
  const std::uint32_t other = bytes.below(static_cast<std::uint32_t>(events.size()));
  Event& event = events[at];
  switch (bytes.below(9)) {
    case 0:
      event.start_ns = odd_stamp(bytes, event.start_ns);
      break;
    case 1: {
      const std::array<std::int64_t, 5> lengths = {0, 1, 170'000, 3'400'000'000, 50'000'000};
      event.duration_ns = lengths[bytes.below(lengths.size())];
      break;
    }
    case 2: {
      const std::array<std::int64_t, 4> ids = {0, -1, 101, events[other].correlation};
      event.correlation = ids[bytes.below(ids.size())];
      break;
    }
    case 3:
      event.process = 1000 + bytes.below(2) * 1000;
      break;
    case 4:
      event.device = bytes.below(3);
      break;
    case 5:
      event.stream = bytes.below(3);
      break;
    case 6:
      event.name = bytes.below(5);
      break;
    case 7:
      event.thread = 1000 + bytes.below(2);
      break;
    default:
      events.push_back(Event(events[other]));
  }
}

std::string text_of(const std::vector<Event>& events) {
  constexpr std::array<std::string_view, 5> kCalls = {
      "cudaLaunchKernel", "cudaGraphLaunch", "cudaLaunchKernelExC", "cudaMemcpyAsync", "newLaunch"};
  constexpr std::array<std::string_view, 5> kKernels = {
      "ampere_sgemm", "elementwise", "ncclDevKernel_AllReduce", "triton_poi_fused_all_reduce", "k"};
  std::string text = R"({"traceEvents":[)";
  for (const Event& event : events) {
    const bool on_device = event.kind == Event::kKernel || event.kind == Event::kCopy;
    const std::string_view category = event.kind == Event::kMark     ? "user_annotation"
                                      : event.kind == Event::kOp     ? "cpu_op"
                                      : event.kind == Event::kCall   ? "cuda_runtime"
                                      : event.kind == Event::kKernel ? "kernel"
                                                                     : "gpu_memcpy";
    const std::string name = event.kind == Event::kMark ? fmt::format("ProfilerStep#{}", event.name)
                             : event.kind == Event::kOp ? std::string("aten::mm")
                             : event.kind == Event::kCall   ? std::string(kCalls[event.name])
                             : event.kind == Event::kKernel ? std::string(kKernels[event.name])
                                                            : std::string("Memcpy HtoD");
    text += fmt::format(
        R"({}{{"ph":"X","cat":"{}","name":"{}","pid":{},"tid":{},"ts":{}.{:03},"dur":{}.{:03},)"
        R"("args":{{"correlation":{},"device":{},"stream":{}}}}})",
        text.back() == '[' ? "" : ",", category, name, on_device ? event.device : event.process,
        on_device ? event.stream : event.thread, event.start_ns / 1000,
        event.start_ns < 0 ? 0 : event.start_ns % 1000, event.duration_ns / 1000,
        event.duration_ns % 1000, event.correlation, event.device, event.stream);
  }
  return text + "]}";
}

// The work of a stream takes no longer than from its first start to its last end. Nodes of captured
// graphs and kernels that begin early on purpose do not count.
void check_streams(const Trace& trace) {
  struct Stream {
    std::int64_t begin = 0, end = 0, busy = 0;
    std::size_t overlapping = 0, events = 0;
  };
  constexpr std::int64_t kRoundedNs = 1'500;
  std::map<std::pair<std::int16_t, std::int64_t>, Stream> streams;
  for (const GpuEvent& event : trace.gpu) {
    Stream& stream = streams[{event.device, event.stream}];
    if (stream.events++ == 0) stream.begin = event.start_ns;
    PERFMODEL_CHECK(event.start_ns >= stream.begin);
    const bool on_purpose =
        event.launch >= 0 &&
        (trace.name(trace.host[static_cast<std::size_t>(event.launch)]) != "cudaLaunchKernel");
    stream.overlapping += on_purpose || (event.launch < 0 && event.correlation > 0);
    stream.busy += event.duration_ns;
    stream.end = std::max(stream.end, event.end_ns());
  }
  for (const auto& [key, stream] : streams) {
    if (stream.overlapping > 0) continue;
    PERFMODEL_CHECK(stream.busy <= stream.end - stream.begin +
                                       kRoundedNs * static_cast<std::int64_t>(stream.events));
  }
}

// Every event of the file is in the trace, or said to be left out.
void check_conserved(const Trace& trace, std::size_t written) {
  std::size_t left_out = 0;
  for (const RecordingFinding& finding : trace.recording.findings) {
    PERFMODEL_CHECK(finding.count > 0 && !finding.sentence.empty());
    for (const std::string_view kind :
         {"recorded_twice", "stamp_far_off", "work_far_from_call", "calls_within_calls",
          "step_marked_twice", "step_within_step", "first_steps"}) {
      if (finding.kind == kind) left_out += finding.count;
    }
  }
  PERFMODEL_CHECK(trace.host.size() + trace.gpu.size() + left_out == written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  std::vector<Event> events = valid_recording(bytes);
  constexpr int kMostChanges = 12;
  for (int i = 0; i < kMostChanges && !bytes.empty(); ++i) change(bytes, events);
  const auto trace = read_trace(fuzz::file_with(text_of(events)));
  if (!trace) {
    fuzz::check_error(trace.error());
    return 0;
  }
  fuzz::check_lines(trace->warnings);
  check_streams(*trace);
  check_conserved(*trace, events.size());
  for (const GpuEvent& event : trace->gpu) {
    PERFMODEL_CHECK(event.launch < 0 ||
                    trace->host[static_cast<std::size_t>(event.launch)].launches);
  }
  return 0;
}
