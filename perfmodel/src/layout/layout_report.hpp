#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fields/result_field.hpp"
#include "layout/layout_sweep.hpp"
#include "layout/training_run.hpp"

namespace perfmodel {

/// A question about layouts on one machine, and its answers.
struct LayoutReport {
  LayoutPricer pricer;
  LayoutJob job;
  std::string gpu, gpu_title, topology;
  double gpu_power_w = 0;                    ///< that a board draws at most
  std::int64_t node = 1;                     ///< GPUs of one
  std::optional<MeasuredFit> measured = {};  ///< if the inputs name measured steps
  std::vector<std::string> warnings = {};
  std::int64_t gpus = 0;
  std::vector<RankedLayout> layouts = {};
  std::optional<LayoutRanking> search = {};  ///< its `best` are `layouts`
  double seconds = 0;                        ///< that the search took
  std::vector<OpenEffect> open = {};         ///< for the first layout
  std::optional<TrainingRun> run = {};       ///< by it, if one is asked about
  std::vector<DeadlineTry> tries = {};       ///< for a deadline, by GPU count; the last meets it
};

/// A predictor of one GPU; empty: of all.
Result<Predictor> layout_predictor(const std::string& gpu);

/// Without layouts. Errors: as layout_question(), Predictor::load() and layout_pricer() have them.
Result<LayoutReport> load_layout(const LayoutInputs& inputs, const TakeWarning& warn);

/// With the one layout that the inputs name. Errors: as load_layout(),
/// named_layout() and the pricer have them.
Result<LayoutReport> named_layout_report(const LayoutInputs& inputs, const TakeWarning& warn);

/// Prices a layout and adds it to the report. Errors: as the pricer has them.
Result<void> add_layout(const ParallelLayout& layout, LayoutReport& report);

/// The search that the inputs ask for. Errors: no world, unknown names, no layout that fits.
Result<LayoutRanking> search_layouts(const LayoutReport& report, const LayoutInputs& inputs,
                                     std::size_t keep, const LayoutRunHooks& hooks,
                                     sweep::Team* team = nullptr);

/// Searches, and reports the best layouts; a team's ranks but the first report nothing.
Result<void> report_ranking(const LayoutInputs& inputs, std::size_t keep,
                            const LayoutRunHooks& hooks, sweep::Team* team, LayoutReport& report);

/// The program that the job names, or those that suit its layouts.
std::string software_words(const LayoutReport& report);

/// A user who compares with `predict --world` has to know this (docs/layout.md).
inline constexpr std::string_view kDefaultsBesidePredict =
    "predict --world takes precision, optimizer, attention, loss and vocabulary as its graph has "
    "them and FSDP units of 100 MB; layout takes bf16, adamw, flash, the vocabulary padded to 128 "
    "and a unit per layer: --software pytorch --grad-dtype bf16 --loss full describes the same "
    "step";
/// The convention by which MFU and HFU count.
inline constexpr std::string_view kMfuConvention =
    "6 N + 6 layers hidden sequence FLOP per token: causal attention by half";

/// Adds the warnings of the layouts to the report's, each once.
void add_layout_warnings(LayoutReport& report);

/// All of a report but the head of a document.
OrderedJson layout_json(const LayoutReport& report);
OrderedJson layout_sweep_json(const std::string& axis, const std::vector<LayoutSweepRow>& rows);
std::string layout_sweep_csv(const std::string& axis, const std::vector<LayoutSweepRow>& rows);

/// A machine as measured steps say it is.
struct CalibratedMachine {
  MeasuredFit fit;
  OrderedJson file;  ///< all but the head of a machine's file
};
/// Fits a machine to the steps of `inputs.measured`; `output`: the file that it is written to,
/// which names it; empty: none. Errors: no steps are named; as measured_steps() has them; steps
/// that a machine's file cannot hold, if it is written.
Result<CalibratedMachine> calibrate_machine(const LayoutInputs& inputs, const std::string& output,
                                            const TakeWarning& warn);

}  // namespace perfmodel
