"""Parts of a test of recordings: small recordings by hand, and the expected output of commands."""

import gzip
import json
import math
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

A100 = "NVIDIA A100-SXM4-80GB"


class Recording:
    """A Kineto trace by hand. Stamps and durations are microseconds."""

    def __init__(self, gpu=A100, **head):
        self.head = {"schemaVersion": 1, **head}
        if gpu:
            self.head["deviceProperties"] = [{"id": 0, "name": gpu}, {"id": 1, "name": gpu}]
        self.events = []
        self.correlation = 100

    def event(self, category, name, ts, dur=None, pid=1000, tid=1000, phase="X", **args):
        made = {"ph": phase, "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts}
        if dur is not None:
            made["dur"] = dur
        made["args"] = args
        self.events.append(made)
        return made

    def step(self, number, ts, dur=1000, **more):
        return self.event("user_annotation", f"ProfilerStep#{number}", ts, dur, **more)

    def op(self, name, ts, dur, sizes=((512, 512), (512, 512)), **more):
        shapes = {"Input Dims": [list(s) for s in sizes], "Input type": ["float"] * len(sizes)} if sizes else {}
        return self.event("cpu_op", name, ts, dur, **shapes, **more)

    def call(self, ts, dur=8, name="cudaLaunchKernel", **args):
        """A call with a number of its own, which `kernel` takes next."""
        self.correlation += 1
        return self.event("cuda_runtime", name, ts, dur, **{"correlation": self.correlation, **args})

    def kernel(self, ts, dur=100, name="ampere_sgemm_128x64_tn", device=0, stream=7, category="kernel", **args):
        args = {"device": device, "stream": stream, "correlation": self.correlation, **args}
        return self.event(category, name, ts, dur, pid=device, tid=stream, **args)

    def launch(self, ts, dur=100, op="aten::mm", kernel="ampere_sgemm_128x64_tn", call="cudaLaunchKernel", delay=15,
               **more):
        """An op of 40 us, its launch and its kernel."""
        if op:
            self.op(op, ts, 40)
        self.call(ts + 10, name=call)
        return self.kernel(ts + 10 + delay, dur, kernel, **more)

    def steps(self, count=2, launches=4, **more):
        """Steps of 1,000 us with ops every 200 us."""
        for step in range(count):
            self.step(step + 1, 1000 * step)
            for i in range(launches):
                self.launch(1000 * step + 10 + 200 * i, **more)
        return self

    def document(self):
        return {**self.head, "traceEvents": self.events}

    def write(self, path, array=False):
        text = json.dumps(self.events if array else self.document())
        path = Path(path)
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text)
        return path


@dataclass
class Says:
    """The command succeeds; JSON pointers have these values (0.1 %), and the first warnings hold these words."""
    argv: list
    values: dict = field(default_factory=dict)
    said: list = field(default_factory=list)


@dataclass
class Refuses:
    """The command ends with 1 and one line that holds these words."""
    argv: list
    words: list


@dataclass
class Runs:
    """The command succeeds and leaves a file "{out}/..." that holds these words."""
    argv: list
    file: str = ""
    words: list = field(default_factory=list)


@dataclass
class Case:
    """Files (made by `write(folder)`, or handed ones) and what commands say of them: "{0}" is the first file."""
    kind: str
    name: str
    checks: list
    write: Callable = None
    handed: list = None


def at(document, pointer):
    for part in pointer.strip("/").split("/"):
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def same(found, expected):
    if isinstance(expected, (int, float)) and not isinstance(expected, bool) and isinstance(found, (int, float)):
        return math.isclose(found, expected, rel_tol=1e-3, abs_tol=1e-6)
    return found == expected


def complaint(program, check, files, out):
    """The mistake, in words; None: no mistake. Commands may write to the folder `out`."""
    argv = [a.format(*files, out=out) for a in check.argv]
    if isinstance(check, Says) and argv[0] in ("predict", "overheads") and "--against" not in argv:
        argv.append("--as-recorded")  # the values hold under the recording's profiler
    if isinstance(check, Says) and "--json" not in argv:
        argv.append("--json")
    done = subprocess.run([program, *argv], capture_output=True, text=True, timeout=120)
    shown = " ".join(argv)
    if isinstance(check, Refuses):
        lines = done.stderr.strip().splitlines()
        if done.returncode != 1 or len(lines) != 1:
            return f"{shown}: expected exit 1 and one line, found {done.returncode} and {done.stderr or done.stdout[:300]!r}"
        missing = [w for w in check.words if w.lower() not in lines[0].lower()]
        return f"{shown}: expected {missing} in {lines[0]!r}" if missing else None
    if done.returncode != 0:
        return f"{shown}: exit {done.returncode}: {done.stderr.strip()}"
    if isinstance(check, Runs):
        text = Path(out, check.file).read_text() if check.file else done.stdout
        missing = [w for w in check.words if w not in text]
        return f"{shown}: expected {missing} in what it wrote" if missing else None
    document = json.loads(done.stdout)
    for pointer, expected in check.values.items():
        try:
            found = at(document, pointer)
        except (KeyError, IndexError, TypeError):
            return f"{shown}: expected {pointer}, found none"
        if not same(found, expected):
            return f"{shown}: {pointer}: expected {expected}, found {found}"
    first = " | ".join(document.get("warnings", [])[:3])
    missing = [w for w in check.said if w.lower() not in first.lower()]
    return f"{shown}: expected {missing} in the first warnings: {first!r}" if missing else None
