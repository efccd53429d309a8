#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "perfmodel/detail/measured_memory.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Sums up a trace. Device work belongs to the iteration that launched it, however late it ran;
/// busy times are unions over all streams. Times in microseconds.
struct TraceReport {
  std::string source;                       ///< file
  std::string gpu;                          ///< as the trace names it; empty if it does not
  std::int64_t rank = -1, world_size = -1;  ///< -1: not recorded

  struct Iteration {
    std::string name;
    double wall_us = 0;      ///< length of the mark
    double gpu_busy_us = 0;  ///< work launched in it
    std::size_t kernels = 0, copies = 0, sets = 0;
  };
  std::vector<Iteration> iterations;  ///< empty if the trace has no marks

  std::size_t events = 0;  ///< entries of the file, of any kind
  std::size_t host_ops = 0, calls = 0, annotations = 0, threads = 0;

  std::size_t kernels_total = 0, memcpy_total = 0, memset_total = 0;
  std::size_t without_launch = 0;  ///< device work whose call is not in the trace
  double gpu_busy_us = 0;
  double compute_kernel_us = 0,
         comm_kernel_us = 0;  ///< sums over kernels; copies and sets excluded
  double memcpy_us = 0, memset_us = 0;

  struct Kernel {
    std::string name;
    std::size_t count = 0;
    double total_us = 0, min_us = 0, max_us = 0;
    bool collective = false;

    double mean_us() const { return total_us / static_cast<double>(count); }
  };
  std::vector<Kernel> top_kernels;  ///< every kernel name, longest total first

  struct Stream {
    int device = 0;
    std::int64_t stream = 0;
    std::size_t tasks = 0;
    double busy_us = 0;
  };
  std::vector<Stream> streams;

  std::vector<MeasuredMemory> memory;  ///< empty if the trace has no records of it

  std::vector<std::string> warnings;
};

/// Sums a trace up. With a window, device figures and host counts cover iterations [first, last);
/// `events` always counts the whole file. Fails if the trace has fewer iterations.
Result<TraceReport> report(const Trace& trace,
                           const std::optional<std::pair<std::size_t, std::size_t>>& window = {});

}  // namespace perfmodel
