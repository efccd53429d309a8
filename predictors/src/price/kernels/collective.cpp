#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/impossible.hpp"
#include "perfmodel/predictors/detail/collective_model.hpp"
#include "price/kernels/models.hpp"
#include "price/terms.hpp"

namespace perfmodel {
namespace {

/// Nodes of which ranks take part: the ranks of a job fill its nodes one by one.
int nodes_of(std::span<const std::int64_t> ranks, const Topology& topology) {
  std::vector<std::int64_t> nodes;
  for (std::int64_t rank : ranks) nodes.push_back(rank / topology.gpus_per_node);
  std::ranges::sort(nodes);
  return static_cast<int>(std::unique(nodes.begin(), nodes.end()) - nodes.begin());
}

/// From one node of the group to the next, on average.
int stride_of(std::span<const std::int64_t> ranks, const Topology& topology, int nodes) {
  if (ranks.empty() || nodes < 2) return 1;
  const auto [first, last] = std::ranges::minmax(ranks);
  const std::int64_t spanned = last / topology.gpus_per_node - first / topology.gpus_per_node;
  return static_cast<int>(std::max<std::int64_t>(1, spanned / (nodes - 1)));
}

/// Measured time over price, for nine of ten collectives.
struct CollectiveRange {
  double low = 0.9, high = 1.1;  ///< most points of the curves of all-reduce lie within 10 %
};

/// NCCL's fitted times: 0.87 to 1.22 of shapes that were left out of the fit
/// (tests/accuracy/nccl_test.cpp); below 1 MiB on PCIe, where times scatter, 0.7 to 1.7.
CollectiveRange measured_range(const Topology& topology, Bytes bytes) {
  constexpr double kSmall = 1 << 20;
  if (!topology.nccl) return {};
  const bool is_small_on_pcie = topology.intra.kind == IntraLink::kPcie && bytes.value < kSmall;
  return is_small_on_pcie ? CollectiveRange{0.7, 1.7} : CollectiveRange{0.87, 1.22};
}

}  // namespace

Price collective_price(const CollectiveTime& result, const Topology& topology, Bytes bytes) {
  const CollectiveRange range = measured_range(topology, bytes);
  Price price = terms::make_price(0, result.wire.count(), result.latency.count(),
                                  result.in_range ? "collective-curve" : "collective-nccl", 0.3);
  price.bound = result.bound;
  price.in_range = result.in_range;
  if (result.in_range) {
    price.low = range.low * price.time;
    price.high = range.high * price.time;
  }
  return price;
}

namespace {

Bytes bytes_of(const KernelWork& work, CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce ? work.bytes_read
                                            : std::max(work.bytes_read, work.bytes_written);
}

Price price_collective(const KernelWork& work, const Gpu& gpu, const Topology& topology,
                       const CollectiveOptions& options) {
  const auto* shape = std::get_if<CollectiveShape>(&work.shape);
  const bool known = shape && shape->world_size > 0;
  const auto kind = shape ? collective_kind(shape->kind) : std::nullopt;
  CollectiveQuery query{.kind = kind.value_or(CollectiveKind::kAllReduce)};
  query.ranks = known ? static_cast<int>(std::min<std::int64_t>(shape->world_size, 1 << 24))
                      : topology.gpus_per_node;
  query.bytes = bytes_of(work, query.kind);
  if (query.kind == CollectiveKind::kSend || query.kind == CollectiveKind::kRecv) query.ranks = 2;
  if (query.ranks <= 1) {  // NCCL still launches a kernel that copies (nothing in place)
    return terms::make_price(0, 0,
                             terms::empty_kernel_us(gpu) + 2 * terms::kConstants.dram_latency_us,
                             "collective-nccl", 0.3);
  }
  const bool told = shape && static_cast<int>(shape->ranks.size()) == query.ranks;
  query.nodes = told ? nodes_of(shape->ranks, topology)
                     : (query.ranks + topology.gpus_per_node - 1) / topology.gpus_per_node;
  query.node_stride = told ? stride_of(shape->ranks, topology, query.nodes) : 1;
  Topology fitting;  // a copy only where the topology cannot hold the group
  const Topology* used = &topology;
  if (query.nodes > 1 && topology.network &&
      query.nodes > topology.network->levels.back().nodes / query.node_stride) {
    fitting = topology;  // switches for so many nodes are unknown
    fitting.network->levels.back().nodes = query.nodes * query.node_stride;
    used = &fitting;
  }
  if (query.nodes > 1 && !topology.nic) {
    fitting = topology;
    fitting.gpus_per_node = query.ranks;
    query.nodes = 1;
    used = &fitting;
  }
  const auto result = collective_time(*used, query, options);
  PERFMODEL_CHECK(result.has_value());  // every count fits by now
  Price price = collective_price(*result, *used, query.bytes);
  price.in_range &= known && kind.has_value() && used == &topology;
  price.knowledge = price.in_range ? Knowledge::kBoard : Knowledge::kNone;
  return price;
}

class TopologyCollective final : public KernelModel {
 public:
  TopologyCollective(Topology topology, const CollectiveOptions& options)
      : topology_(std::move(topology)), options_(options) {}
  Price price(const KernelWork& work, const Gpu& gpu) const override {
    return price_collective(work, gpu, topology_, options_);
  }

 private:
  Topology topology_;
  CollectiveOptions options_;
};

/// Collectives on the default topology of the GPU (`topology_for`): equations in collectives.hpp.
/// Groups larger than a node are spread over several. A recorded group size of 0 (unknown) is
/// priced as a full node and marked out of range.
class Collective final : public KernelModel {
 public:
  Price price(const KernelWork& work, const Gpu& gpu) const override {
    if (const Topology* known = default_topology(gpu)) {
      return price_collective(work, gpu, *known, {});
    }
    return price_collective(work, gpu, datasheet_topology(gpu), {});
  }
};

}  // namespace

Result<Price> price_on_network(const KernelWork& work, const Topology& topology,
                               const NetworkFacts& facts) {
  const auto* shape = std::get_if<CollectiveShape>(&work.shape);
  const auto kind = shape ? collective_kind(shape->kind) : std::nullopt;
  if (!kind || shape->world_size < 1 || shape->world_size > (1 << 24)) {
    return impossible(
        "a collective of 1 to 16,777,216 ranks (world_size, or nodes and gpus_per_node)",
        shape ? std::to_string(shape->world_size) : "another kernel");
  }
  PERFMODEL_TRY(there, with_network(topology, facts));
  const int ranks = static_cast<int>(shape->world_size);
  const CollectiveQuery query{.kind = *kind,
                              .bytes = bytes_of(work, *kind),
                              .ranks = ranks,
                              .nodes = facts.nodes > 0
                                           ? nodes_of_machines(*there, ranks, facts.nodes)
                                           : (ranks - 1) / there->gpus_per_node + 1};
  PERFMODEL_TRY(time, collective_time(*there, query));
  Price price = collective_price(*time, *there, query.bytes);
  price.knowledge = price.in_range ? Knowledge::kBoard : Knowledge::kNone;
  return price;
}

std::unique_ptr<KernelModel> make_collective_model(Topology topology,
                                                   const CollectiveOptions& options) {
  return std::make_unique<TopologyCollective>(std::move(topology), options);
}

namespace kernels {

const KernelModel& collective_model() { return the_only<Collective>(); }

}  // namespace kernels
}  // namespace perfmodel
