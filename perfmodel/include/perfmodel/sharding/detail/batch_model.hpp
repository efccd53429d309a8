#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "perfmodel/predictors/detail/collectives.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/predictors/kernel.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "perfmodel/result.hpp"
#include "perfmodel/sharding/detail/batch_time.hpp"
#include "perfmodel/sharding/detail/dense_time.hpp"
#include "perfmodel/sharding/detail/shard_load.hpp"
#include "perfmodel/sharding/detail/table_space.hpp"
#include "perfmodel/sharding/sharding_study.hpp"

namespace perfmodel::sharding {

struct BatchOrder;
struct JobLoad;
struct LoadCache;

struct BatchOptions {
  TableSoftware software = TableSoftware::kFused;
  /// Times of the device are multiplied by it; 0: `calibration_factor` of the GPU, else 1.
  double device_factor = 0;
  /// The host needs at least this long per batch [us], whatever `step` says; 0: as long as that.
  double host_us = 0;
  /// PyTorch, launched in some way; none: software that launches all at once and keeps ahead.
  std::optional<StepNeeds> step = {};
  /// PyTorch launched in the other ways: low and high times cover them.
  std::vector<StepNeeds> other_steps = {};
  const KernelModels* models = &KernelModels::heuristic();
};

/// Measured over predicted time of MLPerf's DLRM systems with this GPU, fitted on the even rows
/// (docs/sharding.md); 1 and `known` false for GPUs without rows. Software that takes tables one by
/// one has constants of its own instead, fitted on A100.
struct Calibration {
  double factor = 1, spread = 0;  ///< `spread`: relative, of the rows round the factor
  bool known = false;
};
Calibration calibration_of(const Gpu& gpu, TableSoftware software = TableSoftware::kFused);

/// The settings that count for a placement: data-parallel tables have none, a cache's share is one
/// of `fused_uvm_caching` alone.
TableSettings used_settings(const TablePlacement& placement);

/// Prices a batch of any plan. Lookups by the kernel models, one launch per rank; exchanges by the
/// topology's curves, limited by the rank with most bytes; the dense part kernel by kernel; all of
/// it put in order by the scheduler, two lanes per rank:
///
///   compute: lookup forward, bottom MLP, interaction and top MLP, bottom MLP backward, lookup
///            backward with update, dense optimizer
///   network: exchange of vectors, of their gradients, all-reduce
///
/// so that the exchanges run during the bottom MLP and the all-reduce during the lookups' backward
/// pass, and ranks wait for the last one at each exchange. Ids are exchanged before (pipeline
/// "none") or during the rest. With the needs of a TorchRec step, parts follow each other as its
/// host launches them (batch_schedule.cpp).
class BatchModel {
 public:
  /// The study must have a world and a batch. Errors (kImpossible): what dense_time() refuses, a
  /// world that does not fit the topology, tables of impossible sizes or laws.
  static Result<BatchModel> make(const ShardingStudy& study, const Gpu& gpu,
                                 const Topology& topology, const BatchOptions& options = {});

  /// Errors (kImpossible): placements that do not fit the tables (as rate_plan() has them).
  Result<BatchTime> time(std::span<const TablePlacement> placements) const;

  /// The same with some parts as if they took no time: what is gained says what limits.
  Result<double> time_without(const BatchTime& batch, BatchPart part) const;

  /// Settings of tables that differ in name alone (`like`), by the way they are sharded.
  using SettingsByWay = std::map<std::pair<std::uint32_t, ShardingType>, TableSettings>;
  /// Finds for each table the settings, of those that the study lets a search choose, that take
  /// least of the mean rank; exchanges count as far as they are on the critical path of `near`.
  /// Ways that are best as the table says are left out. Errors: as sizes().
  Result<SettingsByWay> cheapest_settings(const BatchTime& near) const;
  /// A way with each of the settings that `may` lets a search choose, the way itself first; ranks
  /// are kept. Data-parallel tables have none.
  std::vector<TablePlacement> variants(std::size_t table, const TablePlacement& way,
                                       const SearchedSettings& may) const;

  /// Which parts of the whole space a search looks at.
  struct SpaceOptions {
    /// How much of a data-parallel table's all-reduce other work does not hide: 0 to 1, depends on
    /// the plan.
    double all_reduce_share = 1;
    /// Each kind of exchange that a plan uses has a latency of its own, which loads cannot tell:
    /// vectors (table- and column-wise, row-split), sums over all ranks (row-wise), sums on a host.
    bool vectors = true, sums = true, host_sums = true;
    bool copies = true;  ///< data-parallel tables, each of which an eager host launches by itself
    bool hashed = true;  ///< tables in the hashed array, which costs the same however few there are
    std::shared_ptr<const SettingsByWay> settings = {};  ///< none: tables as they say
    /// Pipeline "prefetch": time of the work that hides prefetches of a later batch [us].
    /// Prefetches cost only the time beyond it.
    double beside_prefetch_us = 0;
  };
  /// A search space whose objective follows time(): phases are the lookups and exchanges, each by
  /// its busiest rank, exchanges no shorter than the dense part that runs meanwhile. Tables whose
  /// rules leave no way within `options` keep all that they have.
  Result<TableSpace> space(const SpaceOptions& options) const;
  /// No plan that fits takes less than this [us], host and calibration included: see
  /// batch_bound.cpp. It is closest where plans share their resources as `near` does. Errors: as
  /// space() and the search, which say what does not fit.
  Result<double> lower_bound_us(std::span<const TablePlacement> near) const;

  /// A plan that is no slower by time(): tables of the slowest ranks move, swap and change their
  /// way to be cut, as long as that helps. Among equally fast plans it takes the one that leaves
  /// more memory on the fullest rank. Tables that lie together stay where they are.
  struct ImproveOptions {
    std::uint64_t seed = 1;
    std::function<bool()> go_on = {};  ///< false ends it; empty: never
  };
  Result<std::vector<TablePlacement>> improved(std::span<const TablePlacement> placements,
                                               const ImproveOptions& options) const;

  /// The same machine and options, another study. Errors: as make().
  Result<BatchModel> with(const ShardingStudy& study) const;

  /// Whether plans may fetch rows during an earlier batch.
  bool prefetches() const;

  /// Ways to cut a table that its rules and the machine allow, ranks left empty (row-split: as many
  /// as there are parts).
  std::vector<TablePlacement> ways(const ShardedTable& table) const;
  /// Errors: as shard_sizes(); a row-split without ranks.
  Result<std::vector<ShardSize>> sizes(std::size_t table, const TablePlacement& placement) const;
  /// The load that a table puts on one rank.
  Result<ShardLoad> load_on_rank(std::size_t table, const TablePlacement& placement,
                                 std::int64_t rank) const;

  const ShardingStudy& study() const { return study_; }
  bool has_eager_host() const { return options_.step.has_value() && options_.host_us == 0; }
  double device_factor() const { return calibration_.factor; }
  const DenseTime& dense() const { return dense_; }
  std::int64_t world() const { return *study_.world; }
  std::int64_t local_world() const { return local_world_; }
  double memory_cap() const;
  double table_memory() const;  ///< per rank, without the dense part and the reserve

 private:
  BatchModel() = default;

  std::int64_t nodes() const { return world() / local_world_; }
  bool is_pipelined() const;
  double reserve() const;
  double id_bytes() const;
  LoadSettings load_settings() const;
  ShardLoad load(std::size_t table, const ShardSize& size, const TablePlacement& placement) const;
  ShardLoad home_load(std::size_t table, const TableSettings& settings) const;
  bool saves_ids(std::size_t table) const;
  Result<void> check_kernel(const ShardedTable& table, const TablePlacement& placement) const;
  void add_hashed_array(JobLoad& job) const;
  class ChangedPlan;
  class Improver;
  Result<void> add(std::size_t table, const TablePlacement& placement, JobLoad& job,
                   double sign = 1) const;
  void set_lookups(const ShardLoad& load, PartTimes& parts) const;
  Result<void> set_exchanges(const JobLoad& job, BatchTime& batch) const;
  BatchOrder order() const;
  double clock_us(double device_us) const;
  std::optional<BatchWork> step_work(const std::optional<StepNeeds>& needs,
                                     std::span<const TablePlacement> placements) const;
  double late_us(double bytes) const;
  double one_shot_us(double bytes) const;
  BatchWork least_step() const;
  std::vector<double> other_launches_us(const BatchTime& batch,
                                        std::span<const TablePlacement> placements) const;
  Result<double> hierarchical_us(const JobLoad& job, Load of_rank) const;
  struct Minorants;
  Minorants minorants(std::span<const ShardLoad> ranks) const;

  Result<double> all_to_all_us(const JobLoad& job, Load of_rank, bool reversed) const;
  Result<double> collective_us(CollectiveKind kind, double bytes) const;
  Result<double> between_hosts_us(double bytes) const;
  Result<double> host_sum_us(const JobLoad& job, Load of_rank, bool forward) const;
  Result<PartTimes> exchanges(const JobLoad& job) const;
  RankMemory memory(const ShardLoad& load) const;
  struct Slopes;
  Slopes slopes() const;
  double least_wire_share(std::size_t table) const;
  static double exposed_us(const ShardDemand& demand, const BatchTime& near);
  Result<double> mean_us(std::size_t table, const TablePlacement& way, const BatchTime& near,
                         const Slopes& slopes) const;
  ShardDemand demand(const ShardLoad& load, const Slopes& slopes) const;
  void add_shared(const ShardedTable& table, ShardingType type, const Slopes& slopes,
                  double all_reduce_share, ShardDemand& demand) const;
  Result<PlacementOption> option_of(
      std::size_t table, const TablePlacement& placement,
      const std::function<ShardDemand(const ShardLoad&)>& demand_of) const;
  Result<PlacementOption> option(std::size_t table, const TablePlacement& placement,
                                 const Slopes& slopes, double all_reduce_share) const;
  std::int64_t bytes_at_home(const SpaceOptions& options) const;
  Result<std::vector<PlacementOption>> options_of(std::uint32_t table, bool together,
                                                  const Slopes& slopes,
                                                  const SpaceOptions& options) const;
  static std::vector<std::int64_t> column_widths(const ShardedTable& table);
  void finish(BatchTime& batch) const;

  ShardingStudy study_;
  Gpu gpu_;
  Topology topology_;
  BatchOptions options_;
  Calibration calibration_;
  std::int64_t local_world_ = 1;
  DenseTime dense_;
  std::vector<std::uint32_t> like_;  ///< per table: equal for tables that differ in name alone
  std::shared_ptr<LoadCache> cache_;
};

}  // namespace perfmodel::sharding
