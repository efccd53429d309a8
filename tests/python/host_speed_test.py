#!/usr/bin/env python3
"""examples/host_speed.py with a library that replaces PyTorch."""
import importlib.util
import json
import subprocess
import sys
import tempfile
import types
from contextlib import nullcontext
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "host_speed.py"

spec = importlib.util.spec_from_file_location("host_speed", SCRIPT)
host_speed = importlib.util.module_from_spec(spec)
spec.loader.exec_module(host_speed)


class Clock:
    """Advances by the call of an op, as that says."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1e-9
        return self.now


def test_the_median_call():
    clock = Clock()

    def call(cost):
        clock.now += cost

    us = host_speed.microseconds_per_call(call, 3e-6, 0.01, clock)
    assert abs(us - 3) < 0.01, us


def test_figures_of_the_reference_host():
    table = json.loads(host_speed.TABLE.read_text())
    known = [op for op in host_speed.ops(types.SimpleNamespace()) if host_speed.expected_us(table, op)]
    assert len(known) >= 6, known
    for op in known:
        assert 0.5 < host_speed.expected_us(table, op) < 100, op
    assert host_speed.expected_us(table, "aten::no_such_op") is None


def test_ratios():
    tensor = types.SimpleNamespace(**{name: lambda *_: None for name in
                                      ("view", "reshape", "transpose", "permute", "select", "unsqueeze", "detach")})
    torch = types.SimpleNamespace(
        ones=lambda *_, device: tensor, no_grad=nullcontext, set_num_threads=lambda n: None, add=lambda *_: None,
        mul=lambda *_: None, relu=lambda *_: None, matmul=lambda *_: None,
        nn=types.SimpleNamespace(functional=types.SimpleNamespace(linear=lambda *_: None)))
    rows = host_speed.measure(torch, json.loads(host_speed.TABLE.read_text()), 0.05)
    assert all(0 < measured < expected for measured, expected in rows.values()), rows


def test_bad_input():
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, SCRIPT, Path(folder) / "none.json"], capture_output=True, text=True)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
print("4 tests")
