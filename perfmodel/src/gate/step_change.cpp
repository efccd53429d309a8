#include "gate/step_change.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/enum_name.hpp"
#include "base/normal_quantile.hpp"
#include "base/statistics.hpp"

namespace perfmodel {
namespace {

constexpr double kClip = 4;                 // standard deviations
constexpr double kDrift = 4, kOrder = 1.4;  // times the variance of single steps
constexpr int kDriftTerms = 3, kMostTerms = 40;
constexpr std::size_t kMostNeeded = 1'000'000'000'000;

std::vector<double> logs_of(const std::vector<double>& us) {
  std::vector<double> logs;
  for (const double one : us) logs.push_back(std::log(one));
  return logs;
}

// One standard deviation of a run whose outliers do not count.
double robust_deviation(const std::vector<double>& logs) {
  std::vector<double> distances;
  const double middle = median_of(logs);
  for (const double one : logs) distances.push_back(std::abs(one - middle));
  const double median = median_of(distances);
  return median > 0 ? 1.4826 * median : 1.2533 * mean_of(distances);
}

std::vector<double> clipped(std::vector<double> logs, double deviation) {
  const double middle = median_of(logs);
  for (double& one : logs) {
    one = std::clamp(one, middle - kClip * deviation, middle + kClip * deviation);
  }
  return logs;
}

double square(double x) { return x * x; }

int terms_of(double count) {
  return std::clamp(static_cast<int>(std::lround(0.75 * std::pow(count, 2.0 / 3))), kDriftTerms,
                    kMostTerms);
}

// How fast the sum of a run's deviations grows: its variance is `per_step` times the steps.
struct RunVariance {
  double per_step = 0;
  double degrees = 1;
};

RunVariance variance_of(const std::vector<double>& logs) {
  const auto count = static_cast<double>(logs.size());
  const double mean = mean_of(logs);
  double single = 0;
  for (const double one : logs) single += square(one - mean) / (count - 1);
  const int terms = terms_of(count);
  double sum = 0;
  for (int j = 1; j <= terms; ++j) {
    double term = 0;
    for (std::size_t i = 0; i < logs.size(); ++i) {
      term += (logs[i] - mean) *
              std::cos(std::numbers::pi * j * (static_cast<double>(i) + 0.5) / count);
    }
    sum += 2 / count * square(term);
    if (j == kDriftTerms && sum / j > kDrift * single) return {sum / j, kDriftTerms};
  }
  const double slow = sum / terms;
  if (slow > kOrder * single) return {slow, static_cast<double>(terms)};
  return {std::max(slow, single), count - 1};
}

// Half the width of the bounds, for runs of so many steps.
double half_width(const RunVariance& a, double steps_a, const RunVariance& b, double steps_b,
                  double confidence) {
  const double va = a.per_step / steps_a, vb = b.per_step / steps_b;
  if (!(va + vb > 0)) return 0;
  const double degrees = square(va + vb) / (square(va) / a.degrees + square(vb) / b.degrees);
  return student_quantile(confidence, degrees) * std::sqrt(va + vb);
}

std::optional<std::size_t> steps_needed(RunVariance a, RunVariance b, double rounding,
                                        const GateLimits& limits) {
  const double most = std::log1p(limits.threshold) / 2 - rounding;
  if (!(most > 0)) return std::nullopt;
  std::size_t steps = kFewestSteps;
  for (; steps < kMostNeeded; steps += std::max<std::size_t>(1, steps / 20)) {
    const auto count = static_cast<double>(steps);
    a.degrees = b.degrees = terms_of(count);
    if (half_width(a, count, b, count, limits.confidence) <= most) break;
  }
  return steps;
}

double share_beyond(const std::vector<double>& us, const std::vector<double>& clipped_logs) {
  double beyond = 0, all = 0;
  for (std::size_t i = 0; i < us.size(); ++i) {
    beyond += us[i] - std::exp(clipped_logs[i]);
    all += us[i];
  }
  return std::abs(beyond) > 1e-9 * all ? beyond / all : 0;
}

// The integral of cos^power from 0 to `end`, by Simpson's rule.
double cosine_integral(double power, double end) {
  constexpr int kPieces = 100;
  const double width = end / kPieces;
  double sum = 1 + std::pow(std::cos(end), power);
  for (int i = 1; i < kPieces; ++i)
    sum += (i % 2 == 1 ? 4 : 2) * std::pow(std::cos(i * width), power);
  return sum * width / 3;
}

// With t = sqrt(v) tan(a), P(0 < T < t) is the integral of cos^(v - 1) from 0 to a, over twice that
// from 0 to pi / 2.
double quantile_of_few_degrees(double p, double degrees, double expanded) {
  constexpr double kRightAngle = std::numbers::pi / 2;
  const double wanted = 2 * (p - 0.5) * cosine_integral(degrees - 1, kRightAngle);
  // Newton's steps stay below the angle, as the integral is concave and the first one is too low.
  double angle = std::atan(expanded / std::sqrt(degrees));
  for (int i = 0; i < 8; ++i) {
    angle +=
        (wanted - cosine_integral(degrees - 1, angle)) / std::pow(std::cos(angle), degrees - 1);
  }
  return std::sqrt(degrees) * std::tan(angle);
}

GateVerdict verdict_of(double low, double high, double threshold) {
  if (high < threshold) return GateVerdict::kPass;
  return low > 0 ? GateVerdict::kSlower : GateVerdict::kCannotTell;
}

}  // namespace

std::string_view to_string(GateVerdict verdict) {
  static constexpr std::string_view kNames[] = {"pass", "slower", "cannot tell"};
  return enum_name(kNames, verdict);
}

double student_quantile(double p, double degrees) {
  constexpr double kFewDegrees = 10;
  const double z = normal_quantile(p), v = degrees, s = z * z;
  const double expanded =
      z + z * (s + 1) / (4 * v) + z * ((5 * s + 16) * s + 3) / (96 * v * v) +
      z * (((3 * s + 19) * s + 17) * s - 15) / (384 * v * v * v) +
      z * ((((79 * s + 776) * s + 1482) * s - 1920) * s - 945) / (92160 * v * v * v * v);
  return v < kFewDegrees ? quantile_of_few_degrees(p, v, expanded) : expanded;
}

StepChange judge_steps(const StepSample& before, const StepSample& after,
                       const GateLimits& limits) {
  StepChange made{.steps_before = before.us.size(), .steps_after = after.us.size()};
  if (before.us.empty() || after.us.empty()) {
    made.steps_needed = kFewestSteps;
    return made;
  }
  const auto logs_before = logs_of(before.us), logs_after = logs_of(after.us);
  const double deviation = std::max(robust_deviation(logs_before), robust_deviation(logs_after));
  const auto a = clipped(logs_before, deviation), b = clipped(logs_after, deviation);
  made.before_us = std::exp(mean_of(a));
  made.after_us = std::exp(mean_of(b));
  made.change = std::expm1(mean_of(b) - mean_of(a));
  made.beyond_before = share_beyond(before.us, a);
  made.beyond_after = share_beyond(after.us, b);
  const double digit = before.resolution_us / made.before_us + after.resolution_us / made.after_us;
  const double rounding = deviation < digit / 2 ? digit / 2 : 0;
  const bool are_few = std::min(a.size(), b.size()) < kFewestSteps;
  // A few steps tell no more than their spread.
  const RunVariance spread{square(deviation), 1};
  const RunVariance va = are_few ? spread : variance_of(a), vb = are_few ? spread : variance_of(b);
  made.steps_needed = steps_needed(va, vb, rounding, limits);
  if (are_few) return made;
  const double half = half_width(va, static_cast<double>(a.size()), vb,
                                 static_cast<double>(b.size()), limits.confidence) +
                      rounding;
  made.low = std::expm1(mean_of(b) - mean_of(a) - half);
  made.high = std::expm1(mean_of(b) - mean_of(a) + half);
  made.verdict = verdict_of(*made.low, *made.high, limits.threshold);
  return made;
}

}  // namespace perfmodel
