"""Kernels that PyTorch lacks on device ``meta``: results with the right shapes, types and layouts.

Each takes the mode and the arguments of its op.
"""

import functools

import torch

from . import sparse
from .identity import storage_of
from .program import CaptureError, line

aten = torch.ops.aten
_KERNELS = {}


def kernel_of(function, tensors):
    """The kernel of an op with these tensors; None: PyTorch's own."""
    if any(tensor.is_sparse for tensor in tensors):
        return sparse.KERNELS.get(function._schema.name)
    if function._schema.name.startswith(("aten::_foreach_", "aten::_fused_")):
        return _foreach(function)
    return _KERNELS.get(function)


@functools.cache
def is_hidden(name):
    """Whether a kernel in Python for ``meta`` hides the one that an op has for all devices, which calls other ops:
    repeat, randn_like."""
    has = functools.partial(torch._C._dispatch_has_kernel_for_dispatch_key, name)
    return (bool(name) and has("CompositeExplicitAutograd") and has("Meta") and not has("CPU")
            and name != "aten::convolution")


def kernel(name, *overloads):
    """Registers a kernel for those overloads of an op that this PyTorch has."""
    def register(function):
        packet = getattr(aten, name, None)
        for overload in (overloads or ("default",)) if packet is not None else ():
            if overload in packet.overloads():
                _KERNELS[getattr(packet, overload)] = function
        return function
    return register


def _foreach(function):
    name = function._schema.name

    def run(mode, tensors, *_, **__):
        if name.endswith("_") or "fused" in name:
            return None
        return [tensor.new_empty(()) if "norm" in name else torch.empty_like(tensor) for tensor in tensors]
    return run


@kernel("convolution_backward")
def _convolution_backward(mode, grad, input, weight, bias_sizes, *rest):
    bias = weight.new_empty(bias_sizes or 0)
    return tuple(torch.empty_like(like) if wanted else None for like, wanted in zip((input, weight, bias), rest[-1]))


@kernel("_embedding_bag_dense_backward")
def _bag_dense_backward(mode, grad, indices, offset2bag, bag_size, maximum, num_weights, *rest, **kwargs):
    return grad.new_empty(num_weights, grad.shape[1])


@kernel("_local_scalar_dense")
def _item(mode, tensor):
    known = mode.values.known(tensor)
    if known is not None:
        return known.item()
    one = torch.tensor(1, dtype=tensor.dtype).item()
    value = getattr(tensor, "_likely", one if tensor.dtype != torch.bool else False)
    mode.assumptions.note(f"a value that the program reads of the GPU is taken for {value}")
    return value


def _set_in(mode, mask):
    """How many elements of a mask are set."""
    known = mode.values.known(mask)
    if known is not None:
        return int(known.count_nonzero())
    count = max(1, round(mask.numel() * getattr(mask, "_share", 1.0)))
    mode.assumptions.note(f"{count} of {mask.numel()} elements of a mask are taken for set")
    return count


@kernel("nonzero")
def _nonzero(mode, mask):
    return mask.new_empty((_set_in(mode, mask), mask.dim()), dtype=torch.long)


@kernel("masked_select")
def _masked_select(mode, tensor, mask):
    return tensor.new_empty(_set_in(mode, mask))


@kernel("index", "Tensor")
def _index(mode, tensor, indices):
    """``x[mask]`` is ``x[mask.nonzero()]``."""
    places = []
    for index in indices:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            places += [index.new_empty(_set_in(mode, index), dtype=torch.long)] * index.dim()
        else:
            places.append(index)
    return aten.index.Tensor(tensor, places)


@kernel("repeat_interleave", "Tensor")
def _repeat_interleave(mode, repeats, output_size=None):
    known = mode.values.known(repeats)
    if output_size is None and known is None:
        mode.assumptions.note("repeat_interleave with a tensor is taken to repeat each element once")
        output_size = repeats.numel()
    return repeats.new_empty(int(known.sum()) if output_size is None else output_size)


@kernel("_unique2")
def _unique(mode, tensor, sorted=True, inverse=False, counts=False):
    count = tensor.numel()
    mode.assumptions.note(f"{count} elements are taken for different ones")
    return (tensor.new_empty(count), tensor.new_empty(tensor.shape if inverse or counts else 0, dtype=torch.long),
            tensor.new_empty(count if counts else 0, dtype=torch.long))


@kernel("bincount")
def _bincount(mode, tensor, weights=None, minlength=0):
    if not minlength:
        _refused(mode)
    return (weights if weights is not None else tensor).new_empty(minlength)


@kernel("unique_consecutive")
@kernel("unique_dim")
def _refused(mode, *_, **__):
    raise CaptureError(f"{line()}: expected an op whose result's shape the shapes of its inputs tell, found one that "
                       "values tell")


@kernel("detach")
def _detach(mode, tensor):
    """A mode gets the number of ``0.5 * x`` as a number, also where autograd keeps it as a tensor."""
    return aten.detach.default(tensor) if isinstance(tensor, torch.Tensor) else torch.tensor(tensor, dtype=torch.double)


@kernel("multinomial")
def _multinomial(mode, weights, samples, *args, **kwargs):
    return weights.new_empty((*weights.shape[:-1], samples), dtype=torch.long)


@kernel("set_", "source_Storage_storage_offset")
def _set(mode, tensor, source, *place):
    """``torch.load`` places tensors in a storage that it read from a file."""
    if source.device.type != "meta":
        source = storage_of(torch.empty(source.nbytes(), dtype=torch.uint8, device="meta"))
    return aten.set_.source_Storage_storage_offset(tensor, source, *place)
