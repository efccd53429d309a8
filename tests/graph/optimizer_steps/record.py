#!/usr/bin/env python3
"""Record the fourth step of PyTorch's optimizers, loop and foreach, on a matrix and a vector.

Usage: record.py OUTDIR      (torch 1.13 on a CPU; the files here are of Debian's 1.13.0a0)
"""
import gzip
import os
import sys

import torch
from torch.profiler import ExecutionGraphObserver, ProfilerActivity, profile

out = sys.argv[1]
torch.set_num_threads(1)

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.01}),
    "sgdwd": (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-4}),
    "momentum": (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.01}),
    "adam": (torch.optim.Adam, {}),
    "adamwd": (torch.optim.Adam, {"weight_decay": 0.01}),
    "adamw": (torch.optim.AdamW, {}),
}


def record(name, make, options):
    parameters = [torch.randn(6, 4, requires_grad=True), torch.randn(4, requires_grad=True)]
    optimizer = make(parameters, **options)

    def step():
        for p in parameters:
            p.grad = torch.ones_like(p)
        optimizer.step()

    for _ in range(3):
        step()
    file = f"{out}/{name}.json"
    observer = ExecutionGraphObserver()
    observer.register_callback(file)
    with profile(activities=[ProfilerActivity.CPU]):
        observer.start()
        step()
        observer.stop()
    observer.unregister_callback()
    with open(file, "rb") as plain, gzip.GzipFile(file + ".gz", "wb", 9, mtime=0) as packed:
        packed.write(plain.read())
    os.remove(file)


for name, (make, options) in OPTIMIZERS.items():
    for foreach in (False, True):
        record(f"{name}_{'foreach' if foreach else 'loop'}", make, {**options, "foreach": foreach})
