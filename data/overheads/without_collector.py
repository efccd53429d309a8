#!/usr/bin/env python3
"""Factors that take out of host overheads what the profiler added to them.

    without_collector.py POOL.json MEASUREMENTS [--graphs MEASUREMENTS]... [--perfpredict FILE]

POOL.json: a table of `perfpredict overheads --pool`, as recorded. MEASUREMENTS: a folder of
data/measurements, whose index has the time of unrecorded steps; --graphs: a folder with graphs of
the same programs that it lacks. Points that the index marks as tests are left out, and steps in
which the GPU is busy for four fifths of the time.

A step is host-bound: its time is the sum of its terms, each multiplied. T1 (between ops) and T4 (calls) have a factor of
their own, since the profiler mostly records inside ops; the other terms share one. The three
minimise the mean absolute error of the logarithm plus a little of their own squared distances,
which settles what few programs cannot tell apart. Prints "T1=...,T2=...,...".
"""
import argparse
import itertools
import json
import math
import subprocess
from pathlib import Path

TERMS = ("T1", "T2", "T3", "T4", "T5", "TX")
FACTOR_OF = (0, 1, 1, 2, 1, 1)  # by term: which of the three factors
HOST_BOUND = 0.8
HELD_TOGETHER = 0.005


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pool")
    parser.add_argument("measurements", type=Path)
    parser.add_argument("--graphs", type=Path, action="append", default=[])
    parser.add_argument("--perfpredict", default="perfpredict")
    return parser.parse_args()


def terms_of(graph, gpu, arguments):
    command = [arguments.perfpredict, "predict", str(graph), "--gpu", gpu, "--host", arguments.pool, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    overheads = json.loads(done.stdout)["overheads_us"]
    return [overheads[term.lower()] for term in TERMS]


def steps(arguments):
    """Terms and time of each host-bound step for training."""
    folder = arguments.measurements
    index = json.loads((folder / "index.json").read_text())
    made = []
    for point in index["points"]:
        if point["split"] != "train" or "trace" not in point:
            continue
        wall, active = point["times"]["free"]["wall_us"], point["trace"]["gpu_active_us"]
        graphs = [at / f"{point['key']}.et.json.gz" for at in (folder, *arguments.graphs)]
        graph = next((at for at in graphs if at.exists()), None)
        if graph is None or sum(active) / len(active) >= HOST_BOUND * wall:
            continue
        made.append((terms_of(graph, folder.name, arguments), wall))
    return made


def error(logs, points):
    factors = [math.exp(logs[i]) for i in FACTOR_OF]
    if logs[2] < 0:
        return math.inf  # a call of the driver is recorded from outside: it was not longer than it is
    mean = sum(logs) / len(logs)
    return HELD_TOGETHER * sum((log - mean) ** 2 for log in logs) + sum(abs(math.log(sum(f * t for f, t in zip(factors, terms)) / wall)) for terms, wall in points) / len(points)


def fit(points):
    """The three logarithms: the best of what is found from several places."""
    starts = itertools.product((0.0, -0.7), (-0.4, -1.0), (0.0, 0.5))
    return min((descend(list(start), points) for start in starts), key=lambda logs: error(logs, points))


def descend(at, points):
    """By steps along each logarithm and along pairs of them that shrink."""
    step = 0.2
    moves = [(i, j, s, t) for i in range(3) for j in range(3) for s in (-1, 1) for t in (-1, 0, 1)]
    while step > 1e-4:
        best = min(([at[k] + step * (s * (k == i) + t * (k == j)) for k in range(3)] for i, j, s, t in moves),
                   key=lambda logs: error(logs, points))
        if error(best, points) < error(at, points):
            at = best
        else:
            step /= 2
    return at


def main():
    arguments = parse()
    points = steps(arguments)
    logs = fit(points)
    print(",".join(f"{term}={math.exp(logs[FACTOR_OF[i]]):.3f}" for i, term in enumerate(TERMS)))


main()
