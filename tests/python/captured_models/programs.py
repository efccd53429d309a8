"""Programs that do more than layers: checkpoints, own autograd functions, several losses."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from .language import Gpt
from .training import product, sgd, tokens, training


@dataclass
class ReentrantGpt(Gpt):
    checkpoints: str = "reentrant"


@dataclass
class PlainGpt(Gpt):
    """No region tells what such a checkpoint computes again from the backward pass, so that it counts twice."""

    checkpoints: str = "plain"

    @property
    def flop(self):
        rows, width = self.batch * self.sequence, self.hidden
        again = product(rows, width, 12 * width, gradients=0) + 2 * product(rows, width, self.sequence, gradients=0)
        return super().flop + self.layers * again


class GatedUnit(torch.autograd.Function):
    """silu(gate) * up, which keeps its inputs alone."""

    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return F.silu(gate) * up

    @staticmethod
    def backward(ctx, gradient):
        gate, up = ctx.saved_tensors
        share = torch.sigmoid(gate)
        silu = gate * share
        return gradient * up * (share + silu * (1 - share)), gradient * silu


class OwnFunctionModel(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.wide = nn.ModuleList(nn.Linear(sizes.hidden, 2 * sizes.inner) for _ in range(sizes.layers))
        self.narrow = nn.ModuleList(nn.Linear(sizes.inner, sizes.hidden) for _ in range(sizes.layers))
        self.head = nn.Linear(sizes.hidden, sizes.classes)

    def forward(self, x):
        for wide, narrow in zip(self.wide, self.narrow):
            gate, up = wide(x).chunk(2, dim=-1)
            x = x + narrow(GatedUnit.apply(gate, up))
        return self.head(x)


def summed_loss(model, x, labels):
    scores = model(x)
    return F.cross_entropy(scores, labels) + 1e-4 * scores.square().mean()


@dataclass
class OwnFunction:
    batch: int = 8
    hidden: int = 32
    inner: int = 48
    layers: int = 8
    classes: int = 10

    @property
    def parameters(self):
        layer = (self.hidden + 1) * 2 * self.inner + (self.inner + 1) * self.hidden
        return self.layers * layer + (self.hidden + 1) * self.classes

    @property
    def flop(self):
        return (self.layers * product(self.batch, self.hidden, 3 * self.inner)
                - 2 * self.batch * self.hidden * 2 * self.inner  # the batch needs no gradient
                + product(self.batch, self.hidden, self.classes))

    def program(self):
        model = OwnFunctionModel(self)
        return training(model, sgd(model, momentum=0.9, weight_decay=0.01), summed_loss,
                        torch.randn(self.batch, self.hidden), tokens(self.classes, self.batch))


CASES = {"checkpoint_reentrant": ReentrantGpt, "checkpoint": PlainGpt, "own_function": OwnFunction}
