#pragma once

#include <string_view>

namespace perfmodel {

/// Name of a region that is no op: ProfilerStep#N, "## ... ##", Optimizer.step#..., a module, ...
bool is_label_name(std::string_view name);

/// A label of torch.utils.checkpoint, around the ops of a checkpoint or of its backward pass: they
/// run as they would without it, so it opens no phase.
bool is_checkpoint_name(std::string_view name);

/// Bookkeeping node of the execution-trace observer (process, thread, root).
bool is_structural_name(std::string_view name);

/// A call that is known to give work to the device (data/names/calls.json): kernel launch, copy or
/// set, graph launch. Synchronising calls are not launches. Whether a *recorded* call launched
/// something is HostEvent::launches.
bool is_launch_call(std::string_view name);

/// A call that launches one kernel.
bool is_kernel_call(std::string_view name);

/// A call that copies memory (a launch that may block the host).
bool is_copy_call(std::string_view name);

/// A call that launches a captured graph: one correlation, many kernels.
bool is_graph_launch_call(std::string_view name);

enum class SyncKind { kNone, kStream, kDevice, kEvent };
/// A call that waits for the device.
SyncKind sync_kind(std::string_view name);

/// The kind of a kernel by its name (data/names/kernels.json): "collective", or a family of kernels
/// ("gemm", "norm", ...); empty for other names.
std::string_view kind_of_kernel(std::string_view name);

/// Whether a kernel moves data between ranks: kernels of NCCL, RCCL, oneCCL and HCCL, and of
/// libraries that communicate without them (DeepEP, NVSHMEM, custom all-reduces, ...). Kernels that
/// a compiler generated and named after the surrounding ops do not.
bool is_collective_kernel(std::string_view name);

/// A call of code that torch.compile wrote: Dynamo's label, the function of autograd inside or
/// instead of it, and the engine's node of that function in the backward pass.
bool is_compiled_region(std::string_view name);

/// Prefix match on "ProfilerStep#".
bool is_profiler_step(std::string_view name);

}  // namespace perfmodel
