#!/bin/bash
# PyTorch 1.13.1, ExecutionGraphObserver: infinities and NaN are text.
# Guess: a bare Infinity, as Python's json module writes it.
# Seen: the strings "inf", "-inf" and "nan", while the type of the input says Double. Masks of attention are full of them.
# For a reader: the type of an input, not its JSON kind, says whether it is text.
source "$(dirname "$0")/common.sh"
torch_recorder
/usr/bin/python3 - >seen.txt <<'PYTHON'
import math, torch
from record import record
x = torch.ones(4, 4)
mask = x > 0
def program():
    x.masked_fill(mask, -math.inf)
    x.masked_fill(mask, math.nan)
    x.clamp(max=math.inf)
    torch.div(x, x, rounding_mode="floor")
for node in record(program):
    if node["name"] in ("aten::masked_fill", "aten::clamp", "aten::div"):
        print(node["name"], [(value, kind) for value, kind in zip(node["inputs"], node["input_types"])
                             if isinstance(value, str) and kind != "None"])
PYTHON
expect <<'SEEN'
aten::masked_fill [('-inf', 'Double')]
aten::masked_fill [('nan', 'Double')]
aten::clamp [('inf', 'Double')]
aten::div [('floor', 'String')]
SEEN
