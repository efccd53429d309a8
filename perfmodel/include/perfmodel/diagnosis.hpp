#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/result.hpp"

/// Why a run is not as fast as predicted: each cause is tried with the value that explains the
/// figures best.
namespace perfmodel {

/// The batch, the number of GPUs and the layout of a measured step; 0: as the question has them. A
/// batch counts a layout's optimizer step, or one GPU's graph, which has no other layout.
struct RunSetting {
  std::int64_t batch = 0, world = 0, tp = 0, pp = 0, micro_batch = 0;
  auto operator<=>(const RunSetting&) const = default;
};

/// The ways in which a run may differ from the predicted one. A model of a run predicts all of
/// them, or refuses those that it cannot.
struct RunChange {
  double host = 1;     ///< multiplies the host's time
  double kernels = 1;  ///< multiplies all kernels except collectives
  double clock = 1;    ///< share of the SM clock: products and attention slow down
  double link = 1;     ///< share of the rate between GPUs of a node
  double network = 1;  ///< share of the rate between nodes
  double batch = 1;    ///< samples that really run over those that the user believes in
  bool no_overlap = false, recompute = false, eager_attention = false;
  auto operator<=>(const RunChange&) const = default;
};

/// One step of a rank that is like most others. Microseconds and bytes.
struct RunOutlook {
  double step_us = 0, low_us = 0, high_us = 0;
  double busy_us = 0;            ///< the device works, or waits within a collective
  double kernels_us = 0;         ///< sum of kernels except collectives
  double products_us = 0;        ///< part of it: products and attention
  double collectives_us = 0;     ///< exposed
  double memory_bytes = 0;       ///< reserved by the allocator; 0: not known
  double input_wait_us = 0;      ///< the step waits for its batch
  double later_us = 0;           ///< steps after the first hundred
  double slowest_rank = 1;       ///< kernel time of the slowest rank over the median rank's
  double clock = 1;              ///< share of the boost clock
  double link = 1, network = 1;  ///< shares of the healthy rates
};

/// A run as a prediction describes it.
struct RunModel {
  std::function<Result<RunOutlook>(const RunChange&, const RunSetting&)> ask;
  RunSetting setting;              ///< batch and GPUs that the question names
  double samples = 0;              ///< per step, all GPUs
  double tokens = 0;               ///< the same; 0: samples have none
  bool batch_of_job = false;       ///< batches of settings are of all GPUs together
  std::int64_t nodes = 1;          ///< that the GPUs are spread over
  double clock_mhz = 0;            ///< boost clock
  double power_w = 0, idle_w = 0;  ///< limit of the board, and what it draws without work
  double device_bytes = 0;         ///< memory that a program can use; 0: not known
  double link_gb_per_s = 0, network_gb_per_s = 0;  ///< healthy rates of one GPU, of one NIC
  double range_deviations = 2.56;  ///< width of the range of a step in standard deviations
  std::vector<std::string> warnings;
};

/// Measurements of a run.
enum class RunMeasure : std::uint8_t {
  kStep,         ///< us
  kMemory,       ///< bytes that the allocator reserves
  kClock,        ///< MHz
  kPower,        ///< W
  kLink,         ///< GB/s between GPUs of a node
  kNetwork,      ///< GB/s of a NIC
  kBusy,         ///< share of the step, 0 to 1
  kKernels,      ///< us of kernels except collectives
  kProducts,     ///< us of products and attention
  kCollectives,  ///< us of exposed collectives
  kInputWait,    ///< us
  kLaterStep,    ///< us of a step after the first hundred
  kSlowestRank,  ///< kernel time of the slowest rank over the median rank's
};
std::string_view to_string(RunMeasure what);  ///< "step", "memory", ...

struct RunFigure {
  RunMeasure what = RunMeasure::kStep;
  double value = 0;  ///< in the unit of `what`
  RunSetting at = {};
};

/// A figure next to its prediction, in the figure's unit.
struct CheckedFigure {
  RunFigure figure;
  double predicted = 0, low = 0, high = 0;
  bool is_inside() const { return figure.value >= low && figure.value <= high; }
};

struct CauseFinding {
  std::string_view name;  ///< "host", "link", ...
  std::string sentence;   ///< with its value: "the host's work takes 2.3 times as long"
  double value = 1, low = 1, high = 1;  ///< median, and the middle 80 %
  bool has_value = true;                ///< false: the cause is there, or not
  bool is_plausible = true;             ///< the value is one that machines have
  double probability = 0;
  std::vector<double> explained = {};  ///< the figures with that value
};

/// The measurement that tells the first two causes apart, with what it would be by each.
struct NextMeasurement {
  RunMeasure what = RunMeasure::kStep;
  RunSetting at = {};
  std::string how;
  double first = 0, second = 0;  ///< in the unit of `what`
  double deviations = 0;         ///< between the two, in standard deviations of the measurement
};

struct RunDiagnosis {
  std::vector<CheckedFigure> figures;
  bool is_normal = false;            ///< all figures are within their ranges
  std::vector<CauseFinding> causes;  ///< most likely first; probabilities add up to 1
  /// So many first causes explain the figures about equally well; below 2: the first is clear.
  std::size_t alike = 0;
  std::optional<NextMeasurement> next;
  std::vector<std::string> left_out;  ///< causes that this run cannot have, with the reason
  std::vector<std::string> warnings;
};

/// Compares figures with the prediction and finds causes. With causes c of values v, figures y and
/// predictions f(c, v),
///
///   p(c | y) ~ prior(c) * integral over v of prior(v | c) N(log y; log f(c, v), S) d log v
///
/// Two causes are of figures together: trouble of the run alone, if another run of at least as many
/// GPUs is given, and a wrong prediction, the same without a change, with three times its error.
/// A run that took these figures fits into its GPU: causes that need more memory lose by that.
/// `S`: the model's own error, which figures of time share in part, and the noise of each figure
/// (docs/diagnose.md has all constants). Errors: no figures, figures that are not above 0 or that
/// the model does not predict, a setting or a model that cannot be predicted.
Result<RunDiagnosis> diagnose(const RunModel& model, std::span<const RunFigure> figures);

}  // namespace perfmodel
