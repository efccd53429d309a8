// Sharding studies in JSON.
#include "sharding_study.hpp"

using namespace perfmodel;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::check_study(fuzz::text_of(data, size), ".json");
  return 0;
}
