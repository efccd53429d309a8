#include "layout_arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <tuple>
#include <utility>

#include "arguments.hpp"
#include "terminal/cli11.hpp"

namespace perfmodel::cli {
namespace {

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
  add_choice(app, "--gated,!--no-gated", arguments.gated,
             "Three products per feed-forward layer; two alone: a GPT, unless --positions 0");
  add_choice(app, "--tied,!--no-tied", arguments.tied, "The output layer shares the embedding");
  add_count(app, "--head-width", arguments.head_width, "Numbers of a head (hidden / heads)");
  add_count(app, "--experts", arguments.experts, "Experts of a layer");
  add_count(app, "--top-k", arguments.top_k, "Experts of a token");
  add_count(app, "--expert-hidden", arguments.expert_hidden,
            "Width inside of an expert (--feed-forward)");
  add_count(app, "--shared-hidden", arguments.shared_hidden,
            "Width inside of the expert that takes every token (none)");
  add_count(app, "--dense-layers", arguments.dense_layers, "First layers that have no experts");
  app.add_option("--next-tokens", arguments.next_tokens,
                 "Tokens beyond the next that the model learns to predict (the model's)")
      ->check(between(0, 16))
      ->type_name("N");
}

void add_job_options(CLI::App& app, LayoutArguments& arguments) {
  app.add_option("--gpu", arguments.gpu, "GPU, by name")->required()->type_name("GPU");
  app.add_option("--topology", arguments.topology, "Nodes and network (what the GPU sits in)")
      ->type_name("NAME");
  app.add_option("--collectives", arguments.collectives,
                 "Price collectives by ASTRA-sim's rules on the network of this file")
      ->type_name("FILE");
  app.add_option("--software", arguments.software,
                 "Whose costs beside the kernels count: a file of data/frameworks (megatron)")
      ->type_name("NAME");
  add_count(app, "--world", arguments.world, "GPUs");
  add_count(app, "--global-batch", arguments.global_batch, "Sequences per optimizer step");
  add_count(app, "--sequence", arguments.sequence, "Tokens per sequence (the model's)");
  app.add_option("--precision", arguments.precision, "Type of the products")
      ->check(CLI::IsMember({"bf16", "fp16", "fp8", "fp4", "fp32"}))
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
  app.add_option("--expert-imbalance", arguments.expert_imbalance,
                 "Coefficient of variation of the rows that experts get (0: all as many)")
      ->check(between(0, 100))
      ->type_name("CV");
  app.add_option("--expert-capacity", arguments.expert_capacity,
                 "Rows that experts get over their even share, filled up or cut off (0: all)")
      ->check(between(0, 100))
      ->type_name("X");
  add_count(app, "--lora", arguments.lora, "Rank of adapters beside frozen weights (all learn)");
  app.add_option("--lora-on", arguments.lora_on, "Layers with adapters (attention)")
      ->check(CLI::IsMember({"attention", "all"}))
      ->type_name("WHICH");
  app.add_option("--frozen-bits", arguments.frozen_bits, "Of frozen weights; 4: QLoRA (16)")
      ->check(CLI::IsMember({"16", "4"}))
      ->type_name("N");
  add_scale_host(app, arguments.host_scale);
}

}  // namespace

void add_layout_options(CLI::App& app, LayoutArguments& arguments) {
  add_model_options(app, arguments);
  add_job_options(app, arguments);
  add_counts(app, "--dp", arguments.dp, "Data parallel ranks (what is left of --world)");
  add_counts(app, "--tp", arguments.tp, "Tensor parallel ranks");
  add_counts(app, "--pp", arguments.pp, "Pipeline stages");
  add_counts(app, "--vp", arguments.vp, "Chunks of layers per stage (interleaved)");
  add_counts(app, "--cp", arguments.cp, "Context parallel ranks, which share a sequence");
  add_counts(app, "--ep", arguments.ep, "Expert parallel ranks, of dp x cp x tp");
  add_count(app, "--etp", arguments.etp, "Ranks that share each expert's matrices (1)");
  app.add_option("--context", arguments.context,
                 "How attention sees other ranks' tokens: ring, all-gather or all-to-all (ring)")
      ->check(CLI::IsMember({"ring", "all-gather", "all-to-all"}))
      ->type_name("HOW");
  add_choice(app, "--context-balanced,!--no-context-balanced", arguments.context_balanced,
             "Ranks have an early and a late part of the sequence (so they have)");
  add_choice(app, "--overlap-experts,!--no-overlap-experts", arguments.overlap_experts,
             "Compute hides the exchange with experts as far as it can (as the software does)");
  add_counts(app, "--micro-batch", arguments.micro_batch, "Sequences per microbatch");
  app.add_option("--zero", arguments.zero, "0, 1, 2, 3, fsdp or hsdp")
      ->delimiter(',')
      ->type_name("KIND,...");
  app.add_option("--recompute", arguments.recompute, "none, selective or full")
      ->delimiter(',')
      ->type_name("KIND,...");
  add_choice(app, "--sequence-parallel,!--no-sequence-parallel", arguments.sequence_parallel,
             "Norms and residuals on 1/tp of the tokens (where tp is above 1)");
  app.add_option("--schedule", arguments.schedule,
                 "Order of a pipeline's microbatches: 1f1b (the default), gpipe, zb-h1, zb-v, "
                 "dualpipe")
      ->delimiter(',')
      ->type_name("NAME,...");
  app.add_option_function<std::string>(
         "--stages",
         [&arguments](const std::string& text) { arguments.searched_stages = text == "searched"; },
         "Layers of pipeline stages: those of the program (equal), or the fastest (searched)")
      ->check(CLI::IsMember({"equal", "searched"}))
      ->type_name("KIND");
  app.add_option(
         "--measured", arguments.measured,
         "Steps measured on this machine that calibrate it: a table (CSV), a Kineto trace of "
         "one step, or a machine's file or name")
      ->type_name("FILE");
  app.add_option(
         "--measured-layout", arguments.measured_layout,
         "Layout of a measured trace: tp=8,pp=4,micro_batch=1 (the one that is asked about)")
      ->type_name("PARTS");
  app.add_flag("--json", arguments.json, "Print JSON");
}

Result<LayoutSpace> layout_space(const LayoutArguments& arguments) {
  LayoutSpace space{.dp = arguments.dp,
                    .tp = arguments.tp,
                    .pp = arguments.pp,
                    .vp = arguments.vp,
                    .micro_batch = arguments.micro_batch,
                    .cp = arguments.cp,
                    .ep = arguments.ep};
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
  for (const std::string& text : arguments.schedule) {
    const auto order = parse_pipeline_order(text);
    if (!order) return Unexpected{order.error()};
    space.order.push_back(*order);
  }
  space.searched_stages = arguments.searched_stages;
  return space;
}

namespace {

template <class Value>
Result<void> only_one(std::string_view flag, const std::vector<Value>& values, auto& to) {
  if (values.size() > 1) {
    return bad_layout(
        fmt::format("{}: expected one value for one layout, found {}", flag, values.size()));
  }
  if (!values.empty()) to = values.front();
  return {};
}

}  // namespace

Result<ParallelLayout> named_layout(const LayoutArguments& arguments) {
  LayoutParts parts{.world = arguments.world,
                    .sequence_parallel = arguments.sequence_parallel,
                    .etp = arguments.etp,
                    .context = arguments.context,
                    .context_balanced = arguments.context_balanced,
                    .overlap_experts = arguments.overlap_experts};
  const std::tuple<std::string_view, const std::vector<std::int64_t>*, std::optional<std::int64_t>*>
      counts[] = {{"--dp", &arguments.dp, &parts.dp},
                  {"--tp", &arguments.tp, &parts.tp},
                  {"--pp", &arguments.pp, &parts.pp},
                  {"--vp", &arguments.vp, &parts.vp},
                  {"--cp", &arguments.cp, &parts.cp},
                  {"--ep", &arguments.ep, &parts.ep},
                  {"--micro-batch", &arguments.micro_batch, &parts.micro_batch}};
  for (const auto& [flag, values, to] : counts) {
    if (auto good = only_one(flag, *values, *to); !good) return Unexpected{good.error()};
  }
  if (auto good = only_one("--zero", arguments.zero, parts.zero); !good) {
    return Unexpected{good.error()};
  }
  if (auto good = only_one("--recompute", arguments.recompute, parts.recompute); !good) {
    return Unexpected{good.error()};
  }
  if (auto good = only_one("--schedule", arguments.schedule, parts.schedule); !good) {
    return Unexpected{good.error()};
  }
  auto layout = layout_of(parts);
  if (layout) layout->searched_stages = arguments.searched_stages;
  return layout;
}

Result<ParallelLayout> parse_layout(std::string_view text, std::optional<std::int64_t> world) {
  LayoutParts parts{.world = world};
  const std::pair<std::string_view, std::optional<std::int64_t>*> counts[] = {
      {"dp", &parts.dp}, {"tp", &parts.tp},  {"pp", &parts.pp},
      {"vp", &parts.vp}, {"cp", &parts.cp},  {"micro_batch", &parts.micro_batch},
      {"ep", &parts.ep}, {"etp", &parts.etp}};
  const std::pair<std::string_view, std::string*> names[] = {{"zero", &parts.zero},
                                                             {"recompute", &parts.recompute},
                                                             {"schedule", &parts.schedule},
                                                             {"context", &parts.context}};
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string_view key = part.substr(0, equals);
    const std::string_view value = part.substr(std::min(equals + 1, part.size()));
    begin = end + 1;
    bool good = false;
    for (const auto& [name, to] : counts) {
      std::int64_t count = 0;
      if (name != key || !layout_count(value, count)) continue;
      *to = count;
      good = true;
    }
    for (const auto& [name, to] : names) {
      if (name != key || value.empty()) continue;
      *to = value;
      good = true;
    }
    if (key == "sequence_parallel" && (value == "0" || value == "1")) {
      parts.sequence_parallel = value == "1";
      good = true;
    }
    if (!good) {
      return bad_layout(fmt::format(
          "layout: expected parts such as tp=8,pp=4,vp=2,micro_batch=1,zero=1,recompute=full,"
          "sequence_parallel=1,schedule=1f1b, found \"{}\"",
          part));
    }
  }
  return layout_of(parts);
}

}  // namespace perfmodel::cli
