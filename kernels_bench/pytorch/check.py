#!/usr/bin/env python3
"""Checks a folder that collect.py wrote. Needs no torch.

    python3 check.py DIR/<gpu> [--noise X] [--unpaired X] [--ratio LOW HIGH] [--ops]

Prints one row per point, then ops that only the graph or only the trace holds, then what the campaign
still lacks. Every problem is one line on stderr; exit status 1 if there is one.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

import campaign
import results
import traces
from results import BadInput

TRACED_STEPS = 3
SHOWN_NAMES = 8


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="DIR/<gpu> of collect.py")
    parser.add_argument("--noise", type=float, default=0.15, metavar="X",
                        help="largest (p90 - p10) / median of step times (default 0.15)")
    parser.add_argument("--unpaired", type=float, default=0.02, metavar="X",
                        help="largest share of ops that only graph or trace holds (default 0.02)")
    parser.add_argument("--ratio", type=float, nargs=2, default=(0.7, 10.0), metavar=("LOW", "HIGH"),
                        help="limits of a traced step over an untraced one (default 0.7 10)")
    parser.add_argument("--ops", action="store_true", help="list all lone ops, not only the first few names")
    return parser.parse_args()


def names(counter, limit=SHOWN_NAMES):
    """name (count), ...; the most frequent first."""
    shown = [f"{name} ({count})" for name, count in counter.most_common(limit)]
    return ", ".join(shown) + (f", and {len(counter) - limit} more names" if limit and len(counter) > limit else "")


class PointCheck:
    """One point: `problems` break the folder, `lone` and `row` are for reading."""

    def __init__(self, folder, point, args):
        self.folder, self.point, self.args = folder, point, args
        self.problems, self.lone, self.row = [], [], {}

    def run(self):
        files = self.point.get("files", {})
        loaded = {name: self._load(name, file) for name, file in files.items()}
        self._times()
        trace = loaded.get("kineto")
        if trace is not None:
            self._trace(trace)
            self._ratio(trace)
            if loaded.get("et") is not None:
                self._pair(loaded["et"], trace)
        return self

    def _load(self, name, file):
        """A graph, a trace, or other JSON; None and a problem if it cannot be read."""
        path = self.folder / file
        try:
            readers = {"et": traces.read_graph, "kineto": traces.read_trace}
            return readers.get(name, results.load_json)(path)
        except BadInput as error:
            self.problems.append(str(error))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self.problems.append(f"{path}: not of the expected form ({type(error).__name__}: {error})")
        return None

    def _times(self):
        step = results.step_time(self.point)
        self.row.update(ms=step["median_us"] / 1e3, spread=step["spread"])
        if step["spread"] is None or step["spread"] > self.args.noise:
            self.problems.append(f"noise: (p90 - p10) / median is {step['spread']}, "
                                 f"expected at most {self.args.noise:g}")
        if self.point.get("loss") is None:
            self.problems.append("the loss is not finite")

    def _trace(self, trace):
        """Steps alike; launches and device work belong together. Traces without Kineto know neither, and
        lose ops at the borders of steps."""
        kept = self.point.get("kept_steps", TRACED_STEPS)
        if len(trace.steps) != kept:
            self.problems.append(f"trace: expected {kept} steps, found {len(trace.steps)}")
        if trace.bare:
            return
        summary = traces.summary(trace)
        for what in ("launches", "kernels", "ops"):
            if len(set(summary[what])) > 1:
                self.problems.append(f"trace: steps differ in {what}: {summary[what]}")
        if not trace.work:
            if self.point["on_gpu"]:
                self.problems.append("trace: no device work")
            return
        self.row["kernels"] = summary["kernels"][-1] if summary["kernels"] else 0
        launched = {call.correlation for call in trace.calls if traces.is_launch(call.name)}
        worked = {work.correlation for work in trace.work}
        without = Counter(c.name for c in trace.calls
                          if traces.is_kernel_launch(c.name) and c.correlation not in worked)
        if without:
            self.problems.append(f"trace: launches without a kernel: {names(without)}")
        strays = Counter(w.name[:80] for w in trace.work if w.correlation not in launched)
        if strays:
            self.problems.append(f"trace: device work without a launch: {names(strays, 3)}")

    def _ratio(self, trace):
        if not trace.steps:
            return
        traced = results.statistics([s.duration for s in trace.steps])["median_us"]
        ratio = traced / results.step_time(self.point)["median_us"]
        self.row["ratio"] = ratio
        low, high = self.args.ratio
        if not low <= ratio <= high:
            self.problems.append(f"a traced step takes {ratio:.2f} of an untraced one, expected {low:g} to {high:g}")

    def _pair(self, graph, trace):
        """The step of the trace that fits best: recording has cost single steps an op."""
        found = [traces.pair(graph, traces.step_names(trace, i)) for i in range(max(1, len(trace.steps)))]
        best = min(found, key=lambda pairing: pairing.unpaired_share)
        self.row.update(paired=best.paired, lone=sum(best.only_graph.values()) + sum(best.only_trace.values()))
        limit = None if self.args.ops else SHOWN_NAMES
        for where, counter in (("graph", best.only_graph), ("trace", best.only_trace)):
            if counter:
                self.lone.append(f"only in the {where}: {names(counter, limit)}")
        if best.unpaired_share > self.args.unpaired:
            where = "; ".join(self.lone)
            self.problems.append(f"graph and trace: {100 * best.unpaired_share:.1f} % of the ops stand alone, expected "
                                 f"at most {100 * self.args.unpaired:g} %: {where}")


def print_table(document, checked):
    print(f"{'point':36} {'split':5} {'ms':>10} {'spread':>7} {'traced/un':>9} {'paired':>7} {'lone':>5} "
          f"{'kernels':>7}")
    for point in document["points"]:
        if point["status"] != "ok":
            print(f"{point['key']:36} {point['split']:5} {point['status']}: {point.get('error', '')}")
            continue
        row = checked[point["key"]].row

        def cell(name, width, form):
            return format(row[name], f"{width}{form}") if row.get(name) is not None else "-".rjust(width)

        print(f"{point['key']:36} {point['split']:5} {cell('ms', 10, '.3f')} {cell('spread', 7, '.3f')} "
              f"{cell('ratio', 9, '.2f')} {cell('paired', 7, 'd')} {cell('lone', 5, 'd')} {cell('kernels', 7, 'd')}")


def missing(document):
    """Lines: points of the campaign that are not there, or not whole."""
    scale, lines = document["scale"], []
    there = {p["key"]: p for p in document["points"]}
    for tier in sorted({w.tier for w in campaign.WORKLOADS}):
        wanted = [campaign.point_key(w.name, b) for w in campaign.WORKLOADS if w.tier == tier
                  for b in campaign.batches(w, scale)]
        absent = [key for key in wanted if key not in there]
        if absent:
            shown = "all" if len(absent) == len(wanted) else ", ".join(absent)
            lines.append(f"tier {tier}: {len(absent)} of {len(wanted)} points: {shown}")
    for point in document["points"]:
        if point["status"] != "ok":
            lines.append(f"{point['key']}: {point['status']}")
        lines += [f"{point['key']}: no {name}: {why}" for name, why in point.get("failed", {}).items()]
        workload = campaign.find(point["workload"])
        if point["status"] == "ok" and workload and point["batch"] in campaign.traced_batches(workload, scale):
            lines += [f"{point['key']}: no {name} yet" for name in ("et", "kineto")
                      if name not in point["files"] and name not in point["failed"]]
    return lines


def check(args):
    folder = Path(args.folder)
    document = results.read_index(folder)
    checked = {}
    for point in document["points"]:
        if point["status"] == "ok":
            point["on_gpu"] = document["gpu"] != "cpu"
            checked[point["key"]] = PointCheck(folder, point, args).run()
    print_table(document, checked)
    lone = [(key, line) for key, result in checked.items() for line in result.lone]
    if lone:
        print("\nOps that only one of graph and trace holds")
        for key, line in lone:
            print(f"{key}: {line}")
    absent = missing(document)
    print("\nMissing" if absent else "\nNothing is missing")
    for line in absent:
        print(line)
    sys.stdout.flush()
    problems = [f"{key}: {problem}" for key, result in checked.items() for problem in result.problems]
    for problem in problems:
        print(f"check.py: {problem}", file=sys.stderr)
    return 1 if problems else 0


def main():
    try:
        return check(arguments())
    except BrokenPipeError:  # whoever read has enough
        sys.stdout = None
        return 1
    except BadInput as error:
        print(f"check.py: {error}", file=sys.stderr)
        return 1
    except KeyError as error:
        print(f"check.py: {results.INDEX}: a point lacks the key {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
