"""The ideal coder of subtractive dither, which the codec `dither` is held against.

Blocks of 128 values have a class of scale, c = round(2 log2(mean|x| / rms of the message)), and
differences of neighbours' classes cost their empirical entropy. Given the class and the dither
exactly, an index k costs -log2 of its probability under the Laplace or the Gaussian density of
the class's mean magnitude. No tables, states, headers or rounding of probabilities.
"""

from __future__ import annotations

import math

import numpy as np

BLOCK = 128


class IdealCoder:
    """Of one vector; `bits` may be asked for any step."""

    def __init__(self, values: np.ndarray, seed: int = 1):
        values = np.asarray(values, dtype=np.float64)
        self.coordinates = len(values)
        rms = math.sqrt(np.mean(values**2))
        starts = range(0, len(values), BLOCK)
        means = np.array([np.abs(values[i : i + BLOCK]).mean() for i in starts])
        classes = np.full(len(means), -1000)  # of blocks that are zero
        there = means > 0
        classes[there] = np.round(2 * np.log2(means[there] / rms))
        self.class_bits = len(means) * _entropy(np.diff(classes, prepend=classes[0]))
        scales = np.repeat(rms * 2.0 ** (classes / 2), BLOCK)[: len(values)]
        kept = np.repeat(there, BLOCK)[: len(values)]
        self.values, self.scales = values[kept], scales[kept]
        self.dither = np.random.default_rng(seed).random(len(self.values)) - 0.5

    def bits(self, step: float) -> float:
        """A coordinate, under the better of the two densities."""
        place = np.floor(self.values / step + self.dither + 0.5) - self.dither
        low, high = (place - 0.5) * step / self.scales, (place + 0.5) * step / self.scales
        return min(self._total(_laplace(low, high)), self._total(_gauss(low, high)))

    def step_at(self, bits: float) -> float:
        low, high = -60.0, 60.0  # log2 of the step over the rms of what is coded
        unit = math.sqrt(np.mean(self.values**2))
        for _ in range(40):
            middle = (low + high) / 2
            if self.bits(unit * 2**middle) > bits:
                low = middle
            else:
                high = middle
        return unit * 2**high

    def nmse_at(self, bits: float) -> float:
        """Step^2 / 12 of every coordinate that is coded, over the squared norm."""
        variance = self.step_at(bits) ** 2 / 12
        return variance * len(self.values) / float(np.sum(self.values**2))

    def _total(self, probabilities: np.ndarray) -> float:
        cost = -np.log2(np.maximum(probabilities, 1e-300)).sum()
        return float(cost + self.class_bits) / self.coordinates


def _entropy(symbols: np.ndarray) -> float:
    _, counts = np.unique(symbols, return_counts=True)
    shares = counts / counts.sum()
    return float(-(shares * np.log2(shares)).sum())


def _laplace(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """P(low < x < high) where the mean of |x| is 1."""
    # Both ends mirrored to the left half keep small probabilities exact.
    turned = low > 0
    low, high = np.where(turned, -high, low), np.where(turned, -low, high)
    left = np.exp(np.minimum(low, 0)) / 2
    right = np.where(
        high < 0, np.exp(np.minimum(high, 0)) / 2, 1 - np.exp(-np.maximum(high, 0)) / 2
    )
    return right - left


def _gauss(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """P(low < x < high) where the mean of |x| is 1: sigma = sqrt(pi / 2)."""
    turned = low > 0
    low, high = np.where(turned, -high, low), np.where(turned, -low, high)
    return (_erfc(-high / math.sqrt(math.pi)) - _erfc(-low / math.sqrt(math.pi))) / 2


_erfc = np.vectorize(math.erfc, otypes=[float])
