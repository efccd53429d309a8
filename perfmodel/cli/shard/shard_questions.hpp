#pragma once

#include <string>

#include "perfmodel/result.hpp"
#include "sharding/study/study_questions.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

struct QuestionArguments : sharding::StudyQuestion {
  std::string html, plots, csv;
};

void add_question_options(CommandParser app, QuestionArguments& arguments);

/// `shard study`: prints the answers, and writes them as a page, as drawings and as CSV.
Result<void> run_questions(const QuestionArguments& arguments, bool json);

}  // namespace perfmodel::cli
