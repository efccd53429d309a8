"""Our own ops, for calls that cannot run on ``meta`` or on this machine. They pass the dispatch mode like any op."""

import torch

NAMESPACE = "torch_capture::"
_library = torch.library.Library("torch_capture", "DEF")


def define(schema, function):
    """Defines an op; returns what calls it, below autograd, which has no function for it."""
    name = schema.partition("(")[0]
    _library.define(schema)
    _library.impl(name, function, "CompositeExplicitAutograd")

    def call(*args):
        below = torch._C._AutoDispatchBelowAutograd()  # noqa: F841 - while it lives
        return getattr(torch.ops.torch_capture, name)(*args)
    return call
