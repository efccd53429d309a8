#!/usr/bin/env python3
"""Compares this machine's host with the reference host, in ten seconds and without a GPU.

    python3 examples/host_speed.py [TABLE] [--seconds S] [--json]

A training step on a GPU is as fast as its host where kernels are short: Python calls an op, PyTorch's dispatcher finds
what runs it and checks its arguments. That work is the same on any device. So small ops are called on tensors of the
CPU and of the device "meta" (which computes nothing), and the time of each call is compared with
the overhead table's for the same op without a profiler: the gap in front of it (T1 of ops of one
parent) and its own time (TX, or T2 and T3 of ops that launch). The factor is the median of the
ratios; `perfpredict predict --scale-host X` takes it.

The time of a kernel launch depends on the driver and is not measured here. TABLE:
data/overheads/reference.json of this checkout. Needs PyTorch 2, any build of it.
"""
import argparse
import json
import statistics
import sys
import time
from pathlib import Path

TABLE = Path(__file__).resolve().parent.parent / "data" / "overheads" / "reference.json"


def ops(torch):
    """Name in tables, and a call of it on a tensor of 4 x 4 and a device that suits it."""
    return {
        "aten::view": ("cpu", lambda x: x.view(16)),
        "aten::reshape": ("cpu", lambda x: x.reshape(16)),
        "aten::transpose": ("cpu", lambda x: x.transpose(0, 1)),
        "aten::permute": ("cpu", lambda x: x.permute(1, 0)),
        "aten::select": ("cpu", lambda x: x.select(0, 1)),
        "aten::unsqueeze": ("cpu", lambda x: x.unsqueeze(0)),
        "aten::detach": ("cpu", lambda x: x.detach()),
        "aten::add": ("meta", lambda x: torch.add(x, x)),
        "aten::mul": ("meta", lambda x: torch.mul(x, x)),
        "aten::relu": ("meta", lambda x: torch.relu(x)),
        "aten::matmul": ("meta", lambda x: torch.matmul(x, x)),
        "aten::linear": ("meta", lambda x: torch.nn.functional.linear(x, x)),
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
    """Gap and op by the table; None: it does not know the op."""
    own = [table[term][op]["mean_us"] for term in ("t2", "t3", "tx") if op in table[term]]
    return table["t1"]["by_class"]["same parent"]["mean_us"] + sum(own) if own else None


def measure(torch, table, seconds):
    """Microseconds measured and expected, by op."""
    known = {op: how for op, how in ops(torch).items() if expected_us(table, op)}
    if not known:
        sys.exit("host_speed.py: expected a table with small ops, found none of them")
    torch.set_num_threads(1)
    made = {}
    with torch.no_grad():
        for op, (device, call) in known.items():
            tensor = torch.ones(4, 4, device=device)
            microseconds_per_call(call, tensor, 0)  # the first calls make what later ones find
            made[op] = (microseconds_per_call(call, tensor, seconds / len(known)), expected_us(table, op))
    return made


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
    factor = statistics.median(measured / expected for measured, expected in rows.values())
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
