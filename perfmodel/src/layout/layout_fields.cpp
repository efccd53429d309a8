#include "layout_fields.hpp"

#include <algorithm>

namespace perfmodel {
namespace {

using Ask = LayoutAsk;
using Lists = LayoutLists;

constexpr FieldRange kCount = {1, double(std::int64_t{1} << 40)};

// A field of the model: a count of at least 1.
constexpr LayoutField size(std::string_view name, FieldMember<Ask> member, std::string_view help) {
  return {{name, member, help, "N", kCount}, {}, true};
}
constexpr LayoutField choice(std::string_view name, std::optional<bool> Ask::*member,
                             std::string_view help) {
  return {{name, member, help}, {}, true};
}
constexpr LayoutField count(std::string_view name, FieldMember<Ask> member, std::string_view help) {
  return {{name, member, help, "N", kCount}};
}
constexpr LayoutField ranks(std::string_view name, FieldMember<Ask> member,
                            std::vector<std::int64_t> Lists::*list, std::string_view help) {
  return {{name, member, help, "N,N,...", kCount}, list, true};
}
constexpr LayoutField names(std::string_view name, FieldMember<Ask> member,
                            std::vector<std::string> Lists::*list, std::string_view help,
                            std::string_view takes) {
  return {{name, member, help, takes}, list, true};
}
constexpr LayoutField name_of(std::string_view name, FieldMember<Ask> member, std::string_view help,
                              std::string_view takes, std::string_view choices) {
  return {{name, member, help, takes, {}, choices}};
}

constexpr LayoutField kFields[] = {
    size("layers", &Ask::layers, "Layers"),
    size("hidden", &Ask::hidden, "Width of the residual stream"),
    size("heads", &Ask::heads, "Heads of queries"),
    size("kv_heads", &Ask::kv_heads, "Heads of keys and values (as many)"),
    size("feed_forward", &Ask::feed_forward, "Width of feed-forward layers"),
    size("vocabulary", &Ask::vocabulary, "Words"),
    {{"positions", &Ask::positions, "Rows of learned positions (0: rotary)", "N"}, {}, true},
    choice("gated", &Ask::gated,
           "Three products per feed-forward layer; two alone: a GPT, unless --positions 0"),
    choice("tied", &Ask::tied, "The output layer shares the embedding"),
    size("head_width", &Ask::head_width, "Numbers of a head (hidden / heads)"),
    size("experts", &Ask::experts, "Experts of a layer"),
    size("top_k", &Ask::top_k, "Experts of a token"),
    size("expert_hidden", &Ask::expert_hidden, "Width inside of an expert (--feed-forward)"),
    size("shared_hidden", &Ask::shared_hidden,
         "Width inside of the expert that takes every token (none)"),
    size("dense_layers", &Ask::dense_layers, "First layers that have no experts"),
    {{"next_tokens",
      &Ask::next_tokens,
      "Tokens beyond the next that the model learns to predict (the model's)",
      "N",
      {0, 16}},
     {},
     true},
    {{"software", &Ask::software,
      "Whose costs beside the kernels count: a file of data/frameworks (megatron)", "NAME"}},
    {{"world", &Ask::world, "GPUs", "N", kCount}, {}, true},
    count("global_batch", &Ask::global_batch, "Sequences per optimizer step"),
    count("sequence", &Ask::sequence, "Tokens per sequence (the model's)"),
    name_of("precision", &Ask::precision, "Type of the products", "TYPE", "bf16 fp16 fp8 fp4 fp32"),
    name_of("attention", &Ask::attention, "Kernels of attention", "KIND", "flash eager"),
    name_of("optimizer", &Ask::optimizer, "Optimizer", "KIND", "adamw adamw-8bit sgd"),
    name_of("grad_dtype", &Ask::grad_dtype, "Gradients are summed in fp32 or bf16", "TYPE",
            "fp32 bf16"),
    {{"dropout", &Ask::dropout, "Probability of dropout (GPT-like models)", "P", {0, 0.999}}},
    {{"expert_imbalance",
      &Ask::expert_imbalance,
      "Coefficient of variation of the rows that experts get (0: all as many)",
      "CV",
      {0, 100}}},
    {{"expert_capacity",
      &Ask::expert_capacity,
      "Rows that experts get over their even share, filled up or cut off (0: all)",
      "X",
      {0, 100}}},
    count("lora", &Ask::lora, "Rank of adapters beside frozen weights (all learn)"),
    name_of("lora_on", &Ask::lora_on, "Layers with adapters (attention)", "WHICH", "attention all"),
    name_of("frozen_bits", &Ask::frozen_bits, "Of frozen weights; 4: QLoRA (16)", "N", "16 4"),
    ranks("dp", &Ask::dp, &Lists::dp, "Data parallel ranks (what is left of --world)"),
    ranks("tp", &Ask::tp, &Lists::tp, "Tensor parallel ranks"),
    ranks("pp", &Ask::pp, &Lists::pp, "Pipeline stages"),
    ranks("vp", &Ask::vp, &Lists::vp, "Chunks of layers per stage (interleaved)"),
    ranks("cp", &Ask::cp, &Lists::cp, "Context parallel ranks, which share a sequence"),
    ranks("ep", &Ask::ep, &Lists::ep, "Expert parallel ranks, of dp x cp x tp"),
    size("etp", &Ask::etp, "Ranks that share each expert's matrices (1)"),
    {{"context",
      &Ask::context,
      "How attention sees other ranks' tokens: ring, all-gather or all-to-all (ring)",
      "HOW",
      {},
      "ring all-gather all-to-all"},
     {},
     true},
    choice("context_balanced", &Ask::context_balanced,
           "Ranks have an early and a late part of the sequence (so they have)"),
    choice("overlap_experts", &Ask::overlap_experts,
           "Compute hides the exchange with experts as far as it can (as the software does)"),
    ranks("micro_batch", &Ask::micro_batch, &Lists::micro_batch, "Sequences per microbatch"),
    names("zero", &Ask::zero, &Lists::zero, "0, 1, 2, 3, fsdp or hsdp", "KIND,..."),
    names("recompute", &Ask::recompute, &Lists::recompute, "none, selective or full", "KIND,..."),
    choice("sequence_parallel", &Ask::sequence_parallel,
           "Norms and residuals on 1/tp of the tokens (where tp is above 1)"),
    names("schedule", &Ask::schedule, &Lists::schedule,
          "Order of a pipeline's microbatches: 1f1b (the default), gpipe, zb-h1, zb-v, dualpipe",
          "NAME,..."),
};

}  // namespace

std::span<const LayoutField> layout_fields() { return kFields; }

const LayoutField* find_layout_field(std::string_view name) {
  const auto found = std::ranges::find(kFields, name, &LayoutField::name);
  return found == std::end(kFields) ? nullptr : &*found;
}

}  // namespace perfmodel
