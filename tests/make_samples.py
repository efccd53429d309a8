#!/usr/bin/env python3
"""Writes small made-up PyTorch traces: one file per schema, vintage, quirk and defect.

    python3 tests/make_samples.py OUT

fills the folder OUT with `et_*` (execution traces: the op graph, no times; every schema from 1.0.0 on), `kineto_*` (timed host
and GPU events; every vintage from the bare array of 2020 on), `bad_*` (inputs that a reader must refuse with a located message)
and `expected.json`: under `files` the figures, or the error text, to expect of each file; under `pairs` the files that show one
run, the key that links them and how many nodes of the execution trace have a partner.

Nothing is copied from a real trace. The good files come from one tiny model, written down as text: `EtWriter` prints it as
the ET observer does; `play` gives it times and `KinetoWriter` prints those as the profiler does. The figures are taken from the
finished files by plain implementations of the definitions (`measure_et`, `measure_kineto`). Output is deterministic to the byte.
"""

import gzip
import json
import re
import sys
from bisect import bisect_right
from collections import Counter, defaultdict, namedtuple
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import accumulate, chain, count, cycle, pairwise
from pathlib import Path
from types import SimpleNamespace


def raw(number: str) -> str:
    """A number whose digits `dump` writes as they are; a Python float would round nanoseconds away."""
    return f"\0{number}\0"


def dump(document, **style) -> bytes:
    """JSON text, by default with one node or event per line, as older writers print."""
    text = json.dumps(document, **style).replace('}, {"', '},\n  {"')
    return re.sub(r'"\\u0000([^"\\]*)\\u0000"', r"\1", text).encode()


def parse(data: bytes):
    """Reads a finished file back, tolerating what a good reader tolerates; decimals stay exact."""
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    return json.loads(text.decode(errors="replace"), parse_float=Decimal, strict=False)


@dataclass
class Op:
    """A RecordFunction: an op, a label (scope 7) or a backward node (scope 1), and the runtime calls it makes at its end. The
    body of the pseudo-op `@autograd` runs on the autograd thread while the main thread waits, with no event to show that."""
    name: str
    inputs: list = field(default_factory=list)
    outputs: list = field(default_factory=list)
    seq: int = -1
    scope: int = 0
    body: list = field(default_factory=list)
    calls: list = field(default_factory=list)


LABEL_PREFIXES = ("ProfilerStep", "##", "Optimizer.", "enumerate(DataLoader)", "DistributedDataParallel.", "nn.Module:",
                  "[param|", "[pytorch|", "DLRM ")
# The same name gives the same tensor id: ids are reused, they are not SSA. Views share a storage.
Tensor = namedtuple("Tensor", "name storage shape strides", defaults=("", (), None))
TENSORS = {t.name: t for t in (
    Tensor("x", "x", (8, 16)), Tensor("w", "w", (4, 16)), Tensor("b", "b", (4,)), Tensor("wt", "w", (16, 4), (1, 16)),
    Tensor("z", "z", (8, 4)), Tensor("y", "y", (8, 4)), Tensor("loss", "loss"), Tensor("gl", "gl"), Tensor("undefined"),
    Tensor("ge", "gl", (8, 4), (0, 0)), Tensor("gy", "gy", (8, 4)), Tensor("gz", "gz", (8, 4)), Tensor("db", "db", (4,)),
    Tensor("gzt", "gz", (4, 8), (1, 4)), Tensor("gw", "gw", (4, 16)), Tensor("dw", "dw", (4, 16)))}
TENSORS["gb"] = Tensor("gy", "gb", (4,))  # takes over the id of gy with another shape and storage
# A line: op | inputs | outputs | sequence number within the step | calls; bodies are indented.
# A call: name stream [kind of GPU activity, microseconds, its name]; `k` stands for cudaLaunchKernel 7 kernel.
FORWARD, BACKWARD, ALL_REDUCE, UPDATE, COMPILED = """
## forward ##
  aten::linear | x w b | z | 0
    aten::t | w | wt | 0
      aten::transpose | w 0 1 | wt
    aten::addmm | b x wt 1 1 | z | 1 | k 14 volta_sgemm_32x32_tn
  aten::relu | z | y | 2
    aten::clamp_min | z 0 | y | | k 3 elementwise_relu
  aten::mean | y null | loss | 3 | k 6 reduce_mean
---
aten::ones_like | loss cuda:0 | gl
  aten::fill_ | gl 1.0 | gl | | k 1 elementwise_fill
@autograd
  MeanBackward0 | gl | | 3
    aten::expand | gl [8,4] false | ge
    aten::div | ge 32 | gy | | k 2 elementwise_div
  ReluBackward0 | gy | | 2
    aten::threshold_backward | gy y 0 | gz | | k 3 elementwise_threshold
  AddmmBackward0 | gz | | 1
    aten::t | gz | gzt
      aten::transpose | gz 0 1 | gzt
    aten::mm | gzt x | gw | | cudaMemsetAsync 7 gpu_memset 1 Memset (Device); k 11 volta_sgemm_32x32_nt
    aten::sum | gz [0] false | gb | | k 4 reduce_sum
  torch::autograd::AccumulateGrad | gb
    aten::add_ | db gb 1 | db | | k 2 elementwise_add
  TBackward0 | gw | | 0
    detach | gw
  torch::autograd::AccumulateGrad | gw
    aten::add_ | dw gw 1 | dw | | k 2 elementwise_add
---
  c10d::allreduce_ | [dw] <Object> -1 | [dw] <Object>
    record_param_comms | [dw] 7 (0,default_pg) 0 "allreduce" [] [] 0 1 2 | [dw]
      nccl:all_reduce | dw | | | cudaLaunchKernelExC 20 kernel 40 ncclDevKernel_AllReduce_Sum_f32_RING_LL
  record_param_comms | 7 (,) 1 "wait" [] [] -1 -1 1
---
Optimizer.step#SGD.step
  aten::_foreach_add_ | [w,b] [dw,db] -0.01 | | | k 5 multi_tensor_apply
aten::item | loss | 0.5
  aten::_local_scalar_dense | loss | 0.5 | | cudaMemcpyAsync 7 gpu_memcpy 2 Memcpy DtoH; cudaStreamSynchronize 7
---
TorchDynamo Cache Lookup
Torch-Compiled Region: 0/0
  CompiledFunction | x w b | | 45
    aten::mm | x wt z | z | | cudaLaunchKernelExC 7 kernel 9 cutlass_80_simt_sgemm
    triton_poi_fused_add_0 | z b y 32 140382148398488 | | | cuLaunchKernel 7 kernel 3 triton_poi_fused_add_0
""".split("---")
STEP = "Optimizer.zero_grad#SGD.zero_grad" + FORWARD + BACKWARD + UPDATE
COMM_STEP = STEP.replace(UPDATE, ALL_REDUCE + UPDATE)


def value(token: str):
    """An argument: tensor, list, tuple of strings, object, device, or JSON."""
    if token in TENSORS:
        return TENSORS[token]
    if token[0] == "[":
        return [value(t) for t in token[1:-1].split(",") if t]
    if token[0] == "(":
        return tuple(token[1:-1].split(","))
    return token if token.startswith(("<", "cuda:")) else json.loads(token)


def build(text: str, seq: int = 0) -> list:
    """The ops of a model text; backward nodes get the wrapper that the autograd engine puts around them."""
    stack = [Op("")]
    for line in filter(None, text.split("\n")):
        name, inputs, outputs, number, calls = [part.strip() for part in (line + "||||").split("|")[:5]]
        op = Op(name, [value(t) for t in inputs.split()], [value(t) for t in outputs.split()],
                seq + int(number) if number else -1, 7 * name.startswith(LABEL_PREFIXES + ("nccl:",)))
        op.calls = [re.sub("^k ", "cudaLaunchKernel 7 kernel ", call).split(" ", 4) for call in calls.split("; ") if call]
        del stack[(len(line) - len(line.lstrip())) // 2 + 1:]
        wrap = stack[-1].name == "@autograd" and name.endswith(("Backward0", "AccumulateGrad"))
        op.scope += wrap
        stack[-1].body.append(Op("autograd::engine::evaluate_function: " + name, body=[op]) if wrap else op)
        stack.append(op)
    return stack[0].body


def steps(first: int, number: int, text: str = STEP) -> list:
    """Runs of a model text, each inside a ProfilerStep label."""
    return [Op(f"ProfilerStep#{n}", scope=7, body=build(text, 40 + 4 * n)) for n in range(first, first + number)]


def process_groups(*groups: tuple, key: str = "pg_desc") -> list:
    """The init record of (name, description, ranks, size) groups; no ranks means all of them."""
    text = json.dumps([{"pg_name": name, key: about, "backend_config": "cuda:nccl", "ranks": ranks, "group_size": size,
                        "group_count": len(groups)} for name, about, ranks, size in groups])
    return [Op("## process_group:init ##", [text], scope=7)]


def comm_attributes(op: Op, **newest) -> dict:
    """Attributes of a collective's record that repeat its arguments; a wait has no group and no ranks."""
    if op.name != "record_param_comms":
        return {}
    name, dtype, numel, size = ("wait", "Byte", 0, 1) if op.inputs[0] == 7 else ("allreduce", "Float", 64, 2)
    group = dict(zip(("pg_name", "pg_desc"), op.inputs[2])) | {"global_rank_start": 0, "global_rank_stride": 1} if numel else {}
    return {"collective_name": name, "dtype": dtype, "in_msg_nelems": numel, "out_msg_nelems": numel, "in_split_size": "[]",
            "out_split_size": "[]", **group, "pg_size": size, **newest}


# Differences between the schemas; keys come and go inside one version, so each is a switch. limit:
# longest list; comm: further attributes of collectives, if they have any; new_ids: an op's id comes
# before its inputs' ids, storages count apart (2025).
ET_STYLE = dict(nested=True, word="execution_trace", limit=4096, strides=False, comm=None, attrs=[], new_ids=False)
S100 = ET_STYLE | {"schema": "1.0.0", "nested": False, "word": "execution_graph", "limit": 100}
S101, S103 = ET_STYLE | {"schema": "1.0.1", "nested": False}, ET_STYLE | {"schema": "1.0.3-chakra.0.0.4"}
S104 = ET_STYLE | {"schema": "1.0.4-chakra.0.0.4", "attrs": ["kernel_backend", "kernel_file"]}
S110 = ET_STYLE | {"schema": "1.1.0-chakra.0.0.4", "comm": {}}
S111 = S104 | {"schema": "1.1.1-chakra.0.0.4", "comm": {}, "strides": True}
S2025 = S111 | {"attrs": S104["attrs"] + ["tensor_range"], "comm": {"is_asynchronized_op": True}, "new_ids": True}


class EtWriter:
    """Numbers a run as the observer does: one counter for ops, tensors and storages, nodes in completion order."""

    def __init__(self, run: list, style: dict):
        self.style, self.nodes, self.threads, self.known = SimpleNamespace(**style), [], {}, {}
        self.ids, self.rf_ids = count(2), count(1)
        self.storage_ids = count(1) if style["new_ids"] else self.ids
        self.walk(run, self.thread(1), 1)
        self.emit(Op(f"[pytorch|profiler|{style['word']}|process]", scope=7), 1, 1, 0, 0)

    def thread(self, tid: int) -> int:
        """The id of a thread's node, which is written when the thread is first seen."""
        if tid not in self.threads:
            self.threads[tid] = next(self.ids)
            self.emit(Op(f"[pytorch|profiler|{self.style.word}|thread]", scope=7), self.threads[tid], 1, tid, 0)
        return self.threads[tid]

    def walk(self, body: list, parent: int, tid: int) -> None:
        for op in body:
            if op.name == "@autograd":
                self.walk(op.body, self.thread(2), 2)
                continue
            ident = next(self.ids) if self.style.new_ids else None
            inputs = [self.describe(v) for v in op.inputs]
            ident, rf_id = ident or next(self.ids), next(self.rf_ids)
            self.walk(op.body, ident, tid)
            self.emit(op, ident, parent, tid, rf_id, inputs, [self.describe(v) for v in op.outputs])

    def describe(self, argument) -> tuple:
        """(value, shape, type, strides)."""
        if isinstance(argument, Tensor):
            return self.describe_tensor(argument)
        if isinstance(argument, (list, tuple)):
            parts = [self.describe(v) for v in argument[: self.style.limit]]
            values, shapes, types, strides = map(list, zip(*parts)) if parts else ([], [], [], [])
            kind = "Tuple" if isinstance(argument, tuple) else "GenericList"
            return values, shapes, f"{kind}[{','.join(types)}]", strides
        kinds = {bool: "Bool", int: "Int", str: "String", float: "Double", type(None): "None"}
        kind, text = kinds[type(argument)], "<None>" if argument is None else argument
        if kind == "String" and text.startswith(("<", "cuda:")):
            kind = "Device" if text[0] == "c" else text.strip("<>")
        return raw(f"{text:.6f}") if kind == "Double" else text, [], kind, []

    def describe_tensor(self, tensor: Tensor) -> tuple:
        ident = self.known.get(tensor.name) or self.known.setdefault(tensor.name, next(self.ids))
        if not tensor.storage:
            return [ident, 0, 0, 0, 0, ""], [], "Tensor(nullptr (uninitialized))", []
        key, numel, strides = ("storage", tensor.storage), 1, []
        storage = self.known.get(key) or self.known.setdefault(key, next(self.storage_ids))
        for size in reversed(tensor.shape):
            strides.insert(0, numel)
            numel *= size
        return [ident, storage, 0, numel, 4, "cuda:0"], list(tensor.shape), "Tensor(float)", list(tensor.strides or strides)

    def emit(self, op: Op, ident: int, parent: int, tid: int, rf_id: int, inputs=(), outputs=()) -> None:
        triton, has_schema = op.name.startswith("triton_"), op.name.startswith(("aten::", "c10d::"))
        schema = f"{op.name}(Tensor{'(a!)' * op.name.endswith('_')} self) -> Tensor" * has_schema
        attrs = {"rf_id": rf_id, "fw_parent": self.threads[1] * (op.scope == 1), "seq_id": op.seq, "scope": op.scope, "tid": tid,
                 "fw_tid": int(op.scope == 1), "op_schema": schema}
        sides = {"input": inputs, "output": outputs}.items()
        if not self.style.nested:
            self.nodes.append({"name": op.name, "id": ident, "rf_id": rf_id, "parent": parent} | attrs | {
                f"{side}{end}": [v[i] for v in values] for side, values in sides
                for i, end in enumerate(("s", "_shapes", "_types"))})
            return
        attrs |= dict.fromkeys(self.style.attrs, "")
        attrs |= {} if self.style.comm is None else comm_attributes(op, **self.style.comm)
        if triton:
            attrs |= {"kernel_backend": "triton", "kernel_file": "cabcdefg.py", "tensor_range": '{"0":[0,31]}'}
        keys = ("values", "shapes", "types", "strides")[: 4 if self.style.strides else 3]
        node = {"id": ident, "name": op.name, "ctrl_deps": parent} | {
            f"{side}s": {key: [v[i] for v in values] for i, key in enumerate(keys)} for side, values in sides}
        if triton:
            node["inputs"]["strides"].pop()  # the raw stream handle has no entry
        kind = lambda k, v: {str: "string", bool: "bool"}.get(type(v), "int64" if k == "seq_id" else "uint64")
        node["attrs"] = [{"name": k, "type": kind(k, v), "value": v} for k, v in attrs.items()]
        self.nodes.append(node)


def et(run: list, style: dict) -> dict:
    """The execution trace of a run."""
    return {"schema": style["schema"], "pid": 4711, "time": "2024-01-02 03:04:05", "start_ts": 1000,
            "nodes": EtWriter(run, style).nodes, "finish_ts": 1234}


def play(run: list, pauses: tuple) -> list:
    """Times for a run: its host and GPU activities in nanoseconds. `lane` is a profiler thread number or a stream, `op` the op
    itself or the innermost one around a call or kernel, `index` its start order over all threads, from 1. The pauses between any
    two things on the host follow a fixed cycle of microseconds. GPU work starts while its call still runs, or when its stream is
    free; a call without GPU work waits until its stream is free."""
    out, indices, correlations, stream_end, pause = [], count(1), count(101), Counter(), cycle([int(p * 1000) for p in pauses])

    def add(kind, name, lane, start, dur, op, index, corr):
        out.append(SimpleNamespace(kind=kind, name=name, lane=lane, start=start, dur=dur, op=op, index=index, correlation=corr))
        return start + dur

    def call(now, thread, op, index, name, stream, kind="", us=0, work=""):
        owner, start = (op, index, next(correlations)), max(now + 4000, stream_end[stream])
        if kind:
            stream_end[stream] = add(kind, work, int(stream), start, int(us) * 1000, *owner)
        return add("call", name, thread, now, 6000 if kind else max(1000, stream_end[stream] - now), *owner)

    def walk(body, thread, now):
        for op in body:
            if op.name == "@autograd":
                now = walk(op.body, 2, now)
                continue
            start, index = now, next(indices)
            now = walk(op.body, thread, now + next(pause))
            for words in op.calls:
                now = call(now, thread, op, index, *words) + next(pause)
            now = add("op", op.name, thread, start, now - start, op, index, 0) + next(pause)
        return now

    walk(run, 1, 10_000)
    return out


# Differences between the profiler's releases. fraction: stamps with three decimals, `trim` without
# trailing zeros as the JSON library of newer releases prints them; base: first stamp in
# microseconds; own_ids: External id of calls and kernels is their own correlation, else the op's
# External id, which starts at first_id; record_ids: Record function id is absent (None), zero (0)
# or real (1); of_2020: old category names and text thread ids.
V2023 = {"fraction": False, "trim": False, "base": 1_690_000_000_000_000, "order_key": "Ev Idx", "own_ids": True,
         "first_id": 1, "record_ids": None, "shapes": False, "of_2020": False, "hip": False, "flow": ("ac2g", "ac2g")}
V2020 = V2023 | {"of_2020": True, "order_key": "", "own_ids": False, "flow": ("async", "async_gpu")}
V2021 = V2023 | {"order_key": "Profiler Event Index", "own_ids": False, "flow": ("async_cpu_to_gpu", "async_gpu")}
V2024 = V2023 | {"fraction": True, "base": 4_458_676_000_000, "own_ids": False, "first_id": 2049, "record_ids": 1, "shapes": True}
MICRO, HALF, TIES = (2, 1, 4, 3, 1, 5, 2), (2.345, 1.017, 3.999, 2.5, 1.203, 4.871), (0, 1, 0, 0, 2, 0, 3)  # pauses
NEW_CATEGORY = dict(Operator="cpu_op", Runtime="cuda_runtime", Kernel="kernel", Memcpy="gpu_memcpy", Memset="gpu_memset")
OLD_CATEGORY = {new: old for old, new in NEW_CATEGORY.items()} | {"user_annotation": "Operator"}
COMM_KEYS = {"pg_name": "Process Group Name", "pg_desc": "Process Group Description", "pg_size": "Group size", "dtype": "dtype"}


class KinetoWriter:
    """Prints a run as a list of Chrome trace events."""

    def __init__(self, run: list, vintage: dict, pauses: tuple | None = None):
        self.vintage, self.events = SimpleNamespace(**vintage), []
        timeline = play(run, pauses or (HALF if self.vintage.fraction else MICRO))
        ops = sorted((e for e in timeline if e.kind == "op"), key=lambda e: (-e.lane, e.index))
        for position, event in enumerate(ops):  # the autograd thread comes first, as in real files
            self.op(event, position)
        for event in sorted((e for e in timeline if e.kind != "op"), key=lambda e: (e.start, e.correlation)):
            (self.call if event.kind == "call" else self.gpu)(event)
        begin, name = self.time(self.vintage.base * 1000), "PyTorch Profiler"
        self.events += [x("Trace", name + " (0)", begin, self.time(2_000_000), name, "Spans"),
                        {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": begin}]

    def time(self, ns: int):
        if not self.vintage.fraction:
            return ns // 1000
        text = f"{ns // 1000}.{ns % 1000:03d}"
        return raw(text.rstrip("0").rstrip(".") if self.vintage.trim else text)

    def add(self, category: str, event, pid: int, tid: int, args: dict, flow: str = "") -> None:
        """A complete event and, for calls and GPU work, its end of the launch arrow."""
        start = self.time(self.vintage.base * 1000 + event.start)
        if self.vintage.of_2020:
            category, tid = OLD_CATEGORY[category], str(tid) if pid else f"stream {tid}"
        self.events.append(x(category, event.name, start, self.time(event.dur), tid, pid, **args))
        if flow:
            arrow = dict(zip(("cat", "name"), self.vintage.flow)) | ({"bp": "e"} if flow == "f" else {})
            self.events.append({"ph": flow, "id": event.correlation, "pid": pid, "tid": tid, "ts": start} | arrow)

    def ids(self, event) -> dict:
        external = event.index + self.vintage.first_id - 1
        if not event.correlation:
            return {"External id": external}
        return {"external id" if self.vintage.of_2020 else "External id": event.correlation if self.vintage.own_ids else external,
                "correlation": event.correlation}

    def op(self, event, position: int) -> None:
        op, args = event.op, self.ids(event)
        if self.vintage.record_ids is not None:
            args["Record function id"] = event.index * self.vintage.record_ids
        shown = op.body[0].seq if op.name.startswith("autograd::engine") else op.seq
        if shown >= 0:  # the wrapper of the engine shows the number of the node inside
            args |= {"Fwd thread id": int(event.lane == 2), "Sequence number": shown}
        if self.vintage.shapes and op.inputs:
            args |= {"Concrete Inputs": ["" if isinstance(v, Tensor) else str(v) for v in op.inputs],
                     "Input type": ["float" if isinstance(v, Tensor) else "Scalar" for v in op.inputs],
                     "Input Dims": [list(v.shape) if isinstance(v, Tensor) else [] for v in op.inputs]}
        args |= {COMM_KEYS.get(k, k.replace("_", " ").capitalize()): v for k, v in comm_attributes(op).items()}
        if op.name.startswith("triton_"):
            args |= {"kernel_backend": "triton", "kernel_file": "cabcdefg.py", "grid": "(1, 1, 1)", "stream": 7}
        if self.vintage.order_key:
            args[self.vintage.order_key] = position
        self.add("user_annotation" if op.scope == 7 else "cpu_op", event, 4711, (4711, 4790)[event.lane - 1], args)

    def call(self, event) -> None:
        args, thread = self.ids(event) | {"cbid": 211}, (4711, 4790)[event.lane - 1]
        if self.vintage.hip:
            gemm = "ExtModule" if event.op.name.endswith("mm") and event.name == "cudaLaunchKernel" else ""
            event.name = event.name.replace("cuda", "hip" + gemm).replace("MemcpyAsync", "MemcpyWithStream")
            args = self.ids(event) | {"cid": 107, "stream": "0x0", "size": "2560", "kind": "2", "kernel": "made_up"}
        category = "cuda_driver" if event.name.startswith("cuL") else "cuda_runtime"
        self.add(category, event, 4711, thread, args, "f" if "Synchronize" in event.name else "s")

    def gpu(self, event) -> None:
        stream = 0 if self.vintage.hip else event.lane
        args = {"device": 0, "context": 1, "stream": stream} | self.ids(event)
        if self.vintage.hip:
            args["kind"] = "Dispatch Kernel" if event.kind == "kernel" else "DtoH"
        elif event.kind == "kernel":
            args |= {"queued": 0, "grid": [4, 1, 1], "block": [128, 1, 1], "registers per thread": 32,
                     "shared memory": 0, "blocks per SM": 0.05, "warps per SM": 0.2, "est. achieved occupancy %": 1}
        else:
            args |= {"bytes": 64, "memory bandwidth (GB/s)": 0.032}
        self.add(event.kind, event, 0, stream, args, "f")


def x(category: str, title: str, ts, dur, tid=1, pid=1, **args) -> dict:
    """A complete event."""
    return {"ph": "X", "cat": category, "name": title, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kineto(events: list, gpu: str = "NVIDIA Example GPU", **head) -> dict:
    """A trace with its head."""
    device = {"id": 0, "name": gpu, "totalGlobalMem": 42297524224, "computeMajor": 8, "computeMinor": 0, "numSms": 108}
    return {"schemaVersion": 1, "deviceProperties": [device], **head, "traceEvents": events, "traceName": "made_up"}


Span = namedtuple("Span", "start end name correlation", defaults=(None,))  # a complete event, in integer nanoseconds
LAUNCH_CALLS = set("""cuGraphLaunch cuLaunchCooperativeKernel cuLaunchKernel cuLaunchKernelEx cuMemcpyAsync cuMemsetD32Async
    cuMemsetD8Async cudaGraphLaunch cudaLaunchCooperativeKernel cudaLaunchKernel cudaLaunchKernelExC cudaMemcpy cudaMemcpy2DAsync
    cudaMemcpyAsync cudaMemcpyPeerAsync cudaMemset cudaMemsetAsync hipExtLaunchKernel hipExtModuleLaunchKernel hipGraphLaunch
    hipLaunchCooperativeKernel hipLaunchKernel hipMemcpy hipMemcpyAsync hipMemcpyWithStream hipMemset hipMemsetAsync
    hipModuleLaunchKernel""".split())


def measure_et(document: dict) -> dict:
    """Figures of an execution trace. A top-level op is no label and has nothing but labels above it; an orphan's parent is not
    in the file; a backward pair is a scope-1 node whose sequence number a scope-0 node has too. Data edges are distinct pairs of
    leaves in id order: a read goes to the last writer of the tensor id or, counted apart, of the storage id (0 is none)."""
    flat = lambda n: n if "parent" in n else n | {a["name"]: a["value"] for a in n["attrs"]} | {
        "parent": n["ctrl_deps"], "inputs": n["inputs"]["values"], "outputs": n["outputs"]["values"]}
    nodes = sorted(map(flat, document["nodes"]), key=lambda n: n["id"])
    by_id, parents = {n["id"]: n for n in nodes}, {n["parent"] for n in nodes if n["parent"] != n["id"]}
    is_op = lambda n: not n["name"].startswith(LABEL_PREFIXES)
    marked = [n for n in nodes if n["name"].startswith("ProfilerStep#")]
    forward_ids = {n["seq_id"] for n in nodes if n["scope"] == 0 and n["seq_id"] >= 0}
    comms = Counter(n["name"] for n in nodes if n["name"].startswith(("c10d::", "nccl:", "record_param_comms")))

    def ancestors(node):
        while node["parent"] != node["id"] and node["parent"] in by_id:
            node = by_id[node["parent"]]
            yield node

    def data_edges(part):
        writer, edges = {}, set()
        for node in (n for n in nodes if n["id"] not in parents):
            edges |= {(writer[t[part]], node["id"]) for t in tensors_in(node["inputs"]) if t[part] in writer}
            writer |= {t[part]: node["id"] for t in tensors_in(node["outputs"]) if t[part]}
        return len(edges)

    return {"kind": "execution_trace", "schema": document["schema"], "nodes": len(nodes),
            "top_level_ops": sum(is_op(n) and not any(map(is_op, ancestors(n))) for n in nodes),
            "iterations": [n["name"] for n in marked], "empty_iterations": [n["name"] for n in marked if n["id"] not in parents],
            "optimizer_steps": sum(n["name"].startswith("Optimizer.step#") for n in nodes),
            "threads": sorted({n["tid"] for n in nodes} - {0}), "orphans": sum(n["parent"] not in by_id for n in nodes),
            "backward_pairs": sum(n["scope"] == 1 and n["seq_id"] in forward_ids for n in nodes), "collectives": comms,
            "comm_attr_nodes": sum("collective_name" in n for n in nodes), "tensor_edges": data_edges(0),
            "triton_nodes": sum(n.get("kernel_backend") == "triton" for n in nodes), "storage_edges": data_edges(1)}


def tensors_in(argument):
    """The six-element tensor arrays anywhere inside an argument list."""
    if isinstance(argument, list) and [type(v) for v in argument] == [int] * 5 + [str]:
        yield argument
    elif isinstance(argument, list):
        yield from chain.from_iterable(map(tensors_in, argument))


def measure_kineto(document) -> dict:
    """Figures of a Kineto trace. GPU work belongs to the iteration, [start, end), in which the host started its launch, on any
    thread. An iteration is a ProfilerStep label of the host or, without any, the time between the ends of two optimizer steps."""
    events = document if isinstance(document, list) else document["traceEvents"]
    labels, ops, launches, gpu = [], defaultdict(list), defaultdict(list), []
    for e in (e for e in events if e.get("ph") == "X"):
        # The old CPU profiler wrote no categories; all its events are ops.
        category, start = NEW_CATEGORY.get(e.get("cat"), e.get("cat") or "cpu_op"), int(Decimal(e["ts"]) * 1000)
        span = Span(start, start + int(Decimal(e["dur"]) * 1000), e["name"], e["args"].get("correlation"))
        if category == "user_annotation" or (category == "cpu_op" and span.name.startswith(LABEL_PREFIXES)):
            labels.append(span)
        elif category == "cpu_op":
            ops[e["pid"], e["tid"]].append(span)
        elif category in ("cuda_runtime", "cuda_driver") and span.name in LAUNCH_CALLS:
            launches[e["pid"], e["tid"]].append(span)
        elif category in ("kernel", "gpu_memcpy", "gpu_memset"):
            gpu.append((category, span))
    launched_at = {c.correlation: c.start for c in chain(*launches.values())}
    ends = sorted((s.end, s.name) for s in labels if s.name.startswith("Optimizer.step#"))
    iterations = (sorted(s for s in labels if s.name.startswith("ProfilerStep"))
                  or [Span(a[0], b[0], f"after {a[1]}") for a, b in pairwise(ends)])
    rows = []
    for it in iterations:
        mine = [(kind, s) for kind, s in gpu if it.start <= launched_at.get(s.correlation, -1) < it.end]
        rows.append({"name": it.name, "wall_us": (it.end - it.start) / 1000, "gpu_busy_us": busy_us(mine),
                     "kernels": sum(kind == "kernel" for kind, _ in mine)})
    kinds, started = Counter(kind for kind, _ in gpu), {s.correlation for _, s in gpu}
    top = {thread: top_level(list_) for thread, list_ in ops.items()}
    return {"kind": "kineto", "events": len(events), "iterations": rows, "gpu_busy_us": busy_us(gpu),
            "kernels_total": kinds["kernel"], "memcpy": kinds["gpu_memcpy"], "memset": kinds["gpu_memset"],
            "gpu_without_launch": sum(s.correlation not in launched_at for _, s in gpu),
            "top_level_ops": sum(map(len, top.values())), "launches": sum(map(len, launches.values())),
            "launches_without_gpu": sum(c not in started for c in launched_at),
            "overheads": overheads(top, launches, iterations)}


def top_level(ops: list) -> list:
    """Ops that start at or after the end of every op before them: by start, longest first, then in file order."""
    ops = sorted(ops, key=lambda op: (op.start, -op.end))
    latest = chain([ops[0].start], accumulate((op.end for op in ops), max))
    return [op for op, end in zip(ops, latest) if op.start >= end]


def busy_us(gpu: list) -> float:
    """Length of the union of activities."""
    spans = sorted(span for _, span in gpu)
    latest = chain([0], accumulate((span.end for span in spans), max))
    return sum(max(0, span.end - max(span.start, end)) for span, end in zip(spans, latest)) / 1000


def overheads(top: dict, launches: dict, iterations: list) -> dict:
    """Raw overheads: T1 gap between neighbours of a thread that start in the same iteration (anywhere, in a trace without any),
    T2 op start to first launch, T3 last launch to op end, T4 a launch, T5 between launches of an op, TX an op without launch; T2
    to TX over the whole trace. A launch belongs to the last top-level op of its thread that has started, if not yet ended."""
    gaps, begins = defaultdict(list), [it.start for it in iterations]

    def iteration_of(op):
        at = bisect_right(begins, op.start) - 1
        return at if at >= 0 and op.start < iterations[at].end else None

    for thread, ops in top.items():
        gaps["t1"] += [b.start - a.end for a, b in pairwise(ops) if not iterations
                       or iteration_of(a) is not None and iteration_of(a) == iteration_of(b)]
        starts, owned = [op.start for op in ops], defaultdict(list)
        for call in sorted(launches[thread]):
            at = bisect_right(starts, call.start) - 1
            owned[at if at >= 0 and call.start <= ops[at].end else None].append(call)
        for at, op in enumerate(ops):
            calls = owned[at]
            gaps["t2"] += [calls[0].start - op.start] if calls else []
            gaps["t3"] += [op.end - calls[-1].end] if calls else []
            gaps["t5"] += [b.start - a.end for a, b in pairwise(calls)]
            gaps["tx"] += [] if calls else [op.end - op.start]
    gaps["t4"] = [call.end - call.start for call in chain(*launches.values())]
    mean = lambda ns: round(sum(ns) / len(ns) / 1000, 6) if ns else None
    return {key: {"count": len(gaps[key]), "mean_us": mean(gaps[key])} for key in ("t1", "t2", "t3", "t4", "t5", "tx")}


def et_samples() -> dict:
    """The good execution traces."""
    one, hip, comms = steps(5, 1), steps(1, 1) + steps(2, 1, ""), et(steps(5, 1, COMM_STEP), S110)
    odd = [Op('say "hi" \\ to\n\tünïcode 😀 \u0001', body=build("user::x | x <Storage> undefined null true"))]
    base, small = et(one, S103), et(steps(5, 1, FORWARD), S103)
    groups = process_groups(("0", "default_pg", [], 4), ("1", "mesh_tp", [0, 2], 2), ("2", "mesh_tp", [1, 3], 2))
    number = ALL_REDUCE.replace("(0,default_pg)", "0").replace("(,)", "0")  # the group before it became a tuple
    old_comms = process_groups(("0", 0, [], 2), key="backend_id") + build(STEP.replace(UPDATE, number + UPDATE))
    sharded = STEP.replace(UPDATE, ALL_REDUCE.replace("0,default_pg", "1,mesh_tp") + UPDATE)
    many = Op("aten::_foreach_mul_", [[Tensor(f"p{i}", f"p{i}", (2,)) for i in range(130)], 0.9])
    gather = Op("c10d::allgather_", [[[TENSORS["dw"], TENSORS["db"]]], [TENSORS["gw"]]])
    # Ops that are still open when recording stops are never written: their children are orphans.
    open_ops = ("ProfilerStep#5", "## forward ##", "[pytorch|profiler|execution_trace|process]")
    return {
        "flat_1.0.0": et(build(STEP), S100), "long_lists_1.0.0": et([many], S100), "plain_2023": et(one, S101),
        "graph_names_1.0.1": et(build(STEP), S101 | {"word": "execution_graph"}), "external_2023": et(one, S101),
        "ties_2023": et(one, S101), "optimizer_2023": et(build(STEP, 44), S101), "record_2024": base,
        "group_number_1.0.2": et(old_comms, S103 | {"schema": "1.0.2-chakra.0.0.4"}), "zero_record_2024": base,
        "shifted_record_2024": et(process_groups(("0", "default_pg", [], 1)) + one, S103),
        "kernel_backend_1.0.4": et(one, S104), "comms_1.1.0": comms, "groups_1.1.0": et(groups + build(sharded), S110),
        "nested_lists_1.1.0": et([gather], S110), "strides_1.1.1": et(one, S111), "hip": et(hip, S111), "names": et(odd, S103),
        "triton_1.1.1": et(steps(0, 2, COMPILED), S2025), "three_steps": et(steps(5, 2, FORWARD) + steps(7, 1, ""), S103),
        "newest": et(steps(5, 1, COMM_STEP), S2025 | {"schema": "1.1.1-chakra.1.0.0"}),
        "no_finish": {k: v for k, v in small.items() if k != "finish_ts"},
        "shuffled": small | {"nodes": small["nodes"][::-2] + small["nodes"][-2::-2]},
        "orphans": base | {"nodes": [n for n in base["nodes"] if n["name"] not in open_ops]},
        "key_order": {k: comms[k] for k in sorted(comms)} | {"nodes": [dict(reversed(n.items())) for n in comms["nodes"]]},
    }


def kineto_samples() -> dict:
    """The good Kineto traces."""
    of = lambda run, vintage, **head: kineto(KinetoWriter(run, vintage).events, **head)
    one, two, zero, later = steps(5, 1), steps(5, 2), V2024 | {"record_ids": 0}, V2023 | {"first_id": 513}
    plain, trimmed = of(one, V2023), of(one, V2024 | {"trim": True})
    hip = of(steps(1, 1) + steps(2, 1, ""), V2024 | {"hip": True}, gpu="AMD Instinct Example")
    hip["traceEvents"].append(x("gpu_user_annotation", "ProfilerStep#1", V2024["base"] + 40, 150, 0, 0))  # not an iteration
    ties, world = KinetoWriter(one, later, TIES).events, [{"pg_name": "0", "pg_size": 2, "ranks": [0, 1]}]
    bare = [x(None, name, 5, 5, 1, "CPU functions") for name in ("aten::empty", "## forward ##")]
    return {
        "array_2020": KinetoWriter(two, V2020).events, "event_index_2021": of(one, V2021), "external_2023": plain,
        "plain_2023": of(two, later), "ties_2023": kineto(ties[::-1]),  # file order says nothing, Ev Idx must
        "optimizer_2023": of(build(STEP) + build(STEP, 44) + build(STEP, 48), later),
        "record_2024": of(one, V2024, baseTimeNanoseconds=1_711_964_646_000_000_000), "zero_record_2024": of(one, zero),
        "shifted_record_2024": of(one, V2024), "epoch_2024": of(one, zero | {"base": 1_712_345_678_901_234}),
        "comms_1.1.0": of(steps(5, 1, COMM_STEP), V2024, distributedInfo={"rank": 0, "world_size": 2, "pg_config": world}),
        "triton_1.1.1": of(steps(0, 2, COMPILED), V2024), "hip": hip, "no_iteration": of(build(FORWARD), V2023),
        "launch_ahead": of(steps(0, 3, FORWARD.replace("k 14", "k 99")), V2023), "gzip": plain, "gzip_members": plain,
        "head_last_2025": {"traceEvents": trimmed["traceEvents"]} | trimmed, "no_events": {"traceEvents": []},
        "no_head": {"traceEvents": plain["traceEvents"]}, "no_category": [{k: e[k] for k in e if k != "cat"} for e in bare],
        "dirty_name": kineto(plain["traceEvents"] + [x("cpu_op", "BYTES", V2023["base"], 3, 4711, 4711)]),
    } | {name: kineto(hand_made("user_annotation 1000 200 ProfilerStep#1; " + text)) for name, text in QUIRKS.items()}


# Quirks that the model does not show, each in the iteration [1000, 1200). An item: op@thread start duration name, or with the
# correlation before the name call@thread, kernel@stream and so on. The default names are aten::mm and cudaLaunchKernel.
QUIRKS = {
    "cuda_sync": "op 1010 20; call 1012 5 1; kernel 1020 30 1; call 1018 1 2 cudaEventRecord; call 1020 1 3 cudaStreamWaitEvent; "
                 "cuda_sync@20 1021 29 3 Stream Wait Event; op 1040 10; call 1042 5 4; kernel@20 1052 9 4; "
                 "call 1052 12 5 cudaStreamSynchronize; cuda_sync@20 1052 11 5 Stream Sync; "
                 "call 1070 2 6 cudaDeviceSynchronize; cuda_sync@-1 1070 2 6 Context Sync",
    "graph_launch": "op 1010 20 graph replay; call 1012 15 9 cudaGraphLaunch; kernel 1030 5 9; kernel 1035 5 9; kernel 1040 5 9; "
                    "gpu_memcpy 1061 2 9",
    # pthread-like and negative thread ids, the latter of the NCCL watchdog
    "threads": "op 1010 20; call 1012 5 1; kernel 1020 4 1; op@140382148398488 1012 9; call@140382148398488 1014 4 2; "
               "call@-549452224 1015 2 3 cudaEventQuery; call@-549452224 1018 3 4 cudaMemsetAsync; gpu_memset 1040 1 4; "
               "kernel 1026 3 2",
    # launched before the window; kernel missing; kernel before its launch; nameless call; op and work beyond the window
    "unmatched": "kernel 1001 6 900; op 1010 20; call 1012 5 1; call 1020 4 2; kernel 1022 4 1; call 1032 3 3; kernel 1031 9 3; "
                 "call 1036 2 4 INVALID; op 1050 99999; call 1300 5 5; kernel 1290 3 5",
    "big_integers": "huge 1010 20; call 1012 5 4294967296; kernel 1020 4 4294967296", "no_gpu": "op 1010 5",
    "blocking": "op 1010 40; call 1012 30 1 cudaMemcpy; gpu_memcpy 1020 20 1; op 1060 40; call 1062 6 2 cudaMemcpyAsync; "
                "gpu_memcpy 1069 15 2; call 1069 17 3 cudaStreamSynchronize; op 1110 30; call 1112 20 4 cudaMalloc; "
                "call 1134 4 5 cudaMemset; gpu_memset 1136 1 5",
    "number_forms": "op 1.01e3 2E+1; call 1012.5 5.250 1; kernel 1020.001 4 1; op 1040.0 0.25",
    # equal stamps, a child that outlives its parent, ops that start where another ends
    "nesting": "op 1010 0; op 1010 10; op 1010 10; op 1020 0; op 1020 5; op 1022 9; call 1025 0 1; call 1028 2 2; op 1031 1; "
               "op 1032 0; kernel 1030 3 1; kernel 1033 3 2",
    "no_work": "op 1100 5; call 1101 3 1; kernel 1105 2 1; python_function 1010 50 nn.Module: Linear_0; counter 1014 0 use; "
               "overhead@-1 1090 400 flush; instant 1012 0 [memory]; arrow 1020 0 fwdbwd",
}


def hand_made(text: str) -> list:
    """The events of a quirk."""
    kinds, events = {"op": "cpu_op", "huge": "cpu_op", "call": "cuda_runtime", "instant": "cpu_instant_event"}, []
    shapes = {"instant": {"ph": "i", "s": "t"}, "counter": {"ph": "C"}, "arrow": {"ph": "s", "id": 60, "cat": "fwdbwd"}}
    for (kind, _, tid), (ts, dur, *rest) in ((i.split(" ")[0].partition("@"), i.split(" ")[1:]) for i in text.split("; ")):
        args = {"Comms Id": 2**64 - 1, "Sequence number": 2**63, "huge": 10**40} if kind == "huge" else {}
        device = kind in ("kernel", "gpu_memcpy", "gpu_memset", "cuda_sync")
        if device or kind == "call":
            args = {"correlation": int(rest.pop(0)), "stream": int(tid or 7)}
        name = " ".join(rest) or {"op": "aten::mm", "huge": "aten::mm", "call": "cudaLaunchKernel"}.get(kind, kind)
        if kind == "cuda_sync":  # an event wait names the call that recorded the event
            wait = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": args["correlation"] - 1} if "Wait" in name else {}
            args |= {"cuda_sync_kind": name} | wait
        event = x(kinds.get(kind, kind), name, raw(ts), raw(dur), int(tid or (7 if device else 1)), int(not device), **args)
        events.append(event | shapes.get(kind, {}))
    return events


def bad_samples() -> dict:
    """File name -> (bytes, what it pretends to be, text that the error message must hold)."""
    plain = dict(name="a", id=2, rf_id=1, parent=1, fw_parent=0, seq_id=-1, scope=0, tid=1, fw_tid=0, op_schema="", inputs=[],
                 input_shapes=[], input_types=[], outputs=[], output_shapes=[], output_types=[])
    sides, event = {"values": [], "shapes": [], "types": []}, x("cpu_op", "aten::mm", 1, 2)
    nested = {"id": 2, "name": "a", "ctrl_deps": 1, "inputs": sides, "outputs": sides, "attrs": []}
    nodes = lambda *items: json.dumps({"schema": "1.0.1", "nodes": [plain | {"id": 1}, *items]}).encode()
    events = lambda *items: json.dumps({"traceEvents": [event, *items]}).encode()
    without = lambda key: {k: v for k, v in plain.items() if k != key}
    good_et, good, packed = nodes(plain), events(event), gzip.compress(events(event), mtime=0)
    kinds = {"execution_trace": {
        "no_nodes": (b'{"schema": "1.0.1", "pid": 1}', "nodes"), "nodes_type": (b'{"schema": "1.0.1", "nodes": {}}', "/nodes"),
        "cut_off_et": (good_et[: good_et.rindex(b'"scope"')], "expected"), "duplicate_id": (nodes(plain, plain), "/nodes/2"),
        "missing_comma": (good_et.replace(b"}, {", b"} {"), "expected"),
        "cyclic_parents": (nodes(plain | {"parent": 3}, plain | {"id": 3, "parent": 2}), "cycl"),
    } | {name: (nodes(item), "/nodes/1") for name, item in {
        "node_no_object": 7, "node_no_id": without("id"), "node_no_name": without("name"), "id_type": plain | {"id": "two"},
        "parent_type": plain | {"parent": "one"}, "shapes_type": plain | {"input_shapes": 5},
        "ctrl_deps_type": nested | {"ctrl_deps": [1]}, "types_type": nested | {"inputs": sides | {"types": {}}}}.items()
    }, "kineto": {
        "cut_off_kineto": (good[: good.rindex(b'"ts"')], "expected"), "trailing_text": (good + b"more", "expected"),
        "cut_off_between": (good[: good.rindex(b', {"ph"')], "expected"), "no_trace_events": (b'{"pid": 1}', "traceEvents"),
        "trace_events_type": (b'{"traceEvents": {}}', "/traceEvents"), "event_no_object": (events([1]), "/traceEvents/1"),
        "array_element": (json.dumps([event, 3]).encode(), "/1"), "ts_type": (events(event | {"ts": "x"}), "/traceEvents/1"),
        "gzip_truncated": (packed[: len(packed) // 2], "gzip"), "gzip_checksum": (packed[:-8] + bytes(4) + packed[-4:], "gzip"),
        "gzip_body": (packed[:10] + b"\xff" * 20 + packed[30:], "gzip"),
    }, None: {name: (data, "expected") for name, data in {
        "empty": b"", "blank": b" \n\t\r\n", "not_json": b"name,ts\naten::mm,1\n", "number": b"42\n"}.items()}}
    return {f"bad_{name}.json{'.gz' * (message == 'gzip')}": (data, reads_as, message)
            for reads_as, group in kinds.items() for name, (data, message) in group.items()}


def encode(name: str, document) -> tuple:
    """(file name, bytes) of a good sample: three styles of white space, some compressed."""
    styles = {"kineto_head_last_2025": {"indent": 2}, "kineto_no_head": {"separators": (",", ":")}}
    # Kernel names with unescaped control characters and broken UTF-8 occur; gzip allows several members in a row.
    data = dump(document, **styles.get(name, {})).replace(b"BYTES", b"aten::\x01\x1f\xff\xc3( bytes")
    parts = {"kineto_gzip": 1, "et_newest": 1, "kineto_gzip_members": 2}.get(name, 0)
    packed = [gzip.compress(data[len(data) * i // parts:len(data) * (i + 1) // parts], mtime=0) for i in range(parts)]
    return (f"{name}.json.gz", b"".join(packed)) if parts else (f"{name}.json", data)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: make_samples.py OUT")
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    files, names, ops, samples = {}, defaultdict(dict), {}, {"et": et_samples(), "kineto": kineto_samples()}
    for kind, stem in [(kind, stem) for kind in samples for stem in samples[kind]]:
        file, data = encode(f"{kind}_{stem}", samples[kind][stem])
        (out / file).write_bytes(data)
        document, names[stem][kind] = parse(data), file
        files[file] = (measure_et if kind == "et" else measure_kineto)(document)
        items = document if isinstance(document, list) else document["nodes" if kind == "et" else "traceEvents"]
        ops[file] = Counter(item["name"] for item in items)
        if files[file].get("gpu_busy_us") == 0:  # `trace` accepts it, `overheads` has nothing to learn from
            files[file]["overheads_error"] = "device activity"
    for file, (data, reads_as, message) in bad_samples().items():
        (out / file).write_bytes(data)
        files[file] = {"kind": "bad", "reads_as": reads_as, "message": message}
    keys = {"external_2023": "External id"} | {
        stem: "Record function id" for stem in ("record_2024", "hip", "comms_1.1.0", "triton_1.1.1")}
    pairs = [pair | {"key": keys.get(stem, "start order"), "linked": (ops[pair["et"]] & ops[pair["kineto"]]).total()}
             for stem, pair in names.items() if len(pair) == 2]
    (out / "expected.json").write_text(json.dumps({"files": files, "pairs": pairs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
