"""LSTMs, GRUs and RNNs as the one op of cuDNN that they are on a GPU. On a CPU and on ``meta`` they are loops."""

import torch

from .kernels import kernel

aten = torch.ops.aten
_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}


def _stack(name):
    """``torch.lstm(input, states, weights, has_biases, layers, dropout, train, bidirectional, batch_first)``."""
    def run(input, states, weights, has_biases, *rest):
        if isinstance(has_biases, (list, tuple)):  # packed sequences: data, sizes, states, weights, has_biases, ...
            return _library(name, input, weights, has_biases, rest, sizes=states)
        return _library(name, input, states, weights, (has_biases, *rest))
    return run


def _library(name, input, states, weights, rest, sizes=None):
    has_biases, layers, dropout, train, bidirectional = rest[:5]
    batch_first = len(rest) > 5 and rest[5]
    hidden, memory = states if name == "lstm" else (states, None)
    projected = hidden.shape[-1] if name == "lstm" and hidden.shape[-1] != memory.shape[-1] else 0
    width = memory.shape[-1] if memory is not None else hidden.shape[-1]
    per_layer = (4 if has_biases else 2) + bool(projected)
    made = aten._cudnn_rnn(
        input, list(weights), per_layer, None, hidden, memory, _MODES[name], width, projected, layers, batch_first,
        dropout, train, bidirectional, sizes.tolist() if sizes is not None else [], None)
    return made[:3] if name == "lstm" else made[:2]


REPLACED = {getattr(torch, name): _stack(name) for name in _MODES}


@kernel("_cudnn_rnn")
def _forward(mode, input, weights, stride, buffer, hidden, memory, kind, width, projected, layers, batch_first, dropout,
             train, bidirectional, sizes, *state):
    outputs = (projected or width) * (2 if bidirectional else 1)
    output = input.new_empty((*input.shape[:-1], outputs))
    gates = {0: 1, 1: 1, 2: 4, 3: 3}[kind]
    reserve = output.numel() * layers * (gates + 2) * input.element_size() if train else 0  # gates and both states
    last = torch.empty_like(memory) if memory is not None else input.new_empty(0)
    return output, torch.empty_like(hidden), last, input.new_empty(reserve, dtype=torch.uint8), input.new_empty(0)


@kernel("_cudnn_rnn_backward")
def _backward(mode, input, weights, stride, buffer, hidden, memory, *rest):
    grads = [torch.empty_like(weight) for weight in weights]
    grad_memory = torch.empty_like(memory) if memory is not None else None
    return torch.empty_like(input), torch.empty_like(hidden), grad_memory, grads


@kernel("_pack_padded_sequence")
def _pack(mode, input, lengths, batch_first):
    """Rows of all steps, and the samples that have each step: on the CPU, as on a GPU."""
    steps = input.shape[1 if batch_first else 0]
    known = mode.values.known(lengths)
    if known is None:
        mode.assumptions.note("sequences whose lengths the GPU knows are taken for as long as the longest")
        known = torch.full((lengths.numel(),), steps)
    sizes = torch.stack([(known > step).sum() for step in range(int(known.max()))])
    return input.new_empty((int(known.sum()), *input.shape[2:])), sizes
