#include "perfmodel/detail/allocator_snapshot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/plain_text.hpp"
#include "base/secrets.hpp"
#include "explain/inflated_text.hpp"
#include "json/json_kind.hpp"

namespace perfmodel {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostText = std::size_t{1} << 30;
constexpr std::int64_t kMostBlockBytes = std::int64_t{1} << 50;  // sums of blocks stay in 64 bits
constexpr std::int64_t kBlockRounding = 512;                     // PyTorch's kMinBlockSize
constexpr std::size_t kMostLargest = 10;
constexpr std::size_t kMostNesting = 64;

struct Bad {
  std::string pointer, message;
};

// ---- values, each with its place ----------------------------------------------------------------

class Value {
 public:
  Value(const Json& json, std::string pointer) : json_(&json), pointer_(std::move(pointer)) {}

  const Json& json() const { return *json_; }
  const std::string& pointer() const { return pointer_; }

  [[noreturn]] void expected(std::string_view what) const {
    std::string found = json_->dump(-1, ' ', false, Json::error_handler_t::replace);
    if (json_->is_structured()) found = json_->is_array() ? "an array" : "an object";
    constexpr std::size_t kMostShown = 60;
    if (found.size() > kMostShown) found = found.substr(0, kMostShown) + "...";
    throw Bad{pointer_, fmt::format("expected {}, found {}", what, plain_text(found))};
  }

  std::optional<Value> member(const char* key) const {
    if (!json_->is_object()) expected("an object");
    const auto at = json_->find(key);
    if (at == json_->end() || at->is_null()) return {};
    return Value(*at, pointer_ + "/" + key);
  }
  Value needed(const char* key) const {
    if (auto found = member(key)) return *found;
    throw Bad{pointer_, fmt::format("expected key \"{}\", found none", key)};
  }

  std::size_t size() const {
    if (!json_->is_array()) expected("an array");
    return json_->size();
  }
  Value at(std::size_t i) const { return {(*json_)[i], fmt::format("{}/{}", pointer_, i)}; }

  std::int64_t integer(std::int64_t least, std::int64_t most) const {
    const std::string range = fmt::format("a whole number from {} to {}", least, most);
    if (!json_->is_number_integer()) expected(range);
    if (json_->is_number_unsigned()) {
      if (json_->get<std::uint64_t>() > static_cast<std::uint64_t>(most)) expected(range);
    }
    const auto value = json_->get<std::int64_t>();
    if (value < least || value > most) expected(range);
    return value;
  }
  std::int64_t bytes() const { return integer(0, kMostBlockBytes); }
  std::uint64_t address() const {
    if (!json_->is_number_unsigned()) expected("an address");
    return json_->get<std::uint64_t>();
  }
  const std::string& text() const {
    if (!json_->is_string()) expected("a string");
    return json_->get_ref<const std::string&>();
  }

 private:
  const Json* json_;
  std::string pointer_;
};

// ---- frames -------------------------------------------------------------------------------------

std::string frame_text(const Value& frame) {
  const auto name = frame.member("name"), file = frame.member("filename");
  const auto line = frame.member("line");
  std::string text = name ? name->text() : "?";
  if (file) {
    const std::string& path = file->text();
    text += " (" + path.substr(path.rfind('/') + 1);
    if (line) text += fmt::format(":{}", line->integer(0, 1'000'000'000));
    text += ")";
  }
  if (auto without = mask_secrets(text)) text = std::move(*without);
  return plain_text(text);
}

// Innermost call first; blocks of older files have them in `history`.
std::string top_frame(const Value& holder) {
  if (const auto frames = holder.member("frames"); frames && frames->size() > 0) {
    return frame_text(frames->at(0));
  }
  if (const auto history = holder.member("history"); history && history->size() > 0) {
    const Value last = history->at(0);
    if (const auto frames = last.member("frames"); frames && frames->size() > 0) {
      return frame_text(frames->at(0));
    }
  }
  return {};
}

// ---- state at the end ---------------------------------------------------------------------------

using LiveSizes = std::map<std::uint64_t, std::int64_t>;  // by address

void add_segment(SnapshotDevice& device, LiveSizes& live, const Value& segment) {
  const std::int64_t total = segment.needed("total_size").bytes();
  const Value blocks = segment.needed("blocks");
  std::uint64_t address = segment.needed("address").address();
  std::int64_t sum = 0, held = 0, idle = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Value block = blocks.at(i);
    const std::int64_t size = block.needed("size").bytes();
    const Value state = block.needed("state");
    const std::string& name = state.text();
    if (name == "active_allocated") {
      device.allocated_bytes += size;
      held += size;
      ++device.blocks;
      const auto own = block.member("address");
      const std::uint64_t start = own ? own->address() : address;
      live[start] = size;
      device.largest.push_back({size, start, top_frame(block)});
    } else if (name == "active_pending_free" || name == "active_awaiting_free") {
      device.pending_free_bytes += size;
      held += size;
    } else if (name == "inactive") {
      idle += size;
    } else {
      state.expected("active_allocated, active_pending_free, active_awaiting_free or inactive");
    }
    sum += size;
    if (sum > total) break;
    address += static_cast<std::uint64_t>(size);
  }
  if (sum != total) {
    throw Bad{blocks.pointer(),
              fmt::format("expected blocks of {} bytes together, found {}", total, sum)};
  }
  (held > 0 ? device.inactive_split_bytes : device.free_segment_bytes) += idle;
  device.reserved_bytes += total;
  ++device.segments;
}

// ---- the trace, backwards -----------------------------------------------------------------------

struct Change {
  double time_us = 0;
  std::int64_t allocated = 0, reserved = 0;
  std::uint64_t address = 0;
  const Json* entry = nullptr;
  std::string unknown_action = {};
  std::string pointer;
};

// Entries of a newer PyTorch that move no bytes (marks of users, of contexts) change nothing.
bool moves_bytes(const Value& entry) {
  const auto size = entry.member("size");
  return size && size->bytes() > 0;
}

// A block leaves the tensors when its release is asked for; `free_completed` comes when streams are
// done with it.
Change change_of(const Value& entry) {
  static const std::map<std::string_view, std::pair<int, int>> kSigns = {
      {"alloc", {1, 0}},       {"free_requested", {-1, 0}},   {"free_completed", {0, 0}},
      {"free", {0, 0}},        {"segment_alloc", {0, 1}},     {"segment_free", {0, -1}},
      {"segment_map", {0, 1}}, {"segment_unmap", {0, -1}},    {"oom", {0, 0}},
      {"snapshot", {0, 0}},    {"workspace_snapshot", {0, 0}}};
  const Value action = entry.needed("action");
  const auto known = kSigns.find(action.text());
  if (known == kSigns.end() && !moves_bytes(entry)) return {.unknown_action = action.text()};
  if (known == kSigns.end()) {
    action.expected(
        "alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, "
        "segment_unmap, oom or snapshot");
  }
  const auto [allocated, reserved] = known->second;
  Change change{.entry = &entry.json(), .pointer = entry.pointer()};
  if (allocated != 0 || reserved != 0) {
    const std::int64_t size = entry.needed("size").bytes();
    change.address = entry.needed("addr").address();
    // Entries of blocks have the bytes asked for, segments and their blocks the rounded ones.
    change.allocated = allocated * ((size + kBlockRounding - 1) / kBlockRounding * kBlockRounding);
    change.reserved = reserved * size;
  }
  return change;
}

// Computes the levels after each change, back from the end, as the recording may have begun late
// and a ring buffer drops the oldest entries.
void trace_back(SnapshotDevice& device, LiveSizes& live, const std::vector<Change>& changes) {
  std::vector<MeasuredMemory::Point>& curve = device.memory.curve;
  std::int64_t allocated = device.allocated_bytes, reserved = device.reserved_bytes;
  curve.resize(changes.size() + 1);
  for (std::size_t i = changes.size();; --i) {
    const double time = i > 0 ? changes[i - 1].time_us : changes.empty() ? 0 : changes[0].time_us;
    curve[i] = {.time_us = time, .allocated_bytes = allocated, .reserved_bytes = reserved};
    if (i == 0) break;
    std::int64_t change = changes[i - 1].allocated;
    if (const auto at = live.find(changes[i - 1].address); change > 0 && at != live.end()) {
      change = at->second;  // a live block has a known size
      live.erase(at);
    }
    allocated -= change;
    reserved -= changes[i - 1].reserved;
    if (allocated < 0 || reserved < 0) {
      throw Bad{
          changes[i - 1].pointer,
          fmt::format("expected entries that lead to the segments at the end, found {} bytes "
                      "{} before this one",
                      std::min(allocated, reserved), allocated < 0 ? "allocated" : "reserved")};
    }
  }
  const auto peak =
      std::ranges::max_element(curve, std::ranges::less{}, &MeasuredMemory::Point::allocated_bytes);
  device.memory.peak_bytes = peak->allocated_bytes;
  device.memory.peak_us = peak->time_us;
  device.memory.reserved_bytes =
      std::ranges::max_element(curve, std::ranges::less{}, &MeasuredMemory::Point::reserved_bytes)
          ->reserved_bytes;
  if (const auto at = static_cast<std::size_t>(peak - curve.begin()); at > 0) {
    const Change& change = changes[at - 1];
    device.memory.peak_op = top_frame(Value(*change.entry, change.pointer));
  }
}

void read_trace_entries(SnapshotDevice& device, LiveSizes& live,
                        const std::optional<Value>& entries, std::vector<std::string>& warnings) {
  std::size_t passed_over = 0;
  std::string first_passed;
  std::vector<Change> changes;
  std::optional<std::int64_t> first_us;
  constexpr std::int64_t kMostStampUs = 4'500'000'000'000'000;
  for (std::size_t i = 0; entries && i < entries->size(); ++i) {
    const Value entry = entries->at(i);
    Change change = change_of(entry);
    if (!change.unknown_action.empty() && passed_over++ == 0) first_passed = change.unknown_action;
    const auto stamp = entry.member("time_us");
    if (i == 0) device.has_times = stamp.has_value();
    if (stamp.has_value() != device.has_times) {
      throw Bad{entry.pointer(), "expected \"time_us\" in all entries or in none"};
    }
    const std::int64_t us = stamp ? stamp->integer(0, kMostStampUs) : static_cast<std::int64_t>(i);
    if (!first_us) first_us = us;
    change.time_us = static_cast<double>(us - *first_us);
    if (!changes.empty() && change.time_us < changes.back().time_us) {
      throw Bad{entry.pointer(), "expected entries by time, found an earlier one"};
    }
    if (change.allocated != 0 || change.reserved != 0) changes.push_back(std::move(change));
  }
  if (passed_over > 0) {
    warnings.push_back(
        fmt::format("{}: entries of unknown actions that move no bytes were passed over: {} "
                    "(first action: {})",
                    device.memory.device, passed_over, plain_text(first_passed)));
  }
  trace_back(device, live, changes);
}

AllocatorSnapshot read_snapshot(const Json& json) {
  constexpr std::int64_t kMostDevice = 1023;
  const Value top(json, "");
  AllocatorSnapshot snapshot;
  std::map<std::int64_t, SnapshotDevice> devices;
  std::map<std::int64_t, LiveSizes> live;
  // torch.cuda.memory_snapshot() only contains the list of segments.
  const Value segments = json.is_array() ? top : top.needed("segments");
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Value segment = segments.at(i);
    const std::int64_t device = segment.needed("device").integer(0, kMostDevice);
    add_segment(devices[device], live[device], segment);
  }
  const auto traces = json.is_array() ? std::nullopt : top.member("device_traces");
  const std::size_t traced = traces ? traces->size() : 0;
  for (std::size_t i = 0; i < traced; ++i) {
    if (traces->at(i).size() == 0) continue;
    if (i > static_cast<std::size_t>(kMostDevice)) traces->at(i).expected("at most 1,024 devices");
    devices[static_cast<std::int64_t>(i)];
  }
  for (auto& [number, device] : devices) {
    device.device = number;
    device.memory.device = fmt::format("cuda:{}", number);
    const auto at = static_cast<std::size_t>(number);
    const bool has_trace = at < traced && traces->at(at).size() > 0;
    read_trace_entries(device, live[number],
                       has_trace ? std::optional(traces->at(at)) : std::nullopt, snapshot.warnings);
    if (!has_trace) {
      snapshot.warnings.push_back(
          fmt::format("{}: no history was recorded (torch.cuda.memory._record_memory_history); the "
                      "peak is the state of the end",
                      device.memory.device));
    } else if (!device.has_times) {
      snapshot.warnings.push_back(
          fmt::format("{}: entries without stamps; times are their numbers", device.memory.device));
    }
    std::ranges::stable_sort(device.largest, std::ranges::greater{}, &SnapshotDevice::Block::bytes);
    device.largest.resize(std::min(device.largest.size(), kMostLargest));
    snapshot.devices.push_back(std::move(device));
  }
  if (snapshot.devices.empty()) {
    throw Bad{"/segments", "expected segments or entries of a trace, found none"};
  }
  return snapshot;
}

// ---- files --------------------------------------------------------------------------------------

// nlohmann's parser recurses nowhere, but its documents are destroyed level by level.
bool nests_too_deep(std::string_view text) {
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMostNesting) return true;
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    }
  }
  return false;
}

}  // namespace

bool is_allocator_snapshot(const std::filesystem::path& file) {
  if (!std::filesystem::is_regular_file(file)) return false;  // a pipe is read once
  auto source = ByteSource::open(file, {});
  if (!source) return false;
  std::array<char, 1 << 16> head{};
  const auto read = source->read(head.data(), head.size());
  if (!read) return false;
  std::string_view text(head.data(), *read);
  const auto skip = [&](char wanted) {
    const auto at = text.find_first_not_of(" \t\r\n");
    if (at == std::string_view::npos || text[at] != wanted) return false;
    text.remove_prefix(at + 1);
    return true;
  };
  if (skip('[')) return is_memory_segment(json_keys(text));
  if (!skip('{') || !skip('"')) return false;
  constexpr std::string_view kKeys[] = {"segments\"", "device_traces\"", "allocator_settings\""};
  return std::ranges::any_of(kKeys, [&](auto key) { return text.starts_with(key); });
}

Result<AllocatorSnapshot> read_allocator_snapshot(const std::filesystem::path& file) {
  const auto refuse = [&](ErrorCode code, std::string message, std::string pointer = {}) {
    return fail(code, std::move(message), file, std::move(pointer));
  };
  const auto text = inflated_text(file, kMostText);
  if (!text) return refuse(text.error().code, text.error().message);
  if (nests_too_deep(*text)) {
    return refuse(
        ErrorCode::kFormat,
        fmt::format("expected at most {} brackets within brackets, found more", kMostNesting));
  }
  try {
    const Json json = Json::parse(*text);
    AllocatorSnapshot snapshot = read_snapshot(json);
    snapshot.source = file.string();
    return snapshot;
  } catch (const Json::parse_error& error) {
    return refuse(ErrorCode::kSyntax,
                  fmt::format("expected JSON, found text that is none at byte {}", error.byte));
  } catch (const Json::exception& error) {  // a number beyond a double
    return refuse(ErrorCode::kSyntax, plain_text(error.what()));
  } catch (const Bad& bad) {
    return refuse(ErrorCode::kFormat, bad.message, bad.pointer);
  }
}

}  // namespace perfmodel
