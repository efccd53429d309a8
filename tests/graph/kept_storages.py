#!/usr/bin/env python3
"""Counts the storages that live from the forward pass of a recorded training step to its backward
pass, from the storage ids of the file alone, and compares `perfpredict memory --json` with that.

    python3 tests/graph/kept_storages.py PROGRAM [GRAPH...]

Without graphs: all execution graphs of the public data (PERFMODEL_PUBLIC_DATA). A storage id is an address: it begins anew where an op returns it that has not had it before, as an
argument or from an op inside it. A storage that begins in the forward pass and is an argument in the backward
pass before it begins anew is kept. Bytes reach to the end of the largest tensor at its beginning.
"""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path


PUBLIC = ("traces/*_et.json.gz", "traces/*_et_*.json.gz", "traces_cpu/*.et.json.gz")


def nodes_of(path: Path) -> list:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    nodes = []
    for node in json.loads(text)["nodes"]:
        chakra = "ctrl_deps" in node
        values = [node[side]["values"] if chakra else node[side] for side in ("inputs", "outputs")]
        nodes.append((node["id"], node["name"], node["ctrl_deps"] if chakra else node["parent"], *values))
    return sorted(nodes, key=lambda node: node[0])


def tensors_in(value, device: str):
    """(storage, bytes to its end) of the tensors of an argument or result that lie on `device`."""
    if not isinstance(value, list):
        return
    if len(value) == 6 and isinstance(value[5], str) and all(isinstance(part, int) for part in value[:5]):
        _, storage, offset, count, size, place = value
        if storage != 0 and place.split(":")[0] == device and (size > 0 or count == 0):
            yield storage, (offset + count) * size
        return
    for part in value:
        yield from tensors_in(part, device)


def first_step(nodes: list) -> list:
    """Nodes below the first ProfilerStep label, or all where there is none."""
    steps = [node[0] for node in nodes if node[1].startswith("ProfilerStep")]
    if not steps:
        return nodes
    end = steps[1] if len(steps) > 1 else float("inf")
    return [node for node in nodes if steps[0] <= node[0] < end]


def mentions_in_order(nodes: list, device: str):
    """(node id, ids of open ops that will return it, is a result, storage, bytes, in the backward
    pass): arguments when an op begins, results when it ends, after the results of inner ops."""
    backward = set()
    open_ops = []

    def close(node):
        for storage, size in tensors_in(node[4], device):
            yield node[0], [], True, storage, size, node[0] in backward

    for node in nodes:
        while open_ops and open_ops[-1][0] != node[2]:
            yield from close(open_ops.pop())
        if node[1].startswith("autograd::engine::evaluate_function") or node[2] in backward:
            backward.add(node[0])
        for storage, size in tensors_in(node[3], device):
            around = [op[0] for op in open_ops if storage in dict(tensors_in(op[4], device))]
            yield node[0], around, False, storage, size, node[0] in backward
        open_ops.append(node)
    while open_ops:
        yield from close(open_ops.pop())


def kept(path: Path):
    nodes = first_step(nodes_of(path))
    device = "cuda" if '"cuda' in json.dumps([node[4] for node in nodes]) else "cpu"
    now, all_kept = {}, []
    for node, around, is_result, storage, size, in_backward in mentions_in_order(nodes, device):
        known = now.get(storage)
        seen = -1 if known is None else known["seen"]
        # Some ops allocate without an op inside them and have one fill what they will return.
        makers = [node] if is_result else around
        begins = any(seen < maker for maker in makers)
        if known is None or begins:
            known = {"bytes": size, "made": begins and not in_backward, "maker": node, "kept": False, "seen": -1}
            now[storage] = known
        elif is_result and known["maker"] == node:
            known["bytes"] = max(known["bytes"], size)
        known["seen"] = max(node, known["seen"])
        if not is_result and in_backward and known["made"] and not known["kept"]:
            known["kept"] = True
            all_kept.append(known)
    all_kept = [storage["bytes"] for storage in all_kept if storage["bytes"] > 0]  # empty storages share an address
    return len(all_kept), sum(all_kept)


def main() -> int:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    public = os.environ.get("PERFMODEL_PUBLIC_DATA")
    if len(sys.argv) == 2 and not public:
        print("skipped: PERFMODEL_PUBLIC_DATA is not set")
        return 77
    graphs = sys.argv[2:] or [str(path) for pattern in PUBLIC for path in sorted(Path(public).glob(pattern))]
    wrong = 0 if graphs else 1
    for name in graphs:
        printed = subprocess.run([sys.argv[1], "memory", name, "--json"], check=True, capture_output=True).stdout
        memory = json.loads(printed)
        counted, found = kept(Path(name)), (memory["activations"], memory["activation_bytes"])
        print(f"{Path(name).name}: {counted[0]} storages, {counted[1]} bytes; the program {found[0]}, {found[1]}")
        wrong += counted != found
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
