#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace perfmodel {

/// Kinds of host and device time. The host's terms come first, in the order of `kHostTerms`.
enum class Term : std::uint8_t {
  kT1,
  kT2,
  kT3,
  kT4,
  kT5,
  kTx,
  kKernel,
  kCopy,
  kSet,
  kCollective,
  kDataLoading,  ///< waiting for the data loader's workers, in replays
  kUnrecorded,   ///< device work that the trace does not hold, in replays
};
inline constexpr std::size_t kTerms = static_cast<std::size_t>(Term::kUnrecorded) + 1;
std::string_view to_string(Term term);

/// How much of a node's surroundings a key holds. The devices of the tensors are the strongest
/// part: `copy_`, `fill_`, `to` on CPU tensors launch nothing.
enum class TemplateLevel : std::uint8_t {
  kShapes,   ///< name, children, devices, dtypes and shapes of the tensors
  kDevices,  ///< name, children, devices
  kNameDevices,
  kChildren,  ///< name, children
  kName,
};
inline constexpr std::size_t kTemplateLevels = 5;
std::string_view to_string(TemplateLevel level);

/// How specific the figure was that priced something.
enum class KeyLevel : std::uint8_t { kContext, kName, kKind, kAll, kMissing };
inline constexpr std::size_t kKeyLevels = static_cast<std::size_t>(KeyLevel::kMissing) + 1;
std::string_view to_string(KeyLevel level);

}  // namespace perfmodel
