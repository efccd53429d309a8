#!/usr/bin/env python3
"""The usual functions of PyTorch, forward and backward, captured without a GPU and predicted on one: every op has a
price. PYTHONPATH and PERFMODEL_LIBRARY name package and library; needs a Python that has torch."""

import os
import tempfile
import unittest

import torch
from torch import nn
from torch.nn import functional as F

import perfmodel

GPU = "a100-sxm-80gb"


def x(*shape):
    return torch.randn(*shape, device="cuda", requires_grad=True)


def data(*shape):
    return torch.randn(*shape, device="cuda")


def share(*shape):
    return torch.rand(*shape, device="cuda")


def index(high, *shape):
    return torch.randint(high, shape, device="cuda")


def of_module(make, *shape):
    """A function of a module that is made once."""
    return lambda: make().cuda()(x(*shape))


def pointwise(*names):
    """Functions of one tensor of positive numbers below 1."""
    return {name: lambda name=name: getattr(torch, name)(0.5 + 0.1 * x(64, 32)) for name in names}


def activations(*names):
    return {name: lambda name=name: getattr(F, name)(x(64, 32)) for name in names}


LOSSES = {
    "cross_entropy": lambda: F.cross_entropy(x(64, 32), index(32, 64)),
    "cross_entropy smoothed": lambda: F.cross_entropy(x(64, 32), index(32, 64), label_smoothing=0.1),
    "cross_entropy weighted": lambda: F.cross_entropy(x(64, 32), index(32, 64), weight=share(32)),
    "cross_entropy of shares": lambda: F.cross_entropy(x(64, 32), share(64, 32)),
    "cross_entropy 2d": lambda: F.cross_entropy(x(4, 8, 16, 16), index(8, 4, 16, 16)),
    "nll_loss": lambda: F.nll_loss(x(64, 32), index(32, 64), reduction="sum"),
    "mse_loss": lambda: F.mse_loss(x(64, 32), data(64, 32)),
    "mse_loss sum": lambda: F.mse_loss(x(64, 32), data(64, 32), reduction="sum"),
    "mse_loss none": lambda: F.mse_loss(x(64, 32), data(64, 32), reduction="none"),
    "l1_loss": lambda: F.l1_loss(x(64, 32), data(64, 32)),
    "smooth_l1_loss": lambda: F.smooth_l1_loss(x(64, 32), data(64, 32)),
    "huber_loss": lambda: F.huber_loss(x(64, 32), data(64, 32)),
    "binary_cross_entropy": lambda: F.binary_cross_entropy(x(64, 32).sigmoid(), share(64, 32)),
    "binary_cross_entropy sum": lambda: F.binary_cross_entropy(x(64, 32).sigmoid(), share(64, 32), reduction="sum"),
    "binary_cross_entropy weighted": lambda: F.binary_cross_entropy(x(64, 32).sigmoid(), share(64, 32), share(64, 32)),
    "binary_cross_entropy_with_logits": lambda: F.binary_cross_entropy_with_logits(x(64, 32), share(64, 32)),
    "kl_div": lambda: F.kl_div(x(64, 32).log_softmax(1), share(64, 32), reduction="batchmean"),
    "poisson_nll_loss": lambda: F.poisson_nll_loss(x(64, 32), share(64, 32)),
    "gaussian_nll_loss": lambda: F.gaussian_nll_loss(x(64, 32), data(64, 32), share(64, 1)),
    "hinge_embedding_loss": lambda: F.hinge_embedding_loss(x(64, 32), data(64, 32).sign()),
    "margin_ranking_loss": lambda: F.margin_ranking_loss(x(64), x(64), data(64).sign()),
    "soft_margin_loss": lambda: F.soft_margin_loss(x(64, 32), data(64, 32).sign()),
    "multi_margin_loss": lambda: F.multi_margin_loss(x(64, 32), index(32, 64)),
    "multilabel_margin_loss": lambda: F.multilabel_margin_loss(x(64, 32), index(32, 64, 32)),
    "multilabel_soft_margin_loss": lambda: F.multilabel_soft_margin_loss(x(64, 32), share(64, 32)),
    "triplet_margin_loss": lambda: F.triplet_margin_loss(x(64, 32), x(64, 32), x(64, 32)),
    "cosine_embedding_loss": lambda: F.cosine_embedding_loss(x(64, 32), x(64, 32), data(64).sign()),
    "ctc_loss": lambda: F.ctc_loss(x(20, 4, 10).log_softmax(2), torch.randint(1, 10, (4, 5)),
                                   torch.full((4,), 20), torch.full((4,), 5)),
}
ACTIVATIONS = {
    **activations("relu", "relu6", "gelu", "silu", "mish", "elu", "selu", "celu", "leaky_relu", "hardtanh",
                  "hardsigmoid", "hardswish", "softplus", "softsign", "tanhshrink", "hardshrink", "softshrink", "logsigmoid"),
    "gelu tanh": lambda: F.gelu(x(64, 32), approximate="tanh"),
    "relu in place": lambda: F.relu(x(64, 32) * 2, inplace=True),
    "silu in place": lambda: F.silu(x(64, 32) * 2, inplace=True),
    "hardswish in place": lambda: F.hardswish(x(64, 32) * 2, inplace=True),
    "leaky_relu in place": lambda: F.leaky_relu(x(64, 32) * 2, inplace=True),
    "threshold": lambda: F.threshold(x(64, 32), 0.1, 0),
    "glu": lambda: F.glu(x(64, 32)), "prelu": of_module(lambda: nn.PReLU(8), 4, 8, 16),
    "rrelu": lambda: F.rrelu(x(64, 32), training=True),
    "softmax": lambda: F.softmax(x(64, 32), 1), "log_softmax": lambda: F.log_softmax(x(64, 32), 1),
    "gumbel_softmax": lambda: F.gumbel_softmax(x(64, 32)),
    "gumbel_softmax hard": lambda: F.gumbel_softmax(x(64, 32), hard=True),
    "dropout": lambda: F.dropout(x(64, 32), 0.1), "dropout2d": lambda: F.dropout2d(x(4, 8, 16, 16), 0.1),
    "alpha_dropout": lambda: F.alpha_dropout(x(64, 32), 0.1, training=True),
}
NORMS = {
    "layer_norm": of_module(lambda: nn.LayerNorm(32), 64, 32),
    "layer_norm of no weight": lambda: F.layer_norm(x(64, 32), (32,)),
    "group_norm": of_module(lambda: nn.GroupNorm(4, 8), 4, 8, 16, 16),
    "batch_norm 1d": of_module(lambda: nn.BatchNorm1d(32), 64, 32),
    "batch_norm 2d": of_module(lambda: nn.BatchNorm2d(8), 4, 8, 16, 16),
    "batch_norm evaluated": of_module(lambda: nn.BatchNorm2d(8).eval(), 4, 8, 16, 16),
    "instance_norm": of_module(lambda: nn.InstanceNorm2d(8, affine=True), 4, 8, 16, 16),
    "local_response_norm": lambda: F.local_response_norm(x(4, 8, 16, 16), 5),
    "normalize": lambda: F.normalize(x(64, 32)),
    "norm": lambda: x(64, 32).norm(dim=1), "vector_norm": lambda: torch.linalg.vector_norm(x(64, 32)),
    "std": lambda: x(64, 32).std(1), "var": lambda: x(64, 32).var(1),
    "var_mean": lambda: torch.var_mean(x(64, 32), 1)[0],
    "weight_norm": of_module(lambda: nn.utils.weight_norm(nn.Linear(32, 16)), 64, 32),
    "spectral_norm": of_module(lambda: nn.utils.spectral_norm(nn.Linear(32, 16)), 64, 32),
}
IMAGES = {
    "conv1d": of_module(lambda: nn.Conv1d(8, 16, 3, padding=1), 4, 8, 32),
    "conv2d": of_module(lambda: nn.Conv2d(8, 16, 3, padding=1), 4, 8, 16, 16),
    "conv2d depthwise": of_module(lambda: nn.Conv2d(8, 8, 3, groups=8), 4, 8, 16, 16),
    "conv2d dilated": of_module(lambda: nn.Conv2d(8, 16, 3, dilation=2), 4, 8, 16, 16),
    "conv2d same": of_module(lambda: nn.Conv2d(8, 16, 3, padding="same"), 4, 8, 16, 16),
    "conv2d reflected": of_module(lambda: nn.Conv2d(8, 16, 3, padding=1, padding_mode="reflect"), 4, 8, 16, 16),
    "conv3d": of_module(lambda: nn.Conv3d(2, 4, 3), 2, 2, 8, 8, 8),
    "conv_transpose1d": of_module(lambda: nn.ConvTranspose1d(8, 4, 2, 2), 4, 8, 32),
    "conv_transpose2d": of_module(lambda: nn.ConvTranspose2d(8, 4, 2, 2), 4, 8, 16, 16),
    "conv_transpose3d": of_module(lambda: nn.ConvTranspose3d(4, 2, 2, 2), 2, 4, 8, 8, 8),
    "max_pool1d": lambda: F.max_pool1d(x(4, 8, 32), 2), "max_pool2d": lambda: F.max_pool2d(x(4, 8, 16, 16), 2),
    "max_pool3d": lambda: F.max_pool3d(x(2, 2, 8, 8, 8), 2),
    "avg_pool1d": lambda: F.avg_pool1d(x(4, 8, 32), 2), "avg_pool2d": lambda: F.avg_pool2d(x(4, 8, 16, 16), 2),
    "avg_pool3d": lambda: F.avg_pool3d(x(2, 2, 8, 8, 8), 2), "lp_pool2d": lambda: F.lp_pool2d(x(4, 8, 16, 16), 2, 2),
    "adaptive_avg_pool1d": lambda: F.adaptive_avg_pool1d(x(4, 8, 32), 4),
    "adaptive_avg_pool2d": lambda: F.adaptive_avg_pool2d(x(4, 8, 16, 16), 4),
    "adaptive_avg_pool2d of 1": lambda: F.adaptive_avg_pool2d(x(4, 8, 16, 16), 1),
    "adaptive_avg_pool3d": lambda: F.adaptive_avg_pool3d(x(2, 2, 8, 8, 8), 2),
    "adaptive_max_pool2d": lambda: F.adaptive_max_pool2d(x(4, 8, 16, 16), 4),
    "max_unpool2d": lambda: F.max_unpool2d(*F.max_pool2d(x(4, 8, 16, 16), 2, return_indices=True), 2),
    **{f"pad {mode}": lambda mode=mode: F.pad(x(4, 8, 16, 16), (1, 1, 1, 1), mode=mode)
       for mode in ("constant", "reflect", "replicate", "circular")},
    **{f"interpolate {mode}": lambda mode=mode: F.interpolate(x(4, 8, 16, 16), scale_factor=2, mode=mode)
       for mode in ("nearest", "bilinear", "bicubic", "area")},
    "interpolate linear": lambda: F.interpolate(x(4, 8, 32), scale_factor=2, mode="linear"),
    "interpolate trilinear": lambda: F.interpolate(x(2, 2, 8, 8, 8), scale_factor=2, mode="trilinear"),
    "interpolate antialiased": lambda: F.interpolate(x(4, 8, 16, 16), size=(8, 8), mode="bilinear", antialias=True),
    "pixel_shuffle": lambda: F.pixel_shuffle(x(4, 8, 16, 16), 2),
    "pixel_unshuffle": lambda: F.pixel_unshuffle(x(4, 8, 16, 16), 2),
    "channel_shuffle": lambda: F.channel_shuffle(data(4, 8, 16, 16), 2),
    "grid_sample": lambda: F.grid_sample(
        x(4, 8, 16, 16), F.affine_grid(x(4, 2, 3), (4, 8, 16, 16), align_corners=False), align_corners=False),
    "unfold": lambda: F.unfold(x(4, 8, 16, 16), 3), "fold": lambda: F.fold(x(4, 32, 64), (16, 16), 2, stride=2),
}
TABLES = {
    "embedding": lambda: F.embedding(index(50, 64), x(50, 32)),
    "embedding with padding": lambda: F.embedding(index(50, 64), x(50, 32), padding_idx=0),
    **{f"embedding_bag {mode}": lambda mode=mode: F.embedding_bag(index(50, 16, 4), x(50, 32), mode=mode)
       for mode in ("sum", "mean", "max")},
    "one_hot": lambda: x(64, 8) * F.one_hot(index(8, 64), 8), "gather": lambda: x(64, 32).gather(1, index(32, 64, 4)),
    "take_along_dim": lambda: torch.take_along_dim(x(64, 32), index(32, 64, 4), 1),
    "index_select": lambda: x(64, 32).index_select(0, index(64, 16)), "index": lambda: x(64, 32)[index(64, 16)],
    "index of two": lambda: x(64, 32)[index(64, 16), index(32, 16)],
    "index_add": lambda: data(64, 32).index_add(0, index(64, 16), x(16, 32)),
    "index_copy": lambda: data(64, 32).index_copy(0, torch.arange(16, device="cuda"), x(16, 32)),
    "index_put": lambda: data(64, 32).index_put((index(64, 16),), x(16, 32)),
    "index_fill": lambda: x(64, 32).index_fill(0, index(64, 4), 0),
    "scatter": lambda: data(64, 32).scatter(1, index(32, 64, 4), x(64, 4)),
    "scatter_add": lambda: data(64, 32).scatter_add(1, index(32, 64, 4), x(64, 4)),
    "scatter_reduce": lambda: data(64, 32).scatter_reduce(1, index(32, 64, 4), x(64, 4), "amax"),
    "masked_fill": lambda: x(64, 32).masked_fill(data(64, 32) > 0, -1e9),
    "masked_select": lambda: x(64, 32).masked_select(data(64, 32) > 0),
    "masked_scatter": lambda: x(64, 32).masked_scatter(data(64, 32) > 0, data(64, 32)),
    "mask": lambda: x(64, 32)[data(64) > 0], "where": lambda: torch.where(data(64, 32) > 0, x(64, 32), 0.0),
    "where of tensors": lambda: torch.where(data(64, 32) > 0, x(64, 32), x(64, 32)),
    "nonzero": lambda: x(64, 32)[(data(64) > 0).nonzero().squeeze(1)], "take": lambda: x(64, 32).take(index(2048, 16)),
    "repeat_interleave": lambda: x(64, 32).repeat_interleave(2, 0),
    "unique": lambda: x(100, 32)[index(100, 40).unique()],
    "bucketize": lambda: x(64) * torch.bucketize(data(64), share(10)),
    "searchsorted": lambda: x(64) * torch.searchsorted(share(10), data(64)),
    "isin": lambda: x(64) * torch.isin(index(50, 64), index(50, 4)),
}
PRODUCTS = {
    "matmul": lambda: x(4, 16, 8) @ x(4, 8, 16), "bmm": lambda: torch.bmm(x(4, 16, 8), x(4, 8, 16)),
    "mv": lambda: x(16, 8).mv(x(8)), "dot": lambda: x(64).dot(x(64)), "outer": lambda: torch.outer(x(64), x(32)),
    "addmm": lambda: torch.addmm(x(16), x(64, 8), x(8, 16)),
    "addbmm": lambda: torch.addbmm(x(16, 16), x(4, 16, 8), x(4, 8, 16)),
    "baddbmm": lambda: torch.baddbmm(x(4, 16, 16), x(4, 16, 8), x(4, 8, 16)),
    "addcmul": lambda: torch.addcmul(x(64), x(64), x(64)),
    "addcdiv": lambda: torch.addcdiv(x(64), x(64), 1 + share(64)),
    "einsum": lambda: torch.einsum("bhqd,bhkd->bhqk", x(2, 4, 16, 8), x(2, 4, 16, 8)),
    "einsum of three": lambda: torch.einsum("bi,ij,bj->b", x(64, 8), x(8, 16), x(64, 16)),
    "tensordot": lambda: torch.tensordot(x(4, 8, 16), x(8, 16, 2), 2),
    "linear": of_module(lambda: nn.Linear(32, 16), 4, 64, 32),
    "bilinear": lambda: nn.Bilinear(32, 16, 8).cuda()(x(64, 32), x(64, 16)),
    "cdist": lambda: torch.cdist(x(64, 32), x(16, 32)),
    "pairwise_distance": lambda: F.pairwise_distance(x(64, 32), x(64, 32)),
    "cosine_similarity": lambda: F.cosine_similarity(x(64, 32), x(64, 32)),
    "cross": lambda: torch.cross(x(64, 3), x(64, 3), 1),
    "attention": lambda: nn.MultiheadAttention(32, 4, batch_first=True).cuda()(*3 * [x(4, 16, 32)])[0],
    "encoder": lambda: nn.TransformerEncoderLayer(32, 4, 64).cuda()(x(16, 4, 32)),
    "decoder": lambda: nn.TransformerDecoderLayer(32, 4, 64).cuda()(x(16, 4, 32), x(16, 4, 32)),
    **{name: lambda name=name: getattr(nn, name)(16, 32, 2).cuda()(x(6, 4, 16))[0] for name in ("LSTM", "GRU", "RNN")},
    **{name: lambda name=name: getattr(nn, name)(16, 16).cuda()(x(4, 16), None) for name in ("GRUCell", "RNNCell")},
    "LSTMCell": lambda: nn.LSTMCell(16, 16).cuda()(x(4, 16))[0],
}
REDUCTIONS = {
    **{name: lambda name=name: getattr(x(64, 32), name)(1) for name in
       ("sum", "mean", "prod", "amax", "amin", "logsumexp", "cumsum", "cumprod", "logcumsumexp", "argmax")},
    **{name: lambda name=name: getattr(x(64, 32), name)(1)[0] for name in
       ("max", "min", "median", "mode", "sort", "cummax", "kthvalue")},
    "max of all": lambda: x(64, 32).max(), "topk": lambda: x(64, 32).topk(4, 1)[0],
    "argsort": lambda: x(64, 32)[data(64).argsort()], "flip": lambda: x(64, 32).flip(0),
    "roll": lambda: x(64, 32).roll(1, 0),
    "nansum": lambda: x(64, 32).nansum(1), "any": lambda: x(64) * (data(64, 32) > 0).any(1),
    "count_nonzero": lambda: x(64) * data(64, 32).count_nonzero(1), "diff": lambda: x(64, 32).diff(dim=1),
    "quantile": lambda: x(64, 32).quantile(0.5, 1), "histc": lambda: x(10) * data(64).histc(10),
    "bincount": lambda: x(10) * torch.bincount(index(10, 64), minlength=10), "cov": lambda: x(8, 32).cov(),
}
SHAPES = {
    "cat": lambda: torch.cat([x(64, 32), x(64, 16)], 1), "stack": lambda: torch.stack([x(64), x(64)]),
    "split": lambda: x(64, 32).split(8, 1)[1], "chunk": lambda: x(64, 32).chunk(2, 1)[0],
    "unbind": lambda: x(4, 32).unbind()[1], "select": lambda: x(64, 32).select(1, 3),
    "slice": lambda: x(64, 32)[:, 2:9],
    "narrow": lambda: x(64, 32).narrow(1, 2, 4), "expand": lambda: x(64, 1).expand(64, 32),
    "repeat": lambda: x(64, 1).repeat(1, 4), "tile": lambda: x(64, 1).tile(4),
    "transpose": lambda: x(64, 32).t().contiguous(),
    "permute": lambda: x(4, 8, 16).permute(2, 0, 1).contiguous(), "tril": lambda: x(16, 16).tril(),
    "triu": lambda: x(16, 16).triu(), "diagonal": lambda: x(16, 16).diagonal(), "diag": lambda: x(16).diag(),
    "diag_embed": lambda: x(4, 16).diag_embed(), "trace": lambda: x(16, 16).trace(),
    "as_strided": lambda: x(64).as_strided((8, 8), (8, 1)), "unfold of an axis": lambda: x(64, 32).unfold(1, 4, 2),
    "meshgrid": lambda: torch.meshgrid(x(8), x(16), indexing="ij")[0],
    "movedim": lambda: x(4, 8, 16).movedim(0, 2).clone(), "flatten": lambda: x(4, 8, 16).flatten(1),
    "complex": lambda: torch.view_as_real(torch.view_as_complex(x(64, 2)) * 2),
    "rfft": lambda: torch.fft.irfft(torch.fft.rfft(x(4, 64))), "channels last": lambda: x(4, 8, 16, 16).to(
        memory_format=torch.channels_last) * 2,
    "half": lambda: x(64, 32).half().float(), "double": lambda: x(64).double(),
    "detach": lambda: x(64) * x(64).detach(),
}
NUMBERS = {
    **pointwise("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan",
                "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "atanh", "sigmoid", "erf", "erfc",
                "erfinv", "lgamma", "digamma", "abs", "neg", "sign", "square", "reciprocal", "floor", "ceil",
                "round", "trunc", "frac", "nan_to_num", "logit"),
    "pow": lambda: x(64) ** 3, "pow of a tensor": lambda: share(64) ** x(64), "clamp": lambda: x(64).clamp(-1, 1),
    "clamp_min": lambda: x(64).clamp(min=0), "maximum": lambda: torch.maximum(x(64), x(64)),
    "minimum": lambda: torch.minimum(x(64), x(64)), "atan2": lambda: torch.atan2(x(64), x(64)),
    "hypot": lambda: torch.hypot(x(64), x(64)), "lerp": lambda: torch.lerp(x(64), x(64), 0.1),
    "logaddexp": lambda: torch.logaddexp(x(64), x(64)), "xlogy": lambda: torch.xlogy(share(64), 1 + x(64)),
    "fmod": lambda: x(64).fmod(2), "remainder": lambda: x(64) % 2, "floor_divide": lambda: x(64) * (index(9, 64) // 2),
    "in place": lambda: (x(64) * 2).add_(1).mul_(3).sub_(1).div_(2).clamp_(0, 1),
    "comparisons": lambda: x(64) * ((data(64) > 0) & (data(64) < 1) | (data(64) == 2) ^ ~(data(64) != 1)),
    "softmax of a mask": lambda: (x(4, 16, 16) + torch.full((16, 16), -1e9, device="cuda").triu(1)).softmax(-1),
}
DRAWN = {
    "randn_like": lambda: x(64) + torch.randn_like(data(64)), "rand_like": lambda: x(64) + torch.rand_like(data(64)),
    "randint_like": lambda: x(64) + torch.randint_like(data(64), 9), "rand": lambda: x(64) + share(64),
    "randint": lambda: x(64) * index(9, 64), "randperm": lambda: x(64)[torch.randperm(64, device="cuda")],
    "normal": lambda: x(64) + torch.normal(0.0, 1.0, (64,), device="cuda"),
    "bernoulli": lambda: x(64) * torch.bernoulli(share(64)),
    "multinomial": lambda: x(64)[torch.multinomial(share(64), 8)],
    "uniform_": lambda: x(64) + torch.empty(64, device="cuda").uniform_(),
    "normal_": lambda: x(64) + data(64).normal_(),
    "bernoulli_": lambda: x(64) * torch.empty(64, device="cuda").bernoulli_(0.5),
    "exponential_": lambda: x(64) + torch.empty(64, device="cuda").exponential_(),
    "zeros": lambda: x(64) + torch.zeros(64, device="cuda"), "ones": lambda: x(64) + torch.ones(64, device="cuda"),
    "full": lambda: x(64) + torch.full((64,), 2.0, device="cuda"),
    "eye": lambda: x(16, 16) + torch.eye(16, device="cuda"), "arange": lambda: x(64) + torch.arange(64, device="cuda"),
    "linspace": lambda: x(64) + torch.linspace(0, 1, 64, device="cuda"),
    "full_like": lambda: x(64) + torch.full_like(data(64), 2), "ones_like": lambda: x(64) + torch.ones_like(data(64)),
    "zeros_like": lambda: x(64) + torch.zeros_like(data(64)), "new_zeros": lambda: x(64) + data(4).new_zeros(64),
    "new_tensor": lambda: x(2) + data(4).new_tensor([1.0, 2.0]),
    "tensor": lambda: x(2) + torch.tensor([1.0, 2.0], device="cuda"),
}
GROUPS = [LOSSES, ACTIVATIONS, NORMS, IMAGES, TABLES, PRODUCTS, REDUCTIONS, SHAPES, NUMBERS, DRAWN]


def captured(function, file):
    def train():
        made = function()
        if made.requires_grad:
            made.sum().backward()
    with perfmodel.capturing() as capture:
        return capture.step(train, file, warm=0)


class Functions(unittest.TestCase):
    #: Ops that no model prices. Answers name them.
    WITHOUT_PRICE = {"bilinear": ["aten::_trilinear"], "complex": ["aten::mul"],
                     "rfft": ["aten::_fft_c2c", "aten::_fft_c2r", "aten::_fft_r2c", "aten::fill_", "aten::mul"]}

    def test_every_op_has_a_price(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, function in (item for group in GROUPS for item in group.items()):
                with self.subTest(name):
                    made = perfmodel.predict(captured(function, os.path.join(folder, "captured.json")), gpu=GPU)
                    unknown = sorted({row["op"] for row in made["coverage"]["unmodelled_ops"]})
                    self.assertEqual(unknown, self.WITHOUT_PRICE.get(name, []))
                    said = " ".join(warning for warning in made["warnings"] if "without a kernel model" in warning)
                    self.assertTrue(all(op in said for op in unknown), made["warnings"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main(verbosity=2)
