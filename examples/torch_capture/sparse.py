"""Kernels of sparse gradients, of which PyTorch has none on ``meta``: by name, for ops that take a sparse tensor."""

import math

import torch

from . import ops

aten = torch.ops.aten
_made = ops.define("sparse_coo_tensor.indices_size(Tensor indices, Tensor values, int[] size) -> Tensor",
                   lambda *args: torch._sparse_coo_tensor_unsafe(*args))


def sparse_coo_tensor(indices, values, size, *_, **__):
    """PyTorch's own reads indices, of which ``meta`` has none."""
    differentiable = torch.is_grad_enabled() and values.requires_grad
    return (torch._sparse_coo_tensor_unsafe if differentiable else _made)(indices, values, size)


def _alike(sparse, entries=None, coalesced=False):
    """A new tensor with as many entries, or others."""
    indices, values = sparse._indices(), sparse._values()
    entries = indices.shape[1] if entries is None else entries
    new = indices.new_empty(indices.shape[0], entries), values.new_empty(entries, *values.shape[1:])
    return torch._sparse_coo_tensor_unsafe(*new, sparse.shape)._coalesced_(coalesced)


def _coalesce(mode, sparse):
    """Among n lookups in r equally likely rows, r (1 - (1 - 1/r)^n) are expected to differ."""
    rows, lookups = sparse.shape[0], sparse._nnz()
    distinct = round(-rows * math.expm1(lookups * math.log1p(-1 / rows))) if rows > 1 else 1
    mode.assumptions.note(f"{lookups} lookups in a table of {rows} rows are taken for {distinct} different ones, "
                          "all rows alike")
    return _alike(sparse, max(distinct, 1), coalesced=True)


def _zero(mode, tensor):
    """A gradient keeps its rows, which the next one will have."""
    tensor._zeroed = True
    return tensor


def _add(mode, tensor, other, **_):
    if tensor.is_sparse and not tensor.__dict__.pop("_zeroed", False):
        mode.assumptions.note("a sparse gradient that others are added to is taken for as long as the first")
    return tensor


KERNELS = {
    **{f"aten::{name}": lambda mode, tensor, *_, **__: _alike(tensor) for name in ("add", "div", "mul", "pow", "sqrt")},
    **{f"aten::{name}": lambda mode, tensor, *_, **__: tensor for name in ("mul_", "div_")},
    "aten::zero_": _zero, "aten::add_": _add, "aten::_coalesce": _coalesce,
    "aten::sparse_mask": lambda mode, tensor, mask: _alike(mask, coalesced=True),
    "aten::_to_dense": lambda mode, sparse, *_, **__: sparse._values().new_empty(sparse.shape),
    "aten::norm": lambda mode, sparse, *_, **__: sparse._values().new_empty(()),
}
