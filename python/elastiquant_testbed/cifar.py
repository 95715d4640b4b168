"""Whether a folder has CIFAR-10.

Runs are named by what they train on, not by where it lies, so that a folder with other images
would be taken for CIFAR-10, and its runs would mix with those that are.
"""

from __future__ import annotations

from pathlib import Path

from elastiquant_testbed.testbed import UsageError

TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = "test_batch.bin"
RECORD = 1 + 3 * 32 * 32  # a label and its image
FILE = 10_000 * RECORD
CLASSES = 10
# The classes are equally large in both sets, though not in each file of the training set.
OF_A_CLASS = (("training", TRAIN, 5000), ("test", (TEST,), 1000))


def require(folder: str) -> None:
    """Raises UsageError with what is wanted if the folder does not have it."""
    if wrong := _wrong(Path(folder)):
        raise UsageError(
            f"--data {folder} is not CIFAR-10: {wrong}. It has to be in its "
            f"binary form: {TRAIN[0]} to {TRAIN[-1]} and {TEST}, which `elastiquant data fetch "
            "cifar10 DIR` downloads; without --data it trains on generated images"
        )


def _wrong(folder: Path) -> str:
    """What is; empty if nothing is."""
    if not folder.is_dir():
        return "there is no such folder"
    for name in (*TRAIN, TEST):
        path = folder / name
        if not path.is_file():
            return f"there is no {name}"
        if (size := path.stat().st_size) != FILE:
            return f"{name} has {size} bytes, not {FILE}"
    for which, names, of_a_class in OF_A_CLASS:
        labels = b"".join((folder / name).read_bytes()[::RECORD] for name in names)
        if any(labels.count(label) != of_a_class for label in range(CLASSES)):
            return f"its {which} set does not have {of_a_class} images of every class"
    return ""
