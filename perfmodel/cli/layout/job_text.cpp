#include <fmt/format.h>
#include <fmt/ranges.h>

#include "layout_text.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

// "training.seq_len = 8192 -> sequence 8192"; "global_batch 64: 2 sequences x 4 ..." if
// it is worked out.
std::string line_words(const JobLine& line) {
  if (line.key.empty()) return fmt::format("{} {}: {}", line.field, line.as, line.value);
  const std::string setting = fmt::format("{} = {}", line.key, line.value);
  return line.field.empty() ? setting : fmt::format("{} -> {} {}", setting, line.field, line.as);
}

// A line each.
void add_lines(TextList& list, std::string label, const std::vector<JobLine>& lines) {
  for (const JobLine& line : lines) {
    list.row(label, line_words(line));
    label = " ";
  }
}

std::string keys_of(const std::vector<JobLine>& lines) {
  std::vector<std::string_view> keys;
  for (const JobLine& line : lines) keys.push_back(line.key);
  return fmt::format("{}", fmt::join(keys, ", "));
}

}  // namespace

std::string job_text(const JobReading& reading) {
  TextList list;
  list.row("job", fmt::format("{}, of {}", reading.file, reading.format));
  add_lines(list, "understood", reading.understood);
  std::vector<std::string> assumed;
  for (const JobLine& line : reading.assumed) assumed.push_back(line.field + " " + line.as);
  if (!assumed.empty()) {
    list.row("its defaults", fmt::format("{}", fmt::join(assumed, ", ")));
  }
  add_lines(list, "flags instead", reading.overridden);
  if (!reading.ignored.empty()) list.row("no influence", keys_of(reading.ignored));
  add_lines(list, "not modelled", reading.not_modelled);
  add_lines(list, "unknown", reading.unknown);
  return "\n" + list.text();
}

}  // namespace perfmodel::cli
