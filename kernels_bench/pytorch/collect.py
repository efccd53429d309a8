#!/usr/bin/env python3
"""Measures whole training steps of the campaign (campaign.py) on one GPU, or on a CPU for tests.

    python3 collect.py --out DIR --tier 1
    python3 collect.py --out DIR --workload resnet50 bert-base-384.bf16 --batch 16
    python3 collect.py --out DIR --device cpu --scale tiny --workload dlrm-default

Writes DIR/<gpu>/index.json and gzip files next to it; README.md describes them. Points that
are there already are skipped, so that a run that was cut off goes on where it stopped.

Times and memory of all points come first, graphs and traces in a second pass: a profiler that has run
once may slow what the same process times afterwards.
"""

import argparse
import gc
import json
import sys
import time
import traceback
from pathlib import Path

import campaign
import results
import traces
from results import BadInput

SMALL_BYTES = 250_000  # traces of points beyond the two of a workload are kept up to this size
TRACE_FILES = {"et", "kineto"}
EXPECTED_SECONDS, EXPECTED_COMPILE_SECONDS = 10, 90


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="DIR", help="folder for the results, DIR/<gpu>")
    parser.add_argument("--device", default="cuda", help="cuda (default), cuda:N or cpu")
    parser.add_argument("--tier", type=int, nargs="+", metavar="N", help="all workloads of these tiers (default 1)")
    parser.add_argument("--workload", nargs="+", metavar="NAME", help="these workloads instead")
    parser.add_argument("--batch", type=int, nargs="+", metavar="B", help="these batches instead of the campaign's")
    parser.add_argument("--scale", choices=("full", "tiny"), default="full", help="tiny: small models, for tests")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="begin no point that would end later")
    parser.add_argument("--time-share", type=float, default=1, metavar="X",
                        help="of the usual time per point: 0.5 halves the steps (default 1)")
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads of torch")
    parser.add_argument("--max-mb", type=float, default=16, metavar="MB",
                        help="keep no more traces in the folder beyond this (default 16)")
    parser.add_argument("--retry-errors", action="store_true", help="take points and traces again that raised before")
    parser.add_argument("--list", action="store_true", help="print workloads, batches and splits")
    return parser.parse_args()


def chosen_points(args):
    """Workload and batch, in the order of the campaign."""
    if args.workload:
        unknown = [name for name in args.workload if campaign.find(name) is None]
        if unknown:
            raise BadInput(f"unknown workload {', '.join(unknown)} (see --list)")
        chosen = [campaign.find(name) for name in args.workload]
    else:
        tiers = args.tier or [1]
        chosen = [w for w in campaign.WORKLOADS if w.tier in tiers]
        if not chosen:
            raise BadInput(f"no workload in tier {' '.join(map(str, tiers))}: expected 1, 2, 3 or 4")
    if args.batch and min(args.batch) < 1:
        raise BadInput(f"--batch: expected positive numbers, found {min(args.batch)}")
    return [(w, b) for w in chosen for b in (args.batch or campaign.batches(w, args.scale))]


def print_list(points):
    for workload, batch in points:
        key, split = campaign.point_key(workload.name, batch), campaign.split_of(workload.name, batch)
        print(f"{workload.tier}  {key:36} {split}")


def is_out_of_memory(error):
    return type(error).__name__ == "OutOfMemoryError" or "out of memory" in str(error).lower()


def one_line(error):
    return f"{type(error).__name__}: {error}".split("\n")[0][:300]


class Collector:
    """Measures points one by one and files them."""

    def __init__(self, args, folder, index, run):
        self.args, self.folder, self.index, self.run = args, folder, index, run

    def measure(self, workload, batch):
        """One entry of the index, whatever happens; rows of times in a file of their own."""
        key = campaign.point_key(workload.name, batch)
        point = {"key": key, "workload": workload.name, "batch": batch, "tier": workload.tier,
                 "split": campaign.split_of(workload.name, batch), "run": self.run, "status": "ok", "traced": False,
                 "options": workload.options, "settings": workload.settings, "files": {}, "failed": {}}
        self._guarded(point, workload, self._measure)
        return point

    def trace(self, point, workload):
        """Graph and trace of a point that has its times."""
        found = {"failed": {}, "files": {}, "status": "ok", "batch": point["batch"], "key": point["key"]}
        self._guarded(found, workload, self._trace)
        if found["status"] != "ok":
            found["failed"] = {name: found["error"] for name in TRACE_FILES}
        earlier = {name: why for name, why in point["failed"].items() if name not in TRACE_FILES}
        traced = {**point, "traced": True, "traced_in_run": self.run, "trace_seconds": found["seconds"],
                  "files": {**point["files"], **found["files"]}, "failed": {**earlier, **found["failed"]}}
        if "trace" in found:
            traced["trace"] = found["trace"]
        return traced

    def _guarded(self, point, workload, take):
        """Makes the workload and runs `take`; a failure becomes the status of the point."""
        import workloads
        from workloads.common import Unsupported
        begin = time.perf_counter()
        try:
            trainer = workloads.make(workload, point["batch"], self.args.device, self.args.scale == "tiny",
                                     campaign.seed_of(workload.name))
            point["setup_s"] = round(time.perf_counter() - begin, 2)
            take(point, trainer, workload)
        except Unsupported as error:
            point.update(status="unsupported", error=one_line(error))
        except Exception as error:  # pylint: disable=broad-except
            point.update(status="out-of-memory" if is_out_of_memory(error) else "error", error=one_line(error))
            if point["status"] == "error":
                traceback.print_exc()
        point["seconds"] = round(time.perf_counter() - begin, 2)

    def _measure(self, point, trainer, _):
        import machine
        import measure
        from workloads.common import precision
        device = self.args.device
        point["notes"] = trainer.notes
        self._attempt(point, "precision", lambda: point.update(precision=precision()))
        self._times(point, trainer)
        self._attempt(point, "clocks", lambda: point.update(clocks=machine.clocks_under_load(device, trainer.step)))
        self._attempt(point, "memory", lambda: point.update(memory=measure.memory(trainer, device)))

    def _trace(self, point, trainer, workload):
        import measure
        device = self.args.device
        always = point["batch"] in campaign.traced_batches(workload, self.args.scale) or bool(self.args.batch)
        measure.settle(trainer, device)
        self._attempt(point, "et", lambda: self._write_if_room(
            point, "et", measure.execution_graph(trainer, device), always))
        self._attempt(point, "kineto", lambda: self._file_trace(point, measure.kineto_trace(trainer, device), always))

    @staticmethod
    def _attempt(point, name, take):
        """Notes a failure, which costs nothing else."""
        try:
            take()
        except Exception as error:  # pylint: disable=broad-except
            point["failed"][name] = one_line(error)

    def _times(self, point, trainer):
        import measure
        rows = measure.timed(trainer, self.args.device, self.args.time_share)
        point["loss"] = rows["loss"] if rows["loss"] == rows["loss"] and abs(rows["loss"]) < 1e30 else None
        free, synced = rows["free"], rows["synced"]
        point["steps"] = rows["steps"]
        point["times"] = {
            "free": {"device": results.statistics(free["device"]), "host": results.statistics(free["host"]),
                     "wall_us": round(free["wall_us"], 3)},
            "synced": {"wall": results.statistics(synced["wall"]), "device": results.statistics(synced["device"])}}
        for run in (free, synced):
            for name, values in run.items():
                run[name] = [round(v, 2) for v in values] if isinstance(values, list) else values
        self._write(point, "times", results.json_bytes({"free": free, "synced": synced}))

    def _file_trace(self, point, text, always):
        """The slim trace where it is kept; sums per kernel and per step always."""
        document = json.loads(text.decode("utf-8", errors="replace"), strict=False)
        trace = traces.parse_trace(document)
        point["trace"] = traces.summary(trace)
        rows = traces.kernel_rows(trace)
        if rows:
            self._write(point, "kernels", results.json_bytes(rows))
        slim = traces.slim(document)
        self._write_if_room(point, "kineto", results.json_bytes(slim, separators=(",", ":")), always)

    def _write_if_room(self, point, name, data, always):
        packed = results.gzip_bytes(data)
        used = sum(path.stat().st_size for path in self.folder.iterdir())
        if used + len(packed) > self.args.max_mb * 1e6:
            point["failed"][name] = f"left out: the folder would outgrow {self.args.max_mb:g} MB"
        elif always or len(packed) <= SMALL_BYTES:
            self._file(point, name, packed)

    def _write(self, point, name, data):
        self._file(point, name, results.gzip_bytes(data))

    def _file(self, point, name, packed):
        file = f"{point['key']}.{name}.json.gz"
        results.write_whole(self.folder / file, packed)
        point["files"][name] = file


def device_is_lost(device):
    """After some errors a CUDA context is of no more use; an out-of-memory is none of those."""
    import torch
    gc.collect()
    if not device.startswith("cuda"):
        return False
    try:
        torch.cuda.empty_cache()
        torch.cuda.synchronize()
        return False
    except Exception:  # pylint: disable=broad-except
        return True


def forget_compiled(workload):
    """Compiled code of one workload is not to be found by the next."""
    if not workload.settings.get("compile"):
        return
    try:
        import torch
        torch._dynamo.reset()
    except Exception:  # pylint: disable=broad-except
        pass


def prepare(args):
    """Torch, the folder and its index; problems are BadInput."""
    try:
        import torch
    except ImportError as error:
        raise BadInput(f"{sys.executable} cannot import torch ({error})") from None
    import machine
    import measure
    if args.device.startswith("cuda"):
        if not torch.cuda.is_available():
            raise BadInput(f"--device {args.device}: torch {torch.__version__} finds no GPU")
        torch.cuda.set_device(torch.device(args.device if ":" in args.device else "cuda:0"))
    elif args.device != "cpu":
        raise BadInput(f"--device: expected cuda, cuda:N or cpu, found {args.device}")
    if args.threads:
        torch.set_num_threads(args.threads)
    measure.clear_observers()
    gpu = machine.gpu_name(args.device)
    folder = Path(args.out) / gpu
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob("*.partial"):
            leftover.unlink()
        index = results.Index(folder, gpu, args.scale)
        index.document["runs"].append(machine.provenance(args.device))
        index.save()
    except OSError as error:
        raise BadInput(f"{folder}: cannot be written ({error.strerror})") from None
    return folder, index


def show(point):
    """One line per point."""
    if point["status"] != "ok":
        return f"{point['key']:36} {point['status']}: {point['error']}"
    failed = "".join(f"  no {name}: {why}" for name, why in point["failed"].items())
    if point["traced"]:
        return f"{point['key']:36} traced  {point['trace_seconds']:5.1f} s{failed}"
    step = results.step_time(point)
    return (f"{point['key']:36} {step['median_us'] / 1e3:10.3f} ms  spread {step['spread']:.3f}  "
            f"{point['seconds']:5.1f} s{failed}")


class Budget:
    """Seconds since the start, and how many there may be."""

    def __init__(self, seconds, time_share):
        self.seconds, self.begin, self.share = seconds, time.perf_counter(), min(1, 0.3 + 0.7 * time_share)

    def spent(self, workload, key):
        """Whether one more point would probably end too late; says so."""
        expected = EXPECTED_COMPILE_SECONDS if workload.settings.get("compile") else EXPECTED_SECONDS * self.share
        if self.seconds is None or time.perf_counter() - self.begin + expected <= self.seconds:
            return False
        print(f"stopped before {key}: the budget of {self.seconds:g} s is used up")
        return True


def file_point(index, point, workload, device):
    """Into the index, and on to the next if the device still answers."""
    forget_compiled(workload)
    lost = device_is_lost(device)
    try:
        index.add(point)
    except OSError as error:
        raise BadInput(f"{index.folder}: cannot be written ({error.strerror})") from None
    print(show(point), flush=True)
    if lost:
        raise BadInput(f"{point['key']}: the GPU answers no more; start again to go on behind this point")


def collect(args, points):
    """Exit status."""
    budget = Budget(args.budget, args.time_share)
    folder, index = prepare(args)
    collector = Collector(args, folder, index, len(index.document["runs"]) - 1)
    for workload, batch in points:
        key = campaign.point_key(workload.name, batch)
        old = index.point(key)
        if old and not (old["status"] == "error" and args.retry_errors):
            continue
        if budget.spent(workload, key):
            return 0
        file_point(index, collector.measure(workload, batch), workload, args.device)
    if not trace_all(collector, budget, points):
        return 0
    print(f"{sum(p['status'] == 'ok' for p in index.document['points'])} points in {folder}")
    return 0


def trace_all(collector, budget, points):
    """Second pass; whether it came to its end."""
    import measure
    index, device, warm = collector.index, collector.args.device, False
    for workload, batch in points:
        point = index.point(campaign.point_key(workload.name, batch))
        again = collector.args.retry_errors and TRACE_FILES & point["failed"].keys()
        if point["status"] != "ok" or (point["traced"] and not again):
            continue
        if budget.spent(workload, point["key"]):
            return False
        if not warm:
            warm = True
            try:
                measure.warm_up_profiler(device)
            except Exception as error:  # pylint: disable=broad-except
                print(f"profiler: {one_line(error)}", file=sys.stderr)
        file_point(index, collector.trace(point, workload), workload, device)
    return True


def main():
    args = arguments()
    try:
        points = chosen_points(args)
        if args.list:
            print_list(points if args.tier or args.workload else
                       [(w, b) for w in campaign.WORKLOADS for b in campaign.batches(w, args.scale)])
            return 0
        if not args.out:
            raise BadInput("--out DIR is missing")
        return collect(args, points)
    except BrokenPipeError:  # whoever read has enough
        sys.stdout = None
        return 1
    except BadInput as error:
        print(f"collect.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("collect.py: stopped; run it again to go on", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
