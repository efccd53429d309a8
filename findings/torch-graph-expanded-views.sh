#!/bin/bash
# PyTorch 1.13.1, ExecutionGraphObserver: an expanded tensor counts all of its elements, and no stride says that they are one.
# Guess: the element count of a tensor is bounded by its storage.
# Seen: a storage of 4 bytes is an input of 1,000,000 elements of 4 bytes.
# For a reader: bytes of inputs are no traffic and no memory before views are followed to the op that made the storage.
source "$(dirname "$0")/common.sh"
torch_recorder
/usr/bin/python3 - >seen.txt <<'PYTHON'
import torch
from record import record
def program():
    one = torch.ones(1, 1)
    one.expand(1000, 1000).neg()
storages = set()
for node in record(program):
    if node["name"] in ("aten::ones", "aten::expand", "aten::neg"):
        tensor = node["inputs"][0] if node["name"] == "aten::neg" else node["outputs"][0]
        storages.add(tensor[1])
        print(node["name"], tensor[3], "elements of", tensor[4], "bytes;", "keys with strides:", [key for key in node if "stride" in key])
print(len(storages), "storage")
PYTHON
expect <<'SEEN'
aten::ones 1 elements of 4 bytes; keys with strides: []
aten::expand 1000000 elements of 4 bytes; keys with strides: []
aten::neg 1000000 elements of 4 bytes; keys with strides: []
1 storage
SEEN
