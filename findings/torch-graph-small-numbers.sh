#!/bin/bash
# PyTorch 1.13.1, ExecutionGraphObserver: numbers are written with six digits after the point.
# Guess: a float input of an op is written so that it can be read back.
# Seen: an epsilon of 1e-12, which every BERT has, and a step of 1e-8 are 0.0; 2.5e-6 is 3e-06. 1e-5, the default of LayerNorm, survives.
# For a reader: an epsilon or a rate of 0 in a graph means "below 5e-7", not "none".
source "$(dirname "$0")/common.sh"
torch_recorder
/usr/bin/python3 - >seen.txt <<'PYTHON'
import torch
from record import record
x = torch.ones(4, 4)
def program():
    for eps in (1e-5, 1e-12):
        torch.nn.functional.layer_norm(x, (4,), eps=eps)
    x.add(x, alpha=1e-8)
    x.add(x, alpha=2.5e-6)
for node in record(program):
    if node["name"] in ("aten::layer_norm", "aten::add"):
        print(node["name"], [value for value in node["inputs"] if isinstance(value, float)])
PYTHON
expect <<'SEEN'
aten::layer_norm [1e-05]
aten::layer_norm [0.0]
aten::add [0.0]
aten::add [3e-06]
SEEN
