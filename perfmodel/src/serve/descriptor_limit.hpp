#pragma once

#include <cstddef>

namespace perfmodel::serve {

/// Raises this process's soft limit of descriptors until `clients` connections fit next to `others`
/// descriptors, at most to its hard limit. Returns how many connections fit then, at least 1.
std::size_t room_for_clients(std::size_t clients, std::size_t others) noexcept;

}  // namespace perfmodel::serve
