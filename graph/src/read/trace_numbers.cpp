#include "trace_numbers.hpp"

#include <charconv>
#include <cmath>
#include <limits>

namespace perfmodel {
namespace {

// Decimal text with an exponent, in thousandths: digits are counted, nothing is rounded through a
// double, so that "1.694103001123456e15" keeps its nanoseconds. `text` has no sign.
std::optional<std::int64_t> parse_scientific(std::string_view text) {
  constexpr std::int64_t kTenth = std::numeric_limits<std::int64_t>::max() / 10;
  std::int64_t digits = 0;
  int scale = 3;  // the value is digits * 10^scale thousandths
  bool in_fraction = false;
  std::size_t at = 0;
  for (; at < text.size() && text[at] != 'e' && text[at] != 'E'; ++at) {
    if (text[at] == '.' && !in_fraction) {
      in_fraction = true;
      continue;
    }
    if (text[at] < '0' || text[at] > '9') return {};
    const bool kept = digits < kTenth;  // further digits are below any clock's resolution
    if (kept) digits = digits * 10 + (text[at] - '0');
    scale += static_cast<int>(!kept) - static_cast<int>(in_fraction);
  }
  if (at == 0 || at >= text.size()) return {};
  ++at;
  if (at < text.size() && text[at] == '+') ++at;
  int exponent = 0;
  const char* const end = text.data() + text.size();
  const auto [past, error] = std::from_chars(text.data() + at, end, exponent);
  if (error != std::errc() || past != end || exponent > 30 || exponent < -300) return {};
  for (scale += exponent; scale > 0 && digits > 0; --scale) {
    if (digits > kTenth) return {};
    digits *= 10;
  }
  for (; scale < 0 && digits > 0; ++scale) digits /= 10;
  return digits;
}

}  // namespace

std::optional<std::int64_t> parse_stamp(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n' || text.back() == '\r' ||
                           text.back() == '\t' || text.back() == '"')) {
    text.remove_suffix(1);
  }
  if (!text.empty() && text.front() == '"') text.remove_prefix(1);
  const bool negative = !text.empty() && text.front() == '-';
  if (negative) text.remove_prefix(1);
  std::int64_t whole = 0;
  const char* const end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data(), end, whole);
  if (error != std::errc() || whole < 0) return {};
  std::int64_t fraction = 0;
  if (at != end && *at == '.') {
    std::int64_t unit = 100;
    for (++at; at != end && *at >= '0' && *at <= '9'; ++at, unit /= 10) {
      fraction += unit * (*at - '0');
    }
  }
  if (at != end) {
    const auto value = parse_scientific(text);
    return value && negative ? std::optional(-*value) : value;
  }
  if (whole > std::numeric_limits<std::int64_t>::max() / 1000 - 1) return {};
  const std::int64_t ns = whole * 1000 + fraction;
  return negative ? -ns : ns;
}

std::int64_t parse_integer(std::string_view text, std::int64_t fallback) {
  if (!text.empty() && text.front() == '"') text.remove_prefix(1);
  std::int64_t value = fallback;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc()) return value;
  std::uint64_t big = 0;  // addresses above 2^63
  const auto [past, bad] = std::from_chars(text.data(), text.data() + text.size(), big);
  return bad == std::errc() ? static_cast<std::int64_t>(big) : fallback;
}

float parse_estimate(std::string_view text) {
  double value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return std::isfinite(value) ? static_cast<float>(value) : -1.0F;
}

std::optional<double> parse_real(std::string_view text) {
  text = trimmed_token(text);
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end || !std::isfinite(value)) return {};
  return value;
}

std::string_view trimmed_token(std::string_view token) {
  const std::size_t last = token.find_last_not_of(" \n\r\t,");
  token = token.substr(0, last == std::string_view::npos ? 0 : last + 1);
  if (token.size() >= 2 && token.front() == '"' && token.back() == '"') {
    token = token.substr(1, token.size() - 2);
  }
  return token;
}

std::optional<std::int64_t> parse_whole(std::string_view text) {
  const char* const end = text.data() + text.size();
  std::int64_t value = 0;
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && at == end) return value;
  std::uint64_t big = 0;
  const auto [past, bad] = std::from_chars(text.data(), end, big);
  if (bad == std::errc() && past == end) return static_cast<std::int64_t>(big);
  return {};
}

}  // namespace perfmodel
