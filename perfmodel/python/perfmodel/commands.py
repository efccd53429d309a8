"""The commands of perfpredict as functions.

Every flag of a command is a keyword, ``--max-batch`` is ``max_batch=True``. The ones that are used most are
named in the signatures; ``perfmodel.help_of("whatif")`` prints all of them, and the test of this package walks
through every one.
"""

from __future__ import annotations

import os

from ._ask import ask, files_of
from ._interrupts import Cancel
from .results import (Advice, Document, Findings, Layout, Memory, Prediction, Replay, Report, Sharding,
                      TraceAnalysis, WhatIf)

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long to import as all of this
    from typing import Any, Iterable
    
    from ._ask import File


def predict(program: File | Iterable[File], gpu: str, *, batch: int | None = None, sequence: int | None = None,
            world: int | None = None, strategy: str | None = None, topology: str | None = None,
            overheads: File | None = None, against: File | None = None, timeout: float | None = None,
            cancel: Cancel | None = None, **options: Any) -> Prediction:
    """How long one training step takes on a GPU, and why.

    ::

        perfmodel.predict("gpt2.json", gpu="h100-sxm-80gb").step_us

    Args:
        program: an execution graph or Kineto trace, or one per rank of a job.
        gpu: a name (``perfmodel.gpus()``), or a GPU file.
        batch: samples per step instead of the graph's.
        sequence: tokens per sample instead of the graph's.
        world: ranks, for `strategy` and for collectives whose size is not recorded.
        strategy: ``"ddp"`` or ``"fsdp"``: run the graph of one rank on `world` ranks.
        topology: how the GPUs are connected; None: what the GPU usually sits in.
        overheads: host times: ``"reference"``, ``"measured"`` or a table made by :func:`overheads`.
        against: a trace of the same program: the answer compares each part with it.
        timeout: seconds.
        cancel: ends the call from another thread.
        **options: further rewrites, applied in this order after `batch` and `sequence` (``precision="bf16"``), and
            flags of ``perfpredict predict``.

    Raises:
        PerfmodelError: unreadable input, unknown names, impossible requests.

    For thousands of predictions of one graph use :class:`perfmodel.Predictor`.
    """
    answer = ask("predict", list(files_of(program)),
                 {"gpu": gpu, "batch": batch, "sequence": sequence, "world": world, "strategy": strategy,
                  "topology": topology, "overheads": overheads, "against": against, **options},
                 timeout=timeout, cancel=cancel)
    assert isinstance(answer, Prediction)
    return answer


def whatif(graph: File, gpu: str | None = None, *, gpus: Iterable[str] | None = None,
           batch: Iterable[int] | int | None = None, precision: Iterable[str] | str | None = None,
           optimizer: Iterable[str] | str | None = None, max_batch: bool = False, timeout: float | None = None,
           cancel: Cancel | None = None, **options: Any) -> WhatIf:
    """Rewrites of a graph crossed with GPUs: throughput, speed-up, what bounds each.

    ::

        perfmodel.whatif("gpt2.json", gpus=["a100-sxm-80gb", "h100-sxm-80gb"], batch=[8, 16, 32],
                         optimizer=["same", "fused"]).to_pandas()

    Args:
        graph: an execution graph.
        gpu: the baseline's; None: the first of `gpus`.
        gpus: more of them.
        batch: samples per step, each of them.
        precision, optimizer: values to cross; ``"same"`` leaves that alone.
        max_batch: predict every variant at the largest batch that fits.
        timeout: seconds.
        cancel: ends the call from another thread.
        **options: further rewrites, each with one value or a list, and flags of ``perfpredict whatif``.
    """
    answer = ask("whatif", [graph], {"gpu": gpu, "gpus": gpus, "batch": batch, "precision": precision,
                                     "optimizer": optimizer, "max_batch": max_batch, **options},
                 timeout=timeout, cancel=cancel)
    assert isinstance(answer, WhatIf)
    return answer


def memory(graph: File, gpu: str | None = None, *, max_batch: bool = False, world: int | None = None,
           strategy: str | None = None, zero: int | None = None, timeout: float | None = None,
           cancel: Cancel | None = None, **options: Any) -> Memory:
    """Says how much GPU memory a step holds at its peak [bytes], by purpose; whether it fits; the largest batch.

    Args:
        graph: an execution graph, or a trace with records of memory.
        gpu: a name; None: what the step needs of any.
        max_batch: find the largest batch that fits.
        world: data-parallel ranks.
        strategy: ``"ddp"`` or ``"fsdp"``; or `zero`, the stage, 0 to 3.
        timeout: seconds.
        cancel: ends the call from another thread.
        **options: rewrites, applied in this order, and flags of ``perfpredict memory``.
    """
    answer = ask("memory", [graph], {"gpu": gpu, "max_batch": max_batch, "world": world, "strategy": strategy,
                                     "zero": zero, **options}, timeout=timeout, cancel=cancel)
    assert isinstance(answer, Memory)
    return answer


def layout(model: File | None = None, gpu: str | None = None, *, world: int | None = None,
           global_batch: int | None = None, sequence: int | None = None, question: str = "rank",
           timeout: float | None = None, cancel: Cancel | None = None, **options: Any) -> Layout:
    """The fastest layouts of parallel training (data, tensor, pipeline, ZeRO) of a transformer that fit.

    ::

        perfmodel.layout("llama3-70b", "h100-sxm-80gb", world=64, global_batch=1024).best

    Args:
        model: a known name or a ``config.json`` of Hugging Face; None: sizes as options.
        gpu: a name.
        world: GPUs.
        global_batch: sequences per optimizer step.
        sequence: tokens per sequence; None: the model's.
        question: ``"rank"`` (the fastest), ``"eval"`` (one, by ``dp=``, ``tp=``, ...), ``"compare"``
            (``layout=["tp=8,pp=4", ...]``) or ``"sweep"`` (``axis=``, ``values=``).
        timeout: seconds.
        cancel: ends the call from another thread.
        **options: what the search keeps to (``tp=[4, 8]``, ``zero="1"``), ``precision``, ``software``, ...
    """
    answer = ask(f"layout {question}", [] if model is None else [model],
                 {"gpu": gpu, "world": world, "global_batch": global_batch, "sequence": sequence, **options},
                 timeout=timeout, cancel=cancel)
    assert isinstance(answer, Layout)
    return answer


def shard(tables: File, gpu: str | None = None, *, world: int | None = None, batch_per_gpu: int | None = None,
          question: str = "rank", timeout: float | None = None, cancel: Cancel | None = None,
          **options: Any) -> Sharding:
    """The fastest plans that spread embedding tables over GPUs.

    ::

        perfmodel.shard("tables.csv", "h100-sxm-80gb", world=16, batch_per_gpu=4096).to_pandas()

    Args:
        tables: a study (JSON), a list of tables (CSV: table, rows, dim, pooling), or a graph that has them.
        gpu: a name; None: the study's. So for the others.
        world: GPUs.
        batch_per_gpu: samples per GPU and batch.
        question: ``"rank"``, ``"eval"`` (``plan=FILE``), ``"export"`` (``output=FILE``), ``"study"`` or
            ``"sweep"`` (``axis=``, ``values=``).
        timeout: seconds.
        cancel: ends the call from another thread.
        **options: further flags of ``perfpredict shard``: ``time_budget`` (seconds), ``topology``, ...
    """
    answer = ask(f"shard {question}", [tables], {"gpu": gpu, "world": world, "batch_per_gpu": batch_per_gpu,
                                                 **options}, timeout=timeout, cancel=cancel)
    assert isinstance(answer, Sharding)
    return answer


def replay(traces: File | Iterable[File], *, scale_kernels: float = 1, scale_host: float = 1,
           timeout: float | None = None, cancel: Cancel | None = None, **options: Any) -> Replay:
    """A recorded run again, as it was or with other speeds: what if the GPU were twice as fast?

    Args:
        traces: Kineto traces, one per rank.
        scale_kernels: factor on kernels that are neither collectives nor copies.
        scale_host: factor on the host's own time.
        timeout: seconds.
        cancel: ends the call from another thread.
        **options: further flags of ``perfpredict replay``.
    """
    answer = ask("replay", files_of(traces), {"scale_kernels": scale_kernels, "scale_host": scale_host, **options},
                 timeout=timeout, cancel=cancel)
    assert isinstance(answer, Replay)
    return answer


def trace(traces: File | Iterable[File], *, compare: File | None = None, timeout: float | None = None,
          cancel: Cancel | None = None, **options: Any) -> TraceAnalysis:
    """Where the time of a recorded trace went; with `compare`, what changed from that to this one."""
    answer = ask("trace", files_of(traces), {"compare": compare, **options}, timeout=timeout, cancel=cancel)
    assert isinstance(answer, TraceAnalysis)
    return answer


def analyze(programs: File | Iterable[File], gpu: str | None = None, *, rules: Iterable[str] | None = None,
            full: bool = False, timeout: float | None = None, cancel: Cancel | None = None,
            **options: Any) -> Findings:
    """Finds the faults of a program, and how much time repairing them gains [us].

    Args:
        programs: a graph or trace, or the traces of several ranks.
        gpu: the GPU of a graph; of a trace another one than it was recorded on.
        rules: only these; None: all.
        full: findings that gain less than 2 % too.
        timeout: seconds.
        cancel: ends the call from another thread.
        **options: further flags of ``perfpredict analyze``.
    """
    answer = ask("analyze", files_of(programs), {"gpu": gpu, "rules": rules, "full": full, **options},
                 timeout=timeout, cancel=cancel)
    assert isinstance(answer, Findings)
    return answer


def optimize(graph: File, gpu: str, *, world: int | None = None, objective: str | None = None,
             memory_limit: float | None = None, time_budget: float | None = None, timeout: float | None = None,
             cancel: Cancel | None = None, **options: Any) -> Advice:
    """Which rewrites make a step fastest, alone and together, and what each gains [us].

    Args:
        graph: an execution graph or trace of one rank.
        gpu: a name.
        world: data-parallel ranks.
        objective: ``"step"`` (None), ``"samples-per-s"`` or ``"samples-per-gpu-hour"``.
        memory_limit: GB (1e9 bytes) that a step may need.
        time_budget: seconds after which the search answers with what it has; None: 60.
        timeout: seconds after which it is an error.
        cancel: ends the call from another thread.
        **options: further flags of ``perfpredict optimize``.
    """
    answer = ask("optimize", [graph], {"gpu": gpu, "world": world, "objective": objective,
                                       "memory_limit": memory_limit, "time_budget": time_budget, **options},
                 timeout=timeout, cancel=cancel)
    assert isinstance(answer, Advice)
    return answer


def report(programs: File | Iterable[File], gpu: str | None = None, *, against: File | None = None,
           timeout: float | None = None, cancel: Cancel | None = None, **options: Any) -> Report:
    """One page of HTML to look at: timeline, kernels, roofline, memory. A notebook shows it in a frame."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="perfmodel-") as folder:
        file = os.path.join(folder, "report.html")
        answer = ask("report", files_of(programs), {"gpu": gpu, "against": against, **options, "output": file},
                     timeout=timeout, cancel=cancel)
        with open(file, encoding="utf-8") as page:
            return Report(page.read(), answer.messages)


def overheads(traces: File | Iterable[File], output: File | None = None, *, graph: File | Iterable[File] | None = None,
              timeout: float | None = None, cancel: Cancel | None = None, **options: Any) -> Document:
    """The host times of a recorded program as a table [us], which :func:`predict` takes as `overheads`.

    Args:
        traces: Kineto traces.
        output: the file to write, to be given to :func:`predict`.
        graph: the execution graphs of the same programs, in this order.
        timeout: seconds.
        cancel: ends the call from another thread.
        **options: further flags of ``perfpredict overheads``.
    """
    graphs = None if graph is None else files_of(graph)
    return ask("overheads", files_of(traces), {"graph": graphs, "output": output, **options}, timeout=timeout,
               cancel=cancel)


def gpus(name: str | None = None, **options: Any) -> Document:
    """The GPUs that are known, with their data sheets; or one of them. ``to_pandas()`` has one row each."""
    return ask("gpus", [] if name is None else [name], options)


def kernels(table: File, *, timeout: float | None = None, cancel: Cancel | None = None, **options: Any) -> Document:
    """Prices a table of kernels (CSV): ``perfpredict kernels``."""
    return ask("kernels", [table], options, timeout=timeout, cancel=cancel)


def gemm(m: int, n: int, k: int, gpu: str, **options: Any) -> Document:
    """Schedules of one matrix product of m x k and k x n elements: ``perfpredict gemm``."""
    return ask("gemm", [m, n, k], {"gpu": gpu, **options})


def collective(op: str, size: int | str | Iterable[int | str], gpu: str, world: int, *, nodes: int | None = None,
               topology: File | None = None, **options: Any) -> Document:
    """How long a collective of NCCL takes [us]: ``perfpredict collective``. ``to_pandas()`` has a row per size.

    Args:
        op: ``all_reduce``, ``all_gather``, ``reduce_scatter``, ``all_to_all``, ``broadcast``, ``reduce``, ``gather``,
            ``scatter``, ``send`` or ``recv``.
        size: bytes as nccl-tests counts them, ``"64MiB"``, ``"1KiB:1GiB"`` (doubled from one to the other), or several.
        gpu: a known name, or a GPU file.
        world: GPUs that take part.
        nodes: that they are spread over; as few as hold them if not given.
        topology: a known name, or a file; what the GPU usually sits in if not given.
        **options: further flags of ``perfpredict collective``.
    """
    sizes = [size] if isinstance(size, (int, str)) else list(size)
    return ask("collective", [op, *sizes], {"gpu": gpu, "world": world, "nodes": nodes, "topology": topology, **options})


def duration(graph: File, gpus: Iterable[str] | None = None, *, worlds: Iterable[int] = (1,),
             samples: float | None = None, **options: Any) -> Document:
    """Throughput, fit and length of a training job on kinds and numbers of GPUs: ``perfpredict duration``.
    ``to_pandas()`` has a row for each of the `gpus` (all of them if None) with each of the `worlds`."""
    return ask("duration", [graph], {"gpus": gpus, "worlds": list(worlds), "samples": samples, **options})


def diagnose(model: File, *, timeout: float | None = None, cancel: Cancel | None = None, **options: Any) -> Document:
    """Is a measured speed normal, and if not, why: ``perfpredict diagnose``. `options` are its flags: ``gpu``,
    ``measured_step="412ms"``, ``measured="6100tokens/s"``, ``log``, ..."""
    return ask("diagnose", [model], options, timeout=timeout, cancel=cancel)


def gate(before: File, after: File, *, gpus: Iterable[str] | None = None, threshold: str | None = None,
         timeout: float | None = None, cancel: Cancel | None = None, **options: Any) -> Document:
    """Did a change make the step slower: ``perfpredict gate`` of two logs, traces or graphs. ``["verdict"]`` is
    "pass", "slower" or "cannot tell"."""
    return ask("gate", [before, after], {"gpus": gpus, "threshold": threshold, **options}, timeout=timeout, cancel=cancel)


def sync(cases: File | None = None, *, timeout: float | None = None, cancel: Cancel | None = None,
         **options: Any) -> Document:
    """Schemes of synchronisation between workers: ``perfpredict sync``."""
    return ask("sync", [] if cases is None else [cases], options, timeout=timeout, cancel=cancel)


def suite(name: File = "list", *, timeout: float | None = None, cancel: Cancel | None = None,
          **options: Any) -> Document:
    """A suite of models over their batch sizes: ``perfpredict suite``; without a name, which there are."""
    return ask("suite", [name], options, timeout=timeout, cancel=cancel)


def sweep(spec: File, output: File, *, timeout: float | None = None, cancel: Cancel | None = None,
          **options: Any) -> Document:
    """A table of predictions, graphs x rewrites x GPUs x ..., written to `output` (``.csv``, ``.csv.gz``). After
    a stop the same call goes on with the rows that are missing."""
    return ask("sweep", [spec], {"output": output, **options}, timeout=timeout, cancel=cancel)


def train(measurements: File | Iterable[File], output: File, *, timeout: float | None = None,
          **options: Any) -> Document:
    """Fits kernel models to your own measurements: ``perfpredict train``, a program of its own."""
    return ask("train", files_of(measurements), {"output": output, **options}, timeout=timeout)
