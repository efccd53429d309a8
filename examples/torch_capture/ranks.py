"""Answers ``torch.distributed`` as rank 0 of a world that is not there, and records its collectives.

A collective is an op of our own, which the dispatch mode logs like any other; `expanded` writes it into the graph as
PyTorch records one of NCCL.
"""

import json
import os
from unittest import mock

import torch.distributed as dist

from . import ops
from .program import CaptureError, line

_collective = ops.define(
    "collective(Tensor[] inputs, Tensor[] outputs, str name, int number, int group) -> ()", lambda *_: None)
NAME, GROUPS = ops.NAMESPACE + "collective", "## process_group:init ##"
#: By function: op, name in the record and region, as PyTorch has them.
_NAMES = {
    "all_reduce": ("c10d::allreduce_", "allreduce", "nccl:all_reduce"),
    "broadcast": ("c10d::broadcast_", "broadcast", "nccl:broadcast"),
    "reduce": ("c10d::reduce_", "reduce", "nccl:reduce"),
    "all_gather": ("c10d::allgather_", "all_gather", "nccl:all_gather"),
    "_all_gather_base": ("c10d::_allgather_base_", "_allgather_base", "nccl:_all_gather_base"),
    "reduce_scatter": ("c10d::reduce_scatter_", "reduce_scatter", "nccl:reduce_scatter"),
    "_reduce_scatter_base": ("c10d::_reduce_scatter_base_", "_reduce_scatter_base", "nccl:_reduce_scatter_base"),
    "all_to_all": ("c10d::alltoall_", "all_to_all", "nccl:all_to_all"),
    "all_to_all_single": ("c10d::alltoall_base_", "all_to_all", "nccl:all_to_all"),
}
_SAME = {"all_gather_into_tensor": "_all_gather_base", "reduce_scatter_tensor": "_reduce_scatter_base"}  # since 1.13
_OUTPUT_FIRST = [name for name in _NAMES if "gather" in name or "scatter" in name or "all_to_all" in name]
_REFUSED = ("send", "recv", "isend", "irecv", "gather", "scatter", "batch_isend_irecv", "all_gather_object",
            "all_reduce_coalesced", "broadcast_object_list", "monitored_barrier")


class Work:
    """A collective that is done."""

    def wait(self, *_):
        return True

    is_completed = is_success = wait


class Group:
    def __init__(self, number, ranks):
        self.number, self.ranks = number, list(ranks)

    def size(self):
        return len(self.ranks)

    def rank(self):
        return self.ranks.index(0) if 0 in self.ranks else -1


class World:
    def __init__(self, size):
        self.groups, self.collectives = [Group(1, range(size))], 0

    def description(self):
        """As PyTorch writes it at the start of a graph."""
        return json.dumps([{
            "pg_name": str(group.number - 1), "pg_desc": "undefined" if group.number > 1 else "default_pg",
            "backend_config": "cuda:nccl", "ranks": group.ranks if group.number > 1 else [], "group_size": group.size(),
            "group_count": len(self.groups)} for group in self.groups])

    def _group(self, given):
        return given if isinstance(given, Group) else self.groups[0]

    def _new_group(self, ranks=None, *_, **__):
        self.groups.append(Group(len(self.groups) + 1, self.groups[0].ranks if ranks is None else ranks))
        return self.groups[-1]

    def _collective(self, name):
        def run(first, second=None, *rest, group=None, async_op=False, **kwargs):
            first = kwargs.get("output_tensor", kwargs.get("tensor", first))
            tensors = [list(one) if isinstance(one, (list, tuple)) else [one] for one in (first, second)]
            outputs, inputs = tensors if name in _OUTPUT_FIRST else (tensors[0], tensors[0])
            self.collectives += 1
            _collective(inputs, outputs, name, self.collectives, self._group(group).number)
            return Work() if async_op else None
        return run

    def functions(self):
        """Our functions by the names that ``torch.distributed`` has."""
        made = {name: self._collective(name) for name in _NAMES}
        made.update({name: made[other] for name, other in _SAME.items()})
        made.update({name: _refusal(name) for name in _REFUSED})
        nothing = lambda *_, **__: None  # noqa: E731
        made.update(
            is_available=lambda: True, is_initialized=lambda: True, get_backend=lambda *_: "nccl",
            init_process_group=nothing, destroy_process_group=nothing, barrier=nothing, new_group=self._new_group,
            get_world_size=lambda group=None: self._group(group).size(),
            get_rank=lambda group=None: self._group(group).rank())
        return {name: function for name, function in made.items() if hasattr(dist, name)}


def _refusal(name):
    def refuse(*_, **__):
        raise CaptureError(f"{line()}: expected a collective that can be captured, found {name}")
    return refuse


def environment(world):
    """A context with the variables of torchrun; None: no variable."""
    names = () if world is None else ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    return mock.patch.dict(os.environ, {name: str(world) if "WORLD" in name else "0" for name in names})


def expanded(node, record, label):
    """The three nodes of a collective, with two more ids."""
    (inputs, outputs, name, number, group), kinds, shapes = node["inputs"], node["input_types"], node["input_shapes"]
    op, recorded, region = _NAMES[name]
    empty = {"scope": 0, "op_schema": "", "outputs": [], "output_types": [], "output_shapes": []}
    yield {**node, **empty, "id": label, "parent": record, "name": region, "scope": 7, "inputs": inputs[:1],
           "input_types": [kinds[0][len("GenericList["):-1].split(",")[0]], "input_shapes": shapes[0][:1]}
    made = {"outputs": [outputs], "output_types": [kinds[1]], "output_shapes": [shapes[1]]}
    yield {**node, **empty, **made, "id": record, "parent": node["id"], "name": "record_param_comms",
           "inputs": [inputs, number, group, 0, recorded, [], []], "input_shapes": [shapes[0], [], [], [], [], [], []],
           "input_types": [kinds[0], "Int", "Int", "Int", "String", "GenericList[]", "GenericList[]"]}
    yield {**node, **empty, **made, "name": op, "inputs": [inputs, outputs, "<Object>"],
           "input_types": [*kinds[:2], "Object"], "input_shapes": [*shapes[:2], []]}
