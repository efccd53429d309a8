#include "launch_regions.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "call_costs.hpp"

namespace perfmodel {
namespace {

bool waits_for_device(const Instruction& at) {
  const Launch* launch = launch_of(at);
  return std::holds_alternative<Synchronisation>(at.what) || (launch && launch->blocking);
}

// Per item: whether a call of it waits for the device.
std::vector<bool> waiting_items(const HostProgram& program) {
  std::vector<bool> waits(program.items.size(), false);
  for (const Instruction& at : program.instructions) {
    if (waits_for_device(at)) waits[at.item] = true;
  }
  return waits;
}

std::size_t count_launches(std::span<const Instruction> region) {
  std::size_t count = 0;
  for (const Instruction& at : region) count += launch_of(at) != nullptr;
  return count;
}

// The gap before the first op stays, and the launch of the graph moves to its first kernel.
void launch_region(std::span<Instruction> region, std::optional<double> graph_us) {
  const std::int32_t first_item = region.front().item;
  bool launched = false;
  for (Instruction& at : region) {
    if (auto* work = std::get_if<HostWork>(&at.what)) {
      if (at.item != first_item || work->term != Term::kT1) work->us = 0;
    } else if (Launch* launch = launch_of(at); launch && graph_us) {
      launch->host_us = launched ? 0 : *graph_us;
      launched = true;
    }
  }
}

double launch_us_of_graph(const OverheadTable& table) {
  for (const char* call : {"cudaGraphLaunch", "hipGraphLaunch"}) {
    if (const auto known = table.t4.find(call); known != table.t4.end()) {
      return known->second.mean_us;
    }
  }
  const TemplateCall kernel{.call = "cudaLaunchKernel"};
  return CallCosts(table).find(kernel).us;
}

}  // namespace

double graph_launch_us(const OverheadTable& table, std::size_t nodes) {
  constexpr double kUsPerNode = 1e-3;
  return launch_us_of_graph(table) + kUsPerNode * static_cast<double>(nodes);
}

LaunchRegions launch_by_regions(const OverheadTable& table, Launching launching,
                                HostProgram& program) {
  LaunchRegions made;
  if (launching == Launching::kEager) return made;
  const std::vector<bool> waits = waiting_items(program);
  const auto iteration = [&](const Instruction& at) { return program.item(at.item).iteration; };
  const std::span<Instruction> all(program.instructions);
  for (std::size_t begin = 0; begin < all.size();) {
    std::size_t end = begin;
    while (end < all.size() && !waits[all[end].item] &&
           iteration(all[end]) == iteration(all[begin])) {
      ++end;
    }
    const auto region = all.subspan(begin, end - begin);
    begin = std::max(end, begin + 1);
    const std::size_t launches = count_launches(region);
    if (launches < 2) continue;
    ++made.regions;
    made.launches += launches;
    std::optional<double> graph_us;
    if (launching == Launching::kCudaGraphs) graph_us = graph_launch_us(table, launches);
    launch_region(region, graph_us);
  }
  return made;
}

}  // namespace perfmodel
