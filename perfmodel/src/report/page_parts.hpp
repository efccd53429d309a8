#pragma once

#include <string_view>

/// The files of page/, as cmake/embed_page.cmake writes them into a source at build time.
namespace perfmodel::report_page::parts {

extern const std::string_view kHtml, kStyle, kScript;

}  // namespace perfmodel::report_page::parts
