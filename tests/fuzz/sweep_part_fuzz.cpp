// Finished rows of a sweep: gzip members, torn anywhere.
#include "fuzz.hpp"
#include "sweep/part_file.hpp"

using namespace perfmodel;
using namespace perfmodel::sweep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr const char* kFingerprint = "0123456789abcdef";
  std::uint64_t last = 0;
  const auto read = read_part(fuzz::file_with(fuzz::text_of(data, size)), kFingerprint,
                              [&last](std::string_view, std::uint64_t offset) -> Result<void> {
                                PERFMODEL_CHECK(offset > last);
                                last = offset;
                                return {};
                              });
  if (!read) {
    fuzz::check_error(read.error());
    return 0;
  }
  PERFMODEL_CHECK(read->complete + read->torn == size);
  PERFMODEL_CHECK(last <= read->complete);
  return 0;
}
