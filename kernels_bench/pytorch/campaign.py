"""The points to measure: workloads, batches, tiers, variants, and which points are kept for
testing.

Plain data, no torch: check.py and table.py read it too, on machines that have none.
"""

import hashlib
from dataclasses import dataclass, field, replace
from typing import Dict, List, Tuple

# Points that no fit may see. Fixed before the first measurement; do not change it afterwards.
SPLIT_SALT = "perfmodel-measurements-1"
TEST_SHARE = 0.2
SPLIT_GROUPS = (("dlrm.make", "embedding_mix.make"), ("resnet.make", "inception.make"),
                ("bert.make", "gpt2.make", "transformer.make", "lstm.make"))

TINY_BATCHES = (4, 6, 8, 10)


@dataclass(frozen=True)
class Workload:
    """One program to train. `options` go to its maker in workloads/, `settings` hold for the whole
    step: tf32, autocast (bf16), channels_last, compile (True or a mode of torch.compile)."""

    name: str
    tier: int
    maker: str  # "module.function" of workloads/
    batches: Tuple[int, ...]
    options: Dict = field(default_factory=dict)
    settings: Dict = field(default_factory=dict)


def point_key(workload: str, batch: int) -> str:
    """Name of a point, also the stem of its files."""
    return f"{workload}-b{batch}"


def _hash(workload: str, batch: int) -> float:
    """0 to 1, the same for all variants (named after the first dot): no fit then meets a test point
    in another precision."""
    text = f"{SPLIT_SALT}/{workload.split('.')[0]}/{batch}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def split_of(workload: str, batch: int) -> str:
    """"test" or "train": of each group of makers the fifth of the points with the lowest hashes, so that
    every group has test points. Batches outside the campaign (tiny ones, too) go by the hash alone."""
    base = workload.split(".")[0]
    for makers in SPLIT_GROUPS:
        points = [(w.name, b) for w in WORKLOADS if "." not in w.name and w.maker in makers for b in w.batches]
        if (base, batch) in points:
            points.sort(key=lambda point: _hash(*point))
            return "test" if points.index((base, batch)) < round(TEST_SHARE * len(points)) else "train"
    return "test" if _hash(base, batch) < TEST_SHARE else "train"


def _variant(base: Workload, suffix: str, tier: int, options=None, settings=None, batches=None) -> Workload:
    return replace(base, name=f"{base.name}.{suffix}", tier=tier, batches=batches or base.batches,
                   options={**base.options, **(options or {})},
                   settings={**base.settings, **(settings or {})})


def _tier1() -> List[Workload]:
    dlrm_batches = (512, 1024, 2048, 4096)
    found = [
        Workload("dlrm-default", 1, "dlrm.make", dlrm_batches,
                 {"bottom": (512, 512, 64), "top": (1024, 1024, 1024, 1),
                  "rows": (1_000_000,) * 8, "pooling": 100}),
        Workload("dlrm-mlperf", 1, "dlrm.make", dlrm_batches,
                 {"bottom": (13, 512, 256, 128), "top": (1024, 1024, 512, 256, 1),
                  "rows": "criteo", "pooling": 1}),
        Workload("dlrm-ddp", 1, "dlrm.make", dlrm_batches,
                 {"bottom": (128, 128, 128, 128), "top": (512, 512, 512, 256, 1),
                  "rows": (80_000,) * 8, "pooling": 10}),
    ]
    # Skew runs against the number of tables, so that neither stands for the other.
    for tables, alpha in ((26, 0.9), (50, 1.3), (75, 0.6), (100, 1.1)):
        for batched in (False, True):
            found.append(Workload(
                f"dlrm-mix{tables}-{'batched' if batched else 'bags'}", 1, "embedding_mix.make", (2048,),
                {"tables": tables, "alpha": alpha, "batched": batched}))
    found.append(Workload("resnet50", 1, "resnet.make", (16, 32)))
    found.append(Workload("bert-base-384", 1, "bert.make", (8, 32), {"size": "base", "length": 384}))
    return found


def _tier2(tier1: List[Workload]) -> List[Workload]:
    found = [_variant(w, "tf32", 2, settings={"tf32": True}) for w in tier1]
    return found + [_variant(w, "bf16", 2, settings={"autocast": "bf16"}) for w in tier1]


def _tier3(tier1: List[Workload]) -> List[Workload]:
    pair = (4, 16)
    found = [Workload("inception-v3", 3, "inception.make", pair)]
    for length in (128, 512):
        found.append(Workload(f"bert-large-{length}", 3, "bert.make", pair, {"size": "large", "length": length}))
    for size in ("small", "medium"):
        for length in (512, 1024):
            found.append(Workload(f"gpt2-{size}-{length}", 3, "gpt2.make", pair, {"size": size, "length": length}))
    found.append(Workload("transformer-base", 3, "transformer.make", pair, {"length": 256}))
    for kind in ("lstm", "lstm-cells"):
        for hidden, layers in ((256, 1), (512, 2), (1024, 4)):
            found.append(Workload(f"{kind}-{hidden}x{layers}", 3, "lstm.make", (32, 128),
                                  {"hidden": hidden, "layers": layers, "cells": kind == "lstm-cells"}))
    by_name = {w.name: w for w in tier1 + found}
    for base, batch in ((by_name["bert-base-384"], 8), (by_name["gpt2-small-512"], 4)):
        for suffix, options, settings in (
                ("compile", {}, {"compile": True}),
                ("checkpoint", {"checkpoint": True}, {}),
                ("attention-plain", {"attention": "plain"}, {}),
                # The flash kernels know half types only; math runs in the same type for comparison.
                ("sdpa-math", {"attention": "math"}, {"autocast": "bf16"}),
                ("sdpa-flash", {"attention": "flash"}, {"autocast": "bf16"}),
                ("adam-plain", {"adam": "plain"}, {}),
                ("adam-foreach", {"adam": "foreach"}, {}),
                ("adam-fused", {"adam": "fused"}, {})):
            found.append(_variant(base, suffix, 3, options, settings, (batch,)))
    found.append(_variant(by_name["dlrm-default"], "adagrad", 3, {"optimizer": "adagrad"}, batches=(2048,)))
    return found


def _tier4(earlier: List[Workload]) -> List[Workload]:
    """Programs as people speed them up: fused attention, compiled, CUDA graphs, channels-last."""
    by_name = {w.name: w for w in earlier}
    gpt2, resnet = by_name["gpt2-small-1024"], by_name["resnet50"]
    bf16 = {"autocast": "bf16"}
    found = [_variant(gpt2, suffix, 4, {"attention": attention}, {**bf16, **settings}, (16,))
             for suffix, attention, settings in (
                 ("bf16", "plain", {}), ("bf16-flash", "flash", {}),
                 ("bf16-flash-compile", "flash", {"compile": True}),
                 ("bf16-flash-graphs", "flash", {"compile": "reduce-overhead"}),
                 ("bf16-compile", "plain", {"compile": True}))]
    found += [_variant(resnet, suffix, 4, {}, {**bf16, **settings}, (64, 256))
              for suffix, settings in (("bf16-first", {}), ("bf16-last", {"channels_last": True}))]
    found.append(_variant(resnet, "bf16-last-compile", 4, {}, {**bf16, "channels_last": True, "compile": True}, (64,)))
    found += [_variant(by_name[name], "compile", 4, {}, {"compile": True}, (2048,))
              for name in ("dlrm-default", "dlrm-ddp", "dlrm-mix26-bags")]
    return found + [_variant(by_name["transformer-base"], "bf16", 4, settings=bf16, batches=(4,))]


_TIER1 = _tier1()
_EARLIER = _TIER1 + _tier2(_TIER1) + _tier3(_TIER1)
WORKLOADS: List[Workload] = _EARLIER + _tier4(_EARLIER)

# Fail on purpose: tests of how the collector takes errors. In no tier, not listed.
SELF_TESTS = [Workload("self-test-raises", 0, "self_test.make", (4,), {"what": "raise"}),
              Workload("self-test-memory", 0, "self_test.make", (4,), {"what": "memory"})]


def find(name: str):
    """The workload of this name, or None."""
    return next((w for w in WORKLOADS + SELF_TESTS if w.name == name), None)


def batches(workload: Workload, scale: str) -> Tuple[int, ...]:
    """Batches at a scale: tiny ones suffice to run the code on a CPU."""
    return TINY_BATCHES[:len(workload.batches)] if scale == "tiny" else workload.batches


def traced_batches(workload: Workload, scale: str) -> Tuple[int, ...]:
    """The two batches whose traces are kept whatever their size: smallest and largest."""
    values = batches(workload, scale)
    return tuple(sorted({values[0], values[-1]}))


def seed_of(name: str) -> int:
    """One seed per base workload: its variants see the same weights and inputs."""
    return int.from_bytes(hashlib.sha256(name.split(".")[0].encode()).digest()[:4], "big")
