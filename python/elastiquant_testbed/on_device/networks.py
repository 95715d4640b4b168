"""The networks of `elastiquant train` for 32x32 images, in PyTorch: the same layers under the
same names, with weights of the same distributions."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut: subsampled and padded with zero channels (He et al.
    2016, option A), or by a 1x1 convolution (option B)."""

    def __init__(self, channels_in: int, channels: int, stride: int, project: bool):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.stride = stride
        self.padding = (channels - channels_in) // 2
        self.downsample = None
        if project and (stride != 1 or channels_in != channels):
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False),
                nn.BatchNorm2d(channels),
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            x = self.downsample(x)
        elif self.stride != 1:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.padding, self.padding))
        return F.relu(out + x)


def _resnet(widths: tuple[int, ...], blocks: int, project: bool) -> nn.Module:
    net = nn.Sequential()
    net.conv1 = nn.Conv2d(3, widths[0], 3, padding=1, bias=False)
    net.bn1 = nn.BatchNorm2d(widths[0])
    net.relu = nn.ReLU()
    channels_in = widths[0]
    for stage, channels in enumerate(widths, start=1):
        layer = nn.Sequential()
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 1 else 1
            layer.append(Block(channels_in, channels, stride, project))
            channels_in = channels
        net.add_module(f"layer{stage}", layer)
    net.pool = nn.AdaptiveAvgPool2d(1)
    net.flatten = nn.Flatten()
    net.fc = nn.Linear(channels_in, 10)
    return net


def resnet8() -> nn.Module:
    """The smallest of He et al. 2016, section 4.2, for trials: 75,290 parameters."""
    return _resnet((16, 32, 64), 1, project=False)


def resnet20() -> nn.Module:
    """He et al. 2016, section 4.2: 269,722 parameters."""
    return _resnet((16, 32, 64), 3, project=False)


def resnet110() -> nn.Module:
    """He et al. 2016, section 4.2: 1,727,962 parameters."""
    return _resnet((16, 32, 64), 18, project=False)


def resnet18() -> nn.Module:
    """He et al. 2016, table 1, with a 3x3 stem: 11,173,962 parameters."""
    return _resnet((64, 128, 256, 512), 2, project=True)


# By the name that `elastiquant train --model` has for them.
NETWORKS = {
    "resnet8": resnet8,
    "resnet20": resnet20,
    "resnet110": resnet110,
    "resnet18-32px": resnet18,
}


def initialise(network: nn.Module, random: torch.Generator) -> None:
    """As `train` does: convolutions are normal with variance 2 / fan-out, and the last layer
    uniform within 1 / sqrt(fan-in)."""
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = module.weight.numel() / module.weight.size(1)
                module.weight.normal_(0, math.sqrt(2 / fan_out), generator=random)
            elif isinstance(module, nn.Linear):
                bound = 1 / math.sqrt(module.weight.size(1))
                module.weight.uniform_(-bound, bound, generator=random)
                module.bias.uniform_(-bound, bound, generator=random)
