#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "framework.hpp"
#include "perfmodel/layout.hpp"
#include "perfmodel/predictors/detail/collectives.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "perfmodel/result.hpp"
#include "price/astra_sim.hpp"
#include "shard_costs.hpp"

namespace perfmodel {

/// Chunks of layers in model order: chunk i is on stage i mod pp, or as `chunk_place` has a V.
struct ChunkLayers {
  std::int64_t layers = 0;
  bool embeds = false;  ///< begins with the embeddings
  bool heads = false;   ///< ends with norm and output layer
  bool loses = false;   ///< computes the loss
};

/// How layers spread over `stages * chunks_per_stage` chunks. Equal parts; the remainder goes one
/// by one to chunks after the first, which holds the embeddings. `balanced`: a chunk is full once
/// the products so far, the output layer counted, reach its share of all of them, and what comes
/// next begins another, the loss too (nanotron); chunks may stay empty. Errors: fewer layers than
/// chunks, unless balanced.
/// Models with experts, and such that predict several tokens: the last chunk holds fewer layers,
/// its output layers counted as one each, so that the fullest chunk has as few as can be.
Result<std::vector<ChunkLayers>> spread_layers(const DecoderModel& model, std::int64_t chunks,
                                               bool balanced);

/// Times of collectives on one topology, each worked out once. Thread-safe.
class CollectiveTimes {
 public:
  /// `network`: its collectives are priced by ASTRA-sim's rules; null: NCCL's on the topology.
  explicit CollectiveTimes(Topology topology,
                           std::shared_ptr<const AstraSimNetwork> network = nullptr)
      : topology_(std::move(topology)), network_(std::move(network)) {}
  const Topology& topology() const { return topology_; }
  /// [us]. Errors: as `collective_time`.
  Result<double> time_us(const CollectiveQuery& query);

 private:
  using Key = std::tuple<CollectiveKind, double, int, int, int, int>;
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };
  Result<Microseconds> asked(const CollectiveQuery& query) const;

  const Topology topology_;
  const std::shared_ptr<const AstraSimNetwork> network_;
  std::mutex mutex_;
  std::unordered_map<Key, double, Hash> known_;
};

/// All that the time and memory of a step are made of.
struct StepQuestion {
  const LayoutJob* job = nullptr;
  const ParallelLayout* layout = nullptr;
  const ShardCosts* shard = nullptr;
  const Framework* framework = nullptr;
  const Gpu* gpu = nullptr;
  CollectiveTimes* collectives = nullptr;
  double expert_load = 1;  ///< rows of the slowest rank of experts over the mean
};

}  // namespace perfmodel
