"""A worker's state between the engine's sections of bytes and a state_dict() of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from elastiquant import _core

# By the beginning of a section's name; the others are text.
_TYPES = {
    "memory/": torch.float32,
    "mean-memory/": torch.float32,
    "units": torch.float64,
    "step": torch.int64,
}


def _type_of(name: str) -> torch.dtype | None:
    return next((t for prefix, t in _TYPES.items() if name.startswith(prefix)), None)


def pack(sections: Mapping[str, bytes], rank: int) -> dict[str, Any]:
    """Keys differ by rank: a checkpoint of all workers keeps one value for each key."""
    return {f"rank{rank}/{name}": _to_value(name, data) for name, data in sections.items()}


def unpack(state: Mapping[str, Any], rank: int) -> dict[str, bytes]:
    """Raises CorruptFrameError if there is nothing of this rank, or a value is of another type
    than the one that pack() gave."""
    prefix = f"rank{rank}/"
    sections = {
        (name := key.removeprefix(prefix)): _to_bytes(key, value, _type_of(name))
        for key, value in state.items()
        if key.startswith(prefix)
    }
    if not sections:
        found = sorted({key.split("/")[0] for key in state if key.startswith("rank")})
        of = f"it is of {', '.join(found)}" if found else "it is no state of elastiquant"
        raise _core.CorruptFrameError(
            f"the state has nothing of rank {rank}, which this worker is: {of}. Every worker "
            "loads what it has saved itself"
        )
    return sections


def _to_value(name: str, data: bytes) -> torch.Tensor | str:
    dtype = _type_of(name)
    if dtype is None:
        return data.decode()
    if not data:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype)


def _to_bytes(key: str, value: Any, dtype: torch.dtype | None) -> bytes:
    if dtype is None and isinstance(value, str):
        return value.encode()
    if dtype is not None and isinstance(value, torch.Tensor) and value.dtype == dtype:
        return value.detach().cpu().contiguous().numpy().tobytes()
    kind = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
    wanted = "text" if dtype is None else f"a tensor of {dtype}"
    raise _core.CorruptFrameError(f"{key} of the state is of {kind}; it must be {wanted}")
