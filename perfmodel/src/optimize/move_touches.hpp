#pragma once

#include <cstdint>

#include "path_shares.hpp"

/// Parts of the step that several moves touch.
namespace perfmodel::advice {

inline constexpr std::uint64_t kCollectives = Touch::of(KernelFamily::kCollective);
inline constexpr std::uint64_t kCompute = Touch::kAllFamilies & ~kCollectives;
inline constexpr std::uint64_t kProducts =
    Touch::of(KernelFamily::kGemm) | Touch::of(KernelFamily::kConvolution) |
    Touch::of(KernelFamily::kGroupedGemm) | Touch::of(KernelFamily::kRecurrent);
inline constexpr std::uint64_t kMoved =
    Touch::of(KernelFamily::kElementwise) | Touch::of(KernelFamily::kCopy) |
    Touch::of(KernelFamily::kSet) | Touch::of(KernelFamily::kSmall);
inline constexpr Touch kHostWork{.host = true, .optimizer_host = true};

}  // namespace perfmodel::advice
