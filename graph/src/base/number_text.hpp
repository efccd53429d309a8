#pragma once

#include <cstddef>
#include <string>
#include <string_view>

/// Numbers as reports, tables and plots show them.
namespace perfmodel {

/// 12345678 -> "12,345,678".
std::string grouped(std::size_t number);

/// "1 kernel", "2 kernels".
std::string counted(std::size_t count, std::string_view noun);

/// 0.123 -> "12.3 %".
std::string percent(double share, int digits = 1);

/// 0.123 -> "+12.3 %".
std::string signed_percent(double share, int digits = 1);

/// 1 of 8 -> "12.5 %"; "-" of nothing.
std::string percent_of(double part, double whole, int digits = 1);

/// Microseconds as milliseconds, without the unit: 1234.5 -> "1.234".
std::string milliseconds(double us);

}  // namespace perfmodel
