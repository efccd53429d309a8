#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cases.hpp"

namespace kernels_bench {

/// One parameter of a case under its column of kernel tables (docs/formats.md).
struct Cell {
  std::string_view column;
  std::string text;
  bool is_size = false;  ///< a number that a sweep draws; else a kind
};

/// All parameters, `op` first. Two cases are the same if their cells are.
std::vector<Cell> cells_of(const Case& point);

/// "gemm fp32 m=512 n=512 k=64 layout=tn": the name of a case in messages and benchmarks.
std::string name_of(const Case& point);

std::string_view to_string(DType dtype);

}  // namespace kernels_bench
