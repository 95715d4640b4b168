"""CIFAR-10 from its own binary files, or random images in their place."""

import pathlib
import sys

import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "python"))

from elastiquant_testbed.on_device.images import read


def _read(files: list[pathlib.Path]) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = read(files)
    return images.permute(0, 3, 1, 2).contiguous(), labels


class Images:
    """A worker's batches: its share of the training images, shuffled and flipped."""

    def __init__(self, folder: pathlib.Path | None, rank: int, world_size: int, batch: int):
        self.folder = folder
        self.batch = batch
        self.random = torch.Generator().manual_seed(1000 + rank)
        if folder is None:
            self.images = torch.randn(4 * batch, 3, 32, 32, generator=self.random)
            self.labels = torch.randint(10, (4 * batch,), generator=self.random)
        else:
            images, labels = _read(sorted(folder.glob("data_batch_*.bin")))
            self.images, self.labels = images[rank::world_size], labels[rank::world_size]

    def next(self) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = torch.randint(len(self.images), (self.batch,), generator=self.random)
        images = self.images[chosen]
        flips = torch.rand(self.batch, generator=self.random) < 0.5
        images[flips] = images[flips].flip(-1)
        return images, self.labels[chosen]

    def test(self, model: torch.nn.Module) -> float | None:
        """Test accuracy in percent; None of random images."""
        if self.folder is None:
            return None
        images, labels = _read([self.folder / "test_batch.bin"])
        model.eval()
        with torch.no_grad():
            right = sum(
                int((model(x).argmax(1) == y).sum())
                for x, y in zip(images.split(250), labels.split(250), strict=True)
            )
        return 100 * right / len(labels)
