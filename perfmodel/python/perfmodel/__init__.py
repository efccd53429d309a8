"""Predicts how long one training step of a DLRM or a transformer takes on a GPU, and why, without that GPU.

::

    import perfmodel

    graph = perfmodel.build("gpt", preset="gpt2", batch=8, precision="bf16")
    print(perfmodel.predict(graph, gpu="h100-sxm-80gb").step_us)

Functions are the commands of ``perfpredict``, their keywords its flags, and their results the documents that it
prints with ``--json``: mappings with ``to_pandas()`` where pandas is there, shown as tables in a notebook.
``docs/python.md`` has a page for engineers, schedulers and sharding.

======================================  =====================================================================
predict, memory, report                 one program on one GPU: time, memory, a page to look at
whatif, optimize, analyze               what to change, and what it gains
layout, shard, sync                     many GPUs: parallel layouts, embedding tables, slow workers
build, read, capture, record, Graph     graphs of models, built, captured or recorded
trace, replay, overheads                recorded runs
diagnose, gate, duration                is that speed normal; did a change slow it; how long a job takes
gpus, kernels, gemm, suite, sweep       what is known; tables of kernels, models, predictions
collective                              one collective of NCCL between GPUs, by size
Predictor                               thousands of predictions a second
ask, help_of                            any command by name; its flags
======================================  =====================================================================

Times are microseconds (``_us``), sizes bytes (``_bytes``) unless a name says otherwise; 1 GB is 1e9 bytes.
Errors are :class:`PerfmodelError` with the text of the command line and ``code``, ``file``, ``line``, ``pointer``.
Threads run on while the library computes, and Ctrl-C ends it.
"""

from . import errors
from ._version import __version__
from ._ask import ask, help_of
from ._capturer import Capture, capture, capturing
from ._interrupts import Cancel
from ._recorder import Recording, record, recording
from .commands import (analyze, collective, diagnose, duration, gate, gemm, gpus, kernels, layout, memory, optimize,
                       overheads, predict, replay, report, shard, suite, sweep, sync, trace, train, whatif)
from .errors import (ArgumentError, CancelledError, FileError, FormatError, ImpossibleError, InternalError,
                     OutOfMemoryError, PerfmodelError, UnknownNameError, VersionError)
from .graphs import Graph, build, read
from .results import (Advice, Document, Findings, Layout, Memory, Prediction, Replay, Report, Sharding,
                      TraceAnalysis, WhatIf)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .predictor import Predictor, Question, Scales, Totals


def __getattr__(name: str) -> object:
    """The predictor and its types are imported with the first use: they need typing."""
    if name in ("Predictor", "Question", "Scales", "Totals"):
        from . import predictor

        return getattr(predictor, name)
    raise AttributeError(f"module 'perfmodel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "Advice", "ArgumentError", "Cancel", "CancelledError", "Capture", "Document", "FileError", "Findings", "FormatError",
    "Graph", "ImpossibleError", "InternalError", "Layout", "Memory", "OutOfMemoryError", "PerfmodelError",
    "Prediction", "Predictor", "Question", "Recording", "Replay", "Report", "Scales", "Sharding", "Totals", "TraceAnalysis",
    "UnknownNameError", "VersionError", "WhatIf", "__version__", "analyze", "ask", "build", "capture", "capturing",
    "collective", "diagnose", "duration", "errors", "gate", "gemm", "gpus", "help_of", "kernels", "layout", "memory",
    "optimize", "overheads", "predict", "read", "record", "recording", "replay", "report", "shard", "suite", "sweep", "sync", "trace", "train", "whatif",
]
