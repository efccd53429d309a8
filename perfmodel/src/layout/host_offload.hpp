#pragma once

#include <string_view>
#include <vector>

#include "perfmodel/layout.hpp"
#include "perfmodel/result.hpp"
#include "step_question.hpp"

/// Parts of a training step in host memory: what they take there and what they cost.
namespace perfmodel {

/// Bytes in host memory.
struct HostBytes {
  double weights = 0, gradients = 0, optimizer = 0, activations = 0;
  double pinned = 0;  ///< beyond these, since pinned blocks are powers of two
  double total() const { return weights + gradients + optimizer + activations + pinned; }
};
HostBytes operator+(HostBytes a, const HostBytes& b);
HostBytes operator*(double count, HostBytes a);

/// Host memory of the fullest node; `of_stages`: of one rank of each pipeline stage.
HostBytes fullest_node(const StepQuestion& question, const std::vector<HostBytes>& of_stages);

/// [us] of a copy between a GPU and pinned host memory, either way.
double host_copy_us(const Gpu& gpu, double bytes);

/// [us] of the optimizer's step on the CPUs of a node whose ranks update so many parameters each:
/// bytes of all ranks over the rate of the node. Without `host_bytes_per_s` ZeRO-Offload's rate
/// (Ren et al., USENIX ATC 2021, table 4: AdamW on 10 billion parameters in 2.57 s on two Xeon
/// 8168; 28 bytes each are 109 GB/s).
double host_optimizer_us(const StepQuestion& question, double parameters);

/// [us] in which the drives of a node move the optimizer's states there and back for so many
/// parameters of each rank: 2 x 16 bytes each (ZeRO-Infinity, Rajbhandari et al., SC 2021, section
/// 4.1). DeepSpeed reads, steps and writes in turn, unless its `pipeline_read` and `pipeline_write`
/// are on.
double nvme_us(const StepQuestion& question, double parameters);
/// Host memory [bytes] of one rank for them: DeepSpeed's four fp32 buffers of a group of at most
/// 1e9 parameters.
double nvme_buffer_bytes(double parameters);

/// "2TB", "512GB", "1.5TiB" as bytes. Errors: another unit, no number above 0.
Result<double> parse_host_memory(std::string_view text);

}  // namespace perfmodel
