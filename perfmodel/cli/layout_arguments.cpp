#include "layout_arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <array>
#include <charconv>
#include <filesystem>
#include <utility>

#include "arguments.hpp"

namespace perfmodel::cli {
namespace {

template <class Value, std::size_t kCount>
Result<Value> layout_choice(std::string_view what, std::string_view text,
                            const std::array<std::pair<std::string_view, Value>, kCount>& known) {
  std::vector<std::string_view> names;
  for (const auto& [name, value] : known) {
    if (name == text) return value;
    names.push_back(name);
  }
  return fail(ErrorCode::kUnknownName, fmt::format("{}: expected one of {}, found \"{}\"", what,
                                                   fmt::join(names, ", "), text));
}

Unexpected bad_layout(std::string message) {
  return fail(ErrorCode::kImpossible, std::move(message));
}

constexpr std::int64_t kLargestLayoutSize = std::int64_t{1} << 40;

bool layout_count(std::string_view text, std::int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 1 &&
         value <= kLargestLayoutSize;
}

CLI::Option* add_count(CLI::App& app, const std::string& name, std::optional<std::int64_t>& value,
                       const std::string& help) {
  return app.add_option(name, value, help)
      ->check(between(1, static_cast<double>(kLargestLayoutSize)))
      ->type_name("N");
}

void add_counts(CLI::App& app, const std::string& name, std::vector<std::int64_t>& values,
                const std::string& help) {
  app.add_option(name, values, help)
      ->delimiter(',')
      ->check(between(1, static_cast<double>(kLargestLayoutSize)))
      ->type_name("N,N,...");
}

// A flag that tells whether it was given at all.
void add_choice(CLI::App& app, const std::string& names, std::optional<bool>& value,
                const std::string& help) {
  app.add_flag_function(
      names, [&value](std::int64_t count) { value = count > 0; }, help);
}

void add_model_options(CLI::App& app, LayoutArguments& arguments) {
  app.add_option("model", arguments.model,
                 "A known model (llama3-70b, gpt2-xl, ...) or a Hugging Face config.json; without "
                 "it the sizes are given")
      ->type_name("MODEL");
  add_count(app, "--layers", arguments.layers, "Layers");
  add_count(app, "--hidden", arguments.hidden, "Width of the residual stream");
  add_count(app, "--heads", arguments.heads, "Heads of queries");
  add_count(app, "--kv-heads", arguments.kv_heads, "Heads of keys and values (as many)");
  add_count(app, "--feed-forward", arguments.feed_forward, "Width of feed-forward layers");
  add_count(app, "--vocabulary", arguments.vocabulary, "Words");
  app.add_option("--positions", arguments.positions, "Rows of learned positions (0: rotary)")
      ->type_name("N");
  add_choice(app, "--gated,!--no-gated", arguments.gated, "Three products per feed-forward layer");
  add_choice(app, "--tied,!--no-tied", arguments.tied, "The output layer shares the embedding");
}

void add_job_options(CLI::App& app, LayoutArguments& arguments) {
  app.add_option("--gpu", arguments.gpu, "GPU, by name")->required()->type_name("GPU");
  app.add_option("--topology", arguments.topology, "Nodes and network (what the GPU sits in)")
      ->type_name("NAME");
  app.add_option("--software", arguments.software,
                 "Whose costs beside the kernels count: a file of data/frameworks (megatron)")
      ->type_name("NAME");
  add_count(app, "--world", arguments.world, "GPUs");
  add_count(app, "--global-batch", arguments.global_batch, "Sequences per optimizer step");
  add_count(app, "--sequence", arguments.sequence, "Tokens per sequence (the model's)");
  app.add_option("--precision", arguments.precision, "Type of the products")
      ->check(CLI::IsMember({"bf16", "fp16", "fp8", "fp32"}))
      ->capture_default_str()
      ->type_name("TYPE");
  app.add_option("--attention", arguments.attention, "Kernels of attention")
      ->check(CLI::IsMember({"flash", "eager"}))
      ->capture_default_str()
      ->type_name("KIND");
  app.add_option("--optimizer", arguments.optimizer, "Optimizer")
      ->check(CLI::IsMember({"adamw", "adamw-8bit", "sgd"}))
      ->capture_default_str()
      ->type_name("KIND");
  app.add_option("--grad-dtype", arguments.grad_dtype, "Gradients are summed in fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str()
      ->type_name("TYPE");
  app.add_option("--dropout", arguments.dropout, "Probability of dropout (GPT-like models)")
      ->check(between(0, 0.999))
      ->type_name("P");
  add_scale_host(app, arguments.host_scale);
}

}  // namespace

void add_layout_options(CLI::App& app, LayoutArguments& arguments) {
  add_model_options(app, arguments);
  add_job_options(app, arguments);
  add_counts(app, "--tp", arguments.tp, "Tensor parallel ranks");
  add_counts(app, "--pp", arguments.pp, "Pipeline stages");
  add_counts(app, "--vp", arguments.vp, "Chunks of layers per stage (interleaved)");
  add_counts(app, "--micro-batch", arguments.micro_batch, "Sequences per microbatch");
  app.add_option("--zero", arguments.zero, "0, 1, 2, 3, fsdp or hsdp")
      ->delimiter(',')
      ->type_name("KIND,...");
  app.add_option("--recompute", arguments.recompute, "none, selective or full")
      ->delimiter(',')
      ->type_name("KIND,...");
  add_choice(app, "--sequence-parallel,!--no-sequence-parallel", arguments.sequence_parallel,
             "Norms and residuals on 1/tp of the tokens (where tp is above 1)");
  app.add_option("--schedule", arguments.schedule, "Order of a pipeline's microbatches")
      ->check(CLI::IsMember({"1f1b", "gpipe"}))
      ->capture_default_str()
      ->type_name("NAME");
  app.add_flag("--json", arguments.json, "Print JSON");
}

Result<Sharding> parse_sharding(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, Sharding>, 7> kKnown = {
      {{"0", Sharding::kNone},
       {"none", Sharding::kNone},
       {"1", Sharding::kZero1},
       {"2", Sharding::kZero2},
       {"3", Sharding::kZero3},
       {"fsdp", Sharding::kFsdp},
       {"hsdp", Sharding::kHsdp}}};
  return layout_choice("zero", text, kKnown);
}

Result<LayoutRecompute> parse_recompute(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, LayoutRecompute>, 3> kKnown = {
      {{"none", LayoutRecompute::kNone},
       {"selective", LayoutRecompute::kSelective},
       {"full", LayoutRecompute::kFull}}};
  return layout_choice("recompute", text, kKnown);
}

Result<LayoutJob::Precision> parse_layout_precision(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, LayoutJob::Precision>, 4> kKnown = {
      {{"bf16", LayoutJob::Precision::kBf16},
       {"fp16", LayoutJob::Precision::kFp16},
       {"fp8", LayoutJob::Precision::kFp8},
       {"fp32", LayoutJob::Precision::kFp32}}};
  return layout_choice("precision", text, kKnown);
}

namespace {

Result<NamedDecoder> base_decoder(const LayoutArguments& arguments) {
  if (arguments.model.empty()) {
    NamedDecoder made;
    made.model.name = "the given sizes";
    return made;
  }
  const bool is_file =
      arguments.model.ends_with(".json") || arguments.model.find('/') != std::string::npos;
  if (!is_file) return find_decoder(arguments.model);
  std::error_code ignored;
  std::filesystem::path file = arguments.model;
  if (std::filesystem::is_directory(file, ignored)) file /= "config.json";
  return read_decoder_config(file);
}

void change_sizes(const LayoutArguments& arguments, DecoderModel& model) {
  const bool other_heads = arguments.heads && !arguments.kv_heads;
  if (arguments.layers) model.layers = *arguments.layers;
  if (arguments.hidden) model.hidden = *arguments.hidden;
  if (arguments.heads) model.heads = *arguments.heads;
  if (other_heads) model.kv_heads = model.heads;
  if (arguments.kv_heads) model.kv_heads = *arguments.kv_heads;
  if (arguments.feed_forward) model.feed_forward = *arguments.feed_forward;
  if (arguments.vocabulary) model.vocabulary = *arguments.vocabulary;
  if (arguments.positions) model.positions = *arguments.positions;
  if (arguments.gated) model.gated = *arguments.gated;
  if (arguments.tied) model.tied = *arguments.tied;
}

Result<void> all_sizes(const DecoderModel& model) {
  const std::pair<std::string_view, std::int64_t> sizes[] = {{"--layers", model.layers},
                                                             {"--hidden", model.hidden},
                                                             {"--heads", model.heads},
                                                             {"--feed-forward", model.feed_forward},
                                                             {"--vocabulary", model.vocabulary}};
  std::vector<std::string_view> missing;
  for (const auto& [name, size] : sizes) {
    if (size < 1) missing.push_back(name);
  }
  if (missing.empty()) return {};
  if (missing.size() == std::size(sizes)) {
    return bad_layout(
        "expected a MODEL or its sizes (--layers, --hidden, --heads, --feed-forward, "
        "--vocabulary), found none");
  }
  return bad_layout(
      fmt::format("expected all sizes of the model, found none for {}", fmt::join(missing, ", ")));
}

}  // namespace

Result<LayoutQuestion> layout_question(const LayoutArguments& arguments) {
  auto base = base_decoder(arguments);
  if (!base) return Unexpected{base.error()};
  LayoutQuestion question{.notes = std::move(base->notes)};
  LayoutJob& job = question.job;
  job.model = std::move(base->model);
  change_sizes(arguments, job.model);
  if (auto good = all_sizes(job.model); !good) return Unexpected{good.error()};
  job.sequence = arguments.sequence.value_or(base->sequence);
  if (job.sequence < 1) return bad_layout("expected --sequence, found none");
  if (!arguments.global_batch) {
    return bad_layout("expected --global-batch (sequences per optimizer step), found none");
  }
  // A longer table of positions, as programs that train on longer sequences have it.
  if (job.model.positions > 0 && job.model.positions < job.sequence) {
    job.model.positions = job.sequence;
  }
  job.global_batch = *arguments.global_batch;
  const auto precision = parse_layout_precision(arguments.precision);
  if (!precision) return Unexpected{precision.error()};
  job.precision = *precision;
  job.attention =
      arguments.attention == "eager" ? LayoutJob::Attention::kEager : LayoutJob::Attention::kFlash;
  job.optimizer = arguments.optimizer == "sgd"          ? LayoutJob::Optimizer::kSgd
                  : arguments.optimizer == "adamw-8bit" ? LayoutJob::Optimizer::kAdamW8bit
                                                        : LayoutJob::Optimizer::kAdamW;
  job.fp32_gradients = arguments.grad_dtype == "fp32";
  job.dropout = arguments.dropout;
  if (!arguments.software.empty()) job.software = arguments.software;
  return question;
}

Result<LayoutSpace> layout_space(const LayoutArguments& arguments) {
  LayoutSpace space{.tp = arguments.tp,
                    .pp = arguments.pp,
                    .vp = arguments.vp,
                    .micro_batch = arguments.micro_batch};
  for (const std::string& text : arguments.zero) {
    const auto sharding = parse_sharding(text);
    if (!sharding) return Unexpected{sharding.error()};
    space.zero.push_back(*sharding);
  }
  for (const std::string& text : arguments.recompute) {
    const auto recompute = parse_recompute(text);
    if (!recompute) return Unexpected{recompute.error()};
    space.recompute.push_back(*recompute);
  }
  space.sequence_parallel = arguments.sequence_parallel;
  space.order = arguments.schedule == "gpipe" ? PipelineOrder::kGpipe : PipelineOrder::k1F1B;
  return space;
}

namespace {

// Data parallel ranks are what is left of the world.
Result<void> fill_world(ParallelLayout& layout, std::optional<std::int64_t> world,
                        bool dp_is_given) {
  if (!world) return {};
  const std::int64_t others = layout.tp * layout.pp * layout.cp;
  if (dp_is_given && layout.dp * others == *world) return {};
  if (dp_is_given || others < 1 || *world % others != 0) {
    return bad_layout(fmt::format("expected a world that dp {} tp {} pp {} make up, found {} GPUs",
                                  dp_is_given ? std::to_string(layout.dp) : "N", layout.tp,
                                  layout.pp, *world));
  }
  layout.dp = *world / others;
  return {};
}

template <class Value>
Result<Value> only_one(std::string_view flag, const std::vector<Value>& values, Value otherwise) {
  if (values.size() > 1) {
    return bad_layout(
        fmt::format("{}: expected one value for one layout, found {}", flag, values.size()));
  }
  return values.empty() ? otherwise : values.front();
}

}  // namespace

Result<ParallelLayout> named_layout(const LayoutArguments& arguments) {
  ParallelLayout layout;
  const std::pair<std::string_view, const std::vector<std::int64_t>*> counts[] = {
      {"--tp", &arguments.tp},
      {"--pp", &arguments.pp},
      {"--vp", &arguments.vp},
      {"--micro-batch", &arguments.micro_batch}};
  std::int64_t* const places[] = {&layout.tp, &layout.pp, &layout.vp, &layout.micro_batch};
  for (std::size_t i = 0; i < std::size(counts); ++i) {
    const auto value = only_one(counts[i].first, *counts[i].second, std::int64_t{1});
    if (!value) return Unexpected{value.error()};
    *places[i] = *value;
  }
  const auto zero = only_one("--zero", arguments.zero, std::string("none"));
  if (!zero) return Unexpected{zero.error()};
  const auto recompute = only_one("--recompute", arguments.recompute, std::string("none"));
  if (!recompute) return Unexpected{recompute.error()};
  const auto sharding = parse_sharding(*zero);
  if (!sharding) return Unexpected{sharding.error()};
  const auto again = parse_recompute(*recompute);
  if (!again) return Unexpected{again.error()};
  layout.zero = *sharding;
  layout.recompute = *again;
  layout.sequence_parallel = arguments.sequence_parallel.value_or(layout.tp > 1) && layout.tp > 1;
  layout.order = arguments.schedule == "gpipe" ? PipelineOrder::kGpipe : PipelineOrder::k1F1B;
  if (auto good = fill_world(layout, arguments.world, false); !good) {
    return Unexpected{good.error()};
  }
  return layout;
}

Result<ParallelLayout> parse_layout(std::string_view text, std::optional<std::int64_t> world) {
  ParallelLayout layout;
  bool dp_is_given = false;
  std::optional<bool> sequence_parallel;
  const std::pair<std::string_view, std::int64_t*> counts[] = {
      {"dp", &layout.dp}, {"tp", &layout.tp}, {"pp", &layout.pp},
      {"vp", &layout.vp}, {"cp", &layout.cp}, {"micro_batch", &layout.micro_batch}};
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string_view key = part.substr(0, equals);
    const std::string_view value = part.substr(std::min(equals + 1, part.size()));
    begin = end + 1;
    bool good = false;
    for (const auto& [name, place] : counts) {
      if (name == key) good = layout_count(value, *place);
    }
    dp_is_given |= key == "dp";
    if (key == "zero") {
      const auto sharding = parse_sharding(value);
      if (!sharding) return Unexpected{sharding.error()};
      layout.zero = *sharding;
      good = true;
    } else if (key == "recompute") {
      const auto recompute = parse_recompute(value);
      if (!recompute) return Unexpected{recompute.error()};
      layout.recompute = *recompute;
      good = true;
    } else if (key == "sequence_parallel" && (value == "0" || value == "1")) {
      sequence_parallel = value == "1";
      good = true;
    } else if (key == "schedule" && (value == "1f1b" || value == "gpipe")) {
      layout.order = value == "gpipe" ? PipelineOrder::kGpipe : PipelineOrder::k1F1B;
      good = true;
    }
    if (!good) {
      return bad_layout(fmt::format(
          "layout: expected parts such as tp=8,pp=4,vp=2,micro_batch=1,zero=1,recompute=full,"
          "sequence_parallel=1,schedule=1f1b, found \"{}\"",
          part));
    }
  }
  layout.sequence_parallel = sequence_parallel.value_or(layout.tp > 1) && layout.tp > 1;
  if (auto good = fill_world(layout, world, dp_is_given); !good) return Unexpected{good.error()};
  return layout;
}

std::string layout_words(const ParallelLayout& layout) {
  std::string words = fmt::format("dp {}", layout.dp);
  const std::pair<std::string_view, std::int64_t> counts[] = {
      {"tp", layout.tp}, {"pp", layout.pp}, {"vp", layout.vp}};
  for (const auto& [name, count] : counts) {
    if (count > 1) words += fmt::format(" {} {}", name, count);
  }
  words += fmt::format(" micro-batch {}", layout.micro_batch);
  if (layout.zero != Sharding::kNone) {
    const bool numbered = layout.zero < Sharding::kFsdp;
    words += fmt::format(" {}{}", numbered ? "ZeRO-" : "", to_string(layout.zero));
  }
  if (layout.recompute != LayoutRecompute::kNone) {
    words += fmt::format(" {} recomputation", to_string(layout.recompute));
  }
  if (layout.tp > 1 && !layout.sequence_parallel) words += " no sequence parallelism";
  if (layout.order == PipelineOrder::kGpipe) words += " GPipe";
  return words;
}

}  // namespace perfmodel::cli
