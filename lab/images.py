"""CIFAR-10 from its own binary files, or random images in their place."""

import pathlib

import torch

MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(1, 3, 1, 1)
DEVIATION = torch.tensor([0.2470, 0.2435, 0.2616]).view(1, 3, 1, 1)


def _read(files: list[pathlib.Path]) -> tuple[torch.Tensor, torch.Tensor]:
    rows = [torch.frombuffer(bytearray(f.read_bytes()), dtype=torch.uint8) for f in files]
    records = torch.cat(rows).view(-1, 3073)
    images = records[:, 1:].view(-1, 3, 32, 32).float() / 255
    return (images - MEAN) / DEVIATION, records[:, 0].long()


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
