#pragma once

#include <string>
#include <string_view>

namespace perfmodel {

/// The name of an op without the autograd engine's prefix, which would leave little room for the
/// part that tells its ops apart.
inline std::string op_title(std::string_view name) {
  constexpr std::string_view kEngine = "autograd::engine::evaluate_function: ";
  if (!name.starts_with(kEngine)) return std::string(name);
  return "autograd: " + std::string(name.substr(kEngine.size()));
}

}  // namespace perfmodel
