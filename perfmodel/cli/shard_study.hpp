#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernel_models_option.hpp"
#include "perfmodel/detail/choose_kernel_models.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "perfmodel/result.hpp"
#include "perfmodel/sharding/detail/batch_model.hpp"
#include "perfmodel/sharding/rank_plans.hpp"
#include "terminal/cli11.hpp"

namespace perfmodel::cli {

/// What all `shard` commands take. What is not given stays as the file of tables has it.
struct ShardArguments {
  std::string tables, gpu, topology, costs = "calibrated", models = "learned";
  std::optional<std::int64_t> world, local_world, batch;
  std::string dtype, optimizer, pipeline, wire_dtype, compress;
  std::string network, launch, host, interaction, access;
  std::vector<std::string> types, kernels, indices;
  std::optional<std::vector<std::int64_t>> bottom, top;
  std::optional<double> zipf, free_share, link_scale, pooling_scale, nvlink_scale, nic_scale;
  std::string hot_rows;             // a number or "auto"
  std::vector<std::string> choose;  // settings of single tables; empty: as the software has them
  std::string software = "fused";
  double host_us = 0, time_budget_s = 10;
  std::uint64_t seed = 1;
  bool json = false, deduplicate = false;
};

void add_shard_options(CLI::App& app, ShardArguments& arguments);

/// Of HBM, where a study leaves it open (BatchModel and usable_hbm() have the same).
inline constexpr double kDefaultFreeShare = 0.15;

/// A study with everything that its prediction needs.
struct LoadedStudy {
  std::string file;
  sharding::ShardingStudy study;
  Gpu gpu;
  Topology topology;
  ChosenKernelModels models;
  std::vector<std::string> warnings;

  /// Of eager software; none: the host keeps ahead.
  std::optional<sharding::HostNeeds> host;

  bool is_torchrec = false;  ///< costs are TorchRec's ratings
  sharding::TorchrecTopology torchrec_topology() const;
  sharding::TorchrecSettings torchrec_settings() const;
  std::string_view pipeline_name() const;  ///< the study's, or the default of the costs
};

/// Reads the tables (a study, a CSV list or an execution graph) and puts the arguments over what
/// they say. Errors: those of the readers; no GPU, world or batch anywhere; unknown names.
Result<LoadedStudy> load_study(const ShardArguments& arguments);

Result<sharding::BatchModel> batch_model(const LoadedStudy& loaded,
                                         const ShardArguments& arguments);

/// A plan file, TorchRec's or HugeCTR's, for the tables of the study.
Result<std::vector<sharding::TablePlacement>> load_plan(const std::string& file,
                                                        const LoadedStudy& loaded);

/// Budgets and seed; progress goes to a terminal's stderr, Ctrl-C ends the search with what it has.
sharding::SearchOptions search_options(const ShardArguments& arguments, std::size_t keep);

}  // namespace perfmodel::cli
