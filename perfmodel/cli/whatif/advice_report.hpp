#pragma once

#include <string>

#include "perfmodel/detail/advice.hpp"

namespace perfmodel::cli {

std::string advice_text(const std::string& graph_file, const std::string& rewrites,
                        const std::string& gpu, const Advice& advice, bool bold);

}  // namespace perfmodel::cli
