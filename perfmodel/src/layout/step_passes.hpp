#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "step_tasks.hpp"

namespace perfmodel {

/// A stretch of a pass: kernels, or one collective.
struct Stretch {
  double us = 0;
  std::uint32_t name = 0;
  std::optional<ChakraCollective> collective;
  double bytes = 0;
};

/// The tasks of a pass that what follows waits for, and of each of its cuts.
struct PassTasks {
  Tasks ends;
  std::vector<Tasks> at_cuts;
};

/// A part's kernels in equal parts around its collectives, which take turns by kind.
void append_part(LayoutStep& step, std::vector<Stretch>& to, const PassWork& pass,
                 std::string_view part, std::string_view direction);
std::vector<Stretch> forward_of(LayoutStep& step, const ChunkWork& chunk);
std::vector<Stretch> backward_of(LayoutStep& step, const ChunkWork& chunk);

/// Writes one pass of a stage after `front`. Kernels are cut where gradients of a bucket are ready,
/// at `cuts` (ascending shares of the pass); a collective is not cut.
PassTasks add_pass(LayoutStep& step, std::size_t stage, const std::vector<Stretch>& stretches,
                   double host_us, const std::string& title, const Tasks& front,
                   const std::vector<double>& cuts);

}  // namespace perfmodel
