"""Marks in the observer's file, and the log of what a mode sees at each."""

import torch
from torch.utils._pytree import tree_flatten

#: Names of regions without an extent: the op around it is number N of the log; the next ``detach`` is of no program;
#: ops until the next of its kind are no part of the step.
MARK, SKIP, ASIDE = "## captured op ", "## no op of the program", "## beside the step"
PROBE = "aten::is_same_size"
_enter, _exit = torch.ops.profiler._record_function_enter_new, torch.ops.profiler._record_function_exit
_AUTOGRAD = "AutogradFunctionality"
_probe = torch.empty(0, device="meta")


class Leaf:
    """An op as the mode saw it.

    Attributes:
        inputs, outputs: entries of its tensors; of inputs, a list per argument.
        grad, differentiable: whether autograd was on, and could make a function for it.
        schema: of the op that a GPU runs, if that is another; else None.
    """

    def __init__(self, function, on_gpu, args, kwargs, identities):
        arguments = _in_order(function, args, kwargs)
        self.schema = on_gpu._schema if on_gpu is not function else None
        self.inputs = [[identities.entry(tensor) for tensor in tensors_in(value)] for value in arguments]
        self.outputs = []
        self.grad = torch.is_grad_enabled()
        self.differentiable = self.grad and any(tensor.requires_grad for tensor in tensors_in(arguments))


def tensors_in(values):
    return [value for value in tree_flatten(values)[0] if isinstance(value, torch.Tensor)]


def _in_order(function, args, kwargs):
    """All arguments in the order of the schema, as the observer writes them."""
    names = [argument.name for argument in function._schema.arguments][len(args):]
    return [*args, *(kwargs.get(name) for name in names)]


def mark(name):
    _exit(_enter(name))


def mark_op(number):
    """Marks the op that is dispatched, with a probe."""
    region = _enter(f"{MARK}{number}")
    probe()
    _exit(region)


def probe(*_):
    """An op that is dispatched from above autograd: its sequence number is autograd's counter, which no op of the
    program has under a mode."""
    below = below_autograd()
    torch._C._dispatch_tls_set_dispatch_key_excluded(_AUTOGRAD, False)
    try:
        with torch.enable_grad():
            _probe.is_same_size(_probe)
    finally:
        torch._C._dispatch_tls_set_dispatch_key_excluded(_AUTOGRAD, below)
    return True


def is_probe(args):
    return bool(args) and args[0] is _probe


def below_autograd():
    """Whether a mode was called for an op that passed autograd, and not by autograd itself, to keep a result."""
    return torch._C._dispatch_tls_is_dispatch_key_excluded(_AUTOGRAD)
