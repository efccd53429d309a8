"""Encoder-decoder Transformer base (torch.nn.Transformer): 6 + 6 layers, width 512, Adam."""

import math

import torch
from torch import nn
from torch.nn import functional

from . import common
from .bert import word_loss


class Translator(nn.Module):
    def __init__(self, vocabulary, length, hidden, heads, layers):
        super().__init__()
        self.words, self.positions = nn.Embedding(vocabulary, hidden), nn.Embedding(length, hidden)
        nn.init.normal_(self.words.weight, std=hidden ** -0.5)
        self.core = nn.Transformer(hidden, heads, layers, layers, 4 * hidden, dropout=0.1, batch_first=True)
        self.scale = math.sqrt(hidden)
        self.register_buffer("place", torch.arange(length).unsqueeze(0))
        self.register_buffer("future", torch.full((length, length), float("-inf")).triu(1))

    def embed(self, words):
        return self.words(words) * self.scale + self.positions(self.place)

    def forward(self, source, target):
        x = self.core(self.embed(source), self.embed(target), tgt_mask=self.future)
        return functional.linear(x, self.words.weight)


def make(batch, device, tiny, length):
    vocabulary, hidden, heads, layers = 32000, 512, 8, 6
    if tiny:
        vocabulary, hidden, heads, layers, length = 100, 32, 2, 1, 12
    model = Translator(vocabulary, length, hidden, heads, layers).to(device).train()
    shape = (batch, length)
    batches = [tuple(common.integers(vocabulary, shape, device) for _ in range(3)) for _ in range(common.INPUT_BATCHES)]
    return common.Parts(model, common.adam(model, None, device), batches, word_loss)
