"""Recording a running PyTorch program: its execution graph and its Kineto trace."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .graphs import Graph
from .results import Prediction

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long to import as all of this
    from typing import Any, Callable, ContextManager
    
    from ._ask import File


def recording(folder: File = "recorded", warm: int = 5, steps: int = 3) -> ContextManager[Callable[[], None]]:
    """Records a training loop of your own (``examples/record.py``)::

        with perfmodel.recording("recorded") as step_done:
            for batch in loader:
                train(batch)
                step_done()              # after each step

    It writes ``recorded/rank0_graph.json`` and ``recorded/rank0_trace.json.gz``, one pair per rank. Needs
    `warm` + 2 + `steps` steps and PyTorch 1.13 or later.
    """
    from . import _record  # needs torch

    return _record.recording(os.fspath(folder), warm, steps)


class Recording:
    """The files that :func:`record` wrote.

    Attributes:
        graph: the execution graph: sizes, results, which tensors are the same. Takes rewrites.
        trace: the file of the Kineto trace: times. `predict` takes it for the recorded host.
    """

    def __init__(self, folder: str) -> None:
        name = os.path.join(folder, f"rank{os.environ.get('RANK', 0)}_")
        self.graph = Graph(name + "graph.json")
        self.trace = name + "trace.json.gz"

    def __repr__(self) -> str:
        return f"<Recording {self.graph.file}, {self.trace}>"

    def predict(self, gpu: str, **options: Any) -> Prediction:
        """The step on another GPU, with the recorded host: :func:`perfmodel.predict` of the trace. With `batch`,
        `sequence` or where the trace holds no kernels, ask about ``graph``."""
        from .commands import predict

        return predict(self.trace, gpu, **options)


def _loss_of(output: Any) -> Any:
    if hasattr(output, "loss") and output.loss is not None:  # as Hugging Face's models have it
        return output.loss
    if isinstance(output, (tuple, list)):
        output = output[0]
    return output.float().sum()


def training_step(model: Any, batch: Any, loss: Callable[[Any], Any] | None, optimizer: Any) -> Callable[[], None]:
    """One training step of `model` on one batch, as :func:`record` describes."""
    def train() -> None:
        optimizer.zero_grad()
        if isinstance(batch, Mapping):
            output = model(**batch)
        elif isinstance(batch, (tuple, list)):
            output = model(*batch)
        else:
            output = model(batch)
        (loss or _loss_of)(output).backward()
        optimizer.step()

    return train


def record(model: Any, batch: Any, folder: File = "recorded", *, loss: Callable[[Any], Any] | None = None,
           optimizer: Any = None, warm: int = 5, steps: int = 3) -> Recording:
    """Trains `model` on one batch for a few steps and records them::

        recorded = perfmodel.record(model, batch)
        perfmodel.predict(recorded.graph, gpu="h100-sxm-80gb")

    Args:
        model: a module of PyTorch, on the device that it shall be recorded on.
        batch: its input: a tensor, a tuple of positional or a mapping of named arguments.
        folder: where the files go.
        loss: from the model's output to a scalar; None: its ``loss``, else the sum of its first tensor.
        optimizer: None: SGD with a learning rate of 0, which changes no weight. Buffers (running means)
            change, as in any training step.
        warm: steps before the first that is recorded.
        steps: steps of the trace.
    """
    import torch

    if optimizer is None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    train = training_step(model, batch, loss, optimizer)
    with recording(folder, warm, steps) as step_done:
        for _ in range(warm + 2 + steps):
            train()
            step_done()
    return Recording(os.fspath(folder))
