#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "analyze/analyzed_inputs.hpp"
#include "base/anonymize.hpp"
#include "report/report_run.hpp"
#include "report/step_account.hpp"

namespace perfmodel::report_page {

struct ReportQuestion {
  std::vector<std::string> files;  ///< recordings, graphs and documents of commands
  std::string against;             ///< a trace of the same program; empty: none
  std::string compare;             ///< another run of any kind; empty: none
  std::string title;               ///< empty: made from the names of files and GPU
  std::size_t slices = 20'000;     ///< most that the timelines draw
};

/// Content of the page. Runs point into the rest.
struct ReportContent {
  std::deque<AnalyzedInputs> sets;  ///< the inputs; the trace to compare with
  std::deque<Findings> findings;
  std::vector<std::unique_ptr<const findings::Rescheduler>> steps;
  std::vector<Run> runs;
  std::vector<StepAccount> accounts;  ///< one per run and list of kernels
  std::vector<std::string> warnings;
  Json documents = Json::array();
};

/// Adds a run per rank of the inputs, which the question's files gave. Fails if an analysis or a
/// prediction fails.
Result<void> add_runs(AnalyzedInputs inputs, const AnalyzeQuestion& question,
                      Anonymizer* anonymizer, ReportContent& content);

/// Tells the two accounts, and the two runs, apart by name: what is predicted and what is measured
/// with `against`, GPUs if both have one name.
void name_compared(const ReportQuestion& question, ReportContent& content);

/// "mlp.json on NVIDIA A100-SXM4-40GB against mlp.pt.trace.json", unless the question has a title.
std::string title_of(const ReportQuestion& question, const ReportContent& content);

/// The page's document without its head. `recording`: findings of the checks of traces, or null.
Json page_data(const ReportQuestion& question, const ReportContent& content,
               const std::string& title, Json recording);

/// The document with pseudonyms: files of other commands contain names, too.
Json anonymous_json(const Json& value, Anonymizer& anonymizer);

}  // namespace perfmodel::report_page
