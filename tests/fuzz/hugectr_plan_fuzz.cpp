// HugeCTR's plans: what is read can be written, and read again as the same.
#include "fuzz.hpp"
#include "sharding/hugectr_plan_file.hpp"

using namespace perfmodel;
using namespace perfmodel::sharding;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto plan = read_hugectr_plan(fuzz::file_with(fuzz::text_of(data, size)));
  if (!plan) {
    fuzz::check_error(plan.error());
    return 0;
  }
  const auto again = read_hugectr_plan(fuzz::file_with(hugectr_plan_text(*plan)));
  PERFMODEL_CHECK(again.has_value());
  PERFMODEL_CHECK(*again == *plan);
  return 0;
}
