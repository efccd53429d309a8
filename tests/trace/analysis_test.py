#!/usr/bin/env python3
"""`perfpredict trace --json` against trace_figures.py, on every public Kineto trace, to the microsecond.

    analysis_test.py PERFPREDICT

Exit 77 where PERFMODEL_PUBLIC_DATA does not name the public data.
"""

import gzip
import json
import os
import subprocess
import sys
import tempfile
import unittest
from collections import defaultdict
from pathlib import Path

import trace_figures as figures

PERFPREDICT = Path(sys.argv[1])
PUBLIC = os.environ.get("PERFMODEL_PUBLIC_DATA")
TRACES = sorted(Path(PUBLIC, "traces").glob("*_kineto.json.gz")) if PUBLIC else []
NEAR = 0.0011  # the program prints nanoseconds, rounded

# Overlap of communication that Holistic Trace Analysis 0.6.1 prints; it leaves out the last of several steps, and
# rounds starts up and ends down to whole microseconds.
HTA_OVERLAP = {"rm_8gpu_a100_rank3_kineto": ("0:5", 0.4703), "resnet50_ddp_2gpu_a100_kineto": ("0:2", 0.1431),
               "dlrm_v100_rank0of8_kineto": (None, 0.045)}
# Its idle times of one stream, in microseconds: host wait, kernel wait, other.
HTA_IDLE = {"rm_8gpu_a100_rank3_kineto": ("0:5", 7, (102154, 14226, 32183)),
            "dlrm_v100_rank0of8_kineto": (None, 7, (11448, 123, 0))}


def analysed(trace, *options):
    done = subprocess.run([PERFPREDICT, "trace", trace, "--json", *options], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def trace_named(name):
    return next(path for path in TRACES if path.name == name + ".json.gz")


class Analysis(unittest.TestCase):
    def same(self, row, expected, what):
        for key, value in expected.items():
            if isinstance(value, (dict, list)):
                continue
            if isinstance(value, float):
                self.assertAlmostEqual(row[key], value, delta=max(NEAR, 2e-6 * abs(value)), msg=f"{what} {key}")
            else:
                self.assertEqual(row[key], value, f"{what} {key}")

    def check(self, path, trace, window):
        options = ["--iterations", f"{window[0]}:{window[1]}"] if window else []
        found = analysed(path, *options)

        def inside(event):
            return window is None or (event.step is not None and window[0] <= event.step < window[1])

        events = [e for e in trace.device if inside(e)]
        parts, share = figures.breakdown(events)
        self.same(found["breakdown"], parts, "breakdown")
        self.same(found, {"comm_overlap_fraction": share}, "trace")
        self.assertAlmostEqual(
            sum(found["breakdown"][k] for k in ("compute_us", "exposed_comm_us", "exposed_memcpy_us", "idle_us")),
            found["breakdown"]["span_us"], delta=4 * NEAR)
        for table in ("idle", "queue_length"):
            expected = getattr(figures, table)(events)
            self.assertEqual(len(found[table]), len(expected), table)
            for row, other in zip(found[table], expected):
                self.same(row, other, table)
        self.same(found["launch"], figures.launch(events), "launch")
        expected = figures.copies(events)
        self.assertEqual({row["kind"] for row in found["copies"]}, set(expected))
        for row in found["copies"]:
            self.same(row, expected[row["kind"]], row["kind"])
        if window is None:
            expected = figures.modules(trace, events)
            self.assertEqual({row["name"] for row in found["modules"]}, set(expected))
            for row in found["modules"]:
                self.same(row, expected[row["name"]], row["name"])
        self.check_ops(found, trace, events, inside)

    def check_ops(self, found, trace, events, inside):
        def shapes(op):
            return (op.name, json.dumps(op.dims))

        expected, outside = figures.ops(trace, events, inside, lambda op: op.name)
        self.assertAlmostEqual(found["device_outside_ops_us"], outside, delta=NEAR)
        rows = {row["name"]: row for row in found["ops"]}
        self.assertEqual(len(rows), len(found["ops"]))
        tables = [(rows, expected)]
        if any(op.dims is not None for op in trace.host if op.kind == "op" and inside(op)):
            by_shape = {(row["name"], json.dumps(row["shapes"])): row for row in found["ops_by_shape"]}
            tables.append((by_shape, figures.ops(trace, events, inside, shapes)[0]))
        else:
            self.assertEqual(found["ops_by_shape"], [])
        for rows, expected in tables:
            self.assertEqual(set(rows), set(expected))
            for name, row in rows.items():
                self.same(row, expected[name], name)
                kernels = {k["name"]: (k["count"], k["total_us"]) for k in row["kernels"]}
                self.assertEqual(set(kernels), set(expected[name]["kernels"]), name)
                for kernel, (count, us) in kernels.items():
                    self.assertEqual(count, expected[name]["kernels"][kernel][0], kernel)
                    self.assertAlmostEqual(us, expected[name]["kernels"][kernel][1], delta=NEAR)

    def test_whole_traces(self):
        self.assertGreater(len(TRACES), 10)
        for path in TRACES:
            with self.subTest(path.name):
                self.check(path, figures.Trace(figures.load(path)), None)

    def test_windows_and_splits(self):
        for name in ("resnet50_ddp_2gpu_a100_kineto", "minitoy_train_mi250_rocm62_kineto",
                     "bert_small_infer_h100_torch26_kineto", "dlrm_v100_rank1of8_kineto"):
            path = trace_named(name)
            trace = figures.Trace(figures.load(path))
            with self.subTest(name):
                if len(trace.steps) > 1:
                    self.check(path, trace, (1, 2))
                found = analysed(path)
                expected = figures.split_steps(trace)
                self.assertEqual(len(found["iterations"]), len(expected))
                for row, other in zip(found["iterations"], expected):
                    self.same(row, other, row["name"])
                    self.same(row["breakdown"], other["breakdown"], row["name"])
                    parts = [row[k] for k in ("kernel_us", "memcpy_us", "memset_us", "runtime_us", "data_loader_us",
                                              "op_us", "other_us")]
                    self.assertAlmostEqual(sum(parts), row["window_us"], delta=7 * NEAR)

    def test_figures_of_holistic_trace_analysis(self):
        for name, (window, share) in HTA_OVERLAP.items():
            found = analysed(trace_named(name), *(["--iterations", window] if window else []))
            self.assertAlmostEqual(found["comm_overlap_fraction"], share, delta=0.01, msg=name)
        for name, (window, stream, waits) in HTA_IDLE.items():
            found = analysed(trace_named(name), *(["--iterations", window] if window else []))
            row = next(row for row in found["idle"] if row["stream"] == stream)
            self.assertEqual((row["host_wait_us"], row["kernel_wait_us"], row["other_us"]), waits, name)


    def test_products_by_hand(self):
        """FLOP and FLOP/s of 20 rows of products are 2 m n k over the time of their kernels."""
        sizes = {"aten::mm": lambda d: (1, *d[0], d[1][1]), "aten::addmm": lambda d: (1, *d[1], d[2][1]),
                 "aten::bmm": lambda d: (*d[0], d[1][2])}
        checked = 0
        for path in TRACES:
            for row in analysed(path)["ops_by_shape"]:
                if row["name"] not in sizes or not row["device_self_us"] or row["flop"] is None:
                    continue
                batch, m, k, n = sizes[row["name"]](row["shapes"])
                kernels = sum(kernel["total_us"] for kernel in row["kernels"])
                flop = 2 * batch * m * n * k * row["count"]
                self.assertEqual(row["flop"], flop, row)
                self.assertAlmostEqual(row["tflop_per_s"] / (flop / kernels / 1e6), 1, delta=1e-5, msg=row)
                checked += 1
        self.assertGreaterEqual(checked, 20)

    def test_comparison_names_the_op_and_the_amount(self):
        path = trace_named("dlrm_v100_rank0of8_kineto")

        def compared(other):
            done = subprocess.run([PERFPREDICT, "trace", path, "--compare", other, "--json"], capture_output=True,
                                  text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)

        same = compared(path)
        self.assertEqual((same["ops"], same["kernels"], same["change_us"]), ([], [], 0))
        trace = figures.Trace(figures.load(path))
        starts = defaultdict(list)  # per stream: a kernel cannot last until the next one has begun
        for event in trace.device:
            starts[event.stream].append(event.start)
        doubled, total = set(), 0
        for event in trace.device:
            op = event.launch and event.launch.parent
            while op is not None and op.kind != "op":
                op = op.parent
            room = min((s for s in starts[event.stream] if s > event.start), default=float("inf")) - event.start
            if op is not None and op.name == "aten::addmm" and event.kind == "kernel" and 2 * event.length <= room:
                doubled.add(event.correlation)
                total += event.length
        self.assertGreater(len(doubled), 5)
        with gzip.open(path, "rt") as file:
            document = json.load(file)
        for event in document["traceEvents"]:
            if event.get("cat") in ("kernel", "Kernel") and event["args"]["correlation"] in doubled:
                event["dur"] *= 2
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(document, file)
            file.flush()
            changed = compared(file.name)
        self.assertEqual([row["op"] for row in {row["op"]: row for row in changed["ops"]}.values()], ["aten::addmm"])
        self.assertAlmostEqual(sum(row["change_us"] for row in changed["ops"]), total / 1000, delta=NEAR * 10)


if __name__ == "__main__":
    if not TRACES:
        print("PERFMODEL_PUBLIC_DATA does not name the public data")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
