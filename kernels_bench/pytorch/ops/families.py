"""Generates the single ops to measure and their sizes: one generator of cases per family.

A case has the cells that `perfpredict kernels` reads (docs/formats.md, "Kernels"), the framework's op, the
bytes of its operands, and `make(device, copies)`, which gives `call(i)` on the i-th copy of its operands.
Sizes are log-uniform from a fixed seed and take turns with models' sizes. Backward passes are
called as the ops that autograd calls, with gradients given.
"""

import math
import random
from dataclasses import dataclass, field
from typing import Callable, Dict

import torch

aten = torch.ops.aten
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "int64": torch.int64}
SIZES = {"bf16": 2, "fp16": 2, "fp32": 4}


@dataclass
class Case:
    family: str
    name: str  # the framework's op
    cells: Dict
    bytes: float  # size of the operands that a call reads and writes
    make: Callable = field(repr=False, default=None)
    tf32: bool = False
    table_bytes: float = 0  # size of the table that a lookup reads a few rows of

    @property
    def footprint(self):
        """Bytes of memory of one set of operands."""
        return max(self.bytes, self.table_bytes)


def log_uniform(rng, low, high, multiple=1):
    value = math.exp(rng.uniform(math.log(low), math.log(high)))
    return max(multiple, int(round(value / multiple)) * multiple)


def normal(shape, dtype, device):
    """Random numbers, never zeros: units for matrices draw the power that they draw in training."""
    return torch.randn(shape, device=device, dtype=torch.float32).to(DTYPES[dtype])


def rotating(function, operands):
    """call(i): the function on the i-th copy."""
    return lambda i: function(*operands[i % len(operands)])


def plain(family, name, cells, size, function, tensors, **more):
    """A case whose operands are made by `tensors(device)`, a tuple."""
    def make(device, copies):
        return rotating(function, [tensors(device) for _ in range(copies)])
    return Case(family, name, cells, size, make, **more)


# ---- attention ----

HEADS = ((8, 8, 64), (12, 12, 64), (16, 16, 64), (16, 16, 128), (32, 32, 128), (32, 8, 128), (64, 8, 128), (16, 16, 96),
         (32, 32, 80), (20, 20, 64), (16, 16, 32), (8, 8, 256), (40, 40, 128), (28, 4, 128))


def flash_forward(q, k, v, causal):
    return aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)


def flash_backward(grad, q, k, v, saved, causal):
    out, lse, cum_q, cum_k, max_q, max_k, seed, offset = saved[:8]
    return aten._scaled_dot_product_flash_attention_backward(grad, q, k, v, out, lse, cum_q, cum_k, max_q, max_k, 0.0,
                                                             causal, seed, offset)


def cudnn_forward(q, k, v, causal):
    return aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal)


def cudnn_backward(grad, q, k, v, saved, causal):
    out, lse, cum_q, cum_k, max_q, max_k, seed, offset = saved[:8]
    return aten._scaled_dot_product_cudnn_attention_backward(grad, q, k, v, out, lse, seed, offset, None, cum_q, cum_k,
                                                             max_q, max_k, 0.0, causal)


def efficient_forward(q, k, v, causal):
    return aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, causal)


def efficient_backward(grad, q, k, v, saved, causal):
    out, lse, seed, offset = saved[:4]
    return aten._scaled_dot_product_efficient_attention_backward(grad, q, k, v, None, out, lse, seed, offset, 0.0,
                                                                 [True, True, True, False], causal)


ATTENTION = {"flash": (flash_forward, flash_backward), "cudnn": (cudnn_forward, cudnn_backward),
             "efficient": (efficient_forward, efficient_backward)}


def attention(rng):
    heads, kv_heads, head_dim = rng.choice(HEADS)
    seq = rng.choice((128, 197, 256, 384, 512, 1024, 2048, 4096, 8192, log_uniform(rng, 64, 8192)))
    seq_k = seq if rng.random() < 0.9 else rng.choice((77, 128, 1024))
    tokens = log_uniform(rng, 256, 65536)
    batch = max(1, tokens // seq)
    causal = seq_k == seq and rng.random() < 0.5
    kind = rng.choices(("flash", "cudnn", "efficient"), (6, 3, 1))[0]
    dtype = "bf16" if kind != "efficient" or rng.random() < 0.3 else "fp32"
    direction = rng.choice(("fwd", "bwd", "bwd"))
    if kind == "efficient":
        kv_heads = heads
    return attention_case(batch, heads, kv_heads, head_dim, seq, seq_k, causal, kind, dtype, direction)


def attention_case(batch, heads, kv_heads, head_dim, seq, seq_k, causal, kind, dtype, direction):
    """One call of attention by library `kind`."""
    forward, backward = ATTENTION[kind]

    def tensors(device):
        # As a model makes them: [batch, seq, heads, head_dim] seen as [batch, heads, seq, head_dim].
        def one(count, length):
            return normal((batch, length, count, head_dim), dtype, device).transpose(1, 2)
        q, k, v = one(heads, seq), one(kv_heads, seq_k), one(kv_heads, seq_k)
        if direction == "fwd":
            return q, k, v, causal
        saved = forward(q, k, v, causal)
        return one(heads, seq), q, k, v, saved, causal

    numbers = batch * head_dim * (2 * heads * seq + 2 * kv_heads * seq_k)
    cells = {"op": "attention", "dtype": dtype, "batch": batch, "heads": heads, "kv_heads": kv_heads, "seq_q": seq,
             "seq_k": seq_k, "head_dim": head_dim, "causal": int(causal), "direction": direction, "method": "flash",
             "library": kind}
    name = {"flash": "aten::_scaled_dot_product_flash_attention", "cudnn": "aten::_scaled_dot_product_cudnn_attention",
            "efficient": "aten::_scaled_dot_product_efficient_attention"}[kind]
    return plain("attention", name + ("_backward" if direction == "bwd" else ""), cells,
                 numbers * SIZES[dtype] * (2 if direction == "bwd" else 1),
                 forward if direction == "fwd" else backward, tensors)


# ---- norms, softmax, loss ----

WIDTHS = (768, 1024, 1280, 1600, 2048, 2560, 4096, 5120, 8192)


def matrix(rng, most=2 ** 28):
    """Rows and columns of a matrix of at most `most` numbers."""
    cols = rng.choice(WIDTHS + (log_uniform(rng, 16, 32768), log_uniform(rng, 16, 4096)))
    return log_uniform(rng, 16, max(32, min(2 ** 20, most // cols))), cols


def half_or_full(rng):
    return rng.choice(("bf16", "bf16", "fp32"))


def layer_norm(rng):
    rows, cols = matrix(rng)
    dtype, direction = half_or_full(rng), rng.choice(("fwd", "bwd"))
    cells = {"op": "layer_norm", "dtype": dtype, "rows": rows, "cols": cols, "direction": direction}

    def tensors(device):
        x, weight, bias = normal((rows, cols), dtype, device), normal(cols, dtype, device), normal(cols, dtype, device)
        if direction == "fwd":
            return x, [cols], weight, bias, 1e-5
        _, mean, rstd = aten.native_layer_norm(x, [cols], weight, bias, 1e-5)
        return normal((rows, cols), dtype, device), x, [cols], mean, rstd, weight, bias, [True, True, True]

    forward = direction == "fwd"
    return plain("norm", "aten::native_layer_norm" + ("" if forward else "_backward"), cells,
                 rows * cols * SIZES[dtype] * (2 if forward else 3),
                 aten.native_layer_norm if forward else aten.native_layer_norm_backward, tensors)


def rms_norm(rng):
    rows, cols = matrix(rng)
    dtype, direction = half_or_full(rng), rng.choice(("fwd", "bwd"))
    cells = {"op": "rms_norm", "dtype": dtype, "rows": rows, "cols": cols, "direction": direction}

    def tensors(device):
        x, weight = normal((rows, cols), dtype, device), normal(cols, dtype, device)
        if direction == "fwd":
            return x, [cols], weight, 1e-5
        _, rstd = aten._fused_rms_norm(x, [cols], weight, 1e-5)
        return normal((rows, cols), dtype, device), x, [cols], rstd, weight, [True, True]

    forward = direction == "fwd"
    return plain("norm", "aten::_fused_rms_norm" + ("" if forward else "_backward"), cells,
                 rows * cols * SIZES[dtype] * (2 if forward else 3),
                 (lambda *a: aten._fused_rms_norm(*a)) if forward else (lambda *a: aten._fused_rms_norm_backward(*a)),
                 tensors)


def batch_norm(rng):
    channels = rng.choice((64, 128, 256, 512, 1024, 2048, log_uniform(rng, 16, 2048)))
    side = rng.choice((7, 14, 28, 56, 112))
    batch = log_uniform(rng, 1, max(2, min(256, 2 ** 28 // (channels * side * side))))
    dtype, direction = half_or_full(rng), rng.choice(("fwd", "bwd"))
    last = rng.random() < 0.4  # channels_last
    library = rng.choice(("native", "cudnn"))
    cells = {"op": "batch_norm", "dtype": dtype, "rows": channels, "cols": batch * side * side, "direction": direction,
             "library": library, "memory_format": "channels_last" if last else "contiguous"}

    def image(device):
        x = normal((batch, channels, side, side), dtype, device)
        return x.contiguous(memory_format=torch.channels_last) if last else x

    def tensors(device):
        weight, bias, mean, var = (torch.rand(channels, device=device) for _ in range(4))
        x = image(device)
        if direction == "fwd":
            return x, weight, bias, mean, var, True, 0.1, 1e-5
        if library == "native":
            _, m, r = aten.native_batch_norm(x, weight, bias, mean, var, True, 0.1, 1e-5)
            return image(device), x, weight, mean, var, m, r, True, 1e-5, [True, True, True]
        _, m, r, reserve = aten.cudnn_batch_norm(x, weight, bias, mean, var, True, 0.1, 1e-5)
        return x, image(device), weight, mean, var, m, r, 1e-5, reserve

    ops = {("native", "fwd"): lambda *a: aten.native_batch_norm(*a),
           ("native", "bwd"): lambda *a: aten.native_batch_norm_backward(*a),
           ("cudnn", "fwd"): lambda *a: aten.cudnn_batch_norm(*a),
           ("cudnn", "bwd"): lambda *a: aten.cudnn_batch_norm_backward(*a)}
    name = f"aten::{library}_batch_norm" + ("_backward" if direction == "bwd" else "")
    return plain("norm", name, cells, batch * channels * side * side * SIZES[dtype] * (2 if direction == "fwd" else 3),
                 ops[library, direction], tensors)


def softmax(rng):
    rows, cols = matrix(rng)
    if rng.random() < 0.3:
        cols = rng.choice((30522, 32000, 50257, 128256))
        rows = log_uniform(rng, 16, 8192)
    dtype, direction = half_or_full(rng), rng.choice(("fwd", "bwd"))
    kind = rng.choice(("softmax", "log_softmax"))
    cells = {"op": "softmax", "dtype": dtype, "rows": rows, "cols": cols, "direction": direction}
    forward = {"softmax": aten._softmax, "log_softmax": aten._log_softmax}[kind]
    backward = {"softmax": aten._softmax_backward_data, "log_softmax": aten._log_softmax_backward_data}[kind]

    def tensors(device):
        x = normal((rows, cols), dtype, device)
        if direction == "fwd":
            return x, -1, False
        return normal((rows, cols), dtype, device), forward(x, -1, False), -1, DTYPES[dtype]

    name = f"aten::_{kind}" + ("_backward_data" if direction == "bwd" else "")
    return plain("softmax", name, cells, rows * cols * SIZES[dtype] * (2 if direction == "fwd" else 3),
                 forward if direction == "fwd" else backward, tensors)


def nll_loss(rng):
    rows, cols = log_uniform(rng, 64, 32768), rng.choice((1000, 30522, 32000, 50257, 128256))
    rows = min(rows, 2 ** 29 // cols)
    dtype, direction = rng.choice(("bf16", "fp32")), rng.choice(("fwd", "bwd"))
    cells = {"op": "nll_loss", "dtype": dtype, "rows": rows, "cols": cols, "direction": direction}

    def tensors(device):
        x, target = normal((rows, cols), dtype, device), torch.randint(0, cols, (rows,), device=device)
        if direction == "fwd":
            return x, target, None, 1, -100
        _, total = aten.nll_loss_forward(x, target, None, 1, -100)
        return normal((), dtype, device), x, target, None, 1, -100, total

    forward = direction == "fwd"
    return plain("loss", "aten::nll_loss_" + ("forward" if forward else "backward"), cells,
                 rows * (8 + SIZES[dtype]) if forward else rows * cols * SIZES[dtype],
                 aten.nll_loss_forward if forward else aten.nll_loss_backward, tensors)


# ---- elementwise ----

def elementwise(rng):
    """Variants as the tables of eager programs name them: contiguous, broadcast, strided, mixed types."""
    rows, cols = matrix(rng, 2 ** 29)
    dtype = half_or_full(rng)
    size = SIZES[dtype]
    other = "fp32" if dtype == "bf16" else "bf16"
    full, row, column = (rows, cols), (cols,), (rows, 1)

    def t(shape, kind=None):
        return lambda device: normal(shape, kind or dtype, device)

    def across(device):  # the transpose of a contiguous matrix
        return normal((cols, rows), dtype, device).t()

    def sliced(device):  # half of the columns of a wider matrix
        return normal((rows, 2 * cols), dtype, device)[:, :cols]

    def number(value):
        return lambda device: value

    def boolean(device):
        return torch.rand(full, device=device) < 0.5
    # op cell, name, function, operands, tensors of full size that are read, layout
    variants = [
        ("add", "add", aten.add.Tensor, (t(full), t(full)), 2, "contiguous"),
        ("mul", "mul", aten.mul.Tensor, (t(full), t(full)), 2, "contiguous"),
        ("addu", "add_number", aten.add.Tensor, (t(full), number(1.5)), 1, "contiguous"),
        ("mulu", "mul_number", aten.mul.Tensor, (t(full), number(1.5)), 1, "contiguous"),
        ("divu", "div_number", aten.div.Tensor, (t(full), number(1.5)), 1, "contiguous"),
        ("powu", "pow_number", aten.pow.Tensor_Scalar, (t(full), number(2)), 1, "contiguous"),
        ("relu", "relu", aten.relu.default, (t(full),), 1, "contiguous"),
        ("gelu", "gelu", aten.gelu.default, (t(full),), 1, "contiguous"),
        ("silu", "silu", aten.silu.default, (t(full),), 1, "contiguous"),
        ("tanh", "tanh", aten.tanh.default, (t(full),), 1, "contiguous"),
        ("sigmoid", "sigmoid", aten.sigmoid.default, (t(full),), 1, "contiguous"),
        ("exp", "exp", aten.exp.default, (t(full),), 1, "contiguous"),
        ("elementwise", "gelu_backward", aten.gelu_backward.default, (t(full), t(full)), 2, "contiguous"),
        ("elementwise", "silu_backward", aten.silu_backward.default, (t(full), t(full)), 2, "contiguous"),
        ("elementwise", "tanh_backward", aten.tanh_backward.default, (t(full), t(full)), 2, "contiguous"),
        ("elementwise", "threshold_backward", aten.threshold_backward.default, (t(full), t(full), number(0)), 2,
         "contiguous"),
        ("elementwise", "addcmul", aten.addcmul.default, (t(full), t(full), t(full)), 3, "contiguous"),
        ("elementwise", "masked_fill", aten.masked_fill.Scalar, (t(full), boolean, number(-1.0)), 1.5, "contiguous"),
        ("addu", "add_row", aten.add.Tensor, (t(full), t(row)), 1, "broadcast"),
        ("mulu", "mul_row", aten.mul.Tensor, (t(full), t(row)), 1, "broadcast"),
        ("mulu", "mul_column", aten.mul.Tensor, (t(full), t(column)), 1, "broadcast"),
        ("divu", "div_column", aten.div.Tensor, (t(full), t(column)), 1, "broadcast"),
        ("elementwise", "copy_sliced", lambda x: x.contiguous(), (sliced,), 1, "strided"),
        ("add", "add_sliced", aten.add.Tensor, (sliced, t(full)), 2, "strided"),
        ("mulu", "mul_sliced", aten.mul.Tensor, (sliced, number(1.5)), 1, "strided"),
        ("elementwise", "copy_across", lambda x: x.contiguous(), (across,), 1, "strided"),
        ("add", "add_across", aten.add.Tensor, (across, t(full)), 2, "strided"),
        ("add", "add_mixed", aten.add.Tensor, (t(full), t(full, other)), 2, "mixed types"),
        ("mul", "mul_mixed", aten.mul.Tensor, (t(full), t(full, other)), 2, "mixed types"),
        ("elementwise", "cast", lambda x: x.to(DTYPES[other]), (t(full),), 1, "mixed types"),
    ]
    op, name, function, operands, reads, layout = rng.choice(variants)
    cells = {"op": op, "dtype": dtype, "rows": rows, "cols": cols, "elements": rows * cols, "layout": layout,
             "n_inputs": max(1, int(reads))}
    return plain("elementwise", "aten::" + name, cells, (reads + 1) * rows * cols * size, function,
                 lambda device: tuple(make(device) for make in operands))


def dropout(rng):
    rows, cols = matrix(rng)
    dtype, direction = half_or_full(rng), rng.choice(("fwd", "bwd"))
    cells = {"op": "dropout", "dtype": dtype, "rows": rows, "cols": cols, "elements": rows * cols,
             "direction": direction}

    def tensors(device):
        x = normal((rows, cols), dtype, device)
        return (x, 0.1, True) if direction == "fwd" else (x, torch.rand((rows, cols), device=device) < 0.9, 1 / 0.9)

    forward = direction == "fwd"
    return plain("dropout", "aten::native_dropout" + ("" if forward else "_backward"), cells,
                 rows * cols * (2 * SIZES[dtype] + 1), aten.native_dropout if forward else aten.native_dropout_backward,
                 tensors)


def reduction(rng):
    rows, cols = matrix(rng, 2 ** 29)
    dtype = half_or_full(rng)
    kind = rng.choice(("rows", "columns", "all"))
    op = rng.choice(("sum", "sum", "mean", "max"))
    if op == "max":
        function = {"rows": lambda x: x.amax(1), "columns": lambda x: x.amax(0), "all": lambda x: x.amax()}[kind]
    else:
        function = {"rows": lambda x: getattr(x, op)(1), "columns": lambda x: getattr(x, op)(0),
                    "all": lambda x: getattr(x, op)()}[kind]
    results, each = {"rows": (rows, cols), "columns": (cols, rows), "all": (1, rows * cols)}[kind]
    cells = {"op": op, "dtype": dtype, "rows": results, "cols": each, "strided": int(kind == "columns")}
    return plain("reduction", f"aten::{'amax' if op == 'max' else op}", cells, rows * cols * SIZES[dtype], function,
                 lambda device: (normal((rows, cols), dtype, device),))


# ---- lookups ----

def indices(rng_seed, count, high, zipf, device):
    """`count` ids below `high`: uniform, or with P(rank k) ~ k^-zipf by the inverse of its integral, ranks
    spread over the table by a multiplication."""
    generator = torch.Generator(device="cpu").manual_seed(rng_seed)
    u = torch.rand(count, generator=generator, dtype=torch.float64)
    if zipf == 0:
        return (u * high).long().clamp_(max=high - 1).to(device)
    if zipf == 1:
        ranks = torch.exp(u * math.log(high + 1)) - 1
    else:
        ranks = ((u * ((high + 1.0) ** (1 - zipf) - 1) + 1) ** (1 / (1 - zipf))) - 1
    return ((ranks.long().clamp_(0, high - 1) * 2654435761) % high).to(device)


def embedding(rng):
    rows = log_uniform(rng, 1000, 5_000_000)
    dim = rng.choice((16, 32, 64, 128, 256, 768, 1024, 4096))
    rows = min(rows, 2 ** 29 // dim)
    zipf = rng.choice((0, 0.6, 0.9, 1.1, 1.3))
    dtype = rng.choice(("fp32", "fp32", "bf16"))
    kind = rng.choice(("embedding", "dense_backward", "bag", "bag", "bag_backward"))
    seed = rng.randrange(2 ** 31)
    if kind.startswith("bag"):
        pooling, bags = rng.choice((1, 4, 10, 32, 100)), log_uniform(rng, 128, 16384)
        dim = min(dim, 256)
    else:
        pooling, bags = 1, log_uniform(rng, 128, 131072)
    found = bags * pooling
    found = min(found, 2 ** 28 // dim)
    bags = found // pooling
    found = bags * pooling

    def tensors(device):
        ids = indices(seed, found, rows, zipf, device)
        if kind == "embedding":
            return normal((rows, dim), dtype, device), ids
        if kind == "dense_backward":
            return normal((found, dim), dtype, device), ids, rows, -1, False
        offsets = torch.arange(0, found, pooling, device=device)
        weight = normal((rows, dim), dtype, device)
        if kind == "bag":
            return weight, ids, offsets, False, 0, False
        _, offset2bag, bag_size, maximum = aten._embedding_bag(weight, ids, offsets, False, 0, False)
        return normal((bags, dim), dtype, device), ids, offset2bag, bag_size, maximum, rows, False, 0, None

    functions = {"embedding": lambda *a: aten.embedding(*a),
                 "dense_backward": lambda *a: aten.embedding_dense_backward(*a),
                 "bag": lambda *a: aten._embedding_bag(*a),
                 "bag_backward": lambda *a: aten._embedding_bag_dense_backward(*a)}
    names = {"embedding": "embedding", "dense_backward": "embedding_dense_backward", "bag": "_embedding_bag",
             "bag_backward": "_embedding_bag_dense_backward"}
    size = SIZES[dtype]
    cells = {"op": "embedding_backward" if "backward" in kind else "embedding_forward", "dtype": dtype, "rows": rows,
             "dim": dim, "pooling": pooling, "batch": bags, "tables": 1, "zipf": zipf, "index_bytes": 8}
    moved = found * dim * size + (rows * dim * size if "backward" in kind else bags * dim * size)
    return plain("embedding", "aten::" + names[kind], cells, moved, functions[kind], tensors,
                 table_bytes=rows * dim * size)


def movement(rng):
    rows, cols = matrix(rng)
    dtype = half_or_full(rng)
    size = SIZES[dtype]
    kind = rng.choice(("cat", "gather", "index_select", "index_add", "scatter_add"))
    table = log_uniform(rng, rows, min(8 * rows, max(rows + 1, 2 ** 28 // cols)))
    seed = rng.randrange(2 ** 31)

    def tensors(device):
        if kind == "cat":
            first = cols // 2 or 1
            return ([normal((rows, first), dtype, device), normal((rows, max(1, cols - first)), dtype, device)], 1)
        ids = indices(seed, rows, table, 0, device)
        if kind == "index_select":
            return normal((table, cols), dtype, device), 0, ids
        if kind == "index_add":
            return normal((table, cols), dtype, device), 0, ids, normal((rows, cols), dtype, device)
        wide = ids[:, None].expand(rows, cols).contiguous()
        if kind == "gather":
            return normal((table, cols), dtype, device), 0, wide
        return normal((table, cols), dtype, device), 0, wide, normal((rows, cols), dtype, device)

    functions = {"cat": aten.cat.default, "gather": aten.gather.default, "index_select": aten.index_select.default,
                 "index_add": aten.index_add_.default, "scatter_add": aten.scatter_add_.default}
    op = {"cat": "concat", "gather": "gather", "index_select": "gather", "index_add": "scatter_add",
          "scatter_add": "scatter_add"}[kind]
    cells = {"op": op, "dtype": dtype, "rows": rows, "cols": cols, "table_rows": table}
    if kind == "cat":
        cells["elements"] = rows * cols
    # Wide indices have eight bytes per number.
    moved = rows * cols * (2 * size + (8 if kind in ("gather", "scatter_add") else 0))
    return plain("movement", "aten::" + kind, cells, moved, functions[kind], tensors,
                 table_bytes=table * cols * size)


# ---- optimizers ----

def optimizer(rng):
    """A step over many tensors of a transformer's or DLRM's sizes, by one optimizer of torch."""
    kind = rng.choice(("adam/fused", "adam/foreach", "adam/fused", "sgd/foreach", "sgd/fused", "momentum/foreach",
                       "adam/plain"))
    width, layers = rng.choice((64, 256, 768, 1024, 2048, 4096)), rng.randrange(1, 25)
    shapes = []
    for _ in range(layers):
        shapes += [(3 * width, width), (3 * width,), (width, width), (width,), (4 * width, width), (4 * width,),
                   (width, 4 * width), (width,), (width,), (width,)]
    while sum(math.prod(s) for s in shapes) > 6e8 and len(shapes) > 10:
        shapes = shapes[:-10]
    if kind == "adam/plain":
        shapes = shapes[:20]
    elements = sum(math.prod(s) for s in shapes)
    name, way = kind.split("/")
    cells = {"op": "optimizer", "optimizer": name, "dtype": "fp32", "elements": elements, "tensors": len(shapes),
             "library": way}

    def make(device, _):
        parameters = [torch.nn.Parameter(normal(s, "fp32", device) * 0.01) for s in shapes]
        for p in parameters:
            p.grad = normal(p.shape, "fp32", device)
        flags = {"foreach": way == "foreach", "fused": way == "fused"}
        if name == "adam":
            made = torch.optim.Adam(parameters, lr=1e-4, capturable=device != "cpu", **flags)
        else:
            made = torch.optim.SGD(parameters, lr=1e-6, momentum=0.9 if name == "momentum" else 0.0, **flags)
        return lambda i: made.step()

    per_element = {"adam": 28, "sgd": 12, "momentum": 20}[name]
    return Case("optimizer", f"{name}/{way}", cells, elements * per_element, make)


def clip(rng):
    """Norms of all gradients in one call, as clipping by norm takes them."""
    width, layers = rng.choice((256, 768, 1024, 2048, 4096)), rng.randrange(1, 25)
    shapes = [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width), (width,)] * layers
    while sum(math.prod(s) for s in shapes) > 1e9 and len(shapes) > 5:
        shapes = shapes[:-5]
    dtype = half_or_full(rng)
    elements = sum(math.prod(s) for s in shapes)
    cells = {"op": "foreach_norm", "dtype": dtype, "elements": elements, "tensors": len(shapes)}

    def make(device, _):
        gradients = [normal(s, dtype, device) for s in shapes]
        return lambda i: aten._foreach_norm.Scalar(gradients, 2)

    return Case("optimizer", "aten::_foreach_norm", cells, elements * SIZES[dtype], make)


# ---- convolutions ----

RESNET = ((3, 224, 64, 7, 2), (64, 56, 64, 1, 1), (64, 56, 64, 3, 1), (64, 56, 256, 1, 1), (256, 56, 64, 1, 1), (256, 56, 128, 1, 1),
          (128, 56, 128, 3, 2), (128, 28, 512, 1, 1), (256, 56, 512, 1, 2), (512, 28, 128, 1, 1), (128, 28, 128, 3, 1),
          (512, 28, 256, 1, 1), (256, 28, 256, 3, 2), (256, 14, 1024, 1, 1), (512, 28, 1024, 1, 2), (1024, 14, 256, 1, 1),
          (256, 14, 256, 3, 1), (1024, 14, 512, 1, 1), (512, 14, 512, 3, 2), (512, 7, 2048, 1, 1), (1024, 14, 2048, 1, 2),
          (2048, 7, 512, 1, 1), (512, 7, 512, 3, 1), (64, 224, 64, 3, 1), (64, 112, 128, 3, 1))


def convolution(rng):
    c, side, k, window, stride = rng.choice(RESNET)
    if rng.random() < 0.35:
        c, k = log_uniform(rng, 16, 1024, 8), log_uniform(rng, 16, 1024, 8)
        side, window, stride = rng.choice((7, 14, 17, 28, 35, 56)), rng.choice((1, 3, 5)), rng.choice((1, 1, 2))
    batch = log_uniform(rng, 1, max(2, min(256, 2 ** 27 // (max(c, k) * side * side))))
    kind = rng.choice(("bf16", "bf16", "tf32", "fp32"))
    dtype = "fp32" if kind == "tf32" else kind
    last = rng.random() < 0.5
    direction = rng.choice(("fwd", "dgrad", "wgrad"))
    pad = window // 2
    out = (side + 2 * pad - window) // stride + 1
    cells = {"op": "conv2d", "dtype": kind, "n": batch, "c": c, "h": side, "w": side, "k": k, "r": window, "s": window,
             "pad_h": pad, "pad_w": pad, "stride_h": stride, "stride_w": stride, "groups": 1, "direction": direction,
             "memory_format": "channels_last" if last else "contiguous"}
    geometry = ([stride, stride], [pad, pad], [1, 1], False, [0, 0], 1)

    def shaped(x):
        return x.contiguous(memory_format=torch.channels_last) if last else x

    def tensors(device):
        x, weight = shaped(normal((batch, c, side, side), dtype, device)), shaped(normal((k, c, window, window), dtype, device))
        if direction == "fwd":
            return (x, weight, None) + geometry
        grad = shaped(normal((batch, k, out, out), dtype, device))
        return (grad, x, weight, None) + geometry + ([direction == "dgrad", direction == "wgrad", False],)

    forward = direction == "fwd"
    moved = (batch * c * side * side + batch * k * out * out + c * k * window * window) * SIZES[dtype]
    return plain("convolution", "aten::convolution" + ("" if forward else "_backward"), cells, moved,
                 aten.convolution.default if forward else aten.convolution_backward.default, tensors,
                 tf32=kind == "tf32")


# ---- products: the layouts of a backward pass ----

MODELS = ((768, 2304), (768, 768), (768, 3072), (3072, 768), (1024, 4096), (4096, 1024), (2048, 8192), (4096, 4096),
          (4096, 14336), (14336, 4096), (4096, 6144), (8192, 8192), (8192, 28672), (5120, 13824), (768, 50257),
          (4096, 32000), (1024, 1024), (512, 256), (256, 128), (1024, 512), (512, 512))


def product(rng):
    """A linear layer's three products: forward (tn), of the input's gradient (nn), of the weight's (nt)."""
    n_in, n_out = rng.choice(MODELS)
    if rng.random() < 0.5:
        n_in, n_out = log_uniform(rng, 16, 16384), log_uniform(rng, 16, 16384)
        if rng.random() < 0.7:
            n_in, n_out = max(8, n_in // 8 * 8), max(8, n_out // 8 * 8)
    tokens = log_uniform(rng, 16, 32768, rng.choice((1, 8, 128)))
    while 2 * tokens * n_in * n_out > 4e12:
        tokens //= 2
    kind = rng.choice(("bf16", "bf16", "tf32", "fp32", "fp16"))
    dtype = "fp32" if kind == "tf32" else kind
    direction = rng.choice(("tn", "nn", "nt", "nn", "nt"))
    m, n, k = {"tn": (tokens, n_out, n_in), "nn": (tokens, n_in, n_out), "nt": (n_out, n_in, tokens)}[direction]
    cells = {"op": "gemm", "dtype": kind, "m": m, "n": n, "k": k, "b": 1, "layout": direction}

    def tensors(device):
        x, weight, grad = (tokens, n_in), (n_out, n_in), (tokens, n_out)
        if direction == "tn":
            return normal(x, dtype, device), normal(weight, dtype, device).t()
        if direction == "nn":
            return normal(grad, dtype, device), normal(weight, dtype, device)
        return normal(grad, dtype, device).t(), normal(x, dtype, device)

    return plain("product", "aten::mm", cells, (m * k + k * n + m * n) * SIZES[dtype], aten.mm.default, tensors,
                 tf32=kind == "tf32")


def batched_product(rng):
    """Products of attention written out, and of a DLRM's interaction: forward and both gradients."""
    if rng.random() < 0.5:
        heads, length, width = rng.choice((8, 12, 16, 32)), rng.choice((128, 256, 384, 512, 1024, 2048)), rng.choice((64, 128))
        count = heads * log_uniform(rng, 1, 64)
        while count * length * length > 2 ** 28:
            count = count // 2
        m, n, k = rng.choice(((length, length, width), (length, width, length)))
    else:
        count = log_uniform(rng, 1, 4096)
        m, n, k = (log_uniform(rng, 16, 2048) for _ in range(3))
        while count * (m * k + k * n + m * n) > 2 ** 28 or 2 * count * m * n * k > 4e12:
            count = max(1, count // 2)
            if count == 1:
                break
    kind = rng.choice(("bf16", "bf16", "tf32", "fp32"))
    dtype = "fp32" if kind == "tf32" else kind
    layout = rng.choice(("nn", "tn", "nt"))
    cells = {"op": "bmm", "dtype": kind, "m": m, "n": n, "k": k, "b": count, "layout": layout}

    def tensors(device):
        a = normal((count, k, m), dtype, device).transpose(1, 2) if layout == "nt" else normal((count, m, k), dtype, device)
        b = normal((count, n, k), dtype, device).transpose(1, 2) if layout == "tn" else normal((count, k, n), dtype, device)
        return a, b

    return plain("product", "aten::bmm", cells, count * (m * k + k * n + m * n) * SIZES[dtype], aten.bmm.default, tensors,
                 tf32=kind == "tf32")


# Family, cases of it among a hundred.
MIX = ((attention, 20), (product, 14), (batched_product, 6), (convolution, 12), (layer_norm, 5), (rms_norm, 4), (batch_norm, 6),
       (softmax, 4), (nll_loss, 2), (elementwise, 11), (dropout, 2), (reduction, 4), (embedding, 5), (movement, 3),
       (optimizer, 1.5), (clip, 0.5))


def cases(seed, count):
    """The sweep: the first n of it are the sweep of n."""
    rng = random.Random(seed)
    families, weights = zip(*MIX)
    for _ in range(count):
        yield rng.choices(families, weights)[0](rng)
