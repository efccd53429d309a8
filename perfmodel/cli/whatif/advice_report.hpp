#pragma once

#include <string>

#include "perfmodel/detail/advice.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {

/// What `optimize` prints.
struct AdviceReport {
  std::string graph_file, gpu;
  Advice advice;
};

std::string advice_text(const AdviceReport& report, bool bold);
Json advice_document(const AdviceReport& report);

}  // namespace perfmodel::cli
