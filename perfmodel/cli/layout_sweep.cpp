#include "layout_sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <stop_token>

#include "base/progress_bar.hpp"
#include "interrupt_guard.hpp"
#include "layout_report.hpp"
#include "terminal/cli11.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

struct SweepRow {
  std::string value, error;
  std::optional<RankedLayout> best;
  std::int64_t gpus = 0;
  bool complete = true;  ///< else the search was stopped, and `best` is the best until then
};

Result<LayoutArguments> at_value(LayoutArguments arguments, const std::string& axis,
                                 const std::string& value) {
  if (axis == "gpu") {
    arguments.gpu = value;
    return arguments;
  }
  if (axis == "topology") {
    arguments.topology = value;
    return arguments;
  }
  if (axis == "host") {
    double scale = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), scale);
    if (error == std::errc() && end == value.data() + value.size() && scale > 0) {
      arguments.host_scale = scale;
      return arguments;
    }
    return fail(ErrorCode::kImpossible,
                fmt::format("--values: expected factors of the host's time, found \"{}\"", value));
  }
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), count);
  if (error != std::errc() || end != value.data() + value.size() || count < 1) {
    return fail(ErrorCode::kImpossible,
                fmt::format("--values: expected whole numbers of at least 1, found \"{}\"", value));
  }
  (axis == "world"          ? arguments.world
   : axis == "global-batch" ? arguments.global_batch
                            : arguments.sequence) = count;
  return arguments;
}

// Fills `row`; an error where no layout was found.
Result<void> find_best_layout(const Predictor& predictor, const LayoutArguments& arguments,
                              SweepRow& row) {
  const auto question = layout_question(arguments);
  if (!question) return Unexpected{question.error()};
  const auto space = layout_space(arguments);
  if (!space) return Unexpected{space.error()};
  if (!arguments.measured.empty()) {
    return fail(ErrorCode::kImpossible,
                "expected --measured with one machine and one job (rank, eval, compare), found it "
                "beside a sweep");
  }
  const auto pricer = LayoutPricer::make(predictor, {.gpu = arguments.gpu,
                                                     .topology = arguments.topology,
                                                     .host_scale = arguments.host_scale,
                                                     .collectives = arguments.collectives});
  if (!pricer) return Unexpected{pricer.error()};
  std::stop_source stop;
  LayoutSearchOptions options{.keep = 1, .cancel = stop.get_token()};
  options.progress = [&stop](std::int64_t, std::int64_t) {
    if (InterruptGuard::interrupted()) stop.request_stop();
  };
  const auto ranking = rank_layouts(*pricer, question->job, *arguments.world, *space, options);
  if (!ranking) return Unexpected{ranking.error()};
  row.complete = ranking->complete;
  if (!ranking->best.empty()) {
    row.best = ranking->best.front();
    return {};
  }
  if (!ranking->complete) return fail(ErrorCode::kCancelled, "stopped before a layout was found");
  return fail(ErrorCode::kImpossible, nothing_fits(*ranking, *arguments.world));
}

std::string rows_text(const std::string& axis, const std::vector<SweepRow>& rows, bool bold) {
  const bool any_error =
      std::ranges::any_of(rows, [](const auto& row) { return !row.error.empty(); });
  TextTable table{"<" + axis, "step ms",   "tokens/s",     "tokens/s/GPU",
                  "MFU",      "memory GB", "<best layout", any_error ? "<note" : ""};
  for (const SweepRow& row : rows) {
    if (!row.best) {
      table.row({row.value, "", "", "", "", "", "", row.error});
      continue;
    }
    const LayoutPrediction& made = row.best->prediction;
    table.row({row.value, fmt::format("{:.1f}", made.step_ms),
               fmt::format("{:.0f}", made.tokens_per_s_per_gpu * static_cast<double>(row.gpus)),
               fmt::format("{:.0f}", made.tokens_per_s_per_gpu),
               fmt::format("{:.1f} %", 100 * made.mfu),
               fmt::format("{:.1f}", made.reserved_bytes / 1e9), layout_words(row.best->layout),
               row.error});
  }
  return "\n" + table.text(bold);
}

Json rows_json(const std::string& axis, const std::vector<SweepRow>& rows) {
  Json json = document(schemas::kLayoutSweep);
  json["axis"] = axis;
  Json list = Json::array();
  for (const SweepRow& row : rows) {
    Json one = {{"value", row.value}};
    one["best"] = row.best ? layout_json(*row.best) : Json(nullptr);
    one["error"] = row.error.empty() ? Json(nullptr) : Json(row.error);
    list.push_back(std::move(one));
  }
  json["rows"] = std::move(list);
  return json;
}

std::string rows_csv(const std::string& axis, const std::vector<SweepRow>& rows) {
  std::string text =
      axis +
      ",predicted_step_ms,tokens_per_s_per_gpu,mfu,memory_gb,dp,tp,pp,vp,micro_batch,zero,"
      "recompute,error\n";
  for (const SweepRow& row : rows) {
    if (!row.best) {
      std::string error = row.error;
      std::ranges::replace(error, '"', '\'');
      text += fmt::format("{},,,,,,,,,,,,\"{}\"\n", row.value, error);
      continue;
    }
    const auto& [layout, made] = *row.best;
    text +=
        fmt::format("{},{:.6g},{:.6g},{:.6g},{:.6g},{},{},{},{},{},{},{},{}\n", row.value,
                    made.step_ms, made.tokens_per_s_per_gpu, made.mfu, made.reserved_bytes / 1e9,
                    layout.dp, layout.tp, layout.pp, layout.vp, layout.micro_batch,
                    to_string(layout.zero), to_string(layout.recompute), row.error);
  }
  return text;
}

}  // namespace

void add_layout_sweep_options(CLI::App& app, LayoutSweepArguments& arguments) {
  app.add_option("--axis", arguments.axis, "What changes")
      ->required()
      ->check(CLI::IsMember({"world", "gpu", "global-batch", "sequence", "topology", "host"}))
      ->type_name("NAME");
  app.add_option("--values", arguments.values, "Values of the axis")
      ->required()
      ->delimiter(',')
      ->type_name("V,V,...");
  app.add_option("--csv", arguments.csv, "Write the rows as CSV")->type_name("FILE");
}

Result<void> sweep_layouts(const Predictor& predictor, const LayoutArguments& arguments,
                           const LayoutSweepArguments& sweep) {
  std::vector<SweepRow> rows;
  ProgressBar bar("layouts", sweep.values.size());
  std::optional<Error> first_error;
  bool any = false;
  const InterruptGuard guard;  // Ctrl-C: the rows so far
  for (const std::string& value : sweep.values) {
    const auto at = at_value(arguments, sweep.axis, value);
    if (!at) return Unexpected{at.error()};
    if (!at->world) {
      return fail(ErrorCode::kImpossible, "expected --world (GPUs), found none");
    }
    SweepRow row{.value = value, .gpus = *at->world};
    if (auto found = find_best_layout(predictor, *at, row); found) {
      any = true;
      if (!row.complete) row.error = "its search was stopped: the best until then";
    } else {
      row.error = found.error().message;
      if (!first_error) first_error = found.error();
    }
    rows.push_back(std::move(row));
    if (InterruptGuard::interrupted()) break;
    bar.advance();
  }
  bar.finish();
  if (!any && first_error) return Unexpected{*first_error};
  if (!sweep.csv.empty()) {
    if (auto written = write_file(sweep.csv, rows_csv(sweep.axis, rows)); !written) return written;
  }
  if (arguments.json) return print_document(rows_json(sweep.axis, rows));
  return print_report(rows_text(sweep.axis, rows, bold_allowed()));
}

}  // namespace perfmodel::cli
