#include "shard_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "base/contains.hpp"
#include "base/split.hpp"
#include "perfmodel/sharding/detail/embedding_shards.hpp"

namespace perfmodel::sharding {
namespace {

using Question = ShardQuestion;

constexpr FieldRange kFromOne = {.low = 1}, kFromZero = {.low = 0};

std::string refuse_dtype(std::string_view word) {
  constexpr std::string_view kKnown[] = {"float32", "float16", "bfloat16", "int8",
                                         "fp32",    "fp16",    "bf16"};
  if (std::ranges::find(kKnown, word) != std::end(kKnown)) return "";
  return fmt::format("expected float32, float16, bfloat16 or int8, found {}", word);
}

std::string refuse_optimizer(std::string_view word) {
  if (table_optimizer(word)) return "";
  return fmt::format("expected an optimizer of tables, found {}", word);
}

std::string refuse_type(std::string_view word) {
  if (sharding_type(word)) return "";
  return fmt::format("expected a way to shard such as table_wise, found {}", word);
}

std::string refuse_kernel(std::string_view word) {
  if (compute_kernel(word)) return "";
  return fmt::format("expected a kernel such as fused_uvm, found {}", word);
}

std::string refuse_hot_rows(std::string_view word) {
  constexpr std::size_t kMostDigits = 15;
  const bool is_number = !word.empty() && word.size() <= kMostDigits &&
                         std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
  if (is_number || word == "auto") return "";
  return fmt::format("expected a number of rows or auto, found {}", word);
}

constexpr ShardField count(std::string_view name, std::optional<std::int64_t> Question::*member,
                           std::string_view help, std::string_view takes = "N") {
  return {name, member, help, takes, kFromOne};
}
constexpr ShardField choice(std::string_view name, decltype(ShardField::member) member,
                            std::string_view help, std::string_view takes,
                            std::string_view choices) {
  return {name, member, help, takes, {}, choices};
}
constexpr ShardField word(std::string_view name, decltype(ShardField::member) member,
                          std::string_view help, std::string_view takes,
                          std::string (*refuse)(std::string_view) = nullptr) {
  return {name, member, help, takes, {}, {}, refuse};
}

constexpr ShardField kFields[] = {
    word("gpu", &Question::gpu, "Name of a known GPU, or a GPU file", "NAME"),
    word("topology", &Question::topology,
         "How the GPUs are connected (default: the usual node of this GPU)", "NAME"),
    count("world", &Question::world, "Number of GPUs"),
    count("gpus_per_host", &Question::local_world,
          "GPUs of each host (default: as many as the topology has)"),
    count("batch_per_gpu", &Question::batch, "Samples per GPU and batch", "B"),
    choice("costs", &Question::costs,
           "calibrated: time per batch; torchrec: the rating of TorchRec's planner", "MODE",
           "calibrated torchrec"),
    word("dtype", &Question::dtype, "Elements of all tables", "TYPE", refuse_dtype),
    word("wire_dtype", &Question::wire_dtype, "Elements of exchanged vectors", "TYPE",
         refuse_dtype),
    word("optimizer", &Question::optimizer,
         "Of all tables: sgd, rowwise_adagrad, adagrad, adam, none", "NAME", refuse_optimizer),
    {"zipf", &Question::zipf, "Exponent of the Zipf law that ids follow; 0: uniform", "S",
     kFromZero},
    {"deduplicate", &Question::deduplicate,
     "Exchange each distinct id of a batch once; vectors are pooled where they are used"},
    word("types", &Question::types, "Ways to shard that plans may use, for all tables", "TYPE,...",
         refuse_type),
    word("kernels", &Question::kernels,
         "Kernels that plans may use: dense, fused, fused_uvm, fused_uvm_caching", "KERNEL,...",
         refuse_kernel),
    choice("pipeline", &Question::pipeline,
           "none, sparse_dist (ids of the next batch beside this one) or prefetch", "NAME",
           "none sparse_dist prefetch"),
    word("bottom", &Question::bottom, "Bottom MLP, the dense features first", "W-W-..."),
    word("top", &Question::top, "Top MLP behind the interaction, last width 1", "W-W-..."),
    {"reserve",
     &Question::free_share,
     "Share of each GPU's memory that stays free",
     "SHARE",
     {0, 0.99}},
    choice("software", &Question::software,
           "fused: all tables of a GPU in one kernel (TorchRec, HugeCTR); per-table: lookups and "
           "updates one by one (TensorFlow)",
           "KIND", "fused per-table"),
    {"host_us", &Question::host_us, "Time that the host needs per batch, whatever --launch says",
     "US", kFromZero},
    choice("launch", &Question::launch,
           "eager: PyTorch's host launches op by op (default); graphs: CUDA graphs do; compiled: "
           "compiled code does. HugeCTR (--network hugectr) launches all at once by default",
           "HOW", "eager graphs compiled"),
    word("host", &Question::host, "Whose host launches: reference, measured or a file of overheads",
         "HOST"),
    word("network", &Question::network,
         "How ranks exchange: plain, torchrec or hugectr, then hierarchical, one-shot, overlap, "
         "no-p2p, peer-us=US, straggler-us=US, nics=N, ... behind commas",
         "SPEC"),
    word("hot_rows", &Question::hot_rows,
         "So many of the most frequent rows of each table have a copy on every GPU; auto: the "
         "search chooses the number for each table",
         "N|auto", refuse_hot_rows),
    choice("choose", &Question::choose,
           "What the search may choose for each table that leaves it open: deduplication, cache "
           "(share of rows), wire (2 bytes per element), or none (default: what the software of "
           "--network has for single tables, but for wire)",
           "SETTING,...", "deduplication cache wire none"),
    choice("interaction", &Question::interaction,
           "How vectors meet: cat, dot, dcn, or none (no dense part)", "KIND", "cat dot dcn none"),
    word("indices", &Question::indices,
         "Recorded indices of a table (.npy, or .csv with a column index) say how often rows are "
         "read",
         "TABLE=FILE"),
    word("access", &Question::access,
         "Access histogram (reuse_gt, reuse_le, frac_unique_rows, frac_lookups) of all tables, or "
         "with a column table of each",
         "FILE"),
    word("compress", &Question::compress,
         "Keep tables in one hashed array on every GPU: robe:m=ELEMENTS,Z=COLUMNS or "
         "robe:ratio=FACTOR; tables=best lets the search choose which",
         "SPEC"),
    {"time_budget", &Question::time_budget_s,
     "Seconds that the search may take, counted by its moves", "S", kFromZero},
    {"seed", &Question::seed, "Of the search", "N"},
};

constexpr ShardField kAxes[] = {
    {"batch-per-gpu", &Question::batch, {}, {}, kFromOne},
    {"dtype", &Question::dtype, {}},
    {"gpu", &Question::gpu, {}},
    {"links", &Question::link_scale, {}, {}, kFromZero},
    {"pooling", &Question::pooling_scale, {}, {}, kFromZero},
    {"reserve", &Question::free_share, {}, {}, kFromZero},
    {"wire-dtype", &Question::wire_dtype, {}},
    {"world", &Question::world, {}, {}, kFromOne},
    {"zipf", &Question::zipf, {}, {}, kFromZero},
};

// Empty: the word is a value of the field.
std::string refused(const ShardField& field, const std::string& word) {
  if (field.refuse) return field.refuse(word);
  if (field.choices.empty()) return "";
  if (contains(split(field.choices, ' '), word)) return "";
  return fmt::format("expected one of {}, found {}", field.choices, word);
}

}  // namespace

std::span<const ShardField> shard_fields() { return kFields; }
std::span<const ShardField> sweep_axes() { return kAxes; }

Result<void> check_words(const ShardQuestion& question) {
  for (const ShardField& field : kFields) {
    std::vector<std::string> words;
    if (const auto* one = std::get_if<std::string Question::*>(&field.member)) {
      if (!(question.**one).empty()) words = {question.**one};
    } else if (const auto* list =
                   std::get_if<std::vector<std::string> Question::*>(&field.member)) {
      words = question.**list;
    }
    for (const std::string& word : words) {
      const std::string problem = refused(field, word);
      if (problem.empty()) continue;
      return decline(flag_of(field.name) + ": " + problem);
    }
  }
  return {};
}

}  // namespace perfmodel::sharding
