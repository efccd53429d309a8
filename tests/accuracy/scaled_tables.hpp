#pragma once

#include <cstdint>
#include <optional>

#include "accuracy_support.hpp"
#include "price/kernel_work.hpp"
#include "tables/kernel_table.hpp"

namespace perfmodel::accuracy {

/// A public table of products in 8 or 4 bits, which says neither how numbers are scaled nor that
/// each time holds the kernel that quantises A.
inline KernelTable layers_of(const char* file, Scaling scaling) {
  const auto gpus = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus";
  KernelTable table =
      read_kernel_table(*public_data() / "silicon" / file, {.gpu_folder = gpus, .needs_time = true})
          .value();
  for (KernelRow& row : table.rows) {
    auto shape = std::get<GemmShape>(row.work.shape);
    shape.scaling = scaling;
    shape.quantizes_a = true;
    row.work = gemm_work(shape, row.work.dtype, true);
  }
  return table;
}

}  // namespace perfmodel::accuracy
