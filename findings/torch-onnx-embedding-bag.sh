#!/bin/bash
# PyTorch 1.13.1, torch.onnx.export of nn.EmbeddingBag (opset 13): a bag is a turn of a loop.
# Guess: a table's bags are a Gather of all rows and a sum over them, whose shapes say the work of a step.
# Seen: nn.Embedding is one Gather. nn.EmbeddingBag is a Loop over the bags, in each turn a Slice of the indices, a Gather of their rows and a sum (the
# other Gathers read offsets). The number of turns comes from the shape of the offsets, the length of a Slice from their values,
# so counters of a graph's ops see one bag of unknown size per table.
# For users: take a DLRM's lookups from a recorded step, not from its ONNX file.
source "$(dirname "$0")/common.sh"
torch_recorder
/usr/bin/python3 - >seen.txt 2>/dev/null <<'PYTHON'
import io
import torch
def ops(module, *inputs):
    file = io.BytesIO()
    torch.onnx.export(module.eval(), inputs, file, opset_version=13)
    counts = {op: file.getvalue().count(bytes([0x22, len(op)]) + op.encode()) for op in ("Loop", "Slice", "Gather", "ReduceSum", "ReduceMean")}
    return ", ".join(f"{count} {op}" for op, count in counts.items() if count)
indices = torch.arange(12)
print("embedding:", ops(torch.nn.Embedding(100, 8), indices))
for bags in ([0, 3, 7], [0, 2, 4, 6, 8, 10]):
    print(len(bags), "bags:", ops(torch.nn.EmbeddingBag(100, 8, mode="sum"), indices, torch.tensor(bags)))
print("3 bags, mean:", ops(torch.nn.EmbeddingBag(100, 8, mode="mean"), indices, torch.tensor([0, 3, 7])))
PYTHON
expect <<'SEEN'
embedding: 1 Gather
3 bags: 1 Loop, 2 Slice, 5 Gather, 1 ReduceSum
6 bags: 1 Loop, 2 Slice, 5 Gather, 1 ReduceSum
3 bags, mean: 1 Loop, 2 Slice, 5 Gather, 1 ReduceMean
SEEN
