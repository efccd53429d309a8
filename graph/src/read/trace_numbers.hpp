#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace perfmodel {

/// Sums and differences of such stamps, in nanoseconds, stay within 64 bits: 2112, and 36 years.
constexpr std::int64_t kMostStamp = 4'500'000'000'000'000'000;
constexpr std::int64_t kMostDuration = std::int64_t{1} << 60;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;
/// Autograd counts the ops of a process; graphs that are many passes long multiply their numbers.
constexpr std::int64_t kMostAutogradNumber = std::int64_t{1} << 40;

/// Microseconds as text ("1694103001123456.789", "12", "1.5e3") to nanoseconds, without rounding
/// through a double. Quotes around the number are accepted. Digits below 1 ns are cut off.
std::optional<std::int64_t> parse_stamp(std::string_view text);

/// A JSON token that should be an integer; quoted digits count ("12"), anything else is `fallback`.
std::int64_t parse_integer(std::string_view text, std::int64_t fallback);

/// A JSON number of no great weight; below 0: none.
float parse_estimate(std::string_view text);

/// A JSON number, or one in quotes.
std::optional<double> parse_real(std::string_view text);

/// Removes blanks, a trailing comma and quotes.
std::string_view trimmed_token(std::string_view token);

/// A whole number with no text after it. Addresses above 2^63 wrap.
std::optional<std::int64_t> parse_whole(std::string_view text);

}  // namespace perfmodel
