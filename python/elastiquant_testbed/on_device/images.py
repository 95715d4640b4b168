"""CIFAR-10 on a device, and batches of it as `elastiquant train` draws them: shifted by up to 4
pixels, mirrored half of the time, and normalised, with the mean colour beyond the edges."""

from __future__ import annotations

from pathlib import Path

import torch

from elastiquant_testbed.cifar import RECORD

MEAN = (0.4914, 0.4822, 0.4465)
DEVIATION = (0.2470, 0.2435, 0.2616)
SIDE, SHIFT = 32, 4


def read(files: list[Path]) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalised images (N, 32, 32, 3) and labels, on the host."""
    data = bytearray().join(file.read_bytes() for file in files)
    if not data or len(data) % RECORD:
        names = ", ".join(file.name for file in files) or "no file"
        raise ValueError(f"{names}: expected records of {RECORD} bytes, as CIFAR-10 has them")
    records = torch.frombuffer(data, dtype=torch.uint8).view(-1, RECORD)
    pixels = records[:, 1:].view(-1, 3, SIDE, SIDE).permute(0, 2, 3, 1).float() / 255
    return (pixels - torch.tensor(MEAN)) / torch.tensor(DEVIATION), records[:, 0].long()


class Images:
    """The images of a folder, with its own random numbers for what is drawn."""

    def __init__(self, folder: Path, device: torch.device, seed: int, rank: int | None = None):
        """rank: of the one worker whose batches are drawn here. All have the same order then,
        and augment their images each in its own way. None: the batches of all are drawn."""
        train = sorted(folder.glob("data_batch_*.bin")) or [folder / "train.bin"]
        test = [f for f in (folder / "test_batch.bin", folder / "test.bin") if f.exists()]
        if not test:
            raise ValueError(f"{folder} has neither test_batch.bin nor test.bin")
        images, labels = read(train)
        beyond = (0, 0, SHIFT, SHIFT, SHIFT, SHIFT)
        self._padded = torch.nn.functional.pad(images, beyond).to(device)
        self._labels = labels.to(device)
        self._test = tuple(t.to(device) for t in read(test[:1]))
        self._random = torch.Generator(device).manual_seed(seed)
        self._draws = self._random
        if rank is not None:
            self._draws = torch.Generator(device).manual_seed(1000 * seed + rank + 1)
        self._pixels = torch.arange(SIDE, device=device)

    def __len__(self) -> int:
        return len(self._labels)

    def order(self) -> torch.Tensor:
        """The numbers of all training images, shuffled."""
        return torch.randperm(len(self), generator=self._random, device=self._labels.device)

    def batch(self, chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """These training images, augmented, of shape (n, 3, 32, 32), and their labels."""
        rows, columns = (
            torch.randint(
                2 * SHIFT + 1, (len(chosen), 1), generator=self._draws, device=chosen.device
            )
            + self._pixels
            for _ in range(2)
        )
        mirrored = torch.randint(
            2, (len(chosen), 1), generator=self._draws, device=chosen.device
        )
        columns = torch.where(mirrored == 1, columns.flip(1), columns)
        images = self._padded[chosen[:, None, None], rows[:, :, None], columns[:, None, :]]
        return images.permute(0, 3, 1, 2), self._labels[chosen]

    def test_batches(self, size: int = 1000):
        """All test images as they are, in batches with their labels."""
        for images, labels in zip(*(t.split(size) for t in self._test), strict=True):
            yield images.permute(0, 3, 1, 2), labels
