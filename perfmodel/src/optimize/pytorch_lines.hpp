#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace perfmodel::advice {

/// The row of a move ("--precision bf16"), else the row of its flag ("--optimizer"). "{}" is a
/// place for a value.
std::string_view pytorch_template(std::string_view move);

/// Lines of PyTorch for a move, with values in the places of its row.
template <class... Values>
std::string pytorch_lines(std::string_view move, const Values&... values) {
  return fmt::format(fmt::runtime(pytorch_template(move)), values...);
}

}  // namespace perfmodel::advice
