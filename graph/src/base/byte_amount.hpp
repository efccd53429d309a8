#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace perfmodel {

/// "512", "64KiB", "1MiB", "2GiB"; nothing if it is no number or does not fit.
std::optional<std::uint64_t> byte_amount(std::string_view text);

/// 67108864 -> "64 MiB"; with four digits.
std::string byte_amount_text(double bytes);

}  // namespace perfmodel
