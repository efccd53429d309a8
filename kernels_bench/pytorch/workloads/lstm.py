"""LSTM language model: nn.LSTM (one fused call) or unrolled nn.LSTMCell, 35 words, 10,000 in all, SGD."""

import torch
from torch import nn

from . import common
from .bert import word_loss


class LanguageModel(nn.Module):
    """Length first, as nn.LSTM wants it by default."""

    def __init__(self, vocabulary, hidden, layers, cells):
        super().__init__()
        self.words = nn.Embedding(vocabulary, hidden)
        if cells:
            self.cells = nn.ModuleList([nn.LSTMCell(hidden, hidden) for _ in range(layers)])
        else:
            self.cells, self.lstm = None, nn.LSTM(hidden, hidden, layers)
        self.head = nn.Linear(hidden, vocabulary)

    def unrolled(self, x):
        states, outputs = [None] * len(self.cells), []
        for word in x.unbind(0):
            for i, cell in enumerate(self.cells):
                states[i] = cell(word, states[i])
                word = states[i][0]
            outputs.append(word)
        return torch.stack(outputs)

    def forward(self, words):
        x = self.words(words)
        x = self.lstm(x)[0] if self.cells is None else self.unrolled(x)
        return self.head(x)


def make(batch, device, tiny, hidden, layers, cells):
    vocabulary, length = 10000, 35
    if tiny:
        vocabulary, length, hidden = 50, 5, 16
    model = LanguageModel(vocabulary, hidden, layers, cells).to(device).train()
    shape = (length, batch)
    batches = [(common.integers(vocabulary, shape, device), common.integers(vocabulary, shape, device))
               for _ in range(common.INPUT_BATCHES)]
    return common.Parts(model, common.sgd(model), batches, word_loss)
