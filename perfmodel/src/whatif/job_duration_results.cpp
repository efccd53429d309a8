#include "job_duration_results.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>

#include "base/number_text.hpp"

namespace perfmodel {
namespace {

OrderedJson duration_json(const JobDuration& row) {
  if (!row.steps || row.error) return nullptr;
  OrderedJson json;
  for (const auto& [name, share] :
       {std::pair{"p5", 0.05}, {"p10", 0.1}, {"p50", 0.5}, {"p90", 0.9}, {"p95", 0.95}}) {
    json[name] = rounded(*row.seconds(share));
  }
  return json;
}

// Three digits, and whole hours from a thousand on.
std::string hours(const std::optional<double>& seconds) {
  if (!seconds) return "";
  const double hours = *seconds / 3600;
  const bool is_long = hours >= 999.5 && hours < 1e15;
  return is_long ? grouped(static_cast<std::size_t>(std::llround(hours)))
                 : fmt::format("{:.3g}", hours);
}

std::string memory_cell(const JobDuration& row) {
  if (row.error || row.device_bytes == 0) return "";
  return fmt::format("{:.1f} of {:.1f}{}", row.needed_bytes / (1 << 30),
                     row.device_bytes / (1 << 30), row.fits ? "" : ", too much");
}

std::string time_range(const JobDuration& row) {
  return row.error ? "" : milliseconds(row.low_us) + " to " + milliseconds(row.high_us);
}

// Empty for a machine that cannot run the job.
template <class Value>
auto of_answer(Value JobDuration::*member) {
  return [member](const JobDuration& row) {
    return row.error ? std::optional<Value>() : std::optional<Value>(row.*member);
  };
}

}  // namespace

const ResultFields<JobDuration> kJobDurationFields = {
    {"gpu", &JobDuration::gpu, "GPU"},
    {"world", &JobDuration::world, "GPUs"},
    {"step_us", of_answer(&JobDuration::step_us), "step ms"},
    {"low_us", of_answer(&JobDuration::low_us), "nine of ten cases", time_range},
    {"high_us", of_answer(&JobDuration::high_us)},
    {"samples_per_s", of_answer(&JobDuration::samples_per_s), "samples/s"},
    {"fits", of_answer(&JobDuration::fits), "memory GiB", memory_cell},
    {"needed_bytes", of_answer(&JobDuration::needed_bytes)},
    {"device_bytes", of_answer(&JobDuration::device_bytes)},
    {"steps", &JobDuration::steps},
    {"duration_s", duration_json, "hours, half",
     [](const JobDuration& row) { return hours(row.seconds(0.5)); }},
    {"error",
     [](const JobDuration& row) {
       return row.error ? OrderedJson(row.error->message) : OrderedJson(nullptr);
     },
     "nine of ten", [](const JobDuration& row) { return hours(row.seconds(0.9)); }}};

}  // namespace perfmodel
