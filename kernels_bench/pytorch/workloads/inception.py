"""Inception-v3 for training: 299 x 299, 1000 classes, auxiliary head (weight 0.4), SGD."""

import torch
from torch import nn
from torch.nn import functional

from . import common, resnet


class Conv(nn.Module):
    """Convolution, batch norm (eps 1e-3), ReLU."""

    def __init__(self, inputs, outputs, size, **more):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, bias=False, **more)
        self.bn = nn.BatchNorm2d(outputs, eps=1e-3)

    def forward(self, x):
        return functional.relu(self.bn(self.conv(x)), inplace=True)


class Branches(nn.Module):
    """Runs its branches on the same input and joins them along the channels."""

    def __init__(self, *branches):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def pooled(inputs, outputs):
    return nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1), Conv(inputs, outputs, 1))


def block_a(w, inputs, pool):
    """35 x 35. `w` scales a width."""
    return Branches(Conv(inputs, w(64), 1),
                    nn.Sequential(Conv(inputs, w(48), 1), Conv(w(48), w(64), 5, padding=2)),
                    nn.Sequential(Conv(inputs, w(64), 1), Conv(w(64), w(96), 3, padding=1),
                                  Conv(w(96), w(96), 3, padding=1)),
                    pooled(inputs, pool))


def block_b(w, inputs):
    """35 to 17."""
    return Branches(Conv(inputs, w(384), 3, stride=2),
                    nn.Sequential(Conv(inputs, w(64), 1), Conv(w(64), w(96), 3, padding=1),
                                  Conv(w(96), w(96), 3, stride=2)),
                    nn.MaxPool2d(3, stride=2))


def wide(inputs, outputs):
    return Conv(inputs, outputs, (1, 7), padding=(0, 3))


def tall(inputs, outputs):
    return Conv(inputs, outputs, (7, 1), padding=(3, 0))


def block_c(w, inner):
    """17 x 17."""
    inputs, outputs = w(768), w(192)
    return Branches(Conv(inputs, outputs, 1),
                    nn.Sequential(Conv(inputs, inner, 1), wide(inner, inner), tall(inner, outputs)),
                    nn.Sequential(Conv(inputs, inner, 1), tall(inner, inner), wide(inner, inner),
                                  tall(inner, inner), wide(inner, outputs)),
                    pooled(inputs, outputs))


def block_d(w):
    """17 to 8."""
    return Branches(nn.Sequential(Conv(w(768), w(192), 1), Conv(w(192), w(320), 3, stride=2)),
                    nn.Sequential(Conv(w(768), w(192), 1), wide(w(192), w(192)), tall(w(192), w(192)),
                                  Conv(w(192), w(192), 3, stride=2)),
                    nn.MaxPool2d(3, stride=2))


def split(width):
    return Branches(Conv(width, width, (1, 3), padding=(0, 1)), Conv(width, width, (3, 1), padding=(1, 0)))


def block_e(w, inputs):
    """8 x 8."""
    return Branches(Conv(inputs, w(320), 1),
                    nn.Sequential(Conv(inputs, w(384), 1), split(w(384))),
                    nn.Sequential(Conv(inputs, w(448), 1), Conv(w(448), w(384), 3, padding=1), split(w(384))),
                    pooled(inputs, w(192)))


class Inception(nn.Module):
    def __init__(self, w, classes, auxiliary):
        super().__init__()
        self.front = nn.Sequential(
            Conv(3, w(32), 3, stride=2), Conv(w(32), w(32), 3), Conv(w(32), w(64), 3, padding=1),
            nn.MaxPool2d(3, stride=2), Conv(w(64), w(80), 1), Conv(w(80), w(192), 3), nn.MaxPool2d(3, stride=2),
            block_a(w, w(192), w(32)), block_a(w, w(256), w(64)), block_a(w, w(288), w(64)), block_b(w, w(288)),
            block_c(w, w(128)), block_c(w, w(160)), block_c(w, w(160)), block_c(w, w(192)))
        self.auxiliary = None
        if auxiliary:
            self.auxiliary = nn.Sequential(nn.AvgPool2d(5, stride=3), Conv(w(768), w(128), 1), Conv(w(128), w(768), 5),
                                           nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(w(768), classes))
        self.back = nn.Sequential(block_d(w), block_e(w, w(1280)), block_e(w, w(2048)),
                                  nn.AdaptiveAvgPool2d((1, 1)), nn.Dropout(0.5), nn.Flatten(),
                                  nn.Linear(w(2048), classes))

    def forward(self, x):
        x = self.front(x)
        return self.back(x), (self.auxiliary(x) if self.auxiliary is not None else None)


def loss(outputs, batch):
    main, auxiliary = outputs
    total = functional.cross_entropy(main.float(), batch[-1])
    if auxiliary is not None:
        total = total + 0.4 * functional.cross_entropy(auxiliary.float(), batch[-1])
    return total


def make(batch, device, tiny):
    side, classes, divisor = (139, 10, 16) if tiny else (299, 1000, 1)
    # The auxiliary head needs the 17 x 17 of full images.
    model = Inception(lambda width: width // divisor, classes, auxiliary=not tiny).to(device).train()
    return common.Parts(model, common.sgd(model), resnet.image_batches(batch, side, classes, device), loss)
