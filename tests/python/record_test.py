#!/usr/bin/env python3
"""Records a module of PyTorch through the package and predicts it. Needs a Python that has torch."""

import os
import tempfile

import torch

import perfmodel

layers = [torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)]
model = torch.nn.Sequential(*layers)
weights = [weight.clone() for weight in model.parameters()]
with tempfile.TemporaryDirectory() as folder:
    recorded = perfmodel.record(model, torch.randn(16, 64), folder)
    assert sorted(os.listdir(folder)) == ["rank0_graph.json", "rank0_trace.json.gz"], os.listdir(folder)
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters())), "weights changed"
    assert recorded.graph.batch == 16
    # Recorded on a CPU: as the same program on a GPU.
    step = perfmodel.predict(recorded.graph.rewrite(retarget="nvidia"), gpu="h100-sxm-80gb")
    products = [kernel for kernel in step.kernels if kernel["family"] == "gemm"]
    assert len(products) == 5, products  # forward 2, backward 3: the input needs no gradient

    output = perfmodel.record(lambda x: model(x), (torch.randn(4, 64),), os.path.join(folder, "own"), warm=1, steps=1,
                              loss=lambda y: y.square().mean(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    assert output.graph.batch == 4 and not torch.equal(weights[0], next(iter(model.parameters())))
print("recorded and predicted")
