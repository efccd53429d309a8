#include "kernel_models_option.hpp"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "perfmodel/data_files.hpp"

namespace perfmodel::cli {

CLI::Option* add_models_option(CLI::App& app, std::string& name) {
  return app
      .add_option("--models", name,
                  "Kernel models: learned (those in data/models, heuristic where there is none), "
                  "heuristic, roofline, or a file of `perfpredict train`")
      ->type_name("NAME|FILE")
      ->check([](const std::string& text) {
        const bool is_known = text == "learned" || text == "heuristic" || text == "roofline";
        return is_known || std::filesystem::exists(text)
                   ? std::string()
                   : "expected learned, heuristic, roofline or a model file, found \"" + text +
                         "\"";
      })
      ->capture_default_str();
}

Result<void> ChosenModels::check() const {
  if (owner) {
    if (auto problem = owner->problem()) return Unexpected{*problem};
  }
  return {};
}

Result<ChosenModels> kernel_models_by_name(const std::string& name) {
  if (name == "heuristic") return ChosenModels{.models = KernelModels::heuristic()};
  if (name == "roofline") return ChosenModels{.models = KernelModels::roofline()};
  if (name == "learned") {
    const auto data = find_data_folder();
    if (!data) return Unexpected{data.error()};
    std::error_code ignored;
    if (!std::filesystem::exists(*data / "models", ignored)) {
      return ChosenModels{.models = KernelModels::heuristic(),
                          .warning = "no learned kernel models in " + (*data / "models").string() +
                                     ": heuristic ones are used"};
    }
    auto learned = LearnedModels::open(*data / "models");
    if (!learned) return Unexpected{learned.error()};
    ChosenModels chosen{.models = learned->models()};
    chosen.owner = std::move(*learned);
    return chosen;
  }
  auto learned = LearnedModels::read(name);
  if (!learned) return Unexpected{learned.error()};
  ChosenModels chosen{.models = learned->models()};
  chosen.owner = std::move(*learned);
  return chosen;
}

}  // namespace perfmodel::cli
