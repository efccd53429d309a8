#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/detail/choose_kernel_models.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "perfmodel/result.hpp"
#include "perfmodel/sharding/detail/batch_model.hpp"

namespace perfmodel::sharding {

/// The share of HBM that stays free, if the study does not say (BatchModel and usable_hbm() have
/// the same).
inline constexpr double kDefaultFreeShare = 0.15;

/// A study with everything that its prediction needs.
struct LoadedStudy {
  std::string file;  ///< name of the file of tables, without its folder
  ShardingStudy study;
  Gpu gpu = {};
  Topology topology = {};
  std::shared_ptr<const ChosenKernelModels> models = {};  ///< `options` points to them
  std::vector<std::string> warnings = {};

  BatchOptions options = {};
  double time_budget_s = 10;  ///< seconds that a search may take
  std::uint64_t seed = 1;     ///< for searches

  bool is_torchrec = false;  ///< costs are TorchRec's ratings
  TorchrecTopology torchrec_topology() const;
  TorchrecSettings torchrec_settings() const;
  std::string_view pipeline_name() const;  ///< the study's, or the default of the costs
  double free_share() const { return study.free_share.value_or(kDefaultFreeShare); }

  double table_bytes() const;             ///< rows of all tables, without the optimizer
  double samples_per_s(double us) const;  ///< on all GPUs, if a batch takes so long
};

}  // namespace perfmodel::sharding
