#!/bin/bash
# PyTorch 1.13.1, profile(with_flops=True): which work is counted depends on the direction and on the order of operands.
# Guess: a step of a convolution counts three times its forward pass, as a step of a matrix product does.
# Seen: convolutions count forward only, so a ResNet's step has a third of its FLOP and a BERT's all; 1-d, 3-d and transposed convolutions,
# matrix-vector products and padding="same" count 0; a broadcast sum counts its first operand, so one + matrix is 1 FLOP and matrix + one 4,096.
# For users: do not compare these counts with work that is derived from shapes, and take no MFU from them.
source "$(dirname "$0")/common.sh"
torch_recorder
/usr/bin/python3 - >seen.txt 2>/dev/null <<'PYTHON'
import torch
from torch.nn import functional as F
def flop(function):
    with torch.autograd.profiler.profile(with_flops=True, record_shapes=True) as profile:
        function()
    return sum(event.flops or 0 for event in profile.function_events)
image = torch.ones(2, 8, 16, 16, requires_grad=True)
filters = torch.ones(8, 8, 3, 3, requires_grad=True)
matrix = torch.ones(64, 64, requires_grad=True)
other = torch.ones(64, 64, requires_grad=True)
print("product", flop(lambda: matrix @ other), "its step", flop(lambda: (matrix @ other).sum().backward()))
print("convolution", flop(lambda: F.conv2d(image, filters, padding=1)),
      "its step", flop(lambda: F.conv2d(image, filters, padding=1).sum().backward()))
print("same padding", flop(lambda: F.conv2d(image, filters, padding="same")),
      "transposed", flop(lambda: F.conv_transpose2d(image, filters)),
      "1-d", flop(lambda: F.conv1d(torch.ones(2, 8, 16), torch.ones(8, 8, 3))),
      "3-d", flop(lambda: F.conv3d(torch.ones(2, 8, 8, 8, 8), torch.ones(8, 8, 3, 3, 3))),
      "matrix-vector", flop(lambda: torch.mv(matrix, torch.ones(64))))
print("matrix + one", flop(lambda: matrix + torch.ones(1)), "one + matrix", flop(lambda: torch.ones(1) + matrix))
PYTHON
expect <<'SEEN'
product 524288 its step 1572864
convolution 589824 its step 589824
same padding 0 transposed 0 1-d 0 3-d 0 matrix-vector 0
matrix + one 4096 one + matrix 1
SEEN
