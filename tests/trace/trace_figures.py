"""Figures of a Kineto trace, straight from the definitions in docs/traces.md.

Slow and simple on purpose: what perfpredict prints is compared with this (analysis_test.py), so nothing here
is taken from the program. Stamps are whole nanoseconds, results microseconds.
"""

import gzip
import json
from collections import defaultdict
from decimal import Decimal

DEVICE = {"kernel": "kernel", "Kernel": "kernel", "gpu_memcpy": "copy", "Memcpy": "copy",
          "gpu_memset": "set", "Memset": "set"}
CALLS = {"cuda_runtime", "cuda_driver", "Runtime", "hip_runtime"}
OPS = {"cpu_op", "Operator"}
LABELS = ("ProfilerStep", "##", "Optimizer.", "enumerate(DataLoader)", "DistributedDataParallel.",
          "nn.Module:", "[param|", "[pytorch|", "DLRM ", "CheckpointFunction",
          "autograd::engine::evaluate_function: CheckpointFunctionBackward")
LAUNCHES = {
    "cuGraphLaunch", "cuLaunchCooperativeKernel", "cuLaunchKernel", "cuLaunchKernelEx", "cuMemcpyAsync",
    "cuMemsetD32Async", "cuMemsetD8Async", "cudaGraphLaunch", "cudaLaunchCooperativeKernel", "cudaLaunchKernel",
    "cudaLaunchKernelExC", "cudaMemcpy", "cudaMemcpy2DAsync", "cudaMemcpyAsync", "cudaMemcpyPeerAsync", "cudaMemset",
    "cudaMemsetAsync", "hipExtLaunchKernel", "hipExtModuleLaunchKernel", "hipGraphLaunch",
    "hipLaunchCooperativeKernel", "hipLaunchKernel", "hipMemcpy", "hipMemcpyAsync", "hipMemcpyWithStream",
    "hipMemset", "hipMemsetAsync", "hipModuleLaunchKernel"}
QUEUE_LIMIT = 1024
KERNEL_WAIT_NS = 30_000


def nanoseconds(value):
    return int(Decimal(str(value).strip()) * 1000)


def is_collective(name):
    name = name.lower()
    return any(word in name for word in ("nccl", "rccl", "allreduce", "all_reduce"))


class Event:
    def __init__(self, raw, kind):
        self.name = raw["name"]
        self.kind = kind
        self.start = nanoseconds(raw["ts"])
        self.length = nanoseconds(raw.get("dur", 0))
        self.end = self.start + self.length
        self.thread = (str(raw["pid"]), str(raw["tid"]))
        args = raw.get("args", {})
        self.correlation = args.get("correlation")
        self.dims = args.get("Input Dims")
        self.device = args.get("device", raw["pid"])
        self.stream = args.get("stream", raw["tid"])
        self.bytes = args.get("bytes", 0)
        self.parent = self.launch = None


def load(path):
    # Numbers stay text: a double does not hold epoch stamps to the nanosecond.
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
        document = json.load(file, parse_float=Decimal)
    return document["traceEvents"] if isinstance(document, dict) else document


class Trace:
    def __init__(self, raw_events):
        self.host, self.device, self.modules = [], [], []
        for raw in raw_events:
            if raw.get("ph") != "X":
                continue
            category = raw.get("cat", "")
            if category in DEVICE:
                self.device.append(Event(raw, DEVICE[category]))
            elif category == "python_function":
                if raw["name"].startswith("nn.Module: "):
                    self.modules.append(Event(raw, "module"))
            elif category in CALLS:
                self.host.append(Event(raw, "call"))
            elif category == "user_annotation":
                self.host.append(Event(raw, "label"))
            elif category in OPS:
                self.host.append(Event(raw, "label" if raw["name"].startswith(LABELS) else "op"))
        self.link()
        self.nest()
        self.steps = self.find_steps()
        for event in self.device:
            event.step = self.step_at(event.launch.start) if event.launch else None
        for event in self.host:
            event.step = self.step_at(event.start)

    def link(self):
        calls = {}
        for event in self.host:
            if event.kind != "call" or event.correlation is None:
                continue
            if event.correlation not in calls or event.name in LAUNCHES:
                calls[event.correlation] = event
        for event in self.device:
            event.launch = calls.get(event.correlation)

    def nest(self):
        """Parent: the innermost op or label of the thread that starts no later and ends no earlier, stamps rounded to
        microseconds. A call belongs to where it starts."""
        threads = defaultdict(list)
        for order, event in enumerate(self.host):
            threads[event.thread].append((event.start, -event.length, event.kind == "call", order, event))
        for events in threads.values():
            open_ones = []
            for *_, event in sorted(events, key=lambda row: row[:4]):
                open_ones = [outer for outer in open_ones if outer.end > event.start]
                around = [outer for outer in open_ones if event.kind == "call" or event.end <= outer.end + 1000]
                event.parent = around[-1] if around else None
                if event.kind != "call":
                    open_ones.append(event)

    def find_steps(self):
        marks = [(e.start, e.end, e.name) for e in self.host if e.kind == "label" and e.name.startswith("ProfilerStep")]
        if not marks:
            ends = sorted((e.end, e.name) for e in self.host
                          if e.kind == "label" and e.name.startswith("Optimizer.step#"))
            marks = [(a[0], b[0], "after " + a[1]) for a, b in zip(ends, ends[1:])]
        return sorted(marks)

    def step_at(self, stamp):
        for index, (begin, end, _) in enumerate(self.steps):
            if begin <= stamp < end:
                return index
        return None

    def ops_around(self, event):
        """The op around an event and those around that, from the inside out; labels are passed over."""
        found, at = [], event.parent
        while at is not None:
            if at.kind == "op":
                found.append(at)
            at = at.parent
        return found


def union(intervals):
    made = []
    for begin, end in sorted(intervals):
        if end <= begin:
            continue
        if made and begin <= made[-1][1]:
            made[-1][1] = max(made[-1][1], end)
        else:
            made.append([begin, end])
    return made


def length(intervals):
    return sum(end - begin for begin, end in intervals)


def overlap(a, b):
    """Length of what is in both unions."""
    return length(union(a)) + length(union(b)) - length(union([*map(tuple, a), *map(tuple, b)]))


def breakdown(events):
    of = defaultdict(list)
    for event in events:
        kind = "comm" if event.kind == "kernel" and is_collective(event.name) else event.kind
        of[kind].append((event.start, event.end))
    compute = of["kernel"] + of["set"]
    everything = compute + of["comm"] + of["copy"]
    busy = length(union(everything))
    span = max(e for _, e in everything) - min(b for b, _ in everything) if everything else 0
    comm = length(union(of["comm"]))
    made = {"compute_us": length(union(compute)), "comm_us": comm,
            "exposed_comm_us": length(union(compute + of["comm"])) - length(union(compute)),
            "memcpy_us": length(union(of["copy"])),
            "exposed_memcpy_us": busy - length(union(compute + of["comm"])),
            "busy_us": busy, "idle_us": span - busy, "span_us": span,
            "compute_kernel_us": length(union(of["kernel"]))}
    made = {key: value / 1e3 for key, value in made.items()}
    return made, overlap(of["kernel"], of["comm"]) / comm if comm else None


def by_stream(events):
    streams = defaultdict(list)
    for event in events:
        streams[int(event.device), int(event.stream)].append(event)
    return sorted(streams.items())


def idle(events):
    rows = []
    for (device, stream), tasks in by_stream(events):
        tasks.sort(key=lambda task: task.start)
        row = {"device": device, "stream": stream, "host_wait_us": 0, "kernel_wait_us": 0, "other_us": 0}
        end = tasks[0].end
        for task in tasks[1:]:
            gap = task.start - end
            if gap > 0:
                late = task.launch is not None and task.launch.start > end
                row["host_wait_us" if late else "kernel_wait_us" if gap < KERNEL_WAIT_NS else "other_us"] += gap / 1e3
            end = max(end, task.end)
        rows.append(row)
    return rows


def queue_length(events):
    rows = []
    for (device, stream), tasks in by_stream(events):
        changes = []
        for task in tasks:
            if task.launch is not None:
                changes += [(task.launch.start, 0, 1), (task.start, 1, -1)]
        if not changes:
            continue
        changes.sort()
        level, values, full = 0, [], 0
        for i, (stamp, _, change) in enumerate(changes):
            level += change
            values.append(level)
            if level >= QUEUE_LIMIT and i + 1 < len(changes):
                full += changes[i + 1][0] - stamp
        rows.append({"device": device, "stream": stream, "changes": len(values), "mean": sum(values) / len(values),
                     "max": max(values), "at_limit_us": full / 1e3})
    return rows


def launch(events):
    starts = {}
    shorter = 0
    for event in events:
        if event.launch is None:
            continue
        shorter += event.length < event.launch.length
        starts[id(event.launch)] = (event.launch, min(event.start, starts.get(id(event.launch), (0, event.start))[1]))
    delays = sorted(max(0, start - call.end) / 1e3 for call, start in starts.values())
    if not delays:
        return {"count": 0, "shorter_than_launch": 0}
    middle = len(delays) // 2
    median = delays[middle] if len(delays) % 2 else (delays[middle - 1] + delays[middle]) / 2
    return {"count": len(delays), "delay_mean_us": sum(delays) / len(delays), "delay_median_us": median,
            "delay_max_us": delays[-1], "shorter_than_launch": shorter}


def ops(trace, events, chosen, key):
    """Rows by `key(op)`: name, or name and shapes."""
    device_self, device_total = defaultdict(int), defaultdict(int)
    kernels = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    outside = 0
    for event in events:
        around = trace.ops_around(event.launch) if event.launch is not None else []
        if not around:
            outside += event.length
            continue
        device_self[id(around[0])] += event.length
        for op in around:
            device_total[id(op)] += event.length
        if chosen(around[0]):
            cell = kernels[key(around[0])][event.name]
            cell[0] += 1
            cell[1] += event.length
    inside = defaultdict(list)
    for event in trace.host:
        around = trace.ops_around(event) if event.kind != "label" else []
        if around:
            inside[id(around[0])].append(event)
    rows = {}
    for op in trace.host:
        if op.kind != "op" or not chosen(op):
            continue
        calls = length(union([(e.start, e.end) for e in inside[id(op)] if e.kind == "call"]))
        below = sum(e.length for e in inside[id(op)] if e.kind == "op")
        row = rows.setdefault(key(op), {"count": 0, "host_self_us": 0, "host_total_us": 0, "device_self_us": 0,
                                        "device_total_us": 0})
        row["count"] += 1
        row["host_self_us"] += (op.length - below - calls) / 1e3
        row["host_total_us"] += op.length / 1e3
        row["device_self_us"] += device_self[id(op)] / 1e3
        row["device_total_us"] += device_total[id(op)] / 1e3
    for name, row in rows.items():
        row["kernels"] = {kernel: (count, sum_ns / 1e3) for kernel, (count, sum_ns) in kernels[name].items()}
    return rows, outside / 1e3


def split_steps(trace):
    """The window of each step and what its moments count for, in this order."""
    rows, before = [], None
    for index, (begin, end, name) in enumerate(trace.steps):
        launched = [e for e in trace.device if e.step == index]
        first = begin if before is None else max(begin, before)
        last = max([first, end] + [e.end for e in launched])
        before = last
        loads = [e for e in trace.host if e.name.startswith(("enumerate(DataLoader)", "enumerate(DataPipe)"))]
        parts = [("kernel_us", [e for e in trace.device if e.kind == "kernel"]),
                 ("memcpy_us", [e for e in trace.device if e.kind == "copy"]),
                 ("memset_us", [e for e in trace.device if e.kind == "set"]),
                 ("runtime_us", [e for e in trace.host if e.kind == "call"]),
                 ("data_loader_us", loads),
                 ("op_us", [e for e in trace.host if e.kind == "op" and e not in loads])]
        row, covered, so_far = {"name": name, "window_us": (last - first) / 1e3}, [], 0
        for key, events in parts:
            covered = union([*map(tuple, covered), *((max(e.start, first), min(e.end, last)) for e in events)])
            row[key] = (length(covered) - so_far) / 1e3
            so_far = length(covered)
        row["other_us"] = (last - first - so_far) / 1e3
        row["breakdown"], row["comm_overlap_fraction"] = breakdown(launched)
        rows.append(row)
    return rows


def modules(trace, events):
    rows = defaultdict(lambda: {"count": 0, "host_total_us": 0, "device_total_us": 0})
    for module in trace.modules:
        row = rows[module.name]
        row["count"] += 1
        row["host_total_us"] += module.length / 1e3
        row["device_total_us"] += sum(
            e.length for e in events
            if e.launch and e.launch.thread == module.thread and module.start <= e.launch.start < module.end) / 1e3
    return rows


def copies(events):
    rows = defaultdict(lambda: {"count": 0, "total_us": 0, "bytes": 0})
    for event in events:
        if event.kind != "kernel":
            row = rows[event.name]
            row["count"] += 1
            row["total_us"] += event.length / 1e3
            row["bytes"] += int(event.bytes)
    return rows
