"""A model's floating-point buffers, as the values that are averaged with its parameters."""

from __future__ import annotations

import torch

from elastiquant import _model


class Buffers:
    """Running variances travel as second moments about zero, var + mean^2: their mean less the
    square of the mean of means is the variance of all workers' data."""

    def __init__(self, module: torch.nn.Module):
        self._plain: list[torch.Tensor] = []
        self._norms: list[tuple[torch.Tensor, torch.Tensor]] = []  # running mean and variance
        seen: set[int] = set()
        for part in module.modules():
            mean, var = (getattr(part, f"running_{n}", None) for n in ("mean", "var"))
            if isinstance(mean, torch.Tensor) and isinstance(var, torch.Tensor):
                self._norms.append((mean, var))
                seen |= {id(mean), id(var)}
        for buffer in module.buffers():
            if buffer.is_floating_point() and id(buffer) not in seen:
                self._plain.append(_model.unexpanded(buffer))

    @property
    def size(self) -> int:
        """The number of values."""
        plain = sum(b.numel() for b in self._plain)
        return plain + sum(mean.numel() + var.numel() for mean, var in self._norms)

    def read(self) -> list[torch.Tensor]:
        """One flat tensor of the host, or none if there is no buffer."""
        values = [b.float().flatten().cpu() for b in self._plain]
        for mean, var in self._norms:
            values += [t.float().flatten().cpu() for t in (mean, var + mean.square())]
        return [torch.cat(values)] if values and self.size else []

    def room(self) -> list[torch.Tensor]:
        """Tensors of the same sizes as read() gives."""
        return [torch.empty(self.size, dtype=torch.float32, device="cpu")] if self.size else []

    def write(self, means: list[torch.Tensor]) -> None:
        """Takes up the means of what read() gave."""
        if not means:
            return
        flat, at = means[0], 0
        for buffer in self._plain:
            buffer.copy_(flat[at : at + buffer.numel()].view(buffer.shape))
            at += buffer.numel()
        for mean, var in self._norms:
            n = mean.numel()
            first, second = flat[at : at + n], flat[at + n : at + 2 * n]
            at += 2 * n
            mean.copy_(first.view(mean.shape))
            var.copy_((second - first.square()).clamp_min(0).view(var.shape))

    def write_late(self, means: list[torch.Tensor], sent: list[torch.Tensor]) -> None:
        """Takes up the means of what read() gave some time ago, which was `sent`, and keeps
        what has changed here since."""
        # In this order they become the means to the bit if nothing has.
        parts = zip(means, self.read(), sent, strict=True)
        self.write([mean + (now - before) for mean, now, before in parts])
