#include "output.hpp"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace perfmodel::cli {

Json rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  const double result = std::round(value * 1e3) / 1e3;
  return result == 0 ? 0.0 : result;  // no -0.0
}

std::string to_text(const Json& document) {
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<void> print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
    return {};
  }
  return fail(ErrorCode::kIo, "expected a writable standard output, found one that is not");
}

bool bold_allowed() {
  if (std::getenv("NO_COLOR") || !isatty(STDOUT_FILENO)) return false;
  const char* terminal = std::getenv("TERM");
  return terminal && std::strcmp(terminal, "dumb") != 0;
}

}  // namespace perfmodel::cli
