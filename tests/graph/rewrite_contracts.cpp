#include "rewrite_contracts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "perfmodel/detail/check.hpp"
#include "perfmodel/graph/model_size.hpp"
#include "rewrites/rewrite_options.hpp"

namespace perfmodel::test_support {
namespace {

constexpr const char* kSameOps = "the ops that compute stay, and so do their sizes";
constexpr const char* kNoProducts = "it changes no product";

std::vector<RewriteContract> make_contracts() {
  return {
      {.rewrites = {"--batch 6", "--batch 3", "--sequence 6"},
       .products = Products::kOther,
       .why_products = "products grow and shrink with samples and tokens",
       .again = Again::kNothing,
       .why_again = "the graph has that size"},
      {.rewrites = {"--precision fp32", "--precision tf32"},
       .products = Products::kSame,
       .why_products = "it sets a switch of the graph",
       .again = Again::kNothing,
       .why_again = "the switch is set"},
      {.rewrites = {"--precision bf16", "--precision fp16", "--precision fp16-scaled",
                    "--precision bf16-o2", "--precision fp16-o2"},
       .products = Products::kSame,
       .why_products = "the same products run in another type",
       .again = Again::kIsRefused,
       .why_again = "the products are in half types"},
      {.rewrites = {"--precision fp8", "--precision fp8-block", "--precision nvfp4"},
       .products = Products::kSame,
       .why_products = "the same products run in another type",
       .again = Again::kIsRefused,
       .why_again = "no wide product is left"},
      {.rewrites = {"--channels-last"},
       .products = Products::kSame,
       .why_products = kSameOps,
       .again = Again::kNothing,
       .why_again = "images and filters have that order"},
      {.rewrites = {"--checkpoint 1", "--checkpoint 1,masks", "--recompute full",
                    "--recompute selective", "--recompute op"},
       .products = Products::kNotLess,
       .why_products = "the backward pass repeats products",
       .again = Again::kIsRefused,
       .why_again = "checkpoints do not nest"},
      {.rewrites = {"--recompute dropout", "--recompute scoring"},
       .products = Products::kSame,
       .why_products = "the repeated ops hold no product",
       .again = Again::kMore,
       .why_again = "known gap: the second application repeats the ops once more"},
      {.rewrites = {"--recompute none"},
       .products = Products::kSame,
       .why_products = "nothing is repeated",
       .again = Again::kNothing,
       .why_again = "the graph stays"},
      {.rewrites = {"--in-place gelu,layernorm", "--in-place gelu", "--in-place layernorm:1"},
       .products = Products::kSame,
       .why_products = kNoProducts,
       .again = Again::kIsRefused,
       .why_again = "no op of these names is left in the layers"},
      {.rewrites = {"--offload-activations"},
       .products = Products::kSame,
       .why_products = kSameOps,
       .again = Again::kIsRefused,
       .why_again = "activations are in host memory"},
      {.rewrites = {"--grad-dtype bf16", "--grad-dtype fp32"},
       .products = Products::kSame,
       .why_products = kNoProducts,
       .again = Again::kNothing,
       .why_again = "gradients have that type"},
      {.rewrites = {"--optimizer adam", "--optimizer fused", "--optimizer sgd/foreach",
                    "--optimizer 8bit"},
       .products = Products::kSame,
       .why_products = "optimizers have no products",
       .again = Again::kNothing,
       .why_again = "the step is written as it was read"},
      {.rewrites = {"--accumulate 2"},
       .products = Products::kTwice,
       .why_products = "each pass does what the given one does",
       .again = Again::kIsRefused,
       .why_again = "the graph has several passes"},
      {.rewrites = {"--data-parallel 8", "--data-parallel 8,views,cap=1"},
       .products = Products::kSame,
       .why_products = "each rank has the batch of the graph",
       .again = Again::kIsRefused,
       .why_again = "the graph has collectives"},
      {.rewrites = {"--tensor-parallel 2", "--tensor-parallel 2,sequence"},
       .products = Products::kNotMore,
       .why_products = "a rank does its share of some products and the whole of others",
       .again = Again::kIsRefused,
       .why_again = "the graph has collectives",
       .keeps_parameters = false},
      {.rewrites = {"--cuda-graphs", "--compiled"},
       .products = Products::kSame,
       .why_products = "the graph stays",
       .again = Again::kNothing,
       .why_again = "the graph stays"},
      {.rewrites = {"--retarget nvidia", "--retarget amd"},
       .products = Products::kSame,
       .why_products = "a GPU computes the same products",
       .again = Again::kIsRefused,
       .why_again = "the tensors are on a GPU"},
      {.rewrites = {"--fuse-tables sgd", "--fuse-tables rowwise_adagrad"},
       .products = Products::kSame,
       .why_products = "lookups have no products",
       .again = Again::kIsRefused,
       .why_again = "no table with an op of its own is left"},
      {.rewrites = {"--attention flash", "--attention efficient", "--attention cudnn",
                    "--attention math"},
       .products = Products::kOther,
       .why_products = "the products of an attention become part of one op",
       .again = Again::kNothing,
       .why_again = "attention runs in the kernel"},
      {.rewrites = {"--fuse-elementwise", "--fuse post-scheduling"},
       .products = Products::kSame,
       .why_products = "products stay ops of their own, with or without an epilogue",
       .again = Again::kNothing,
       .why_again = "no more ops can become one kernel",
       .keeps_parameters = false},  // a kernel may hold the sums of AccumulateGrad
      {.rewrites = {"--fuse-norms"},
       .products = Products::kSame,
       .why_products = kNoProducts,
       .again = Again::kIsRefused,
       .why_again = "no norm in single ops is left"},
      {.rewrites = {"--fuse-loss liger"},
       .products = Products::kSame,
       .why_products = kNoProducts,
       .again = Again::kIsRefused,
       .why_again = "no loss in single ops is left"},
      {.rewrites = {"--fuse-loss linear"},
       .products = Products::kNotMore,
       .why_products = "tokens without a target are cut before the product",
       .again = Again::kIsRefused,
       .why_again = "no loss in single ops is left"},
      {.rewrites = {"--compile default", "--compile default,model", "--compile reduce-overhead",
                    "--compile max-autotune"},
       .products = Products::kSame,
       .why_products = "products are library calls with the operands that they had",
       .again = Again::kIsRefused,
       .why_again = "the program is compiled",
       .leaves_unread_reruns_out = true},
      {.rewrites = {"--lstm fused"},
       .products = Products::kNotMore,
       .why_products = "the first state is zero, so its product with a gradient goes",
       .again = Again::kIsRefused,
       .why_again = "no cell of single ops is left"},
      {.rewrites = {"--lstm fused-wavefront", "--lstm library"},
       .products = Products::kOther,
       .why_products = "the call computes products for zero states and gradients of all inputs",
       .again = Again::kIsRefused,
       .why_again = "no cell of single ops is left"},
      {.rewrites = {"--lstm unfused"},
       .products = Products::kSame,
       .why_products = "the graph stays",
       .again = Again::kNothing,
       .why_again = "the graph stays"},
      {.rewrites = {"--hash-weights aten::linear:compression=2",
                    "--hash-weights *:compression=2:scheme=hashednet"},
       .products = Products::kNotMore,
       .why_products = "products with hashed weights become kernels of their own",
       .again = Again::kIsRefused,
       .why_again = "no plain weight is left",
       .keeps_parameters = false},
      {.rewrites = {"--index-skew 1.05"},
       .products = Products::kSame,
       .why_products = kSameOps,
       .again = Again::kNothing,
       .why_again = "lookups have that exponent"},
      {.rewrites = {"--subgraph aten::*"},
       .products = Products::kNotMore,
       .why_products = "products outside of the pattern go",
       .again = Again::kNothing,
       .why_again = "all that is left matches",
       .keeps_parameters = false,
       .is_whole = false},
      {.rewrites = {"--remove aten::t"},
       .products = Products::kNotMore,
       .why_products = "products inside of the pattern go",
       .again = Again::kIsRefused,
       .why_again = "no op matches any more",
       .is_whole = false},
      {.rewrites = {"--kernel-time aten::mm=3"},
       .products = Products::kSame,
       .why_products = kSameOps,
       .again = Again::kNothing,
       .why_again = "the kernels have that time"},
      {.rewrites = {"--scale-kernel aten::*=0.5"},
       .products = Products::kSame,
       .why_products = kSameOps,
       .again = Again::kMore,
       .why_again = "factors multiply"},
  };
}

NamedRewrite rewrite_called(const std::string& text) {
  const std::size_t space = text.find(' ');
  const RewriteOption* option = find_rewrite_option(text.substr(0, space));
  PERFMODEL_CHECK(option != nullptr);
  return named_rewrite(*option, space == text.npos ? "" : text.substr(space + 1)).value();
}

bool products_are_kept(Products products, double before, double after) {
  const double slack = 1e-9 * std::max(before, after);
  switch (products) {
    case Products::kSame:
      return std::abs(after - before) <= slack;
    case Products::kTwice:
      return std::abs(after - 2 * before) <= slack;
    case Products::kNotLess:
      return after >= before - slack;
    case Products::kNotMore:
      return after <= before + slack;
    case Products::kOther:
      break;
  }
  return true;
}

bool holds_checkpoint(const ExecutionGraph& graph) {
  return std::ranges::any_of(
      graph.nodes, [&](const Node& node) { return graph.name(node) == "CheckpointFunction"; });
}

}  // namespace

const std::vector<RewriteContract>& rewrite_contracts() {
  static const std::vector<RewriteContract> contracts = make_contracts();
  return contracts;
}

const std::vector<ContractedRewrite>& contracted_rewrites() {
  static const std::vector<ContractedRewrite> rewrites = [] {
    std::vector<ContractedRewrite> all;
    for (const RewriteContract& contract : rewrite_contracts()) {
      for (const std::string& text : contract.rewrites) {
        all.push_back({.rewrite = rewrite_called(text), .contract = &contract});
      }
    }
    for (const RewriteOption& option : rewrite_options()) {
      PERFMODEL_CHECK(std::ranges::any_of(all, [&](const ContractedRewrite& one) {
        return one.rewrite.name.substr(0, one.rewrite.name.find(' ')) == option.flag;
      }));
    }
    return all;
  }();
  return rewrites;
}

Violation broken_invariant(const ContractedRewrite& rewrite, const ExecutionGraph& source,
                           const ExecutionGraph& result) {
  if (auto found = broken_structure(source, result)) return found;
  return rewrite.contract->is_whole ? read_before_made(source, result) : Violation();
}

Violation broken_work(const ContractedRewrite& rewrite, const ExecutionGraph& source,
                      const ExecutionGraph& result) {
  const RewriteContract& contract = *rewrite.contract;
  const ModelSize before = model_size(source), after = model_size(result);
  const bool fewer = contract.leaves_unread_reruns_out && holds_checkpoint(source);
  if (!products_are_kept(fewer ? Products::kNotMore : contract.products, before.matrix_flop,
                         after.matrix_flop)) {
    return fmt::format("{} FLOP of products become {}, although {}", before.matrix_flop,
                       after.matrix_flop, contract.why_products);
  }
  if (contract.keeps_parameters && before.parameters != after.parameters) {
    return fmt::format("{} parameters become {}", before.parameters, after.parameters);
  }
  return {};
}

Violation broken_second_application(const ContractedRewrite& rewrite,
                                    const ExecutionGraph& result) {
  const RewriteContract& contract = *rewrite.contract;
  const auto twice = apply_rewrites(result, {&rewrite.rewrite, 1});
  switch (contract.again) {
    case Again::kNothing:
      if (!twice) {
        return fmt::format("a second application is refused, although {}: {}", contract.why_again,
                           twice.error().message);
      }
      if (const auto differs = difference_up_to_ids(result, *twice)) {
        return fmt::format("a second application changes {}, although {}", *differs,
                           contract.why_again);
      }
      break;
    case Again::kIsRefused:
      if (twice) return fmt::format("a second application works, although {}", contract.why_again);
      break;
    case Again::kMore:
      break;
  }
  return {};
}

}  // namespace perfmodel::test_support
