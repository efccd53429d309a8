#include "eager_host.hpp"

#include <algorithm>

#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/predict.hpp"
#include "sharded_graph.hpp"

namespace perfmodel::sharding {
namespace {

using Kind = HostNeeds::Kind;

constexpr ShardingType type_of(Kind kind) {
  switch (kind) {
    case HostNeeds::kSums:
      return ShardingType::kRowWise;
    case HostNeeds::kHostSums:
      return ShardingType::kTableRowWise;
    case HostNeeds::kCopies:
      return ShardingType::kDataParallel;
    default:
      return ShardingType::kTableWise;
  }
}

// As many layers as the study has, all of them small: sizes are no matter of the host's.
DensePart small_layers(const ShardingStudy& study, std::int64_t dim) {
  DensePart small{.bottom_mlp = {13, dim}, .top_mlp = {1}};
  if (!study.dense || study.dense->forward_us) return small;
  const DensePart& dense = *study.dense;
  const std::size_t bottom = std::max<std::size_t>(2, dense.bottom_mlp.size());
  small.bottom_mlp.assign(bottom, dim);
  std::size_t top = dense.top_mlp.size();
  if (dense.interaction == DensePart::Interaction::kLowRankCross) {
    top += 2 * static_cast<std::size_t>(dense.cross_layers);
  }
  small.top_mlp.assign(std::max<std::size_t>(1, top), dim);
  small.top_mlp.back() = 1;
  return small;
}

class EagerHost {
 public:
  EagerHost(const ShardingStudy& study, const Gpu& gpu, const OverheadTable& overheads)
      : gpu_(gpu), overheads_(overheads) {
    small_.world = study.world;
    small_.local_world = study.local_world.value_or(*study.world);
    small_.batch_per_rank = kSmallBatch;
    small_.dense = small_layers(study, kDim);
    // Ranks without a table save the others' hosts a little: here each has one.
    few_ = static_cast<int>(std::clamp<std::int64_t>(*study.world, 8, 64));
    many_ = few_ + 32;
  }

  Result<HostNeeds> needs() {
    if (*small_.world < 2) return of_one_gpu();
    const bool hosts = *small_.world > *small_.local_world && *small_.local_world > 1;
    HostNeeds needs;
    // Every graph has whole tables; the others are added to them.
    const auto few = us({{HostNeeds::kVectors, few_}});
    const auto many = us({{HostNeeds::kVectors, many_}});
    if (!few) return Unexpected{few.error()};
    if (!many) return Unexpected{many.error()};
    HostNeeds::Need& whole = needs.kinds[HostNeeds::kVectors];
    whole.table_us = std::max(0.0, (*many - *few) / (many_ - few_));
    std::optional<double> alone;  // sums without exchanged vectors
    for (const Kind kind : {HostNeeds::kSums, HostNeeds::kHostSums, HostNeeds::kCopies}) {
      if (kind == HostNeeds::kHostSums && !hosts) continue;
      const auto with_few = us({{HostNeeds::kVectors, few_}, {kind, few_}});
      const auto with_many = us({{HostNeeds::kVectors, few_}, {kind, many_}});
      if (!with_few) return Unexpected{with_few.error()};
      if (!with_many) return Unexpected{with_many.error()};
      HostNeeds::Need& need = needs.kinds[kind];
      need.table_us = std::max(0.0, (*with_many - *with_few) / (many_ - few_));
      need.us = std::max(0.0, *with_few - *few - few_ * need.table_us);
      if (kind == HostNeeds::kSums) {
        const auto sums = us({{kind, few_}});
        if (!sums) return Unexpected{sums.error()};
        alone = *sums;
      }
    }
    // The needs of a batch without any exchange follow from the graph that only has sums.
    const HostNeeds::Need& sums = needs.kinds[HostNeeds::kSums];
    needs.batch_us = std::max(0.0, *alone - sums.us - few_ * sums.table_us);
    whole.us = std::max(0.0, *few - needs.batch_us - few_ * whole.table_us);
    return needs;
  }

 private:
  static constexpr std::int64_t kDim = 64, kSmallBatch = 64, kRows = 1000;

  struct Group {
    Kind kind;
    int tables;
  };

  // The host's part of a predicted step.
  Result<double> us(std::initializer_list<Group> groups) const {
    ShardingStudy study = small_;
    std::vector<TablePlacement> placements;
    const std::int64_t local = *study.local_world;
    for (const Group& group : groups) {
      for (int i = 0; i < group.tables; ++i) {
        ShardedTable table;
        table.name = std::to_string(study.tables.size());
        table.rows = kRows;
        table.dim = kDim;
        study.tables.push_back(table);
        TablePlacement placement{.type = type_of(group.kind)};
        if (group.kind == HostNeeds::kCopies) placement.kernel = ComputeKernel::kDense;
        if (group.kind == HostNeeds::kVectors) placement.ranks = {i % *study.world};
        if (group.kind == HostNeeds::kHostSums) {
          for (std::int64_t r = 0; r < local; ++r) placement.ranks.push_back(r);
        }
        placements.push_back(std::move(placement));
      }
    }
    const auto config = sharded_dlrm(study, placements);
    if (!config) return Unexpected{config.error()};
    const auto graph = build_torchrec_dlrm(*config);
    if (!graph) return Unexpected{graph.error()};
    const auto prediction = predict(*graph, gpu_, overheads_);
    if (!prediction) return Unexpected{prediction.error()};
    return prediction->cpu_us;
  }

  // Nothing is exchanged: two GPUs' batch without its exchanges.
  Result<HostNeeds> of_one_gpu() {
    small_.world = small_.local_world = 2;
    auto needs = this->needs();
    if (!needs) return needs;
    for (HostNeeds::Need& need : needs->kinds) need.us = 0;
    return needs;
  }

  const Gpu& gpu_;
  const OverheadTable& overheads_;
  ShardingStudy small_;
  int few_ = 0, many_ = 0;  // tables
};

}  // namespace

Result<HostNeeds> eager_host(const ShardingStudy& study, const Gpu& gpu,
                             const OverheadTable& overheads) {
  return EagerHost(study, gpu, overheads).needs();
}

}  // namespace perfmodel::sharding
