#!/usr/bin/env python3
"""Records the graphs in this folder: one step of tiny models on a CPU with PyTorch 1.13.

    python3 record.py OUT

Pairs differ in one thing, which a rewrite must reproduce: autocast to bfloat16, or checkpoints. The DLRMs are what
a builder must write.
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


def record(name, step, before=2):
    for _ in range(before):
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


class Dlrm(nn.Module):
    """Two tables of 10 and 20 rows, 4 wide; `interaction`: dot, cat or dcnv2 (TorchRec's LowRankCrossNet)."""

    def __init__(self, interaction, sparse):
        super().__init__()
        self.interaction = interaction
        self.tables = nn.ModuleList([nn.EmbeddingBag(rows, 4, mode="sum", sparse=sparse) for rows in (10, 20)])
        self.bottom = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4), nn.ReLU())
        width = 4 + 3 if interaction == "dot" else 12
        if interaction == "dcnv2":
            self.w = nn.ParameterList([nn.Parameter(torch.randn(12, 2)) for _ in range(2)])
            self.v = nn.ParameterList([nn.Parameter(torch.randn(2, 12)) for _ in range(2)])
            self.bias = nn.ParameterList([nn.Parameter(torch.zeros(12)) for _ in range(2)])
        self.top = nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, 1))
        self.register_buffer("rows", torch.tensor([1, 2, 2]))
        self.columns = torch.tensor([0, 0, 1])

    def forward(self, dense, indices, offsets):
        x = self.bottom(dense)
        vectors = [x] + [table(i, o) for table, i, o in zip(self.tables, indices, offsets)]
        if self.interaction == "dot":
            stacked = torch.cat(vectors, dim=1).view(x.size(0), -1, x.size(1))
            products = torch.bmm(stacked, torch.transpose(stacked, 1, 2))
            y = torch.cat([x, products[:, self.rows, self.columns]], dim=1)
        else:
            y = first = torch.cat(vectors, dim=1)
        if self.interaction == "dcnv2":
            for w, v, bias in zip(self.w, self.v, self.bias):
                wide = nn.functional.linear(nn.functional.linear(y, v), w)
                y = first * (wide + bias) + y
        return self.top(y)


def dlrm(interaction, sparse, optimizer, **options):
    model = Dlrm(interaction, sparse)
    step_of = optimizer(model.parameters(), lr=0.01, **options)
    dense, y = torch.randn(6, 5), torch.rand(6)
    indices = [torch.randint(0, rows, (18,)) for rows in (10, 20)]
    offsets = [torch.arange(0, 18, 3) for _ in range(2)]
    if interaction != "dcnv2":
        y = y.unsqueeze(1)

    def step():
        made = model(dense, indices, offsets)
        if interaction == "dcnv2":
            loss = nn.functional.binary_cross_entropy_with_logits(made.squeeze(-1), y)
        else:
            loss = nn.functional.binary_cross_entropy(torch.sigmoid(made), y)
        step_of.zero_grad()
        loss.backward()
        step_of.step()

    return step


def dlrm_merged(optimizer):
    """Sparse gradients whose rows an optimizer merges: 8 of 10 rows and 12 of 20 are looked up."""
    model = Dlrm("cat", True)
    tables, others = list(model.tables.parameters()), list(model.bottom.parameters()) + list(model.top.parameters())
    if optimizer == torch.optim.SparseAdam:
        optimizers = [torch.optim.SGD(others, lr=0.01), optimizer(tables, lr=0.01)]
    else:
        optimizers = [optimizer(tables + others, lr=0.01)]
    dense, y = torch.randn(6, 5), torch.rand(6).unsqueeze(1)
    indices = [torch.arange(18) % distinct for distinct in (8, 12)]
    offsets = [torch.arange(0, 18, 3) for _ in range(2)]

    def step():
        made = model(dense, indices, offsets)
        loss = nn.functional.binary_cross_entropy(torch.sigmoid(made), y)
        for one in optimizers:
            one.zero_grad()
        loss.backward()
        for one in optimizers:
            one.step()

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


class Residual(nn.Module):
    """As a transformer's layer: a sum of gradients at its input, one more input that all share."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.wide, self.narrow, self.last = nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 8)

    def forward(self, x, bias):
        x = x + self.narrow(torch.relu(self.wide(self.norm1(x))) * bias.sum())
        return x + nn.functional.dropout(self.last(self.norm2(x) + bias), 0.1)


class HalfPrecision(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.narrow(torch.relu(self.wide(x)))


def convolution():
    """Ops in place, statistics that are updated twice."""
    return nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True))


class Region(nn.Sequential):
    """Opens a region around itself."""

    def forward(self, x):
        with torch.profiler.record_function("my block"):
            return super().forward(x)


def region():
    return Region(nn.Linear(8, 8), nn.ReLU())


def layers(checkpointed, make, head, x, shared=None, bf16=False):
    parts = nn.ModuleList([make() for _ in range(3)]).train()
    extra = nn.ModuleList([head] + ([shared] if shared else []))

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            y = head(x)
            more = (shared(x),) if shared else ()
            for part in parts:
                y = checkpoint(part, y, *more) if checkpointed else part(y, *more)
            loss = y.pow(2).mean()
        for parameter in list(extra.parameters()) + list(parts.parameters()):
            parameter.grad = None
        loss.backward()

    return step


for flag, precision in ((False, "fp32"), (True, "bf16")):
    record("mlp_" + precision, mlp(flag))
    record("encoder_" + precision, encoder(flag))
record("blocks_plain", blocks(False))
record("blocks_checkpointed", blocks(True))
for flag, kind in ((False, "plain"), (True, "checkpointed")):
    x, image = torch.randn(6, 8), torch.randn(2, 3, 8, 8)
    record("residual_" + kind, layers(flag, Residual, nn.Linear(8, 8), x, nn.Linear(8, 8)))
    record("autocast_" + kind, layers(flag, HalfPrecision, nn.Linear(8, 8), x, bf16=True))
    record("regions_" + kind, layers(flag, region, nn.Linear(8, 8), x))
    record("convolutions_" + kind, layers(flag, convolution, nn.Conv2d(3, 4, 1), image))
shared = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
record("shared_plain", layers(False, lambda: shared, nn.Linear(8, 8), torch.randn(6, 8)))
record("dlrm_dot_adam", dlrm("dot", False, torch.optim.Adam), 3)
record("dlrm_cat_sparse", dlrm("cat", True, torch.optim.SGD), 3)
record("dlrm_sparse_adagrad", dlrm_merged(torch.optim.Adagrad), 3)
record("dlrm_sparse_adam", dlrm_merged(torch.optim.SparseAdam), 3)
record("dlrm_dcnv2_adagrad", dlrm("dcnv2", False, torch.optim.Adagrad), 3)
