#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace perfmodel::sharding {

/// A question about the tables of a file, in words and numbers, as command lines and servers have
/// them. Empty or none: as the file has it, else the default.
struct ShardQuestion {
  std::string tables;  ///< file of a study, a list of tables or an execution graph
  std::string gpu, topology;
  std::string costs;               ///< calibrated (the default) or torchrec
  std::string models = "learned";  ///< as choose_kernel_models() takes it
  std::optional<std::int64_t> world, local_world, batch;
  std::string dtype, optimizer, pipeline, wire_dtype, compress;
  std::string network, launch, host, interaction, access;
  std::vector<std::string> types, kernels, indices;
  std::optional<std::vector<std::int64_t>> bottom, top;
  std::optional<double> zipf, free_share, link_scale, pooling_scale, nvlink_scale, nic_scale;
  std::string hot_rows;             ///< a number or "auto"
  std::vector<std::string> choose;  ///< settings of single tables; empty: as the software has them
  std::string software;             ///< fused (the default) or per-table
  double host_us = 0, time_budget_s = 10;
  std::uint64_t seed = 1;
  bool deduplicate = false;
};

/// A question and its variants in one input.
struct StudyQuestion {
  ShardQuestion base;
  std::vector<std::int64_t> worlds;          ///< empty: powers of two
  std::optional<std::int64_t> global_batch;  ///< samples on all GPUs, whatever their number
  std::optional<double> samples_per_s;       ///< the fewest GPUs for it are looked for
};

}  // namespace perfmodel::sharding
