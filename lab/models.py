"""The models that the lab times, in their forms for CIFAR's 32x32 images."""

import itertools

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut: subsampled and padded with zero channels (He et al.
    2016, option A), or by a 1x1 convolution (option B)."""

    def __init__(self, channels_in: int, channels: int, stride: int, project: bool):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.stride = stride
        self.padding = (channels - channels_in) // 2
        self.shortcut = None
        if project and (stride != 1 or channels_in != channels):
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False),
                nn.BatchNorm2d(channels),
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        if self.shortcut is not None:
            x = self.shortcut(x)
        elif self.stride != 1:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.padding, self.padding))
        return F.relu(out + x)


def _resnet(widths: tuple[int, ...], blocks: int, project: bool) -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(3, widths[0], 3, padding=1, bias=False),
        nn.BatchNorm2d(widths[0]),
        nn.ReLU(),
    ]
    channels_in = widths[0]
    for channels in widths:
        for block in range(blocks):
            stride = 2 if block == 0 and channels != widths[0] else 1
            layers.append(Block(channels_in, channels, stride, project))
            channels_in = channels
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels_in, 10)
    )


def resnet20() -> nn.Module:
    """He et al. 2016, section 4.2: 269,722 parameters."""
    return _resnet((16, 32, 64), 3, project=False)


def resnet18() -> nn.Module:
    """He et al. 2016, table 1, with a 3x3 stem: 11,173,962 parameters."""
    return _resnet((64, 128, 256, 512), 2, project=True)


def mlp() -> nn.Module:
    """Few and large matrices, as language models have them: 67,125,258 parameters."""
    widths = (3072, 4096, 4096, 4096, 4096, 1024)
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 10))


MODELS = {"resnet20": resnet20, "resnet18": resnet18, "mlp": mlp}
