#include "shard_questions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/plain_text.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/interrupt_guard.hpp"
#include "json/csv_file.hpp"
#include "plot/bar_plot.hpp"
#include "plot/line_plot.hpp"
#include "plot/svg_document.hpp"
#include "search_watch.hpp"
#include "shard_report.hpp"
#include "sharding/study/plan_words.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

using namespace sharding;

struct Section {
  const char *title, *axis;
  const char* drawing;  ///< name of its file
  const std::vector<StudyAnswer> StudyAnswers::*rows;
};
constexpr Section kSections[] = {
    {"Ways to shard", "way", "ways", &StudyAnswers::ways},
    {"Settings of single tables", "settings", "settings", &StudyAnswers::settings},
    {"Hot rows with a copy on every GPU (hybrid embedding)", "hot rows", "hot_rows",
     &StudyAnswers::hot_rows},
    {"Types of rows", "type", "types", &StudyAnswers::types},
    {"Networks", "network", "networks", &StudyAnswers::networks},
    {"Numbers of GPUs", "GPUs", "worlds", &StudyAnswers::worlds},
    {"The best plan, if bags or skew change", "change", "robustness", &StudyAnswers::robustness}};

std::string study_text(const StudyAnswers& answers, bool bold) {
  std::string text = answers.headline + "\n";
  for (const std::string& note : answers.notes) text += wrapped("note: " + note, "", 2);
  text += "\n";
  for (const std::string& finding : answers.findings) text += wrapped(finding, "- ", 2);
  constexpr std::size_t kWidth = 44;
  for (const Section& section : kSections) {
    const std::vector<StudyAnswer>& rows = answers.*section.rows;
    if (rows.empty()) continue;
    text += fmt::format("\n{}\n", section.title);
    TextTable table{section.axis, "time", "samples", "memory", "<limited by", "<plan"};
    for (const StudyAnswer& row : rows) {
      if (row.fits()) {
        table.row({row.name, time_text(row.us), samples_text(row.samples_per_s),
                   percent_of(row.most_memory, answers.memory_cap, 0), row.limit,
                   shortened(row.plan, kWidth)});
      } else {
        table.row({row.name, "-", "", "", "does not fit", shortened(row.error, kWidth)});
      }
    }
    text += table.text(bold);
  }
  return text;
}

Json study_json(const StudyAnswers& answers) {
  Json json = document(schemas::kShardStudy);
  json["study"] = answers.headline;
  json["notes"] = answers.notes;
  json["findings"] = answers.findings;
  for (const Section& section : kSections) {
    Json list = Json::array();
    for (const StudyAnswer& row : answers.*section.rows) {
      Json item = {{"name", row.name}};
      if (row.fits()) {
        item.update({{"predicted_us", rounded(row.us)},
                     {"samples_per_s", rounded(row.samples_per_s)},
                     {"memory_bytes", rounded(row.most_memory)},
                     {"limited_by", row.limit},
                     {"plan", row.plan}});
      } else {
        item["error"] = row.error;
      }
      if (row.world > 0) item["world"] = row.world;
      if (row.batch > 0) item["batch_per_gpu"] = row.batch;
      list.push_back(std::move(item));
    }
    json[section.axis] = std::move(list);
  }
  return json;
}

std::string study_csv(const StudyAnswers& answers) {
  std::string text =
      "question,name,world,batch_per_gpu,predicted_us,samples_per_s,memory_bytes,limited_by,"
      "error\n";
  for (const Section& section : kSections) {
    for (const StudyAnswer& row : answers.*section.rows) {
      text += fmt::format("{},{},{},{},", section.axis, csv_quoted(row.name),
                          row.world > 0 ? std::to_string(row.world) : "",
                          row.batch > 0 ? std::to_string(row.batch) : "");
      text += row.fits() ? fmt::format("{:.3f},{:.1f},{:.0f},{},\n", row.us, row.samples_per_s,
                                       row.most_memory, row.limit)
                         : fmt::format(",,,,{}\n", csv_quoted(row.error));
    }
  }
  return text;
}

// Bars of time; what does not fit has a bar of no length and says so.
Result<SvgPanel> time_panel(const std::vector<StudyAnswer>& rows) {
  BarPlot plot{.title = "Time per batch",
               .x_label = "time per batch",
               .unit = svg::Unit::kTime,
               .bars = {},
               .groups = {"fits", "does not fit"}};
  for (const StudyAnswer& row : rows) {
    plot.bars.push_back({.name = row.name,
                         .note = row.fits() ? time_text(row.us) : "does not fit",
                         .value = row.fits() ? row.us : 0,
                         .group = row.fits() ? std::size_t{0} : std::size_t{1}});
  }
  return bar_panel(plot);
}

// Samples per second over numbers of GPUs; those that do not fit lie on the axis.
Result<SvgPanel> scale_panel(const std::vector<StudyAnswer>& rows) {
  LinePlot plot{.title = "Samples per second over GPUs",
                .x_label = "GPUs",
                .y_label = "million samples per second"};
  LinePlot::Line good{.name = "best plan"}, bad{.name = "does not fit"};
  for (const StudyAnswer& row : rows) {
    const auto x = static_cast<double>(row.world);
    plot.x_marks.push_back(x);
    if (row.fits()) {
      good.points.emplace_back(x, row.samples_per_s / 1e6);
    } else {
      bad.points.emplace_back(x, 0.0);
    }
  }
  for (LinePlot::Line* line : {&good, &bad}) {
    if (!line->points.empty()) plot.lines.push_back(std::move(*line));
  }
  return line_panel(plot);
}

struct Drawing {
  std::string name, svg;
};

Result<std::vector<Drawing>> drawings(const StudyAnswers& answers) {
  std::vector<Drawing> all;
  const auto add = [&](const std::string& name, const char* title,
                       const Result<SvgPanel>& panel) -> Result<void> {
    if (!panel) return Unexpected{panel.error()};
    auto svg = svg_document(title, "", {*panel}, 1);
    if (!svg) return Unexpected{svg.error()};
    all.push_back({name, std::move(*svg)});
    return {};
  };
  for (const Section& section : kSections) {
    const std::vector<StudyAnswer>& rows = answers.*section.rows;
    if (rows.empty()) continue;
    if (auto good = add(section.drawing, section.title, time_panel(rows)); !good) {
      return Unexpected{good.error()};
    }
  }
  if (auto good = add("scaling", "Scaling", scale_panel(answers.worlds)); !good) {
    return Unexpected{good.error()};
  }
  return all;
}

std::string escaped(std::string_view text) {
  std::string html;
  for (const char c : plain_text(text)) {
    html += c == '<'   ? "&lt;"
            : c == '>' ? "&gt;"
            : c == '&' ? "&amp;"
            : c == '"' ? "&quot;"
                       : std::string(1, c);
  }
  return html;
}

std::string study_html(const StudyAnswers& answers, const std::vector<Drawing>& drawn) {
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>Sharding study</title>\n"
      "<style>\nbody { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 72em; "
      "padding: 0 1em; color: #222; }\ntable { border-collapse: collapse; margin: 0.5em 0 1.5em; "
      "}\n"
      "th, td { text-align: right; padding: 0.2em 0.8em; border-bottom: 1px solid #ddd; }\n"
      "th:first-child, th:nth-last-child(-n+2), td:first-child, td.text { text-align: left; }\n"
      "tr.no td { color: #a33; }\nsvg { max-width: 100%; height: auto; }\n</style>\n</head>\n"
      "<body>\n<h1>Sharding study</h1>\n";
  html += "<p>" + escaped(answers.headline) + "</p>\n<ul>\n";
  for (const std::string& finding : answers.findings) {
    html += "<li>" + escaped(finding) + "</li>\n";
  }
  html += "</ul>\n";
  std::size_t next = 0;
  for (const Section& section : kSections) {
    const std::vector<StudyAnswer>& rows = answers.*section.rows;
    if (rows.empty()) continue;
    html += fmt::format(
        "<h2>{}</h2>\n<table>\n<tr><th>{}</th><th>time per batch</th><th>samples per second</th>"
        "<th>memory of the fullest GPU</th><th>limited by</th><th>plan</th></tr>\n",
        section.title, section.axis);
    for (const StudyAnswer& row : rows) {
      html += row.fits()
                  ? fmt::format(
                        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td "
                        "class=\"text\">{}</td><td class=\"text\">{}</td></tr>\n",
                        escaped(row.name), time_text(row.us), samples_text(row.samples_per_s),
                        percent_of(row.most_memory, answers.memory_cap, 0), escaped(row.limit),
                        escaped(row.plan))
                  : fmt::format(
                        "<tr class=\"no\"><td>{}</td><td>does not fit</td><td></td>"
                        "<td></td><td></td><td class=\"text\">{}</td></tr>\n",
                        escaped(row.name), escaped(row.error));
    }
    html += "</table>\n";
    if (next < drawn.size()) html += drawn[next++].svg + "\n";
  }
  while (next < drawn.size()) html += drawn[next++].svg + "\n";
  if (!answers.notes.empty()) {
    html += "<h2>Notes</h2>\n<ul>\n";
    for (const std::string& note : answers.notes) html += "<li>" + escaped(note) + "</li>\n";
    html += "</ul>\n";
  }
  return html + "</body>\n</html>\n";
}

Result<void> write_drawings(const StudyAnswers& answers, const QuestionArguments& arguments) {
  const auto drawn = drawings(answers);
  if (!drawn) return Unexpected{drawn.error()};
  if (!arguments.html.empty()) {
    if (auto good = write_file(arguments.html, study_html(answers, *drawn)); !good) return good;
  }
  if (arguments.plots.empty()) return {};
  const std::filesystem::path folder = arguments.plots;
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) {
    return fail(ErrorCode::kIo, fmt::format("{}: expected a folder that can be made, found: {}",
                                            folder.string(), failure.message()));
  }
  for (const Drawing& drawing : *drawn) {
    if (auto good = write_file(folder / (drawing.name + ".svg"), drawing.svg); !good) return good;
  }
  return {};
}

}  // namespace

void add_question_options(CommandParser app, QuestionArguments& arguments) {
  app.add_option("--worlds", arguments.worlds,
                 "Numbers of GPUs to compare (default: powers of two up to 4 x --world)")
      .delimiter(',')
      .check(at_least(1))
      .type_name("N,N,...");
  app.add_option("--global-batch", arguments.global_batch,
                 "Samples per batch on all GPUs together, whatever their number")
      .check(at_least(1))
      .type_name("B");
  app.add_option("--samples-per-s", arguments.samples_per_s,
                 "Say how many GPUs it takes for so many samples per second")
      .check(at_least(1))
      .type_name("X");
  app.add_option("--html", arguments.html, "Write the answers as one page").type_name("FILE");
  app.add_option("--plots", arguments.plots,
                 "Write FOLDER/ways.svg, settings.svg, hot_rows.svg, types.svg, networks.svg, "
                 "worlds.svg, robustness.svg and scaling.svg")
      .type_name("FOLDER");
  app.add_option("--csv", arguments.csv, "Write the answers as CSV").type_name("FILE");
}

Result<void> run_questions(const QuestionArguments& arguments, bool json) {
  const InterruptGuard guard;
  const auto answers = study_answers(arguments, terminal_watch());
  if (!answers) return Unexpected{answers.error()};
  clear_progress();
  if (!arguments.html.empty() || !arguments.plots.empty()) {
    if (auto drawn = write_drawings(*answers, arguments); !drawn) return drawn;
  }
  if (!arguments.csv.empty()) {
    if (auto good = write_file(arguments.csv, study_csv(*answers)); !good) return good;
  }
  if (json) return print_document(study_json(*answers));
  return print_report(study_text(*answers, bold_allowed()));
}

}  // namespace perfmodel::cli
