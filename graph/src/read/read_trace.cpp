#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>

#include "base/budget.hpp"
#include "base/large_pages.hpp"
#include "base/secrets.hpp"
#include "begin_end_events.hpp"
#include "check_recording.hpp"
#include "json/json_kind.hpp"
#include "json/json_stream.hpp"
#include "order_trace.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/trace.hpp"
#include "raw_event.hpp"
#include "trace_numbers.hpp"
#include "uncategorised_rows.hpp"
#include "xplane_lanes.hpp"

namespace perfmodel {
namespace {

namespace ondemand = simdjson::ondemand;

// Makes a function that drops what the lists get from now on.
template <class... Lists>
auto keeper_of_sizes(Lists&... lists) {
  return [sizes = std::array{lists.size()...}, &lists...] {
    std::size_t i = 0;
    (lists.resize(sizes[i++]), ...);
  };
}

class TraceReader {
 public:
  TraceReader(Trace& trace, const ReadOptions& options)
      : trace_(trace),
        limits_(options.limits),
        salvage_(options.salvage),
        keeps_frames_(options.python_frames) {}

  void head_member(const std::string& key, const std::string& text) {
    kind_.see(key);
    if (key == "baseTimeNanoseconds") clock_base_ns_ = parse_integer(text, 0);
    if (key != "deviceProperties" && key != "distributedInfo") return;
    simdjson::dom::element value;
    if (text.empty()) return;
    const auto code = head_parser_.parse(text).get(value);
    if (code == simdjson::MEMALLOC) throw std::bad_alloc();  // such a parser cannot be used again
    if (code) return;
    if (key == "distributedInfo") {
      read_integer(value, "rank", trace_.rank);
      read_integer(value, "world_size", trace_.world_size);
      return;
    }
    simdjson::dom::array devices;
    if (value.get(devices) != simdjson::SUCCESS) return;
    for (auto device : devices) {
      TraceDevice made;
      std::string_view name;
      if (device["name"].get(name) == simdjson::SUCCESS) made.name = name;
      read_integer(device, "id", made.id);
      trace_.devices.push_back(std::move(made));
    }
  }

  const JsonKind& kind() const { return kind_; }

  // Whether the elements of a bare array are events, by the first ones.
  bool is_of_events(const JsonStream& stream) {
    if (!stream.bare() || stream.first_index() > 0) return true;
    kind_.see_elements(stream);
    return kind_.is_trace();
  }

  Result<void> piece(JsonStream& stream) {
    make_room(stream);
    auto error = parse(stream);
    if (!stream.repaired() &&
        (error == simdjson::UTF8_ERROR || error == simdjson::UNESCAPED_CHARS ||
         error == simdjson::UNCLOSED_STRING)) {
      // Kernel names have been seen with stray bytes; replacing them keeps every length.
      repair(stream);
      error = parse(stream);
    }
    if (error != simdjson::SUCCESS && salvage_) {
      if (!stream.rescan_piece()) stream.drop_element(0, "", simdjson::error_message(error));
      return {};
    }
    if (!problems_.empty() && !salvage_) {
      const Problem& first = problems_.front();
      return Unexpected{stream.element_error(first.index, first.tail, first.message)};
    }
    if (error != simdjson::SUCCESS) {
      return Unexpected{stream.syntax_error(simdjson::error_message(error))};
    }
    for (const Problem& problem : problems_) {
      stream.drop_element(problem.index, problem.tail, problem.message);
    }
    trace_.event_count += stream.element_count() - problems_.size();
    return check_kept_bytes();
  }

  // Oddities of the recording come first.
  Result<void> finish() {
    place_uncategorised_rows(trace_, uncategorised_, process_names_);
    borders_.pair(trace_);
    leave_out_far_stamps(trace_);
    trace_.base_ns = clock_base_ns_;
    rebase();
    name_threads();
    order_trace(trace_, note_owners_);
    if (auto good = check_one_process(trace_); !good) return in_file(good.error());
    leave_out_far_work(trace_);
    cut_overlaps(trace_);
    leave_out_repeated_steps(trace_);
    leave_out_first_steps(trace_);
    note_steps(trace_);
    if (!trace_.recording.findings.empty()) rebase();
    for (const RecordingFinding& finding : trace_.recording.findings) {
      trace_.warnings.push_back(finding.sentence);
    }
    if (repaired_ > 0) {
      trace_.warnings.push_back(
          fmt::format("{} bytes that are no valid text were replaced by '?'", repaired_));
    }
    name_unread();
    mask();
    return {};
  }

 private:
  // An event that lacks a necessary member.
  struct Problem {
    std::size_t index = 0;
    std::string tail = {}, message = {};
  };

  // Memory of the index of arguments for each.
  static constexpr std::uint64_t kBytesPerArguments = 64;

  // Makes room for the events of the piece; if that takes new memory, for the whole file at twice
  // the rate so far: unused room is never touched, and a move near the end holds all events twice.
  void make_room(const JsonStream& stream) {
    const auto grow = [&](auto& events) {
      const std::size_t needed = events.size() + stream.element_count();
      if (needed <= events.capacity()) return;
      const double share = stream.share_read();
      const double all = share > 0 ? static_cast<double>(events.size()) / share : 0;
      constexpr double kMargin = 2, kMostGrowth = 1024;
      const auto foreseen = static_cast<std::size_t>(
          std::min(kMargin * all, kMostGrowth * static_cast<double>(events.size())));
      reserve_in_large_pages(events, std::max({needed, 2 * events.capacity(), foreseen}));
    };
    grow(trace_.host);
    grow(trace_.gpu);
  }

  Result<void> check_kept_bytes() {
    for (; counted_names_ < trace_.names.size(); ++counted_names_) {
      name_bytes_ +=
          trace_.names.text(static_cast<NameId>(counted_names_)).size() + StringPool::kBytesPerName;
    }
    const std::uint64_t kept =
        name_bytes_ + trace_.host.size() * sizeof(HostEvent) +
        trace_.gpu.size() * sizeof(GpuEvent) + trace_.syncs.size() * sizeof(SyncEvent) +
        trace_.collectives.size() * sizeof(CollectiveNote) +
        (trace_.modules.size() + trace_.frames.size()) * sizeof(HostEvent) + counter_bytes_ +
        trace_.arguments.size() * (sizeof(OpArguments) + kBytesPerArguments) +
        trace_.memory.size() * sizeof(MemoryRecord) + trace_.threads.size() * sizeof(TraceThread);
    if (kept <= limits_.kept_bytes) return {};
    return fail(ErrorCode::kFormat,
                fmt::format("expected events of at most {} bytes in memory, found more (limit "
                            "kept-bytes; --limit kept-bytes=N raises it)",
                            limits_.kept_bytes));
  }

  // Nothing that looks like a secret leaves the reader.
  void mask() {
    std::size_t masked = mask_secrets(trace_.names);
    const auto mask_text = [&](std::string& text) {
      if (auto without = mask_secrets(text)) {
        text = std::move(*without);
        ++masked;
      }
    };
    for (TraceThread& thread : trace_.threads) {
      mask_text(thread.process_id);
      mask_text(thread.thread_id);
      mask_text(thread.name);
    }
    for (TraceDevice& device : trace_.devices) mask_text(device.name);
    if (masked > 0) trace_.warnings.push_back(masked_warning(masked));
  }

  static void read_integer(simdjson::dom::element object, const char* key, std::int64_t& out) {
    simdjson::dom::element value;
    if (object[key].get(value) != simdjson::SUCCESS) return;
    std::int64_t number = 0;
    std::string_view text;
    if (value.get(number) == simdjson::SUCCESS) out = number;
    if (value.get(text) == simdjson::SUCCESS) out = parse_integer(text, out);
  }

  // Host and device events are appended while parsing; a second attempt after a repair starts anew.
  simdjson::error_code parse(JsonStream& stream) {
    const auto undo = keeper_of_sizes(trace_.host, trace_.gpu, trace_.syncs, trace_.collectives,
                                      trace_.memory, trace_.modules, trace_.frames, trace_.counters,
                                      borders_, uncategorised_, note_owners_);
    problems_.clear();
    const simdjson::error_code error = parse_events(stream);
    if (error != simdjson::SUCCESS) undo();
    return error;
  }

  // Events with problems are passed over; without salvage the first one ends the walk.
  simdjson::error_code parse_events(JsonStream& stream) {
    const std::string_view text = stream.elements();
    ondemand::document document;
    simdjson::padded_string_view padded(text.data(), text.size(), text.size() + 64);
    if (auto error = parser_.iterate(padded).get(document)) {
      if (error == simdjson::MEMALLOC) throw std::bad_alloc();
      return error;
    }
    ondemand::array events;
    if (auto error = document.get_array().get(events)) return error;
    std::size_t index = 0;
    for (auto item : events) {
      // A broken value that is not read can lead the parser astray, which then takes something
      // within an event for the next one.
      if (index >= stream.element_count()) return simdjson::TAPE_ERROR;
      ondemand::object object;
      if (auto error = item.get_object().get(object)) {
        if (error != simdjson::INCORRECT_TYPE || salvage_) return error;
        const std::string_view found = stream.element_text(index);
        if (found.starts_with('{')) return simdjson::TAPE_ERROR;
        problems_.push_back(
            {index, "", fmt::format("expected an object, found {}", json_kind(found))});
        return simdjson::SUCCESS;
      }
      RawEvent event;
      if (auto error = read_event(object, event)) return error;
      if (auto complaint = keep(event)) {
        problems_.push_back({index, std::move(complaint->first), std::move(complaint->second)});
        if (!salvage_) return simdjson::SUCCESS;
      }
      ++index;
    }
    return index == stream.element_count() ? simdjson::SUCCESS : simdjson::TAPE_ERROR;
  }

  using Complaint = std::optional<std::pair<std::string, std::string>>;

  Complaint keep(const RawEvent& event) {
    // The oldest traces write no phase at all; everything with a duration is a complete event.
    if (event.phase == "X" || event.phase.empty()) {
      return keep_complete(event, !event.duration.empty());
    }
    if (event.phase == "M") {
      if (event.name == "thread_name" && !event.thread_label.empty()) {
        thread_labels_.emplace_back(thread_key(event), std::string(event.thread_label));
        xplane_.name_thread(event.pid, event.tid, event.thread_label);
      }
      if (event.name == "process_name") name_process(event);
      return {};
    }
    if (event.phase == "B" || event.phase == "E") return border(event);
    if (event.name == "[memory]" && event.phase == "i") return memory_event(event);
    return {};
  }

  // An event with a duration; one that begins and ends in two parts gets it later.
  Complaint keep_complete(const RawEvent& event, bool lasts) {
    if (event.category.empty() && xplane_.any()) return keep_xplane(event);
    TraceCategory category = trace_category(event.category);
    const bool uncategorised = event.category.empty() && lasts;
    if (uncategorised) category = TraceCategory::kOp;
    if (category == TraceCategory::kSkipEarly) return python_frame(event);
    if (category == TraceCategory::kOther) note_unread(event.category);
    if (category == TraceCategory::kOther || category == TraceCategory::kIgnored) return {};
    trace_.has_pytorch_ops |= category == TraceCategory::kOp && !event.category.empty();
    const std::size_t row = trace_.host.size();
    const Complaint odd = keep_timed(event, category);
    if (uncategorised && trace_.host.size() > row) uncategorised_.push_back(row);
    return odd;
  }

  // The begin or the end of an event, phases B and E.
  Complaint border(const RawEvent& event) {
    const auto stamp = parse_stamp(event.ts);
    if (!stamp || *stamp < -kMostStamp || *stamp > kMostStamp) return complaint("/ts", event.ts);
    if (event.phase == "E") {
      borders_.end(thread_key(event), event.name, *stamp);
      return {};
    }
    const std::size_t hosts = trace_.host.size(), works = trace_.gpu.size();
    RawEvent begun = event;
    begun.duration = "0";
    if (auto odd = keep_complete(begun, true)) return odd;
    BeginEndEvents::Place place;
    if (trace_.host.size() > hosts) place.host = static_cast<std::int32_t>(hosts);
    if (trace_.gpu.size() > works) place.gpu = static_cast<std::int32_t>(works);
    borders_.begin(thread_key(event), event.name, *stamp, place);
    return {};
  }

  void name_process(const RawEvent& event) {
    constexpr std::size_t kMostProcesses = 4096;
    xplane_.name_process(event.pid, event.thread_label);
    if (process_names_.size() < kMostProcesses) {
      process_names_.insert_or_assign(std::string(event.pid), std::string(event.thread_label));
    }
  }

  // Rows of XPlane that repeat others and devices that are not read are passed over.
  Complaint keep_xplane(const RawEvent& event) {
    const XplaneLanes::Lane lane = xplane_.lane(event.pid, event.tid);
    if (lane.kind == XplaneLanes::Kind::kHost) {
      if (event.name.starts_with('$')) {  // "$file.py:12 function"
        trace_.has_python_frames = true;
        return {};
      }
      return keep_timed(event, event.correlation >= 0 ? TraceCategory::kCall : TraceCategory::kOp);
    }
    if (lane.kind != XplaneLanes::Kind::kStream) return {};
    RawEvent work = event;
    work.device = lane.device;
    work.stream = lane.stream;
    work.bytes = bytes_of_xplane_copy(event.copy_details);
    return keep_timed(work, event.name.starts_with("Memcpy")   ? TraceCategory::kCopy
                            : event.name.starts_with("Memset") ? TraceCategory::kSet
                                                               : TraceCategory::kKernel);
  }

  Complaint keep_timed(const RawEvent& event, TraceCategory category) {
    const auto start = parse_stamp(event.ts);
    if (!start || *start < -kMostStamp || *start > kMostStamp) return complaint("/ts", event.ts);
    const auto duration =
        event.duration.empty() ? std::optional<std::int64_t>(0) : parse_stamp(event.duration);
    const bool too_long = !duration && event.duration.find_first_of("0123456789") == 0;
    if (!duration && !too_long) return complaint("/dur", event.duration);
    if (too_long || *duration > kMostDuration) {
      return std::pair{
          std::string("/dur"),
          fmt::format("expected a duration of at most {} days, found {} us",
                      kMostDuration / 86'400'000'000'000, shown_number(event.duration))};
    }
    if (*duration < 0) {
      return std::pair{std::string("/dur"),
                       fmt::format("expected a duration of at least 0, found {} ns", *duration)};
    }
    const NameId name = intern(event.name);
    switch (category) {
      case TraceCategory::kKernel:
        gpu_event(event, GpuKind::kKernel, name, *start, *duration);
        break;
      case TraceCategory::kCopy: gpu_event(event, GpuKind::kCopy, name, *start, *duration); break;
      case TraceCategory::kSet: gpu_event(event, GpuKind::kSet, name, *start, *duration); break;
      case TraceCategory::kCounters: counter_range(event, name, *start, *duration); break;
      case TraceCategory::kSync:
        trace_.syncs.push_back(
            {*start, *duration, event.sync_kind.empty() ? name : intern(event.sync_kind),
             event.stream, event.wait_on_stream, event.wait_on_event, event.correlation});
        break;
      default: host_event(event, category, name, *start, *duration); break;
    }
    return {};
  }

  // Keeps the modules among the frames of Python, the others if asked for.
  Complaint python_frame(const RawEvent& event) {
    trace_.has_python_frames = true;
    const bool is_module = event.name.starts_with("nn.Module: ");
    if (!is_module && !keeps_frames_) return {};
    const auto start = parse_stamp(event.ts), duration = parse_stamp(event.duration);
    if (!start || *start < -kMostStamp || *start > kMostStamp) return complaint("/ts", event.ts);
    if (!duration || *duration < 0 || *duration > kMostDuration) {
      return complaint("/dur", event.duration);
    }
    std::vector<HostEvent>& kept = is_module ? trace_.modules : trace_.frames;
    kept.push_back({.start_ns = *start,
                    .duration_ns = *duration,
                    .name = intern(event.name),
                    .thread = thread_index(event),
                    .kind = HostKind::kAnnotation,
                    .file_order = static_cast<std::uint32_t>(kept.size())});
    return {};
  }

  // One allocation or release. An instant of that name without a size is none.
  Complaint memory_event(const RawEvent& event) {
    const RawMemory& raw = event.memory;
    if (raw.bytes.empty()) return {};
    const auto start = parse_stamp(event.ts);
    if (!start || *start < -kMostStamp || *start > kMostStamp) return complaint("/ts", event.ts);
    MemoryRecord made{.time_ns = *start};
    std::int64_t address = 0, type = 0, device = -1;
    const struct {
      const char* key;
      std::string_view text;
      std::int64_t& value;
      std::int64_t least, most;
    } numbers[] = {
        {"Bytes", raw.bytes, made.bytes, -kMostBytes, kMostBytes},
        {"Addr", raw.address, address, std::numeric_limits<std::int64_t>::min(),
         std::numeric_limits<std::int64_t>::max()},
        {"Total Allocated", raw.allocated, made.allocated, -kMostBytes, kMostBytes},
        {"Total Reserved", raw.reserved, made.reserved, -kMostBytes, kMostBytes},
        {"Device Type", raw.device_type, type, 0, std::numeric_limits<std::int8_t>::max()},
        {"Device Id", raw.device, device, -1, std::numeric_limits<std::int16_t>::max()},
    };
    for (const auto& number : numbers) {
      if (number.text.empty()) continue;
      const auto value = parse_whole(number.text);
      if (!value) return complaint(std::string("/args/") + number.key, number.text);
      if (*value < number.least || *value > number.most) {
        return std::pair{std::string("/args/") + number.key,
                         fmt::format("expected a number from {} to {}, found {}", number.least,
                                     number.most, *value)};
      }
      number.value = *value;
    }
    made.address = static_cast<std::uint64_t>(address);
    made.device_type = static_cast<std::int8_t>(type);
    made.device = static_cast<std::int16_t>(device);
    made.thread = thread_index(event);
    trace_.memory.push_back(made);
    return {};
  }

  // A file may hold any number of categories; the first ones tell enough.
  void note_unread(std::string_view category) {
    constexpr std::size_t kMostCategories = 16;
    constexpr std::size_t kMostLength = 64;
    category = category.substr(0, kMostLength);
    const auto known = unread_.find(category);
    if (known != unread_.end()) {
      ++known->second;
    } else if (unread_.size() < kMostCategories) {
      unread_.emplace(category, 1);
    }
  }

  void name_unread() {
    if (const std::string planes = xplane_.unread(); !planes.empty()) {
      trace_.warnings.push_back("work of these devices is not read: " + planes);
    }
    if (xplane_.has_derived()) {
      trace_.warnings.push_back(
          "rows of XLA's ops, modules and steps repeat the work of the streams and do not count");
    }
    if (unread_.empty()) return;
    const struct {
      std::string_view prefix, device;
    } kDevices[] = {{"mtia_", "an MTIA device"},
                    {"hpu_", "a Gaudi device"},
                    {"glow_", "a Glow device"},
                    {"privateuse1_", "a device of a PyTorch extension"}};
    for (const auto& known : kDevices) {
      const bool any = std::ranges::any_of(
          unread_, [&](const auto& entry) { return entry.first.starts_with(known.prefix); });
      if (!any) continue;
      trace_.warnings.push_back(
          fmt::format("the trace is of {}, whose work is not read", known.device));
    }
    std::string list;
    for (const auto& [category, count] : unread_) {
      list += fmt::format("{}\"{}\" ({})", list.empty() ? "" : ", ", shown_text(category), count);
    }
    trace_.unread = std::move(list);
    trace_.warnings.push_back("events of these categories are not read: " + trace_.unread);
  }

  static std::string shown_number(std::string_view token) {
    return shown_text(token.substr(0, token.find_first_of("\n,}")));
  }

  static Complaint complaint(std::string tail, std::string_view found) {
    return std::pair{std::move(tail), found.empty()
                                          ? std::string("expected a number, found nothing")
                                          : "expected a number, found " + shown_number(found)};
  }

  Unexpected in_file(Error error) const {
    error.file = trace_.source;
    return Unexpected{std::move(error)};
  }

  void host_event(const RawEvent& event, TraceCategory category, NameId name, std::int64_t start,
                  std::int64_t duration) {
    if (label_by_name_.size() <= name) label_by_name_.resize(name + 1, -1);
    auto& label = label_by_name_[name];
    if (label < 0) label = is_label_name(event.name) ? 1 : 0;
    HostKind kind = category == TraceCategory::kCall         ? HostKind::kCall
                    : category == TraceCategory::kAnnotation ? HostKind::kAnnotation
                    : label == 1                             ? HostKind::kAnnotation
                                                             : HostKind::kOp;
    trace_.host.push_back(
        {.start_ns = start,
         .duration_ns = duration,
         .name = name,
         .thread = thread_index(event),
         .kind = kind,
         .has_forward_thread = event.forward_thread > 0,
         .file_order = static_cast<std::uint32_t>(trace_.host.size()),
         .event_index = event.event_index,
         .correlation = event.correlation,
         .record_function_id = event.record_function_id,
         .external_id = event.external_id,
         .sequence = event.autograd_sequence <= kMostAutogradNumber ? event.autograd_sequence : -1,
         .arguments = arguments_of(event)});
    if (const std::int32_t note = note_collective(event); note >= 0) {
      trace_.host.back().collective = note;
      note_owners_.emplace_back(trace_.host.back().file_order, note);
    }
  }

  // The pool is asked for texts that are not among the last ones.
  NameId intern(std::string_view text) {
    std::uint64_t first = 0, last = 0;
    if (text.size() < sizeof first) return trace_.names.intern(text);
    std::memcpy(&first, text.data(), sizeof first);
    std::memcpy(&last, text.data() + text.size() - sizeof last, sizeof last);
    const std::uint64_t hash = hash_mix(hash_mix(text.size(), first), last);
    NameId& known = recent_[hash % recent_.size()];
    if (trace_.names.text(known) != text) known = trace_.names.intern(text);
    return known;
  }

  // Position of the event's inputs, or -1.
  std::int32_t arguments_of(const RawEvent& event) {
    if (event.dims.empty()) return -1;
    const OpArguments made{.dims = intern(event.dims),
                           .types = intern(event.types),
                           .strides = intern(event.strides),
                           .concrete = intern(event.concrete)};
    const auto [at, added] =
        argument_indices_.try_emplace({made.dims, made.types, made.strides, made.concrete},
                                      static_cast<std::int32_t>(trace_.arguments.size()));
    if (added) trace_.arguments.push_back(made);
    return at->second;
  }

  // Position of the event's record of a collective, or -1.
  std::int32_t note_collective(const RawEvent& event) {
    if (event.collective.empty()) return -1;
    trace_.collectives.push_back({.kind = intern(event.collective),
                                  .process_group = intern(event.process_group),
                                  .dtype = intern(event.dtype),
                                  .sequence = event.sequence,
                                  .in_elements = event.in_elements,
                                  .out_elements = event.out_elements,
                                  .group_size = event.group_size});
    return static_cast<std::int32_t>(trace_.collectives.size()) - 1;
  }

  void gpu_event(const RawEvent& event, GpuKind kind, NameId name, std::int64_t start,
                 std::int64_t duration) {
    std::int64_t stream = event.stream, device = event.device;
    if (stream < 0) {  // before 2021 the lane was the thread id: "stream 7"
      std::string_view lane = event.tid;
      if (lane.starts_with("stream ")) lane.remove_prefix(7);
      stream = parse_integer(lane, 0);
    }
    if (device < 0) device = parse_integer(event.pid, 0);
    trace_.gpu.push_back({.start_ns = start,
                          .duration_ns = duration,
                          .name = name,
                          .kind = kind,
                          .device = static_cast<std::int16_t>(device),
                          .stream = stream,
                          .correlation = event.correlation,
                          .bytes = event.bytes,
                          .collective = note_collective(event),
                          .blocks_per_sm = parse_estimate(event.blocks_per_sm),
                          .occupancy_percent = parse_estimate(event.occupancy)});
  }

  void counter_range(const RawEvent& event, NameId name, std::int64_t start,
                     std::int64_t duration) {
    CounterRange made{.start_ns = start, .duration_ns = duration, .name = name};
    for (const auto& [counter, value] : event.counters) {
      made.values.emplace_back(intern(counter), value);
    }
    counter_bytes_ += sizeof(CounterRange) + made.values.size() * sizeof(made.values.front());
    trace_.counters.push_back(std::move(made));
  }

  static std::string thread_key(const RawEvent& event) {
    std::string key(event.pid);
    key += '\n';
    key += event.tid;
    return key;
  }

  std::int32_t thread_index(const RawEvent& event) {
    // Events of one thread come in runs, so the last answer is nearly always right.
    if (last_thread_ >= 0) {
      const TraceThread& last = trace_.threads[last_thread_];
      if (last.thread_id == event.tid && last.process_id == event.pid) return last_thread_;
    }
    const auto [at, added] = thread_indices_.try_emplace(
        thread_key(event), static_cast<std::int32_t>(trace_.threads.size()));
    if (added) {
      trace_.threads.push_back({std::string(event.pid), std::string(event.tid), ""});
    }
    return last_thread_ = at->second;
  }

  // Replaces text that no JSON parser accepts: invalid UTF-8 and control characters inside strings.
  void repair(JsonStream& stream) {
    char* text = stream.mutable_elements();
    const std::size_t size = stream.elements().size();
    bool in_string = false;
    for (std::size_t i = 0; i < size; ++i) {
      const auto c = static_cast<unsigned char>(text[i]);
      if (c == '"') {
        std::size_t slashes = 0;
        while (slashes < i && text[i - 1 - slashes] == '\\') ++slashes;
        if (slashes % 2 == 0) in_string = !in_string;
      } else if (in_string && c < 0x20) {
        text[i] = '?';
        ++repaired_;
      } else if (c >= 0x80) {
        const std::size_t length = c >= 0xF0 && c < 0xF5   ? 4
                                   : c >= 0xE0 && c < 0xF0 ? 3
                                   : c >= 0xC2 && c < 0xE0 ? 2
                                                           : 0;
        if (length > 0 && i + length <= size && simdjson::validate_utf8(text + i, length)) {
          i += length - 1;
        } else {
          text[i] = '?';
          ++repaired_;
        }
      }
    }
  }

  // A double cannot resolve epoch stamps; everything later works on small numbers.
  void rebase() {
    std::int64_t base = std::numeric_limits<std::int64_t>::max();
    for (const HostEvent& event : trace_.host) base = std::min(base, event.start_ns);
    for (const GpuEvent& event : trace_.gpu) base = std::min(base, event.start_ns);
    if (trace_.host.empty() && trace_.gpu.empty()) {
      for (const MemoryRecord& event : trace_.memory) base = std::min(base, event.time_ns);
    }
    if (base == std::numeric_limits<std::int64_t>::max()) base = 0;
    trace_.base_ns += base;
    for (HostEvent& event : trace_.host) event.start_ns -= base;
    for (GpuEvent& event : trace_.gpu) event.start_ns -= base;
    for (SyncEvent& event : trace_.syncs) event.start_ns -= base;
    for (CounterRange& event : trace_.counters) event.start_ns -= base;
    for (MemoryRecord& event : trace_.memory) event.time_ns -= base;
    for (HostEvent& event : trace_.modules) event.start_ns -= base;
    for (HostEvent& event : trace_.frames) event.start_ns -= base;
  }

  void name_threads() {
    for (auto& [key, label] : thread_labels_) {
      if (auto at = thread_indices_.find(key); at != thread_indices_.end()) {
        trace_.threads[at->second].name = label;
      }
    }
  }

  Trace& trace_;
  ReadLimits limits_;
  bool salvage_, keeps_frames_;
  std::vector<Problem> problems_;  // problems in the current piece
  std::uint64_t name_bytes_ = 0;
  std::size_t counted_names_ = 0;
  ondemand::parser parser_;
  simdjson::dom::parser head_parser_;
  std::unordered_map<std::string, std::int32_t> thread_indices_;
  std::vector<std::pair<std::string, std::string>> thread_labels_;
  std::vector<std::int8_t> label_by_name_;
  std::array<NameId, 1024> recent_ = {};  // by a hash of their size, first and last bytes
  std::map<std::array<NameId, 4>, std::int32_t> argument_indices_;
  NoteOwners note_owners_;
  std::int64_t clock_base_ns_ = 0;
  std::int32_t last_thread_ = -1;
  std::size_t repaired_ = 0;
  std::uint64_t counter_bytes_ = 0;
  BeginEndEvents borders_;
  std::vector<std::size_t> uncategorised_;  // into Trace::host, in the order of the file
  ProcessNames process_names_;
  XplaneLanes xplane_;
  JsonKind kind_;
  std::map<std::string, std::size_t, std::less<>> unread_;  // events per category
};

Result<Trace> read_events(const std::filesystem::path& file, const ReadOptions& options) {
  PERFMODEL_TRY(stream, JsonStream::open(file, "traceEvents", options));
  Trace trace;
  trace.source = file.string();
  TraceReader reader(trace, options);
  for (;;) {
    events_growth_point(trace.event_count);
    const auto item = stream->next();
    if (!item && reader.kind().is_sequence()) break;
    if (!item) return Unexpected{item.error()};
    if (*item == JsonStream::Item::kEnd) break;
    if (*item == JsonStream::Item::kMember) {
      if (!options.salvage) {  // a bracket too few may hide the events
        if (auto good = stream->check_member(JsonManner::kLenient); !good) {
          return Unexpected{good.error()};
        }
      }
      reader.head_member(stream->member_key(), stream->member_text());
    } else if (!reader.is_of_events(*stream)) {
      return fail(ErrorCode::kFormat, "expected a timed (Kineto) trace" + reader.kind().found(),
                  file);
    } else if (auto read = reader.piece(*stream); !read) {
      if (read.error().file.empty()) read.error().file = file;
      return Unexpected{std::move(read.error())};
    }
  }
  if (!stream->array_seen()) {
    const std::string found = reader.kind().found();
    return fail(ErrorCode::kFormat,
                found.empty() ? "expected key \"traceEvents\", found none"
                              : "expected a timed (Kineto) trace" + found,
                file);
  }
  const SalvageLog& log = stream->salvage_log();
  if (trace.event_count == 0 && (stream->cut_off() || log.dropped > 0 || !log.damage.empty())) {
    const std::string lost = log.first_place();
    return fail(ErrorCode::kFormat,
                "expected a complete event, found none; " +
                    (lost.empty() ? stream->cut_text(0, "events") : lost),
                file, "/traceEvents");
  }
  if (stream->cut_off()) {
    trace.warnings.push_back(stream->cut_text(trace.event_count, "events"));
  }
  log.report("events", trace.warnings);
  trace.text_bytes = stream->bytes_read();
  if (auto done = reader.finish(); !done) return Unexpected{std::move(done.error())};
  return trace;
}

}  // namespace

std::string Trace::gpu_name() const {
  if (gpu.empty() && !devices.empty()) return devices.front().name;
  for (const TraceDevice& device : devices) {
    if (!gpu.empty() && device.id == gpu.front().device) return device.name;
  }
  return {};
}

Result<Trace> read_trace(const std::filesystem::path& file, const ReadOptions& options) {
  auto trace = within_budget<Trace>([&] { return read_events(file, options); });
  if (!trace && trace.error().file.empty()) trace.error().file = file;
  return trace;
}

}  // namespace perfmodel
