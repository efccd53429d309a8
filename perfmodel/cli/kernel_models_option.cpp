#include "kernel_models_option.hpp"

#include <CLI/CLI.hpp>

namespace perfmodel::cli {

CLI::Option* add_models_option(CLI::App& app, std::string& name) {
  return app.add_option("--models", name, "Kernel models")
      ->check(CLI::IsMember({"heuristic", "roofline"}))
      ->capture_default_str();
}

Result<KernelModels> kernel_models_by_name(const std::string& name) {
  if (name == "heuristic") return KernelModels::heuristic();
  if (name == "roofline") return KernelModels::roofline();
  return fail(ErrorCode::kUnknownName,
              "expected kernel models heuristic or roofline, found \"" + name + "\"");
}

}  // namespace perfmodel::cli
