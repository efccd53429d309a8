#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "perfmodel/predictors/detail/learned_models.hpp"
#include "perfmodel/predictors/kernel.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Kernel models as a name or a file gives them.
struct ChosenKernelModels {
  KernelModels models;  ///< live as long as `owner`
  std::optional<LearnedModels> owner = {};
  std::string warning = {};  ///< names the models taken instead of the requested ones

  /// A model file that was needed and could not be read. Ask after pricing.
  Result<void> check() const;
};

/// "learned": the files in `data`/models, which are read when they are first needed (without any,
/// the heuristic ones, with a warning); "heuristic"; "roofline"; else one model file, read at once.
/// `data` empty: `find_data_folder()`. Errors: no data folder, a model file that cannot be read.
Result<ChosenKernelModels> choose_kernel_models(const std::string& name,
                                                const std::filesystem::path& data = {});

}  // namespace perfmodel
