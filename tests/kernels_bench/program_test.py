"""The program kernels_bench: commands, exit codes, messages, on the analytic GPU.

    program_test.py PROGRAM DATA
"""

import csv
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM, DATA = sys.argv[1], sys.argv[2]
ENVIRONMENT = dict(os.environ, PERFMODEL_DATA=DATA)


def run(*words):
    return subprocess.run([PROGRAM, *map(str, words)], env=ENVIRONMENT, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Program(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)

    def tearDown(self):
        self.scratch.cleanup()

    def measure(self, *words):
        return run("run", "--backend", "analytic", "--out", self.folder / "out", *words)

    def assert_fails(self, done, code, *texts):
        """One line on stderr that says what is wrong, and nothing on stdout."""
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertLess(len(done.stderr), 300)
        for text in texts:
            self.assertIn(text, done.stderr)

    def test_list_needs_no_gpu(self):
        done = run("--list")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for word in ("peaks", "gemm", "embedding", "cuda", "hip", "Analytic GPU"):
            self.assertIn(word, done.stdout)

    def test_plan_fits_the_gpu(self):
        for gpu, memory in (("h200-sxm-141gb", 8e9), ("p4", 0.8 * 8e9)):
            done = run("plan", "--gpu", gpu, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            families = {f["family"]: f for f in json.loads(done.stdout)["families"]}
            self.assertEqual(families["gemm"]["points"], 12000)
            for family in families.values():
                if family["family"] != "peaks":  # a list: the driver says what does not fit
                    self.assertLessEqual(family["largest_bytes"], memory)
                self.assertGreater(family["expected_s"], 0)

    def test_slower_gpu_takes_longer(self):
        seconds = [sum(f["expected_s"] for f in json.loads(run("plan", "--gpu", gpu, "--json").stdout)["families"])
                   for gpu in ("h200-sxm-141gb", "t4")]
        self.assertLess(2 * seconds[0], seconds[1])

    def test_plan_writes_points(self):
        done = run("plan", "--families", "gemm", "--points", 50, "-o", self.folder / "points")
        self.assertEqual(done.returncode, 0, done.stderr)
        with (self.folder / "points" / "gemm.points.csv").open() as lines:
            rows = list(csv.DictReader(lines))
        self.assertEqual(len(rows), 50)
        self.assertEqual(set(rows[0]), {"op", "dtype", "m", "n", "k", "layout"})

    def test_bench_is_a_google_benchmark(self):
        done = run("bench", "--backend", "analytic", "--families", "gemm", "--points", 30,
                   "--benchmark_filter=fp16", "--benchmark_repetitions=2", "--benchmark_format=json")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)["benchmarks"]
        self.assertTrue(rows)
        for row in rows:
            self.assertIn("fp16", row["name"])
            if row["run_type"] == "iteration":
                self.assertGreater(row["TFLOP/s"], 0)
                self.assertLessEqual(row["p10_us"], row["p90_us"])
        self.assertEqual({row.get("repetitions") for row in rows}, {2})

    def test_run_goes_on(self):
        self.assertEqual(self.measure("--families", "vector", "--points", 30).returncode, 0)
        table = self.folder / "out" / "vector.csv"
        before = table.read_text()
        done = self.measure("--families", "vector", "--points", 40)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(table.read_text().startswith(before))
        self.assertRegex(done.stdout, r"vector +40 +40 +10 +0 ")

    def test_interrupted(self):
        process = subprocess.Popen([PROGRAM, "run", "--backend", "analytic", "--out", str(self.folder / "out"),
                                    "--families", "gemm"], env=ENVIRONMENT, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        table = self.folder / "out" / "gemm.csv"
        while process.poll() is None and (not table.exists() or table.stat().st_size < 20000):
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
        self.assertEqual(process.returncode, 1)
        self.assertIn("stopped; rows so far are kept", errors)
        self.assertTrue(table.read_text().endswith(",law\n"))

    def test_device(self):
        self.assertEqual(run("device", "--backend", "analytic").stdout, "analytic-gpu\n")
        about = json.loads(run("device", "--backend", "analytic", "--json").stdout)
        self.assertEqual((about["gpu"], about["is_known"], about["num_sms"]), ("analytic-gpu", False, 100))

    def test_no_device(self):
        if run("device").returncode == 0:
            return  # there is one
        self.assert_fails(run("run", "--out", self.folder / "out"), 1, "no GPU to measure: cuda: ", "hip: ")
        self.assertFalse((self.folder / "out").exists())

    def test_bad_input(self):
        self.assert_fails(run("plan", "--gpu", "abacus"), 1, "abacus")
        self.assert_fails(run("plan", "--families", "gem"), 1, "--families: expected one of peaks gemm", '"gem"')
        self.assert_fails(self.measure("--budget", "soon"), 1, '--budget: expected a time like 90s, 8m or 1h, found "soon"')
        self.assert_fails(self.measure("--budget", ""), 1, "--budget: expected a time")
        for words in (["--points", "0"], ["--points", "-1"], ["--points", "1e30"], ["--seed", "-1"],
                      ["--seconds-per-point", "nan"], ["--share", "0"], ["--share", "0.5", "--points", "5"],
                      ["--backend", "abacus"], ["--frobnicate"]):
            done = self.measure(*words)
            self.assert_fails(done, 2, "--help")
        self.assert_fails(run("run"), 2, "--out")
        self.assert_fails(run(), 2, "subcommand")
        self.assertFalse((self.folder / "out").exists())

    def test_unwritable(self):
        (self.folder / "file").write_text("")
        done = run("run", "--backend", "analytic", "--families", "gemm", "--out", self.folder / "file" / "out")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr.splitlines()[-1], r"file/out: cannot be made: Not a directory$")

    def test_help(self):
        for words in ([], ["run"], ["plan"], ["bench"], ["device"]):
            done = run(*words, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertTrue(re.search(r"Usage|Options", done.stdout))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
