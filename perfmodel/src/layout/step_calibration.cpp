#include "step_calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/statistics.hpp"
#include "base/stop_point.hpp"

namespace perfmodel {
namespace {

constexpr std::uint32_t bit(StepPart part) { return 1U << static_cast<unsigned>(part); }
constexpr std::uint32_t kLayerParts = bit(StepPart::kLayers);
constexpr std::uint32_t kHostPart = bit(StepPart::kHost);
constexpr std::uint32_t kTensorParts = bit(StepPart::kTensor);
constexpr std::uint32_t kPassParts = kLayerParts | kHostPart | kTensorParts;
constexpr std::uint32_t kAllParts = (1U << kStepParts) - 1;

// How far kernels, hosts and networks of machines lie from their predictions (logarithms). Of the
// guesses 0.05, 0.05, 0.08, 0.05, 0.1, 0.2, 0.1, 0.03 and of their halves and doubles those under
// which the even rows of vTrain (one node) are likeliest.
constexpr double kWholeStep = 0.05, kLayers = 0.05, kShape = 0.08, kPair = 0.05, kHost = 0.2,
                 kNetwork = 0.4, kGroup = 0.1, kStages = 0.03;

double sum_of(const PartTimes& times, std::uint32_t parts) {
  double sum = 0;
  for (std::size_t i = 0; i < kStepParts; ++i) sum += (parts >> i & 1U) != 0 ? times[i] : 0;
  return sum;
}

double term_of(const StepTime& time, LayoutTerm which) {
  return time.terms_us[static_cast<std::size_t>(which)];
}

/// Share of the measured parts that an effect scales.
std::vector<double> shares_of(const PartTimes& times, const std::vector<StepEffect>& effects,
                              std::uint32_t parts) {
  const double whole = sum_of(times, parts);
  std::vector<double> shares;
  shares.reserve(effects.size());
  for (const StepEffect& effect : effects) {
    shares.push_back(whole > 0 ? sum_of(times, effect.parts & parts) / whole : 0);
  }
  return shares;
}

/// Cholesky's factor of a symmetric matrix, in place, lower triangle row by row.
void factorize(std::vector<double>& matrix, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    stop_point();
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = matrix[i * n + j];
      for (std::size_t k = 0; k < j; ++k) sum -= matrix[i * n + k] * matrix[j * n + k];
      matrix[i * n + j] = i == j ? std::sqrt(std::max(sum, 1e-12)) : sum / matrix[j * n + j];
    }
  }
}

void solve_lower(const std::vector<double>& factor, std::vector<double>& x) {
  const std::size_t n = x.size();
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) x[i] -= factor[i * n + k] * x[k];
    x[i] /= factor[i * n + i];
  }
}

std::vector<double> solve(const std::vector<double>& factor, std::vector<double> x) {
  solve_lower(factor, x);
  const std::size_t n = x.size();
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) x[i] -= factor[k * n + i] * x[k];
    x[i] /= factor[i * n + i];
  }
  return x;
}

/// The diagonal of the inverse matrix.
std::vector<double> inverse_diagonal(const std::vector<double>& factor, std::size_t n) {
  std::vector<double> diagonal(n);
  for (std::size_t i = 0; i < n; ++i) {
    stop_point();
    std::vector<double> unit(n);
    unit[i] = 1;
    solve_lower(factor, unit);
    for (const double value : unit) diagonal[i] += value * value;
  }
  return diagonal;
}

std::vector<OpenEffect> largest_first(std::vector<OpenEffect> effects) {
  double all = 0;
  for (const OpenEffect& one : effects) all += one.share;
  if (all > 0) {
    for (OpenEffect& one : effects) one.share /= all;
  }
  std::erase_if(effects, [](const OpenEffect& one) { return one.share <= 0; });
  std::ranges::stable_sort(effects, std::ranges::greater(), &OpenEffect::share);
  return effects;
}

// Exposed collectives within layers, whatever is split.
double exchange_of(const StepTime& time) {
  return term_of(time, LayoutTerm::kTensorParallel) + term_of(time, LayoutTerm::kExpertParallel) +
         term_of(time, LayoutTerm::kContextParallel);
}

}  // namespace

PartTimes part_times(const StepTime& time) {
  const double compute = term_of(time, LayoutTerm::kCompute);
  const double host = term_of(time, LayoutTerm::kHost);
  const double tensor = exchange_of(time);
  const double passes = compute + host + tensor;
  const double waits = passes > 0 ? term_of(time, LayoutTerm::kBubble) / passes : 0;
  return {compute * (1 + waits) + term_of(time, LayoutTerm::kOptimizer), host * (1 + waits),
          tensor * (1 + waits), term_of(time, LayoutTerm::kPipelineTransfers),
          term_of(time, LayoutTerm::kDataParallel) + term_of(time, LayoutTerm::kOffload)};
}

std::string layer_words(const DecoderModel& model) {
  const std::string experts =
      model.experts.experts > 0 ? fmt::format(", {} experts", model.experts.experts) : "";
  return fmt::format("hidden {}, {} heads, {} of keys and values, feed-forward {}{}{}",
                     model.hidden, model.heads, model.kv_heads > 0 ? model.kv_heads : model.heads,
                     model.feed_forward, model.gated ? " gated" : "", experts);
}

std::vector<StepEffect> effects_of(const LayoutJob& job, const ParallelLayout& layout,
                                   std::int64_t gpus_per_node) {
  const std::string layer = layer_words(job.model);
  const std::string rows =
      fmt::format("micro-batch {} of {} tokens", layout.micro_batch, job.sequence);
  const std::int64_t nodes = (layout.gpus() + gpus_per_node - 1) / gpus_per_node;
  const std::string on_nodes = nodes == 1 ? " in a node" : fmt::format(" on {} nodes", nodes);
  std::vector<StepEffect> effects = {
      {"any step on this machine", kAllParts, kWholeStep},
      {"layers", kLayerParts, kLayers},
      {fmt::format("layers ({}) with tp {} and {}", layer, layout.tp, rows), kPassParts, kShape},
      {fmt::format("layers ({}) with tp {}", layer, layout.tp), kPassParts, kPair},
      {fmt::format("layers ({}) with {}", layer, rows), kPassParts, kPair},
      {fmt::format("tp {} and {}", layout.tp, rows), kPassParts, kPair},
      {fmt::format("layers ({}) with tp {}, {} and pp {}", layer, layout.tp, rows, layout.pp),
       kAllParts, kStages},
      {"the host", kHostPart, kHost},
      {fmt::format("the host with tp {}", layout.tp), kHostPart, kGroup}};
  if (layout.tp > 1) {
    effects.push_back({"tensor parallelism", kTensorParts, kNetwork});
    effects.push_back(
        {fmt::format("tensor parallelism with tp {}", layout.tp), kTensorParts, kGroup});
  }
  if (layout.pp > 1) {
    effects.push_back({"sends between stages", bit(StepPart::kPipeline), kNetwork});
    effects.push_back({"sends between stages" + on_nodes, bit(StepPart::kPipeline), kNetwork});
  }
  if (layout.dp > 1) {
    effects.push_back({"data parallelism", bit(StepPart::kData), kNetwork});
    effects.push_back({"data parallelism" + on_nodes, bit(StepPart::kData), kNetwork});
  }
  return effects;
}

std::vector<OpenEffect> open_effects(const PartTimes& times,
                                     const std::vector<StepEffect>& effects) {
  const std::vector<double> shares = shares_of(times, effects, kAllParts);
  std::vector<OpenEffect> open;
  for (std::size_t e = 0; e < effects.size(); ++e) {
    const double part = shares[e] * effects[e].deviation;
    open.push_back({effects[e].name, part * part});
  }
  return largest_first(std::move(open));
}

Result<StepCalibration> StepCalibration::fit(std::vector<StepObservation> observations,
                                             double noise) {
  const std::size_t n = observations.size();
  if (n == 0) return decline("expected measured steps, found none");
  if (n > kMostObservations) {
    return decline(
        fmt::format("expected at most {} measured steps, found {}", kMostObservations, n));
  }
  StepCalibration made;
  made.noise_ = noise;
  std::vector<double> errors(n, noise * noise);  // variance of each
  std::unordered_map<std::string, double> theta;
  constexpr int kRounds = 8;
  for (int round = 0; round < kRounds; ++round) {
    made.rows_.clear();
    std::vector<double> residuals;
    for (const StepObservation& one : observations) {
      PartTimes now = one.predicted_us;
      for (const StepEffect& effect : one.effects) {
        const auto known = theta.find(effect.name);
        if (known == theta.end()) continue;
        for (std::size_t i = 0; i < kStepParts; ++i) {
          if ((effect.parts >> i & 1U) != 0) now[i] *= std::exp(known->second);
        }
      }
      Row row{shares_of(now, one.effects, one.parts)};
      double residual = std::log(one.measured_us / sum_of(now, one.parts));
      for (std::size_t e = 0; e < one.effects.size(); ++e) {
        const auto known = theta.find(one.effects[e].name);
        if (known != theta.end()) residual += row.shares[e] * known->second;
      }
      residuals.push_back(residual);
      made.rows_.push_back(std::move(row));
    }
    // Steps by the effects that they share.
    std::map<std::string_view, std::vector<std::pair<std::size_t, double>>> by_effect;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t e = 0; e < observations[i].effects.size(); ++e) {
        const StepEffect& effect = observations[i].effects[e];
        by_effect[effect.name].emplace_back(i, made.rows_[i].shares[e] * effect.deviation);
      }
    }
    std::vector<double> matrix(n * n);
    for (const auto& [name, parts] : by_effect) {
      for (const auto& [i, a] : parts) {
        for (const auto& [j, b] : parts) matrix[i * n + j] += a * b;
      }
    }
    if (round == 0) {  // bad runs are told from their distance to what is expected of any machine
      for (std::size_t i = 0; i < n; ++i) {
        const double square = residuals[i] * residuals[i], expected = matrix[i * n + i];
        errors[i] = noise * noise * (1 + square / (noise * noise + expected)) / 2 +
                    std::max(0.0, square - 4 * expected);
      }
    }
    for (std::size_t i = 0; i < n; ++i) matrix[i * n + i] += errors[i];
    factorize(matrix, n);
    made.factor_ = std::move(matrix);
    made.weights_ = solve(made.factor_, residuals);
    theta.clear();
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t e = 0; e < observations[i].effects.size(); ++e) {
        const StepEffect& effect = observations[i].effects[e];
        theta[effect.name] +=
            made.rows_[i].shares[e] * effect.deviation * effect.deviation * made.weights_[i];
      }
    }
    if (round + 1 == kRounds) break;
    for (std::size_t i = 0; i < n; ++i) {
      double fitted = 0;
      for (std::size_t e = 0; e < observations[i].effects.size(); ++e) {
        fitted += made.rows_[i].shares[e] * theta[observations[i].effects[e].name];
      }
      const double off = (residuals[i] - fitted) / noise;
      errors[i] = noise * noise * (1 + off * off) / 2;
    }
  }
  const std::vector<double> diagonal = inverse_diagonal(made.factor_, n);
  for (std::size_t i = 0; i < n; ++i) made.left_out_.push_back(made.weights_[i] / diagonal[i]);
  made.theta_.assign(theta.begin(), theta.end());
  std::ranges::sort(made.theta_);
  for (const StepObservation& one : observations) {
    if (!made.knows_layer(one.layer)) made.layers_.push_back(one.layer);
  }
  made.observations_ = std::move(observations);
  return made;
}

bool StepCalibration::knows_layer(const std::string& layer) const {
  return std::ranges::find(layers_, layer) != layers_.end();
}

double StepCalibration::weight_of(const std::string& effect) const {
  const auto found = std::ranges::lower_bound(
      theta_, effect, {}, [](const auto& one) { return std::string_view(one.first); });
  return found != theta_.end() && found->first == effect ? found->second : 0;
}

PartTimes StepCalibration::factors(const std::vector<StepEffect>& effects) const {
  PartTimes logs = {};
  for (const StepEffect& effect : effects) {
    const double theta = weight_of(effect.name);
    for (std::size_t i = 0; i < kStepParts; ++i) {
      if ((effect.parts >> i & 1U) != 0) logs[i] += theta;
    }
  }
  for (double& value : logs) value = std::exp(value);
  return logs;
}

std::vector<double> StepCalibration::covariances(const PartTimes& times,
                                                 const std::vector<StepEffect>& effects) const {
  const std::vector<double> shares = shares_of(times, effects, kAllParts);
  std::unordered_map<std::string_view, double> own;
  for (std::size_t e = 0; e < effects.size(); ++e) {
    own[effects[e].name] = shares[e] * effects[e].deviation * effects[e].deviation;
  }
  std::vector<double> made(observations_.size());
  for (std::size_t i = 0; i < observations_.size(); ++i) {
    for (std::size_t e = 0; e < observations_[i].effects.size(); ++e) {
      const auto same = own.find(observations_[i].effects[e].name);
      if (same != own.end()) made[i] += rows_[i].shares[e] * same->second;
    }
  }
  return made;
}

StepTime StepCalibration::corrected(const StepTime& time,
                                    const std::vector<StepEffect>& effects) const {
  const PartTimes factor = factors(effects), parts = part_times(time);
  const auto at = [&](StepPart part) { return factor[static_cast<std::size_t>(part)]; };
  StepTime made = time;
  const auto scale = [&](LayoutTerm which, double by) {
    made.terms_us[static_cast<std::size_t>(which)] *= by;
  };
  const double compute = term_of(time, LayoutTerm::kCompute);
  const double host = term_of(time, LayoutTerm::kHost);
  const double tensor = exchange_of(time);
  const double passes = compute + host + tensor;
  scale(LayoutTerm::kBubble, passes > 0
                                 ? (compute * at(StepPart::kLayers) + host * at(StepPart::kHost) +
                                    tensor * at(StepPart::kTensor)) /
                                       passes
                                 : 1);
  scale(LayoutTerm::kCompute, at(StepPart::kLayers));
  scale(LayoutTerm::kOptimizer, at(StepPart::kLayers));
  scale(LayoutTerm::kHost, at(StepPart::kHost));
  for (const LayoutTerm exchange :
       {LayoutTerm::kTensorParallel, LayoutTerm::kExpertParallel, LayoutTerm::kContextParallel}) {
    scale(exchange, at(StepPart::kTensor));
  }
  scale(LayoutTerm::kPipelineTransfers, at(StepPart::kPipeline));
  scale(LayoutTerm::kDataParallel, at(StepPart::kData));
  scale(LayoutTerm::kOffload, at(StepPart::kData));
  made.step_us = 0;
  for (const double term : made.terms_us) made.step_us += term;

  const std::vector<double> shares = shares_of(parts, effects, kAllParts);
  double variance = noise_ * noise_;
  for (std::size_t e = 0; e < effects.size(); ++e) {
    variance += shares[e] * shares[e] * effects[e].deviation * effects[e].deviation;
  }
  std::vector<double> known = covariances(parts, effects);
  solve_lower(factor_, known);
  for (const double value : known) variance -= value * value;
  constexpr double kMiddle80Percent = 1.2816;
  const double reach = std::exp(kMiddle80Percent * std::sqrt(std::max(variance, noise_ * noise_)));
  made.low_us = made.step_us / reach;
  made.high_us = made.step_us * reach;
  return made;
}

std::vector<OpenEffect> StepCalibration::open(const PartTimes& times,
                                              const std::vector<StepEffect>& effects) const {
  const std::vector<double> shares = shares_of(times, effects, kAllParts);
  std::vector<OpenEffect> made;
  for (std::size_t e = 0; e < effects.size(); ++e) {
    const double variance = effects[e].deviation * effects[e].deviation;
    std::vector<double> known(observations_.size());
    for (std::size_t i = 0; i < observations_.size(); ++i) {
      for (std::size_t other = 0; other < observations_[i].effects.size(); ++other) {
        if (observations_[i].effects[other].name == effects[e].name) {
          known[i] += rows_[i].shares[other] * variance;
        }
      }
    }
    solve_lower(factor_, known);
    double left = variance;
    for (const double value : known) left -= value * value;
    made.push_back({effects[e].name, shares[e] * shares[e] * std::max(0.0, left)});
  }
  return largest_first(std::move(made));
}

MeasuredFit StepCalibration::report() const {
  MeasuredFit made;
  made.steps = static_cast<std::int64_t>(observations_.size());
  std::vector<double> before, after, left_out;
  for (std::size_t i = 0; i < observations_.size(); ++i) {
    const StepObservation& one = observations_[i];
    const PartTimes factor = factors(one.effects);
    PartTimes now = one.predicted_us;
    for (std::size_t k = 0; k < kStepParts; ++k) now[k] *= factor[k];
    before.push_back(std::abs(sum_of(one.predicted_us, one.parts) / one.measured_us - 1));
    after.push_back(std::abs(sum_of(now, one.parts) / one.measured_us - 1));
    left_out.push_back(std::abs(std::exp(-left_out_[i]) - 1));
  }
  made.mape_before = mean_of(before);
  made.mape_after = mean_of(after);
  made.mape_left_out = mean_of(left_out);
  made.median_before = median_of(before);
  made.median_after = median_of(after);
  made.median_left_out = median_of(left_out);
  for (const auto& [name, theta] : theta_) made.factors.emplace_back(name, std::exp(theta));
  return made;
}

}  // namespace perfmodel
