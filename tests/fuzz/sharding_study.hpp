#pragma once

#include <cmath>

#include "fuzz.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "perfmodel/sharding/detail/batch_model.hpp"
#include "sharding/study_file.hpp"

namespace perfmodel::fuzz {

/// The time of a batch with each table in the first of its ways, on 8 GPUs where the study does not
/// say how many.
inline void check_batch(sharding::ShardingStudy study) {
  constexpr std::int64_t kMostRanks = 64;  // the cost grows with them
  constexpr std::size_t kMostTables = 50;
  static const Gpu gpu = *read_gpu(data_folder() / "gpus/a100-sxm-80gb.json");
  static const Topology topology = *read_topology(data_folder() / "topologies/dgx-a100.json");
  if (!study.world) study.world = 8;
  if (!study.batch_per_rank) study.batch_per_rank = 512;
  if (*study.world > kMostRanks || study.tables.size() > kMostTables) return;
  const auto model = sharding::BatchModel::make(study, gpu, topology);
  if (!model) return check_error(model.error());
  std::vector<sharding::TablePlacement> placements;
  for (const auto& table : study.tables) {
    const auto ways = model->ways(table);
    if (ways.empty()) return;
    placements.push_back(ways.front());
  }
  const auto time = model->time(placements);
  if (!time) return check_error(time.error());
  PERFMODEL_CHECK(std::isfinite(time->predicted_us) && time->predicted_us >= 0);
}

/// One input as a study in a file with that extension.
inline void check_study(std::string_view text, std::string_view extension) {
  auto study = sharding::read_sharding_study(file_with(text, extension));
  if (!study) return check_error(study.error());
  check_lines(study->warnings);
  PERFMODEL_CHECK(!study->tables.empty());
  check_batch(std::move(*study));
}

}  // namespace perfmodel::fuzz
