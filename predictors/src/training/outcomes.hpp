#pragma once

#include <vector>

#include "intervals.hpp"
#include "price/learned/learned_model.hpp"
#include "training_rows.hpp"

namespace perfmodel::training {

/// A kept-out kernel's price with the launch cost that its campaign adds.
struct Outcome {
  Price price;
  double measured_us = 0, predicted_us = 0;  ///< launch cost included
  double kernel_us = 0;                      ///< measured, launch cost taken off
  bool above_floor = true;
  Knowledge knowledge = Knowledge::kNone;
  int distance = 0;
};

Outcome outcome_of(const learned::LearnedModel& model, const Sample& sample);
std::vector<Outcome> outcomes_of(const learned::LearnedModel& model, const Samples& samples);

Validation validation_of(const std::vector<Outcome>& outcomes, const Samples& samples);
/// Mean absolute error of kernel times, rows above the launch floor.
double kernel_error(const std::vector<Outcome>& outcomes);
/// Rows above the launch floor; rows at it say nothing about a kernel's time.
KeptOutRows rows_above_floor(const std::vector<Outcome>& outcomes, const Samples& samples);

}  // namespace perfmodel::training
