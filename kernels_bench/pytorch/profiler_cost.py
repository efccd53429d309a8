#!/usr/bin/env python3
"""Measures what it costs to watch: training steps that their host bounds, free and under each of PyTorch's collectors.

    python3 profiler_cost.py --out DIR
    python3 profiler_cost.py --out DIR --device cpu --scale tiny      # the code, without a GPU

Writes DIR/<gpu>/profiler_cost.json: provenance and one row per program and way of watching. All programs are made
first, then run in every way in turn, free first: a profiler that has run once may slow what the same process
does later, which the last way ("free again") shows.
"""

import argparse
import gc
import json
import sys
import tempfile
import time
from pathlib import Path

import campaign
import results

# Workload and batch; kernels so short that the device waits for the host in most of them.
PROGRAMS = (("dlrm-default.bf16", 512), ("dlrm-ddp", 512), ("dlrm-ddp.bf16", 512), ("dlrm-mix26-bags", 2048),
            ("dlrm-mix100-bags", 2048), ("dlrm-mix100-batched", 2048), ("bert-base-384.bf16", 8),
            ("transformer-base.bf16", 4), ("gpt2-small-512.sdpa-flash", 4), ("resnet50.bf16", 16),
            ("lstm-cells-256x1", 32), ("lstm-cells-512x2", 32))
WAYS = ("free", "kineto: kernels only", "kineto", "kineto: shapes", "kineto: shapes, stacks", "kineto: shapes, memory",
        "observer", "free again")
LEAST_STEPS, MOST_STEPS, SECONDS = 10, 40, 0.5


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="DIR", required=True, help="folder for the results, DIR/<gpu>")
    parser.add_argument("--device", default="cuda", help="cuda (default) or cpu")
    parser.add_argument("--scale", choices=("full", "tiny"), default="full", help="tiny: small models, for tests")
    parser.add_argument("--programs", type=int, default=len(PROGRAMS), metavar="N", help="the first N (default all)")
    return parser.parse_args()


def profiled(options):
    """A runner that counts what was recorded, too."""
    def run(trainer, device, steps):
        import measure
        from torch.profiler import ProfilerActivity, profile
        chosen = dict(options)
        if chosen.pop("kernels_only", False):
            chosen["activities"] = measure.activities(device)[-1:]
        else:
            chosen["activities"] = measure.activities(device)
        with profile(**chosen) as record:
            trainer.step()  # the first step under a profiler pays for buffers
            measure.synchronize(device)
            rows = measure.free_run(trainer, device, steps)
        events = record.profiler.kineto_results
        rows["events_per_step"] = round(len(events.events()) / (steps + 1), 1) if events else None
        return rows
    return run


def observed(trainer, device, steps):
    import measure
    with tempfile.TemporaryDirectory() as folder:
        watcher = measure.observer()
        path = Path(folder) / "et.json"
        watcher.register_callback(str(path))
        watcher.start()
        trainer.step()
        rows = measure.free_run(trainer, device, steps)
        watcher.stop()
        watcher.unregister_callback()
        rows["events_per_step"] = round(len(results.load_json(path)["nodes"]) / (steps + 1), 1)
    return rows


def runner(way):
    import measure
    if way.startswith("free"):
        return measure.free_run
    if way == "observer":
        return observed
    return profiled({"kernels_only": "only" in way, "record_shapes": "shapes" in way, "with_stack": "stacks" in way,
                     "profile_memory": "memory" in way})


def row_of(name, batch, way, trainer, device, steps):
    """The times of one program in one way, or why it has none."""
    row = {"workload": name, "batch": batch, "way": way, "steps": steps}
    gc.collect()
    gc.disable()
    try:
        found = runner(way)(trainer, device, steps)
        row.update(wall_us=round(found["wall_us"], 1), host=results.statistics(found["host"]),
                   device=results.statistics(found["device"]), events_per_step=found.get("events_per_step"))
    except Exception as error:  # pylint: disable=broad-except
        row["error"] = f"{type(error).__name__}: {error}".split("\n")[0][:160]
    finally:
        gc.enable()
    return row


def made(programs, device, tiny):
    """Settled trainers and the steps that half a second holds."""
    import measure
    import workloads
    found = []
    for name, batch in programs:
        workload = campaign.find(name)
        batch = campaign.TINY_BATCHES[0] if tiny else batch
        trainer = workloads.make(workload, batch, device, tiny, campaign.seed_of(name))
        seconds, _ = measure.settle(trainer, device)
        found.append((name, batch, trainer, max(LEAST_STEPS, min(MOST_STEPS, int(SECONDS / seconds)))))
    return found


def main():
    args = arguments()
    import torch
    import machine
    import measure
    if args.device != "cpu" and not torch.cuda.is_available():
        sys.exit(f"profiler_cost.py: torch {torch.__version__} finds no GPU (--device cpu tests the code)")
    measure.clear_observers()
    gpu = machine.gpu_name(args.device)
    folder = Path(args.out) / gpu
    folder.mkdir(parents=True, exist_ok=True)
    provenance = {**machine.provenance(args.device), "command": machine.command_line(sys.argv[1:], "profiler_cost.py")}
    document = {"schema": "perfmodel-profiler-cost", "version": 1, "gpu": gpu, "run": provenance, "rows": []}
    begin = time.monotonic()
    programs = made(PROGRAMS[:args.programs], args.device, args.scale == "tiny")
    for way in WAYS:
        for name, batch, trainer, steps in programs:
            document["rows"].append(row_of(name, batch, way, trainer, args.device, steps))
        results.write_whole(folder / "profiler_cost.json", results.json_bytes(document, indent=1))
        print(f"{way}: {time.monotonic() - begin:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
