"""Refuses a torch that _core was not built for, in better words than the dynamic linker's."""

import torch

from elastiquant._built_for import TORCH


def _minor(version: str) -> list[str]:
    """The part of a version that decides whether C++ fits: 2.13 of 2.13.0+cpu."""
    return version.split(".")[:2]


def check_torch(built_for: str = TORCH, found: str = torch.__version__) -> None:
    """Raises ImportError if `found` is of another minor version."""
    if _minor(found) != _minor(built_for):
        raise ImportError(
            f"elastiquant was built for torch {built_for}, and this is torch {found}. Install "
            "it again, in its source folder: pip install --no-build-isolation ."
        )
