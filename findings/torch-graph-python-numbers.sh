#!/bin/bash
# PyTorch 1.13.1, ExecutionGraphObserver: a Python number may become a tensor, and its value is lost.
# Guess: tensor * 0.5 is recorded with the number 0.5.
# Seen: products, quotients and sums with a number are recorded with a tensor of one double, without its value (the 1 of a sum is its
# alpha); alpha, addcmul_, addcdiv_ and pow keep theirs. So Adam's decays of 0.9 and 0.999 are gone from a graph, and its rate is there divided by 0.1.
# For a reader: a double of one element next to a float tensor is a number of Python, and no tensor that was copied to the GPU.
source "$(dirname "$0")/common.sh"
torch_recorder
/usr/bin/python3 - >seen.txt <<'PYTHON'
import torch
from record import record
x = torch.ones(4, 4)
parameter = torch.nn.Parameter(x.clone())
parameter.grad = x.clone()
adam = torch.optim.Adam([parameter], lr=1e-3, betas=(0.9, 0.999))
def program():
    x * 0.5
    x + 0.5
    x.add(x, alpha=0.5)
    x.pow(0.5)
    adam.step()
for node in record(program):
    if node["name"] in ("aten::mul", "aten::add", "aten::pow", "aten::mul_", "aten::addcdiv_") or (
            node["name"] == "aten::add_" and node["inputs"][0][3] == 16):
        print(node["name"], [kind if kind.startswith("Tensor") else value
                             for value, kind in zip(node["inputs"], node["input_types"])])
PYTHON
expect <<'SEEN'
aten::mul ['Tensor(float)', 'Tensor(double)']
aten::add ['Tensor(float)', 'Tensor(double)', 1]
aten::add ['Tensor(float)', 'Tensor(float)', 0.5]
aten::pow ['Tensor(float)', 0.5]
aten::mul_ ['Tensor(float)', 'Tensor(double)']
aten::add_ ['Tensor(float)', 'Tensor(float)', 0.1]
aten::mul_ ['Tensor(float)', 'Tensor(double)']
aten::add_ ['Tensor(float)', 'Tensor(double)', 1]
aten::addcdiv_ ['Tensor(float)', 'Tensor(float)', 'Tensor(float)', -0.01]
SEEN
