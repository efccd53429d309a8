#include "sweep_row.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "csv_text.hpp"
#include "perfmodel/graph/secrets.hpp"

namespace perfmodel::sweep {

std::string result_cells(const Prediction& prediction, const Explanation& explanation,
                         std::optional<std::int64_t> batch, std::int64_t ranks) {
  std::string samples, rate;
  if (batch) {
    const double all = static_cast<double>(*batch) * static_cast<double>(ranks);
    samples = fmt::format("{}", all);
    if (prediction.e2e_us > 0) rate = fmt::format("{}", all * 1e6 / prediction.e2e_us);
  }
  std::string unmodelled;
  for (const Prediction::Unmodelled& op : prediction.coverage.unmodelled_ops) {
    unmodelled += (unmodelled.empty() ? "" : " ") + op.op;
  }
  return fmt::format(
      "{},{},{},{},{},{},{},{},{},{},{},", prediction.e2e_us, prediction.gpu_active_us,
      prediction.cpu_us, prediction.communication.exposed_us, samples, rate,
      csv_cell(explanation.bound), explanation.bound_share, explanation.modelled_time_fraction,
      csv_cell(unmodelled), explanation.kernels_out_of_range);
}

std::string refusal_cells(const Error& error) {
  const auto empty = std::ranges::count(kResultColumns, ',');
  return std::string(static_cast<std::size_t>(empty), ',') +
         csv_cell(shown_text(error.message, kLongestMessage));
}

}  // namespace perfmodel::sweep
