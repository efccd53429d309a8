#pragma once

#include <string>

#include "sharding/study/study_questions.hpp"
#include "sharding/study/study_sweep.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

/// All `shard` commands take these.
struct ShardArguments : sharding::ShardQuestion {
  bool json = false;
};
void add_shard_options(CommandParser app, ShardArguments& arguments);

struct SweepArguments : sharding::SweepQuestion {
  std::string csv, plot;
};
void add_sweep_options(CommandParser app, SweepArguments& arguments);

/// Prints the best plan for each value of the axis, or the given plan under it.
Result<void> run_sweep(const SweepArguments& arguments, bool json);

struct QuestionArguments : sharding::StudyQuestion {
  std::string html, plots, csv;
};
void add_question_options(CommandParser app, QuestionArguments& arguments);

/// `shard study`: prints the answers, and writes them as a page, as drawings and as CSV.
Result<void> run_questions(const QuestionArguments& arguments, bool json);

}  // namespace perfmodel::cli
