#include "step_question.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "layer_kinds.hpp"

namespace perfmodel {
namespace {

constexpr std::size_t kMostCollectives = 1 << 18;  // 64 bytes each

double as_double(std::int64_t number) { return static_cast<double>(number); }

// As few layers as can be in the fullest chunk, where the output layers count as one each.
std::vector<ChunkLayers> spread_beside_output(const DecoderModel& model, std::int64_t chunks) {
  std::vector<ChunkLayers> spread(chunks);
  const std::int64_t outputs = 1 + model.next_tokens;
  std::int64_t most = (model.layers + chunks - 1) / chunks;
  while ((chunks - 1) * most + std::max<std::int64_t>(0, most - outputs) < model.layers) ++most;
  const std::int64_t last = std::max<std::int64_t>(0, most - outputs);
  const std::int64_t others = std::max<std::int64_t>(1, chunks - 1);
  std::int64_t left = model.layers - std::min(last, model.layers);
  for (std::int64_t i = 0; i < chunks - 1; ++i) {
    const std::int64_t own = (left + others - i - 1) / (others - i);
    spread[i].layers = own;
    left -= own;
  }
  spread.back().layers = chunks > 1 ? std::min(last, model.layers) : model.layers;
  spread.front().embeds = true;
  spread.back().heads = spread.back().loses = true;
  return spread;
}

// The weight of a layer where stages are balanced: products as nanotron counts them, with as many
// heads of keys and values as of queries; of other layers the weights that a token meets.
double balance_of_layer(const DecoderModel& model) {
  if (!has_plain_layers(model)) return active_layer_parameters(model);
  const double width = as_double(model.hidden);
  const double products = model.gated ? 3 : 2;
  return 4 * width * width + products * as_double(model.feed_forward) * width;
}

}  // namespace

std::size_t CollectiveTimes::Hash::operator()(const Key& key) const {
  const auto& [kind, bytes, ranks, nodes, groups, stride] = key;
  std::size_t hash = std::hash<double>{}(bytes);
  for (const int part : {static_cast<int>(kind), ranks, nodes, groups, stride}) {
    hash = hash * 1099511628211U + static_cast<std::size_t>(part);
  }
  return hash;
}

Result<double> CollectiveTimes::time_us(const CollectiveQuery& query) {
  const Key key{query.kind,  query.bytes.value,     query.ranks,
                query.nodes, query.groups_per_node, query.node_stride};
  {
    const std::lock_guard lock(mutex_);
    const auto known = known_.find(key);
    if (known != known_.end()) return known->second;
  }
  PERFMODEL_TRY(time, asked(query));
  const std::lock_guard lock(mutex_);
  if (known_.size() >= kMostCollectives) known_.clear();
  return known_.emplace(key, time->count()).first->second;
}

Result<Microseconds> CollectiveTimes::asked(const CollectiveQuery& query) const {
  if (network_) return astra_sim_time(*network_, query);
  PERFMODEL_TRY(time, collective_time(topology_, query));
  return time->time;
}

Result<std::vector<ChunkLayers>> spread_layers(const DecoderModel& model, std::int64_t chunks,
                                               bool balanced) {
  std::vector<ChunkLayers> spread(chunks);
  spread.front().embeds = true;
  if (!balanced) {
    if (model.layers < chunks) {
      return decline(fmt::format(
          "expected at least a layer per chunk of the pipeline, found {} layers for {} chunks",
          model.layers, chunks));
    }
    for (ChunkLayers& chunk : spread) chunk.layers = model.layers / chunks;
    const std::int64_t left = model.layers % chunks;
    const bool uneven = left != 0 || model.next_tokens > 0;
    if (model.experts.experts > 0 && uneven) return spread_beside_output(model, chunks);
    for (std::int64_t i = 0; i < left; ++i) {
      ++spread[(1 + i) % chunks].layers;
    }
    spread.back().heads = spread.back().loses = true;
    return spread;
  }
  const double layer = balance_of_layer(model);
  const double words = as_double(model.vocabulary) * as_double(model.hidden);
  const double head = words + as_double(model.next_tokens) * (layer + words);
  const double all = as_double(model.layers) * layer + head;
  double sum = 0;
  std::size_t chunk = 0;
  const auto place = [&](double cost, auto&& put) {
    put(spread[chunk]);
    sum += cost;
    const bool is_last = chunk + 1 == spread.size();
    if (!is_last &&
        sum >= all * (as_double(static_cast<std::int64_t>(chunk)) + 1) / as_double(chunks))
      ++chunk;
  };
  for (std::int64_t i = 0; i < model.layers; ++i) {
    place(layer, [](ChunkLayers& at) { ++at.layers; });
  }
  place(head, [](ChunkLayers& at) { at.heads = true; });
  place(0, [](ChunkLayers& at) { at.loses = true; });
  return spread;
}

}  // namespace perfmodel
