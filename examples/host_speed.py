#!/usr/bin/env python3
"""Compares this machine's host with the reference host, in ten seconds and without a GPU.

    python3 examples/host_speed.py [TABLE] [--seconds S] [--json]

A training step on a GPU is as fast as its host where kernels are short: Python calls an op, PyTorch's dispatcher finds
what runs it and checks its arguments. That work is the same on any device. So ops that only make views are called on a
small tensor of the CPU, and the time of a call is compared with the reference host's. The factor is the median of
the ratios; `perfpredict predict --scale-host X` takes it. If ops disagree by more than 3 times, nothing is said.

A call in a loop is faster than the same op in a step, whose code and data have left the caches meanwhile, and it holds
what Python does, which the table counts as a gap. So the table's own time of each op (TX) is multiplied by the share of
it that a call in this loop takes: IN_A_LOOP, measured on a host whose factor is known from twelve programs.

Ops on the device "meta" would compute nothing, too, but many go through Python there since PyTorch 2: an addition takes
160 us. The time of a kernel launch depends on the driver and is not measured here. TABLE:
data/overheads/reference.json of this checkout. Needs PyTorch 2, any build of it.
"""
import argparse
import json
import statistics
import sys
import time
from pathlib import Path

TABLE = Path(__file__).resolve().parent.parent / "data" / "overheads" / "reference.json"


# A call in the loop below over TX of the reference host. Measured with PyTorch 2.11 in the machine of
# data/measurements/h200-sxm-141gb (host_speed.json), whose steps without a profiler (profiler_cost.json.gz) take 1.12
# times as long as on the reference host.
IN_A_LOOP = {"aten::view": 0.82, "aten::reshape": 0.53, "aten::transpose": 0.48, "aten::permute": 0.45,
             "aten::select": 0.95, "aten::unsqueeze": 0.49, "aten::detach": 0.36}
MOST_APART = 3

CALLS = {
    "aten::view": lambda x: x.view(16),
    "aten::reshape": lambda x: x.reshape(16),
    "aten::transpose": lambda x: x.transpose(0, 1),
    "aten::permute": lambda x: x.permute(1, 0),
    "aten::select": lambda x: x.select(0, 1),
    "aten::unsqueeze": lambda x: x.unsqueeze(0),
    "aten::detach": lambda x: x.detach(),
}


def microseconds_per_call(call, tensor, seconds, clock=time.perf_counter):
    """The median over short runs: what else the machine does lengthens a few of them."""
    calls, runs, end = 200, [], clock() + seconds
    while clock() < end or len(runs) < 3:
        begin = clock()
        for _ in range(calls):
            call(tensor)
        runs.append((clock() - begin) / calls)
    return 1e6 * statistics.median(runs)


def expected_us(table, op):
    """A call of it on the table's host; None: the table does not know the op."""
    own = table["tx"].get(op)
    return IN_A_LOOP[op] * own["mean_us"] if own else None


def measure(torch, table, seconds):
    """Microseconds measured and expected, by op."""
    known = {op: call for op, call in CALLS.items() if expected_us(table, op)}
    if not known:
        sys.exit("host_speed.py: expected a table with small ops, found none of them")
    torch.set_num_threads(1)
    tensor, made = torch.ones(4, 4), {}
    with torch.no_grad():
        for op, call in known.items():
            microseconds_per_call(call, tensor, 0)  # the first calls make what later ones find
            made[op] = (microseconds_per_call(call, tensor, seconds / len(known)), expected_us(table, op))
    return made


def factor_of(rows):
    """The median ratio of ops that agree."""
    ratios = {op: measured / expected for op, (measured, expected) in rows.items()}
    least, most = min(ratios, key=ratios.get), max(ratios, key=ratios.get)
    if ratios[most] > MOST_APART * ratios[least]:
        sys.exit(f"host_speed.py: expected ops that agree within a factor of {MOST_APART}, found {least} at "
                 f"{ratios[least]:.2f} and {most} at {ratios[most]:.2f} times the reference host")
    return statistics.median(ratios.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", nargs="?", type=Path, default=TABLE)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("host_speed.py: expected PyTorch, found none (pip install torch)")
    try:
        table = json.loads(arguments.table.read_text())
        if table.get("schema") != "perfmodel-overheads":
            raise ValueError
    except (OSError, ValueError, AttributeError):
        sys.exit(f"host_speed.py: expected an overhead table, found none in {arguments.table}")
    rows = measure(torch, table, arguments.seconds)
    factor = factor_of(rows)
    if arguments.json:
        print(json.dumps({"factor": round(factor, 3), "torch": torch.__version__,
                          "ops": {op: {"measured_us": round(a, 3), "expected_us": round(b, 3)} for op, (a, b) in rows.items()}}))
        return
    print(f"{'op':<18} {'measured us':>12} {'reference us':>13} {'ratio':>6}")
    for op, (measured, expected) in rows.items():
        print(f"{op:<18} {measured:12.2f} {expected:13.2f} {measured / expected:6.2f}")
    print(f"\nThis host takes {factor:.2f} times as long as the reference host: --scale-host {factor:.2f}")


if __name__ == "__main__":
    main()
