"""Our own ops, for calls that cannot run on ``meta`` or on this machine. They pass the dispatch mode like any op."""

import torch

NAMESPACE = "torch_capture::"
_library = torch.library.Library("torch_capture", "DEF")


def composed(schema, function, key="CompositeImplicitAutograd"):
    """Defines an op that calls others; the graph has PyTorch's op of the same name. Returns the op."""
    name = schema.partition("(")[0]
    _library.define(schema)
    _library.impl(name, function, key)
    return getattr(torch.ops.torch_capture, name.partition(".")[0])


def define(schema, function):
    """Defines an op; returns what calls it, below autograd, which has no function for it."""
    op = composed(schema, function, "CompositeExplicitAutograd")

    def call(*args):
        below = torch._C._AutoDispatchBelowAutograd()  # noqa: F841 - while it lives
        return op(*args)
    return call
