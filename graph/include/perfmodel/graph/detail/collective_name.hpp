#pragma once

#include <string_view>

namespace perfmodel {

/// The kind of a collective, by the name of its kernel, record or op:
/// "ncclDevKernel_AllGather_RING" and "_allgather_base" are an "all_gather". Empty for other names.
std::string_view collective_in_name(std::string_view name);

/// The same for an op of a library ("symm_mem::one_shot_all_reduce", "vllm::all_reduce",
/// "_c10d_functional::all_to_all_single"): only full names count, so that "torch_scatter::scatter"
/// is none.
std::string_view collective_of_op(std::string_view op_name);

}  // namespace perfmodel
