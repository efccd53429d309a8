"""GPT-2 small and medium, Adam. Pre-norm, GELU (tanh), dropout 0.1, output tied to the word embedding."""

import torch
from torch import nn
from torch.nn import functional

from . import attention, common
from .bert import with_backend, word_loss

SIZES = {"small": (768, 12, 12), "medium": (1024, 24, 16), "tiny": (32, 2, 2)}  # hidden, layers, heads
DROPOUT = 0.1


class Layer(nn.Module):
    def __init__(self, hidden, heads, kind):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attention = attention.Attention(hidden, heads, DROPOUT, causal=True, joint=True, kind=kind)
        self.wide, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.gelu = nn.GELU(approximate="tanh")
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.narrow(self.gelu(self.wide(self.norm2(x)))))


class Gpt2(nn.Module):
    def __init__(self, size, vocabulary, length, kind, checkpoint):
        super().__init__()
        hidden, layers, heads = SIZES[size]
        self.words, self.positions = nn.Embedding(vocabulary, hidden), nn.Embedding(length, hidden)
        for table in (self.words, self.positions):
            nn.init.normal_(table.weight, std=0.02)
        self.dropout, self.norm = nn.Dropout(DROPOUT), nn.LayerNorm(hidden)
        self.layers = nn.ModuleList([Layer(hidden, heads, kind) for _ in range(layers)])
        self.checkpoint = checkpoint
        self.register_buffer("place", torch.arange(length).unsqueeze(0))

    def forward(self, words):
        x = self.dropout(self.words(words) + self.positions(self.place))
        x = self.norm(attention.run_layers(self.layers, x, self.checkpoint))
        return functional.linear(x, self.words.weight)


def make(batch, device, tiny, size, length, attention=None, checkpoint=False, adam=None):
    from .attention import backend
    vocabulary = 50257
    if tiny:
        size, length, vocabulary = "tiny", 16, 100
    context = backend(attention)
    model = Gpt2(size, vocabulary, length, attention, checkpoint).to(device).train()
    shape = (batch, length)
    batches = [tuple(common.integers(vocabulary, shape, device) for _ in range(2)) for _ in range(common.INPUT_BATCHES)]
    return with_backend(common.Parts(model, common.adam(model, adam, device), batches, word_loss), context)
