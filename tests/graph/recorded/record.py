#!/usr/bin/env python3
"""Records the graphs in this folder: one step of tiny models on a CPU with PyTorch 1.13.

    python3 record.py OUT

Pairs differ in one thing, which a rewrite must reproduce: autocast to bfloat16, or checkpoints.
"""
import gzip
import os
import shutil
import sys

import torch
from torch import nn
from torch.profiler import ExecutionGraphObserver
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
torch.set_num_threads(1)


def record(name, step):
    for _ in range(2):
        step()
    observer = ExecutionGraphObserver()
    path = os.path.join(sys.argv[1], name + ".json")
    observer.register_callback(path)
    observer.start()
    step()
    observer.stop()
    observer.unregister_callback()
    with open(path, "rb") as plain, open(path + ".gz", "wb") as out:
        with gzip.GzipFile("", "wb", 9, out, mtime=0) as packed:
            shutil.copyfileobj(plain, packed)
    os.remove(path)


def mlp(bf16):
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 12), nn.GELU(), nn.Linear(12, 4))
    x, y = torch.randn(32, 8), torch.randint(0, 4, (32,))
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            loss = nn.functional.cross_entropy(model(x), y)
        sgd.zero_grad()
        loss.backward()
        sgd.step()

    return step


def encoder(bf16):
    """One layer used twice: its casts are made once."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", batch_first=True).train()
    x = torch.randn(2, 6, 16)

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            loss = layer(layer(x)).pow(2).mean()
        layer.zero_grad()
        loss.backward()

    return step


def blocks(checkpointed):
    head = nn.Linear(8, 8)
    parts = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.1)) for _ in range(2)])
    x = torch.randn(32, 8)

    def step():
        y = head(x)
        for part in parts:
            y = checkpoint(part, y) if checkpointed else part(y)
        loss = y.sum()
        for parameter in list(head.parameters()) + list(parts.parameters()):
            parameter.grad = None
        loss.backward()

    return step


for flag, precision in ((False, "fp32"), (True, "bf16")):
    record("mlp_" + precision, mlp(flag))
    record("encoder_" + precision, encoder(flag))
record("blocks_plain", blocks(False))
record("blocks_checkpointed", blocks(True))
