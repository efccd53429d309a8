#include "host_offload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/decimal_number.hpp"
#include "member_sums.hpp"

namespace perfmodel {
namespace {

constexpr double kOffloadBytesPerS = 109e9;
// AdamW reads four numbers of a parameter and writes three; plain SGD reads two and writes one.
constexpr double kShareOfSgd = 3.0 / 7;

constexpr double HostBytes::*kHostBytes[] = {&HostBytes::weights, &HostBytes::gradients,
                                             &HostBytes::optimizer, &HostBytes::activations,
                                             &HostBytes::pinned};

double ranks_of_node(const StepQuestion& question) {
  const std::int64_t node = question.collectives->topology().gpus_per_node;
  return static_cast<double>(std::min(node, question.layout->gpus()));
}

Unexpected bad_offload(std::string message) { return decline(std::move(message)); }

}  // namespace

HostBytes operator+(HostBytes a, const HostBytes& b) {
  add_members(a, b, kHostBytes);
  return a;
}

HostBytes operator*(double count, HostBytes a) {
  scale_members(a, count, kHostBytes);
  return a;
}

HostBytes fullest_node(const StepQuestion& question, const std::vector<HostBytes>& of_stages) {
  const ParallelLayout& layout = *question.layout;
  const std::int64_t node = question.collectives->topology().gpus_per_node;
  const std::int64_t of_stage = layout.gpus() / layout.pp;
  HostBytes fullest;
  for (std::int64_t first = 0; first < layout.gpus(); first += node) {
    const std::int64_t end = std::min(first + node, layout.gpus());
    HostBytes sum;
    for (std::int64_t rank = first; rank < end;) {
      const std::int64_t stage = rank / of_stage;
      const std::int64_t next = std::min(end, (stage + 1) * of_stage);
      sum = sum + static_cast<double>(next - rank) * of_stages[stage];
      rank = next;
    }
    if (sum.total() > fullest.total()) fullest = sum;
  }
  return fullest;
}

double host_copy_us(const Gpu& gpu, double bytes) {
  if (bytes <= 0) return 0;
  const KernelWork work{.family = KernelFamily::kCopy,
                        .bytes_read = {bytes},
                        .bytes_written = {bytes},
                        .shape = CopyShape{.kind = CopyKind::kHostToDevice, .pageable = false}};
  return KernelModels::heuristic().price(work, gpu).time.count();
}

double host_optimizer_us(const StepQuestion& question, double parameters) {
  const LayoutJob& job = *question.job;
  const double ranks = ranks_of_node(question);
  const double share = job.optimizer == LayoutJob::Optimizer::kSgd ? kShareOfSgd : 1;
  const double rate = job.host_bytes_per_s > 0 ? job.host_bytes_per_s : kOffloadBytesPerS;
  return 1e6 * ranks * parameters * share * question.framework->host_optimizer_bytes / rate;
}

double nvme_us(const StepQuestion& question, double parameters) {
  constexpr double kBytesThereAndBack = 2 * 16;
  return 1e6 * ranks_of_node(question) * parameters * kBytesThereAndBack /
         question.job->nvme_bytes_per_s;
}

double nvme_buffer_bytes(double parameters) {
  constexpr double kBuffers = 4, kGroup = 1e9;
  return kBuffers * 4 * std::min(parameters, kGroup);
}

Result<double> parse_host_memory(std::string_view text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"GB", 1e9}, {"TB", 1e12}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  for (const auto& [unit, bytes] : kUnits) {
    double number = 0;
    if (!text.ends_with(unit)) continue;
    if (!read_decimal(text.substr(0, text.size() - unit.size()), number)) continue;
    if (number > 0 && std::isfinite(number)) return number * bytes;
  }
  return bad_offload(fmt::format(
      "host_memory: expected a number above 0 with GB, TB, GiB or TiB, found \"{}\"", text));
}

}  // namespace perfmodel
