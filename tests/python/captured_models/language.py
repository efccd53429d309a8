"""Language models: GPT-2, Llama and BERT written as Hugging Face writes them, and a mixture of experts."""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .training import adamw, product, tokens, training


def next_token_loss(model, words, labels):
    scores = model(words)
    before, after = scores[..., :-1, :].contiguous(), labels[..., 1:].contiguous()
    return F.cross_entropy(before.view(-1, scores.shape[-1]), after.view(-1))


def attention_flop(batch, sequence, width):
    """Queries times keys and weights times values, of all heads together."""
    return 2 * product(batch * sequence, width, sequence)


class Conv1d(nn.Module):
    """A linear layer whose weight is [in, out]."""

    def __init__(self, inner, out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inner, out).normal_(std=0.02))
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x):
        made = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        return made.view(x.size()[:-1] + (self.weight.shape[1],))


class NewGelu(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class GptBlock(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        width, self.heads = sizes.hidden, sizes.heads
        self.first = nn.LayerNorm(width)
        self.qkv, self.out = Conv1d(width, 3 * width), Conv1d(width, width)
        self.second = nn.LayerNorm(width)
        self.wide, self.narrow = Conv1d(width, 4 * width), Conv1d(4 * width, width)
        self.act, self.drop = NewGelu(), nn.Dropout(sizes.dropout)
        seen = torch.tril(torch.ones((sizes.positions, sizes.positions), dtype=torch.bool))
        self.register_buffer("seen", seen.view(1, 1, sizes.positions, sizes.positions), persistent=False)

    def split(self, x):
        return x.view(x.shape[:-1] + (self.heads, x.shape[-1] // self.heads)).permute(0, 2, 1, 3)

    def attend(self, x):
        query, key, value = (self.split(part) for part in self.qkv(x).split(x.shape[-1], dim=2))
        scores = torch.matmul(query, key.transpose(-1, -2))
        scores = scores / torch.full([], value.size(-1) ** 0.5, dtype=scores.dtype, device=scores.device)
        seen = self.seen[:, :, :x.shape[1], :x.shape[1]]
        lowest = torch.full([], torch.finfo(scores.dtype).min, dtype=scores.dtype, device=scores.device)
        weights = F.softmax(torch.where(seen, scores, lowest), dim=-1).type(value.dtype)
        mixed = torch.matmul(self.drop(weights), value).permute(0, 2, 1, 3).contiguous()
        return self.drop(self.out(mixed.view(x.shape)))

    def forward(self, x):
        x = self.attend(self.first(x)) + x
        return x + self.drop(self.narrow(self.act(self.wide(self.second(x)))))


class GptModel(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.words = nn.Embedding(sizes.vocabulary, sizes.hidden)
        self.positions = nn.Embedding(sizes.positions, sizes.hidden)
        self.drop = nn.Dropout(sizes.dropout)
        self.blocks = nn.ModuleList(GptBlock(sizes) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.hidden)
        self.head = nn.Linear(sizes.hidden, sizes.vocabulary, bias=False)
        self.head.weight = self.words.weight
        self.checkpoints = sizes.checkpoints

    def forward(self, words):
        words = words.view(-1, words.shape[-1])
        places = torch.arange(0, words.shape[-1], dtype=torch.long, device=words.device)
        places = places.unsqueeze(0).view(-1, words.shape[-1])
        x = self.drop(self.words(words) + self.positions(places))
        for block in self.blocks:
            if self.checkpoints == "none":
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.checkpoints == "reentrant")
        x = self.norm(x).view((-1,) + x.shape[1:])
        return self.head(x)


@dataclass
class Gpt:
    batch: int = 2
    sequence: int = 16
    layers: int = 2
    hidden: int = 32
    heads: int = 4
    vocabulary: int = 101
    positions: int = 16
    dropout: float = 0.1
    checkpoints: str = "none"  # or reentrant, or plain

    @property
    def parameters(self):
        # A block: 4 H^2 + 8 H^2 weights, 9 H biases, 4 H of norms; the head is the table of words.
        width = self.hidden
        return (self.vocabulary + self.positions) * width + self.layers * (12 * width ** 2 + 13 * width) + 2 * width

    @property
    def flop(self):
        rows, width = self.batch * self.sequence, self.hidden
        return (self.layers * (product(rows, width, 12 * width) + attention_flop(self.batch, self.sequence, width))
                + product(rows, width, self.vocabulary))

    def program(self):
        model = GptModel(self)
        words, labels = (tokens(self.vocabulary, self.batch, self.sequence) for _ in range(2))
        return training(model, adamw(model), next_token_loss, words, labels)


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * wide.to(x.dtype)


def rotate_half(x):
    first, second = x[..., :x.shape[-1] // 2], x[..., x.shape[-1] // 2:]
    return torch.cat((-second, first), dim=-1)


def rotate(x, cosine, sine):
    return x * cosine + rotate_half(x) * sine


class LlamaBlock(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.width = sizes.hidden // sizes.heads
        self.groups = sizes.heads // sizes.kv_heads
        narrow = sizes.kv_heads * self.width
        self.query, self.key, self.value, self.out = (
            nn.Linear(sizes.hidden, out, bias=False) for out in (sizes.hidden, narrow, narrow, sizes.hidden))
        self.gate, self.up = (nn.Linear(sizes.hidden, sizes.feed_forward, bias=False) for _ in range(2))
        self.down = nn.Linear(sizes.feed_forward, sizes.hidden, bias=False)
        self.first, self.second = RmsNorm(sizes.hidden), RmsNorm(sizes.hidden)

    def heads(self, x):
        return x.view(x.shape[0], x.shape[1], -1, self.width).transpose(1, 2)

    def repeat(self, x):
        batch, heads, length, width = x.shape
        if self.groups == 1:
            return x
        wide = x[:, :, None, :, :].expand(batch, heads, self.groups, length, width)
        return wide.reshape(batch, heads * self.groups, length, width)

    def attend(self, x, mask, cosine, sine):
        query, key, value = self.query(x), self.key(x), self.value(x)
        query, key, value = self.heads(query), self.heads(key), self.heads(value)
        cosine, sine = cosine.unsqueeze(1), sine.unsqueeze(1)
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        key, value = self.repeat(key), self.repeat(value)
        scores = torch.matmul(query, key.transpose(2, 3)) / math.sqrt(self.width) + mask
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
        mixed = torch.matmul(F.dropout(weights, p=0.0, training=self.training), value)
        return self.out(mixed.transpose(1, 2).contiguous().reshape(x.shape))

    def forward(self, x, mask, cosine, sine):
        x = x + self.attend(self.first(x), mask, cosine, sine)
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class LlamaModel(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        width = sizes.hidden // sizes.heads
        self.words = nn.Embedding(sizes.vocabulary, sizes.hidden)
        self.blocks = nn.ModuleList(LlamaBlock(sizes) for _ in range(sizes.layers))
        self.norm = RmsNorm(sizes.hidden)
        self.head = nn.Linear(sizes.hidden, sizes.vocabulary, bias=False)
        frequencies = 1.0 / 10000.0 ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def angles(self, places):
        rows = self.frequencies[None, :, None].expand(places.shape[0], -1, 1)
        angles = torch.matmul(rows, places[:, None, :].float()).transpose(1, 2)
        twice = torch.cat((angles, angles), dim=-1)
        return twice.cos(), twice.sin()

    def forward(self, words):
        batch, length = words.shape
        x = self.words(words)
        places = torch.arange(length, device=words.device).unsqueeze(0)
        mask = torch.full((length, length), torch.finfo(x.dtype).min, device=x.device)
        mask = torch.triu(mask, diagonal=1)[None, None, :, :].expand(batch, 1, -1, -1)
        cosine, sine = self.angles(places)
        for block in self.blocks:
            x = block(x, mask, cosine, sine)
        return self.head(self.norm(x))


@dataclass
class Llama:
    batch: int = 2
    sequence: int = 16
    layers: int = 2
    hidden: int = 32
    heads: int = 4
    kv_heads: int = 2
    feed_forward: int = 88
    vocabulary: int = 101

    @property
    def block(self):
        """Weights of a block's linear layers."""
        return self.hidden * (2 * self.hidden + 2 * self.hidden * self.kv_heads // self.heads + 3 * self.feed_forward)

    @property
    def parameters(self):
        return self.layers * (self.block + 2 * self.hidden) + (2 * self.vocabulary + 1) * self.hidden

    @property
    def flop(self):
        rows = self.batch * self.sequence
        attention = attention_flop(self.batch, self.sequence, self.hidden)
        angles = product(self.hidden // self.heads // 2, 1, self.sequence, gradients=0)
        return (self.layers * (product(rows, 1, self.block) + attention) + angles
                + product(rows, self.hidden, self.vocabulary))

    def program(self):
        model = LlamaModel(self)
        words, labels = (tokens(self.vocabulary, self.batch, self.sequence) for _ in range(2))
        return training(model, adamw(model), next_token_loss, words, labels)


CASES = {"gpt": Gpt, "llama": Llama}
