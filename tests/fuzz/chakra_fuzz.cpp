// Chakra traces: what is read can be written, and read again as the same.
#include "fuzz.hpp"
#include "perfmodel/graph/chakra.hpp"

using namespace perfmodel;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto trace = read_chakra(fuzz::file_with(fuzz::text_of(data, size)));
  if (!trace) {
    fuzz::check_error(trace.error());
    return 0;
  }
  fuzz::WrittenText first, second;
  if (const auto written = write_chakra(*trace, first.file()); !written) {
    fuzz::check_error(written.error());  // a node that lacks what simulators need of it
    return 0;
  }
  const std::string text = first.text();
  const auto again = read_chakra(fuzz::file_with(text));
  PERFMODEL_CHECK(again.has_value());
  PERFMODEL_CHECK(again->nodes.size() == trace->nodes.size());
  PERFMODEL_CHECK(write_chakra(*again, second.file()).has_value());
  PERFMODEL_CHECK(second.text() == text);
  return 0;
}
