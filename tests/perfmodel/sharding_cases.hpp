#pragma once

#include <nlohmann/json.hpp>

#include "perfmodel/sharding/torchrec_costs.hpp"

namespace perfmodel::sharding {

/// A topology of TorchRec's public cases.
inline TorchrecTopology topology_of(const nlohmann::json& json) {
  return {.world = json["world_size"],
          .local_world = json["local_world_size"],
          .hbm_cap = json["hbm_cap"],
          .ddr_cap = json["ddr_cap"],
          .hbm_bandwidth = json["hbm_mem_bw"],
          .ddr_bandwidth = json["ddr_mem_bw"],
          .host_link_bandwidth = json["hbm_to_ddr_mem_bw"],
          .intra_host_bandwidth = json["intra_host_bw"],
          .inter_host_bandwidth = json["inter_host_bw"],
          .backward_compute_multiplier = json["bwd_compute_multiplier"],
          .weighted_backward_multiplier = json["weighted_feature_bwd_compute_multiplier"]};
}

}  // namespace perfmodel::sharding
