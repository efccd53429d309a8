#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perfmodel/layout.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// The costs of a training program besides the kernels of its layers, read from
/// `data/frameworks/NAME.json`. Times in us of the reference host.
struct Framework {
  std::string name, title;

  /// Its kernel of fused attention, if the GPU has it; else what frameworks take on that GPU.
  LayoutJob::Attention attention = LayoutJob::Attention::kFlash;
  std::int64_t loss_chunks = 1;  ///< see LayoutJob

  /// Factor on the reference table's host time of a layer's ops.
  double host_scale = 1;
  /// Per collective of tensor parallelism: always; per rank of the group beyond the second; per
  /// node that it spans beyond the first; and with pipeline stages per rank of it to the power
  /// `pipeline_exponent`.
  double collective_host_us = 0, rank_collective_us = 0, node_collective_us = 0,
         pipeline_collective_us = 0;
  double pipeline_exponent = 1;
  double recompute_host_us = 0;   ///< per layer that is computed again: random state, detaching
  double microbatch_host_us = 0;  ///< batch, loss, engine

  double layer_factor = 1;      ///< on kernels of layers but attention: what no graph lists
  double tensor_overlap = 0;    ///< share of tensor-parallel collectives that compute hides
  double expert_factor = 1;     ///< on the kernel times of layers with experts, instead
  double expert_overlap = 0;    ///< share of the exchange of rows with experts that compute hides
  double state_factor = 1;      ///< on the kernel times of layers of state spaces, in addition
  double expert_launch_us = 0;  ///< host time per expert on a rank and pass, in addition
  double expert_host_us = 0;    ///< per layer with experts and pass: launches per expert, counts
  /// A token goes once to each rank that has one of its experts, and comes back summed (DeepEP);
  /// else a row per expert does.
  bool rows_once_per_rank = false;

  double hop_host_us = 0;   ///< per send of a stage to the next: the host spends and waits
  bool split_hops = false;  ///< each tensor-parallel rank sends its part, receivers gather
  /// Layers run the kernels of Transformer Engine; else PyTorch's own, one for each op.
  bool fused_layers = false;
  /// Layers, the optimizer's step and the copies of DDP are as `build` and `predict` have them:
  /// PyTorch's own ops; costs below are added to them.
  bool plain_pytorch = false;
  /// Chains of pointwise ops in layers run as one kernel, as TorchScript and compilers make them.
  bool fused_pointwise = true;
  bool balanced_stages = false;  ///< layers by their products, the output layer counted; else equal

  double bucket_bytes = 25 * 1024.0 * 1024;
  bool overlap_gradients = true;  ///< with the last microbatch's backward pass
  bool reduce_scatters = true;    ///< ZeRO-1 and -2 scatter sums; else they reduce all everywhere
  /// A bucket holds at least a million parameters per rank of the data-parallel group.
  bool buckets_grow = false;
  /// Kernels take longer by this share of the time of ZeRO-3's and FSDP's gathers and scatters that
  /// run meanwhile: both want memory bandwidth and SMs.
  double interference = 0;
  bool overlaps_gathers = true;  ///< ZeRO-3's and FSDP's, with compute
  double gather_us = 0;          ///< per gathered unit of ZeRO-3 and FSDP, besides the wire
  double unit_host_us = 0;       ///< host time per gather or scatter of such a unit
  double network_share = 1;      ///< share of the NICs' rate that collectives over nodes reach
  /// On clusters of so many nodes, added to all else: a step (its sums over all nodes), and a send
  /// between stages. Between two numbers linear over the logarithm, beyond the last as there.
  std::vector<std::pair<double, double>> step_by_nodes_us, hop_by_nodes_us;

  /// Moved per parameter where a microbatch adds its gradients to those before.
  double accumulation_bytes = 10;
  double optimizer_bytes = 34;  ///< moved per parameter of the shard: clipping, Adam, copy to half
  /// Moved in host memory per parameter by AdamW on the CPU: four numbers read, three written.
  double host_optimizer_bytes = 28;
  /// Activations beyond those that the layer graph keeps, as a share, if tensor parallelism splits
  /// it.
  double tensor_activation_share = 0;
  double reserved_share = 0.02;  ///< that the allocator holds beyond the peak
  double outside_bytes = 0;      ///< device memory outside of the allocator: communicators
  double fixed_bytes = 0;        ///< workspaces, buffers of the program
  double low_share = 0.85, high_share = 1.2;  ///< range of the step: the middle 80 % of calibration
                                              ///< rows

  std::vector<std::string> sources;
};

/// The time that a table of pairs (nodes, us) gives for so many nodes; 0 if it is empty.
double at_nodes(const std::vector<std::pair<double, double>>& table, double nodes);

/// Errors: no such file (names the known ones), a file that says something odd.
Result<Framework> read_framework(const std::filesystem::path& file);
Result<Framework> find_framework(std::string_view name, const std::filesystem::path& data);
Result<std::vector<std::string>> framework_names(const std::filesystem::path& data);

}  // namespace perfmodel
