#include "shard_questions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <set>

#include "arguments.hpp"
#include "base/plain_text.hpp"
#include "base/secrets.hpp"
#include "interrupt_guard.hpp"
#include "plot/bar_plot.hpp"
#include "plot/line_plot.hpp"
#include "plot/svg_document.hpp"
#include "shard_plans.hpp"
#include "terminal/cli11.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

using namespace sharding;

/// One question and its answer: the best plan where something is different.
struct Answered {
  std::string name;
  std::string error;  ///< why nothing fits; empty: `us` and the rest hold
  double us = 0, samples_per_s = 0, most_memory = 0;
  std::string limit, types;
  std::int64_t world = 0, batch = 0;
  bool fits() const { return error.empty(); }
};

struct StudyAnswers {
  std::string headline;
  std::vector<std::string> notes, findings;
  std::vector<Answered> ways, settings, hot, types, networks, worlds, robust;
  double memory_cap = 0;
};

std::string short_types(const ReportedPlan& plan) {
  std::string text;
  for (const std::string_view name :
       {"table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise",
        "grid_shard", "row_split", "host_row_split", "data_parallel"}) {
    const auto type = sharding_type(name);
    const auto count = std::ranges::count(plan.placements, *type, &TablePlacement::type);
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name);
  }
  const auto cached =
      std::ranges::count(plan.placements, ComputeKernel::kFusedUvmCaching, &TablePlacement::kernel);
  if (cached > 0) text += fmt::format(", {} cached", cached);
  if (const std::string chosen = chosen_settings(plan); !chosen.empty()) text += "; " + chosen;
  return text;
}

bool is_host_bound(const ReportedPlan& plan) {
  return plan.time->host_us >= plan.time->predicted_us;
}

void take(const LoadedStudy& loaded, const ReportedPlan& plan, Answered& answer) {
  answer.us = plan.time->predicted_us;
  answer.samples_per_s =
      static_cast<double>(*loaded.study.world * *loaded.study.batch_per_rank) / answer.us * 1e6;
  for (const BatchRank& rank : plan.time->ranks) {
    answer.most_memory = std::max(answer.most_memory, rank.memory.total());
  }
  answer.limit = is_host_bound(plan) ? "the host" : to_string(plan.advice->bottleneck);
  answer.types = short_types(plan);
}

class Questions {
 public:
  Questions(const ShardArguments& study, const QuestionArguments& questions)
      : base_(study), questions_(questions) {}

  Result<StudyAnswers> run() {
    if (base_.costs != "calibrated") {
      return fail(ErrorCode::kImpossible,
                  "shard study: expected --costs calibrated, as ratings are no times, found " +
                      base_.costs);
    }
    if (questions_.global_batch) {
      if (auto good = set_batch(base_, base_.world); !good) return Unexpected{good.error()};
    }
    auto loaded = load_study(base_);
    if (!loaded) return Unexpected{loaded.error()};
    base_loaded_ = std::move(*loaded);
    base_.world = base_loaded_.study.world;
    // Every search gets its part of the budget.
    constexpr double kSearches = 12;
    base_.time_budget_s = std::max(0.2, base_.time_budget_s / kSearches);
    if (auto good = the_plan(); !good) return Unexpected{good.error()};
    ways();
    settings();
    hot_rows();
    types();
    networks();
    worlds();
    if (refused_ && !fits_somewhere()) return Unexpected{*refused_};
    if (auto good = robustness(); !good) return Unexpected{good.error()};
    if (progress_shown()) fmt::print(stderr, "\r{:79}\r", "");
    find();
    return std::move(answers_);
  }

 private:
  using Change = std::function<void(ShardArguments&)>;

  // Batch per GPU of a given one for all.
  Result<void> set_batch(ShardArguments& arguments, std::optional<std::int64_t> world) const {
    if (!questions_.global_batch) return {};
    if (!world) {
      return fail(ErrorCode::kImpossible,
                  "--global-batch: expected a number of GPUs (--world) beside it, found none");
    }
    if (*questions_.global_batch % *world != 0) {
      return fail(ErrorCode::kImpossible,
                  fmt::format("--global-batch: expected a multiple of {} GPUs, found {}", *world,
                              *questions_.global_batch));
    }
    arguments.batch = *questions_.global_batch / *world;
    return {};
  }

  Answered ask(const std::string& name, const Change& change) {
    if (progress_shown()) fmt::print(stderr, "\r{:<78.78}", "study: " + name);
    ShardArguments arguments = base_;
    change(arguments);
    Answered answer{.name = name};
    answer.world = arguments.world.value_or(0);
    const auto loaded = load_study(arguments);
    if (!loaded) {
      answer.error = shown_text(loaded.error().message, kLongestMessage);
      return answer;
    }
    answer.world = *loaded->study.world;
    answer.batch = *loaded->study.batch_per_rank;
    const auto report = search_for_plans(*loaded, arguments, 1);
    if (!report) {
      answer.error = shown_text(report.error().message, kLongestMessage);
      return answer;
    }
    take(*loaded, report->plans.front(), answer);
    return answer;
  }

  bool fits_somewhere() const {
    const auto any = [](const std::vector<Answered>& rows) {
      return std::ranges::any_of(rows, &Answered::fits);
    };
    return any(answers_.ways) || any(answers_.types) || any(answers_.networks) ||
           any(answers_.worlds);
  }

  Result<void> the_plan() {
    auto report = search_for_plans(base_loaded_, base_, 1);
    if (!report) {
      // Other ways, types and numbers of GPUs may fit.
      refused_ = report.error();
      answers_.findings.push_back("As it stands nothing fits: " + report.error().message);
    } else {
      best_ = report->plans.front();
      answers_.notes = report->warnings;
    }
    answers_.memory_cap = base_loaded_.gpu.dram_gb * 1e9;
    const ShardingStudy& study = base_loaded_.study;
    double bytes = 0;
    for (const ShardedTable& table : study.tables) {
      bytes +=
          static_cast<double>(table.rows) * static_cast<double>(table.dim) * table.element_bytes;
    }
    answers_.headline = fmt::format("{}: {} tables, {}, on {} x {} ({}), {} samples per GPU",
                                    plain_text(study.name.empty() ? base_loaded_.file : study.name),
                                    study.tables.size(), bytes_text(bytes), *study.world,
                                    plain_text(base_loaded_.gpu.name),
                                    plain_text(base_loaded_.topology.name), *study.batch_per_rank);
    answers_.notes.insert(answers_.notes.begin(), base_loaded_.warnings.begin(),
                          base_loaded_.warnings.end());
    return {};
  }

  void ways() {
    const auto with = [&](const std::string& name, std::vector<std::string> types,
                          std::vector<std::string> kernels = {}, bool deduplicate = false) {
      answers_.ways.push_back(ask(name, [&](ShardArguments& a) {
        if (!types.empty()) a.types = types;
        if (!kernels.empty()) a.kernels = kernels;
        a.deduplicate = a.deduplicate || deduplicate;
      }));
    };
    with("table-wise", {"table_wise"});
    with("column-wise", {"column_wise", "table_wise"});
    with("row-wise", {"row_wise"});
    with("mixed", {});
    with("mixed, with caches of rows in host memory", {}, {"fused", "fused_uvm_caching", "dense"});
    with("mixed, distinct ids exchanged", {}, {}, true);
  }

  // What choosing each setting by itself gains.
  void settings() {
    const SearchedSettings& may = base_loaded_.study.searched;
    const auto with = [&](const std::string& name, std::vector<std::string> choose) {
      answers_.settings.push_back(
          ask(name, [&](ShardArguments& a) { a.choose = std::move(choose); }));
    };
    std::vector<std::pair<std::string, std::string>> open;
    if (may.deduplication) open.emplace_back("distinct ids where they gain", "deduplication");
    if (may.cache_share && has_caches()) open.emplace_back("shares of rows in caches", "cache");
    if (may.wire) open.emplace_back("2-byte wire where it gains", "wire");
    if (open.empty()) return;
    with("tables as they say", {"none"});
    std::vector<std::string> all;
    for (const auto& [name, choose] : open) {
      with(name, {choose});
      all.push_back(choose);
    }
    if (open.size() > 1) with("all of these", all);
  }

  bool has_caches() const {
    return std::ranges::any_of(base_loaded_.study.tables, [](const ShardedTable& table) {
      const auto& kernels = table.rules.kernels;
      return std::ranges::find(kernels, ComputeKernel::kFusedUvmCaching) != kernels.end();
    });
  }

  // Hybrid embedding: where some rows are read more often than others.
  void hot_rows() {
    const auto is_skewed = [](const ShardedTable& table) { return table.skew.exponent > 0; };
    if (std::ranges::none_of(base_loaded_.study.tables, is_skewed) || *base_.world == 1) return;
    for (const char* rows : {"0", "1000", "100000", "auto"}) {
      const std::string text = rows;
      const std::string name = text == "0"      ? "none"
                               : text == "auto" ? "as many for each table as gain"
                                                : text + " of each table";
      answers_.hot.push_back(ask(name, [&](ShardArguments& a) { a.hot_rows = rows; }));
    }
  }

  void types() {
    struct Types {
      const char *name, *rows, *wire;
    };
    for (const Types& types :
         {Types{"fp32", "float32", "float32"},
          Types{"fp32, bf16 on the wire", "float32", "bfloat16"},
          Types{"bf16", "bfloat16", "bfloat16"}, Types{"fp16", "float16", "float16"},
          Types{"int8, fp16 on the wire", "int8", "float16"}}) {
      answers_.types.push_back(ask(types.name, [&](ShardArguments& a) {
        a.dtype = types.rows;
        a.wire_dtype = types.wire;
      }));
    }
  }

  void networks() {
    answers_.networks.push_back(ask("as given", [](ShardArguments&) {}));
    for (const double scale : {0.5, 2.0}) {
      answers_.networks.push_back(
          ask(scale < 1 ? "half the bandwidth of all links" : "twice the bandwidth of all links",
              [&](ShardArguments& a) { a.link_scale = scale * a.link_scale.value_or(1); }));
    }
    answers_.networks.push_back(
        ask("NVLink (or PCIe) twice as fast", [](ShardArguments& a) { a.nvlink_scale = 2; }));
    if (base_loaded_.topology.nic) {
      answers_.networks.push_back(
          ask("NICs twice as fast", [](ShardArguments& a) { a.nic_scale = 2; }));
      answers_.networks.push_back(
          ask("NICs half as fast", [](ShardArguments& a) { a.nic_scale = 0.5; }));
    }
  }

  std::vector<std::int64_t> asked_worlds() const {
    if (!questions_.worlds.empty()) return questions_.worlds;
    const std::int64_t most =
        base_loaded_.topology.nic
            ? std::max<std::int64_t>(4 * *base_.world, base_loaded_.topology.gpus_per_node)
            : base_loaded_.topology.gpus_per_node;
    std::set<std::int64_t> worlds = {*base_.world};
    for (std::int64_t world = 1; world <= most; world *= 2) worlds.insert(world);
    return {worlds.begin(), worlds.end()};
  }

  void worlds() {
    for (const std::int64_t world : asked_worlds()) {
      const std::string name = fmt::format("{} GPUs", world);
      ShardArguments changed = base_;
      if (const auto good = set_batch(changed, world); !good) {
        answers_.worlds.push_back({.name = name, .error = good.error().message, .world = world});
        continue;
      }
      answers_.worlds.push_back(ask(name, [&](ShardArguments& a) {
        a.world = world;
        a.batch = changed.batch;
        if (a.local_world) a.local_world = std::min(*a.local_world, world);
      }));
    }
  }

  // The best plan as it is, where bags and skew turn out otherwise, beside the best for that.
  Result<void> robustness() {
    if (!best_) return {};
    const auto zipf = [&](double by) {
      return [by, this](ShardArguments& a) {
        const double now = a.zipf.value_or(base_loaded_.study.tables.front().skew.exponent);
        a.zipf = std::max(0.0, now + by);
      };
    };
    for (const auto& [name, change] :
         {std::pair<std::string, Change>{"as given", [](ShardArguments&) {}},
          {"20 % fewer ids per bag", [](ShardArguments& a) { a.pooling_scale = 0.8; }},
          {"20 % more ids per bag", [](ShardArguments& a) { a.pooling_scale = 1.2; }},
          {"more skew (Zipf + 0.2)", zipf(0.2)},
          {"less skew (Zipf - 0.2)", zipf(-0.2)}}) {
      ShardArguments arguments = base_;
      change(arguments);
      const auto loaded = load_study(arguments);
      if (!loaded) return Unexpected{loaded.error()};
      const auto kept = price_plans(*loaded, arguments, {{"kept", best_->placements}});
      if (!kept) return Unexpected{kept.error()};
      Answered answer{.name = name};
      take(*loaded, kept->plans.front(), answer);
      const Answered best = ask(name, change);
      if (!kept->plans.front().time->ranks_over_memory.empty()) {
        answer.error = "the plan does not fit any more";
      } else if (best.fits() && best.us < answer.us) {
        answer.types =
            fmt::format("the best plan for it: {:.1f} % faster", 100 * (answer.us / best.us - 1));
      } else {
        answer.types = "none is faster";
      }
      answers_.robust.push_back(std::move(answer));
    }
    return {};
  }

  static const Answered* fastest(const std::vector<Answered>& rows) {
    const Answered* best = nullptr;
    for (const Answered& row : rows) {
      if (row.fits() && (best == nullptr || row.us < best->us)) best = &row;
    }
    return best;
  }

  void find() {
    std::vector<std::string>& say = answers_.findings;
    if (best_) {
      const PlanAdvice& advice = *best_->advice;
      std::string text = fmt::format("The best plan takes {} per batch; {} limits it",
                                     time_text(best_->time->predicted_us),
                                     is_host_bound(*best_) ? "the host, which launches op by op,"
                                                           : to_string(advice.bottleneck));
      if (advice.table && !is_host_bound(*best_)) {
        text += fmt::format(", {:.0f} % of it on GPU {} for table {}", 100 * advice.table_share,
                            advice.rank, plain_text(base_loaded_.study.tables[*advice.table].name));
      }
      say.push_back(text + ".");
      if (!advice.fix.empty()) {
        say.push_back(fmt::format("What would help most: {} (-{}).", advice.fix,
                                  time_text(advice.fix_gain_us)));
      }
    }
    if (const Answered* best = fastest(answers_.ways)) {
      say.push_back(fmt::format("Of the ways to shard, {} is the fastest: {}.", best->name,
                                time_text(best->us)));
    }
    if (const Answered* best = fastest(answers_.settings)) {
      const Answered& plain = answers_.settings.front();
      if (plain.fits() && best != &plain) {
        say.push_back(fmt::format("Settings chosen for single tables: {:+.1f} % time ({}).",
                                  100 * (best->us / plain.us - 1), best->name));
      }
    }
    if (const Answered* best = fastest(answers_.hot)) {
      const Answered& none = answers_.hot.front();
      say.push_back(best == &none || !none.fits()
                        ? fmt::format("Hot rows with copies: {}.",
                                      best == &none ? "none gain" : best->name + " fit")
                        : fmt::format("Hot rows with copies: {}, {:+.1f} % time.", best->name,
                                      100 * (best->us / none.us - 1)));
    }
    const auto fewest = std::ranges::find_if(answers_.worlds, &Answered::fits);
    if (fewest != answers_.worlds.end()) {
      say.push_back(fmt::format("The fewest GPUs whose memory is enough: {}.", fewest->world));
    } else {
      say.emplace_back("On none of the numbers of GPUs asked for do the tables fit.");
    }
    if (questions_.samples_per_s) {
      const auto enough = std::ranges::find_if(answers_.worlds, [&](const Answered& row) {
        return row.fits() && row.samples_per_s >= *questions_.samples_per_s;
      });
      const std::string wanted = samples_text(*questions_.samples_per_s);
      say.push_back(enough == answers_.worlds.end()
                        ? fmt::format("None of the numbers of GPUs asked for reaches {}.", wanted)
                        : fmt::format("The fewest GPUs for {}: {}.", wanted, enough->world));
    }
    if (questions_.global_batch) {
      if (const Answered* best = fastest(answers_.worlds)) {
        say.push_back(fmt::format("With {} samples in all, {} are the fastest: {}.",
                                  *questions_.global_batch, best->name, time_text(best->us)));
      }
    }
    if (answers_.networks.size() > 1 && answers_.networks.front().fits()) {
      const Answered& given = answers_.networks.front();
      for (std::size_t i = 1; i < answers_.networks.size(); ++i) {
        const Answered& other = answers_.networks[i];
        if (!other.fits()) continue;
        say.push_back(
            fmt::format("With {}: {:+.1f} % time.", other.name, 100 * (other.us / given.us - 1)));
      }
    }
  }

  ShardArguments base_;
  const QuestionArguments& questions_;
  LoadedStudy base_loaded_;
  std::optional<ReportedPlan> best_;
  StudyAnswers answers_;
  std::optional<Error> refused_;  // why the study as given has no plan
};

// ---- out ----------------------------------------------------------------------------------------

struct Section {
  const char* title;
  const char* axis;
  const std::vector<Answered> StudyAnswers::*rows;
};
constexpr Section kSections[] = {
    {"Ways to shard", "way", &StudyAnswers::ways},
    {"Settings of single tables", "settings", &StudyAnswers::settings},
    {"Hot rows with a copy on every GPU (hybrid embedding)", "hot rows", &StudyAnswers::hot},
    {"Types of rows", "type", &StudyAnswers::types},
    {"Networks", "network", &StudyAnswers::networks},
    {"Numbers of GPUs", "GPUs", &StudyAnswers::worlds},
    {"The best plan, if bags or skew change", "change", &StudyAnswers::robust}};

std::string study_text(const StudyAnswers& answers, bool bold) {
  std::string text = answers.headline + "\n";
  for (const std::string& note : answers.notes) text += wrapped("note: " + note, "", 2);
  text += "\n";
  for (const std::string& finding : answers.findings) text += wrapped(finding, "- ", 2);
  constexpr std::size_t kWidth = 44;
  for (const Section& section : kSections) {
    const std::vector<Answered>& rows = answers.*section.rows;
    if (rows.empty()) continue;
    text += fmt::format("\n{}\n", section.title);
    TextTable table{section.axis, "time", "samples", "memory", "<limited by", "<plan"};
    for (const Answered& row : rows) {
      if (row.fits()) {
        table.row({row.name, time_text(row.us), samples_text(row.samples_per_s),
                   percent_of(row.most_memory, answers.memory_cap, 0), row.limit,
                   shortened(row.types, kWidth)});
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
    for (const Answered& row : answers.*section.rows) {
      Json item = {{"name", row.name}};
      if (row.fits()) {
        item.update({{"predicted_us", rounded(row.us)},
                     {"samples_per_s", rounded(row.samples_per_s)},
                     {"memory_bytes", rounded(row.most_memory)},
                     {"limited_by", row.limit},
                     {"plan", row.types}});
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

std::string csv_cell(const std::string& text) {
  std::string cell = "\"";
  for (const char c : text) cell += c == '"' ? "\"\"" : std::string(1, c);
  return cell + "\"";
}

std::string study_csv(const StudyAnswers& answers) {
  std::string text =
      "question,name,world,batch_per_gpu,predicted_us,samples_per_s,memory_bytes,limited_by,"
      "error\n";
  for (const Section& section : kSections) {
    for (const Answered& row : answers.*section.rows) {
      text += fmt::format("{},{},{},{},", section.axis, csv_cell(row.name),
                          row.world > 0 ? std::to_string(row.world) : "",
                          row.batch > 0 ? std::to_string(row.batch) : "");
      text += row.fits() ? fmt::format("{:.3f},{:.1f},{:.0f},{},\n", row.us, row.samples_per_s,
                                       row.most_memory, row.limit)
                         : fmt::format(",,,,{}\n", csv_cell(row.error));
    }
  }
  return text;
}

// Bars of time; what does not fit has a bar of no length and says so.
Result<SvgPanel> time_panel(const std::vector<Answered>& rows) {
  BarPlot plot{.title = "Time per batch",
               .x_label = "time per batch",
               .unit = svg::Unit::kTime,
               .bars = {},
               .groups = {"fits", "does not fit"}};
  for (const Answered& row : rows) {
    plot.bars.push_back({.name = row.name,
                         .note = row.fits() ? time_text(row.us) : "does not fit",
                         .value = row.fits() ? row.us : 0,
                         .group = row.fits() ? std::size_t{0} : std::size_t{1}});
  }
  return bar_panel(plot);
}

// Samples per second over numbers of GPUs; those that do not fit lie on the axis.
Result<SvgPanel> scale_panel(const std::vector<Answered>& rows) {
  LinePlot plot{.title = "Samples per second over GPUs",
                .x_label = "GPUs",
                .y_label = "million samples per second"};
  LinePlot::Line good{.name = "best plan"}, bad{.name = "does not fit"};
  for (const Answered& row : rows) {
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
  constexpr const char* kNames[] = {"ways",     "settings", "hot_rows",  "types",
                                    "networks", "worlds",   "robustness"};
  for (std::size_t i = 0; i < std::size(kSections); ++i) {
    const std::vector<Answered>& rows = answers.*kSections[i].rows;
    if (rows.empty()) continue;
    if (auto good = add(kNames[i], kSections[i].title, time_panel(rows)); !good) {
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
    const std::vector<Answered>& rows = answers.*section.rows;
    if (rows.empty()) continue;
    html += fmt::format(
        "<h2>{}</h2>\n<table>\n<tr><th>{}</th><th>time per batch</th><th>samples per second</th>"
        "<th>memory of the fullest GPU</th><th>limited by</th><th>plan</th></tr>\n",
        section.title, section.axis);
    for (const Answered& row : rows) {
      html += row.fits()
                  ? fmt::format(
                        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td "
                        "class=\"text\">{}</td><td class=\"text\">{}</td></tr>\n",
                        escaped(row.name), time_text(row.us), samples_text(row.samples_per_s),
                        percent_of(row.most_memory, answers.memory_cap, 0), escaped(row.limit),
                        escaped(row.types))
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

}  // namespace

void add_question_options(CLI::App& app, QuestionArguments& arguments) {
  app.add_option("--worlds", arguments.worlds,
                 "Numbers of GPUs to compare (default: powers of two up to 4 x --world)")
      ->delimiter(',')
      ->check(at_least(1))
      ->type_name("N,N,...");
  app.add_option("--global-batch", arguments.global_batch,
                 "Samples per batch on all GPUs together, whatever their number")
      ->check(at_least(1))
      ->type_name("B");
  app.add_option("--samples-per-s", arguments.samples_per_s,
                 "Say how many GPUs it takes for so many samples per second")
      ->check(at_least(1))
      ->type_name("X");
  app.add_option("--html", arguments.html, "Write the answers as one page")->type_name("FILE");
  app.add_option("--plots", arguments.plots,
                 "Write FOLDER/ways.svg, settings.svg, hot_rows.svg, types.svg, networks.svg, "
                 "worlds.svg, robustness.svg and scaling.svg")
      ->type_name("FOLDER");
  app.add_option("--csv", arguments.csv, "Write the answers as CSV")->type_name("FILE");
}

Result<void> run_questions(const ShardArguments& study, const QuestionArguments& questions) {
  const InterruptGuard guard;
  const auto answers = Questions(study, questions).run();
  if (!answers) return Unexpected{answers.error()};
  if (!questions.html.empty() || !questions.plots.empty()) {
    const auto drawn = drawings(*answers);
    if (!drawn) return Unexpected{drawn.error()};
    if (!questions.html.empty()) {
      if (auto good = write_file(questions.html, study_html(*answers, *drawn)); !good) return good;
    }
    if (!questions.plots.empty()) {
      const std::filesystem::path folder = questions.plots;
      std::error_code failure;
      std::filesystem::create_directories(folder, failure);
      if (failure) {
        return fail(ErrorCode::kIo, fmt::format("{}: expected a folder that can be made, found: {}",
                                                folder.string(), failure.message()));
      }
      for (const Drawing& drawing : *drawn) {
        if (auto good = write_file(folder / (drawing.name + ".svg"), drawing.svg); !good) {
          return good;
        }
      }
    }
  }
  if (!questions.csv.empty()) {
    if (auto good = write_file(questions.csv, study_csv(*answers)); !good) return good;
  }
  if (study.json) return print_document(study_json(*answers));
  return print_report(study_text(*answers, bold_allowed()));
}

}  // namespace perfmodel::cli
