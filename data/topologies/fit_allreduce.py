#!/usr/bin/env python3
"""Fits the all-reduce curves of the topology files to measured tables.

    fit_allreduce.py TABLE.json [--write]

TABLE.json is a table with rows (gpu, n_gpus, bytes, oop_us, ip_us); of its rows, in file order from 0, only the EVEN
ones are fitted (ip_us), the odd ones judge and are never read. Without --write the curves are printed, with it they
replace `curves` in the topology files next to this program. Standard library only.

Model of one group of n ranks: t(S) = (alpha + 2 (n-1)/n S / B) c(S).
1. alpha, B: least squares on relative error.
2. c: one factor per octave from 1 MiB to 1 GiB, linear in log c over log S; least squares on log(t / (alpha + ..)) with
   a ridge LEVEL on log c and SMOOTH on its steps. Both, and the octave, were chosen by leave-one-out on the even rows.
3. If the time would fall from one octave to the next, c is raised until it stays level.
"""

import json
import math
import pathlib
import sys

TOPOLOGY_OF = {"a100": "dgx-a100", "v100": "dgx1-v100"}
FIRST, OCTAVES = 1 << 20, 10
LEVEL, SMOOTH = 0.01, 0.1


def solve(matrix, right):
    """Gauss-Jordan with pivoting."""
    n = len(right)
    rows = [list(matrix[i]) + [right[i]] for i in range(n)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(n):
            if r != i:
                factor = rows[r][i] / rows[i][i]
                for c in range(i, n + 1):
                    rows[r][c] -= factor * rows[i][c]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def fit_line(points):
    """alpha, beta of t = alpha + beta S, least squares on relative error."""
    matrix, right = [[0.0, 0.0], [0.0, 0.0]], [0.0, 0.0]
    for size, time in points:
        x = (1 / time, size / time)
        for i in range(2):
            right[i] += x[i]
            for j in range(2):
                matrix[i][j] += x[i] * x[j]
    return solve(matrix, right)


def fit_factors(points, alpha, beta):
    knots = OCTAVES + 1
    matrix, right = [[0.0] * knots for _ in range(knots)], [0.0] * knots
    for size, time in points:
        place = math.log2(size / FIRST)
        low = min(max(int(place), 0), OCTAVES - 1)
        weights = {low: 1 - (place - low), low + 1: place - low}
        target = math.log(time / (alpha + beta * size))
        for p, weight in weights.items():
            right[p] += weight * target
            for q, other in weights.items():
                matrix[p][q] += weight * other
    for i in range(knots):
        matrix[i][i] += LEVEL
        if i:
            matrix[i][i] += SMOOTH
            matrix[i - 1][i - 1] += SMOOTH
            matrix[i][i - 1] -= SMOOTH
            matrix[i - 1][i] -= SMOOTH
    logs = solve(matrix, right)
    for i in range(1, knots):
        # t ~ (alpha + beta S) S^g grows if g >= -(share of the wire at the smaller end).
        wire = beta * FIRST * 2 ** (i - 1)
        logs[i] = max(logs[i], logs[i - 1] - math.log(2) * wire / (alpha + wire))
    return [math.exp(value) for value in logs]


def fit(table):
    curves = {}
    groups = {}
    for i, (gpu, ranks, size, _, time) in enumerate(table["cases"]["rows"]):
        if i % 2 == 0:
            groups.setdefault((gpu, ranks), []).append((size, time))
    for (gpu, ranks), points in sorted(groups.items()):
        alpha, beta = fit_line(points)
        factors = [math.ceil(c * 1e4) / 1e4 for c in fit_factors(points, alpha, beta)]
        curves.setdefault(TOPOLOGY_OF[gpu], []).append({
            "ranks": ranks,
            "alpha_us": round(alpha, 2),
            "bus_gb_per_s": round(2 * (ranks - 1) / ranks / beta / 1e3, 2),
            "octave_factors": factors,
        })
    return curves


def dump(topology):
    """Indented, but one curve per few lines: lists of numbers stay on one line."""
    text = json.dumps(topology, indent=2)
    out, hold = [], None
    for line in text.split("\n"):
        body = line.strip()
        if hold is None and body.endswith(": [") and "factors" in body:
            hold = line
        elif hold is not None:
            hold += body + (" " if body.endswith(",") else "")
            if body.startswith("]"):
                out.append(hold)
                hold = None
        else:
            out.append(line)
    return "\n".join(out) + "\n"


def main():
    arguments = [a for a in sys.argv[1:] if a != "--write"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    table = json.loads(pathlib.Path(arguments[0]).read_text())
    for name, curves in fit(table).items():
        if "--write" not in sys.argv:
            print(json.dumps({name: curves}))
            continue
        file = pathlib.Path(__file__).parent / (name + ".json")
        topology = json.loads(file.read_text())
        topology["all_reduce"] = {
            "source": table["provenance"]["source"] + ", commit " + table["provenance"]["commit"] + "; "
                      + table["provenance"]["licence"],
            "software": table["provenance"]["software"],
            "fitted": "even rows (file order, from 0) of the in-place times; odd rows judge",
            "command": "data/topologies/fit_allreduce.py nccl_allreduce_single_node.json --write",
            "first_bytes": FIRST,
            "curves": curves,
        }
        file.write_text(dump(topology))


if __name__ == "__main__":
    main()
