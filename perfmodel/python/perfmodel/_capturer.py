"""Capturing a training step of a PyTorch program without a GPU and without memory."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref

from ._recorder import training_step
from .errors import ImpossibleError
from .graphs import Graph

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long to import as all of this
    from typing import Any, Callable, Iterator

    from ._ask import File


class Capture:
    """A capture in progress: of :func:`capturing`."""

    def __init__(self, capture: Any) -> None:
        self._capture = capture

    def step(self, train: Callable[[], Any], file: File | None = None, warm: int = 1) -> Graph:
        """Runs a training step `warm` times, so that the optimizer has its states, and captures the next.

        Args:
            train: a function without arguments: one training step.
            file: the execution graph to write; None: a temporary one.
            warm: steps before the captured one.

        Returns:
            The graph of the step on a GPU. Its first warnings are its assumptions.

        Raises:
            PerfmodelError: what cannot be captured, with the line of the program.
        """
        if file is not None:
            return Graph(self._capture.step(train, os.fspath(file), warm))
        folder = tempfile.mkdtemp(prefix="perfmodel-")
        graph = Graph(os.path.join(folder, "captured.json"))
        weakref.finalize(graph, shutil.rmtree, folder, ignore_errors=True)
        self._capture.step(train, graph.file, warm)
        return graph


@contextlib.contextmanager
def capturing(world: int | None = None) -> Iterator[Capture]:
    """Captures a training loop of your own (``examples/capture.py``)::

        with perfmodel.capturing() as capture:
            model = Model().cuda()                  # has no data: 70 billion parameters take none
            optimizer = torch.optim.AdamW(model.parameters())
            graph = capture.step(lambda: train(model, optimizer))
        perfmodel.predict(graph, gpu="h100-sxm-80gb")

    Model, optimizer and batch are made within. Needs PyTorch 1.13 or later, and no GPU.

    Args:
        world: ranks that ``torch.distributed`` tells the program of, which is rank 0; None: it has none.
    """
    from ._capture import CaptureError, capturing  # needs torch

    try:
        with capturing(world) as capture:
            yield Capture(capture)
    except CaptureError as error:
        raise ImpossibleError(str(error)) from error


def capture(model: Any, batch: Any, file: File | None = None, *, loss: Callable[[Any], Any] | None = None,
            optimizer: Any = None, warm: int = 1) -> Graph:
    """Captures a training step of `model` on one batch::

        graph = perfmodel.capture(model, batch)
        perfmodel.predict(graph, gpu="h100-sxm-80gb")

    Nothing is computed, and model, batch and optimizer stay as they are.

    Args:
        model: a module of PyTorch, on any device.
        batch: its input: a tensor, a tuple of positional or a mapping of named arguments.
        file: the execution graph to write; None: a temporary one.
        loss: from the model's output to a scalar; None: its ``loss``, else the sum of its first tensor.
        optimizer: None: SGD with a learning rate of 0.
        warm: steps before the captured one.

    Raises:
        PerfmodelError: what cannot be captured, with the line of the program.
    """
    import torch

    from ._capture import twin

    if optimizer is None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    model, batch, optimizer = twin(model, batch, optimizer)
    with capturing() as captured:
        return captured.step(training_step(model, batch, loss, optimizer), file, warm)
