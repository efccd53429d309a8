#include <fmt/format.h>
#include <fmt/ranges.h>

#include <deque>
#include <memory>
#include <set>

#include "analyze/predicted_step.hpp"
#include "analyze/trace_step.hpp"
#include "analyzed_inputs.hpp"
#include "cli/shared/command.hpp"
#include "perfmodel/detail/measured_memory.hpp"
#include "perfmodel/memory.hpp"
#include "perfmodel/version.hpp"
#include "report/report_document.hpp"
#include "report/report_exports.hpp"
#include "report/report_run.hpp"
#include "report/step_picture.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

struct ReportArguments {
  AnalyzedArguments inputs;
  std::string output, against, speedscope, timeline, csv, picture, title;
  std::size_t slices = 20'000;
};

// What the page is made of. Runs point into the rest.
struct ReportInputs {
  std::deque<AnalyzedInputs> sets;  // of the inputs; of the trace to compare with
  std::deque<Findings> findings;
  std::vector<std::unique_ptr<findings::TraceStep>> recorded;
  std::vector<std::unique_ptr<findings::PredictedStep>> predicted;
  std::vector<report_page::Run> runs;
  std::vector<std::string> warnings;
};

std::string rank_name(const std::string& file, std::int64_t rank, std::size_t ranks) {
  return ranks > 1 && rank >= 0 ? fmt::format("rank {}", rank) : file_name(file);
}

Result<void> add_path(const findings::Rescheduler& schedule, report_page::Run& run) {
  auto path = schedule.critical_path();
  if (!path) return Unexpected{path.error()};
  run.path = std::move(*path);
  return {};
}

Result<void> add_recorded(const AnalyzedInputs& set, const AnalyzedArguments& arguments,
                          ReportInputs& inputs) {
  const Gpu* gpu = set.gpu ? &*set.gpu : nullptr;
  auto found = analyze(set.traces, gpu, {.iterations = arguments.iterations});
  if (!found) return Unexpected{found.error()};
  inputs.findings.push_back(std::move(*found));
  for (std::size_t i = 0; i < set.traces.size(); ++i) {
    const Trace& trace = set.traces[i];
    auto step = findings::TraceStep::create(trace, gpu, arguments.iterations);
    if (!step) return Unexpected{step.error()};
    report_page::Run run{.name = rank_name(trace.source, trace.rank, set.traces.size()),
                         .facts = &(*step)->facts(),
                         .found = i == 0 ? &inputs.findings.back() : nullptr,
                         .gpu = gpu,
                         .step_us = (*step)->measured_us()};
    if (auto done = add_path(**step, run); !done) return done;
    for (MeasuredMemory& memory : measured_memory(trace)) {
      if (memory.on_host || run.measured_memory) continue;
      run.measured_memory = std::move(memory);
    }
    inputs.recorded.push_back(std::move(*step));
    inputs.runs.push_back(std::move(run));
  }
  return {};
}

Result<void> add_predicted(const AnalyzedInputs& set, const AnalyzedArguments& arguments,
                           ReportInputs& inputs) {
  const std::vector<RankInput> ranks = set.rank_inputs();
  auto found = analyze(ranks, *set.gpu);
  if (!found) return Unexpected{found.error()};
  inputs.findings.push_back(std::move(*found));
  if (ranks.size() > 1) {
    inputs.warnings.push_back(
        "each rank is drawn by itself, without waiting for the others (`predict` of all of them "
        "tells the step of the job)");
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    auto step = findings::PredictedStep::create(ranks[i], *set.gpu);
    if (!step) return Unexpected{step.error()};
    const auto step_us = (*step)->step_us({});
    if (!step_us) return Unexpected{step_us.error()};
    const auto alone = predict_job(std::span(&ranks[i], 1), *set.gpu);
    if (!alone) return Unexpected{alone.error()};
    const Prediction& prediction = alone->ranks[0];
    report_page::Run run{
        .name = rank_name(arguments.files[i], static_cast<std::int64_t>(i), ranks.size()),
        .facts = &(*step)->facts(),
        .found = i == 0 ? &inputs.findings.back() : nullptr,
        .gpu = &*set.gpu,
        .step_us = *step_us};
    if (arguments.anonymizer) arguments.anonymizer->replace(run.name);
    run.more_facts.emplace_back("in nine of ten cases",
                                fmt::format("{:.3f} to {:.3f} ms", prediction.e2e_low_us / 1000,
                                            prediction.e2e_high_us / 1000));
    run.more_facts.emplace_back(
        "of the time has a model",
        fmt::format("{:.1f} %", 100 * prediction.coverage.modelled_time_fraction));
    if (auto done = add_path(**step, run); !done) return done;
    if (!set.ranks[i]->program.trace) {
      run.memory = memory_report(*ranks[i].graph, &*set.gpu, {.curve = true});
    }
    inputs.predicted.push_back(std::move(*step));
    inputs.runs.push_back(std::move(run));
  }
  return {};
}

Result<void> add_runs(const AnalyzedArguments& arguments, ReportInputs& inputs) {
  auto set = load_analyzed(arguments);
  if (!set) return Unexpected{set.error()};
  inputs.sets.push_back(std::move(*set));
  const AnalyzedInputs& own = inputs.sets.back();
  inputs.warnings.insert(inputs.warnings.end(), own.warnings.begin(), own.warnings.end());
  auto done =
      own.recorded ? add_recorded(own, arguments, inputs) : add_predicted(own, arguments, inputs);
  if (!done) return done;
  for (const auto& rank : own.ranks) {
    if (auto readable = rank->chosen.check(); !readable) return readable;
  }
  return {};
}

Result<void> write_exports(const ReportArguments& arguments, const std::string& title,
                           const ReportInputs& inputs) {
  if (!arguments.speedscope.empty()) {
    const auto data = report_page::speedscope_data(title, inputs.runs);
    auto written = write_file(arguments.speedscope, to_text(data));
    if (!written) return written;
  }
  if (!arguments.timeline.empty()) {
    auto written = report_page::write_chrome_trace(inputs.runs, arguments.timeline);
    if (!written) return written;
  }
  if (!arguments.picture.empty() && !inputs.runs.empty()) {
    auto picture = report_page::step_picture(title, inputs.runs.front());
    if (!picture) return Unexpected{picture.error()};
    if (auto written = write_file(arguments.picture, *picture); !written) return written;
  }
  if (!arguments.csv.empty())
    return write_file(arguments.csv, report_page::kernels_csv(inputs.runs));
  return {};
}

std::string title_of(const ReportArguments& arguments, const ReportInputs& inputs) {
  if (!arguments.title.empty()) return arguments.title;
  std::vector<std::string> names;
  for (const std::string& file : arguments.inputs.files) names.push_back(file_name(file));
  std::string title = names.size() > 2 ? fmt::format("{} and {} more", names[0], names.size() - 1)
                                       : fmt::format("{}", fmt::join(names, " and "));
  if (!inputs.sets.empty() && inputs.sets.front().gpu) {
    title += " on " + inputs.sets.front().gpu->title;
  }
  if (!arguments.against.empty()) title += " against " + file_name(arguments.against);
  return title;
}

// What other commands wrote has names, too.
Json anonymous_json(const Json& value, Anonymizer& anonymizer) {
  if (value.is_string()) return anonymizer.replaced(value.get_ref<const std::string&>());
  if (!value.is_structured()) return value;
  Json made = value.is_object() ? Json::object() : Json::array();
  for (const auto& [key, item] : value.items()) {
    Json replaced = anonymous_json(item, anonymizer);
    if (value.is_array()) {
      made.push_back(std::move(replaced));
    } else {
      made[anonymizer.replaced(key)] = std::move(replaced);
    }
  }
  return made;
}

Result<void> run_report(const ReportArguments& arguments) {
  ReportInputs inputs;
  AnalyzedArguments runs = arguments.inputs;
  runs.files.clear();
  Json documents = Json::array();
  for (const std::string& file : arguments.inputs.files) {
    if (!report_page::is_document(file)) {
      runs.files.push_back(file);
      continue;
    }
    auto data = report_page::document_data(file);
    if (!data) return Unexpected{data.error()};
    documents.push_back(std::move(*data));
  }
  if (!runs.files.empty()) {
    if (auto done = add_runs(runs, inputs); !done) return done;
  }
  if (!arguments.against.empty()) {
    if (inputs.runs.size() != 1) {
      return Unexpected{Error{.code = ErrorCode::kImpossible,
                              .message = fmt::format("expected one run to compare with --against, "
                                                     "found {}",
                                                     inputs.runs.size()),
                              .file = arguments.against}};
    }
    AnalyzedArguments measured{
        .files = {arguments.against}, .reading = runs.reading, .anonymizer = runs.anonymizer};
    if (auto done = add_runs(measured, inputs); !done) return done;
    inputs.runs.front().name = "predicted";
    inputs.runs.back().name = "measured";
  }
  report_page::Names names;
  std::vector<std::string> files;
  for (const std::string& file : arguments.inputs.files) files.push_back(file_name(file));
  if (!arguments.against.empty()) files.push_back(file_name(arguments.against));
  std::string title = title_of(arguments, inputs);
  Json data = document(schemas::kReport);
  data["program"] = "perfpredict " + build_text();
  data["title"] = title;
  data["inputs"] = files;
  data["relation"] = arguments.against.empty() ? "beside" : "against";
  data["warnings"] = inputs.warnings;
  if (Json recording = recordings_json(); !recording.is_null()) {
    data["recording"] = std::move(recording);
  }
  data["runs"] = Json::array();
  for (const report_page::Run& run : inputs.runs) {
    data["runs"].push_back(report_page::run_data(
        run, std::max<std::size_t>(1, arguments.slices / inputs.runs.size()), names));
  }
  data["documents"] = std::move(documents);
  data["names"] = names.all();
  if (runs.anonymizer) {
    data = anonymous_json(data, *runs.anonymizer);
    runs.anonymizer->replace(title);
  }
  if (auto done = write_exports(arguments, title, inputs); !done) return done;
  if (auto done = write_file(arguments.output, report_page::report_page(title, data)); !done)
    return done;
  return print(arguments.output + "\n");
}

void check_report_arguments(const ReportArguments& arguments) {
  if (!arguments.output.ends_with(".html")) {
    bad_usage("-o", "expected a file name that ends in .html, found " + arguments.output);
  }
}

}  // namespace

Command report_command(CommandParser parent) {
  auto arguments = std::make_shared<ReportArguments>();
  CommandParser app =
      parent.add_subcommand("report", "One page to look at: a self-contained HTML file");
  app.add_option(
         "INPUT", arguments->inputs.files,
         "Kineto traces as recorded, or execution graphs to be predicted (several are ranks "
         "of one job), and documents that commands print with --json: whatif, shard, "
         "layout, memory, optimize and others")
      .type_name("")
      .required();
  app.add_option("-o,--output", arguments->output, "The page: FILE.html")
      .required()
      .type_name("FILE");
  app.add_option("--against", arguments->against,
                 "A trace of the same program beside the prediction, with their differences")
      .type_name("TRACE");
  app.add_option("--title", arguments->title, "Headline of the page").type_name("TEXT");
  app.add_option("--slices", arguments->slices,
                 "Ops and kernels that the timeline draws at most, the longest of each; sums count "
                 "all")
      .check(at_least(1))
      .capture_default_str()
      .type_name("N");
  app.add_option("--speedscope", arguments->speedscope, "Also as a profile for speedscope.app")
      .type_name("FILE.json");
  app.add_option("--timeline", arguments->timeline,
                 "Also as a Chrome trace for ui.perfetto.dev (.json or .json.gz)")
      .type_name("FILE");
  app.add_option("--csv", arguments->csv, "Also all kernels as a table").type_name("FILE.csv");
  app.add_option("--picture", arguments->picture, "Also the first run's step as a small picture")
      .type_name("FILE.svg");
  add_analyzed(app, arguments->inputs);
  app.callback([arguments] { check_report_arguments(*arguments); });
  return {app, [arguments] { return run_report(*arguments); }};
}

}  // namespace perfmodel::cli
