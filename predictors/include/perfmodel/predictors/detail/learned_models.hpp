#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel {

/// How near to this GPU the heuristic's figures were measured, by kind of kernels
/// ("gemm-bfloat16"): `measured_kernels` of its architecture. Other kinds were not measured.
std::map<std::string, Knowledge> heuristic_knowledge(const Gpu& gpu);

/// Kernel models fitted to measurements (`perfpredict train`), from model files.
///
/// The heuristic prices a family without a fitted model, an unmeasured arithmetic (fp16 if only
/// fp32 was measured), and work without the shape that the features need; `Price::model` says so.
/// If a query is outside the range that a model was fitted on, its ratio to the heuristic fades
/// with the distance, `in_range` is false and the range of the price widens.
class LearnedModels {
 public:
  /// The model files of a folder (`<family>-<dtype>.json`) for all GPUs, and the files of
  /// subfolders named after GPUs (`<gpu>/<family>-<dtype>.json`), which go first for a `Gpu` of
  /// that name. Files are read when a kernel of their family is first priced on such a GPU. A
  /// folder without any is an error; an unreadable file, or one with models of another family than
  /// its name says, is found when it is needed (`problem`).
  static Result<LearnedModels> open(const std::filesystem::path& folder);

  /// One file with one or more models, read at once. Errors name file and place: no JSON, another
  /// schema or version, features or families that this program does not know, trees cut off.
  static Result<LearnedModels> read(const std::filesystem::path& file);

  LearnedModels(LearnedModels&&) noexcept;
  LearnedModels& operator=(LearnedModels&&) noexcept;
  ~LearnedModels();

  /// Learned models if there are any, else heuristic ones. Lives as long as this object;
  /// thread-safe.
  const KernelModels& models() const;

  /// Reads all files now instead of at first use. Errors: a file that cannot be read.
  Result<void> read_all() const;

  /// The first model file that was needed and could not be read; its kernels were priced by the
  /// heuristic. Ask after pricing.
  std::optional<Error> problem() const;

  /// The same for `models`, by all kinds that a model file or the architecture names. Reads all
  /// files that may price on this GPU.
  std::map<std::string, Knowledge> knowledge(const Gpu& gpu) const;

  /// The files that were read so far, relative to the folder, sorted: where prices come from.
  std::vector<std::string> files_read() const;

  struct State;

 private:
  explicit LearnedModels(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace perfmodel
