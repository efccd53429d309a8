#include "timeline_events.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "perfmodel/detail/output_file.hpp"

namespace perfmodel {
namespace {

// Length of the UTF-8 character at the start of `text`, 0 if there is none.
std::size_t character_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (length > text.size() || !simdjson::validate_utf8(text.data(), length)) return 0;
  return length;
}

// Bytes that are no UTF-8 become U+FFFD: names of kernels come from anywhere.
void put_json_string(std::string& out, std::string_view text) {
  const bool good = simdjson::validate_utf8(text.data(), text.size());
  out += '"';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
    } else if (good || static_cast<unsigned char>(c) < 0x80) {
      out += c;
    } else if (const std::size_t length = character_length(text.substr(i)); length > 0) {
      out.append(text, i, length);
      i += length - 1;
    } else {
      out += "\xef\xbf\xbd";
    }
  }
  out += '"';
}

void put_value(std::string& out, const TimelineArg& arg) {
  if (const auto* flag = std::get_if<bool>(&arg.value)) {
    out += *flag ? "true" : "false";
  } else if (const auto* whole = std::get_if<std::int64_t>(&arg.value)) {
    fmt::format_to(std::back_inserter(out), "{}", *whole);
  } else if (const auto* real = std::get_if<double>(&arg.value)) {
    if (std::isfinite(*real)) {
      fmt::format_to(std::back_inserter(out), "{}", *real);
    } else {
      out += "null";  // JSON has no other
    }
  } else {
    put_json_string(out, std::get<std::string_view>(arg.value));
  }
}

void put_object(std::string& out, std::span<const TimelineArg> args) {
  out += '{';
  for (const TimelineArg& arg : args) {
    if (&arg != args.data()) out += ',';
    put_json_string(out, arg.key);
    out += ':';
    put_value(out, arg);
  }
  out += '}';
}

void put_us(std::string& out, std::int64_t ns) {
  const std::int64_t size = ns < 0 ? -ns : ns;
  fmt::format_to(std::back_inserter(out), "{}{}.{:03}", ns < 0 ? "-" : "", size / 1000,
                 size % 1000);
}

constexpr double kMaxUs = 9e15;  // nanoseconds fit 64 bits

}  // namespace

std::string_view category_of(HostKind kind) {
  if (kind == HostKind::kCall) return "cuda_runtime";
  return kind == HostKind::kOp ? "cpu_op" : "user_annotation";
}

std::string_view category_of(GpuKind kind) {
  if (kind == GpuKind::kCopy) return "gpu_memcpy";
  return kind == GpuKind::kSet ? "gpu_memset" : "kernel";
}

struct TimelineEvents::State {
  struct Track {
    std::int64_t process = 0, thread = 0;
    std::int64_t last_start_ns = std::numeric_limits<std::int64_t>::min();
  };

  Sink sink;
  std::optional<OutputFile> file;
  std::filesystem::path name;
  std::string text;
  bool first = true, finished = false;
  std::vector<Track> tracks;
  std::int64_t flows = 0;
  std::size_t cut = 0, out_of_order = 0;
  std::optional<std::string> defect;

  void flush() {
    if (file) {
      file->write(text);
    } else {
      sink(text);
    }
    text.clear();
  }

  void begin_event(std::string_view phase) {
    constexpr std::size_t kPiece = std::size_t{1} << 18;
    if (text.size() > kPiece) flush();
    text += first ? "\n{\"ph\":\"" : ",\n{\"ph\":\"";
    first = false;
    text += phase;
    text += '"';
  }

  void string_member(std::string_view key, std::string_view value) {
    text += ",\"";
    text += key;
    text += "\":";
    put_json_string(text, value);
  }

  void place(std::int64_t process, std::int64_t thread) {
    fmt::format_to(std::back_inserter(text), ",\"pid\":{},\"tid\":{}", process, thread);
  }

  void begin(const Head& head) {
    text += "{\"displayTimeUnit\":\"ms\",\"otherData\":";
    put_object(text, head.other_data);
    text += ",\"deviceProperties\":[";
    for (std::size_t i = 0; i < head.devices.size(); ++i) {
      if (i > 0) text += ',';
      const TimelineArg device[] = {{"id", static_cast<std::int64_t>(i)},
                                    {"name", head.devices[i]}};
      put_object(text, device);
    }
    text += "],\"traceEvents\":[";
  }

  void metadata(std::string_view what, std::int64_t process, std::int64_t thread,
                const TimelineArg& arg) {
    begin_event("M");
    string_member("name", what);
    place(process, thread);
    text += ",\"args\":";
    put_object(text, {&arg, 1});
    text += '}';
  }

  void flow_event(std::string_view phase, std::string_view category, TimelinePoint at) {
    begin_event(phase);
    string_member("cat", category);
    string_member("name", category);
    fmt::format_to(std::back_inserter(text), ",\"id\":{}", flows);
    const Track& track = tracks[at.track.index];
    place(track.process, track.thread);
    text += ",\"ts\":";
    put_us(text, at.ns);
    if (phase == "f") text += ",\"bp\":\"e\"";  // to the slice around, not to the next one
    text += '}';
  }
};

TimelineEvents::TimelineEvents(std::unique_ptr<State> state) : state_(std::move(state)) {}
TimelineEvents::TimelineEvents(TimelineEvents&&) noexcept = default;
TimelineEvents& TimelineEvents::operator=(TimelineEvents&&) noexcept = default;
TimelineEvents::~TimelineEvents() = default;

TimelineEvents::TimelineEvents(Sink sink, const Head& head) : state_(std::make_unique<State>()) {
  state_->sink = std::move(sink);
  state_->begin(head);
}

Result<TimelineEvents> TimelineEvents::create(const std::filesystem::path& file, const Head& head) {
  PERFMODEL_TRY(out, OutputFile::create(file));
  auto state = std::make_unique<State>();
  state->file = std::move(*out);
  state->name = file;
  state->begin(head);
  return TimelineEvents(std::move(state));
}

void TimelineEvents::name_process(std::int64_t process, std::string_view name, std::int64_t order) {
  state_->metadata("process_name", process, 0, {"name", name});
  state_->metadata("process_sort_index", process, 0, {"sort_index", order});
}

TimelineTrack TimelineEvents::add_track(std::int64_t process, std::int64_t thread,
                                        std::string_view name, std::int64_t order) {
  state_->metadata("thread_name", process, thread, {"name", name});
  state_->metadata("thread_sort_index", process, thread, {"sort_index", order});
  state_->tracks.push_back({.process = process, .thread = thread});
  return {static_cast<std::uint32_t>(state_->tracks.size() - 1)};
}

TimelinePoint TimelineEvents::slice(const TimelineSlice& slice) {
  State& state = *state_;
  PERFMODEL_CHECK(slice.track.index < state.tracks.size());
  State::Track& track = state.tracks[slice.track.index];
  const double end_us = slice.start_us + slice.duration_us;
  if (!(slice.duration_us >= 0) || !(std::abs(slice.start_us) <= kMaxUs) || !(end_us <= kMaxUs)) {
    if (!state.defect) {
      state.defect = fmt::format(
          "process {}, thread {}: expected a slice with a start and a duration of 0 us or more, "
          "found \"{}\" from {} us for {} us",
          track.process, track.thread, slice.name, slice.start_us, slice.duration_us);
    }
    return {slice.track, 0};
  }
  const std::int64_t start_ns = std::llround(slice.start_us * 1e3);
  state.out_of_order += start_ns < track.last_start_ns;
  track.last_start_ns = start_ns;
  state.begin_event("X");
  state.string_member("cat", slice.category);
  state.string_member("name", slice.name);
  state.place(track.process, track.thread);
  state.text += ",\"ts\":";
  put_us(state.text, start_ns);
  state.text += ",\"dur\":";
  put_us(state.text, std::llround(end_us * 1e3) - start_ns);
  if (!slice.args.empty()) {
    state.text += ",\"args\":";
    put_object(state.text, slice.args);
  }
  state.text += '}';
  return {slice.track, start_ns};
}

void TimelineEvents::flow(std::string_view category, TimelinePoint from, TimelinePoint to) {
  const TimelinePoint path[] = {from, to};
  flow(category, path);
}

void TimelineEvents::flow(std::string_view category, std::span<const TimelinePoint> path) {
  State& state = *state_;
  std::size_t begin = 0;
  while (begin < path.size()) {
    std::size_t end = begin + 1;
    while (end < path.size() && path[end].ns >= path[end - 1].ns) ++end;
    if (end < path.size()) ++state.cut;
    if (end - begin >= 2) {
      ++state.flows;
      for (std::size_t i = begin; i < end; ++i) {
        state.flow_event(i == begin ? "s" : i + 1 == end ? "f" : "t", category, path[i]);
      }
    }
    begin = end;
  }
}

void TimelineEvents::counter(std::int64_t process, std::string_view name, double at_us,
                             double value) {
  State& state = *state_;
  if (!(std::abs(at_us) <= kMaxUs) || !std::isfinite(value)) {
    if (!state.defect) {
      state.defect =
          fmt::format("process {}: expected numbers in counter \"{}\", found {} at {} us", process,
                      name, value, at_us);
    }
    return;
  }
  state.begin_event("C");
  state.string_member("name", name);
  state.place(process, 0);
  state.text += ",\"ts\":";
  put_us(state.text, std::llround(at_us * 1e3));
  const TimelineArg arg{"value", value};
  state.text += ",\"args\":";
  put_object(state.text, {&arg, 1});
  state.text += '}';
}

std::size_t TimelineEvents::cut_flows() const { return state_->cut; }
std::size_t TimelineEvents::out_of_order() const { return state_->out_of_order; }

Result<void> TimelineEvents::finish() {
  PERFMODEL_CHECK(state_ && !state_->finished);
  state_->finished = true;
  if (state_->defect) {
    Error error{.code = ErrorCode::kImpossible, .message = *state_->defect, .file = state_->name};
    state_->file.reset();
    return Unexpected{std::move(error)};
  }
  state_->text += "\n]}\n";
  state_->flush();
  if (!state_->file) return {};
  return state_->file->commit();
}

}  // namespace perfmodel
