#pragma once

#include <string_view>

namespace perfmodel {

// Ops that take activations to host memory and back, on a stream of their own; see
// rewrite_offload(). No program records them.
inline constexpr std::string_view kOffloadOps = "offload::";
inline constexpr std::string_view kOffloadSend = "offload::to_host";
inline constexpr std::string_view kOffloadRelease = "offload::release";
inline constexpr std::string_view kOffloadFetch = "offload::to_device";

}  // namespace perfmodel
