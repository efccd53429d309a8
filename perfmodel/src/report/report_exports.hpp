#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "perfmodel/result.hpp"
#include "report/report_run.hpp"

namespace perfmodel::report_page {

/// As speedscope.app reads it (its file-format-schema.json): an evented profile per host thread and
/// stream of each run.
Json speedscope_data(const std::string& title, std::span<const Run> runs);

/// As a Chrome trace, for ui.perfetto.dev: a process per run. Compressed if the name ends in `.gz`.
Result<void> write_chrome_trace(std::span<const Run> runs, const std::filesystem::path& file);

/// "run,kernel,family,op,stream,start_us,time_us,low_us,high_us,roofline_us,in_range", a row per
/// kernel.
std::string kernels_csv(std::span<const Run> runs);

}  // namespace perfmodel::report_page
