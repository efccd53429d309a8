#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "step_log.hpp"

namespace perfmodel {

/// One record as it is printed: a time, or a rate that becomes one.
struct LogRecord {
  std::int64_t step = 0;
  double value = 0;       ///< [us], or work per second
  double resolution = 0;  ///< last printed digit of `value`
  std::optional<double> stamp_us = {};
  std::optional<double> batch = {};
  std::string_view why = {};  ///< why it is left out; empty: it is kept
};

struct LogRecords {
  std::string program;
  bool are_rates = false;
  std::optional<double> work_per_step = {};  ///< printed with the settings
  std::vector<LogRecord> records;
};

/// Reads the lines of a training program. Without records: the text is of none of those known.
/// Error: a record without a positive number.
Result<LogRecords> records_of_programs(std::string_view text, const std::filesystem::path& file);
/// trainer_state.json of the Trainer of Hugging Face.
Result<LogRecords> records_of_trainer_state(const std::string& text,
                                            const std::filesystem::path& file);
/// A CSV table, or a time a line. Without records: the text is neither. Errors: as `read_step_log`.
Result<LogRecords> records_of_table(const std::string& text, const std::filesystem::path& file,
                                    const std::string& unit);

/// A decimal number at the beginning of a text: "1,234.5", "4.12e-01" and "1.23K" with the last
/// digit's size.
struct PrintedNumber {
  double value = 0, resolution = 0;
  std::size_t length = 0;  ///< characters
};
std::optional<PrintedNumber> leading_number(std::string_view text);

/// A number of a step, from 0 to 9e15.
std::int64_t whole_number(double value);

}  // namespace perfmodel
