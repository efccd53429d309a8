"""Captures a training step as an execution graph without a GPU and its memory, with PyTorch (1.13 or later) alone.

::

    with capturing() as capture:
        model = Model().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        capture.step(lambda: train(model, optimizer), "step.json")

The program runs on device ``meta``, whose tensors have sizes and no data, under PyTorch's own observer of execution
graphs, which records composite ops, autograd's functions and regions. docs/capture.md lists the differences from a GPU.
`dispatch` sees each op, `devices` each call of Python; `graph` joins the observer's file with their notes.
"""

import contextlib
import copy
import os
import platform
import tempfile

import torch
from torch import profiler

from . import log
from .devices import Devices
from .dispatch import Dispatch
from .graph import write_graph
from .program import CaptureError, line_of, said
from .ranks import GROUPS, World, environment
from .surroundings import changed, on_meta

__all__ = ["CaptureError", "Capture", "capturing", "twin"]


class Capture:
    """A capture in progress."""

    def __init__(self, dispatch, world):
        self._dispatch, self._world = dispatch, world

    @property
    def assumptions(self):
        """The assumptions of the graph: [{"text", "count", "where"}]."""
        return self._dispatch.assumptions.head()

    def step(self, train, file="captured.json", warm=1):
        """Runs a training step `warm` times, so that optimizers have their states, and captures the next.

        Args:
            train: a function without arguments: one training step.
            file: the execution graph to write.
            warm: steps before the captured one.

        Returns:
            file.

        Raises:
            CaptureError: what cannot be captured, with the line of the program.
        """
        for _ in range(warm):
            train()
        with self.recording(file):
            train()
        return file

    @contextlib.contextmanager
    def recording(self, file):
        """Captures the body of the context as one step."""
        with tempfile.TemporaryDirectory() as folder, self._dispatch.having("recording"):
            self._dispatch.leaves.clear()
            self._dispatch.assumptions.begin_step()
            recorded = os.path.join(folder, "observed.json")
            observer = (getattr(profiler, "ExecutionTraceObserver", None) or profiler.ExecutionGraphObserver)()
            observer.register_callback(recorded)
            observer.start()
            if self._world is not None:
                log.mark(GROUPS)
            step = torch.ops.profiler._record_function_enter_new("ProfilerStep#0")
            log.probe()
            try:
                yield
            finally:
                torch.ops.profiler._record_function_exit(step)
                observer.stop()
                observer.unregister_callback()
            head = {"torch": torch.__version__, "python": platform.python_version(), "assumptions": self.assumptions}
            write_graph(recorded, os.fspath(file), self._dispatch.leaves, self._dispatch.identities, self._world, head)


@contextlib.contextmanager
def capturing(world=None):
    """Makes every tensor on device ``meta``, whatever device the program names. Yields a :class:`Capture`.

    Args:
        world: ranks that ``torch.distributed`` tells the program of, which is rank 0; None: it has no ranks.

    Raises:
        CaptureError: what cannot be captured, with the line of the program.
    """
    dispatch, ranks = Dispatch(), None if world is None else World(world)
    try:
        with environment(world), dispatch, Devices(dispatch), changed(dispatch, ranks):
            yield Capture(dispatch, ranks)
    except CaptureError:
        raise
    except Exception as error:
        raise CaptureError(_said(error, dispatch.assumptions)) from error


def _said(error, assumptions):
    """The error with the line of the program, and with the assumptions made before it."""
    _, captured, text = str(error).partition("CaptureError: ")  # PyTorch's C++ keeps the text of an exception alone
    if captured:
        return text.splitlines()[0]
    kind = "" if isinstance(error, RuntimeError) else f"{type(error).__name__}: "
    before = "; ".join(one["text"] for one in assumptions.head())
    return (f"{where}: " if (where := line_of(error)) else "") + kind + said(error) + (before and f" (after: {before})")


def twin(*objects):
    """Copies of a model, its optimizer and a batch with their tensors on ``meta``. The originals stay as they are."""
    memo = {}
    for one in objects:
        tensors = [*one.parameters(), *one.buffers()] if isinstance(one, torch.nn.Module) else _tensors_of(one)
        memo.update((id(tensor), on_meta(tensor)) for tensor in tensors)
    return copy.deepcopy(objects, memo)


def _tensors_of(value):
    """Tensors of an optimizer's state or of a batch."""
    value = list(value.state.values()) if isinstance(value, torch.optim.Optimizer) else value
    return [one for one in log.tensors_in(value) if one.dim() > 0]
