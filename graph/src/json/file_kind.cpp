#include "file_kind.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <optional>

namespace perfmodel {
namespace {

constexpr std::string_view kRecord =
    "; record the same steps with torch.profiler (export_chrome_trace)";

// ---- protobuf -----------------------------------------------------------------------------------

// The fields of one message, as far as the text goes.
class Fields {
 public:
  explicit Fields(std::string_view text) : text_(text) {}

  struct Field {
    std::uint64_t number = 0;
    unsigned wire = 0;
    std::string_view bytes = {};  // wire type 2; shorter than `size` if the text ends within
    std::uint64_t size = 0;
  };

  // Nothing at the end of the text and before what is no field; `sound` tells them apart.
  std::optional<Field> next() {
    if (text_.empty()) return {};
    const auto tag = varint();
    Field field{.number = tag.value_or(0) >> 3, .wire = static_cast<unsigned>(tag.value_or(0) & 7)};
    sound_ = tag && field.number > 0 && take(field);
    if (!sound_) return {};
    return field;
  }
  bool sound() const { return sound_; }

 private:
  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !text_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(text_.front());
      text_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    return {};
  }

  bool take(Field& field) {
    if (field.wire == 0) return varint().has_value();
    if (field.wire == 2) {
      const auto size = varint();
      if (!size) return false;
      field.size = *size;
    } else if (field.wire == 1 || field.wire == 5) {
      field.size = field.wire == 1 ? 8 : 4;
    } else {
      return false;
    }
    field.bytes = text_.substr(0, field.size);
    text_.remove_prefix(field.bytes.size());
    return true;
  }

  std::string_view text_;
  bool sound_ = true;
};

// A TracePacket has a stamp (8), a sequence (10) or a user id (3) as varints, or one of the
// messages that a trace begins with, and other fields as its schema says.
bool is_perfetto_packet(std::string_view packet, bool whole) {
  constexpr std::uint64_t kNumbers[] = {3, 8, 10, 13, 41, 42, 58, 79, 87};
  constexpr std::uint64_t kMessages[] = {1,  2,  6,  11, 12, 33, 35, 36, 43,
                                         44, 45, 50, 59, 60, 76, 86, 89};
  Fields fields(packet);
  bool known = false;
  while (const auto field = fields.next()) {
    if (field->wire == 0 && std::ranges::find(kNumbers, field->number) != std::end(kNumbers)) {
      known = true;
    } else if (std::ranges::find(kMessages, field->number) != std::end(kMessages)) {
      if (field->wire != 2) return false;
      known = true;
    }
  }
  return known && (fields.sound() || !whole);
}

// Trace: packets in a row (field 1), of which the first one is looked at.
bool is_perfetto(std::string_view head) {
  const auto packet = Fields(head).next();
  return packet && packet->number == 1 && packet->wire == 2 &&
         is_perfetto_packet(packet->bytes, packet->bytes.size() == packet->size);
}

// XSpace: planes (field 1), each with a number (1) and a name (2) in front.
bool is_xplane(std::string_view head) {
  Fields planes(head);
  const auto plane = planes.next();
  if (!plane || plane->number != 1 || plane->wire != 2) return false;
  Fields fields(plane->bytes);
  auto field = fields.next();
  if (field && field->number == 1 && field->wire == 0) field = fields.next();
  if (!field || field->number != 2 || field->wire != 2) return false;
  constexpr std::string_view kNames[] = {"/host:", "/device:", "Task Environment", "#Chip",
                                         "Host "};
  return std::ranges::any_of(kNames, [&](auto name) { return field->bytes.starts_with(name); });
}

// ---- what begins with a mark
// ----------------------------------------------------------------------

std::string sqlite_kind(std::string_view head) {
  const auto has = [&](std::string_view name) { return head.find(name) != head.npos; };
  if (has("rocpd_info_") || has("rocpd_kernel_dispatch")) {
    return "a database of rocprofv3 (rocpd, SQLite); `rocpd convert -i FILE --output-format "
           "pftrace` and then `traceconv json OUT.pftrace FILE.json` make a trace of its kernels";
  }
  if (has("rocpd_api") || has("rocpd_op")) {
    return "a database of ROCm's RPD (SQLite); `rpd2tracing.py FILE FILE.json` makes a trace of it";
  }
  if (has("CUPTI_ACTIVITY") || has("NVTX_EVENTS") || has("StringIds") || has("TARGET_INFO_")) {
    return fmt::format("a SQLite export of Nsight Systems (nsys), which has no ops{}", kRecord);
  }
  return fmt::format("a SQLite database{}", kRecord);
}

std::string zip_kind(std::string_view head) {
  if (head.find("data.pkl") != head.npos) {
    return "a file of torch.save (a zip with a pickle), which is no recording";
  }
  return "a zip file; `unzip FILE` unpacks it";
}

// Protocols 2 to 5.
bool is_pickle(std::string_view head) {
  return head.size() > 1 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5;
}

struct Mark {
  std::string_view bytes, kind;
};

using namespace std::string_view_literals;

constexpr Mark kMarks[] = {
    {"NVR\0"sv, "a report of Nsight Compute (ncu), which has kernels and no steps"},
    {"\x10\0\x04\x46\x78\x54\x16\0"sv,
     "a Fuchsia trace; `traceconv json FILE FILE.json` makes a trace of it"},
    {"\x28\xB5\x2F\xFD"sv, "zstd data; `zstd -d FILE` unpacks it"},
    {"\xFD\x37zXZ\0"sv, "xz data; `xz -d FILE` unpacks it"},
    {"BZh"sv, "bzip2 data; `bzip2 -d FILE` unpacks it"},
    {"\x04\x22\x4D\x18"sv, "lz4 data; `lz4 -d FILE` unpacks it"},
    {"\x93NUMPY"sv, "an array of NumPy"},
    {"PAR1"sv, "a Parquet file"},
    {"\x89HDF"sv, "an HDF5 file"},
    {"\x89PNG"sv, "a picture (PNG)"},
    {"%PDF"sv, "a PDF file"},
    {"\x7F\x45LF"sv, "a program or library (ELF)"},
    {"\xFF\xFE"sv, "text in UTF-16; `iconv -f UTF-16 -t UTF-8 FILE` makes it UTF-8"},
    {"\xFE\xFF"sv, "text in UTF-16; `iconv -f UTF-16 -t UTF-8 FILE` makes it UTF-8"},
    {"version https://git-lfs"sv, "a pointer of Git LFS; `git lfs pull` brings the file"},
    {"# tracer:"sv, "text of ftrace; `traceconv json FILE FILE.json` makes a trace of it"},
};

// ---- text
// -----------------------------------------------------------------------------------------

bool starts_with_word(std::string_view text, std::string_view word) {
  return std::ranges::equal(text.substr(0, word.size()), word,
                            [](unsigned char a, char b) { return std::tolower(a) == b; });
}

// A table has a header that we know, or two lines with as many separators.
std::string table_kind(std::string_view text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  const std::string_view next = end == text.npos ? "" : text.substr(end + 1);
  const auto has = [&](std::string_view name) { return line.find(name) != line.npos; };
  const char separator = std::ranges::count(line, ',') > 0 ? ',' : '\t';
  const auto columns = [&](std::string_view one) {
    return std::ranges::count(one.substr(0, one.find('\n')), separator);
  };
  if (columns(line) == 0) return "";
  std::string_view tool;
  if (has("Agent_Id") || has("Dispatch_Id") || has("Correlation_Id")) tool = " of rocprofv3";
  if (has("KernelName") || has("TotalDurationNs") || has("gpu-id")) tool = " of rocprof";
  if (has("Time (%)") || has("Total Time (ns)") || has("Start (ns)")) {
    tool = " of Nsight Systems (nsys)";
  }
  if (has("Metric Name") || has("Host Name")) tool = " of Nsight Compute (ncu)";
  if (has("Task Duration(us)") || has("OP Type")) tool = " of Ascend's msprof";
  if (tool.empty() && columns(line) != columns(next)) return "";
  return fmt::format("a {}-separated table{}{}", separator == ',' ? "comma" : "tab", tool,
                     tool.empty() ? "" : kRecord);
}

bool is_text(std::string_view head) {
  return std::ranges::none_of(head.substr(0, 512), [](unsigned char c) {
    return c < ' ' && c != '\t' && c != '\n' && c != '\r' && c != '\f';
  });
}

std::string text_kind(std::string_view head) {
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  if (first == head.npos) return "";
  const std::string_view text = head.substr(first);
  if (starts_with_word(text, "<!doctype html") || starts_with_word(text, "<html")) {
    return "an HTML page";
  }
  if (text.starts_with("<?xml") || text.starts_with("<svg")) return "XML";
  return text.starts_with('{') || text.starts_with('[') ? "" : table_kind(text);
}

}  // namespace

bool looks_like_chakra(std::string_view head) {
  if (head.empty() || static_cast<unsigned char>(head[0]) >= 0x80) return false;
  const auto size = static_cast<std::size_t>(head[0]);
  Fields fields(head.substr(1, size));
  const auto version = fields.next();
  return head.size() > size && version && version->number == 1 && version->wire == 2 &&
         !version->bytes.empty() && version->bytes.size() == version->size &&
         std::ranges::all_of(version->bytes, [](unsigned char c) { return std::isprint(c); });
}

std::string file_kind(std::string_view head, const std::filesystem::path& file) {
  const std::string extension = file.extension().string();
  if (extension == ".nsys-rep" || extension == ".qdrep" || extension == ".qdstrm") {
    return fmt::format("a report of Nsight Systems (nsys), which has no ops{}", kRecord);
  }
  for (const auto& [bytes, kind] : kMarks) {
    if (head.starts_with(bytes)) return std::string(kind);
  }
  if (head.starts_with("SQLite format 3\0"sv)) return sqlite_kind(head);
  if (head.starts_with("PK\x03\x04")) return zip_kind(head);
  if (is_pickle(head)) {
    return "a pickle; a snapshot of PyTorch's allocator is read as JSON: python3 -c 'import json, "
           "pickle; json.dump(pickle.load(open(\"FILE\", \"rb\")), open(\"FILE.json\", \"w\"), "
           "default=str)'";
  }
  if (is_text(head)) return text_kind(head);
  if (is_xplane(head)) {
    return "an XPlane profile of XLA (protobuf); jax.profiler.trace(..., "
           "create_perfetto_trace=True) and TensorBoard's trace viewer (xprof) write it as "
           "trace.json.gz, which is read";
  }
  if (is_perfetto(head) || extension == ".pftrace" || extension == ".perfetto-trace") {
    return "a Perfetto trace (protobuf); `traceconv json FILE FILE.json` makes a trace of it that "
           "is read";
  }
  return "";
}

}  // namespace perfmodel
