#include <fmt/format.h>

#include <filesystem>

#include "base/secrets.hpp"
#include "fields/field.hpp"
#include "files/json_file.hpp"
#include "job_values.hpp"
#include "perfmodel/detail/decoder_models.hpp"

namespace perfmodel {
namespace {

namespace fs = std::filesystem;

// Works out a field; `how` names the source.
void work_out(JobValues& values, const std::string& field, const std::string& value,
              const std::string& how) {
  values.replace(field, {.key = "", .value = how, .field = field, .as = value});
}
void work_out(JobValues& values, const std::string& field, std::int64_t value,
              const std::string& how) {
  work_out(values, field, std::to_string(value), how);
}

std::optional<NamedDecoder> named_model(const JobValues& values) {
  if (!values.has("model")) return std::nullopt;
  const fs::path name = values.text("model");
  std::error_code ignored;
  auto found = fs::exists(name, ignored) ? read_decoder_config(name) : find_decoder(name.string());
  return found ? std::optional(std::move(*found)) : std::nullopt;
}

void name_model(const JobFormat& format, JobValues& values) {
  if (!values.has("model") && values.has("model_family") && values.has("model_size")) {
    JobLine line = *values.find("model_size");
    line.field = "model";
    line.as = values.text("model_family") + "-" + line.as;
    values.replace("model", line);
  }
  const JobLine* named = values.find("model");
  if (!named && !values.has("layers")) {
    return values.fail_at({.key = "MODEL"},
                          "expected a model with --job, since the job names none");
  }
  if (!named || named->key == flag_of("model")) return;
  JobLine line = *named;
  const std::string model = model_of_name(line.as, format, values.file().parent_path());
  if (model.empty()) {
    const std::vector<std::string_view> known = decoder_names();
    return values.fail_at(
        line,
        fmt::format("expected a known model, or a config.json or its folder, found \"{}\" (the "
                    "nearest is {}; MODEL with --job counts instead)",
                    shown_text(line.as), nearest_name(line.as, known)));
  }
  work_out(values, "model", model, "named " + line.as);
}

std::int64_t count_or(JobValues& values, const std::string& name, std::int64_t otherwise) {
  return values.count(name).value_or(otherwise);
}

// None: all other GPUs share the parameters, or nothing is said.
std::optional<std::int64_t> shard_count(JobValues& values) {
  return values.text("dp_shard") == "rest" ? std::nullopt : values.count("dp_shard");
}

// Ranks that do not share the batch.
std::int64_t model_ranks(JobValues& values) {
  return count_or(values, "tp", 1) * count_or(values, "pp", 1) * count_or(values, "cp", 1);
}

void find_world(JobValues& values) {
  const auto nodes = values.count("nodes"), each = values.count("gpus_per_node");
  const auto shards = shard_count(values);
  const bool is_flag = values.has("world") && values.find("world")->key == flag_of("world");
  if (each && !is_flag) {
    const std::int64_t world = nodes.value_or(1) * *each;
    if (values.has("world") && count_or(values, "world", 1) != world) {
      values.fail_at(*values.find("world"),
                     fmt::format("expected {} GPUs ({} nodes of {}), found {}", world,
                                 nodes.value_or(1), *each, values.text("world")));
    }
    work_out(values, "world", world, fmt::format("{} nodes of {} GPUs", nodes.value_or(1), *each));
  }
  if (values.has("world") || !shards) return;
  const std::int64_t replicas = count_or(values, "dp_replicate", 1), others = model_ranks(values);
  work_out(values, "world", *shards * replicas * others,
           fmt::format("{} shards x {} replicas x {} ranks of a model", *shards, replicas, others));
}

// Counts data parallel ranks; none: the number of GPUs is not known.
std::optional<std::int64_t> data_ranks(JobValues& values) {
  const auto world = values.count("world");
  const std::int64_t others = model_ranks(values);
  if (!world || values.error()) return std::nullopt;
  if (*world % others != 0) {
    values.fail_at(*values.find("world"),
                   fmt::format("expected GPUs that tp {} x pp {} x cp {} divide, found {}",
                               count_or(values, "tp", 1), count_or(values, "pp", 1),
                               count_or(values, "cp", 1), *world));
    return std::nullopt;
  }
  const std::int64_t dp = *world / others;
  const auto shards = shard_count(values), replicas = values.count("dp_replicate");
  const std::int64_t said = shards.value_or(1) * replicas.value_or(1);
  if (shards ? said != dp : dp % said != 0) {
    values.fail_at(
        *values.find(shards ? "dp_shard" : "dp_replicate"),
        fmt::format("expected shards and replicas that make up {} data parallel ranks ({} "
                    "GPUs / {}), found {} x {}",
                    dp, *world, others, shards.value_or(1), replicas.value_or(1)));
  }
  return dp;
}

void find_sharding(JobValues& values, std::optional<std::int64_t> dp) {
  if (values.has("sharding") && !values.has("zero")) {
    work_out(values, "zero", values.text("sharding"), values.find("sharding")->key);
  }
  if (values.has("zero") || !(values.has("dp_shard") || values.has("dp_replicate"))) return;
  const std::int64_t replicas = count_or(values, "dp_replicate", 1);
  const std::int64_t shards = shard_count(values).value_or(dp.value_or(1) / replicas);
  if (shards <= 1) return;
  work_out(values, "zero", replicas > 1 ? "hsdp" : "fsdp",
           fmt::format("{} shards x {} replicas", shards, replicas));
}

void find_batch(JobValues& values, std::int64_t dp) {
  const auto rank_batch = values.count("rank_batch"), steps = values.count("accumulation");
  if (rank_batch && !values.has("micro_batch")) {
    const bool in_pipeline = count_or(values, "pp", 1) > 1;
    work_out(values, "micro_batch",
             in_pipeline ? count_or(values, "pipeline_batch", 1) : *rank_batch,
             in_pipeline ? "of a pipeline's microbatch" : "the batch of a rank");
  }
  const auto global = values.count("global_batch");
  if (global && steps && !values.has("micro_batch") && *global % (*steps * dp) == 0) {
    work_out(values, "micro_batch", *global / (*steps * dp),
             fmt::format("{} / ({} microbatches x {} ranks)", *global, *steps, dp));
  }
  const std::int64_t micro = count_or(values, "micro_batch", 1);
  const std::int64_t each = rank_batch && !global ? *rank_batch : micro;
  const std::int64_t made = each * steps.value_or(1) * dp;
  if (!global && (rank_batch || values.has("micro_batch"))) {
    work_out(values, "global_batch", made,
             fmt::format("{} sequences x {} microbatches x {} ranks", each, steps.value_or(1), dp));
  } else if (global && steps && *global != made) {
    values.fail_at(*values.find("global_batch"),
                   fmt::format("expected {} sequences ({} x {} microbatches x {} data parallel "
                               "ranks), found {}",
                               made, micro, *steps, dp, *global));
  }
}

void find_chunks(JobValues& values, const std::optional<NamedDecoder>& model) {
  const auto per_chunk = values.count("layers_per_chunk");
  const std::int64_t layers = count_or(values, "layers", model ? model->model.layers : 0);
  const std::int64_t stages = count_or(values, "pp", 1);
  if (!per_chunk || stages == 1 || (values.has("vp") && !values.find("vp")->key.empty())) return;
  if (layers % (stages * *per_chunk) != 0) {
    return values.fail_at(
        *values.find("layers_per_chunk"),
        fmt::format("expected layers that divide {} layers over {} stages, found {}", layers,
                    stages, *per_chunk));
  }
  work_out(values, "vp", layers / (stages * *per_chunk),
           fmt::format("{} layers / ({} stages x {})", layers, stages, *per_chunk));
}

// Which layers or parts are recomputed: torchtitan's option, Megatron's method and modules.
void find_recompute(JobValues& values) {
  if (values.has("checkpointing") && !values.has("recompute")) {
    const bool all = values.text("checkpointing") == "true";
    work_out(values, "recompute", all ? "full" : "none", values.find("checkpointing")->key);
  }
  const std::string kind = values.text("recompute"), method = values.text("recompute_method");
  const JobLine* parts = values.find(kind == "op" ? "recompute_option" : "recompute_modules");
  if (parts && (kind == "op" || kind == "selective") && parts->as != "core_attn" &&
      parts->as != kind) {
    work_out(values, "recompute", parts->as, parts->key);
  }
  const std::int64_t layers = count_or(values, "recompute_layers", 1);
  if (kind == "full" && (method == "block" || (method == "uniform" && layers > 1))) {
    work_out(values, "recompute", fmt::format("{}:{}", method, layers), "recompute_method");
  }
}

// The backend counts only of the flexible dispatcher.
void find_dispatcher(JobValues& values) {
  const bool is_flexible = values.text("dispatcher_type") == "flex";
  if (!is_flexible) values.drop("flex_backend");
  const JobLine* said = values.find(is_flexible ? "flex_backend" : "dispatcher_type");
  if (!said || values.has("dispatcher")) return;
  work_out(values, "dispatcher", said->as, said->key.empty() ? "its default" : said->key);
}

// Trainers leave it out where nothing is there to hide.
void find_overlap(JobValues& values) {
  const JobLine* said = values.find("async_tp");
  if (!said || said->as == "false" || said->key == flag_of("async_tp")) return;
  const std::int64_t tp = count_or(values, "tp", 1), node = count_or(values, "gpus_per_node", tp);
  const bool is_whole = values.text("sequence_parallel") == "false";
  if (tp == 1)
    work_out(values, "async_tp", "false", "tp 1");
  else if (is_whole)
    work_out(values, "async_tp", "false", "no sequence parallelism");
  else if (tp > node)
    work_out(values, "async_tp", "false", "tp of several nodes");
}

void check_offload(JobValues& values) {
  const JobLine* said = values.find("offload");
  if (!said || !said->as.starts_with("optimizer")) values.drop("optimizer_offload_fraction");
  if (!said || !said->as.starts_with("parameters")) return;
  values.fail_at(*said, "expected the optimizer in host memory with its parameters, found none");
}

void find_training(JobValues& values) {
  if (values.has("low_precision")) {
    work_out(values, "precision", values.text("low_precision"), values.find("low_precision")->key);
  }
  const std::string adapter = values.text("adapter");
  if (adapter != "lora" && adapter != "qlora") {
    values.drop("lora");
    values.drop("lora_on");
    return;
  }
  if (!values.has("lora")) {
    return values.fail_at(*values.find("adapter"), "expected the rank of adapters, found none");
  }
  if (adapter == "qlora" && !values.has("frozen_bits"))
    work_out(values, "frozen_bits", "4", "qlora");
}

// Megatron's rules for sizes that are not said.
void find_sizes(JobValues& values, bool has_experts) {
  const auto hidden = values.count("hidden");
  if (hidden && !values.has("feed_forward") && !values.has("model")) {
    constexpr std::int64_t kTimes = 4, kMultiple = 64;
    const bool gated = values.text("gated") == "true";
    const std::int64_t width =
        gated ? 2 * kTimes * *hidden / 3 / kMultiple * kMultiple : kTimes * *hidden;
    work_out(values, "feed_forward", width,
             gated ? "8 / 3 of the hidden width" : "4 times the hidden width");
  }
  if (values.text("group_query") == "false") values.drop("kv_heads");
  if (!has_experts) {
    for (const char* name : {"top_k", "expert_hidden", "shared_hidden", "dense_layers",
                             "dispatcher", "flex_backend", "overlap_experts", "expert_capacity"}) {
      values.drop(name);
    }
  } else if (values.text("experts_follow_tp") == "true" && !values.has("etp")) {
    work_out(values, "etp", count_or(values, "tp", 1),
             "experts are cut as everything else is (tp)");
  }
  if (values.text("position_kind") == "rotary" && !values.has("model")) {
    work_out(values, "positions", "0", "rotary positions");
  } else if (const auto positions = values.count("max_positions");
             positions && !values.has("model")) {
    work_out(values, "positions", *positions, "learned positions");
  }
}

// The vocabulary with the words that fill it up.
void find_vocabulary(JobValues& values) {
  const auto words = values.count("words");
  if (!words || values.has("vocabulary") || values.has("model")) return;
  const std::int64_t multiple = count_or(values, "vocabulary_step", 1) * count_or(values, "tp", 1);
  work_out(values, "vocabulary", (*words + multiple - 1) / multiple * multiple,
           fmt::format("{} words, filled up to a multiple of {}", *words, multiple));
}

}  // namespace

void complete_job(const JobFormat& format, JobValues& values) {
  name_model(format, values);
  const std::optional<NamedDecoder> model = named_model(values);
  find_world(values);
  const auto dp = data_ranks(values);
  find_sharding(values, dp);
  find_chunks(values, model);
  if (dp) find_batch(values, *dp);
  find_recompute(values);
  find_dispatcher(values);
  find_overlap(values);
  check_offload(values);
  find_training(values);
  find_sizes(values, values.has("experts") || (model && model->model.experts.experts > 0));
  find_vocabulary(values);
  if (!dp && !values.error() && !values.has("global_batch")) {
    values.fail_at({.key = "--world"}, "expected the number of GPUs, which the job does not say");
  }
}

}  // namespace perfmodel
