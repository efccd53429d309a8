#include "loaded_study.hpp"

#include "sharding/table_names.hpp"

namespace perfmodel::sharding {

// TorchRec writes the GB/s of a data sheet as 2^30 bytes, and counts both directions of NVLink.
TorchrecTopology LoadedStudy::torchrec_topology() const {
  constexpr double kGiB =
      TorchrecTopology::kGiBPerSecond * 1e-9;  // [1/ms] for each byte per second
  TorchrecTopology result = study.torchrec.value_or(TorchrecTopology{});
  result.world = *study.world;
  result.local_world = *study.local_world;
  if (study.torchrec) return result;
  result.hbm_cap = static_cast<std::int64_t>(gpu.dram_gb * static_cast<double>(1 << 30));
  result.hbm_bandwidth = kGiB * gpu.dram_bandwidth.value;
  if (gpu.pcie_bandwidth.value > 0) result.host_link_bandwidth = kGiB * gpu.pcie_bandwidth.value;
  const double link =
      gpu.link_bandwidth.value > 0 ? gpu.link_bandwidth.value : topology.intra.gpu_bandwidth.value;
  result.intra_host_bandwidth = kGiB * link;
  if (topology.nic) {
    result.inter_host_bandwidth =
        kGiB * topology.nic->bandwidth.value * topology.nic->count / topology.gpus_per_node;
  }
  return result;
}

TorchrecSettings LoadedStudy::torchrec_settings() const {
  return {.batch = *study.batch_per_rank,
          .pipeline = study.pipeline.value_or(TorchrecSettings::Pipeline::kNone)};
}

std::string_view LoadedStudy::pipeline_name() const {
  using Pipeline = TorchrecSettings::Pipeline;
  const Pipeline otherwise = is_torchrec ? Pipeline::kNone : Pipeline::kSparseDist;
  return kPipelineNames[static_cast<int>(study.pipeline.value_or(otherwise))].name;
}

double LoadedStudy::table_bytes() const {
  double bytes = 0;
  for (const ShardedTable& table : study.tables) {
    bytes += static_cast<double>(table.rows) * static_cast<double>(table.dim) * table.element_bytes;
  }
  return bytes;
}

double LoadedStudy::samples_per_s(double us) const {
  return static_cast<double>(*study.world * *study.batch_per_rank) / us * 1e6;
}

}  // namespace perfmodel::sharding
