#pragma once

#include <algorithm>
#include <string>

#include "perfmodel/graph/trace.hpp"

namespace perfmodel {

/// Says what a trace holds in the place of device work: "none", or categories that are not read.
/// PyTorch's older profiler, which a build without Kineto has, names its only process "CPU
/// functions".
inline std::string instead_of_device_work(const Trace& trace) {
  const bool is_host_profile = std::ranges::any_of(
      trace.threads, [](const auto& thread) { return thread.process_id == "CPU functions"; });
  if (is_host_profile) {
    return "the host alone, as a PyTorch without Kineto records it "
           "(torch.profiler.kineto_available() is False): record with another build of PyTorch, "
           "or make the graph without recording: examples/capture.py";
  }
  return trace.unread.empty() ? "none" : trace.unread;
}

}  // namespace perfmodel
