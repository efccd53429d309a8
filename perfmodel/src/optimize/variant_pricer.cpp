#include "variant_pricer.hpp"

#include <utility>

#include "predict/predict_with.hpp"
#include "predict/rewritten_times.hpp"
#include "rewrites/attention_support.hpp"
#include "rewrites/model_batch.hpp"

namespace perfmodel::advice {
namespace {

// A few hundred distinct kernels are many for a model and its rewrites.
constexpr std::size_t kVariantPrices = std::size_t{1} << 13;
// About 850 bytes each, with their tensors and host work.
constexpr std::size_t kMostNodes = 500'000;

std::string key_of(std::span<const NamedRewrite> rewrites) {
  std::string key;
  for (const NamedRewrite& rewrite : rewrites) (key += rewrite.name) += '\n';
  return key;
}

}  // namespace

VariantPricer::VariantPricer(const ExecutionGraph& graph, const WhatIfTarget& target)
    : graph_(graph), target_(target), prices_(*target.options.models, target.gpu, kVariantPrices) {}

// The work starts from the longest beginning that was made before.
Result<const ExecutionGraph*> VariantPricer::make(std::span<const NamedRewrite> rewrites,
                                                  Made*& made) {
  if (nodes_ > kMostNodes) {
    made_.clear();
    nodes_ = 0;
  }
  made = &given_;
  std::size_t done = rewrites.size();
  for (; done > 0; --done) {
    const auto known = made_.find(key_of(rewrites.first(done)));
    if (known == made_.end()) continue;
    made = &known->second;
    break;
  }
  const ExecutionGraph* graph = made == &given_ ? &graph_ : nullptr;
  if (!graph) {
    if (!made->graph) return Unexpected{made->graph.error()};
    graph = &*made->graph;
  }
  for (; done < rewrites.size(); ++done) {
    Made next{.graph = rewrite_model(*graph, rewrites.subspan(done, 1)), .facts = {}};
    const auto at = made_.emplace(key_of(rewrites.first(done + 1)), std::move(next)).first;
    made = &at->second;
    if (!made->graph) return Unexpected{made->graph.error()};
    graph = &*made->graph;
    nodes_ += graph->nodes.size();
  }
  return graph;
}

Result<PricedVariant> VariantPricer::price(std::span<const NamedRewrite> rewrites, Detail detail) {
  // The last ones change no graph.
  std::size_t of_graph = rewrites.size();
  while (of_graph > 0 && rewrites[of_graph - 1].launching) --of_graph;
  Made* made = nullptr;
  PERFMODEL_TRY(graph, make(rewrites.first(of_graph), made));
  if (const auto lacking = lacking_attention(**graph, target_.gpu);
      !lacking.empty() && lacking_attention(graph_, target_.gpu).empty()) {
    return decline(lacking.front());
  }
  if (!made->facts) made->facts = make_host_facts(**graph, *target_.overheads, std::nullopt);
  if (!*made->facts) return Unexpected{made->facts->error()};

  PredictOptions options = target_.options;
  options.launching = launching_of(rewrites);
  options.keep_ops = detail != Detail::kTotals;
  options.step_range = false;
  options.host_sensitivity = detail == Detail::kParts;
  KernelTimes collectives;
  PERFMODEL_TRY(fitted, fit_kernel_times(graph_, **graph, options, collectives));
  options.prices = &prices_;
  PERFMODEL_TRY(prediction,
                predict_with(**graph, target_.gpu, *target_.overheads, &**made->facts, options));
  if (!std::exchange(warned_, true)) warnings_ = prediction->warnings;

  PricedVariant priced{.e2e_us = prediction->e2e_us,
                       .batch = {},
                       .needed_bytes = prediction->memory.needed_bytes(),
                       .device_bytes = prediction->memory.device_bytes,
                       .path = {},
                       .parts = {}};
  if (detail != Detail::kTotals) priced.path = path_shares(*prediction);
  if (detail == Detail::kParts) {
    priced.parts = step_parts(*prediction, priced.path.host_us + priced.path.optimizer_host_us);
  }
  return priced;
}

}  // namespace perfmodel::advice
