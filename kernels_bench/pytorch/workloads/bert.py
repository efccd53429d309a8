"""BERT for training, Adam. Base at length 384 predicts the ends of an answer (question answering); large
predicts every word (pre-training). Post-norm, GELU, dropout 0.1, no padding."""

import torch
from torch import nn
from torch.nn import functional

from . import attention, common

SIZES = {"base": (768, 12, 12), "large": (1024, 24, 16), "tiny": (32, 2, 2)}  # hidden, layers, heads
DROPOUT = 0.1


class Layer(nn.Module):
    def __init__(self, hidden, heads, kind):
        super().__init__()
        self.attention = attention.Attention(hidden, heads, DROPOUT, causal=False, joint=False, kind=kind)
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.wide, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x):
        x = self.norm1(x + self.dropout(self.attention(x)))
        y = self.narrow(functional.gelu(self.wide(x)))
        return self.norm2(x + self.dropout(y))


class Bert(nn.Module):
    def __init__(self, size, vocabulary, length, outputs, kind, checkpoint):
        super().__init__()
        hidden, layers, heads = SIZES[size]
        self.words, self.kinds = nn.Embedding(vocabulary, hidden), nn.Embedding(2, hidden)
        self.positions = nn.Embedding(length, hidden)
        self.norm, self.dropout = nn.LayerNorm(hidden), nn.Dropout(DROPOUT)
        self.layers = nn.ModuleList([Layer(hidden, heads, kind) for _ in range(layers)])
        self.head = nn.Linear(hidden, outputs)
        self.checkpoint = checkpoint
        self.register_buffer("place", torch.arange(length).unsqueeze(0))

    def forward(self, words, kinds):
        x = self.words(words) + self.positions(self.place) + self.kinds(kinds)
        x = attention.run_layers(self.layers, self.dropout(self.norm(x)), self.checkpoint)
        return self.head(x)


def span_loss(outputs, batch):
    """Mean cross-entropy of the first and the last word of the answer."""
    begin, end = outputs.float().unbind(dim=-1)
    return (functional.cross_entropy(begin, batch[-1][0]) + functional.cross_entropy(end, batch[-1][1])) / 2


def word_loss(outputs, batch):
    return functional.cross_entropy(outputs.float().view(-1, outputs.size(-1)), batch[-1].view(-1))


def make(batch, device, tiny, size, length, attention=None, checkpoint=False, adam=None):
    from .attention import backend
    vocabulary = 30522
    if tiny:
        size, length, vocabulary = "tiny", 16, 100
    spans = size == "base" or tiny
    context = backend(attention)
    model = Bert(size, vocabulary, length, 2 if spans else vocabulary, attention, checkpoint).to(device).train()
    batches = []
    for _ in range(common.INPUT_BATCHES):
        target = common.integers(length, (2, batch), device) if spans else common.integers(
            vocabulary, (batch, length), device)
        batches.append((common.integers(vocabulary, (batch, length), device),
                        common.integers(2, (batch, length), device), target))
    parts = common.Parts(model, common.adam(model, adam, device), batches, span_loss if spans else word_loss)
    return with_backend(parts, context)


def with_backend(parts, context):
    """Forward within the choice of SDPA kernel. `parts.model` is looked up late: it may get compiled."""
    def forward(batch):
        with context():
            return parts.model(*batch[:-1])

    parts.forward = forward
    return parts
