#pragma once

#include <string>

#include "perfmodel/result.hpp"
#include "report/report_run.hpp"

namespace perfmodel::report_page {

/// One step as a small SVG: top-level ops of the host by thread, device work by stream, coloured by
/// family. Same input, same bytes.
Result<std::string> step_picture(const std::string& title, const Run& run);

}  // namespace perfmodel::report_page
