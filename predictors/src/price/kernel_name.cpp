#include <map>
#include <string>

#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel {

std::optional<KernelFamily> parse_kernel_family(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(KernelFamily::kSmall); ++i) {
    if (to_string(static_cast<KernelFamily>(i)) == name) return static_cast<KernelFamily>(i);
  }
  return std::nullopt;
}

std::optional<KernelFamily> kernel_family_of_name(std::string_view name) {
  static const std::map<std::string_view, KernelFamily> kFamilies = [] {
    std::map<std::string_view, KernelFamily> made;
    for (int i = 0; i <= static_cast<int>(KernelFamily::kSmall); ++i) {
      made.emplace(to_string(static_cast<KernelFamily>(i)), static_cast<KernelFamily>(i));
    }
    return made;
  }();
  const auto known = kFamilies.find(kind_of_kernel(name));
  return known == kFamilies.end() ? std::nullopt : std::optional(known->second);
}

}  // namespace perfmodel
