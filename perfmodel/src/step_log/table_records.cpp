// Step times as people keep them: a column of a table, or a time a line. And trainer_state.json.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/secrets.hpp"
#include "base/split.hpp"
#include "files/json_file.hpp"
#include "json/csv_file.hpp"
#include "log_records.hpp"

namespace perfmodel {
namespace {

// Microseconds of a unit; nothing: an unknown one.
std::optional<double> us_of_unit(std::string_view unit) {
  if (unit == "us") return 1;
  if (unit == "ms") return 1e3;
  if (unit == "s") return 1e6;
  return std::nullopt;
}

// "step_time_ms" and "Time (s)" are times, "tokens_per_s" is none. The unit of a time column, ""
// if it has none; nothing: no time.
std::optional<std::string> unit_of_column(std::string name) {
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  if (us_of_unit(name)) return name;
  if (name.find("per") != name.npos && name.find("per_step") == name.npos) return std::nullopt;
  const bool is_time = name.find("time") != name.npos || name.find("wall") != name.npos ||
                       name.find("duration") != name.npos;
  const std::size_t cut = name.find_last_of("_( /");
  std::string unit = cut == name.npos ? "" : name.substr(cut + 1);
  if (unit.ends_with(')')) unit.pop_back();
  if (us_of_unit(unit) && (is_time || name.find("step") != name.npos)) return unit;
  return is_time ? std::optional<std::string>("") : std::nullopt;
}

bool is_step_column(std::string_view name) {
  return name == "step" || name == "Step" || name == "iteration" || name == "iter" ||
         name == "global_step";
}

Unexpected lacks_unit(const std::filesystem::path& file, std::string_view what) {
  return fail(ErrorCode::kFormat,
              fmt::format("expected a unit for {} (--unit us, ms or s), found none", what), file);
}

Error bad_time(const std::filesystem::path& file, int line, std::string_view found) {
  return {.code = ErrorCode::kFormat,
          .message = fmt::format("expected a time above 0, found \"{}\"", shown_text(found)),
          .file = file,
          .line = line};
}

struct NumberedLine {
  int number = 0;
  std::string_view text;
};

// Lines without blanks round them; no comments and no blank ones.
std::vector<NumberedLine> lines_with_text(std::string_view text) {
  std::vector<NumberedLine> lines;
  int number = 0;
  for (std::string_view line : split(text, '\n')) {
    ++number;
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == line.npos || line[first] == '#') continue;
    lines.push_back({number, line.substr(first, line.find_last_not_of(" \t\r") + 1 - first)});
  }
  return lines;
}

struct TimeColumn {
  int index = -1;
  std::string name, unit;
};

Result<TimeColumn> time_column(const CsvFile& table) {
  std::vector<TimeColumn> times;
  for (std::size_t i = 0; i < table.columns().size(); ++i) {
    const auto unit = unit_of_column(table.columns()[i]);
    if (unit) times.push_back({static_cast<int>(i), table.columns()[i], *unit});
  }
  if (times.size() == 1) return times.front();
  std::vector<std::string> names;
  for (const TimeColumn& column : times) names.push_back(shown_text(column.name));
  return fail(
      ErrorCode::kFormat,
      fmt::format("expected one column of step times (step_time_ms, time_us, wall_s), found "
                  "{}",
                  names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))),
      table.path());
}

Result<LogRecords> records_of_csv(CsvFile table, const std::string& unit) {
  PERFMODEL_TRY(column, time_column(table));
  const auto scale = us_of_unit(column->unit.empty() ? unit : column->unit);
  if (!scale) return lacks_unit(table.path(), "column " + shown_text(column->name));
  const auto step_name = std::ranges::find_if(table.columns(), is_step_column);
  const int step_column = step_name == table.columns().end() ? -1 : table.column(*step_name);
  LogRecords made{.program = "CSV table"};
  while (table.next()) {
    const auto time = leading_number(table.cell(column->index));
    if (!time || time->length != table.cell(column->index).size() || !(time->value > 0)) {
      return Unexpected{table.expected(column->index, "a time above 0")};
    }
    const auto step = leading_number(table.cell(step_column));
    made.records.push_back(
        {.step = step ? whole_number(step->value) : static_cast<std::int64_t>(made.records.size()),
         .value = time->value * *scale,
         .resolution = time->resolution * *scale});
  }
  if (table.error()) return Unexpected{*table.error()};
  return made;
}

// The unit of "412", "412 ms" and "0.412s", "" without one; nothing: no time. With a comma it is a
// row of a table, or a number of another language.
std::optional<std::string_view> unit_of_time(std::string_view cell) {
  const auto time = leading_number(cell);
  if (!time || !(time->value > 0) || cell.find(',') != cell.npos) return std::nullopt;
  cell.remove_prefix(time->length);
  cell.remove_prefix(std::min(cell.find_first_not_of(' '), cell.size()));
  return cell.empty() || us_of_unit(cell) ? std::optional(cell) : std::nullopt;
}

Result<LogRecords> records_of_numbers(const std::vector<NumberedLine>& lines,
                                      const std::filesystem::path& file, const std::string& unit) {
  LogRecords made{.program = "one time a line"};
  for (const auto& [line, cell] : lines) {
    const auto own = unit_of_time(cell);
    if (!own) return Unexpected{bad_time(file, line, cell)};
    const auto scale = us_of_unit(own->empty() ? unit : *own);
    if (!scale) return lacks_unit(file, "numbers alone");
    const auto time = leading_number(cell);
    made.records.push_back({.step = static_cast<std::int64_t>(made.records.size()),
                            .value = time->value * *scale,
                            .resolution = time->resolution * *scale});
  }
  return made;
}

// TRL's trainers write `step_time` [s]; others only how long the run took.
Result<LogRecords> records_of_history(const Json& history, const std::filesystem::path& file) {
  LogRecords made{.program = "Hugging Face Trainer"};
  double evaluation_s = 0;
  std::string_view pause;
  std::optional<LogRecord> whole;
  for (const Json& entry : history) {
    const auto number = [&](const char* key) { return entry.value(key, Json(0)).get<double>(); };
    const auto step = whole_number(number("step"));
    evaluation_s += number("eval_runtime");
    if (entry.contains("eval_runtime")) pause = "after an evaluation";
    if (const double s = number("step_time"); s > 0) {
      made.records.push_back({.step = step, .value = s * 1e6, .why = std::exchange(pause, {})});
    }
    if (const double s = number("train_runtime"); s > evaluation_s && step > 0) {
      const double steps = static_cast<double>(step);
      whole = {.step = step, .value = 1e6 * (s - evaluation_s) / steps, .resolution = 1e2 / steps};
    }
  }
  if (made.records.empty() && whole) made.records.push_back(*whole);
  if (!made.records.empty()) return made;
  return fail(ErrorCode::kFormat,
              "expected step times (step_time, or train_runtime of a run that has ended) in "
              "log_history, found none: use the log with the progress bar",
              file);
}

}  // namespace

Result<LogRecords> records_of_trainer_state(const std::string& text,
                                            const std::filesystem::path& file) {
  auto read = parse_json_text(text, "a trainer_state.json", file,
                              [&](const Json& document, std::optional<Error>& error) {
                                const auto history = document.find("log_history");
                                if (history == document.end() || !history->is_array()) {
                                  error = Error{.message = "expected a log_history, found none"};
                                  return Result<LogRecords>(LogRecords{});
                                }
                                return records_of_history(*history, file);
                              });
  if (!read) return Unexpected{read.error()};
  return std::move(*read);
}

Result<LogRecords> records_of_table(const std::string& text, const std::filesystem::path& file,
                                    const std::string& unit) {
  const std::vector<NumberedLine> lines = lines_with_text(text);
  if (lines.empty()) return LogRecords{};
  const std::string_view first = lines.front().text;
  if (unit_of_time(first)) return records_of_numbers(lines, file, unit);
  if (first.find(',') == first.npos && !unit_of_column(std::string(first))) return LogRecords{};
  PERFMODEL_TRY(table, CsvFile::of_text(file, text));
  return records_of_csv(std::move(*table), unit);
}

}  // namespace perfmodel
