#include "kernel_models_option.hpp"

#include <filesystem>

namespace perfmodel::cli {

Option add_models_option(CommandParser app, std::string& name, const std::string& help) {
  return app.add_option("--models NAME|FILE", name, help)
      .check([](const std::string& text) {
        const bool is_known = text == "learned" || text == "heuristic" || text == "roofline";
        // A missing file is bad input, reported by the reader; an unknown word is not.
        const bool is_file = text.find_first_of("/.") != std::string::npos;
        return is_known || is_file || std::filesystem::exists(text)
                   ? std::string()
                   : "expected learned, heuristic, roofline or a model file, found \"" + text +
                         "\"";
      })
      .capture_default_str();
}

}  // namespace perfmodel::cli
