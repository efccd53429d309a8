"""Image models: ResNet-50, a vision transformer, ConvNeXt, EfficientNet and a U-Net with attention."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from .training import adamw, convolution, product, sgd, tokens, training


def class_loss(model, images, classes):
    return F.cross_entropy(model(images), classes)


class DropPath(nn.Module):
    """Leaves a branch out for some of the samples."""

    def forward(self, x):
        kept = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(0.9)
        return x * kept.div_(0.9)


@dataclass
class Images:
    batch: int = 2
    size: int = 32
    classes: int = 10

    def step(self, model, optimizer):
        return training(model, optimizer, class_loss, torch.randn(self.batch, 3, self.size, self.size),
                        tokens(self.classes, self.batch))


def normed(channels_in, channels_out, kernel, stride=1, groups=1):
    conv = nn.Conv2d(channels_in, channels_out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(channels_out)]


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        self.body = nn.Sequential(*normed(channels, width, 1), nn.ReLU(inplace=True),
                                  *normed(width, width, 3, stride), nn.ReLU(inplace=True), *normed(width, 4 * width, 1))
        self.relu = nn.ReLU(inplace=True)
        changes = stride != 1 or channels != 4 * width
        self.side = nn.Sequential(*normed(channels, 4 * width, 1, stride)) if changes else None

    def forward(self, x):
        made = self.body(x)
        made += x if self.side is None else self.side(x)
        return self.relu(made)


@dataclass
class Resnet(Images):
    blocks: str = "1,1,1,1"
    width: int = 8

    def stages(self):
        """Channels in, width, stride of each block."""
        channels = self.width
        for stage, count in enumerate(map(int, self.blocks.split(","))):
            for block in range(count):
                yield channels, self.width << stage, 2 if stage and not block else 1
                channels = 4 * self.width << stage

    @property
    def parameters(self):
        made = 3 * 49 * self.width + 2 * self.width  # a norm has 2 per channel
        for channels, width, stride in self.stages():
            made += channels * width + 9 * width ** 2 + 4 * width ** 2 + 2 * (width + width + 4 * width)
            if stride != 1 or channels != 4 * width:
                made += (channels + 2) * 4 * width
        return made + (32 * self.width + 1) * self.classes

    @property
    def flop(self):
        batch, size = self.batch, self.size // 4
        made = convolution(batch, 3, self.width, self.size // 2, 7, gradients=1)
        for channels, width, stride in self.stages():
            made += convolution(batch, channels, width, size, 1)
            size //= stride
            made += convolution(batch, width, width, size, 3) + convolution(batch, width, 4 * width, size, 1)
            if stride != 1 or channels != 4 * width:
                made += convolution(batch, channels, 4 * width, size, 1)
        return made + product(batch, 32 * self.width, self.classes)

    def program(self):
        body = [Bottleneck(*block) for block in self.stages()]
        stem = [*normed(3, self.width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        model = nn.Sequential(*stem, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                              nn.Linear(32 * self.width, self.classes))
        return self.step(model, sgd(model, momentum=0.9))


class VitBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.drop = heads, DropPath()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attend(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(x).reshape(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)
        weights = ((query * (width // self.heads) ** -0.5) @ key.transpose(-2, -1)).softmax(dim=-1)
        return self.out((weights @ value).transpose(1, 2).reshape(x.shape))

    def forward(self, x):
        x = x + self.drop(self.attend(self.first(x)))
        return x + self.drop(self.inner(self.second(x)))


class VitModel(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.patches = nn.Conv2d(3, sizes.hidden, sizes.patch, sizes.patch)
        self.first = nn.Parameter(torch.zeros(1, 1, sizes.hidden))
        self.positions = nn.Parameter(torch.zeros(1, sizes.tokens, sizes.hidden))
        self.blocks = nn.Sequential(*(VitBlock(sizes.hidden, sizes.heads) for _ in range(sizes.layers)))
        self.norm, self.head = nn.LayerNorm(sizes.hidden), nn.Linear(sizes.hidden, sizes.classes)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(x.shape[0], -1, -1), x), dim=1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


@dataclass
class Vit(Images):
    patch: int = 8
    hidden: int = 32
    heads: int = 4
    layers: int = 2

    @property
    def tokens(self):
        return (self.size // self.patch) ** 2 + 1

    @property
    def parameters(self):
        width = self.hidden
        patches = (3 * self.patch ** 2 + 1) * width
        return (patches + (1 + self.tokens) * width + self.layers * (12 * width ** 2 + 13 * width) + 2 * width
                + (width + 1) * self.classes)

    @property
    def flop(self):
        rows, width = self.batch * self.tokens, self.hidden
        layer = product(rows, width, 12 * width) + 2 * product(rows, width, self.tokens)
        return (convolution(self.batch, 3, width, self.size // self.patch, self.patch, gradients=1)
                + self.layers * layer + product(self.batch, width, self.classes))

    def program(self):
        model = VitModel(self)
        return self.step(model, adamw(model))


class LayerNorm2d(nn.LayerNorm):
    """Over the channels of images."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.inner = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(),
                                   nn.Linear(4 * width, width))
        self.scale, self.drop = nn.Parameter(1e-6 * torch.ones(width)), DropPath()

    def forward(self, x):
        made = self.scale * self.inner(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.drop(made.permute(0, 3, 1, 2))


@dataclass
class ConvNext(Images):
    width: int = 8
    blocks: str = "1,2"

    def stages(self):
        """Width, blocks and size of the image of each stage."""
        counts = map(int, self.blocks.split(","))
        return [(self.width << stage, count, self.size // 4 >> stage) for stage, count in enumerate(counts)]

    @property
    def parameters(self):
        # Stem 48 C + C and a norm; a block 49 C + C, a norm, 8 C^2 + 5 C, a scale; 2 x 2 between stages.
        made = 51 * self.width
        for stage, (width, count, _) in enumerate(self.stages()):
            made += count * (8 * width ** 2 + 58 * width) + (2 * width ** 2 + 2 * width if stage else 0)
        return made + 2 * width + (width + 1) * self.classes

    @property
    def flop(self):
        made = convolution(self.batch, 3, self.width, self.size // 4, 4, gradients=1)
        for stage, (width, count, size) in enumerate(self.stages()):
            depthwise = convolution(self.batch, width, width, size, 7, groups=width)
            made += count * (depthwise + product(self.batch * size * size, width, 8 * width))
            made += convolution(self.batch, width // 2, width, size, 2) if stage else 0
        return made + product(self.batch, width, self.classes)

    def program(self):
        body = [nn.Conv2d(3, self.width, 4, 4), LayerNorm2d(self.width)]
        for stage, (width, count, _) in enumerate(self.stages()):
            if stage:
                body += [LayerNorm2d(width // 2), nn.Conv2d(width // 2, width, 2, 2)]
            body += [ConvNextBlock(width) for _ in range(count)]
        head = [nn.AdaptiveAvgPool2d(1), LayerNorm2d(width), nn.Flatten(), nn.Linear(width, self.classes)]
        model = nn.Sequential(*body, *head)
        return self.step(model, adamw(model))


class SqueezeExcite(nn.Module):
    def __init__(self, width, narrow):
        super().__init__()
        self.down, self.up = nn.Conv2d(width, narrow, 1), nn.Conv2d(narrow, width, 1)

    def forward(self, x):
        return x * self.up(F.silu(self.down(x.mean((2, 3), keepdim=True)))).sigmoid()


class MobileBlock(nn.Module):
    def __init__(self, width, stride):
        super().__init__()
        wide, act = 4 * width, nn.SiLU(inplace=True)
        self.body = nn.Sequential(*normed(width, wide, 1), act, *normed(wide, wide, 3, stride, wide), act,
                                  SqueezeExcite(wide, width // 4), *normed(wide, width, 1))
        self.drop = DropPath() if stride == 1 else None

    def forward(self, x):
        return self.body(x) if self.drop is None else x + self.drop(self.body(x))


@dataclass
class EfficientNet(Images):
    width: int = 16
    strides: str = "1,2,1"

    @property
    def parameters(self):
        # Two 1 x 1, a 3 x 3 per channel, norms, squeeze and excite from 4 C to C / 4 and back with biases.
        width = self.width
        block = 8 * width ** 2 + 36 * width + 2 * (4 + 4 + 1) * width + 2 * width ** 2 + width // 4 + 4 * width
        return 27 * width + 2 * width + len(self.strides.split(",")) * block + (width + 1) * self.classes

    @property
    def flop(self):
        batch, width, size = self.batch, self.width, self.size // 2
        made = convolution(batch, 3, width, size, 3, gradients=1)
        for stride in map(int, self.strides.split(",")):
            made += convolution(batch, width, 4 * width, size, 1)
            size //= stride
            made += convolution(batch, 4 * width, 4 * width, size, 3, groups=4 * width)
            made += 2 * product(batch, 4 * width, width // 4) + convolution(batch, 4 * width, width, size, 1)
        return made + product(batch, width, self.classes)

    def program(self):
        body = [MobileBlock(self.width, int(stride)) for stride in self.strides.split(",")]
        model = nn.Sequential(*normed(3, self.width, 3, 2), nn.SiLU(inplace=True), *body, nn.AdaptiveAvgPool2d(1),
                              nn.Flatten(), nn.Dropout(0.2), nn.Linear(self.width, self.classes))
        return self.step(model, torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.9))


CASES = {"resnet": Resnet, "vit": Vit, "convnext": ConvNext, "efficientnet": EfficientNet}
