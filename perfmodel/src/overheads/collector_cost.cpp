#include "collector_cost.hpp"

namespace perfmodel {

// Medians of the eleven host-bound programs in profiler_cost.json.gz of the H200's measurements.
std::optional<double> slowdown_under(Collector collector) {
  switch (collector) {
    case Collector::kNone: return 1;
    case Collector::kProfilerWithoutShapes: return 2.02;
    case Collector::kProfiler: return 2.31;
    case Collector::kProfilerWithStacks: return 2.46;
    case Collector::kUnknown:
    case Collector::kProfilerAndObserver: break;
  }
  return std::nullopt;
}

}  // namespace perfmodel
