"""Workloads that fail on purpose, for the tests of the collector."""


def make(batch, device, tiny, what):
    if what == "memory":
        raise RuntimeError("out of memory, on purpose")
    raise ValueError("this workload raises on purpose")
