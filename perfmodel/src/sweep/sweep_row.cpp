#include "sweep_row.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/secrets.hpp"
#include "csv_text.hpp"

namespace perfmodel::sweep {

namespace {

std::string cell(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "";
}

}  // namespace

std::string result_cells(const Prediction& prediction, const Explanation& explanation) {
  std::optional<double> samples;
  if (prediction.batch) {
    samples = static_cast<double>(*prediction.batch) * static_cast<double>(prediction.ranks);
  }
  std::string unmodelled;
  for (const Prediction::Unmodelled& op : prediction.coverage.unmodelled_ops) {
    unmodelled += (unmodelled.empty() ? "" : " ") + op.op;
  }
  return fmt::format(
      "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},", prediction.e2e_us,
      prediction.gpu_active_us, prediction.cpu_us, prediction.communication.exposed_us,
      cell(samples), cell(prediction.samples_per_s()), csv_cell(explanation.bound),
      explanation.bound_share, explanation.modelled_time_fraction, csv_cell(unmodelled),
      explanation.kernels_out_of_range, cell(prediction.samples_per_s_per_gpu()),
      prediction.memory.static_bytes(), prediction.memory.device_bytes, prediction.e2e_low_us,
      prediction.e2e_high_us, cell(prediction.energy_j), prediction.memory.needed_bytes());
}

std::string refusal_cells(const Error& error) {
  const auto empty = std::ranges::count(kResultColumns, ',');
  return std::string(static_cast<std::size_t>(empty), ',') +
         csv_cell(shown_text(error.message, kLongestMessage));
}

}  // namespace perfmodel::sweep
