#!/usr/bin/env python3
"""Measured steps, and how far predictions are from them: the table of Lin et al. (2022). Needs no torch.

    python3 table.py DIR/<gpu>
    python3 table.py DIR/<gpu> --perfpredict PROGRAM [--gpu NAME] [--e2e synced] [--json FILE]
    python3 table.py DIR/<gpu> --perfpredict PROGRAM --overheads FILE

With a program, every point that has an execution graph is predicted three times: with the overheads of its
own trace (or of its workload's nearest batch), with shared overheads (pooled from all points that are not kept for
testing), and with the own ones and the roofline. Errors are (predicted - measured) / measured:
own, shared, roofline: step; active: time the GPU is busy; kernels: sum of kernel times; sum/step: that sum
taken for the step, as predictions of kernels alone would have it.

--overheads only writes the shared table.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import results
from results import BadInput

COLUMNS = ("own", "shared", "active", "kernels", "sum/step", "roofline")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="DIR/<gpu> of collect.py")
    parser.add_argument("--perfpredict", metavar="PROGRAM", help="predict, and show errors")
    parser.add_argument("--gpu", metavar="NAME", help="GPU to predict for (default: that of the folder)")
    parser.add_argument("--e2e", choices=("free", "synced"), default="free",
                        help="measured step: steps back to back (default), or each on an idle device")
    parser.add_argument("--json", metavar="FILE", help="write the rows there, too")
    parser.add_argument("--overheads", metavar="FILE", help="write the shared overheads there, and nothing else")
    args = parser.parse_args()
    if args.overheads and not args.perfpredict:
        parser.error("--overheads needs --perfpredict")
    return args


def median(values):
    statistics = results.statistics([v for v in values or [] if v is not None])
    return statistics["median_us"] if statistics else None


def measured(point, e2e):
    """Microseconds: step, GPU active, sum of kernels; None where there is none."""
    times, trace = point["times"], point.get("trace") or {}
    step = results.step_time(point) if e2e == "free" else times["synced"]["device"] or times["synced"]["wall"]
    active, kernels = median(trace.get("gpu_active_us")), median(trace.get("kernel_sum_us"))
    return {"e2e_us": step["median_us"], "gpu_active_us": active or None, "kernel_sum_us": kernels or None}


class Predictor:
    """Runs perfpredict; overhead tables are made once and kept in a folder of their own."""

    def __init__(self, program, gpu, folder, points, scratch):
        self.program, self.gpu, self.folder, self.scratch = program, gpu, folder, Path(scratch)
        self.points = points
        self.failures = []
        self._tables = {}

    def _run(self, *command):
        """Output, or None and a note with the program's message."""
        try:
            done = subprocess.run([self.program, *map(str, command)], capture_output=True, check=False)
        except OSError as error:
            raise BadInput(f"{self.program}: {error.strerror}") from None
        if done.returncode == 0:
            return done.stdout.decode()
        said = done.stderr.decode().strip().split("\n")[-1]
        if said not in self.failures:
            self.failures.append(said)
        return None

    def overheads(self, key, points):
        """Table learned from the traces of these points, or None."""
        if key not in self._tables:
            path = self.scratch / f"{key}.json"
            traces = [self.folder / p["files"]["kineto"] for p in points]
            graphs = [str(self.folder / p["files"]["et"]) if "et" in p["files"] else "-" for p in points]
            ok = bool(traces) and self._run("overheads", *traces, "--graph", *graphs, "--as-recorded", "-o", path) is not None
            self._tables[key] = path if ok else None
        return self._tables[key]

    def own(self, point):
        """The trace of this point; without one, the nearest batch's of its workload."""
        with_trace = [p for p in self.points if p["workload"] == point["workload"] and "kineto" in p["files"]]
        if not with_trace:
            return None
        nearest = min(with_trace, key=lambda p: abs(math.log(p["batch"] / point["batch"])))
        return self.overheads(nearest["key"], [nearest])

    def shared(self):
        return self.overheads("shared", [p for p in self.points if p["split"] != "test" and "kineto" in p["files"]])

    def _graph(self, point):
        """The execution graph, which does not say whether products ran in TF32: then one that does."""
        recorded = self.folder / point["files"]["et"]
        if not point.get("precision", {}).get("matmul_tf32"):
            return recorded
        marked = self.scratch / f"{point['key']}.tf32.json"
        if not marked.exists():
            self._run("rewrite", recorded, "--precision", "tf32", "-o", marked)
        return marked

    def predict(self, point, table, models=None):
        if table is None:
            return None
        command = ["predict", self._graph(point), "--gpu", self.gpu, "--overheads", table, "--json"]
        output = self._run(*command, *(["--models", models] if models else []))
        return json.loads(output) if output else None


def error(predicted, key, truth):
    """(predicted - measured) / measured, or None."""
    if predicted is None or not truth:
        return None
    return predicted[key] / truth - 1


def errors_of(predictor, point, truth):
    """One error per column."""
    own = predictor.predict(point, predictor.own(point))
    shared = predictor.predict(point, predictor.shared())
    roofline = predictor.predict(point, predictor.own(point), "roofline")
    any_table = own or shared  # neither kernel times nor active time need the own overheads
    return {"own": error(own, "e2e_us", truth["e2e_us"]),
            "shared": error(shared, "e2e_us", truth["e2e_us"]),
            "active": error(any_table, "gpu_active_us", truth["gpu_active_us"]),
            "kernels": error(any_table, "kernel_sum_us", truth["kernel_sum_us"]),
            "sum/step": error(any_table, "kernel_sum_us", truth["e2e_us"]),
            "roofline": error(roofline, "e2e_us", truth["e2e_us"])}


def geometric_mean(values):
    """Geometric mean of absolute errors; smaller ones count as 0.01 %."""
    return math.exp(sum(math.log(max(abs(v), 1e-4)) for v in values) / len(values))


def milliseconds(value):
    return f"{value / 1e3:10.3f}" if value else f"{'-':>10}"


def percent(value):
    return f"{100 * value:9.2f}" if value is not None else f"{'-':>9}"


def print_rows(rows, with_errors):
    head = "".join(f"{name:>9}" for name in COLUMNS) if with_errors else ""
    print(f"{'point':36} {'split':5} {'step ms':>10} {'active ms':>10} {'kernels ms':>10}{head}")
    for row in rows:
        cells = "".join(percent(row["errors"].get(name)) for name in COLUMNS) if with_errors else ""
        print(f"{row['key']:36} {row['split']:5} {milliseconds(row['e2e_us'])} {milliseconds(row['gpu_active_us'])} "
              f"{milliseconds(row['kernel_sum_us'])}{cells}")


def print_means(rows):
    """Geometric mean (min to max) of absolute errors, by split."""
    print(f"\n{'|error| %: geomean (min-max)':36} {'rows':>5}" + "".join(f"{name:>22}" for name in COLUMNS))
    for split in ("train", "test"):
        chosen = [row for row in rows if row["split"] == split]
        cells = ""
        for name in COLUMNS:
            values = [abs(r["errors"][name]) for r in chosen if r["errors"].get(name) is not None]
            text = "-"
            if values:
                text = f"{100 * geometric_mean(values):.2f} ({100 * min(values):.2f}-{100 * max(values):.2f})"
            cells += f"{text:>22}"
        print(f"{split:36} {len(chosen):>5}{cells}")


def write_shared_overheads(args, points):
    """The table that predictions for this GPU use unless told otherwise."""
    with tempfile.TemporaryDirectory() as scratch:
        predictor = Predictor(args.perfpredict, "", Path(args.folder), points, scratch)
        made = predictor.shared()
        if made is None:
            raise BadInput("; ".join(predictor.failures) or "no trace beside those kept for testing")
        results.write_whole(args.overheads, made.read_bytes())
    return 0


def table(args):
    folder = Path(args.folder)
    document = results.read_index(folder)
    points = [p for p in document["points"] if p["status"] == "ok"]
    if args.overheads:
        return write_shared_overheads(args, points)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        predictor = None
        if args.perfpredict:
            predictor = Predictor(args.perfpredict, args.gpu or document["gpu"], folder, points, scratch)
        for point in points:
            row = {"key": point["key"], "split": point["split"], **measured(point, args.e2e), "errors": {}}
            if predictor and "et" in point["files"]:
                row["errors"] = errors_of(predictor, point, row)
            rows.append(row)
    print_rows(rows, predictor is not None)
    if predictor:
        print_means(rows)
    if args.json:
        results.write_whole(args.json, results.json_bytes(
            {"schema": "perfmodel-measured-errors", "version": 1, "gpu": document["gpu"], "e2e": args.e2e,
             "rows": rows}, indent=1))
    sys.stdout.flush()
    for failure in predictor.failures if predictor else []:
        print(f"table.py: perfpredict: {failure}", file=sys.stderr)
    return 1 if predictor and predictor.failures else 0


def main():
    try:
        return table(arguments())
    except BrokenPipeError:  # whoever read has enough
        sys.stdout = None
        return 1
    except BadInput as problem:
        print(f"table.py: {problem}", file=sys.stderr)
    except KeyError as problem:
        print(f"table.py: {results.INDEX}: a point lacks the key {problem}", file=sys.stderr)
    except OSError as problem:
        print(f"table.py: {problem.filename}: {problem.strerror}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
