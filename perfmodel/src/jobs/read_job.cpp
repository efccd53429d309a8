#include "read_job.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/lower_case.hpp"
#include "base/secrets.hpp"
#include "base/split.hpp"
#include "files/json_file.hpp"
#include "job_values.hpp"
#include "json/csv_file.hpp"
#include "perfmodel/detail/decoder_models.hpp"

namespace perfmodel {
namespace {

namespace fs = std::filesystem;

bool is_same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, lower_case, lower_case);
}

// Our value of one of theirs; "" if the row knows none.
std::string our_value(const JobRule& rule, const std::string& theirs) {
  if (rule.values.empty()) return theirs;
  for (const auto& [their, ours] : rule.values) {
    if (their == kAsItIs || is_same_word(their, theirs)) return ours == kAsItIs ? theirs : ours;
  }
  const bool is_field = rule.field != kIgnored && rule.field != kNotModelled;
  return is_field ? "" : theirs;
}

std::string known_values(const JobRule& rule) {
  std::vector<std::string_view> known;
  for (const auto& [their, ours] : rule.values) known.push_back(their);
  return fmt::format("{}", fmt::join(known, ", "));
}

// The setting is off, empty or left to the trainer.
bool says_nothing(const std::string& value) {
  constexpr std::string_view kNothing[] = {"",      "auto", "null", "none",
                                           "false", "0",    "0.0",  "default"};
  return std::ranges::any_of(kNothing, [&](auto word) { return is_same_word(word, value); });
}

// "q_proj,v_proj" and "full_shard auto_wrap" are lists in one word.
std::vector<std::string> words_of(const JobRule& rule, const std::vector<std::string>& values) {
  std::vector<std::string> words;
  for (std::string value : values) {
    if (our_value(rule, value).empty())
      std::ranges::replace(value, ',', ' ');
    else
      words.push_back(std::exchange(value, ""));
    for (const std::string_view word : split(value, ' ')) {
      if (!word.empty()) words.emplace_back(word);
    }
  }
  return words;
}

class JobReader {
 public:
  JobReader(const JobFormat& format, JobValues& values, JobReading& reading)
      : format_(format), values_(values), reading_(reading) {}

  void read(const JobEntry& entry) {
    const JobRule* rule = find_rule(format_, entry.key);
    JobLine line = {.key = entry.key,
                    .value = shown_text(fmt::format("{}", fmt::join(entry.values, " "))),
                    .line = entry.line};
    if (entry.key.starts_with('$') && !rule) return;  // a variable of a script
    if (!rule) {
      const bool off = std::ranges::all_of(entry.values, says_nothing);
      (off ? reading_.ignored : reading_.unknown).push_back(std::move(line));
    } else if (rule->field == kIgnored && rule->values.empty()) {
      reading_.ignored.push_back(std::move(line));
    } else if (std::ranges::all_of(entry.values, &std::string::empty)) {
      reading_.ignored.push_back(std::move(line));
    } else {
      for (const std::string& value : words_of(*rule, entry.values)) read_value(*rule, value, line);
    }
  }

 private:
  void read_value(const JobRule& rule, const std::string& value, JobLine line) {
    const std::string ours = our_value(rule, value);
    if (ours == kIgnored || rule.field == kIgnored ||
        (ours == value && is_same_word(value, "auto"))) {
      if (ours == kNotModelled)
        reading_.not_modelled.push_back(std::move(line));
      else if (!line.value.ends_with(" " + value))
        reading_.ignored.push_back(std::move(line));
    } else if (ours == kNotModelled || rule.field == kNotModelled) {
      const bool off = ours != kNotModelled && says_nothing(value);
      (off ? reading_.ignored : reading_.not_modelled).push_back(std::move(line));
    } else if (ours.empty()) {
      values_.fail_at(line, fmt::format("expected one of {}, found \"{}\"", known_values(rule),
                                        shown_text(value)));
    } else {
      set_fields(rule.field, ours, std::move(line));
    }
  }

  // "1f1b;vp=2" sets a second field, "-;vp=2" only that one.
  void set_fields(const std::string& field, const std::string& ours, JobLine line) {
    const auto parts = split(ours, ';');
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::size_t equals = i == 0 ? std::string_view::npos : parts[i].find('=');
      line.field = i == 0 ? field : std::string(parts[i].substr(0, equals));
      line.as = i == 0 ? std::string(parts[i]) : std::string(parts[i].substr(equals + 1));
      if (line.as == kIgnored) continue;
      values_.set(line.field, line);
      const auto& said = reading_.understood;
      const bool again = !said.empty() && said.back().key == line.key &&
                         said.back().field == line.field && said.back().as == line.as;
      if (!again) reading_.understood.push_back(line);
    }
  }

  const JobFormat& format_;
  JobValues& values_;
  JobReading& reading_;
};

// A MODEL of the flags brings these fields, so that the file's do not count.
bool is_of_model(std::string_view field) {
  const LayoutField* found = find_layout_field(field);
  constexpr std::string_view kNames[] = {"model",       "model_family",   "model_size",
                                         "words",       "position_kind",  "max_positions",
                                         "group_query", "vocabulary_step"};
  return (found && found <= find_layout_field("next_tokens")) ||
         std::ranges::find(kNames, field) != std::end(kNames);
}

void override_by_flags(const GivenFields& given, JobValues& values, JobReading& reading) {
  const bool has_model = given.contains("model");
  std::vector<std::string> lost;
  for (const auto& [name, line] : values.all()) {
    const bool is_lost = given.contains(name) || (has_model && is_of_model(name));
    if (is_lost) lost.push_back(name);
  }
  const auto is_lost = [&](const JobLine& line) {
    return std::ranges::find(lost, line.field) != lost.end();
  };
  std::ranges::copy_if(reading.understood, std::back_inserter(reading.overridden), is_lost);
  std::erase_if(reading.understood, is_lost);
  for (const std::string& name : lost) values.drop(name);
  for (const auto& [name, text] : given) {
    values.replace(name, {.key = flag_of(name), .value = text, .field = name, .as = text});
  }
}

void add_defaults(const JobFormat& format, JobValues& values, JobReading& reading) {
  const bool has_model = values.has("model") || values.has("model_family");
  for (const auto& [name, text] : format.defaults) {
    if (values.has(name) || (has_model && is_of_model(name))) continue;
    reading.assumed.push_back({.key = "", .value = text, .field = name, .as = text});
    values.replace(name, reading.assumed.back());
  }
}

// The settings that lie in a file of DeepSpeed belong to the job; the job's own count first.
void read_deepspeed_file(JobValues& values, JobReading& reading) {
  const JobLine* named = values.find("deepspeed_file");
  if (!named) return;
  const JobLine line = *named;
  std::error_code ignored;
  fs::path file = line.as;
  if (!fs::is_regular_file(file, ignored)) file = values.file().parent_path() / line.as;
  const auto entries = read_job_text(file);
  if (!entries) return values.fail_at(line, to_string(entries.error()));
  const auto format = recognised_format(*entries, file);
  if (!format) return values.fail_at(line, to_string(format.error()));
  JobValues of_file(file);
  JobReader reader(*format, of_file, reading);
  for (const JobEntry& entry : *entries) reader.read(entry);
  for (const auto& [name, value] : of_file.all()) {
    if (!values.has(name)) values.replace(name, value);
  }
  add_defaults(*format, values, reading);
  if (of_file.error()) values.fail_at(line, to_string(*of_file.error()));
}

bool set_value(LayoutInputs& inputs, const LayoutField& field, const std::string& text) {
  const auto* share = std::get_if<double LayoutAsk::*>(&field.member);
  if (!share) return set_field<LayoutAsk>(inputs, field, text);
  const auto number = parse_double(text);
  if (number && field.range.holds(*number)) inputs.** share = *number;
  return number && field.range.holds(*number);
}

// Writes the values into the question, which already has the fields in `given`.
void write_question(const GivenFields& given, JobValues& values, LayoutInputs& inputs) {
  for (const auto& [name, line] : values.all()) {
    const LayoutField* field = find_layout_field(name);
    if (name == "model") inputs.model = line.as;
    if (!field || given.contains(name)) continue;
    const std::string text = line.as == "true" ? "1" : line.as == "false" ? "0" : line.as;
    if (!set_value(inputs, *field, text)) {
      return values.fail_at(line, fmt::format("expected {} for {}, found \"{}\"",
                                              field->takes.empty() ? "true or false" : field->takes,
                                              name, shown_text(line.as)));
    }
    if (const auto* counts = std::get_if<std::vector<std::int64_t> LayoutLists::*>(&field->list)) {
      inputs.lists.** counts = {
          *(inputs.*std::get<std::optional<std::int64_t> LayoutAsk::*>(field->member))};
    } else if (const auto* names =
                   std::get_if<std::vector<std::string> LayoutLists::*>(&field->list)) {
      inputs.lists.** names = {line.as};
    }
  }
}

OrderedJson lines_json(const std::vector<JobLine>& lines) {
  OrderedJson list = OrderedJson::array();
  for (const JobLine& line : lines) {
    OrderedJson one = {{"key", line.key.empty() ? OrderedJson(nullptr) : OrderedJson(line.key)},
                       {"value", line.value}};
    if (!line.field.empty()) one.update({{"field", line.field}, {"as", line.as}});
    if (line.line > 0) one["line"] = line.line;
    list.push_back(std::move(one));
  }
  return list;
}

bool ends_like_job(const fs::path& file) {
  constexpr std::string_view kEndings[] = {".toml", ".yaml", ".yml", ".sh"};
  return std::ranges::find(kEndings, file.extension().string()) != std::end(kEndings);
}

}  // namespace

bool may_be_job(const fs::path& file) {
  if (ends_like_job(file)) return true;
  if (!file.has_parent_path() && find_decoder(file.string())) return false;
  std::error_code ignored;
  return fs::is_regular_file(file, ignored) && !is_model_config(file);
}

bool is_job(const fs::path& file) {
  constexpr std::uintmax_t kMostBytes = 1 << 20;
  std::error_code failure;
  if (!fs::is_regular_file(file, failure) || fs::file_size(file, failure) > kMostBytes)
    return false;
  if (ends_like_job(file)) return true;
  if (is_model_config(file)) return false;
  const auto entries = read_job_text(file);
  return entries && recognised_format(*entries, file).has_value();
}

Result<JobReading> read_job(const fs::path& file, const GivenFields& given, LayoutInputs& inputs) {
  PERFMODEL_TRY(entries, read_job_text(file));
  PERFMODEL_TRY(format, recognised_format(*entries, file));
  JobReading reading = {.file = file.string(), .format = format->title};
  JobValues values(file);
  JobReader reader(*format, values, reading);
  for (const JobEntry& entry : *entries) reader.read(entry);
  read_deepspeed_file(values, reading);
  override_by_flags(given, values, reading);
  add_defaults(*format, values, reading);
  if (!values.error()) complete_job(*format, values);
  std::erase_if(reading.assumed, [&](const JobLine& line) { return !values.has(line.field); });
  for (const auto& [name, line] : values.all()) {
    const bool is_field = name == "model" || find_layout_field(name);
    if (line.key.empty() && is_field && line.value != line.as) {
      reading.understood.push_back(line);
    }
  }
  if (!values.error()) write_question(given, values, inputs);
  if (values.error()) return Unexpected{*values.error()};
  return reading;
}

bool is_of_layout(std::string_view name) {
  const LayoutField* field = find_layout_field(name);
  return field && field >= find_layout_field("dp");
}

void copy_layout(const LayoutInputs& from, LayoutInputs& to) {
  for (const LayoutField& field : layout_fields()) {
    if (!is_of_layout(field.name)) continue;
    std::visit([&](auto member) { to.*member = from.*member; }, field.member);
    const auto copy_list = [&](auto list) {
      if constexpr (!std::is_same_v<decltype(list), std::monostate>)
        to.lists.*list = from.lists.*list;
    };
    std::visit(copy_list, field.list);
  }
}

OrderedJson job_json(const JobReading& reading) {
  return {{"file", reading.file},
          {"format", reading.format},
          {"understood", lines_json(reading.understood)},
          {"assumed", lines_json(reading.assumed)},
          {"overridden", lines_json(reading.overridden)},
          {"ignored", lines_json(reading.ignored)},
          {"not_modelled", lines_json(reading.not_modelled)},
          {"unknown", lines_json(reading.unknown)}};
}

}  // namespace perfmodel
