#include "step_passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

TaskId add_stretch(LayoutStep& step, std::size_t stage, const Stretch& one, double us,
                   const Tasks& after) {
  if (!one.collective) return step.tasks.add_kernels(stage, one.name, us, after);
  return step.tasks.add_collective(stage, one.name,
                                   {.kind = *one.collective,
                                    .group = RankGroup::kTensor,
                                    .ranks = step.layout.tp,
                                    .bytes = one.bytes},
                                   us, after);
}

// The device's chain of one pass. Kernels are cut where gradients of a bucket are ready, at
// `cuts` (ascending shares of the pass); a collective is not cut.
void device_chain(LayoutStep& step, std::size_t stage, const std::vector<Stretch>& stretches,
                  const std::vector<double>& cuts, const Tasks& front, PassTasks& made) {
  double whole = 0;
  for (const Stretch& one : stretches) whole += one.us;
  const double close = 1e-9 * whole;
  Tasks before = front;
  double passed = 0;
  std::size_t cut = 0;
  const auto reach = [&] {
    while (cut < cuts.size() && cuts[cut] * whole <= passed + close) made.at_cuts[cut++] = before;
  };
  for (const Stretch& one : stretches) {
    double left = one.us;
    while (!one.collective && cut < cuts.size() && cuts[cut] * whole < passed + left - close) {
      const double piece = cuts[cut] * whole - passed;
      before = {add_stretch(step, stage, one, piece, before)};
      passed += piece;
      left -= piece;
      reach();
    }
    before = {add_stretch(step, stage, one, left, before)};
    passed += left;
    reach();
  }
  while (cut < cuts.size()) made.at_cuts[cut++] = before;
  made.device = before;
}

void host_chain(LayoutStep& step, std::size_t stage, double host_us, std::uint32_t what,
                const std::vector<double>& cuts, const Tasks& front, PassTasks& made) {
  if (host_us <= 0) return;
  Tasks& before = made.host = front;
  double passed = 0;
  for (std::size_t cut = 0; cut < cuts.size(); ++cut) {
    const double piece = cuts[cut] * host_us - passed;
    if (piece > 0) before = {step.tasks.add_host(stage, what, piece, before)};
    passed += std::max(0.0, piece);
    made.at_cuts[cut].insert(made.at_cuts[cut].end(), before.begin(), before.end());
  }
  if (host_us - passed > 1e-9 * host_us || cuts.empty()) {
    before = {step.tasks.add_host(stage, what, host_us - passed, before)};
  }
}

}  // namespace

Tasks PassTasks::ends() const {
  Tasks both = device;
  both.insert(both.end(), host.begin(), host.end());
  return both;
}

void append_part(LayoutStep& step, std::vector<Stretch>& to, const PassWork& pass,
                 std::string_view part, std::string_view direction) {
  const CollectiveSums& sums = pass.collectives;
  const std::pair<const CollectiveSum*, ChakraCollective> kinds[] = {
      {&sums.all_gather, ChakraCollective::kAllGather},
      {&sums.all_reduce, ChakraCollective::kAllReduce},
      {&sums.reduce_scatter, ChakraCollective::kReduceScatter}};
  const double whole = sums.all_gather.us + sums.all_reduce.us + sums.reduce_scatter.us;
  const double exposed = whole > 0 ? pass.comm_us / whole : 0;
  std::vector<std::pair<double, Stretch>> collectives;  // by place
  for (const auto& [sum, kind] : kinds) {
    const double count = std::round(sum->count);
    for (double i = 0; i < count; ++i) {
      collectives.emplace_back((i + 0.5) / count,
                               Stretch{.us = std::max(0.0, sum->us) / count * exposed,
                                       .name = step.tasks.name(fmt::format(
                                           "{} of {} {}", to_string(kind), part, direction)),
                                       .collective = kind,
                                       .bytes = sum->bytes / count});
    }
  }
  std::ranges::stable_sort(collectives, {}, [](const auto& one) { return one.first; });
  const double piece = std::max(0.0, pass.kernel_us) / static_cast<double>(collectives.size() + 1);
  const std::uint32_t kernels = step.tasks.name(fmt::format("{} {}", part, direction));
  for (auto& [place, collective] : collectives) {
    if (piece > 0) to.push_back({.us = piece, .name = kernels});
    to.push_back(std::move(collective));
  }
  if (piece > 0) to.push_back({.us = piece, .name = kernels});
}

std::vector<Stretch> forward_of(LayoutStep& step, const ChunkWork& chunk) {
  std::vector<Stretch> made;
  if (chunk.holds.embeds)
    append_part(step, made, step.work.embedding.forward, "embedding", "forward");
  for (std::int64_t i = 0; i < chunk.holds.layers; ++i) {
    append_part(step, made, step.work.layer.forward, "layer", "forward");
  }
  if (chunk.holds.heads) append_part(step, made, step.work.head.forward, "output layer", "forward");
  if (chunk.holds.loses) append_part(step, made, step.work.loss.forward, "loss", "forward");
  return made;
}

std::vector<Stretch> backward_of(LayoutStep& step, const ChunkWork& chunk) {
  std::vector<Stretch> made;
  if (chunk.holds.loses) append_part(step, made, step.work.loss.backward, "loss", "backward");
  if (chunk.holds.heads)
    append_part(step, made, step.work.head.backward, "output layer", "backward");
  for (std::int64_t i = 0; i < chunk.holds.layers; ++i) {
    append_part(step, made, step.work.layer.backward, "layer", "backward");
  }
  if (chunk.holds.embeds)
    append_part(step, made, step.work.embedding.backward, "embedding", "backward");
  double listed = 0;
  for (const Stretch& one : made) listed += one.collective ? 0 : one.us;
  const double rest = chunk.parts.backward.kernel_us - listed;
  if (rest > 1e-6) made.push_back({.us = rest, .name = step.tasks.name("sum of gradients")});
  return made;
}

PassTasks add_pass(LayoutStep& step, std::size_t stage, const std::vector<Stretch>& stretches,
                   double host_us, const std::string& title, const Tasks& front, const Tasks& host,
                   const std::vector<double>& cuts) {
  PassTasks made{.at_cuts = std::vector<Tasks>(cuts.size())};
  const auto first = static_cast<TaskId>(step.tasks.size());
  device_chain(step, stage, stretches, cuts, front, made);
  host_chain(step, stage, host_us, step.tasks.name("host"), cuts, host, made);
  const auto last = static_cast<TaskId>(step.tasks.size()) - 1;
  if (last >= first) step.tasks.note_pass(stage, step.tasks.name(title), first, last);
  return made;
}

}  // namespace perfmodel
