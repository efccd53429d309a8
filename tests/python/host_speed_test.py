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


def reference():
    return json.loads(host_speed.TABLE.read_text())


def test_figures_of_the_reference_host():
    known = [op for op in host_speed.CALLS if host_speed.expected_us(reference(), op)]
    assert len(known) == 7, known
    for op in known:
        assert 0.3 < host_speed.expected_us(reference(), op) < 5, op
    assert host_speed.CALLS.keys() == host_speed.IN_A_LOOP.keys()


def test_the_host_that_was_measured():
    """The factor of its steps: 1.12 (CollectorCost.HostOfTheMeasuredMachine). Shares come from the same figures."""
    raw = json.loads((ROOT / "data" / "measurements" / "h200-sxm-141gb" / "host_speed.json").read_text())["ops"]
    rows = {op: (raw[op]["measured_us"], host_speed.expected_us(reference(), op)) for op in host_speed.CALLS}
    assert abs(host_speed.factor_of(rows) / 1.12 - 1) < 0.2, host_speed.factor_of(rows)


def test_ratios():
    tensor = types.SimpleNamespace(**{name: lambda *_: None for name in
                                      ("view", "reshape", "transpose", "permute", "select", "unsqueeze", "detach")})
    torch = types.SimpleNamespace(ones=lambda *_: tensor, no_grad=nullcontext, set_num_threads=lambda n: None)
    rows = host_speed.measure(torch, reference(), 0.05)
    assert len(rows) == 7 and all(0 < measured < expected for measured, expected in rows.values()), rows


def test_ops_that_disagree_tell_nothing():
    assert host_speed.factor_of({"a": (1, 2), "b": (3, 2), "c": (2, 2)}) == 1
    try:
        host_speed.factor_of({"a": (1, 2), "b": (3.2, 2), "c": (2, 2)})
    except SystemExit as refused:
        assert str(refused) == ("host_speed.py: expected ops that agree within a factor of 3, found a at 0.50 and b at "
                                "1.60 times the reference host"), refused
    else:
        raise AssertionError("a factor of ops that disagree")


def test_bad_input():
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, SCRIPT, Path(folder) / "none.json"], capture_output=True, text=True)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
print("6 tests")
