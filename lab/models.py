"""The models that the lab times, in their forms for CIFAR's 32x32 images.

The ResNets' parameters have the names of `elastiquant train`, whose checkpoints they load."""

import itertools
import pathlib
import sys

from torch import nn

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "python"))

from elastiquant_testbed.on_device.networks import resnet18, resnet20


def mlp() -> nn.Module:
    """Few and large matrices, as language models have them: 67,125,258 parameters."""
    widths = (3072, 4096, 4096, 4096, 4096, 1024)
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 10))


MODELS = {"resnet20": resnet20, "resnet18": resnet18, "mlp": mlp}
