#!/usr/bin/env python3
"""Measures the costs of `sweep` per row, chunk and rank, and extrapolates to more ranks than this machine has.

    sweep_ranks.py PERFPREDICT [--ranks 1 2 4] [--rows N] [--folder FOLDER]

Sweeps under mpirun with each number of ranks (the same bytes every time), one with a rank that is killed and a restart,
and a few alone whose differences give the costs. All costs are CPU seconds, which a busy machine stretches less than
the clock. docs/sweep.md has the tables and the equation.
"""
import argparse
import gzip
import hashlib
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PLENTY = 1024  # ranks of the last row of the model


MODELS = [{"name": "gpt2", "build": "gpt", "options": {"preset": "gpt2", "batch": 8}},
          {"name": "dlrm", "build": "dlrm", "options": {"preset": "mlperf", "batch": 2048}}]
TINY = [{"name": "mlp", "build": "mlp", "options": {"batch": 8}}]  # whose rows cost least: what is left is the rest


def spec(folder, rows, graphs=MODELS):
    """Rows of the models, four GPUs and two strategies; the batch sizes give their number."""
    per_batch = len(graphs) * 4 * 2
    file = folder / f"sweep_{len(graphs)}_{rows}.json"
    file.write_text(json.dumps({
        "schema": "perfmodel-sweep", "version": 1, "graphs": graphs,
        "rewrites": [{"batch": list(range(8, 8 + 8 * (rows // per_batch), 8))}],
        "gpus": ["a100-sxm-80gb", "h100-sxm-80gb", "v100-sxm2-32gb", "t4"],
        "strategies": [{"strategy": "none"}, {"strategy": "ddp", "world": [8]}]}))
    return file, rows // per_batch * per_batch


def timed(words):
    """Seconds on the clock, CPU seconds of the process and all that it starts."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: exit {done.returncode}: {done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - start, cpu, done.stdout


def least(words):
    """CPU seconds of the cheapest of three runs."""
    return min(timed(words)[1] for _ in range(3))


def mpirun(ranks):
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks)]


def digest(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def kill_one(program, file, output, ranks):
    """Kills a rank once rows are on the disk; how many were when the restart began."""
    job = subprocess.Popen([*mpirun(ranks), program, "sweep", file, "-o", output, "--chunk", "8"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    parts = output.with_name(output.name + ".parts")
    while sum(part.stat().st_size > 200 for part in parts.glob("*.csv.gz")) < 2:
        if job.poll() is not None:
            sys.exit("the sweep ended before a rank could be killed")
        time.sleep(0.01)
    children = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
    if job.wait() == 0 or output.exists():
        sys.exit("a job without one of its ranks has succeeded")
    report = json.loads(timed([program, "sweep", file, "-o", output, "--dry-run", "--json"])[2])
    timed([*mpirun(2), program, "sweep", file, "-o", output])
    return report["finished_before"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rows", type=int, default=960)
    parser.add_argument("--folder", type=pathlib.Path)
    arguments = parser.parse_args()
    if not shutil.which("mpirun"):
        sys.exit("no mpirun")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder, program = pathlib.Path(name), os.path.abspath(arguments.program)
        file, rows = spec(folder, arguments.rows)
        small, small_rows = spec(folder, 16)

        alone, parts = folder / "alone.csv.gz", folder / "alone.csv.gz.parts"
        start = least([program, "sweep", small, "-o", folder / "small.csv.gz", "--threads", "1"])
        _, whole, _ = timed([program, "sweep", file, "-o", alone, "--threads", "1", "--keep-parts"])
        part_bytes, row_bytes = sum(p.stat().st_size for p in parts.glob("*.csv.gz")), len(gzip.decompress(alone.read_bytes()))
        expected, result_bytes = digest(alone), alone.stat().st_size
        tiny, tiny_rows = spec(folder, 8 * arguments.rows, TINY)
        one, _ = spec(folder, 8, TINY)
        tiny_start = least([program, "sweep", one, "-o", folder / "one.csv.gz", "--threads", "1"])
        words = [program, "sweep", tiny, "-o", folder / "tiny.csv.gz", "--threads", "1", "--keep-parts"]
        _, coarse, report = timed([*words, "--json"])
        tiny_chunks = json.loads(report)["chunks"]
        again = least(words)  # nothing is missing: reads the parts and merges
        _, fine, _ = timed([program, "sweep", tiny, "-o", folder / "fine.csv.gz", "--threads", "1", "--chunk", "2"])

        print("| ranks | seconds | CPU s | rows | rows per CPU second |\n| ---: | ---: | ---: | ---: | ---: |")
        loads = {}
        for ranks in arguments.ranks:
            output = folder / f"ranks_{ranks}.csv.gz"
            seconds, cpu, _ = timed([*mpirun(ranks), program, "sweep", file, "-o", output])
            _, loads[ranks], _ = timed([*mpirun(ranks), program, "sweep", small, "-o", folder / f"small_{ranks}.csv.gz"])
            print(f"| {ranks} | {seconds:.1f} | {cpu:.1f} | {rows} | {rows / cpu:.0f} |")
            if digest(output) != expected:
                sys.exit(f"other bytes with {ranks} ranks")
        killed = folder / "killed.csv.gz"
        kept = kill_one(program, file, killed, 3)
        if digest(killed) != expected:
            sys.exit("other bytes after a rank was killed")
        print(f"\nThe same bytes with every number of ranks, and after one of 3 ranks was killed with {kept} rows on the disk.\n")

        # Costs, by differences.
        merge = (again - tiny_start) / tiny_rows
        row = (whole - start) / (rows - small_rows) - merge
        chunk = (fine - coarse) / (tiny_rows / 2 - tiny_chunks)
        if min(merge, row, chunk) <= 0:
            sys.exit(f"costs that are no cost: {merge:.3g} s to merge a row, {row:.3g} s a row, {chunk:.3g} s a chunk")
        first, last = min(loads), max(loads)
        rank = (loads[last] - loads[first]) / (last - first) if last > first else start
        for text, value, unit in [("start of a process", start, "s"), ("start of a further rank under mpirun", rank, "s"),
                                  ("a row", row * 1e3, "ms"), ("a chunk: gzip member, fsync", chunk * 1e3, "ms"),
                                  ("merging a row, on rank 0 alone", merge * 1e6, "us")]:
            print(f"{text}: {value:.3g} {unit}")
        print(f"a row in the parts: {part_bytes / rows:.0f} bytes, in the result {result_bytes / rows:.0f}, as text {row_bytes / rows:.0f}\n")
        asked, size = 1_000_000, 128
        print(f"{asked} rows in chunks of {size}:\n")
        print("| ranks | seconds | rows/s | rows/s per rank | share of merging | chunks (fsync, questions to rank 0) per s |")
        print("| ---: | ---: | ---: | ---: | ---: | ---: |")
        for ranks in sorted({*arguments.ranks, 16, 64, 256, PLENTY}):
            rounds = -(-(asked // size) // ranks)
            work = rounds * (size * row + chunk)
            total = start + work + asked * merge
            print(f"| {ranks} | {total:,.0f} | {asked / total:,.0f} | {asked / total / ranks:,.0f} | {asked * merge / total:.1%}"
                  f" | {asked / size / work:,.0f} |")


main()
