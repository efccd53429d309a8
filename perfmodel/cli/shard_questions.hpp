#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perfmodel/result.hpp"
#include "shard_study.hpp"
#include "terminal/cli11.hpp"

namespace perfmodel::cli {

struct QuestionArguments {
  std::string html, plots, csv;
  std::vector<std::int64_t> worlds;
  std::optional<std::int64_t> global_batch;
  std::optional<double> samples_per_s;
};

void add_question_options(CLI::App& app, QuestionArguments& arguments);

/// `shard study`: ways to shard, types, networks and numbers of GPUs side by side, and how robust
/// the best plan is; what answers the questions of somebody who has to choose a machine.
Result<void> run_questions(const ShardArguments& study, const QuestionArguments& questions);

}  // namespace perfmodel::cli
