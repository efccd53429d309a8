#!/usr/bin/env python3
"""Times single ops of PyTorch on one GPU, forward and backward, over sizes drawn from a fixed seed.

    python3 sweep_ops.py --out DIR --budget 240
    python3 sweep_ops.py --out DIR --device cpu --scale tiny --count 60      # the code, without a GPU

Writes DIR/<gpu>/ops.csv, which `perfpredict kernels`, `train` and `eval` read; other_ops.csv, of ops that
they do not know and of those that failed; sustained.csv and side_by_side.csv, kernels under load and two at a
time; kernels.json: which kernels each op launched. Rows that are there already are skipped: run it again to
go on. --seed makes another draw, for judging. --sweep takes one size in fine steps (fine), the same operands left
in the L2 (warm), attention by library, products in fp8, into ops_NAME.csv, other_ops_NAME.csv and
kernels_NAME.json.
"""

import argparse
import csv
import gc
import json
import math
import sys
import time
from pathlib import Path

UNKNOWN_OPS = ("nll_loss", "foreach_norm", "quantize_eager")  # unknown to `perfpredict kernels`
COLUMNS = [
    "id", "gpu", "family", "name", "op", "dtype", "library", "layout", "memory_format", "direction", "m", "n",
    "k", "b", "c", "h", "w", "r", "s", "pad_h", "pad_w", "stride_h", "stride_w", "groups", "rows", "cols",
    "elements", "n_inputs", "tensors", "table_rows", "strided", "batch", "heads", "kv_heads", "seq_q", "seq_k",
    "head_dim", "causal", "method", "scaling", "dim", "pooling", "tables", "zipf", "index_bytes", "optimizer", "time_us",
    "p10_us", "p90_us", "repeats", "calls", "copies", "l2_warm", "bytes", "error"]
MEMORY_LIMIT = 8e9
TINY_BYTES, TINY_PRODUCTS = 4e6, 2e7  # quick on a CPU


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="DIR", required=True, help="folder for the results, DIR/<gpu>")
    parser.add_argument("--device", default="cuda", help="cuda (default) or cpu")
    parser.add_argument("--count", type=int, default=20000, metavar="N", help="cases of the sweep (default 20000)")
    parser.add_argument("--sweep", choices=("drawn", "fine", "warm", "attention", "fp8"), default="drawn")
    parser.add_argument("--seed", type=int, default=20261126, metavar="N", help="of the sizes (default 20261126)")
    parser.add_argument("--budget", type=float, default=math.inf, metavar="SECONDS", help="begin no case after this")
    parser.add_argument("--scale", choices=("full", "tiny"), default="full", help="tiny: small cases only, for tests")
    parser.add_argument("--sustained", type=float, default=0.5, metavar="SECONDS",
                        help="per case of the second table: the same kernel again and again (0: none; default 0.5)")
    return parser.parse_args()


def board_reader():
    """A function that gives the board's draw at this moment in watts and the clock of its SMs in MHz, or None."""
    try:
        import pynvml
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        instant = getattr(pynvml, "NVML_FI_DEV_POWER_INSTANT", 186)

        def read():
            watts = pynvml.nvmlDeviceGetFieldValues(handle, [instant])[0].value.uiVal / 1e3
            return watts, pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
        read()
        return read
    except Exception as error:  # pylint: disable=broad-except
        print(f"no power, no clocks: {one_line(error)}", file=sys.stderr)
        return lambda: None


class Table:
    """A CSV that grows by whole rows and remembers those that it holds."""

    def __init__(self, path, columns, head):
        self.path, self.columns, self.done = path, columns, set()
        if path.exists():
            with path.open() as file:
                self.done = {row["id"] for row in csv.DictReader(line for line in file if not line.startswith("#"))}
        self.file = path.open("a", newline="")
        self.writer = csv.DictWriter(self.file, columns, restval="", extrasaction="raise", lineterminator="\n")
        for line in head:
            self.file.write(f"# {line}\n" if not self.done else "")
        if not self.done:
            self.writer.writeheader()

    def add(self, row):
        self.writer.writerow(row)
        self.file.flush()
        self.done.add(row["id"])


def one_line(error):
    return f"{type(error).__name__}: {error}".split("\n")[0][:160].replace(",", ";")


def set_tf32(allowed):
    import torch
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def is_tiny(case):
    cells = case.cells
    if case.family == "convolution":
        products = cells["n"] * cells["h"] * cells["w"] * cells["c"] * cells["k"] * cells["r"] * cells["s"]
    else:
        products = cells.get("b", 1) * cells.get("m", 1) * cells.get("n", 1) * cells.get("k", 1)
    return case.footprint <= TINY_BYTES and products <= TINY_PRODUCTS


def measure(case, device, l2_bytes):
    """Cells of the time, or of the error."""
    import torch
    from ops import timer
    set_tf32(case.tf32)
    copies = timer.copies_of(case, l2_bytes, MEMORY_LIMIT) if device != "cpu" else 1
    try:
        call = case.make(device, copies)
        timing = (timer.on_gpu if device != "cpu" else timer.on_cpu)(call, copies)
        return {"time_us": f"{timing.median_us:.3f}", "p10_us": f"{timing.p10_us:.3f}", "p90_us": f"{timing.p90_us:.3f}",
                "repeats": timing.repeats, "calls": timing.calls, "copies": copies}
    except (RuntimeError, AttributeError, TypeError, NotImplementedError, ValueError) as error:
        if device != "cpu":
            torch.cuda.synchronize()
        return {"error": one_line(error), "copies": copies}


def kernels_of(case, device):
    """Names and launch shapes of the kernels of one call, by Kineto."""
    import torch
    from torch.profiler import ProfilerActivity, profile
    call = case.make(device, 1)
    call(0)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        call(0)
        torch.cuda.synchronize()
    return [[event.name, round(event.device_time, 3)] for event in record.events() if event.device_time > 0]


def file_of(stem, sweep, kind):
    """Name of a sweep's file; the drawn one's bears no name."""
    return f"{stem}{'' if sweep == 'drawn' else '_' + sweep}.{kind}"


def sweep(args, folder, gpu, head, begin):
    """Writes the first table, and the launches of the first case of each name and type."""
    import torch
    from ops import families, fine
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size if args.device != "cpu" else 1e5
    if args.sweep == "warm":
        l2_bytes = 0
    table, others = (Table(folder / file_of(name, args.sweep, "csv"), COLUMNS, head) for name in ("ops", "other_ops"))
    samples, failed, measured = {}, {}, 0
    drawn = families.cases(args.seed, args.count) if args.sweep == "drawn" else fine.SWEEPS[args.sweep]()
    for number, case in enumerate(drawn):
        if time.monotonic() - begin > args.budget:
            break
        if args.scale == "tiny" and not is_tiny(case):
            continue
        if str(number) in table.done | others.done or case.footprint > MEMORY_LIMIT:
            continue
        kind = (case.name, case.cells["dtype"])
        if failed.get(kind, 0) >= 3 and kind not in samples:
            continue  # an op that this version does not have
        found = measure(case, args.device, l2_bytes)
        row = {"id": str(number), "gpu": gpu, "family": case.family, "name": case.name, "bytes": int(case.bytes),
               **case.cells, **found, **({"l2_warm": 1} if args.sweep == "warm" else {})}
        (others if "error" in found or case.cells["op"] in UNKNOWN_OPS else table).add(row)
        if "error" in found:
            failed[kind] = failed.get(kind, 0) + 1
            if failed[kind] == 1:
                print(f"{case.name} {case.cells}: {found['error']}", file=sys.stderr)
            gc.collect()
        else:
            measured += 1
            samples.setdefault(kind + (case.cells.get("layout", ""), case.cells.get("memory_format", "")), case)
            samples.setdefault(kind, case)
        if args.device != "cpu" and number % 8 == 0 and torch.cuda.memory_reserved() > 30e9:
            torch.cuda.empty_cache()
    print(f"{measured} measured, {sum(failed.values())} failed, {time.monotonic() - begin:.0f} s", file=sys.stderr)
    return {kind: case for kind, case in samples.items() if len(kind) == 4}


def long_cases():
    """Kernels that bound training steps: large products, attention, streams of memory."""
    from ops import families as f
    rng = f.random.Random(1)
    wanted = [
        (f.product, lambda c: c["dtype"] in ("bf16", "tf32", "fp32") and 2 * c["m"] * c["n"] * c["k"] > 1e11, 9),
        (f.attention, lambda c: c["library"] == "flash" and c["seq_q"] >= 2048 and c["head_dim"] in (64, 128), 4),
        (f.elementwise, lambda c: c["elements"] > 1e8, 3),
        (f.layer_norm, lambda c: c["rows"] * c["cols"] > 1e8, 2),
        (f.convolution, lambda c: c["dtype"] == "bf16" and c["n"] >= 64 and c["r"] == 3, 2)]
    for family, fits, count in wanted:
        while count:
            case = family(rng)
            if fits(case.cells):
                count -= 1
                yield case


def sustained(args, folder, gpu, head):
    """The same kernel for some tenths of a second: clocks under load, and the power drawn."""
    from ops import timer
    board = board_reader()
    columns = ["id", "gpu", "name", "cells", "burst_us", "sustained_us", "power_w", "sm_mhz", "error"]
    table = Table(folder / "sustained.csv", columns, head)
    for number, case in enumerate(long_cases()):
        set_tf32(case.tf32)
        row = {"id": str(number), "gpu": gpu, "name": case.name, "cells": json.dumps(case.cells).replace('"', "'")}
        try:
            copies = min(4, timer.copies_of(case, 6e7, MEMORY_LIMIT))
            call = case.make(args.device, copies)
            burst, long, (watts, clock) = timer.sustained(call, copies, args.sustained, board)
            row.update(burst_us=f"{burst:.3f}", sustained_us=f"{long:.3f}")
            if watts:
                row.update(power_w=f"{watts:.1f}", sm_mhz=f"{clock:.0f}")
        except RuntimeError as error:
            row["error"] = one_line(error)
        table.add(row)


def pairs(args, folder, gpu, head):
    """Two kernels on two streams: how much each slows the other. Products and attention with
    streams of memory, with each other, and streams with each other."""
    from ops import timer
    limit = {"bf16": 2e12, "tf32": 1e12, "fp32": 1e11}  # a few milliseconds

    def is_short(c):
        return c["op"] != "gemm" or 2 * c["m"] * c["n"] * c["k"] < limit[c["dtype"]]
    cases = [c for c in long_cases() if is_short(c.cells)]
    compute = [c for c in cases if c.name == "aten::mm" or "attention" in c.name]
    stream = [c for c in cases if c.family in ("elementwise", "norm")]
    table = Table(folder / "side_by_side.csv", ["id", "gpu", "first", "second", "first_alone_us", "second_alone_us",
                                                "first_beside_us", "second_beside_us", "error"], head)
    mixed = [(a, b) for a in compute for b in stream[1:4]] + list(zip(compute, compute[1:])) + list(zip(stream, stream[1:]))
    for number, (a, b) in enumerate(mixed):
        row = {"id": str(number), "gpu": gpu, "first": f"{a.name} {a.cells}".replace('"', "'"),
               "second": f"{b.name} {b.cells}".replace('"', "'")}
        try:
            set_tf32(a.tf32)
            alone, beside = timer.side_by_side(a.make(args.device, 2), b.make(args.device, 2), 0.02)
            row.update(first_alone_us=f"{alone[0]:.3f}", second_alone_us=f"{alone[1]:.3f}",
                       first_beside_us=f"{beside[0]:.3f}", second_beside_us=f"{beside[1]:.3f}")
        except RuntimeError as error:
            row["error"] = one_line(error)
        table.add(row)


def main():
    args = arguments()
    begin = time.monotonic()
    import torch
    import machine
    if args.device != "cpu" and not torch.cuda.is_available():
        sys.exit(f"sweep_ops.py: torch {torch.__version__} finds no GPU (--device cpu tests the code)")
    torch.set_grad_enabled(False)
    gpu = machine.gpu_name(args.device)
    folder = Path(args.out) / gpu
    folder.mkdir(parents=True, exist_ok=True)
    provenance = {**machine.provenance(args.device), "command": machine.command_line(sys.argv[1:], "sweep_ops.py")}
    head = ["timing: graph replay, no launch cost", json.dumps(provenance)]
    samples = sweep(args, folder, gpu, head, begin)
    if args.device != "cpu":
        torch.cuda.empty_cache()
        if args.sustained > 0 and args.sweep == "drawn":
            sustained(args, folder, gpu, head[1:])
            torch.cuda.empty_cache()
            pairs(args, folder, gpu, head[1:])
        found = {}
        for (name, dtype, layout, form), case in samples.items():
            try:
                set_tf32(case.tf32)
                key = " ".join(filter(None, (name, dtype, layout, form)))
                found[key] = {"cells": case.cells, "kernels": kernels_of(case, args.device)}
            except RuntimeError as error:
                found[f"{name} {dtype}"] = {"error": one_line(error)}
        (folder / file_of("kernels", args.sweep, "json")).write_text(json.dumps(found, indent=1))
    print(f"done after {time.monotonic() - begin:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
