#include "sync/sync_cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <optional>
#include <string_view>

#include "base/contains.hpp"
#include "files/json_file.hpp"
#include "files/lower_case.hpp"

namespace perfmodel::sync {
namespace {

std::vector<double> numbers_of(ObjectReader& reader, const char* key, bool zero_allowed) {
  std::vector<double> values;
  const Json* list = reader.array(key);
  if (!list) return values;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Json& value = (*list)[i];
    const bool fits = value.is_number() && std::isfinite(value.get<double>()) &&
                      (zero_allowed ? value.get<double>() >= 0 : value.get<double>() > 0);
    if (!fits) {
      reader.fail_at(fmt::format("{}/{}", reader.pointer(key), i),
                     zero_allowed ? "a number of at least 0" : "a number above 0", found(value));
      return values;
    }
    values.push_back(value.get<double>());
  }
  if (values.empty()) reader.reject(key, "at least one number");
  return values;
}

void read_workers_of_case(ObjectReader& reader, SyncCase& made) {
  const auto steps = numbers_of(reader, "step_time", false);
  const auto commits = numbers_of(reader, "commit_time", true);
  if (steps.size() != commits.size()) {
    reader.reject("commit_time", fmt::format("{} times, as many as step_time has", steps.size()));
    return;
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    made.job.workers.push_back(
        {.name = fmt::format("worker {}", i), .step_us = steps[i], .commit_us = commits[i]});
  }
}

void read_staleness(ObjectReader& reader, SchemeSettings& settings) {
  const Json* value = reader.any("s");
  if (!value) return;
  const bool unbounded = value->is_null() || (value->is_string() && *value == "inf");
  settings.staleness = unbounded ? std::nullopt : std::optional(reader.whole_number("s", 0));
}

void read_settings_of_case(ObjectReader& reader, SyncCase& made) {
  SchemeSettings& settings = made.settings;
  switch (settings.scheme) {
    case Scheme::kBsp:
    case Scheme::kAsp: break;
    case Scheme::kSsp: read_staleness(reader, settings); break;
    case Scheme::kAdacomm:
      if (reader.has("check_period")) settings.period_us = reader.positive("check_period");
      [[fallthrough]];
    case Scheme::kLocalSgd: settings.tau = reader.whole_number("tau", 1); break;
    case Scheme::kAdsp:
      settings.period_us = reader.positive("check_period");
      settings.commits_per_period = numbers_of(reader, "commits_per_period", false);
      if (settings.commits_per_period.size() != made.job.workers.size()) {
        reader.reject("commits_per_period",
                      fmt::format("{} numbers, as many as step_time has", made.job.workers.size()));
      }
      break;
  }
  const bool rounds = reader.has("rounds"), horizon = reader.has("horizon");
  if (rounds == horizon) {
    reader.fail_at(reader.pointer(), "rounds or horizon", rounds ? "both" : "none");
    return;
  }
  if (rounds) made.target.rounds = reader.whole_number("rounds", 1);
  if (horizon) made.target.horizon_us = reader.positive("horizon");
}

SyncCase parse_case(ObjectReader& reader) {
  SyncCase made{.id = reader.string("id")};
  const std::string name = reader.string("scheme");
  if (const auto scheme = scheme_of(lower_case(name))) {
    made.settings.scheme = *scheme;
  } else {
    reader.reject("scheme", fmt::format("one of {}", fmt::join(scheme_names(), ", ")));
    return made;
  }
  read_workers_of_case(reader, made);
  read_settings_of_case(reader, made);
  return made;
}

// The number after "name=" or "name ", in words like "fixed ADACOMM tau=40".
std::optional<std::int64_t> number_behind(const std::string& words,
                                          std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    for (std::size_t at = words.find(name); at != std::string::npos;
         at = words.find(name, at + 1)) {
      std::size_t digit = at + name.size();
      while (digit < words.size() && (words[digit] == ' ' || words[digit] == '=')) ++digit;
      std::int64_t value = 0;
      std::size_t read = 0;
      for (; digit + read < words.size() && read < 9 &&
             std::isdigit(static_cast<unsigned char>(words[digit + read])) != 0;
           ++read) {
        value = value * 10 + (words[digit + read] - '0');
      }
      if (read > 0) return value;
    }
  }
  return std::nullopt;
}

constexpr std::int64_t kAssumedStaleness = 40;

// Schemes of measured runs are named in words.
bool read_scheme_words(MeasuredRun& run) {
  const std::string words = lower_case(run.scheme_text);
  const auto has = [&](std::string_view word) { return words.find(word) != std::string::npos; };
  const auto tau = number_behind(words, {"tau", "local steps"});
  SchemeSettings& settings = run.settings;
  if (has("adsp")) {
    settings.scheme = Scheme::kAdsp;
    run.assumed.emplace_back("commits per period found by ADSP's search, period 60 s");
  } else if (has("adacomm") && !tau && !has("fixed")) {
    settings.scheme = Scheme::kAdacomm;
    run.assumed.emplace_back("first tau found by ADACOMM's rule, period 60 s");
  } else if (tau || has("fedavg") || has("local")) {
    settings.scheme = Scheme::kLocalSgd;
    if (!tau || *tau < 1) return false;
    settings.tau = *tau;
  } else if (has("ssp") || has("stale")) {
    settings.scheme = Scheme::kSsp;
    settings.staleness = number_behind(words, {"staleness", "bound", "s=", "s =", "ssp"});
    if (!settings.staleness) {
      settings.staleness = kAssumedStaleness;
      run.assumed.push_back(fmt::format("a staleness of {}", kAssumedStaleness));
    }
  } else if (has("bsp")) {
    settings.scheme = Scheme::kBsp;
  } else if (has("asp") || has("async")) {
    settings.scheme = Scheme::kAsp;
  } else {
    return false;
  }
  settings.period_us = 60;  // times of measured runs are in seconds
  return true;
}

MeasuredRun parse_measured(ObjectReader& reader) {
  MeasuredRun run{.id = reader.string("id"), .scheme_text = reader.string("scheme")};
  if (!read_scheme_words(run)) {
    reader.reject("scheme", "BSP, ASP, SSP, ADACOMM, ADSP, or tau and a number of local steps");
  }
  run.wall_s = reader.positive("wall_s");
  run.steps = reader.positive("total_steps");
  run.compute_s = numbers_of(reader, "compute_s_per_worker_group", false);
  run.blocked_s = reader.number_below("avg_blocked_s", 1e15, "a number of at least 0");
  return run;
}

void warn_of_unread(const Json& object, const std::string& pointer, bool measured,
                    std::vector<std::string>& warnings) {
  constexpr std::array<std::string_view, 12> kExact = {
      "id", "scheme",   "step_time",    "commit_time",        "rounds", "horizon", "tau",
      "s",  "expected", "check_period", "commits_per_period", "notes"};
  constexpr std::array<std::string_view, 7> kMeasured = {
      "id",   "scheme", "wall_s", "total_steps", "compute_s_per_worker_group", "avg_blocked_s",
      "notes"};
  for (const auto& [key, value] : object.items()) {
    if (measured ? contains(kMeasured, key) : contains(kExact, key)) continue;
    warnings.push_back(fmt::format("{}/{}: this key has no effect", pointer, key));
  }
}

SyncCases parse_cases(const Json& document, std::optional<Error>& error) {
  SyncCases made;
  ObjectReader root(document, "", error);
  const Json* list = root.array("cases");
  if (list && list->empty()) root.reject("cases", "at least one case");
  for (std::size_t i = 0; list && i < list->size() && !error; ++i) {
    const std::string pointer = fmt::format("/cases/{}", i);
    const Json& object = (*list)[i];
    ObjectReader reader(object, pointer, error);
    if (error) break;
    const bool measured = object.contains("wall_s");
    if (measured) {
      made.measured.push_back(parse_measured(reader));
    } else {
      made.cases.push_back(parse_case(reader));
    }
    warn_of_unread(object, pointer, measured, made.warnings);
  }
  return made;
}

}  // namespace

Result<SyncCases> read_sync_cases(const std::filesystem::path& file) {
  return read_json_file(file, "file of cases", parse_cases);
}

}  // namespace perfmodel::sync
