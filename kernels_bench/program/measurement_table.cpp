#include "measurement_table.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "../core/case_cells.hpp"

namespace kernels_bench {
namespace {

using perfmodel::Error;
using perfmodel::ErrorCode;
using perfmodel::Result;

constexpr std::string_view kResults[] = {
    "time_us",       "p10_us",    "p90_us", "repetitions",  "l2_warm",    "gb_per_s", "tflop_per_s",
    "share_of_peak", "max_error", "sm_mhz", "sm_mhz_after", "memory_mhz", "kernel"};
constexpr std::string_view kFirstLine = "# kernels_bench: ";
constexpr std::string_view kDeviceLine = "# device: ";
constexpr std::string_view kSkippedLine = "# skipped: ";
constexpr std::string_view kReasonMark = " | ";

tl::unexpected<Error> error_at(const std::filesystem::path& file, ErrorCode code,
                               std::string message) {
  return tl::unexpected(Error{.code = code, .message = std::move(message), .file = file});
}

std::string header_of(const Family& family) {
  std::string line = "device";
  for (const std::string_view column : family.columns) line += fmt::format(",{}", column);
  for (const std::string_view column : kResults) line += fmt::format(",{}", column);
  return line;
}

std::string head_of(const Family& family, const Provenance& provenance) {
  return fmt::format(
      "{}{}\n{}{}\n# software: {}\n# command: {}\n# date: {}\n"
      "# timing: graph replay, no launch cost\n{}\n",
      kFirstLine, family.what, kDeviceLine, provenance.device, provenance.software,
      provenance.command, provenance.date, header_of(family));
}

std::string number(double value, int decimals = 3) {
  if (!std::isfinite(value)) return "";
  return fmt::format("{:.{}f}", value, decimals);
}

std::string rate(double value) { return value > 0 ? fmt::format("{:.4g}", value) : ""; }

std::string results_of(const Row& row) {
  std::string kernel = row.kernel;
  for (char& c : kernel) {
    if (c == ',' || c == '\n' || c == '"') c = ';';
  }
  return fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{}", number(row.time_us),
                     number(row.p10_us), number(row.p90_us), row.repetitions, row.l2_warm ? 1 : 0,
                     rate(row.gb_per_s), rate(row.tflop_per_s), rate(row.share_of_peak),
                     std::isfinite(row.max_error) ? fmt::format("{:.2g}", row.max_error) : "",
                     number(row.before.sm_mhz, 0), number(row.after.sm_mhz, 0),
                     number(row.before.memory_mhz, 0), kernel);
}

// Whether a file is new, or was left by a program killed in its head: comments of ours, then at
// most a piece of the header line.
bool is_begun_head(std::string_view text, const Family& family) {
  const std::string_view first = kFirstLine.substr(0, text.size());
  if (!text.starts_with(first)) return false;
  while (text.starts_with('#')) {
    const std::size_t end = text.find('\n');
    if (end == text.npos) return true;
    text.remove_prefix(end + 1);
  }
  return header_of(family).starts_with(text);
}

// The rest of the line after `count` commas.
std::string_view after_fields(std::string_view line, std::size_t count) {
  for (; count > 0; --count) {
    const std::size_t comma = line.find(',');
    if (comma == line.npos) return {};
    line.remove_prefix(comma + 1);
  }
  return line;
}

std::string reason_of_errno() { return std::strerror(errno); }

}  // namespace

MeasurementTable::MeasurementTable(MeasurementTable&& other) noexcept
    : file_(std::move(other.file_)),
      family_(other.family_),
      gpu_(std::move(other.gpu_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      times_(std::move(other.times_)),
      skipped_(std::move(other.skipped_)) {}

MeasurementTable::~MeasurementTable() {
  if (descriptor_ >= 0) close(descriptor_);
}

Result<MeasurementTable> MeasurementTable::open(const std::filesystem::path& file,
                                                const Family& family,
                                                const Provenance& provenance) {
  std::error_code failure;
  if (std::filesystem::exists(file, failure) && !std::filesystem::is_regular_file(file, failure)) {
    return error_at(file, ErrorCode::kIo, "expected a regular file");
  }
  std::filesystem::path packed = file;
  packed += ".gz";
  if (!std::filesystem::exists(file, failure) && std::filesystem::exists(packed, failure)) {
    return error_at(packed, ErrorCode::kIo, "expected an unpacked table to go on with (gunzip it)");
  }
  MeasurementTable table(file, family, provenance.gpu);
  table.descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (table.descriptor_ < 0) {
    return error_at(file, ErrorCode::kIo, "cannot be written: " + reason_of_errno());
  }
  if (flock(table.descriptor_, LOCK_EX | LOCK_NB) != 0) {
    return error_at(file, ErrorCode::kIo, "another run is writing to it");
  }
  std::ifstream input(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(input), {}};
  if (is_begun_head(text, family)) {
    if (auto done = table.cut(0); !done) return tl::unexpected(done.error());
    if (auto done = table.write_line(head_of(family, provenance)); !done) {
      return tl::unexpected(done.error());
    }
    return table;
  }
  const std::size_t size = text.size();
  text.resize(text.rfind('\n') == text.npos ? 0 : text.rfind('\n') + 1);
  if (auto done = table.read_rows(text, provenance); !done) return tl::unexpected(done.error());
  if (text.size() < size) {  // a row that a killed program began
    if (auto done = table.cut(text.size()); !done) return tl::unexpected(done.error());
  }
  return table;
}

Result<void> MeasurementTable::cut(std::size_t size) {
  if (ftruncate(descriptor_, static_cast<off_t>(size)) == 0) return {};
  return error_at(file_, ErrorCode::kIo, "cannot be cut: " + reason_of_errno());
}

Result<void> MeasurementTable::read_rows(const std::string& text, const Provenance& provenance) {
  const std::string header = header_of(*family_);
  const std::size_t parameters = family_->columns.size();
  int number = 0;
  const auto bad = [&](std::string message) {
    auto error = error_at(file_, ErrorCode::kFormat, std::move(message));
    error.value().line = number;
    return error;
  };
  bool has_device = false, has_header = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    const std::string_view line(text.data() + at, end - at);
    at = end + 1;
    ++number;
    if (line.starts_with(kDeviceLine)) {
      const std::string_view device = line.substr(kDeviceLine.size());
      has_device = true;
      if (device != provenance.device) {
        return bad(
            fmt::format("expected measurements of this GPU ({}), found rows of {}; take "
                        "another folder",
                        provenance.device, device));
      }
    } else if (line.starts_with(kSkippedLine)) {
      const std::string_view rest = line.substr(kSkippedLine.size());
      const std::size_t mark = rest.find(kReasonMark);
      if (mark == rest.npos) return bad("expected a key and a reason");
      skipped_.emplace(rest.substr(0, mark), rest.substr(mark + kReasonMark.size()));
    } else if (line.starts_with("device,")) {
      has_header = true;
      if (line != header) return bad("expected the columns of this version of the program");
    } else if (!line.starts_with('#') && !line.empty()) {
      if (!has_device || !has_header) break;
      const std::string_view key_on = after_fields(line, 1);
      const std::string_view gpu = line.substr(0, line.find(','));
      if (gpu != gpu_) return bad(fmt::format("expected a row of {}, found {}", gpu_, gpu));
      const std::string_view results = after_fields(key_on, parameters);
      const double time = std::strtod(std::string(results.substr(0, 32)).c_str(), nullptr);
      if (!(time > 0) || !std::isfinite(time)) {
        return bad("expected a positive time_us, found another value (delete the row)");
      }
      times_.emplace(key_on.substr(0, key_on.size() - results.size() - 1), time);
    }
  }
  if (!has_device || !has_header) {
    return bad(
        "expected a table of kernels_bench with its head, found something else; take another "
        "folder");
  }
  return {};
}

std::string MeasurementTable::key_of(const Case& point) const {
  const std::vector<Cell> cells = cells_of(point);
  std::string key;
  for (const std::string_view column : family_->columns) {
    if (column != family_->columns.front()) key += ',';
    for (const Cell& cell : cells) {
      if (cell.column == column) key += cell.text;
    }
  }
  return key;
}

Result<void> MeasurementTable::append(const Case& point, const Row& row) {
  const std::string key = key_of(point);
  if (auto done = write_line(fmt::format("{},{},{}\n", gpu_, key, results_of(row))); !done) {
    return done;
  }
  times_.emplace(key, row.time_us);
  return {};
}

Result<void> MeasurementTable::append_skipped(const Case& point, const std::string& reason) {
  const std::string key = key_of(point);
  if (auto done = write_line(fmt::format("{}{}{}{}\n", kSkippedLine, key, kReasonMark, reason));
      !done) {
    return done;
  }
  skipped_.emplace(key, reason);
  return {};
}

// All or nothing: a line that a full disk cut off is removed.
Result<void> MeasurementTable::write_line(const std::string& line) {
  const off_t before = lseek(descriptor_, 0, SEEK_END);
  const ssize_t written = write(descriptor_, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return {};
  const std::string reason = written < 0 ? reason_of_errno() : std::strerror(ENOSPC);
  if (ftruncate(descriptor_, before) != 0) errno = 0;  // the next run cuts it
  return error_at(file_, ErrorCode::kIo, "cannot be written: " + reason);
}

}  // namespace kernels_bench
