"""Shared by all workloads: the training step, its labels, precision settings, optimizers.

A maker is a function `make(batch, device, tiny, **options)` that returns a Parts. Everything random
comes from torch's seeded generators; inputs are made here, before anything is timed.
"""

import contextlib
from dataclasses import dataclass
from typing import Callable, List

import torch
from torch.profiler import record_function

# Input batches that take turns, so that one step does not find the rows of the last in the L2.
INPUT_BATCHES = 4


class Unsupported(Exception):
    """This torch or this device cannot run the workload: recorded, and the run goes on."""


@dataclass
class Parts:
    """`forward(batch)` gives outputs (under autocast where asked for), `loss(outputs, batch)` a scalar."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    batches: List
    loss: Callable
    forward: Callable = None
    notes: dict = None  # facts for the index, for example the cap of table rows


class Trainer:
    """One step of training, in four parts that the memory measurement takes one by one."""

    def __init__(self, parts, autocast):
        self.parts = parts
        self.model = parts.model
        self.optimizer = parts.optimizer
        self.notes = parts.notes or {}
        self._forward = parts.forward or (lambda batch: self.model(*batch[:-1]))
        self._autocast = autocast
        self._count = 0

    def zero_grad(self):
        self.optimizer.zero_grad(set_to_none=True)

    def forward(self):
        batch = self.parts.batches[self._count % len(self.parts.batches)]
        self._count += 1
        with self._autocast():
            outputs = self._forward(batch)
        return self.parts.loss(outputs, batch)

    def step(self):
        """The labels are as in the public traces; the optimizer adds Optimizer.step#... of its
        own."""
        self.zero_grad()
        with record_function("## forward ##"):
            loss = self.forward()
        with record_function("## backward ##"):
            loss.backward()
        with record_function("## optimizer ##"):
            self.optimizer.step()
        return loss


def build(maker, workload, batch, device, tiny, seed):
    """Settings first (they are global), then seeds, then the maker."""
    set_precision(bool(workload.settings.get("tf32")))
    torch.manual_seed(seed)
    with _default_device(device):
        parts = maker(batch=batch, device=device, tiny=tiny, **workload.options)
    if workload.settings.get("channels_last"):
        as_channels_last(parts)
    compiled = workload.settings.get("compile")
    if compiled:
        if not hasattr(torch, "compile"):
            raise Unsupported("torch.compile is not in this torch")
        parts.model = torch.compile(parts.model, mode=None if compiled is True else compiled)
    return Trainer(parts, _autocast(workload.settings.get("autocast"), device))


def as_channels_last(parts):
    """Weights and images in NHWC, as PyTorch's own recipe has it."""
    parts.model.to(memory_format=torch.channels_last)
    parts.batches = [(images.contiguous(memory_format=torch.channels_last),) + tuple(rest)
                     for images, *rest in parts.batches]


def set_precision(tf32):
    """Products in fp32: exact, or in TF32. Both switches, since cuDNN's is on by default. Newer torch has
    other names, too, and refuses a mix of both: they are left alone as long as the old ones work."""
    try:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
    except (AttributeError, RuntimeError):
        kind = "tf32" if tf32 else "ieee"
        torch.backends.cuda.matmul.fp32_precision = kind
        torch.backends.cudnn.conv.fp32_precision = kind
        torch.backends.cudnn.rnn.fp32_precision = kind


def precision():
    """The present switches, for the index."""
    return {"matmul_tf32": bool(torch.backends.cuda.matmul.allow_tf32),
            "cudnn_tf32": bool(torch.backends.cudnn.allow_tf32)}


def _default_device(device):
    """Parameters are made where they stay (torch 2); older versions move them with `.to`."""
    if int(torch.__version__.split(".")[0]) >= 2:
        return torch.device(device)
    return contextlib.nullcontext()


def _autocast(kind, device):
    if kind is None:
        return contextlib.nullcontext
    if kind != "bf16":
        raise ValueError(f"autocast: expected bf16, found {kind}")
    return lambda: torch.autocast(device_type=torch.device(device).type, dtype=torch.bfloat16)


def integers(high, shape, device):
    """Uniform integers below `high`. Drawn on the CPU: the same on every GPU."""
    return torch.randint(0, high, shape, device="cpu").to(device)


def normal(shape, device):
    return torch.randn(shape, device="cpu").to(device)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.01)


def adam(model, kind, device):
    """`kind`: None for torch's own choice, or plain, foreach, fused."""
    flags = {None: {}, "plain": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}[kind]
    try:
        return torch.optim.Adam(model.parameters(), lr=1e-4, **flags)
    except (TypeError, RuntimeError) as error:
        raise Unsupported(f"Adam {kind} on {device}: {error}") from error
