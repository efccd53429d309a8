"""DLRM: bottom MLP, one EmbeddingBag per table, dot products of all pairs, top MLP.

As the reference implementation: sparse gradients of the tables, SGD, binary cross-entropy. The indices
of the lower triangle lie on the device from the start.
"""

import math

import torch
from torch import nn
from torch.nn import functional

from . import common
from .rowwise_adagrad import RowwiseAdagrad

# Categorical features of Criteo Terabyte in the MLPerf training benchmark, at most 40 million rows.
CRITEO_ROWS = (39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10, 2208,
               11938, 155, 4, 976, 14, 39979771, 25641295, 39664984, 585935, 12972, 108, 36)
ROW_CAPS = (40_000_000, 10_000_000, 4_000_000, 1_000_000)
CPU_BYTES = 1 << 30  # limit of tables if no device says how much it has


def mlp(widths, last):
    """Linear layers with a ReLU after each except the last, which gets `last`."""
    layers = []
    for i, (wide, narrow) in enumerate(zip(widths, widths[1:])):
        layers += [nn.Linear(wide, narrow), last if i + 2 == len(widths) else nn.ReLU()]
    return nn.Sequential(*layers)


def table_weight(rows, dim, device):
    """As the reference draws them; straight on the device, since the largest take 20 GB."""
    weight = torch.empty(rows, dim, device=device)
    return weight.uniform_(-math.sqrt(1 / rows), math.sqrt(1 / rows))


def bag(rows, dim, device):
    return nn.EmbeddingBag(rows, dim, mode="sum", sparse=True, _weight=table_weight(rows, dim, device))


def capped_rows(device, dim):
    """Criteo's tables under the largest cap with which they take less than half of the device."""
    total = torch.cuda.get_device_properties(device).total_memory / 2 if device.startswith("cuda") else CPU_BYTES
    cap = next((c for c in ROW_CAPS if sum(min(r, c) for r in CRITEO_ROWS) * dim * 4 < total), ROW_CAPS[-1])
    return tuple(min(rows, cap) for rows in CRITEO_ROWS), cap


class Dlrm(nn.Module):
    """`embeddings(indices, offsets)` returns the pooled vectors, [B, dim] each."""

    def __init__(self, bottom, top, embeddings, tables):
        super().__init__()
        self.embeddings = embeddings
        self.bottom = mlp(bottom, nn.ReLU())
        pairs = [(i, j) for i in range(tables + 1) for j in range(i)]
        self.register_buffer("row", torch.tensor([i for i, _ in pairs]))
        self.register_buffer("column", torch.tensor([j for _, j in pairs]))
        self.top = mlp((bottom[-1] + len(pairs),) + tuple(top), nn.Sigmoid())

    def forward(self, dense, indices, offsets):
        x = self.bottom(dense)
        vectors = torch.cat([x] + self.embeddings(indices, offsets), dim=1).view(x.size(0), -1, x.size(1))
        products = torch.bmm(vectors, torch.transpose(vectors, 1, 2))
        return self.top(torch.cat([x, products[:, self.row, self.column]], dim=1))


class Bags(nn.Module):
    """One EmbeddingBag per table."""

    def __init__(self, rows, dim, device):
        super().__init__()
        self.tables = nn.ModuleList([bag(r, dim, device) for r in rows])

    def forward(self, indices, offsets):
        return [table(i, o) for table, i, o in zip(self.tables, indices, offsets)]


def loss(outputs, batch):
    """In fp32: binary_cross_entropy takes no half types under autocast."""
    return functional.binary_cross_entropy(outputs.float(), batch[-1])


def make(batch, device, tiny, bottom, top, rows, pooling, optimizer="sgd"):
    notes = {}
    if rows == "criteo":
        rows, notes["row_cap"] = capped_rows(device, bottom[-1])
    if tiny:
        bottom, top, pooling = (bottom[0] // 8 + 1, 16, 8), (16, 1), min(pooling, 4)
        rows = tuple(min(r, 200 + 10 * i) for i, r in enumerate(rows[:4]))
        notes = {}
    model = Dlrm(bottom, top, Bags(rows, bottom[-1], device), len(rows)).to(device)
    batches = []
    for _ in range(common.INPUT_BATCHES):
        indices = [common.integers(r, (batch * pooling,), device) for r in rows]
        offsets = [torch.arange(0, batch * pooling, pooling, device=device) for _ in rows]
        labels = torch.rand(batch, 1, device="cpu").to(device)
        batches.append((common.normal((batch, bottom[0]), device), indices, offsets, labels))
    makers = {"sgd": common.sgd, "adagrad": lambda m: RowwiseAdagrad(m.parameters(), lr=0.01)}
    return common.Parts(model, makers[optimizer](model), batches, loss, notes=notes)
