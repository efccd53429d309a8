"""Generates ops along one size each, in steps fine enough to tell a cliff from noise, and ops of modern
training: attention by each library, products in fp8. Cells as in families.py."""

import torch

from . import families
from .families import DTYPES, SIZES, Case, aten, normal, plain

COLS = 1024
LEAST_BYTES, MOST_BYTES, WARM_BYTES = 4096, 2e9, 64e6


def sizes(per_decade, most):
    """Bytes of one tensor, multiples of a row of 1,024 numbers in fp32."""
    found, step = [], 0
    while (value := LEAST_BYTES * 10 ** (step / per_decade)) <= most:
        rounded = round(value / LEAST_BYTES) * LEAST_BYTES
        if not found or rounded > found[-1]:
            found.append(rounded)
        step += 1
    return found


def elementwise(op, name, function, inputs):
    def case(rows, dtype):
        cells = {"op": op, "dtype": dtype, "rows": rows, "cols": COLS, "elements": rows * COLS, "layout": "contiguous",
                 "n_inputs": inputs}
        return plain("elementwise", "aten::" + name, cells, (inputs + 1) * rows * COLS * SIZES[dtype], function,
                     lambda device: tuple(normal((rows, COLS), dtype, device) for _ in range(inputs)))
    return case


def cast(rows, dtype):
    other = "fp32" if dtype == "bf16" else "bf16"
    cells = {"op": "elementwise", "dtype": dtype, "rows": rows, "cols": COLS, "elements": rows * COLS, "layout": "mixed types",
             "n_inputs": 1}
    return plain("elementwise", "aten::cast", cells, rows * COLS * 6, lambda x: x.to(DTYPES[other]),
                 lambda device: (normal((rows, COLS), dtype, device),))


def softmax(rows, dtype):
    cells = {"op": "softmax", "dtype": dtype, "rows": rows, "cols": COLS, "direction": "fwd"}
    return plain("softmax", "aten::_softmax", cells, 2 * rows * COLS * SIZES[dtype], aten._softmax,
                 lambda device: (normal((rows, COLS), dtype, device), -1, False))


def norm(op, direction):
    name, forward, backward = {
        "layer_norm": ("aten::native_layer_norm", aten.native_layer_norm, aten.native_layer_norm_backward),
        "rms_norm": ("aten::_fused_rms_norm", lambda *a: aten._fused_rms_norm(*a),
                     lambda *a: aten._fused_rms_norm_backward(*a))}[op]

    def case(rows, dtype):
        cells = {"op": op, "dtype": dtype, "rows": rows, "cols": COLS, "direction": direction}

        def tensors(device):
            x, weight, bias = (normal(shape, dtype, device) for shape in ((rows, COLS), COLS, COLS))
            affine = (weight, bias) if op == "layer_norm" else (weight,)
            if direction == "fwd":
                return (x, [COLS]) + affine + (1e-5,)
            saved = forward(x, [COLS], *affine, 1e-5)[1:]
            return (normal((rows, COLS), dtype, device), x, [COLS]) + tuple(saved) + affine + ([True] * (len(affine) + 1),)

        moved = rows * COLS * SIZES[dtype] * (2 if direction == "fwd" else 3)
        return plain("norm", name + ("" if direction == "fwd" else "_backward"), cells, moved,
                     forward if direction == "fwd" else backward, tensors)
    return case


def total(kind):
    function = {"rows": lambda x: x.sum(1), "columns": lambda x: x.sum(0), "all": lambda x: x.sum()}[kind]

    def case(rows, dtype):
        results, each = {"rows": (rows, COLS), "columns": (COLS, rows), "all": (1, rows * COLS)}[kind]
        cells = {"op": "sum", "dtype": dtype, "rows": results, "cols": each, "strided": int(kind == "columns")}
        return plain("reduction", "aten::sum", cells, rows * COLS * SIZES[dtype], function,
                     lambda device: (normal((rows, COLS), dtype, device),))
    return case


RELU = elementwise("relu", "relu", aten.relu.default, 1)
ADD = elementwise("add", "add", aten.add.Tensor, 2)
FINE = (RELU, ADD, softmax, norm("layer_norm", "fwd"), total("rows"))
COARSE = (elementwise("gelu", "gelu", aten.gelu.default, 1), cast, norm("layer_norm", "bwd"), norm("rms_norm", "fwd"),
          norm("rms_norm", "bwd"), total("columns"), total("all"))
WARM = (RELU, ADD, cast, norm("layer_norm", "fwd"), softmax)


def along(makers, per_decade, most):
    for make in makers:
        for dtype in ("bf16", "fp32"):
            for size in sizes(per_decade, most):
                yield make(size // (COLS * SIZES[dtype]), dtype)


def fine():
    """20 sizes per decade of tensors of 4 KB to 2 GB where trees are asked most, else ten."""
    yield from along(FINE, 20, MOST_BYTES)
    yield from along(COARSE, 10, MOST_BYTES)


def warm():
    """The same operands again and again: what is left in the L2 by the op before."""
    yield from along(WARM, 10, WARM_BYTES)


def attention():
    """FlashAttention 2 and cuDNN, forward and backward, as layers of 2,048 and 4,096 numbers run them."""
    for head_dim in (64, 128, 256):
        for length in (512, 2048, 8192, 32768):
            for causal in (True, False):
                for width, shared in ((2048, 1), (4096, 4)):
                    heads = width // head_dim
                    batch = max(1, 32768 // length)
                    for library in ("flash", "cudnn"):
                        for direction in ("fwd", "bwd"):
                            yield families.attention_case(batch, heads, max(1, heads // shared), head_dim, length, length,
                                                          causal, library, "bf16", direction)


LAYERS = ((2048, 2048), (4096, 4096), (4096, 14336), (14336, 4096), (8192, 8192), (8192, 28672), (7168, 2048), (2048, 7168))
FP8 = torch.float8_e4m3fn if hasattr(torch, "float8_e4m3fn") else None
LARGEST_E4M3 = 448.0


def scale_of(x, dim=None):
    largest = x.abs().amax() if dim is None else x.abs().amax(dim, keepdim=True)
    return (largest.float() / LARGEST_E4M3).clamp(min=1e-12)


def quantized(x, scale):
    return (x / scale).clamp(-LARGEST_E4M3, LARGEST_E4M3).to(FP8)


def scaled(x, weight, scale_x, scale_weight):
    return torch._scaled_mm(x, weight, scale_a=scale_x, scale_b=scale_weight, out_dtype=torch.bfloat16, use_fast_accum=True)


def fp8():
    """Products of two fp8 matrices, by one scale or by one per row, and the quantisation of the first (absolute
    maximum, division, cast), each alone, in eager ops."""
    for tokens in (1024, 4096, 16384):
        for n_in, n_out in LAYERS:
            for scheme in ("tensor", "row"):
                dim = None if scheme == "tensor" else -1
                cells = {"op": "gemm", "dtype": "fp8", "m": tokens, "n": n_out, "k": n_in, "b": 1, "layout": "tn",
                         "scaling": {"tensor": "tensor", "row": "token"}[scheme]}

                def operands(device, tokens=tokens, n_in=n_in, n_out=n_out, dim=dim):
                    x, weight = normal((tokens, n_in), "bf16", device), normal((n_out, n_in), "bf16", device)
                    a, b = scale_of(x, dim), scale_of(weight, dim)
                    return quantized(x, a), quantized(weight, b).t(), a, b.t()

                yield plain("product", "aten::_scaled_mm", cells, tokens * n_in + n_in * n_out + 2 * tokens * n_out, scaled,
                            operands)
                cells = {"op": "quantize_eager", "dtype": "bf16", "rows": tokens, "cols": n_in, "elements": tokens * n_in,
                         "scaling": {"tensor": "tensor", "row": "token"}[scheme]}
                yield plain("product", "quantize", cells, 3 * tokens * n_in,
                            lambda x, dim=dim: quantized(x, scale_of(x, dim)),
                            lambda device, tokens=tokens, n_in=n_in: (normal((tokens, n_in), "bf16", device),))


SWEEPS = {"fine": fine, "warm": warm, "attention": attention, "fp8": fp8}
