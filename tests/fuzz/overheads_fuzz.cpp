// Overhead tables: what is read can be written, and read again as the same.
#include "fuzz.hpp"
#include "perfmodel/overheads.hpp"

using namespace perfmodel;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto table = read_overheads(fuzz::file_with(fuzz::text_of(data, size)));
  if (!table) {
    fuzz::check_error(table.error());
    return 0;
  }
  const std::string written = overheads_json(*table);
  const auto again = read_overheads(fuzz::file_with(written));
  PERFMODEL_CHECK(again.has_value());
  PERFMODEL_CHECK(overheads_json(*again) == written);
  return 0;
}
