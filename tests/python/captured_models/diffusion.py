"""A U-Net that learns to remove noise: attention, time as an input, gradients clipped, averaged weights."""

import copy
import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from .training import adamw, convolution, product, tokens


class Block(nn.Module):
    def __init__(self, channels, width, time):
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(4, channels), nn.SiLU(), nn.Conv2d(channels, width, 3, padding=1))
        self.time = nn.Linear(time, width)
        self.second = nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1))
        self.side = nn.Conv2d(channels, width, 1) if channels != width else nn.Identity()

    def forward(self, x, time):
        made = self.first(x) + self.time(F.silu(time))[:, :, None, None]
        return self.second(made) + self.side(x)


class Attention(nn.Module):
    """One head, from all places of the image to all others."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv, self.out = nn.GroupNorm(4, width), nn.Conv1d(width, 3 * width, 1), nn.Linear(width, width)

    def forward(self, x):
        query, key, value = self.qkv(self.norm(x).flatten(2)).chunk(3, dim=1)
        weights = torch.einsum("bct,bcs->bts", query, key).div(math.sqrt(query.shape[1])).softmax(dim=-1)
        mixed = torch.einsum("bts,bcs->btc", weights, value)
        return x + self.out(mixed).transpose(1, 2).reshape(x.shape)


class UnetModel(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.down1, self.down2 = Block(width, width, 4 * width), Block(width, 2 * width, 4 * width)
        self.shrink, self.middle = nn.Conv2d(width, width, 3, 2, 1), Attention(2 * width)
        self.up, self.join = nn.ConvTranspose2d(2 * width, 2 * width, 2, 2), Block(3 * width, width, 4 * width)
        self.head = nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))

    def embed(self, when):
        line = torch.arange(self.width // 2, device=when.device, dtype=torch.float32)
        angles = when[:, None].float() * torch.exp(line * (-math.log(1e4) / (self.width // 2)))[None]
        return self.time(torch.cat((angles.sin(), angles.cos()), dim=1))

    def forward(self, images, when):
        time = self.embed(when)
        wide = self.down1(self.stem(images), time)
        narrow = self.middle(self.down2(self.shrink(wide), time))
        return self.head(self.join(torch.cat((F.interpolate(self.up(narrow), wide.shape[2:]), wide), dim=1), time))


@dataclass
class Unet:
    batch: int = 2
    size: int = 16
    width: int = 8

    @property
    def parameters(self):
        def block(channels, width):
            side = (channels + 1) * width if channels != width else 0
            return 2 * channels + 9 * channels * width + 9 * width ** 2 + 4 * width + (4 * c + 1) * width + side
        c = self.width
        time, ends, shrink = 20 * c ** 2 + 8 * c, 27 * c + c + 2 * c + 27 * c + 3, 9 * c ** 2 + c
        attention, up = 4 * c + 16 * c ** 2 + 8 * c, 16 * c ** 2 + 2 * c
        return time + ends + shrink + attention + up + block(c, c) + block(c, 2 * c) + block(3 * c, c)

    @property
    def flop(self):
        def block(channels, width, size):
            side = convolution(batch, channels, width, size, 1) if channels != width else 0
            return (convolution(batch, channels, width, size, 3) + convolution(batch, width, width, size, 3)
                    + product(batch, 4 * c, width) + side)
        batch, c, size, half = self.batch, self.width, self.size, self.size // 2
        time = product(batch, c, 4 * c, gradients=1) + product(batch, 4 * c, 4 * c)
        ends = convolution(batch, 3, c, size, 3, gradients=1) + convolution(batch, c, 3, size, 3)
        attention = product(batch * half ** 2, 2 * c, 8 * c) + 2 * product(batch * half ** 2, 2 * c, half ** 2)
        up = product(batch * half ** 2, 2 * c, 8 * c)
        return (time + ends + convolution(batch, c, c, half, 3) + attention + up
                + block(c, c, size) + block(c, 2 * c, half) + block(3 * c, c, size))

    def program(self):
        model = UnetModel(self.width)
        average = copy.deepcopy(model).requires_grad_(False)
        optimizer = adamw(model)
        images, when = torch.randn(self.batch, 3, self.size, self.size), tokens(1000, self.batch)

        def train():
            noise = torch.randn_like(images)
            optimizer.zero_grad()
            F.mse_loss(model(images + noise, when), noise).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            with torch.no_grad():
                for kept, weight in zip(average.parameters(), model.parameters()):
                    kept.lerp_(weight, 0.001)
        return train


CASES = {"unet": Unet}
