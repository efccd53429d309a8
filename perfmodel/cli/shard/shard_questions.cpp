#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/shared/arguments.hpp"
#include "cli/shared/interrupt_guard.hpp"
#include "cli/shared/write_asked.hpp"
#include "report/shard_pictures.hpp"
#include "search_watch.hpp"
#include "shard_arguments.hpp"
#include "sharding/study/shard_results.hpp"
#include "sharding/study/write_plan.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

using namespace sharding;

std::string study_text(const StudyAnswers& answers, bool bold) {
  std::string text = answers.headline + "\n";
  for (const std::string& note : answers.notes) text += wrapped("note: " + note, "", 2);
  text += "\n";
  for (const std::string& finding : answers.findings) text += wrapped(finding, "- ", 2);
  constexpr std::size_t kWidth = 44;
  for (const StudySection& section : kStudySections) {
    const std::vector<StudyAnswer>& rows = answers.*section.rows;
    if (rows.empty()) continue;
    text += fmt::format("\n{}\n", section.title);
    TextTable table{section.axis, "time", "samples", "memory", "<limited by", "<plan"};
    for (const StudyAnswer& row : rows) {
      std::vector<std::string> cells = {row.name, "-", "", "", "does not fit", row.error};
      if (row.fits()) cells = answer_cells(row, answers.memory_cap);
      cells.back() = shortened(cells.back(), kWidth);
      table.row(std::move(cells));
    }
    text += table.text(bold);
  }
  return text;
}

Result<void> write_drawings(const StudyAnswers& answers, const QuestionArguments& arguments) {
  PERFMODEL_TRY(drawings, report_page::study_drawings(answers));
  auto good =
      write_asked(arguments.html, [&] { return report_page::study_html(answers, *drawings); });
  if (!good) return good;
  if (arguments.plots.empty()) return {};
  const std::filesystem::path folder = arguments.plots;
  if (good = make_folder(folder); !good) return good;
  for (const report_page::StudyDrawing& drawing : *drawings) {
    if (good = write_file(folder / (drawing.name + ".svg"), drawing.svg); !good) return good;
  }
  return {};
}

}  // namespace

void add_question_options(CommandParser app, QuestionArguments& arguments) {
  app.add_option("--worlds N,N,...", arguments.worlds,
                 "Numbers of GPUs to compare (default: powers of two up to 4 x --world)")
      .check(at_least(1));
  app.add_option("--global-batch B", arguments.global_batch,
                 "Samples per batch on all GPUs together, whatever their number")
      .check(at_least(1));
  app.add_option("--samples-per-s X", arguments.samples_per_s,
                 "Say how many GPUs it takes for so many samples per second")
      .check(at_least(1));
  app.add_option("--html FILE", arguments.html, "Write the answers as one page");
  app.add_option("--plots FOLDER", arguments.plots,
                 "Write FOLDER/ways.svg, settings.svg, hot_rows.svg, types.svg, networks.svg, "
                 "worlds.svg, robustness.svg and scaling.svg");
  app.add_option("--csv FILE", arguments.csv, "Write the answers as CSV");
}

Result<void> run_questions(const QuestionArguments& arguments, bool json) {
  const InterruptGuard guard;
  PERFMODEL_TRY(answers, study_answers(arguments, terminal_watch()));
  clear_progress();
  if (!arguments.html.empty() || !arguments.plots.empty()) {
    PERFMODEL_TRY_TO(write_drawings(*answers, arguments));
  }
  PERFMODEL_TRY_TO(write_asked(arguments.csv, [&] { return study_csv(*answers); }));
  if (json) {
    Json document = cli::document(schemas::kShardStudy);
    document.update(study_json(*answers));
    return print_document(std::move(document));
  }
  return print_report(study_text(*answers, bold_allowed()));
}

}  // namespace perfmodel::cli
