#include "catalogue.hpp"

namespace perfmodel {
namespace {

using enum OpKind;
using enum AutocastPolicy;

constexpr Op kOps[] = {
    {"record_param_comms", kCollective, {.size = "comm_record"}},
    {"torch::autograd::AccumulateGrad", kWrapper},
    {"torch::autograd::CopySlices", kWrapper},
    {"torch::autograd::CopyBackwards", kWrapper},
    {"torch::autograd::GraphRoot", kWrapper},
    {"torch::autograd::Error", kWrapper},
    {"c10d::allreduce_", kWrapper},
    {"c10d::allreduce_coalesced_", kWrapper},
    {"c10d::alltoall_base_", kWrapper, {.size = "all_to_all"}},
    {"c10d::alltoall_", kWrapper},
    {"c10d::broadcast_", kWrapper},
    {"c10d::allgather_", kWrapper},
    {"c10d::_allgather_base_", kWrapper},
    {"c10d::allgather_coalesced_", kWrapper},
    {"c10d::allgather_into_tensor_coalesced_", kWrapper},
    {"c10d::reduce_scatter_", kWrapper},
    {"c10d::_reduce_scatter_base_", kWrapper},
    {"c10d::reduce_scatter_tensor_coalesced_", kWrapper},
    {"c10d::reduce_", kWrapper},
    {"c10d::gather_", kWrapper},
    {"c10d::scatter_", kWrapper},
    {"c10d::send", kWrapper},
    {"c10d::recv_", kWrapper},
    {"c10d::recv_any_source_", kWrapper},
    {"c10d::barrier", kWrapper},
    {"c10d::monitored_barrier_", kWrapper},
    {"c10d_functional::wait_tensor", kWrapper},
    {"_c10d_functional::wait_tensor", kWrapper},
    {"_c10d_functional::all_reduce", kWrapper, {.in_place = true}},
    {"_c10d_functional::all_gather_into_tensor", kWrapper},
    {"_c10d_functional::reduce_scatter_tensor", kWrapper},
    {"_c10d_functional::all_to_all_single", kWrapper},
    {"CompiledFunction", kWrapper},
    {"CompiledFunctionBackward", kWrapper},
    {"All2All_Pooled_Req", kWrapper},
    {"All2All_Pooled_Wait", kWrapper},
    {"All2All_Pooled_ReqBackward", kWrapper},
    {"All2All_Pooled_WaitBackward", kWrapper},
    {"nccl:", kWrapper, {.is_prefix = true}},
    {"gloo:", kWrapper, {.is_prefix = true}},
    {"ucc:", kWrapper, {.is_prefix = true}},
    {"mpi:", kWrapper, {.is_prefix = true}},
    {"rccl:", kWrapper, {.is_prefix = true}},
    {"autograd::engine::evaluate_function", kWrapper, {.is_prefix = true}},
    {"torch.distributed.ddp.reducer::", kWrapper, {.is_prefix = true}},
    {"torch::distributed::reducer::", kWrapper, {.is_prefix = true}},
    {"TorchDynamo", kWrapper, {.is_prefix = true}},
    {"Torch-Compiled Region", kWrapper, {.is_prefix = true}},
    {"AOTDispatcher", kWrapper, {.is_prefix = true}},
    {"Pregraph bytecode", kWrapper, {.is_prefix = true}},
    {"## ", kWrapper, {.is_prefix = true}},
    {"[pytorch|", kWrapper, {.is_prefix = true}},
    {"ProfilerStep#", kWrapper, {.is_prefix = true}},
    {"Optimizer.", kWrapper, {.is_prefix = true}},
    {"DistributedDataParallel.", kWrapper, {.is_prefix = true}},
    {"FullyShardedDataParallel.", kWrapper, {.is_prefix = true}},
    {"enumerate(DataLoader)", kWrapper, {.is_prefix = true}},
    {"nn.Module:", kWrapper, {.is_prefix = true}},
    {"FSDP::", kWrapper, {.is_prefix = true}},
    {"DataParallel.", kWrapper, {.is_prefix = true}},
    {"triton", kTriton},
    {"nccl:all_reduce", kComposite, {.size = "same_shape"}},
    {"nccl:broadcast", kComposite, {.size = "same_shape"}},
    {"torch::distributed::reducer::mul_out", kComposite, {.size = "same_shape"}},
};

}  // namespace

std::span<const Op> wrapper_ops() { return kOps; }

}  // namespace perfmodel
