// Lines as the programs print them. Sources: Megatron-LM training.py `training_log`, nanotron
// trainer.py `train_step_logs`, DeepSpeed utils/timer.py `ThroughputTimer` and runtime/pipe/
// engine.py, torchtitan components/metrics.py, NeMo's Lightning logger, tqdm's `format_meter`.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/digits.hpp"
#include "base/lower_case.hpp"
#include "base/secrets.hpp"
#include "log_records.hpp"

namespace perfmodel {
namespace {

/// How a program prints a step. `unit_us` 0: the value is a rate.
struct LogFormat {
  std::string_view program, step_key, value_key;
  double unit_us = 0;
  std::string_view batch_key = {}, skipped_key = {};
};
// A program that trains with another one's engine comes first: it prints whole steps.
constexpr LogFormat kLogFormats[] = {
    {"Megatron-LM", "iteration ", "elapsed time per iteration (ms):", 1e3,
     "global batch size:", "number of skipped iterations:"},
    {"nanotron", "iteration:", "elapsed_time_per_iteration_ms:", 1e3, "global_batch_size:"},
    {"NeMo", "global_step:", "train_step_timing in s:", 1e6, "global_batch_size:"},
    {"DeepSpeed", "steps:", "iter time (s):", 1e6},
    {"DeepSpeed", "global_step=", "CurrSamplesPerSec="},
    {"torchtitan", "step:", "tps:"},
};

/// Text in small letters, and what the next record holds as well as its steps.
constexpr std::pair<std::string_view, std::string_view> kPauses[] = {
    {"saving checkpoint", "after a checkpoint"},
    {"saved checkpoint", "after a checkpoint"},
    {"saving the checkpoint", "after a checkpoint"},
    {"saving a full checkpoint", "after a checkpoint"},
    {"saving model checkpoint", "after a checkpoint"},
    {"[torch] saving", "after a checkpoint"},
    {"validation loss at", "after an evaluation"},
    {"validate step", "after an evaluation"},
    {"running evaluation", "after an evaluation"},
    {"'eval_loss'", "after an evaluation"},
};

std::string_view pause_of(std::string_view line) {
  for (const auto& [text, why] : kPauses) {
    const auto found =
        std::search(line.begin(), line.end(), text.begin(), text.end(),
                    [](char written, char wanted) { return lower_case(written) == wanted; });
    if (found != line.end()) return why;
  }
  return {};
}

struct LogLine {
  std::string_view text;
  int number = 0;
  bool is_cut = false;          // the text ends within it
  std::string_view pause = {};  // see pause_of
};

// A progress bar writes its lines over each other.
std::vector<LogLine> lines_of(std::string_view text) {
  std::vector<LogLine> lines;
  for (int number = 1; !text.empty();) {
    const std::size_t end = std::min(text.find_first_of("\r\n"), text.size());
    const std::string_view line = text.substr(0, end);
    lines.push_back({line, number, end == text.size(), pause_of(line)});
    if (end < text.size() && text[end] == '\n') ++number;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// Without a terminal's sequences for colours and the like: ESC [ 3 1 m.
std::string without_colours(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      plain += text[i];
    } else if (text.substr(i + 1).starts_with('[')) {
      for (i += 2; i < text.size() && (text[i] < '@' || text[i] > '~');) ++i;
    }
  }
  return plain;
}

std::string_view after_key(std::string_view line, std::string_view key) {
  const std::size_t at = line.find(key);
  if (at == line.npos) return {};
  line.remove_prefix(at + key.size());
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  return line;
}

std::optional<double> number_after(std::string_view line, std::string_view key) {
  if (key.empty()) return std::nullopt;
  const auto number = leading_number(after_key(line, key));
  return number ? std::optional(number->value) : std::nullopt;
}

// "[rank0]:", "[default7]:" and "0:", which launchers put before each line.
std::string_view rank_of(std::string_view line) {
  const std::size_t colon = line.find(':');
  if (colon == line.npos) return {};
  std::string_view tag = line.substr(0, colon);
  if (tag.starts_with("[rank") || tag.starts_with("[default")) return tag;
  tag.remove_prefix(std::min(tag.find_first_not_of(' '), tag.size()));
  const bool is_number = !tag.empty() && tag.find_first_not_of("0123456789") == tag.npos;
  return is_number ? tag : std::string_view();
}

// "2025-06-05 15:57:14,098" [us]. Whole seconds are too coarse to time steps with.
std::optional<double> stamp_of(std::string_view line) {
  constexpr std::string_view kForm = "dddd-dd-dd dd:dd:dd";
  const auto fits = [](char form, char c) { return form == 'd' ? is_digit(c) : form == c; };
  for (std::size_t i = 0; i + kForm.size() + 1 < line.size(); ++i) {
    const std::string_view stamp = line.substr(i, kForm.size());
    if (!std::ranges::equal(kForm, stamp, fits)) continue;
    const char point = line[i + kForm.size()];
    if (point != ',' && point != '.') return std::nullopt;
    const auto part = [&](std::size_t at, std::size_t size) {
      return static_cast<int>(leading_number(stamp.substr(at, size))->value);
    };
    const std::chrono::year_month_day day{std::chrono::year(part(0, 4)),
                                          std::chrono::month(part(5, 2)),
                                          std::chrono::day(part(8, 2))};
    const double seconds = 86400.0 * std::chrono::sys_days(day).time_since_epoch().count() +
                           3600.0 * part(11, 2) + 60.0 * part(14, 2) + part(17, 2);
    const auto fraction = leading_number(line.substr(i + kForm.size() + 1));
    if (!fraction) return std::nullopt;
    return 1e6 * (seconds + fraction->value / std::pow(10.0, fraction->length));
  }
  return std::nullopt;
}

Unexpected bad_record(const LogLine& line, std::string_view key, std::string_view found,
                      const std::filesystem::path& file) {
  return Unexpected{Error{.code = ErrorCode::kFormat,
                          .message = fmt::format("expected a positive number after \"{}\", found "
                                                 "\"{}\"",
                                                 key, shown_text(found.substr(0, 20))),
                          .file = file,
                          .line = line.number}};
}

/// Reads the records of one format. A record of another rank than the first is no step of its own.
class RecordReader {
 public:
  RecordReader(const LogFormat& format, const std::filesystem::path& file)
      : format_(format), file_(file) {}

  Result<void> read(const LogLine& line, std::vector<LogRecord>& records) {
    if (!line.pause.empty()) {
      pause_ = line.pause;
      return {};
    }
    const std::string_view value = after_key(line.text, format_.value_key);
    const auto step = number_after(line.text, format_.step_key);
    if (value.empty() || !step) return {};
    const std::string_view rank = rank_of(line.text);
    if (records.empty()) first_rank_ = rank;
    const auto number = leading_number(value);
    if (!line.is_cut && (!number || !(number->value > 0))) {
      return bad_record(line, format_.value_key, value, file_);
    }
    const double unit = format_.unit_us > 0 ? format_.unit_us : 1;
    LogRecord record{.step = whole_number(*step),
                     .value = number ? number->value * unit : 0,
                     .resolution = number ? number->resolution * unit : 0,
                     .stamp_us = stamp_of(line.text),
                     .batch = number_after(line.text, format_.batch_key)};
    if (line.is_cut)
      record.why = "the log ends within its line";
    else if (rank != first_rank_)
      record.why = "of another rank";
    else if (number_after(line.text, format_.skipped_key).value_or(0) > 0)
      record.why = "skipped";
    else
      record.why = std::exchange(pause_, {});
    records.push_back(record);
    return {};
  }

 private:
  const LogFormat& format_;
  const std::filesystem::path& file_;
  std::string_view first_rank_, pause_;
};

// tqdm's bar without a description: " 1%|# | 10/1000 [00:12<20:34,  1.25s/it, loss=2]".
std::optional<LogRecord> record_of_bar(std::string_view line, double& total) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  const auto share = leading_number(line);
  if (!share || !line.substr(share->length).starts_with("%|")) return std::nullopt;
  line.remove_prefix(std::min(line.rfind("| ") + 1, line.size()));
  const auto step = leading_number(line.substr(std::min(line.find_first_not_of(' '), line.size())));
  const auto all = number_after(line, "/");
  const std::string_view speed = after_key(after_key(line, "["), ",");
  const auto number = leading_number(speed);
  if (!step || !all || !number || !(number->value > 0)) return std::nullopt;
  const std::string_view unit = speed.substr(number->length);
  const bool is_rate = unit.starts_with("it/s");
  if (!is_rate && !unit.starts_with("s/it")) return std::nullopt;
  total = *all;
  const double us = is_rate ? 1e6 / number->value : 1e6 * number->value;
  return LogRecord{.step = whole_number(step->value),
                   .value = us,
                   .resolution = us * number->resolution / number->value};
}

// Bars of another length than the first are evaluations.
std::vector<LogRecord> records_of_bars(const std::vector<LogLine>& lines) {
  std::vector<LogRecord> records;
  std::string_view pause;
  double first_total = 0, total = 0;
  for (const LogLine& line : lines) {
    if (!line.pause.empty()) pause = line.pause;
    auto record = record_of_bar(line.text, total);
    if (!record) continue;
    if (first_total == 0) first_total = total;
    if (total != first_total) {
      pause = "after an evaluation";
    } else if (records.empty() || records.back().step != record->step) {
      record->why = std::exchange(pause, {});
      records.push_back(*record);
    }
  }
  return records;
}

}  // namespace

std::int64_t whole_number(double value) {
  return static_cast<std::int64_t>(std::clamp(value, 0.0, 9e15));
}

std::optional<PrintedNumber> leading_number(std::string_view text) {
  const auto digits_at = [&](std::size_t at) {
    std::size_t end = at;
    while (end < text.size() && is_digit(text[end])) ++end;
    return end - at;
  };
  std::string digits;
  std::size_t length = 0, point = std::string::npos;
  for (; length < text.size(); ++length) {
    const char c = text[length];
    // Commas group thousands; the one of "1,5" ends the number.
    if (c == ',' && length > 0 && point == std::string::npos && digits_at(length + 1) == 3) {
      continue;
    }
    if (c == '.' && point == std::string::npos)
      point = digits.size();
    else if (!is_digit(c))
      break;
    digits += c;
  }
  const std::size_t decimals = point == std::string::npos ? 0 : digits.size() - point - 1;
  if (length < text.size() && lower_case(text[length]) == 'e') {
    std::size_t exponent = length + 1;
    if (exponent < text.size() && (text[exponent] == '-' || text[exponent] == '+')) ++exponent;
    if (const std::size_t size = digits_at(exponent); size > 0) {
      digits += text.substr(length, exponent + size - length);
      length = exponent + size;
    }
  }
  double value = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec != std::errc()) {
    return std::nullopt;
  }
  int power = 0;
  if (const std::size_t e = digits.find_first_of("eE"); e != digits.npos) {
    const std::size_t begin = e + 1 + (digits[e + 1] == '+');
    std::from_chars(digits.data() + begin, digits.data() + digits.size(), power);
  }
  double resolution = std::pow(10.0, power - static_cast<double>(decimals));
  constexpr std::string_view kSuffixes = "KMGTPE";
  const std::size_t suffix = length < text.size() ? kSuffixes.find(text[length]) : kSuffixes.npos;
  const std::string_view rest = text.substr(std::min(length + 1, text.size()));
  if (suffix != kSuffixes.npos && (rest.empty() || rest[0] == ' ')) {
    const double scale = std::pow(1000.0, suffix + 1);
    value *= scale;
    resolution *= scale;
    ++length;
  }
  return PrintedNumber{value, resolution, length};
}

Result<LogRecords> records_of_programs(std::string_view text, const std::filesystem::path& file) {
  const std::string plain = without_colours(text);
  const std::vector<LogLine> lines = lines_of(plain);
  for (const LogFormat& format : kLogFormats) {
    LogRecords made{.program = std::string(format.program), .are_rates = format.unit_us == 0};
    RecordReader reader(format, file);
    for (const LogLine& line : lines) PERFMODEL_TRY_TO(reader.read(line, made.records));
    if (made.records.empty()) continue;
    for (const LogLine& line : lines) {  // "train_batch_size ............. 256" of DeepSpeed
      const auto dots = after_key(line.text, " train_batch_size ");
      const std::size_t at = dots.find_first_not_of(". ");
      const auto batch = at == dots.npos ? std::nullopt : leading_number(dots.substr(at));
      if (made.are_rates && format.program == "DeepSpeed" && batch) {
        made.work_per_step = batch->value;
      }
    }
    return made;
  }
  return LogRecords{.program = "Hugging Face Trainer", .records = records_of_bars(lines)};
}

}  // namespace perfmodel
