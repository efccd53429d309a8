#!/bin/bash
# PyTorch 1.13.1, ExecutionGraphObserver: a label is not free, it adds four ops.
# Guess: an empty record_function block adds one node.
# Seen: before it a tensor of one number is made and filled with zero, and inside it one of 288 bytes: handles of the profiler, on the CPU.
# For a reader: counts of ops and host time of a program with many labels include the ops of its labels.
source "$(dirname "$0")/common.sh"
torch_recorder
/usr/bin/python3 - >seen.txt <<'PYTHON'
import torch
from record import record
def program():
    with torch.profiler.record_function("label"):
        pass
names = {node["id"]: node["name"] for node in record(program)}
for node in sorted(record(program), key=lambda node: node["id"]):
    if "execution_graph" not in node["name"]:
        print(node["name"], "in", names[node["parent"]].split("|")[-1], node["outputs"] and node["outputs"][0][3:])
PYTHON
expect <<'SEEN'
aten::zeros in thread] [1, 4, 'cpu']
aten::empty in aten::zeros [1, 4, 'cpu']
aten::zero_ in aten::zeros [1, 4, 'cpu']
label in thread] []
aten::empty in label [288, 1, 'cpu']
SEEN
