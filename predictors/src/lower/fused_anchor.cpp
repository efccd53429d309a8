#include "lower/fused_anchor.hpp"

#include <charconv>

namespace perfmodel {
namespace {

// The number in front of a colon; takes both off the text.
std::optional<std::uint32_t> take_count(std::string_view& text) {
  std::uint32_t count = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), count);
  const auto length = static_cast<std::size_t>(end - text.data());
  if (problem != std::errc() || length >= text.size() || text[length] != ':') return std::nullopt;
  text.remove_prefix(length + 1);
  return count;
}

}  // namespace

std::optional<FusedAnchor> FusedAnchor::parse(std::string_view backend) {
  constexpr std::string_view kPrefix = "post_scheduling:";
  if (!backend.starts_with(kPrefix)) return std::nullopt;
  backend.remove_prefix(kPrefix.size());
  const auto read = take_count(backend);
  if (!read) return std::nullopt;
  const auto written = take_count(backend);
  if (!written) return std::nullopt;
  return FusedAnchor{.read = *read, .written = *written, .ops = backend};
}

}  // namespace perfmodel
