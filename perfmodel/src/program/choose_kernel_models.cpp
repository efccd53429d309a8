#include "perfmodel/detail/choose_kernel_models.hpp"

#include <system_error>

#include "perfmodel/data_files.hpp"

namespace perfmodel {
namespace {

ChosenKernelModels chosen(Result<LearnedModels> learned) {
  ChosenKernelModels made{.models = learned->models()};
  made.owner = std::move(*learned);
  return made;
}

Result<ChosenKernelModels> learned_in(const std::filesystem::path& data) {
  std::error_code ignored;
  if (!std::filesystem::exists(data / "models", ignored)) {
    return ChosenKernelModels{.models = KernelModels::heuristic(),
                              .warning = "no learned kernel models in " +
                                         (data / "models").string() + ": heuristic ones are used"};
  }
  PERFMODEL_TRY(learned, LearnedModels::open(data / "models"));
  return chosen(std::move(learned));
}

}  // namespace

Result<void> ChosenKernelModels::check() const {
  if (owner) {
    if (auto problem = owner->problem()) return Unexpected{*problem};
  }
  return {};
}

Result<ChosenKernelModels> choose_kernel_models(const std::string& name,
                                                const std::filesystem::path& data) {
  if (name == "heuristic") return ChosenKernelModels{.models = KernelModels::heuristic()};
  if (name == "roofline") return ChosenKernelModels{.models = KernelModels::roofline()};
  if (name == "learned") {
    if (!data.empty()) return learned_in(data);
    PERFMODEL_TRY(found, find_data_folder());
    return learned_in(*found);
  }
  PERFMODEL_TRY(learned, LearnedModels::read(name));
  return chosen(std::move(learned));
}

}  // namespace perfmodel
