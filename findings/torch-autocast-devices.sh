#!/bin/bash
# PyTorch 1.13.1, autocast to bf16: the ops that stay in fp32 depend on the device, and on how a loss is called.
# Guess: autocast has one list; softmax, norms, sums, exponentials and losses run in fp32 on a CPU as on a GPU.
# Seen: on a CPU only losses do, so softmax, layer norm, sums, powers and exponentials of bf16 are bf16 there. On a GPU they are fp32, but
# cross_entropy takes its logarithm of the softmax in bf16 there and casts the result; log_softmax and nll_loss, the same in two calls, take it in fp32.
# A subclass of Tensor that says it is on cuda:0 and computes on the CPU shows this without a GPU.
# For users: record in fp32 on a CPU and let `--precision bf16` write the GPU's casts; a recording under a CPU's autocast keeps the CPU's.
source "$(dirname "$0")/common.sh"
torch_recorder
/usr/bin/python3 - >seen.txt <<'PYTHON'
import torch
from torch.nn import functional as F
from torch.utils._pytree import tree_map

called = []  # (op, type of its first input)

class OnGpu(torch.Tensor):
    @staticmethod
    def __new__(cls, values):
        return torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=values.dtype, device="cuda:0")

    def __init__(self, values):
        self.values = values

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        called.append((op.overloadpacket.__name__, args[0].dtype))
        def inside(value):
            return value.values if isinstance(value, OnGpu) else value
        options = {key: value for key, value in (kwargs or {}).items() if key != "device"}
        results = op(*tree_map(inside, args), **tree_map(inside, options))
        return tree_map(lambda value: OnGpu(value) if isinstance(value, torch.Tensor) else value, results)

ops = {
    "matmul": lambda x, target: x @ x, "gelu": lambda x, target: F.gelu(x), "mean": lambda x, target: x.mean(),
    "mse_loss": lambda x, target: F.mse_loss(x, x), "cross_entropy": F.cross_entropy,
    "softmax": lambda x, target: x.softmax(-1), "layer_norm": lambda x, target: F.layer_norm(x, (8,)), "sum": lambda x, target: x.sum(),
    "pow": lambda x, target: x.pow(2), "exp": lambda x, target: x.exp(), "rsqrt": lambda x, target: x.rsqrt(),
}
half = torch.randn(8, 8).bfloat16()
target = torch.zeros(8, dtype=torch.long)
with torch.autocast("cpu", dtype=torch.bfloat16):
    on_cpu = {name: op(half, target).dtype for name, op in ops.items()}
torch.set_autocast_gpu_dtype(torch.bfloat16)
torch.set_autocast_enabled(True)
on_gpu = {name: op(OnGpu(half), OnGpu(target)).dtype for name, op in ops.items()}
for name in ops:
    print(name, "gives", on_cpu[name], "on a CPU,", on_gpu[name], "on a GPU")
for name, loss in (("cross_entropy", F.cross_entropy), ("log_softmax and nll_loss", lambda x, target: F.nll_loss(F.log_softmax(x, -1), target))):
    called.clear()
    loss(OnGpu(half), OnGpu(target))
    print(name, "on a GPU:", ", ".join(f"{op} of {kind}" for op, kind in called))
PYTHON
expect <<'SEEN'
matmul gives torch.bfloat16 on a CPU, torch.bfloat16 on a GPU
gelu gives torch.bfloat16 on a CPU, torch.bfloat16 on a GPU
mean gives torch.bfloat16 on a CPU, torch.bfloat16 on a GPU
mse_loss gives torch.float32 on a CPU, torch.float32 on a GPU
cross_entropy gives torch.float32 on a CPU, torch.float32 on a GPU
softmax gives torch.bfloat16 on a CPU, torch.float32 on a GPU
layer_norm gives torch.bfloat16 on a CPU, torch.float32 on a GPU
sum gives torch.bfloat16 on a CPU, torch.float32 on a GPU
pow gives torch.bfloat16 on a CPU, torch.float32 on a GPU
exp gives torch.bfloat16 on a CPU, torch.float32 on a GPU
rsqrt gives torch.bfloat16 on a CPU, torch.float32 on a GPU
cross_entropy on a GPU: _log_softmax of torch.bfloat16, _to_copy of torch.bfloat16, nll_loss_forward of torch.float32
log_softmax and nll_loss on a GPU: _to_copy of torch.bfloat16, _log_softmax of torch.float32, nll_loss_forward of torch.float32
SEEN
