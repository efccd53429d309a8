#include "layout/layout_rows.hpp"

#include "base/each_name.hpp"
#include "layout/layout_results.hpp"
#include "layout/layout_work.hpp"
#include "perfmodel/detail/decoder_models.hpp"

namespace perfmodel {
namespace {

std::optional<std::int64_t> count_given(LayoutRowReader& row, std::string_view column,
                                        bool may_be_none = false) {
  const std::string_view cell = row.text(column);
  if (cell.empty()) return {};
  if (may_be_none && (cell == "0" || cell == "0.0")) return 0;
  return row.count(column, {});
}

// Experts and heads, where the row has columns for them.
void take_experts(LayoutRowReader& row, DecoderModel& model) {
  LayoutAsk request{.head_width = count_given(row, "head_width"),
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
  PERFMODEL_READ(model, row.flag, gated, tied);
  take_experts(row, model);
  if (!model.gated) make_gpt(model, row.count("sequence", {}));
  return model;
}

// Adapters and the load of experts: the row's columns, else the flags.
void take_training(LayoutRowReader& row, const LayoutAsk& flags, LayoutJob& job) {
  LayoutAsk request = flags;
  if (const auto rank = count_given(row, "lora", true)) request.lora = rank;
  if (const auto bits = count_given(row, "frozen_bits")) request.frozen_bits = bits;
  if (!row.text("lora_on").empty()) request.lora_on = row.text("lora_on");
  if (!row.text("compiled").empty()) request.compiled = row.flag("compiled");
  if (!row.text("cuda_graphs").empty()) request.cuda_graphs = row.text("cuda_graphs");
  if (!row.text("loss").empty()) request.loss = row.text("loss");
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

/// The measured time; if it cannot be read, the row gets the reason.
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
  if (!row.text("dispatcher").empty()) {
    layout.dispatcher = row.name("dispatcher", "", parse_dispatcher);
  }
  layout.context_balanced = row.flag("context_balanced");
  if (!row.text("overlap_experts").empty()) layout.overlap_experts = row.flag("overlap_experts");
  layout.async_tp = !row.text("async_tp").empty() && row.flag("async_tp");
  layout.sequence_parallel = row.flag("sequence_parallel") && layout.tp > 1;
  layout.offload = row.name("offload", "none", parse_offload);
  layout.order = row.name("schedule", "1f1b", parse_pipeline_order);
  if (lies_as_v(layout.order) && row.text("vp").empty()) layout.vp = 2;
  if (!row.text("gpus").empty()) {
    const std::int64_t gpus = row.count("gpus", 1);
    LayoutAsk parts{.world = gpus, .tp = layout.tp, .pp = layout.pp, .cp = layout.cp};
    if (!row.text("dp").empty()) parts.dp = row.count("dp", 1);
    const auto whole = layout_of(parts);
    if (!whole) row.refuse("gpus: " + whole.error().message);
    if (whole) layout.dp = whole->dp;
    return layout;
  }
  layout.dp = row.count("dp", 1);
  return layout;
}

LayoutJob job_of(LayoutRowReader& row, const LayoutInputs& inputs, const DecoderModel* model) {
  LayoutJob job;
  std::optional<std::int64_t> sequence = inputs.sequence;
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
  job.global_batch = row.count("global_batch", inputs.global_batch);
  job.precision = row.name("precision", inputs.precision, parse_layout_precision);
  const auto take = [&](const auto& value, auto& to) {
    if (value) to = *value;
    if (!value) row.refuse(value.error().message);
  };
  take(parse_layout_attention(inputs.attention), job.attention);
  take(parse_layout_optimizer(inputs.optimizer), job.optimizer);
  job.fp32_gradients = inputs.grad_dtype == "fp32";
  job.dropout = inputs.dropout;
  if (const auto good = pack_sequences(inputs, job); !good) row.refuse(to_string(good.error()));
  take_training(row, inputs, job);
  job.software = inputs.software.empty() ? row.text("software") : inputs.software;
  return job;
}

Result<std::vector<MeasuredStep>> read_measured_rows(CsvFile rows, const LayoutInputs& inputs,
                                                     const LayoutJob* asked, const Gpu& gpu) {
  if (rows.column("step_ms") < 0 && rows.column("tokens_per_s_per_gpu") < 0) {
    return Unexpected{rows.at_header(0,
                                     "expected a column step_ms or tokens_per_s_per_gpu of what "
                                     "was measured, found none")};
  }
  LayoutInputs own = inputs;
  if (asked && !own.sequence) own.sequence = asked->sequence;
  if (asked && !own.global_batch) own.global_batch = asked->global_batch;
  const bool names_model = rows.column("layers") >= 0 || rows.column("model") >= 0;
  const DecoderModel* model = asked && !names_model ? &asked->model : nullptr;
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
      if (asked) step.job.software = asked->software;
      if (step.job.software.empty()) {
        // With a question: by the rule of its own default.
        step.job.software = asked ? suitable_software(gpu, step.job, step.layout)
                                  : nearest_software(gpu, step.job, step.layout);
      }
    }
    steps.push_back(std::move(step));
  }
  if (rows.error()) return Unexpected{*rows.error()};
  return steps;
}

MeasuredTable measured_table(const std::vector<MeasuredStep>& steps) {
  MeasuredTable table;
  for (const auto& field : kMeasuredStepFields) table.columns.emplace_back(field.name);
  for (const MeasuredStep& step : steps) {
    std::vector<std::string>& row = table.rows.emplace_back();
    for (const auto& field : kMeasuredStepFields) {
      row.push_back(csv_cell(field.value(step), field.digits));
    }
  }
  return table;
}

}  // namespace perfmodel
