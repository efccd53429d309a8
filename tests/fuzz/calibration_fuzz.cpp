// Few measured kernels of a new GPU that correct fitted models (`train --calibrate`): the file that
// comes out is one that can be read.
#include <cmath>

#include "fuzz.hpp"
#include "price/learned/model_file.hpp"
#include "tables/kernel_table.hpp"
#include "training/train.hpp"

using namespace perfmodel;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::filesystem::path gpus = fuzz::small_data_folder() / "gpus",
                                     model = fuzz::small_data_folder() / "fitted.json";
  const auto table = read_kernel_table(fuzz::file_with(fuzz::text_of(data, size), ".csv"),
                                       {.gpu_folder = gpus, .needs_time = true});
  if (!table) {
    fuzz::check_error(table.error());
    return 0;
  }
  fuzz::WrittenText written;
  const auto done = training::calibrate(*table, model, written.file());
  if (!done) {
    fuzz::check_error(done.error());
    return 0;
  }
  const auto read = learned::read_model_file(fuzz::file_with(written.text(), ".json"));
  PERFMODEL_CHECK(read.has_value() && !read->empty());
  return 0;
}
