"""A BERT-like encoder with padding, and an encoder whose layers are mixtures of experts."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from .training import adamw, product, tokens, training


class Attention(nn.Module):
    """From all tokens to all that are no padding."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.drop = heads, nn.Dropout(dropout)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(query, key.transpose(-1, -2)) / query.shape[-1] ** 0.5 + mask
        mixed = torch.matmul(self.drop(scores.softmax(dim=-1)), value).permute(0, 2, 1, 3).contiguous()
        return self.drop(self.out(mixed.view(x.shape)))


class Dense(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class Experts(nn.Module):
    """Each token goes to the two experts that the router likes best."""

    def __init__(self, width, count):
        super().__init__()
        self.router = nn.Linear(width, count, bias=False)
        self.experts = nn.ModuleList(Dense(width) for _ in range(count))

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        weights, chosen = torch.topk(self.router(rows).softmax(dim=1), 2, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        made = torch.zeros_like(rows)
        takes = F.one_hot(chosen, len(self.experts)).permute(2, 1, 0)
        for number, expert in enumerate(self.experts):
            rank, row = torch.where(takes[number])
            made.index_add_(0, row, expert(rows[row]) * weights[row, rank, None])
        return made.view(x.shape)


class Layer(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.attention = Attention(sizes.hidden, sizes.heads, sizes.dropout)
        self.inner = Experts(sizes.hidden, sizes.experts) if sizes.experts else Dense(sizes.hidden)
        self.first, self.second = nn.LayerNorm(sizes.hidden, eps=1e-12), nn.LayerNorm(sizes.hidden, eps=1e-12)
        self.drop = nn.Dropout(sizes.dropout)

    def forward(self, x, mask):
        x = self.first(self.attention(x, mask) + x)
        return self.second(self.drop(self.inner(x)) + x)


class EncoderModel(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        width = sizes.hidden
        self.words = nn.Embedding(sizes.vocabulary, width, padding_idx=0)
        self.positions, self.kinds = nn.Embedding(sizes.sequence, width), nn.Embedding(2, width)
        self.norm, self.drop = nn.LayerNorm(width, eps=1e-12), nn.Dropout(sizes.dropout)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.layers))
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, eps=1e-12))
        self.bias = nn.Parameter(torch.zeros(sizes.vocabulary))

    def forward(self, words, kinds, kept):
        mask = (1.0 - kept[:, None, None, :].to(torch.float32)) * torch.finfo(torch.float32).min
        places = torch.arange(words.shape[1], device=words.device)[None]
        x = self.drop(self.norm(self.words(words) + self.kinds(kinds) + self.positions(places)))
        for layer in self.layers:
            x = layer(x, mask)
        return F.linear(self.head(x), self.words.weight, self.bias)


def masked_loss(model, words, kinds, kept, labels):
    scores = model(words, kinds, kept)
    return F.cross_entropy(scores.view(-1, scores.shape[-1]), labels.view(-1))


@dataclass
class Encoder:
    batch: int = 2
    sequence: int = 16
    layers: int = 2
    hidden: int = 32
    heads: int = 4
    vocabulary: int = 101
    dropout: float = 0.1
    experts: int = 0

    @property
    def parameters(self):
        # Attention 4 H^2 + 4 H, norms 4 H, a dense layer 8 H^2 + 5 H; the head H^2 + 3 H and a bias.
        width, words = self.hidden, self.vocabulary
        inner = (self.experts or 1) * (8 * width ** 2 + 5 * width) + self.experts * width
        layers = self.layers * (4 * width ** 2 + 8 * width + inner)
        return (words + self.sequence + 2 + 2) * width + layers + width ** 2 + 3 * width + words

    @property
    def flop(self):
        rows, width = self.batch * self.sequence, self.hidden
        inner = product(rows, width, 8 * width) * (2 if self.experts else 1)
        layer = product(rows, width, 4 * width) + inner + 2 * product(rows, width, self.sequence)
        return (self.layers * (layer + product(rows, width, self.experts))
                + product(rows, width, width) + product(rows, width, self.vocabulary))

    def program(self):
        model, shape = EncoderModel(self), (self.batch, self.sequence)
        batch = tokens(self.vocabulary, *shape), tokens(2, *shape), tokens(2, *shape), tokens(self.vocabulary, *shape)
        return training(model, adamw(model), masked_loss, *batch)


@dataclass
class Mixture(Encoder):
    experts: int = 4


CASES = {"encoder": Encoder, "mixture": Mixture}
