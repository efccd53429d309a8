#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "causes.hpp"
#include "measures.hpp"
#include "perfmodel/diagnosis.hpp"

namespace perfmodel {
namespace {

// Figures of time share this part of the variance of a model's error: kernels and host are wrong
// in the same direction at another batch. An assumption; docs/diagnose.md.
constexpr double kSharedError = 0.8;
// A prediction may be wrong by more than its range says.
constexpr double kWrongPrior = 0.04, kWrongDeviations = 3;
constexpr double kMemoryError = 0.1;
// Log density of another run's figure, by a normal density's unit, if that run has a trouble of its
// own: one in ten has, which may change it by two orders of magnitude.
const double kOwnTrouble = std::log(0.1 * std::sqrt(2 * M_PI) / std::log(100));
// Prior mass of the plausible values.
constexpr double kPlausible = 0.95;
constexpr double kNormalDeviations = 2;  // steps have a range of their own
constexpr double kAlikeRatio = 3;        // probabilities too close to choose by
constexpr double kEnoughDeviations = 4;  // tell two causes apart for certain
constexpr double kBringsCloser = 0.5;    // a cause at least, in log likelihood
constexpr int kFinerSteps = 16;          // between two tried values

using Outlooks = std::vector<RunOutlook>;  // one per figure

double share_of(double a, double b, double part) {
  if (a > 0 && b > 0) return a * std::pow(b / a, part);
  return a + (b - a) * part;
}

RunOutlook between(const RunOutlook& a, const RunOutlook& b, double part) {
  RunOutlook made;
  for (double RunOutlook::*figure :
       {&RunOutlook::step_us, &RunOutlook::low_us, &RunOutlook::high_us, &RunOutlook::busy_us,
        &RunOutlook::kernels_us, &RunOutlook::products_us, &RunOutlook::collectives_us,
        &RunOutlook::memory_bytes, &RunOutlook::input_wait_us, &RunOutlook::later_us,
        &RunOutlook::slowest_rank, &RunOutlook::clock, &RunOutlook::link, &RunOutlook::network}) {
    made.*figure = share_of(a.*figure, b.*figure, part);
  }
  return made;
}

/// Standard deviation of the logarithm of a predicted step, upwards or downwards. A range may begin
/// at 0.
double model_deviation(const RunOutlook& of, const RunModel& model, bool upwards) {
  constexpr double kLeastShare = 1e-3;
  const double width = upwards ? of.high_us / of.step_us
                               : of.step_us / std::max(of.low_us, kLeastShare * of.high_us);
  return std::log(std::max(1.0, width)) / (model.range_deviations / 2);
}

// A run on as many GPUs meets the same links and networks.
bool is_another_run(const RunFigure& figure, const RunModel& model) {
  return figure.at != RunSetting{} &&
         (figure.at.world == 0 || figure.at.world >= model.setting.world);
}

// Another layout or number of GPUs is a job of its own, unlike another batch.
bool may_have_own_trouble(const RunFigure& figure, const RunModel& model) {
  RunSetting at = figure.at;
  at.batch = 0;
  return at != RunSetting{} && is_another_run(figure, model);
}

/// The figures as a vector of residuals and its covariance. Figures of the run itself come first.
class Likelihood {
 public:
  Likelihood(const RunModel& model, std::span<const RunFigure> figures, Outlooks healthy)
      : model_(model), figures_(figures), healthy_(std::move(healthy)) {
    for (std::size_t i = 0; i < figures.size(); ++i) order_.push_back(i);
    std::stable_partition(order_.begin(), order_.end(), [&](std::size_t i) {
      return !may_have_own_trouble(figures_[i], model_);
    });
  }

  /// Log of the normal density without its constant: with the covariance L L^T and the residuals r,
  /// -|L^-1 r|^2 / 2 - log |L|, row by row of Cholesky's L. A row's term is the density of a figure
  /// given those before; a run that has its own trouble says nothing more.
  double log_of(const Outlooks& predicted, double error_scale = 1) const {
    const std::size_t count = figures_.size();
    std::vector<double> lower(count * count), white(count), errors(count);
    double log = log_of_fit(predicted);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = order_[i];
      white[i] = residual_of(at, predicted[at]);
      errors[i] = error_scale * error_of(at, white[i] > 0);
      for (std::size_t j = 0; j <= i; ++j) {
        double left = (i == j ? 1 : kSharedError) * errors[i] * errors[j];
        if (i == j)
          left += std::pow(kind_of(figures_[at].what).deviation(predicted[at], model_), 2);
        for (std::size_t k = 0; k < j; ++k) left -= lower[i * count + k] * lower[j * count + k];
        lower[i * count + j] = i == j ? std::sqrt(left) : left / lower[j * count + j];
        if (j < i) white[i] -= lower[i * count + j] * white[j];
      }
      white[i] /= lower[i * count + i];
      const double term = -0.5 * white[i] * white[i] - std::log(lower[i * count + i]);
      const bool has_own_trouble = term < kOwnTrouble && may_have_own_trouble(figures_[at], model_);
      if (has_own_trouble) {
        white[i] = 0;
        lower[i * count + i] = std::numeric_limits<double>::infinity();  // nothing is learned of it
      }
      log += has_own_trouble ? kOwnTrouble : term;
    }
    return log;
  }

 private:
  // Predictions of memory miss by a tenth.
  double log_of_fit(const Outlooks& predicted) const {
    double most = 0;
    for (const RunOutlook& one : predicted) most = std::max(most, one.memory_bytes);
    if (model_.device_bytes <= 0 || most <= model_.device_bytes) return 0;
    const double deviations = std::log(most / model_.device_bytes) / kMemoryError;
    return -0.5 * deviations * deviations;
  }

  double residual_of(std::size_t i, const RunOutlook& predicted) const {
    constexpr double kLeast = 1e-9;
    const MeasureKind& kind = kind_of(figures_[i].what);
    const double value = kind.predict(predicted, model_);
    if (!kind.is_log) return figures_[i].value - value;
    return std::log(figures_[i].value / std::max(kLeast, value));
  }

  // Deviation of the model's own error; figures other than times have none.
  double error_of(std::size_t i, bool upwards) const {
    const bool is_time = kind_of(figures_[i].what).is_modelled_time;
    return is_time ? model_deviation(healthy_[i], model_, upwards) : 0;
  }

  const RunModel& model_;
  std::span<const RunFigure> figures_;
  Outlooks healthy_;
  std::vector<std::size_t> order_;
};

/// A cause with the value that explains the figures best.
struct Explained {
  const Cause* cause = nullptr;  ///< null: the prediction is wrong
  double value = 1, low = 1, high = 1;
  double log_likelihood = 0;  ///< at the best value
  double log_evidence = 0;
  Outlooks outlooks;
};

Result<Outlooks> outlooks_with(const Cause* cause, double value, const RunModel& model,
                               std::span<const RunFigure> figures) {
  Outlooks made;
  for (const RunFigure& figure : figures) {
    PERFMODEL_TRY(one,
                  cause ? outlook_with(*cause, value, model, figure.at) : model.ask({}, figure.at));
    made.push_back(*one);
  }
  return made;
}

/// Values of a cause with the outlooks of each.
using Curve = std::vector<std::pair<double, Outlooks>>;

// Values that the model refuses (a batch that does not divide) are left out. Errors: all are.
Result<Curve> curve_of(const Cause& cause, const RunModel& model,
                       std::span<const RunFigure> figures) {
  Curve curve;
  std::optional<Error> refused;
  for (const double value : tried_values(cause)) {
    auto outlooks = outlooks_with(&cause, value, model, figures);
    if (outlooks) {
      curve.emplace_back(value, std::move(*outlooks));
    } else {
      refused = outlooks.error();
    }
  }
  if (curve.empty()) return Unexpected{*refused};
  return curve;
}

Curve finer(const Curve& curve) {
  Curve made;
  for (std::size_t i = 0; i + 1 < curve.size(); ++i) {
    for (int step = 0; step < kFinerSteps; ++step) {
      const double part = static_cast<double>(step) / kFinerSteps;
      Outlooks mixed;
      for (std::size_t k = 0; k < curve[i].second.size(); ++k) {
        mixed.push_back(between(curve[i].second[k], curve[i + 1].second[k], part));
      }
      made.emplace_back(share_of(curve[i].first, curve[i + 1].first, part), std::move(mixed));
    }
  }
  made.push_back(curve.back());
  return made;
}

bool is_plausible(const Cause& cause, double value) {
  return !cause.has_value() || (value >= cause.low && value <= cause.high);
}

// Log of each value's prior: plausible ones share kPlausible.
std::vector<double> log_priors(const Cause& cause, const Curve& curve) {
  const auto inside = std::ranges::count_if(
      curve, [&](const auto& point) { return is_plausible(cause, point.first); });
  const auto outside = static_cast<double>(curve.size()) - static_cast<double>(inside);
  std::vector<double> priors;
  for (const auto& [value, outlooks] : curve) {
    const double mass = is_plausible(cause, value) ? kPlausible / static_cast<double>(inside)
                                                   : (1 - kPlausible) / outside;
    priors.push_back(std::log(mass));
  }
  return priors;
}

// The point up to which that share of the weights is.
std::size_t quantile(const std::vector<double>& weights, double share) {
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    sum += weights[i];
    if (sum >= share) return i;
  }
  return weights.size() - 1;
}

Explained explain(const Cause& cause, const Curve& tried, const Likelihood& likelihood) {
  const bool interpolates = cause.has_value() && cause.name != "batch";
  const Curve curve = interpolates ? finer(tried) : tried;
  const std::vector<double> priors = log_priors(cause, curve);
  std::vector<double> weights;
  double best = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < curve.size(); ++i) {
    weights.push_back(likelihood.log_of(curve[i].second));
    best = std::max(best, weights.back());
  }
  double sum = 0;
  for (std::size_t i = 0; i < curve.size(); ++i) {
    weights[i] = std::exp(weights[i] - best + priors[i]);
    sum += weights[i];
  }
  for (double& weight : weights) weight /= sum;
  constexpr double kTail = 0.1;
  const auto& [value, outlooks] = curve[quantile(weights, 0.5)];
  return {.cause = &cause,
          .value = value,
          .low = curve[quantile(weights, kTail)].first,
          .high = curve[quantile(weights, 1 - kTail)].first,
          .log_likelihood = best,
          .log_evidence = std::log(cause.prior) + best + std::log(sum),
          .outlooks = outlooks};
}

CheckedFigure checked(const RunFigure& figure, const RunOutlook& healthy, const RunModel& model) {
  const MeasureKind& kind = kind_of(figure.what);
  CheckedFigure made{.figure = figure, .predicted = kind.predict(healthy, model)};
  const double noise = kNormalDeviations * kind.deviation(healthy, model);
  made.low = std::max(0.0, made.predicted - noise);
  made.high = made.predicted + noise;
  if (kind.is_log) {
    made.low = made.predicted * std::exp(-noise);
    made.high = made.predicted * std::exp(noise);
  }
  if (kind.is_modelled_time) {
    made.low = std::min(made.low, made.predicted * healthy.low_us / healthy.step_us);
    made.high = std::max(made.high, made.predicted * healthy.high_us / healthy.step_us);
  }
  return made;
}

std::string sentence_of(const Explained& of, const RunModel& model) {
  if (!of.cause) return "none of these: the prediction is wrong by more than its range says";
  if (!of.cause->has_value()) return std::string(of.cause->sentence);
  return fmt::format(fmt::runtime(of.cause->sentence), of.cause->show(of.value, model));
}

CauseFinding finding_of(const Explained& of, double probability, const RunModel& model,
                        std::span<const RunFigure> figures) {
  CauseFinding made{.name = of.cause ? of.cause->name : "prediction",
                    .sentence = sentence_of(of, model),
                    .value = of.value,
                    .low = of.low,
                    .high = of.high,
                    .has_value = of.cause && of.cause->has_value(),
                    .is_plausible = !of.cause || is_plausible(*of.cause, of.value),
                    .probability = probability};
  for (std::size_t i = 0; i < figures.size(); ++i) {
    made.explained.push_back(kind_of(figures[i].what).predict(of.outlooks[i], model));
  }
  return made;
}

// Figures of links that a run does not use say nothing of it.
bool is_used(RunMeasure what, const RunModel& model) {
  if (what == RunMeasure::kNetwork) return model.nodes > 1;
  const bool is_of_ranks = what == RunMeasure::kLink || what == RunMeasure::kSlowestRank;
  return !is_of_ranks || model.setting.world > 1;
}

/// Further measurements, the easiest first.
std::vector<RunFigure> candidates(const RunModel& model, std::span<const RunFigure> given) {
  std::vector<RunFigure> list;
  for (const MeasureKind& kind : measure_kinds()) list.push_back({.what = kind.what, .at = {}});
  const std::int64_t batch = model.setting.batch, world = model.setting.world;
  // Steps of other sizes are easier than a profile.
  const auto profile = std::ranges::find(list, RunMeasure::kInputWait, &RunFigure::what);
  std::vector<RunFigure> steps;
  if (batch > 1) steps.push_back({.at = {.batch = batch / 2}});
  if (batch > 0) steps.push_back({.at = {.batch = batch * 2}});
  // Within a node, or without any link.
  if (world > 1) steps.push_back({.at = {.world = model.nodes > 1 ? world / model.nodes : 1}});
  list.insert(profile, steps.begin(), steps.end());
  std::erase_if(list, [&](const RunFigure& one) {
    if (!is_used(one.what, model)) return true;
    return std::ranges::any_of(given, [&](const RunFigure& other) {
      return other.what == one.what && other.at == one.at;
    });
  });
  return list;
}

/// Whether two causes differ in that measurement; none: it cannot be predicted.
std::optional<NextMeasurement> tells(const RunFigure& by, const Explained& first,
                                     const Explained& second, const RunModel& model) {
  const auto a = outlook_with(*first.cause, first.value, model, by.at);
  const auto b = outlook_with(*second.cause, second.value, model, by.at);
  const auto healthy = model.ask({}, by.at);
  if (!a || !b || !healthy) return std::nullopt;
  const MeasureKind& kind = kind_of(by.what);
  NextMeasurement made{.what = by.what,
                       .at = by.at,
                       .how = std::string(kind.how),
                       .first = kind.predict(*a, model),
                       .second = kind.predict(*b, model)};
  if (kind.is_log && !(made.first > 0 && made.second > 0)) return std::nullopt;
  const double apart = kind.is_log ? std::log(made.first / made.second) : made.first - made.second;
  const bool upwards = made.first + made.second > 2 * kind.predict(*healthy, model);
  const double error = kind.is_modelled_time ? model_deviation(*healthy, model, upwards) : 0;
  const double noise = std::hypot(kind.deviation(*a, model), kind.deviation(*b, model)) / M_SQRT2;
  made.deviations = std::abs(apart) / std::hypot(noise, std::sqrt(1 - kSharedError) * error);
  return made;
}

std::optional<NextMeasurement> next_measurement(const Explained& first, const Explained& second,
                                                const RunModel& model,
                                                std::span<const RunFigure> given) {
  std::optional<NextMeasurement> best;
  for (const RunFigure& candidate : candidates(model, given)) {
    auto one = tells(candidate, first, second, model);
    if (!one || !(one->deviations > (best ? best->deviations : 0))) continue;
    best = std::move(one);
    if (best->deviations >= kEnoughDeviations) break;
  }
  if (best && best->deviations < 1) best.reset();
  return best;
}

Result<void> check(std::span<const RunFigure> figures) {
  if (figures.empty()) {
    return decline("expected a measured figure of the run, found none");
  }
  for (const RunFigure& figure : figures) {
    const bool may_be_zero =
        figure.what == RunMeasure::kInputWait || figure.what == RunMeasure::kCollectives;
    if (std::isfinite(figure.value) && (figure.value > 0 || (may_be_zero && figure.value == 0))) {
      continue;
    }
    return decline(fmt::format("{}: expected a figure above 0, found {}", to_string(figure.what),
                               figure.value));
  }
  return {};
}

Result<void> check_predicted(const RunFigure& figure, const RunOutlook& healthy,
                             const RunModel& model) {
  const MeasureKind& kind = kind_of(figure.what);
  const bool may_be_zero = !kind.is_log && kind.deviation(healthy, model) > 0;
  const bool is_known = may_be_zero || kind.predict(healthy, model) > 0;
  if (is_known && is_used(figure.what, model)) return {};
  return decline(fmt::format("{}: expected a figure that is predicted of this run, found {}",
                             kind.name, measured_words(figure.what, figure.value)));
}

std::string_view why_excluded(const Cause& cause, const RunModel& model,
                              std::span<const RunFigure> figures) {
  if (cause.excluded) return cause.excluded(model);
  const bool has_others = std::ranges::any_of(
      figures, [&](const RunFigure& one) { return is_another_run(one, model); });
  return cause.is_of_one_run && !has_others ? "no other run on as many GPUs is given" : "";
}

/// Every cause that the run can have, most likely first.
std::vector<Explained> explain_all(const RunModel& model, std::span<const RunFigure> figures,
                                   const Likelihood& likelihood, const Outlooks& healthy,
                                   RunDiagnosis& diagnosis) {
  std::vector<Explained> all;
  const double unchanged = likelihood.log_of(healthy);
  for (const Cause& cause : causes()) {
    const std::string_view why = why_excluded(cause, model, figures);
    if (!why.empty()) {
      diagnosis.left_out.push_back(fmt::format("{}: {}", cause.name, why));
      continue;
    }
    const auto curve = curve_of(cause, model, figures);
    if (!curve) {
      diagnosis.left_out.push_back(fmt::format("{}: {}", cause.name, curve.error().message));
      continue;
    }
    Explained one = explain(cause, *curve, likelihood);
    if (one.log_likelihood > unchanged + kBringsCloser) {
      all.push_back(std::move(one));
    } else {
      diagnosis.left_out.push_back(fmt::format("{}: it brings the figures no closer", cause.name));
    }
  }
  all.push_back(
      {.log_evidence = std::log(kWrongPrior) + likelihood.log_of(healthy, kWrongDeviations),
       .outlooks = healthy});
  std::ranges::stable_sort(all, std::ranges::greater{}, &Explained::log_evidence);
  return all;
}

}  // namespace

Result<RunDiagnosis> diagnose(const RunModel& model, std::span<const RunFigure> figures) {
  PERFMODEL_TRY_TO(check(figures));
  PERFMODEL_TRY(healthy, outlooks_with(nullptr, 1, model, figures));
  RunDiagnosis made{.warnings = model.warnings};
  for (std::size_t i = 0; i < figures.size(); ++i) {
    PERFMODEL_TRY(known, check_predicted(figures[i], (*healthy)[i], model));
    made.figures.push_back(checked(figures[i], (*healthy)[i], model));
  }
  if (model.device_bytes > 0 && healthy->front().memory_bytes > model.device_bytes) {
    made.warnings.push_back(
        fmt::format("a run as it is given does not fit: {} are predicted, {} are there",
                    measured_words(RunMeasure::kMemory, healthy->front().memory_bytes),
                    measured_words(RunMeasure::kMemory, model.device_bytes)));
  }
  made.is_normal = std::ranges::all_of(made.figures, &CheckedFigure::is_inside);
  const Likelihood likelihood(model, figures, *healthy);
  const auto all = explain_all(model, figures, likelihood, *healthy, made);
  double sum = 0;
  for (const Explained& one : all) sum += std::exp(one.log_evidence - all.front().log_evidence);
  std::vector<const Explained*> named;
  for (const Explained& one : all) {
    const double odds = std::exp(one.log_evidence - all.front().log_evidence);
    made.causes.push_back(finding_of(one, odds / sum, model, figures));
    made.alike += odds * kAlikeRatio >= 1;
    if (one.cause) named.push_back(&one);
  }
  if (named.size() > 1) {
    made.next = next_measurement(*named[0], *named[1], model, figures);
  }
  return made;
}

}  // namespace perfmodel
