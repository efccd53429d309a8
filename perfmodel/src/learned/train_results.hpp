#pragma once

#include <span>
#include <string>

#include "fields/result_field.hpp"
#include "train_question.hpp"
#include "training/train.hpp"

/// The answers of `train`.
namespace perfmodel::training {

/// The fields of the JSON of a GPU left out, its name and its rows.
extern const ResultFields<LeftOut> kLeftOutColumns;
extern const ResultFields<RangeCheck> kRangeCheckFields;
extern const ResultFields<FewShotPointError> kFewShotFields;

/// The members of a document of `train`; `output`: the file or folder that was written.
OrderedJson train_json(const TrainReport& report, std::string output);

/// ... and of one of `train --few-shot`.
OrderedJson few_shot_json(const std::string& gpu, std::span<const FewShotCurve> curves);

/// ... and of one of `train --calibrate`.
OrderedJson calibration_json(const Calibration& made, const std::string& output);

/// Plots, as SVG. Kept-out rows of one model: predicted against measured, by GPU and by op, and
/// errors by size.
Result<std::string> model_plots(const ModelReport& model);

/// Errors on a new GPU against the number of its kernels that were measured.
Result<std::string> few_shot_plot(const std::string& gpu, std::span<const FewShotCurve> curves);

/// Options with the card of the model. Error: a family that no models exist for.
Result<TrainOptions> train_options(const TrainQuestion& question);

/// Whether models go to a folder, one file each.
bool is_model_folder(const std::string& output);
/// Makes the folder and says whether models can be written, before they are fitted.
Result<void> check_model_output(const std::string& output);

}  // namespace perfmodel::training
