#include "byte_amount.hpp"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <utility>

namespace perfmodel {

std::optional<std::uint64_t> byte_amount(std::string_view text) {
  int shift = 0;
  for (const auto& [unit, bits] : {std::pair{"KiB", 10}, {"MiB", 20}, {"GiB", 30}}) {
    if (!text.ends_with(unit)) continue;
    text.remove_suffix(3);
    shift = bits;
  }
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [past, error] = std::from_chars(text.data(), end, value);
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max() >> shift;
  if (error != std::errc() || past != end || value > most) return {};
  return value << shift;
}

std::string byte_amount_text(double bytes) {
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB"}) {
    if (bytes < 1024) break;
    bytes /= 1024;
    unit = next;
  }
  return fmt::format("{:.4g} {}", bytes, unit);
}

}  // namespace perfmodel
