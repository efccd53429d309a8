"""Attention of BERT and GPT-2, by hand or by scaled_dot_product_attention (SDPA)."""

import contextlib
import math

import torch
from torch.nn import functional

from .common import Unsupported


def attend(q, k, v, dropout, causal, kind):
    """q, k, v: [batch, heads, length, head width]. Kind "plain" is two products and a softmax; all others
    are SDPA, whose kernel the context of `backend` picks. Torch before 2.0 has no SDPA: plain."""
    if kind != "plain" and hasattr(functional, "scaled_dot_product_attention"):
        return functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)
    scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.size(-1))
    if causal:
        length = q.size(-2)
        hidden = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    weights = functional.dropout(torch.softmax(scores, dim=-1), dropout)
    return torch.matmul(weights, v)


def backend(kind):
    """Maker of a context in which SDPA takes this kernel; kinds None and "plain" leave it alone."""
    if kind in (None, "plain"):
        return contextlib.nullcontext
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError as error:
        raise Unsupported("torch.nn.attention.sdpa_kernel is not in this torch") from error
    chosen = {"math": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION}[kind]
    return lambda: sdpa_kernel(chosen)


class Attention(torch.nn.Module):
    """Self-attention with separate (BERT) or joint (GPT-2) projections."""

    def __init__(self, hidden, heads, dropout, causal, joint, kind):
        super().__init__()
        self.heads, self.dropout, self.causal, self.kind = heads, dropout, causal, kind
        widths = [3 * hidden] if joint else [hidden] * 3
        self.inputs = torch.nn.ModuleList([torch.nn.Linear(hidden, width) for width in widths])
        self.output = torch.nn.Linear(hidden, hidden)

    def forward(self, x):
        batch, length, hidden = x.shape
        if len(self.inputs) == 1:
            q, k, v = self.inputs[0](x).split(hidden, dim=2)
        else:
            q, k, v = [layer(x) for layer in self.inputs]
        q, k, v = [t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v)]
        y = attend(q, k, v, self.dropout if self.training else 0.0, self.causal, self.kind)
        return self.output(y.transpose(1, 2).reshape(batch, length, hidden))


def run_layers(layers, x, checkpoint):
    """With checkpointing, a layer keeps its input only and runs again in the backward pass."""
    if not checkpoint:
        for layer in layers:
            x = layer(x)
        return x
    from torch.utils.checkpoint import checkpoint as run_again_later
    for layer in layers:
        x = run_again_later(layer, x, use_reentrant=False)
    return x
