#!/usr/bin/env python3
"""Reads recordings of examples/record.py with perfpredict; checks that public recordings have what it asks for.

    python3 record_test.py PERFPREDICT torch PYTHON   PYTHON has torch
    python3 record_test.py PERFPREDICT heads          needs PERFMODEL_PUBLIC_DATA, no torch

Debian's PyTorch has no Kineto: its trace has neither categories nor a head. The heads of recorded files are
checked instead.
"""

import gzip
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PERFPREDICT = PYTHON = None
SKIPPED = 77


def run(*command, folder=None, **more):
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1", **more)
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=environment,
                          cwd=folder, timeout=300, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stderr}")
    return done.stdout


def load(path):
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


class Recorded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        run(PYTHON, ROOT / "examples" / "record.py", folder=cls.folder.name, RANK="3")
        cls.files = Path(cls.folder.name) / "recorded"

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_files_are_named_after_the_rank(self):
        self.assertEqual(sorted(f.name for f in self.files.iterdir()),
                         ["rank3_graph.json", "rank3_trace.json.gz"])

    def test_graph_holds_one_step(self):
        names = [node["name"] for node in load(self.files / "rank3_graph.json")["nodes"]]
        self.assertEqual(sum(n.startswith("ProfilerStep") for n in names), 1)
        # Two layers, forward; ReLU and the loss once each.
        self.assertEqual(names.count("aten::linear"), 2)
        self.assertEqual(names.count("aten::relu"), 1)
        self.assertEqual(sum(n.startswith("Optimizer.step") for n in names), 1)
        self.assertEqual(sum(n.startswith("autograd::engine::evaluate_function: AddmmBackward0")
                             for n in names), 2)

    def test_graph_is_predicted(self):
        moved = self.files / "on_gpu.json"
        run(PERFPREDICT, "rewrite", self.files / "rank3_graph.json", "--retarget", "nvidia", "-o", moved)
        made = json.loads(run(PERFPREDICT, "predict", moved, "--gpu", "h100-sxm-80gb", "--json"))
        self.assertEqual(len(made["iterations"]), 1)
        self.assertGreater(made["e2e_us"], 0)
        self.assertEqual(made["coverage"]["unmodelled_ops"], [])

    def test_trace_holds_the_steps_behind_the_graphs(self):
        graph = [node["name"] for node in load(self.files / "rank3_graph.json")["nodes"]]
        step = next(int(n.split("#")[1]) for n in graph if n.startswith("ProfilerStep"))
        document = load(self.files / "rank3_trace.json.gz")
        events = document if isinstance(document, list) else document["traceEvents"]
        steps = [e["name"] for e in events if str(e.get("name", "")).startswith("ProfilerStep")]
        self.assertEqual(sorted(set(steps)), [f"ProfilerStep#{step + i}" for i in (2, 3, 4)])


class Heads(unittest.TestCase):
    """record_shapes and the labels of steps are what the example asks of Kineto."""

    def test_recorded_traces_tell_shapes_and_steps(self):
        folder = Path(os.environ["PERFMODEL_PUBLIC_DATA"]) / "traces"
        seen = 0
        for name in ("bert_small_infer_h100_torch26", "minitoy_train_mi250_rocm62", "resnet50_ddp_2gpu_a100"):
            document = load(folder / f"{name}_kineto.json.gz")
            ops = [e for e in document["traceEvents"] if e.get("cat") == "cpu_op"]
            shaped = sum("Input Dims" in e.get("args", {}) for e in ops)
            if "record_shapes" in document:  # since PyTorch 2.1
                self.assertEqual(bool(document["record_shapes"]), shaped > 0, name)
                seen += 1
            self.assertTrue(document["deviceProperties"], name)
        self.assertGreater(seen, 0)


def main():
    global PERFPREDICT, PYTHON
    PERFPREDICT, what, *rest = sys.argv[1:]
    if what == "heads" and "PERFMODEL_PUBLIC_DATA" not in os.environ:
        print("PERFMODEL_PUBLIC_DATA does not name the public data")
        sys.exit(SKIPPED)
    PYTHON = rest[0] if rest else sys.executable
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Heads if what == "heads" else Recorded)
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())


if __name__ == "__main__":
    main()
