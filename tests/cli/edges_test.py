#!/usr/bin/env python3
"""Words, numbers and tables at their edges: a refusal in one line or the answer that was meant.

edges_test.py PROGRAM; PYTHONPATH and PERFMODEL_LIBRARY name the Python package and its library, which are tried, too.
"""
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

try:
    import perfmodel
    import perfmodel._library
    perfmodel._library.library()
except (ImportError, OSError):  # a sanitizer's library
    perfmodel = None

PROGRAM = sys.argv[1]
FOLDER = tempfile.TemporaryDirectory()
HERE = Path(FOLDER.name)
LAYOUT = ["layout", "eval", "gpt2", "--gpu", "h100-sxm-80gb", "--world", 8, "--global-batch", 8]
ROWS = "model,dp,tp,micro_batch,global_batch,sequence\ngpt2,8,1,1,8,1024\ngpt2,4,2,1,8,1024\n"


def run(*words):
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def written(name, text):
    (HERE / name).write_text(text)
    return HERE / name


class Words(unittest.TestCase):
    def refused(self, words, status, text):
        code, _, errors = run(*words)
        lines = [line for line in errors.splitlines() if not line.startswith("warning: ")]
        self.assertEqual((code, len(lines)), (status, 1), errors)
        self.assertIn(text, lines[0])

    def test_a_flag_takes_true_false_or_nothing(self):
        self.refused([*LAYOUT, "--gated=x"], 2, "--gated: expected true, false or no value, found x")
        self.refused([*LAYOUT, "--overlap-experts=99999999999999999999"], 2, "--overlap-experts: expected true")
        self.refused(["gpus", "--json=3"], 2, "--json: expected true, false or no value, found 3")
        self.assertEqual(run("gpus", "--json=true")[0], 0)

    def test_limits_of_nodes(self):
        self.refused(["--node-limit", "many", "gpus"], 2, "--node-limit: expected a number of nodes")
        self.refused(["--node-limit=0", "gpus"], 2, "from 1 to 2^31")
        self.refused(["--graph-memory", "much", "gpus"], 2, "--graph-memory: expected a size of at least 1 byte")

    def test_tables(self):
        gpu = ["--gpu", "h100-sxm-80gb"]
        table = lambda text: written("t.csv", text)
        self.refused(["layout", "eval", "--table", table("foo,bar\n8,1\n"), *gpu], 1, "layers: expected this column (or model")
        self.refused(["layout", "eval", "--table", table("model,dp,dp\ngpt2,8,4\n"), *gpu], 1, "each column once")
        grouped = "op,groups,rows,n,k,imbalance,dtype\ngrouped_gemm,4,512,64,64,{},bf16\n"
        self.refused(["kernels", table(grouped.format(4.5)), *gpu], 1, "from 1 to the number of groups")
        self.assertEqual(run("kernels", table(grouped.format(4)), *gpu)[0], 0)

    def test_rows_name_a_size_in_either_column(self):
        rows = "op,batch,heads,seq,seq_q,head_dim,dtype\nattention,1,8,512,,64,bf16\nattention,1,8,,512,64,bf16\n"
        code, out, errors = run("kernels", written("a.csv", rows), "--gpu", "h100-sxm-80gb")
        self.assertEqual(code, 0, errors)
        first, second = (line.split(",")[1:] for line in out.splitlines()[1:])
        self.assertEqual(first, second)

    def test_a_table_of_layouts_is_a_document(self):
        words = ["layout", "eval", "--table", written("rows.csv", ROWS), "--gpu", "h100-sxm-80gb"]
        table = run(*words)[1].splitlines()
        document = json.loads(run(*words, "--json")[1])
        self.assertEqual((document["schema"], len(document["rows"])), ("perfmodel-layout-table", 2))
        for line, row in zip(table[1:], document["rows"]):
            cells = dict(zip(table[0].split(","), line.split(",")))
            self.assertEqual(float(cells["predicted_step_ms"]), row["predicted_step_ms"])
            self.assertEqual((row["model"], row["error"]), ("gpt2", None))

    def test_shares_are_shares(self):
        for model in ("gpt2", "llama3-8b"):
            code, out, errors = run("layout", model, "--gpu", "a100-sxm-80gb", "--world", 16, "--global-batch", 64, "--json")
            self.assertEqual(code, 0, errors)
            for layout in json.loads(out)["layouts"]:
                for key in ("bubble_share", "exposed_comm_share", "mfu"):
                    self.assertTrue(0 <= layout[key] <= 1, (key, layout[key]))

    def test_ten_thousand_workers_end(self):
        for scheme in ("bsp", "ssp", "asp"):
            began = time.monotonic()
            code, out, errors = run("sync", "--workers", "w:10000:100000:1000", "--straggler", "lognormal:0.2", "--scheme", scheme,
                                    "--target-updates", 200_000, "--json")
            self.assertEqual(code, 0, errors)
            self.assertLess(time.monotonic() - began, 30, scheme)
            self.assertEqual(json.loads(out)["schema"], "perfmodel-sync")


@unittest.skipIf(perfmodel is None, "no package")
class Python(unittest.TestCase):
    def test_numbers_beyond_64_bits_and_nul(self):
        predictor = perfmodel.Predictor(gpus=["t4"])
        graph = perfmodel.build("mlp", preset="mnist")
        for batch in (1 << 64, (1 << 64) + 8, -(1 << 65)):
            with self.assertRaisesRegex(perfmodel.ArgumentError, "64 bits"):
                predictor.predict(graph, "t4", batch=batch)
        for call in (lambda: predictor.predict(graph, "t4\0x"), lambda: perfmodel.Predictor(gpus=["t4\0"]),
                     lambda: perfmodel.graphs.read(str(graph.file) + "\0.json"),
                     lambda: perfmodel.ask("gpus", ["t4\0x"])):
            with self.assertRaisesRegex(perfmodel.PerfmodelError, "NUL"):
                call()

    def test_a_forked_child_leaves_the_graphs_of_its_parent(self):
        graph = perfmodel.build("mlp", preset="mnist")
        child = os.fork()
        if child == 0:
            del graph  # the object goes, the file stays
            os._exit(0)
        os.waitpid(child, 0)
        self.assertTrue(os.path.exists(graph.file))
        self.assertGreater(perfmodel.Predictor(gpus=["t4"]).predict(graph, "t4").e2e_us, 0)

    def test_processes_of_every_kind_answer(self):
        text = ("import multiprocessing, os, sys, threading, perfmodel\n"
                "def ask(name):\n"
                "    return perfmodel.Predictor(gpus=['t4']).predict(name, 't4').e2e_us\n"
                "if __name__ == '__main__':\n"
                "    graph = perfmodel.build('mlp', preset='mnist')\n"
                "    told = [ask(graph)]\n"
                "    for kind in ('fork', 'spawn'):\n"
                "        with multiprocessing.get_context(kind).Pool(1) as pool:\n"  # daemons
                "            told += pool.map(ask, [graph.file])\n"
                "    thread = threading.Thread(target=lambda: told.append(ask(graph)), daemon=True)\n"
                "    thread.start(); thread.join()\n"
                "    assert os.path.exists(graph.file) and len(told) == 4 and len(set(told)) == 1, told\n")
        done = subprocess.run([sys.executable, written("kinds.py", text)], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_tables_of_layouts(self):
        answer = perfmodel.ask("layout eval", [], {"table": str(written("rows.csv", ROWS)), "gpu": "h100-sxm-80gb"})
        self.assertEqual(len(answer["rows"]), 2)

    def test_time_is_over_in_builders(self):
        for call in (lambda: perfmodel.build("t5", preset="t5-small", experts=100_000, timeout=0.5),
                     lambda: perfmodel.build("gpt", preset="gpt2").rewrite(accumulate=60_000, timeout=0.5)):
            began = time.monotonic()
            with self.assertRaises(perfmodel.PerfmodelError):
                call()
            self.assertLess(time.monotonic() - began, 3)  # with the build before it, on a busy machine


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
