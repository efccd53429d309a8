#pragma once

#include <string>
#include <vector>

#include "loaded_study.hpp"
#include "perfmodel/result.hpp"
#include "shard_question.hpp"

/// The questions of a study: each differs from `base` in one input. `loaded` is the study of
/// `base`.
namespace perfmodel::sharding {

struct StudyVariant {
  std::string name;
  ShardQuestion question;
  std::string error = {};  ///< why it cannot be asked; empty: it can
};
using StudyVariants = std::vector<StudyVariant>;

/// Sets the batch per GPU, if the study has a batch for all. Errors (kImpossible): no number of
/// GPUs, or one that does not divide the batch.
Result<void> share_global_batch(const StudyQuestion& asked, ShardQuestion& question);

StudyVariants way_variants(const ShardQuestion& base);
/// Each setting that the software lets a search choose for single tables, alone and with the
/// others; none if there is no choice.
StudyVariants setting_variants(const ShardQuestion& base, const LoadedStudy& loaded);
/// Numbers of hot rows; none on one GPU or if ids are uniform.
StudyVariants hot_row_variants(const ShardQuestion& base, const LoadedStudy& loaded);
StudyVariants type_variants(const ShardQuestion& base);
StudyVariants network_variants(const ShardQuestion& base, const LoadedStudy& loaded);
/// The numbers of GPUs that are asked for, else powers of two.
StudyVariants world_variants(const StudyQuestion& asked, const ShardQuestion& base,
                             const LoadedStudy& loaded);
/// Bags and skew that turn out otherwise.
StudyVariants load_variants(const ShardQuestion& base, const LoadedStudy& loaded);

}  // namespace perfmodel::sharding
