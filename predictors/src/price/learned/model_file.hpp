#pragma once

#include <filesystem>
#include <vector>

#include "learned_model.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::learned {

/// Model files: JSON, schema "perfmodel-kernel-models", version 3 (docs/formats.md). Numbers are
/// written with as many digits as give the same float back, so that a file predicts to the bit what
/// the fit did.
Result<std::vector<LearnedModel>> read_model_file(const std::filesystem::path& file);
Result<void> write_model_file(const std::filesystem::path& file,
                              const std::vector<LearnedModel>& models);

}  // namespace perfmodel::learned
