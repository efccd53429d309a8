// Tables of kernels, as questions and as measurements: what is read has a price.
#include <cmath>

#include "fuzz.hpp"
#include "tables/kernel_table.hpp"

using namespace perfmodel;

namespace {

void check_table(const std::filesystem::path& file, const KernelTableOptions& options) {
  const auto table = read_kernel_table(file, options);
  if (!table) return fuzz::check_error(table.error());
  fuzz::check_lines(table->warnings);
  PERFMODEL_CHECK(!table->rows.empty());
  for (const KernelRow& row : table->rows) {
    PERFMODEL_CHECK(row.op >= 0 && row.op < static_cast<int>(table->ops.size()));
    PERFMODEL_CHECK(row.gpu >= -1 && row.gpu < static_cast<int>(table->gpus.size()));
    if (options.needs_time) PERFMODEL_CHECK(row.measured_us > 0);
    if (row.gpu < 0 || row.is_free) continue;
    const Gpu& gpu = table->gpus[static_cast<std::size_t>(row.gpu)];
    const Price price = KernelModels::heuristic().price(row.work, gpu);
    PERFMODEL_CHECK(std::isfinite(price.time.count()) && price.time.count() >= 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::filesystem::path gpus = fuzz::small_data_folder() / "gpus";
  const auto& file = fuzz::file_with(fuzz::text_of(data, size));
  check_table(file, {.gpu_folder = gpus});
  check_table(file, {.gpu_folder = gpus, .gpu = "h100-sxm-80gb", .op = "gemm", .dtype = "fp16"});
  check_table(file, {.gpu_folder = gpus, .needs_time = true});
  return 0;
}
