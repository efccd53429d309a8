#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "price/learned/learned_model.hpp"
#include "training_rows.hpp"

namespace perfmodel::training {

/// A row above the launch floor that a model has features of.
struct JudgedRow {
  Sample sample;
  learned::FeatureRow features;
  double log_ratio = 0;  ///< measured over predicted time
};

std::vector<JudgedRow> judged_rows(const learned::LearnedModel& model, const Samples& samples);

/// A correction, and its mean absolute log ratio on each kernel when the others alone are known.
struct FewKernels {
  learned::Correction correction;
  std::size_t given = 0;                ///< rows, of which those above the launch floor count
  double error = 0, error_without = 0;  ///< with the correction, and of the model as it is

  bool helps() const { return error < error_without; }
};

/// The mean of a Gaussian process on the log ratios (Rasmussen and Williams 2006, equations 2.25
/// and 5.12) of at most 500 of the rows, drawn at random. Similar kernels share a part of their
/// log ratio, unless linear terms alone predict a kernel that was left out better.
FewKernels correction_of(const learned::LearnedModel& model, const std::string& gpu,
                         const Samples& few);

}  // namespace perfmodel::training
