#include "layout_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <type_traits>
#include <vector>

#include "base/progress_bar.hpp"
#include "base/secrets.hpp"
#include "interrupt_guard.hpp"
#include "layout/layout_work.hpp"
#include "layout_measured.hpp"
#include "output.hpp"
#include "perfmodel/detail/decoder_models.hpp"

namespace perfmodel::cli {
namespace {

constexpr std::string_view kAnswerColumns[] = {"predicted_step_ms",
                                               "low_ms",
                                               "high_ms",
                                               "tokens_per_s_per_gpu",
                                               "mfu",
                                               "memory_gb",
                                               "fits",
                                               "bubble_share",
                                               "exposed_comm_share",
                                               "limit",
                                               "error",
                                               "allocated_gb",
                                               "hfu"};

// A cell as it stands in a table: in quotes where it holds a comma, a quote or a line break.
std::string layout_csv_cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

// One row of the table as a question.
class LayoutRowReader {
 public:
  explicit LayoutRowReader(const CsvFile& rows) : rows_(rows) {}

  std::string_view text(std::string_view column) const { return rows_.cell(rows_.column(column)); }

  std::int64_t count(std::string_view column, std::optional<std::int64_t> otherwise) {
    const std::string_view cell = text(column);
    if (cell.empty()) {
      if (!otherwise) refuse(fmt::format("{}: expected a whole number, found none", column));
      return otherwise.value_or(1);
    }
    const auto value = parse_count(cell);
    if (!value) {
      refuse(fmt::format("{}: expected a whole number of at least 1, found \"{}\"", column, cell));
    }
    return value.value_or(1);
  }

  bool flag(std::string_view column) {
    std::string cell(text(column));
    std::ranges::transform(cell, cell.begin(), [](unsigned char c) { return std::tolower(c); });
    if (cell.empty() || cell == "1" || cell == "true" || cell == "1.0") return true;
    if (cell == "0" || cell == "false" || cell == "0.0") return false;
    refuse(fmt::format("{}: expected 0 or 1, found \"{}\"", column, cell));
    return false;
  }

  template <class Parse>
  auto name(std::string_view column, std::string_view otherwise, Parse parse) {
    std::string_view cell = text(column);
    if (cell.ends_with(".0")) cell.remove_suffix(2);  // 1.0 of programs that hold numbers alone
    const auto value = parse(cell.empty() ? otherwise : cell);
    if (!value) refuse(value.error().message);
    using Value = typename std::decay_t<decltype(value)>::value_type;
    return value ? *value : Value{};
  }

  /// The first thing that is wrong.
  const std::optional<std::string>& error() const { return error_; }
  void refuse(std::string why) {
    if (!error_) error_ = std::move(why);
  }

 private:
  const CsvFile& rows_;
  std::optional<std::string> error_;
};

std::optional<std::int64_t> count_given(LayoutRowReader& row, std::string_view column,
                                        bool may_be_none = false) {
  const std::string_view cell = row.text(column);
  if (cell.empty()) return {};
  if (may_be_none && (cell == "0" || cell == "0.0")) return 0;
  return row.count(column, {});
}

// Experts and heads, where the row has columns for them.
void take_experts(LayoutRowReader& row, DecoderModel& model) {
  LayoutRequest request{.head_width = count_given(row, "head_width"),
                        .experts = count_given(row, "experts", true),
                        .top_k = count_given(row, "top_k"),
                        .expert_hidden = count_given(row, "expert_hidden"),
                        .shared_hidden = count_given(row, "shared_hidden", true),
                        .dense_layers = count_given(row, "dense_layers", true),
                        .next_tokens = count_given(row, "next_tokens", true)};
  if (request.experts == 0) request.top_k = request.expert_hidden = {};
  if (request.experts == 0) request.shared_hidden = request.dense_layers = {};
  const auto good = change_experts(request, model);
  if (!good) row.refuse(good.error().message);
}

// A model that the column `model` knows; columns of sizes are written over it.
std::optional<NamedDecoder> named_model(LayoutRowReader& row) {
  if (row.text("model").empty() || !row.text("layers").empty()) return {};
  auto found = find_decoder(row.text("model"));
  if (!found) row.refuse("model: " + found.error().message);
  if (!found) return NamedDecoder{};
  return std::move(*found);
}

DecoderModel model_of(LayoutRowReader& row) {
  DecoderModel model;
  model.layers = row.count("layers", {});
  model.hidden = row.count("hidden", {});
  model.heads = row.count("heads", {});
  model.kv_heads = row.count("kv_heads", model.heads);
  model.feed_forward = row.count("feed_forward", {});
  model.vocabulary = row.count("vocabulary", {});
  model.gated = row.flag("gated");
  model.tied = row.flag("tied");
  take_experts(row, model);
  if (model.gated) return model;
  // Two products: a GPT with learned positions, biases and layer norms.
  model.positions = row.count("sequence", {});
  model.biases = true;
  model.rms_norm = false;
  model.activation = DecoderModel::Activation::kGelu;
  return model;
}

ParallelLayout row_layout(LayoutRowReader& row) {
  ParallelLayout layout;
  layout.tp = row.count("tp", 1);
  layout.pp = row.count("pp", 1);
  layout.vp = row.count("vp", 1);
  layout.cp = row.count("cp", 1);
  layout.ep = row.count("ep", 1);
  layout.etp = row.count("etp", 1);
  layout.context = row.name("context", "ring", parse_context_exchange);
  layout.micro_batch = row.count("micro_batch", 1);
  layout.zero = row.name("zero", "0", parse_sharding);
  layout.recompute = row.name("recompute", "none", parse_recompute);
  layout.sequence_parallel = row.flag("sequence_parallel") && layout.tp > 1;
  layout.order = row.name("schedule", "1f1b", parse_pipeline_order);
  if (lies_as_v(layout.order) && row.text("vp").empty()) layout.vp = 2;
  if (!row.text("gpus").empty()) {
    const std::int64_t gpus = row.count("gpus", 1);
    LayoutParts parts{.world = gpus, .tp = layout.tp, .pp = layout.pp, .cp = layout.cp};
    if (!row.text("dp").empty()) parts.dp = row.count("dp", 1);
    const auto whole = layout_of(parts);
    if (!whole) row.refuse("gpus: " + whole.error().message);
    if (whole) layout.dp = whole->dp;
    return layout;
  }
  layout.dp = row.count("dp", 1);
  return layout;
}

// Adapters and the load of experts: the row's columns, else the flags.
void take_training(LayoutRowReader& row, const LayoutRequest& flags, LayoutJob& job) {
  LayoutRequest request = flags;
  if (const auto rank = count_given(row, "lora", true)) request.lora = rank;
  if (const auto bits = count_given(row, "frozen_bits")) request.frozen_bits = bits;
  if (!row.text("lora_on").empty()) request.lora_on = row.text("lora_on");
  const std::pair<std::string_view, std::optional<double>*> numbers[] = {
      {"expert_imbalance", &request.expert_imbalance},
      {"expert_capacity", &request.expert_capacity}};
  for (const auto& [column, to] : numbers) {
    if (row.text(column).empty()) continue;
    const auto number = parse_double(row.text(column));
    if (!number) {
      row.refuse(fmt::format("{}: expected a number, found \"{}\"", column, row.text(column)));
    }
    *to = number.value_or(0);
  }
  const auto good = change_training(request, job);
  if (!good) row.refuse(good.error().message);
}

// `model`: that of all rows; null: each row names its own.
LayoutJob job_of(LayoutRowReader& row, const LayoutArguments& arguments,
                 const DecoderModel* model = nullptr) {
  LayoutJob job;
  std::optional<std::int64_t> sequence = arguments.sequence;
  if (model) {
    job.model = *model;
  } else if (auto named = named_model(row)) {
    job.model = std::move(named->model);
    take_experts(row, job.model);
    if (!sequence && named->sequence > 0) sequence = named->sequence;
  } else {
    job.model = model_of(row);
  }
  job.sequence = row.count("sequence", sequence);
  job.global_batch = row.count("global_batch", arguments.global_batch);
  job.precision = row.name("precision", arguments.precision, parse_layout_precision);
  job.attention = parse_layout_attention(arguments.attention).value();  // checked by the option
  job.optimizer = parse_layout_optimizer(arguments.optimizer).value();
  job.fp32_gradients = arguments.grad_dtype == "fp32";
  job.dropout = arguments.dropout;
  take_training(row, arguments, job);
  job.software = arguments.software.empty() ? row.text("software") : arguments.software;
  return job;
}

// One pricer per machine that the rows name.
class TablePricers {
 public:
  TablePricers(const Predictor& predictor, const LayoutArguments& arguments)
      : predictor_(predictor), arguments_(arguments) {}

  struct Machine {
    LayoutPricer pricer;
    Gpu gpu;
  };
  Result<const Machine*> of(const LayoutRowReader& row) {
    LayoutMachine machine{.gpu = arguments_.gpu,
                          .topology = arguments_.topology,
                          .host_scale = arguments_.host_scale,
                          .collectives = arguments_.collectives};
    if (machine.gpu.empty()) machine.gpu = row.text("gpu");
    if (machine.topology.empty()) machine.topology = row.text("topology");
    if (machine.gpu.empty()) {
      return fail(ErrorCode::kImpossible, "gpu: expected --gpu or a column gpu, found neither");
    }
    const auto key = std::pair(machine.gpu, machine.topology);
    const auto known = machines_.find(key);
    if (known != machines_.end()) return &known->second;
    auto made = LayoutPricer::make(predictor_, machine);
    if (!made) return Unexpected{made.error()};
    auto gpu = predictor_.gpu(machine.gpu);
    if (!gpu) return Unexpected{gpu.error()};
    if (!arguments_.measured.empty()) {
      made = measured_pricer(*made, arguments_, nullptr, *gpu);
      if (!made) return Unexpected{made.error()};
    }
    return &machines_.emplace(key, Machine{std::move(*made), std::move(*gpu)}).first->second;
  }

 private:
  const Predictor& predictor_;
  const LayoutArguments& arguments_;
  std::map<std::pair<std::string, std::string>, Machine> machines_;
};

std::vector<std::string> answer_cells(const LayoutPrediction& made) {
  const auto number = [](double value) { return fmt::format("{:.6g}", value); };
  constexpr double kGigabyte = 1e9;
  return {number(made.step_ms),
          number(made.low_ms),
          number(made.high_ms),
          number(made.tokens_per_s_per_gpu),
          number(made.mfu),
          number(made.reserved_bytes / kGigabyte),
          made.fits ? "1" : "0",
          number(made.bubble_share),
          number(made.exposed_comm_share),
          std::string(to_string(made.limit)),
          "",
          number(made.allocated_bytes / kGigabyte),
          number(made.hfu)};
}

std::vector<std::string> error_cells(std::string message) {
  std::vector<std::string> cells(std::size(kAnswerColumns));
  std::ranges::replace(message, '\n', ' ');
  const auto at = std::ranges::find(kAnswerColumns, "error") - std::begin(kAnswerColumns);
  cells[static_cast<std::size_t>(at)] = std::move(message);
  return cells;
}

// `taken`: rows by the software that was taken for want of a name.
std::vector<std::string> priced_row(const CsvFile& rows, const LayoutArguments& arguments,
                                    TablePricers& pricers,
                                    std::map<std::string, std::size_t>& taken) {
  LayoutRowReader row(rows);
  LayoutJob job = job_of(row, arguments);
  const ParallelLayout layout = row_layout(row);
  if (row.error()) return error_cells(*row.error());
  const auto pricer = pricers.of(row);
  if (!pricer) return error_cells(pricer.error().message);
  if (job.software.empty()) {
    job.software = nearest_software((*pricer)->gpu, job, layout);
    ++taken[job.software];
  }
  const auto made = (*pricer)->pricer.predict(job, layout);
  return made ? answer_cells(*made) : error_cells(made.error().message);
}

// A count that is not there is 1, as anybody would think; of a flag that is less plain.
void warn_of_flags(const CsvFile& rows) {
  std::vector<std::string_view> missing;
  for (const char* name : {"gated", "tied", "sequence_parallel"}) {
    if (rows.column(name) < 0) missing.push_back(name);
  }
  if (missing.empty()) return;
  warn(fmt::format("the table has no column {}: taken as 1", fmt::join(missing, ", ")));
}

// Flags that the rows' columns stand for would be ignored.
Result<void> refuse_row_flags(const LayoutArguments& arguments) {
  const std::pair<std::string_view, bool> flags[] = {
      {"--layers", arguments.layers.has_value()},
      {"--hidden", arguments.hidden.has_value()},
      {"--heads", arguments.heads.has_value()},
      {"--kv-heads", arguments.kv_heads.has_value()},
      {"--feed-forward", arguments.feed_forward.has_value()},
      {"--vocabulary", arguments.vocabulary.has_value()},
      {"--positions", arguments.positions.has_value()},
      {"--gated", arguments.gated.has_value()},
      {"--tied", arguments.tied.has_value()},
      {"--world", arguments.world.has_value()},
      {"--dp", !arguments.dp.empty()},
      {"--tp", !arguments.tp.empty()},
      {"--pp", !arguments.pp.empty()},
      {"--vp", !arguments.vp.empty()},
      {"--cp", !arguments.cp.empty()},
      {"--ep", !arguments.ep.empty()},
      {"--etp", arguments.etp.has_value()},
      {"--context", !arguments.context.empty()},
      {"--no-context-balanced", arguments.context_balanced.has_value()},
      {"--overlap-experts", arguments.overlap_experts.has_value()},
      {"--experts", arguments.experts.has_value()},
      {"--top-k", arguments.top_k.has_value()},
      {"--expert-hidden", arguments.expert_hidden.has_value()},
      {"--shared-hidden", arguments.shared_hidden.has_value()},
      {"--dense-layers", arguments.dense_layers.has_value()},
      {"--head-width", arguments.head_width.has_value()},
      {"--next-tokens", arguments.next_tokens.has_value()},
      {"--micro-batch", !arguments.micro_batch.empty()},
      {"--zero", !arguments.zero.empty()},
      {"--recompute", !arguments.recompute.empty()},
      {"--sequence-parallel", arguments.sequence_parallel.has_value()},
      {"--schedule", !arguments.schedule.empty()},
      {"--stages searched", arguments.searched_stages},
      {"--measured-layout", !arguments.measured_layout.empty()},
      {"--json", arguments.json}};
  for (const auto& [flag, given] : flags) {
    if (!given) continue;
    return fail(ErrorCode::kImpossible,
                fmt::format("expected models and layouts in the table's columns, found {} beside "
                            "--table",
                            flag));
  }
  return {};
}

void warn_of_software(const std::map<std::string, std::size_t>& taken) {
  if (taken.empty()) return;
  std::vector<std::string> parts;
  for (const auto& [name, rows] : taken) parts.push_back(fmt::format("{} ({} rows)", name, rows));
  warn(
      fmt::format("neither --software nor a column software says whose program ran the rows: "
                  "taken are the costs of {}",
                  fmt::join(parts, ", ")));
}

std::size_t row_count(const std::string& file) {
  auto rows = CsvFile::open(file);
  std::size_t count = 0;
  while (rows && rows->next()) ++count;
  return count;
}

/// What was measured; a reason in the row where it cannot be read.
std::optional<double> measured_ms(const CsvFile& rows, LayoutRowReader& row, const LayoutJob& job,
                                  const ParallelLayout& layout) {
  const bool has_step = rows.column("step_ms") >= 0;
  const std::string_view name = has_step ? "step_ms" : "tokens_per_s_per_gpu";
  const std::string_view cell = row.text(name);
  if (cell.empty()) return std::nullopt;
  const auto value = parse_double(cell);
  if (!value || !(*value > 0)) {
    row.refuse(fmt::format("{}: expected a number above 0, found \"{}\"", name, cell));
    return std::nullopt;
  }
  if (has_step) return value;
  const double tokens = static_cast<double>(job.global_batch) * static_cast<double>(job.sequence);
  return 1e3 * tokens / (*value * static_cast<double>(layout.gpus()));
}

}  // namespace

Result<std::vector<MeasuredStep>> read_measured_rows(CsvFile rows, const LayoutArguments& arguments,
                                                     const LayoutJob* asked, const Gpu& gpu) {
  if (rows.column("step_ms") < 0 && rows.column("tokens_per_s_per_gpu") < 0) {
    return Unexpected{rows.at_header(0,
                                     "expected a column step_ms or tokens_per_s_per_gpu of what "
                                     "was measured, found none")};
  }
  LayoutArguments own = arguments;
  if (asked && !own.sequence) own.sequence = asked->sequence;
  if (asked && !own.global_batch) own.global_batch = asked->global_batch;
  const DecoderModel* model = asked && rows.column("layers") < 0 ? &asked->model : nullptr;
  std::vector<MeasuredStep> steps;
  while (rows.next()) {
    LayoutRowReader row(rows);
    MeasuredStep step{.job = job_of(row, own, model), .layout = row_layout(row)};
    const auto ms = measured_ms(rows, row, step.job, step.layout);
    if (!row.text("compute_ms").empty()) step.compute_ms = parse_double(row.text("compute_ms"));
    if (step.compute_ms && !(*step.compute_ms > 0)) step.compute_ms.reset();
    if (row.error()) return Unexpected{rows.at_cell(0, *row.error())};
    if (!ms) continue;  // a run that failed
    step.step_ms = *ms;
    if (step.job.software.empty()) {
      step.job.software = asked ? asked->software : nearest_software(gpu, step.job, step.layout);
    }
    steps.push_back(std::move(step));
  }
  if (rows.error()) return Unexpected{*rows.error()};
  return steps;
}

MeasuredTable measured_table(const std::vector<MeasuredStep>& steps) {
  MeasuredTable table{
      .columns = {
          "layers",     "hidden",   "heads",    "kv_heads",     "feed_forward", "gated",
          "vocabulary", "tied",     "sequence", "global_batch", "dp",           "tp",
          "pp",         "vp",       "zero",     "micro_batch",  "recompute",    "sequence_parallel",
          "precision",  "schedule", "software", "step_ms",      "compute_ms"}};
  const auto whole = [](std::int64_t number) { return std::to_string(number); };
  for (const MeasuredStep& step : steps) {
    const DecoderModel& model = step.job.model;
    const ParallelLayout& layout = step.layout;
    table.rows.push_back({whole(model.layers),
                          whole(model.hidden),
                          whole(model.heads),
                          whole(model.kv_heads > 0 ? model.kv_heads : model.heads),
                          whole(model.feed_forward),
                          whole(model.gated),
                          whole(model.vocabulary),
                          whole(model.tied),
                          whole(step.job.sequence),
                          whole(step.job.global_batch),
                          whole(layout.dp),
                          whole(layout.tp),
                          whole(layout.pp),
                          whole(layout.vp),
                          std::string(to_string(layout.zero)),
                          whole(layout.micro_batch),
                          std::string(to_string(layout.recompute)),
                          whole(layout.sequence_parallel),
                          std::string(to_string(step.job.precision)),
                          std::string(to_string(layout.order)),
                          step.job.software,
                          fmt::format("{}", step.step_ms),
                          step.compute_ms ? fmt::format("{}", *step.compute_ms) : ""});
  }
  return table;
}

Result<void> price_layout_table(const Predictor& predictor, const LayoutArguments& arguments,
                                const std::string& table, const std::string& output) {
  if (auto good = refuse_row_flags(arguments); !good) return good;
  auto rows = CsvFile::open(table);
  if (!rows) return Unexpected{rows.error()};
  if (arguments.gpu.empty() && rows->column("gpu") < 0) {
    return fail(ErrorCode::kImpossible, "expected --gpu or a column gpu in the table, found none");
  }
  warn_of_flags(*rows);
  // Columns of an earlier answer give way.
  std::vector<int> kept;
  std::string text;
  for (std::size_t i = 0; i < rows->columns().size(); ++i) {
    const std::string& name = rows->columns()[i];
    if (std::ranges::find(kAnswerColumns, name) != std::end(kAnswerColumns)) continue;
    text += fmt::format("{}{}", kept.empty() ? "" : ",", layout_csv_cell(name));
    kept.push_back(static_cast<int>(i));
  }
  for (std::string_view name : kAnswerColumns) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", name);
  }
  text += '\n';
  TablePricers pricers(predictor, arguments);
  std::map<std::string, std::size_t> taken;
  ProgressBar bar("price layouts", row_count(table));
  const InterruptGuard guard;  // Ctrl-C: the rows so far
  while (rows->next()) {
    if (InterruptGuard::interrupted()) {
      warn("stopped: the rows behind are left out");
      break;
    }
    std::string line;
    for (int column : kept) {
      line += fmt::format("{}{}", column == kept.front() ? "" : ",",
                          layout_csv_cell(rows->cell(column)));
    }
    for (const std::string& cell : priced_row(*rows, arguments, pricers, taken)) {
      line += "," + layout_csv_cell(cell);
    }
    text += line + '\n';
    bar.advance();
  }
  bar.finish();
  if (rows->error()) return Unexpected{*rows->error()};
  warn_of_software(taken);
  return print_or_write(text, output);
}

}  // namespace perfmodel::cli
