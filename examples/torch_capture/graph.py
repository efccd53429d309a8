"""Makes an execution graph of the observer's file and the log of the dispatch mode."""

import bisect
import json
import os

import torch

from . import ranks
from .kernels import is_hidden
from .log import ASIDE, MARK, PROBE, SKIP
from .ops import NAMESPACE


def _nodes(lines):
    """Nodes of the observer's file in its order: an op comes after the ops within it."""
    text = []
    for line in lines:
        if line.startswith("    {"):
            text = [line]
        elif line.startswith("    }"):
            yield _flat(json.loads("".join(text) + "}"))
            text = []
        elif text:
            text.append(line)


def _flat(node):
    """A node as PyTorch 1.13 has it; later ones have nested inputs and outputs and a list of attributes."""
    if "attrs" not in node:
        return node
    flat = {"id": node["id"], "name": node["name"], "parent": node["ctrl_deps"]}
    flat.update((attribute["name"], attribute["value"]) for attribute in node["attrs"])
    for side in ("input", "output"):
        values, shapes, types = (node[side + "s"][part] for part in ("values", "shapes", "types"))
        flat.update({side + "s": values, side + "_shapes": shapes, side + "_types": types})
    return flat


def _nested(node, strides):
    """A flat node with nested inputs and outputs, where strides have a place."""
    def of(value):
        if _is_tensor(value):
            return strides.get(value[0], [])
        return [of(one) for one in value] if isinstance(value, list) else []

    made = {key: value for key, value in node.items() if "put" not in key}
    made.update((key, made[key].replace(NAMESPACE, "aten::")) for key in ("name", "op_schema"))
    for side in ("input", "output"):
        values = node[side + "s"]
        made[side + "s"] = {"values": values, "shapes": node[side + "_shapes"], "types": node[side + "_types"],
                            "strides": [of(value) for value in values]}
    return made


def _is_tensor(value):
    return isinstance(value, list) and len(value) == 6 and isinstance(value[5], str)


def _entries(value):
    """Tensors within a value of the observer, in order."""
    if _is_tensor(value):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _entries(one)


def _tensors(node, side):
    """Lists the defined tensors of each input or output of a node."""
    kinds = node[side[:-1] + "_types"]
    return [[] if "nullptr" in kind else list(_entries(value)) for value, kind in zip(node[side], kinds)]


def _has_kernel(node, key):
    name = node["op_schema"].split("(")[0]
    return bool(name) and torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


def _calls_others(node):
    """Whether the op has one kernel for all devices, which calls other ops."""
    own = _has_kernel(node, "CPU") or _has_kernel(node, "Meta") or node["op_schema"].startswith(NAMESPACE)
    return _has_kernel(node, "CompositeImplicitAutograd") or not own and _has_kernel(node, "CompositeExplicitAutograd")


def _within(node, nodes):
    """The ops that `node` calls on any device, of all `nodes` recorded within it: within its second recording, when the
    mode ran it, unless that ran a hidden kernel. The mode may have run it on the CPU as well, with other results."""
    again = next((one for one in nodes if one["parent"] == node["id"] and one["name"] == node["name"]
                  and one["outputs"] == node["outputs"]), None)
    calls_others = _calls_others(node) if again is not None else is_hidden(node["op_schema"].split("(")[0])
    parents = {(again or node)["id"]: node["id"]} if calls_others else {}
    kept = {}
    for one in sorted(nodes, key=lambda one: one["id"]):
        if one["parent"] in parents and one["op_schema"] != node["op_schema"]:
            kept[one["id"]] = {**one, "parent": parents[one["parent"]]}
            if _calls_others(one):
                parents[one["id"]] = one["id"]
    return [kept[one["id"]] for one in nodes if one["id"] in kept]


def _viewed(node):
    """The tensor that the results of a view share the storage of, and the results."""
    entries = sum(_tensors(node, "inputs"), [])
    is_view = "(a" in node["op_schema"].partition("->")[2] and entries
    return entries[0] if is_view else None, sum(_tensors(node, "outputs"), []) if is_view else []


class _Writer:
    """Renames tensors by the log and recovers sequence numbers, node by node.

    The observer's id of a tensor holds while the tensor lives, so `known` is right for the tensors of a node when it
    ends: the ops within it, which were logged, ended before.
    """

    def __init__(self, leaves, identities, world):
        self.leaves, self.identities, self.world, self.known = leaves, identities, world, {}
        self.regions = {}  # leaves within a region that shows no results, by the op around it: ``detach``
        self.starts = []  # nodes of the leaves
        self.begins = []  # for each: was autograd on, its counter as the op began, as the leaf before it began
        self.counter = None

    def _learn(self, entries, logged):
        if len(entries) == len(logged):
            self.known.update((entry[0], ours) for entry, ours in zip(entries, logged))

    def _rename(self, node, known):
        for entry in (entry for value in node["inputs"] + node["outputs"] for entry in _entries(value)):
            ours = known.get(entry[0])
            if ours is None or ours[3:5] != entry[3:5]:
                ours = known[entry[0]] = self._new(entry, self.identities.fresh() if entry[1] else 0)
            entry[:] = ours

    def _new(self, entry, storage):
        return [self.identities.fresh(), storage, *entry[2:]]

    def _rename_within(self, nodes, known):
        """Tensors between the ops within an op, which nothing logged: schemas say what is a view of what."""
        for node in reversed(nodes):
            base, views = _viewed(node)
            if views and views[0][0] in known and base[0] not in known:
                known[base[0]] = self._new(base, known[views[0][0]][1])
        for node in nodes:
            base, views = _viewed(node)
            for view in views if base and base[0] in known else ():
                known.setdefault(view[0], self._new(view, known[base[0]][1]))
            self._rename(node, known)

    def _number(self, node, grad, counter):
        """An op has autograd's counter if it passed autograd; Python's ``ones_like(x)`` does not."""
        passed = _has_kernel(node, "Autograd") or _has_kernel(node, "CompositeImplicitAutograd")
        from_python = node["name"].endswith("_like") and "meta" in node["inputs"]
        if node["seq_id"] < 0 and grad and passed and any(_tensors(node, "inputs")) and not from_python:
            node["seq_id"] = counter

    def leaf(self, node, leaf, probe, nodes):
        """The nodes of an op with a kernel, from its own recording and from `nodes` recorded within it."""
        first = bisect.bisect(self.starts, node["id"])
        if first < len(self.starts):  # leaves within it: what autograd saves is cloned, or given to hooks
            before = begin = self.begins[first][2]
        else:
            before, begin = self.counter, probe - (leaf.differentiable and probe > self.counter)
        del self.starts[first:], self.begins[first:]
        within = _within(node, nodes)
        if leaf.schema is not None:
            node["name"], node["op_schema"] = leaf.schema.name, str(leaf.schema)
        self.starts.append(node["id"])
        self.begins.append((leaf.grad, begin, before))
        self.counter = probe
        for entries, logged in zip(_tensors(node, "inputs"), leaf.inputs):
            self._learn(entries, logged)
        self._learn(sum(_tensors(node, "outputs"), []), leaf.outputs)
        if not node["op_schema"]:
            self.regions[node["parent"]] = leaf
        if any(entry[5] == "meta" for value in node["outputs"] for entry in _entries(value)):
            kinds = node["input_types"]
            node["inputs"] = ["meta" if kind == "Device" else value for value, kind in zip(node["inputs"], kinds)]
        ids = [entry[0] for value in node["inputs"] + node["outputs"] for entry in _entries(value)]
        self._rename(node, self.known)
        self._number(node, *self.begins[-1][:2])
        if node["name"] == ranks.NAME:
            yield from ranks.expanded(node, nodes[0]["id"], nodes[-1]["id"])
            return
        self._rename_within(within, {one: self.known[one] for one in ids})
        yield from within
        yield node

    def composite(self, node):
        """An op or region with logged ops within it, or without any."""
        if node["id"] in self.regions:
            self._learn(sum(_tensors(node, "outputs"), []), self.regions.pop(node["id"]).outputs)
        self._rename(node, self.known)
        if node["name"] == ranks.GROUPS:
            node.update(inputs=[self.world.description()], input_shapes=[[]], input_types=["String"])
        first = bisect.bisect(self.starts, node["id"])
        if first < len(self.starts):
            self._number(node, *self.begins[first][:2])
        elif self.starts:
            self._number(node, self.begins[-1][0], self.counter)
        return node

    def nodes(self, lines):
        open_, skipped, aside = [], None, False  # marked ops that have not ended; the parent of ops left out
        probe = -1
        for node in _nodes(lines):
            if node["name"] == ASIDE or aside:
                aside ^= node["name"] == ASIDE
            elif node["name"].startswith(MARK):
                leaf = self.leaves[int(node["name"][len(MARK):])]
                if open_ and open_[-1][0] == node["parent"]:  # autograd's copy of the result of a detach
                    open_[-1][1].outputs = leaf.outputs
                else:
                    open_.append((node["parent"], leaf, probe, []))
            elif open_ and node["id"] == open_[-1][0]:
                yield from self.leaf(node, *open_.pop()[1:])
            elif node["name"] == PROBE:
                probe = max(probe, node["seq_id"])
                self.counter = probe if self.counter is None else self.counter
            elif open_ and node["id"] not in self.regions:
                open_[-1][-1].append(node)
            elif skipped is not None:
                skipped = None if node["parent"] == skipped and node["op_schema"] else skipped
            elif node["name"] == SKIP:
                skipped = node["parent"]
            else:
                yield self.composite(node)


def write_graph(recorded, output, leaves, identities, world, head):
    """Writes the graph of the observer's file, with `head` as its member "captured"."""
    with open(recorded) as lines, open(output + ".part", "w") as graph:
        for line in lines:
            graph.write(f'  "captured": {json.dumps(head)},\n{line}' if '"nodes"' in line else line)
            if '"nodes"' in line:
                break
        for count, node in enumerate(_Writer(leaves, identities, world).nodes(lines)):
            graph.write((",\n    " if count else "    ") + json.dumps(_nested(node, identities.strides)))
        graph.write("\n  ]\n}\n")
    os.replace(output + ".part", output)
