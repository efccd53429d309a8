// Architecture files: what is read prices kernels.
#include <cmath>

#include "fuzz.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "price/kernel_work.hpp"

using namespace perfmodel;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Gpu gpu = *read_gpu(fuzz::data_folder() / "gpus/a100-sxm-40gb.json");
  auto architecture = read_architecture(fuzz::file_with(fuzz::text_of(data, size)),
                                        fuzz::data_folder() / "architectures");
  if (!architecture) {
    fuzz::check_error(architecture.error());
    return 0;
  }
  PERFMODEL_CHECK(architecture->is_known());
  gpu.architecture = std::move(*architecture);
  for (const bool matrix_units : {false, true}) {
    const DType dtype = matrix_units ? DType::kFloat16 : DType::kFloat32;
    for (const KernelWork& work :
         {elementwise_work(1e6, 2, 1, dtype),
          gemm_work({.batch = 3, .m = 100, .n = 1000, .k = 512}, dtype, matrix_units)}) {
      const Price price = KernelModels::heuristic().price(work, gpu);
      PERFMODEL_CHECK(std::isfinite(price.time.count()) && price.time.count() > 0);
    }
  }
  PERFMODEL_CHECK(datasheet_topology(gpu).gpus_per_node > 0);
  return 0;
}
