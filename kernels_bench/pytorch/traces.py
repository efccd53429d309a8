"""Execution graphs (ET) and Kineto traces as plain Python objects. No torch needed.

Read are the layouts of docs/formats.md that torch 1.13 to 2.x write: ET flat or nested, traces as an
object with `traceEvents` or, from builds without Kineto, a bare array without categories.
"""

import bisect
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Dict, List, Tuple

from results import BadInput, load_json, statistics

OP_CATEGORIES = {"cpu_op", "Operator", "user_annotation"}
CALL_CATEGORIES = {"cuda_runtime", "cuda_driver", "Runtime"}
DEVICE_CATEGORIES = {"kernel": "kernel", "Kernel": "kernel", "gpu_memcpy": "copy", "Memcpy": "copy",
                     "gpu_memset": "set", "Memset": "set"}
STEP = "ProfilerStep"
STRUCTURAL = "[pytorch|"

# A slim trace keeps only what our readers use, and shapes. Everything else goes, including what a
# head may say about the machine.
KEPT_HEAD = ("schemaVersion", "deviceProperties", "record_shapes", "displayTimeUnit", "baseTimeNanoseconds",
             "cuda_runtime_version", "cuda_driver_version", "cupti_version")
KEPT_CATEGORIES = OP_CATEGORIES | CALL_CATEGORIES | set(DEVICE_CATEGORIES) | {"cuda_sync", "gpu_user_annotation"}
KEPT_ARGUMENTS = ("External id", "external id", "Record function id", "Sequence number", "Fwd thread id", "Ev Idx",
                  "Profiler Event Index", "Input Dims", "Input type", "Concrete Inputs", "correlation", "stream", "device",
                  "bytes", "grid", "block", "cuda_sync_kind", "wait_on_stream", "wait_on_cuda_event_record_corr_id",
                  "kernel_backend")


@dataclass
class Op:
    name: str
    thread: object
    start: float
    duration: float


@dataclass
class Call:
    name: str
    start: float
    correlation: int


@dataclass
class Work:
    """One kernel, copy or set on the device."""

    kind: str
    name: str
    start: float
    duration: float
    correlation: int
    shape: Tuple


@dataclass
class Trace:
    ops: List[Op] = field(default_factory=list)  # in start order, parents first
    calls: List[Call] = field(default_factory=list)
    work: List[Work] = field(default_factory=list)
    steps: List[Op] = field(default_factory=list)
    bare: bool = False

    def step_at(self, stamp):
        """Number of the step that contains a host stamp, or -1."""
        i = bisect.bisect_right([s.start for s in self.steps], stamp) - 1
        return i if i >= 0 and stamp < self.steps[i].start + self.steps[i].duration else -1

    def work_by_step(self):
        """Device work by the step of its launch; key -1 for work whose launch is in none."""
        launch = {c.correlation: c.start for c in self.calls}
        found = defaultdict(list)
        for work in self.work:
            start = launch.get(work.correlation)
            found[-1 if start is None else self.step_at(start)].append(work)
        return found


def is_launch(name):
    """A call that gives the device a kernel, copy, set or graph."""
    return name.startswith(("cuda", "cu", "hip")) and any(
        word in name for word in ("Launch", "Memcpy", "Memset")) and not name.endswith("LaunchHostFunc")


def is_kernel_launch(name):
    return is_launch(name) and "Kernel" in name


def read_trace(path):
    return parse_trace(load_json(path), path)


def parse_trace(document, path="trace"):
    bare = isinstance(document, list)
    events = document if bare else document.get("traceEvents") if isinstance(document, dict) else None
    if not isinstance(events, list):
        raise BadInput(f"{path}: expected a trace (traceEvents or an array)")
    trace, ops = Trace(bare=bare), []
    for place, event in enumerate(events):
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        _add_event(trace, ops, event, place)
    ops.sort(key=lambda item: item[0])
    trace.ops = [op for _, op in ops]
    trace.steps = [op for op in trace.ops if op.name.startswith(STEP)]
    return trace


def _add_event(trace, ops, event, place):
    category, name, arguments = event.get("cat"), str(event.get("name", "")), event.get("args") or {}
    start, duration = float(event.get("ts", 0)), float(event.get("dur", 0))
    if category is None or category in OP_CATEGORIES:
        order = arguments.get("Ev Idx", arguments.get("Profiler Event Index", place))
        ops.append(((start, -duration, int(order)), Op(name, event.get("tid"), start, duration)))
    elif category in CALL_CATEGORIES:
        trace.calls.append(Call(name, start, int(arguments.get("correlation", -1))))
    elif category in DEVICE_CATEGORIES:
        shape = (tuple(arguments.get("grid") or ()), tuple(arguments.get("block") or ()), arguments.get("bytes", 0))
        trace.work.append(Work(DEVICE_CATEGORIES[category], name, start, duration,
                               int(arguments.get("correlation", -1)), shape))


def read_graph(path):
    """Names per thread in start order (= id order), without the observer's own nodes and step labels."""
    document = load_json(path)
    nodes = document.get("nodes") if isinstance(document, dict) else None
    if not isinstance(nodes, list) or not nodes:
        raise BadInput(f"{path}: expected an execution graph with nodes")
    threads = defaultdict(list)
    for node in sorted(nodes, key=lambda n: int(n["id"])):
        name = str(node["name"])
        if not name.startswith((STRUCTURAL, STEP)):
            threads[_thread_of(node)].append(name)
    return dict(threads)


def _thread_of(node):
    """`tid` is a key of flat nodes and an attribute of nested ones."""
    if "tid" in node:
        return int(node["tid"])
    return next((int(a["value"]) for a in node.get("attrs", []) if a.get("name") == "tid"), 0)


def step_names(trace, number):
    """Names per thread in one step. The other threads work for the main one, which waits for them, so its
    window is theirs."""
    if not trace.steps:
        window = (float("-inf"), float("inf"))
    else:
        step = trace.steps[number]
        window = (step.start, step.start + step.duration)
    threads = defaultdict(list)
    for op in trace.ops:
        if window[0] <= op.start <= window[1] and not op.name.startswith(STEP):
            threads[op.thread].append(op.name)
    return dict(threads)


@dataclass
class Pairing:
    paired: int = 0
    only_graph: Counter = field(default_factory=Counter)
    only_trace: Counter = field(default_factory=Counter)

    @property
    def unpaired_share(self):
        lone = sum(self.only_graph.values()) + sum(self.only_trace.values())
        return lone / max(1, lone + 2 * self.paired)


def pair(graph: Dict, names: Dict) -> Pairing:
    """Pairs a graph with one step of a trace, thread by thread in start order. Threads carry other numbers in
    each file, so those go together that share most names."""
    result, left = Pairing(), dict(names)
    for ours in sorted(graph.values(), key=len, reverse=True):
        counts = Counter(ours)
        best = max(left, key=lambda t: sum((counts & Counter(left[t])).values()), default=None)
        theirs = left.pop(best) if best is not None else []
        _pair_thread(ours, theirs, result)
    for theirs in left.values():
        result.only_trace.update(theirs)
    return result


def _pair_thread(ours, theirs, result):
    """Fewest lone names that keep the order. difflib would not do: it takes the longest run first, and in a
    backward pass that repeats itself such runs pair one layer with another."""
    edits = _shortest_edits(ours, theirs)
    if edits is None:  # nothing alike: count names
        alone, others = Counter(ours), Counter(theirs)
        result.only_graph.update(alone - others)
        result.only_trace.update(others - alone)
        result.paired += sum((alone & others).values())
        return
    lone_ours, lone_theirs = edits
    result.only_graph.update(lone_ours)
    result.only_trace.update(lone_theirs)
    result.paired += len(ours) - len(lone_ours)


def _shortest_edits(a, b, most=600):
    """Names to take out of `a` and of `b` so that the same list is left (Myers 1986, O((len a + len b) D));
    None if there are more than `most`. furthest[k] is how far a path on diagonal i - j = k has come in a."""
    furthest, history = {1: 0}, []
    for d in range(min(most, len(a) + len(b)) + 1):
        history.append(dict(furthest))
        for k in range(-d, d + 1, 2):
            down = k == -d or (k != d and furthest[k - 1] < furthest[k + 1])
            i = furthest[k + 1] if down else furthest[k - 1] + 1
            while i < len(a) and i - k < len(b) and a[i] == b[i - k]:
                i += 1
            furthest[k] = i
            if i >= len(a) and i - k >= len(b):
                return _walk_back(a, b, history)
    return None


def _walk_back(a, b, history):
    """The path that `_shortest_edits` found, from its end to its begin."""
    lone_a, lone_b, i, j = [], [], len(a), len(b)
    for d in range(len(history) - 1, 0, -1):
        furthest, k = history[d], i - j
        down = k == -d or (k != d and furthest[k - 1] < furthest[k + 1])
        previous = k + 1 if down else k - 1
        i = furthest[previous]
        j = i - previous
        if down:
            lone_b.append(b[j])
        else:
            lone_a.append(a[i])
    return lone_a, lone_b


def union_us(work):
    """Time during which at least one of them runs."""
    total, end = 0.0, float("-inf")
    for item in sorted(work, key=lambda w: w.start):
        stop = item.start + item.duration
        if stop > end:
            total += stop - max(item.start, end)
            end = stop
    return total


def summary(trace):
    """Per step: host time, device time (union and sum), counts. Lists have one entry per step."""
    by_step = trace.work_by_step()
    launches = Counter(trace.step_at(c.start) for c in trace.calls if is_launch(c.name))
    steps = range(len(trace.steps))
    return {"step_us": [round(s.duration, 3) for s in trace.steps],
            "gpu_active_us": [round(union_us(by_step[i]), 3) for i in steps],
            "kernel_sum_us": [round(sum(w.duration for w in by_step[i]), 3) for i in steps],
            "kernels": [sum(w.kind == "kernel" for w in by_step[i]) for i in steps],
            "copies": [sum(w.kind == "copy" for w in by_step[i]) for i in steps],
            "sets": [sum(w.kind == "set" for w in by_step[i]) for i in steps],
            "launches": [launches[i] for i in steps],
            "ops": [sum(len(n) for n in step_names(trace, i).values()) for i in steps],
            "outside_steps": len(by_step[-1])}


def kernel_rows(trace):
    """Device work of all steps by name and launch shape, with times; kept for points without a
    trace."""
    groups = defaultdict(list)
    for number, work in trace.work_by_step().items():
        for item in work if number >= 0 else []:
            groups[(item.kind, item.name, item.shape)].append(item.duration)
    rows = []
    for (kind, name, (grid, block, size)), times in groups.items():
        rows.append({"kind": kind, "name": name, "grid": list(grid), "block": list(block), "bytes": size,
                     "per_step": len(times) / max(1, len(trace.steps)), **statistics(times)})
    return sorted(rows, key=lambda row: -row["mean_us"] * row["count"])


def slim(document):
    """A trace without what perfpredict does not read: flows, counters, frames, most arguments, the head's
    metadata. Still a Chrome trace. Times are left alone."""
    if isinstance(document, list):
        return document
    events = []
    for event in document.get("traceEvents", []):
        phase, category = event.get("ph"), event.get("cat")
        if phase == "M" and event.get("name") in ("process_name", "thread_name"):
            events.append(event)
        elif phase == "X" and category in KEPT_CATEGORIES:
            kept = {k: event[k] for k in ("ph", "cat", "name", "pid", "tid", "ts", "dur") if k in event}
            arguments = event.get("args") or {}
            kept["args"] = {k: arguments[k] for k in KEPT_ARGUMENTS if k in arguments}
            events.append(kept)
    return {**{k: document[k] for k in KEPT_HEAD if k in document}, "traceEvents": events}
