#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "perfmodel/layout.hpp"
#include "perfmodel/result.hpp"
#include "step_time.hpp"

namespace perfmodel {

/// Parts of a step that measured steps scale: layers with the optimizer, the host, collectives of
/// tensor parallelism, sends between stages, data parallelism. The time that a stage waits for
/// others is spread over the first three, its causes.
enum class StepPart : std::uint8_t { kLayers, kHost, kTensor, kPipeline, kData };
inline constexpr std::size_t kStepParts = 5;
using PartTimes = std::array<double, kStepParts>;
PartTimes part_times(const StepTime& time);

/// A reason why steps take longer or shorter than predicted: the logarithm of a factor on some
/// parts of the step, normal around 0. Two steps share the effects of the same name.
struct StepEffect {
  std::string name;         ///< "layers of tp 2 micro-batch 4 ..."; also says what to measure
  std::uint32_t parts = 0;  ///< bits of StepPart
  double deviation = 0;     ///< before anything is measured
};

/// Effects of a step, first the ones that all steps of a machine share, then its own layers'.
std::vector<StepEffect> effects_of(const LayoutJob& job, const ParallelLayout& layout,
                                   std::int64_t gpus_per_node);

/// The layer of a model, as far as two steps must agree on it to say something of each other.
std::string layer_words(const DecoderModel& model);

/// A measured step with its prediction.
struct StepObservation {
  PartTimes predicted_us = {};
  std::vector<StepEffect> effects;
  std::uint32_t parts = (1U << kStepParts) - 1;  ///< that were measured
  double measured_us = 0;                        ///< their sum
  std::string layer;                             ///< layer_words
};

/// The lessons of measured steps about a machine. With w_e the share of the step in the parts of
/// effect e,
///
///   log(measured / predicted) = sum over e of w_e theta_e + error,  theta_e ~ N(0, deviation_e^2)
///
/// solved as a Gaussian process over the steps (their covariance is sum w_e w'_e deviation_e^2),
/// with shares and predictions taken anew with the factors found (Gauss-Newton). The error is
/// Cauchy's, by weights, so that a bad run counts little. Few steps move the effects that they
/// share, many move single layers' effects. `noise` is the spread of equal steps.
class StepCalibration {
 public:
  static constexpr std::size_t kMostObservations = 1000;

  /// Errors: none or too many observations, times that are not above 0.
  static Result<StepCalibration> fit(std::vector<StepObservation> observations, double noise);

  /// On the parts of a step with those effects.
  PartTimes factors(const std::vector<StepEffect>& effects) const;

  /// The step as the machine takes it: terms times their factors, the middle 80 % as its range.
  StepTime corrected(const StepTime& time, const std::vector<StepEffect>& effects) const;

  /// The uncertainty of that step's effects: each one's share of the step's variance, largest
  /// first, without the spread of equal steps.
  std::vector<OpenEffect> open(const PartTimes& times,
                               const std::vector<StepEffect>& effects) const;

  bool knows_layer(const std::string& layer) const;
  /// The layers of the measured steps, each once.
  const std::vector<std::string>& layers() const { return layers_; }
  MeasuredFit report() const;

 private:
  struct Row {
    std::vector<double> shares;  ///< one per effect of the observation
  };
  double weight_of(const std::string& effect) const;
  std::vector<double> covariances(const PartTimes& times,
                                  const std::vector<StepEffect>& effects) const;

  std::vector<StepObservation> observations_;
  std::vector<Row> rows_;
  std::vector<double> factor_;    ///< Cholesky's, row by row
  std::vector<double> weights_;   ///< per observation: inverse covariance times residuals
  std::vector<double> left_out_;  ///< log of what each step is missed by without it
  std::vector<std::pair<std::string, double>> theta_;  ///< by name
  std::vector<std::string> layers_;
  double noise_ = 0;
};

/// Before anything is measured: the same of the deviations alone.
std::vector<OpenEffect> open_effects(const PartTimes& times,
                                     const std::vector<StepEffect>& effects);

}  // namespace perfmodel
