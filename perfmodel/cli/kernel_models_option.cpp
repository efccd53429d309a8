#include "kernel_models_option.hpp"

#include <CLI/CLI.hpp>

#include "perfmodel/data_files.hpp"

namespace perfmodel::cli {

CLI::Option* add_models_option(CLI::App& app, std::string& name) {
  return app
      .add_option("--models", name,
                  "Kernel models: learned (those in data/models, heuristic where there is none), "
                  "heuristic, roofline, or a file of `perfpredict train`")
      ->type_name("NAME|FILE")
      ->capture_default_str();
}

Result<void> ChosenModels::check() const {
  if (owner) {
    if (auto problem = owner->problem()) return Unexpected{*problem};
  }
  return {};
}

Result<ChosenModels> kernel_models_by_name(const std::string& name) {
  if (name == "heuristic") return ChosenModels{KernelModels::heuristic(), {}};
  if (name == "roofline") return ChosenModels{KernelModels::roofline(), {}};
  const auto open = [&]() -> Result<LearnedModels> {
    if (name != "learned") {
      if (!std::filesystem::exists(name)) {
        return fail(
            ErrorCode::kUnknownName,
            "expected kernel models learned, heuristic, roofline or a model file, found \"" + name +
                "\"");
      }
      return LearnedModels::read(name);
    }
    const auto data = find_data_folder();
    if (!data) return Unexpected{data.error()};
    return LearnedModels::open(*data / "models");
  };
  auto learned = open();
  if (!learned) return Unexpected{learned.error()};
  ChosenModels chosen{learned->models(), {}};
  chosen.owner = std::move(*learned);
  return chosen;
}

}  // namespace perfmodel::cli
