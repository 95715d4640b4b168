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


# Of a variance between workers that is less than this part of the squared distance from the
# reference nothing is known: in fp32 the difference of two such squares is rounding alone.
_LEAST_KNOWN = 2.0**-20


class Buffers:
    """Beside its running mean and variance, a batch norm sends (mean - reference)^2. The mean
    of that, less the square of (mean of means - reference), is the variance between workers'
    means; with the mean of their variances it is the variance of all workers' data.

    The reference is the mean of means that all workers have taken up last, and at first what
    they have started from. Squares of the means themselves, where these are large, would drown
    the variances in fp32.

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
        means = [_values_of(mean) for mean, _ in self._norms]
        # One flat tensor, or none if there is no batch norm. It goes into checkpoints.
        self.reference = [torch.cat(means)] if means else []

    def _all(self) -> list[_Buffer]:
        """What each part of what travels is of, in their order."""
        of_norms = [buffer for mean, var in self._norms for buffer in (mean, var, mean)]
        return [*self._plain, *of_norms]

    def _references(self) -> list[torch.Tensor]:
        """Views of the reference, by norm."""
        sizes = [mean.size for mean, _ in self._norms]
        return list(self.reference[0].split(sizes)) if sizes else []

    @property
    def size(self) -> int:
        """The number of values that travel."""
        return sum(buffer.size for buffer in self._all())

    def read(self) -> list[torch.Tensor]:
        """One flat tensor of the host, or none if there is no buffer."""
        values = [_values_of(buffer) for buffer in self._plain]
        for (mean, var), reference in zip(self._norms, self._references(), strict=True):
            first = _values_of(mean)
            values += [first, _values_of(var), (first - reference).square()]
        return [torch.cat(values)] if values and self.size else []

    def room(self) -> list[torch.Tensor]:
        """Tensors of the same sizes as read() gives."""
        return [torch.empty(self.size, dtype=torch.float32, device="cpu")] if self.size else []

    def write(self, means: list[torch.Tensor]) -> None:
        """Takes up the means of what read() gave."""
        self._take(means)
        self._refer_to(means)

    def _take(self, means: list[torch.Tensor]) -> None:
        if not means:
            return
        plain, norms = self._parts(means)
        for buffer, values in zip(self._plain, plain, strict=True):
            _fill(buffer.tensor(), values)
        for pair, reference, parts in zip(self._norms, self._references(), norms, strict=True):
            (mean, var), (first, within, squares) = pair, parts
            between = _variance(squares, first - reference)
            _fill(mean.tensor(), first)
            _fill(var.tensor(), (within + between).clamp_min(0))

    def _refer_to(self, means: list[torch.Tensor]) -> None:
        """Makes the means of means, which all workers have to the bit, the reference."""
        if not means:
            return
        _, norms = self._parts(means)
        for reference, (first, _, _) in zip(self._references(), norms, strict=True):
            reference.copy_(first)

    def _parts(
        self, means: list[torch.Tensor]
    ) -> tuple[list[torch.Tensor], list[list[torch.Tensor]]]:
        """By plain buffer; and three by norm."""
        parts = list(means[0].split([buffer.size for buffer in self._all()]))
        plain, norms = parts[: len(self._plain)], parts[len(self._plain) :]
        return plain, [norms[i : i + 3] for i in range(0, len(norms), 3)]

    def write_late(self, means: list[torch.Tensor], sent: list[torch.Tensor]) -> None:
        """Takes up the means of what read() gave some time ago, which was `sent`, and keeps
        what has changed here since."""
        # In this order they become the means to the bit if nothing has.
        parts = zip(means, self.read(), sent, strict=True)
        self._take([mean + (now - before) for mean, now, before in parts])
        self._refer_to(means)

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


def _values_of(buffer: _Buffer) -> torch.Tensor:
    """Flat, on the host, and fp32."""
    return buffer.tensor().float().flatten().cpu()


def _variance(squares: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """Of what lies, in the mean, at `shift` from a point, and at the mean square distance
    `squares`. Where the two are too large beside it, it is taken for 0."""
    at_shift = shift.square()
    variance = squares - at_shift
    return variance.where(variance > _LEAST_KNOWN * at_shift, 0)


def _fill(tensor: torch.Tensor, values: torch.Tensor) -> None:
    tensor.copy_(values.view(tensor.shape))
