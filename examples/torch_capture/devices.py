"""The function mode: what a program says and asks of devices and values before PyTorch's C++ sees it."""

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from . import ops, recurrent, sparse, values
from .program import CaptureError, line

META = torch.device("meta")
_Tensor = torch.Tensor


def _on_meta(value):
    """A device of the program as the one of the capture."""
    if isinstance(value, torch.device) and value.type not in ("cpu", "meta"):
        return META
    return META if isinstance(value, str) and value.split(":")[0] in ("cuda", "hip", "mps") else value


def _back(value):
    return META if isinstance(value, (str, torch.device)) and str(value) == "cpu" else value


def _to(tensor, *args, **kwargs):
    """Data are on the GPU already, so none is copied there or back; numbers without a dimension do move."""
    args, kwargs = tree_map(_on_meta, args), tree_map(_on_meta, kwargs)
    if tensor.is_meta:
        args, kwargs = tree_map(_back, args), tree_map(_back, kwargs)
    return _Tensor.to(tensor, *args, **kwargs)


def _new(tensor, *args, **kwargs):
    """The old way to make a tensor alike: of data, sizes, or a sparse one's indices, values and sizes."""
    if tensor.is_sparse:
        return sparse.sparse_coo_tensor(*args)
    return tensor.new_tensor(args[0]) if args and isinstance(args[0], (list, tuple)) else tensor.new_empty(args or 0)


def _repeat_interleave(tensor, repeats, dim=None, **kwargs):
    """With a number: the size of the result is known."""
    if isinstance(repeats, int):
        kwargs["output_size"] = (tensor.numel() if dim is None else tensor.shape[dim]) * repeats
    return torch.repeat_interleave(tensor, repeats, dim, **kwargs)


def _spread(index, num_classes):
    return torch.zeros((*index.shape, num_classes), dtype=index.dtype, device=META).scatter_(-1, index.unsqueeze(-1), 1)


_spread_op = ops.composed("one_hot(Tensor self, int num_classes=-1) -> Tensor", _spread)


def _one_hot(index, num_classes=-1):
    """As on a GPU: on meta, PyTorch refuses it."""
    if num_classes < 0:
        raise CaptureError(f"{line()}: expected one_hot with its number of classes, which only values tell, found none")
    return _spread_op(index, num_classes)


def _is_finite(tensor):
    """Programs leave out a step whose gradient is not."""
    made = torch.ops.aten.isfinite(tensor)
    made._likely = True
    return made


_REPLACED = {
    **recurrent.REPLACED,
    torch.nn.functional.one_hot: _one_hot,
    torch.isfinite: _is_finite,
    _Tensor.isfinite: _is_finite,
    torch.repeat_interleave: _repeat_interleave,
    _Tensor.repeat_interleave: _repeat_interleave,
    torch.sparse_coo_tensor: sparse.sparse_coo_tensor,
    _Tensor.to: _to,
    _Tensor.cuda: lambda tensor, *args, **kwargs: _Tensor.to(tensor, META),
    _Tensor.cpu: lambda tensor, *args, **kwargs: _to(tensor, "cpu"),
    _Tensor.pin_memory: lambda tensor, *args: tensor,
    _Tensor.is_cuda.__get__: lambda tensor, *args: tensor.is_meta,
    _Tensor.device.__get__: lambda tensor, *args: torch.device("cuda", 0) if tensor.is_meta else torch.device("cpu"),
    _Tensor.new: _new,
    _Tensor.get_device: lambda tensor: 0 if tensor.is_meta else -1,
    _Tensor.__format__: lambda tensor, form: format(tensor.item() if tensor.dim() == 0 else repr(tensor), form),
}
#: The dispatch mode has to know when these run: see its attributes.
_KNOWN = {torch.nn.functional.linear: "linear", torch._VF._pad_packed_sequence: "host"}
_READ = (_Tensor.numpy, _Tensor.tolist, _Tensor.__array__)


class Devices(TorchFunctionMode):
    """Tensors on ``meta`` say that they are on a GPU, so that the program goes the way that it takes on one."""

    def __init__(self, dispatch):
        super().__init__()
        self.dispatch = dispatch

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.dispatch.running:
            return function(*args, **kwargs)
        if function in _REPLACED:
            return _REPLACED[function](*args, **kwargs)
        if function in _READ and args[0].is_meta:
            return values.read(self.dispatch, args[0], function)
        if function is _Tensor.__deepcopy__:
            return self._deepcopy(*args)
        if "device" in kwargs:
            kwargs = {**kwargs, "device": _on_meta(kwargs["device"])}
        if function in _KNOWN:
            with self.dispatch.having(_KNOWN[function]):
                return function(*args, **kwargs)
        return function(*args, **kwargs)

    def _deepcopy(self, tensor, memo):
        """Real data are copied as they are: values of a tensor on ``meta``, which are an attribute of it, as well."""
        real = tensor.__dict__.pop("_known", None) if tensor.is_meta else tensor
        with self.dispatch.having("host"):
            copied = real.clone() if real is not None else None
        if not tensor.is_meta:
            return copied
        made = _Tensor.__deepcopy__(tensor, memo)
        for one, value in ((tensor, real), (made, copied)) if real is not None else ():
            one._known = value
        return made
