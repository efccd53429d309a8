"""Parts of PyTorch that no mode sees, changed for the time of a capture."""

import contextlib
import functools
from unittest import mock

import torch

from . import cuda
from .program import CaptureError, line

META = torch.device("meta")


@contextlib.contextmanager
def _replaced(changes):
    """Replaces attributes: (object, name, function from the old one to the new)."""
    with contextlib.ExitStack() as replaced:
        for owner, name, change in changes:
            replaced.enter_context(mock.patch.object(owner, name, change(getattr(owner, name))))
        yield


def on_meta(tensor):
    """A parameter or buffer as one of a model on the GPU, also without a dimension."""
    if tensor is None or tensor.is_meta:
        return tensor
    with torch.no_grad():
        moved = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META)
    return torch.nn.Parameter(moved, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else moved


def _registers(register):
    return lambda module, name, tensor, *rest, **kwargs: register(module, name, on_meta(tensor), *rest, **kwargs)


def _constructor(old):
    """``torch.Tensor(2, 3)``, which PyTorch 1.13 refuses under a mode."""
    def new(cls, *args, **kwargs):
        if cls is not torch.Tensor or (args and not isinstance(args[0], (int, list, tuple))):
            return old(cls, *args, **kwargs)
        if args and not isinstance(args[0], int):
            return torch.tensor(args[0], dtype=torch.get_default_dtype())
        return torch.empty(args or (0,))
    return staticmethod(new)


def _says(assumptions, text):
    """Notes a sentence where something is made that is enabled, and makes it disabled."""
    def change(old):
        @functools.wraps(old)
        def new(self, *args, enabled=True, **kwargs):
            if enabled:
                assumptions.note(text.format("bf16" if torch.bfloat16 in (*args, *kwargs.values()) else "fp16"))
            return old(self, *args, enabled=False, **kwargs)
        return new
    return change


def _in_process(old):
    """Loaders of data: processes of their own know no capture, and there is no memory to pin."""
    @functools.wraps(old)
    def new(self, *args, **kwargs):
        alone = {"num_workers": 0, "pin_memory": False, "prefetch_factor": None, "persistent_workers": False}
        old(self, *args, **{key: alone.get(key, value) for key, value in kwargs.items() if key != "prefetch_factor"})
    return new


def _within(context):
    """Runs in a context of its own."""
    def change(old):
        @functools.wraps(old)
        def new(*args, **kwargs):
            with context():
                return old(*args, **kwargs)
        return new
    return change


def _data_parallel(assumptions):
    """``DistributedDataParallel`` is its module alone."""
    def init(self, module, *_, **__):
        assumptions.note("DistributedDataParallel is left out: rewrite with --data-parallel")
        torch.nn.Module.__init__(self)
        self.module, self._use_replicated_tensor_module = module, False
    return [(torch.nn.parallel.DistributedDataParallel, name, lambda old, new=new: new) for name, new in (
        ("__init__", init), ("forward", lambda self, *args, **kwargs: self.module(*args, **kwargs)),
        ("no_sync", lambda self: contextlib.nullcontext()))]


def _uncompiled(assumptions):
    def new(model=None, **_):
        assumptions.note("torch.compile is left out: rewrite with --compile")
        return model if model is not None else lambda one: one
    return lambda old: new


def _files(assumptions):
    """Files are read to the CPU; none is written."""
    def save(*_, **__):
        assumptions.note("torch.save is left out")
    return [(torch, "load", lambda old: lambda file, *_, **kwargs: old(file, **{**kwargs, "map_location": "cpu"})),
            (torch, "save", lambda old: save)]


def _no_ranks(old):
    def new(*_, **__):
        raise CaptureError(f"{line()}: expected capturing(world=N) for a program of several ranks, found none")
    return new


def changed(dispatch, world):
    """The context in which a program is captured."""
    says = functools.partial(_says, dispatch.assumptions)
    module, loader = torch.nn.Module, torch.utils.data.dataloader
    scaler = getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)  # 2.3, 1.13
    changes = [(module, "register_parameter", _registers), (module, "register_buffer", _registers),
               (torch.Tensor, "__new__", _constructor),
               (torch.autocast, "__init__", says("autocast to {0} is off on meta: rewrite with --precision {0}")),
               (scaler, "__init__", says("GradScaler is off on meta: rewrite with --precision fp16-scaled")),
               (loader.DataLoader, "__init__", _in_process)]
    region = torch.autograd.profiler.record_function  # has a tensor of its own
    changes += [(region, "__init__", _within(lambda: dispatch.having("host")))]
    changes += [(loader._BaseDataLoaderIter, name, _within(dispatch.aside)) for name in ("__init__", "__next__")]
    changes += [*cuda.changes(), *_files(dispatch.assumptions), *_data_parallel(dispatch.assumptions)]
    if hasattr(torch, "compile"):
        changes.append((torch, "compile", _uncompiled(dispatch.assumptions)))
    if world is None and torch.distributed.is_available():
        changes.append((torch.distributed, "init_process_group", _no_ranks))
    elif world is not None:
        changes += [(torch.distributed, name, lambda old, new=new: new) for name, new in world.functions().items()]
    return _replaced(changes)
