#!/usr/bin/env python3
"""Records a training program for perfpredict: its execution graph and its Kineto trace.

Copy this file, or its one function, next to the program; it needs PyTorch (1.13 or later) alone.

    from record import recording

    with recording("recorded") as step_done:
        for batch in loader:
            train(batch)
            step_done()              # after each step

writes recorded/rank0_graph.json and recorded/rank0_trace.json.gz, one pair per rank, from which

    perfpredict predict recorded/rank0_trace.json.gz --gpu h100-sxm-80gb

tells how fast the program runs elsewhere. docs/recording.md says why it is done so.
"""

import contextlib
import itertools
import os

from torch import profiler


@contextlib.contextmanager
def recording(folder="recorded", warm=5, steps=3):
    """Yields a function to call after each step. After `warm` steps, one records the graph and the
    `steps` after the next two the trace: each by itself, for one collector makes the other's times
    longer."""
    os.makedirs(folder, exist_ok=True)
    name = os.path.join(folder, f"rank{os.environ.get('RANK', 0)}_")
    graph = getattr(profiler, "ExecutionTraceObserver", None) or profiler.ExecutionGraphObserver
    graph = graph()  # named so since PyTorch 2.0
    graph.register_callback(name + "graph.json")
    schedule = profiler.schedule(wait=warm + 1, warmup=1, active=steps, repeat=1)
    with profiler.profile(schedule=schedule, record_shapes=True, on_trace_ready=lambda made:
                          made.export_chrome_trace(name + "trace.json.gz")) as trace:
        count = itertools.count(1)

        def step_done():
            done = next(count)
            if done == warm:
                graph.start()
            trace.step()  # ends the label of this step and begins the next one's
            if done == warm + 1:
                graph.stop()

        yield step_done
    graph.unregister_callback()


def main():
    """A small program to try it with."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers = [torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with recording("recorded") as step_done:
        for _ in range(12):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(
                model(torch.randn(64, 256, device=device)), torch.randint(10, (64,), device=device))
            loss.backward()
            optimizer.step()
            step_done()


if __name__ == "__main__":
    main()
