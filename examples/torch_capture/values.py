"""Knows values without computing them: small tables that the program made, and shares of masks.

Attributes of tensors on ``meta`` hold the facts: ``_known`` is a real copy, of a view a view of the copy; ``_below`` is
the bound of indices, ``_share`` the part of a mask that is set, ``_likely`` what a condition is.
"""

import torch
from torch.utils._pytree import tree_map

from .identity import storage_of
from .log import tensors_in

_MOST, _MOST_DRAWN = 4096, 16  # elements whose values are kept, if they are random
_RANDOM = ("rand", "empty", "bernoulli", "normal", "multinomial", "dropout", "uniform")
#: Ops whose result has elements of their first tensor: bounds and shares hold on.
_SAME_ELEMENTS = {"aten::" + name for name in (
    "view", "_unsafe_view", "_reshape_alias", "permute", "transpose", "t", "unsqueeze", "squeeze", "select", "slice",
    "expand", "clone", "_to_copy", "detach", "alias", "unbind", "split", "copy_")}


class Values:
    def __init__(self):
        self._lost = set()  # storages that something unknown was written to

    def known(self, tensor):
        """The values of a tensor, on the CPU, or None."""
        if tensor.device.type == "cpu":
            return tensor
        return None if storage_of(tensor)._cdata in self._lost else tensor.__dict__.get("_known")

    def _value(self, value):
        return self.known(value) if isinstance(value, torch.Tensor) else value

    def know(self, tensor, value):
        """Gives a tensor the values of a small one."""
        if value.numel() <= _MOST:
            self._lost.discard(storage_of(tensor)._cdata)
            tensor._known = value
        return tensor

    def remember(self, made, function, args, kwargs):
        """A new tensor: sizes of layers, rates of dropout, masks that it reads later."""
        on_host = (kwargs.get("device") or torch.device("cpu")).type == "cpu"
        if made.numel() <= (_most(function) if on_host or not _is_random(function) else 0):
            self.know(made, function(*args, **_on_cpu(kwargs)))

    def follow(self, function, args, kwargs, result):
        """Learns from an op that ran."""
        tensors = tensors_in(args)
        if any("_known" in tensor.__dict__ for tensor in tensors):
            self._compute(function, args, kwargs, result, tensors)
        if tensors:
            _derive(function._schema.name, args, result, tensors)

    def _compute(self, function, args, kwargs, result, tensors):
        values = [self.known(tensor) for tensor in tensors]
        small = all(tensor.numel() <= _most(function) for tensor in tensors_in(result))
        if not small or any(value is None for value in values):
            if function._schema.is_mutable:
                self._lost.update(storage_of(tensor)._cdata for tensor in tensors)
            return
        real = function(*tree_map(self._value, args), **_on_cpu(kwargs))
        for mine, value in zip(tensors_in(result), tensors_in(real)):
            if mine.is_meta:
                self.know(mine, value)


def _is_random(function):
    return any(word in function._schema.name for word in _RANDOM)


def _most(function):
    return _MOST_DRAWN if _is_random(function) else _MOST


def _on_cpu(kwargs):
    return {key: torch.device("cpu") if key == "device" else value for key, value in kwargs.items()}


def _derive(name, args, result, tensors):
    """Finds bounds of indices, and shares of masks made of them: experts, classes."""
    if name in _SAME_ELEMENTS:
        facts = {key: value for key, value in tensors[0].__dict__.items() if key in ("_below", "_share")}
        for tensor in tensors_in(result) if facts else ():
            tensor.__dict__.update(facts)
    elif name == "aten::topk":
        result[1]._below = tensors[0].shape[args[2] if len(args) > 2 else -1]
    elif name == "aten::argmax" and len(args) > 1 and args[1] is not None:
        result._below = tensors[0].shape[args[1]]
    elif name == "aten::eq" and hasattr(tensors[0], "_below"):
        result._share = 1 / tensors[0]._below
    elif name == "aten::scatter_" and not isinstance(args[3], torch.Tensor):  # one_hot
        result._share = 1 / result.shape[args[1]]
    elif name == "aten::bernoulli_" and len(args) > 1 and isinstance(args[1], float):
        result._share = args[1]
    elif name in ("aten::all", "aten::any"):
        result._likely = name == "aten::all"


def read(dispatch, tensor, function):
    """Answers ``tensor.numpy()`` and ``tensor.tolist()``: with known values, else with ones without memory."""
    value = dispatch.values.known(tensor)
    if value is None:
        dispatch.assumptions.note("values that the program reads of the GPU are taken for 1")
        value = torch.ones((), dtype=tensor.dtype).expand(tensor.shape)
    return function(value)
