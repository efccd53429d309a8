#include "request_fields.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

#include "base/size_limits.hpp"

namespace perfmodel::serve {
namespace {

using SchemaJson = nlohmann::ordered_json;

constexpr FieldRange kSize = {1, kMaxSize};

// Values that are not parts of a layout, by their keys.
constexpr RequestField kRequestFields[] = {
    {"name", &Request::name, "Name under which the graph is kept"},
    {"file", &Request::file, "A graph or a trace on the server's disk"},
    {"gpu", &Request::gpu, "Name of a GPU, as gpus lists them"},
    {"topology", &Request::topology, "How the GPUs are connected (the GPU's usual node)"},
    {"family", &Request::family, "bert, dlrm, gpt, inception, llama, mlp, opt, resnet, t5 or vgg"},
    {"preset", &Request::preset, "A known size of the family: gpt2, mlperf"},
    {"optimizer", &Request::optimizer, "sgd, adam and others (the family's)"},
    {"batch", &Request::batch, "Samples per step of one GPU (the graph's)", {}, kSize},
    {"sequence", &Request::sequence, "Tokens per sample (the graph's)", {}, kSize},
    {"layers", &Request::layers, "Layers (the model's)", {}, {1, kMostLayers}},
    {"world", &Request::world, "GPUs of the job", {}, {1, kMostJobRanks}},
    {"strategy", &Request::strategy, "ddp or fsdp, of a graph of one rank on several GPUs"},
    {"delay_allreduce", &Request::delay_allreduce,
     "ddp: gradients are exchanged after the backward pass"},
    {"stages",
     &Request::stages,
     "Stages of the pipeline that the graph is one rank of",
     {},
     {1, kMostJobRanks}},
    {"interference", &Request::interference, "Times as long as alone that collectives take"},
    {"host_scale", &Request::host_scale, "Times as long that the host's own work takes"},
    {"device_scale", &Request::device_scale, "Times as long that kernels take"},
    {"measured_us", &Request::measured_us, "Measured time of the step, in microseconds"},
    {"allow", &Request::allow, "Families of changes, with commas (all)"},
    {"objective", &Request::objective, "What to improve (the time of a step)"},
    {"memory_limit_gb", &Request::memory_limit_gb, "Device memory that may be used, in GB (all)"},
    {"time_budget_s", &Request::time_budget_s, "Seconds that the search may take"},
    {"command", &Request::command, "A command of perfpredict: whatif, memory, shard rank"},
    {"top", &Request::top, "Most layouts in the answer", {}, {1, 1000}},
    {"keep_ops", &Request::keep_ops, "Also all ops with their kernels"},
    {"samples", &Request::samples, "Samples of the whole job"},
    {"tokens", &Request::tokens, "Tokens of the whole job; needs sequence"}};

using Keys = std::vector<std::string_view>;

// The keys of a question about a graph, and `more`.
Keys graph_keys(const Keys& more) {
  Keys keys = {"graph", "gpu", "world", "topology", "interference"};
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

// The keys of a question about a graph's step, and `more`.
Keys step_keys(const Keys& more) {
  Keys keys = graph_keys({"batch", "sequence", "strategy", "delay_allreduce", "stages"});
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

// Keys of a question about a layout, whether it is named or searched for.
Keys layout_keys() {
  Keys keys = {"gpu", "topology", "host_scale", "model"};
  for (const LayoutField& field : layout_fields()) keys.push_back(field.name);
  return keys;
}
Keys layout_rank_keys() {
  Keys keys = layout_keys();
  keys.push_back("top");
  return keys;
}

// Keys that the reader of requests knows without a field.
struct OtherKey {
  std::string_view key, help, type;  // `type` as JSON text
};
constexpr OtherKey kOtherKeys[] = {
    {"graph", "Name of a loaded graph", R"({"type": "string"})"},
    {"model", "A known decoder: llama3-8b", R"({"type": "string"})"},
    {"rewrites", "Flags of the command rewrite with their values, in their order",
     R"({"type": "object"})"},
    {"arguments", "Words after the command", R"({"type": "array"})"},
    {"options", "Flags of the command, with _ for -", R"({"type": "object"})"},
    {"files", "Files that the command may read, by name: text or JSON", R"({"type": "object"})"},
    {"outputs", "Names of files that the command writes, to be part of the answer",
     R"({"type": "array", "items": {"type": "string"}})"},
    {"gpus", "Names of GPUs (all)", R"({"type": "array", "items": {"type": "string"}})"},
    {"worlds", "Numbers of GPUs of the job (1)",
     R"({"type": "array", "items": {"type": "integer", "minimum": 1}})"}};

template <class Value>
constexpr bool kIsCount =
    std::is_same_v<Value, std::int64_t> || std::is_same_v<Value, std::optional<std::int64_t>>;

template <class Value>
const char* schema_type() {
  if constexpr (std::is_same_v<Value, bool> || std::is_same_v<Value, std::optional<bool>>) {
    return "boolean";
  } else if constexpr (kIsCount<Value>) {
    return "integer";
  } else if constexpr (std::is_same_v<Value, double> ||
                       std::is_same_v<Value, std::optional<double>>) {
    return "number";
  } else {
    return "string";
  }
}

template <class Question, class... More>
SchemaJson schema_of(const Field<Question, More...>& field) {
  SchemaJson json = {
      {"type", std::visit([]<class Member>(Member Question::*) { return schema_type<Member>(); },
                          field.member)},
      {"description", field.help}};
  const bool counts = json["type"] == "integer";
  if (counts && std::isfinite(field.range.low)) {
    json["minimum"] = static_cast<std::int64_t>(field.range.low);
  }
  if (counts && std::isfinite(field.range.high)) {
    json["maximum"] = static_cast<std::int64_t>(field.range.high);
  }
  return json;
}

SchemaJson schema_of_key(std::string_view key) {
  if (const RequestField* field = find_request_field(key)) return schema_of(*field);
  if (const LayoutField* field = find_layout_field(key)) return schema_of(*field);
  const auto* other = std::ranges::find(kOtherKeys, key, &OtherKey::key);
  if (other == std::end(kOtherKeys)) return SchemaJson::object();
  SchemaJson json = SchemaJson::parse(other->type);
  json["description"] = other->help;
  return json;
}

}  // namespace

const RequestField* find_request_field(std::string_view key) {
  const auto* field = std::ranges::find(kRequestFields, key, &RequestField::name);
  return field == std::end(kRequestFields) ? nullptr : field;
}

const std::vector<RequestOp>& request_ops() {
  static const std::vector<RequestOp> rows = {
      {"ping", Op::kPing, "", {}, {}},
      {"gpus", Op::kGpus, "Names of the GPUs that can be asked about.", {}, {}},
      {"stats", Op::kStats, "", {}, {}},
      {"health", Op::kHealth, "", {}, {}},
      {"load",
       Op::kLoad,
       "Reads a PyTorch execution graph or a Kineto trace of a training step and keeps it under a "
       "name.",
       {"name", "file", "graph"},
       {"name"}},
      {"build",
       Op::kBuild,
       "Makes the graph of a known model's training step, without PyTorch, and keeps it under a "
       "name.",
       {"name", "family", "preset", "batch", "sequence", "layers", "optimizer"},
       {"name", "family"}},
      {"unload", Op::kUnload, "Forgets a graph.", {"name"}, {"name"}},
      {"predict",
       Op::kPredict,
       "Time, throughput and memory of one training step of a loaded graph on a GPU.",
       step_keys({"rewrites", "host_scale", "device_scale", "keep_ops"}),
       {"graph", "gpu"}},
      {"explain",
       Op::kExplain,
       "The same, and what limits the step.",
       step_keys({"rewrites", "host_scale", "device_scale"}),
       {"graph", "gpu"}},
      {"match_step",
       Op::kMatchStep,
       "Scales of host and device with which predict says what was measured.",
       step_keys({"measured_us"}),
       {"graph", "gpu", "measured_us"}},
      {"layout",
       Op::kLayout,
       "Time and memory of one parallel layout of a decoder's training.",
       layout_keys(),
       {"gpu", "global_batch"}},
      {"layout_rank",
       Op::kLayoutRank,
       "The fastest parallel layouts of a decoder's training that fit.",
       layout_rank_keys(),
       {"gpu", "global_batch", "world"}},
      {"optimize",
       Op::kOptimize,
       "What to change about a training step, by what it gains.",
       graph_keys({"host_scale", "device_scale", "allow", "objective", "memory_limit_gb",
                   "time_budget_s"}),
       {"graph", "gpu"}},
      {"duration",
       Op::kDuration,
       "Throughput, fit and length of a training job on kinds and numbers of GPUs.",
       {"graph", "gpus", "worlds", "samples", "tokens", "batch", "sequence", "strategy",
        "delay_allreduce", "topology", "interference", "host_scale", "device_scale"},
       {"graph"}},
      {"ask",
       Op::kAsk,
       "Runs any command of perfpredict and answers its JSON document.",
       {"command", "arguments", "options", "files", "outputs", "name"},
       {"command"}}};
  return rows;
}

nlohmann::ordered_json request_schema(const RequestOp& op) {
  SchemaJson properties = SchemaJson::object();
  for (const std::string_view key : op.keys) properties[std::string(key)] = schema_of_key(key);
  if (op.op == Op::kLoad) {
    properties["graph"] = {{"type", "object"}, {"description", "The graph itself, not a file"}};
  }
  return {{"type", "object"},
          {"properties", std::move(properties)},
          {"required", op.needed},
          {"additionalProperties", false}};
}

}  // namespace perfmodel::serve
