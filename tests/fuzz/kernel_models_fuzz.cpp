// Files of fitted kernel models: what is read can be written, read again, and asked.
#include <cmath>

#include "fuzz.hpp"
#include "perfmodel/predictors/detail/learned_models.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "price/kernel_work.hpp"
#include "price/learned/model_file.hpp"

using namespace perfmodel;

namespace {

void check_price(const LearnedModels& models) {
  static const Gpu gpu = *read_gpu(fuzz::data_folder() / "gpus/a100-sxm-40gb.json");
  for (const KernelWork& work : {elementwise_work(1e6, 2, 1, DType::kFloat32),
                                 softmax_work(4096, 512, RowPass::kForward, DType::kFloat32)}) {
    const Price price = models.models().price(work, gpu);
    PERFMODEL_CHECK(std::isfinite(price.time.count()) && price.time.count() >= 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto& file = fuzz::file_with(fuzz::text_of(data, size));
  const auto models = learned::read_model_file(file);
  if (!models) {
    fuzz::check_error(models.error());
    return 0;
  }
  if (const auto asked = LearnedModels::read(file)) check_price(*asked);
  fuzz::WrittenText first, second;
  PERFMODEL_CHECK(learned::write_model_file(first.file(), *models).has_value());
  const std::string written = first.text();
  const auto again = learned::read_model_file(fuzz::file_with(written));
  PERFMODEL_CHECK(again.has_value());
  PERFMODEL_CHECK(learned::write_model_file(second.file(), *again).has_value());
  PERFMODEL_CHECK(second.text() == written);
  return 0;
}
