"""DLRM with one nn.EmbeddingBag per table, and a language model of LSTMs."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from .training import product, sgd, tokens, training


def layers(widths):
    return [layer for inner, out in zip(widths, widths[1:]) for layer in (nn.Linear(inner, out), nn.ReLU())]


class DlrmModel(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(sizes.rows, sizes.width, mode="sum", sparse=sizes.sparse)
                                    for _ in range(sizes.tables))
        self.bottom, self.top = nn.Sequential(*layers(sizes.bottom)), nn.Sequential(*layers(sizes.top)[:-1])
        pairs = [(i, j) for i in range(sizes.tables + 1) for j in range(i)]
        self.register_buffer("row", torch.tensor([i for i, _ in pairs]))
        self.register_buffer("column", torch.tensor([j for _, j in pairs]))

    def forward(self, dense, indices, offsets):
        x = self.bottom(dense)
        vectors = [x] + [table(of, offsets[i]) for i, (table, of) in enumerate(zip(self.tables, indices))]
        stacked = torch.cat(vectors, dim=1).view(x.shape[0], -1, x.shape[1])
        products = torch.bmm(stacked, torch.transpose(stacked, 1, 2))
        return torch.sigmoid(self.top(torch.cat([x, products[:, self.row, self.column]], dim=1)))


def click_loss(model, dense, indices, offsets, clicked):
    return F.binary_cross_entropy(model(dense, indices, offsets), clicked)


@dataclass
class Dlrm:
    batch: int = 8
    tables: int = 8
    rows: int = 50
    lookups: int = 4
    dense: int = 12
    hidden: int = 16
    width: int = 8
    over: int = 24
    sparse: bool = False
    optimizer: str = "sgd"

    @property
    def bottom(self):
        return [self.dense, self.hidden, self.width]

    @property
    def top(self):
        return [self.width + self.tables * (self.tables + 1) // 2, *3 * [self.over], 1]

    def weights(self, widths):
        return sum(inner * out for inner, out in zip(widths, widths[1:]))

    @property
    def parameters(self):
        return (self.tables * self.rows * self.width + sum(self.bottom[1:]) + sum(self.top[1:])
                + self.weights(self.bottom) + self.weights(self.top))

    @property
    def flop(self):
        vectors = self.tables + 1
        return (product(self.batch, self.weights(self.bottom) + self.weights(self.top), 1)
                - 2 * self.batch * self.dense * self.hidden  # the batch needs no gradient
                + product(self.batch * vectors, self.width, vectors))

    def program(self):
        model = DlrmModel(self)
        count = self.batch * self.lookups
        indices = [tokens(self.rows, count) for _ in range(self.tables)]
        offsets = torch.arange(0, count, self.lookups).repeat(self.tables, 1)
        batch = torch.randn(self.batch, self.dense), indices, offsets, torch.rand(self.batch, 1)
        if self.optimizer == "sgd":
            return training(model, sgd(model), click_loss, *batch)
        return self.two_optimizers(model, batch)

    def two_optimizers(self, model, batch):
        sparse = torch.optim.SparseAdam(list(model.tables.parameters()), lr=1e-3)
        dense = torch.optim.Adam([*model.bottom.parameters(), *model.top.parameters()], lr=1e-3)

        def train():
            loss = click_loss(model, *batch)
            dense.zero_grad()
            sparse.zero_grad()
            loss.backward()
            dense.step()
            sparse.step()
        return train


@dataclass
class SparseDlrm(Dlrm):
    sparse: bool = True


@dataclass
class SparseAdamDlrm(SparseDlrm):
    optimizer: str = "sparse_adam"


class LstmModel(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.words = nn.Embedding(sizes.vocabulary, sizes.hidden)
        self.layers = nn.LSTM(sizes.hidden, sizes.hidden, sizes.layers, dropout=0.2)
        self.head, self.drop = nn.Linear(sizes.hidden, sizes.vocabulary), nn.Dropout(0.2)

    def forward(self, words):
        made, _ = self.layers(self.drop(self.words(words)))
        return self.head(self.drop(made))


def next_word_loss(model, words, following):
    scores = model(words)
    return F.cross_entropy(scores.view(-1, scores.shape[-1]), following.view(-1))


@dataclass
class Lstm:
    batch: int = 4
    sequence: int = 6
    layers: int = 2
    hidden: int = 16
    vocabulary: int = 50

    @property
    def parameters(self):
        width = self.hidden
        return 2 * self.vocabulary * width + self.vocabulary + self.layers * 8 * width * (width + 1)

    @property
    def flop(self):
        # One op of cuDNN for all layers and steps, with the gradient of the first states.
        rows, width = self.batch * self.sequence, self.hidden
        return self.layers * product(rows, 2 * width, 4 * width) + product(rows, width, self.vocabulary)

    def program(self):
        model, shape = LstmModel(self), (self.sequence, self.batch)
        return training(model, sgd(model, momentum=0.9), next_word_loss, tokens(self.vocabulary, *shape),
                        tokens(self.vocabulary, *shape))


CASES = {"dlrm": Dlrm, "dlrm_sparse": SparseDlrm, "dlrm_sparse_adam": SparseAdamDlrm, "lstm": Lstm}
