#!/usr/bin/env python3
"""How alike two execution graphs of perfpredict are: thread by thread, order, depth and name of the nodes, shapes and
dtypes of all their tensors, and autograd's numbers, counted from the smallest one of each graph.

    same_nodes.py FIRST SECOND      prints the share of equal nodes and a diff of the others
"""

import difflib
import gzip
import json
import sys
from pathlib import Path


def load(path):
    data = Path(path).read_bytes()
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def tensors(values, shapes):
    return " ".join(f"{kind}{shape if shapes else ''}" for kind, shape in zip(values["types"], values["shapes"])
                    if "Tensor(" in kind)


def threads_of(document, shapes):
    """One line per node, in the order in which the nodes of each thread began."""
    nodes = [(node, {a["name"]: a["value"] for a in node["attrs"]}) for node in document["nodes"]]
    nodes = [(node, attributes) for node, attributes in nodes if not node["name"].startswith("[pytorch|")]
    first = min((attributes["seq_id"] for _, attributes in nodes if attributes["seq_id"] >= 0), default=0)
    parents = {node["id"]: node["ctrl_deps"] for node, _ in nodes}
    threads = {}
    for node, attributes in sorted(nodes, key=lambda each: each[1]["rf_id"] or each[0]["id"]):
        depth, parent = 0, node["ctrl_deps"]
        while parent in parents:
            depth, parent = depth + 1, parents[parent]
        number = attributes["seq_id"] - first if attributes["seq_id"] >= 0 else "-"
        threads.setdefault(attributes["tid"], []).append(
            f"{'  ' * depth}{node['name']} #{number} {tensors(node['inputs'], shapes)} -> "
            f"{tensors(node['outputs'], shapes)}")
    return list(threads.values())


def compare(first, second, shapes=True):
    """Share of the longer graph's nodes that are equal, and a diff of the others. `shapes`: compared, too."""
    equal, longest, differences = 0, 0, []
    ones, others = threads_of(first, shapes), threads_of(second, shapes)
    for i in range(max(len(ones), len(others))):
        a, b = (threads[i] if i < len(threads) else [] for threads in (ones, others))
        longest += max(len(a), len(b))
        for tag, a0, a1, b0, b1 in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
            if tag == "equal":
                equal += a1 - a0
            else:
                differences += ["- " + line for line in a[a0:a1]] + ["+ " + line for line in b[b0:b1]]
    return equal / max(longest, 1), differences


if __name__ == "__main__":
    share, found = compare(load(sys.argv[1]), load(sys.argv[2]))
    print(f"{100 * share:.2f} % of the nodes are equal", *found, sep="\n")
