#include "report/report_page.hpp"

#include <array>
#include <string_view>
#include <utility>

#include "report/page_parts.hpp"

namespace perfmodel::report_page {
namespace {

std::string escaped_text(std::string_view text) {
  std::string made;
  for (const char c : text) {
    switch (c) {
      case '&': made += "&amp;"; break;
      case '<': made += "&lt;"; break;
      case '>': made += "&gt;"; break;
      default: made += c;
    }
  }
  return made;
}

// "</script>" and "<!--" in a name would end or change the element that holds the data.
std::string escaped_json(const Json& data) {
  const std::string plain = data.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string made;
  made.reserve(plain.size() + plain.size() / 64);
  for (const char c : plain) {
    if (c == '<') {
      made += "\\u003c";
    } else {
      made += c;
    }
  }
  return made;
}

}  // namespace

std::string report_page(const std::string& title, const Json& data) {
  const std::array<std::pair<std::string_view, std::string>, 4> values = {{
      {"@TITLE@", escaped_text(title)},
      {"@CSS@", std::string(parts::kStyle)},
      {"@DATA@", escaped_json(data)},
      {"@SCRIPT@", std::string(parts::kScript)},
  }};
  // In the order of the page, each once: inserted text is not searched again.
  std::string made;
  std::string_view left = parts::kHtml;
  for (const auto& [mark, value] : values) {
    const std::size_t at = left.find(mark);
    made += left.substr(0, at);
    made += value;
    left.remove_prefix(at + mark.size());
  }
  made += left;
  return made;
}

}  // namespace perfmodel::report_page
