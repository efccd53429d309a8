#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>

#include "base/large_pages.hpp"
#include "base/secrets.hpp"
#include "json/json_kind.hpp"
#include "json/json_stream.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/trace.hpp"

namespace perfmodel {
namespace {

namespace ondemand = simdjson::ondemand;

enum class Category : std::uint8_t {
  kOther,
  kOp,
  kAnnotation,
  kCall,
  kKernel,
  kCopy,
  kSet,
  kSync,
  kSkipEarly,
  kIgnored,
};

Category category_of(std::string_view name) {
  static const std::unordered_map<std::string_view, Category> kNames = {
      {"cpu_op", Category::kOp},
      {"Operator", Category::kOp},
      {"user_annotation", Category::kAnnotation},
      {"cuda_runtime", Category::kCall},
      {"cuda_driver", Category::kCall},
      {"Runtime", Category::kCall},
      {"hip_runtime", Category::kCall},
      {"kernel", Category::kKernel},
      {"Kernel", Category::kKernel},
      {"gpu_memcpy", Category::kCopy},
      {"Memcpy", Category::kCopy},
      {"gpu_memset", Category::kSet},
      {"Memset", Category::kSet},
      {"cuda_sync", Category::kSync},
      {"python_function", Category::kSkipEarly},
      // What a replay and a summary have no use for.
      {"ac2g", Category::kIgnored},
      {"async_cpu_to_gpu", Category::kIgnored},
      {"fwdbwd", Category::kIgnored},
      {"forward_backward", Category::kIgnored},
      {"cpu_instant_event", Category::kIgnored},
      {"cuda_event", Category::kIgnored},
      {"external_correlation", Category::kIgnored},
      {"gpu_user_annotation", Category::kIgnored},
      {"overhead", Category::kIgnored},
      {"Trace", Category::kIgnored},
      {"unrecorded", Category::kIgnored},  // of timelines written here
      {"", Category::kIgnored}};
  const auto known = kNames.find(name);
  return known == kNames.end() ? Category::kOther : known->second;
}

// Sums and differences of such stamps, in nanoseconds, stay within 64 bits: 2112, and 36 years.
constexpr std::int64_t kMostStamp = 4'500'000'000'000'000'000;
constexpr std::int64_t kMostDuration = std::int64_t{1} << 60;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;

// Decimal text with an exponent, in thousandths: digits are counted, nothing is rounded through a
// double, so that "1.694103001123456e15" keeps its nanoseconds. `text` has no sign.
std::optional<std::int64_t> parse_scientific(std::string_view text) {
  constexpr std::int64_t kTenth = std::numeric_limits<std::int64_t>::max() / 10;
  std::int64_t digits = 0;
  int scale = 3;  // the value is digits * 10^scale thousandths
  bool in_fraction = false;
  std::size_t at = 0;
  for (; at < text.size() && text[at] != 'e' && text[at] != 'E'; ++at) {
    if (text[at] == '.' && !in_fraction) {
      in_fraction = true;
      continue;
    }
    if (text[at] < '0' || text[at] > '9') return {};
    const bool kept = digits < kTenth;  // further digits are below any clock's resolution
    if (kept) digits = digits * 10 + (text[at] - '0');
    scale += static_cast<int>(!kept) - static_cast<int>(in_fraction);
  }
  if (at == 0 || at >= text.size()) return {};
  ++at;
  if (at < text.size() && text[at] == '+') ++at;
  int exponent = 0;
  const char* const end = text.data() + text.size();
  const auto [past, error] = std::from_chars(text.data() + at, end, exponent);
  if (error != std::errc() || past != end || exponent > 30 || exponent < -300) return {};
  for (scale += exponent; scale > 0 && digits > 0; --scale) {
    if (digits > kTenth) return {};
    digits *= 10;
  }
  for (; scale < 0 && digits > 0; ++scale) digits /= 10;
  return digits;
}

// Microseconds as text ("1694103001123456.789", "12", "1.5e3") to nanoseconds, without rounding
// through a double. Quotes around the number are accepted. Digits below 1 ns are cut off.
std::optional<std::int64_t> parse_stamp(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n' || text.back() == '\r' ||
                           text.back() == '\t' || text.back() == '"')) {
    text.remove_suffix(1);
  }
  if (!text.empty() && text.front() == '"') text.remove_prefix(1);
  const bool negative = !text.empty() && text.front() == '-';
  if (negative) text.remove_prefix(1);
  std::int64_t whole = 0;
  const char* const end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data(), end, whole);
  if (error != std::errc() || whole < 0) return {};
  std::int64_t fraction = 0;
  if (at != end && *at == '.') {
    std::int64_t unit = 100;
    for (++at; at != end && *at >= '0' && *at <= '9'; ++at, unit /= 10) {
      fraction += unit * (*at - '0');
    }
  }
  if (at != end) {
    const auto value = parse_scientific(text);
    return value && negative ? std::optional(-*value) : value;
  }
  if (whole > std::numeric_limits<std::int64_t>::max() / 1000 - 1) return {};
  const std::int64_t ns = whole * 1000 + fraction;
  return negative ? -ns : ns;
}

// A JSON token that should be an integer; quoted digits count ("12"), anything else is `fallback`.
std::int64_t parse_integer(std::string_view text, std::int64_t fallback) {
  if (!text.empty() && text.front() == '"') text.remove_prefix(1);
  std::int64_t value = fallback;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc()) return value;
  std::uint64_t big = 0;  // addresses above 2^63
  const auto [past, bad] = std::from_chars(text.data(), text.data() + text.size(), big);
  return bad == std::errc() ? static_cast<std::int64_t>(big) : fallback;
}

// A JSON number of no great weight; below 0: none.
float parse_estimate(std::string_view text) {
  double value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return std::isfinite(value) ? static_cast<float>(value) : -1.0F;
}

std::string_view trimmed_token(std::string_view token) {
  const std::size_t last = token.find_last_not_of(" \n\r\t,");
  token = token.substr(0, last == std::string_view::npos ? 0 : last + 1);
  if (token.size() >= 2 && token.front() == '"' && token.back() == '"') {
    token = token.substr(1, token.size() - 2);
  }
  return token;
}

// Tokens of a `[memory]` event's arguments; empty where a key is absent.
struct RawMemory {
  std::string_view bytes, address, allocated, reserved, device_type, device;
};

struct RawEvent {
  std::string_view name, category, phase, ts, duration, pid, tid;
  std::int64_t external_id = -1, correlation = -1, record_function_id = 0, event_index = -1;
  std::int64_t stream = -1, device = -1, bytes = 0;
  std::int64_t wait_on_stream = -1, wait_on_event = -1;
  std::string_view sync_kind, thread_label;
  // Of collectives.
  std::string_view collective, process_group, dtype;
  std::int64_t sequence = -1, in_elements = -1, out_elements = -1, group_size = -1;
  // Of ops: JSON text.
  std::string_view dims, types, strides, concrete;
  std::int64_t autograd_sequence = -1, forward_thread = 0;
  std::string_view blocks_per_sm, occupancy;
  RawMemory memory;
};

// A whole number with nothing behind it. Addresses above 2^63 wrap.
std::optional<std::int64_t> whole_number(std::string_view text) {
  const char* const end = text.data() + text.size();
  std::int64_t value = 0;
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && at == end) return value;
  std::uint64_t big = 0;
  const auto [past, bad] = std::from_chars(text.data(), end, big);
  if (bad == std::errc() && past == end) return static_cast<std::int64_t>(big);
  return {};
}

class TraceReader {
 public:
  TraceReader(Trace& trace, const ReadOptions& options)
      : trace_(trace), limits_(options.limits), salvage_(options.salvage) {}

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

  void finish() {
    if (repaired_ > 0) {
      trace_.warnings.push_back(
          fmt::format("{} bytes that are no valid text were replaced by '?'", repaired_));
    }
    name_unread();
    rebase();
    sort_events();
    link_launches();
    mask();
  }

 private:
  // An event without what is needed of it.
  struct Problem {
    std::size_t index = 0;
    std::string tail = {}, message = {};
  };

  // What the index of arguments takes for each.
  static constexpr std::uint64_t kBytesPerArguments = 64;

  // For the events of the piece; where that takes new memory, for those of the whole file if it
  // goes on like that. Room that is not needed is never touched.
  void make_room(const JsonStream& stream) {
    const auto grow = [&](auto& events) {
      const std::size_t needed = events.size() + stream.element_count();
      if (needed <= events.capacity()) return;
      const double share = stream.share_read();
      const double all = share > 0 ? static_cast<double>(events.size()) / share : 0;
      constexpr double kMargin = 1.1, kMostGrowth = 64;
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
        trace_.modules.size() * sizeof(HostEvent) +
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
    const auto host_size = trace_.host.size(), gpu_size = trace_.gpu.size();
    const auto sync_size = trace_.syncs.size(), note_size = trace_.collectives.size();
    const auto owner_size = note_owners_.size(), memory_size = trace_.memory.size();
    const auto module_size = trace_.modules.size();
    problems_.clear();
    const simdjson::error_code error = parse_events(stream);
    if (error != simdjson::SUCCESS) {
      trace_.host.resize(host_size);
      trace_.gpu.resize(gpu_size);
      trace_.syncs.resize(sync_size);
      trace_.collectives.resize(note_size);
      trace_.memory.resize(memory_size);
      trace_.modules.resize(module_size);
      note_owners_.resize(owner_size);
    }
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
      // A broken value that nobody needs can lead the parser astray, which then takes something
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

  simdjson::error_code read_event(ondemand::object& object, RawEvent& event) {
    for (auto field : object) {
      if (auto error = field.error()) return error;
      // By reference: a copy of a value is stored in two parts and loaded as a whole, which stalls.
      ondemand::field&& member = std::move(field).value_unsafe();
      ondemand::value& value = member.value();
      const char* k = member.key().raw();
      const auto is = [k](std::string_view name) {
        return std::memcmp(k, name.data(), name.size()) == 0 && k[name.size()] == '"';
      };
      simdjson::error_code error = simdjson::SUCCESS;
      switch (*k) {
        case 'n':
          if (is("name")) error = string(value, event.name);
          break;
        case 'c':
          if (is("cat")) {
            error = string(value, event.category);
          }
          break;
        case 'p':
          if (is("ph")) error = string(value, event.phase);
          if (is("pid")) event.pid = trimmed_token(value.raw_json_token());
          break;
        case 't':
          if (is("ts")) event.ts = value.raw_json_token();
          if (is("tid")) event.tid = trimmed_token(value.raw_json_token());
          break;
        case 'd':
          if (is("dur")) event.duration = value.raw_json_token();
          break;
        case 'a':
          // Python frames are up to 85 % of a file: leave them before their arguments.
          if (is("args") && category_of(event.category) == Category::kSkipEarly) {
            return error;
          }
          if (is("args")) error = read_args(value, event);
          break;
        default:
          break;
      }
      if (error) return error;
    }
    return simdjson::SUCCESS;
  }

  static simdjson::error_code string(ondemand::value& value, std::string_view& out) {
    const auto error = value.get_string().get(out);
    return error == simdjson::INCORRECT_TYPE ? simdjson::SUCCESS : error;
  }

  // Text of an array; of anything else nothing.
  static simdjson::error_code list_text(ondemand::value& value, std::string_view& out) {
    ondemand::array list;
    if (auto error = value.get_array().get(list)) {
      return error == simdjson::INCORRECT_TYPE ? simdjson::SUCCESS : error;
    }
    return list.raw_json().get(out);
  }

  static simdjson::error_code read_args(ondemand::value& value, RawEvent& event) {
    ondemand::object args;
    if (auto error = value.get_object().get(args)) {
      return error == simdjson::INCORRECT_TYPE ? simdjson::SUCCESS : error;
    }
    for (auto field : args) {
      if (auto error = field.error()) return error;
      ondemand::field&& member = std::move(field).value_unsafe();
      ondemand::value& item = member.value();
      const char* k = member.key().raw();
      const auto is = [k](std::string_view name) {
        return std::memcmp(k, name.data(), name.size()) == 0 && k[name.size()] == '"';
      };
      const auto integer = [&item](std::int64_t fallback) {
        return parse_integer(item.raw_json_token(), fallback);
      };
      const auto token = [&item] { return trimmed_token(item.raw_json_token()); };
      switch (*k) {
        case 'T':
          if (is("Total Allocated")) event.memory.allocated = token();
          if (is("Total Reserved")) event.memory.reserved = token();
          break;
        case 'B':
          if (is("Bytes")) event.memory.bytes = token();
          break;
        case 'A':
          if (is("Addr")) event.memory.address = token();
          break;
        case 'D':
          if (is("Device Type")) event.memory.device_type = token();
          if (is("Device Id")) event.memory.device = token();
          break;
        case 'E':
          if (is("External id")) event.external_id = integer(-1);
          if (is("Ev Idx")) event.event_index = integer(-1);
          break;
        case 'e':
          if (is("external id")) event.external_id = integer(-1);
          if (is("est. achieved occupancy %")) event.occupancy = token();
          break;
        case 'P':
          if (is("Profiler Event Index")) event.event_index = integer(-1);
          if (is("Process Group Name")) {
            if (auto error = string(item, event.process_group)) return error;
          }
          break;
        case 'C':
          if (is("Collective name")) {
            if (auto error = string(item, event.collective)) return error;
          }
          if (is("Concrete Inputs")) {
            if (auto error = list_text(item, event.concrete)) return error;
          }
          break;
        case 'I':
          if (is("In msg nelems")) event.in_elements = integer(-1);
          if (is("Input Dims")) {
            if (auto error = list_text(item, event.dims)) return error;
          } else if (is("Input type")) {
            if (auto error = list_text(item, event.types)) return error;
          } else if (is("Input Strides")) {
            if (auto error = list_text(item, event.strides)) return error;
          }
          break;
        case 'F':
          if (is("Fwd thread id")) event.forward_thread = integer(0);
          break;
        case 'O':
          if (is("Out msg nelems")) event.out_elements = integer(-1);
          break;
        case 'G':
          if (is("Group size")) event.group_size = integer(-1);
          break;
        case 'S':
          if (is("Seq")) event.sequence = integer(-1);
          if (is("Sequence number")) event.autograd_sequence = integer(-1);
          break;
        case 'R':
          if (is("Record function id")) event.record_function_id = integer(0);
          break;
        case 'c':
          if (is("correlation")) event.correlation = integer(-1);
          if (is("cuda_sync_kind")) {
            if (auto error = string(item, event.sync_kind)) return error;
          }
          break;
        case 's':
          if (is("stream")) event.stream = integer(-1);
          break;
        case 'd':
          if (is("device")) event.device = integer(-1);
          if (is("dtype")) {
            if (auto error = string(item, event.dtype)) return error;
          }
          break;
        case 'b':
          if (is("bytes")) event.bytes = integer(0);
          if (is("blocks per SM")) event.blocks_per_sm = token();
          break;
        case 'n':
          if (is("name")) {
            if (auto error = string(item, event.thread_label)) return error;
          }
          break;
        case 'w':
          if (is("wait_on_stream")) event.wait_on_stream = integer(-1);
          if (is("wait_on_cuda_event_record_corr_id")) event.wait_on_event = integer(-1);
          break;
        default:
          break;
      }
    }
    return simdjson::SUCCESS;
  }

  using Complaint = std::optional<std::pair<std::string, std::string>>;

  Complaint keep(const RawEvent& event) {
    if (event.phase == "M") {
      if (event.name == "thread_name" && !event.thread_label.empty()) {
        thread_labels_.emplace_back(thread_key(event), std::string(event.thread_label));
      }
      return {};
    }
    // The oldest traces write no phase at all; everything with a duration is a complete event.
    if (event.phase != "X" && !event.phase.empty()) {
      if (event.name == "[memory]" && event.phase == "i") return memory_event(event);
      return {};
    }
    Category category = category_of(event.category);
    if (event.category.empty() && !event.duration.empty()) category = Category::kOp;
    if (category == Category::kSkipEarly) return python_frame(event);
    if (category == Category::kOther) note_unread(event.category);
    if (category == Category::kOther || category == Category::kIgnored) return {};
    const auto start = parse_stamp(event.ts);
    if (!start || *start < -kMostStamp || *start > kMostStamp) return complaint("/ts", event.ts);
    const auto duration =
        event.duration.empty() ? std::optional<std::int64_t>(0) : parse_stamp(event.duration);
    if (!duration || *duration > kMostDuration) return complaint("/dur", event.duration);
    if (*duration < 0) {
      return std::pair{std::string("/dur"),
                       fmt::format("expected a duration of at least 0, found {} ns", *duration)};
    }
    const NameId name = trace_.names.intern(event.name);
    switch (category) {
      case Category::kKernel:
        gpu_event(event, GpuKind::kKernel, name, *start, *duration);
        break;
      case Category::kCopy:
        gpu_event(event, GpuKind::kCopy, name, *start, *duration);
        break;
      case Category::kSet:
        gpu_event(event, GpuKind::kSet, name, *start, *duration);
        break;
      case Category::kSync:
        trace_.syncs.push_back(
            {*start, *duration,
             event.sync_kind.empty() ? name : trace_.names.intern(event.sync_kind), event.stream,
             event.wait_on_stream, event.wait_on_event, event.correlation});
        break;
      default:
        host_event(event, category, name, *start, *duration);
        break;
    }
    return {};
  }

  // Of frames of Python only the modules are kept.
  Complaint python_frame(const RawEvent& event) {
    trace_.has_python_frames = true;
    if (!event.name.starts_with("nn.Module: ")) return {};
    const auto start = parse_stamp(event.ts), duration = parse_stamp(event.duration);
    if (!start || *start < -kMostStamp || *start > kMostStamp) return complaint("/ts", event.ts);
    if (!duration || *duration < 0 || *duration > kMostDuration) {
      return complaint("/dur", event.duration);
    }
    trace_.modules.push_back({.start_ns = *start,
                              .duration_ns = *duration,
                              .name = trace_.names.intern(event.name),
                              .thread = thread_index(event),
                              .kind = HostKind::kAnnotation,
                              .file_order = static_cast<std::uint32_t>(trace_.modules.size())});
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
      const auto value = whole_number(number.text);
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
    if (unread_.empty()) return;
    std::string list;
    for (const auto& [category, count] : unread_) {
      list += fmt::format("{}\"{}\" ({})", list.empty() ? "" : ", ", shown_text(category), count);
    }
    trace_.unread = std::move(list);
    trace_.warnings.push_back("events of these categories are not read: " + trace_.unread);
  }

  static Complaint complaint(std::string tail, std::string_view found) {
    return std::pair{std::move(tail),
                     found.empty()
                         ? std::string("expected a number, found nothing")
                         : fmt::format("expected a number, found {}",
                                       shown_text(found.substr(0, found.find_first_of("\n,}"))))};
  }

  void host_event(const RawEvent& event, Category category, NameId name, std::int64_t start,
                  std::int64_t duration) {
    if (label_by_name_.size() <= name) label_by_name_.resize(name + 1, -1);
    auto& label = label_by_name_[name];
    if (label < 0) label = is_label_name(event.name) ? 1 : 0;
    HostKind kind = category == Category::kCall         ? HostKind::kCall
                    : category == Category::kAnnotation ? HostKind::kAnnotation
                    : label == 1                        ? HostKind::kAnnotation
                                                        : HostKind::kOp;
    trace_.host.push_back({.start_ns = start,
                           .duration_ns = duration,
                           .name = name,
                           .thread = thread_index(event),
                           .kind = kind,
                           .file_order = static_cast<std::uint32_t>(trace_.host.size()),
                           .event_index = event.event_index,
                           .correlation = event.correlation,
                           .record_function_id = event.record_function_id,
                           .external_id = event.external_id,
                           .sequence = event.autograd_sequence,
                           .arguments = arguments_of(event),
                           .has_forward_thread = event.forward_thread > 0});
    if (const std::int32_t note = note_collective(event); note >= 0) {
      trace_.host.back().collective = note;
      note_owners_.emplace_back(trace_.host.back().file_order, note);
    }
  }

  // Position of what the event says about its inputs, or -1.
  std::int32_t arguments_of(const RawEvent& event) {
    if (event.dims.empty()) return -1;
    const OpArguments made{.dims = trace_.names.intern(event.dims),
                           .types = trace_.names.intern(event.types),
                           .strides = trace_.names.intern(event.strides),
                           .concrete = trace_.names.intern(event.concrete)};
    const auto [at, added] =
        argument_indices_.try_emplace({made.dims, made.types, made.strides, made.concrete},
                                      static_cast<std::int32_t>(trace_.arguments.size()));
    if (added) trace_.arguments.push_back(made);
    return at->second;
  }

  // Position of what the event says about a collective, or -1.
  std::int32_t note_collective(const RawEvent& event) {
    if (event.collective.empty()) return -1;
    trace_.collectives.push_back({.kind = trace_.names.intern(event.collective),
                                  .process_group = trace_.names.intern(event.process_group),
                                  .dtype = trace_.names.intern(event.dtype),
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

  static std::string thread_key(const RawEvent& event) {
    std::string key(event.pid);
    key += '\n';
    key += event.tid;
    return key;
  }

  std::int32_t thread_index(const RawEvent& event) {
    // Events of one thread come in runs, so the last answer is nearly always right.
    if (last_thread_ >= 0) {
      const TraceThread& last = trace_.threads[static_cast<std::size_t>(last_thread_)];
      if (last.thread_id == event.tid && last.process_id == event.pid) return last_thread_;
    }
    const auto [at, added] = thread_indices_.try_emplace(
        thread_key(event), static_cast<std::int32_t>(trace_.threads.size()));
    if (added) {
      trace_.threads.push_back({std::string(event.pid), std::string(event.tid), ""});
    }
    return last_thread_ = at->second;
  }

  // Replaces what no JSON parser accepts: invalid UTF-8 and control characters inside strings.
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

  // Epoch stamps exceed what a double resolves; everything later works on small numbers.
  void rebase() {
    std::int64_t base = std::numeric_limits<std::int64_t>::max();
    for (const HostEvent& event : trace_.host) base = std::min(base, event.start_ns);
    for (const GpuEvent& event : trace_.gpu) base = std::min(base, event.start_ns);
    if (trace_.host.empty() && trace_.gpu.empty()) {
      for (const MemoryRecord& event : trace_.memory) base = std::min(base, event.time_ns);
    }
    if (base == std::numeric_limits<std::int64_t>::max()) base = 0;
    trace_.base_ns = base + clock_base_ns_;
    for (HostEvent& event : trace_.host) event.start_ns -= base;
    for (GpuEvent& event : trace_.gpu) event.start_ns -= base;
    for (SyncEvent& event : trace_.syncs) event.start_ns -= base;
    for (MemoryRecord& event : trace_.memory) event.time_ns -= base;
    for (HostEvent& event : trace_.modules) event.start_ns -= base;
    for (auto& [key, label] : thread_labels_) {
      if (auto at = thread_indices_.find(key); at != thread_indices_.end()) {
        trace_.threads[static_cast<std::size_t>(at->second)].name = label;
      }
    }
  }

  void sort_events() {
    const auto earlier = [](const HostEvent& a, const HostEvent& b) {
      if (a.thread != b.thread) return a.thread < b.thread;
      if (a.start_ns != b.start_ns) return a.start_ns < b.start_ns;
      if (a.duration_ns != b.duration_ns) return a.duration_ns > b.duration_ns;
      // A call as long as its op lies inside it, wherever the file has them.
      const bool a_call = a.kind == HostKind::kCall, b_call = b.kind == HostKind::kCall;
      if (a_call != b_call) return b_call;
      return a.file_order < b.file_order;
    };
    std::sort(trace_.host.begin(), trace_.host.end(), earlier);
    std::sort(trace_.modules.begin(), trace_.modules.end(), earlier);
    std::stable_sort(trace_.gpu.begin(), trace_.gpu.end(),
                     [](const GpuEvent& a, const GpuEvent& b) {
                       if (a.device != b.device) return a.device < b.device;
                       if (a.stream != b.stream) return a.stream < b.stream;
                       return a.start_ns < b.start_ns;
                     });
    std::ranges::stable_sort(trace_.memory, std::ranges::less{}, &MemoryRecord::time_ns);
  }

  void link_launches() {
    std::unordered_map<std::int64_t, std::int32_t> by_correlation;
    for (std::size_t i = 0; i < trace_.host.size(); ++i) {
      const HostEvent& event = trace_.host[i];
      if (event.kind != HostKind::kCall || event.correlation < 0) continue;
      // Ids repeat now and then (a query with a launch's number): the launch wins.
      const auto [at, added] =
          by_correlation.try_emplace(event.correlation, static_cast<std::int32_t>(i));
      if (!added && is_launch_call(trace_.name(event))) at->second = static_cast<std::int32_t>(i);
    }
    for (GpuEvent& event : trace_.gpu) {
      const auto at = by_correlation.find(event.correlation);
      if (at != by_correlation.end()) event.launch = at->second;
    }
    hand_notes_to_kernels();
  }

  // A kernel without a note of its own takes that of the op that launched it.
  void hand_notes_to_kernels() {
    if (note_owners_.empty()) return;
    std::unordered_map<std::uint32_t, std::int32_t> note_of;  // by file order of the op
    for (const auto& [file_order, note] : note_owners_) note_of[file_order] = note;
    std::vector<std::int32_t> noted;  // host events with a note, in the order of Trace::host
    for (std::size_t i = 0; i < trace_.host.size(); ++i) {
      if (note_of.contains(trace_.host[i].file_order))
        noted.push_back(static_cast<std::int32_t>(i));
    }
    for (GpuEvent& event : trace_.gpu) {
      if (event.collective >= 0 || event.launch < 0 || !is_collective_kernel(trace_.name(event))) {
        continue;
      }
      const HostEvent& call = trace_.host[static_cast<std::size_t>(event.launch)];
      const auto after = std::upper_bound(noted.begin(), noted.end(), event.launch);
      if (after == noted.begin()) continue;
      const HostEvent& op = trace_.host[static_cast<std::size_t>(*(after - 1))];
      if (op.thread == call.thread && call.end_ns() <= op.end_ns()) {
        event.collective = note_of[op.file_order];
      }
    }
  }

  Trace& trace_;
  ReadLimits limits_;
  bool salvage_;
  std::vector<Problem> problems_;  // of the piece at hand
  std::uint64_t name_bytes_ = 0;
  std::size_t counted_names_ = 0;
  ondemand::parser parser_;
  simdjson::dom::parser head_parser_;
  std::unordered_map<std::string, std::int32_t> thread_indices_;
  std::vector<std::pair<std::string, std::string>> thread_labels_;
  std::vector<std::int8_t> label_by_name_;
  std::map<std::array<NameId, 4>, std::int32_t> argument_indices_;
  std::vector<std::pair<std::uint32_t, std::int32_t>> note_owners_;  // file order of the op, note
  std::int64_t clock_base_ns_ = 0;
  std::int32_t last_thread_ = -1;
  std::size_t repaired_ = 0;
  JsonKind kind_;
  std::map<std::string, std::size_t, std::less<>> unread_;  // events per category
};

}  // namespace

std::string Trace::gpu_name() const {
  if (gpu.empty() && !devices.empty()) return devices.front().name;
  for (const TraceDevice& device : devices) {
    if (!gpu.empty() && device.id == gpu.front().device) return device.name;
  }
  return {};
}

Result<Trace> read_trace(const std::filesystem::path& file, const ReadOptions& options) {
  auto stream = JsonStream::open(file, "traceEvents", options);
  if (!stream) return Unexpected{stream.error()};
  Trace trace;
  trace.source = file.string();
  TraceReader reader(trace, options);
  for (;;) {
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
    } else if (auto read = reader.piece(*stream); !read) {
      if (read.error().file.empty()) read.error().file = file;
      return Unexpected{std::move(read.error())};
    }
  }
  if (!stream->array_seen()) {
    const std::string found = reader.kind().found();
    return Unexpected{Error{.code = ErrorCode::kFormat,
                            .message = found.empty() ? "expected key \"traceEvents\", found none"
                                                     : "expected a timed (Kineto) trace" + found,
                            .file = file}};
  }
  if (stream->cut_off()) {
    trace.warnings.push_back(stream->cut_text(trace.event_count, "events"));
  }
  stream->salvage_log().report("events", trace.warnings);
  trace.text_bytes = stream->bytes_read();
  reader.finish();
  return trace;
}

}  // namespace perfmodel
