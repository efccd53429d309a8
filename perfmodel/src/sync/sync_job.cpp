#include "perfmodel/sync/detail/sync_job.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace perfmodel::sync {

const std::vector<std::string_view>& scheme_names() {
  static const std::vector<std::string_view> names = {"bsp",       "asp",     "ssp",
                                                      "local_sgd", "adacomm", "adsp"};
  return names;
}

std::string_view scheme_name(Scheme scheme) {
  return scheme_names()[static_cast<std::size_t>(scheme)];
}

Result<Scheme> scheme_of(std::string_view name) {
  const auto& names = scheme_names();
  if (name == "fedavg" || name == "local-sgd") return Scheme::kLocalSgd;
  const auto at = std::ranges::find(names, name);
  if (at != names.end()) return static_cast<Scheme>(at - names.begin());
  return fail(ErrorCode::kUnknownName,
              fmt::format("expected a scheme ({}), found \"{}\"", fmt::join(names, ", "), name));
}

double LossModel::loss(double synchronous_steps) const {
  // 1 / (a2 x + b) + c through the first loss and, at steps_to_target, the target.
  const double b = 1 / (first_loss - limit_loss);
  const double a2 = (1 / (target_loss - limit_loss) - b) / steps_to_target;
  return 1 / (a2 * synchronous_steps + b) + limit_loss;
}

std::int64_t SyncRun::steps() const {
  std::int64_t sum = 0;
  for (const WorkerRun& worker : workers) sum += worker.steps;
  return sum;
}

std::int64_t SyncRun::commits() const {
  std::int64_t sum = 0;
  for (const WorkerRun& worker : workers) sum += worker.commits;
  return sum;
}

double SyncRun::steps_per_s() const { return static_cast<double>(steps()) / (time_us / 1e6); }

double SyncRun::waiting_share() const {
  double sum = 0;
  for (const WorkerRun& worker : workers) sum += worker.waiting_us;
  return time_us > 0 ? sum / time_us / static_cast<double>(workers.size()) : 0;
}

double SyncRun::mean_staleness() const {
  double sum = 0, count = 0;
  for (std::size_t s = 0; s < staleness.size(); ++s) {
    sum += static_cast<double>(s) * static_cast<double>(staleness[s]);
    count += static_cast<double>(staleness[s]);
  }
  return count > 0 ? sum / count : 0;
}

double SyncRun::mean_tau() const {
  const auto committed = static_cast<double>(commits());
  return committed > 0 ? std::max(1.0, static_cast<double>(steps()) / committed) : 1;
}

}  // namespace perfmodel::sync
