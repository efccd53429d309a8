#!/usr/bin/env python3
"""Tests of kernels_bench/pytorch: check.py and table.py on made-up results, collect.py on a CPU.

    python3 collect_test.py PERFPREDICT made-up
    python3 collect_test.py PERFPREDICT torch [PYTHON]

"made-up" needs no torch. "torch" runs collect.py under PYTHON (default: this one), which must have torch.
"""

import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "kernels_bench" / "pytorch"
PERFPREDICT = PYTHON = None
BATCH, WIDTH = 64, 128
STEPS = 3


def run(*command, python=None):
    """Finished process, output as text."""
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1")
    command = [str(c) for c in command]
    return subprocess.run([python or sys.executable, *command] if command[0].endswith(".py") else command,
                          capture_output=True, text=True, env=environment, timeout=300, check=False)


def check(folder, *options):
    return run(TOOLS / "check.py", folder, *options)


def save(path, document):
    Path(path).write_bytes(gzip.compress(json.dumps(document).encode()))


class MadeGraph:
    """An execution graph of schema 1.1.1: nested layout, attributes as a list."""

    def __init__(self):
        self.nodes = []
        self.tensors = 100
        root = self.node("[pytorch|profiler|execution_trace|process]", 1)
        self.main = self.node("[pytorch|profiler|execution_trace|thread]", root)
        self.backward = self.node("[pytorch|profiler|execution_trace|thread]", root, thread=2)

    def node(self, name, parent, inputs=(), outputs=(), schema="", thread=1, scope=0, sequence=-1):
        """Inputs and outputs are triples of value, shape and type."""
        def columns(values):
            return {"values": [v[0] for v in values], "shapes": [v[1] for v in values],
                    "types": [v[2] for v in values], "strides": [[] for _ in values]}

        number = len(self.nodes) + 1
        attributes = [("rf_id", "uint64", number), ("fw_parent", "uint64", 0), ("seq_id", "int64", sequence),
                      ("scope", "uint64", scope), ("tid", "uint64", thread), ("fw_tid", "uint64", 0),
                      ("op_schema", "string", schema), ("kernel_backend", "string", ""), ("kernel_file", "string", "")]
        self.nodes.append({"id": number, "name": name, "ctrl_deps": parent,
                           "inputs": columns(inputs), "outputs": columns(outputs),
                           "attrs": [{"name": n, "type": t, "value": v} for n, t, v in attributes]})
        return number

    def tensor(self, *shape):
        self.tensors += 2
        count = 1
        for side in shape:
            count *= side
        return ([self.tensors, self.tensors + 1, 0, count, 4, "cuda:0"], list(shape), "Tensor(float)")

    def document(self):
        return {"schema": "1.1.1-chakra.0.0.4", "pid": 7, "time": "2026-01-01 00:00:00", "start_ts": 1,
                "nodes": self.nodes[::-1], "finish_ts": 2}


def made_graph():
    """ReLU of a product, and the gradient of the ReLU on the backward thread."""
    graph = MadeGraph()
    step = graph.node("ProfilerStep#0", graph.main, scope=7)
    label = graph.node("## forward ##", step, scope=7)
    x, w, y, z, g, d = (graph.tensor(BATCH, WIDTH) if i != 1 else graph.tensor(WIDTH, WIDTH) for i in range(6))
    graph.node("aten::mm", label, [x, w], [y], "aten::mm(Tensor self, Tensor mat2) -> Tensor", sequence=1)
    graph.node("aten::relu", label, [y], [z], "aten::relu(Tensor self) -> Tensor", sequence=2)
    graph.node("## backward ##", step, scope=7)
    engine = graph.node("autograd::engine::evaluate_function: ReluBackward0", graph.backward, thread=2)
    outer = graph.node("ReluBackward0", engine, [g], [d], thread=2, scope=1, sequence=2)
    graph.node("aten::threshold_backward", outer, [g, z, (0, [], "Int")], [d],
               "aten::threshold_backward(Tensor grad_output, Tensor self, Scalar threshold) -> Tensor", thread=2)
    return graph.document()


def made_trace():
    """Three steps of the same program: ops, launches, kernels."""
    events, correlation = [], 0

    def host(category, name, start, duration, thread=11, **arguments):
        events.append({"ph": "X", "cat": category, "name": name, "pid": 7, "tid": thread, "ts": start,
                       "dur": duration, "args": {"Ev Idx": len(events), **arguments}})

    def op(name, start, kernel=None, thread=11, duration=20.0):
        nonlocal correlation
        host("cpu_op", name, start, duration, thread)
        if kernel:
            correlation += 1
            host("cuda_runtime", "cudaLaunchKernel", start + 8, 5.0, thread, correlation=correlation)
            events.append({"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 7, "ts": start + 15.0,
                           "dur": 6.5, "args": {"correlation": correlation, "device": 0, "stream": 7, "grid": [4, 1, 1],
                                    "block": [128, 1, 1], "registers per thread": 32}})

    for number in range(STEPS):
        start = 1000.0 + 200 * number
        host("user_annotation", f"ProfilerStep#{number + 1}", start, 190.0)
        host("user_annotation", "## forward ##", start + 5, 70.0)
        op("aten::mm", start + 10, "sgemm_128x64_nn")
        op("aten::relu", start + 40, "elementwise_relu")
        host("user_annotation", "## backward ##", start + 80, 100.0)
        op("autograd::engine::evaluate_function: ReluBackward0", start + 85, thread=12, duration=60.0)
        op("ReluBackward0", start + 90, thread=12, duration=50.0)
        op("aten::threshold_backward", start + 95, "elementwise_threshold", thread=12)
        events.append({"ph": "s", "cat": "ac2g", "name": "ac2g", "id": number, "pid": 7, "tid": 11, "ts": start})
    return {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB"}],
            "baseTimeNanoseconds": 0, "host_name": "secret", "traceEvents": events}


def made_times(median, spread=0.02):
    one = {"median_us": median, "p10_us": median * (1 - spread / 2), "p90_us": median * (1 + spread / 2),
           "mean_us": median, "spread": spread, "count": 20}
    return {"free": {"device": one, "host": one, "wall_us": median}, "synced": {"wall": one, "device": one}}


def made_folder(folder, graph=None, trace=None, spread=0.02):
    """Results of two batches, one of them kept for testing."""
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    points = []
    for batch, split in ((16, "train"), (32, "test")):
        key = f"resnet50-b{batch}"
        save(folder / f"{key}.et.json.gz", graph or made_graph())
        save(folder / f"{key}.kineto.json.gz", trace or made_trace())
        points.append({"key": key, "workload": "resnet50", "batch": batch, "tier": 1, "split": split, "run": 0,
                       "status": "ok", "loss": 1.5, "failed": {}, "times": made_times(180.0, spread),
                       "trace": {"gpu_active_us": [19.5] * STEPS, "kernel_sum_us": [19.5] * STEPS},
                       "files": {"et": f"{key}.et.json.gz", "kineto": f"{key}.kineto.json.gz"}})
    (folder / "index.json").write_text(json.dumps(
        {"schema": "perfmodel-measurements", "version": 1, "gpu": "a100-sxm-40gb", "scale": "full", "runs": [{}],
         "points": points}))
    return folder


class Scratch(unittest.TestCase):
    def setUp(self):
        self._scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self._scratch.cleanup)
        self.scratch = Path(self._scratch.name)

    def assert_one_line(self, done, *parts, status=1):
        """The exit status, one line on stderr and what it says."""
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertEqual(len(done.stderr.strip().split("\n")), 1, done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)


class CheckMadeUpResults(Scratch):
    def folder(self, **changes):
        return made_folder(self.scratch / "gpu", **changes)

    def assert_problem(self, folder, *parts):
        """Both points have it."""
        done = check(folder)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        lines = done.stderr.strip().split("\n")
        for key in ("resnet50-b16", "resnet50-b32"):
            self.assertTrue(any(key in line and all(p in line for p in parts) for line in lines), done.stderr)

    def test_sound_results_pass_and_the_rest_of_the_campaign_is_missing(self):
        done = check(self.folder())
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stderr)
        row = next(line for line in done.stdout.split("\n") if line.startswith("resnet50-b16"))
        self.assertEqual(row.split(), ["resnet50-b16", "train", "0.180", "0.020", "1.06", "7", "0", "3"])
        self.assertIn("tier 1: 22 of 24 points", done.stdout)

    def test_missing_kernel(self):
        trace = made_trace()
        trace["traceEvents"] = [e for e in trace["traceEvents"]
                                if e["cat"] != "kernel" or e["args"]["correlation"] != 5]
        folder = self.folder(trace=trace)
        self.assert_problem(folder, "launches without a kernel: cudaLaunchKernel (1)")
        self.assert_problem(folder, "steps differ in kernels: [3, 2, 3]")

    def test_kernel_without_launch(self):
        trace = made_trace()
        trace["traceEvents"] = [e for e in trace["traceEvents"]
                                if e["cat"] != "cuda_runtime" or e["args"]["correlation"] != 5]
        self.assert_problem(self.folder(trace=trace), "device work without a launch: elementwise_relu (1)")

    def test_op_missing_in_the_graph(self):
        graph = made_graph()
        graph["nodes"] = [n for n in graph["nodes"] if n["name"] != "aten::relu"]
        self.assert_problem(self.folder(graph=graph), "only in the trace: aten::relu (1)")

    def test_op_missing_in_the_trace(self):
        trace = made_trace()
        trace["traceEvents"] = [e for e in trace["traceEvents"] if e["name"] != "ReluBackward0"]
        self.assert_problem(self.folder(trace=trace), "only in the graph: ReluBackward0 (1)")

    def test_op_missing_in_one_step(self):
        trace = made_trace()
        trace["traceEvents"].remove(next(e for e in trace["traceEvents"] if e["name"] == "ReluBackward0"))
        self.assert_problem(self.folder(trace=trace), "steps differ in ops: [6, 7, 7]")

    def test_swapped_ops_are_lone(self):
        trace = made_trace()
        for event in trace["traceEvents"]:
            event["name"] = {"aten::mm": "aten::relu", "aten::relu": "aten::mm"}.get(event["name"], event["name"])
        self.assert_problem(self.folder(trace=trace), "stand alone")

    def test_truncated_file(self):
        folder = self.folder()
        path = folder / "resnet50-b32.kineto.json.gz"
        path.write_bytes(path.read_bytes()[:200])
        self.assert_one_line(check(folder), "resnet50-b32.kineto.json.gz: cannot be read")

    def test_file_that_is_gone(self):
        folder = self.folder()
        (folder / "resnet50-b16.et.json.gz").unlink()
        self.assert_one_line(check(folder), "resnet50-b16.et.json.gz: no such file")

    def test_too_much_noise(self):
        folder = self.folder(spread=0.3)
        self.assert_problem(folder, "(p90 - p10) / median is 0.3, expected at most 0.15")
        self.assertEqual(check(folder, "--noise", 0.4).returncode, 0)

    def test_step_slower_or_faster_under_the_profiler(self):
        folder = self.folder()
        self.assertEqual(check(folder, "--ratio", 1.1, 2).returncode, 1)
        self.assertEqual(check(folder, "--ratio", 1.0, 1.1).returncode, 0)

    def test_no_device_work(self):
        trace = made_trace()
        trace["traceEvents"] = [e for e in trace["traceEvents"] if e["cat"] in ("cpu_op", "user_annotation")]
        self.assert_problem(self.folder(trace=trace), "no device work")

    def test_failed_points_are_missing_not_broken(self):
        folder = self.folder()
        index = json.loads((folder / "index.json").read_text())
        index["points"][0]["failed"] = {"memory": "AttributeError: none"}
        index["points"].append({"key": "dlrm-default-b512", "workload": "dlrm-default", "batch": 512, "split": "train",
                                "status": "out-of-memory", "error": "no room", "files": {}})
        (folder / "index.json").write_text(json.dumps(index))
        done = check(folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("dlrm-default-b512: out-of-memory", done.stdout)
        self.assertIn("resnet50-b16: no memory: AttributeError: none", done.stdout)

    def test_bad_index(self):
        self.assert_one_line(check(self.scratch), "index.json: no such file")
        (self.scratch / "index.json").write_text('{"schema": "other"}')
        self.assert_one_line(check(self.scratch), "expected schema perfmodel-measurements version 1")
        (self.scratch / "index.json").write_text('{"schema"')
        self.assert_one_line(check(self.scratch), "cannot be read")


class TablesOfMadeUpResults(Scratch):
    def test_measured_alone(self):
        done = run(TOOLS / "table.py", made_folder(self.scratch / "gpu"))
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stderr)
        self.assertIn(["resnet50-b32", "test", "0.180", "0.019", "0.019"],
                      [line.split() for line in done.stdout.split("\n")])

    def test_errors_of_predictions(self):
        rows = self.scratch / "rows.json"
        done = run(TOOLS / "table.py", made_folder(self.scratch / "gpu"), "--perfpredict", PERFPREDICT, "--json", rows)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stderr)
        for row in json.loads(rows.read_text())["rows"]:
            errors = row["errors"]
            self.assertTrue(all(-1 < e for e in errors.values()), errors)
            # The same kernels over a longer time: (1 + sum/step) 180 us = (1 + kernels) 19.5 us.
            self.assertAlmostEqual((1 + errors["sum/step"]) * 180, (1 + errors["kernels"]) * 19.5)
            # Both tables hold the same program; its host time is what is measured here.
            self.assertAlmostEqual(errors["own"], errors["shared"])
            self.assertLess(abs(errors["own"]), 0.5)
        self.assertRegex(done.stdout, r"\ntest +1 ")

    def test_what_the_program_says_is_passed_on(self):
        folder = made_folder(self.scratch / "gpu")
        done = run(TOOLS / "table.py", folder, "--perfpredict", PERFPREDICT, "--gpu", "abacus")
        self.assert_one_line(done, "table.py: perfpredict: ", "abacus")

    def test_shared_overheads(self):
        table = self.scratch / "overheads.json"
        folder = made_folder(self.scratch / "gpu")
        done = run(TOOLS / "table.py", folder, "--perfpredict", PERFPREDICT, "--overheads", table)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        kept_aside = [f for f in json.loads(table.read_text())["sources"] if "resnet50-b32" in f]
        self.assertEqual(kept_aside, [])  # a test point

    def test_shared_overheads_of_nothing(self):
        folder = made_folder(self.scratch / "gpu")
        index = json.loads((folder / "index.json").read_text())
        for point in index["points"]:
            point["split"] = "test"
        (folder / "index.json").write_text(json.dumps(index))
        done = run(TOOLS / "table.py", folder, "--perfpredict", PERFPREDICT, "--overheads", self.scratch / "o.json")
        self.assert_one_line(done, "no trace beside those kept for testing")
        self.assertFalse((self.scratch / "o.json").exists())

    def test_no_program(self):
        done = run(TOOLS / "table.py", made_folder(self.scratch / "gpu"), "--perfpredict", self.scratch / "none")
        self.assert_one_line(done, "No such file")


class TracePieces(unittest.TestCase):
    """Functions of traces.py, campaign.py and results.py."""

    def test_slim_traces_keep_what_is_read(self):
        document = made_trace()
        slim = traces.slim(document)
        self.assertNotIn("host_name", slim)
        self.assertFalse([e for e in slim["traceEvents"] if e["ph"] != "X" or "registers per thread" in e["args"]])
        self.assertEqual(traces.parse_trace(slim), traces.parse_trace(document))

    def test_summary_and_kernels(self):
        trace = traces.parse_trace(made_trace())
        summary = traces.summary(trace)
        self.assertEqual(summary["gpu_active_us"], [19.5] * STEPS)
        self.assertEqual(summary["launches"], [3] * STEPS)
        rows = traces.kernel_rows(trace)
        self.assertEqual({r["name"] for r in rows}, {"sgemm_128x64_nn", "elementwise_relu", "elementwise_threshold"})
        self.assertEqual({(r["per_step"], r["mean_us"], tuple(r["grid"])) for r in rows}, {(1.0, 6.5, (4, 1, 1))})

    def test_overlapping_work_counts_once(self):
        work = [traces.Work("kernel", "a", start, 10.0, 1, ()) for start in (0.0, 5.0, 30.0)]
        self.assertEqual(traces.union_us(work), 25.0)

    def test_pairing_keeps_the_order(self):
        pairing = traces.pair({1: list("abcabcabd")}, {9: list("abcbcabcad")})
        # Without the second a of the graph, and b and c of the trace, both read abcbcabd less one more each.
        self.assertEqual(len("abcabcabd") - pairing.paired, sum(pairing.only_graph.values()))
        self.assertEqual(pairing.paired, 8)

    def test_fifth_of_the_campaign_is_kept_for_testing(self):
        # Other batches of later tiers go by their hash alone.
        points = {(w.name.split(".")[0], b) for w in campaign.WORKLOADS if w.tier <= 3 for b in w.batches}
        kept = [p for p in points if campaign.split_of(*p) == "test"]
        self.assertAlmostEqual(len(kept) / len(points), 0.2, delta=0.02)
        self.assertEqual(campaign.split_of("resnet50", 16), campaign.split_of("resnet50.bf16", 16))
        # The split is fixed: a change here would let fits see what they are judged by.
        self.assertIn(("dlrm-default", 4096), kept)
        self.assertIn(("resnet50", 16), kept)

    def test_names_are_unique_and_fit_files(self):
        names = [w.name for w in campaign.WORKLOADS]
        self.assertEqual(len(names), len(set(names)))
        for name in names:
            self.assertRegex(name, r"^[a-z0-9.-]+$")

    def test_statistics(self):
        found = results.statistics([float(i) for i in range(11)])
        self.assertEqual((found["median_us"], found["p10_us"], found["p90_us"]), (5.0, 1.0, 9.0))
        self.assertEqual(found["spread"], 1.6)
        self.assertIsNone(results.statistics([]))


# torch.cuda without a GPU: names, clocks, a memory counter that grows by 1000 a call, models on the CPU.
STAND_INS = """
import itertools, os, sys, time, types
import torch
class Event:
    def __init__(self, enable_timing): assert enable_timing
    def record(self): self.at = time.perf_counter()
    def elapsed_time(self, end): return (end.at - self.at) * 1e3
allocated = itertools.count(0, 1000)
properties = types.SimpleNamespace(major=9, minor=0, multi_processor_count=132, total_memory=141 * 10**9, uuid="1-2")
for name, value in dict(is_available=lambda: True, set_device=lambda d: None, synchronize=lambda: None, Event=Event,
                        get_device_name=lambda d: "NVIDIA H200", get_device_properties=lambda d: properties,
                        memory_allocated=lambda: next(allocated), reset_peak_memory_stats=lambda: None,
                        max_memory_allocated=lambda: 1, max_memory_reserved=lambda: 2,
                        empty_cache=lambda: None).items():
    setattr(torch.cuda, name, value)
os.environ["PATH"] = {path!r} + ":" + os.environ["PATH"]
sys.path.insert(0, {tools!r})
import collect, measure, workloads
make = workloads.make
workloads.make = lambda w, b, device, tiny, seed: make(w, b, "cpu", tiny, seed)
measure.activities = lambda device: [torch.profiler.ProfilerActivity.CPU]
torch.profiler.kineto_available = lambda: True  # the schedule of newer torch
sys.exit(collect.main())
"""


class CollectOnCpu(Scratch):
    """collect.py with a real torch."""

    def collect(self, *options, out=None):
        return run(TOOLS / "collect.py", "--out", out or self.scratch / "out", "--device", "cpu", "--scale", "tiny",
                   "--threads", 1, *options, python=PYTHON)

    def index(self):
        return json.loads((self.scratch / "out" / "cpu" / "index.json").read_text())

    def statuses(self):
        return {p["key"]: p["status"] for p in self.index()["points"]}

    def test_dlrm_from_collecting_to_predicting(self):
        done = self.collect("--workload", "dlrm-default", "--batch", 4)
        self.assertEqual(done.returncode, 0, done.stderr)
        folder = self.scratch / "out" / "cpu"
        point = self.index()["points"][0]
        self.assertEqual((point["key"], point["status"], point["failed"]), ("dlrm-default-b4", "ok", {}))
        self.assertEqual(set(point["files"]), {"times", "et", "kineto"})
        self.assertFalse(list(folder.glob("*.partial")))
        self.assertNotIn(str(self.scratch), json.dumps(self.index()))

        # The CPU may be shared: no limit on noise. The profiler of torch 1.13 without Kineto leaves
        # some ops out, 1.5 to 2.5 % with those that then pair differently.
        done = check(folder, "--noise", 1000, "--ratio", 0.001, 1000, "--unpaired", 0.05)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stderr)
        row = next(line for line in done.stdout.split("\n") if line.startswith("dlrm-default-b4")).split()
        self.assertGreater(int(row[5]), 500)  # ops paired by name and order
        if int(row[6]):
            self.assertIn("dlrm-default-b4: only in the graph: ", done.stdout)

        trace, graph = (folder / point["files"][name] for name in ("kineto", "et"))
        done = run(PERFPREDICT, "trace", trace, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(json.loads(done.stdout)["iterations"]), STEPS)
        done = run(PERFPREDICT, "overheads", trace, "--graph", graph, "-o", self.scratch / "table.json")
        self.assert_one_line(done, "expected device activity, found none")
        done = run(PERFPREDICT, "predict", graph, "--gpu", "a100-sxm-40gb")
        self.assertEqual(done.returncode, 1)  # a CPU's recording is asked for a GPU first
        self.assertIn("rewrite --retarget", done.stderr)
        on_gpu = self.scratch / "on_gpu.json"
        done = run(PERFPREDICT, "rewrite", graph, "--retarget", "nvidia", "-o", on_gpu)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = run(PERFPREDICT, "predict", on_gpu, "--gpu", "a100-sxm-40gb", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        prediction = json.loads(done.stdout)
        self.assertEqual([i["name"] for i in prediction["iterations"]], ["ProfilerStep#0"])
        self.assertGreater(prediction["e2e_us"], 0)

    def kill_after(self, lines, *options):
        """Starts collect.py and kills it some time after the point that ends with this line of output."""
        command = [PYTHON, TOOLS / "collect.py", "--out", self.scratch / "out", "--device", "cpu", "--scale", "tiny",
                   "--threads", "1", *options]
        environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
        with subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              env=environment) as process:
            for _ in range(lines):
                process.stdout.readline()
            time.sleep(0.05)
            process.send_signal(signal.SIGKILL)
        return self.index()["points"]

    def test_killed_run_resumes(self):
        """Killed in the first pass and in the second: what is there is kept, the rest follows."""
        options = ("--workload", "lstm-256x1", "--batch", 2, 4, 6)
        first = self.kill_after(1, *options)
        self.assertTrue(1 <= len(first) < 3, first)
        second = self.kill_after(4 - len(first), *options)
        self.assertEqual(len(second), 3)
        self.assertTrue(0 < sum(p["traced"] for p in second) < 3, second)
        (self.scratch / "out" / "cpu" / "lstm-256x1-b6.et.json.gz.partial").write_text("left behind")
        done = self.collect(*options)
        self.assertEqual(done.returncode, 0, done.stderr)
        last = self.index()["points"]
        self.assertEqual([p["times"] for p in last], [p["times"] for p in second])
        self.assertEqual([p["times"] for p in last[:len(first)]], [p["times"] for p in first])
        self.assertEqual([(p["status"], p["traced"]) for p in last], [("ok", True)] * 3)
        self.assertFalse(list((self.scratch / "out" / "cpu").glob("*.partial")))
        # Everything is there: nothing is measured again.
        self.collect(*options)
        self.assertEqual(self.index()["points"], last)

    def test_failing_workloads_do_not_end_the_run(self):
        done = self.collect("--workload", "self-test-raises", "self-test-memory", "lstm-256x1", "--batch", 4)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.statuses(), {"self-test-raises-b4": "error", "self-test-memory-b4": "out-of-memory",
                                           "lstm-256x1-b4": "ok"})
        self.assertEqual(self.index()["points"][0]["error"], "ValueError: this workload raises on purpose")
        # Skipped from then on, unless asked for.
        self.assertNotIn("self-test", self.collect("--workload", "self-test-raises").stdout)
        self.assertIn("self-test", self.collect("--workload", "self-test-raises", "--retry-errors").stdout)

    def test_failing_part_does_not_cost_the_times(self):
        """A torch without its execution-trace observer."""
        code = ("import sys, torch.profiler as p\n"
                "for n in ('ExecutionTraceObserver', 'ExecutionGraphObserver'):\n"
                "    if hasattr(p, n): delattr(p, n)\n"
                f"sys.path.insert(0, {str(TOOLS)!r}); sys.argv[0] = 'collect.py'\n"
                "import collect; sys.exit(collect.main())\n")
        script = self.scratch / "without_observer.py"
        script.write_text(code)
        done = run(script, "--out", self.scratch / "out", "--device", "cpu", "--scale", "tiny", "--threads", 1,
                   "--workload", "lstm-256x1", "--batch", 4, python=PYTHON)
        self.assertEqual(done.returncode, 0, done.stderr)
        point = self.index()["points"][0]
        self.assertEqual((point["status"], list(point["failed"])), ("ok", ["et"]))
        self.assertEqual(set(point["files"]), {"times", "kineto"})

    def test_gpu_code_with_stand_ins(self):
        """No GPU here: torch.cuda and nvidia-smi are stand-ins, models stay on the CPU. This runs the code of
        GPU runs; it says nothing about what a GPU would answer."""
        smi = self.scratch / "nvidia-smi"
        smi.write_text("#!/bin/sh\necho 570.1, 1980, 3201, 1980, 3201, 650.5, 60\n")
        smi.chmod(0o755)
        script = self.scratch / "stand_ins.py"
        script.write_text(STAND_INS.format(tools=str(TOOLS), path=str(self.scratch)))
        done = run(script, "--out", self.scratch / "out", "--scale", "tiny", "--threads", 1,
                   "--workload", "dlrm-default", "self-test-memory", "--batch", 4, python=PYTHON)
        self.assertEqual(done.returncode, 0, done.stderr)
        index = json.loads((self.scratch / "out" / "h200-sxm-141gb" / "index.json").read_text())
        self.assertEqual((index["gpu"], index["runs"][0]["smi"]["driver_version"]), ("h200-sxm-141gb", "570.1"))
        point, memory = index["points"]
        self.assertEqual((point["status"], point["failed"], memory["status"]), ("ok", {}, "out-of-memory"))
        self.assertEqual(point["clocks"]["clocks.sm"], "1980")
        for kind in ("free", "synced"):
            self.assertGreater(point["times"][kind]["device"]["median_us"], 0)
        self.assertEqual(point["memory"]["activations_bytes"], 1000)
        self.assertEqual(set(point["files"]), {"times", "et", "kineto"})
        self.assertEqual(len(point["trace"]["step_us"]), STEPS)

    def test_small_variants(self):
        """Variants of plain fp32 training: unsupported ones say so."""
        done = self.collect("--batch", 2, "--workload", "resnet50.bf16", "bert-base-384.checkpoint",
                            "bert-base-384.compile", "gpt2-small-512.adam-foreach", "dlrm-default.adagrad",
                            "dlrm-mix26-batched", "lstm-cells-512x2", "transformer-base")
        self.assertEqual(done.returncode, 0, done.stderr)
        for key, status in self.statuses().items():
            self.assertIn(status, ("ok", "unsupported"), key)
        self.assertEqual(self.statuses()["dlrm-mix26-batched-b2"], "ok")
        adagrad = next(p for p in self.index()["points"] if p["workload"] == "dlrm-default.adagrad")
        self.assertGreater(adagrad["memory"]["optimizer_bytes"], 0)

    def test_budget(self):
        done = self.collect("--workload", "lstm-256x1", "--budget", 1)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("stopped before lstm-256x1-b4", done.stdout)

    def test_folder_that_is_full_keeps_times(self):
        done = self.collect("--workload", "lstm-256x1", "--batch", 4, "--max-mb", 0.001)
        self.assertEqual(done.returncode, 0, done.stderr)
        point = self.index()["points"][0]
        self.assertEqual((set(point["files"]), set(point["failed"])), ({"times"}, {"et", "kineto"}))

    def test_one_line_for_what_a_user_can_mend(self):
        self.assert_one_line(self.collect("--workload", "resnet51"), "unknown workload resnet51")
        self.assert_one_line(self.collect("--tier", 9), "no workload in tier 9")
        self.assert_one_line(self.collect("--batch", 0), "--batch: expected positive numbers, found 0")
        (self.scratch / "file").write_text("")
        self.assert_one_line(self.collect("--workload", "lstm-256x1", out=self.scratch / "file"), "cannot be written")
        self.assertEqual(self.collect("--workload", "lstm-256x1", "--budget", 0).returncode, 0)
        (self.scratch / "out" / "cpu" / "index.json").write_text("{")
        self.assert_one_line(self.collect("--workload", "lstm-256x1"), "index.json: cannot be read")

    def test_single_ops_are_rows_that_the_program_prices(self):
        command = (TOOLS / "sweep_ops.py", "--out", self.scratch / "out", "--device", "cpu", "--scale", "tiny", "--count", 60)
        done = run(*command, python=PYTHON)
        self.assertEqual(done.returncode, 0, done.stderr)
        table = self.scratch / "out" / "cpu" / "ops.csv"
        rows = table.read_text()
        self.assertGreaterEqual(rows.count("\n"), 8)
        priced = run(PERFPREDICT, "kernels", table, "--gpu", "h200-sxm-141gb", "-o", self.scratch / "prices.csv")
        self.assertEqual(priced.returncode, 0, priced.stderr)
        self.assertEqual(run(*command, python=PYTHON).returncode, 0)
        self.assertEqual(table.read_text(), rows)  # a second run goes on, and finds nothing to do

    def test_sweeps_along_one_size_are_priced_too(self):
        for sweep in ("fine", "warm"):
            done = run(TOOLS / "sweep_ops.py", "--out", self.scratch / "out", "--device", "cpu", "--scale", "tiny", "--sweep",
                       sweep, python=PYTHON)
            self.assertEqual(done.returncode, 0, done.stderr)
            table = self.scratch / "out" / "cpu" / f"ops_{sweep}.csv"
            self.assertGreater(table.read_text().count("\n"), 200)
            priced = run(PERFPREDICT, "kernels", table, "--gpu", "h200-sxm-141gb", "-o", self.scratch / "prices.csv")
            self.assertEqual(priced.returncode, 0, priced.stderr)

    def test_each_way_of_watching_has_a_row(self):
        done = run(TOOLS / "profiler_cost.py", "--out", self.scratch / "out", "--device", "cpu", "--scale", "tiny", "--programs",
                   1, python=PYTHON)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads((self.scratch / "out" / "cpu" / "profiler_cost.json").read_text())["rows"]
        self.assertEqual((rows[0]["way"], rows[-1]["way"], len(rows)), ("free", "free again", 8))
        self.assertTrue(all(row.get("wall_us", 0) > 0 for row in rows), rows)
        self.assertGreater(rows[2]["events_per_step"], 100)

    def test_full_scale_does_not_mix_with_tiny(self):
        self.collect("--workload", "lstm-256x1", "--budget", 0)
        done = run(TOOLS / "collect.py", "--out", self.scratch / "out", "--device", "cpu", "--budget", 0, python=PYTHON)
        self.assert_one_line(done, "found cpu and tiny")


def main():
    global PERFPREDICT, PYTHON, campaign, results, traces
    if len(sys.argv) < 3 or sys.argv[2] not in ("made-up", "torch"):
        sys.exit(__doc__)
    PERFPREDICT = str(Path(sys.argv[1]).resolve())
    PYTHON = sys.argv[3] if len(sys.argv) > 3 else sys.executable
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(TOOLS))
    import campaign  # pylint: disable=import-outside-toplevel
    import results
    import traces
    cases = [CollectOnCpu] if sys.argv[2] == "torch" else [CheckMadeUpResults, TablesOfMadeUpResults, TracePieces]
    suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromTestCase(case) for case in cases)
    sys.exit(0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1)


if __name__ == "__main__":
    main()
