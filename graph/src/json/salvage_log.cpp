#include "salvage_log.hpp"

#include <fmt/format.h>

#include <utility>

namespace perfmodel {

std::string SalvageLog::first_place() const {
  if (!damage.empty()) return damage;
  return dropped_places.empty() ? "" : dropped_places.front();
}

void SalvageLog::report(std::string_view elements, std::vector<std::string>& warnings) const {
  const auto sentence = [&](std::string text, const std::vector<std::string>& places,
                            std::size_t count) {
    for (std::size_t i = 0; i < places.size(); ++i) {
      text += (i == 0 ? ": " : "; ") + places[i];
    }
    if (count > places.size()) text += fmt::format("; and {} more", count - places.size());
    warnings.push_back(std::move(text));
  };
  if (!damage.empty()) warnings.push_back(damage);
  if (dropped > 0) {
    sentence(fmt::format("{} broken {} or other stretches of text were left out ({} bytes)",
                         dropped, elements, dropped_bytes),
             dropped_places, dropped);
  }
  if (repaired > 0) {
    sentence(fmt::format("{} defects in or between {} were repaired", repaired, elements),
             repaired_places, repaired);
  }
}

}  // namespace perfmodel
