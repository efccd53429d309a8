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

/// The last tasks of a pass on the device and on the host, and before each cut.
struct PassTasks {
  Tasks device, host;  ///< host: none if it has no work
  std::vector<Tasks> at_cuts;

  Tasks ends() const;  ///< both
};

/// A part's kernels in equal parts around its collectives, which take turns by kind.
void append_part(LayoutStep& step, std::vector<Stretch>& to, const PassWork& pass,
                 std::string_view part, std::string_view direction);
std::vector<Stretch> forward_of(LayoutStep& step, const ChunkWork& chunk);
std::vector<Stretch> backward_of(LayoutStep& step, const ChunkWork& chunk);

/// Writes one pass of a stage, its kernels after `front` and its host work after `host`. Kernels
/// are cut where gradients of a bucket are ready, at `cuts` (ascending shares of the pass); a
/// collective is not cut.
PassTasks add_pass(LayoutStep& step, std::size_t stage, const std::vector<Stretch>& stretches,
                   double host_us, const std::string& title, const Tasks& front, const Tasks& host,
                   const std::vector<double>& cuts);

}  // namespace perfmodel
