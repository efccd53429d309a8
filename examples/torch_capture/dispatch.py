"""The dispatch mode: it runs a program on device ``meta``, and marks and logs each op of the captured step."""

import contextlib
import functools

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from . import fallback, log
from .identity import Identities
from .kernels import is_hidden, kernel_of
from .log import tensors_in
from .program import Assumptions, CaptureError, line, said
from .values import Values

aten = torch.ops.aten
META, CPU = torch.device("meta"), torch.device("cpu")


def _on_gpu(function, args, linear):
    """The op of a GPU, which adds the bias of ``linear`` and the gradient of an indexed tensor in place."""
    if function is aten.add.Tensor and linear:
        return aten.add_.Tensor
    if function is aten.index_put.default and not torch.is_grad_enabled() and len(args) > 3 and args[3]:
        return aten._index_put_impl_.default
    return function


def _unhidden(function):
    """The kernel that calls what a GPU calls."""
    if is_hidden(function.name()):
        return functools.partial(function._op_dk, torch._C.DispatchKey.CompositeExplicitAutograd)
    return function


class Dispatch(TorchDispatchMode):
    """Tensors with a dimension are on ``meta``; those without stay where the program has them, with their values.

    Attributes:
        recording: whether ops are marked and logged.
        running: whether an op runs; the function mode has nothing to say then.
        host: whether new tensors stay on the CPU with their values: in loaders of data, in PyTorch's profiler.
        linear: whether ``linear`` runs.
        leaves: the log, in order.
    """

    def __init__(self):
        super().__init__()
        self.recording = self.running = self.host = self.linear = False
        self.leaves, self.identities = [], Identities()
        self.assumptions, self.values = Assumptions(), Values()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function.namespace == "profiler":
            return function(*args, **kwargs)
        if log.is_probe(args):
            return log.probe()
        with self.having("running"):
            if not self.host or any(tensor.is_meta for tensor in tensors_in((args, kwargs))):
                args, kwargs = tree_map(self._moved, args), tree_map(self._moved, kwargs)
            if not self.recording:
                return self._run(function, args, kwargs)
            if not log.below_autograd():
                log.mark(log.SKIP)
                return function(*args, **kwargs)
            return self._logged(function, args, kwargs)

    def _logged(self, function, args, kwargs):
        on_gpu = _on_gpu(function, args, self.linear)
        log.mark_op(len(self.leaves))
        leaf = log.Leaf(function, on_gpu, args, kwargs, self.identities)
        self.leaves.append(leaf)
        in_place = on_gpu is not function and on_gpu._schema.is_mutable
        result = aten.alias(args[0]) if in_place else self._run(function, args, kwargs)
        if in_place:
            self.identities.share(result, args[0])
        leaf.outputs = [self.identities.entry(tensor, is_result=True) for tensor in tensors_in(result)]
        return result

    @contextlib.contextmanager
    def having(self, attribute, value=True):
        """Sets one of the attributes for a while."""
        before = getattr(self, attribute)
        setattr(self, attribute, value)
        try:
            yield
        finally:
            setattr(self, attribute, before)

    @contextlib.contextmanager
    def aside(self):
        """Runs a part of the program outside of the step, with values: loaders of data."""
        with self.having("host"), self.having("recording", False):
            log.mark(log.ASIDE)
            try:
                yield
            finally:
                log.mark(log.ASIDE)

    def _moved(self, value):
        """The twin on ``meta`` of data that the program has from elsewhere: files, NumPy, before the capture."""
        if not isinstance(value, torch.Tensor) or value.device != CPU or value.dim() == 0:
            return value
        if value.requires_grad:
            raise CaptureError(f"{line()}: expected parameters made while capturing, found one of {list(value.shape)} "
                               "made before: make the model within capturing(), or pass it to capture()")
        if not hasattr(value, "_twin"):
            twin = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=META)
            value._twin = self.values.know(twin, value.detach())
        return value._twin

    def _run(self, function, args, kwargs):
        try:
            result = self._result(function, args, kwargs)
        except CaptureError:
            raise
        except Exception as error:
            raise CaptureError(f"{line()}: {function._schema.name}: {said(error)}") from error
        self.values.follow(function, args, kwargs, result)
        return result

    def _result(self, function, args, kwargs):
        tensors = tensors_in((args, kwargs))
        if self.host and not any(tensor.is_meta for tensor in tensors):
            return function(*args, **kwargs)
        kernel = kernel_of(function, tensors)
        if kernel is not None and (not tensors or any(tensor.is_meta for tensor in tensors)):
            return kernel(self, *args, **kwargs)
        if not tensors and any(argument.name == "device" for argument in function._schema.arguments):
            return self._made(function, args, kwargs)
        if kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": META}
        try:
            return _unhidden(function)(*args, **kwargs)
        except Exception as error:
            return fallback.result_of(function, args, kwargs, error)

    def _made(self, function, args, kwargs):
        """A new tensor. One without a dimension keeps its value on the CPU, unless the program wants it elsewhere."""
        if (kwargs.get("device") or CPU) == CPU and (function is aten.scalar_tensor.default or args[:1] == ([],)):
            return function(*args, **kwargs)
        if function is aten.full.default and kwargs.get("dtype") is None:  # which meta takes for float
            kwargs = {**kwargs, "dtype": {bool: torch.bool, int: torch.long}.get(type(args[1]))}
        try:
            made = _unhidden(function)(*args, **{**kwargs, "device": META})
        except NotImplementedError as error:
            made = fallback.result_of(function, args, {**kwargs, "device": CPU}, error)
        self.values.remember(made, function, args, kwargs)
        return made
