#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace perfmodel::report_page {

using Json = nlohmann::ordered_json;

/// One HTML file that asks the network for nothing: styles, scripts and `data` inside. Whatever
/// names the data hold, they end no script and become no markup.
std::string report_page(const std::string& title, const Json& data);

}  // namespace perfmodel::report_page
