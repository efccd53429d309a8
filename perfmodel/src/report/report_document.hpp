#pragma once

#include <filesystem>

#include "perfmodel/result.hpp"
#include "report/report_page.hpp"

namespace perfmodel::report_page {

/// Whether a file is a JSON document that a command printed (`whatif --json > FILE`).
bool is_document(const std::filesystem::path& file);

/// Its tables, and bars of its figure of merit, for the page. Errors: no JSON, a document without
/// rows.
Result<Json> document_data(const std::filesystem::path& file);

}  // namespace perfmodel::report_page
