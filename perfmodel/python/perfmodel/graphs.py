"""Graphs of training steps: read, built, rewritten."""

from __future__ import annotations

import os
import threading
import weakref
from ctypes import byref, c_int64, c_void_p

from ._ask import ask
from ._interrupts import interruptible
from ._library import Handle, Place, check, encoded, library
from .errors import ImpossibleError
from .results import Document

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long to import as all of this
    from typing import Any
    
    from ._ask import File


class Graph(os.PathLike):
    """The ops of one training step of one rank, in a file that every function here takes.

    Args:
        file: an execution graph of PyTorch or a Kineto trace in its place (``.json``, ``.json.gz``). It is
            read with the first question about it.

    Attributes:
        file: its name. Graphs that :func:`build` and :meth:`rewrite` make without a name lie in a temporary
            folder, which goes with the object.
        facts: what the command that made it says of it (parameters, FLOP, ...); None: it was recorded.
    """

    def __init__(self, file: File, facts: Document | None = None) -> None:
        self.file = os.fspath(file)
        self.facts = facts
        self._handle: Handle | None = None
        self._reading = threading.Lock()
        #: By predictor: with what questions to it share worked out.
        self.prepared: weakref.WeakKeyDictionary[Handle, Handle] = weakref.WeakKeyDictionary()

    def __fspath__(self) -> str:
        return self.file

    def __repr__(self) -> str:
        return f"<Graph {os.path.basename(self.file)}>"

    def handle(self) -> Handle:
        """The graph within the library, read once."""
        with self._reading:
            if self._handle is None:
                def read(given: c_void_p | None) -> Handle:
                    made = Handle(library().graph_free)
                    place = Place()
                    check(lambda *rest: library().graph_open(encoded(self.file), given,
                                                             byref(made.value), *rest), place=place)
                    return made

                self._handle = interruptible(read)
            return self._handle

    @property
    def nodes(self) -> int:
        """Nodes of the graph."""
        return library().graph_node_count(self.handle().value)

    @property
    def batch(self) -> int | None:
        """Samples per step as the graph has them; None: its inputs do not tell."""
        batch = c_int64()
        try:
            check(library().graph_batch, self.handle().value, byref(batch))
        except ImpossibleError:
            return None
        return batch.value

    def rewrite(self, output: File | None = None, *, timeout: float | None = None, **options: Any) -> Graph:
        """The same program changed: ``perfpredict rewrite``.

        Args:
            output: the file to write; None: a temporary one.
            timeout: seconds.
            **options: the rewrites, applied in this order: ``batch=64``, ``sequence=2048``,
                ``precision="bf16"``, ``optimizer="adamw/fused"``, ``recompute="full"``, ``data_parallel=8``,
                ``fuse_elementwise=True``, ... ``perfmodel.help_of("rewrite")`` has them all.

        Raises:
            PerfmodelError: the graph cannot be changed so.
        """
        return _made("rewrite", [self], output, os.path.basename(self.file), options, timeout)


def _remove(folder: str, maker: int) -> None:
    """Only the process that made it: a forked child ends with copies of its parent's graphs."""
    import shutil

    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)


def _made(command: str, arguments: list[Any], output: File | None, name: str, options: dict[str, Any],
          timeout: float | None) -> Graph:
    import shutil  # these two take longer than all else here
    import tempfile

    folder = None
    if output is None:
        folder = tempfile.mkdtemp(prefix="perfmodel-")
        output = os.path.join(folder, name.removesuffix(".gz"))
    try:
        graph = Graph(output, ask(command, arguments, {**options, "output": os.fspath(output)}, timeout=timeout))
    except BaseException:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if folder is not None:
        weakref.finalize(graph, _remove, folder, os.getpid())
    return graph


def build(family: str, output: File | None = None, *, timeout: float | None = None, **options: Any) -> Graph:
    """Builds the graph of a model without a recording: ``perfpredict build FAMILY``.

    ::

        perfmodel.build("gpt", preset="gpt2", batch=8, precision="bf16")

    Args:
        family: ``"dlrm"``, ``"gpt"``, ``"llama"``, ``"bert"``, ``"t5"``, ``"resnet"``, ...
        output: the file to write; None: a temporary one.
        timeout: seconds.
        **options: ``preset="mlperf"``, ``batch=2048`` (samples), ``sequence=1024`` (tokens),
            ``optimizer="adamw"``, ... ``perfmodel.help_of("build gpt")`` has all of a family.

    Raises:
        PerfmodelError: no such family or preset, sizes that do not fit together.
    """
    return _made(f"build {family}", [], output, f"{options.get('preset') or family}.json", options, timeout)


def read(file: File) -> Graph:
    """A recorded graph or trace, read now, so that errors are raised here."""
    graph = Graph(file)
    graph.handle()
    return graph
