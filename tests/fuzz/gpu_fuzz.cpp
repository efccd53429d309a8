// GPU files: what is read prices kernels.
#include <cmath>

#include "fuzz.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "price/kernel_work.hpp"

using namespace perfmodel;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto gpu =
      read_gpu(fuzz::file_with(fuzz::text_of(data, size)), fuzz::data_folder() / "architectures");
  if (!gpu) {
    fuzz::check_error(gpu.error());
    return 0;
  }
  PERFMODEL_CHECK(gpu->num_sms > 0 && gpu->dram_bandwidth.value > 0);
  const KernelWork add = elementwise_work(1e6, 2, 1, DType::kFloat32);
  const Price price = KernelModels::heuristic().price(add, *gpu);
  PERFMODEL_CHECK(std::isfinite(price.time.count()) && price.time.count() >= 0);
  PERFMODEL_CHECK(price.in_range == gpu->architecture.is_known());
  fuzz::check_lines(stand_ins(*gpu));
  PERFMODEL_CHECK(datasheet_topology(*gpu).gpus_per_node > 0);
  return 0;
}
