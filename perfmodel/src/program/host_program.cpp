#include "host_program.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace perfmodel {
namespace {

constexpr double kLongestUs = 1e15;  // thirty years

// Durations on the host, on the device, and between them.
std::array<double, 3> durations(const Instruction& at, const HostProgram& program) {
  if (const auto* work = std::get_if<HostWork>(&at.what)) return {work->us, 0, 0};
  if (const auto* launch = launch_of(at)) {
    return {launch->host_us, program.device_us(*launch), launch->latency_us};
  }
  if (const auto* sync = std::get_if<Synchronisation>(&at.what)) {
    return {sync->host_us, 0, sync->latency_us};
  }
  return {};
}

}  // namespace

std::string_view name_of(const ProgramItem& item, const ExecutionGraph& graph) {
  if (!item.title.empty()) return item.title;
  return graph.name(item.subject);
}

double host_us_per_step(const HostProgram& program) {
  double us = 0;
  for (const Instruction& at : program.instructions) us += durations(at, program)[0];
  return us / static_cast<double>(program.steps.size());
}

void scale_host(HostProgram& program, double factor) {
  for (Instruction& at : program.instructions) {
    if (auto* work = std::get_if<HostWork>(&at.what)) work->us *= factor;
    if (auto* launch = launch_of(at)) launch->host_us *= factor;
    if (auto* sync = std::get_if<Synchronisation>(&at.what)) {
      sync->host_us *= factor;
      sync->latency_us *= factor;
    }
  }
  for (double& us : program.coverage.host_us_by_key_level) us *= factor;
}

Result<void> check_time(double us, std::string_view op, const Node& node) {
  if (std::abs(us) <= kLongestUs) return {};
  return decline(fmt::format("expected a time of at most {:g} us, found {} us in \"{}\" (node {})",
                             kLongestUs, us, op, node.id));
}

Result<void> check_times(const HostProgram& program, const ExecutionGraph& graph) {
  for (const Instruction& at : program.instructions) {
    for (const double us : durations(at, program)) {
      if (std::abs(us) <= kLongestUs) continue;
      const ProgramItem& item = program.item(at.item);
      return check_time(us, name_of(item, graph), graph.node(item.subject));
    }
  }
  return {};
}

}  // namespace perfmodel
