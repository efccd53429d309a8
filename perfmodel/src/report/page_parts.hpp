#pragma once

#include <string_view>

/// The files of page/ and d3, as cmake/embed_page.cmake writes them into a source at build time.
namespace perfmodel::report_page::parts {

extern const std::string_view kHtml, kStyle, kLicence, kD3, kScript;

}  // namespace perfmodel::report_page::parts
