#include <fmt/format.h>

#include "commands.hpp"
#include "open_device.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"

namespace kernels_bench {

perfmodel::Result<void> print_list() {
  using perfmodel::cli::TextTable;
  TextTable table({"family", "points", "<what"});
  for (const Family* family : families()) {
    table.row({std::string(family->name), perfmodel::grouped(family->points),
               fmt::format("{}{}", family->what,
                           family->is_default ? "" : " (only if named by --families)")});
  }
  TextTable devices({"backend", "<device"});
  for (const std::string_view backend : backends()) {
    const auto device = open_device(backend, 0);
    devices.row({std::string(backend), device ? (*device)->info().name : device.error().message});
  }
  const bool bold = perfmodel::cli::bold_allowed();
  return perfmodel::cli::print(table.text(bold) + "\n" + devices.text(bold));
}

}  // namespace kernels_bench
