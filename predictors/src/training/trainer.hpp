#pragma once

#include "price/learned/learned_model.hpp"
#include "training_rows.hpp"

namespace perfmodel::training {

/// The given recipe; else the family's, or one GPU's.
Recipe chosen_recipe(const Group& group, const TrainOptions& options);

struct TrainedModel {
  learned::LearnedModel model;
  ModelReport report;
};
/// Everything about one model: chooses its recipe, validates and fits it.
Result<TrainedModel> train_group(const Group& group, const TrainOptions& options);

}  // namespace perfmodel::training
