"""A model's floating-point buffers, as the values that are averaged with its parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from elastiquant import _model


@dataclass(frozen=True)
class _Buffer:
    """Where a buffer is found, as a module may put another tensor in its place."""

    module: torch.nn.Module
    key: str  # in the module
    name: str  # in the model
    size: int  # values that have memory of their own

    def tensor(self) -> torch.Tensor:
        """What the module has there now. Raises RuntimeError if its size has changed."""
        found = getattr(self.module, self.key, None)
        values = _model.unexpanded(found) if isinstance(found, torch.Tensor) else None
        if values is None or values.numel() != self.size:
            found = "none" if values is None else values.numel()
            raise RuntimeError(
                f"the buffer {self.name!r} had {self.size} values when training began, and has "
                f"{found} now: workers average it, so it must keep its size"
            )
        return values


class Buffers:
    """Running variances travel as second moments about zero, var + mean^2: their mean less the
    square of the mean of means is the variance of all workers' data.

    Left as they are: buffers that are no part of the model's state (persistent=False), such as
    caches, which may grow on one worker alone, and those that are not finite at the start, such
    as masks of -inf, of which no mean could be made.
    """

    def __init__(self, module: torch.nn.Module):
        """To be called when all workers have the same buffers."""
        self._plain: list[_Buffer] = []
        self._norms: list[tuple[_Buffer, _Buffer]] = []  # running mean and variance
        seen: set[int] = set()
        for prefix, part in module.named_modules():
            found: dict[str, _Buffer] = {}
            for key, tensor in part.named_buffers(recurse=False):
                is_cache = key in part._non_persistent_buffers_set
                if is_cache or not tensor.is_floating_point() or id(tensor) in seen:
                    continue
                seen.add(id(tensor))
                values = _model.unexpanded(tensor)
                if values.float().isfinite().all():
                    name = _model.name_of(f"{prefix}.{key}".lstrip("."))
                    found[key] = _Buffer(part, key, name, values.numel())
            mean, var = found.get("running_mean"), found.get("running_var")
            if mean and var and mean.tensor().shape == var.tensor().shape:
                self._norms.append((mean, var))
                del found["running_mean"], found["running_var"]
            self._plain += found.values()

    def _all(self) -> list[_Buffer]:
        """In the order in which they travel."""
        return [*self._plain, *(buffer for pair in self._norms for buffer in pair)]

    @property
    def size(self) -> int:
        """The number of values."""
        return sum(buffer.size for buffer in self._all())

    def read(self) -> list[torch.Tensor]:
        """One flat tensor of the host, or none if there is no buffer."""
        values = [b.tensor().float().flatten().cpu() for b in self._plain]
        for mean, var in self._norms:
            first, second = mean.tensor(), var.tensor() + mean.tensor().square()
            values += [t.float().flatten().cpu() for t in (first, second)]
        return [torch.cat(values)] if values and self.size else []

    def room(self) -> list[torch.Tensor]:
        """Tensors of the same sizes as read() gives."""
        return [torch.empty(self.size, dtype=torch.float32, device="cpu")] if self.size else []

    def write(self, means: list[torch.Tensor]) -> None:
        """Takes up the means of what read() gave."""
        if not means:
            return
        parts = iter(means[0].split([buffer.size for buffer in self._all()]))
        for buffer in self._plain:
            _fill(buffer.tensor(), next(parts))
        for mean, var in self._norms:
            first, second = next(parts), next(parts)
            _fill(mean.tensor(), first)
            _fill(var.tensor(), (second - first.square()).clamp_min(0))

    def write_late(self, means: list[torch.Tensor], sent: list[torch.Tensor]) -> None:
        """Takes up the means of what read() gave some time ago, which was `sent`, and keeps
        what has changed here since."""
        # In this order they become the means to the bit if nothing has.
        parts = zip(means, self.read(), sent, strict=True)
        self.write([mean + (now - before) for mean, now, before in parts])

    def named_in(self, reason: str) -> str:
        """Why a round is lost, in the engine's words, with the buffer named where it says
        "loss": `train` sends that beside parameters, and this package buffers."""

        def name(match: re.Match[str]) -> str:
            at = int(match[1])
            for buffer in self._all():
                if at < buffer.size:
                    return f"the buffer {buffer.name!r} at {at}"
                at -= buffer.size
            return match[0]

        return re.sub(r"bucket \d+ \(loss\) at (\d+)", name, reason)


def _fill(tensor: torch.Tensor, values: torch.Tensor) -> None:
    tensor.copy_(values.view(tensor.shape))
