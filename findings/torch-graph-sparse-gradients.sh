#!/bin/bash
# PyTorch 1.13.1, ExecutionGraphObserver: sparse gradients have no storage.
# Guess: the gradient of Embedding(sparse=True) is recorded with its rows, or at least with its values' bytes.
# Seen: it has the shape of the whole table and the type of a dense tensor, but storage 0, no element and no device.
# For a reader: shapes say the table (64,000 bytes here); the op that put the tensor together has the values and indices.
source "$(dirname "$0")/common.sh"
torch_recorder
/usr/bin/python3 - >seen.txt <<'PYTHON'
import torch
from record import record
table = torch.nn.Embedding(1000, 16, sparse=True)
indices = torch.arange(32)
for node in record(lambda: table(indices).sum().backward()):
    if node["name"] in ("aten::embedding_sparse_backward", "aten::_sparse_coo_tensor_with_dims_and_tensors"):
        print(node["name"], node["outputs"][0][1:], node["output_shapes"], node["output_types"])
PYTHON
expect <<'SEEN'
aten::_sparse_coo_tensor_with_dims_and_tensors [0, 0, 0, 0, ''] [[1000, 16]] ['Tensor(float)']
aten::embedding_sparse_backward [0, 0, 0, 0, ''] [[1000, 16]] ['Tensor(float)']
SEEN
