"""Takes the measurements of one point: times without a profiler, memory, the execution graph, a
trace.

Each part is independent: if memory, graph or trace fail, the times are kept and the failure is
noted.
"""

import gc
import math
import os
import shutil
import tempfile
import time
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

LEAST_STEPS, MOST_STEPS, TIMED_SECONDS = 10, 100, 2.0
# Shares of a point's six seconds, for steps so long that ten of them do not fit.
FREE_SECONDS, SYNCED_SECONDS = 2.5, 1.2
TRACED_STEPS = 3


def synchronize(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def clear_observers():
    """Environment switches that add an execution-trace observer to profiles, or index dumps to graphs, slow
    the very thing that is measured."""
    for name in list(os.environ):
        if name.startswith("ENABLE_PYTORCH_EXECUTION_TRACE"):
            del os.environ[name]


def warm_up_profiler(device):
    """The first profile of a process pays for the set-up of CUPTI."""
    with profile(activities=activities(device)):
        torch.ones(1, device=device).add_(1)
        synchronize(device)


def activities(device):
    return [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.startswith("cuda") else [])


def settle(trainer, device):
    """First steps, which set up libraries (and compile), and the length of a step in seconds."""
    for _ in range(3):
        loss = trainer.step()
    synchronize(device)
    count, begin = 0, time.perf_counter()
    while count < 5 and time.perf_counter() - begin < 0.5:
        loss = trainer.step()
        synchronize(device)
        count += 1
    return (time.perf_counter() - begin) / count, float(loss.detach())


def step_counts(seconds, share=1.0):
    """Steps of warm-up, free run and synced run: clamp(2 s / step, 10, 100), a fifth of it for warm-up,
    less where the point would outlast its time. `share` of the time: for more points in a short campaign."""
    steps = min(MOST_STEPS, max(LEAST_STEPS, int(share * TIMED_SECONDS / seconds)))
    free = max(3, min(steps, int(share * FREE_SECONDS / seconds)))
    synced = max(3, min(steps, int(share * SYNCED_SECONDS / seconds)))
    return max(1, math.ceil(free / 5)), free, synced


def free_run(trainer, device, steps):
    """Runs steps one after the other, one synchronise at the end, as training does.

    device: from the event in front of a step to that in front of the next, microseconds (None on a CPU);
    host: time the host needs to issue a step (it may run ahead of the device); wall_us: all steps and the
    final wait on the host's clock, per step."""
    cuda = device.startswith("cuda")
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)] if cuda else []
    synchronize(device)
    stamps = [time.perf_counter()]
    for i in range(steps):
        if cuda:
            events[i].record()
        trainer.step()
        stamps.append(time.perf_counter())
    if cuda:
        events[steps].record()
    synchronize(device)
    wall = (time.perf_counter() - stamps[0]) / steps * 1e6
    between = [a.elapsed_time(b) * 1e3 for a, b in zip(events, events[1:])]
    return {"device": between or None, "host": [(b - a) * 1e6 for a, b in zip(stamps, stamps[1:])], "wall_us": wall}


def synced_run(trainer, device, steps):
    """Every step begins on an idle device and ends with a synchronise.

    wall: on the host's clock, the wait included; device: between events before and after the step's
    work, microseconds (None on a CPU)."""
    cuda = device.startswith("cuda")
    wall, events = [], []
    for _ in range(steps):
        synchronize(device)
        begin = time.perf_counter()
        if cuda:
            events.append((torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)))
            events[-1][0].record()
        trainer.step()
        if cuda:
            events[-1][1].record()
        synchronize(device)
        wall.append((time.perf_counter() - begin) * 1e6)
    return {"wall": wall, "device": [a.elapsed_time(b) * 1e3 for a, b in events] or None}


def timed(trainer, device, share=1.0):
    """Both runs, rows as measured; `share` of the usual time."""
    seconds, loss = settle(trainer, device)
    warm, free, synced = step_counts(seconds, share)
    for _ in range(warm):
        trainer.step()
    synchronize(device)
    gc.collect()
    gc.disable()  # a collection in the middle of a step is no property of the workload
    try:
        return {"steps": {"warm_up": warm, "free": free, "synced": synced}, "loss": loss,
                "free": free_run(trainer, device, free), "synced": synced_run(trainer, device, synced)}
    finally:
        gc.enable()


def tensor_bytes(tensor):
    """Bytes of a dense or sparse tensor."""
    if tensor.is_sparse:
        return tensor_bytes(tensor._indices()) + tensor_bytes(tensor._values())
    return tensor.numel() * tensor.element_size()


def optimizer_bytes(optimizer):
    return sum(tensor_bytes(value) for state in optimizer.state.values() for value in state.values()
               if torch.is_tensor(value))


def memory(trainer, device):
    """Bytes of one step. Activations: what the forward pass leaves allocated for the backward pass (GPU
    only); max_allocated and max_reserved: peaks of one step, library workspaces included."""
    cuda = device.startswith("cuda")
    allocated = torch.cuda.memory_allocated if cuda else lambda: 0
    found = {"weights_bytes": sum(tensor_bytes(p) for p in trainer.model.parameters()),
             "buffers_bytes": sum(tensor_bytes(b) for b in trainer.model.buffers())}
    synchronize(device)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    trainer.zero_grad()
    before = allocated()
    loss = trainer.forward()
    forward = allocated()
    loss.backward()
    found["gradients_bytes"] = sum(tensor_bytes(p.grad) for p in trainer.model.parameters() if p.grad is not None)
    trainer.optimizer.step()
    found["optimizer_bytes"] = optimizer_bytes(trainer.optimizer)
    if cuda:
        synchronize(device)
        found.update(before_forward_bytes=before, activations_bytes=forward - before,
                     max_allocated_bytes=torch.cuda.max_memory_allocated(),
                     max_reserved_bytes=torch.cuda.max_memory_reserved())
    return found


def observer():
    """The ET observer under the name that this torch has for it."""
    for name in ("ExecutionTraceObserver", "ExecutionGraphObserver"):
        kind = getattr(torch.profiler, name, None)
        if kind is not None:
            return kind()
    raise RuntimeError("torch.profiler has no execution-trace observer")


def execution_graph(trainer, device):
    """The ET of exactly one step as JSON text, taken without Kineto. It holds the step's label,
    like the trace."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "et.json"
        watcher = observer()
        watcher.register_callback(str(path))
        try:
            synchronize(device)
            watcher.start()
            with record_function("ProfilerStep#0"):
                trainer.step()
            synchronize(device)
            watcher.stop()
        finally:
            watcher.unregister_callback()  # finishes the file
        # Sources of Triton kernels, next to the file from torch 2.6 on, are not kept.
        shutil.rmtree(path.with_name("et_resources"), ignore_errors=True)
        return path.read_bytes()


def kineto_trace(trainer, device):
    """Chrome trace of three steps back to back, shapes recorded, no ET observer, as JSON text. One more step
    in front of it is profiled and dropped, since profilers lose kernels when they start; the wait
    after it keeps its kernels out of the window. The profiler itself waits for the device at its
    end."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        options = {"activities": activities(device), "record_shapes": True}
        if torch.profiler.kineto_available():
            plan = schedule(wait=0, warmup=1, active=TRACED_STEPS, repeat=1)
            with profile(schedule=plan, on_trace_ready=lambda p: p.export_chrome_trace(str(path)), **options) as p:
                for i in range(1 + TRACED_STEPS):
                    trainer.step()
                    if i == 0:
                        synchronize(device)
                    p.step()
        else:  # the old CPU profiler heeds no schedule
            with profile(**options) as p:
                for i in range(TRACED_STEPS):
                    with record_function(f"ProfilerStep#{i + 1}"):
                        trainer.step()
            p.export_chrome_trace(str(path))
        return path.read_bytes()
