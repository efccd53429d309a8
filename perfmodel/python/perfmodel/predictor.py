"""Thousands of predictions a second: everything loaded once, structs instead of documents."""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_char_p, c_int32
from typing import TYPE_CHECKING, Any, Iterable, NamedTuple

from . import _library
from ._interrupts import Cancel, interruptible
from ._library import Handle, check, encoded, error_of, library
from .errors import PerfmodelError
from .graphs import Graph

if TYPE_CHECKING:
    from ._ask import File


class Totals(NamedTuple):
    """Figures of one training step in steady state. Times in microseconds, sizes in bytes."""

    e2e_us: float  #: host wall time of the step
    gpu_active_us: float  #: union of all device work
    gpu_idle_us: float  #: e2e_us - gpu_active_us, at least 0
    cpu_us: float  #: host busy
    wait_us: float  #: host waiting for the device
    kernel_sum_us: float  #: compute_kernel_us + comm_kernel_us; streams overlap
    compute_kernel_us: float  #: copies and sets included
    comm_kernel_us: float
    exposed_comm_us: float  #: collectives while no other device work runs
    t1_us: float  #: between ops
    t2_us: float  #: before the device calls of an op
    t3_us: float  #: after them
    t4_us: float  #: the calls
    t5_us: float  #: between calls
    tx_us: float  #: ops without device calls
    modelled_time_fraction: float  #: 0 to 1: the share of the time that is in ops with models
    iterations: int  #: steps that the graph holds; figures are their mean
    warning_count: int  #: `perfmodel.predict` has their text
    samples_per_s: float  #: of the whole job; 0: the batch is unknown
    samples_per_s_per_gpu: float
    gpus: int
    static_bytes: float  #: GPU memory of one rank, whatever its batch
    device_bytes: float  #: the device's memory
    e2e_low_us: float  #: nine of ten cases lie within these
    e2e_high_us: float
    energy_j: float  #: of one GPU; 0: its power limit is unknown
    activation_bytes: float
    peak_allocated_bytes: float
    peak_reserved_bytes: float
    needed_bytes: float  #: above device_bytes, the step does not fit


_NAMES = [name for name, _ in _library.Totals._fields_[1:]]
assert list(Totals._fields) == _NAMES


def _totals(struct: Any) -> Totals:
    return Totals(*[getattr(struct, name) for name in _NAMES])


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else encoded(text)


def _options(batch: int | None, sequence: int | None, world: int | None, topology: str | None,
             strategy: str | None, interference: float, host_scale: float,
             device_scale: float = 1, delay_allreduce: bool = False,
             stages: int | None = None, times_only: bool = False) -> _library.Options:
    return _library.Options(batch=batch or 0, sequence=sequence or 0, world=world or 0,
                            topology=_bytes(topology), strategy=_bytes(strategy), interference=interference,
                            host_scale=host_scale, device_scale=device_scale,
                            delay_allreduce=delay_allreduce, stages=stages or 0, times_only=times_only)


class Question(NamedTuple):
    """One question of :meth:`Predictor.predict_many`; fields as the arguments of :meth:`Predictor.predict`."""

    graph: Graph
    gpu: str
    batch: int | None = None
    sequence: int | None = None
    world: int | None = None
    topology: str | None = None
    strategy: str | None = None
    interference: float = 1
    host_scale: float = 1
    device_scale: float = 1
    delay_allreduce: bool = False
    stages: int | None = None
    times_only: bool = False


class Scales(NamedTuple):
    """Factors that make a predicted step as long as a measured one: arguments of :meth:`Predictor.predict`."""

    host_scale: float
    device_scale: float


class Predictor:
    """GPUs, kernel models and host overheads, loaded once (some 10 ms). Any number of threads may ask at once::

        predictor = perfmodel.Predictor()
        graph = perfmodel.build("dlrm", preset="mlperf")
        for batch in (512, 2048, 8192):
            print(batch, predictor.predict(graph, "h100-sxm-80gb", batch=batch).e2e_us)

    Args:
        data_folder: None: ``$PERFMODEL_DATA``, else the one that is installed with the library.
        gpus: names or files; None: all that are known.
        models: ``"learned"`` (None), ``"heuristic"``, ``"roofline"`` or a model file.
        overheads: ``"reference"`` (None), ``"measured"`` or the file of a table.

    Raises:
        PerfmodelError: files that cannot be read, unknown names.
    """

    def __init__(self, *, data_folder: File | None = None, gpus: Iterable[str] | None = None,
                 models: str | None = None, overheads: File | None = None) -> None:
        names = None if gpus is None else [encoded(name) for name in gpus]
        array = None if names is None else (c_char_p * max(1, len(names)))(*names)
        config = _library.Config(data_folder=None if data_folder is None else encoded(data_folder),
                                 gpus=array, gpu_count=len(names or []), models=_bytes(models),
                                 overheads=None if overheads is None else encoded(overheads))
        self._handle = Handle(library().predictor_free)
        check(library().predictor_load, _library.VERSION, byref(config), byref(self._handle.value))

    @property
    def gpus(self) -> list[str]:
        """Names of the GPUs that were loaded, sorted."""
        count = library().gpu_count(self._handle.value)
        return [library().gpu_name(self._handle.value, i).decode() for i in range(count)]

    def _prepare(self, graph: Graph) -> Handle:
        """The state that questions about a graph share. The first one makes it, and it lives as long as the graph."""
        plain = graph.handle()
        known = graph.prepared.get(self._handle)
        if known is None:
            known = Handle(library().graph_free)
            check(library().graph_prepare, self._handle.value, plain.value, byref(known.value))
            graph.prepared[self._handle] = known
        return known

    def predict(self, graph: Graph | File, gpu: str, *, batch: int | None = None, sequence: int | None = None,
                world: int | None = None, topology: str | None = None, strategy: str | None = None,
                interference: float = 1, host_scale: float = 1, device_scale: float = 1,
                delay_allreduce: bool = False, stages: int | None = None, times_only: bool = False,
                cancel: Cancel | None = None) -> Totals:
        """The time of one step of `graph` on `gpu`.

        Args:
            graph: a Graph keeps what questions share; a file is read each time.
            gpu: name, alias or title, any case.
            batch: samples per step instead of the graph's.
            sequence: tokens per sample instead of the graph's.
            world: ranks, for `strategy` and for collectives whose size is not recorded.
            topology: a name; None: what the GPU usually sits in.
            strategy: ``"ddp"`` or ``"fsdp"``: run the graph of one rank on `world` ranks.
            interference: factor on the time of collectives on the wire.
            host_scale: factor on the host's own time; above 1 is slower.
            device_scale: factor on the time of kernels, collectives apart.
            delay_allreduce: with ``"ddp"``, all gradients are reduced after the backward pass (Apex).
            stages: the graph is one rank of a pipeline of so many stages on `world` ranks; figures are the
                slowest stage's.
            times_only: without the step's range, whose ends are then the time itself, and with all bytes of
                memory 0: half the time.
            cancel: ends the call from another thread.

        Raises:
            PerfmodelError: unknown names, a batch that the graph cannot be changed to, ...
        """
        prepared = self._prepare(graph if isinstance(graph, Graph) else Graph(graph))
        options = _options(batch, sequence, world, topology, strategy, interference, host_scale, device_scale,
                           delay_allreduce, stages, times_only)
        totals = _library.Totals()

        def call(given: ctypes.c_void_p | None) -> None:
            options.cancel = given
            check(library().predict, self._handle.value, prepared.value, encoded(gpu), byref(options),
                  byref(totals))

        interruptible(call, cancel)
        return _totals(totals)

    def match_step(self, graph: Graph | File, gpu: str, measured_us: float, *, batch: int | None = None,
                   sequence: int | None = None, world: int | None = None, topology: str | None = None,
                   strategy: str | None = None, interference: float = 1, delay_allreduce: bool = False,
                   stages: int | None = None) -> Scales:
        """With which scales the step takes what was measured on `gpu`, without a profiler. Other batches and GPUs
        that are asked with them start from the truth::

            scales = predictor.match_step(graph, "a100-sxm-80gb", 5100, batch=2048)
            predictor.predict(graph, "h100-sxm-80gb", batch=512, **scales._asdict())

        Raises:
            PerfmodelError: as :meth:`predict`; a step that no scale explains.
        """
        prepared = self._prepare(graph if isinstance(graph, Graph) else Graph(graph))
        options = _options(batch, sequence, world, topology, strategy, interference, 1,
                           delay_allreduce=delay_allreduce, stages=stages)
        host, device = ctypes.c_double(), ctypes.c_double()
        check(library().match_step, self._handle.value, prepared.value, encoded(gpu), byref(options),
              measured_us, byref(host), byref(device))
        return Scales(host.value, device.value)

    def predict_many(self, questions: Iterable[Question], *, threads: int = 0,
                     cancel: Cancel | None = None) -> list[Totals | PerfmodelError]:
        """Answers to all questions in their order, by `threads` threads of the library (0: as many as the
        machine runs at once). A question that fails is answered by its exception, which is not raised."""
        asked = list(questions)
        if not asked:
            return []
        prepared = [self._prepare(question.graph) for question in asked]  # kept until the end
        options = [_options(*question[2:]) for question in asked]
        array = (_library.Question * len(asked))()
        totals = (_library.Totals * len(asked))()
        statuses = (c_int32 * len(asked))()
        messages = ctypes.create_string_buffer(1024 * len(asked))
        for i, question in enumerate(asked):
            array[i] = _library.Question(graph=prepared[i].value, gpu=encoded(question.gpu),
                                         options=ctypes.pointer(options[i]))
        totals[0].struct_size = ctypes.sizeof(_library.Totals)

        def call(given: ctypes.c_void_p | None) -> None:
            check(library().predict_many, self._handle.value, array, len(asked), threads, given,
                  totals, statuses, messages)

        interruptible(call, cancel)
        return [_totals(totals[i]) if statuses[i] == 0 else
                error_of(statuses[i], messages.raw[1024 * i:1024 * (i + 1)].split(b"\0")[0])
                for i in range(len(asked))]
