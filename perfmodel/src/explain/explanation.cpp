#include "perfmodel/detail/explanation.hpp"
#include "perfmodel/detail/overhead_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>

namespace perfmodel {
namespace {

// All host terms of the critical path count as one limit of a step.
bool is_host_term(std::string_view category) {
  return std::ranges::find(kHostTerms, category, &HostTerm::name) != std::end(kHostTerms);
}

void longest_first(std::vector<Explanation::Part>& parts) {
  std::ranges::stable_sort(parts, std::ranges::greater{}, &Explanation::Part::us);
}

double share_of(const std::vector<Explanation::Part>& parts, std::string_view name) {
  const auto found = std::ranges::find(parts, name, &Explanation::Part::name);
  return found == parts.end() ? 0 : found->share;
}

// Working time of the named part over the step, whether or not other parts work at the same time,
// as for the GPU as a whole.
void find_share(const Prediction& prediction, Explanation& made) {
  const double share = made.bound == "host" ? prediction.cpu_us / prediction.e2e_us
                                            : share_of(made.kernels, made.bound);
  made.bound_share = std::min(1.0, share);
}

// The host, or the kind of device work that takes most of the critical path. If the host has the
// path but the device works for longer, faster kernels would gain more than a faster host.
void find_bound(const Prediction& prediction, Explanation& made) {
  const CriticalPath& path = prediction.critical_path;
  double host = 0, device = 0;
  const CriticalPath::Share* most = nullptr;
  for (const CriticalPath::Share& share : path.shares) {
    (is_host_term(share.category) ? host : device) += share.us;
    if (!is_host_term(share.category)) {
      made.path.push_back({share.category, share.us, share.us / path.step_us});
      if (most == nullptr || share.us > most->us) most = &share;
    }
  }
  if (host > 0) made.path.push_back({"host", host, host / path.step_us});
  longest_first(made.path);
  made.from_critical_path = true;
  const bool by_host = host >= device && prediction.cpu_us >= prediction.gpu_active_us;
  made.bound = most == nullptr || by_host ? "host" : most->category;
  find_share(prediction, made);
}

// Without a path: the side that works longer than the other waits.
void guess_bound(const Prediction& prediction, Explanation& made) {
  const bool by_host = prediction.cpu_us >= prediction.gpu_active_us;
  made.bound = by_host ? "host" : "device";
  made.bound_share =
      by_host ? std::min(1.0, prediction.cpu_us / prediction.e2e_us) : made.gpu_utilization;
  if (!by_host && prediction.comm_kernel_us > prediction.compute_kernel_us) {
    made.bound = "collective";
    made.bound_share = std::min(1.0, prediction.comm_kernel_us / prediction.e2e_us);
  }
}

void add_host_terms(const Prediction& prediction, Explanation& made) {
  for (const HostTerm& host : kHostTerms) {
    const double us = prediction.terms_us[static_cast<std::size_t>(host.term)];
    if (us > 0) made.host.push_back({std::string(host.name), us, us / prediction.e2e_us});
  }
  longest_first(made.host);
}

void add_kernels(const Prediction& prediction, Explanation& made) {
  std::map<std::string_view, double> by_family;
  const auto steps = static_cast<double>(std::max<std::size_t>(prediction.iterations.size(), 1));
  for (const PredictedOp& op : prediction.ops) {
    for (const PredictedKernel& kernel : op.kernels) {
      by_family[to_string(kernel.family)] += kernel.price.time.count() / steps;
    }
  }
  for (const auto& [family, us] : by_family) {
    made.kernels.push_back({std::string(family), us, us / prediction.e2e_us});
  }
  longest_first(made.kernels);
}

std::string sentences(const Prediction& prediction, const Explanation& made) {
  std::string text = fmt::format("One step takes {:.3f} ms; the GPU works for {:.0f} % of it.",
                                 prediction.e2e_us / 1e3, 100 * made.gpu_utilization);
  const std::string bound = made.bound == "host" ? "the host" : made.bound + " work";
  if (!made.from_critical_path) {
    text += fmt::format(" It waits mostly for {}", bound);
  } else if (made.bound != "host" && !made.path.empty() && made.path.front().name == "host") {
    text += fmt::format(" Host and GPU keep up with each other; {} takes {:.0f} % of the step",
                        bound, 100 * made.bound_share);
  } else {
    text += fmt::format(" {:.0f} % of the critical path is {}",
                        100 * share_of(made.path, made.bound), bound);
  }
  if (made.bound == "host" && !made.host.empty()) {
    text += fmt::format(", most of it {} ({:.3f} ms)", made.host.front().name,
                        made.host.front().us / 1e3);
  }
  text += '.';
  if (!made.kernels.empty()) {
    text += fmt::format(" Of the kernels {} takes longest ({:.3f} ms).", made.kernels.front().name,
                        made.kernels.front().us / 1e3);
  }
  if (prediction.communication.exposed_us > 0) {
    text += fmt::format(" {:.3f} ms of collectives run while the device does nothing else.",
                        prediction.communication.exposed_us / 1e3);
  }
  if (made.modelled_time_fraction < 1) {
    text += fmt::format(" {:.1f} % of the time is in ops without a model.",
                        100 * (1 - made.modelled_time_fraction));
  }
  if (made.kernels_out_of_range > 0) {
    text +=
        fmt::format(" {} kernels lie out of the range of their models.", made.kernels_out_of_range);
  }
  return text;
}

}  // namespace

Explanation explain(const Prediction& prediction) {
  Explanation made;
  if (prediction.e2e_us <= 0) {
    made.text = "The step takes no time.";
    return made;
  }
  made.gpu_utilization = prediction.gpu_active_us / prediction.e2e_us;
  made.modelled_time_fraction = prediction.coverage.modelled_time_fraction;
  made.kernels_out_of_range = prediction.coverage.kernels_out_of_range;
  add_kernels(prediction, made);
  if (prediction.critical_path.step_us > 0) {
    find_bound(prediction, made);
  } else {
    guess_bound(prediction, made);
  }
  add_host_terms(prediction, made);
  made.text = sentences(prediction, made);
  return made;
}

}  // namespace perfmodel
