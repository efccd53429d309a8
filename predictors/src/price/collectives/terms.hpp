#pragma once

#include <string_view>

#include "perfmodel/predictors/detail/collectives.hpp"

namespace perfmodel::collectives {

/// Latency and time on the wire [us], with algorithm and protocol; empty: as NCCL's tuning model
/// says.
struct Terms {
  double latency = 0, wire = 0;
  std::string_view algorithm = {}, protocol = {};
  double time() const { return latency + wire; }
};

// Base and hop latencies of NCCL's Simple ring, and its network hop (nccl_tuning.cpp) [us].
inline constexpr double kBaseUs = 8.4, kNvlinkHopUs = 3.4, kPcieHopUs = 5.7, kNetworkHopUs = 14;
// The same of LL. Its base is paid once per launch.
inline constexpr double kLaunchUs = 6.6, kNvlinkLlHopUs = 0.6, kPcieLlHopUs = 1,
                        kNetworkLlHopUs = 2.7;

inline double us(Bytes bytes, BytesPerSecond rate) { return (bytes / rate).count(); }

/// (n-1)/n
inline double ring_share(double ranks) { return (ranks - 1) / ranks; }

/// NCCL's choice if it chose well.
inline Terms cheaper(const Terms& one, const Terms& other) {
  return other.time() < one.time() ? other : one;
}
inline Terms longer(const Terms& one, const Terms& other) {
  return other.time() > one.time() ? other : one;
}

}  // namespace perfmodel::collectives
