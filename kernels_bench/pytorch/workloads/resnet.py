"""ResNet-50 (v1.5: the stride sits in the 3x3 convolution), 224 x 224, 1000 classes, SGD."""

import torch
from torch import nn
from torch.nn import functional

from . import common

DEPTHS = (3, 4, 6, 3)


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False),
                                          nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += self.shortcut(x)
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self, depths, width, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(width),
                                  nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1))
        blocks, inputs = [], width
        for stage, depth in enumerate(depths):
            for i in range(depth):
                blocks.append(Bottleneck(inputs, width << stage, 2 if stage > 0 and i == 0 else 1))
                inputs = 4 * (width << stage)
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x):
        x = functional.adaptive_avg_pool2d(self.blocks(self.stem(x)), (1, 1))
        return self.head(torch.flatten(x, 1))


def image_batches(batch, side, classes, device):
    return [(common.normal((batch, 3, side, side), device), common.integers(classes, (batch,), device))
            for _ in range(common.INPUT_BATCHES)]


def make(batch, device, tiny):
    depths, width, side, classes = ((1, 1), 8, 32, 10) if tiny else (DEPTHS, 64, 224, 1000)
    model = ResNet(depths, width, classes).to(device).train()
    return common.Parts(model, common.sgd(model), image_batches(batch, side, classes, device),
                        lambda outputs, data: functional.cross_entropy(outputs.float(), data[-1]))
