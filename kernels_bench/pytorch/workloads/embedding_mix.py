"""DLRM with many random tables and skewed (Zipf) indices.

Either one EmbeddingBag per table, or table-batched in plain torch: one EmbeddingBag over the rows of
all tables, with each table's indices moved to where its rows begin.
"""

import random

import torch
from torch import nn

from . import common, dlrm

DIM = 64
BOTTOM = (13, 512, 256, DIM)
TOP = (512, 256, 1)
LEAST_ROWS, MOST_ROWS, MOST_POOLING = 1e3, 2e6, 50
TINY_TABLES = 5
MIX_BATCHES = 2
SCATTER_PRIMES = (1_000_003, 1_000_033)


def draw_tables(count, most_rows):
    """Rows log-uniform, pooling log-uniform. The same tables for both forms and on every machine."""
    draw = random.Random(count)
    rows = [int(LEAST_ROWS * (most_rows / LEAST_ROWS) ** draw.random()) for _ in range(count)]
    pooling = [max(1, round(MOST_POOLING ** draw.random())) for _ in range(count)]
    return rows, pooling


def zipf(rows, alpha, count):
    """`count` rows, the k-th most frequent with probability ~ k^-alpha, scattered over the table: times a
    prime that does not divide the number of rows, which is a permutation and cheaper than a random one."""
    cumulated = torch.arange(1, rows + 1, dtype=torch.float64, device="cpu").pow_(-alpha).cumsum(0)
    draws = torch.rand(count, dtype=torch.float64, device="cpu") * cumulated[-1]
    ranks = torch.searchsorted(cumulated, draws).clamp_(max=rows - 1)
    prime = next(p for p in SCATTER_PRIMES if rows % p)
    return ranks * prime % rows


class Batched(nn.Module):
    """All tables in one EmbeddingBag; bags in the order table by table."""

    def __init__(self, rows, device):
        super().__init__()
        self.count = len(rows)
        self.table = dlrm.bag(sum(rows), DIM, device)

    def forward(self, indices, offsets):
        pooled = self.table(indices, offsets).view(self.count, -1, DIM)
        return [pooled.transpose(0, 1).reshape(pooled.size(1), -1)]


def batched_inputs(rows, indices, pooling, batch):
    """One tensor of indices into the joint table, and where each bag begins."""
    starts, moved, lengths = 0, [], []
    for count, table, length in zip(rows, indices, pooling):
        moved.append(table + starts)
        starts += count
        lengths.append(torch.full((batch,), length, dtype=torch.int64, device="cpu"))
    ends = torch.cat(lengths).cumsum(0)
    return torch.cat(moved), torch.cat([torch.zeros(1, dtype=torch.int64, device="cpu"), ends[:-1]])


def inputs(rows, pooling, batch, alpha, batched, device):
    indices = [zipf(r, alpha, batch * length) for r, length in zip(rows, pooling)]
    if batched:
        joint, offsets = batched_inputs(rows, indices, pooling, batch)
        return joint.to(device), offsets.to(device)
    offsets = [torch.arange(0, batch * length, length, device=device) for length in pooling]
    return [i.to(device) for i in indices], offsets


def make(batch, device, tiny, tables, alpha, batched):
    rows, pooling = draw_tables(TINY_TABLES if tiny else tables, 4e3 if tiny else MOST_ROWS)
    embeddings = Batched(rows, device) if batched else dlrm.Bags(rows, DIM, device)
    model = dlrm.Dlrm(BOTTOM, TOP, embeddings, len(rows)).to(device)
    batches = []
    for _ in range(MIX_BATCHES):
        indices, offsets = inputs(rows, pooling, batch, alpha, batched, device)
        labels = torch.rand(batch, 1, device="cpu").to(device)
        batches.append((common.normal((batch, BOTTOM[0]), device), indices, offsets, labels))
    notes = {"rows": sum(rows), "lookups_per_sample": sum(pooling), "zipf": alpha}
    return common.Parts(model, common.sgd(model), batches, dlrm.loss, notes=notes)
