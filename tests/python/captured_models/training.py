"""Shared by all cases: the training step, and the FLOP of a product with its gradients."""

import torch


def training(model, optimizer, loss, *batch):
    """One step: loss, zero_grad, backward pass, optimizer."""
    def train():
        value = loss(model, *batch)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return train


def adamw(model, **options):
    return torch.optim.AdamW(model.parameters(), lr=1e-3, **options)


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), lr=0.01, **options)


def product(rows, inner, columns, gradients=2):
    """FLOP of [rows, inner] x [inner, columns] and of its gradients: 2 of them, 1 where an input needs none."""
    return (1 + gradients) * 2 * rows * inner * columns


def convolution(batch, channels_in, channels_out, size, kernel, groups=1, gradients=2):
    """FLOP of a convolution with square results and kernels, and of its gradients."""
    return product(batch * size * size, channels_in // groups * kernel * kernel, channels_out, gradients)


def tokens(words, *shape):
    return torch.randint(words, shape)
