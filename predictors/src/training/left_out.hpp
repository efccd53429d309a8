#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "intervals.hpp"
#include "outcomes.hpp"

// Errors and ranges of a model on rows and GPUs that it was not fitted on.
namespace perfmodel::training {

using Gpus = std::map<std::string, const Gpu*>;        ///< by name
using LeftOutRows = std::map<Knowledge, KeptOutRows>;  ///< by level of knowledge

learned::LevelIntervals& intervals_of(learned::LearnedModel& model, Knowledge level);
/// Makes ranges a factor of two where nothing is known.
void complete_ranges(learned::LearnedModel& model);

/// Rows that neither trees nor quantiles saw: quantiles of four fifths of `calibrating`, rows of
/// the fifth, five times. By GPU.
std::map<std::string, Share> cross_shares(const KeptOutRows& rows, const KeptOutRows& calibrating);
void set_coverage(Validation& kept, const KeptOutRows& rows, const KeptOutRows& all);

/// Errors on a GPU's `own` rows, next to simple rivals' that know the `others`.
LeftOut left_out_of(const std::string& gpu, const Samples& own, const Samples& others,
                    const std::vector<Outcome>& outcomes);

bool has_one_architecture(const Gpus& gpus);

/// Boards that one fit leaves out, and how near the remaining ones are.
struct LeftOutSet {
  std::set<std::string> boards;
  Knowledge level = Knowledge::kNone;
  bool operator<(const LeftOutSet& other) const { return boards < other.boards; }
};

/// A board alone where another one has its chip; all boards of a chip where the architecture has
/// another chip; all of an architecture.
std::set<LeftOutSet> left_out_sets(const Gpus& gpus, const TrainOptions& options);

struct Judged {
  learned::LearnedModel model;
  std::map<std::string, Samples> own;  ///< by GPU
  Samples others;
};

/// Share of the common trees to trust on GPUs of this level: best mean over the GPUs.
double choose_trust(std::vector<Judged>& all);

KeptOutRows all_rows(const LeftOutRows& left_out);
/// Coverage for a GPU by the intervals that all GPUs give, and by the intervals that the others
/// give.
void check_left_out_ranges(const learned::LearnedModel& model, const LeftOutRows& left_out,
                           ModelReport& report);
/// Moves the entry of each GPU whose fit knew most to `left_out`.
void move_nearest(const Gpus& gpus, ModelReport& report);

}  // namespace perfmodel::training
